//! `trivium show flows`: OpenFlow rules of bridges.

use clap::Args;
use model::FlowRuleState;
use model::table::Listed;

use super::of_bridge::OfBridge;
use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show flows`.
#[derive(Clone, Debug, Args)]
pub struct Flows {
    /// Bridge and maximum number of entries
    #[command(flatten)]
    pub of: OfBridge,
    /// Show only rules of this table
    #[arg(long)]
    pub table: Option<u8>,
}

impl Flows {
    /// Prints the OpenFlow rules that match the arguments.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let table = self.table.map(|table| format!("&table={table}")).unwrap_or_default();
        let rules: Vec<FlowRuleState> = client.get(&(self.of.path("flows") + &table)).await?;
        print(json, rules.as_slice(), FlowRuleState::text);
        Ok(())
    }
}
