//! Arguments of the commands that list the objects (such as groups) of OpenFlow bridges.

use clap::Args;

use crate::client::quoted;

/// Upper bound of [`OfBridge::limit`], the maximum number of entries in one answer.
pub const MOST: u64 = 100_000;

/// Arguments of `trivium show groups`, `meters` and `megaflows`.
#[derive(Clone, Debug, Args)]
pub struct OfBridge {
    /// Show only this bridge
    pub bridge: Option<String>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

impl OfBridge {
    /// Returns the API path of the list `name` with a query for these arguments.
    pub fn path(&self, name: &str) -> String {
        let bridge = self.bridge.as_ref().map(|bridge| format!("&bridge={}", quoted(bridge)));
        format!("/v1/{name}?limit={}{}", self.limit, bridge.unwrap_or_default())
    }
}
