//! State of ports as plain values: [`PortState`] with its counters, link state changes, and the table of software
//! RSS.
//!
//! The API sends these values in this form, and the command line reads them. Counters start when the object
//! is created, and only increase. Fields that do not apply to a kind of port are absent.

use packet::MacAddr;
use serde::{Deserialize, Serialize};

use crate::table::{Listed, Table};
use crate::{Owner, text};

/// State of a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortState {
    /// Name of the port.
    pub name: String,
    /// Identifier of the port in the data plane.
    pub id: u16,
    /// Kind of the port, as in the configuration file.
    pub kind: String,
    /// Owner of the port: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Name of the kernel device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Namespace of the device. Absent: the daemon's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Interface index of the device in its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// Name of the device driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Attachment mode of the hook's program: `native` or `generic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether the driver receives directly into the frame memory (zero copy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<bool>,
    /// Reasons why faster modes of AF_XDP were not possible, one sentence each.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Number of the device's queues that the daemon serves.
    pub queues: u16,
    /// Identifier of the worker that serves each queue, in the order of the queues.
    #[serde(default)]
    pub workers: Vec<u16>,
    /// Ethernet address of the port.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// MTU of the port: maximum size of an L3 packet in bytes.
    pub mtu: u16,
    /// Whether the port is up in the configuration.
    pub admin_up: bool,
    /// Whether the link of the port is up.
    pub link_up: bool,
    /// Bridge of which the port is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Router of which the port is an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Whether the hook's program stays attached when the daemon ends.
    #[serde(default)]
    pub persist: bool,
    /// Traffic counters of the port.
    pub counters: PortCounters,
    /// Filter that the hook applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Description of a current problem of the port, such as a missing device. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Description of how the hook (XDP program) of the port forwards packets: for the bridge of the port, or according
    /// to routes. Absent if the hook does not forward packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortcut: Option<String>,
}

impl Listed for PortState {
    fn text(ports: &[PortState]) -> String {
        let whole = ports.len() == 1;
        Table::of(ports)
            .text("PORT", |port| port.name.clone())
            .text("KIND", |port| port.kind.clone())
            .text("DEVICE", PortState::device_text)
            .text("STATE", |port| port.link().to_owned())
            .text("BRIDGE", |port| port.bridge.clone().unwrap_or_else(|| "-".to_owned()))
            .text("ROUTER", |port| port.router.clone().unwrap_or_else(|| "-".to_owned()))
            .text("MODE", PortState::mode_text)
            .number("MTU", |port| port.mtu.to_string())
            .number("QUEUES", |port| port.queues.to_string())
            .count("RX", |port| port.counters.rx_packets)
            .count("TX", |port| port.counters.tx_packets)
            .count("DROPS", |port| port.counters.drops + port.counters.rx_missed)
            .text("NOTE", |port| port.note(whole))
            .render()
    }
}

impl PortState {
    /// Returns `up`, `down` (no link) or `off` (configured down).
    pub fn link(&self) -> &'static str {
        match (self.admin_up, self.link_up) {
            (false, _) => "off",
            (true, false) => "down",
            (true, true) => "up",
        }
    }

    fn device_text(&self) -> String {
        match (&self.device, &self.namespace) {
            (Some(device), Some(namespace)) => format!("{device}@{namespace}"),
            (Some(device), None) => device.clone(),
            (None, _) => "-".to_owned(),
        }
    }

    fn mode_text(&self) -> String {
        let copies = match self.zero_copy {
            Some(true) => ", zero copy",
            Some(false) => ", copy",
            None => "",
        };
        self.mode.as_ref().map_or_else(|| "-".to_owned(), |mode| format!("{mode}{copies}"))
    }

    /// Returns the current fault of the port, and the reasons why the port's sockets or hook do not
    /// use a faster mode. Each reason is shortened unless `whole` is true.
    fn note(&self, whole: bool) -> String {
        let mut notes: Vec<String> = self.trouble.iter().cloned().collect();
        for reason in &self.reasons {
            let zero_copy = reason.starts_with("the driver ") && reason.contains("zero copy");
            let short = match (whole, zero_copy) {
                (true, _) => reason.as_str(),
                (false, true) => "no zero copy",
                (false, false) => beginning(reason),
            };
            if !notes.iter().any(|note| note == short) {
                notes.push(short.to_owned());
            }
        }
        notes.join("; ")
    }
}

/// Returns the first words of the reason why a port does not use a faster mode, without the kernel's error
/// text.
fn beginning(reason: &str) -> &str {
    /// Maximum length of the shortened reason in characters.
    const LENGTH: usize = 40;
    let reason = reason.split([':', '(', ',', ';']).next().unwrap_or_default().trim_end();
    reason.char_indices().nth(LENGTH).map_or(reason, |(end, _)| reason[..end].trim_end())
}

/// Traffic counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortCounters {
    /// Number of received packets.
    pub rx_packets: u64,
    /// Number of received bytes, without frame check sequences.
    pub rx_bytes: u64,
    /// Number of packets that were dropped before the daemon received them, because rings were full or no
    /// frames were free. The number comes from counters of the kernel and of the hook.
    pub rx_missed: u64,
    /// Number of transmitted packets.
    pub tx_packets: u64,
    /// Number of transmitted bytes.
    pub tx_bytes: u64,
    /// Number of packets that arrived on this port and were dropped, for any reason.
    pub drops: u64,
}

/// Indirection table of a port's software RSS, which assigns each hash bucket to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RssTable {
    /// Worker number of each bucket. The length is a power of two.
    pub buckets: Vec<u16>,
}

/// Link state change of a port, for displays that are updated continuously.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LinkEvent {
    /// Nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// Name of the port.
    pub port: String,
    /// Whether the link is up.
    pub up: bool,
    /// Description of a current problem of the port. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_short_where_there_are_many_ports() {
        let lines = [
            "the driver has no zero copy",
            "the driver refuses zero copy with several buffers a packet (Operation not supported (os error 95))",
            "the driver refused native: Operation not supported (os error 95): too large",
        ];
        let port = serde_json::json!({
            "name": "v1", "id": 1, "kind": "veth", "owner": "file", "reasons": lines, "queues": 1, "mtu": 1500,
            "admin_up": true, "link_up": true, "trouble": "its device has gone",
            "counters": {"rx_packets": 0, "rx_bytes": 0, "rx_missed": 0, "tx_packets": 0, "tx_bytes": 0, "drops": 0},
        });
        let port: PortState = serde_json::from_value(port).unwrap();
        assert_eq!(port.note(false), "its device has gone; no zero copy; the driver refused native");
        assert_eq!(port.note(true), format!("its device has gone; {}", lines.join("; ")));
    }
}
