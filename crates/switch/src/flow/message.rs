//! What controllers ask of a pipeline and are told by it, in one form for all versions of OpenFlow.

use packet::MacAddr;

use super::action::memory_of;
use super::{Action, Flow, Instructions, Match};

/// All tables, in requests.
pub const ALL_TABLES: u8 = 0xff;
/// All groups, in requests.
pub const ALL_GROUPS: u32 = 0xffff_fffc;
/// Any group (no restriction), in requests.
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// What a flow-mod does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Adds a rule, in the place of one with the same match and priority.
    Add,
    /// Changes what rules do.
    Modify {
        /// The rule with exactly this match and priority; otherwise all that lie within the match.
        strict: bool,
        /// Adds it where there is none (OpenFlow 1.0).
        or_add: bool,
    },
    /// Removes rules.
    Delete {
        /// As in `Modify`.
        strict: bool,
    },
}

/// Flags of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags {
    /// Controllers are told when it goes.
    pub send_removed: bool,
    /// Refused when another rule of the same priority could match the same packet.
    pub check_overlap: bool,
    /// Its counters begin at zero.
    pub reset_counts: bool,
    /// Packets need not be counted.
    pub no_packet_counts: bool,
    /// Octets need not be counted.
    pub no_byte_counts: bool,
}

/// A change of rules.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowMod {
    /// What is done.
    pub command: FlowCommand,
    /// In this table; [`ALL_TABLES`] where rules are removed.
    pub table: u8,
    /// To what matches.
    pub matching: Match,
    /// With this priority.
    pub priority: u16,
    /// The cookie of a new rule; changes keep it where `None` (or with a mask of not zero: see `cookie_mask`).
    pub cookie: Option<u64>,
    /// Only rules whose cookie equals `cookie_value` in these bits are changed or removed.
    pub cookie_mask: u64,
    /// See `cookie_mask`.
    pub cookie_value: u64,
    /// Seconds of silence after which it goes; 0: none.
    pub idle_timeout: u16,
    /// Seconds of life; 0: for ever.
    pub hard_timeout: u16,
    /// Rules of less importance go first when the table is full.
    pub importance: u16,
    /// Flags.
    pub flags: FlowFlags,
    /// What it does.
    pub instructions: Instructions,
    /// Removes only rules that send there.
    pub out_port: Option<u32>,
    /// Removes only rules that use this group.
    pub out_group: Option<u32>,
    /// A packet in the controller's buffer that is to go through the tables then.
    pub buffer: Option<u32>,
}

impl FlowMod {
    /// Adds a rule without time-outs.
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

    /// Removes all that lies within a match.
    #[must_use]
    pub fn delete(table: u8, matching: Match) -> FlowMod {
        FlowMod {
            command: FlowCommand::Delete { strict: false },
            ..FlowMod::add(table, 0, matching, Instructions::default())
        }
    }
}

/// How a group chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// All buckets, a copy for each.
    All,
    /// One bucket by weight.
    Select,
    /// The one bucket.
    Indirect,
    /// The first bucket that is alive.
    FastFailover,
}

/// How a select group hashes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SelectMethod {
    /// By the destination MAC address and the rest of L2 to L4.
    #[default]
    Default,
    /// By these fields (`selection_method=hash`), each with the bits that count.
    Hash {
        /// Fields and masks.
        fields: Vec<(super::Field, u128)>,
        /// Argument of the hash.
        parameter: u64,
    },
    /// By a hash of the packet's five-tuple (`dp_hash`).
    DpHash {
        /// Argument of the hash.
        parameter: u64,
    },
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Bucket {
    /// Its number (OpenFlow 1.5), or its place.
    pub id: u32,
    /// Its share, for `Select`.
    pub weight: u16,
    /// It lives as long as this port.
    pub watch_port: Option<u32>,
    /// It lives as long as this group.
    pub watch_group: Option<u32>,
    /// What it does.
    pub actions: Vec<Action>,
}

/// A group.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// How it chooses.
    pub kind: GroupKind,
    /// By what, for `Select`.
    pub method: SelectMethod,
    /// From these.
    pub buckets: Vec<Bucket>,
}

/// Where buckets are put in or which are taken out (OpenFlow 1.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketPlace {
    /// In front.
    First,
    /// Behind.
    Last,
    /// Behind (or: only) the one with this number.
    Id(u32),
    /// All of them (to take out).
    All,
}

