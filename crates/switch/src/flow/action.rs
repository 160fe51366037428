//! Actions and instructions of flow entries: those of OpenFlow 1.0 to 1.5 and of Nicira, in one
//! representation.

use packet::ethertype;

use super::{Field, Match};

/// Number of octets of actions that count as one visited rule in work limits. Visiting, copying or comparing these
/// octets costs about as much as visiting a rule.
pub(super) const OCTETS_OF_WORK: usize = 64;

/// Octets that a `learn` action with the flag NX_LEARN_F_DELETE_LEARNED counts for its reference count, both in the
/// memory limit of rules and in the work. The reference count itself uses about 100 octets. Its update searches a
/// tree, which is as much work as 64 visited rules, and the memory limit thus bounds the work of removing all rules.
pub(super) const KEEPER_OCTETS: usize = 64 * OCTETS_OF_WORK;

/// The flag NX_LEARN_F_DELETE_LEARNED of a `learn` action: learned flow entries are removed when the last
/// flow entry with a `learn` action for their table and cookie is removed.
const DELETE_LEARNED: u16 = 2;

/// Reserved port numbers of OpenFlow 1.1 and later. Their lowest 16 bits are the reserved port numbers of
/// OpenFlow 1.0.
pub mod port {
    /// Highest number that an ordinary port can have (OFPP_MAX).
    pub const MAX: u32 = 0xffff_ff00;
    /// Port number that means that no port is set (OFPP_UNSET), in the field `actset_output` and as
    /// `watch_port`.
    pub const UNSET: u32 = 0xffff_fff7;
    /// The ingress port of the packet (OFPP_IN_PORT).
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// The flow tables as an output port (OFPP_TABLE), allowed in packet-outs of a controller.
    pub const TABLE: u32 = 0xffff_fff9;
    /// The learning bridge as an output port (OFPP_NORMAL).
    pub const NORMAL: u32 = 0xffff_fffa;
    /// All ports except the ingress port and ports that do not accept floods (OFPP_FLOOD).
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports except the ingress port (OFPP_ALL).
    pub const ALL: u32 = 0xffff_fffc;
    /// The controllers as an output port (OFPP_CONTROLLER).
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The bridge's local port (OFPP_LOCAL).
    pub const LOCAL: u32 = 0xffff_fffe;
    /// No port, or any port, depending on the message (OFPP_ANY).
    pub const ANY: u32 = 0xffff_ffff;
}

/// A contiguous range of bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// Field that the range belongs to.
    pub field: Field,
    /// Lowest bit of the range. Bit 0 is the field's least significant bit.
    pub first: u16,
    /// Width of the range in bits, at least 1.
    pub bits: u16,
}

/// Header fields that the hash of a `multipath` or `bundle` action covers (ovs-actions(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// Hashes the Ethernet source address.
    EthSrc,
    /// Hashes L2 to L4 fields, with equal hashes for both directions of a connection.
    SymmetricL4,
    /// Hashes L3 and L4 fields (TCP and SCTP ports), with equal hashes for both directions of a connection.
    SymmetricL3L4,
    /// Hashes L3 and L4 fields including UDP ports, with equal hashes for both directions of a connection.
    SymmetricL3L4Udp,
    /// Hashes the IP source address.
    NwSrc,
    /// Hashes the IP destination address.
    NwDst,
    /// Hashes L3 fields, with equal hashes for both directions of a connection.
    SymmetricL3,
}

/// Algorithm by which `multipath` or `bundle` selects a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleMode {
    /// `multipath`: hash modulo the number of links.
    Modulo,
    /// `multipath`: hash threshold (RFC 2992).
    Threshold,
    /// `multipath` and `bundle`: highest random weight (Thaler and Ravishankar, 1998).
    Weight,
    /// `multipath`: hashes repeatedly until the result is the number of a link (`iter_hash`).
    Iterative,
    /// `bundle`: the first port that is up.
    ActiveBackup,
}

