//! `trivium apply FILE`, `trivium confirm` and `trivium rollback`.

use hyper::Method;
use hyper::body::Bytes;

use control::{Outcome, PendingReport};

use crate::args::{Apply, Json};
use crate::client::{Client, quoted};
use crate::cmd::check::read_configuration;
use crate::failure::{Failure, Kind};
use crate::table::counted;

/// Applies a configuration file and prints the differences to the previous configuration, with the daemon's
/// notices.
///
/// # Errors
/// Returns an error if the file is refused. Nothing has changed in that case.
pub async fn apply(client: &Client, args: &Apply) -> Result<(), Failure> {
    let text = read_configuration(&args.file)?;
    // The daemon would close the connection without reading a longer body.
    if text.len() > model::LIMIT_BYTES {
        let cause = format!("the file has {} bytes, and at most {} are read", text.len(), model::LIMIT_BYTES);
        let fix =
            "put the prefixes of filters into a block list's file, or flows into the daemon over the API";
        return Err(Failure::new(args.file.display().to_string(), cause, fix).of_kind(Kind::Refused));
    }
    let mut path = format!("/v1/config?file={}", quoted(&args.file.display().to_string()));
    if args.dry_run {
        path.push_str("&dry_run=true");
    }
    if args.force {
        path.push_str("&force=true");
    }
    if let Some(seconds) = args.confirm {
        path.push_str(&format!("&confirm={seconds}"));
    }
    let answer =
        client.request(Method::PUT, &path, "application/toml", Bytes::from(text)).await?.success()?;
    if args.json {
        println!("{}", String::from_utf8_lossy(&answer.body).trim());
        return Ok(());
    }
    print(&client.read(&answer)?, args.dry_run);
    Ok(())
}

/// Prints the result of a configuration change: what was changed or, with `--dry-run`, what would be changed.
pub fn tell(outcome: &Outcome) {
    for warning in &outcome.warnings {
        eprintln!("{warning}");
    }
    print!("{}", outcome.plan);
    for notice in &outcome.notices {
        println!("{} {}: {}", notice.severity, notice.object, notice.finding);
    }
}

fn print(outcome: &Outcome, dry_run: bool) {
    tell(outcome);
    let count = outcome.plan.lines.len();
    let changes = counted(count, "change");
    match (count, dry_run, outcome.confirm_within_s) {
        (0, _, _) => println!("nothing differs"),
        (_, true, _) => println!("{changes}; nothing was done (dry run)"),
        (_, _, Some(seconds)) => {
            println!("{changes} applied; rolled back in {seconds} s unless `trivium confirm` is given");
        }
        _ => println!(
            "{changes} applied; to keep them over a restart, write them into the file that `trivium run -c` names"
        ),
    }
}

/// Confirms the configuration that `trivium apply --confirm` has applied on trial, so that the daemon keeps it.
///
/// # Errors
/// Returns an error if no change is on trial.
pub async fn confirm(client: &Client, args: Json) -> Result<(), Failure> {
    let report: PendingReport = client.send(Method::POST, "/v1/config/confirm", &()).await?;
    match args.json {
        true => println!("{}", serde_json::to_string(&report).unwrap_or_default()),
        false => println!("{}", report.last),
    }
    Ok(())
}

/// Undoes the configuration that `trivium apply --confirm` has applied on trial.
///
/// # Errors
/// Returns an error if no change is on trial, or the data plane refuses the previous configuration.
pub async fn roll_back(client: &Client, args: Json) -> Result<(), Failure> {
    let outcome: Outcome = client.send(Method::DELETE, "/v1/config/pending", &()).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome).unwrap_or_default());
        return Ok(());
    }
    tell(&outcome);
    println!("rolled back: {}", counted(outcome.plan.lines.len(), "change"));
    Ok(())
}