/// A change of groups.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupMod {
    /// Adds one.
    Add(Group),
    /// Changes one, or adds it (`or_add`).
    Modify {
        /// The group as it is to be.
        group: Group,
        /// Nicira's ADD_OR_MOD.
        or_add: bool,
    },
    /// Removes one or [`ALL_GROUPS`], and the rules that use it.
    Delete(u32),
    /// Puts buckets in.
    InsertBuckets(u32, BucketPlace, Vec<Bucket>),
    /// Takes buckets out.
    RemoveBuckets(u32, BucketPlace),
}

/// What a meter does above its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops.
    Drop,
    /// Raises the drop precedence of the DSCP by so much.
    DscpRemark(u8),
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// What it does.
    pub kind: BandKind,
    /// Above so many kilobits (or packets) a second.
    pub rate: u32,
    /// Kilobits (or packets) at once; 0: one second's worth.
    pub burst: u32,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Its number, 1 to 0xffff0000, or a reserved one.
    pub id: u32,
    /// Rates are packets a second, not kilobits.
    pub packets: bool,
    /// Bursts were given.
    pub bursts: bool,
    /// Statistics are kept.
    pub stats: bool,
    /// Its bands.
    pub bands: Vec<Band>,
}

/// A change of meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeterMod {
    /// Adds one.
    Add(Meter),
    /// Changes one.
    Modify(Meter),
    /// Removes one, or all (`None`), and the rules that use it.
    Delete(Option<u32>),
}

/// One change, alone or in a bundle.
#[derive(Clone, PartialEq, Debug)]
pub enum Mod {
    /// Rules.
    Flow(Box<FlowMod>),
    /// Groups.
    Group(GroupMod),
    /// Meters.
    Meter(MeterMod),
    /// A packet that meets the tables as the changes before this one have left them; the packet leaves when all changes are made.
    PacketOut(Box<PacketOut>),
}

/// A change of groups or meters that a controller has asked for, for controllers that want to hear of such requests.
#[derive(Clone, PartialEq, Debug)]
pub enum ForwardedRequest {
    /// A change of groups.
    Group {
        /// The change.
        change: GroupMod,
        /// Whether the group was there before.
        existed: bool,
        /// The group as the change has left it, where the change itself holds a part of it only.
        after: Option<Group>,
    },
    /// A change of meters.
    Meter(MeterMod),
}

