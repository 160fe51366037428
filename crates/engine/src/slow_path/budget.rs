//! Per-port limits in a worker's flow cache: the number of distinct masks, and a share of the megaflows.
//!
//! A packet that matches no megaflow is looked up with every mask of its port. An attacker that knows an access list
//! can send one packet for each combination of address and port bits in which packets can differ from the list's
//! entries. Each such packet adds a mask (L. Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against
//! a Software Packet Classifier", CoNEXT 2019).
//!
//! A port therefore has at most [`MASKS`] distinct masks. Megaflows that would need more masks are installed with one
//! shared exact-match mask. The shared mask adds one probe to a lookup, and packets of long connections are forwarded
//! as fast as before. A mask whose megaflows match few packets is replaced by a mask that new megaflows need more
//! often. Therefore the first masks of a port do not block later masks.
//!
//! While there are fewer megaflows than the current flow limit, every port may add megaflows. Above the limit there is
//! a reserve of a quarter of the limit, or more if the configured limit is higher. Only ports that have fewer megaflows
//! than their share of the limit may use the reserve. When the limit is reached, idle megaflows of ports that exceed
//! their share are removed after a short time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use packet::PortId;
use switch::flow::{Flow, packet_and_beyond_bits, packet_bits};

use crate::flows::UpcallPorts;

/// Maximum number of distinct masks for one port in one worker's cache, without the exact-match masks.
pub(super) const MASKS: usize = 64;
/// Maximum number of rejected masks (masks beyond the limit [`MASKS`]) of one port for which requests are counted. A
/// request is a new megaflow that needs the mask.
const ASKED: usize = 1024;
/// Factor for the replacement of a mask. A rejected mask replaces an installed mask if the number of its requests
/// exceeds this factor times the number of packets that the installed mask has matched.
const OUTDONE: u64 = 2;
/// Minimum of a port's share of the flow limit, in megaflows. The share does not fall below this minimum when
/// the current flow limit is lowered below the configured limit.
const FLOOR: usize = 256;
/// Minimum number of requests that a rejected mask must have to replace an installed mask.
const WORTH: u64 = 16;

/// Limits of the total number of megaflows of all ports.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Current limit, which is lowered so that revalidation can process all megaflows in time.
    pub now: usize,
    /// Configured limit, which is the upper bound of the current limit.
    pub most: usize,
}

/// Usage of one mask by the installed megaflows of a port.
#[derive(Default)]
struct Mask {
    flows: u32,
    /// Number of packets that the megaflows with this mask have matched. The number is halved at each
    /// evaluation of the masks.
    earned: u64,
    /// Whether the megaflows with this mask are to be removed, so that another mask can be installed.
    outdone: bool,
}

/// Masks of one port in one worker's cache.
#[derive(Default)]
struct Port {
    /// Masks of the installed megaflows. The key is the hash of the mask.
    masks: HashMap<u64, Mask>,
    /// Number of requests for each mask that was rejected since the last evaluation because of the
    /// limit [`MASKS`]. A request is a new megaflow that needs the mask. The key is the hash of the
    /// mask.
    asked: HashMap<u64, u64>,
}

/// Megaflows, masks and limits of each port in each worker's cache. See the [module](self)
/// documentation.
#[derive(Default)]
pub(super) struct Budgets {
    ports: HashMap<(usize, PortId), Port>,
    /// Number of megaflows of each port on which packets are received, in each worker's cache.
    flows: HashMap<(usize, PortId), usize>,
    /// Whether any mask of any port is to be replaced.
    outdone: bool,
}

impl Budgets {
    /// Returns whether another megaflow may be installed in the worker's cache for packets received on this port. `all`
    /// is the number of installed megaflows of all ports.
    pub fn has_room(&self, worker: usize, ingress: PortId, all: usize, limit: Limit) -> bool {
        let now = limit.now;
        all < now || all < (now + now / 4).max(limit.most) && !self.is_over_share(worker, ingress, all, limit)
    }

