//! What rules do to packets: actions and instructions of OpenFlow 1.0 to 1.5 and Nicira's, in one form.

use super::{Field, Match};

/// Reserved ports (OpenFlow 1.3 and later; 1.0's lowest 16 bits of them).
pub mod port {
    /// Highest number of an ordinary port.
    pub const MAX: u32 = 0xffff_ff00;
    /// None set (`actset_output`, `watch_port`).
    pub const UNSET: u32 = 0xffff_fff7;
    /// Back by the port of arrival.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// Through the tables, for packets of a controller.
    pub const TABLE: u32 = 0xffff_fff9;
    /// The learning bridge.
    pub const NORMAL: u32 = 0xffff_fffa;
    /// All ports but that of arrival and those that do not take floods.
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports but that of arrival.
    pub const ALL: u32 = 0xffff_fffc;
    /// To controllers.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The bridge's own interface.
    pub const LOCAL: u32 = 0xffff_fffe;
    /// No port, or any.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Part of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// The field.
    pub field: Field,
    /// Lowest bit, 0 being the field's lowest.
    pub first: u16,
    /// Width in bits, at least 1.
    pub bits: u16,
}

/// Fields that are hashed (`multipath`, `bundle`; ovs-actions(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// Source address.
    EthSrc,
    /// All of L2 to L4, each direction by itself the same.
    SymmetricL4,
    /// L3 and L4, symmetric.
    SymmetricL3L4,
    /// The same, UDP ports too.
    SymmetricL3L4Udp,
    /// IP source.
    NwSrc,
    /// IP destination.
    NwDst,
    /// L3, symmetric.
    SymmetricL3,
}

/// How one of several is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleMode {
    /// `multipath`: hash modulo number.
    Modulo,
    /// `multipath`: hash threshold (RFC 2992).
    Threshold,
    /// `multipath` and `bundle`: highest random weight (Thaler, Ravishankar 1998).
    Weight,
    /// `multipath`: iterative hash.
    Iterative,
    /// `bundle`: the first that is up.
    ActiveBackup,
}

/// Where `learn` takes a value from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// The packet in hand.
    Field(SubField),
    /// A constant of so many bits.
    Constant {
        /// Its value, right-aligned.
        value: u128,
        /// Its width.
        bits: u16,
    },
}

/// What `learn` makes of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnPart {
    /// The new rule matches it.
    Match(LearnSource, SubField),
    /// The new rule loads it.
    Load(LearnSource, SubField),
    /// The new rule sends there.
    Output(SubField),
}

/// The `learn` action (NXAST_LEARN, NXAST_LEARN2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Seconds of silence after which the new rule goes; 0: none.
    pub idle_timeout: u16,
    /// Seconds of life; 0: for ever.
    pub hard_timeout: u16,
    /// Idle time-out once a TCP FIN or RST was seen.
    pub fin_idle_timeout: u16,
    /// Hard time-out once a TCP FIN or RST was seen.
    pub fin_hard_timeout: u16,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// NX_LEARN_F_* (1: send flow removed; 2: delete learned; 4: write result).
    pub flags: u16,
    /// Its table.
    pub table: u8,
    /// Most rules with this cookie and table; 0: no limit.
    pub limit: u32,
    /// Bit that tells whether the rule was added (with flag 4).
    pub result: Option<SubField>,
    /// What it matches and does.
    pub parts: Vec<LearnPart>,
}

/// One part of a conjunctive match (ovs-fields(7), "Conjunctive Match Fields").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// The conjunction.
    pub id: u32,
    /// Which of its clauses, from 0.
    pub clause: u8,
    /// How many clauses it has, 2 to 64.
    pub clauses: u8,
}