impl ForwardedRequest {
    /// Octets of memory that the request takes, about.
    fn memory(&self) -> usize {
        let bands = |meter: &Meter| size_of_val(&meter.bands[..]);
        let more = match self {
            ForwardedRequest::Group { change, after, .. } => {
                let own = match change {
                    GroupMod::Add(group) | GroupMod::Modify { group, .. } => group.memory(),
                    // No more than the group that the buckets are put into.
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

/// Why a change is refused: OpenFlow's error types and codes, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// NXFMFC_INVALID_TLV_FIELD.
    #[error("no option of tunnels is mapped to the field: map one first (ovs-ofctl add-tlv-map)")]
    UnmappedOption,
    /// OFPFMFC_TABLE_FULL.
    #[error("the table is full: remove rules, or raise its limit")]
    TableFull,
    /// OFPFMFC_BAD_TABLE_ID.
    #[error("there is no such table: 0 to 253 are there, and 255 means all of them where rules are removed")]
    BadTable,
    /// OFPBRC_EPERM.
    #[error("table 254 holds no rules of controllers: use a table from 0 to 253")]
    HiddenTable,
    /// OFPFMFC_OVERLAP.
    #[error(
        "another rule of the same priority could match the same packet; give one of them another priority"
    )]
    Overlap,
    /// OFPFMFC_EPERM.
    #[error("not allowed")]
    Permission,
    /// OFPFMFC_BAD_TIMEOUT.
    #[error("the time-outs cannot be had")]
    BadTimeout,
    /// OFPFMFC_BAD_COMMAND.
    #[error("no such command")]
    BadCommand,
    /// OFPBIC_BAD_TABLE_ID.
    #[error("goto_table leads to the same or an earlier table")]
    BadGoto,
    /// OFPBIC_UNSUP_INST.
    #[error("an instruction is not supported here")]
    UnsupportedInstruction,
    /// OFPBAC_BAD_TYPE.
    #[error("an action is not known or not supported")]
    BadAction,
    /// OFPBAC_BAD_OUT_PORT.
    #[error("an output names a port that cannot be")]
    BadOutPort,
    /// OFPBAC_BAD_ARGUMENT.
    #[error("an action has an argument that cannot be")]
    BadArgument,
    /// OFPBAC_BAD_OUT_GROUP.
    #[error("a group that is not there; add it first")]
    BadOutGroup,
    /// OFPBAC_BAD_SET_TYPE.
    #[error("an action sets a field that cannot be set")]
    BadSetType,
    /// OFPBAC_BAD_SET_ARGUMENT.
    #[error("an action sets a field to a value that it cannot have")]
    BadSetArgument,
    /// OFPBAC_MATCH_INCONSISTENT.
    #[error("an action needs what the match does not make sure of")]
    MatchInconsistent,
    /// OFPBAC_UNSUPPORTED_ORDER, or two of a kind in an action set.
    #[error("actions in an order that is not supported")]
    UnsupportedOrder,
    /// OFPBAC_TOO_MANY.
    #[error("too many actions")]
    TooMany,
    /// OFPBFC_MSG_TOO_MANY.
    #[error(
        "the changes look at too many rules, groups and buckets together: make them in several parts, or name a table or the whole cookie \
         of the rules that are meant"
    )]
    TooMuchWork,
    /// OFPGMFC_GROUP_EXISTS.
    #[error("the group is there already; change it instead")]
    GroupExists,
    /// OFPGMFC_INVALID_GROUP.
    #[error("the group cannot be: its number, kind or buckets")]
    InvalidGroup,
    /// OFPGMFC_UNKNOWN_GROUP.
    #[error("there is no such group")]
    UnknownGroup,
    /// OFPGMFC_OUT_OF_GROUPS.
    #[error("too many groups")]
    OutOfGroups,
    /// OFPGMFC_OUT_OF_BUCKETS.
    #[error("too many buckets")]
    OutOfBuckets,
    /// OFPGMFC_LOOP.
    #[error("the group would lead back to itself")]
    GroupLoop,
    /// OFPGMFC_CHAINED_GROUP.
    #[error("a group that others use cannot go")]
    ChainedGroup,
    /// OFPGMFC_UNKNOWN_BUCKET.
    #[error("there is no such bucket")]
    UnknownBucket,
    /// OFPGMFC_BUCKET_EXISTS.
    #[error("the bucket is there already")]
    BucketExists,
    /// OFPMMFC_METER_EXISTS.
    #[error("the meter is there already; change it instead")]
    MeterExists,
    /// OFPMMFC_UNKNOWN_METER.
    #[error("there is no such meter; add it first")]
    UnknownMeter,
    /// OFPMMFC_INVALID_METER: also of a rule that refers to a meter that is not there, as in Open vSwitch.
    #[error("there is no meter of this number; add it first, with a number from 1 to 0xffff0000")]
    InvalidMeter,
    /// OFPMMFC_BAD_BAND.
    #[error("a band cannot be")]
    BadBand,
    /// OFPMMFC_BAD_RATE.
    #[error("a rate cannot be")]
    BadRate,
    /// OFPMMFC_OUT_OF_METERS.
    #[error("too many meters")]
    OutOfMeters,
    /// OFPMMFC_OUT_OF_BANDS.
    #[error("too many bands")]
    OutOfBands,
    /// OFPBRC_BUFFER_UNKNOWN.
    #[error("no packet is kept under that number any more")]
    UnknownBuffer,
    /// OFPBRC_BAD_PORT.
    #[error("there is no such port")]
    BadPort,
    /// OFPBMC_*.
    #[error(transparent)]
    Match(#[from] super::MatchError),
}

/// Which rules a request is about.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowFilter {
    /// Of this table, or [`ALL_TABLES`].
    pub table: u8,
    /// Within this match.
    pub matching: Match,
    /// Whose cookies equal `cookie` in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// That send there.
    pub out_port: Option<u32>,
    /// That use this group.
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

/// A rule and its counters.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowStats {
    /// Its table.
    pub table: u8,
    /// Its match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
    /// Nanoseconds since it was added or last changed: its hard time-out runs from then.
    pub unchanged_ns: u64,
    /// Nanoseconds since it was last used (or changed).
    pub idle_ns: u64,
    /// Its idle time-out in seconds.
    pub idle_timeout: u16,
    /// Its hard time-out in seconds.
    pub hard_timeout: u16,
    /// Its importance.
    pub importance: u16,
    /// Its flags.
    pub flags: FlowFlags,
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
    /// What it does.
    pub instructions: Instructions,
}

