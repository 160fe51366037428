//! Copies of megaflows, which the slow path sends to the thread that requested a dump.

use std::sync::Arc;

use packet::PortId;
use switch::flow::{Flow, Op, RuleRef};

use super::cached_actions::CachedActions;

/// Copy of a megaflow with its statistics, as part of a dump.
#[derive(Clone)]
pub struct MegaflowView {
    /// Index of the worker whose cache holds the megaflow.
    pub worker: usize,
    /// Port on which the packets of the megaflow arrive.
    pub port: PortId,
    /// Number of the recirculation behind which the packets are looked up. `None` for packets that were not
    /// recirculated.
    pub recirculation: Option<PortId>,
    /// Flow key of the megaflow, without the port.
    pub flow: Flow,
    /// Mask of the megaflow, without the port.
    pub mask: Flow,
    /// Number of packets that have matched the megaflow, in the worker and in the XDP hook.
    pub packets: u64,
    /// Number of bytes of the packets that have matched the megaflow.
    pub bytes: u64,
    /// Time at which the last packet matched the megaflow, in nanoseconds of the monotonic clock. 0 if no
    /// packet has matched.
    pub used_ns: u64,
    pub(crate) actions: Arc<CachedActions>,
}

impl MegaflowView {
    /// Returns the operations that the megaflow applies to its packets.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.actions.compiled.program.ops
    }

    /// Returns the rules that the megaflow's packets match, in the order of processing.
    #[must_use]
    pub fn rules(&self) -> &[RuleRef] {
        &self.actions.rules
    }
}
