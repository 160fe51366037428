//! Packet-in scheduler of a session (`pinsched` of Open vSwitch). The scheduler limits the rate of a session's
//! packet-in messages, and shares this rate among the input ports of the packets.
//!
//! Each input port has a queue. The queues are served in turn, with one packet per queue. The number of queued packets
//! is limited to the burst size, and their memory to [`OCTETS`]. If a limit is exceeded, the oldest packet of the queue
//! with the most packets or octets is dropped. Therefore packets from a port that sends few packets are not dropped,
//! regardless of the number of packets from other ports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use switch::flow::{Event, Origin, PacketIn};
use tokio::time::Instant;

use crate::events::SharedEvent;

/// Maximum memory in octets of a session's queued packets.
const OCTETS: usize = 4 << 20;

/// A packet-in in the queue of a session.
pub(super) struct QueuedPacketIn {
    /// Event that contains the packet.
    pub told: Arc<SharedEvent>,
    /// Position of the packet in the event.
    pub index: usize,
}

impl QueuedPacketIn {
    /// Returns the packet. Returns `None` if the event has no packet at the position.
    pub fn packet(&self) -> Option<&PacketIn> {
        match parts(&self.told.event).1.get(self.index)? {
            Event::PacketIn(packet) => Some(packet),
            _ => None,
        }
    }
}

/// Returns the events that one request has caused, with the origin of the request. If `event` does not result from a
/// request, returns this event with the origin [`Origin::NONE`].
pub(super) fn parts(event: &Event) -> (Origin, &[Event]) {
    match event {
        Event::Caused(origin, events) => (*origin, events),
        event => (Origin::NONE, std::slice::from_ref(event)),
    }
}

/// Queued packets of an input port, with their memory in octets.
struct PortQueue<T> {
    packets: VecDeque<(usize, T)>,
    octets: usize,
}

/// A packet-in scheduler. `T` represents a packet.
pub(super) struct PacketInScheduler<T> {
    /// Packets per second.
    rate: f64,
    /// Maximum number of tokens. A message to the peer takes one token.
    burst: f64,
    tokens: f64,
    /// Time at which `tokens` was computed.
    filled: Instant,
    /// Queues by input port. No queue is empty.
    queues: BTreeMap<u32, PortQueue<T>>,
    /// Number of packets and input port of each queue.
    lengths: BTreeSet<(usize, u32)>,
    /// Memory in octets and input port of each queue.
    sizes: BTreeSet<(usize, u32)>,
    /// Input ports with queued packets, in the order in which they are served.
    turns: VecDeque<u32>,
    /// Number of queued packets.
    count: usize,
    /// Maximum number of queued packets.
    most: usize,
    /// Memory of the queued packets in octets.
    octets: usize,
}

impl<T> PacketInScheduler<T> {
    /// Creates a scheduler without packets. `rate` is in packets per second, and `burst` is in packets.
    pub fn new((rate, burst): (u32, u32), now: Instant) -> PacketInScheduler<T> {
        let burst = burst.max(1);
        PacketInScheduler {
            rate: f64::from(rate),
            burst: f64::from(burst),
            tokens: f64::from(burst),
            filled: now,
            queues: BTreeMap::new(),
            lengths: BTreeSet::new(),
            sizes: BTreeSet::new(),
            turns: VecDeque::new(),
            count: 0,
            most: usize::try_from(burst).unwrap_or(usize::MAX),
            octets: 0,
        }
    }

    /// Queues a packet that uses `octets` octets of memory. The caller must then send the packets that may
    /// be sent ([`PacketInScheduler::next`]), and apply the limits ([`PacketInScheduler::trim`]).
    pub fn push(&mut self, port: u32, octets: usize, packet: T) {
        let queue = self.queues.entry(port).or_insert_with(|| {
            self.turns.push_back(port);
            PortQueue { packets: VecDeque::new(), octets: 0 }
        });
        self.lengths.remove(&(queue.packets.len(), port));
        self.sizes.remove(&(queue.octets, port));
        queue.packets.push_back((octets, packet));
        queue.octets += octets;
        self.lengths.insert((queue.packets.len(), port));
        self.sizes.insert((queue.octets, port));
        self.count += 1;
        self.octets += octets;
    }

    /// Removes the oldest packet of an input port. The caller must adjust `turns`.
    fn take(&mut self, port: u32) -> Option<T> {
        let queue = self.queues.get_mut(&port)?;
        self.lengths.remove(&(queue.packets.len(), port));
        self.sizes.remove(&(queue.octets, port));
        let (octets, packet) = queue.packets.pop_front()?;
        queue.octets -= octets;
        if queue.packets.is_empty() {
            self.queues.remove(&port);
        } else {
            self.lengths.insert((queue.packets.len(), port));
            self.sizes.insert((queue.octets, port));
        }
        self.count -= 1;
        self.octets -= octets;
        Some(packet)
    }

