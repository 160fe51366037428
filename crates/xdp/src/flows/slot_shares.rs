//! Shares of the ingress ports in the slots of the table of cached flows.
//!
//! A port whose flow finds no free slot *claims* a slot of the port with the most flows, if that port has at least two
//! flows more. The port with the most flows then *owes* a slot, and one of its flows leaves the table. The slot is
//! reserved for the claiming port.
//!
//! Invariants:
//!
//! - After a claim, the port that owes the slot still has at least as many slots as the claiming port. Ports with
//!   constant demands therefore displace each other's flows only a limited number of times.
//! - All claims together are at most the free slots, the slots of removed flows, and the owed slots.
//! - A port owes at most as many slots as it has flows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which the claims of a port remain valid after the port's last request.
const RESERVED: Duration = Duration::from_secs(2);
/// Maximum number of claims of a port at a time. While the claimed slot is not free yet, a repeated request for the
/// same flow claims another slot. The limit therefore bounds the number of flows that leave the table unnecessarily.
const CLAIMS: usize = 64;
/// Minimum number of flows by which a port must exceed the port that claims one of its slots.
const RICHER: usize = 2;

/// Slots of one ingress port.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Number of flows in the table.
    flows: usize,
    /// Number of the port's flows that must leave the table, so that other ports get their slots.
    owed: usize,
    /// Number of slots that are reserved for the port.
    claims: usize,
    /// Time at which the claims expire.
    until: Instant,
}

impl Share {
    /// Returns the number of slots that the port may use: its flows without owed slots, plus its claims.
    fn held(&self) -> usize {
        self.flows - self.owed + self.claims
    }
}

/// Shares of all ingress ports that have flows in the table or claims.
#[derive(Debug, Default)]
pub(super) struct SlotShares {
    ports: BTreeMap<u16, Share>,
    /// Number of claims of all ports.
    claims: usize,
    /// Number of flows of all ports that must leave the table, so that other ports get their slots.
    owed: usize,
    /// Number of removed flows whose slots are not released yet.
    leaving: usize,
}

impl SlotShares {
    /// Returns whether a flow of a port may use one of the `free` free slots. Otherwise the port claims a slot, if the
    /// share of another port is large enough.
    pub fn request(&mut self, port: u16, free: usize, now: Instant) -> bool {
        self.expire(now);
        let share = self.ports.get(&port).copied();
        let (held, own) = share.map_or((0, 0), |share| (share.held(), share.claims));
        if free > self.claims - own {
            return true;
        }
        let is_owed = own < CLAIMS && (self.has_spare(free) || self.displace(held + RICHER));
        let claims = own + usize::from(is_owed);
        if claims > 0 {
            let share = self.ports.entry(port).or_insert(Share { flows: 0, owed: 0, claims: 0, until: now });
            (share.claims, share.until) = (claims, now + RESERVED);
            self.claims += usize::from(is_owed);
        }
        false
    }

    /// Returns whether more slots are free, or will become free, than ports have claimed.
    fn has_spare(&self, free: usize) -> bool {
        self.claims < free + self.leaving + self.owed
    }

    /// Makes the port with the most flows owe one more slot, if this port holds at least `needed` slots. Returns
    /// whether there is such a port.
    fn displace(&mut self, needed: usize) -> bool {
        let shares = self.ports.values_mut().filter(|share| share.flows > share.owed);
        let Some(richest) = shares.max_by_key(|share| share.held()).filter(|share| share.held() >= needed)
        else {
            return false;
        };
        richest.owed += 1;
        self.owed += 1;
        true
    }

    /// Removes the claims that have expired.
    fn expire(&mut self, now: Instant) {
        if self.claims == 0 {
            return;
        }
        for share in self.ports.values_mut().filter(|share| share.until <= now) {
            self.claims -= std::mem::take(&mut share.claims);
        }
        self.ports.retain(|_, share| share.flows > 0 || share.claims > 0);
    }

    /// Returns whether a port has flows that must leave the table for other ports.
    pub fn owes(&self, port: u16) -> bool {
        self.ports.get(&port).is_some_and(|share| share.owed > 0)
    }

    /// Records the insertion of a flow of a port.
    pub fn add(&mut self, port: u16, now: Instant) {
        let share = self.ports.entry(port).or_insert(Share { flows: 0, owed: 0, claims: 0, until: now });
        share.flows += 1;
        if share.claims > 0 {
            share.claims -= 1;
            self.claims -= 1;
        }
    }

    /// Records the removal of a flow of a port. The slot of the flow is not free yet.
    pub fn remove(&mut self, port: u16) {
        let Some(share) = self.ports.get_mut(&port) else { return };
        share.flows -= 1;
        self.leaving += 1;
        if share.owed > 0 {
            share.owed -= 1;
            self.owed -= 1;
        }
        if share.flows == 0 && share.claims == 0 {
            self.ports.remove(&port);
        }
    }

