//! `trivium show punts`: packets that workers have punted to the kernel for routers.

use clap::Args;
use model::PuntState;
use model::table::{Table, short};

use super::output::print;
use super::router_parts::{Part, parts, some_routers};
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show punts`.
#[derive(Clone, Debug, Args)]
pub struct Punts {
    /// Show only packets of this router
    #[arg(long)]
    router: Option<String>,
}

impl Punts {
    /// Prints the punted packets of all routers, or of the router that the arguments name.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let routers = some_routers(client, self.router.as_deref()).await?;
        let all: Vec<_> = parts(&routers, |router| &router.punts).collect();
        print(json, all.as_slice(), text);
        Ok(())
    }
}

/// Formats the counters of punted packets as a table.
pub fn text(punts: &[Part<'_, PuntState>]) -> String {
    let mut table = Table::new(&["ROUTER", "CLASS", ">LIMIT", ">PACKETS", ">OVER ITS LIMIT"]);
    for Part { router, value } in punts {
        let limit = short(value.limit.into());
        table.row([
            (*router).to_owned(),
            value.class.clone(),
            limit,
            short(value.packets),
            short(value.refused),
        ]);
    }
    table.render()
}
