//! Compares tries with a naive look-up of the longest prefix that contains an address.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and may read clocks"
)]

mod real;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lookup::{Address, Hop, Prefix, Table, TableFull};
use proptest::prelude::*;
use sync::qsbr::{Domain, Reader};

trait Next {
    /// Returns the address that follows this address. The first address follows the last one.
    fn next(self) -> Self;
}

impl Next for u32 {
    fn next(self) -> u32 {
        self.wrapping_add(1)
    }
}

impl Next for u128 {
    fn next(self) -> u128 {
        self.wrapping_add(1)
    }
}

const WORDS: usize = 1 << 20;

/// Naive look-up of the longest prefix.
fn naive<A: Address>(routes: &BTreeMap<Prefix<A>, Hop>, address: A) -> Option<(Prefix<A>, Hop)> {
    let covering = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    covering.max_by_key(|(prefix, _)| prefix.length()).map(|(prefix, hop)| (*prefix, *hop))
}

fn one<A: Address>(table: &Table<A>, reader: &Reader, address: A) -> Hop {
    let mut hops = [Hop::NONE];
    table.trie().look_up(reader, &[address], &mut hops);
    hops[0]
}

/// Returns the addresses to test for a prefix: its first, second and last address, and the address after the last one.
fn around<A: Address + Next>(prefix: Prefix<A>) -> impl Iterator<Item = A> {
    let length = u32::from(prefix.length());
    let (first, last) = (prefix.address(), prefix.address().last(length));
    let (inner, after) = (first.next(), last.next());
    [first, last, inner, after].into_iter()
}

#[derive(Clone, Debug)]
enum Op<A: Address> {
    Insert(Prefix<A>, Hop),
    Remove(Prefix<A>),
    /// Removes the existing prefix at this position.
    RemoveAt(prop::sample::Index),
    Load(Vec<(Prefix<A>, Hop)>),
}

/// Generates prefixes whose octets have only a few different values, so that many prefixes are nested.
fn prefix4() -> BoxedStrategy<Prefix<u32>> {
    let octet = || prop_oneof![Just(0_u8), Just(1), Just(127), Just(128), Just(255)];
    ([octet(), octet(), octet(), octet()], 0_u8..=32)
        .prop_map(|(octets, length)| Prefix::new(u32::from_be_bytes(octets), length))
        .boxed()
}

fn prefix6() -> BoxedStrategy<Prefix<u128>> {
    let word = || prop_oneof![Just(0_u16), Just(1), Just(0x2001), Just(0x8000), Just(0xffff)];
    (prop::array::uniform8(word()), 0_u8..=128)
        .prop_map(|(words, length)| {
            let address = words.into_iter().fold(0_u128, |all, word| all << 16 | u128::from(word));
            Prefix::new(address, length)
        })
        .boxed()
}

fn op<A: Address>(prefix: BoxedStrategy<Prefix<A>>) -> impl Strategy<Value = Op<A>> {
    let hop = || (1_u32..6).prop_map(Hop);
    prop_oneof![
        8 => (prefix.clone(), hop()).prop_map(|(prefix, hop)| Op::Insert(prefix, hop)),
        2 => prefix.clone().prop_map(Op::Remove),
        4 => any::<prop::sample::Index>().prop_map(Op::RemoveAt),
        1 => prop::collection::vec((prefix, hop()), 0..20).prop_map(Op::Load),
    ]
}

