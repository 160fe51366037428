//! What each port may have of a worker's cache: so many masks, and a share of the flows.
//!
//! A packet that no flow matches was asked against every mask of its port. Whoever knows an access list can send one packet for each
//! combination of bits at which an address, a port and another differ from it, and each leaves a mask (L. Csikor et al., "Tuple Space Explosion: A
//! Denial-of-Service Attack Against a Software Packet Classifier", CoNEXT 2019). So a port has [`MASKS`]. What is beyond them is cached with every bit
//! of its packet, under one mask for all such flows: one probe more, and long flows are as quick as ever. A mask that serves few
//! packets gives its place to one that is asked for more often, so that who came first does not keep the others out.
//!
//! Flows up to the limit are whoever's they are; the quarter above it is for ports that have less than their share, and at the limit silent flows of
//! ports that have more go soon.

use std::collections::HashMap;

use packet::PortId;
use switch::flow::{Flow, packet_and_beyond_bits, packet_bits};

/// Different masks of one port in one worker's cache, those of every bit aside.
pub(super) const MASKS: usize = 64;
/// Masks that were not let in and are counted.
const ASKED: usize = 1024;
/// A mask goes when another one is asked for by so many times as many packets as it served.
const OUTDONE: u64 = 2;
/// How often one has to be asked for, to be worth it.
const WORTH: u64 = 16;

/// A mask that flows have.
#[derive(Default)]
struct Mask {
    flows: u32,
    /// Packets that it served, those of long ago counting less.
    earned: u64,
    /// Its flows are to go.
    outdone: bool,
}

/// What flows of a port have in a worker's cache.
#[derive(Default)]
struct Port {
    flows: usize,
    /// By their hashes.
    masks: HashMap<u64, Mask>,
    /// Masks that were not let in since the last turn, with how often they were asked for.
    asked: HashMap<u64, u64>,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Budgets {
    ports: HashMap<(usize, PortId), Port>,
    /// There are masks that are to go.
    outdone: bool,
}

impl Budgets {
    /// Whether a flow of this port may be kept, when there are so many in all.
    pub fn has_room(&self, worker: usize, port: PortId, all: usize, limit: usize) -> bool {
        all < limit || all < limit + limit / 4 && !self.is_over_share(worker, port, limit)
    }

    /// Whether a port has more flows than it may have while there is no room for others.
    pub fn is_over_share(&self, worker: usize, port: PortId, limit: usize) -> bool {
        let own = self.ports.get(&(worker, port)).map_or(0, |port| port.flows);
        own >= limit / (self.ports.len() + 1)
    }

    /// Whether a flow of a port may have a mask of its own kind, by the mask's hash.
    pub fn admits(&mut self, worker: usize, port: PortId, mask: u64) -> bool {
        let Some(port) = self.ports.get_mut(&(worker, port)) else { return true };
        match port.masks.get(&mask) {
            Some(known) if !known.outdone => return true,
            None if port.masks.len() < MASKS => return true,
            _ => {}
        }
        if port.asked.len() < ASKED || port.asked.contains_key(&mask) {
            *port.asked.entry(mask).or_default() += 1;
        }
        false
    }

    /// A flow is given out.
    pub fn add(&mut self, worker: usize, port: PortId, mask: u64) {
        let port = self.ports.entry((worker, port)).or_default();
        port.flows += 1;
        let mask = port.masks.entry(mask).or_default();
        mask.flows += 1;
        // The packet that it was made for.
        mask.earned += 1;
    }

    /// A flow is gone.
    pub fn remove(&mut self, worker: usize, port: PortId, mask: u64) {
        let Some(own) = self.ports.get_mut(&(worker, port)) else { return };
        own.flows -= 1;
        if let Some(known) = own.masks.get_mut(&mask) {
            known.flows -= 1;
            if known.flows == 0 {
                own.masks.remove(&mask);
            }
        }
        if own.flows == 0 {
            self.ports.remove(&(worker, port));
        }
    }

    /// A flow has served packets.
    pub fn earn(&mut self, worker: usize, port: PortId, mask: u64, packets: u64) {
        let port = self.ports.get_mut(&(worker, port));
        if let Some(mask) = port.and_then(|port| port.masks.get_mut(&mask)) {
            mask.earned += packets;
        }
    }

    /// Whether flows of this mask are to make room for another's.
    pub fn is_outdone(&self, worker: usize, port: PortId, mask: u64) -> bool {
        self.outdone
            && self
                .ports
                .get(&(worker, port))
                .and_then(|port| port.masks.get(&mask))
                .is_some_and(|mask| mask.outdone)
    }

