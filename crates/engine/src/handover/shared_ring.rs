//! Sending end of a ring between two workers, whose places are shared among the arrival ports of the packets.
//!
//! The places that the packets of one port occupy may not exceed the number of free places. Therefore one port alone
//! can use at most half of the ring, two ports can use a third each, and another port always finds free places. A
//! packet of several frames occupies one place for every four frames, so that the ring also limits the frame memory
//! that the packets of one port occupy.
//!
//! Only the sending worker uses the counts. It reads the position of the receiving worker only when the counts show too
//! few free places, so a packet costs no access to shared memory in addition to the ring.

use std::collections::VecDeque;

use packet::PortId;
use sync::spsc::{Consumer, Producer, channel};

/// Number of frames of a packet that together occupy one place of the ring.
const FRAMES_EACH: u16 = 4;

/// Consecutive entries of the ring that have the same arrival port and each occupy the same number of places.
struct Run {
    port: PortId,
    /// Number of places that each entry occupies. The number is 0 for an entry without a packet.
    places: u32,
    entries: u32,
}

/// Sending end of a ring between two workers, with the number of places that the packets of each port occupy. See the
/// module documentation.
pub struct SharedRing<T> {
    ring: Producer<T>,
    /// Entries of the ring from the position `counted` on, oldest first.
    runs: VecDeque<Run>,
    /// Number of entries since the creation of the ring that the receiving worker has taken and whose places are
    /// counted as free.
    counted: u64,
    used: u32,
    /// For each port, the number of places that the port's packets occupy.
    used_by_port: Vec<u32>,
}

/// Creates a ring with `capacity` places, which must be a power of two. Returns its two ends.
#[must_use]
pub fn shared_ring<T: Send>(capacity: usize) -> (SharedRing<T>, Consumer<T>) {
    let (ring, consumer) = channel(capacity);
    let runs = VecDeque::with_capacity(capacity);
    (SharedRing { ring, runs, counted: 0, used: 0, used_by_port: Vec::new() }, consumer)
}

impl<T: Send> SharedRing<T> {
    /// Pushes an entry with a packet of `frames` frames that arrived on `port`.
    ///
    /// # Errors
    /// Returns the entry if the ring is full or the port's share of the ring is used up.
    #[inline]
    pub fn push(&mut self, port: PortId, frames: u16, entry: T) -> Result<(), T> {
        let places = u32::from(frames.div_ceil(FRAMES_EACH).max(1));
        if !self.has_places(port, places) && !self.has_places_now(port, places) {
            return Err(entry);
        }
        self.ring.push(entry)?;
        self.used += places;
        self.used_by_port[port.index()] += places;
        self.add(port, places);
        Ok(())
    }

    /// Pushes an entry without a packet. The entry counts for no port.
    ///
    /// # Errors
    /// Returns the entry if the ring is full.
    pub fn push_without_packet(&mut self, entry: T) -> Result<(), T> {
        self.count_taken();
        self.ring.push(entry)?;
        self.add(PortId(0), 0);
        Ok(())
    }

