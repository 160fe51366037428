//! Compares the flow cache with a linear list of flows, and verifies that a hint of the exact-match cache never leads
//! to a removed flow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use lookup::{FlowCache, FlowLimits, FlowRef, FlowRefused, MISS, matches};
use proptest::prelude::*;

const EXTENDED_WORDS: usize = 2;
/// Port of all packets in tests that do not depend on the port.
const PORT: u16 = 3;
type Key = [u64; 8];
type ExtendedKey = [u64; EXTENDED_WORDS];
type Cache = FlowCache<EXTENDED_WORDS, u32>;

#[derive(Clone, Debug)]
struct Flow {
    key: Key,
    extended: ExtendedKey,
    mask: Key,
    extended_mask: ExtendedKey,
    value: u32,
    reference: FlowRef,
}

impl Flow {
    fn matches(&self, key: &Key, extended: &ExtendedKey) -> bool {
        matches(key, &self.key, &self.mask) && matches(extended, &self.extended, &self.extended_mask)
    }
}

/// Generates keys whose words have only a few different values, so that flows overlap.
fn key() -> impl Strategy<Value = (Key, ExtendedKey)> {
    let word = || prop::sample::select(vec![0_u64, 1, 2, 1 << 63, u64::MAX]);
    (prop::array::uniform8(word()), prop::array::uniform2(word())).boxed()
}

fn mask() -> impl Strategy<Value = (Key, ExtendedKey)> {
    let word = || prop::sample::select(vec![0_u64, 0, 0, 1, 3, 1 << 63, u64::MAX]);
    let extended = prop_oneof![2 => Just([0; EXTENDED_WORDS]), 1 => prop::array::uniform2(word())];
    (prop::array::uniform8(word()), extended).boxed()
}

#[derive(Clone, Debug)]
enum Op {
    Insert(prop::sample::Index, (Key, ExtendedKey)),
    Remove(prop::sample::Index),
    RemoveAll,
    Rerank,
    SetExact(u32),
    Find(Vec<(Key, ExtendedKey)>),
    /// Looks up keys. Each key equals a flow's key in the bits of the flow's mask, and a given key in all other bits.
    FindNear(Vec<(prop::sample::Index, (Key, ExtendedKey))>),
    /// Looks up keys like `FindNear`. Each key occurs several times in succession, each time with another extended key.
    FindRows(Vec<(prop::sample::Index, (Key, ExtendedKey), Vec<ExtendedKey>)>),
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let near = prop::collection::vec((index(), key()), 1..20);
    let extended = prop::array::uniform2(prop::sample::select(vec![0_u64, 1, 3, 1 << 63]));
    let row = (index(), key(), prop::collection::vec(extended, 0..8));
    prop_oneof![
        8 => (index(), key()).prop_map(|(mask, key)| Op::Insert(mask, key)),
        4 => index().prop_map(Op::Remove),
        1 => Just(Op::RemoveAll),
        1 => Just(Op::Rerank),
        1 => (0_u32..3).prop_map(Op::SetExact),
        2 => prop::collection::vec(key(), 1..20).prop_map(Op::Find),
        6 => near.prop_map(Op::FindNear),
        4 => prop::collection::vec(row, 1..12).prop_map(Op::FindRows),
    ]
    .boxed()
}

struct Pair {
    cache: Cache,
    flows: Vec<Flow>,
    /// Flows that were removed.
    gone: Vec<FlowRef>,
}

impl Pair {
    fn insert(
        &mut self,
        (mask, extended_mask): (Key, ExtendedKey),
        (key, extended): (Key, ExtendedKey),
        value: u32,
    ) {
        let same = |flow: &&Flow| {
            flow.mask == mask && flow.extended_mask == extended_mask && flow.matches(&key, &extended)
        };
        let known = self.flows.iter().find(same).map(|flow| flow.reference);
        match self.cache.insert(PORT, &key, &extended, &mask, &extended_mask, value) {
            Ok(reference) => {
                assert_eq!(known, None);
                self.flows.push(Flow { key, extended, mask, extended_mask, value, reference });
            }
            Err(refused) => assert_eq!(Some(refused), known.map(FlowRefused::Exists)),
        }
    }

    fn remove(&mut self, at: usize) {
        let flow = self.flows.swap_remove(at);
        assert_eq!(self.cache.remove(flow.reference), Some(flow.value));
        self.gone.push(flow.reference);
    }

