//! Receive stage. The stage takes a burst from a queue, counts the packets, and offers them to a running
//! capture.

use packet::PortId;
use port::Queue;

use crate::burst::Burst;
use crate::capture::Direction;
use crate::stage::Tools;
use crate::state::PortView;

/// Fills the empty `burst` with packets from `queue`. Returns the number of packets received.
pub fn run(
    queue: &mut dyn Queue,
    port: PortId,
    view: &PortView,
    burst: &mut Burst,
    tools: &mut Tools,
) -> usize {
    let n = queue.receive(&mut tools.pool, &mut burst.packets);
    if n > 0 {
        arrived(port, view, burst, tools);
    }
    n
}

/// Counts the packets of a burst as received on `port`, records the port in each packet, and offers the
/// packets to a running capture.
#[inline]
pub(crate) fn arrived(port: PortId, view: &PortView, burst: &mut Burst, tools: &mut Tools) {
    let mut bytes = 0;
    for packet in burst.packets.iter_mut() {
        bytes += packet.len() as u64;
        packet.set_arrival(port);
    }
    let counters = tools.counters.port(port);
    counters.rx_packets.add(burst.packets.len() as u64);
    counters.rx_bytes.add(bytes);
    if view.capture {
        capture(port, burst, tools);
    }
}

#[cold]
fn capture(port: PortId, burst: &Burst, tools: &mut Tools) {
    if let Some(tap) = &mut tools.capture {
        for packet in burst.packets.iter() {
            tap.offer(&mut tools.pool, packet, port, Direction::Received);
        }
    }
}
