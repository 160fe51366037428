//! What a session may have queued at the slow path: packet-outs, in messages and in octets of memory; and what all sessions of a bridge may.
//!
//! A session that has used its budget up waits, and reads nothing from its socket meanwhile: TCP then stops the peer.

use std::sync::Arc;

use switch::flow::PacketOut;
use tokio::sync::Semaphore;

use crate::datapath::Reservation;

/// Octets of memory that the queued packet-outs of a session take at most.
const OCTETS: u32 = 512 * 1024;
/// Packet-outs that a session has queued at most.
pub(crate) const MESSAGES: u32 = 256;

/// Octets of memory that the queued packet-outs of all sessions of a bridge take at most, also of those that have ended.
const BRIDGE_OCTETS: usize = 16 << 20;

/// The budget that all sessions of a bridge share.
pub(crate) fn of_bridge() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BRIDGE_OCTETS))
}

/// A session's budget for packet-outs.
pub(crate) struct PacketOutBudget {
    session: u64,
    free: Arc<Semaphore>,
    /// What all sessions of the bridge have.
    of_all: Arc<Semaphore>,
}

impl PacketOutBudget {
    /// The whole budget of the session of this number, as far as all sessions of the bridge have so much.
    pub fn new(session: u64, of_all: Arc<Semaphore>) -> PacketOutBudget {
        PacketOutBudget { session, free: Arc::new(Semaphore::new(OCTETS as usize)), of_all }
    }

    /// Reserves room for a packet-out if there is room now.
    pub fn try_reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).try_acquire_many_owned(cost(packet)).ok()?;
        let of_all = Arc::clone(&self.of_all).try_acquire_many_owned(cost(packet)).ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits for room for a packet-out, and reserves the room. `None` never comes: the semaphores are not closed.
    pub async fn reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).acquire_many_owned(cost(packet)).await.ok()?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(cost(packet)).await.ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until all packet-outs of the session are decided, and reserves its whole budget: for packets that are decided together.
    pub async fn reserve_all(&self) -> Option<Reservation> {
        let own = Arc::clone(&self.free).acquire_many_owned(OCTETS).await.ok()?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(OCTETS).await.ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until all packet-outs of the session are decided.
    pub async fn drained(&self) {
        // The semaphore is not closed.
        let _ = self.free.acquire_many(OCTETS).await;
    }
}

/// What a packet-out takes of the budget: its octets, and at least as much that [`MESSAGES`] fill the budget.
fn cost(packet: &PacketOut) -> u32 {
    u32::try_from(packet.memory()).unwrap_or(OCTETS).clamp(OCTETS / MESSAGES, OCTETS)
}