    /// Records the release of the slot of a removed flow.
    pub fn release(&mut self) {
        self.leaving -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOTS: usize = 32;
    /// Time between two rounds of the model. The slow path checks each megaflow once per round.
    const ROUND: Duration = Duration::from_millis(500);

    /// A naive model of the slow path, which inserts each warm flow and removes each displaced flow.
    struct Model {
        shares: SlotShares,
        now: Instant,
        /// Flows in the table: the ingress port, and the number of the flow among the flows of the port.
        inserted: Vec<(u16, usize)>,
        leaving: usize,
        displaced: usize,
    }

    impl Model {
        fn new() -> Model {
            let (shares, now) = (SlotShares::default(), Instant::now());
            Model { shares, now, inserted: Vec::new(), leaving: 0, displaced: 0 }
        }

        fn remove(&mut self, at: usize) {
            let (port, _) = self.inserted.swap_remove(at);
            self.shares.remove(port);
            self.leaving += 1;
        }

        /// Checks each flow once, in the order of `flows`. Flows that are not in `flows` are cold, and are removed.
        fn round(&mut self, flows: &[(u16, usize)]) {
            self.now += ROUND;
            (0..std::mem::take(&mut self.leaving)).for_each(|_| self.shares.release());
            for at in (0..self.inserted.len()).rev() {
                if !flows.contains(&self.inserted[at]) {
                    self.remove(at);
                }
            }
            for flow in flows {
                let free = SLOTS - self.inserted.len() - self.leaving;
                match self.inserted.iter().position(|own| own == flow) {
                    Some(at) if self.shares.owes(flow.0) => {
                        self.displaced += 1;
                        self.remove(at);
                    }
                    Some(_) => {}
                    None if self.shares.request(flow.0, free, self.now) => {
                        assert!(free > 0);
                        self.shares.add(flow.0, self.now);
                        self.inserted.push(*flow);
                    }
                    None => {}
                }
                self.check();
            }
        }

        /// Checks that the totals equal the sums over the shares of the ports, and that the shares agree with the
        /// inserted flows.
        fn check(&self) {
            let SlotShares { ports, claims, owed, leaving } = &self.shares;
            assert_eq!(ports.values().map(|share| share.claims).sum::<usize>(), *claims);
            assert_eq!(ports.values().map(|share| share.owed).sum::<usize>(), *owed);
            assert_eq!(*leaving, self.leaving);
            assert!(*claims <= SLOTS - self.inserted.len() + owed, "{:?}", self.shares);
            for (port, share) in ports {
                assert_eq!(share.flows, self.held(*port));
                assert!(share.owed <= share.flows && share.claims <= CLAIMS, "{share:?}");
            }
        }

        fn rounds(&mut self, demands: &[usize], rounds: usize) {
            let mut flows: Vec<(u16, usize)> =
                (0..).zip(demands).flat_map(|(port, many)| (0..*many).map(move |nth| (port, nth))).collect();
            for _ in 0..rounds {
                // The order of the visits differs from round to round.
                let many = flows.len().max(1);
                flows.rotate_left(7 % many);
                self.round(&flows);
            }
        }

        fn held(&self, port: u16) -> usize {
            self.inserted.iter().filter(|flow| flow.0 == port).count()
        }
    }

    /// Returns the number of slots of each port, sorted, if the slots are assigned one by one. Among the ports that
    /// still need a slot, the port with the fewest flows gets the next slot.
    fn assign(demands: &[usize]) -> Vec<usize> {
        let mut held = vec![0; demands.len()];
        for _ in 0..SLOTS {
            let ports = 0..demands.len();
            if let Some(poorest) = ports.filter(|at| held[*at] < demands[*at]).min_by_key(|at| held[*at]) {
                held[poorest] += 1;
            }
        }
        held.sort_unstable();
        held
    }

    /// Checks that a port that fills the table gives up slots for the flows of another port.
    #[test]
    fn one_port_fills_the_table_until_another_port_needs_a_slot() {
        let mut model = Model::new();
        model.rounds(&[100], 4);
        assert_eq!((model.held(0), model.displaced), (SLOTS, 0), "a port alone uses all");
        model.rounds(&[100, 1], 12);
        assert_eq!((model.held(0), model.held(1)), (SLOTS - 1, 1));
        assert!(model.displaced <= 3, "{} flows left for one", model.displaced);
        model.rounds(&[100], 12);
        assert_eq!(model.held(0), SLOTS);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that the numbers of slots of the ports equal those of a naive assignment, and then stay constant.
        #[test]
        fn shares_agree_with_a_naive_assignment(
            phases in prop::collection::vec(prop::collection::vec(0..40_usize, 1..8), 1..4),
        ) {
            let mut model = Model::new();
            for demands in phases {
                model.rounds(&demands, 60);
                let mut held: Vec<usize> =
                    (0_u16..).take(demands.len()).map(|port| model.held(port)).collect();
                held.sort_unstable();
                prop_assert_eq!(held, assign(&demands));
                let displaced = model.displaced;
                model.rounds(&demands, 20);
                prop_assert_eq!(model.displaced, displaced, "the shares still change");
            }
        }
    }
}
