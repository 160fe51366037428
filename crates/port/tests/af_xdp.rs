//! Tests of AF_XDP on veth pairs with the real kernel: echo of all frame sizes, hand-over under traffic, and the
//! deletion of a device.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data; a failure is the test's"
)]

mod common;

use common::{Space, Steering, Wire, bytes_of, collect, depot, frame, number, privileged};
use port::af_xdp::{AfXdpCause, AfXdpConfig, AfXdpHandOver, AfXdpQueue, BusyPoll, ZeroCopy, free_frames};
use port::veth::{self, VethConfig};
use port::{Batch, Depot, Exported, FrameMemory, FramePool, Queue, QueueState};

/// A test set-up with a veth pair: the near end is in its own namespace, and the peer is in the namespace of a host.
struct Lab {
    ours: Space,
    host: Space,
    steering: Steering,
}

fn lab(mtu: u32) -> Lab {
    let (ours, host) = (Space::new(), Space::new());
    let config = VethConfig { netns: Some(host.netns()), mtu, ..VethConfig::new("near0", "far0") };
    let steering = ours.run(|| Steering::attach(veth::ensure(&config).unwrap().near.ifindex));
    host.run(|| port::link::disable_ipv6("far0").unwrap());
    Lab { ours, host, steering }
}

fn open(lab: &Lab, pool: &mut FramePool) -> AfXdpQueue {
    let queue = lab.ours.run(|| AfXdpQueue::open(AfXdpConfig::new("near0", 0), pool).unwrap());
    lab.steering.steer(0, queue.fd());
    queue
}

fn send_all(queue: &mut AfXdpQueue, pool: &mut FramePool, batch: &mut Batch) {
    for _ in 0..1000 {
        queue.transmit(pool, batch);
        queue.kick(pool);
        if batch.is_empty() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} packets could not be sent", batch.len());
}

/// Sends frames from the host, echoes each frame through the queue, and checks the frames that the host receives back.
fn echo(lab: &Lab, queue: &mut AfXdpQueue, pool: &mut FramePool, sizes: &[usize]) {
    let wire = lab.host.run(|| Wire::open("far0"));
    for (n, size) in (0..).zip(sizes) {
        wire.send(&frame(n, *size));
        let mut batch = collect(queue, pool, 1);
        assert_eq!(batch.len(), 1, "frame of {size} bytes did not arrive");
        assert_eq!(bytes_of(&batch[0], pool.memory()), frame(n, *size));
        send_all(queue, pool, &mut batch);
        let back = wire.receive(1000).unwrap_or_else(|| panic!("frame of {size} bytes did not come back"));
        assert_eq!(back, frame(n, *size));
    }
}

fn exported(queue: AfXdpQueue, pool: &mut FramePool) -> AfXdpHandOver {
    match Box::new(queue).export(pool) {
        Exported::AfXdp(state) => state,
        other => panic!("{other:?}"),
    }
}

fn close_and_count(queue: AfXdpQueue, mut pool: FramePool, depot: &Depot, frames: u32) {
    Box::new(queue).close(&mut pool);
    pool.flush();
    assert_eq!(depot.available(), frames as usize, "every frame is back");
}

#[test]
fn frames_of_all_sizes_are_echoed() {
    if !privileged("frames_of_all_sizes_are_echoed") {
        return;
    }
    let lab = lab(9000);
    let depot = depot(8192);
    let mut pool = depot.pool();
    let mut queue = open(&lab, &mut pool);
    let status = queue.status();
    // Zero copy is not tried, because the driver reports no support.
    assert_eq!(
        (status.zero_copy, &status.reasons[..]),
        (false, &["the driver has no zero copy".to_owned()][..])
    );
    let sizes = [64, 65, 1500, 1514, 1792, 1793, 2048, 4000, 9014];
    echo(&lab, &mut queue, &mut pool, &sizes);
    assert_eq!(queue.counters(), port::QueueCounters::default());
    close_and_count(queue, pool, &depot, 8192);
}