/// An action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// To a port.
    Output {
        /// Its number.
        port: u32,
        /// Octets that a controller gets; 0xffff: all.
        max_len: u16,
    },
    /// To the port that a field names.
    OutputReg {
        /// The field.
        source: SubField,
        /// Octets that a controller gets.
        max_len: u16,
    },
    /// To a controller (NXAST_CONTROLLER, NXAST_CONTROLLER2).
    Controller {
        /// Octets.
        max_len: u16,
        /// Which.
        id: u16,
        /// OFPR_*.
        reason: u8,
        /// Given back in the message.
        userdata: Vec<u8>,
        /// Whether the pipeline stands still until the controller resumes it.
        pause: bool,
        /// Meter that it passes.
        meter: Option<u32>,
    },
    /// To a port, by a queue of it (OpenFlow 1.0).
    Enqueue {
        /// Port.
        port: u32,
        /// Queue.
        queue: u32,
    },
    /// Later outputs by this queue.
    SetQueue(u32),
    /// Later outputs by the default queue again.
    PopQueue,
    /// By a group.
    Group(u32),
    /// By a meter (an action since OpenFlow 1.5).
    Meter(u32),
    /// Sets a field or part of it.
    Set {
        /// The field.
        field: Field,
        /// Its value, right-aligned.
        value: u128,
        /// Which bits of it.
        mask: u128,
        /// Written as NXAST_REG_LOAD, and shown so.
        load: bool,
    },
    /// Copies bits; both are equally wide.
    Move {
        /// From.
        from: SubField,
        /// To.
        to: SubField,
    },
    /// Onto the stack.
    Push(SubField),
    /// From the stack.
    Pop(SubField),
    /// Adds a VLAN tag with this EtherType.
    PushVlan(u16),
    /// Takes the outer VLAN tag off.
    PopVlan,
    /// Sets the VLAN id, adding a tag where there is none (OpenFlow 1.0).
    SetVlanVid(u16),
    /// Sets the priority, adding a tag where there is none (OpenFlow 1.0).
    SetVlanPcp(u8),
    /// Adds an MPLS entry with this EtherType.
    PushMpls(u16),
    /// Takes one off; what is behind has this EtherType.
    PopMpls(u16),
    /// Adds an 802.1ah header with this EtherType.
    PushPbb(u16),
    /// Takes it off.
    PopPbb,
    /// TTL from the next to the outermost header.
    CopyTtlOut,
    /// TTL from the outermost to the next header.
    CopyTtlIn,
    /// Sets MPLS TTL.
    SetMplsTtl(u8),
    /// Counts MPLS TTL down.
    DecMplsTtl,
    /// Sets IP TTL.
    SetTtl(u8),
    /// Counts IP TTL down; controllers of these ids are told when it ends.
    DecTtl(Vec<u16>),
    /// Looks up again, then goes on behind it.
    Resubmit {
        /// As if it had come in there; `None`: as it did.
        port: Option<u32>,
        /// There; `None`: in the table of the rule.
        table: Option<u8>,
    },
    /// Adds a rule.
    Learn(Box<Learn>),
    /// This rule is one part of a conjunctive match.
    Conjunction(Conjunction),
    /// Does nothing.
    Note(Vec<u8>),
    /// On a copy.
    Clone(Vec<Action>),
    /// Chooses a number into a field.
    Multipath {
        /// Fields.
        fields: HashFields,
        /// Start of the hash.
        basis: u16,
        /// How.
        mode: BundleMode,
        /// Highest number.
        max_link: u16,
        /// Argument of the hash.
        argument: u32,
        /// Where to.
        to: SubField,
    },
    /// Chooses a port, to send to or to load into a field.
    Bundle {
        /// Fields.
        fields: HashFields,
        /// Start of the hash.
        basis: u16,
        /// How.
        mode: BundleMode,
        /// From these.
        ports: Vec<u32>,
        /// Where to; `None`: sends.
        to: Option<SubField>,
    },
    /// Whether the packet is longer.
    CheckPktLarger {
        /// Than so many octets.
        len: u16,
        /// The bit that tells.
        to: SubField,
    },
    /// Time-outs of the rule once a TCP FIN or RST was seen.
    FinTimeout {
        /// Idle.
        idle: u16,
        /// Hard.
        hard: u16,
    },
    /// Nothing behind it in this table is done.
    Exit,
}

