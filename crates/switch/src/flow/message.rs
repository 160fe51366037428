//! Controllers' requests, the replies to them, and events, in one form for all versions of OpenFlow.

mod group;
mod meter;
mod packet;

use ::packet::MacAddr;

pub use group::{
    ALL_GROUPS, ANY_GROUP, Bucket, BucketPlace, Group, GroupKind, GroupMod, GroupStats, SelectMethod,
};
pub use meter::{Band, BandKind, Meter, MeterMod, MeterStats};
pub use packet::{Continuation, PacketIn, PacketOut, Rest};

use super::{Instructions, Match};

/// Table number that represents all tables in requests (OFPTT_ALL).
pub const ALL_TABLES: u8 = 0xff;

/// The command of a flow-mod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Adds a flow entry. Replaces the existing flow entry with equal match and priority, if there
    /// is such a flow entry.
    Add,
    /// Changes the instructions of flow entries.
    Modify {
        /// Whether only the flow entry with exactly this match and priority is changed. Otherwise all flow entries
        /// whose matches lie within this match are changed.
        strict: bool,
        /// Whether a flow entry is added if there is no flow entry to change (OpenFlow 1.0).
        or_add: bool,
    },
    /// Removes flow entries.
    Delete {
        /// Whether only the flow entry with exactly this match and priority is removed. Otherwise all flow entries
        /// whose matches lie within this match are removed.
        strict: bool,
    },
}

/// Flags of a flow entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags {
    /// Whether controllers get a message when the flow entry is removed.
    pub send_removed: bool,
    /// Whether the addition is refused if another flow entry of equal priority could match a packet
    /// that the new flow entry matches.
    pub check_overlap: bool,
    /// Whether the flow-mod resets the counters of the flow entry to zero.
    pub reset_counts: bool,
    /// Whether the packets that match the flow entry need not be counted.
    pub no_packet_counts: bool,
    /// Whether the octets of the packets that match the flow entry need not be counted.
    pub no_byte_counts: bool,
}

/// A flow-mod: a change of flow entries.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowMod {
    /// Command of the flow-mod.
    pub command: FlowCommand,
    /// Number of the table to change. In removals, [`ALL_TABLES`] represents all tables.
    pub table: u8,
    /// Match of the new flow entry, or match that selects the flow entries to change or remove.
    pub matching: Match,
    /// Priority of the flow entry.
    pub priority: u16,
    /// Cookie of a new flow entry. `None` keeps the cookies of changed flow entries.
    pub cookie: Option<u64>,
    /// Mask of the cookie bits that must equal `cookie_value` for a flow entry to be changed or removed.
    pub cookie_mask: u64,
    /// Value that the cookie bits in `cookie_mask` must have.
    pub cookie_value: u64,
    /// Idle time-out of the flow entry, in seconds. 0 means none.
    pub idle_timeout: u16,
    /// Hard time-out of the flow entry, in seconds. 0 means none.
    pub hard_timeout: u16,
    /// Importance of the flow entry. A full table evicts flow entries of lower importance first.
    pub importance: u16,
    /// Flags of the flow entry.
    pub flags: FlowFlags,
    /// Instructions of the flow entry.
    pub instructions: Instructions,
    /// Port to which flow entries must output packets in order to be removed. `None` means no restriction.
    pub out_port: Option<u32>,
    /// Group that flow entries must use in order to be removed. `None` means no restriction.
    pub out_group: Option<u32>,
    /// Identifier of a buffered packet that is processed by the tables after the change. `None` means no packet.
    pub buffer: Option<u32>,
}

impl FlowMod {
    /// Returns a flow-mod that adds a flow entry without time-outs.
    #[must_use]
    pub fn add(table: u8, priority: u16, matching: Match, instructions: Instructions) -> FlowMod {
        FlowMod {
            command: FlowCommand::Add,
            table,
            matching,
            priority,
            cookie: Some(0),
            cookie_mask: 0,
            cookie_value: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::default(),
            instructions,
            out_port: None,
            out_group: None,
            buffer: None,
        }
    }

    /// Returns a flow-mod that removes all flow entries of a table whose matches lie within `matching`.
    #[must_use]
    pub fn delete(table: u8, matching: Match) -> FlowMod {
        FlowMod {
            command: FlowCommand::Delete { strict: false },
            ..FlowMod::add(table, 0, matching, Instructions::default())
        }
    }
}

