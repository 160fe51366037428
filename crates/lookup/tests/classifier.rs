//! Compares the classifier with a linear list of rules, and verifies that results depend only on tracked
//! bits.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and may read clocks"
)]

use std::time::{Duration, Instant};

use lookup::naive::Linear;
use lookup::{Classifier, Layout, Octets, Options, PrefixStep, Rule, RulesFull, matches};
use proptest::prelude::*;

/// Number of key words: metadata, MAC addresses, two IPv4 addresses in one word, one IPv6 address (two
/// words), ports.
const WORDS: usize = 6;
const LAYOUT: Layout<WORDS> = Layout::new(
    [1, 2, 5, 6],
    &[Octets { from: 16, count: 4 }, Octets { from: 20, count: 4 }, Octets { from: 24, count: 16 }],
    &[40, 42],
    (0, 1),
);

type Key = [u64; WORDS];
type Rules = Classifier<WORDS, u32>;

fn octets(octets: [u8; 8]) -> u64 {
    u64::from_ne_bytes(octets)
}

/// Generates words whose octets have only a few different values.
fn word() -> impl Strategy<Value = u64> {
    let octet = || prop::sample::select(vec![0_u8, 1, 10, 11, 0x80, 0xff]);
    prop::array::uniform8(octet()).prop_map(octets).boxed()
}

fn key() -> impl Strategy<Value = Key> {
    (0_u64..3, prop::array::uniform5(word()))
        .prop_map(|(metadata, rest)| [metadata, rest[0], rest[1], rest[2], rest[3], rest[4]])
        .boxed()
}

fn leading(bits: u32) -> u64 {
    if bits == 0 { 0 } else { (u64::MAX << (64 - bits)).to_be() }
}

/// Generates masks for one word. Most of them are empty, full or a prefix. Some consist of arbitrary bits.
fn word_mask() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 3 => Just(u64::MAX), 3 => (0_u32..=64).prop_map(leading), 1 => any::<u64>()]
}

/// Generates masks for the word that contains two IPv4 addresses.
fn addresses_mask() -> impl Strategy<Value = u64> {
    let mask = |bits: u32| if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
    let prefixes = (0_u32..=32, 0_u32..=32)
        .prop_map(move |(from, to)| (u64::from(mask(from)) << 32 | u64::from(mask(to))).to_be());
    prop_oneof![2 => Just(0), 4 => prefixes, 1 => any::<u64>()]
}

fn mask() -> impl Strategy<Value = Key> {
    let (any, two) = (|| word_mask().boxed(), addresses_mask().boxed());
    [any(), any(), two, any(), any(), any()]
}

/// An operation on a classifier.
#[derive(Clone, Debug)]
enum Op {
    /// Inserts a rule. The first value selects one of the masks of the test case.
    Insert(prop::sample::Index, Key, u16),
    /// Removes an existing rule.
    Remove(prop::sample::Index),
    /// Removes a rule that most likely does not exist.
    RemoveOther(prop::sample::Index, Key, u16),
    SetOptions(Options),
}

