//! Copies of IGMP, MLD and PIM messages for the snooper: one ring for each worker, which the control thread reads four times a second.
//!
//! The ring is shared so that ports that send many such messages leave others places. A copy that finds none is noted at its port
//! ([`switch::Bridge::note_unsnooped`]), whose memberships then last.

use std::collections::VecDeque;

use packet::PortId;
use port::Packet;
use sync::spsc::Producer;

/// Copies of one port that may wait while the ring is less than half full, as a part of the ring: more than a bridge lets a port have
/// at once.
const PART: usize = 4;
/// Copies of one port that may wait once the ring is half full.
const RESERVED: usize = 2;

/// A copy of a packet for a control thread (IGMP and MLD, for the snooper).
#[derive(Debug)]
pub struct Punt {
    /// Port it arrived on.
    pub port: PortId,
    /// Its VLAN on the bridge, 0 for none.
    pub vid: u16,
    /// The copy; its frame goes back through a pool of the same depot.
    pub packet: Packet,
}

/// A worker's end of its ring of copies.
pub struct PuntRing {
    ring: Producer<Punt>,
    /// The ports of the copies that wait, oldest first; may begin with some that were read.
    waiting: VecDeque<PortId>,
}

impl PuntRing {
    /// The end of this empty ring.
    #[must_use]
    pub fn new(ring: Producer<Punt>) -> PuntRing {
        let waiting = VecDeque::with_capacity(ring.capacity());
        PuntRing { ring, waiting }
    }

    /// Returns whether there is a place for a copy of this port.
    pub(crate) fn has_place(&mut self, port: PortId) -> bool {
        let (waiting, places) = (self.ring.len(), self.ring.capacity());
        self.waiting.drain(..self.waiting.len().saturating_sub(waiting));
        let most = if waiting < places / 2 { (places / PART).max(1) } else { RESERVED };
        waiting < places && self.waiting.iter().filter(|other| **other == port).count() < most
    }

    /// Leaves a copy for the control thread, or gives it back where the ring is full.
    pub(crate) fn push(&mut self, punt: Punt) -> Result<(), Punt> {
        let port = punt.port;
        self.ring.push(punt)?;
        self.waiting.push_back(port);
        Ok(())
    }
}
