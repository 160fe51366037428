//! Compact ordered map from IP prefixes to next hops. The map uses seven bytes per IPv4 prefix and eleven bytes per
//! IPv6 prefix up to /64, plus some free space.
//!
//! ```text
//!   firsts   0.0.0.0/0   10.3.0.0/16   172.16.0.0/12  ...      first search: for the leaf
//!               |             |              |
//!   leaves   addresses, lengths, hops: up to 256 of each       second search: in the leaf
//! ```

use crate::prefix::{Address, Prefix};
use crate::trie::Hop;

/// Maximum number of prefixes in a leaf. This maximum limits the cost of an insertion, which moves all later entries
/// of the leaf.
const MOST: usize = 256;
/// Number of entries by which the memory of a leaf grows. The memory is not doubled, in order to save space.
const STEP: usize = 32;

/// Ordered map from prefixes to next hops. See the module documentation.
pub struct Routes<A: Address> {
    /// First prefix of each leaf, in the order of the leaves.
    firsts: Vec<Prefix<A>>,
    /// Leaves in the order of their prefixes. No leaf is empty.
    leaves: Vec<Leaf<A>>,
    len: usize,
}

/// A leaf of the map: up to [`MOST`] prefixes with their next hops, stored in columns. Separate columns avoid padding
/// between numbers of different widths.
struct Leaf<A: Address> {
    /// Upper part of each address. The lower parts are in `lowers`, and are empty for IPv4 addresses.
    uppers: Vec<A::Upper>,
    lowers: Seldom<A::Lower>,
    lengths: Vec<u8>,
    /// Lower 16 bits of each next hop. The upper 16 bits are in `beyond`.
    hops: Vec<u16>,
    beyond: Seldom<u16>,
}

/// A column of values that are usually all zero. While all values are zero, the column uses no memory.
struct Seldom<T>(Vec<T>);

impl<A: Address> Routes<A> {
    pub fn new() -> Routes<A> {
        Routes { firsts: Vec::new(), leaves: Vec::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, prefix: &Prefix<A>) -> Option<Hop> {
        let leaf = self.leaves.get(self.leaf_of(prefix))?;
        Some(leaf.hop(leaf.find(prefix).ok()?))
    }

    /// Inserts a prefix with a next hop, or changes the next hop of a prefix. Returns the previous next hop,
    /// or `None` if the prefix is new.
    pub fn insert(&mut self, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        let at = self.leaf_of(&prefix);
        let Some(leaf) = self.leaves.get_mut(at) else {
            self.grow(0, Leaf::one(prefix, hop));
            return None;
        };
        let place = match leaf.find(&prefix) {
            Ok(place) => return Some(leaf.lead(place, hop)),
            Err(place) => place,
        };
        if leaf.len() < MOST {
            leaf.insert(place, prefix, hop);
            self.len += 1;
            self.name(at);
            return None;
        }
        if place < MOST {
            let behind = leaf.split();
            self.grow(at + 1, behind);
            self.len -= self.leaves.get(at + 1).map_or(0, Leaf::len);
            return self.insert(prefix, hop);
        }
        // The new prefix is put in the next leaf. If prefixes are inserted in ascending order, all leaves before the
        // last one therefore stay full.
        match self.leaves.get_mut(at + 1).filter(|next| next.len() < MOST) {
            Some(next) => {
                next.insert(0, prefix, hop);
                self.len += 1;
                self.name(at + 1);
            }
            None => self.grow(at + 1, Leaf::one(prefix, hop)),
        }
        None
    }

    /// Removes a prefix and returns its next hop. Returns `None` if the map does not contain the prefix.
    pub fn remove(&mut self, prefix: &Prefix<A>) -> Option<Hop> {
        let at = self.leaf_of(prefix);
        let leaf = self.leaves.get_mut(at)?;
        let hop = leaf.remove(leaf.find(prefix).ok()?);
        self.len -= 1;
        let left = leaf.len();
        if left == 0 {
            self.leaves.remove(at);
            self.firsts.remove(at);
            return Some(hop);
        }
        self.name(at);
        // Two leaves that together hold at most half of the maximum are merged.
        let is_small = |at: usize| {
            self.leaves.get(at..at + 2).is_some_and(|two| two[0].len() + two[1].len() <= MOST / 2)
        };
        let first = [Some(at), at.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|first| left < MOST / 4 && is_small(*first));
        if let Some(first) = first {
            let next = self.leaves.remove(first + 1);
            self.firsts.remove(first + 1);
            if let Some(leaf) = self.leaves.get_mut(first) {
                leaf.append(next);
            }
        }
        Some(hop)
    }

    /// Returns an iterator over all prefixes and their next hops, ordered by address and then by length.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, Hop)> + '_ {
        self.leaves.iter().flat_map(|leaf| leaf.from(0))
    }

