//! Benchmarks of the connection table with a million connections. `cargo bench -p conn`
//!
//! Each look-up of a random connection reads one cache line of the index and 1.75 cache lines of the entry on average
//! (56 bytes at a multiple of 8), plus another line of the index for 15 % of the connections. A burst waits for two
//! misses in sequence, whatever its size, if the core has enough line fill buffers. The floor of one look-up is
//! therefore the time of about 3 cache lines at the bandwidth of one core for random lines. The benchmark `floor`
//! measures this time: it prefetches three random lines for each look-up, and then reads them.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench ends at the first surprise")]

#[path = "../../lookup/benches/random/mod.rs"]
mod random;

use std::cell::RefCell;
use std::hint::black_box;

use conn::headers::{Content, Packet};
use conn::nat::ports::{Choice, Selection};
use conn::nat::spec::{Nat, Target};
use conn::nat::translate::Rewrite;
use conn::table::{EntryId, NewConnection, Sizes, Table};
use conn::tcp::Segment;
use conn::track::{Commit, CtState, Tracked, Tracker};
use conn::tuple::{Address, End, Side, Tuple, TupleHash};
use conn::zone::Zones;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use packet::tcp::flags;
use random::{Row, scattered, time};
use sync::cpu::prefetch_read;

const BURST: usize = 32;
const CONNECTIONS: u32 = 1 << 20;
/// Time-out of all connections in milliseconds.
const TIMEOUT: u32 = 1 << 30;

/// Returns the tuple of a connection: 65,536 clients, and ports from 16 on.
fn tuple<A: Address + From<u32>>(number: u32) -> Tuple<A> {
    let port = 16 + u16::try_from(number >> 16).unwrap();
    let source = End { address: A::from(0x0a00_0000 | number & 0xffff), port };
    Tuple::of_ends(0, 6, source, End { address: A::from(0x0b00_0001), port: 80 }).0
}

fn filled<A: Address + From<u32>>() -> (Table<A>, Zones) {
    let (mut table, zones) = (Table::new(Sizes::of_entries(CONNECTIONS), TupleHash::new()), Zones::new());
    // Shuffled, so that the entries of consecutive tuples are not neighbours.
    let mut order: Vec<u32> = (0..CONNECTIONS).collect();
    order.sort_by_key(|number| scattered(u64::from(*number)));
    for number in order {
        let id = table.insert(&zones, &NewConnection::of(tuple(number), Side::Low, TIMEOUT), 0).unwrap();
        table.establish(id);
    }
    (table, zones)
}

fn look_up<A: Address + From<u32>>(c: &mut Criterion, name: &str) {
    let (table, _) = filled::<A>();
    let per_connection = table.memory() as f64 / f64::from(CONNECTIONS);
    println!("{name}: {per_connection:.1} bytes per connection");
    let mut row = Row::new();
    let mut numbers = |first| -> Vec<Tuple<A>> {
        (0..CONNECTIONS)
            .map(|_| tuple(first + u32::try_from(row.below(CONNECTIONS.into())).unwrap()))
            .collect()
    };
    let (present, absent) = (numbers(0), numbers(CONNECTIONS));
    let mut group = c.benchmark_group("look-up");
    group.throughput(Throughput::Elements(BURST as u64));
    for (kind, tuples) in [("hit", &present), ("miss", &absent)] {
        bench_bursts(&mut group, BenchmarkId::new(kind, name), tuples, |tuples| {
            let mut found: [Option<EntryId>; BURST] = [None; BURST];
            table.find_burst(tuples, 1, &mut found);
            assert!(found.iter().all(|id| id.is_some() == (kind == "hit")));
        });
    }
    group.finish();
}

/// Benchmarks a function of bursts. The elements of a burst are in the first-level cache when the time begins, as
/// headers are that a worker has just read.
fn bench_bursts<T: Copy>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    elements: &[T],
    mut measured: impl FnMut(&[T; BURST]),
) {
    let mut bursts = elements.as_chunks::<BURST>().0.iter().cycle();
    group.bench_function(id, |bench| {
        bench.iter_custom(|times| {
            let burst = RefCell::new(*bursts.next().unwrap());
            time(times, || *burst.borrow_mut() = *bursts.next().unwrap(), || measured(&burst.borrow()))
        });
    });
}