/// A table's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Its number.
    pub table: u8,
    /// Rules.
    pub active: u32,
    /// Rules that it holds at most.
    pub max_entries: u32,
    /// Packets that were looked up.
    pub lookups: u64,
    /// Packets that met a rule.
    pub matched: u64,
}

/// A group's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// Its number.
    pub id: u32,
    /// Rules and groups that use it.
    pub references: u32,
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
    /// Packets and octets of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// A meter's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterStats {
    /// Its number.
    pub id: u32,
    /// Rules that use it.
    pub flows: u32,
    /// Packets that came.
    pub packets: u64,
    /// Octets that came.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
    /// Packets and octets that each band met.
    pub bands: Vec<(u64, u64)>,
}

/// What a port is called and can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDesc {
    /// OpenFlow's number.
    pub number: u32,
    /// Name.
    pub name: String,
    /// Address.
    pub mac: MacAddr,
    /// What is configured (OFPPC_*): 1 down, 4 nothing received, 16 (OpenFlow 1.3: `no_recv`..): see `PortConfig` of OpenFlow 1.3.
    pub config: u32,
    /// How it is (OFPPS_* of 1.3): 1 no link, 2 blocked, 4 live.
    pub state: u32,
    /// Kilobits a second; 0: not known.
    pub speed: u32,
}

/// A port's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// OpenFlow's number.
    pub number: u32,
    /// Packets in.
    pub rx_packets: u64,
    /// Packets out.
    pub tx_packets: u64,
    /// Octets in.
    pub rx_bytes: u64,
    /// Octets out.
    pub tx_bytes: u64,
    /// Dropped coming in.
    pub rx_dropped: u64,
    /// Dropped going out.
    pub tx_dropped: u64,
    /// Broken coming in.
    pub rx_errors: u64,
    /// Failed going out.
    pub tx_errors: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
}

/// Why a packet goes to controllers (OFPR_* of OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// No rule, by the table-miss rule.
    NoMatch = 0,
    /// An action.
    Action = 1,
    /// Its TTL is spent.
    InvalidTtl = 2,
    /// An action in the action set.
    ActionSet = 3,
    /// A group's bucket.
    Group = 4,
    /// A packet-out.
    PacketOut = 5,
    /// The table-miss rule, of priority 0 and without conditions: `NoMatch` since OpenFlow 1.3, an action as any other before.
    MissRule = 7,
    /// No rule, not even a table-miss rule: `NoMatch` for controllers that speak OpenFlow before 1.3, and nothing for others.
    Miss = 8,
}

impl Reason {
    /// Returns the OFPR_* number that controllers ask for by its bit.
    #[must_use]
    pub const fn asked_as(self) -> u8 {
        match self {
            Reason::MissRule | Reason::Miss => Reason::NoMatch as u8,
            other => other as u8,
        }
    }
}

/// What becomes of IP fragments (OFPC_FRAG_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragments {
    /// No fragment has ports to rules, not even the first one.
    #[default]
    Normal,
    /// Fragments are dropped.
    Drop,
    /// Fragments are put together, which is not supported.
    Reassemble,
    /// The first fragment has its ports to rules (Nicira's `nx-match`); later ones have none.
    NxMatch,
}

/// What becomes of a packet that no rule of a table matches (OFPTC_TABLE_MISS_* of OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Miss {
    /// The packet goes to the controllers that speak OpenFlow before 1.3, and is dropped where there are none.
    #[default]
    Default,
    /// The packet goes to the controllers that speak OpenFlow before 1.3, whether or not there are any.
    Controller,
    /// The packet is looked up in the next table.
    Continue,
    /// The packet is dropped.
    Drop,
}

/// A packet for controllers.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketIn {
    /// Why.
    pub reason: Reason,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Metadata fields: port, registers, tunnel.
    pub flow: Flow,
    /// The frame, whole.
    pub frame: Vec<u8>,
    /// Octets that the rule wants sent.
    pub max_len: u16,
    /// Which controller (NXAST_CONTROLLER).
    pub controller: u16,
    /// Of the action.
    pub userdata: Vec<u8>,
    /// What is left to be done, where the packet waits for its controller.
    pub continuation: Option<Box<Continuation>>,
}

