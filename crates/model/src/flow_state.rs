//! State of bridges with OpenFlow: flow entries, groups, meters, and the flow caches.
//!
//! Matches and actions are texts in the syntax of `ovs-ofctl`. Megaflows are texts in the syntax of
//! `ovs-dpctl`. Counters of flow entries and groups are at most half a second old.

use serde::{Deserialize, Serialize};

use crate::table::{Listed, Table, short};

/// Query for flow entries, groups, meters or megaflows. An absent criterion matches all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowQuery {
    /// Name of the bridge whose objects are selected. `None`: all bridges.
    pub bridge: Option<String>,
    /// Identifier of the flow table. Applies to flow entries only.
    pub table: Option<u8>,
    /// Identifier of the worker whose cache is queried. Applies to megaflows only.
    pub worker: Option<u16>,
    /// Substring that the text form of a megaflow must contain. Applies to megaflows only.
    pub text: Option<String>,
    /// Maximum number of entries in the result.
    pub limit: usize,
    /// Maximum total size in octets of the texts in the result. `None`: the data plane's own maximum applies.
    pub text_octets: Option<usize>,
    /// Whether the results contain datapath port numbers instead of port names. Applies to megaflows only.
    pub numbers: bool,
}

/// Change of a parameter of the flow caches. The change is lost when the slow path restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowTuning {
    /// Sets the maximum number of megaflows in the caches of all workers together.
    Limit(u32),
    /// Sets whether megaflows may contain wildcards. `false`: each megaflow matches only packets that are equal in
    /// every field of the flow key.
    Megaflows(bool),
}

/// Request to trace a packet through the flow tables of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceRequest {
    /// Name of the bridge. `None`: the bridge of the datapath port that `flow` contains.
    pub bridge: Option<String>,
    /// Text of the flow, in the syntax of ovs-fields(7) or of `ovs-dpctl`.
    pub flow: String,
    /// Packet whose processing is traced.
    pub packet: TracePacket,
    /// Whether the report contains port names instead of port numbers.
    pub names: bool,
    /// Whether the report contains the reason for each bit of the megaflow mask.
    pub why: bool,
    /// Actions of a packet-out, in the syntax of ovs-actions(7). `None`: the flow tables determine the
    /// actions.
    pub actions: Option<String>,
}

/// The packet of a [`TraceRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TracePacket {
    /// No packet. The trace uses only the fields in the text of the flow.
    #[default]
    None,
    /// A packet that is generated from the fields of the flow.
    Generated,
    /// The given packet, in hexadecimal digits.
    Digits(String),
}

/// State of an OpenFlow flow entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowRuleState {
    /// Name of the bridge to which the flow entry belongs.
    pub bridge: String,
    /// Number of the OpenFlow table that contains the flow entry.
    pub table: u8,
    /// Priority of the OpenFlow flow entry.
    pub priority: u16,
    /// Cookie (OpenFlow) of the flow entry.
    pub cookie: u64,
    /// Match of the flow entry. Empty: all packets.
    #[serde(rename = "match")]
    pub matches: String,
    /// Actions of the flow entry.
    pub actions: String,
    /// Number of packets that matched the flow entry.
    pub packets: u64,
    /// Number of bytes in the packets that matched the flow entry.
    pub bytes: u64,
    /// Milliseconds since the flow entry was added.
    pub age_ms: u64,
    /// Milliseconds since the last packet matched the flow entry. If no packet has matched, milliseconds since the last
    /// change of the flow entry.
    pub idle_ms: u64,
    /// Idle timeout of the flow entry in seconds. 0: none.
    pub idle_timeout: u16,
    /// Hard timeout of the flow entry in seconds. 0: none.
    pub hard_timeout: u16,
    /// Importance of the flow entry. Less important entries are evicted first when the table is full.
    pub importance: u16,
}

impl Listed for FlowRuleState {
    fn text(rules: &[FlowRuleState]) -> String {
        if rules.is_empty() {
            return "there is no rule\n".to_owned();
        }
        Table::of(rules)
            .text("BRIDGE", |rule| rule.bridge.clone())
            .number("TABLE", |rule| rule.table.to_string())
            .number("PRIORITY", |rule| rule.priority.to_string())
            .count("PACKETS", |rule| rule.packets)
            .count("BYTES", |rule| rule.bytes)
            .number("AGE", |rule| duration(rule.age_ms))
            .number("IDLE", |rule| duration(rule.idle_ms))
            .text("RULE", FlowRuleState::rule_text)
            .render()
    }
}

