//! Tests of the offloads in software, against a simple implementation on vectors and with invalid offload
//! state.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use proptest::prelude::*;
use std::sync::Arc;

use super::*;
use crate::memory::{HugePages, MemoryConfig};
use crate::packet::Offload;
use crate::pool::Depot;

const FRAMES: u32 = 1024;

fn depot() -> Arc<Depot> {
    let config = MemoryConfig { frames: FRAMES, frame_size: 2048, huge_pages: HugePages::Off };
    Depot::new(Arc::new(FrameMemory::new(config).unwrap()))
}

/// Creates a packet with the given bytes. The frames of the packet have the lengths in `sizes`, which are
/// used in turn. The first frame holds at least `first` bytes.
fn scattered(bytes: &[u8], first: usize, sizes: &[usize], pool: &mut FramePool) -> Packet {
    let first = first.min(bytes.len());
    let mut packet = pool.alloc_copy(&bytes[..first]).unwrap();
    let (mut rest, mut sizes) = (&bytes[first..], sizes.iter().cycle());
    while !rest.is_empty() {
        let n = (*sizes.next().unwrap()).clamp(61, 1792).min(rest.len());
        packet.append(&pool.memory_arc(), pool.alloc_copy(&rest[..n]).unwrap());
        rest = &rest[n..];
    }
    packet
}

fn bytes_of(packet: &Packet, memory: &FrameMemory) -> Vec<u8> {
    packet.parts(memory).flatten().copied().collect()
}

/// Computes the sum of the Internet checksum (RFC 1071) over `bytes`, not complemented, by the simplest algorithm.
fn naive_sum(bytes: &[u8]) -> u32 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[derive(Clone, Debug)]
struct Big {
    v6: bool,
    tcp: bool,
    tags: usize,
    options: usize,
    flags: u8,
    sequence: u32,
    id: u16,
    payload: Vec<u8>,
    size: u16,
}

impl Big {
    fn l3(&self) -> usize {
        14 + 4 * self.tags
    }

    fn l4(&self) -> usize {
        self.l3() + if self.v6 { 40 } else { 20 + 4 * self.options }
    }

    fn l4_header(&self) -> usize {
        if self.tcp { 20 + 4 * self.options } else { 8 }
    }

    fn headers(&self) -> usize {
        self.l4() + self.l4_header()
    }

    fn pseudo(&self, bytes: &[u8], l4_len: usize) -> u32 {
        let addresses = if self.v6 {
            &bytes[self.l3() + 8..self.l3() + 40]
        } else {
            &bytes[self.l3() + 12..self.l3() + 20]
        };
        naive_sum(addresses) + if self.tcp { 6 } else { 17 } + l4_len as u32
    }

    fn field(&self) -> usize {
        self.l4() + if self.tcp { 16 } else { 6 }
    }

