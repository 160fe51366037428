//! Queues of OpenFlow packet-outs that wait for the slow path. Each OpenFlow session has one queue.
//!
//! The slow path serves the queues of the sessions in turn, so a session with many packet-outs delays only its own
//! packet-outs. The queues have no limit of their own. The sender of a packet-out first reserves a part of the
//! packet-out budget of its session. The reservation is held until the slow path has processed the packet.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use switch::flow::{DecidedPacket, PacketOut};

/// A packet-out that waits for the slow path.
pub(crate) enum Outgoing {
    /// A packet-out whose actions the slow path still has to translate into datapath actions, according to the bridge's
    /// rules.
    Asked(Box<PacketOut>),
    /// A packet-out whose resulting operations were already determined when its OpenFlow bundle was applied.
    Decided(Box<DecidedPacket>),
}

/// A queued packet-out with its reservation in the packet-out budget of the OpenFlow session.
pub(crate) struct Queued {
    /// The packet-out that waits for the slow path.
    pub packet: Outgoing,
    /// Part of the session's packet-out budget that is reserved for the packet-out. Dropping the value releases
    /// the part.
    pub reservation: Box<dyn Any + Send>,
}

/// Queued packet-outs of one bridge, grouped by OpenFlow session.
#[derive(Default)]
pub(crate) struct PacketOuts {
    sessions: BTreeMap<u64, VecDeque<Queued>>,
    /// Identifier of the OpenFlow session that was served last.
    last: u64,
}

impl PacketOuts {
    /// Appends a packet-out to the queue of `session`.
    pub fn push(&mut self, session: u64, queued: Queued) {
        self.sessions.entry(session).or_default().push_back(queued);
    }

    /// Takes the first packet-out of the next session. The sessions are served in the order of their
    /// identifiers, beginning after the session that was served last and wrapping around. Returns `None` if
    /// no packet-out is queued.
    pub fn pop(&mut self) -> Option<Queued> {
        let behind = self.sessions.range((Bound::Excluded(self.last), Bound::Unbounded)).next();
        let session = *behind.or_else(|| self.sessions.iter().next())?.0;
        let queue = self.sessions.get_mut(&session)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.sessions.remove(&session);
        }
        self.last = session;
        first
    }

    /// Removes and returns all queued packet-outs of `session`.
    pub fn purge(&mut self, session: u64) -> VecDeque<Queued> {
        self.sessions.remove(&session).unwrap_or_default()
    }

    /// Returns whether no packet-out is queued.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use switch::flow::Match;

    use super::*;

    #[test]
    fn sessions_take_turns() {
        let mut waiting = PacketOuts::default();
        let queued = |in_port| {
            let (metadata, actions, frame) = (Match::ANY, Vec::new(), Vec::new());
            let packet = Box::new(PacketOut { in_port, metadata, actions, frame, resumes: None });
            Queued { packet: Outgoing::Asked(packet), reservation: Box::new(()) }
        };
        for (session, count) in [(0, 5), (3, 2), (7, 1)] {
            (0..count)
                .for_each(|at| waiting.push(session, queued(u32::try_from(session).unwrap() * 10 + at)));
        }
        let next = |waiting: &mut PacketOuts| match waiting.pop()?.packet {
            Outgoing::Asked(packet) => Some(packet.in_port),
            Outgoing::Decided(_) => None,
        };
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut waiting)).collect();
        assert_eq!(order, [30, 70, 0, 31, 1, 2, 3, 4]);
        assert!(waiting.is_empty());
        // The queue of a session that ends is removed from the turns.
        (0..3).for_each(|at| waiting.push(at, queued(at.try_into().unwrap())));
        assert_eq!((waiting.purge(1).len(), waiting.purge(1).len()), (1, 0));
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut waiting)).collect();
        assert_eq!(order, [2, 0]);
    }
}