    /// Removes the next packet that may be sent at the time `now`. Returns `None` if no packet is queued, or if the
    /// rate limit does not permit another packet yet.
    pub fn next(&mut self, now: Instant) -> Option<T> {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.rate;
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + gained).min(self.burst);
        if self.tokens < 1.0 {
            return None;
        }
        let port = self.turns.pop_front()?;
        let packet = self.take(port)?;
        if self.queues.contains_key(&port) {
            self.turns.push_back(port);
        }
        self.tokens -= 1.0;
        Some(packet)
    }

    /// Drops packets of the longest queues until the limits are met. Returns the number of dropped packets.
    pub fn trim(&mut self) -> u64 {
        let mut dropped = 0;
        loop {
            let longest = match (self.octets > OCTETS, self.count > self.most) {
                (true, _) => self.sizes.last(),
                (false, true) => self.lengths.last(),
                (false, false) => None,
            };
            let Some((_, port)) = longest.copied() else { break };
            self.take(port);
            if !self.queues.contains_key(&port) {
                self.turns.retain(|other| *other != port);
            }
            dropped += 1;
        }
        dropped
    }

    /// Returns the time at which the next packet may be sent. Returns `None` if no packet is queued.
    pub fn due(&self) -> Option<Instant> {
        let wait = (1.0 - self.tokens).max(0.0) / self.rate;
        let wait = Duration::try_from_secs_f64(wait).ok().filter(|_| self.count > 0)?;
        self.filled.checked_add(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the packets that may be sent, applies the limits, and returns the ports and numbers of the sent packets.
    fn send(scheduler: &mut PacketInScheduler<(u32, u32)>, now: Instant) -> Vec<(u32, u32)> {
        let sent = std::iter::from_fn(|| scheduler.next(now)).collect();
        scheduler.trim();
        sent
    }

    /// Checks that a port that sends 50,000 packets per second does not cause the loss of packets from ports that send
    /// 10 and 300 packets per second, if the rate limit is 1,000 packets per second.
    #[test]
    fn a_flood_from_one_port_displaces_no_packets_of_others() {
        let began = Instant::now();
        let mut scheduler = PacketInScheduler::new((1000, 250), began);
        let mut sent = Vec::new();
        for ms in 0..2000 {
            let now = began + Duration::from_millis(ms.into());
            for number in 0..50 {
                scheduler.push(1, 600, (1, ms * 50 + number));
                sent.extend(send(&mut scheduler, now));
            }
            for (port, every) in [(2, 100), (3, 10)] {
                if ms % every == 0 {
                    (0..every.min(3)).for_each(|number| scheduler.push(port, 600, (port, ms + number)));
                    sent.extend(send(&mut scheduler, now));
                }
            }
            assert!(scheduler.count <= 250 && scheduler.queues.len() == scheduler.turns.len());
        }
        let of =
            |port| sent.iter().filter(|(of, _)| *of == port).map(|(_, number)| *number).collect::<Vec<_>>();
        assert_eq!((of(2).len(), of(3).len()), (60, 600), "no packet is lost or waits");
        assert!([1, 2, 3].into_iter().all(|port| of(port).is_sorted()), "packets of a port stay in order");
        assert!((2200..=2250).contains(&sent.len()), "the rate and the burst: {}", sent.len());
    }

    /// Checks that ports with equal numbers of queued packets get equal shares of the rate, whatever these numbers are.
    #[test]
    fn ports_are_served_in_turn() {
        let now = Instant::now();
        let mut scheduler = PacketInScheduler::new((1, 6), now);
        (0..6).for_each(|number| scheduler.push(9, 600, (9, number)));
        assert_eq!(send(&mut scheduler, now).len(), 6);
        assert_eq!(scheduler.due(), None, "no packet is queued");
        for number in 0..100 {
            (1..=3).for_each(|port| scheduler.push(port, 600, (port, number)));
            assert!(send(&mut scheduler, now).is_empty());
        }
        assert_eq!(scheduler.due(), Some(now + Duration::from_secs(1)));
        let later = now + Duration::from_secs(60);
        let mut sent = send(&mut scheduler, later);
        sent.sort_unstable();
        assert_eq!(sent, [(1, 98), (1, 99), (2, 98), (2, 99), (3, 98), (3, 99)], "the latest packets");
    }

    /// Checks that the queued packets never exceed the memory limit, even if the burst size permits more packets. The
    /// queue of each port keeps at least one packet.
    #[test]
    fn the_memory_of_queued_packets_is_bounded() {
        let now = Instant::now();
        let mut scheduler = PacketInScheduler::new((0, u32::MAX), now);
        scheduler.tokens = 0.0;
        scheduler.push(2, 60_000, (2, 0));
        for number in 0..1000 {
            scheduler.push(1, 60_000, (1, number));
            assert!(send(&mut scheduler, now).is_empty());
            assert!(scheduler.octets <= OCTETS);
        }
        assert_eq!((scheduler.count, scheduler.queues[&2].packets.len()), (OCTETS / 60_000, 1));
        assert_eq!(scheduler.due(), None, "the rate is 0");
        // Few large packets of a port do not displace many small packets of another port.
        let mut scheduler = PacketInScheduler::new((0, 1000), now);
        scheduler.tokens = 0.0;
        (0..100).for_each(|number| scheduler.push(2, 600, (2, number)));
        scheduler.push(7, OCTETS, (7, 0));
        assert_eq!((scheduler.trim(), scheduler.count), (1, 100));
        assert_eq!(scheduler.turns, [2]);
    }
}