    /// Returns whether the packets received on a port have at least as many megaflows as the port's share of the flow
    /// limit. `all` is the number of installed megaflows of all ports.
    pub fn is_over_share(&self, worker: usize, ingress: PortId, all: usize, limit: Limit) -> bool {
        let own = self.flows.get(&(worker, ingress)).copied().unwrap_or(0);
        let floor = if all < limit.most { FLOOR } else { 0 };
        own >= (limit.now / (self.flows.len() + 1)).max(floor)
    }

    /// Returns whether a new megaflow of a port may use the mask with hash `mask`. If not, the function counts a
    /// request for the rejected mask.
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

    /// Records that a megaflow was installed with the mask whose hash is `mask`.
    pub fn add(&mut self, worker: usize, ports: UpcallPorts, mask: u64) {
        *self.flows.entry((worker, ports.ingress)).or_default() += 1;
        let port = self.ports.entry((worker, ports.port)).or_default();
        let mask = port.masks.entry(mask).or_default();
        mask.flows += 1;
        // The packet that caused the upcall counts.
        mask.earned += 1;
    }

    /// Records that a megaflow was removed.
    pub fn remove(&mut self, worker: usize, ports: UpcallPorts, mask: u64) {
        if let Entry::Occupied(mut own) = self.flows.entry((worker, ports.ingress)) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        let Entry::Occupied(mut port) = self.ports.entry((worker, ports.port)) else { return };
        let masks = &mut port.get_mut().masks;
        if let Some(known) = masks.get_mut(&mask) {
            known.flows -= 1;
            if known.flows == 0 {
                masks.remove(&mask);
            }
        }
        if masks.is_empty() {
            port.remove();
        }
    }

    /// Adds packets that a megaflow has matched to the packet count of its mask.
    pub fn earn(&mut self, worker: usize, port: PortId, mask: u64, packets: u64) {
        let port = self.ports.get_mut(&(worker, port));
        if let Some(mask) = port.and_then(|port| port.masks.get_mut(&mask)) {
            mask.earned += packets;
        }
    }

    /// Returns whether the megaflows with this mask are to be removed, so that another mask can be installed.
    pub fn is_outdone(&self, worker: usize, port: PortId, mask: u64) -> bool {
        self.outdone
            && self
                .ports
                .get(&(worker, port))
                .and_then(|port| port.masks.get(&mask))
                .is_some_and(|mask| mask.outdone)
    }

