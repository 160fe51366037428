//! State of ports, bridges, workers, filters and drops as plain values.
//!
//! The API sends these values as JSON, and the command line reads them. Counters start at 0 when the object is created,
//! and only increase. Fields that do not apply to a kind of port are absent.

use std::collections::BTreeMap;
use std::fmt;

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};

use crate::{Owner, Prefix, Severity, text};

/// State of a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortState {
    /// Name of the port.
    pub name: String,
    /// Index of the port in the data plane.
    pub id: u16,
    /// Kind of the port (such as `tap` or `veth`), as in the configuration file.
    pub kind: String,
    /// Owner of the port: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Name of the kernel device of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Namespace of the device. Absent: the daemon's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Interface index of the device in its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// Name of the kernel driver of the port's device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Attachment mode of the XDP program (hook): `native` or `generic`.
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
    /// Identifier of the worker that serves each queue of the port, in the order of the queues.
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
    /// Name of the bridge of which the port is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Name of the router of which the port is an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Whether the XDP program (hook) stays attached to the device when the daemon ends.
    #[serde(default)]
    pub persist: bool,
    /// Traffic counters of the port.
    pub counters: PortCounters,
    /// Name of the filter that the hook (XDP program) of the port applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Description of a current problem of the port, such as a missing device. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Description of the forwarding by the hook (XDP program) instead of workers, for the bridge of the port or by
    /// routes. Absent if the hook does not forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortcut: Option<String>,
}

/// Traffic counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortCounters {
    /// Number of packets received at the port.
    pub rx_packets: u64,
    /// Number of received bytes, without frame check sequences.
    pub rx_bytes: u64,
    /// Number of packets that were lost before the daemon received them, because rings were full or no frames were
    /// free. The number is the sum of counters of the kernel and of the hook.
    pub rx_missed: u64,
    /// Number of packets transmitted at the port.
    pub tx_packets: u64,
    /// Number of bytes transmitted at the port.
    pub tx_bytes: u64,
    /// Number of packets that arrived at this port and were dropped, for any reason.
    pub drops: u64,
}

/// State of a bridge.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeState {
    /// Name of the bridge.
    pub name: String,
    /// Index of the bridge in the data plane.
    pub id: u16,
    /// Owner of the bridge: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Number of entries in the MAC table of the bridge.
    pub macs: u32,
    /// Maximum number of entries in the MAC table of the bridge.
    pub mac_limit: u32,
    /// Ageing time of learned MAC table entries in seconds.
    pub ageing: u32,
    /// Whether IGMP and MLD snooping is enabled on the bridge.
    pub snooping: bool,
    /// Number of multicast groups in the snooping table.
    #[serde(default)]
    pub groups: u32,
    /// Number of MAC table entries that are installed in the hooks (XDP programs) of the members. Absent if the hooks
    /// do not forward for the bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<u32>,
    /// Number of OpenFlow megaflows that are installed in the hooks (XDP programs) of the members. Absent if the hooks
    /// do not forward for the bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_flows: Option<u32>,
    /// MAC table counters since the creation of the bridge.
    #[serde(default)]
    pub counts: BridgeCounts,
    /// Ports that are members of the bridge, with their settings and counters.
    pub members: Vec<MemberState>,
}

/// MAC table counters of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeCounts {
    /// Number of MAC addresses that were learned.
    pub learned: u64,
    /// Number of MAC table entries that expired.
    pub expired: u64,
    /// Number of MAC table entries that were evicted because the table was full.
    pub evicted: u64,
    /// Number of times that a MAC address moved to another port.
    pub moved: u64,
}

impl BridgeCounts {
    /// Returns by how much these counters exceed the earlier values `before`.
    #[must_use]
    pub fn since(self, before: BridgeCounts) -> BridgeCounts {
        BridgeCounts {
            learned: self.learned.saturating_sub(before.learned),
            expired: self.expired.saturating_sub(before.expired),
            evicted: self.evicted.saturating_sub(before.evicted),
            moved: self.moved.saturating_sub(before.moved),
        }
    }
}

