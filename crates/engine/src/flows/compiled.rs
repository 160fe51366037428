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
    /// [`Departure`] of each operation: whether the operation outputs nothing, a copy of the packet, or the packet
    /// itself. Empty unless `kind` is [`Kind::Steps`].
    pub(crate) departures: Box<[Departure]>,
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

/// Use of a packet by an operation. The operation belongs to a list of operations, which is either the whole program or
/// the content of a clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Departure {
    /// The operation outputs nothing. If the operation is a clone, the operations of the clone output nothing either.
    None,
    /// The operation outputs a copy of the packet, because a later operation of the list outputs the packet.
    Copy,
    /// The operation outputs the packet itself, or is the last one that needs it.
    Last,
}

impl Compiled {
    pub(crate) fn new(program: Program, dropped: DropReason, meters: Vec<(u32, Arc<MeterLive>)>) -> Compiled {
        let kind = match (program.plain_output(), program.is_normal(), program.is_drop()) {
            (Some(port), ..) => Kind::Output(port),
            (_, true, _) => Kind::Normal,
            (.., true) if !program.ops.iter().any(Op::has_effect) => Kind::Drop,
            _ => Kind::Steps,
        };
        let departures = if kind == Kind::Steps { departures(&program.ops) } else { Box::default() };
        Compiled { program, kind, meters, departures, dropped }
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

/// Returns the [`Departure`] of each operation of a program. The time is linear in the number of operations, and the
/// clones may be nested arbitrarily deep.
fn departures(ops: &[Op]) -> Box<[Departure]> {
    /// A list of operations (the program or the content of a clone) that is being visited.
    struct List {
        /// Index of the clone operation that applies the list to a copy of the packet. `None` if the list is the
        /// program.
        clone: Option<usize>,
        /// Index after the last operation of the list (exclusive end).
        end: usize,
        /// Last operation visited so far that outputs the packet or a copy of it.
        last: Option<usize>,
    }
    let mut all = vec![Departure::None; ops.len()].into_boxed_slice();
    // The lists that contain the visited operation, from the program to the innermost clone.
    let mut lists = vec![List { clone: None, end: ops.len(), last: None }];
    for at in 0..=ops.len() {
        while let Some(List { clone, last, .. }) = lists.pop_if(|list| list.end <= at) {
            let Some(last) = last else { continue };
            all[last] = Departure::Last;
            if let (Some(clone), Some(outer)) = (clone, lists.last_mut()) {
                all[clone] = Departure::Copy;
                outer.last = Some(clone);
            }
        }
        let Some(list) = lists.last_mut() else { break };
        match &ops[at] {
            Op::Output(_) | Op::Normal | Op::Recirculate(_) => {
                all[at] = Departure::Copy;
                list.last = Some(at);
            }
            // The tracker needs the packet, although it outputs nothing.
            Op::Track(_) => list.last = Some(at),
            Op::Clone(n) => {
                let end = (at + 1 + usize::from(*n)).min(list.end);
                lists.push(List { clone: Some(at), end, last: None });
            }
            _ => {}
        }
    }
    all
}

/// Entry of a megaflow in a worker's flow cache.
pub struct CachedFlow {
    /// Index of the record of this megaflow in the slow path.
    pub(crate) id: u32,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) live: Arc<Live>,
}

#[cfg(test)]
mod tests {
    use super::Departure::{Copy, Last, None};
    use super::*;

    /// Checks that the last operation of each list that outputs something gets the packet itself, also in nested
    /// clones, and that clones without output are recognized.
    #[test]
    fn the_last_output_of_each_list_takes_the_packet() {
        let of = |ops: &[Op]| departures(ops).into_vec();
        let out = Op::Output(PortId(1));
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[Op::PopVlan, out.clone(), out.clone(), Op::PopVlan]), [None, Copy, Last, None]);
        // A clone that another output follows, and one that only a clone without output follows.
        let ops = [Op::Clone(2), Op::PopVlan, out.clone(), out.clone()];
        assert_eq!(of(&ops), [Copy, None, Last, Last]);
        let ops = [Op::Clone(2), Op::PopVlan, out.clone(), Op::Clone(1), Op::Meter(1), Op::Clone(0)];
        assert_eq!(of(&ops), [Last, None, Last, None, None, None]);
        // Nested clones that end together, and a clone that is longer than its list.
        let ops = [Op::Clone(3), Op::Clone(2), Op::Normal, out.clone(), Op::Normal];
        assert_eq!(of(&ops), [Copy, Last, Copy, Last, Last]);
        let ops = [Op::Clone(2), out.clone(), Op::Clone(9), out.clone(), Op::Clone(9), out];
        assert_eq!(of(&ops), [Copy, Last, None, Copy, Last, Last]);
    }
}