    fn find(&mut self, keys: &[(Key, ExtendedKey)]) {
        let mut found = vec![7; keys.len()];
        let before = self.cache.counters();
        self.cache.find_burst(PORT, |packet| &keys[packet].0, |packet| keys[packet].1, &mut found);
        for ((key, extended), found) in keys.iter().zip(&found) {
            let of = |flow: &&Flow| flow.matches(key, extended);
            let values: BTreeSet<u32> = self.flows.iter().filter(of).map(|flow| flow.value).collect();
            match self.cache.get_at(*found) {
                None => assert!(*found == MISS && values.is_empty(), "{values:?} missed"),
                Some(value) => assert!(values.contains(value), "{value}, which is none of {values:?}"),
            }
        }
        let after = self.cache.counters();
        let missed = found.iter().filter(|found| **found == MISS).count() as u64;
        assert_eq!(after.misses - before.misses, missed);
        assert_eq!(
            after.exact + after.wildcard + after.misses - before.exact - before.wildcard - before.misses,
            keys.len() as u64
        );
    }

    fn apply(&mut self, op: &Op, masks: &[(Key, ExtendedKey)], number: u32) {
        match op {
            Op::Insert(mask, key) => self.insert(*mask.get(masks), *key, number),
            Op::Remove(index) if !self.flows.is_empty() => self.remove(index.index(self.flows.len())),
            Op::RemoveAll => (0..self.flows.len()).rev().for_each(|at| self.remove(at)),
            Op::Rerank => self.cache.rerank(),
            Op::SetExact(one_in) => self.cache.set_exact(NonZeroU32::new(*one_in)),
            Op::Find(keys) => self.find(keys),
            Op::FindNear(near) if !self.flows.is_empty() => {
                let keys: Vec<(Key, ExtendedKey)> =
                    near.iter().map(|(index, key)| self.towards(*index, key)).collect();
                // The second look-up uses hints.
                self.find(&keys);
                self.find(&keys);
            }
            Op::FindRows(rows) if !self.flows.is_empty() => {
                let row =
                    |(index, key, more): &(prop::sample::Index, (Key, ExtendedKey), Vec<ExtendedKey>)| {
                        let first = self.towards(*index, key);
                        std::iter::once(first)
                            .chain(more.iter().map(move |extended| (first.0, *extended)))
                            .collect::<Vec<_>>()
                    };
                let keys: Vec<(Key, ExtendedKey)> = rows.iter().flat_map(row).collect();
                self.find(&keys);
                self.find(&keys);
            }
            Op::Remove(_) | Op::FindNear(_) | Op::FindRows(_) => {}
        }
    }

    /// Returns a key that equals a flow's key in the bits of the flow's mask, and equals the given key in all other
    /// bits.
    fn towards(
        &self,
        index: prop::sample::Index,
        (key, extended): &(Key, ExtendedKey),
    ) -> (Key, ExtendedKey) {
        let flow = index.get(&self.flows);
        let other = |word: usize| flow.key[word] & flow.mask[word] | key[word] & !flow.mask[word];
        let further = |word: usize| {
            flow.extended[word] & flow.extended_mask[word] | extended[word] & !flow.extended_mask[word]
        };
        (std::array::from_fn(other), std::array::from_fn(further))
    }