/// Source of a value in a `learn` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// A field of the packet that executes the action.
    Field(SubField),
    /// A constant value.
    Constant {
        /// Value of the constant, right-aligned.
        value: u128,
        /// Width of the constant in bits.
        bits: u16,
    },
}

/// One specification of a `learn` action: a match or an action of the learned flow entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnPart {
    /// The learned flow entry matches the value of the source in this field.
    Match(LearnSource, SubField),
    /// The learned flow entry loads the value of the source into this field.
    Load(LearnSource, SubField),
    /// The learned flow entry outputs to the port whose number the packet has in this field.
    Output(SubField),
}

/// The `learn` action (NXAST_LEARN, NXAST_LEARN2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Idle time-out of the learned flow entry, in seconds. 0 means none.
    pub idle_timeout: u16,
    /// Hard time-out of the learned flow entry, in seconds. 0 means none.
    pub hard_timeout: u16,
    /// Idle time-out of the learned flow entry, in seconds, after a TCP FIN or RST.
    pub fin_idle_timeout: u16,
    /// Hard time-out of the learned flow entry, in seconds, after a TCP FIN or RST.
    pub fin_hard_timeout: u16,
    /// Priority of the learned flow entry.
    pub priority: u16,
    /// Cookie of the learned flow entry.
    pub cookie: u64,
    /// NX_LEARN_F_* flags (1: send flow removed, 2: delete learned, 4: write result).
    pub flags: u16,
    /// Number of the table that the learned flow entry is added to.
    pub table: u8,
    /// Maximum number of flow entries with the cookie `cookie` in the table `table`. At this number, the action adds
    /// no further flow entry. 0 means no limit.
    pub limit: u32,
    /// Bit that is set to 1 if the limit allows the flow entry to be added, and to 0 otherwise (with flag 4).
    pub result: Option<SubField>,
    /// Matches and actions of the learned flow entry.
    pub parts: Vec<LearnPart>,
}

/// The `conjunction` action: membership of a flow entry in a conjunctive match (ovs-fields(7), "Conjunctive
/// Match Fields").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// Identifier of the conjunction (`conj_id`).
    pub id: u32,
    /// Index of the clause that the flow entry belongs to, from 0.
    pub clause: u8,
    /// Number of clauses of the conjunction, 2 to 64.
    pub clauses: u8,
}

