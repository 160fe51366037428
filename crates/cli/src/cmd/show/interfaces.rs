//! `trivium show interfaces`: interfaces of routers.

use clap::Args;
use model::table::{Table, short};
use model::{DhcpRelayState, InterfaceState};

use super::output::print;
use super::router_parts::{Part, parts, some_routers};
use crate::client::Client;
use crate::failure::Failure;

/// Arguments of `trivium show interfaces`.
#[derive(Clone, Debug, Args)]
pub struct Interfaces {
    /// Show only interfaces of this router
    #[arg(long)]
    router: Option<String>,
}

impl Interfaces {
    /// Prints the interfaces of all routers, or of the router that the arguments name.
    pub async fn show(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let routers = some_routers(client, self.router.as_deref()).await?;
        let all: Vec<_> = parts(&routers, |router| &router.interfaces).collect();
        print(json, all.as_slice(), text);
        Ok(())
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Formats router interfaces as a table, followed by their DHCP relays.
pub fn text(interfaces: &[Part<'_, InterfaceState>]) -> String {
    let mut table = Table::new(&[
        "ROUTER",
        "PORT",
        "DEVICE",
        ">INDEX",
        "ETHERNET",
        ">MTU",
        "STATE",
        "MISS",
        "OWNER",
        "ADDRESSES",
    ]);
    for Part { router, value } in interfaces {
        table.row([
            (*router).to_owned(),
            value.port.clone(),
            or_dash(value.device.clone()),
            value.index.to_string(),
            value.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string()),
            value.mtu.to_string(),
            if value.up { "up" } else { "down" }.to_owned(),
            value.miss.to_string(),
            value.owner.to_string(),
            or_dash(value.addresses.join(" ")),
        ]);
    }
    let relays = interfaces.iter().flat_map(|Part { value, .. }| {
        let four = value.dhcp_relay.map(|relay| dhcp_relay("DHCP", "IPv4", &value.device, &relay));
        let six = value.dhcp6_relay.map(|relay| dhcp_relay("DHCPv6", "IPv6", &value.device, &relay));
        four.into_iter().chain(six)
    });
    table.render() + &relays.collect::<String>()
}

/// Formats the DHCP relay settings and counters of an interface as one line.
fn dhcp_relay(what: &str, family: &str, device: &str, relay: &DhcpRelayState) -> String {
    let missing = format!(" (without a device or an {family} address now)");
    let listens = if relay.listens { "" } else { &missing };
    let mut line = format!(
        "{what} relay of {device}{listens}: {} requests, {} replies",
        short(relay.requests),
        short(relay.replies)
    );
    let drops = [
        (relay.malformed, "malformed"),
        (relay.looping, "looping"),
        (relay.strangers, "of strangers"),
        (relay.limited, "over 1,000 a second"),
        (relay.unsent, "not sent"),
    ];
    let drops: Vec<String> = drops
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", short(*count)))
        .collect();
    if !drops.is_empty() {
        line.push_str(&format!("; dropped: {}", drops.join(", ")));
    }
    line + "\n"
}