    /// Returns the number of entries pushed since the creation of the ring.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.ring.position()
    }

    /// Returns the number of entries that the receiving worker has taken since the creation of the ring.
    #[inline]
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.ring.consumed()
    }

    #[inline]
    fn has_places(&self, port: PortId, places: u32) -> bool {
        let free = u32::try_from(self.ring.capacity()).unwrap_or(u32::MAX) - self.used;
        self.used_by_port.get(port.index()).is_some_and(|own| own + places <= free)
    }

    /// Returns the result of [`Self::has_places`], after the places of the entries that the receiving worker has taken
    /// were released.
    #[cold]
    fn has_places_now(&mut self, port: PortId, places: u32) -> bool {
        if self.used_by_port.len() <= port.index() {
            self.used_by_port.resize(port.index() + 1, 0);
        }
        self.count_taken();
        self.has_places(port, places)
    }

    #[inline]
    fn add(&mut self, port: PortId, places: u32) {
        match self.runs.back_mut() {
            Some(run) if run.port == port && run.places == places => run.entries += 1,
            _ => self.runs.push_back(Run { port, places, entries: 1 }),
        }
    }

    /// Releases the places of the entries that the receiving worker has taken.
    fn count_taken(&mut self) {
        let mut taken = self.ring.consumed() - self.counted;
        self.counted += taken;
        while let Some(run) = self.runs.front_mut().filter(|_| taken > 0) {
            let entries = run.entries.min(u32::try_from(taken).unwrap_or(u32::MAX));
            taken -= u64::from(entries);
            run.entries -= entries;
            self.used -= entries * run.places;
            self.used_by_port
                .get_mut(run.port.index())
                .into_iter()
                .for_each(|own| *own -= entries * run.places);
            if run.entries == 0 {
                self.runs.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64;
    const ATTACKER: PortId = PortId(3);
    const VICTIM: PortId = PortId(1);

    fn pushed(ring: &mut SharedRing<u32>, port: PortId, frames: u16) -> usize {
        (0..1000).take_while(|entry| ring.push(port, frames, *entry).is_ok()).count()
    }

    #[test]
    fn a_port_that_fills_its_share_leaves_places_for_another_port() {
        let (mut ring, mut consumer) = shared_ring(CAPACITY);
        assert_eq!(pushed(&mut ring, ATTACKER, 1), CAPACITY / 2);
        assert_eq!(pushed(&mut ring, VICTIM, 1), CAPACITY / 4);
        assert_eq!(pushed(&mut ring, ATTACKER, 1), 0);
        assert_eq!(consumer.pop_burst(CAPACITY, |_| ()), CAPACITY / 2 + CAPACITY / 4);
        assert_eq!(pushed(&mut ring, ATTACKER, 1), CAPACITY / 2, "the places of taken entries are free");
    }

    #[test]
    fn a_packet_of_several_frames_occupies_several_places() {
        let (mut ring, mut consumer) = shared_ring(CAPACITY);
        assert_eq!(pushed(&mut ring, ATTACKER, 37), 3, "ten places each, of 32");
        assert_eq!(pushed(&mut ring, ATTACKER, 4), 2);
        assert!(ring.push_without_packet(0).is_ok());
        assert_eq!(consumer.pop_burst(2, |_| ()), 2);
        assert_eq!(pushed(&mut ring, ATTACKER, 37), 2);
        assert_eq!(consumer.pop_burst(CAPACITY, |_| ()), 6);
        assert_eq!(pushed(&mut ring, ATTACKER, 1), CAPACITY / 2);
    }

    /// Checks that the place counts of the ring are equal to counts that are computed from a plain list of the ring's
    /// entries.
    #[test]
    fn the_counts_are_those_of_the_entries_in_the_ring() {
        let (mut ring, mut consumer) = shared_ring(CAPACITY);
        let mut list: VecDeque<(PortId, u32)> = VecDeque::new();
        let mut state = 7_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let port = PortId(u16::try_from((state >> 28) % 4).unwrap());
            let frames = u16::try_from((state >> 20) % 40 + 1).unwrap();
            let frames = if state & 0x10_0000 == 0 { 1 } else { frames };
            if (state >> 16) & 3 == 0 {
                let mut taken = 0;
                consumer.pop_burst(usize::try_from((state >> 8) % 8).unwrap(), |_| taken += 1);
                list.drain(..taken);
                continue;
            }
            let places = u32::from(frames.div_ceil(FRAMES_EACH));
            let used: u32 = list.iter().map(|entry| entry.1).sum();
            let own: u32 = list.iter().filter(|entry| entry.0 == port).map(|entry| entry.1).sum();
            let fits = own + places <= u32::try_from(CAPACITY).unwrap() - used;
            assert_eq!(ring.push(port, frames, 0).is_ok(), fits);
            if fits {
                list.push_back((port, places));
            }
        }
    }
}
