//! `trivium xdp steering`: shows and changes flow steering, which distributes received packets to workers, the
//! kernel or CPUs. A steering policy has exact flows, each with a target, and a table that maps the hash
//! buckets of all other flows to targets.

use hyper::Method;
use model::{SteeringDone, SteeringEntry, SteeringRequest, SteeringState, SteeringTable, SteeringTarget};

use crate::args::{FlowArgs, SteeringCommand};
use crate::client::{Client, quoted};
use crate::cmd::show;
use crate::failure::Failure;
use crate::table::{Table, short};

/// Executes a subcommand of `trivium xdp steering`.
///
/// # Errors
/// Returns an error if the daemon does not answer, the steering policy does not exist, or the
/// daemon refuses the flow or the table.
pub async fn steering(client: &Client, command: &SteeringCommand) -> Result<(), Failure> {
    match command {
        SteeringCommand::Show { name, json } => {
            show::show_named(client, "steering", name.as_ref(), *json).await
        }
        SteeringCommand::Flows { steering, number, json } => {
            flows(client, steering.as_ref(), *number, *json).await
        }
        SteeringCommand::Add { flow, to, mark, expires } => {
            let (to, mark, expires_s) = (*to, mark.unwrap_or(0), *expires);
            let entry = SteeringEntry { to, mark, expires_s, ..entry(flow) };
            change(client, flow.steering.as_ref(), false, entry).await
        }
        SteeringCommand::Remove { flow } => change(client, flow.steering.as_ref(), true, entry(flow)).await,
        SteeringCommand::Table { steering, targets } => table(client, steering, targets).await,
    }
}

fn entry(flow: &FlowArgs) -> SteeringEntry {
    SteeringEntry {
        vlan: flow.vlan,
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
        to: SteeringTarget::Worker,
        mark: 0,
        expires_s: None,
        live: false,
        packets: 0,
        bytes: 0,
    }
}

async fn change(
    client: &Client,
    steering: Option<&String>,
    remove: bool,
    entry: SteeringEntry,
) -> Result<(), Failure> {
    let key = entry.key().map_err(|(cause, fix)| Failure::new("flow", cause, fix))?;
    let to = entry.to;
    let steering = chosen(client, steering).await?;
    let path = format!("/v1/steering/{}/flows", quoted(&steering));
    let done: SteeringDone =
        client.send(Method::POST, &path, &SteeringRequest { remove, flows: vec![entry] }).await?;
    let did = match (remove, done.changed) {
        (true, 0) => "there was no such flow".to_owned(),
        (true, _) => "taken out".to_owned(),
        (false, 0) => format!("goes to {to} already"),
        (false, _) => format!("to {to}"),
    };
    println!("{steering}: {key}: {did}; {} flows", done.flows);
    Ok(())
}

async fn flows(client: &Client, steering: Option<&String>, number: usize, json: bool) -> Result<(), Failure> {
    let steering = chosen(client, steering).await?;
    let path = format!("/v1/steering/{}/flows?limit={number}", quoted(&steering));
    let flows: Vec<SteeringEntry> = client.get(&path).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&flows).unwrap_or_default());
        return Ok(());
    }
    let mut table = Table::new(&["FLOW", "TO", ">MARK", ">PACKETS", ">BYTES", "NOTE"]);
    for flow in &flows {
        let key = flow.key().map_or_else(|(cause, _)| cause.to_owned(), |key| key.to_string());
        let mark = if flow.mark == 0 { "-".to_owned() } else { format!("{:#x}", flow.mark) };
        let live = if flow.live { "live" } else { "" };
        let ends = flow.expires_s.map(|left| format!("ends in {left} s")).unwrap_or_default();
        let note: Vec<&str> = [live, &ends].into_iter().filter(|note| !note.is_empty()).collect();
        let (packets, bytes) = (short(flow.packets), short(flow.bytes));
        table.row([key, flow.to.to_string(), mark, packets, bytes, note.join(", ")]);
    }
    print!("{}", table.render());
    Ok(())
}

async fn table(client: &Client, steering: &str, targets: &[SteeringTarget]) -> Result<(), Failure> {
    let path = format!("/v1/steering/{}/table", quoted(steering));
    if !targets.is_empty() {
        let _: SteeringTable =
            client.send(Method::PUT, &path, &SteeringTable { buckets: targets.to_vec() }).await?;
    }
    // The table is read back, because the targets are repeated for all buckets.
    let table: SteeringTable = client.get(&path).await?;
    folded(&table.buckets).iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Formats the targets of all hash buckets of a steering table in few lines. If the targets repeat periodically,
/// there is one line for each position of the period. Otherwise, there is one line for each range of buckets with
/// the same target.
fn folded(buckets: &[SteeringTarget]) -> Vec<String> {
    let count = buckets.len();
    let repeats = |period: &usize| {
        count.is_multiple_of(*period)
            && buckets.iter().zip(&buckets[*period..]).all(|(one, other)| one == other)
    };
    if let Some(period) = (2..=count / 2).find(repeats).filter(|_| !repeats(&1)) {
        let line = |(at, to): (usize, &SteeringTarget)| {
            format!("{at}, {}, ..., {}: {to}", at + period, count - period + at)
        };
        return buckets.iter().take(period).enumerate().map(line).collect();
    }
    let mut at = 0;
    let ranges = buckets.chunk_by(|one, other| one == other);
    ranges
        .map(|range| {
            let first = at;
            at += range.len();
            let to = range.first().map(SteeringTarget::to_string).unwrap_or_default();
            if range.len() == 1 { format!("{first}: {to}") } else { format!("{first}-{}: {to}", at - 1) }
        })
        .collect()
}

/// Returns the given name of a steering policy. Without a name, returns the name of the only
/// steering policy.
async fn chosen(client: &Client, named: Option<&String>) -> Result<String, Failure> {
    if let Some(name) = named {
        return Ok(name.clone());
    }
    let policies: Vec<SteeringState> = client.get("/v1/steering").await?;
    let names: Vec<&str> = policies.iter().map(|steering| steering.name.as_str()).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => {
            Err(Failure::new("steering", "there is no steering", "add [steering.NAME] to the configuration"))
        }
        several => {
            let cause = format!("there are several: {}", several.join(", "));
            Err(Failure::new("steering", cause, "name one with --steering"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_folded_by_patterns_and_by_ranges() {
        let (worker, kernel) = (SteeringTarget::Worker, SteeringTarget::Kernel);
        assert_eq!(folded(&[worker; 256]), ["0-255: worker"]);
        assert_eq!(folded(&[worker]), ["0: worker"]);
        assert_eq!(folded(&[worker, kernel]), ["0: worker", "1: kernel"]);
        assert_eq!(folded(&[[worker; 4], [kernel; 4]].concat()), ["0-3: worker", "4-7: kernel"]);
        let repeated = folded(&[worker, kernel].repeat(128));
        assert_eq!(repeated, ["0, 2, ..., 254: worker", "1, 3, ..., 255: kernel"]);
        let mut other = vec![worker; 8];
        other[2] = kernel;
        assert_eq!(folded(&other), ["0-1: worker", "2: kernel", "3-7: worker"]);
    }
}
