//! Benchmarks of the classifier with half a million rules, ten masks and five priorities. The benchmarks measure
//! look-ups of a few repeated keys and of keys that do not repeat, look-ups with and without tracking, and insertions
//! and removals. `cargo bench -p lookup --bench classifier`

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench ends at the first surprise")]

#[path = "random/mod.rs"]
mod random;

use std::cell::RefCell;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lookup::{Classifier, Layout, Octets, Options, Rule};
use random::{Row, scattered, time};

/// Number of 64-bit words in the flow key of the OpenFlow switch: registers and metadata, L2, L3, ports.
const WORDS: usize = 29;
const LAYOUT: Layout<WORDS> = Layout::new(
    [14, 19, 28, 29],
    &[Octets { from: 152, count: 16 }, Octets { from: 168, count: 16 }],
    &[224, 226],
    (1, 2),
);
const RULES: u64 = 500_000;
const MASKS: u64 = 10;
const PRIORITIES: u64 = 5;
const BATCH: usize = 64;

type Key = [u64; WORDS];

fn mask(number: u64) -> Key {
    let in_port = (14, 0xffff_0000_0000_0000);
    let metadata = (1, u64::MAX);
    let (eth_dst, eth_src) = ((15, !0xffff), [(15, 0xffff), (16, 0xffff_ffff_0000_0000)]);
    let eth_type = (16, 0xffff_0000);
    let ip = (16, 0xffff_ff00);
    let from = |bits: u32| (19, u64::MAX << (64 - bits));
    let to = |bits: u32| (21, u64::MAX << (64 - bits));
    let (both_ports, to_port) = ((28, 0xffff_ffff_0000_0000), (28, 0xffff_0000_0000));
    let parts: &[(usize, u64)] = match number {
        0 => &[in_port, eth_dst],
        1 => &[eth_type, to(32)],
        2 => &[eth_type, to(24)],
        3 => &[eth_type, from(24), to(24)],
        4 => &[ip, to(32), to_port],
        5 => &[ip, from(32), to(32), both_ports],
        6 => &[metadata, eth_dst],
        7 => &[metadata, eth_type, to(32)],
        8 => &[metadata, ip, from(16), to_port],
        _ => &[in_port, eth_src[0], eth_src[1], eth_type, from(32)],
    };
    let mut mask = [0; WORDS];
    for (word, bits) in parts {
        mask[*word] |= bits.to_be();
    }
    mask
}

fn value(rule: u64) -> Key {
    let random = |word: u64| scattered(rule * 32 + word);
    let mut value: Key = std::array::from_fn(|word| random(word as u64));
    // Ports, tenants and protocols have few values.
    value[14] = ((random(14) % 64) << 48).to_be();
    value[1] = (random(1) % 100).to_be();
    value[16] = (random(16) & !0 << 32 | 0x0800_0600).to_be();
    value
}

/// Returns a key that matches the rule with the number `rule`. `noise` selects the bits that the rule's mask ignores.
fn key(rule: u64, noise: u64) -> Key {
    let (value, other, mask) = (value(rule), value(noise), mask(rule % MASKS));
    std::array::from_fn(|word| value[word] & mask[word] | other[word] & !mask[word])
}

fn rules(options: Options) -> Classifier<WORDS, u32> {
    let mut rules = Classifier::new(LAYOUT, options);
    for rule in 0..RULES {
        let priority = u16::try_from(scattered(rule) % PRIORITIES).unwrap();
        let payload = u32::try_from(rule).unwrap();
        rules.insert(Rule { value: value(rule), mask: mask(rule % MASKS), priority, payload }).unwrap();
    }
    rules
}

/// Method of look-up: key by key or in bursts, with or without tracking.
#[derive(Clone, Copy)]
enum How {
    OneByOne { tracked: bool },
    InBursts { tracked: bool },
}

fn look_up(c: &mut Criterion, rules: &Classifier<WORDS, u32>, name: &str, distinct: u64, how: How) {
    let (mut row, keys) = (Row::new(), RefCell::new([[0; WORDS]; BATCH]));
    let mut fill = || {
        for key_of in keys.borrow_mut().iter_mut() {
            // Equal numbers yield equal keys.
            let number = RULES + row.below(distinct);
            *key_of = key(scattered(number) % RULES, scattered(number));
        }
    };
    let mut group = c.benchmark_group("classifier");
    group.throughput(Throughput::Elements(BATCH as u64)).sample_size(20);
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter_custom(|times| {
            time(times, &mut fill, || {
                for keys in keys.borrow().chunks(32) {
                    one_burst(rules, keys, how);
                }
            })
        });
    });
    group.finish();
}

#[inline(always)]
fn one_burst(rules: &Classifier<WORDS, u32>, keys: &[Key], how: How) {
    match how {
        How::OneByOne { tracked: false } => {
            keys.iter().for_each(|key| _ = black_box(rules.lookup(key).unwrap()));
        }
        How::OneByOne { tracked: true } => {
            for key in keys {
                let mut wild = [0; WORDS];
                black_box(rules.lookup_tracked(key, &mut wild).unwrap());
                black_box(&wild);
            }
        }
        How::InBursts { tracked } => {
            let refs: [&Key; 32] = std::array::from_fn(|at| &keys[at]);
            let mut found = [None; 32];
            if tracked {
                let mut wild = [[0; WORDS]; 32];
                rules.lookup_burst_tracked(&refs, &mut wild, &mut found);
                black_box(&wild);
            } else {
                rules.lookup_burst(&refs, &mut found);
            }
            assert!(found.iter().all(Option::is_some));
        }
    }
}

fn classifier(c: &mut Criterion) {
    let mut table = rules(Options::default());
    println!("{} rules: {} MiB", table.len(), table.memory() >> 20);
    for (what, how) in [
        ("", How::OneByOne { tracked: false }),
        (", in bursts", How::InBursts { tracked: false }),
        (", tracked", How::OneByOne { tracked: true }),
        (", tracked, in bursts", How::InBursts { tracked: true }),
    ] {
        look_up(c, &table, &format!("10 keys{what}"), 10, how);
        look_up(c, &table, &format!("100 keys{what}"), 100, how);
        look_up(c, &table, &format!("fresh keys{what}"), u64::MAX - RULES, how);
    }
    let plain = How::OneByOne { tracked: false };
    table.set_options(Options { partitions: false, ..Options::default() });
    look_up(c, &table, "100 keys, no partitions", 100, plain);
    look_up(c, &table, "fresh keys, no partitions", u64::MAX - RULES, plain);
    table.set_options(Options { prefixes: false, ..Options::default() });
    let tracked = How::OneByOne { tracked: true };
    look_up(c, &table, "fresh keys, tracked, no prefixes", u64::MAX - RULES, tracked);
    table.set_options(Options::default());
    churn(c, &mut table);
}

fn churn(c: &mut Criterion, rules: &mut Classifier<WORDS, u32>) {
    let mut row = Row::new();
    let mut group = c.benchmark_group("classifier");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    group.bench_function(BenchmarkId::from_parameter("remove and insert"), |bench| {
        bench.iter(|| {
            let rule = row.below(RULES);
            let priority = u16::try_from(scattered(rule) % PRIORITIES).unwrap();
            let (value, mask) = (value(rule), mask(rule % MASKS));
            // The rule is missing if a later rule of equal value has replaced it.
            if let Some(payload) = rules.remove(&value, &mask, priority) {
                rules.insert(Rule { value, mask, priority, payload }).unwrap();
            }
        });
    });
    group.finish();
}

criterion_group!(benches, classifier);
criterion_main!(benches);