    /// Returns an iterator over the prefixes from `first` to `last` inclusive and their next hops, ordered by address
    /// and then by length.
    pub fn range(&self, first: Prefix<A>, last: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, Hop)> + '_ {
        let at = self.leaf_of(&first);
        let skipped = self.leaves.get(at).map_or(0, |leaf| leaf.find(&first).unwrap_or_else(|place| place));
        let leaves = self.leaves.iter().skip(at).zip(std::iter::once(skipped).chain(std::iter::repeat(0)));
        leaves.flat_map(|(leaf, skipped)| leaf.from(skipped)).take_while(move |(prefix, _)| *prefix <= last)
    }

    /// Returns the index of the leaf that would hold a prefix.
    fn leaf_of(&self, prefix: &Prefix<A>) -> usize {
        self.firsts.partition_point(|first| first <= prefix).saturating_sub(1)
    }

    fn grow(&mut self, at: usize, leaf: Leaf<A>) {
        if let Some(first) = leaf.first() {
            self.len += leaf.len();
            self.firsts.insert(at, first);
            self.leaves.insert(at, leaf);
        }
    }

    /// Updates the entry in `firsts` for the leaf with the index `at`, whose first prefix may have changed.
    fn name(&mut self, at: usize) {
        if let Some((name, leaf)) = self.firsts.get_mut(at).zip(self.leaves.get(at))
            && let Some(first) = leaf.first()
        {
            *name = first;
        }
    }
}

impl<A: Address> Leaf<A> {
    fn one(prefix: Prefix<A>, hop: Hop) -> Leaf<A> {
        let mut leaf = Leaf {
            uppers: Vec::new(),
            lowers: Seldom(Vec::new()),
            lengths: Vec::new(),
            hops: Vec::new(),
            beyond: Seldom(Vec::new()),
        };
        leaf.insert(0, prefix, hop);
        leaf
    }

    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn key(&self, place: usize) -> Option<(A, u8)> {
        let address = A::joined(*self.uppers.get(place)?, self.lowers.get(place));
        Some((address, *self.lengths.get(place)?))
    }

    fn hop(&self, place: usize) -> Hop {
        let low = self.hops.get(place).copied().unwrap_or_default();
        Hop(u32::from(low) | u32::from(self.beyond.get(place)) << 16)
    }

    fn first(&self) -> Option<Prefix<A>> {
        self.key(0).map(|(address, length)| Prefix::new(address, length))
    }