impl FlowRuleState {
    /// Returns the text of the flow entry: the cookie and the timeouts that are not zero, the
    /// match, and the actions.
    fn rule_text(&self) -> String {
        let cookie = if self.cookie == 0 { String::new() } else { format!("cookie={:#x} ", self.cookie) };
        let times = [("idle_timeout", self.idle_timeout), ("hard_timeout", self.hard_timeout)];
        let times: String = times
            .iter()
            .filter(|(_, time)| *time != 0)
            .map(|(name, time)| format!("{name}={time} "))
            .collect();
        let space = if self.matches.is_empty() { "" } else { " " };
        format!("{cookie}{times}{}{space}actions={}", self.matches, self.actions)
    }
}

/// Formats a duration in milliseconds as seconds, minutes or hours.
fn duration(ms: u64) -> String {
    match ms / 1000 {
        0..=9 => format!("{}.{} s", ms / 1000, ms / 100 % 10),
        seconds @ 10..=599 => format!("{seconds} s"),
        seconds @ 600..=35_999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Counts of packets and bytes of a group's bucket or a meter's band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowCount {
    /// Number of packets that the bucket or band counted.
    pub packets: u64,
    /// Number of bytes in the packets that the bucket or band counted.
    pub bytes: u64,
}

/// State of an OpenFlow group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupState {
    /// Name of the bridge to which the group belongs.
    pub bridge: String,
    /// Identifier of the OpenFlow group.
    pub id: u32,
    /// Type and buckets of the group, in the syntax of `ovs-ofctl dump-groups`.
    pub text: String,
    /// Number of packets that the group processed.
    pub packets: u64,
    /// Number of bytes in the packets that the group processed.
    pub bytes: u64,
    /// Milliseconds since the group was added.
    pub age_ms: u64,
    /// Counts of packets and bytes for each bucket, in the order of the buckets.
    pub buckets: Vec<FlowCount>,
}

impl Listed for GroupState {
    fn text(groups: &[GroupState]) -> String {
        if groups.is_empty() {
            return "there is no group\n".to_owned();
        }
        Table::of(groups)
            .text("BRIDGE", |group| group.bridge.clone())
            .count("PACKETS", |group| group.packets)
            .count("BYTES", |group| group.bytes)
            .number("AGE", |group| duration(group.age_ms))
            .text("BY BUCKET", |group| packets(&group.buckets))
            .text("GROUP", |group| group.text.clone())
            .render()
    }
}

/// Returns the packet count of each element of `counts` as text, separated by spaces.
fn packets(counts: &[FlowCount]) -> String {
    counts.iter().map(|count| short(count.packets)).collect::<Vec<_>>().join(" ")
}

/// State of an OpenFlow meter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MeterState {
    /// Name of the bridge to which the meter belongs.
    pub bridge: String,
    /// Identifier of the OpenFlow meter.
    pub id: u32,
    /// Flags and bands of the meter, in the syntax of `ovs-ofctl dump-meters`.
    pub text: String,
    /// Number of packets that the meter processed.
    pub packets: u64,
    /// Number of bytes in the packets that the meter processed.
    pub bytes: u64,
    /// Milliseconds since the meter was added.
    pub age_ms: u64,
    /// Packets and bytes that exceeded the rate of each band, in the order of the bands.
    pub bands: Vec<FlowCount>,
}

impl Listed for MeterState {
    fn text(meters: &[MeterState]) -> String {
        if meters.is_empty() {
            return "there is no meter\n".to_owned();
        }
        Table::of(meters)
            .text("BRIDGE", |meter| meter.bridge.clone())
            .count("PACKETS", |meter| meter.packets)
            .count("BYTES", |meter| meter.bytes)
            .number("AGE", |meter| duration(meter.age_ms))
            .text("OVER BY BAND", |meter| packets(&meter.bands))
            .text("METER", |meter| meter.text.clone())
            .render()
    }
}

