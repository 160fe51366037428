//! Benchmarks of a worker's flow cache with bursts of 256 packets, whose keys are built immediately before each
//! look-up. The benchmarks measure hits in the exact-match cache, hits in the megaflow tables, insertions and removals.
//! `cargo bench -p lookup --bench flow_cache`

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench ends at the first surprise")]

#[path = "random/mod.rs"]
mod random;

use std::cell::RefCell;
use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lookup::{FlowCache, FlowLimits, FlowRef, MISS};
use random::{Row, scattered, time};

const BURST: usize = 256;
/// Receiving port of the packets. The keys also distinguish ports.
const PORT: u16 = 1;
type Key = [u64; 8];
/// Value of a flow. The value has the size of the values in a worker's flow cache: a reference to the actions, and
/// counters.
type Value = [u64; 3];
type Cache = FlowCache<7, Value>;

fn be(bits: u64) -> u64 {
    bits.to_be()
}

/// Returns one of 32 masks, which `number` (0 to 31) selects. Each mask covers the receiving port, the EtherType, and
/// the fields that a route, an access list or a bridge matches.
fn mask(number: u64) -> Key {
    let (in_port, eth_type, proto) = (be(0xffff_0000_0000_0000), be(0x0000_0000_ffff_0000), be(0xff00));
    let address = |bits: u64| be(u64::MAX << (64 - bits));
    let ports = be(0xffff_ffff_0000_0000);
    let bits = 24 + number / 4;
    match number % 4 {
        0 => [in_port, 0, eth_type, 0, 0, address(bits), 0, 0],
        1 => [in_port, 0, eth_type | proto, address(bits), 0, address(32), 0, ports],
        2 => [in_port, u64::MAX, be(!0 << 16), address(bits), 0, 0, 0, 0],
        _ => [in_port, 0, eth_type | proto, address(bits), 0, address(bits), 0, be(0x0000_ffff_0000_0000)],
    }
}

/// Returns the key of a packet of flow `flow`. The number of the flow selects one of `masks` masks. `noise` selects the
/// bits that the mask ignores. The port field of the key holds the number of the mask, so that flows with different
/// masks are disjoint.
fn key(flow: u64, masks: u64, noise: u64) -> Key {
    let number = flow % masks;
    let mask = mask(number);
    std::array::from_fn(|word| {
        let own = if word == 0 { number.to_le() } else { scattered(flow * 8 + word as u64) };
        own & mask[word] | scattered(noise + word as u64) & !mask[word]
    })
}

fn cache(flows: u64, masks: u64) -> (Cache, Vec<FlowRef>) {
    let mut cache = Cache::new(FlowLimits::default());
    let mut insert =
        |flow| cache.insert(PORT, &key(flow, masks, 0), &[0; 7], &mask(flow % masks), &[0; 7], [flow; 3]);
    // Flows with short prefixes sometimes have equal masked keys. Such duplicates are not inserted.
    let flows = (0..flows).filter_map(|flow| insert(flow).ok()).collect();
    (cache, flows)
}

/// Measures look-ups of packets that belong to random flows. `noise` is the number of different packets per flow. One
/// of `one_in` packets that miss the exact-match cache inserts an entry. `None` disables the exact-match cache.
fn look_up(c: &mut Criterion, name: &str, flows: u64, masks: u64, noise: u64, one_in: Option<u32>) {
    let (mut cache, _) = cache(flows, masks);
    cache.set_exact(one_in.and_then(NonZeroU32::new));
    let (mut row, keys, mut found) = (Row::new(), RefCell::new([[0; 8]; BURST]), [MISS; BURST]);
    let mut fill = || {
        keys.borrow_mut()
            .iter_mut()
            .for_each(|key_of| *key_of = key(row.below(flows), masks, row.below(noise)))
    };
    // The first rounds are not measured. They fill the exact-match cache.
    let mut rounds = |times| {
        time(times, &mut fill, || {
            let keys = keys.borrow();
            cache.find_burst(PORT, |packet| &keys[packet], |_| [0; 7], &mut found);
            black_box(&found);
        })
    };
    rounds(4 * flows / BURST as u64 + 1);
    let mut group = c.benchmark_group("flow cache");
    group.throughput(Throughput::Elements(BURST as u64)).sample_size(30);
    group.bench_function(BenchmarkId::from_parameter(name), |bench| bench.iter_custom(&mut rounds));
    group.finish();
    cache.rerank();
    let counters = cache.counters();
    println!("{name}: {counters:?}, {} KiB", cache.memory() / 1024);
}

fn flow_cache(c: &mut Criterion) {
    for flows in [1, 256, 4096] {
        look_up(c, &format!("exact, {flows} flows"), flows, 5, 1, Some(1));
    }
    for masks in [1, 5, 10, 20, 30] {
        look_up(c, &format!("{masks} masks, 100,000 flows, no hints"), 100_000, masks, 1, None);
    }
    look_up(c, "5 masks, 100,000 flows, hints of 1 in 100", 100_000, 5, 1, Some(100));
    look_up(c, "5 masks, 100 flows, each packet another, hints of 1 in 100", 100, 5, 1 << 40, Some(100));
    misses(c);
    churn(c);
}

/// Measures look-ups of packets that match no flow, and are therefore looked up under every mask.
fn misses(c: &mut Criterion) {
    let (mut cache, _) = cache(100_000, 10);
    cache.set_exact(None);
    let (mut row, keys, mut found) = (Row::new(), RefCell::new([[0; 8]; BURST]), [MISS; BURST]);
    let mut fill = || keys.borrow_mut().iter_mut().for_each(|key| *key = std::array::from_fn(|_| row.next()));
    let mut group = c.benchmark_group("flow cache");
    group.throughput(Throughput::Elements(BURST as u64)).sample_size(30);
    group.bench_function(BenchmarkId::from_parameter("10 masks, 100,000 flows, none matches"), |bench| {
        bench.iter_custom(|times| {
            time(times, &mut fill, || {
                let keys = keys.borrow();
                cache.find_burst(PORT, |packet| &keys[packet], |_| [0; 7], &mut found);
                black_box(&found);
            })
        });
    });
    group.finish();
}

fn churn(c: &mut Criterion) {
    let (mut cache, mut flows) = cache(100_000, 10);
    let mut row = Row::new();
    let mut group = c.benchmark_group("flow cache");
    group.throughput(Throughput::Elements(1)).sample_size(30);
    group.bench_function(BenchmarkId::from_parameter("remove and insert, 100,000 flows"), |bench| {
        bench.iter(|| {
            let at = usize::try_from(row.below(flows.len() as u64)).unwrap();
            let value = cache.remove(flows[at]).unwrap();
            let (key, mask) = (key(value[0], 10, 0), mask(value[0] % 10));
            flows[at] = cache.insert(PORT, &key, &[0; 7], &mask, &[0; 7], value).unwrap();
        });
    });
    group.finish();
}

criterion_group!(benches, flow_cache);
criterion_main!(benches);
