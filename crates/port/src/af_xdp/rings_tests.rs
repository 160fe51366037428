//! Tests of the rings against a simulated kernel. The tests check that no frame is lost and that no frame is in
//! two places, for any order of events, with hand-overs, and with invalid answers of the kernel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;

use super::abi::{Descriptor, XDP_PKT_CONTD};
use super::owned::OwnedFrames;
use super::ring::{Consumer, Producer, Shared, views};
use super::rings::Rings;
use crate::memory::{FrameMemory, HugePages, MemoryConfig};
use crate::pool::{Depot, FramePool, LEAST_FILL};
use crate::queue::Batch;

const RING: u32 = 16;
const FRAMES: u32 = 128;

/// A simulated kernel, with the kernel's view of the rings and the frames inside the kernel.
struct Kernel {
    fill: Consumer<u64>,
    completion: Producer<u64>,
    rx: Producer<Descriptor>,
    tx: Consumer<Descriptor>,
    /// Frames that the kernel has transmitted but not yet put into the completion ring.
    leaving: VecDeque<u64>,
    /// Lengths of the packets that were transmitted, in bytes.
    sent: Vec<usize>,
    delivered: u64,
}

impl Kernel {
    /// Delivers a packet that consists of `segments` frames, if the rings have enough buffers and space for
    /// it.
    fn deliver(&mut self, memory: &FrameMemory, segments: u32) {
        if self.fill.available() < segments || self.rx.free(segments) < segments {
            return;
        }
        for i in 0..segments {
            let addr = self.fill.peek(i) + 256;
            let options = if i + 1 < segments { XDP_PKT_CONTD } else { 0 };
            assert!(memory.locate(addr).is_some());
            self.rx.write(i, Descriptor { addr, len: 60 + i, options });
        }
        self.fill.release(segments);
        self.rx.publish(segments);
        self.delivered += 1;
    }

    fn take_sent(&mut self) {
        let available = self.tx.available();
        let mut bytes = 0;
        for i in 0..available {
            let descriptor = self.tx.peek(i);
            bytes += descriptor.len as usize;
            self.leaving.push_back(descriptor.addr);
            if descriptor.options & XDP_PKT_CONTD == 0 {
                self.sent.push(std::mem::take(&mut bytes));
            }
        }
        assert_eq!(bytes, 0, "a chain is published whole");
        self.tx.release(available);
    }

    fn complete(&mut self, most: u32) {
        let n = most.min(self.completion.free(RING)).min(u32::try_from(self.leaving.len()).unwrap());
        for i in 0..n {
            // The kernel completes frames in any order.
            let at = if i % 2 == 0 { self.leaving.pop_front() } else { self.leaving.pop_back() };
            self.completion.write(i, at.unwrap());
        }
        self.completion.publish(n);
    }
}

fn memory() -> Arc<FrameMemory> {
    let config = MemoryConfig { frames: FRAMES, frame_size: 2048, huge_pages: HugePages::Off };
    Arc::new(FrameMemory::new(config).unwrap())
}

fn rings_of(
    fill: Shared<u64>,
    completion: Shared<u64>,
    rx: Shared<Descriptor>,
    tx: Shared<Descriptor>,
) -> Rings {
    Rings {
        fill: Producer::new(fill),
        completion: Consumer::new(completion),
        rx: Consumer::new(rx),
        tx: Producer::new(tx),
        owned: OwnedFrames::new(FRAMES),
        fill_target: RING,
        share: None,
        max_segments: 18,
        strange: 0,
        refused: 0,
    }
}

fn pair(start: u32) -> (Rings, Kernel) {
    let (fill, kernel_fill) = views(RING, start);
    let (completion, kernel_completion) = views(RING, start);
    let (rx, kernel_rx) = views(RING, start);
    let (tx, kernel_tx) = views(RING, start);
    let kernel = Kernel {
        fill: Consumer::new(kernel_fill),
        completion: Producer::new(kernel_completion),
        rx: Producer::new(kernel_rx),
        tx: Consumer::new(kernel_tx),
        leaving: VecDeque::new(),
        sent: Vec::new(),
        delivered: 0,
    };
    (rings_of(fill, completion, rx, tx), kernel)
}

