//! Packets of a worker that wait for the slow path: the limits of their numbers, and the tickets by which they count
//! for the bursts in which they arrived.

use std::collections::VecDeque;

use packet::{DropReason, FlowKey};
use port::Packet;

use crate::flows::Upcall;
use crate::stage::WorkerContext;
use crate::stage::flow_cache::{Flows, Pending, Ticket, Waiting};
use crate::stage::transmit::{Egress, OwnedQueue};

/// Maximum number of packets of one flow that wait while the slow path processes the flow's first packet.
const WAITING_EACH: usize = 512;
/// Maximum number of frames of the packets of all flows that wait for the slow path. The waiting frames of one port may
/// not exceed the number of frames that are still free of this limit. Therefore one port alone can use at most half of
/// the limit, two ports can use a third each, and another port always finds a free part.
const WAITING: usize = 4096;
/// Maximum number of frames of the packets of one port that are at the slow path or on the way to it. The limit leaves
/// space for other ports when one port causes many upcalls.
const UPCALLS_EACH: u16 = 512;
impl Ticket {
    /// Records that a packet of the current burst waits for the slow path. Returns the receive queue and the burst in
    /// which the packet arrived. A packet that the slow path has released before, and that has then passed a patch
    /// port, gets the queue and the burst of its earlier wait. Returns `None` if another worker or a controller has
    /// sent the packet to this worker.
    pub fn take(egress: &mut Egress<'_>, context: &WorkerContext) -> Option<Ticket> {
        if let Some(ticket) = context.released {
            let own = ticket.queue_of(egress)?;
            return own.parked.park_again(ticket.burst).then_some(ticket);
        }
        let own = egress.queues.get_mut(context.queue?)?;
        Some(Ticket { port: own.port, queue: own.id, burst: own.parked.park() })
    }

    /// Records that a packet no longer waits for the slow path. `ticket` is the value that [`Ticket::take`] returned
    /// for this packet.
    pub fn give_back(ticket: Option<Ticket>, egress: &mut Egress<'_>) {
        if let Some(ticket) = ticket
            && let Some(own) = ticket.queue_of(egress)
        {
            own.parked.release(ticket.burst);
        }
    }

    /// Makes `ticket` the ticket of the packets that the worker currently processes after their release by the slow
    /// path. Gives back the ticket of the packets that were released before. None of the packets released before may
    /// be on its way to a patch port, except packets of the same burst.
    pub fn hold(ticket: Option<Ticket>, egress: &mut Egress<'_>, worker: &mut WorkerContext) {
        let before = std::mem::replace(&mut worker.released, ticket);
        Ticket::give_back(before, egress);
    }

    fn queue_of<'e>(&self, egress: &'e mut Egress<'_>) -> Option<&'e mut OwnedQueue> {
        egress.queues.iter_mut().find(|own| own.port == self.port && own.id == self.queue)
    }
}

/// Returns the fields of the flow key that identify a flow whose packets must stay in order: port, VLANs, addresses,
/// protocol, L4 ports and fragment flags.
#[inline]
pub fn identity(key: &FlowKey) -> FlowKey {
    let mut own = *key;
    own.set_tcp_flags(0);
    own.set_tos(0);
    own.set_ttl(0);
    own
}

/// Sends a packet to the slow path. If an earlier packet of the flow is already at the slow path, the packet waits in
/// the worker until the slow path returns the earlier packet. If a limit is exceeded, the packet is dropped.
#[cold]
pub fn miss(asks: Waiting, flows: &mut Flows, egress: &mut Egress<'_>, context: &mut WorkerContext) {
    let (port, ticket) = (asks.ingress(), asks.ticket);
    if let Err(packet) = wait(asks, flows) {
        Ticket::give_back(ticket, egress);
        context.drop(packet, port, DropReason::UpcallLimit);
    }
}

/// Sends a packet to the slow path like [`miss`], but returns the packet as an error if a limit is exceeded.
fn wait(asks: Waiting, flows: &mut Flows) -> Result<(), Packet> {
    let (identity, ingress) = (identity(&asks.key), asks.ingress());
    if let Some(pending) = flows.pending.get_mut(&identity) {
        if flows.waiting_by_port.len() <= ingress.index() {
            flows.waiting_by_port.resize(ingress.index() + 1, 0);
        }
        let own = &mut flows.waiting_by_port[ingress.index()];
        let frames = usize::from(asks.packet.segments());
        let most = (WAITING - flows.waiting) / if asks.is_patched() { 2 } else { 1 };
        if pending.behind.len() >= WAITING_EACH || *own + frames > most {
            return Err(asks.packet);
        }
        *own += frames;
        flows.waiting += frames;
        pending.behind.push_back(asks);
        return Ok(());
    }
    if flows.asked.len() <= ingress.index() {
        flows.asked.resize(ingress.index() + 1, 0);
    }
    let asked = &mut flows.asked[ingress.index()];
    let frames = asks.packet.segments();
    let most = UPCALLS_EACH / if asks.is_patched() { 2 } else { 1 };
    if *asked + frames > most {
        return Err(asks.packet);
    }
    let Waiting { bridge, port, packet, key, extended, ticket, recirculation } = asks;
    let upcall = Upcall { bridge, port, packet, key, extended, recirculation };
    flows.rings.upcalls.push(upcall).map_err(|back| back.packet)?;
    *asked += frames;
    let asked = Some((ingress, frames));
    flows.pending.insert(identity, Pending { ticket, asked, behind: VecDeque::new() });
    flows.rings_bell = true;
    Ok(())
}

/// Subtracts the frames of a packet from the numbers of frames that wait for the slow path.
pub fn waits_no_more(waiting: &Waiting, flows: &mut Flows) {
    let frames = usize::from(waiting.packet.segments());
    flows.waiting -= frames;
    if let Some(own) = flows.waiting_by_port.get_mut(waiting.ingress().index()) {
        *own -= frames;
    }
}

/// Records that the slow path has returned the first packet of a flow. Returns the ticket of this packet.
pub fn returned(identity: &FlowKey, flows: &mut Flows) -> Option<Ticket> {
    let pending = flows.pending.get_mut(identity)?;
    if let Some((port, frames)) = pending.asked.take()
        && let Some(asked) = flows.asked.get_mut(port.index())
    {
        *asked = asked.saturating_sub(frames);
    }
    pending.ticket.take()
}
