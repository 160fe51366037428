//! `trivium show fdb`: MAC tables of bridges.

use clap::Args;
use model::table::Listed;
use model::{BridgeState, FdbEntry, PortState};
use packet::MacAddr;

use super::named::exists;
use super::output::print;
use crate::client::{Client, quoted};
use crate::failure::Failure;

/// Arguments of `trivium show fdb`.
#[derive(Clone, Debug, Args)]
pub struct Fdb {
    /// Show only addresses of this bridge
    pub bridge: Option<String>,
    /// Show only addresses on this port
    #[arg(long)]
    pub port: Option<String>,
    /// Show only addresses in this VLAN
    #[arg(long, value_name = "VLAN")]
    pub vlan: Option<u16>,
    /// Show only this address
    #[arg(long, value_name = "ADDRESS")]
    pub mac: Option<MacAddr>,
}

impl Fdb {
    /// Prints the MAC table entries that match the arguments, sorted by bridge, VLAN and address.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        if let Some(bridge) = &self.bridge {
            exists(client, "/v1/bridges", bridge, |bridge: &BridgeState| bridge.name.as_str()).await?;
        }
        if let Some(port) = &self.port {
            exists(client, "/v1/ports", port, |port: &PortState| port.name.as_str()).await?;
        }
        let (vlan, mac) =
            (self.vlan.map(|vlan| vlan.to_string()), self.mac.as_ref().map(ToString::to_string));
        let query: Vec<String> =
            [("bridge", &self.bridge), ("port", &self.port), ("vlan", &vlan), ("mac", &mac)]
                .into_iter()
                .filter_map(|(field, value)| Some(format!("{field}={}", quoted(value.as_ref()?))))
                .collect();
        let mut entries: Vec<FdbEntry> = client.get(&format!("/v1/fdb?{}", query.join("&"))).await?;
        entries.sort_by(|one, other| {
            (&one.bridge, one.vlan, one.mac.as_u64()).cmp(&(&other.bridge, other.vlan, other.mac.as_u64()))
        });
        print(json, entries.as_slice(), FdbEntry::text);
        Ok(())
    }
}