/// An OpenFlow or Nicira action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Outputs the packet to a port.
    Output {
        /// Number of the output port.
        port: u32,
        /// Maximum number of octets of the packet that are sent if the port is the controller. 0xffff stands for the
        /// whole packet.
        max_len: u16,
    },
    /// Outputs the packet to the port whose number is in a field.
    OutputReg {
        /// Field that holds the port number.
        source: SubField,
        /// Maximum number of octets of the packet that are sent if the port is the controller.
        max_len: u16,
    },
    /// Sends the packet to a controller (NXAST_CONTROLLER, NXAST_CONTROLLER2).
    Controller {
        /// Maximum number of octets sent to the controller.
        max_len: u16,
        /// Identifier of the controller.
        id: u16,
        /// Reason number in the packet-in (OFPR_*).
        reason: u8,
        /// Data that the packet-in message carries back to the controller.
        userdata: Vec<u8>,
        /// Whether processing of the packet pauses until the controller resumes the packet.
        pause: bool,
        /// Number of the meter that the copy for the controller passes. `None` means no meter.
        meter: Option<u32>,
    },
    /// Outputs the packet to a port through one of the port's queues (OpenFlow 1.0).
    Enqueue {
        /// Number of the output port.
        port: u32,
        /// Number of the port's queue.
        queue: u32,
    },
    /// Selects the queue with this number for subsequent outputs.
    SetQueue(u32),
    /// Selects the default queue for subsequent outputs.
    PopQueue,
    /// Processes the packet with the group of this number.
    Group(u32),
    /// Applies the meter with this number to the packet (an action since OpenFlow 1.5).
    Meter(u32),
    /// Sets a field or a part of it to a constant value.
    Set {
        /// Field that the action sets.
        field: Field,
        /// New value of the field, right-aligned.
        value: u128,
        /// Mask of the bits of the field that the action sets.
        mask: u128,
        /// Whether the action is encoded and printed as NXAST_REG_LOAD.
        load: bool,
    },
    /// Copies bits between fields. Both ranges have equal width.
    Move {
        /// Subfield that the bits are copied from.
        from: SubField,
        /// Subfield that the bits are copied to.
        to: SubField,
    },
    /// Pushes bits of a field onto the stack.
    Push(SubField),
    /// Pops bits of a field from the stack.
    Pop(SubField),
    /// Adds a VLAN tag with this EtherType.
    PushVlan(u16),
    /// Removes the outer VLAN tag.
    PopVlan,
    /// Sets the VLAN identifier. Adds a VLAN tag if the packet has none (OpenFlow 1.0).
    SetVlanVid(u16),
    /// Sets the VLAN priority. Adds a VLAN tag if the packet has none (OpenFlow 1.0).
    SetVlanPcp(u8),
    /// Adds an MPLS label stack entry with this EtherType.
    PushMpls(u16),
    /// Removes the outer MPLS label stack entry. The value is the EtherType of the packet after the removal.
    PopMpls(u16),
    /// Adds an 802.1ah header with this EtherType.
    PushPbb(u16),
    /// Removes the 802.1ah header.
    PopPbb,
    /// Copies the TTL from the next-to-outermost header to the outermost header.
    CopyTtlOut,
    /// Copies the TTL from the outermost header to the next header.
    CopyTtlIn,
    /// Sets the MPLS TTL.
    SetMplsTtl(u8),
    /// Decrements the MPLS TTL.
    DecMplsTtl,
    /// Sets the IP TTL or hop limit.
    SetTtl(u8),
    /// Decrements the IP TTL or hop limit. The controllers with these identifiers get the packet if the TTL
    /// expires.
    DecTtl(Vec<u16>),
    /// Looks the packet up in a table, executes the flow entry that matches, then continues with the next
    /// action.
    Resubmit {
        /// Ingress port used for the look-up. `None` stands for the packet's ingress port.
        port: Option<u32>,
        /// Table of the look-up. `None` stands for the table of the current flow entry.
        table: Option<u8>,
    },
    /// Adds a learned flow entry to a table.
    Learn(Box<Learn>),
    /// Makes the flow entry part of a conjunctive match.
    Conjunction(Conjunction),
    /// Does nothing. The octets are a comment of the controller.
    Note(Vec<u8>),
    /// Executes actions on a copy of the packet.
    Clone(Vec<Action>),
    /// Selects a link by a hash and stores its number in a field.
    Multipath {
        /// Fields that the hash covers.
        fields: HashFields,
        /// Initial value of the hash.
        basis: u16,
        /// Algorithm that selects the link.
        mode: BundleMode,
        /// Highest link number.
        max_link: u16,
        /// Argument of the algorithm that selects the link (used by `iter_hash`).
        argument: u32,
        /// Field that receives the link number.
        to: SubField,
    },
    /// Selects a port, for output or for storage in a field.
    Bundle {
        /// Fields that the hash covers.
        fields: HashFields,
        /// Initial value of the hash.
        basis: u16,
        /// Algorithm that selects the port.
        mode: BundleMode,
        /// Ports that the action selects from.
        ports: Vec<u32>,
        /// Field that receives the port number. If `None`, the action outputs the packet to the port.
        to: Option<SubField>,
    },
    /// Stores in a bit whether the packet is longer than a limit.
    CheckPktLarger {
        /// Length limit in octets.
        len: u16,
        /// Bit that is set if the packet is longer than the limit.
        to: SubField,
    },
    /// Reduces the time-outs of the flow entry when a TCP FIN or RST matches the flow entry.
    FinTimeout {
        /// Maximum idle time-out after the reduction, in seconds. 0 leaves the time-out unchanged.
        idle: u16,
        /// Maximum hard time-out after the reduction, in seconds. 0 leaves the time-out unchanged.
        hard: u16,
    },
    /// Stops processing of the packet.
    Exit,
}

