//! Benchmarks of the connection table with a million connections. `cargo bench -p conn`
//!
//! Each look-up of a random connection reads one cache line of the index and 1.75 cache lines of the entry on average
//! (56 bytes at a multiple of 8), plus another line of the index for 15 % of the connections. A burst waits for two
//! misses in sequence, whatever its size, if the core has enough line fill buffers. The floor of one look-up is
//! therefore the time of about 3 cache lines at the bandwidth of one core for random lines. The benchmark `floor`
//! measures this time: it prefetches three random lines for each look-up, and then reads them.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench ends at the first surprise")]

use std::hint::black_box;

use conn::table::{EntryId, Sizes, Table};
use conn::tuple::{Address, End, Side, Tuple, TupleHash};
use conn::zone::Zones;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sync::cpu::prefetch_read;

const BURST: usize = 32;
const CONNECTIONS: u32 = 1 << 20;
/// Time-out of all connections in milliseconds.
const TIMEOUT: u32 = 1 << 30;

/// The output function of Vigna's splitmix64, which scatters a number.
fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Returns the tuple of a connection: 65,536 clients, and ports from 16 on.
fn tuple<A: Address + From<u32>>(number: u32) -> Tuple<A> {
    let port = 16 + u16::try_from(number >> 16).unwrap();
    let source = End { address: A::from(0x0a00_0000 | number & 0xffff), port };
    Tuple::of_ends(0, 6, source, End { address: A::from(0x0b00_0001), port: 80 }).0
}

fn filled<A: Address + From<u32>>() -> (Table<A>, Zones) {
    let (mut table, mut zones) = (Table::new(Sizes::of_entries(CONNECTIONS), TupleHash::new()), Zones::new());
    // Shuffled, so that the entries of consecutive tuples are not neighbours.
    let mut order: Vec<u32> = (0..CONNECTIONS).collect();
    order.sort_by_key(|number| scattered(u64::from(*number)));
    for number in order {
        let id = table.insert(&mut zones, &tuple(number), Side::Low, 0, TIMEOUT).unwrap();
        table.establish(id);
    }
    (table, zones)
}

fn look_up<A: Address + From<u32>>(c: &mut Criterion, name: &str) {
    let (table, _) = filled::<A>();
    let per_connection = table.memory() as f64 / f64::from(CONNECTIONS);
    println!("{name}: {per_connection:.1} bytes per connection");
    let random = |number: u32, of: u32| u32::try_from(scattered(u64::from(number)) % u64::from(of)).unwrap();
    let present: Vec<Tuple<A>> = (0..CONNECTIONS).map(|number| tuple(random(number, CONNECTIONS))).collect();
    let absent: Vec<Tuple<A>> =
        (0..CONNECTIONS).map(|number| tuple(CONNECTIONS + random(number, CONNECTIONS))).collect();
    let mut group = c.benchmark_group("look-up");
    group.throughput(Throughput::Elements(BURST as u64));
    for (kind, tuples) in [("hit", &present), ("miss", &absent)] {
        let mut found: [Option<EntryId>; BURST] = [None; BURST];
        let mut bursts = tuples.chunks_exact(BURST).cycle();
        group.bench_function(BenchmarkId::new(kind, name), |bench| {
            bench.iter(|| {
                table.find_burst(bursts.next().unwrap(), 1, &mut found);
                assert!(found.iter().all(|id| id.is_some() == (kind == "hit")));
            });
        });
    }
    group.finish();
}

fn replace(c: &mut Criterion) {
    let (mut table, mut zones) = filled::<u32>();
    let mut group = c.benchmark_group("remove and insert");
    group.throughput(Throughput::Elements(1));
    let mut next = 0;
    group.bench_function("ipv4", |bench| {
        bench.iter(|| {
            // Each round replaces the connections of the round before.
            let (at, round) = (next % CONNECTIONS, next / CONNECTIONS);
            let of = |round: u32| tuple::<u32>(at + CONNECTIONS * (round % 2));
            let id = table.find(&of(round), 1).unwrap();
            table.remove(&mut zones, id);
            let id = table.insert(&mut zones, &of(round + 1), Side::Low, 1, TIMEOUT).unwrap();
            table.establish(id);
            next += 1;
        });
    });
    group.finish();
    assert_eq!(table.counts().crowded, 0);
}

fn sweep(c: &mut Criterion) {
    let (mut table, mut zones) = filled::<u32>();
    let mut group = c.benchmark_group("sweep");
    group.throughput(Throughput::Elements(256));
    group.bench_function("256 live entries", |bench| bench.iter(|| table.sweep(&mut zones, 1, 256)));
    group.finish();
}

/// Measures the memory accesses of a burst of look-ups alone.
fn floor(c: &mut Criterion) {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; 8]);
    // As many lines as the table has.
    let mut lines: Vec<Line> = sync::memory::vec_on_huge_pages(CONNECTIONS as usize);
    lines.resize(CONNECTIONS as usize, Line([1; 8]));
    let at: Vec<usize> = (0..u64::from(CONNECTIONS))
        .map(|number| usize::try_from(scattered(number) % u64::from(CONNECTIONS)).unwrap())
        .collect();
    let mut bursts = at.chunks_exact(3 * BURST).cycle();
    let mut group = c.benchmark_group("floor");
    group.throughput(Throughput::Elements(BURST as u64));
    group.bench_function("3 random lines", |bench| {
        bench.iter(|| {
            let burst = bursts.next().unwrap();
            burst.iter().for_each(|at| prefetch_read(&lines[*at]));
            black_box(burst.iter().map(|at| lines[*at].0[0]).sum::<u64>())
        });
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    floor(c);
    look_up::<u32>(c, "ipv4");
    look_up::<u128>(c, "ipv6");
    replace(c);
    sweep(c);
}

criterion_group!(benches, all);
criterion_main!(benches);
