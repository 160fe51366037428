//! Types that describe the processing of packets: selection of packets, recorded processing steps and captured frames.
//!
//! The stages of the data plane record the steps while they process a packet. The steps therefore describe
//! the processing that took place.

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};

use crate::text;

/// Tier of the data plane that decided how a packet is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The hook (XDP program) of the port, in the kernel.
    Hook,
    /// The flow caches of a worker.
    Cache,
    /// The flow tables and the MAC table, which the slow path looks up.
    Tables,
}

/// One step in the processing of a packet, as a stage of the data path recorded it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Step {
    /// Name of the processing stage that performed the step, as in `show stages`.
    pub stage: String,
    /// Action of the processing stage, in one sentence.
    pub what: String,
}

/// A packet, or a copy of a packet, that one port transmits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Output {
    /// Name of the output port. If the kernel's routes select a device that is not a port, this is the name of the
    /// device.
    pub port: String,
    /// Bytes of the frame as transmitted, in hexadecimal digits.
    #[serde(default)]
    pub frame: String,
    /// Summary of the frame, such as `vlan 10, 02:..:01 > 02:..:02, IPv4 ...`.
    #[serde(default)]
    pub summary: String,
}

/// Predicted processing of a packet, with the reason for each step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Name of the port at which the packet arrives.
    pub in_port: String,
    /// Text that summarizes the packet's headers.
    pub packet: String,
    /// Processing steps of the packet, in the order of the stages.
    pub steps: Vec<Step>,
    /// Tier that decides the forwarding of the packet.
    pub tier: Tier,
    /// Packets that are transmitted. Empty if the packet is dropped or passed to the kernel.
    pub outputs: Vec<Output>,
    /// Whether the packet is passed to the kernel.
    #[serde(default)]
    pub to_kernel: bool,
    /// Name of the drop reason. Absent if the packet is not dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<String>,
    /// Outcome of the processing in one sentence.
    pub verdict: String,
}

/// Report of a trace about the processing of one packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TraceEvent {
    /// Sequence number of the packet in the trace, starting at 1.
    pub number: u64,
    /// Time of reception, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Identifier of the worker that processed the packet.
    pub worker: u16,
    /// Name of the port at which the packet arrived.
    pub in_port: String,
    /// Text that summarizes the packet's headers.
    pub packet: String,
    /// Processing steps of the packet, in the order of the stages.
    pub steps: Vec<Step>,
    /// Outcome of the processing in one sentence.
    pub verdict: String,
}

/// Filter that selects the packets to trace. A packet must match all fields that are present.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PacketFilter {
    /// Name of the port at which the packet arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Source or destination Ethernet address of the packet.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// VLAN of the packet.
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>))]
    pub vlan: Option<VlanId>,
    /// Ethernet type of the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<u16>,
    /// Source or destination IP address of the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub ip: Option<std::net::IpAddr>,
    /// IP protocol number of the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Source or destination port of the transport protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l4_port: Option<u16>,
    /// Filter expression (`packet::filter`), such as `ip_src=10.0.0.0/8,tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// A frame that a capture copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// Time of capture, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Name of the port at which the frame was captured. For a dropped frame, the input port.
    pub port: String,
    /// Name of the port that was to transmit a dropped frame. `None` if the frame was not dropped, or was dropped
    /// before an output port was chosen.
    pub output: Option<String>,
    /// Whether the frame was received on the port. `false`: the frame was transmitted on the port.
    pub received: bool,
    /// Bytes of the frame, possibly truncated.
    pub bytes: Vec<u8>,
    /// Length of the complete frame in bytes.
    pub original_length: u32,
    /// Number of frames that matched the capture filter since the previous captured frame, but were
    /// not captured because queues were full.
    pub missed: u64,
    /// Name of the drop reason. `None` if the frame was not dropped.
    pub drop: Option<String>,
    /// Verdict of the hook's XDP program (such as `XDP_DROP`). `None` if the frame was not captured in the
    /// hook.
    pub verdict: Option<String>,
    /// Name of the hook's counter that counted the frame. The name states the reason for the verdict. `None` if no
    /// counter counted the frame.
    pub counter: Option<String>,
    /// Name of the filter rule that sampled the frame, or that determined the verdict of the hook. `None` if there is
    /// no such rule.
    pub rule: Option<String>,
}
