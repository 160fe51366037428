//! Benchmarks of parsing a received frame: flow key, L2 key, hash and checksums.
//!
//! `cargo bench -p packet`. Every group iterates over 8,192 distinct frames in slots of 128 bytes, 1 MiB in
//! all. The frames exceed the L1 cache, so that reading them is part of the result. Time per frame is 1 /
//! throughput.

#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use packet::{FlowKey, PortId, checksum};

const FRAMES: usize = 8192;
const SLOT: usize = 128;

struct Frames {
    memory: Vec<u8>,
    lens: Vec<usize>,
}

impl Frames {
    fn new(build: impl Fn(u32) -> Vec<u8>) -> Frames {
        let mut memory = vec![0; FRAMES * SLOT];
        let mut lens = Vec::with_capacity(FRAMES);
        for (number, slot) in (0u32..).zip(memory.chunks_exact_mut(SLOT)) {
            let frame = build(number);
            slot[..frame.len()].copy_from_slice(&frame);
            lens.push(frame.len());
        }
        Frames { memory, lens }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.memory.chunks_exact(SLOT).zip(&self.lens).map(|(slot, len)| &slot[..*len])
    }
}

/// Returns a frame with `tags` VLAN tags and the headers of `kind`. The addresses in the frame depend on `number`.
fn frame(number: u32, tags: usize, kind: Kind) -> Vec<u8> {
    let id = number.to_be_bytes();
    let mut frame = vec![2, 0, id[0], id[1], id[2], id[3], 2, 1, id[0], id[1], id[2], id[3]];
    for tag in 0..tags {
        frame.extend([0x81, 0, 0, u8::try_from(tag + 1).unwrap_or(1)]);
    }
    match kind {
        Kind::Udp4 | Kind::Tcp4 => {
            let proto = if matches!(kind, Kind::Udp4) { 17 } else { 6 };
            frame.extend([
                8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, proto, 0, 0, 10, id[1], id[2], id[3], 10, 9, 9, 9,
            ]);
        }
        Kind::Udp6 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 17, 64]);
            frame.extend(
                [[0x20, 1, id[2], id[3], 0, 0, 0, 0], [0; 8], [0x20, 1, 0, 0, 0, 0, 0, 0], [1; 8]].concat(),
            );
        }
        Kind::Arp => {
            frame.extend([
                8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 1, id[0], id[1], id[2], id[3], 10, id[1], id[2], id[3],
            ]);
            frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        }
    }
    frame.extend([id[2], id[3], 0, 80, 0, 20, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    frame.resize(frame.len().max(60), 0);
    frame
}

#[derive(Clone, Copy)]
enum Kind {
    Udp4,
    Tcp4,
    Udp6,
    Arp,
}

fn mixed(number: u32) -> Vec<u8> {
    match number.wrapping_mul(0x9e37_79b9) >> 28 {
        0..=6 => frame(number, 0, Kind::Tcp4),
        7..=10 => frame(number, 0, Kind::Udp4),
        11 | 12 => frame(number, 1, Kind::Tcp4),
        13 | 14 => frame(number, 0, Kind::Udp6),
        _ => frame(number, 0, Kind::Arp),
    }
}

fn extract(c: &mut Criterion) {
    let mut group = c.benchmark_group("extract");
    group.throughput(Throughput::Elements(FRAMES as u64));
    let cases: [(&str, Frames); 5] = [
        ("udp4", Frames::new(|n| frame(n, 0, Kind::Udp4))),
        ("tcp4", Frames::new(|n| frame(n, 0, Kind::Tcp4))),
        ("vlan-tcp4", Frames::new(|n| frame(n, 1, Kind::Tcp4))),
        ("udp6", Frames::new(|n| frame(n, 0, Kind::Udp6))),
        ("mixed", Frames::new(mixed)),
    ];
    let mut keys = vec![FlowKey::ZERO; 256];
    for (name, frames) in &cases {
        group.bench_function(BenchmarkId::new("full", name), |b| {
            b.iter(|| {
                for (place, frame) in frames.iter().enumerate() {
                    let layers = FlowKey::extract(frame, frame.len(), PortId(1), &mut keys[place & 255]);
                    black_box(layers.is_ok());
                }
                black_box(&keys);
            });
        });
        group.bench_function(BenchmarkId::new("l2", name), |b| {
            b.iter(|| {
                for (place, frame) in frames.iter().enumerate() {
                    black_box(FlowKey::extract_l2(frame, PortId(1), &mut keys[place & 255]).is_ok());
                }
                black_box(&keys);
            });
        });
    }
    let source = Frames::new(mixed);
    group.bench_function("source-alone", |b| {
        b.iter(|| {
            for frame in source.iter() {
                black_box(frame[13]);
            }
        });
    });
    group.finish();
}

fn hash(c: &mut Criterion) {
    let frames = Frames::new(mixed);
    let keys: Vec<FlowKey> = frames
        .iter()
        .map(|frame| {
            let mut key = FlowKey::ZERO;
            FlowKey::extract(frame, frame.len(), PortId(1), &mut key).expect("a sound frame");
            key
        })
        .take(256)
        .collect();
    let mut group = c.benchmark_group("hash");
    group.throughput(Throughput::Elements(keys.len() as u64));
    group.bench_function("symmetric", |b| {
        b.iter(|| keys.iter().fold(0, |all: u32, key| all ^ black_box(key).hash_symmetric()));
    });
    group.finish();
}

fn checksums(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for len in [20, 64, 1024, 1500] {
        let bytes = vec![0xa5; len];
        group.bench_function(BenchmarkId::new("sum", len), |b| b.iter(|| checksum::sum(black_box(&bytes))));
        group.bench_function(BenchmarkId::new("crc32c", len), |b| {
            b.iter(|| checksum::crc32c(black_box(&bytes)))
        });
    }
    group.finish();
}

criterion_group!(benches, extract, hash, checksums);
criterion_main!(benches);