#[test]
fn thousands_of_frames_keep_their_order() {
    if !privileged("thousands_of_frames_keep_their_order") {
        return;
    }
    let lab = lab(1500);
    let depot = depot(8192);
    let mut pool = depot.pool();
    let mut queue = open(&lab, &mut pool);
    let wire = lab.host.run(|| Wire::open("far0"));
    let total = 20_000;
    let (mut next, mut sent) = (0, 0);
    while next < total {
        while sent < total && sent < next + 1000 {
            wire.send(&frame(sent, 64));
            sent += 1;
        }
        let mut batch = collect(&mut queue, &mut pool, 1);
        assert!(!batch.is_empty(), "frame {next} is missing");
        for packet in batch.drain(..) {
            assert_eq!(number(packet.head(pool.memory())), Some(next));
            next += 1;
            pool.free(packet);
        }
    }
    let mut got = 0;
    for start in (0..total).step_by(200) {
        let mut batch: Batch =
            (start..start + 200).map(|n| pool.alloc_copy(&frame(n, 64)).unwrap()).collect();
        send_all(&mut queue, &mut pool, &mut batch);
        while got < start + 200 {
            let bytes = wire.receive(1000).unwrap_or_else(|| panic!("frame {got} is missing"));
            if let Some(n) = number(&bytes) {
                assert_eq!(n, got);
                got += 1;
            }
        }
    }
    close_and_count(queue, pool, &depot, 8192);
}

#[test]
fn hand_over_under_traffic_loses_nothing() {
    if !privileged("hand_over_under_traffic_loses_nothing") {
        return;
    }
    let lab = lab(1500);
    let depot = depot(16384);
    let mut pool = depot.pool();
    let mut queue = open(&lab, &mut pool);
    let wire = lab.host.run(|| Wire::open("far0"));
    let mut memory = pool.memory_arc();
    let (mut sent, mut next, mut back) = (0, 0, 0);
    let mut depots = vec![depot];
    for round in 0..8 {
        // Frames are in the receive ring, in the transmit ring and inside the kernel while the owner changes.
        for _ in 0..if round == 0 { 900 } else { 256 } {
            wire.send(&frame(sent, 64));
            sent += 1;
        }
        let mut batch = Batch::new();
        assert_eq!(queue.receive(&mut pool, &mut batch), 256);
        for packet in &batch {
            assert_eq!(number(packet.head(&memory)), Some(next), "in order over hand-overs");
            next += 1;
        }
        assert_eq!(queue.transmit(&mut pool, &mut batch), 256);
        let handed = exported(queue, &mut pool);
        drop(pool);
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let successor =
            FrameMemory::from_fd(fd, memory.frames(), memory.frame_size(), memory.backing()).unwrap();
        memory = std::sync::Arc::new(successor);
        let free = free_frames(memory.frames(), [&handed.frames[..]]);
        let depot = Depot::with_free(memory.clone(), free);
        assert_eq!(depot.available() + handed.frames.len(), memory.frames() as usize);
        pool = depot.pool();
        depots.push(depot);
        queue = AfXdpQueue::import(memory.clone(), handed).unwrap();
        queue.kick(&mut pool);
    }
    while back < sent {
        let mut batch = Batch::new();
        queue.receive(&mut pool, &mut batch);
        for packet in &batch {
            assert_eq!(number(packet.head(&memory)), Some(next));
            next += 1;
        }
        send_all(&mut queue, &mut pool, &mut batch);
        while let Some(bytes) = wire.receive(if next == sent { 1000 } else { 0 }) {
            if let Some(n) = number(&bytes) {
                assert_eq!(n, back, "echoed once and in order");
                back += 1;
            }
            if back == sent {
                break;
            }
        }
    }
    assert_eq!((next, queue.counters().rx_fill_empty), (sent, 0));
    close_and_count(queue, pool, depots.last().unwrap(), 16384);
}