#[derive(Clone, Debug)]
enum Event {
    Deliver(u32),
    Receive,
    Forward,
    Drop,
    KernelSends,
    Complete(u32),
    Reclaim,
    HandOver,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_u32..7).prop_map(Event::Deliver),
        4 => Just(Event::Receive),
        3 => Just(Event::Forward),
        1 => Just(Event::Drop),
        3 => Just(Event::KernelSends),
        3 => (1_u32..20).prop_map(Event::Complete),
        2 => Just(Event::Reclaim),
        1 => Just(Event::HandOver),
    ]
}

/// Checks that every frame is in exactly one place, which is the depot, a packet or the kernel.
fn check(depot: &Depot, held: &Batch, rings: &Rings, kernel: &Kernel, memory: &FrameMemory) {
    let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
    let mut packets = 0;
    for packet in held {
        packets += usize::from(packet.segments());
    }
    for frame in rings.owned.iter() {
        *owners.entry(frame).or_default() += 1;
    }
    assert!(owners.values().all(|n| *n == 1));
    assert_eq!(
        depot.available() + packets + rings.owned.len() as usize,
        FRAMES as usize,
        "frames are conserved"
    );
    let mut with_kernel = rings.frames_in_rings(memory);
    with_kernel.extend(kernel.leaving.iter().map(|addr| memory.locate(*addr).unwrap().0));
    with_kernel.sort_unstable();
    assert!(
        with_kernel.iter().eq(rings.owned.iter().collect::<Vec<_>>().iter()),
        "what the kernel has is what is owned"
    );
}

/// Simulates a hand-over to a successor process. The successor has new views of the rings, which continue at
/// the indices in shared memory, and the predecessor's set of owned frames.
fn hand_over(rings: Rings) -> Rings {
    let Rings { fill, completion, rx, tx, owned, .. } = rings;
    let mut next = rings_of(fill.into_shared(), completion.into_shared(), rx.into_shared(), tx.into_shared());
    next.owned =
        owned.iter().collect::<Vec<_>>().into_iter().fold(OwnedFrames::new(FRAMES), |mut set, frame| {
            set.insert(frame);
            set
        });
    next
}

fn step(event: &Event, rings: &mut Rings, kernel: &mut Kernel, pool: &mut FramePool, held: &mut Batch) {
    match event {
        Event::Deliver(segments) => kernel.deliver(pool.memory(), *segments),
        Event::Receive => {
            rings.receive(pool, held);
            rings.refill(pool);
        }
        Event::Forward => {
            rings.transmit(pool, held);
        }
        Event::Drop => held.drain(..).for_each(|packet| pool.free(packet)),
        Event::KernelSends => kernel.take_sent(),
        Event::Complete(most) => kernel.complete(*most),
        Event::Reclaim => rings.reclaim(pool),
        Event::HandOver => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_is_lost_or_doubled(start in any::<u32>(), events in proptest::collection::vec(event(), 1..if cfg!(miri) { 12 } else { 120 })) {
        let memory = memory();
        let depot = Depot::new(memory.clone());
        let mut pool = depot.pool();
        let (mut rings, mut kernel) = pair(start);
        let mut held = Batch::new();
        rings.refill(&mut pool);
        for event in &events {
            if matches!(event, Event::HandOver) {
                rings = hand_over(rings);
            }
            step(event, &mut rings, &mut kernel, &mut pool, &mut held);
            pool.flush();
            check(&depot, &held, &rings, &kernel, &memory);
        }
        prop_assert_eq!((rings.strange, rings.refused), (0, 0));
        for packet in held.drain(..) {
            pool.free(packet);
        }
        rings.owned.drain(|frame| pool.put_raw(frame));
        pool.flush();
        let mut frames = depot.drain();
        frames.sort_unstable();
        prop_assert!(frames.into_iter().eq(0..FRAMES));
    }

    #[test]
    fn nonsense_from_the_kernel_costs_no_frame_and_no_panic(
        descriptors in proptest::collection::vec((any::<u64>(), any::<u32>(), 0_u32..2, any::<bool>()), 1..16),
        addresses in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..16),
    ) {
        let memory = memory();
        let depot = Depot::new(memory.clone());
        let mut pool = depot.pool();
        let (mut rings, mut kernel) = pair(0);
        let mut held = Batch::new();
        rings.refill(&mut pool);
        let n = u32::try_from(descriptors.len()).unwrap();
        for (i, (addr, len, options, inside)) in (0..).zip(&descriptors) {
            let addr = if *inside { addr % memory.bytes() } else { *addr };
            kernel.rx.write(i, Descriptor { addr, len: len % 4096, options: *options });
        }
        kernel.rx.publish(n);
        let n = u32::try_from(addresses.len()).unwrap();
        for (i, (addr, inside)) in (0..).zip(&addresses) {
            kernel.completion.write(i, if *inside { addr % memory.bytes() } else { *addr });
        }
        kernel.completion.publish(n);
        rings.receive(&mut pool, &mut held);
        rings.reclaim(&mut pool);
        for packet in &held {
            packet.for_each_segment(&memory, |bytes| assert!(!bytes.is_empty()));
        }
        for packet in held.drain(..) {
            pool.free(packet);
        }
        pool.flush();
        prop_assert_eq!(depot.available() + rings.owned.len() as usize, FRAMES as usize);
    }
}

