//! Receive stage. The stage takes a burst from a queue, counts the packets, and copies the packets
//! that a running capture selects.

use packet::PortId;
use port::Queue;

use crate::burst::Burst;
use crate::capture::Direction;
use crate::stage::WorkerContext;
use crate::state::PortView;

/// Fills the empty `burst` with packets from `queue`. Returns the number of packets received.
pub fn run(
    queue: &mut dyn Queue,
    port: PortId,
    view: &PortView,
    burst: &mut Burst,
    context: &mut WorkerContext,
) -> usize {
    let n = queue.receive(&mut context.pool, &mut burst.packets);
    if n > 0 {
        arrived(port, view, burst, context);
    }
    n
}

/// Counts the packets of a burst as received on `port`, and copies the packets that a running capture selects. Records
/// the port in each packet as the port of arrival, unless the port is a patch port.
#[inline]
pub(crate) fn arrived(port: PortId, view: &PortView, burst: &mut Burst, context: &mut WorkerContext) {
    let mut bytes = 0;
    for packet in burst.packets.iter_mut() {
        bytes += packet.len() as u64;
        // Behind a patch port, the limits per port apply to the port on which the packet was received.
        if view.patch.is_none() {
            packet.set_arrival(port);
        }
    }
    let counters = context.counters.port(port);
    counters.rx_packets.add(burst.packets.len() as u64);
    counters.rx_bytes.add(bytes);
    if view.capture {
        capture(port, burst, context);
    }
}

#[cold]
fn capture(port: PortId, burst: &Burst, context: &mut WorkerContext) {
    if let Some(tap) = &mut context.capture {
        for packet in burst.packets.iter() {
            tap.offer(&mut context.pool, packet, port, Direction::Received);
        }
    }
}