/// A port with a multicast group membership, or a port through which a multicast router is reachable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MulticastMember {
    /// VLAN of the group membership or of the multicast router.
    pub vlan: VlanId,
    /// IP address of the multicast group. `None`: a multicast router is reachable through the port.
    pub group: Option<std::net::IpAddr>,
    /// Name of the port behind which the group member or the multicast router is.
    pub port: String,
    /// Seconds since the last membership report (for a multicast router, the last query or PIM hello) at the port.
    pub age_s: u32,
}

/// State of a member of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberState {
    /// Name of the port that is a member of the bridge.
    pub port: String,
    /// Owner of the membership: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// VLANs of the member, such as `access 10` or `trunk 10, 20-29, native 1`.
    pub vlans: String,
    /// Whether the member is protected: it exchanges no frames with the other protected members.
    pub protected: bool,
    /// Number of MAC addresses that the bridge has learned at the member.
    pub macs: u32,
    /// Number of times that a MAC address moved from another member to this member.
    #[serde(default)]
    pub moves: u64,
}

/// An entry of a bridge's MAC table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FdbEntry {
    /// Name of the bridge.
    pub bridge: String,
    /// VLAN of the entry. 0 if the bridge has no VLANs.
    #[serde(with = "text::vlan")]
    #[cfg_attr(feature = "schema", schema(value_type = u16))]
    pub vlan: VlanId,
    /// MAC address of the entry.
    #[serde(with = "text::mac")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub mac: MacAddr,
    /// Name of the port that leads to the MAC address.
    pub port: String,
    /// Seconds since the last frame from the MAC address arrived.
    pub age_s: u32,
    /// Whether the entry is static. A static entry was configured, and neither expires nor moves to another port.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// Query for MAC table entries. Absent criteria match all entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FdbFilter {
    /// Name of the bridge whose entries are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Name of the port of the selected entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// VLAN of the selected entries.
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// MAC address of the selected entries.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Maximum number of entries in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl FdbFilter {
    /// Returns whether an entry matches all criteria of the filter. The maximum number of results is not
    /// considered.
    pub fn matches(&self, entry: &FdbEntry) -> bool {
        self.bridge.as_ref().is_none_or(|bridge| *bridge == entry.bridge)
            && self.port.as_ref().is_none_or(|port| *port == entry.port)
            && self.vlan.is_none_or(|vlan| vlan == entry.vlan)
            && self.mac.is_none_or(|mac| mac == entry.mac)
    }
}

/// State of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerState {
    /// Identifier of the worker.
    pub id: u16,
    /// Index of the CPU core that the worker is pinned to.
    pub core: u16,
    /// Fraction of the last second in which the worker processed packets, 0..=1.
    pub busy: f64,
    /// Whether the worker currently sleeps.
    pub sleeping: bool,
    /// Number of packet bursts that the worker processed.
    pub bursts: u64,
    /// Number of packets that the worker processed.
    pub packets: u64,
    /// Number of times that the worker went to sleep.
    pub sleeps: u64,
    /// Number of packets that other workers handed to this worker.
    #[serde(default)]
    pub handed_over: u64,
    /// Port queues that the worker serves, as `port/queue`.
    #[serde(default)]
    pub queues: Vec<String>,
}

/// Processing cost of one stage of the packet path, summed over all workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageState {
    /// Name of the stage of the packet path.
    pub name: String,
    /// Number of packets that the stage processed.
    pub packets: u64,
    /// Time that the workers spent in the stage, in nanoseconds.
    pub ns: u64,
}

impl StageState {
    /// Returns the mean processing time per packet in nanoseconds, or 0 if there were no packets.
    #[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
    pub fn ns_per_packet(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.ns as f64 / self.packets as f64 }
    }
}

/// Counter of the packets that were dropped at one port for one drop reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DropState {
    /// Name of the port at which the packets arrived. For the reasons `tx-failed` and `device-gone`, the port that
    /// should have transmitted the packets.
    pub port: String,
    /// Name of the drop reason, as in metrics and captures.
    pub reason: String,
    /// Meaning of the drop reason, and the next step for the operator.
    pub explanation: String,
    /// Number of packets that were dropped at the port for this reason.
    pub packets: u64,
}