#[test]
fn packets_cross_in_order_and_whole() {
    let memory = memory();
    let depot = Depot::new(memory.clone());
    let mut pool = depot.pool();
    let (mut rings, mut kernel) = pair(u32::MAX - 20);
    let mut batch = Batch::new();
    let mut expected = Vec::new();
    for round in 0..if cfg!(miri) { 4 } else { 50_u32 } {
        rings.refill(&mut pool);
        let segments = 1 + round % 5;
        kernel.deliver(&memory, segments);
        assert_eq!(rings.receive(&mut pool, &mut batch), 1);
        assert_eq!(u32::from(batch[0].segments()), segments);
        expected.push(batch[0].len());
        assert_eq!(rings.transmit(&mut pool, &mut batch), 1);
        kernel.take_sent();
        kernel.complete(RING);
        rings.reclaim(&mut pool);
    }
    assert_eq!(kernel.sent, expected);
}

/// Checks that other ports can still receive and transmit if some receivers never consume their packets and so
/// hold frames.
#[test]
fn receivers_that_keep_what_they_are_sent_leave_frames_to_others() {
    const SOCKETS: usize = 8;
    const LONG: u32 = 1024;
    let config = MemoryConfig { frames: 4096, frame_size: 2048, huge_pages: HugePages::Off };
    let memory = Arc::new(FrameMemory::new(config).unwrap());
    let depot = Depot::new(Arc::clone(&memory));
    let mut pool = depot.pool();
    let mut kernels = Vec::new();
    let mut all: Vec<Rings> = (0..SOCKETS + 1)
        .map(|_| {
            let (fill, kernel_fill) = views(LONG, 0);
            let (completion, kernel_completion) = views(LONG, 0);
            let (rx, kernel_rx) = views(LONG, 0);
            let (tx, kernel_tx) = views(LONG, 0);
            kernels.push(Kernel {
                fill: Consumer::new(kernel_fill),
                completion: Producer::new(kernel_completion),
                rx: Producer::new(kernel_rx),
                tx: Consumer::new(kernel_tx),
                leaving: VecDeque::new(),
                sent: Vec::new(),
                delivered: 0,
            });
            let rings = rings_of(fill, completion, rx, tx);
            Rings { owned: OwnedFrames::new(4096), fill_target: LONG, ..rings }
        })
        .collect();
    // All sockets get their share of the memory for reception.
    for _ in 0..100 {
        all.iter_mut().for_each(|rings| rings.refill(&mut pool));
    }
    let send = |rings: &mut Rings, kernel: &mut Kernel, pool: &mut FramePool| {
        let mut batch = Batch::new();
        while batch.len() < 32 {
            let Ok(packet) = pool.alloc_copy(&[7; 60]) else { break };
            batch.push(packet);
        }
        let taken = rings.transmit(pool, &mut batch);
        batch.drain(..).for_each(|packet| pool.free(packet));
        kernel.take_sent();
        taken
    };
    for _ in 0..200 {
        for (rings, kernel) in all.iter_mut().zip(&mut kernels).take(SOCKETS) {
            send(rings, kernel, &mut pool);
        }
    }
    let kept: usize = kernels.iter().map(|kernel| kernel.leaving.len()).sum();
    assert!(kept < 2048, "{kept} of 4096 frames are kept");
    // Another socket still receives and transmits.
    let (rings, kernel) = (all.last_mut().unwrap(), kernels.last_mut().unwrap());
    for _ in 0..1000 {
        kernel.deliver(&memory, 1);
        let mut held = Batch::new();
        assert_eq!(rings.receive(&mut pool, &mut held), 1);
        held.drain(..).for_each(|packet| pool.free(packet));
        rings.refill(&mut pool);
        assert_eq!(send(rings, kernel, &mut pool), 32);
        while !kernel.leaving.is_empty() {
            kernel.complete(RING);
            rings.reclaim(&mut pool);
        }
    }
}