#[test]
fn a_deleted_device_ends_in_the_gone_state() {
    if !privileged("a_deleted_device_ends_in_the_gone_state") {
        return;
    }
    let lab = lab(1500);
    let depot = depot(8192);
    let mut pool = depot.pool();
    let mut queue = open(&lab, &mut pool);
    let near = lab.ours.run(|| port::link::find("near0").unwrap().ifindex);
    let set = |up| {
        lab.ours.run(|| {
            port::link::set(near, &port::link::LinkChange { up: Some(up), ..Default::default() }).unwrap();
        });
    };
    set(false);
    let mut batch: Batch = std::iter::once(pool.alloc_copy(&frame(1, 64)).unwrap()).collect();
    queue.transmit(&mut pool, &mut batch);
    queue.kick(&mut pool);
    assert_eq!(queue.state(), QueueState::Down);
    assert!(!queue.has_pending(), "nothing to spin on");
    set(true);
    queue.kick(&mut pool);
    assert_eq!(queue.state(), QueueState::Up);
    lab.ours.run(|| veth::remove("near0").unwrap());
    for _ in 0..100 {
        queue.has_pending();
    }
    assert_eq!(queue.state(), QueueState::Gone);
    assert!(queue.wait_fd().is_none());
    let mut batch: Batch = std::iter::once(pool.alloc_copy(&frame(1, 64)).unwrap()).collect();
    assert_eq!(queue.transmit(&mut pool, &mut batch), 0);
    pool.free(batch.remove(0));
    close_and_count(queue, pool, &depot, 8192);
}

#[test]
fn every_queue_has_its_own_socket_also_when_busy_polling() {
    if !privileged("every_queue_has_its_own_socket_also_when_busy_polling") {
        return;
    }
    let (ours, host) = (Space::new(), Space::new());
    let config = VethConfig { netns: Some(host.netns()), queues: 3, ..VethConfig::new("near0", "far0") };
    let steering = ours.run(|| Steering::attach(veth::ensure(&config).unwrap().near.ifindex));
    host.run(|| port::link::disable_ipv6("far0").unwrap());
    let depot = depot(16384);
    let mut pool = depot.pool();
    let mut queues: Vec<AfXdpQueue> = (0..3)
        .map(|i| {
            let busy_poll = (i == 2).then_some(BusyPoll { microseconds: 20, budget: 64 });
            let config = AfXdpConfig { busy_poll, ..AfXdpConfig::new("near0", i) };
            let queue = ours.run(|| AfXdpQueue::open(config, &mut pool).unwrap());
            steering.steer(i, queue.fd());
            queue
        })
        .collect();
    let wire = host.run(|| Wire::open("far0"));
    // The kernel distributes packets by a hash of the flow. Different UDP ports reach all queues eventually.
    let mut seen = [false; 3];
    for n in 0..200 {
        let mut bytes = frame(n, 64);
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14..24].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
        bytes[34..42].copy_from_slice(&[0x30, n as u8, 0x40, 0, 0, 30, 0, 0]);
        wire.send(&bytes);
        let mut batch = Batch::new();
        for _ in 0..1000 {
            for (i, queue) in queues.iter_mut().enumerate() {
                if queue.receive(&mut pool, &mut batch) > 0 {
                    seen[i] = true;
                    assert_eq!(bytes_of(&batch[0], pool.memory()), bytes);
                    send_all(queue, &mut pool, &mut batch);
                    assert_eq!(wire.receive(1000), Some(bytes.clone()));
                }
                queue.kick(&mut pool);
            }
        }
        if seen == [true; 3] {
            break;
        }
    }
    assert_eq!(seen, [true; 3], "each queue received");
    for queue in queues {
        Box::new(queue).close(&mut pool);
    }
    pool.flush();
    assert_eq!(depot.available(), 16384);
}