/// Measures the tracker with established TCP connections at random. Each packet is an acknowledgement that is checked
/// against the windows, and prolongs its connection.
fn track(c: &mut Criterion) {
    let (mut tracker, zones) =
        (Tracker::<u32>::new(Sizes::of_entries(CONNECTIONS), TupleHash::new()), Zones::new());
    let packet = |number: u32, source: Side, flags: u16, seq: u32, ack: u32| {
        let segment = Segment { seq, ack, flags, window: 1000, payload: 0, scale: None };
        Packet { tuple: tuple(number), source, content: Content::Tcp(segment) }
    };
    for number in 0..CONNECTIONS {
        let syn = packet(number, Side::Low, flags::SYN, 99, 0);
        let mut tracked = tracker.track(&zones, &syn, 0);
        tracker.commit(&zones, &syn, &mut tracked, &Commit::default(), 0).unwrap();
        tracker.track(&zones, &packet(number, Side::High, flags::SYN | flags::ACK, 499, 100), 0);
        tracker.track(&zones, &packet(number, Side::Low, flags::ACK, 100, 500), 0);
    }
    let mut row = Row::new();
    let packets: Vec<Packet<u32>> = (0..CONNECTIONS)
        .map(|_| {
            packet(u32::try_from(row.below(CONNECTIONS.into())).unwrap(), Side::Low, flags::ACK, 100, 500)
        })
        .collect();
    let mut group = c.benchmark_group("track");
    group.throughput(Throughput::Elements(BURST as u64));
    bench_bursts(&mut group, BenchmarkId::from_parameter("established TCP"), &packets, |packets| {
        let mut tracked = [Tracked::default(); BURST];
        tracker.track_burst(&zones, packets, 1, &mut tracked);
        assert!(tracked.iter().all(|tracked| tracked.state.has(CtState::ESTABLISHED)));
    });
    group.finish();
}

fn replace(c: &mut Criterion) {
    let (mut table, zones) = filled::<u32>();
    let mut group = c.benchmark_group("remove and insert");
    group.throughput(Throughput::Elements(1));
    let mut next = 0;
    group.bench_function("ipv4", |bench| {
        bench.iter(|| {
            // Each round replaces the connections of the round before.
            let (at, round) = (next % CONNECTIONS, next / CONNECTIONS);
            let of = |round: u32| tuple::<u32>(at + CONNECTIONS * (round % 2));
            let id = table.find(&of(round), 1).unwrap();
            table.remove(id);
            let id = table.insert(&zones, &NewConnection::of(of(round + 1), Side::Low, TIMEOUT), 1).unwrap();
            table.establish(id);
            next += 1;
        });
    });
    group.finish();
    assert_eq!(table.counts().crowded, 0);
}

/// Addresses and ports of the translated sources.
const NAT: Nat<u32> = Nat {
    target: Target::Source,
    first_address: 0xc633_6401,
    last_address: 0xc633_6410,
    ports: None,
    selection: Selection { choice: Choice::Keep, is_persistent: false },
};

/// Tracks and translates one packet of each of the connections, and returns the new fields.
fn translated(
    tracker: &mut Tracker<u32>,
    zones: &Zones,
    packets: &[Packet<u32>; BURST],
    now: u32,
) -> [Rewrite<u32>; BURST] {
    let mut tracked = [Tracked::default(); BURST];
    tracker.track_burst(zones, packets, now, &mut tracked);
    let mut rewrites = [Rewrite::default(); BURST];
    for ((packet, tracked), rewrite) in packets.iter().zip(&mut tracked).zip(&mut rewrites) {
        if tracked.id.is_none() {
            let commit = Commit { nat: Some(NAT), ..Commit::default() };
            tracker.commit(zones, packet, tracked, &commit, now).unwrap();
        }
        *rewrite = tracker.translate(packet, tracked).unwrap();
    }
    rewrites
}

