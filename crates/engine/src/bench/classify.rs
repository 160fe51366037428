//! Scenario that measures only the classifier of the flow tables, without other stages. The classifier holds
//! half a million rules with ten masks and five priorities.

use std::hint::black_box;
use std::time::Instant;

use lookup::{Classifier, Options as Uses, Rule};
use switch::flow::{FLOW_WORDS, Field, LAYOUT, Match};

use crate::bench::circuit::scattered;
use crate::bench::figures::{Figures, Row};
use crate::bench::{BenchError, Options};

const RULES: u64 = 500_000;
const PRIORITIES: u64 = 5;
/// Number of distinct flow keys in the cases that look up few flow keys repeatedly.
const FEW: u64 = 100;
/// Number of flow keys that are generated before each timed batch of lookups.
const BATCH: usize = 512;
/// Number of flow keys in one batched lookup. The slow path looks up upcalls in batches of this size.
const TURN: usize = 32;

type Key = [u64; FLOW_WORDS];
type Rules = Classifier<FLOW_WORDS, u32>;

/// Masks of the rules. A mask is a list of pairs. Each pair contains a field and the number of the
/// field's most significant bits that the rules match.
const SHAPES: [&[(Field, u32)]; 10] = [
    &[(Field::InPort, 32), (Field::EthDst, 48)],
    &[(Field::EthType, 16), (Field::Ipv4Dst, 32)],
    &[(Field::EthType, 16), (Field::Ipv4Dst, 24)],
    &[(Field::EthType, 16), (Field::Ipv4Src, 24), (Field::Ipv4Dst, 24)],
    &[(Field::EthType, 16), (Field::IpProto, 8), (Field::Ipv4Dst, 32), (Field::TcpDst, 16)],
    &[
        (Field::EthType, 16),
        (Field::IpProto, 8),
        (Field::Ipv4Src, 32),
        (Field::Ipv4Dst, 32),
        (Field::TcpSrc, 16),
        (Field::TcpDst, 16),
    ],
    &[(Field::Metadata, 64), (Field::EthDst, 48)],
    &[(Field::Metadata, 64), (Field::EthType, 16), (Field::Ipv4Dst, 32)],
    &[
        (Field::Metadata, 64),
        (Field::EthType, 16),
        (Field::IpProto, 8),
        (Field::Ipv4Src, 16),
        (Field::TcpDst, 16),
    ],
    &[(Field::InPort, 32), (Field::EthSrc, 48), (Field::EthType, 16), (Field::Ipv4Src, 32)],
];

/// Derives a value of `field` from a random number. Port and tenant fields get values from a small range.
fn value(field: Field, random: u64) -> u128 {
    let random = u128::from(scattered(random));
    match field {
        Field::InPort => random % 64,
        Field::Metadata => random % 100,
        Field::EthType => 0x0800,
        Field::IpProto => 6,
        field => random & field.all_ones(),
    }
}

/// Returns the match fields and the priority of rule `number` of the test classifier.
fn rule(number: u64) -> (Match, u16) {
    let shape = SHAPES[usize::try_from(number).unwrap_or(0) % SHAPES.len()];
    let mut matching = Match::ANY;
    for (place, (field, bits)) in (0..).zip(shape) {
        let width = u32::try_from(field.bits()).unwrap_or(0);
        let mask = field.all_ones() >> (width - bits) << (width - bits);
        matching.put(*field, value(*field, number * 32 + place), mask);
    }
    (matching, u16::try_from(scattered(number) % PRIORITIES).unwrap_or(0))
}

/// Returns a flow key that matches rule `number`. Fields that the rule does not match get values derived from
/// `noise`.
fn key(number: u64, noise: u64) -> Key {
    const FIELDS: [Field; 10] = [
        Field::InPort,
        Field::Metadata,
        Field::EthDst,
        Field::EthSrc,
        Field::EthType,
        Field::IpProto,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::TcpSrc,
        Field::TcpDst,
    ];
    let mut packet = Match::ANY;
    for (place, field) in (0..).zip(FIELDS) {
        packet.put(field, value(field, noise.wrapping_mul(32) + place), field.all_ones());
    }
    let (matching, _) = rule(number);
    let (packet, value, mask) = (packet.value.0, matching.value.0, matching.mask.0);
    std::array::from_fn(|word| packet[word] & !mask[word] | value[word] & mask[word])
}