fn agrees<A: Address + Next>(ops: Vec<Op<A>>, asked: Vec<A>) -> Result<(), TestCaseError> {
    let domain = Domain::new();
    let mut reader = domain.register().unwrap();
    let mut table = Table::new(&domain, WORDS);
    let mut routes: BTreeMap<Prefix<A>, Hop> = BTreeMap::new();
    let mut addresses = asked;
    for op in ops {
        match op {
            Op::Insert(prefix, hop) => {
                prop_assert_eq!(table.insert(prefix, hop).unwrap(), routes.insert(prefix, hop));
                addresses.extend(around(prefix));
            }
            Op::Remove(prefix) => prop_assert_eq!(table.remove(prefix).unwrap(), routes.remove(&prefix)),
            Op::RemoveAt(index) if !routes.is_empty() => {
                let prefix = *index.get(&routes.keys().collect::<Vec<_>>());
                let prefix = *prefix;
                prop_assert_eq!(table.remove(prefix).unwrap(), routes.remove(&prefix));
            }
            Op::RemoveAt(_) => {}
            Op::Load(many) => {
                table.load(many.clone()).unwrap();
                addresses.extend(many.iter().flat_map(|(prefix, _)| around(*prefix)));
                routes.extend(many);
            }
        }
        reader.quiescent();
        let mut hops = vec![Hop::NONE; addresses.len()];
        table.trie().look_up(&reader, &addresses, &mut hops);
        for (address, hop) in addresses.iter().zip(hops) {
            let expected = naive(&routes, *address);
            prop_assert_eq!(
                hop,
                expected.map_or(Hop::NONE, |(_, hop)| hop),
                "{:?}",
                Prefix::new(*address, 128)
            );
            prop_assert_eq!(table.longest(*address), expected);
        }
        prop_assert!(table.iter().eq(routes.iter().map(|(prefix, hop)| (*prefix, *hop))));
    }
    // The emptied table uses as many words as at the beginning, so no words leak.
    for prefix in routes.into_keys() {
        table.remove(prefix).unwrap();
    }
    for _ in 0..2 {
        reader.quiescent();
        table.collect();
    }
    prop_assert_eq!(table.usage().bytes, Table::<A>::new(&domain, WORDS).usage().bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(1000), ..ProptestConfig::default() })]

    #[test]
    fn ipv4_agrees(ops in prop::collection::vec(op(prefix4()), 1..40), asked in prop::collection::vec(any::<u32>(), 20)) {
        agrees(ops, asked)?;
    }

    #[test]
    fn ipv6_agrees(ops in prop::collection::vec(op(prefix6()), 1..40), asked in prop::collection::vec(any::<u128>(), 20)) {
        agrees(ops, asked)?;
    }
}

/// Returns a pseudo-random number that depends only on `number`, and is therefore equal in every run.
fn scattered(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Checks the trie with a complete real table. Loads the table, looks up addresses, removes a part of the prefixes, and
/// adds them again.
fn whole<A: Address + Next>(prefixes: &[Prefix<A>], words: usize) {
    let domain = Domain::new();
    let mut reader = domain.register().unwrap();
    let mut table = Table::new(&domain, words);
    let hop_of = |at: usize| Hop(u32::try_from(at % 64 + 1).unwrap());
    let start = Instant::now();
    table.load(prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, hop_of(at)))).unwrap();
    eprintln!("{} prefixes loaded in {:?}: {:?}", prefixes.len(), start.elapsed(), table.usage());
    let mut routes: HashMap<Prefix<A>, Hop> =
        prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, hop_of(at))).collect();
    // Looks up by length, because scanning a million prefixes per address would take too long.
    let by_length = |routes: &HashMap<Prefix<A>, Hop>, address: A| {
        (0..=u8::try_from(A::BITS).unwrap())
            .rev()
            .find_map(|length| routes.get(&Prefix::new(address, length)).copied())
    };
    let ask = |table: &Table<A>, reader: &Reader, routes: &HashMap<Prefix<A>, Hop>| {
        let addresses: Vec<A> = prefixes.iter().step_by(7).flat_map(|prefix| around(*prefix)).collect();
        let mut hops = vec![Hop::NONE; addresses.len()];
        table.trie().look_up(reader, &addresses, &mut hops);
        for (address, hop) in addresses.into_iter().zip(hops) {
            assert_eq!(
                hop,
                by_length(routes, address).unwrap_or_default(),
                "{:?}",
                Prefix::new(address, 128)
            );
        }
    };
    ask(&table, &reader, &routes);
    let before = table.usage().bytes;
    let churned: Vec<usize> =
        (0..20_000).map(|n| usize::try_from(scattered(n) % prefixes.len() as u64).unwrap()).collect();
    let start = Instant::now();
    for at in &churned {
        table.remove(prefixes[*at]).unwrap();
        reader.quiescent();
    }
    eprintln!("{} prefixes removed in {:?}", churned.len(), start.elapsed());
    for at in &churned {
        routes.remove(&prefixes[*at]);
    }
    ask(&table, &reader, &routes);
    for at in &churned {
        table.insert(prefixes[*at], hop_of(*at)).unwrap();
        routes.insert(prefixes[*at], hop_of(*at));
        reader.quiescent();
    }
    ask(&table, &reader, &routes);
    for _ in 0..2 {
        reader.quiescent();
        table.collect();
    }
    assert_eq!(table.usage().bytes, before, "what went and came back takes what it took");
    drop(reader);
    let mut slowly = Table::new(&domain, words);
    for (at, prefix) in prefixes.iter().enumerate() {
        slowly.insert(*prefix, hop_of(at)).unwrap();
    }
    let usage = slowly.usage();
    assert!(usage.touched <= usage.bytes * 3 / 2, "what one change leaves behind serves the next: {usage:?}");
}