    /// Builds the expected frame of one segment. If `partial` is true, the checksum field contains only the
    /// pseudo-header sum.
    fn frame(&self, payload: &[u8], index: usize, sequence: u32, flags: u8, partial: bool) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            bytes.extend([
                if tag == 0 { 0x88 } else { 0x81 },
                if tag == 0 { 0xa8 } else { 0 },
                0,
                tag as u8 + 5,
            ]);
        }
        let l4_len = self.l4_header() + payload.len();
        if self.v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((l4_len as u16).to_be_bytes());
            bytes.extend([if self.tcp { 6 } else { 17 }, 64]);
            bytes.extend((0..32).map(|i| i * 7 + 1));
        } else {
            let header = 20 + 4 * self.options;
            bytes.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
            bytes.extend(((header + l4_len) as u16).to_be_bytes());
            bytes.extend(self.id.wrapping_add(index as u16).to_be_bytes());
            bytes.extend([0x40, 0, 64, if self.tcp { 6 } else { 17 }, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            bytes.extend(vec![1; 4 * self.options]);
            let sum = !(naive_sum(&bytes[self.l3()..]) as u16);
            let at = self.l3() + 10;
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend([0x12, 0x34, 0x56, 0x78]);
        if self.tcp {
            bytes.extend(sequence.to_be_bytes());
            bytes.extend([1, 2, 3, 4, ((self.l4_header() / 4) as u8) << 4, flags, 0, 99, 0, 0, 0, 0]);
            bytes.extend(vec![1; 4 * self.options]);
        } else {
            bytes.extend((l4_len as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(payload);
        let pseudo = self.pseudo(&bytes, l4_len);
        let mut sum = if partial { pseudo } else { pseudo + naive_sum(&bytes[self.l4()..]) };
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let value =
            if partial { sum as u16 } else { if !(sum as u16) == 0 { 0xffff } else { !(sum as u16) } };
        let field = self.field();
        bytes[field..field + 2].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    fn whole(&self) -> Vec<u8> {
        self.frame(&self.payload, 0, self.sequence, self.flags, true)
    }

    fn segments(&self, partial: bool) -> Vec<Vec<u8>> {
        let mut pieces: Vec<&[u8]> = self.payload.chunks(usize::from(self.size)).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        let count = pieces.len();
        let piece = |(i, payload): (usize, &[u8])| {
            let mut flags = self.flags;
            flags &= if i > 0 { 0x7f } else { 0xff };
            flags &= if i + 1 < count { !0x09 } else { 0xff };
            let sequence = self.sequence.wrapping_add((i * usize::from(self.size)) as u32);
            self.frame(payload, i, sequence, flags, partial)
        };
        pieces.into_iter().enumerate().map(piece).collect()
    }

    fn offload(&self, segment: bool) -> Offload {
        let mut offload = Offload {
            flags: Flags::PARTIAL_CHECKSUM,
            csum_start: self.l4() as u16,
            csum_offset: if self.tcp { 16 } else { 6 },
            ..Offload::default()
        };
        if segment {
            offload.flags.insert(Flags::SEGMENT);
            offload.gso_size = self.size;
            offload.gso = match (self.tcp, self.v6) {
                (true, false) => Gso::Tcp4,
                (true, true) => Gso::Tcp6,
                (false, _) => Gso::Udp,
            };
        }
        offload
    }
}

fn big(most: usize) -> impl Strategy<Value = Big> {
    let header =
        (any::<bool>(), any::<bool>(), 0_usize..3, 0_usize..4, any::<u8>(), any::<u32>(), any::<u16>());
    (header, proptest::collection::vec(any::<u8>(), 0..most), 200_u16..9000).prop_map(
        |(header, payload, size)| {
            let (v6, tcp, tags, options, flags, sequence, id) = header;
            Big { v6, tcp, tags, options, flags, sequence, id, payload, size }
        },
    )
}

fn all_back(depot: &Depot, mut pool: FramePool, packets: impl IntoIterator<Item = Packet>) {
    for packet in packets {
        pool.free(packet);
    }
    pool.flush();
    assert_eq!(depot.available(), FRAMES as usize);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segments_are_those_of_the_naive_one(
        big in big(if cfg!(miri) { 3000 } else { 20_000 }), sizes in proptest::collection::vec(1_usize..1800, 1..6), partial in any::<bool>(),
    ) {
        let depot = depot();
        let mut pool = depot.pool();
        let mut packet = scattered(&big.whole(), big.headers() + sizes[0] % 100, &sizes, &mut pool);
        packet.set_offload(pool.memory(), big.offload(true));
        let want = big.segments(partial);
        prop_assert_eq!(segment::segment_count(&packet, pool.memory()), want.len());
        prop_assert_eq!(wire_len(&packet, pool.memory()), want[0].len());
        let caps = Capabilities { partial_checksum: partial, max_segments: 64, ..Capabilities::default() };
        let mut got = Vec::new();
        complete_packet(packet, &caps, &mut pool, &mut |_, packet| got.push(packet)).unwrap();
        prop_assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            prop_assert!(got.flags().contains(Flags::PARTIAL_CHECKSUM) == partial && !needs_completion(got, pool.memory(), &caps));
            prop_assert_eq!(&bytes_of(got, pool.memory()), want);
        }
        all_back(&depot, pool, got);
    }

    #[test]
    fn checksums_are_those_of_the_naive_one(big in big(5000), first in 1_usize..1700, sizes in proptest::collection::vec(1_usize..1800, 1..6)) {
        let depot = depot();
        let mut pool = depot.pool();
        // The frame borders are arbitrary, also inside the checksum field.
        let mut packet = scattered(&big.whole(), first, &sizes, &mut pool);
        packet.set_offload(pool.memory(), big.offload(false));
        complete_checksum(&mut packet, pool.memory()).unwrap();
        prop_assert!(packet.flags().is_empty());
        let want = big.frame(&big.payload, 0, big.sequence, big.flags, false);
        prop_assert_eq!(bytes_of(&packet, pool.memory()), want);
        all_back(&depot, pool, [packet]);
    }

    #[test]
    fn nonsense_is_dropped_and_nothing_else_happens(
        big in big(6000), sizes in proptest::collection::vec(1_usize..1800, 1..4),
        change in (any::<bool>(), any::<u16>(), any::<u16>(), 0_u16..600, any::<u8>(), 0_usize..80, any::<u8>()),
        partial in any::<bool>(), max_segments in 1_u16..8,
    ) {
        let depot = depot();
        let mut pool = depot.pool();
        let (segmented, start, offset, size, gso, at, byte) = change;
        let mut bytes = big.whole();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        let mut packet = scattered(&bytes, 1 + usize::from(byte), &sizes, &mut pool);
        let mut offload = big.offload(segmented);
        if start % 2 == 0 { offload.csum_start = start % 6100 }
        if offset % 2 == 0 { offload.csum_offset = offset % 6100 }
        if size % 2 == 0 { offload.gso_size = size }
        if gso % 2 == 0 { offload.gso = [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp][usize::from(gso / 2) % 4] }
        packet.set_offload(pool.memory(), offload);
        let before = packet.len();
        let caps = Capabilities { partial_checksum: partial, max_segments, ..Capabilities::default() };
        let mut emitted = 0;
        let result = complete_packet(packet, &caps, &mut pool, &mut |pool, packet| {
            assert!(packet.len() <= before && !packet.flags().contains(Flags::SEGMENT) || packet.offload(pool.memory()).gso == Gso::None);
            emitted += 1;
            pool.free(packet);
        });
        prop_assert!(result.is_ok() == (emitted > 0) || result == Err(DropReason::NoFrame));
        all_back(&depot, pool, []);
    }

    #[test]
    fn batches_are_completed_in_order(bigs in proptest::collection::vec((big(3000), any::<bool>()), 1..8)) {
        let depot = depot();
        let mut pool = depot.pool();
        let caps = Capabilities { max_segments: 1, ..Capabilities::default() };
        let (mut batch, mut want) = (Batch::new(), Vec::new());
        for (big, whole) in &bigs {
            let big = Big { size: big.size.min(1400), ..big.clone() };
            let mut packet = scattered(&big.whole(), big.headers(), &[1000], &mut pool);
            let segments = !*whole || packet.segments() > 1;
            packet.set_offload(pool.memory(), big.offload(segments));
            want.extend(if segments { big.segments(false) } else { vec![big.frame(&big.payload, 0, big.sequence, big.flags, false)] });
            batch.push(packet);
        }
        let (mut out, mut got) = (Batch::new(), Vec::new());
        for _ in 0..20 {
            complete(&mut batch, &caps, &mut pool, &mut out, &mut |reason| panic!("{reason}"));
            for packet in out.drain(..) {
                got.push(bytes_of(&packet, pool.memory()));
                pool.free(packet);
            }
        }
        prop_assert_eq!(got, want);
        all_back(&depot, pool, []);
    }

    #[test]
    fn bare_checksums_are_found_and_completed(big in big(1200), padding in 0_usize..30, finished in any::<bool>()) {
        let depot = depot();
        let mut pool = depot.pool();
        let whole = big.frame(&big.payload, 0, big.sequence, big.flags, !finished);
        let mut padded = whole.clone();
        padded.extend(vec![0xaa; padding]);
        let mut packet = pool.alloc_copy(&padded).unwrap();
        let mut key = packet::FlowKey::ZERO;
        let layers = packet::FlowKey::extract(&padded, packet.len(), packet::PortId(1), &mut key).unwrap();
        let marked = mark_bare_checksum(&mut packet, pool.memory(), &layers, &key);
        let was_bare = whole == big.frame(&big.payload, 0, big.sequence, big.flags, true);
        prop_assert_eq!(marked, was_bare);
        complete_checksum(&mut packet, pool.memory()).unwrap();
        let want = big.frame(&big.payload, 0, big.sequence, big.flags, false);
        prop_assert_eq!(&bytes_of(&packet, pool.memory())[..want.len()], &want[..]);
        all_back(&depot, pool, [packet]);
    }
}

#[test]
fn a_chain_too_long_is_repacked_or_dropped() {
    let depot = depot();
    let mut pool = depot.pool();
    let bytes: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    let caps = Capabilities { max_segments: 2, ..Capabilities::default() };
    let packet = scattered(&bytes, 10, &[100], &mut pool);
    let mut got = Vec::new();
    complete_packet(packet, &caps, &mut pool, &mut |_, packet| got.push(packet)).unwrap();
    assert_eq!((got[0].segments(), bytes_of(&got[0], pool.memory())), (2, bytes.clone()));
    let packet = scattered(&bytes, 10, &[100], &mut pool);
    let caps = Capabilities { max_segments: 1, ..caps };
    let result = complete_packet(packet, &caps, &mut pool, &mut |_, _| panic!("emitted"));
    assert_eq!(result, Err(DropReason::TooManySegments));
    all_back(&depot, pool, got);
}
