//! Who is told of flows as they are cached and put out: the daemon's log, when it asks for that.

use packet::PortId;
use switch::flow::{Flow, Op};

use super::{Decider, Record};

/// A flow that workers cache from now on, or no longer.
#[derive(Clone, Copy, Debug)]
pub struct FlowChange<'a> {
    /// Whether it comes, rather than goes.
    pub added: bool,
    /// The port of its packets.
    pub port: PortId,
    /// Its packets have this in the bits of the mask.
    pub flow: &'a Flow,
    /// The bits.
    pub mask: &'a Flow,
    /// What is done to its packets.
    pub ops: &'a [Op],
}

/// Told of each change, on the decider's thread.
pub struct FlowListener {
    /// Whether anybody wants to know at the moment; asked before each change.
    pub listens: fn() -> bool,
    /// Told then.
    pub changed: Box<dyn Fn(FlowChange<'_>) + Send>,
}

impl Decider {
    /// Has this one told of flows.
    pub fn set_listener(&mut self, listener: FlowListener) {
        self.listener = Some(listener);
    }

    pub(super) fn tell(&self, record: &Record, added: bool) {
        let Some(listener) = self.listener.as_ref().filter(|listener| (listener.listens)()) else { return };
        let (flow, mask) = record.bits.both();
        let ops = &record.fate.compiled.program.ops;
        (listener.changed)(FlowChange { added, port: record.port, flow: &flow, mask: &mask, ops });
    }
}
