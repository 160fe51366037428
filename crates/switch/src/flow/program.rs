//! Datapath actions (steps): the result of translating a packet through the flow tables. Workers execute the steps on
//! each packet of a megaflow.

use packet::PortId;

use super::{ExtendedKey, Flow};

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
        !self.ops.iter().any(|op| matches!(op, Op::Output(_) | Op::Normal))
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