    /// Returns the position of a prefix in the leaf. If the leaf does not contain the prefix, returns as an
    /// error the position of the next greater prefix.
    fn find(&self, prefix: &Prefix<A>) -> Result<usize, usize> {
        let wanted = (prefix.address(), prefix.length());
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.key(middle) {
                Some(key) if key < wanted => from = middle + 1,
                _ => to = middle,
            }
        }
        if self.key(from) == Some(wanted) { Ok(from) } else { Err(from) }
    }

    /// Returns an iterator over the prefixes of the leaf from the position `place` on.
    fn from(&self, place: usize) -> impl Iterator<Item = (Prefix<A>, Hop)> + '_ {
        let keyed = (place..).map_while(|place| Some((place, self.key(place)?)));
        keyed.map(|(place, (address, length))| (Prefix::new(address, length), self.hop(place)))
    }

    /// Sets the next hop of the prefix at a position. Returns the previous next hop.
    fn lead(&mut self, place: usize, hop: Hop) -> Hop {
        let (before, (low, high)) = (self.hop(place), halves(hop));
        if let Some(at) = self.hops.get_mut(place) {
            *at = low;
        }
        let len = self.len();
        self.beyond.set(len, place, high);
        before
    }

    fn insert(&mut self, place: usize, prefix: Prefix<A>, hop: Hop) {
        self.reserve(1);
        let ((upper, lower), (low, high)) = (prefix.address().halves(), halves(hop));
        self.lowers.insert(self.lengths.len(), place, lower);
        self.beyond.insert(self.lengths.len(), place, high);
        self.uppers.insert(place, upper);
        self.lengths.insert(place, prefix.length());
        self.hops.insert(place, low);
    }

    fn remove(&mut self, place: usize) -> Hop {
        let hop = self.hop(place);
        self.lowers.remove(place);
        self.beyond.remove(place);
        self.uppers.remove(place);
        self.lengths.remove(place);
        self.hops.remove(place);
        if self.lengths.capacity() >= self.len() + 2 * STEP {
            self.fit();
        }
        hop
    }

    /// Removes the second half of the leaf's entries and returns it as a new leaf.
    fn split(&mut self) -> Leaf<A> {
        let half = self.len() / 2;
        let behind = Leaf {
            uppers: self.uppers.split_off(half),
            lowers: self.lowers.split_off(half),
            lengths: self.lengths.split_off(half),
            hops: self.hops.split_off(half),
            beyond: self.beyond.split_off(half),
        };
        self.fit();
        behind
    }

    fn append(&mut self, mut behind: Leaf<A>) {
        let (len, more) = (self.len(), behind.len());
        self.reserve(more);
        self.lowers.append(len, behind.lowers, more);
        self.beyond.append(len, behind.beyond, more);
        self.uppers.append(&mut behind.uppers);
        self.lengths.append(&mut behind.lengths);
        self.hops.append(&mut behind.hops);
    }

    fn reserve(&mut self, more: usize) {
        if self.lengths.capacity() < self.len() + more {
            let room = (self.len() + more).next_multiple_of(STEP) - self.len();
            self.uppers.reserve_exact(room);
            self.lengths.reserve_exact(room);
            self.hops.reserve_exact(room);
        }
    }

    fn fit(&mut self) {
        let room = self.len().next_multiple_of(STEP);
        self.uppers.shrink_to(room);
        self.lengths.shrink_to(room);
        self.hops.shrink_to(room);
        self.lowers.fit(room);
        self.beyond.fit(room);
    }
}

/// Returns the lower and the upper 16 bits of a next hop.
#[allow(clippy::cast_possible_truncation, reason = "halves of the number")]
fn halves(hop: Hop) -> (u16, u16) {
    (hop.0 as u16, (hop.0 >> 16) as u16)
}

impl<T: Copy + Default + PartialEq> Seldom<T> {
    fn get(&self, place: usize) -> T {
        self.0.get(place).copied().unwrap_or_default()
    }

    fn is_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// Sets the value at position `place` in the column of a leaf with `len` entries. In the other methods too, `len`
    /// is the number of entries in the leaf.
    fn set(&mut self, len: usize, place: usize, value: T) {
        if value != T::default() && !self.is_there() {
            self.0 = vec![T::default(); len];
        }
        if let Some(at) = self.0.get_mut(place) {
            *at = value;
        }
    }

    fn insert(&mut self, len: usize, place: usize, value: T) {
        if value != T::default() && !self.is_there() {
            self.0 = vec![T::default(); len];
            self.0.insert(place, value);
        } else if self.is_there() {
            self.0.insert(place, value);
        }
    }

    fn remove(&mut self, place: usize) {
        if self.is_there() {
            self.0.remove(place);
        }
    }

    fn split_off(&mut self, half: usize) -> Seldom<T> {
        Seldom(if self.is_there() { self.0.split_off(half) } else { Vec::new() })
    }

    fn append(&mut self, len: usize, mut behind: Seldom<T>, more: usize) {
        if self.is_there() || behind.is_there() {
            self.0.resize(len, T::default());
            behind.0.resize(more, T::default());
            self.0.append(&mut behind.0);
        }
    }

