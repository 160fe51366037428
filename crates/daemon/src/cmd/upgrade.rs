//! `trivium upgrade`: another binary takes over from the running daemon, with nothing lost.

use control::UpgradeRequest;
use hyper::Method;
use hyper::body::Bytes;

use crate::cli::Upgrade;
use crate::client::Client;
use crate::failure::Failure;

/// Asks the daemon to hand over.
///
/// # Errors
/// If the successor does not take over; the running daemon then goes on.
pub async fn upgrade(client: &Client, args: &Upgrade) -> Result<(), Failure> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new("upgrade", error, "name it with --binary"))?,
    };
    let binary = std::fs::canonicalize(&binary)
        .map_err(|error| Failure::new(binary.display().to_string(), error, "check the path"))?;
    let body = serde_json::to_vec(&UpgradeRequest { binary: binary.clone() }).unwrap_or_default();
    let answer = client.request(Method::POST, "/v1/upgrade", "application/json", Bytes::from(body)).await?;
    answer.success()?;
    println!("{} has taken over", binary.display());
    Ok(())
}
