//! Punted copies of IGMP, MLD and PIM messages for the snooper. Each worker has one ring, which the control
//! thread reads four times a second.
//!
//! Each port has a limited share of the ring, so that a port with many messages leaves space for others. A
//! copy that finds no space is recorded at its port ([`switch::Bridge::note_unsnooped`]), and the port's
//! group memberships then do not expire.

use std::collections::VecDeque;

use packet::PortId;
use port::Packet;
use sync::spsc::Producer;

/// Reciprocal of the share of the ring that one port may use while the ring is less than half full. The share
/// exceeds the number of messages that a bridge accepts from a port at once.
const PART: usize = 4;
/// Maximum number of waiting copies of one port once the ring is half full.
const RESERVED: usize = 2;

/// A copy of a packet for a control thread (IGMP and MLD, for the snooper).
#[derive(Debug)]
pub struct Punt {
    /// Port on which the packet arrived.
    pub port: PortId,
    /// VLAN of the packet on the bridge, or 0 for none.
    pub vid: u16,
    /// The copy. The reader returns its frame through a pool of the same depot.
    pub packet: Packet,
}

/// Worker's end of a ring for punted copies.
pub struct PuntRing {
    ring: Producer<Punt>,
    /// Ports of the waiting copies, oldest first. The first entries may belong to copies that have been read.
    waiting: VecDeque<PortId>,
}

impl PuntRing {
    /// Creates the worker's end of an empty ring.
    #[must_use]
    pub fn new(ring: Producer<Punt>) -> PuntRing {
        let waiting = VecDeque::with_capacity(ring.capacity());
        PuntRing { ring, waiting }
    }

    /// Returns whether the ring has space for another copy of this port.
    pub(crate) fn has_place(&mut self, port: PortId) -> bool {
        let (waiting, places) = (self.ring.len(), self.ring.capacity());
        self.waiting.drain(..self.waiting.len().saturating_sub(waiting));
        let most = if waiting < places / 2 { (places / PART).max(1) } else { RESERVED };
        waiting < places && self.waiting.iter().filter(|other| **other == port).count() < most
    }

    /// Puts a copy into the ring. Returns the copy if the ring is full.
    pub(crate) fn push(&mut self, punt: Punt) -> Result<(), Punt> {
        let port = punt.port;
        self.ring.push(punt)?;
        self.waiting.push_back(port);
        Ok(())
    }
}
