//! Limits for packet-outs (packets that controllers send through the bridge) that wait for the slow path, both in
//! messages and in octets of memory. There is a limit for each OpenFlow session, and a limit for all sessions of a
//! bridge together.
//!
//! A session that has used up its budget stops reading from its socket until budget is free. TCP flow control
//! then stops the peer.

use std::sync::Arc;

use switch::flow::PacketOut;
use tokio::sync::Semaphore;

use crate::datapath::Reservation;

/// Maximum memory in octets that the queued packet-outs of one OpenFlow session may use.
const OCTETS: u32 = 512 * 1024;
/// Maximum number of queued packet-outs of an OpenFlow session.
pub(crate) const MESSAGES: u32 = 256;

/// Maximum memory in octets that the queued packet-outs of all sessions of a bridge may use, including packet-outs
/// of sessions that have ended.
const BRIDGE_OCTETS: usize = 16 << 20;

/// Returns a new memory budget for queued packet-outs, to be shared by all sessions of a bridge.
pub(crate) fn of_bridge() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BRIDGE_OCTETS))
}

/// Memory budget of one OpenFlow session for packet-outs that are queued for the slow path.
pub(crate) struct PacketOutBudget {
    session: u64,
    free: Arc<Semaphore>,
    /// Memory budget that all sessions of the bridge share.
    of_all: Arc<Semaphore>,
}

impl PacketOutBudget {
    /// Creates the memory budget of the OpenFlow session with the number `session`. A packet-out must fit into this
    /// budget and into the shared budget `of_all` of the bridge.
    pub fn new(session: u64, of_all: Arc<Semaphore>) -> PacketOutBudget {
        PacketOutBudget { session, free: Arc::new(Semaphore::new(OCTETS as usize)), of_all }
    }

    /// Reserves memory for a packet-out. Returns `None` if the budget of the session or of the
    /// bridge currently has too little free memory.
    pub fn try_reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).try_acquire_many_owned(cost(packet)).ok()?;
        let of_all = Arc::clone(&self.of_all).try_acquire_many_owned(cost(packet)).ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until the budget suffices for a packet-out, and reserves memory for the packet-out.
    /// Never returns `None`, because the semaphores are never closed.
    pub async fn reserve(&self, packet: &PacketOut) -> Option<Reservation> {
        let own = Arc::clone(&self.free).acquire_many_owned(cost(packet)).await.ok()?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(cost(packet)).await.ok()?;
        Some(Reservation::new(self.session, [own, of_all]))
    }

    /// Waits until the slow path has processed all packet-outs of the session, and reserves the session's whole
    /// budget. This is used for the packet-outs of a bundle, which are processed together.
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

/// Returns the number of octets of the budget that a packet-out uses. Each packet-out uses at least
/// `OCTETS / MESSAGES` octets, so that at most [`MESSAGES`] packet-outs fit into the budget.
fn cost(packet: &PacketOut) -> u32 {
    u32::try_from(packet.memory()).unwrap_or(OCTETS).clamp(OCTETS / MESSAGES, OCTETS)
}
