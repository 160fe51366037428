//! `trivium show routes`: routes of a router.

use clap::Args;
use model::RouteEntry;
use model::table::Listed;

use super::of_router::Several;
use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show routes`.
#[derive(Clone, Debug, Args)]
pub struct Routes {
    /// Show only routes to this prefix and to prefixes within it (`trivium show why` shows the route of an
    /// address)
    pub prefix: Option<model::Prefix>,
    /// Router and maximum number of entries
    #[command(flatten)]
    pub several: Several,
    /// Show only routes of this table: a number, `main`, `local` or `default`
    #[arg(long)]
    pub table: Option<model::TableId>,
}

impl Routes {
    /// Prints the routes that match the arguments.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let mut path = self.several.path(client, "routes").await?;
        if let Some(prefix) = self.prefix {
            path += &format!("&prefix={prefix}");
        }
        if let Some(table) = self.table {
            path += &format!("&table={table}");
        }
        let found: Vec<RouteEntry> = client.get(&path).await?;
        print(json, found.as_slice(), RouteEntry::text);
        self.several.tell_more(found.len(), json);
        Ok(())
    }
}