    /// Now and then: which masks have not earned what others would have.
    pub fn turn(&mut self, every_bit: [u64; 2]) {
        self.outdone = false;
        for port in self.ports.values_mut() {
            let mut asked: Vec<u64> = port.asked.drain().map(|(_, count)| count).collect();
            asked.sort_unstable_by(|one, other| other.cmp(one));
            let kept = |(hash, mask): &(&u64, &mut Mask)| !every_bit.contains(hash) && !mask.outdone;
            let mut masks: Vec<&mut Mask> =
                port.masks.iter_mut().filter(kept).map(|(_, mask)| mask).collect();
            masks.sort_unstable_by_key(|mask| mask.earned);
            for (mask, asked) in masks.iter_mut().zip(asked) {
                if asked < WORTH || asked / OUTDONE <= mask.earned {
                    break;
                }
                mask.outdone = true;
            }
            for mask in port.masks.values_mut() {
                mask.earned /= 2;
                self.outdone |= mask.outdone;
            }
        }
    }
}

/// Every bit of a packet, and of what stands beyond its key where the fate depends on any of that: two masks for all flows.
pub(super) fn every_bit(mask: &Flow) -> Flow {
    let is_beyond = mask.beyond().0.iter().any(|word| *word != 0);
    if is_beyond { packet_and_beyond_bits() } else { packet_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(4);
    const EVERY_BIT: [u64; 2] = [u64::MAX, u64::MAX - 1];

    fn full() -> Budgets {
        let mut budgets = Budgets::default();
        for mask in 0..MASKS as u64 {
            assert!(budgets.admits(0, PORT, mask));
            budgets.add(0, PORT, mask);
        }
        budgets
    }

    #[test]
    fn a_port_has_so_many_masks_and_others_have_theirs() {
        let mut budgets = full();
        assert!(budgets.admits(0, PORT, 3) && !budgets.admits(0, PORT, 1000));
        assert!(budgets.admits(0, PortId(5), 1000) && budgets.admits(1, PORT, 1000));
        budgets.add(0, PORT, EVERY_BIT[0]);
        budgets.remove(0, PORT, 3);
        assert!(!budgets.admits(0, PORT, 1000), "that of every bit has its place as well");
        budgets.remove(0, PORT, 4);
        assert!(budgets.admits(0, PORT, 1000));
        for mask in (0..MASKS as u64).filter(|mask| !matches!(mask, 3 | 4)).chain([EVERY_BIT[0]]) {
            budgets.remove(0, PORT, mask);
        }
        assert!(budgets.ports.is_empty());
    }

    #[test]
    fn a_mask_that_serves_nobody_gives_its_place_to_one_that_is_asked_for() {
        let mut budgets = full();
        for mask in 1..MASKS as u64 {
            budgets.earn(0, PORT, mask, 1000);
        }
        for _ in 0..WORTH - 1 {
            assert!(!budgets.admits(0, PORT, 1000));
        }
        budgets.turn(EVERY_BIT);
        assert!(!budgets.is_outdone(0, PORT, 0), "not for a few packets");
        for _ in 0..100 {
            budgets.admits(0, PORT, 1000);
        }
        budgets.turn(EVERY_BIT);
        assert!((1..MASKS as u64).all(|mask| !budgets.is_outdone(0, PORT, mask)));
        assert!(budgets.is_outdone(0, PORT, 0) && !budgets.admits(0, PORT, 0));
        budgets.remove(0, PORT, 0);
        assert!(budgets.admits(0, PORT, 1000));
        budgets.add(0, PORT, 1000);
        // What was of old does not count for ever.
        for _ in 0..20 {
            budgets.turn(EVERY_BIT);
        }
        for _ in 0..100 {
            budgets.admits(0, PORT, 2000);
        }
        budgets.turn(EVERY_BIT);
        assert_eq!((1..=1000).filter(|mask| budgets.is_outdone(0, PORT, *mask)).count(), 1);
    }

    #[test]
    fn what_is_asked_for_is_remembered_within_bounds() {
        let mut budgets = full();
        for mask in 0..100_000 {
            budgets.admits(0, PORT, 1000 + mask);
        }
        assert_eq!(budgets.ports[&(0, PORT)].asked.len(), ASKED);
    }

    #[test]
    fn the_last_quarter_is_for_those_who_have_little() {
        let mut budgets = Budgets::default();
        (0..100).for_each(|_| budgets.add(0, PORT, 7));
        assert!(budgets.has_room(0, PORT, 99, 100) && !budgets.has_room(0, PORT, 100, 100));
        let other = PortId(5);
        assert!(budgets.has_room(0, other, 100, 100));
        (0..32).for_each(|_| budgets.add(0, other, 7));
        assert!(budgets.has_room(0, other, 124, 100) && !budgets.has_room(0, other, 125, 100));
        budgets.add(0, other, 7);
        assert!(!budgets.has_room(0, other, 101, 100), "a third each, and one for who comes next");
        assert!(budgets.is_over_share(0, PORT, 100) && !budgets.is_over_share(0, PortId(6), 100));
    }
}
