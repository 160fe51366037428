//! Configuration and state of steering policies. With a steering policy, the hook (XDP program) of a port selects where
//! packets are delivered: to the worker, to the kernel, or to the kernel on another CPU. The policy can also add
//! metadata in front of a packet for the receiver.
//!
//! The hook first looks up a packet in a table of exact-match flow entries, here called exact flows. If no exact flow
//! matches, the hash of the packet's flow selects a bucket of an indirection table. The types are plain values in the
//! syntax of docs/config.md. The daemon converts them to the format of the hook.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod load;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::VlanId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::table::{Listed, Table};
use crate::{FiveTuple, Owner, Protocol};

/// A steering policy: exact-match flow entries and an indirection table. Any number of ports may share one
/// policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SteeringPolicy {
    /// Maximum number of exact-match flow entries, including entries that are added at run time. 0: the policy has no
    /// exact-match lookup.
    pub capacity: u32,
    /// Maximum length of each CPU's queue of packets for the kernel, in packets. Packets that arrive at a full
    /// queue are dropped.
    pub cpu_queue: u32,
    /// Whether the hook writes the flow hash and the mark as metadata in front of the packets.
    pub metadata: bool,
    /// Target of each bucket of the flow hash. A shorter list is repeated until it has 256 buckets.
    /// Empty: all packets are delivered to the worker, and no hash is computed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<SteeringTarget>,
    /// Exact-match flow entries of the policy.
    #[serde(rename = "flow", skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<SteeringFlow>,
}

impl SteeringPolicy {
    /// Number of buckets in the indirection table of a policy.
    pub const BUCKETS: usize = 256;
    /// Maximum value of `capacity`, in flow entries.
    pub const CAPACITY_MAX: u32 = 1 << 20;
    /// Maximum value of `cpu_queue`, in packets.
    pub const QUEUE_MAX: u32 = 16_384;
}

impl Default for SteeringPolicy {
    fn default() -> Self {
        SteeringPolicy {
            capacity: 65_536,
            cpu_queue: 2048,
            metadata: false,
            table: Vec::new(),
            flows: Vec::new(),
        }
    }
}

/// Target to which packets are steered. The text form is `worker`, `kernel` or `cpu N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SteeringTarget {
    /// The packet is delivered to the worker, through the AF_XDP socket of the receiving queue.
    Worker,
    /// The packet is delivered to the network stack of the kernel.
    Kernel,
    /// The packet is delivered to the network stack of the kernel, on the CPU with this index.
    Cpu(u16),
}

/// Error for a text that is not a steering target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither \"worker\" nor \"kernel\" nor \"cpu 1\"")]
pub struct SteeringTargetError;

impl FromStr for SteeringTarget {
    type Err = SteeringTargetError;

    fn from_str(text: &str) -> Result<Self, SteeringTargetError> {
        match text {
            "worker" => Ok(SteeringTarget::Worker),
            "kernel" => Ok(SteeringTarget::Kernel),
            other => {
                let number = other.strip_prefix("cpu").ok_or(SteeringTargetError)?.trim_start();
                let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                number.parse().ok().filter(|_| digits).map(SteeringTarget::Cpu).ok_or(SteeringTargetError)
            }
        }
    }
}

impl fmt::Display for SteeringTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteeringTarget::Worker => f.write_str("worker"),
            SteeringTarget::Kernel => f.write_str("kernel"),
            SteeringTarget::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

impl Serialize for SteeringTarget {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SteeringTarget {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
    }
}

/// An exact-match flow entry with its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SteeringFlow {
    /// Key of the flow entry.
    pub key: FiveTuple,
    /// Target of the flow's packets.
    pub to: SteeringTarget,
    /// Mark that is written into the metadata of the flow's packets. 0: none.
    pub mark: u32,
}

/// Serializes the flow entry with the fields of `[[steering.NAME.flow]]`.
impl Serialize for SteeringFlow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let FiveTuple { vlan, source, destination, protocol, ports } = self.key;
        let mut map = to.serialize_map(None)?;
        if let Some(vlan) = vlan {
            map.serialize_entry("vlan", &vlan.get())?;
        }
        map.serialize_entry("source", &source)?;
        map.serialize_entry("destination", &destination)?;
        map.serialize_entry("protocol", &Protocol(protocol))?;
        if let Some((from, to)) = ports {
            map.serialize_entry("source_port", &from)?;
            map.serialize_entry("destination_port", &to)?;
        }
        map.serialize_entry("to", &self.to)?;
        if self.mark != 0 {
            map.serialize_entry("mark", &self.mark)?;
        }
        map.end()
    }
}

