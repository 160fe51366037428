//! Order in which a router reports used or needed neighbours to the kernel: at most [`PROMPTS`] a turn,
//! gateways first, round robin.

use std::net::IpAddr;

/// Maximum number of neighbours that one turn reports to the kernel.
const PROMPTS: usize = 512;
/// Part of [`PROMPTS`] that is reserved for neighbours that are not gateways.
const OF_OTHERS: usize = PROMPTS / 4;

/// A neighbour: the ifindex of its device, and its IP address.
type Key = (u32, IpAddr);

/// Positions of the round robin among gateways and among other neighbours.
#[derive(Debug, Default)]
pub struct Prompts {
    gateways: Turn,
    others: Turn,
}

impl Prompts {
    /// Returns the neighbours whose turn it is.
    pub fn next(&mut self, gateways: Vec<Key>, others: Vec<Key>) -> Vec<Key> {
        let reserved = others.len().min(OF_OTHERS);
        let mut chosen = self.gateways.next(gateways, PROMPTS - reserved);
        let left = PROMPTS - chosen.len();
        chosen.extend(self.others.next(others, left));
        chosen
    }
}

/// Last neighbour that had its turn.
#[derive(Debug, Default)]
struct Turn(Option<Key>);

impl Turn {
    /// Returns the next `most` neighbours of `all` in order, starting after the last that had its turn, and
    /// wrapping around.
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

    /// If there are more neighbours than fit in one turn, all have their turn, and gateways have theirs
    /// sooner.
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
