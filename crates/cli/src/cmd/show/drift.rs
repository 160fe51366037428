//! `trivium show drift`: differences between a router and the kernel.

use model::DriftState;

use super::of_router::OfRouter;
use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Prints the differences between a router and the kernel. The daemon has repaired them.
pub async fn show(client: &Client, args: &OfRouter, json: bool) -> Result<(), Failure> {
    let found: DriftState = client.get(&args.path(client, "drift").await?).await?;
    print(json, &found, text);
    Ok(())
}

/// Formats the differences between a router and the kernel as text.
pub fn text(found: &DriftState) -> String {
    let mut text = format!(
        "{} objects compared: {} differed and are repaired, {} were changing, and are left to the next time\n",
        found.checked, found.drifted, found.busy
    );
    for change in &found.changes {
        text.push_str(&format!("  {change}\n"));
    }
    let told = u64::try_from(found.changes.len()).unwrap_or(u64::MAX);
    if found.drifted > told {
        text.push_str(&format!("  and {} more\n", found.drifted - told));
    }
    text
}
