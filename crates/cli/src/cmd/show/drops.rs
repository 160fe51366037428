//! `trivium show drops`: dropped packets by port and reason.

use clap::Args;
use model::table::Listed;
use model::{DropState, PortState};

use super::named::exists;
use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show drops`.
#[derive(Clone, Debug, Args)]
pub struct Drops {
    /// Show only packets that were received on this port (for `tx-failed` and `device-gone`: packets to
    /// be sent on it)
    port: Option<String>,
}

impl Drops {
    /// Prints the dropped packets of all ports, or of the port that the arguments name.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        if let Some(port) = &self.port {
            exists(client, "/v1/ports", port, |port: &PortState| port.name.as_str()).await?;
        }
        let mut all: Vec<DropState> = client.get("/v1/drops").await?;
        all.retain(|drop| self.port.as_ref().is_none_or(|port| *port == drop.port));
        print(json, all.as_slice(), DropState::text);
        Ok(())
    }
}