/// Measures the lookup time in a classifier of half a million rules, for all variants of the lookup (`How`) and all
/// sets of flow keys.
pub(super) fn classifier(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let mut rules = Rules::new(LAYOUT, Uses::default());
    let begin = Instant::now();
    for number in 0..RULES {
        let (matching, priority) = rule(number);
        let payload = u32::try_from(number).unwrap_or(0);
        let rule = Rule { value: matching.value.0, mask: matching.mask.0, priority, payload };
        if rules.insert(rule).is_err() {
            return Err(BenchError::Nothing(name));
        }
    }
    let loaded = begin.elapsed().as_secs_f64();
    let seconds = options.seconds / 8.0;
    let mut rows = Vec::new();
    for (row, distinct, how) in [
        ("few keys", FEW, How { tracked: false, together: true }),
        ("few keys, tracked", FEW, How { tracked: true, together: true }),
        ("fresh keys", u64::MAX, How { tracked: false, together: true }),
        ("fresh keys, tracked", u64::MAX, How { tracked: true, together: true }),
        ("few keys, one by one", FEW, How { tracked: false, together: false }),
        ("few keys, tracked, one by one", FEW, How { tracked: true, together: false }),
        ("fresh keys, one by one", u64::MAX, How { tracked: false, together: false }),
        ("fresh keys, tracked, one by one", u64::MAX, How { tracked: true, together: false }),
    ] {
        let (best, all, looked_up) = look_up(&rules, distinct, how, seconds);
        rows.push(Row {
            name: row,
            figures: vec![
                ("ns_per_lookup", all),
                ("best_ns_per_lookup", best),
                ("lookups_per_second", 1e9 / all),
                ("lookups", looked_up as f64),
                ("rules", rules.len() as f64),
                ("masks", rules.masks() as f64),
                ("megabytes", rules.memory() as f64 / 1e6),
                ("load_seconds", loaded),
            ],
        });
    }
    Ok(Figures { scenario: name, rows })
}

/// Variant of the lookup to measure.
#[derive(Clone, Copy)]
struct How {
    /// Whether the lookup also computes the megaflow mask, which consists of the key bits on which
    /// the lookup's result depends.
    tracked: bool,
    /// Whether the lookup processes [`TURN`] keys as a batch (true) or one by one (false).
    together: bool,
}

/// Looks up `keys` and returns the number of keys for which no rule was found.
fn look_up_batch(rules: &Rules, keys: &[Key], how: How) -> usize {
    let mut missed = 0;
    for keys in keys.chunks(TURN) {
        let (mut wild, mut found) = ([[0; FLOW_WORDS]; TURN], [None; TURN]);
        let own: [&Key; TURN] = std::array::from_fn(|at| &keys[at % keys.len()]);
        match how {
            How { tracked: true, together: true } => rules.lookup_burst_tracked(&own, &mut wild, &mut found),
            How { tracked: false, together: true } => rules.lookup_burst(&own, &mut found),
            How { tracked: true, together: false } => {
                for (key, (wild, found)) in own.into_iter().zip(wild.iter_mut().zip(&mut found)) {
                    *found = rules.lookup_tracked(key, wild);
                }
            }
            How { tracked: false, together: false } => {
                for (key, found) in own.into_iter().zip(&mut found) {
                    *found = rules.lookup(key);
                }
            }
        }
        if how.tracked {
            black_box(&wild);
        }
        missed += black_box(&found).iter().filter(|found| found.is_none()).count();
    }
    missed
}

/// Measures lookups for `seconds` seconds. Returns the time of one lookup in nanoseconds in the fastest batch
/// and in the median batch, and the number of lookups.
fn look_up(rules: &Rules, distinct: u64, how: How, seconds: f64) -> (f64, f64, u64) {
    let hz = sync::cpu::tsc_hz() as f64;
    let (mut times, mut number) = (Vec::new(), 0_u64);
    let (mut keys, mut missed) = (vec![[0; FLOW_WORDS]; BATCH], 0);
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds || times.len() < 3 {
        for (place, own) in (0_u64..).zip(&mut keys) {
            // A small set of keys repeats in random order. Fresh keys do not repeat.
            let noise = scattered(number + place) % distinct;
            *own = key(scattered(noise) % RULES, noise);
        }
        number += BATCH as u64;
        let before = sync::cpu::tsc();
        missed += look_up_batch(rules, &keys, how);
        times.push(sync::cpu::tsc().wrapping_sub(before) as f64 / BATCH as f64 * 1e9 / hz);
    }
    assert!(missed == 0, "every key of the bench matches a rule");
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2], times.len() as u64 * BATCH as u64)
}