/// State of a steering policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteeringState {
    /// Name of the policy.
    pub name: String,
    /// Owner of the policy: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Names of the ports whose hooks (XDP programs) apply the policy.
    pub ports: Vec<String>,
    /// Number of exact-match flow entries in the policy.
    pub flows: u64,
    /// Number of exact-match flow entries that were added at run time.
    pub live_flows: u64,
    /// Maximum number of exact-match flow entries of the policy.
    pub capacity: u32,
    /// Maximum length of each CPU's queue of packets for the kernel, in packets.
    pub cpu_queue: u32,
    /// Whether the hook writes the flow hash and the mark as metadata in front of the packets.
    pub metadata: bool,
    /// Number of packets that were delivered without metadata, because the driver provided too little headroom.
    pub unmarked: u64,
    /// Number of indirection table buckets with each target. Empty if the policy has no indirection table.
    pub buckets: Vec<SteeringShare>,
    /// Whether the current indirection table differs from the table in the configuration.
    pub live_table: bool,
    /// Counters of the packets that were delivered to each target.
    pub sent: Vec<SteeringSent>,
}

impl Listed for SteeringState {
    fn text(policies: &[SteeringState]) -> String {
        if policies.is_empty() {
            return "there is no steering\n".to_owned();
        }
        let mut text = String::new();
        for steering in policies {
            let ports =
                if steering.ports.is_empty() { "no port".to_owned() } else { steering.ports.join(" ") };
            let live = match steering.live_flows {
                0 => String::new(),
                flows => format!(" ({flows} live)"),
            };
            let metadata = match (steering.metadata, steering.unmarked) {
                (false, _) => String::new(),
                (true, 0) => ", metadata".to_owned(),
                (true, without) => format!(", metadata ({without} packets without)"),
            };
            text.push_str(&format!(
                "{}: on {ports}, {} of {} flows{live}{metadata}, owner {}\n",
                steering.name, steering.flows, steering.capacity, steering.owner
            ));
            text.push_str(&steering.targets());
        }
        text
    }
}

impl SteeringState {
    /// Formats a table with the number of buckets and the number of packets of each target.
    fn targets(&self) -> String {
        let shares = self.buckets.iter().map(|share| share.to);
        let mut targets: Vec<SteeringTarget> = self.sent.iter().map(|sent| sent.to).collect();
        targets.extend(shares.filter(|to| self.sent.iter().all(|sent| sent.to != *to)));
        let buckets = |to: &SteeringTarget| {
            let share = self.buckets.iter().find(|share| share.to == *to).map_or(0, |share| share.buckets);
            match (self.buckets.is_empty(), self.live_table) {
                (true, _) => "-".to_owned(),
                (false, false) => share.to_string(),
                (false, true) => format!("{share} (live)"),
            }
        };
        let sent = |to: &SteeringTarget, count: fn(&SteeringSent) -> u64| {
            self.sent.iter().find(|sent| sent.to == *to).map_or(0, count)
        };
        Table::of(&targets)
            .text("  TO", |to| format!("  {to}"))
            .number("BUCKETS", buckets)
            .count("PACKETS", |to| sent(to, |sent| sent.packets))
            .count("BYTES", |to| sent(to, |sent| sent.bytes))
            .render()
    }
}

/// Number of buckets that an indirection table assigns to one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteeringShare {
    /// Target of these buckets: `worker`, `kernel` or `cpu N`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteeringTarget,
    /// Number of buckets that the table assigns to this target.
    pub buckets: u32,
}

/// Counters of packets that were delivered to one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteeringSent {
    /// Target of these packets: `worker`, `kernel` or `cpu N`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteeringTarget,
    /// Number of packets that were delivered to the target.
    pub packets: u64,
    /// Number of bytes in the packets that were delivered to the target.
    pub bytes: u64,
}

