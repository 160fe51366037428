//! Cached megaflows in the form that a worker executes and counts.

use std::sync::Arc;

use packet::{DropReason, PortId};
use switch::flow::{Op, Program};
use sync::counter::Counter;

use super::meter::MeterLive;

/// Packet counters of a cached megaflow. The worker that caches the megaflow updates the counters.
#[derive(Debug, Default)]
pub struct Live {
    /// Number of packets that have matched the megaflow.
    pub packets: Counter,
    /// Number of bytes of the packets that have matched the megaflow.
    pub bytes: Counter,
    /// Time of the last packet that matched the megaflow, in nanoseconds of the monotonic clock.
    pub used_ns: Counter,
}

/// Cached actions of a megaflow, in the form that workers execute.
pub struct Compiled {
    /// Operations that the worker applies to a packet.
    pub program: Program,
    /// Class of the actions. Workers process some classes on a fast path.
    pub(crate) kind: Kind,
    /// Meters that the operations use, sorted by meter identifier.
    pub(crate) meters: Vec<(u32, Arc<MeterLive>)>,
    /// Drop reason that is counted for packets that the actions do not output.
    pub(crate) dropped: DropReason,
}

/// Class of cached actions, by which workers select a fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The actions output the unchanged packet to this port.
    Output(PortId),
    /// The actions forward the unchanged packet with the learning bridge.
    Normal,
    /// The actions drop the packet.
    Drop,
    /// Any other actions. The worker executes the operations one by one.
    Steps,
}

impl Compiled {
    pub(crate) fn new(program: Program, dropped: DropReason, meters: Vec<(u32, Arc<MeterLive>)>) -> Compiled {
        let kind = match (program.plain_output(), program.is_normal(), program.is_drop()) {
            (Some(port), ..) => Kind::Output(port),
            (_, true, _) => Kind::Normal,
            (.., true) if !program.ops.iter().any(|op| matches!(op, Op::Meter(_))) => Kind::Drop,
            _ => Kind::Steps,
        };
        Compiled { program, kind, meters, dropped }
    }

    /// Returns the meter with identifier `id`, or `None` if the actions do not use this meter.
    pub(crate) fn meter(&self, id: u32) -> Option<&MeterLive> {
        let at = self.meters.binary_search_by_key(&id, |(own, _)| *own).ok()?;
        Some(&self.meters[at].1)
    }

    /// Returns whether these actions have the same effect on packets as `program` with these meters and this
    /// drop reason.
    pub(crate) fn is_same(
        &self,
        program: &Program,
        dropped: DropReason,
        meters: &[(u32, Arc<MeterLive>)],
    ) -> bool {
        self.program == *program
            && (self.kind != Kind::Drop || self.dropped == dropped)
            && self.meters.len() == meters.len()
            && self.meters.iter().zip(meters).all(|(own, other)| Arc::ptr_eq(&own.1, &other.1))
    }
}

/// Entry of a megaflow in a worker's flow cache.
pub struct CachedFlow {
    /// Index of the record of this megaflow in the slow path.
    pub(crate) id: u32,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) live: Arc<Live>,
}