fn options() -> impl Strategy<Value = Options> {
    any::<[bool; 7]>().prop_map(|[sorted, staged, prefixes, one, bit, ports, partitions]| Options {
        sorted,
        staged,
        prefixes,
        prefix_fields: if one { 1 } else { u8::MAX },
        prefix_step: if bit { PrefixStep::Bit } else { PrefixStep::Octet },
        ports,
        partitions,
        ..Options::default()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let priority = || 0_u16..6;
    prop_oneof![
        12 => (any::<prop::sample::Index>(), key(), priority()).prop_map(|(mask, key, priority)| Op::Insert(mask, key, priority)),
        4 => any::<prop::sample::Index>().prop_map(Op::Remove),
        1 => (any::<prop::sample::Index>(), key(), priority()).prop_map(|(mask, key, priority)| Op::RemoveOther(mask, key, priority)),
        1 => options().prop_map(Op::SetOptions),
    ]
}

fn apply(rules: &mut Rules, oracle: &mut Linear<WORDS, u32>, masks: &[Key], op: &Op, number: u32) {
    match op {
        Op::Insert(mask, value, priority) => {
            let rule = Rule { value: *value, mask: *mask.get(masks), priority: *priority, payload: number };
            assert_eq!(rules.insert(rule), Ok(oracle.insert(rule)));
        }
        Op::Remove(index) if !oracle.rules().is_empty() => {
            let rule = *index.get(oracle.rules());
            assert_eq!(rules.remove(&rule.value, &rule.mask, rule.priority), Some(rule.payload));
            oracle.remove(&rule.value, &rule.mask, rule.priority);
        }
        Op::Remove(_) => {}
        Op::RemoveOther(mask, value, priority) => {
            let mask = mask.get(masks);
            assert_eq!(rules.remove(value, mask, *priority), oracle.remove(value, mask, *priority));
        }
        Op::SetOptions(options) => rules.set_options(*options),
    }
}

/// Checks that burst look-ups have the results and tracked bits of single look-ups.
fn same_in_bursts(rules: &Rules, keys: &[Key]) {
    let refs: Vec<&Key> = keys.iter().collect();
    let (mut plain, mut tracked) = (vec![Some((&0, 0)); keys.len()], vec![Some((&0, 0)); keys.len()]);
    // Bits that were set before are kept.
    let mut wild: Vec<Key> = (0..keys.len()).map(|at| [at as u64; WORDS]).collect();
    rules.lookup_burst(&refs, &mut plain);
    rules.lookup_burst_tracked(&refs, &mut wild, &mut tracked);
    for (at, key) in keys.iter().enumerate() {
        let mut alone = [at as u64; WORDS];
        let found = rules.lookup_tracked(key, &mut alone);
        assert_eq!((plain[at], tracked[at]), (found, found), "{key:x?}");
        assert_eq!(wild[at], alone, "{key:x?}");
    }
}

/// Returns a key that equals the value of a rule in the bits of the rule's mask and in the bits of `keep`, and equals
/// `other` in all other bits.
fn near(rules: &[Rule<WORDS, u32>], index: prop::sample::Index, other: &Key, keep: &Key) -> Key {
    let Some(rule) = (!rules.is_empty()).then(|| index.get(rules)) else { return *other };
    std::array::from_fn(|word| {
        let kept = rule.mask[word] | keep[word];
        rule.value[word] & kept | other[word] & !kept
    })
}

/// Returns keys that equal `key` in the bits of `wild`. One of these keys is random in all other bits. Each of the
/// other keys equals the value of a rule as far as possible.
fn alike(oracle: &Linear<WORDS, u32>, key: &Key, wild: &Key, noise: &Key) -> Vec<Key> {
    let instead = |word: usize, other: u64| key[word] & wild[word] | other & !wild[word];
    let towards = |rule: &Rule<WORDS, u32>| {
        let other = |word: usize| rule.value[word] & rule.mask[word] | noise[word] & !rule.mask[word];
        std::array::from_fn(|word| instead(word, other(word)))
    };
    let noisy = std::array::from_fn(|word| instead(word, noise[word]));
    oracle.rules().iter().map(towards).chain([noisy]).collect()
}

fn same_answers(rules: &Rules, oracle: &Linear<WORDS, u32>, key: &Key, noise: &Key) {
    let (found, expected) = (rules.lookup(key), oracle.lookup(key));
    assert_eq!(found.map(|(_, priority)| priority), expected.map(|rule| rule.priority));
    if let Some((payload, priority)) = found {
        let is = |rule: &&Rule<WORDS, u32>| rule.payload == *payload && rule.priority == priority;
        let rule = oracle.rules().iter().find(is).unwrap();
        assert!(matches(key, &rule.value, &rule.mask));
    }
    let mut wild = [0; WORDS];
    assert_eq!(rules.lookup_tracked(key, &mut wild), found);
    for other in alike(oracle, key, &wild, noise) {
        assert_eq!(rules.lookup(&other), found, "{key:x?} and {other:x?} agree in {wild:x?}");
        assert_eq!(oracle.lookup(&other).map(|rule| rule.priority), expected.map(|rule| rule.priority));
    }
    // Rejects the best rule and every rule with an even payload.
    let unwanted = found.map(|(payload, _)| *payload);
    let wanted = |payload: &u32, _| Some(*payload) != unwanted && payload % 2 == 1;
    let mut wild = [0; WORDS];
    let second = rules.lookup_where(key, &mut wild, wanted);
    let expected = oracle.lookup_where(key, wanted);
    assert_eq!(second.map(|(_, priority)| priority), expected.map(|rule| rule.priority));
    for other in alike(oracle, key, &wild, noise) {
        assert_eq!(rules.lookup_where(&other, &mut [0; WORDS], wanted), second);
    }
    // If the caller rejects all rules, `lookup_where` passes all matching rules to the caller, and the result depends
    // on the bits of all these rules.
    let see = |key: &Key, wild: &mut Key| {
        let mut seen = Vec::new();
        rules.lookup_where(key, wild, |payload, _| {
            seen.push(*payload);
            false
        });
        seen.sort_unstable();
        seen
    };
    let (mut matching, mut wild) = (Vec::new(), [0; WORDS]);
    oracle.lookup_where(key, |payload, _| {
        matching.push(*payload);
        false
    });
    matching.sort_unstable();
    assert_eq!(see(key, &mut wild), matching);
    for other in alike(oracle, key, &wild, noise) {
        assert_eq!(see(&other, &mut [0; WORDS]), matching);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn answers_equal_the_list_and_depend_on_no_other_bits(
        options in options(),
        masks in prop::collection::vec(mask(), 1..8),
        ops in prop::collection::vec(op(), 1..120),
        keys in prop::collection::vec((any::<prop::sample::Index>(), key(), mask()), 1..20),
        noise in any::<Key>(),
    ) {
        let (mut rules, mut oracle) = (Rules::new(LAYOUT, options), Linear::new());
        for (number, op) in (0..).zip(&ops) {
            apply(&mut rules, &mut oracle, &masks, op, number);
            prop_assert_eq!(rules.len(), oracle.rules().len());
            let (index, other, keep) = &keys[number as usize % keys.len()];
            same_answers(&rules, &oracle, &near(oracle.rules(), *index, other, keep), &noise);
        }
        let keys_near: Vec<Key> =
            keys.iter().map(|(index, other, keep)| near(oracle.rules(), *index, other, keep)).collect();
        for key in &keys_near {
            same_answers(&rules, &oracle, key, &noise);
        }
        // The number of keys exceeds the length of a burst.
        let many: Vec<Key> = keys_near.iter().cycle().take(keys.len() * 5).copied().collect();
        same_in_bursts(&rules, &many);
        same_in_bursts(&rules, &keys_near);
        same_in_bursts(&rules, &[]);
        let different: std::collections::BTreeSet<Key> = oracle.rules().iter().map(|rule| rule.mask).collect();
        prop_assert_eq!(rules.masks(), different.len());
        prop_assert_eq!(rules.iter().count(), oracle.rules().len());
        for entry in rules.iter() {
            prop_assert_eq!(oracle.get(&entry.value, entry.mask, entry.priority), Some(entry.payload));
            prop_assert_eq!(rules.get(&entry.value, entry.mask, entry.priority), Some(entry.payload));
        }
        for (index, value, _) in &keys {
            let mask = index.get(&masks);
            for priority in 0..6 {
                prop_assert_eq!(rules.overlaps(value, mask, priority), oracle.overlaps(value, mask, priority));
            }
            let says_more = |rule: &&Rule<WORDS, u32>| {
                matches(&rule.value, value, mask) && (0..WORDS).all(|word| rule.mask[word] & mask[word] == mask[word])
            };
            let mut expected: Vec<u32> = oracle.rules().iter().filter(says_more).map(|rule| rule.payload).collect();
            let mut found: Vec<u32> = rules.within(value, mask).map(|entry| *entry.payload).collect();
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
        // After all rules have been removed, the classifier is empty, and a result depends on no bits.
        for rule in oracle.rules() {
            prop_assert_eq!(rules.remove(&rule.value, &rule.mask, rule.priority), Some(rule.payload));
        }
        let mut wild = [0; WORDS];
        prop_assert!(rules.is_empty() && rules.masks() == 0 && rules.lookup_tracked(&keys[0].1, &mut wild).is_none());
        prop_assert_eq!(wild, [0; WORDS]);
    }
}

/// Returns a rule. Each element of `words` is the value and the mask of a word. `None`: the rule ignores this word.
fn rule(words: [Option<(u64, u64)>; WORDS], priority: u16, payload: u32) -> Rule<WORDS, u32> {
    let (value, mask) =
        (words.map(|word| word.map_or(0, |word| word.0)), words.map(|word| word.map_or(0, |word| word.1)));
    Rule { value, mask, priority, payload }
}

fn with(options: Options, all: &[Rule<WORDS, u32>]) -> Rules {
    let mut rules = Rules::new(LAYOUT, options);
    for rule in all {
        rules.insert(*rule).unwrap();
    }
    rules
}

fn ports(source: u16, destination: u16) -> u64 {
    (u64::from(source) << 48 | u64::from(destination) << 32).to_be()
}

fn addresses(from: [u8; 4], to: [u8; 4]) -> u64 {
    let [a, b, c, d] = from;
    let [e, f, g, h] = to;
    octets([a, b, c, d, e, f, g, h])
}

const EXACT: u64 = u64::MAX;

#[test]
fn a_port_scan_over_a_table_of_stations_depends_on_no_ports() {
    // Station entries for destinations, and one rule for the ports of packets to one station.
    let mut all: Vec<_> =
        (1..100).map(|mac| rule([None, Some((mac, EXACT)), None, None, None, None], 1, 0)).collect();
    let wall = [None, Some((7, EXACT)), Some((addresses([9, 1, 1, 1], [0; 4]), leading(32))), None, None];
    all.push(rule(
        [wall[0], wall[1], wall[2], wall[3], wall[4], Some((ports(0, 80), ports(0, 0xffff)))],
        2,
        1,
    ));
    let rules = with(Options::default(), &all);
    let mut wild = [0; WORDS];
    for port in 0..=u16::MAX {
        let key = [0, 5, addresses([10, 0, 0, 1], [10, 0, 0, 2]), 0, 0, ports(4000, port)];
        assert_eq!(rules.lookup_tracked(&key, &mut wild), Some((&0, 1)));
    }
    assert_eq!(wild, [0, EXACT, 0, 0, 0, 0]);

    let rules = with(Options { staged: false, prefixes: false, ports: false, ..Options::default() }, &all);
    assert_eq!(rules.lookup_tracked(&[0, 5, 0, 0, 0, ports(4000, 443)], &mut wild), Some((&0, 1)));
    assert_eq!(wild[5], ports(0, 0xffff), "without stages it depends on the port");
}

#[test]
fn a_host_beside_a_net_costs_two_octets_of_the_address() {
    let to = |octets, bits| [None, None, Some((addresses(octets, [0; 4]), leading(bits))), None, None, None];
    let all = [rule(to([10, 0, 0, 0], 8), 1, 8), rule(to([10, 1, 2, 3], 32), 2, 32)];
    let depends = |options, octets| {
        let mut wild = [0; WORDS];
        let key = [0, 0, addresses(octets, [0; 4]), 0, 0, 0];
        let found = with(options, &all).lookup_tracked(&key, &mut wild).map(|(payload, _)| *payload);
        assert_eq!([wild[0], wild[1], wild[3], wild[4], wild[5]], [0; 5]);
        (found, wild[2])
    };
    let octets = Options::default();
    let bits = Options { prefix_step: PrefixStep::Bit, ..octets };
    assert_eq!(depends(octets, [10, 5, 6, 7]), (Some(8), leading(16)));
    assert_eq!(depends(bits, [10, 5, 6, 7]), (Some(8), leading(14)));
    assert_eq!(depends(Options { prefixes: false, ..octets }, [10, 5, 6, 7]), (Some(8), leading(32)));
    assert_eq!(depends(Options { prefix_fields: 2, ..octets }, [10, 5, 6, 7]), (Some(8), leading(32)));
    assert_eq!(depends(Options { prefix_fields: 1, ..octets }, [10, 5, 6, 7]), (Some(8), leading(16)));
    assert_eq!(depends(octets, [10, 1, 2, 3]), (Some(32), leading(32)));
    assert_eq!(depends(octets, [11, 5, 6, 7]), (None, leading(8)));
    assert_eq!(depends(bits, [11, 5, 6, 7]), (None, leading(8)));
    assert_eq!(depends(bits, [138, 5, 6, 7]), (None, leading(1)));
}

#[test]
fn one_tenants_ports_are_not_another_tenants() {
    // Two logical switches, of which the second has an access list.
    let all = [
        rule([Some((1, EXACT)), Some((5, EXACT)), None, None, None, None], 1, 1),
        rule([Some((2, EXACT)), Some((5, EXACT)), None, None, None, None], 1, 2),
        rule([Some((2, EXACT)), None, None, None, None, Some((ports(0, 80), ports(0, 0xffff)))], 9, 3),
    ];
    let partitions = Options { staged: false, prefixes: false, ports: false, ..Options::default() };
    let stages = Options { partitions: false, staged: true, ..partitions };
    let neither = Options { partitions: false, ..partitions };
    for (options, depends) in
        [(partitions, 0), (stages, 0), (Options::default(), 0), (neither, ports(0, 0xffff))]
    {
        let mut wild = [0; WORDS];
        let key = [1, 5, 0, 0, 0, ports(4000, 80)];
        assert_eq!(with(options, &all).lookup_tracked(&key, &mut wild), Some((&1, 1)));
        assert_eq!(wild, [EXACT, EXACT, 0, 0, 0, depends], "{options:?}");
    }
}

#[test]
fn ports_that_no_rule_has_cost_their_first_bits() {
    let service =
        |port| rule([None, None, None, None, None, Some((ports(0, port), ports(0, 0xffff)))], 1, port.into());
    let rules = with(Options::default(), &[service(80), service(443)]);
    let mut wild = [0; WORDS];
    assert_eq!(rules.lookup_tracked(&[0, 0, 0, 0, 0, ports(7, 0x8000)], &mut wild), None);
    assert_eq!(wild[5], ports(0, 0x8000));
    assert_eq!(rules.lookup_tracked(&[0, 0, 0, 0, 0, ports(7, 443)], &mut wild), Some((&443, 1)));
    assert_eq!(wild[5], ports(0, 0xffff));
}

#[test]
fn rules_that_are_gone_are_not_depended_on() {
    let net = |from, to| Some((addresses(from, to), EXACT));
    // Pairs of rules with equal masks, so that the mask remains when one is removed.
    let pairs = [
        [
            rule([None, Some((7, EXACT)), None, None, None, Some((1, EXACT))], 1, 0),
            rule([None, Some((8, EXACT)), None, None, None, Some((1, EXACT))], 1, 0),
        ],
        [
            rule([None, None, net([10, 1, 1, 1], [0; 4]), None, None, None], 1, 0),
            rule([None, None, net([99, 9, 9, 9], [0; 4]), None, None, None], 1, 0),
        ],
        [
            rule([None, None, None, None, None, Some((ports(4, 80), EXACT))], 1, 0),
            rule([None, None, None, None, None, Some((ports(0x8000, 81), EXACT))], 1, 0),
        ],
        [
            rule([Some((5, EXACT)), None, None, None, None, Some((9, EXACT))], 1, 0),
            rule([Some((6, EXACT)), None, None, None, None, Some((9, EXACT))], 1, 0),
        ],
    ];
    let keys = [
        [0, 7, 0, 0, 0, 7],
        [0, 0, addresses([10, 1, 1, 2], [0; 4]), 0, 0, 0],
        [0, 0, 0, 0, 0, ports(4, 81)],
        [5, 0, 0, 0, 0, 0],
    ];
    let only = |at: usize| {
        let off =
            Options { staged: false, prefixes: false, ports: false, partitions: false, ..Options::default() };
        match at {
            0 => Options { staged: true, ..off },
            1 => Options { prefixes: true, ..off },
            2 => Options { ports: true, ..off },
            _ => Options { partitions: true, ..off },
        }
    };
    for (at, ([goes, stays], key)) in pairs.iter().zip(keys).enumerate() {
        let depends = |rules: &Rules| {
            let mut wild = [0; WORDS];
            assert!(rules.lookup_tracked(&key, &mut wild).is_none());
            wild
        };
        let alone = depends(&with(only(at), &[*stays]));
        let mut rules = with(only(at), &[*goes, *stays]);
        assert_ne!(depends(&rules), alone, "{at}");
        rules.remove(&goes.value, &goes.mask, goes.priority).unwrap();
        assert_eq!(depends(&rules), alone, "{at}");
        // The options that were disabled are enabled again. Their data must include the rules that were added
        // meanwhile.
        rules.set_options(Options {
            staged: false,
            prefixes: false,
            ports: false,
            partitions: false,
            ..only(at)
        });
        rules.insert(*goes).unwrap();
        rules.set_options(only(at));
        assert_ne!(depends(&rules), alone, "{at}");
    }
}

#[test]
fn what_is_too_much_is_refused_and_changes_nothing() {
    let rule = |value: u64, mask: u64, payload| {
        rule([None, Some((value, mask)), None, None, None, None], 3, payload)
    };
    let mut rules =
        with(Options { most_rules: 2, ..Options::default() }, &[rule(1, EXACT, 1), rule(2, EXACT, 2)]);
    assert_eq!(rules.insert(rule(3, EXACT, 3)), Err(RulesFull { most: 2 }));
    assert_eq!(rules.insert(rule(3, 3, 3)), Err(RulesFull { most: 2 }));
    assert_eq!((rules.len(), rules.masks()), (2, 1));
    // Replacing a rule does not increase the number of rules.
    assert_eq!(rules.insert(rule(2, EXACT, 7)), Ok(Some(2)));
    assert_eq!(rules.remove(&[0, 1, 0, 0, 0, 0], &[0, EXACT, 0, 0, 0, 0], 3), Some(1));
    assert_eq!(rules.insert(rule(3, 3, 3)), Ok(None));
}

#[test]
fn memory_is_given_back_and_counted() {
    let all: Vec<_> =
        (0..10_000).map(|mac| rule([None, Some((mac, EXACT)), None, None, None, None], 1, 0)).collect();
    let mut rules = with(Options::default(), &all);
    let full = rules.memory();
    assert!((200_000..1_000_000).contains(&full), "{full}");
    for rule in &all {
        rules.remove(&rule.value, &rule.mask, rule.priority);
    }
    assert!(rules.memory() < 4_000, "{}", rules.memory());
}

#[test]
fn several_threads_look_up_at_once() {
    let all: Vec<_> =
        (0..1000).map(|mac| rule([None, Some((mac, EXACT)), None, None, None, None], 1, 0)).collect();
    let rules = with(Options::default(), &all);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!((0..1000).all(|mac| rules.lookup(&[0, mac, 0, 0, 0, 0]).is_some())));
        }
    });
}

