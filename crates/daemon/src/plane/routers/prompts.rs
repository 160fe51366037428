//! Which neighbours the kernel is told of as used, or asked for, in one go: gateways first, others in turn.

use std::net::IpAddr;

/// Neighbours in one go.
const PROMPTS: usize = 512;
/// Places of them that gateways leave to others, however many gateways there are.
const OF_OTHERS: usize = PROMPTS / 4;

/// The index of a device, and a neighbour's address behind it.
type Key = (u32, IpAddr);

/// Whose turn it is, of each kind.
#[derive(Debug, Default)]
pub struct Prompts {
    gateways: Turn,
    others: Turn,
}

impl Prompts {
    /// The next ones of those that are to be told of.
    pub fn next(&mut self, gateways: Vec<Key>, others: Vec<Key>) -> Vec<Key> {
        let reserved = others.len().min(OF_OTHERS);
        let mut chosen = self.gateways.next(gateways, PROMPTS - reserved);
        let left = PROMPTS - chosen.len();
        chosen.extend(self.others.next(others, left));
        chosen
    }
}

/// The last one that has had its turn.
#[derive(Debug, Default)]
struct Turn(Option<Key>);

impl Turn {
    /// So many of `all` that follow the last one in order, the first following the last.
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

    /// More neighbours than fit in one go all have their turn, gateways sooner.
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