/// Measures whole TCP connections with source NAT: the handshake, four segments of data, and the end, of ten packets.
/// Connections expire four minutes after their end, so about 90,000 connections are in the table.
fn churn(c: &mut Criterion) {
    let sizes = Sizes { translations: 1 << 17, embryonic: 1 << 12, extensions: 0, entries: 1 << 17 };
    let (mut tracker, zones) = (Tracker::<u32>::new(sizes, TupleHash::new()), Zones::new());
    let mut group = c.benchmark_group("churn");
    group.throughput(Throughput::Elements(BURST as u64));
    let (mut number, mut now) = (0_u32, 0_u32);
    let mut batch = || {
        now += 100;
        let ends: [[End<u32>; 2]; BURST] = std::array::from_fn(|at| {
            number += 1;
            let port = u16::try_from(1024 + scattered(u64::from(number)) % 60_000).unwrap();
            let client = End { address: 0x0a00_0000 + number % 5000, port };
            [client, End { address: 0x0b00_0000 + u32::try_from(at).unwrap(), port: 443 }]
        });
        let packets = |ends: &[[End<u32>; 2]; BURST], flags: u16, seq: u32, ack: u32| {
            ends.map(|[from, to]| {
                let (tuple, source) = Tuple::of_ends(0, 6, from, to);
                let segment = Segment { seq, ack, flags, window: 1000, payload: 0, scale: None };
                Packet { tuple, source, content: Content::Tcp(segment) }
            })
        };
        let syn = translated(&mut tracker, &zones, &packets(&ends, flags::SYN, 99, 0), now);
        let mut replies = ends.map(|[_, server]| [server; 2]);
        for ((reply, rewrite), [client, _]) in replies.iter_mut().zip(&syn).zip(&ends) {
            // A port that is kept is not rewritten.
            let port = rewrite.source_port.unwrap_or(client.port);
            reply[1] = End { address: rewrite.source.unwrap(), port };
        }
        const ACK: u16 = flags::ACK;
        for (is_reply, flags, seq, ack) in [
            (true, flags::SYN | ACK, 499, 100),
            (false, ACK, 100, 500),
            (false, ACK, 100, 500),
            (true, ACK, 500, 100),
            (false, ACK, 100, 500),
            (true, ACK, 500, 100),
            (false, flags::FIN | ACK, 100, 500),
            (true, flags::FIN | ACK, 500, 101),
            (false, ACK, 101, 501),
        ] {
            let ends = if is_reply { &replies } else { &ends };
            black_box(translated(&mut tracker, &zones, &packets(ends, flags, seq, ack), now));
        }
        tracker.table.sweep(now, 256);
    };
    (0..3_000).for_each(|_| batch());
    group.bench_function("TCP with SNAT", |bench| bench.iter(&mut batch));
    group.finish();
    let counts = tracker.table.counts();
    assert_eq!((counts.crowded, counts.table_full, counts.displaced), (0, 0, 0));
}

fn sweep(c: &mut Criterion) {
    let (mut table, _) = filled::<u32>();
    let mut group = c.benchmark_group("sweep");
    group.throughput(Throughput::Elements(256));
    group.bench_function("256 live entries", |bench| bench.iter(|| table.sweep(1, 256)));
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
    let mut row = Row::new();
    let mut line = || usize::try_from(row.below(CONNECTIONS.into())).unwrap();
    let at: Vec<[usize; 3]> = (0..CONNECTIONS).map(|_| [line(), line(), line()]).collect();
    let mut group = c.benchmark_group("floor");
    group.throughput(Throughput::Elements(BURST as u64));
    bench_bursts(&mut group, BenchmarkId::from_parameter("3 random lines"), &at, |burst| {
        burst.as_flattened().iter().for_each(|at| prefetch_read(&lines[*at]));
        black_box(burst.as_flattened().iter().map(|at| lines[*at].0[0]).sum::<u64>());
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    floor(c);
    look_up::<u32>(c, "ipv4");
    look_up::<u128>(c, "ipv6");
    track(c);
    replace(c);
    churn(c);
    sweep(c);
}

criterion_group!(benches, all);
criterion_main!(benches);