#[test]
fn the_real_tables_are_right_before_and_after_changes() {
    let Some((four, six)) = real::prefixes() else { return };
    whole(&four, 4 << 20);
    whole(&six, 2 << 20);
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let domain = Domain::new();
    let mut reader = domain.register().unwrap();
    // The minimum number of words. Half of the remaining words are reserved for removals.
    let words = 1 + (1 << 18) + 2 * 8192;
    let mut table = Table::<u32>::new(&domain, 0);
    let mut routes = BTreeMap::new();
    let mut refused = 0;
    for number in 0..3000_u32 {
        let prefix = Prefix::new(number << 13, 32);
        match table.insert(prefix, Hop(number + 1)) {
            Ok(before) => {
                assert_eq!(before, None);
                routes.insert(prefix, Hop(number + 1));
            }
            Err(full) => {
                assert_eq!(full, TableFull { words });
                refused += 1;
            }
        }
        reader.quiescent();
    }
    for number in 0..3000_u32 {
        let expected = naive(&routes, number << 13).map_or(Hop::NONE, |(_, hop)| hop);
        assert_eq!(one(&table, &reader, number << 13), expected);
    }
    assert!(refused > 0 && !routes.is_empty(), "{refused} refused");
    let many = (0..3000_u32).map(|number| (Prefix::new(number << 13, 31), Hop(7)));
    assert_eq!(table.load(many), Err(TableFull { words }));
    assert!(table.iter().eq(routes.iter().map(|(prefix, hop)| (*prefix, *hop))), "nothing of it is kept");
    // Removing prefixes frees space.
    for prefix in routes.keys() {
        table.remove(*prefix).unwrap();
        reader.quiescent();
    }
    assert!(table.is_empty() && table.insert(Prefix::new(0, 24), Hop(1)).is_ok());
}

#[test]
fn readers_meet_the_old_answer_or_the_new_one() {
    let domain = Domain::new();
    let mut table = Table::<u32>::new(&domain, 1 << 19);
    // Stable prefixes never change. They are next to prefixes that are inserted and removed all the time.
    let stable = |number: u32| Prefix::new(number << 10 | 0x200, 25);
    let moving = |number: u32| Prefix::new(number << 10, 23);
    table.load((0..512).map(|number| (stable(number), Hop(number + 1)))).unwrap();
    let trie = table.trie();
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (trie, stop, mut reader) = (trie.clone(), Arc::clone(&stop), domain.register().unwrap());
            std::thread::spawn(move || {
                let addresses: Vec<u32> =
                    (0..512).flat_map(|n| [stable(n).address() + 5, moving(n).address() + 5]).collect();
                let mut hops = vec![Hop::NONE; addresses.len()];
                let mut rounds = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    trie.look_up(&reader, &addresses, &mut hops);
                    for (number, pair) in (0_u32..).zip(hops.chunks(2)) {
                        assert_eq!(pair[0], Hop(number + 1), "never changed");
                        assert!(
                            [Hop::NONE, Hop(1000 + number), Hop(2000 + number)].contains(&pair[1]),
                            "{pair:?}"
                        );
                    }
                    reader.quiescent();
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let start = Instant::now();
    let mut changes = 0_u64;
    // While a reader is not scheduled, replaced words cannot be reused, and a change can be refused. The table is then
    // unchanged, and the change is tried again.
    let mut until_taken = |prefix, hop| {
        while table.insert(prefix, hop).is_err() {
            std::thread::yield_now();
        }
    };
    while start.elapsed() < Duration::from_secs(2) {
        for number in 0..512 {
            until_taken(moving(number), Hop(1000 + number));
            until_taken(moving(number), Hop(2000 + number));
            until_taken(moving(number), Hop::NONE);
            changes += 3;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let rounds: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(rounds > 10 && changes > 1000, "{rounds} rounds beside {changes} changes");
}