/// Checks that a fill ring that the kernel empties while few frames are free gets its minimum of frames.
#[test]
fn a_ring_that_empties_while_frames_are_scarce_gets_its_minimum() {
    const LONG: u32 = 1024;
    let memory = Arc::new(
        FrameMemory::new(MemoryConfig { frames: 2048, frame_size: 2048, huge_pages: HugePages::Off })
            .unwrap(),
    );
    let depot = Depot::new(memory);
    let mut pool = depot.pool();
    let (fill, kernel_fill) = views(LONG, 0);
    let mut kernel = Consumer::new(kernel_fill);
    let rings = rings_of(fill, views(LONG, 0).0, views(LONG, 0).0, views(LONG, 0).0);
    let mut rings = Rings { owned: OwnedFrames::new(2048), fill_target: LONG, ..rings };
    (0..100).for_each(|_| rings.refill(&mut pool));
    let full = kernel.available();
    assert!(full > 512, "{full} frames");
    let mut held = Vec::new();
    while depot.available() + pool.len() > 100 {
        held.push(pool.take_raw().unwrap());
    }
    let mut left = full;
    while left > 0 {
        let taken = left.min(64);
        kernel.release(taken);
        left -= taken;
        rings.refill(&mut pool);
    }
    assert!(kernel.available() >= LEAST_FILL, "{} frames", kernel.available());
    held.into_iter().for_each(|frame| pool.put_raw(frame));
}

#[test]
fn a_full_transmit_ring_leaves_the_rest_to_the_caller() {
    let memory = memory();
    let depot = Depot::new(memory.clone());
    let mut pool = depot.pool();
    let (mut rings, mut kernel) = pair(5);
    let mut batch: Batch = (0..20).map(|_| pool.alloc_copy(&[7; 60]).unwrap()).collect();
    assert_eq!(rings.transmit(&mut pool, &mut batch), 16);
    assert_eq!((batch.len(), rings.transmit(&mut pool, &mut batch), rings.tx_in_flight()), (4, 0, 16));
    kernel.take_sent();
    kernel.complete(RING);
    rings.reclaim(&mut pool);
    assert_eq!(rings.transmit(&mut pool, &mut batch), 4);
    let mut jumbo: Batch = std::iter::once(pool.alloc_copy(&[7; 9000]).unwrap()).collect();
    rings.max_segments = 1;
    assert_eq!((rings.transmit(&mut pool, &mut jumbo), rings.refused), (1, 1));
    let mut short: Batch = std::iter::once(pool.alloc_copy(&[7; 13]).unwrap()).collect();
    assert_eq!((rings.transmit(&mut pool, &mut short), rings.refused), (1, 2));
}