/// Returns a rule with a fixed mask. Rules that this function returns for equal values have equal matches.
fn equal_match(value: u64, priority: u16, payload: u32) -> Rule<WORDS, u32> {
    rule([Some((1, EXACT)), Some((value, EXACT)), None, None, None, None], priority, payload)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn long_lists_of_equal_matches_agree_with_the_naive_list(
        ops in prop::collection::vec((0..4, 0_u64..2, 0_u16..16), 1..600),
    ) {
        let (mut rules, mut oracle) = (Rules::new(LAYOUT, Options::default()), Linear::new());
        for (payload, (kind, value, priority)) in (0..).zip(ops) {
            let rule = equal_match(value, priority, payload);
            // The lists grow and shrink in turn, so that they become long and short several times.
            let shrinks = payload / 100 % 2 == 1;
            if (kind == 0) != shrinks {
                prop_assert_eq!(
                    rules.remove(&rule.value, &rule.mask, priority),
                    oracle.remove(&rule.value, &rule.mask, priority)
                );
            } else {
                prop_assert_eq!(rules.insert(rule).unwrap(), oracle.insert(rule));
            }
            prop_assert_eq!(rules.len(), oracle.rules().len());
            for priority in 0..16 {
                let found = rules.get(&rule.value, &rule.mask, priority).copied();
                prop_assert_eq!(found, oracle.get(&rule.value, &rule.mask, priority).copied());
            }
            // A caller that rejects all rules sees the rules of the value in descending order of priority.
            let mut seen = Vec::new();
            rules.lookup_where(&rule.value, &mut [0; WORDS], |payload, priority| {
                seen.push((priority, *payload));
                false
            });
            let of_value = oracle.rules().iter().filter(|other| other.value == rule.value);
            let mut expected: Vec<_> = of_value.map(|rule| (rule.priority, rule.payload)).collect();
            expected.sort_unstable_by(|one, other| other.cmp(one));
            let best = rules.lookup(&rule.value).map(|(payload, priority)| (priority, *payload));
            prop_assert_eq!(best, expected.first().copied());
            prop_assert_eq!(seen, expected);
        }
    }
}

