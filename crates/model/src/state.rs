//! State as plain values: what the daemon tells about its ports, bridges, workers and losses.
//!
//! The API sends these values as they are here, the command line reads them back. Counters count since the object was
//! made and only grow. Absent is what a kind of port does not have.

use std::collections::BTreeMap;
use std::fmt;

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};

use crate::{Owner, Prefix, Severity, text};

/// A port as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortState {
    /// Its name.
    pub name: String,
    /// Its number in the data path.
    pub id: u16,
    /// Its kind, as in the file.
    pub kind: String,
    /// Whose object it is.
    pub owner: Owner,
    /// Its device in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The device's namespace; absent: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The device's number in its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// The device's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Where the hook's program runs: `native` or `generic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether the driver receives into our memory itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<bool>,
    /// Why a better choice was not possible, one sentence each.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Number of queues that are served.
    pub queues: u16,
    /// The worker of each queue, in the order of the queues.
    #[serde(default)]
    pub workers: Vec<u16>,
    /// Its Ethernet address.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// Bytes of the largest L3 packet.
    pub mtu: u16,
    /// Whether the configuration has it up.
    pub admin_up: bool,
    /// Whether its link is up.
    pub link_up: bool,
    /// The bridge that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The router that it is an interface of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Whether its hook outlives the daemon.
    #[serde(default)]
    pub persist: bool,
    /// What it has carried.
    pub counters: PortCounters,
    /// The filter that its hook applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What is wrong with it now (device gone, ...), if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What its driver hook does for its bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortcut: Option<String>,
}

/// What a port has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, without frame check sequences.
    pub rx_bytes: u64,
    /// Packets lost before we had them (full rings, no frames), as far as the kernel tells.
    pub rx_missed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that came in here and were dropped, for whatever reason.
    pub drops: u64,
}

/// A bridge as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeState {
    /// Its name.
    pub name: String,
    /// Its number in the data path.
    pub id: u16,
    /// Whose object it is.
    pub owner: Owner,
    /// Addresses in its table now.
    pub macs: u32,
    /// Addresses that its table holds at most.
    pub mac_limit: u32,
    /// Seconds after which a silent address is forgotten.
    pub ageing: u32,
    /// Whether IGMP and MLD are read.
    pub snooping: bool,
    /// Multicast groups that snooping knows.
    #[serde(default)]
    pub groups: u32,
    /// Stations that the driver hooks of its ports know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<u32>,
    /// Cached flows of its rules that the driver hooks of its ports answer for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_flows: Option<u32>,
    /// What has become of addresses since it was made.
    #[serde(default)]
    pub counts: BridgeCounts,
    /// Its members.
    pub members: Vec<MemberState>,
}

/// What has become of a bridge's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeCounts {
    /// Addresses that came new.
    pub learned: u64,
    /// Addresses that went after their time.
    pub expired: u64,
    /// Addresses that gave way to others, in a full table.
    pub evicted: u64,
    /// Addresses that were seen at another port.
    pub moved: u64,
}

impl BridgeCounts {
    /// Returns what has been counted since `before`.
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

/// A port that wants a multicast group's frames, or that leads to a multicast router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MulticastMember {
    /// The VLAN.
    pub vlan: VlanId,
    /// The group; `None`: the port leads to a router.
    pub group: Option<std::net::IpAddr>,
    /// The port.
    pub port: String,
    /// Seconds since it last said so.
    pub age_s: u32,
}

/// A bridge's member as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberState {
    /// The port.
    pub port: String,
    /// Whose object the membership is.
    pub owner: Owner,
    /// Its VLANs, such as `access 10` or `trunk 10, 20-29, native 1`.
    pub vlans: String,
    /// Whether it is kept apart from the other protected members.
    pub protected: bool,
    /// Addresses that were learnt here.
    pub macs: u32,
    /// How often an address turned up here that was known at another member.
    #[serde(default)]
    pub moves: u64,
}

/// An address of a bridge's table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FdbEntry {
    /// The bridge.
    pub bridge: String,
    /// The VLAN; 0: none.
    #[serde(with = "text::vlan")]
    #[cfg_attr(feature = "schema", schema(value_type = u16))]
    pub vlan: VlanId,
    /// The address.
    #[serde(with = "text::mac")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub mac: MacAddr,
    /// The port that it is at.
    pub port: String,
    /// Seconds since it was last seen.
    pub age_s: u32,
    /// Whether it was configured, and so neither ages nor moves.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// Which addresses are asked for; what is absent does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FdbFilter {
    /// Of this bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// At this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// In this VLAN.
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// This address.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// So many at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl FdbFilter {
    /// Whether this entry is asked for, the limit aside.
    pub fn matches(&self, entry: &FdbEntry) -> bool {
        self.bridge.as_ref().is_none_or(|bridge| *bridge == entry.bridge)
            && self.port.as_ref().is_none_or(|port| *port == entry.port)
            && self.vlan.is_none_or(|vlan| vlan == entry.vlan)
            && self.mac.is_none_or(|mac| mac == entry.mac)
    }
}

