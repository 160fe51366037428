//! Punted copies of IGMP, MLD and PIM messages, which workers send to the snooper. Each worker has one ring.
//! The snooper's control thread reads the rings four times a second.
//!
//! The number of copies that one port may have in the ring is limited, so that a port with many messages leaves space
//! for others. If there is no space for a copy, the bridge is informed ([`switch::Bridge::note_unsnooped`]). The group
//! memberships of the copy's port then do not expire for some time, and the port receives all groups.

use std::collections::VecDeque;

use packet::PortId;
use port::Packet;
use sync::spsc::Producer;

/// While the ring is less than half full, one port may use at most the fraction 1 / `PART` of the ring's capacity. This
/// maximum exceeds the number of messages that a bridge accepts from a port at a time.
const PART: usize = 4;
/// Maximum number of copies that one port may have in the ring while the ring is at least half full.
const RESERVED: usize = 2;

/// A copy of an IGMP, MLD or PIM message that is punted to the snooper.
#[derive(Debug)]
pub struct Punt {
    /// Port on which the packet arrived.
    pub port: PortId,
    /// VLAN of the packet on the bridge, or 0 if the bridge has no VLANs.
    pub vid: u16,
    /// Copy of the packet. The snooper frees the copy's frame through a pool of the same depot.
    pub packet: Packet,
}

/// Sending end of the ring for one worker's punted copies.
pub struct PuntRing {
    ring: Producer<Punt>,
    /// Arrival ports of the copies in the ring, oldest first. Elements for copies that have already been read are
    /// removed later.
    waiting: VecDeque<PortId>,
}

impl PuntRing {
    /// Creates the sending end of an empty ring from the ring's producer.
    #[must_use]
    pub fn new(ring: Producer<Punt>) -> PuntRing {
        let waiting = VecDeque::with_capacity(ring.capacity());
        PuntRing { ring, waiting }
    }

    /// Returns whether the ring has space for another copy of a packet that arrived on `port`.
    pub(crate) fn has_place(&mut self, port: PortId) -> bool {
        let (waiting, places) = (self.ring.len(), self.ring.capacity());
        self.waiting.drain(..self.waiting.len().saturating_sub(waiting));
        let most = if waiting < places / 2 { (places / PART).max(1) } else { RESERVED };
        waiting < places && self.waiting.iter().filter(|other| **other == port).count() < most
    }

    /// Puts a copy into the ring. Returns the copy as an error if the ring is full.
    pub(crate) fn push(&mut self, punt: Punt) -> Result<(), Punt> {
        let port = punt.port;
        self.ring.push(punt)?;
        self.waiting.push_back(port);
        Ok(())
    }
}