#[test]
fn what_cannot_be_opened_says_why() {
    if !privileged("what_cannot_be_opened_says_why") {
        return;
    }
    let lab = lab(1500);
    let depot = depot(8192);
    let mut pool = depot.pool();
    let mut fail = |config: AfXdpConfig| {
        let opened = lab.ours.run(|| AfXdpQueue::open(config, &mut pool));
        opened.err().unwrap_or_else(|| panic!("opened"))
    };
    let missing = fail(AfXdpConfig::new("nowhere0", 0));
    assert!(matches!(missing.cause, AfXdpCause::NoDevice), "{missing}");
    assert!(missing.to_string().contains("nowhere0"));
    let queue = fail(AfXdpConfig::new("near0", 7));
    assert!(matches!(queue.cause, AfXdpCause::NoQueue { queues: 1 }), "{queue}");
    let ring = fail(AfXdpConfig { ring_size: 1000, ..AfXdpConfig::new("near0", 0) });
    assert!(matches!(ring.cause, AfXdpCause::RingSize(1000)), "{ring}");
    let mode = fail(AfXdpConfig { zero_copy: ZeroCopy::Require, ..AfXdpConfig::new("near0", 0) });
    assert!(matches!(mode.cause, AfXdpCause::Mode { .. }), "{mode}");
    let bound = || {
        let ifindex = port::link::find("near0").unwrap().ifindex;
        port::netdev::has_xsk(ifindex, 0).unwrap()
    };
    assert!(!lab.ours.run(bound));
    let first = open(&lab, &mut pool);
    assert!(lab.ours.run(bound));
    let mut fail = |config: AfXdpConfig| lab.ours.run(|| AfXdpQueue::open(config, &mut pool)).err().unwrap();
    let busy = fail(AfXdpConfig::new("near0", 0));
    assert!(matches!(busy.cause, AfXdpCause::QueueBusy), "{busy}");
    Box::new(first).close(&mut pool);
    // The kernel releases the queue after some time, for which the open waits.
    let again = open(&lab, &mut pool);
    close_and_count(again, pool, &depot, 8192);
}

/// Returns a queue that is marked as zero-copy. veth devices have no zero copy, so the frames take the path
/// of a zero-copy queue while the kernel uses copy mode.
fn as_if_zero_copy(queue: AfXdpQueue, pool: &mut FramePool) -> AfXdpQueue {
    let given = AfXdpHandOver { zero_copy: true, ..exported(queue, pool) };
    AfXdpQueue::import(pool.memory_arc(), given).unwrap()
}

#[test]
fn frames_of_a_closed_zero_copy_queue_are_free_when_its_queue_is() {
    if !privileged("frames_of_a_closed_zero_copy_queue_are_free_when_its_queue_is") {
        return;
    }
    let lab = lab(1500);
    let depot = depot(8192);
    let mut pool = depot.pool();
    let queue = as_if_zero_copy(open(&lab, &mut pool), &mut pool);
    // The duplicate keeps the kernel's socket alive, like a deferred release.
    let held = queue.fd().try_clone_to_owned().unwrap();
    let owned = queue.frames_owned() as usize;
    Box::new(queue).close(&mut pool);
    pool.flush();
    depot.end_quarantine();
    assert_eq!((depot.quarantined(), depot.available()), (owned, 8192 - owned), "the queue is not free");
    drop(held);
    // The kernel's work queue releases a closed socket's queue long before the frames are freed by time.
    let freed = testbed::wait_until("the queue to be free", port::quarantine::HOLD / 2, || {
        depot.end_quarantine();
        depot.quarantined() == 0
    });
    freed.unwrap();
    assert_eq!(depot.available(), 8192);
    // The port's own next socket also ends the quarantine.
    let queue = as_if_zero_copy(open(&lab, &mut pool), &mut pool);
    Box::new(queue).close(&mut pool);
    assert_eq!(depot.quarantined(), owned);
    let queue = open(&lab, &mut pool);
    assert_eq!(depot.quarantined(), 0, "it is bound: the frames of the one before are free");
    close_and_count(queue, pool, &depot, 8192);
}