/// One change that a controller requests, alone or in a bundle.
#[derive(Clone, PartialEq, Debug)]
pub enum Mod {
    /// A change of flow entries.
    Flow(Box<FlowMod>),
    /// A change of groups.
    Group(GroupMod),
    /// A change of meters.
    Meter(MeterMod),
    /// A packet-out. The tables, in their state after the preceding changes, process the packet of
    /// the packet-out. The packet is sent when all changes are made.
    PacketOut(Box<PacketOut>),
}

/// A change of groups or meters that one controller requested, in the form that other controllers receive (monitoring
/// of requests).
#[derive(Clone, PartialEq, Debug)]
pub enum ForwardedRequest {
    /// A change of groups.
    Group {
        /// Group-mod that was requested.
        change: GroupMod,
        /// Whether the group existed before the change. For a change of all groups, whether any group existed.
        existed: bool,
        /// New state of the group, if `change` describes only a part of the group.
        after: Option<Group>,
    },
    /// A change of meters.
    Meter(MeterMod),
}

impl ForwardedRequest {
    /// Returns the approximate size of the request in memory, in octets.
    fn memory(&self) -> usize {
        let bands = |meter: &Meter| size_of_val(&meter.bands[..]);
        let more = match self {
            ForwardedRequest::Group { change, after, .. } => {
                let own = match change {
                    GroupMod::Add(group) | GroupMod::Modify { group, .. } => group.memory(),
                    // These buckets are not counted separately, because they are part of the group in `after`.
                    GroupMod::InsertBuckets(..) | GroupMod::Delete(_) | GroupMod::RemoveBuckets(..) => 0,
                };
                own + 2 * after.as_ref().map_or(0, Group::memory)
            }
            ForwardedRequest::Meter(MeterMod::Add(meter) | MeterMod::Modify(meter)) => bands(meter),
            ForwardedRequest::Meter(MeterMod::Delete(_)) => 0,
        };
        size_of::<ForwardedRequest>() + more
    }
}

