//! Datapath actions: a short list of steps that translation makes from the flow entries that a packet
//! matches.

use packet::PortId;

use super::{Beyond, Flow};

/// New values for header fields, as bits of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetBits {
    /// New values of the header bits.
    pub value: Flow,
    /// Mask of the header bits that are set.
    pub mask: Flow,
}

/// One datapath action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Outputs a copy of the packet to a port. The last output sends the packet itself.
    Output(PortId),
    /// Forwards a copy of the packet by the learning bridge.
    Normal,
    /// Writes header fields and updates checksums.
    Set(Box<SetBits>),
    /// Adds an outer VLAN tag with this TPID and TCI.
    PushVlan(u16, u16),
    /// Removes the outer VLAN tag.
    PopVlan,
    /// Adds an MPLS label stack entry with this EtherType and value.
    PushMpls(u16, u32),
    /// Removes the outer MPLS label stack entry. The value is the EtherType of what follows.
    PopMpls(u16),
    /// Writes this TTL into the IP header behind the last label.
    CopyTtlIn(u8),
    /// Adds an 802.1ah header with TPID 0x88e7 and this I-TAG. The addresses are copied.
    PushPbb(u16, u32),
    /// Removes the 802.1ah header.
    PopPbb,
    /// Applies the meter with this number, which may drop the packet or raise its drop precedence in the
    /// DSCP.
    Meter(u32),
    /// Selects the queue of subsequent outputs. `None` for the default queue.
    Queue(Option<u32>),
    /// Executes the next steps on a copy of the packet. The value is the number of these steps.
    Clone(u16),
}

/// The datapath actions of a packet or megaflow.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Program {
    /// Steps of the program in order.
    pub ops: Vec<Op>,
}

impl Program {
    /// Returns the output port if the program only outputs the unchanged packet to one port.
    #[must_use]
    pub fn plain_output(&self) -> Option<PortId> {
        match self.ops[..] {
            [Op::Output(port)] => Some(port),
            _ => None,
        }
    }

    /// Returns whether the program only forwards the unchanged packet by the learning bridge.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        matches!(self.ops[..], [Op::Normal])
    }

    /// Returns whether the program has no output, so that the packet is dropped.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        !self.ops.iter().any(|op| matches!(op, Op::Output(_) | Op::Normal))
    }
}

/// A megaflow for the workers' caches. All packets that equal `flow` in the bits of `mask` get the actions of
/// `program`.
#[derive(Clone, PartialEq, Debug)]
pub struct Megaflow {
    /// Flow of the packet that caused the translation, masked.
    pub flow: Flow,
    /// Bits that the actions depend on. The ingress port is always one of them, without being set here.
    pub mask: Flow,
    /// Datapath actions of the megaflow.
    pub program: Program,
}

impl Megaflow {
    /// Returns value and mask for the worker's flow key, without the port.
    #[must_use]
    pub fn key(&self) -> (packet::FlowKey, packet::FlowKey) {
        (self.flow.key(), self.mask.key())
    }

    /// Returns value and mask for the extended key.
    #[must_use]
    pub fn beyond(&self) -> (Beyond, Beyond) {
        (self.flow.beyond(), self.mask.beyond())
    }
}
