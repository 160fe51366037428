//! Steerings: which packets of a port go to the worker, to the kernel, or to the kernel on another CPU, and what is said of
//! them to whoever receives them.
//!
//! Plain values in the grammar of docs/config.md; the hook's own form of them is made by the daemon.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::VlanId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{Owner, Protocol};

/// Exact flows and a table. Any number of ports may have the same steering.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Steer {
    /// Exact flows that there is room for, those that are added while it runs among them; 0: none are looked for.
    pub capacity: u32,
    /// Packets that may wait for each CPU; what comes then is lost.
    pub cpu_queue: u32,
    /// Whether hash and mark go in front of the packets.
    pub metadata: bool,
    /// Where each bucket of the flows' hash goes, repeated up to 256; empty: everything goes to the worker, and no hash is
    /// asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<SteerTarget>,
    /// Exact flows.
    #[serde(rename = "flow", skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<SteerFlow>,
}

impl Steer {
    /// Buckets of a table.
    pub const BUCKETS: usize = 256;
    /// Most flows that there can be room for.
    pub const CAPACITY_MAX: u32 = 1 << 20;
    /// Most packets that can wait for a CPU.
    pub const QUEUE_MAX: u32 = 16_384;
}

impl Default for Steer {
    fn default() -> Self {
        Steer { capacity: 65_536, cpu_queue: 2048, metadata: false, table: Vec::new(), flows: Vec::new() }
    }
}

/// Where packets go: `worker`, `kernel` or `cpu N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SteerTarget {
    /// To the worker, by the socket of the queue that they came to.
    Worker,
    /// To the kernel's stack.
    Kernel,
    /// To the kernel's stack, on this CPU.
    Cpu(u16),
}

/// A text that is no target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither \"worker\" nor \"kernel\" nor \"cpu 1\"")]
pub struct SteerTargetError;

impl FromStr for SteerTarget {
    type Err = SteerTargetError;

    fn from_str(text: &str) -> Result<Self, SteerTargetError> {
        match text {
            "worker" => Ok(SteerTarget::Worker),
            "kernel" => Ok(SteerTarget::Kernel),
            other => {
                let number = other.strip_prefix("cpu").ok_or(SteerTargetError)?.trim_start();
                let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                number.parse().ok().filter(|_| digits).map(SteerTarget::Cpu).ok_or(SteerTargetError)
            }
        }
    }
}

impl fmt::Display for SteerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteerTarget::Worker => f.write_str("worker"),
            SteerTarget::Kernel => f.write_str("kernel"),
            SteerTarget::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

impl Serialize for SteerTarget {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SteerTarget {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
    }
}

/// One direction of a conversation, without where it goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SteerKey {
    /// Of its only tag; `None`: untagged.
    pub vlan: Option<VlanId>,
    /// From here ...
    pub source: IpAddr,
    /// ... to there, of the same family.
    pub destination: IpAddr,
    /// IP protocol; of IPv6 the header behind the extension headers.
    pub protocol: u8,
    /// From which port to which: TCP, UDP and SCTP alone have some.
    pub ports: Option<(u16, u16)>,
}

impl SteerKey {
    /// Whether flows of this protocol have ports.
    pub fn has_ports(protocol: u8) -> bool {
        matches!(protocol, 6 | 17 | 132)
    }
}

impl fmt::Display for SteerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vlan) = self.vlan {
            write!(f, "vlan {vlan}, ")?;
        }
        match Protocol::WORDS.iter().find(|(_, number)| *number == self.protocol) {
            Some((word, _)) => write!(f, "{word} ")?,
            None => write!(f, "protocol {} ", self.protocol)?,
        }
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(v4), Some(port)) => format!("{v4}:{port}"),
            (IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
        };
        let (from, to) = (self.ports.map(|ports| ports.0), self.ports.map(|ports| ports.1));
        write!(f, "{} > {}", end(self.source, from), end(self.destination, to))
    }
}

/// An exact flow and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SteerFlow {
    /// The flow.
    pub key: SteerKey,
    /// Where it goes.
    pub to: SteerTarget,
    /// Handed on with its packets; 0: none.
    pub mark: u32,
}

/// The fields of `[[steer.NAME.flow]]`.
impl Serialize for SteerFlow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let SteerKey { vlan, source, destination, protocol, ports } = self.key;
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