/// The reason why a change is refused, named after OpenFlow's error types and codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// NXFMFC_INVALID_TLV_FIELD: no tunnel option is mapped to the field.
    #[error("no option of tunnels is mapped to the field: map one first (ovs-ofctl add-tlv-map)")]
    UnmappedOption,
    /// OFPFMFC_TABLE_FULL: the table is full.
    #[error("the table is full: remove rules, or raise its limit")]
    TableFull,
    /// OFPFMFC_BAD_TABLE_ID: the table does not exist.
    #[error("there is no such table: 0 to 253 are there, and 255 means all of them where rules are removed")]
    BadTable,
    /// OFPBRC_EPERM: the table does not accept flow entries of controllers.
    #[error("table 254 holds no rules of controllers: use a table from 0 to 253")]
    HiddenTable,
    /// OFPFMFC_OVERLAP: another flow entry of equal priority could match packets that the new entry matches.
    #[error(
        "another rule of the same priority could match the same packet; give one of them another priority"
    )]
    Overlap,
    /// OFPFMFC_EPERM: the change is not permitted.
    #[error("not allowed")]
    Permission,
    /// OFPFMFC_BAD_TIMEOUT: the time-outs are not supported.
    #[error("the time-outs cannot be had")]
    BadTimeout,
    /// OFPFMFC_BAD_COMMAND: the command is unknown.
    #[error("no such command")]
    BadCommand,
    /// OFPBIC_BAD_TABLE_ID: `goto_table` leads to the same or an earlier table.
    #[error("goto_table leads to the same or an earlier table")]
    BadGoto,
    /// OFPBIC_UNSUP_INST: an instruction is not supported.
    #[error("an instruction is not supported here")]
    UnsupportedInstruction,
    /// OFPBAC_BAD_TYPE: an action is unknown or not supported.
    #[error("an action is not known or not supported")]
    BadAction,
    /// OFPBAC_BAD_OUT_PORT: an output names an invalid port.
    #[error("an output names a port that cannot be")]
    BadOutPort,
    /// OFPBAC_BAD_ARGUMENT: an action has an invalid argument.
    #[error("an action has an argument that cannot be")]
    BadArgument,
    /// OFPBAC_BAD_OUT_GROUP: an action names a group that does not exist.
    #[error("a group that is not there; add it first")]
    BadOutGroup,
    /// OFPBAC_BAD_SET_TYPE: an action sets a read-only field.
    #[error("an action sets a field that cannot be set")]
    BadSetType,
    /// OFPBAC_BAD_SET_ARGUMENT: an action sets a field to an invalid value, or sets a field of a connection outside of
    /// `ct`.
    #[error("an action sets a field to a value that it cannot have, or ct_mark or ct_label outside of ct")]
    BadSetArgument,
    /// OFPBAC_MATCH_INCONSISTENT: the match does not fulfil a prerequisite of an action.
    #[error("an action needs what the match does not make sure of")]
    MatchInconsistent,
    /// OFPBAC_UNSUPPORTED_ORDER: the order of the actions is not supported, or an action set holds two
    /// actions of one kind.
    #[error("actions in an order that is not supported")]
    UnsupportedOrder,
    /// OFPBAC_TOO_MANY: a list holds too many actions.
    #[error("too many actions")]
    TooMany,
    /// OFPBFC_MSG_TOO_MANY: the changes of a batch visit too many flow entries, groups and buckets.
    #[error(
        "the changes look at too many rules, groups and buckets together: make them in several parts, or name a table or the whole cookie \
         of the rules that are meant"
    )]
    TooMuchWork,
    /// OFPGMFC_GROUP_EXISTS: the group exists already.
    #[error("the group is there already; change it instead")]
    GroupExists,
    /// OFPGMFC_INVALID_GROUP: the number, type or buckets of the group are invalid.
    #[error("the group cannot be: its number, kind or buckets")]
    InvalidGroup,
    /// OFPGMFC_UNKNOWN_GROUP: the group does not exist.
    #[error("there is no such group")]
    UnknownGroup,
    /// OFPGMFC_OUT_OF_GROUPS: there are too many groups.
    #[error("too many groups")]
    OutOfGroups,
    /// OFPGMFC_OUT_OF_BUCKETS: there are too many buckets.
    #[error("too many buckets")]
    OutOfBuckets,
    /// OFPGMFC_LOOP: the group would refer to itself, directly or through other groups.
    #[error("the group would lead back to itself")]
    GroupLoop,
    /// OFPGMFC_CHAINED_GROUP: other groups use the group to remove.
    #[error("a group that others use cannot go")]
    ChainedGroup,
    /// OFPGMFC_UNKNOWN_BUCKET: the bucket does not exist.
    #[error("there is no such bucket")]
    UnknownBucket,
    /// OFPGMFC_BUCKET_EXISTS: the bucket exists already.
    #[error("the bucket is there already")]
    BucketExists,
    /// OFPMMFC_METER_EXISTS: the meter exists already.
    #[error("the meter is there already; change it instead")]
    MeterExists,
    /// OFPMMFC_UNKNOWN_METER: the meter does not exist.
    #[error("there is no such meter; add it first")]
    UnknownMeter,
    /// OFPMMFC_INVALID_METER: the meter number is invalid, or a flow entry names a meter that does not exist
    /// (as in Open vSwitch).
    #[error("there is no meter of this number; add it first, with a number from 1 to 0xffff0000")]
    InvalidMeter,
    /// OFPMMFC_BAD_BAND: a band is invalid.
    #[error("a band cannot be")]
    BadBand,
    /// OFPMMFC_BAD_RATE: a rate is invalid.
    #[error("a rate cannot be")]
    BadRate,
    /// OFPMMFC_OUT_OF_METERS: there are too many meters.
    #[error("too many meters")]
    OutOfMeters,
    /// OFPMMFC_OUT_OF_BANDS: the meter has too many bands.
    #[error("too many bands")]
    OutOfBands,
    /// OFPBRC_BUFFER_UNKNOWN: the buffered packet does not exist.
    #[error("no packet is kept under that number any more")]
    UnknownBuffer,
    /// OFPBRC_BAD_PORT: the port does not exist.
    #[error("there is no such port")]
    BadPort,
    /// OFPBMC_*: the match is refused.
    #[error(transparent)]
    Match(#[from] super::MatchError),
}

