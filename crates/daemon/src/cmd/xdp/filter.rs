//! `trivium xdp filter`: the filters of ports' hooks and their block lists.

use hyper::Method;
use model::{BlockRequest, Blocked, FilterState};

use crate::cli::{FilterCommand, Show, Shown};
use crate::client::Client;
use crate::cmd::apply::quoted;
use crate::cmd::show;
use crate::failure::Failure;

/// Does what is asked for.
///
/// # Errors
/// If the daemon does not answer, or the filter does not exist or has no block list.
pub async fn filter(client: &Client, command: &FilterCommand) -> Result<(), Failure> {
    match command {
        FilterCommand::Show { name, json } => {
            show::show(client, &Show { what: Shown::Filters, name: name.clone(), json: *json }).await
        }
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
    }
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

/// The filter that is named, or the only one with a block list.
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
