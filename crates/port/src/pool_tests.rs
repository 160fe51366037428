//! Tests that compare packets and pools with plain vectors. No sequence of operations may lose or duplicate a frame.
//! The contents of packets that consist of several frames (chains) must equal the vectors.

use proptest::prelude::*;
use std::sync::Arc;

use crate::memory::{Backing, FrameMemory, HugePages, MemoryConfig, MemoryError};
use crate::packet::{Flags, Gso, Offload, Packet};
use crate::pool::{Depot, FramePool};
use crate::queue::{Batch, Queue};

const FRAMES: u32 = 64;

fn depot(frames: u32) -> Arc<Depot> {
    let config = MemoryConfig { frames, frame_size: 2048, huge_pages: HugePages::Off };
    Depot::new(Arc::new(FrameMemory::new(config).unwrap()))
}

fn bytes_of(packet: &Packet, memory: &FrameMemory) -> Vec<u8> {
    let mut out = vec![0; packet.len()];
    assert_eq!(packet.copy_to(memory, &mut out), out.len());
    assert_eq!(packet.parts(memory).flatten().copied().collect::<Vec<_>>(), out);
    assert_eq!(packet.parts(memory).count(), usize::from(packet.segments()));
    out
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(Vec<u8>),
    Copy(usize),
    Append(usize, Vec<u8>),
    Prepend(usize, u16),
    TrimFront(usize, u16),
    SetLen(usize, u16),
    Write(usize, u16, u8),
    Free(usize),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 1..most);
    prop_oneof![
        3 => bytes(6000).prop_map(Step::Alloc),
        2 => (0_usize..8).prop_map(Step::Copy),
        2 => (0_usize..8, bytes(1792)).prop_map(|(i, bytes)| Step::Append(i, bytes)),
        1 => (0_usize..8, 0_u16..300).prop_map(|(i, n)| Step::Prepend(i, n)),
        1 => (0_usize..8, 0_u16..300).prop_map(|(i, n)| Step::TrimFront(i, n)),
        1 => (0_usize..8, 1_u16..2100).prop_map(|(i, n)| Step::SetLen(i, n)),
        2 => (0_usize..8, any::<u16>(), any::<u8>()).prop_map(|(i, at, value)| Step::Write(i, at, value)),
        2 => (0_usize..8).prop_map(Step::Free),
        1 => Just(Step::Flush),
    ]
}

/// Applies one operation of a test to a packet, and to the vector that models the packet. The contents of new bytes in
/// a packet are undefined, so these bytes are copied from the packet to the vector.
fn apply(step: Step, packets: &mut Vec<(Packet, Vec<u8>)>, pool: &mut FramePool) {
    let memory = pool.memory_arc();
    match step {
        Step::Alloc(bytes) => {
            if let Ok(packet) = pool.alloc_copy(&bytes) {
                packets.push((packet, bytes));
            }
        }
        Step::Copy(i) => {
            if let Some((packet, twin)) = packets.get(i)
                && let Ok(copy) = pool.copy(packet)
            {
                packets.push((copy, twin.clone()));
            }
        }
        Step::Append(i, bytes) => {
            if let Some((packet, twin)) = packets.get_mut(i)
                && let Ok(tail) = pool.alloc_copy(&bytes)
            {
                packet.append(&memory, tail);
                twin.extend(bytes);
            }
        }
        Step::Prepend(i, n) => {
            if let Some((packet, twin)) = packets.get_mut(i) {
                let grown = packet.prepend(n);
                if grown {
                    let head = packet.head(&memory)[..usize::from(n)].to_vec();
                    twin.splice(0..0, head);
                }
            }
        }
        Step::TrimFront(i, n) => {
            if let Some((packet, twin)) = packets.get_mut(i)
                && packet.trim_front(n)
            {
                twin.drain(..usize::from(n));
            }
        }
        Step::SetLen(i, n) => {
            if let Some((packet, twin)) = packets.get_mut(i)
                && packet.set_len(&memory, n)
            {
                *twin = bytes_of(packet, &memory);
                assert_eq!((twin.len(), packet.segments()), (usize::from(n), 1));
            }
        }
        Step::Write(i, at, value) => {
            if let Some((packet, twin)) = packets.get_mut(i) {
                let at = usize::from(at) % twin.len();
                twin[at] = value;
                let mut position = 0;
                packet.for_each_segment_mut(&memory, |bytes| {
                    if let Some(byte) = at.checked_sub(position).and_then(|at| bytes.get_mut(at)) {
                        *byte = value;
                    }
                    position += bytes.len();
                });
            }
        }
        Step::Free(i) => {
            if i < packets.len() {
                pool.free(packets.remove(i).0);
            }
        }
        Step::Flush => pool.flush(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_hold_what_vectors_hold(steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 8 } else { 60 })) {
        let depot = depot(FRAMES);
        let mut pool = depot.pool();
        let mut packets = Vec::new();
        for step in steps {
            apply(step, &mut packets, &mut pool);
            for (packet, twin) in &packets {
                prop_assert_eq!(&bytes_of(packet, pool.memory()), twin);
                prop_assert_eq!(packet.head_len(), packet.head(pool.memory()).len());
            }
            let held: usize = packets.iter().map(|(packet, _)| usize::from(packet.segments())).sum();
            let stock: usize = depot.available();
            prop_assert!(held + stock <= FRAMES as usize);
        }
        for (packet, _) in packets {
            pool.free(packet);
        }
        drop(pool);
        let mut frames = depot.drain();
        frames.sort_unstable();
        prop_assert!(frames.into_iter().eq(0..FRAMES));
    }
}