/// State of a megaflow in a worker's cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MegaflowState {
    /// Name of the bridge to which the megaflow belongs.
    pub bridge: String,
    /// Identifier of the worker that caches the megaflow.
    pub worker: u16,
    /// Input port and masked header fields of the packets that the megaflow matches.
    pub flow: String,
    /// Cached actions of the megaflow.
    pub actions: String,
    /// Number of packets that matched the megaflow.
    pub packets: u64,
    /// Number of bytes in the packets that matched the megaflow.
    pub bytes: u64,
    /// Milliseconds since the last packet that matched the megaflow. Absent if no packet has matched it since
    /// it was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_ms: Option<u64>,
    /// Flow entries that the slow path matched to build the megaflow, in the order of the lookups, such as
    /// `table=0,priority=20,icmp`.
    pub rules: Vec<String>,
}

impl Listed for MegaflowState {
    fn text(flows: &[MegaflowState]) -> String {
        if flows.is_empty() {
            return "no flow is cached\n".to_owned();
        }
        Table::of(flows)
            .text("BRIDGE", |flow| flow.bridge.clone())
            .number("WORKER", |flow| flow.worker.to_string())
            .count("PACKETS", |flow| flow.packets)
            .count("BYTES", |flow| flow.bytes)
            .number("USED", |flow| flow.used_ms.map_or_else(|| "never".to_owned(), duration))
            .text("FLOW", |flow| {
                format!("{} actions:{} rules: {}", flow.flow, flow.actions, flow.rules.join("; "))
            })
            .render()
    }
}

/// State of the flow cache of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CacheState {
    /// Identifier of the worker that uses the flow cache.
    pub worker: u16,
    /// Number of megaflows in the worker's flow cache.
    pub flows: u64,
    /// Number of distinct megaflow masks in the worker's flow cache.
    pub masks: u64,
    /// Number of packets whose actions were found in the exact-match cache.
    pub exact_hits: u64,
    /// Number of packets whose actions were found by the megaflow lookup.
    pub masked_hits: u64,
    /// Number of packets that matched no megaflow in the cache.
    pub misses: u64,
    /// Number of hash table lookups for megaflows. Each packet counts once for each mask that was tried.
    pub probes: u64,
    /// Approximate memory of the worker's flow cache in bytes.
    pub memory: u64,
}

/// State of the slow path, which determines the actions of packets that match no megaflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SlowPathState {
    /// Number of megaflows that are currently installed in the caches of the workers.
    pub flows: u64,
    /// Average number of installed megaflows over the last revalidation rounds.
    #[serde(default)]
    pub mean_flows: u64,
    /// Largest number of installed megaflows in any revalidation round.
    #[serde(default)]
    pub most_flows: u64,
    /// Current maximum number of megaflows in the caches of all workers together.
    pub limit: u64,
    /// Number of upcalls (packets without a megaflow) that the slow path processed.
    pub upcalls: u64,
    /// Number of times that the actions of a megaflow were computed again after a change of the flow tables.
    pub revalidated: u64,
    /// Duration of the last revalidation of all megaflows, in microseconds.
    pub round_us: u64,
    /// Number of megaflows that were installed with an exact match on all fields, because their input ports
    /// had reached the maximum number of masks.
    pub narrowed: u64,
    /// Number of megaflows whose actions differed from the actions in the flow tables although no flow entry had
    /// changed. A value other than 0 indicates a defect.
    pub wrong: u64,
    /// Number of `learn` actions that were skipped because they would have visited too many flow entries.
    #[serde(default)]
    pub skipped_learns: u64,
}

/// Memory that one part of the daemon uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryState {
    /// Name of the part of the daemon that uses the memory, such as `frames`, `flow caches`, `flow records` or
    /// `tables of br0`.
    pub consumer: String,
    /// Approximate memory of this part of the daemon, in bytes.
    pub bytes: u64,
}

/// State of the flow caches and their memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CachesState {
    /// Caches of the workers. Empty while no bridge uses OpenFlow.
    pub workers: Vec<CacheState>,
    /// State of the slow path. Absent while no slow path runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(alias = "decider")]
    pub slow_path: Option<SlowPathState>,
    /// Memory that the flow caches, the tables and other parts of the daemon use.
    pub memory: Vec<MemoryState>,
}
