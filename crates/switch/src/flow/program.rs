//! What a worker does to a packet: a short list of steps that translation makes of everything that rules say.

use packet::PortId;

use super::{Beyond, Flow};

/// New values for fields, as bits of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetBits {
    /// The bits' values.
    pub value: Flow,
    /// Which bits.
    pub mask: Flow,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A copy leaves by this port (the last one: the packet itself).
    Output(PortId),
    /// The learning bridge decides about a copy.
    Normal,
    /// Header fields are written, checksums mended.
    Set(Box<SetBits>),
    /// A VLAN tag is put in front: TPID and TCI.
    PushVlan(u16, u16),
    /// The outer VLAN tag is taken off.
    PopVlan,
    /// An MPLS label stack entry is put in front, with this EtherType.
    PushMpls(u16, u32),
    /// The outer one is taken off; what is behind has this EtherType.
    PopMpls(u16),
    /// This TTL is written into the IP header behind the last label.
    CopyTtlIn(u8),
    /// An 802.1ah header is put in front of the frame: TPID (0x88e7) and I-TAG; the addresses are copied.
    PushPbb(u16, u32),
    /// It is taken off.
    PopPbb,
    /// The packet ends here when the meter of this number says so, or its DSCP is raised.
    Meter(u32),
    /// Later outputs use this queue; `None`: the default one.
    Queue(Option<u32>),
    /// The next so many steps are done to a copy.
    Clone(u16),
}

/// A packet's fate, as steps.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Program {
    /// The steps, in order.
    pub ops: Vec<Op>,
}

impl Program {
    /// The one port that packets leave by unchanged, if that is all.
    #[must_use]
    pub fn plain_output(&self) -> Option<PortId> {
        match self.ops[..] {
            [Op::Output(port)] => Some(port),
            _ => None,
        }
    }

    /// Whether all is left to the learning bridge, and the packet is not changed.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        matches!(self.ops[..], [Op::Normal])
    }

    /// Whether the packet goes nowhere.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        !self.ops.iter().any(|op| matches!(op, Op::Output(_) | Op::Normal))
    }
}

/// A flow that the workers may keep: packets that equal `flow` in the bits of `mask` meet the same fate.
#[derive(Clone, PartialEq, Debug)]
pub struct Megaflow {
    /// The flow of the packet that asked, masked.
    pub flow: Flow,
    /// The bits that its fate depends on. The port that it came in by is one of them without standing here.
    pub mask: Flow,
    /// Its fate.
    pub program: Program,
}

impl Megaflow {
    /// What it asks of the worker's key: value and mask, without the port.
    #[must_use]
    pub fn key(&self) -> (packet::FlowKey, packet::FlowKey) {
        (self.flow.key(), self.mask.key())
    }

    /// What it asks beyond the key.
    #[must_use]
    pub fn beyond(&self) -> (Beyond, Beyond) {
        (self.flow.beyond(), self.mask.beyond())
    }
}