/// The selection of flow entries in a request.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowFilter {
    /// Table of the flow entries, or [`ALL_TABLES`].
    pub table: u8,
    /// Match that selects flow entries. A flow entry is selected if its match is equal to this
    /// match or more specific.
    pub matching: Match,
    /// Cookie that the flow entries must have in the bits of `cookie_mask`.
    pub cookie: u64,
    /// Mask of the cookie bits that are compared.
    pub cookie_mask: u64,
    /// Port that the flow entries must output to. `None` means no restriction.
    pub out_port: Option<u32>,
    /// Group that the flow entries must use. `None` means no restriction.
    pub out_group: Option<u32>,
}

impl Default for FlowFilter {
    fn default() -> Self {
        Self {
            table: ALL_TABLES,
            matching: Match::ANY,
            cookie: 0,
            cookie_mask: 0,
            out_port: None,
            out_group: None,
        }
    }
}

/// A flow entry and its counters.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowStats {
    /// Table of the flow entry.
    pub table: u8,
    /// Match of the flow entry.
    pub matching: Match,
    /// Priority of the flow entry.
    pub priority: u16,
    /// Cookie of the flow entry.
    pub cookie: u64,
    /// Nanoseconds since the flow entry was added.
    pub age_ns: u64,
    /// Nanoseconds since the flow entry was added or last changed, which is when its hard time-out starts.
    pub unchanged_ns: u64,
    /// Nanoseconds since the flow entry was last used or changed.
    pub idle_ns: u64,
    /// Idle time-out of the flow entry, in seconds. 0 means none.
    pub idle_timeout: u16,
    /// Hard time-out of the flow entry, in seconds. 0 means none.
    pub hard_timeout: u16,
    /// Importance of the flow entry.
    pub importance: u16,
    /// Flags of the flow entry.
    pub flags: FlowFlags,
    /// Number of packets that matched the flow entry.
    pub packets: u64,
    /// Number of octets of the packets that matched the flow entry.
    pub bytes: u64,
    /// Instructions of the flow entry.
    pub instructions: Instructions,
}

/// Counters of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Number of the table.
    pub table: u8,
    /// Number of flow entries in the table.
    pub active: u32,
    /// Maximum number of flow entries in the table.
    pub max_entries: u32,
    /// Number of packets looked up in the table.
    pub lookups: u64,
    /// Number of packets that matched a flow entry of the table.
    pub matched: u64,
}

/// The description of a port: name, address, configuration, state and speed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDesc {
    /// OpenFlow port number.
    pub number: u32,
    /// Name of the port.
    pub name: String,
    /// MAC address of the port.
    pub mac: MacAddr,
    /// Configuration flags, combined (OFPPC_*): 1 port down, 4 no receive, 16 no flood (OpenFlow 1.0), 32 no forward,
    /// 64 no packet-in.
    pub config: u32,
    /// State flags, combined (OFPPS_* of OpenFlow 1.3): 1 no link, 2 blocked, 4 live.
    pub state: u32,
    /// Speed of the port in kilobits per second. The value is 0 if the speed is unknown.
    pub speed: u32,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// OpenFlow port number.
    pub number: u32,
    /// Number of packets received on the port.
    pub rx_packets: u64,
    /// Number of packets transmitted on the port.
    pub tx_packets: u64,
    /// Number of octets received on the port.
    pub rx_bytes: u64,
    /// Number of octets transmitted on the port.
    pub tx_bytes: u64,
    /// Number of received packets that the port dropped.
    pub rx_dropped: u64,
    /// Number of packets that the port dropped instead of transmitting them.
    pub tx_dropped: u64,
    /// Number of receive errors of the port.
    pub rx_errors: u64,
    /// Number of transmit errors of the port.
    pub tx_errors: u64,
    /// Nanoseconds since the port was added.
    pub age_ns: u64,
}

/// Handling of IP fragments (OFPC_FRAG_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragments {
    /// `OFPC_FRAG_NORMAL`: the L4 ports of all fragments, including the first, count as zero in a
    /// match.
    #[default]
    Normal,
    /// `OFPC_FRAG_DROP`: drops fragments.
    Drop,
    /// `OFPC_FRAG_REASM`: reassembles fragments. The switch does not support this setting.
    Reassemble,
    /// Nicira's `nx-match`: the L4 ports of the first fragment are matched. In later fragments, they are zero.
    NxMatch,
}

