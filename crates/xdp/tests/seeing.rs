//! Tests of tools that observe a hook (a port's XDP program): counts of the frames that the kernel loses after the
//! verdict, replay of recorded frames, and a program that reflects frames.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::xsk::Xsk;
use support::{Namespace, PacketSocket, awaited, config, ethernet, to_us};
use xdp::live::{Generator, Order, Pass, Redirect, Reflect, Replay, Sink, Traffic};
use xdp::watch::{LossEvent, Losses};
use xdp::{AttachMode, Attached, Owner, PortProgram, WhenDown};

/// Attaches a port program to a device.
fn port(ifindex: u32, when_down: WhenDown) -> Attached {
    let loaded = PortProgram::load(&config(Owner::Bridged, when_down)).unwrap();
    loaded.attach(ifindex, AttachMode::Native, None).unwrap()
}

fn inode() -> u32 {
    use std::os::linux::fs::MetadataExt;
    std::fs::metadata("/proc/thread-self/ns/net").unwrap().st_ino().try_into().unwrap()
}

/// Returns the frames that a device of this namespace received and that the kernel lost at the point `event`. For each
/// reason of the loss, returns the reason as text and the number of frames.
fn lost(losses: &Losses, ifindex: u32, event: LossEvent) -> Vec<(String, u64)> {
    let all = losses.read().unwrap();
    let own = all.iter().filter(|loss| (loss.netns, loss.ifindex, loss.event) == (inode(), ifindex, event));
    own.map(|loss| (loss.reason(), loss.frames)).collect()
}

#[test]
fn redirects_that_fail_are_counted_by_device_and_reason() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (c, _d) = namespace.veth("vc", "vd", "");
    let losses = Losses::watch().unwrap();
    assert!(losses.left_out().is_empty(), "{:?}", losses.left_out());
    // The slot has a socket of another device.
    let hook = port(b, WhenDown::Drop);
    let xsk = Xsk::bound(c, 0);
    hook.set_socket(0, xsk.fd()).unwrap();
    Generator::new(&Traffic::to(a)).unwrap().send(1000).unwrap();
    awaited("1000 frames", || (hook.counters().unwrap().seen() == 1000).then_some(()));
    assert_eq!(lost(&losses, b, LossEvent::Redirect), [("the target cannot take it".to_owned(), 1000)]);
    assert_eq!(lost(&losses, a, LossEvent::Redirect), []);
    // Without losses nothing is counted.
    drop(hook);
    let sink = Sink::attach(b, AttachMode::Native).unwrap();
    Generator::new(&Traffic::to(a)).unwrap().send(1000).unwrap();
    assert_eq!(sink.sunk().unwrap().packets, 1000);
    assert_eq!(lost(&losses, b, LossEvent::Redirect).len(), 1);
    assert_eq!(lost(&losses, b, LossEvent::Exception), []);
}

#[test]
fn a_full_socket_is_told_from_a_device_that_takes_nothing() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (c, d) = namespace.veth("vc", "vd", "");
    let losses = Losses::watch().unwrap();
    {
        let hook = port(b, WhenDown::Drop);
        let xsk = Xsk::bound(b, 0);
        hook.set_socket(0, xsk.fd()).unwrap();
        // The socket has memory for 256 frames, and the test does not return this memory to the kernel.
        Generator::new(&Traffic::to(a)).unwrap().send(1000).unwrap();
        awaited("1000 frames", || (hook.counters().unwrap().seen() == 1000).then_some(()));
        assert_eq!(
            lost(&losses, b, LossEvent::Redirect),
            [("the socket has no free frame".to_owned(), 1000 - 256)]
        );
    }
    // The target's peer has no program, so the veth cannot be a target. A process that another test starts
    // holds the link's descriptor until it executes its own program.
    let _redirect = awaited("a free device", || Redirect::attach(b, c, AttachMode::Native).ok());
    let mut generator = Generator::new(&Traffic { length: 200, ..Traffic::to(a) }).unwrap();
    let refused = |reason: &str| {
        let all = lost(&losses, b, LossEvent::Redirect);
        all.into_iter().find(|(other, _)| other == reason).map_or(0, |(_, frames)| frames)
    };
    generator.send(1000).unwrap();
    awaited("1000 refused", || (refused("operation not supported") == 1000).then_some(()));
    assert_eq!(lost(&losses, b, LossEvent::Device), []);
    // With a program on the peer the veth is a target, and accepts frames up to the MTU of its peer.
    let sink = Sink::attach(d, AttachMode::Native).unwrap();
    namespace.ip("link set dev vd mtu 100");
    generator.send(1000).unwrap();
    let counted = awaited("losses", || {
        let all = lost(&losses, b, LossEvent::Device);
        (all.iter().map(|(_, frames)| frames).sum::<u64>() == 1000).then_some(all)
    });
    namespace.ip("link set dev vd mtu 1500");
    generator.send(1000).unwrap();
    assert_eq!(sink.sunk().unwrap().packets, 1000);
    assert_eq!(lost(&losses, b, LossEvent::Device), counted);
}

