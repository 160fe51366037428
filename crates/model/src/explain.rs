//! What happened to a packet, or would: filters, recorded steps and captured frames.
//!
//! The steps are written by a recorder that the real stages call, so they say what was done and not what should be.

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};

use crate::text;

/// Which tier decided a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The port's hook in the kernel.
    Hook,
    /// A worker's caches.
    Cache,
    /// The tables.
    Tables,
}

/// One step of a packet's way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Step {
    /// The stage, as in `show stages`.
    pub stage: String,
    /// What it did, in one sentence.
    pub what: String,
}

/// A copy of the packet that leaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Output {
    /// The port that it leaves by; the device, where the kernel's routes send it to one that is no port.
    pub port: String,
    /// The frame as it leaves, in hexadecimal digits.
    #[serde(default)]
    pub frame: String,
    /// The frame in words, such as `vlan 10, 02:..:01 > 02:..:02, IPv4 ...`.
    #[serde(default)]
    pub summary: String,
}

/// What would happen to a packet, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The port that it would come in by.
    pub in_port: String,
    /// The packet in words.
    pub packet: String,
    /// Its way, stage by stage.
    pub steps: Vec<Step>,
    /// The tier that decides it.
    pub tier: Tier,
    /// What leaves; empty where it is dropped or given to the kernel.
    pub outputs: Vec<Output>,
    /// Whether the kernel gets it.
    #[serde(default)]
    pub to_kernel: bool,
    /// The reason's name where it is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<String>,
    /// The outcome in one sentence.
    pub verdict: String,
}

/// A packet that was watched on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TraceEvent {
    /// Its number among those of the trace, from 1.
    pub number: u64,
    /// When it was received, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The worker that carried it.
    pub worker: u16,
    /// The port that it came in by.
    pub in_port: String,
    /// The packet in words.
    pub packet: String,
    /// Its way, stage by stage.
    pub steps: Vec<Step>,
    /// The outcome in one sentence.
    pub verdict: String,
}

/// Which packets are traced; what is absent does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PacketFilter {
    /// That come in by this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// From or to this Ethernet address.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// In this VLAN.
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>))]
    pub vlan: Option<VlanId>,
    /// Of this Ethernet type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<u16>,
    /// From or to this IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub ip: Option<std::net::IpAddr>,
    /// Of this IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// From or to this L4 port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l4_port: Option<u16>,
    /// And that match all of this filter (`packet::filter`), such as `ip_src=10.0.0.0/8,tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// A frame of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// When it was captured, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The port at which it was captured; of a dropped frame the port by which it came in.
    pub port: String,
    /// The port that a dropped frame was to leave by, where its output was chosen.
    pub output: Option<String>,
    /// Whether it was received there (else sent).
    pub received: bool,
    /// Its bytes, perhaps cut.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub original_length: u32,
    /// Frames that were wanted and are missing since the one before it: queues were full.
    pub missed: u64,
    /// The reason's name where it was dropped.
    pub drop: Option<String>,
    /// What the hook's program said of it, where it was captured there.
    pub verdict: Option<String>,
    /// The hook's counter that tells why, where the program counted it.
    pub way: Option<String>,
    /// The rule of a filter that sampled it, where it is a sample, or that ended its way in the hook.
    pub rule: Option<String>,
}