    fn check(&self) {
        assert_eq!(self.cache.len(), self.flows.len());
        let masks: BTreeSet<_> = self.flows.iter().map(|flow| (flow.mask, flow.extended_mask)).collect();
        assert_eq!(self.cache.masks(), masks.len());
        for flow in &self.flows {
            assert_eq!(self.cache.get(flow.reference), Some(&flow.value));
            assert_eq!(self.cache.reference_at(flow.reference.index()), Some(flow.reference));
        }
        assert!(self.gone.iter().all(|reference| self.cache.get(*reference).is_none()));
        let all: BTreeSet<u32> = self.cache.iter().map(|(_, value)| *value).collect();
        assert_eq!(all, self.flows.iter().map(|flow| flow.value).collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn found_is_what_a_search_finds(
        masks in prop::collection::vec(mask(), 1..6),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut pair = Pair { cache: Cache::new(FlowLimits::default()), flows: Vec::new(), gone: Vec::new() };
        for (number, op) in (0..).zip(&ops) {
            pair.apply(op, &masks, number);
            pair.check();
        }
        pair.apply(&Op::RemoveAll, &masks, 0);
        pair.check();
        for reference in std::mem::take(&mut pair.gone) {
            prop_assert_eq!(pair.cache.remove(reference), None);
        }
    }
}

fn find(cache: &mut Cache, keys: &[Key]) -> Vec<Option<u32>> {
    let mut found = vec![0; keys.len()];
    cache.find_burst(PORT, |packet| &keys[packet], |_| [0; EXTENDED_WORDS], &mut found);
    let value = |at: &u32| {
        let value = cache.get_at(*at).copied();
        assert_eq!(value.is_none(), *at == MISS);
        value
    };
    found.iter().map(value).collect()
}

fn station(number: u64) -> Key {
    [1, number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0, 0, 0, 0, number]
}

#[test]
fn a_place_that_another_flow_has_taken_is_not_what_the_hint_meant() {
    let (narrow, wide, none) =
        ([0, u64::MAX, 0, 0, 0, 0, 0, 0], [0, 0xff, 0, 0, 0, 0, 0, 0], [0; EXTENDED_WORDS]);
    let key = |word| [9, word, 9, 9, 9, 9, 9, 9];
    let mut cache = Cache::new(FlowLimits::default());
    // The hint for the key with 0x1234 refers to the first entry of the flow table.
    let first = cache.insert(PORT, &key(0x1234), &none, &narrow, &none, 1).unwrap();
    assert_eq!(find(&mut cache, &[key(0x1234); 2]), [Some(1); 2]);
    assert_eq!(cache.remove(first), Some(1));
    assert_eq!(find(&mut cache, &[key(0x1234)]), [None]);
    // Other flows then use this entry, first with an equal mask, then with a mask of fewer bits.
    let second = cache.insert(PORT, &key(0x1235), &none, &narrow, &none, 2).unwrap();
    assert_eq!(
        (second.index(), find(&mut cache, &[key(0x1234), key(0x1235)])),
        (first.index(), vec![None, Some(2)])
    );
    assert_eq!((cache.remove(first), cache.remove(second)), (None, Some(2)));
    let third = cache.insert(PORT, &key(0x34), &none, &narrow, &none, 3).unwrap();
    assert_eq!(
        (third.index(), find(&mut cache, &[key(0x1234), key(0x34)])),
        (first.index(), vec![None, Some(3)])
    );
    cache.remove(third);
    let fourth = cache.insert(PORT, &key(0x34), &none, &wide, &none, 4).unwrap();
    assert_eq!(
        (fourth.index(), find(&mut cache, &[key(0x1234), key(0x35)])),
        (first.index(), vec![Some(4), None])
    );
    assert_eq!([first, second, third].map(|gone| cache.get(gone)), [None; 3]);
}

#[test]
fn thousands_of_flows_are_answered_by_hints() {
    let mut cache = Cache::new(FlowLimits::default());
    let mask = [u64::MAX, u64::MAX, 0, 0, 0, 0, 0, 0];
    for number in 0..4096 {
        cache
            .insert(
                PORT,
                &station(number),
                &[0; EXTENDED_WORDS],
                &mask,
                &[0; EXTENDED_WORDS],
                u32::try_from(number).unwrap(),
            )
            .unwrap();
    }
    let keys: Vec<Key> = (0..4096).map(station).collect();
    let expected: Vec<Option<u32>> = (0..4096).map(Some).collect();
    for _ in 0..3 {
        assert_eq!(find(&mut cache, &keys), expected);
    }
    let before = cache.counters();
    assert_eq!(find(&mut cache, &keys), expected);
    let exact = cache.counters().exact - before.exact;
    // A set has space for eight hints, and four hints belong to it on average. If more than eight hints belong to a
    // set, they evict each other.
    assert!(exact > 3900, "{exact} of 4096");
    // With a very low insertion rate no hints are inserted. Existing hints stay.
    let fresh = |cache: &mut Cache| {
        let other: Vec<Key> = keys.iter().map(|key| [key[0], key[1], key[2], 1, 0, 0, 0, 0]).collect();
        let before = cache.counters();
        assert_eq!(find(cache, &other), expected);
        assert_eq!(find(cache, &other), expected);
        cache.counters().exact - before.exact
    };
    cache.set_exact(NonZeroU32::new(1 << 24));
    assert!(fresh(&mut cache) < 100);
    cache.set_exact(None);
    let before = cache.counters();
    assert_eq!(find(&mut cache, &keys), expected);
    let after = cache.counters();
    assert_eq!((after.exact, after.wildcard), (before.exact, before.wildcard + 4096));
    cache.set_exact(NonZeroU32::new(4));
    assert!((300..2500).contains(&fresh(&mut cache)));
}

#[test]
fn masks_that_answer_most_are_asked_first() {
    let mut cache = Cache::new(FlowLimits::default());
    cache.set_exact(None);
    for word in 0..8_u32 {
        let (mut key, mut mask) = ([0; 8], [0; 8]);
        (key[word as usize], mask[word as usize]) = (7, u64::MAX);
        cache.insert(PORT, &key, &[0; EXTENDED_WORDS], &mask, &[0; EXTENDED_WORDS], word).unwrap();
    }
    let last = [0, 0, 0, 0, 0, 0, 0, 7];
    assert_eq!(find(&mut cache, &[last; 100]), [Some(7); 100]);
    assert_eq!(cache.counters().probes, 800);
    cache.rerank();
    find(&mut cache, &[last; 100]);
    assert_eq!(cache.counters().probes, 900);
    // Each call of `rerank` halves the weight of earlier hits.
    let first = [7, 0, 0, 0, 0, 0, 0, 0];
    for _ in 0..3 {
        find(&mut cache, &[first; 100]);
        cache.rerank();
    }
    let before = cache.counters().probes;
    find(&mut cache, &[first; 100]);
    assert_eq!(cache.counters().probes, before + 100);
}

#[test]
fn what_is_too_much_is_refused_and_changes_nothing() {
    let mut cache = Cache::new(FlowLimits { flows: 3, masks: 2 });
    let mask = |bits| [bits, 0, 0, 0, 0, 0, 0, 0];
    let mut insert = |key: u64, bits: u64| {
        cache.insert(PORT, &mask(key), &[0; EXTENDED_WORDS], &mask(bits), &[0; EXTENDED_WORDS], 0)
    };
    let first = insert(1, 0xff).unwrap();
    insert(1, 0xfff).unwrap();
    assert_eq!(insert(1, 0xf), Err(FlowRefused::Masks { most: 2 }));
    assert_eq!(insert(1, 0xff), Err(FlowRefused::Exists(first)));
    insert(2, 0xff).unwrap();
    assert_eq!(insert(3, 0xff), Err(FlowRefused::Flows { most: 3 }));
    assert_eq!(insert(3, 0xf), Err(FlowRefused::Flows { most: 3 }));
    assert_eq!((cache.len(), cache.masks()), (3, 2));
    assert_eq!(find(&mut cache, &[mask(3)]), [None]);
    cache.remove(first);
    assert!(cache.insert(PORT, &mask(3), &[0; EXTENDED_WORDS], &mask(0xff), &[0; EXTENDED_WORDS], 0).is_ok());
}

#[test]
fn a_cache_for_nothing_finds_nothing() {
    let mut cache = Cache::new(FlowLimits { flows: 0, masks: 0 });
    assert_eq!(find(&mut cache, &[[0; 8], [1; 8]]), [None, None]);
    let refused = cache.insert(PORT, &[0; 8], &[0; EXTENDED_WORDS], &[0; 8], &[0; EXTENDED_WORDS], 0);
    assert_eq!(refused, Err(FlowRefused::Flows { most: 0 }));
    let mut cache = Cache::new(FlowLimits { flows: 1, masks: 1 });
    cache.insert(PORT, &[0; 8], &[0; EXTENDED_WORDS], &[0; 8], &[0; EXTENDED_WORDS], 5).unwrap();
    assert_eq!(find(&mut cache, &[[0; 8], [1; 8]]), [Some(5); 2]);
    assert_eq!(find(&mut cache, &[[0; 8], [1; 8]]), [Some(5); 2]);
}

#[test]
fn flows_that_come_and_go_take_no_more_memory() {
    let mut cache = Cache::new(FlowLimits::default());
    let round = |cache: &mut Cache, mask: u64| {
        let insert = |number| {
            cache.insert(PORT, &station(number), &[number; 2], &[mask; 8], &[u64::MAX; 2], 0).unwrap()
        };
        let flows: Vec<FlowRef> = (0..1000).map(insert).collect();
        let memory = cache.memory();
        assert!(flows.into_iter().all(|flow| cache.remove(flow).is_some()));
        memory
    };
    // The first round allocates the free lists.
    round(&mut cache, u64::MAX);
    let first = round(&mut cache, u64::MAX);
    assert!((1000 * 128..400_000).contains(&first), "{first}");
    for bits in 1..20 {
        assert_eq!(round(&mut cache, u64::MAX << bits), first);
    }
}

#[test]
fn what_stands_beyond_the_key_is_asked_for_only_where_it_counts() {
    let mut cache = Cache::new(FlowLimits::default());
    let plain = [u64::MAX, 0, 0, 0, 0, 0, 0, 0];
    cache.insert(PORT, &[1; 8], &[0; EXTENDED_WORDS], &plain, &[0; EXTENDED_WORDS], 1).unwrap();
    let (mut asked, mut found) = (0, [0; 2]);
    let keys = [[1; 8], [2; 8]];
    let mut extended = |packet: usize| {
        asked += 1;
        [packet as u64, 5]
    };
    cache.find_burst(PORT, |packet| &keys[packet], &mut extended, &mut found);
    cache.insert(PORT, &[2; 8], &[1, 5], &plain, &[u64::MAX, 1], 2).unwrap();
    cache.find_burst(PORT, |packet| &keys[packet], &mut extended, &mut found);
    assert_eq!(found.map(|at| cache.get_at(at).copied()), [Some(1), Some(2)]);
    // The flow of the first packet was found by the packet's hint.
    assert!((1..=3).contains(&asked), "{asked}");
}

#[test]
fn a_port_is_not_asked_against_the_masks_of_another() {
    let mut cache = Cache::new(FlowLimits { masks: 64, ..FlowLimits::default() });
    cache.set_exact(None);
    let none = [0; EXTENDED_WORDS];
    // The first word distinguishes the ports.
    let mask = |bits: u64| [u64::MAX, bits, 0, 0, 0, 0, 0, 0];
    cache.insert(1, &[1, 7, 0, 0, 0, 0, 0, 0], &none, &mask(0xff), &none, 1).unwrap();
    let attack: Vec<FlowRef> = (0..64)
        .map(|bit| {
            cache.insert(2, &[2, 1 << bit, 0, 0, 0, 0, 0, 0], &none, &mask(1 << bit), &none, 2).unwrap()
        })
        .collect();
    let refused = cache.insert(2, &[2; 8], &none, &mask(0xff), &none, 2);
    assert_eq!(refused, Err(FlowRefused::Masks { most: 64 }), "each port has as many");
    let probes = |cache: &mut Cache, port: u16, keys: &[Key]| {
        let (before, mut found) = (cache.counters().probes, vec![MISS; keys.len()]);
        cache.find_burst(port, |packet| &keys[packet], |_| none, &mut found);
        (cache.counters().probes - before, found.into_iter().filter(|at| *at != MISS).count())
    };
    let victim = [[1, 7, 3, 3, 3, 3, 3, 3]; 100];
    assert_eq!(probes(&mut cache, 1, &victim), (100, 100), "one mask each");
    assert_eq!(probes(&mut cache, 2, &[[2, 0, 0, 0, 0, 0, 0, 0]; 3]), (3 * 64, 0));
    assert_eq!(probes(&mut cache, 9, &victim), (0, 0));
    // If flows of two ports have one mask, the mask stays in the search order of one port when the flows of the other
    // port are removed.
    cache.insert(1, &[1, 2, 0, 0, 0, 0, 0, 0], &none, &mask(1 << 1), &none, 3).unwrap();
    attack.into_iter().for_each(|flow| assert_eq!(cache.remove(flow), Some(2)));
    assert_eq!((cache.masks(), cache.len()), (2, 2));
    assert_eq!(probes(&mut cache, 1, &[[1, 2, 0, 0, 0, 0, 0, 0]]), (2, 1));
    assert_eq!(probes(&mut cache, 2, &[[2, 2, 0, 0, 0, 0, 0, 0]]), (0, 0));
}