/// Every lost frame is reported if the ring buffer has enough space. If the ring buffer is too small, the losses that
/// are not reported are counted.
#[test]
fn losses_are_told_one_by_one() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (c, _d) = namespace.veth("vc", "vd", "");
    let hook = port(b, WhenDown::Drop);
    let xsk = Xsk::bound(c, 0);
    hook.set_socket(0, xsk.fd()).unwrap();
    for (ring, room) in [(1 << 17, true), (4096, false)] {
        let losses = Losses::watch_each(ring).unwrap();
        let reader = losses.reader().unwrap().unwrap();
        let before = hook.counters().unwrap().seen();
        Generator::new(&Traffic::to(a)).unwrap().send(1000).unwrap();
        awaited("1000 frames", || (hook.counters().unwrap().seen() == before + 1000).then_some(()));
        // A poll returns a limited number of losses.
        let poll = || Some(reader.poll(Duration::from_millis(10)).unwrap()).filter(|all| !all.is_empty());
        let all: Vec<_> = std::iter::from_fn(poll).flatten().collect();
        // Other tests may cause losses too.
        let own: Vec<_> = all.iter().filter(|at| (at.loss.netns, at.loss.ifindex) == (inode(), b)).collect();
        let told: u64 = own.iter().map(|at| at.loss.frames).sum();
        assert!(own.iter().all(|at| at.loss.event == LossEvent::Redirect), "{own:?}");
        assert!(own.is_sorted_by_key(|at| at.at_ns));
        if room {
            assert_eq!(told, 1000);
            assert_eq!(own[0].loss.reason(), "the target cannot take it");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let age = now.checked_sub(Duration::from_nanos(own[0].at_ns)).unwrap();
            assert!(age < Duration::from_secs(60), "{age:?}");
        } else {
            // Losses of other tests may have filled the ring.
            let (held, missed) = (all.len(), losses.missed().unwrap());
            assert!(
                (10..1000).contains(&held) && told + missed >= 1000,
                "{held} held, {told} told, {missed} missed"
            );
        }
        assert_eq!(lost(&losses, b, LossEvent::Redirect), [("the target cannot take it".to_owned(), 1000)]);
    }
    assert!(Losses::watch().unwrap().reader().unwrap().is_none());
}

/// Returns frames that differ in their last bytes.
fn numbered(count: u8, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| ethernet(to_us(), &[], 0x88b5, &vec![number; length - 14])).collect()
}

#[test]
fn recorded_frames_are_sent_again_byte_for_byte() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let _pass = Pass::attach(b, AttachMode::Native).unwrap();
    let socket = PacketSocket::on(b);
    let mut frames = numbered(3, 60);
    frames.extend(numbered(2, 1514));
    frames.push(ethernet(to_us(), &[], 0x88b5, &[]));
    let replay = Replay { ifindex: a, frames: &frames, order: Order::InTurn, rate: None, park: true };
    let sent = Generator::replay(&replay).unwrap().send(13).unwrap();
    assert_eq!(sent.packets, 13);
    for frame in frames.iter().cycle().take(13) {
        assert_eq!(&socket.receive().unwrap(), frame);
    }
    let random = Replay { order: Order::Random(5), ..replay };
    Generator::replay(&random).unwrap().send(200).unwrap();
    let got: Vec<Vec<u8>> = (0..200).map(|_| socket.receive().unwrap()).collect();
    assert!(frames.iter().all(|frame| got.contains(frame)), "200 draws of 6 miss none");
    assert!(got.iter().all(|frame| frames.contains(frame)));
}

#[test]
fn a_reflector_sends_back_while_the_generator_stands_elsewhere() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (idle, _) = namespace.veth("vc", "vd", "");
    let _reflect = Reflect::attach(b, AttachMode::Native).unwrap();
    let sink = Sink::attach(a, AttachMode::Native).unwrap();
    let mut generator = Generator::new(&Traffic { park_on: Some(idle), ..Traffic::to(a) }).unwrap();
    assert!(generator.parked());
    generator.send(10_000).unwrap();
    awaited("all of them", || (sink.sunk().unwrap().packets == 10_000).then_some(()));
}
