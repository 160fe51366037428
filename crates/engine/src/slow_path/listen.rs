//! Listener that is called when megaflows are installed or removed. The daemon logs these events.

use packet::PortId;
use switch::flow::{Flow, Op};

use super::SlowPath;
use super::record::Record;

/// Event for a listener: a megaflow was installed in a worker's cache or removed from it.
#[derive(Clone, Copy, Debug)]
pub struct FlowChange<'a> {
    /// Whether the megaflow was installed (true) or removed (false).
    pub added: bool,
    /// Port on which the packets of the megaflow arrive.
    pub port: PortId,
    /// Number of the recirculation behind which the packets are looked up. `None` for packets that were not
    /// recirculated.
    pub recirculation: Option<PortId>,
    /// Flow key of the megaflow.
    pub flow: &'a Flow,
    /// Mask of the megaflow.
    pub mask: &'a Flow,
    /// Operations that the megaflow applies to its packets.
    pub ops: &'a [Op],
}

/// A listener for the installation and removal of megaflows. The listener's functions are called on the slow
/// path's thread.
pub struct FlowListener {
    /// Function that returns whether the listener currently wants events. The slow path calls the function before it
    /// creates an event.
    pub listens: fn() -> bool,
    /// Function that is called with each event while `listens` returns true.
    pub changed: Box<dyn Fn(FlowChange<'_>) + Send>,
}

impl SlowPath {
    /// Sets the listener for the installation and removal of megaflows.
    pub fn set_listener(&mut self, listener: FlowListener) {
        self.listener = Some(listener);
    }

    pub(super) fn tell(&self, record: &Record, added: bool) {
        let Some(listener) = self.listener.as_ref().filter(|listener| (listener.listens)()) else { return };
        let (flow, mask) = record.bits.both();
        let ops = &record.actions.compiled.program.ops;
        (listener.changed)(FlowChange {
            added,
            port: record.arrival,
            recirculation: record.recirculation.as_ref().and_then(|to| to.number),
            flow: &flow,
            mask: &mask,
            ops,
        });
    }
}