/// A worker as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerState {
    /// Its number.
    pub id: u16,
    /// The core that it is pinned to.
    pub core: u16,
    /// Part of the last second in which it worked on packets, 0..=1.
    pub busy: f64,
    /// Whether it sleeps right now.
    pub sleeping: bool,
    /// Bursts so far.
    pub bursts: u64,
    /// Packets so far.
    pub packets: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Packets that other workers have handed to it.
    #[serde(default)]
    pub handed_over: u64,
    /// Its queues, as `port/queue`.
    #[serde(default)]
    pub queues: Vec<String>,
}

/// What one stage has cost, over all workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageState {
    /// Its name.
    pub name: String,
    /// Packets that went through it.
    pub packets: u64,
    /// Nanoseconds spent in it.
    pub ns: u64,
}

impl StageState {
    /// Nanoseconds for one packet; 0 where there was none.
    #[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
    pub fn ns_per_packet(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.ns as f64 / self.packets as f64 }
    }
}

/// Packets of a port that were dropped for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DropState {
    /// The port that they came in by; for `tx-failed` and `device-gone` the port that was to send them.
    pub port: String,
    /// The reason's name, as in metrics and captures.
    pub reason: String,
    /// What the reason means and what can be done.
    pub explanation: String,
    /// So many so far.
    pub packets: u64,
}

/// A filter as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FilterState {
    /// Its name.
    pub name: String,
    /// Whose object it is.
    pub owner: Owner,
    /// The ports whose hooks apply it now.
    pub ports: Vec<String>,
    /// The file of its block list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocklist: Option<String>,
    /// Prefixes in its block list now; absent where no rule asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<u64>,
    /// Its rules in the order in which they are asked.
    pub rules: Vec<RuleState>,
}

/// A filter's rule as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleState {
    /// Its name.
    pub name: String,
    /// Higher comes first.
    pub priority: u32,
    /// What it does, as in the file.
    pub action: String,
    /// Whether it only counts what it would do.
    pub dry_run: bool,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether it has ended.
    #[serde(default)]
    pub expired: bool,
    /// Packets that it matched.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these, packets that it dropped, passed, sampled or answered, or that were over its rate; in a dry run, would have been.
    pub acted_packets: u64,
    /// Bytes of these.
    pub acted_bytes: u64,
    /// What became of SYNs, where it asks for cookies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies: Option<CookieState>,
}

/// What a rule with SYN cookies has done, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CookieState {
    /// SYNs that were answered with a cookie.
    pub answered: u64,
    /// Segments that brought one back.
    pub valid: u64,
    /// Segments that should have, and did not.
    pub invalid: u64,
    /// SYNs that could not be answered, and were dropped.
    pub refused: u64,
    /// SYNs that went on to the service.
    pub through: u64,
    /// Whether SYNs are answered now.
    pub answering: bool,
}

/// Prefixes that are to be put into a filter's block list, or taken out of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// Whether they are taken out.
    #[serde(default)]
    pub unblock: bool,
    /// The prefixes.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub prefixes: Vec<Prefix>,
    /// Seconds after which they are taken out again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}

/// What became of a [`BlockRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Blocked {
    /// Prefixes that came or went.
    pub changed: u64,
    /// Prefixes in the list now.
    pub listed: u64,
}

/// What `doctor` finds at one object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DoctorFinding {
    /// The object, such as `port.eth1` or `memory`.
    pub object: String,
    /// How bad it is.
    pub severity: Finding,
    /// What was found.
    pub finding: String,
    /// What to do about it; empty where nothing is to be done.
    #[serde(default)]
    pub fix: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// As it should be.
    Ok,
    /// Works, but slower than it could.
    Advice,
    /// Works, but not as one would think.
    Warning,
    /// Does not work.
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

/// The table of a port's software RSS: for each hash bucket the worker that packets of it go to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RssTable {
    /// Worker numbers; the length is a power of two.
    pub buckets: Vec<u16>,
}

/// All counters at one moment, for live views.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Nanoseconds since the daemon started.
    pub at_ns: u64,
    /// Each port's counters by name.
    pub ports: BTreeMap<String, PortCounters>,
    /// The workers.
    pub workers: Vec<WorkerState>,
    /// Dropped packets by reason, over all ports.
    pub drops: BTreeMap<String, u64>,
}

/// A port's link that went or came, for live views.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LinkEvent {
    /// Nanoseconds since the daemon started.
    pub at_ns: u64,
    /// The port.
    pub port: String,
    /// Whether its link is up now.
    pub up: bool,
    /// What is wrong with it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