/// A steering as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteerState {
    /// Its name.
    pub name: String,
    /// Whose object it is.
    pub owner: Owner,
    /// The ports whose hooks have it now.
    pub ports: Vec<String>,
    /// Exact flows that there are.
    pub flows: u64,
    /// Of these, those that came while it ran.
    pub live_flows: u64,
    /// Exact flows that there is room for.
    pub capacity: u32,
    /// Packets that may wait for each CPU.
    pub cpu_queue: u32,
    /// Whether hash and mark go in front of packets.
    pub metadata: bool,
    /// Packets that left without them, because their driver had no room.
    pub unmarked: u64,
    /// Buckets of the table by where they go; empty: it has none.
    pub buckets: Vec<SteerShare>,
    /// Whether the table is another than the configuration says.
    pub live_table: bool,
    /// What its flows and its table have sent where.
    pub sent: Vec<SteerSent>,
}

/// A part of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteerShare {
    /// `worker`, `kernel` or `cpu N`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteerTarget,
    /// Buckets that go there.
    pub buckets: u32,
}

/// What was sent to one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteerSent {
    /// `worker`, `kernel` or `cpu N`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteerTarget,
    /// Packets.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// An exact flow as the API takes and gives it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SteerEntry {
    /// Of its only tag, 1 to 4094; absent: untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// From here ...
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub source: IpAddr,
    /// ... to there.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub destination: IpAddr,
    /// IP protocol: a number.
    pub protocol: u8,
    /// Of TCP, UDP and SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Of TCP, UDP and SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// `worker`, `kernel` or `cpu N`; not asked where the flow is taken out.
    #[serde(default = "SteerEntry::worker")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: SteerTarget,
    /// Handed on with its packets; 0: none.
    #[serde(default)]
    pub mark: u32,
    /// Seconds after which it is taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// In answers: whether it came while the steering ran, and not from the configuration.
    #[serde(default)]
    pub live: bool,
    /// In answers: its packets.
    #[serde(default)]
    pub packets: u64,
    /// In answers: bytes of these.
    #[serde(default)]
    pub bytes: u64,
}

impl SteerEntry {
    fn worker() -> SteerTarget {
        SteerTarget::Worker
    }

    /// The flow, or what is wrong with it and what to do.
    ///
    /// # Errors
    /// If no packet can belong to it.
    pub fn key(&self) -> Result<SteerKey, (&'static str, &'static str)> {
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
        let key = SteerKey {
            vlan,
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            ports,
        };
        key.contradiction().map_or(Ok(key), Err)
    }
}

impl SteerKey {
    /// Why no packet can belong to it, and what to do.
    pub fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Some(("its addresses are of different families", "give two of one family"));
        }
        match (SteerKey::has_ports(self.protocol), self.ports.is_some()) {
            (true, false) => Some((
                "flows of TCP, UDP and SCTP have ports",
                "add `source_port = 49152` and `destination_port = 80`, for example",
            )),
            (false, true) => Some(("flows of its protocol have no ports", "remove the ports")),
            _ => None,
        }
    }
}

/// Exact flows that are to be added to a steering, or taken out of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SteerRequest {
    /// Whether they are taken out.
    #[serde(default)]
    pub remove: bool,
    /// The flows.
    pub flows: Vec<SteerEntry>,
}

/// What became of a [`SteerRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteerDone {
    /// Flows that came, changed or went.
    pub changed: u64,
    /// Flows that there are now.
    pub flows: u64,
}

/// Where each bucket of a steering's table goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SteerTable {
    /// `worker`, `kernel` or `cpu N`; the length is a power of two up to 256.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub buckets: Vec<SteerTarget>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_texts() {
        for to in [SteerTarget::Worker, SteerTarget::Kernel, SteerTarget::Cpu(0), SteerTarget::Cpu(65535)] {
            assert_eq!(to.to_string().parse(), Ok(to));
        }
        assert_eq!("cpu3".parse(), Ok(SteerTarget::Cpu(3)));
        for bad in ["", "cpu", "cpu -1", "cpu +1", "cpu 65536", "Kernel", "cpu 1 "] {
            assert_eq!(bad.parse::<SteerTarget>(), Err(SteerTargetError), "{bad}");
        }
    }
}
