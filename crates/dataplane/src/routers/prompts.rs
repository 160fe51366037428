//! Selects the neighbours that a router reports to the kernel as used. The kernel then keeps their neighbour entries
//! reachable, or resolves missing Ethernet addresses. One round reports at most [`PROMPTS`] neighbours, gateways first.
//! If there are more neighbours, each round continues where the previous round ended.

use std::net::IpAddr;

/// Maximum number of neighbours that one round reports to the kernel as used.
const PROMPTS: usize = 512;
/// Number of reports in each round that are reserved for neighbours other than gateways.
const OF_OTHERS: usize = PROMPTS / 4;

/// A neighbour: the ifindex of its device, and its IP address.
type Key = (u32, IpAddr);

/// Positions at which the next round of reports continues: the gateway and the other neighbour that were last
/// reported to the kernel.
#[derive(Debug, Default)]
pub struct Prompts {
    gateways: Turn,
    others: Turn,
}

impl Prompts {
    /// Returns the neighbours to report to the kernel in this round, and records the position at which the next
    /// round continues.
    pub fn next(&mut self, gateways: Vec<Key>, others: Vec<Key>) -> Vec<Key> {
        let reserved = others.len().min(OF_OTHERS);
        let mut chosen = self.gateways.next(gateways, PROMPTS - reserved);
        let left = PROMPTS - chosen.len();
        chosen.extend(self.others.next(others, left));
        chosen
    }
}

/// The neighbour that was last reported to the kernel. `None` before the first round.
#[derive(Debug, Default)]
struct Turn(Option<Key>);

impl Turn {
    /// Returns the next `most` neighbours of `all`, in ascending order. The result starts after the neighbour that was
    /// reported last, and wraps around at the end of `all`.
    fn next(&mut self, mut all: Vec<Key>, most: usize) -> Vec<Key> {
        all.sort_unstable();
        let from = self.0.map_or(0, |last| all.partition_point(|key| *key <= last));
        all.rotate_left(from);
        all.truncate(most);
        self.0 = all.last().copied().or(self.0);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(device: u32, count: u32) -> Vec<Key> {
        (0..count).map(|at| (device, IpAddr::from((0x0a00_0000 + at).to_be_bytes()))).collect()
    }

    /// If there are more neighbours than one round can report, successive rounds report all neighbours. Gateways are
    /// reported before other neighbours.
    #[test]
    fn all_neighbours_have_their_turn() {
        let (gateways, others) = (keys(1, 600), keys(2, 1000));
        let mut prompts = Prompts::default();
        let mut seen = BTreeSet::new();
        for round in 1..=8 {
            let next = prompts.next(gateways.clone(), others.clone());
            assert_eq!(next.len(), PROMPTS);
            seen.extend(next);
            if round == 2 {
                assert!(gateways.iter().all(|key| seen.contains(key)), "{}", seen.len());
            }
        }
        assert_eq!(seen.len(), 1600);
    }

    #[test]
    fn few_are_told_of_each_time() {
        let mut prompts = Prompts::default();
        for _ in 0..3 {
            let next: BTreeSet<Key> = prompts.next(keys(1, 3), keys(2, 4)).into_iter().collect();
            assert_eq!(next.len(), 7);
        }
    }
}
