//! Bridges that go by OpenFlow's rules, as they run: rules, groups, meters, and what is cached of them.
//!
//! Matches and actions are texts in `ovs-ofctl`'s syntax, cached flows in `ovs-dpctl`'s. Counts of rules and groups are half a second old at
//! most.

use serde::{Deserialize, Serialize};

/// Which rules, groups, meters or cached flows are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowQuery {
    /// Of this bridge; of all if absent.
    pub bridge: Option<String>,
    /// Of this table (rules alone).
    pub table: Option<u8>,
    /// In this worker's cache (cached flows alone).
    pub worker: Option<u16>,
    /// Whose text has this in it (cached flows alone).
    pub text: Option<String>,
    /// So many at most.
    pub limit: usize,
    /// Ports are written as their numbers in the data path (cached flows alone).
    pub numbers: bool,
}

/// What is changed of the caching of flows until the decider ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowTuning {
    /// Workers have so many flows at most.
    Limit(u32),
    /// A cached flow stands for all packets of its fate, or only for those that are alike in every field.
    Megaflows(bool),
}

/// A packet whose way through the tables is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceRequest {
    /// The bridge; `None`: the one of the data path's port that the flow names.
    pub bridge: Option<String>,
    /// The flow, in the syntax of ovs-fields(7), or of `ovs-dpctl`.
    pub flow: String,
    /// The packet.
    pub packet: TracePacket,
    /// Ports are named, not numbered.
    pub names: bool,
    /// The reasons of the megaflow's bits are told, too.
    pub why: bool,
    /// Actions, in the syntax of ovs-actions(7), that a controller asks for; absent: the tables say.
    pub actions: Option<String>,
}

/// The packet of a [`TraceRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TracePacket {
    /// None: the flow is all that is known.
    #[default]
    None,
    /// One that is made of the flow.
    Generated,
    /// This one, in hexadecimal digits.
    Digits(String),
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowRuleState {
    /// Its bridge.
    pub bridge: String,
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// What it matches; empty: everything.
    #[serde(rename = "match")]
    pub matches: String,
    /// What it does.
    pub actions: String,
    /// Packets that met it.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Milliseconds since it was added.
    pub age_ms: u64,
    /// Milliseconds since a packet met it, or it was changed.
    pub idle_ms: u64,
    /// Seconds of silence after which it goes; 0: none.
    pub idle_timeout: u16,
    /// Seconds of life; 0: for ever.
    pub hard_timeout: u16,
    /// Rules of less importance go first when the table is full.
    pub importance: u16,
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupState {
    /// Its bridge.
    pub bridge: String,
    /// Its number.
    pub id: u32,
    /// The group, as `ovs-ofctl dump-groups` writes it.
    pub text: String,
    /// Packets that went by it.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Milliseconds since it was added.
    pub age_ms: u64,
    /// What went by each of its buckets, in their order.
    pub buckets: Vec<FlowCount>,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MeterState {
    /// Its bridge.
    pub bridge: String,
    /// Its number.
    pub id: u32,
    /// The meter, as `ovs-ofctl dump-meters` writes it.
    pub text: String,
    /// Packets that came to it.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Milliseconds since it was added.
    pub age_ms: u64,
    /// What was over the rate of each of its bands, in their order.
    pub bands: Vec<FlowCount>,
}

/// A cached flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MegaflowState {
    /// Its bridge.
    pub bridge: String,
    /// The worker that has it.
    pub worker: u16,
    /// The packets that it is about: port and the bits of its mask.
    pub flow: String,
    /// What becomes of them.
    pub actions: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Milliseconds since the last packet; absent: none has come yet behind the one that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_ms: Option<u64>,
    /// Rules that it stands for, in the order met: `table=0,priority=20,icmp`.
    pub rules: Vec<String>,
}

/// One worker's cache of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CacheState {
    /// The worker.
    pub worker: u16,
    /// Flows.
    pub flows: u64,
    /// Different masks.
    pub masks: u64,
    /// Packets that a hint of the exact-match cache answered.
    pub exact_hits: u64,
    /// Packets that the masks answered.
    pub masked_hits: u64,
    /// Packets that no cached flow matches.
    pub misses: u64,
    /// Times that a packet was asked against a mask.
    pub probes: u64,
    /// Bytes of memory.
    pub memory: u64,
}

/// The decider: who looks packets of unknown flows up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeciderState {
    /// Flows that workers have of it.
    pub flows: u64,
    /// Flows on average over the last looks.
    #[serde(default)]
    pub mean_flows: u64,
    /// Flows at most, in any look.
    #[serde(default)]
    pub most_flows: u64,
    /// How many it gives out at most now.
    pub limit: u64,
    /// Packets that it has looked up.
    pub upcalls: u64,
    /// Flows that it has followed through changed tables again.
    pub revalidated: u64,
    /// Microseconds that the last look at all flows took.
    pub round_us: u64,
    /// Flows that were cached with every bit of their packets, since their ports had as many masks as they may.
    pub narrowed: u64,
    /// Flows that said something else than the tables though no rule had changed: a defect, unless it is 0.
    pub wrong: u64,
}

/// Memory that something takes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryState {
    /// What takes it: `frames`, `flow caches`, `flow records`, `tables of br0`.
    pub consumer: String,
    /// Bytes, about.
    pub bytes: u64,
}

/// What is cached of the tables, and what that takes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CachesState {
    /// The workers' caches; none while no bridge goes by rules.
    pub workers: Vec<CacheState>,
    /// The decider, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<DeciderState>,
    /// Memory by consumer.
    pub memory: Vec<MemoryState>,
}