    /// Selects the installed masks to replace. A mask is selected if the requests for a rejected
    /// mask exceed `OUTDONE` times the number of packets that the installed mask has matched. The
    /// function is called at regular intervals.
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

/// Returns the exact-match mask that replaces `mask`. If `mask` contains any bit of the extended key, the result
/// includes the extended key.
pub(super) fn every_bit(mask: &Flow) -> Flow {
    let is_beyond = mask.extended().0.iter().any(|word| *word != 0);
    if is_beyond { packet_and_beyond_bits() } else { packet_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(4);
    const EVERY_BIT: [u64; 2] = [u64::MAX, u64::MAX - 1];

    /// Returns the ports of a megaflow whose packets have passed no patch port.
    fn direct(port: PortId) -> UpcallPorts {
        UpcallPorts { port, ingress: port }
    }

    fn full() -> Budgets {
        let mut budgets = Budgets::default();
        for mask in 0..MASKS as u64 {
            assert!(budgets.admits(0, PORT, mask));
            budgets.add(0, direct(PORT), mask);
        }
        budgets
    }

    #[test]
    fn a_port_has_so_many_masks_and_others_have_theirs() {
        let mut budgets = full();
        assert!(budgets.admits(0, PORT, 3) && !budgets.admits(0, PORT, 1000));
        assert!(budgets.admits(0, PortId(5), 1000) && budgets.admits(1, PORT, 1000));
        budgets.add(0, direct(PORT), EVERY_BIT[0]);
        budgets.remove(0, direct(PORT), 3);
        assert!(!budgets.admits(0, PORT, 1000), "that of every bit has its place as well");
        budgets.remove(0, direct(PORT), 4);
        assert!(budgets.admits(0, PORT, 1000));
        for mask in (0..MASKS as u64).filter(|mask| !matches!(mask, 3 | 4)).chain([EVERY_BIT[0]]) {
            budgets.remove(0, direct(PORT), mask);
        }
        assert!(budgets.ports.is_empty() && budgets.flows.is_empty());
    }

    /// Checks that ports whose packets arrive on the same patch port have shares of their own, and share the masks of
    /// the patch port.
    #[test]
    fn ports_behind_a_patch_port_have_their_own_shares() {
        const LIMIT: Limit = Limit { now: 100, most: 100 };
        let (mut budgets, other) = (Budgets::default(), PortId(5));
        (0..100).for_each(|mask| budgets.add(0, UpcallPorts { port: PORT, ingress: PortId(6) }, mask % 64));
        assert!(!budgets.has_room(0, PortId(6), 100, LIMIT) && budgets.has_room(0, other, 100, LIMIT));
        assert!(!budgets.admits(0, PORT, 64) && budgets.admits(0, PortId(6), 64));
        budgets.add(0, UpcallPorts { port: PORT, ingress: other }, 1);
        assert!(budgets.has_room(0, other, 101, LIMIT));
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
        budgets.remove(0, direct(PORT), 0);
        assert!(budgets.admits(0, PORT, 1000));
        budgets.add(0, direct(PORT), 1000);
        // Packets of long ago lose their weight.
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
        const LIMIT: Limit = Limit { now: 100, most: 100 };
        let mut budgets = Budgets::default();
        (0..100).for_each(|_| budgets.add(0, direct(PORT), 7));
        assert!(budgets.has_room(0, PORT, 99, LIMIT) && !budgets.has_room(0, PORT, 100, LIMIT));
        let other = PortId(5);
        assert!(budgets.has_room(0, other, 100, LIMIT));
        (0..32).for_each(|_| budgets.add(0, direct(other), 7));
        assert!(budgets.has_room(0, other, 124, LIMIT) && !budgets.has_room(0, other, 125, LIMIT));
        budgets.add(0, direct(other), 7);
        assert!(!budgets.has_room(0, other, 101, LIMIT), "a third each, and one for who comes next");
        assert!(
            budgets.is_over_share(0, PORT, 101, LIMIT) && !budgets.is_over_share(0, PortId(6), 101, LIMIT)
        );
    }

    /// Checks that each port may install some megaflows, up to the configured limit, after slow revalidation of one
    /// port's megaflows has lowered the current limit.
    #[test]
    fn a_port_keeps_a_floor_of_flows_when_the_limit_falls() {
        let mut budgets = Budgets::default();
        (0..5000).for_each(|_| budgets.add(0, direct(PORT), 7));
        let other = PortId(5);
        let lowered = Limit { now: 1000, most: 200_000 };
        let kept = (0..1000).take_while(|own| {
            let room = budgets.has_room(0, other, 5000 + own, lowered);
            if room {
                budgets.add(0, direct(other), 7);
            }
            room
        });
        let kept = kept.count();
        assert!(kept >= FLOOR, "{kept}");
        for number in 0..100 {
            budgets.add(0, direct(PortId(100 + number)), 7);
        }
        let (few, third) = (PortId(100), PortId(99));
        (1..FLOOR).for_each(|_| budgets.add(0, direct(few), 7));
        assert!(
            budgets.is_over_share(0, few, 6000, lowered) && !budgets.is_over_share(0, third, 6000, lowered)
        );
        assert!(budgets.has_room(0, third, 6000, lowered) && !budgets.has_room(0, PORT, 6000, lowered));
        // All ports together may not exceed the configured limit plus the reserve of a quarter of this limit.
        let configured = Limit { now: 1000, most: 1000 };
        assert!(!budgets.has_room(0, third, 1250, configured));
    }
}
