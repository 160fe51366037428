//! Measures the CPU time that a worker needs for each packet when it forwards between two AF_XDP ports. Other load on
//! the machine hardly affects this time. Command: `cargo test --release -p port --test forward_rate -- --ignored
//! --nocapture`.
#![allow(unsafe_code, reason = "reads the thread's processor time")]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "a failure is the test's")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Generator, Space, Steering, depot, privileged};
use port::af_xdp::{AfXdpConfig, AfXdpQueue};
use port::veth::{self, VethConfig};
use port::{Batch, FramePool, Queue};

fn thread_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn forward(
    from: &mut AfXdpQueue,
    to: &mut AfXdpQueue,
    pool: &mut FramePool,
    stop: &AtomicBool,
) -> (u64, u64, u64) {
    let (mut packets, mut bursts, mut lost, start) = (0, 0, 0, thread_nanoseconds());
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        if from.receive(pool, &mut batch) == 0 {
            from.kick(pool);
            common::wait(from.wait_fd().unwrap(), 10);
            continue;
        }
        bursts += 1;
        packets += to.transmit(pool, &mut batch) as u64;
        to.kick(pool);
        from.kick(pool);
        lost += batch.len() as u64;
        batch.drain(..).for_each(|packet| pool.free(packet));
    }
    let time = thread_nanoseconds() - start;
    println!("  {:.1} packets a burst, {lost} lost, {:?}", packets as f64 / bursts as f64, to.kicks());
    (packets, time, bursts)
}

#[test]
#[ignore = "a measurement, not a test"]
fn forwarding() {
    if !privileged("forwarding") {
        return;
    }
    for (ring_size, drop_sink) in [(512, true), (2048, true), (8192, true), (2048, false)] {
        let (ours, left, right) = (Space::new(), Space::new(), Space::new());
        let pair = |near: &str, far: &Space| {
            let config = VethConfig { netns: Some(far.netns()), ..VethConfig::new(near, "far0") };
            let veth = ours.run(|| veth::ensure(&config).unwrap());
            far.run(|| port::link::disable_ipv6("far0").unwrap());
            (ours.run(|| Steering::attach(veth.near.ifindex)), veth.far.ifindex)
        };
        let ((in_steering, in_far), (out_steering, out_far)) = (pair("in0", &left), pair("out0", &right));
        let _sink = drop_sink.then(|| right.run(|| common::attach_drop(out_far)));
        let depot = depot(32768);
        let mut pool = depot.pool();
        let mut open = |name: &str, steering: &Steering| {
            let config = AfXdpConfig { ring_size, fill_level: ring_size, ..AfXdpConfig::new(name, 0) };
            let queue = ours.run(|| AfXdpQueue::open(config, &mut pool).unwrap());
            steering.steer(0, queue.fd());
            queue
        };
        let (mut from, mut to) = (open("in0", &in_steering), open("out0", &out_steering));
        let stop = AtomicBool::new(false);
        let generator = left.run(Generator::new);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sync::cpu::pin_current_thread(0).unwrap();
                left.run(|| {
                    sync::cpu::pin_current_thread(0).unwrap();
                    generator.run(in_far, &common::frame(1, 64), 4_000_000);
                });
                stop.store(true, Ordering::Relaxed);
            });
            sync::cpu::pin_current_thread(1).unwrap();
            let (packets, time, _) = forward(&mut from, &mut to, &mut pool, &stop);
            println!(
                "ring {ring_size}, XDP sink {drop_sink}: {packets} packets, {} ns each; {:?}",
                time / packets.max(1),
                from.counters()
            );
        });
        Box::new(from).close(&mut pool);
        Box::new(to).close(&mut pool);
    }
}