#[test]
fn a_strict_delete_at_the_lowest_priority_costs_what_one_at_the_highest_costs() {
    let all: Vec<_> = (0..u16::MAX).map(|priority| equal_match(1, priority, priority.into())).collect();
    let mut rules = with(Options::default(), &all);
    let mut delete = |rule: &Rule<WORDS, u32>| {
        assert_eq!(rules.get(&rule.value, &rule.mask, rule.priority), Some(&rule.payload));
        assert_eq!(rules.remove(&rule.value, &rule.mask, rule.priority), Some(rule.payload));
    };
    let began = Instant::now();
    all.iter().rev().take(10_000).for_each(&mut delete);
    let highest = began.elapsed();
    let began = Instant::now();
    all.iter().take(10_000).for_each(&mut delete);
    let lowest = began.elapsed();
    println!("10,000 strict deletes: {highest:?} at the highest priority, {lowest:?} at the lowest");
    // A walk through the list takes hundreds of times as long as a delete at the highest priority.
    assert!(lowest < 10 * highest + Duration::from_secs(1), "{lowest:?} and {highest:?}");
}

#[test]
fn a_rule_of_a_partition_with_16_384_masks_costs_what_one_of_another_partition_costs() {
    let masked = |metadata, bits: u64| {
        rule([Some((metadata, EXACT)), Some((0, 1 << 20 | bits)), None, None, None, None], 1, 0)
    };
    let all: Vec<_> = (0..16_384).map(|bits| masked(1, bits)).collect();
    let mut rules = with(Options::default(), &all);
    assert_eq!(rules.masks(), 16_384);
    // The mask has another rule in each partition, so only the number of rules of the mask changes.
    rules.insert(masked(2, 16_383)).unwrap();
    let mut change = |metadata| {
        let rule = Rule { priority: 0, ..masked(metadata, 16_383) };
        let began = Instant::now();
        for _ in 0..100_000 {
            assert_eq!(rules.insert(rule), Ok(None));
            assert_eq!(rules.remove(&rule.value, &rule.mask, 0), Some(0));
        }
        began.elapsed()
    };
    let (shared, alone) = (change(1), change(2));
    println!("100,000 changes: {shared:?} in the partition of all masks, {alone:?} in the other partition");
    assert!(shared < 10 * alone + Duration::from_secs(1), "{shared:?} and {alone:?}");
}