#[test]
fn pools_of_several_threads_conserve_frames() {
    let frames = if cfg!(miri) { 128 } else { 8192 };
    let depot = depot(frames);
    std::thread::scope(|scope| {
        for seed in 0..3_u32 {
            let depot = &depot;
            scope.spawn(move || {
                let mut pool = depot.pool();
                let mut held = Vec::new();
                let mut random = seed + 1;
                for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Sequences of allocations and releases are long enough to refill and to spill.
                    if random >> 20 & 1 == 0 {
                        held.extend(pool.alloc());
                    } else if let Some(packet) = held.pop() {
                        pool.free(packet);
                    }
                }
                for packet in held {
                    pool.free(packet);
                }
            });
        }
    });
    let mut left = depot.drain();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..frames));
}

#[test]
fn exhaustion_is_an_answer_and_not_a_leak() {
    let depot = depot(FRAMES);
    let mut pool = depot.pool();
    let whole = pool.alloc_copy(&vec![1; 60 * 1792]).unwrap();
    assert!(pool.alloc_copy(&[1; 5 * 1792]).is_err());
    assert!(pool.copy(&whole).is_err());
    pool.free(whole);
    pool.flush();
    assert_eq!(depot.available(), FRAMES as usize);
}

#[test]
fn offload_offsets_move_with_the_front() {
    let depot = depot(FRAMES);
    let mut pool = depot.pool();
    let mut packet = pool.alloc_copy(&[0; 100]).unwrap();
    let flags = Flags::PARTIAL_CHECKSUM;
    let offload = Offload { flags, csum_start: 34, csum_offset: 6, gso: Gso::Udp, gso_size: 1400 };
    packet.set_offload(pool.memory(), offload);
    assert!(packet.prepend(4));
    assert_eq!(packet.offload(pool.memory()), Offload { csum_start: 38, ..offload });
    assert!(packet.trim_front(4) && packet.offload(pool.memory()) == offload);
    assert!(!packet.prepend(257) && !packet.trim_front(100));
    let copy = pool.copy(&packet).unwrap();
    assert_eq!(copy.offload(pool.memory()), offload);
    assert!(
        packet.trim_front(40) && packet.offload(pool.memory()).csum_start == 0,
        "never before the packet"
    );
    packet.clear_offload(Flags::PARTIAL_CHECKSUM);
    assert_eq!(packet.offload(pool.memory()), Offload::default());
    pool.free(copy);
    pool.free(packet);
}

#[test]
#[should_panic(expected = "another frame memory")]
fn a_packet_of_another_memory_is_refused() {
    let (one, other) = (depot(FRAMES), depot(FRAMES));
    let packet = one.pool().alloc_copy(&[1; 60]).unwrap();
    let _ = packet.head(other.memory());
}