/// The instructions of a flow entry (OpenFlow 1.1 and later), in the order of execution. The actions of an
/// OpenFlow 1.0 flow entry are `apply` actions, without other instructions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions {
    /// Number of the meter that is applied before all actions. `None` means no meter.
    pub meter: Option<u32>,
    /// Actions that are executed immediately, in this order.
    pub apply: Vec<Action>,
    /// Whether the action set is cleared.
    pub clear: bool,
    /// Actions that are written to the action set.
    pub write: Vec<Action>,
    /// Value and mask that are written to the metadata field.
    pub metadata: Option<(u64, u64)>,
    /// Number of the table in which processing continues. `None` ends the processing.
    pub goto: Option<u8>,
}

impl Instructions {
    /// Returns instructions that only apply actions.
    #[must_use]
    pub fn apply(actions: Vec<Action>) -> Instructions {
        Instructions { apply: actions, ..Instructions::default() }
    }

    /// Returns whether any action outputs to `port`, for requests that are restricted by `out_port`.
    #[must_use]
    pub fn outputs_to(&self, port: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.outputs_to(port))
    }

    /// Returns whether any action uses the group `group`, for requests that are restricted by `out_group`.
    #[must_use]
    pub fn uses_group(&self, group: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.uses_group(group))
    }

    /// Returns the approximate heap size of the actions, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory_of(&self.apply) + memory_of(&self.write)
    }

    /// Returns the octets that the actions count for the memory limit of rules: the heap size of the actions, and
    /// [`KEEPER_OCTETS`] for each reference count of learned flow entries.
    pub(crate) fn charged_memory(&self) -> usize {
        let mut keepers = 0;
        each_keeper(&self.apply, &mut |_| keepers += 1);
        self.memory() + keepers * KEEPER_OCTETS
    }

    /// Returns the work of visiting, copying or removing all actions once, nested actions included, in visited
    /// rules.
    pub(crate) fn work(&self) -> usize {
        self.charged_memory() / OCTETS_OF_WORK
    }

    /// Appends the numbers of the groups that the actions use to `into`. A number may occur more than once.
    pub(crate) fn groups(&self, into: &mut Vec<u32>) {
        self.apply.iter().chain(&self.write).for_each(|action| action.groups(into));
    }

    /// Appends the numbers of the meters that the instructions use to `into`. A number may occur more than once.
    pub(crate) fn meters(&self, into: &mut Vec<u32>) {
        into.extend(self.meter);
        self.apply.iter().chain(&self.write).for_each(|action| action.meters(into));
    }
}

/// Calls `see` with each `learn` action that has the flag NX_LEARN_F_DELETE_LEARNED.
pub(super) fn each_keeper(actions: &[Action], see: &mut impl FnMut(&Learn)) {
    for action in actions {
        match action {
            Action::Learn(learn) if learn.flags & DELETE_LEARNED != 0 => see(learn),
            Action::Clone(inner) => each_keeper(inner, see),
            _ => {}
        }
    }
}

/// Returns the approximate heap size of a list of actions, in octets.
pub(crate) fn memory_of(actions: &[Action]) -> usize {
    size_of_val(actions) + actions.iter().map(Action::memory).sum::<usize>()
}

impl Action {
    /// Returns whether the EtherType, VLAN identifier, VLAN priority or conjunction clause in the action is valid.
    /// Returns true for actions without these numbers.
    pub(crate) fn has_valid_numbers(&self) -> bool {
        match self {
            Action::PushVlan(tpid) => matches!(*tpid, ethertype::VLAN | ethertype::SERVICE_VLAN),
            Action::PushMpls(eth_type) => matches!(*eth_type, ethertype::MPLS | ethertype::MPLS_MULTICAST),
            Action::PushPbb(eth_type) => *eth_type == ethertype::PBB,
            Action::SetVlanVid(vid) => *vid <= 4095,
            Action::SetVlanPcp(pcp) => *pcp <= 7,
            Action::Conjunction(part) => part.clause < part.clauses && (2..=64).contains(&part.clauses),
            _ => true,
        }
    }

