//! `trivium show config`: the running configuration.

use control::ConfigReport;
use hyper::Method;
use hyper::body::Bytes;

use crate::client::Client;
use crate::failure::Failure;

/// Prints the running configuration as TOML with the owner of each object that does not come from
/// the file, or as JSON.
pub async fn show(client: &Client, json: bool) -> Result<(), Failure> {
    if json {
        let report: ConfigReport = client.get("/v1/config").await?;
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
        return Ok(());
    }
    let answer = client.request(Method::GET, "/v1/config?format=toml", "", Bytes::new()).await?.success()?;
    print!("{}", String::from_utf8_lossy(&answer.body));
    let report: ConfigReport = client.get("/v1/config").await?;
    let foreign = report.owners.iter().filter(|(_, owner)| **owner != model::Owner::File);
    for (object, owner) in foreign {
        println!("# {object}: owner {owner}");
    }
    Ok(())
}
