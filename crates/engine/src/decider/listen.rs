//! Listener for the installation and removal of megaflows, which the daemon's log uses.

use packet::PortId;
use switch::flow::{Flow, Op};

use super::{Decider, Record};

/// Installation or removal of a megaflow in a worker's cache.
#[derive(Clone, Copy, Debug)]
pub struct FlowChange<'a> {
    /// Whether the megaflow is installed. If false, the megaflow is removed.
    pub added: bool,
    /// Port on which the packets of the megaflow arrive.
    pub port: PortId,
    /// Flow key of the megaflow.
    pub flow: &'a Flow,
    /// Mask of the megaflow.
    pub mask: &'a Flow,
    /// Operations that the megaflow applies to packets.
    pub ops: &'a [Op],
}

/// A listener, called on the slow path's thread for each change.
pub struct FlowListener {
    /// Returns whether the listener is active. Called before each change.
    pub listens: fn() -> bool,
    /// Callback for a change.
    pub changed: Box<dyn Fn(FlowChange<'_>) + Send>,
}

impl Decider {
    /// Sets the listener for megaflow changes.
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