    /// Returns the heap memory that the action refers to, in octets, without the size of the action itself.
    fn memory(&self) -> usize {
        match self {
            Action::Controller { userdata, .. } => userdata.len(),
            Action::DecTtl(controllers) => size_of_val(&controllers[..]),
            Action::Learn(learn) => size_of::<Learn>() + size_of_val(&learn.parts[..]),
            Action::Note(octets) => octets.len(),
            Action::Clone(actions) => memory_of(actions),
            Action::Bundle { ports, .. } => size_of_val(&ports[..]),
            _ => 0,
        }
    }

    /// Returns whether the action outputs to this port. See [`Instructions::outputs_to`].
    #[must_use]
    pub fn outputs_to(&self, to: u32) -> bool {
        match self {
            Action::Output { port, .. } | Action::Enqueue { port, .. } => *port == to,
            Action::Controller { .. } => to == port::CONTROLLER,
            Action::Clone(actions) => actions.iter().any(|action| action.outputs_to(to)),
            _ => false,
        }
    }

    /// Returns whether the action uses this group. See [`Instructions::uses_group`].
    #[must_use]
    pub fn uses_group(&self, to: u32) -> bool {
        match self {
            Action::Group(group) => *group == to,
            Action::Clone(actions) => actions.iter().any(|action| action.uses_group(to)),
            _ => false,
        }
    }

    fn meters(&self, into: &mut Vec<u32>) {
        match self {
            Action::Meter(id) => into.push(*id),
            Action::Clone(actions) => actions.iter().for_each(|action| action.meters(into)),
            _ => {}
        }
    }

    fn groups(&self, into: &mut Vec<u32>) {
        match self {
            Action::Group(group) => into.push(*group),
            Action::Clone(actions) => actions.iter().for_each(|action| action.groups(into)),
            _ => {}
        }
    }
}

impl SubField {
    /// Returns the range that covers all bits of a field.
    #[must_use]
    pub fn whole(field: Field) -> SubField {
        SubField { field, first: 0, bits: u16::try_from(field.bits()).unwrap_or(u16::MAX) }
    }

    /// Returns a mask of the bits of the range. Bit 0 of the mask is the field's least significant bit.
    #[must_use]
    pub fn mask(&self) -> u128 {
        (u128::MAX >> (128 - u32::from(self.bits.clamp(1, 128)))) << self.first
    }

    /// Returns whether the range has at least one bit and lies within its field.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.bits > 0 && usize::from(self.first) + usize::from(self.bits) <= self.field.bits()
    }

    /// Returns the value that the bits of the range have in a flow, right-aligned.
    #[must_use]
    pub fn get(&self, flow: &super::Flow) -> u128 {
        (flow.get(self.field) & self.mask()) >> self.first
    }

    /// Sets the bits of the range in a flow to a right-aligned value.
    pub fn set(&self, flow: &mut super::Flow, value: u128) {
        let kept = flow.get(self.field) & !self.mask();
        flow.set(self.field, kept | value << self.first & self.mask());
    }

    /// Sets the bits of the range in `wild`, the mask of the bits that the result of a translation depends on.
    pub fn want(&self, wild: &mut super::Flow) {
        wild.set(self.field, wild.get(self.field) | self.mask());
    }

    /// Returns whether the range is the port number of OpenFlow 1.0 and of NXM_OF_IN_PORT: the low 16 bits of
    /// `in_port`. In a match, the range stands for the whole port number, as in Open vSwitch.
    pub(super) fn is_port16(&self) -> bool {
        *self == SubField { field: Field::InPort, first: 0, bits: 16 }
    }

    /// Adds the condition that the range has this value to the match `to`.
    pub fn put(&self, to: &mut Match, value: u128) {
        to.put(self.field, value << self.first, self.mask());
    }
}