#[test]
fn impossible_sizes_are_named() {
    let with = |frames, frame_size| {
        FrameMemory::new(MemoryConfig { frames, frame_size, huge_pages: HugePages::Off }).err().unwrap()
    };
    assert!(matches!(with(100, 1500), MemoryError::FrameSize(1500)));
    assert!(matches!(with(3, 2048), MemoryError::Frames(3)));
}

#[cfg(not(miri))]
#[test]
fn every_frame_can_be_written_whatever_backs_it() {
    for huge_pages in [HugePages::Try, HugePages::Off] {
        // Frame counts: less than a huge page, exactly one, one frame more, and an odd number of half pages.
        for frames in [64, 1024, 1025, 3001] {
            let memory = FrameMemory::new(MemoryConfig { frames, frame_size: 2048, huge_pages }).unwrap();
            let depot = Depot::new(Arc::new(memory));
            let mut pool = depot.pool();
            let mut packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
            assert_eq!(packets.len(), frames as usize);
            for packet in &mut packets {
                let frame = packet.frame();
                assert!(packet.set_len(depot.memory(), 1792));
                packet.head_mut(depot.memory()).fill(u8::try_from(frame % 251).unwrap());
            }
            for packet in packets {
                let value = u8::try_from(packet.frame() % 251).unwrap();
                assert!(packet.head(depot.memory()).iter().all(|byte| *byte == value));
                pool.free(packet);
            }
            let base = depot.memory().base().addr().get();
            assert!(frames < 1024 || base.is_multiple_of(2 << 20), "{frames} frames at {base:#x}");
            assert!(
                depot.memory().backing() != Backing::Normal
                    || depot.memory().warning().is_some() == (huge_pages == HugePages::Try)
            );
        }
    }
}

#[cfg(not(miri))]
#[test]
fn memory_is_shared_with_a_successor_and_cannot_shrink() {
    let depot = depot(FRAMES);
    let mut pool = depot.pool();
    let packet = pool.alloc_copy(b"written by the predecessor").unwrap();
    let fd = || depot.memory().fd().try_clone_to_owned().unwrap();
    let successor = FrameMemory::from_fd(fd(), FRAMES, 2048, Backing::Normal).unwrap();
    // SAFETY: no thread writes the frame meanwhile.
    #[allow(unsafe_code, reason = "reads the frame as its next owner would")]
    let seen = unsafe { successor.slice(packet.frame(), packet.offset(), 26) };
    assert_eq!(seen, b"written by the predecessor");
    assert!(FrameMemory::from_fd(fd(), FRAMES + 1, 2048, Backing::Normal).is_err());
    assert!(rustix::fs::ftruncate(fd(), 0).is_err());
    let plain = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&plain, 1 << 20).unwrap();
    assert!(FrameMemory::from_fd(plain, FRAMES, 2048, Backing::Normal).is_err(), "it could shrink under us");
    pool.free(packet);
}

#[test]
fn a_wire_in_memory_carries_packets_both_ways() {
    let depot = depot(FRAMES);
    let mut pool = depot.pool();
    let (mut a, mut b) = crate::ring::pair(8);
    let mut batch: Batch = (0..10_u8).map(|i| pool.alloc_copy(&[i; 60]).unwrap()).collect();
    assert_eq!((a.transmit(&mut pool, &mut batch), batch.len()), (8, 2), "what does not fit stays");
    assert!(b.has_pending() && !a.has_pending());
    let mut got = Batch::new();
    assert_eq!(b.receive(&mut pool, &mut got), 8);
    assert!((0..8_u8).zip(&got).all(|(i, packet)| packet.head(pool.memory())[0] == i));
    assert_eq!(b.transmit(&mut pool, &mut got), 8);
    Box::new(a).close(&mut pool);
    Box::new(b).close(&mut pool);
    let mut null = crate::null::NullQueue::default();
    assert_eq!((null.transmit(&mut pool, &mut batch), null.swallowed()), (2, 2));
    pool.flush();
    assert_eq!(depot.available(), FRAMES as usize);
}
