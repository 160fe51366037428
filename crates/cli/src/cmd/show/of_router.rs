//! Arguments of the commands that list the objects (such as routes) of a router.

use clap::Args;
use model::RouterState;

use super::of_bridge::MOST;
use crate::client::{Client, quoted};
use crate::failure::Failure;

/// Option that names a router.
#[derive(Clone, Debug, Args)]
pub struct OfRouter {
    /// Name of the router. Optional if there is only one
    #[arg(long)]
    pub router: Option<String>,
}

impl OfRouter {
    /// Returns the API path of the resource `asked` (such as `routes`) of the router that the
    /// arguments name. If the arguments name no router, the daemon must have exactly one router.
    /// Otherwise, the function returns an error.
    pub async fn path(&self, client: &Client, asked: &str) -> Result<String, Failure> {
        if let Some(name) = &self.router {
            return Ok(format!("/v1/routers/{}/{asked}", quoted(name)));
        }
        let routers: Vec<RouterState> = client.get("/v1/routers").await?;
        let names: Vec<&str> = routers.iter().map(|router| router.name.as_str()).collect();
        match names.as_slice() {
            [only] => Ok(format!("/v1/routers/{}/{asked}", quoted(only))),
            [] => Err(Failure::new("router", "none runs", "add [router.NAME] to the configuration")),
            several => {
                let cause = format!("there are several: {}", several.join(", "));
                Err(Failure::new("router", cause, "name one with --router"))
            }
        }
    }
}

/// Arguments of `trivium show neighbours` and `trivium show nexthops`.
#[derive(Clone, Debug, Args)]
pub struct Several {
    /// Router to show
    #[command(flatten)]
    pub of: OfRouter,
    /// Maximum number of entries
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

impl Several {
    /// Returns the API path of the list `name` (such as `routes`) of the router, with a query for these arguments.
    pub async fn path(&self, client: &Client, name: &str) -> Result<String, Failure> {
        self.of.path(client, &format!("{name}?limit={}", self.limit)).await
    }

    /// Prints a note that a list may be incomplete, if the number of entries has reached the requested limit.
    pub fn tell_more(&self, count: usize, json: bool) {
        let limit = self.limit;
        if !json && u64::try_from(count).is_ok_and(|count| count >= limit) {
            println!("these are the first {limit}; --limit asks for more");
        }
    }
}
