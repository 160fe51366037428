//! `trivium xdp filter`: packet filters in the XDP programs of ports, with their rules, block lists and samples.

use control::Outcome;
use hyper::Method;
use model::{BlockRequest, Blocked, FilterState, RuleName};

use packet::filter::Filter;

use crate::args::{Capture, FilterCommand, FilterSamples, RuleAdd, RuleRemove};
use crate::client::{Client, quoted};
use crate::cmd::apply::tell;
use crate::cmd::trace::FILTER_EXAMPLE;
use crate::cmd::{capture, show};
use crate::failure::Failure;

/// Executes a subcommand of `trivium xdp filter`.
///
/// # Errors
/// Returns an error if the daemon does not answer, the filter does not exist or has no block list,
/// or the daemon refuses the change.
pub async fn filter(client: &Client, command: &FilterCommand) -> Result<(), Failure> {
    match command {
        FilterCommand::Show { name, json } => show::show_named(client, "filters", name.as_ref(), *json).await,
        FilterCommand::Add(args) => add(client, args).await,
        FilterCommand::Remove(args) => remove(client, args).await,
        FilterCommand::Block(args) => {
            let (prefixes, expires_s) = (args.prefixes.clone(), args.expires);
            let request = BlockRequest { unblock: false, prefixes, expires_s };
            block(client, args.filter.as_ref(), &request).await
        }
        FilterCommand::Unblock(args) => {
            let request = BlockRequest { unblock: true, prefixes: args.prefixes.clone(), expires_s: None };
            block(client, args.filter.as_ref(), &request).await
        }
        FilterCommand::Reload { filter } => {
            let filter = chosen(client, filter.as_ref()).await?;
            let path = format!("/v1/filters/{}/reload", quoted(&filter));
            let done: Blocked = client.send(Method::POST, &path, &()).await?;
            println!("{filter}: {} prefixes in its block list", done.listed);
            Ok(())
        }
        FilterCommand::Samples(args) => samples(client, args).await,
    }
}

/// Adds a rule to a filter and prints the resulting changes of the configuration.
async fn add(client: &Client, args: &RuleAdd) -> Result<(), Failure> {
    let beside =
        |key: &str, rule: &Option<RuleName>| Some(format!("{key}={}", quoted(rule.as_ref()?.as_str())));
    let query = [
        args.first.then(|| "first=true".to_owned()),
        beside("before", &args.before),
        beside("after", &args.after),
        args.persist.then(|| "persist=true".to_owned()),
    ];
    let query: Vec<String> = query.into_iter().flatten().collect();
    let path = format!("/v1/filters/{}/rules?{}", quoted(&args.filter), query.join("&"));
    let outcome: Outcome = client.send(Method::POST, &path, &args.rule.given()).await?;
    tell(&outcome);
    Ok(())
}

/// Removes a rule from a filter and prints the resulting changes of the configuration.
async fn remove(client: &Client, args: &RuleRemove) -> Result<(), Failure> {
    let path = format!("/v1/filters/{}/rules/{}", quoted(&args.filter), quoted(args.rule.as_str()));
    let answer = client.request(Method::DELETE, &path, "", Vec::new().into()).await?.success()?;
    tell(&client.read(&answer)?);
    Ok(())
}

/// Prints or writes the frames that rules of a filter sample, until a limit is reached or Ctrl-C is pressed.
async fn samples(client: &Client, args: &FilterSamples) -> Result<(), Failure> {
    let packets = args.filter.join(",");
    // The expression is also parsed here, so that errors are reported without a daemon.
    Filter::parse(&packets).map_err(|error| Failure::new("filter", error, FILTER_EXAMPLE))?;
    let filters: Vec<FilterState> = client.get("/v1/filters").await?;
    let (filter, port) = followed(&filters, &args.name)?;
    let port = port.map_or_else(String::new, |port| format!("port={}&", quoted(port)));
    let path = format!("/v1/filters/{}/samples?{port}filter={}", quoted(filter), quoted(&packets));
    let output = Capture {
        port: args.name.clone(),
        drops: false,
        write: args.write.clone(),
        number: args.number,
        seconds: args.seconds,
        filter: args.filter.clone(),
    };
    capture::receive(client, &path, &output, "raise `one_in` of the rule to lose none").await
}

/// Returns the name of the filter that `name` represents: the filter with this name, or the filter of the port with
/// this name. In the second case, the second value is the port.
fn followed<'f>(filters: &'f [FilterState], name: &'f str) -> Result<(&'f str, Option<&'f str>), Failure> {
    if let Some(filter) = filters.iter().find(|filter| filter.name == name) {
        return Ok((&filter.name, None));
    }
    let having = filters.iter().find(|filter| filter.ports.iter().any(|port| port == name));
    having.map(|filter| (filter.name.as_str(), Some(name))).ok_or_else(|| {
        let cause = "there is no filter of this name, and no port of this name with a filter";
        Failure::new(name, cause, "see both with `trivium show filters`")
    })
}

async fn block(client: &Client, filter: Option<&String>, request: &BlockRequest) -> Result<(), Failure> {
    let filter = chosen(client, filter).await?;
    let path = format!("/v1/filters/{}/block", quoted(&filter));
    let done: Blocked = client.send(Method::POST, &path, request).await?;
    let did = if request.unblock { "taken out" } else { "blocked" };
    let (changed, asked, listed) = (done.changed, request.prefixes.len(), done.listed);
    println!("{filter}: {changed} of {asked} {did}, {listed} in its block list");
    Ok(())
}

/// Returns the given filter name. Without a name, returns the name of the only filter with a block list.
async fn chosen(client: &Client, named: Option<&String>) -> Result<String, Failure> {
    if let Some(name) = named {
        return Ok(name.clone());
    }
    let mut filters: Vec<FilterState> = client.get("/v1/filters").await?;
    filters.retain(|filter| filter.listed.is_some());
    let names: Vec<&str> = filters.iter().map(|filter| filter.name.as_str()).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Failure::new(
            "filter",
            "no filter has a block list",
            "give one a rule with `listed = true` and `action = \"drop\"`",
        )),
        several => {
            let cause = format!("several have a block list: {}", several.join(", "));
            Err(Failure::new("filter", cause, "name one"))
        }
    }
}
