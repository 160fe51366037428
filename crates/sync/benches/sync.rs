//! Benchmarks of the operations of a worker per burst and per packet: `cargo bench -p sync`.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use criterion::{Criterion, Throughput, black_box, criterion_group, criterion_main};
use sync::mac_table::MacTable;
use sync::qsbr::Domain;
use sync::snapshot::Snapshot;
use sync::token_bucket::TokenBucket;
use sync::{cpu, mpmc, spsc, wake::WakeFlag};

const BURST: usize = 256;

fn rings(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    let items: Vec<u64> = (0..BURST as u64).collect();
    let mut out = vec![0u64; BURST];
    group.throughput(Throughput::Elements(BURST as u64));
    group.bench_function("spsc/slices of 256", |b| {
        let (mut producer, mut consumer) = spsc::channel(1024);
        b.iter(|| producer.push_slice(black_box(&items)) + consumer.pop_slice(black_box(&mut out)));
    });
    group.bench_function("spsc/iterator to closure, 256", |b| {
        let (mut producer, mut consumer) = spsc::channel(1024);
        b.iter(|| {
            producer.push_from(&mut black_box(&items).iter().copied());
            consumer.pop_burst(BURST, |item| {
                black_box(item);
            })
        });
    });
    group.bench_function("mpmc/slices of 256", |b| {
        let ring = mpmc::Ring::new(1024);
        b.iter(|| ring.push_slice(black_box(&items)) + ring.pop_slice(black_box(&mut out)));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("spsc/push and pop one", |b| {
        let (mut producer, mut consumer) = spsc::channel(1024);
        b.iter(|| (producer.push(black_box(1u64)), consumer.pop()));
    });
    group.finish();
}

fn per_burst(c: &mut Criterion) {
    let mut group = c.benchmark_group("per burst");
    let domain = Domain::new();
    let mut reader = domain.register().expect("a place");
    let snapshot = Snapshot::new(&domain, 7u64);
    group.bench_function("quiescent", |b| b.iter(|| black_box(&mut reader).quiescent()));
    group.bench_function("snapshot read", |b| b.iter(|| *black_box(&snapshot).read(black_box(&reader))));
    let bucket = TokenBucket::new(1_000_000_000, 1_000_000, 0);
    let mut now = 0;
    group.bench_function("token bucket take", |b| {
        b.iter(|| {
            now += 300;
            bucket.take(now, 256)
        });
    });
    let clock = cpu::TscClock::new();
    group.bench_function("clock", |b| b.iter(|| clock.now_ns()));
    let flag = WakeFlag::new();
    group.bench_function("notify of one awake", |b| b.iter(|| flag.notify_if_sleeping(|| {})));
    group.bench_function("crc32c of 8 bytes", |b| b.iter(|| cpu::crc32c_u64(1, black_box(2))));
    group.finish();
}

fn macs(c: &mut Criterion) {
    let mut group = c.benchmark_group("mac table");
    group.throughput(Throughput::Elements(BURST as u64));
    for count in [64u64, 100_000] {
        let table = MacTable::with_capacity(usize::try_from(count).expect("fits"), 1);
        let key = |n: u64| (0x0200_0000_0000 + n * 0x1_0001) | (1 << 48);
        for n in 0..count {
            let _ = table.insert(key(n), u32::try_from(n).expect("fits"), 0);
        }
        // Uneven steps through all keys, so that no prefetcher predicts the next line.
        let mut state = 1u64;
        let keys: Vec<u64> = (0..1 << 18)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                key((state >> 33) % count)
            })
            .collect();
        let mut bursts = keys.chunks(BURST).cycle();
        group.bench_function(format!("{count} keys, one by one"), |b| {
            b.iter(|| {
                bursts.next().map(|burst| burst.iter().filter(|key| table.lookup(**key).is_some()).count())
            });
        });
        let mut at = Vec::with_capacity(BURST);
        group.bench_function(format!("{count} keys, prefetched"), |b| {
            b.iter(|| {
                let burst = bursts.next().unwrap_or(&[]);
                at.clear();
                at.extend(burst.iter().map(|key| table.prefetch(*key)));
                at.iter()
                    .zip(burst)
                    .map(|(at, key)| table.lookup_at(*at, *key).map_or(0, |hit| hit.value))
                    .max()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, rings, per_burst, macs);
criterion_main!(benches);
