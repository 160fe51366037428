//! Limits of the packet-outs that wait at the slow path, in messages and in octets of memory: for each
//! session, and for all sessions of a bridge.
//!
//! A session that has used up its budget waits, and does not read from its socket. TCP flow control then
//! stops the peer.

use std::sync::Arc;

use switch::flow::PacketOut;
use tokio::sync::Semaphore;

use crate::datapath::Reservation;

/// Maximum memory of the queued packet-outs of a session, in octets.
const OCTETS: u32 = 512 * 1024;
/// Maximum number of queued packet-outs of a session.
pub(crate) const MESSAGES: u32 = 256;

/// Maximum memory of the queued packet-outs of all sessions of a bridge, including ended sessions, in octets.
const BRIDGE_OCTETS: usize = 16 << 20;

/// Returns the budget that all sessions of a bridge share.
pub(crate) fn of_bridge() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BRIDGE_OCTETS))
}

/// Budget of a session for packet-outs.
pub(crate) struct PacketOutBudget {
    session: u64,
    free: Arc<Semaphore>,
    /// Budget of all sessions of the bridge.
    of_all: Arc<Semaphore>,
}

impl PacketOutBudget {
    /// Creates the budget of the session with this number. The shared budget of the bridge is a further
    /// limit.
    pub fn new(session: u64, of_all: Arc<Semaphore>) -> PacketOutBudget {
        PacketOutBudget { session, free: Arc::new(Semaphore::new(OCTETS as usize)), of_all }
    }

    /// Reserves budget for a packet-out. Returns `None` if it is not available now.
    pub fn try_reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).try_acquire_many_owned(cost(packet)).ok()?;
        let of_all = Arc::clone(&self.of_all).try_acquire_many_owned(cost(packet)).ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits for budget for a packet-out, and reserves it. `None` is never returned, because the semaphores
    /// are never closed.
    pub async fn reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).acquire_many_owned(cost(packet)).await.ok()?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(cost(packet)).await.ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until the slow path has processed all packet-outs of the session, and reserves the whole budget,
    /// for packets that are processed together.
    pub async fn reserve_all(&self) -> Option<Reservation> {
        let own = Arc::clone(&self.free).acquire_many_owned(OCTETS).await.ok()?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(OCTETS).await.ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until the slow path has processed all packet-outs of the session.
    pub async fn drained(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(OCTETS).await;
    }
}

/// Returns the cost of a packet-out in octets. The minimum cost is chosen so that [`MESSAGES`] packet-outs
/// use up the budget.
fn cost(packet: &PacketOut) -> u32 {
    u32::try_from(packet.memory()).unwrap_or(OCTETS).clamp(OCTETS / MESSAGES, OCTETS)
}