/// A packet of a controller.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketOut {
    /// The port that it is taken to have come in by.
    pub in_port: u32,
    /// Other metadata (OpenFlow 1.5).
    pub metadata: Match,
    /// What is done with it.
    pub actions: Vec<Action>,
    /// The frame.
    pub frame: Vec<u8>,
    /// What was left to be done when the packet was given to the controller, which comes behind the actions.
    pub resumes: Option<Box<Continuation>>,
}

impl Group {
    /// Octets of memory that the group takes with its buckets, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let buckets = self.buckets.iter();
        size_of::<Group>()
            + buckets.map(|bucket| size_of::<Bucket>() + memory_of(&bucket.actions)).sum::<usize>()
    }
}

impl PacketOut {
    /// Octets of memory that the packet takes with its actions, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let left = self.resumes.as_ref().map_or(0, |left| left.memory());
        size_of::<PacketOut>() + self.frame.len() + memory_of(&self.actions) + left
    }
}

/// What is left to be done for a packet that waits for its controller (`controller(pause)`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Continuation {
    /// What rules had still to do, the innermost first.
    pub rest: Vec<Rest>,
    /// The action set so far.
    pub action_set: Vec<Action>,
    /// The stack: values and how many bits they have.
    pub stack: Vec<(u128, u16)>,
    /// The queue of later outputs; `None`: the default one.
    pub queue: Option<u32>,
}

impl Continuation {
    /// Octets of memory that it takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let rest = self.rest.iter().map(|rest| size_of::<Rest>() + rest.instructions.memory());
        size_of::<Continuation>()
            + rest.sum::<usize>()
            + memory_of(&self.action_set)
            + size_of_val(&self.stack[..])
    }
}

/// What a rule had still to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Rest {
    /// Its table.
    pub table: u8,
    /// Its cookie.
    pub cookie: u64,
    /// What it matches, which says what its actions may do.
    pub matching: Match,
    /// What is left of its instructions.
    pub instructions: Instructions,
}

/// How a table is configured, and how full it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableState {
    /// Its number.
    pub table: u8,
    /// Its name; empty: none.
    pub name: String,
    /// Rules that it holds at most.
    pub limit: u32,
    /// Rules in it.
    pub active: u32,
    /// What becomes of packets that no rule of it matches.
    pub miss: Miss,
    /// Controllers want rules to make room for others when it is full.
    pub evicts: bool,
    /// Controllers are told when fewer and when more of it than so many percent are free.
    pub vacancy: Option<(u8, u8)>,
}

/// Why a rule has gone (OFPRR_* of OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Removed {
    /// Silent too long.
    IdleTimeout = 0,
    /// Its life was over.
    HardTimeout = 1,
    /// Somebody removed it.
    Delete = 2,
    /// Its group has gone.
    GroupDelete = 3,
    /// Its meter has gone.
    MeterDelete = 4,
    /// It made room for a more important one.
    Eviction = 5,
}

/// The request of a controller's session that has led to changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The session's number, by which the bridge's sessions are told apart.
    pub session: u64,
    /// The request's transaction identifier.
    pub xid: u32,
}

impl Origin {
    /// No request of a session.
    pub const NONE: Origin = Origin { session: u64::MAX, xid: 0 };
}

/// What happened, for whoever listens (controllers, monitors).
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A rule was added, also in the place of one with the same match and priority; with what that one did, where it did something else.
    Added(FlowStats, Option<Box<Instructions>>),
    /// A rule does something else now, or has another cookie; with what it did before, where it did something else.
    Modified(FlowStats, Option<Box<Instructions>>),
    /// One request of a controller has led to all of these.
    Caused(Origin, Vec<Event>),
    /// A rule has gone.
    Removed(FlowStats, Removed),
    /// A packet for controllers.
    PacketIn(PacketIn),
    /// A port was added (0), removed (1) or has changed (2).
    Port(u8, PortDesc),
    /// Groups or meters were changed, as a controller has asked for.
    Request(Box<ForwardedRequest>),
    /// There is room in a table again (true), or it is nearly full (OpenFlow 1.4's vacancy events).
    Vacancy(bool, TableState),
    /// So many events are not told, as they would have taken too much memory: whoever follows the rules does not know them any more.
    Lost(u64),
}

impl Event {
    /// Octets of memory that the event takes, about.
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
            Event::Lost(_) => 0,
        };
        size_of::<Event>() + more
    }
}
