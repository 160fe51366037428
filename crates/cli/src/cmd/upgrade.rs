//! `trivium upgrade`: replaces the running daemon by another binary without packet loss.

use std::path::PathBuf;

use control::{UpgradeRequest, Upgraded};
use hyper::Method;

use crate::args::Upgrade;
use crate::client::Client;
use crate::failure::Failure;

/// Requests the daemon to start the new binary and to hand over the data plane to the new process.
///
/// # Errors
/// Returns an error if the new process (the successor) does not take over. The running daemon then
/// continues.
pub async fn upgrade(client: &Client, args: &Upgrade) -> Result<(), Failure> {
    let whole = |binary: &PathBuf| {
        let failed = |error| Failure::new(binary.display().to_string(), error, "check the path");
        std::fs::canonicalize(binary).map_err(failed)
    };
    let asked = UpgradeRequest { binary: args.binary.as_ref().map(whole).transpose()? };
    let done: Upgraded = client.send(Method::POST, "/v1/upgrade", &asked).await?;
    match args.json {
        true => println!("{}", serde_json::to_string(&done).unwrap_or_default()),
        false => println!("{} has taken over", done.binary.display()),
    }
    Ok(())
}