/// An exact-match flow entry in requests and responses of the API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SteeringEntry {
    /// VLAN of the packets, 1 to 4094. The packets have exactly one VLAN tag. Absent: the packets
    /// are untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Source IP address of the packets.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub source: IpAddr,
    /// Destination IP address of the packets.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub destination: IpAddr,
    /// IP protocol number of the packets.
    pub protocol: u8,
    /// Source port of the packets. Absent for protocols other than TCP, UDP and SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port of the packets. Absent for protocols other than TCP, UDP and SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Target of the packets: `worker`, `kernel` or `cpu N`. Ignored in requests to remove the flow entry.
    #[serde(default = "SteeringEntry::worker")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteeringTarget,
    /// Mark that is written into the metadata of the flow's packets. 0: none.
    #[serde(default)]
    pub mark: u32,
    /// Seconds after which the flow entry is removed. Absent: the entry does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// Whether the flow entry was added at run time and is not part of the configuration. Set in responses only.
    #[serde(default)]
    pub live: bool,
    /// Number of packets that matched the flow entry. Set in responses only.
    #[serde(default)]
    pub packets: u64,
    /// Number of bytes in the packets that matched the flow entry. Set in responses only.
    #[serde(default)]
    pub bytes: u64,
}

impl SteeringEntry {
    fn worker() -> SteeringTarget {
        SteeringTarget::Worker
    }

    /// Returns the key of the flow entry.
    ///
    /// # Errors
    ///
    /// Returns the cause and the remedy if no packet can match the flow entry.
    pub fn key(&self) -> Result<FiveTuple, (&'static str, &'static str)> {
        let ports = match (self.source_port, self.destination_port) {
            (Some(source), Some(destination)) => Some((source, destination)),
            (None, None) => None,
            _ => return Err(("one of its two ports is missing", "give both, or none")),
        };
        let vlan = match self.vlan.map(VlanId::new) {
            Some(None) => {
                return Err(("its VLAN is outside of 1..=4094", "leave it out for untagged packets"));
            }
            vlan => vlan.flatten(),
        };
        let key = FiveTuple {
            vlan,
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            ports,
        };
        contradiction(&key).map_or(Ok(key), Err)
    }
}

/// Returns the reason why no packet can match the key of a flow entry, and the remedy. `None` if packets can match.
pub(crate) fn contradiction(key: &FiveTuple) -> Option<(&'static str, &'static str)> {
    if key.source.is_ipv4() != key.destination.is_ipv4() {
        return Some(("its addresses are of different families", "give two of one family"));
    }
    match (FiveTuple::has_ports(key.protocol), key.ports.is_some()) {
        (true, false) => Some((
            "flows of TCP, UDP and SCTP have ports",
            "add `source_port = 49152` and `destination_port = 80`, for example",
        )),
        (false, true) => Some(("flows of its protocol have no ports", "remove the ports")),
        _ => None,
    }
}

/// Request to add exact-match flow entries to a steering policy, or to remove entries from it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SteeringRequest {
    /// Whether the request removes the flow entries instead of adding them.
    #[serde(default)]
    pub remove: bool,
    /// Flow entries to add or remove.
    pub flows: Vec<SteeringEntry>,
}

/// Result of a [`SteeringRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteeringDone {
    /// Number of flow entries that were added, changed or removed.
    pub changed: u64,
    /// Number of flow entries in the policy after the request.
    pub flows: u64,
}

/// Indirection table of a steering policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteeringTable {
    /// Target of each bucket: `worker`, `kernel` or `cpu N`. The length is a power of two up to 256.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub buckets: Vec<SteeringTarget>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_texts() {
        for to in [
            SteeringTarget::Worker,
            SteeringTarget::Kernel,
            SteeringTarget::Cpu(0),
            SteeringTarget::Cpu(65535),
        ] {
            assert_eq!(to.to_string().parse(), Ok(to));
        }
        assert_eq!("cpu3".parse(), Ok(SteeringTarget::Cpu(3)));
        for bad in ["", "cpu", "cpu -1", "cpu +1", "cpu 65536", "Kernel", "cpu 1 "] {
            assert_eq!(bad.parse::<SteeringTarget>(), Err(SteeringTargetError), "{bad}");
        }
    }
}