/// State of a filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FilterState {
    /// Name of the filter.
    pub name: String,
    /// Owner of the filter: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Names of the ports whose hooks (XDP programs) apply the filter.
    pub ports: Vec<String>,
    /// Path of the block list file of the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocklist: Option<String>,
    /// Number of prefixes in the block list. Absent if no rule of the filter uses the block list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<u64>,
    /// Rules of the filter, in the order of their evaluation.
    pub rules: Vec<RuleState>,
}

/// State of a filter rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleState {
    /// Name of the rule.
    pub name: String,
    /// Priority of the rule. Rules with a higher priority are evaluated first.
    pub priority: u32,
    /// Action of the rule, as in the configuration file.
    pub action: String,
    /// Whether the rule only counts packets, without applying its action.
    pub dry_run: bool,
    /// Time at which the rule expires. Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether the rule has expired.
    #[serde(default)]
    pub expired: bool,
    /// Number of packets that matched the filter rule.
    pub packets: u64,
    /// Number of bytes in the packets that matched the rule.
    pub bytes: u64,
    /// Number of matching packets that the rule dropped, passed, sampled or answered, or that exceeded the rule's rate.
    /// For a dry-run rule, the number of packets that the action would have affected.
    pub acted_packets: u64,
    /// Number of bytes in the packets that `acted_packets` counts.
    pub acted_bytes: u64,
    /// SYN cookie counters. Absent if the action is not `syncookie`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies: Option<CookieState>,
}

/// SYN cookie counters of a rule, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CookieState {
    /// Number of SYNs that were answered with a cookie.
    pub answered: u64,
    /// Number of TCP segments with a valid cookie.
    pub valid: u64,
    /// Number of TCP segments with a missing or invalid cookie.
    pub invalid: u64,
    /// Number of SYNs that could not be answered with a cookie and were dropped.
    pub refused: u64,
    /// Number of SYNs that were passed to the protected service without an answer with a cookie.
    pub through: u64,
    /// Whether the rule currently answers SYNs with cookies.
    pub answering: bool,
}

/// Request to add prefixes to the block list of a filter, or to remove prefixes from it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// Whether the request removes the prefixes instead of adding them.
    #[serde(default)]
    pub unblock: bool,
    /// Address prefixes to add to the block list or to remove from it.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub prefixes: Vec<Prefix>,
    /// Seconds after which the added prefixes are removed again. Absent: the prefixes are not removed automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}

/// Result of a [`BlockRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Blocked {
    /// Number of prefixes that the request added or removed.
    pub changed: u64,
    /// Number of prefixes in the block list after the request.
    pub listed: u64,
}

/// Finding of the diagnostics (`trivium doctor`) about one object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DoctorFinding {
    /// Path of the object, such as `port.eth1` or `memory`.
    pub object: String,
    /// Severity of the diagnostics finding.
    pub severity: Finding,
    /// Description of the problem or the state that was found.
    pub finding: String,
    /// Remedy for the finding. Empty if no action is required.
    #[serde(default)]
    pub fix: String,
}

/// Severity of a diagnostics finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// The object has no problem.
    Ok,
    /// The object works, but slower than possible.
    Advice,
    /// The object works, but probably not as intended.
    Warning,
    /// The object does not work.
    Error,
}

impl From<Severity> for Finding {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Finding::Error,
            Severity::Warning => Finding::Warning,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Finding::Ok => "ok",
            Finding::Advice => "advice",
            Finding::Warning => "warning",
            Finding::Error => "error",
        })
    }
}

/// Indirection table of a port's software RSS, which assigns each bucket of the flow hash to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RssTable {
    /// Number of the worker for each bucket. The number of buckets is a power of two.
    pub buckets: Vec<u16>,
}

/// All counters of the daemon at one point in time, for displays that are updated continuously.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// Traffic counters of each port, by the name of the port.
    pub ports: BTreeMap<String, PortCounters>,
    /// State of each worker.
    pub workers: Vec<WorkerState>,
    /// Number of dropped packets for each drop reason, over all ports.
    pub drops: BTreeMap<String, u64>,
}

/// Change of a port's link state, for displays that are updated continuously.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LinkEvent {
    /// Nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// Name of the port whose link state changed.
    pub port: String,
    /// Whether the link of the port is now up.
    pub up: bool,
    /// Description of a current problem of the port. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