/// What a rule does: OpenFlow 1.1's instructions; OpenFlow 1.0's actions are `apply` alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions {
    /// First the meter.
    pub meter: Option<u32>,
    /// Then at once.
    pub apply: Vec<Action>,
    /// Then the action set is emptied.
    pub clear: bool,
    /// Then these are put into it.
    pub write: Vec<Action>,
    /// Then metadata: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// Then the next table.
    pub goto: Option<u8>,
}

impl Instructions {
    /// Only actions, done at once.
    #[must_use]
    pub fn apply(actions: Vec<Action>) -> Instructions {
        Instructions { apply: actions, ..Instructions::default() }
    }

    /// Whether any action sends to this port (`out_port` of requests).
    #[must_use]
    pub fn outputs_to(&self, port: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.outputs_to(port))
    }

    /// Whether any action goes by this group (`out_group` of requests).
    #[must_use]
    pub fn uses_group(&self, group: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.uses_group(group))
    }

    /// Octets on the heap that the actions take, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory_of(&self.apply) + memory_of(&self.write)
    }

    /// Adds the groups that actions go by, some perhaps more than once.
    pub(crate) fn groups(&self, into: &mut Vec<u32>) {
        self.apply.iter().chain(&self.write).for_each(|action| action.groups(into));
    }

    /// Adds the meters that it goes by, some perhaps more than once.
    pub(crate) fn meters(&self, into: &mut Vec<u32>) {
        into.extend(self.meter);
        self.apply.iter().chain(&self.write).for_each(|action| action.meters(into));
    }
}

/// Octets on the heap that a list of actions takes, about.
pub(crate) fn memory_of(actions: &[Action]) -> usize {
    size_of_val(actions) + actions.iter().map(Action::memory).sum::<usize>()
}

impl Action {
    /// Octets on the heap that the action takes besides its own size.
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

    /// See [`Instructions::outputs_to`].
    #[must_use]
    pub fn outputs_to(&self, to: u32) -> bool {
        match self {
            Action::Output { port, .. } | Action::Enqueue { port, .. } => *port == to,
            Action::Controller { .. } => to == port::CONTROLLER,
            Action::Clone(actions) => actions.iter().any(|action| action.outputs_to(to)),
            _ => false,
        }
    }

    /// See [`Instructions::uses_group`].
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
    /// A whole field.
    #[must_use]
    pub fn whole(field: Field) -> SubField {
        SubField { field, first: 0, bits: u16::try_from(field.bits()).unwrap_or(u16::MAX) }
    }

    /// Its bits within the field, as a mask.
    #[must_use]
    pub fn mask(&self) -> u128 {
        (u128::MAX >> (128 - u32::from(self.bits.clamp(1, 128)))) << self.first
    }

    /// Whether it lies within its field.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.bits > 0 && usize::from(self.first) + usize::from(self.bits) <= self.field.bits()
    }

    /// Its value in a flow.
    #[must_use]
    pub fn get(&self, flow: &super::Flow) -> u128 {
        (flow.get(self.field) & self.mask()) >> self.first
    }

    /// Sets it.
    pub fn set(&self, flow: &mut super::Flow, value: u128) {
        let kept = flow.get(self.field) & !self.mask();
        flow.set(self.field, kept | value << self.first & self.mask());
    }

    /// Marks it as looked at.
    pub fn want(&self, wild: &mut super::Flow) {
        wild.set(self.field, wild.get(self.field) | self.mask());
    }

    /// Adds it to a match.
    pub fn put(&self, to: &mut Match, value: u128) {
        to.put(self.field, value << self.first, self.mask());
    }
}
