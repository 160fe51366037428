//! Datapath actions (steps): the result of translating a packet through the flow tables. Workers execute the steps on
//! each packet of a megaflow.

use std::sync::Arc;

use packet::PortId;

use super::action::memory_of;
use super::{Action, CtNat, ExtendedKey, Flow, STAGES};

/// Maximum nesting depth of the clones ([`Op::Clone`]) of a translated program.
pub const MAX_CLONES: usize = 64;

/// New values of header fields: a value and a mask of the bits to write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetBits {
    /// New values of the bits that `mask` selects.
    pub value: Flow,
    /// Mask of the header bits that the action sets.
    pub mask: Flow,
}

/// A pass of a packet through the connection tracker (see [`Action::Ct`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TrackStep {
    /// Zone in which the packet is tracked.
    pub zone: u16,
    /// Whether the connection is entered into the table.
    pub commit: bool,
    /// Whether a packet of the reply direction opens a new connection.
    pub force: bool,
    /// Value and mask of the connection's mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the connection's label.
    pub label: Option<(u128, u128)>,
    /// Translation of the packet.
    pub nat: Option<CtNat>,
    /// Well-known port of the helper of a new connection: 21 for FTP, 69 for TFTP, 0 for none.
    pub alg: u16,
}

/// State of the translation of a packet at a `ct` action with a table. A copy of the packet with its connection fields
/// is looked up in the flow cache again, and its translation goes on with this state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrozenState {
    /// Table in which the translation goes on.
    pub table: u8,
    /// Words of the flow that do not come from the packet: the ingress port, metadata and registers.
    pub metadata: [u64; STAGES[0]],
    /// Values on the packet's stack, each with its width in bits.
    pub stack: Vec<(u128, u16)>,
    /// Action set of the packet.
    pub action_set: Vec<Action>,
    /// Queue of later outputs. `None` means the default queue.
    pub queue: Option<u32>,
    /// Number of times that the packet has been looked up in the flow cache before.
    pub passes: u8,
}

impl FrozenState {
    /// Returns the approximate size of the state in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<FrozenState>() + size_of_val(&self.stack[..]) + memory_of(&self.action_set)
    }
}

/// A further look-up of a packet in the flow cache.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Recirculation {
    /// State with which the translation goes on.
    pub state: FrozenState,
    /// Number by which the flow cache distinguishes packets of this state from others. The number has the form of a
    /// port, and is larger than that of any port. `None` if no number is free. Packets are then dropped.
    pub number: Option<PortId>,
}

/// One datapath action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Outputs a copy of the packet to a port. The last output of a program sends the packet itself.
    Output(PortId),
    /// Forwards a copy of the packet through the learning bridge (OFPP_NORMAL).
    Normal,
    /// Writes header fields and updates checksums.
    Set(Box<SetBits>),
    /// Adds an outer VLAN tag with this TPID and TCI.
    PushVlan(u16, u16),
    /// Removes the outer VLAN tag.
    PopVlan,
    /// Adds an MPLS label stack entry. The first value is the new EtherType of the packet, the second is the label
    /// stack entry.
    PushMpls(u16, u32),
    /// Removes the outer MPLS label stack entry. The value is the EtherType of the header after the entry.
    PopMpls(u16),
    /// Writes this TTL into the IP header after the last MPLS label.
    CopyTtlIn(u8),
    /// Adds an 802.1ah header with this TPID (normally 0x88e7) and this I-TAG. The MAC addresses are copied to the new
    /// header.
    PushPbb(u16, u32),
    /// Removes the 802.1ah header.
    PopPbb,
    /// Applies the meter with this number. The meter may drop the packet or raise the drop precedence in its DSCP.
    Meter(u32),
    /// Selects the queue of subsequent outputs. `None` means the default queue.
    Queue(Option<u32>),
    /// Executes some of the next steps on a copy of the packet. The value is the number of these steps. Clones are
    /// nested at most [`MAX_CLONES`] deep.
    Clone(u16),
    /// Sends the packet through the connection tracker, which may translate it.
    Track(Box<TrackStep>),
    /// Clears the connection fields of the packet.
    ClearTrack,
    /// Looks a copy of the packet up in the flow cache again, with its connection fields. The last output or
    /// recirculation of a program takes the packet itself.
    Recirculate(Arc<Recirculation>),
}

impl Op {
    /// Returns whether the step outputs the packet or a copy of it.
    #[must_use]
    pub const fn is_output(&self) -> bool {
        matches!(self, Op::Output(_) | Op::Normal | Op::Recirculate(_))
    }

    /// Returns whether the step outputs the packet, or changes other state of the data path than the packet.
    #[must_use]
    pub const fn has_effect(&self) -> bool {
        self.is_output() || matches!(self, Op::Meter(_) | Op::Track(_))
    }
}

/// The datapath actions of a packet or megaflow.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Program {
    /// Steps of the program in order.
    pub ops: Vec<Op>,
}

impl Program {
    /// Returns the output port if the program only outputs the unchanged packet to one port. Returns `None`
    /// for any other program.
    #[must_use]
    pub fn plain_output(&self) -> Option<PortId> {
        match self.ops[..] {
            [Op::Output(port)] => Some(port),
            _ => None,
        }
    }

    /// Returns whether the program only forwards the unchanged packet with the learning bridge.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        matches!(self.ops[..], [Op::Normal])
    }

    /// Returns whether the program has no output. A program without output drops the packet.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        !self.ops.iter().any(Op::is_output)
    }
}

/// A masked flow with datapath actions. Workers cache megaflows. The actions apply to all packets
/// whose flows equal `flow` in the bits of `mask`.
#[derive(Clone, PartialEq, Debug)]
pub struct Megaflow {
    /// Flow of the packet that caused the translation, with all bits outside `mask` cleared.
    pub flow: Flow,
    /// Mask of the bits on which the actions depend. The actions also depend on the ingress port, although its bits are
    /// not set in this mask.
    pub mask: Flow,
    /// Datapath actions of the megaflow.
    pub program: Program,
}

impl Megaflow {
    /// Returns the value and the mask of the megaflow as the worker's flow keys, without the ingress port.
    #[must_use]
    pub fn key(&self) -> (packet::FlowKey, packet::FlowKey) {
        (self.flow.key(), self.mask.key())
    }

    /// Returns the value and the mask of the megaflow as extended keys.
    #[must_use]
    pub fn extended(&self) -> (ExtendedKey, ExtendedKey) {
        (self.flow.extended(), self.mask.extended())
    }
}