    fn fit(&mut self, room: usize) {
        if self.0.iter().all(|value| *value == T::default()) {
            self.0 = Vec::new();
        }
        self.0.shrink_to(room);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Applies operations to a map and to a model of the map. Checks that both have equal content. The prefixes are
    /// close to each other. Next hops above 1 are scaled up to numbers of more than 16 bits.
    fn agree<A: Address>(ops: Vec<(A, u8, u32)>, asked: [A; 6]) -> Result<(), TestCaseError> {
        let (mut routes, mut model) = (Routes::<A>::new(), BTreeMap::new());
        for (address, length, hop) in ops {
            let (prefix, hop) = (Prefix::new(address, length), hop << (16 * (hop / 2)));
            if hop == 0 {
                prop_assert_eq!(routes.remove(&prefix), model.remove(&prefix));
            } else {
                prop_assert_eq!(routes.insert(prefix, Hop(hop)), model.insert(prefix, Hop(hop)));
            }
            prop_assert_eq!(routes.get(&prefix), model.get(&prefix).copied());
        }
        let pairs = |(prefix, hop): (&Prefix<A>, &Hop)| (*prefix, *hop);
        prop_assert_eq!(routes.len(), model.len());
        prop_assert!(routes.iter().eq(model.iter().map(pairs)));
        for [first, last] in asked.as_chunks::<2>().0 {
            let (first, last) = (Prefix::new(*first, 128), Prefix::new(*last, 128));
            prop_assert!(routes.range(first, last).eq(model.range(first..=last).map(pairs)));
        }
        prop_assert!(routes.leaves.iter().all(|leaf| (1..=MOST).contains(&leaf.len())));
        let names = routes.leaves.iter().filter_map(Leaf::first);
        prop_assert!(names.eq(routes.firsts.iter().copied()));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(64), ..ProptestConfig::default() })]

        #[test]
        fn they_are_those_of_an_ordered_map_4(ops in prop::collection::vec((0_u32..900, 24_u8..=32, 0_u32..3), 0..4000)) {
            agree(ops, [0, 300, 77, 78, 600, u32::MAX])?;
        }

        #[test]
        fn they_are_those_of_an_ordered_map_6(ops in prop::collection::vec((0_u32..900, 0_u8..=1, 0_u32..3), 0..4000)) {
            // Prefixes of 64 bits, and addresses with longer prefixes.
            let wide = |n: u32| u128::from(n) << 64 | u128::from(n & 1);
            let ops = ops.into_iter().map(|(n, long, hop)| (wide(n), 64 + 64 * long, hop)).collect();
            agree(ops, [0, 300, 77, 78, 600, u32::MAX].map(wide))?;
        }
    }

    #[test]
    fn whatever_the_order_they_come_in_they_take_few_bytes() {
        let count = 100 * MOST;
        let number = |at: usize| u32::try_from(at).unwrap() << 8;
        let up: Vec<u32> = (0..count).map(number).collect();
        let down: Vec<u32> = up.iter().rev().copied().collect();
        // 7,919 is a prime that does not divide the count.
        let mixed: Vec<u32> = (0..count).map(|at| number(at * 7919 % count)).collect();
        for order in [&up, &down, &mixed] {
            let mut routes = Routes::new();
            for address in order {
                routes.insert(Prefix::new(*address, 24), Hop(7));
            }
            let bytes = |routes: &Routes<u32>| -> usize {
                let leaves = routes.leaves.iter();
                leaves.map(|l| 4 * l.uppers.capacity() + l.lengths.capacity() + 2 * l.hops.capacity()).sum()
            };
            assert!(bytes(&routes) <= 7 * count * 5 / 4, "{} for {count}", bytes(&routes));
            assert!(routes.leaves.len() <= 3 * count / MOST, "{} leaves", routes.leaves.len());
            // Nine of ten prefixes are removed, at arbitrary positions.
            let kept = |at: usize| at.is_multiple_of(10);
            for at in (0..count).filter(|at| !kept(*at)) {
                routes.remove(&Prefix::new(number(at), 24));
            }
            assert_eq!(routes.len(), count / 10);
            assert!(bytes(&routes) <= 7 * (count / 10) * 2, "{} for {}", bytes(&routes), count / 10);
            assert!(
                routes
                    .iter()
                    .map(|(prefix, _)| prefix.address())
                    .eq((0..count).filter(|at| kept(*at)).map(number))
            );
        }
    }
}
