//! `trivium show why`: explanation of a route lookup.

use clap::Args;
use model::RouteWhy;

use super::of_router::OfRouter;
use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show why`.
#[derive(Clone, Debug, Args)]
pub struct Why {
    /// Address or prefix
    #[arg(value_name = "PREFIX-OR-ADDRESS")]
    pub what: model::Prefix,
    /// Router to show
    #[command(flatten)]
    pub of: OfRouter,
}

impl Why {
    /// Prints how a router looks up the route to the address or the prefix.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let path = self.of.path(client, &format!("why?of={}", self.what)).await?;
        let why: RouteWhy = client.get(&path).await?;
        print(json, &why, text);
        Ok(())
    }
}

/// Formats the explanation of a route lookup as text.
pub fn text(told: &RouteWhy) -> String {
    let mut text = format!("{}\n", told.of);
    if let Some(rule) = &told.rule {
        text.push_str(&format!("  rule   {rule}\n"));
    }
    match &told.route {
        Some(route) => text.push_str(&format!(
            "  route  {} {} in table {}, protocol {}, metric {}: {}\n",
            route.kind,
            route.destination(),
            route.table,
            route.protocol,
            route.metric,
            route.leads_to()
        )),
        None => text.push_str("  route  none\n"),
    }
    for line in &told.chosen {
        text.push_str(&format!("  - {line}\n"));
    }
    text
}