/// Treatment of packets that no flow entry of a table matches (OFPTC_TABLE_MISS_* of OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Miss {
    /// Sends the packet to controllers that use an OpenFlow version before 1.3. Drops the packet if no such
    /// controller is connected.
    #[default]
    Default,
    /// Sends the packet to controllers that use an OpenFlow version before 1.3, even if no such
    /// controller is connected.
    Controller,
    /// Looks the packet up in the next table.
    Continue,
    /// Drops the packet.
    Drop,
}

/// The settings and fill level of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableState {
    /// Number of the table.
    pub table: u8,
    /// Name of the table. The text is empty if the table has no name.
    pub name: String,
    /// Maximum number of flow entries in the table.
    pub limit: u32,
    /// Number of flow entries in the table.
    pub active: u32,
    /// Treatment of packets that no flow entry of the table matches.
    pub miss: Miss,
    /// Whether controllers enabled eviction of flow entries when the table is full.
    pub evicts: bool,
    /// Thresholds of vacancy events, in percent of the limit: controllers are notified when the free space falls below
    /// the first value or rises above the second.
    pub vacancy: Option<(u8, u8)>,
}

/// The reason why a flow entry was removed (OFPRR_* of OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Removed {
    /// The idle time-out expired.
    IdleTimeout = 0,
    /// The hard time-out expired.
    HardTimeout = 1,
    /// A request removed the flow entry.
    Delete = 2,
    /// A group that the flow entry used was removed.
    GroupDelete = 3,
    /// A meter that the flow entry used was removed.
    MeterDelete = 4,
    /// The flow entry was evicted in favour of another flow entry.
    Eviction = 5,
}

/// The request of a controller that caused a change of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Identifier of the controller's OpenFlow session, unique among the bridge's sessions.
    pub session: u64,
    /// Transaction identifier of the request.
    pub xid: u32,
}

impl Origin {
    /// The origin of changes that no controller requested.
    pub const NONE: Origin = Origin { session: u64::MAX, xid: 0 };
}

/// An event of the bridge's tables or ports, for controllers and monitors.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A flow entry was added or replaced. The instructions of the replaced flow entry are included if they differ from
    /// the new instructions.
    Added(FlowStats, Option<Box<Instructions>>),
    /// The instructions or the cookie of a flow entry changed. The previous instructions are included if they differ
    /// from the new instructions.
    Modified(FlowStats, Option<Box<Instructions>>),
    /// Events that one request of a controller caused, with the session and the transaction of the request.
    Caused(Origin, Vec<Event>),
    /// A flow entry was removed.
    Removed(FlowStats, Removed),
    /// A packet is sent to controllers.
    PacketIn(PacketIn),
    /// A port was added (0), removed (1) or changed (2). The numbers are OFPPR_* of OpenFlow.
    Port(u8, PortDesc),
    /// Groups or meters were changed at the request of a controller.
    Request(Box<ForwardedRequest>),
    /// A vacancy event (OpenFlow 1.4). The value is true if the free space of a table rose above the upper
    /// threshold, and false if the free space fell below the lower threshold.
    Vacancy(bool, TableState),
    /// Number of events that were dropped because of the memory limit. A listener that tracks the flow entries must
    /// read all of them again.
    Lost(u64),
    /// Number of packet-in events that were dropped because of the memory limit.
    LostPackets(u64),
}

impl Event {
    /// Returns the approximate size of the event in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let more = match self {
            Event::Added(flow, before) | Event::Modified(flow, before) => {
                let before = before.as_ref().map_or(0, |did| size_of::<Instructions>() + did.memory());
                flow.instructions.memory() + before
            }
            Event::Removed(flow, _) => flow.instructions.memory(),
            Event::Caused(_, events) => events.iter().map(Event::memory).sum(),
            Event::PacketIn(packet) => {
                let left = packet.continuation.as_ref().map_or(0, |left| left.memory());
                packet.frame.len() + packet.userdata.len() + left
            }
            Event::Port(_, port) => port.name.len(),
            Event::Vacancy(_, state) => state.name.len(),
            Event::Request(request) => request.memory(),
            Event::Lost(_) | Event::LostPackets(_) => 0,
        };
        size_of::<Event>() + more
    }
}
