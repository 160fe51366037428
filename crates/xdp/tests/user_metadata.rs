//! Tests of a custom program that leaves metadata or takes headroom, and of the metadata that the port's program then
//! adds in front of the frames.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::os::fd::{AsFd, OwnedFd};

use packet::net::FiveTuple;
use packet::spec;
use support::compile::one;
use support::xsk::Xsk;
use support::{Namespace, awaited, config, unbound_socket};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Mark, Place, StationTable};
use xdp::live::{Generator, Traffic};
use xdp::steer::{FlowEntry, SteerConfig, SteerMeta, SteerTo, Steering};
use xdp::user::UserProgram;
use xdp::{AttachMode, Attached, Counter, Owner, PortProgram, StageChange, Verdict, WhenDown};

const UDP: &str = "ip_src=192.0.2.7,ip_dst=198.51.100.9,udp,src_port=7,dst_port=9";
const VLAN: u16 = 10;
const PORT: BridgePort = BridgePort {
    port: 1,
    untagged: Some(VLAN),
    tagged: false,
    untagged_only: false,
    protected: false,
    learning: true,
    partial_checksums: false,
};
const STEER: SteerConfig = SteerConfig { capacity: 8, table: false, metadata: true, cpu_queue: 64 };
/// Headroom of a frame in a test run: `XDP_PACKET_HEADROOM` without the kernel's `struct xdp_frame`.
const ROOM: usize = 256 - 40;
/// Pairs of two lengths in bytes: the metadata that a custom program leaves in front of a frame, and the headroom that
/// the program uses before it adds the metadata.
const LEFT: [(usize, usize); 8] = [(0, 0), (4, 0), (8, 0), (12, 0), (16, 0), (32, 0), (0, 64), (20, 64)];

/// Returns a custom program that prepends `headroom` bytes to the frame, beginning with a copy of the Ethernet header,
/// adds `metadata` bytes of metadata, and continues with the port's program.
fn leaving(metadata: usize, headroom: usize) -> UserProgram {
    let head = "unsigned char header[14], *data = (void *)(long)ctx->data, *meta;
        if (data + 14 > (unsigned char *)(long)ctx->data_end) return XDP_ABORTED;
        __builtin_memcpy(header, data, 14);";
    let body = format!(
        "{head} if ({headroom} && bpf_xdp_adjust_head(ctx, -{headroom})) return XDP_ABORTED;
        data = (void *)(long)ctx->data;
        if (data + 14 > (unsigned char *)(long)ctx->data_end) return XDP_ABORTED;
        __builtin_memcpy(data, header, 14);
        if ({metadata} && bpf_xdp_adjust_meta(ctx, -{metadata})) return XDP_ABORTED;
        data = (void *)(long)ctx->data;
        meta = (void *)(long)ctx->data_meta;
        if (meta + {metadata} > data) return XDP_ABORTED;
        for (int at = 0; at < {metadata}; at++) meta[at] = 0xee;
        trivium_continue(ctx); return XDP_ABORTED;"
    );
    UserProgram::load(&one("xdp.frags", "leaving", &body), None, true).unwrap()
}

/// Returns the length of the metadata before a frame that the program of [`leaving`] has processed, for this amount of
/// headroom.
#[track_caller]
fn metadata_of(after: &[u8], frame: &[u8], headroom: usize) -> usize {
    let length = after.len() - frame.len() - headroom;
    let rest = &after[length..];
    assert_eq!((&rest[..14], &rest[headroom + 14..]), (&frame[..14], &frame[14..]));
    length
}

/// A bridged port whose station table contains both stations of [`UDP`]: the sender on this port, and the receiver on
/// another device.
struct Rig {
    attached: Attached,
    table: StationTable,
    stage: BridgeStage,
    _devices: BridgeDevices,
    _socket: OwnedFd,
    _namespace: Namespace,
}

fn key(mac: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(mac);
    u64::from_le_bytes(bytes) | u64::from(VLAN) << 48
}

impl Rig {
    fn new() -> Rig {
        let namespace = Namespace::enter_new();
        let (_, near) = namespace.veth("f1", "n1", "");
        let (_, other) = namespace.veth("f2", "n2", "");
        let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Pass)).unwrap();
        let mut attached = loaded.attach(near, AttachMode::Native, None).unwrap();
        let socket = unbound_socket();
        attached.set_socket(0, socket.as_fd()).unwrap();
        let devices = BridgeDevices::new().unwrap();
        devices.set(2, other).unwrap();
        let table = StationTable::new(64, 1).unwrap();
        let frame = frame();
        assert!(table.insert(key(&frame[6..12]), place(1), 5) && table.insert(key(&frame[..6]), place(2), 5));
        let stage = BridgeStage::new(&PORT, &attached, &table, &devices).unwrap();
        attached.set_stage(StageChange::Bridge(Some(&stage))).unwrap();
        stage.orders().finish(0, 0);
        Rig { attached, table, stage, _devices: devices, _socket: socket, _namespace: namespace }
    }

    /// Runs the program on a frame. Returns the verdict, the only counter that changed, and the frame after the run.
    fn see(&self, frame: &[u8]) -> (Verdict, Counter, Vec<u8>) {
        let before = self.attached.counters().unwrap();
        let run = self.attached.user().unwrap().test_run(frame).unwrap();
        let after = self.attached.counters().unwrap();
        let moved: Vec<Counter> =
            Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
        assert_eq!(moved.len(), 1, "{moved:?}");
        (run.verdict, moved[0], run.frame)
    }

    /// Sends a frame that the hook could forward to the worker instead. Returns the frame as the worker receives it.
    fn up(&self, frame: &[u8]) -> Vec<u8> {
        self.stage.orders().set_bypass(true);
        let (verdict, counter, after) = self.see(frame);
        self.stage.orders().set_bypass(false);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::Steered));
        after
    }
}

fn place(port: u16) -> Place {
    Place { port, tagged: false, protected: false, is_static: false, reached: Some(1512) }
}

fn frame() -> Vec<u8> {
    spec::parse(UDP).unwrap()
}

fn flow() -> FiveTuple {
    FiveTuple {
        vlan: None,
        source: "192.0.2.7".parse().unwrap(),
        destination: "198.51.100.9".parse().unwrap(),
        protocol: 17,
        ports: Some((7, 9)),
    }
}

#[test]
fn the_bridges_number_stands_right_before_the_frame() {
    need_root!();
    let mut rig = Rig::new();
    let (orders, frame) = (std::sync::Arc::clone(rig.stage.orders()), frame());
    for (at, (metadata, headroom)) in (1..).zip(LEFT) {
        rig.attached.set_user(leaving(metadata, headroom)).unwrap();
        let case = format!("{metadata} bytes of metadata, {headroom} of headroom");
        let after = rig.up(&frame);
        let length = metadata_of(&after, &frame, headroom);
        // The worker reads the sequence number from the bytes in front of the frame.
        let before = after[..length].last_chunk().copied().unwrap_or_default();
        assert_eq!((Mark::read(before), length), (Some(Mark(at)), Mark::LEN), "{case}");
        assert_eq!(orders.numbers(0).0, at, "{case}");
        // The worker has sent the frame, and the flow moves to the hook, with the custom program's metadata
        // in front.
        orders.finish(0, Mark::read(before).unwrap().0);
        let (verdict, counter, after) = rig.see(&frame);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::Bridged), "{case}");
        assert_eq!(metadata_of(&after, &frame, headroom), metadata, "{case}");
        assert_eq!(after[..metadata], vec![0xee; metadata], "{case}");
    }
}

#[test]
fn the_hash_stands_sixteen_bytes_before_the_frame() {
    need_root!();
    let mut rig = Rig::new();
    let mut steering = Steering::new(&STEER).unwrap();
    rig.attached.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    let frame = frame();
    for (number, (metadata, _)) in (1..).zip(LEFT.into_iter().filter(|(_, headroom)| *headroom == 0)) {
        rig.attached.set_user(leaving(metadata, 0)).unwrap();
        for (to, numbered) in [(SteerTo::Worker, Some(Mark(number))), (SteerTo::Kernel, None)] {
            steering.insert(flow(), FlowEntry { to, mark: 0xabc, expires: None, live: false }).unwrap();
            let after = rig.see(&frame).2;
            let case = format!("{to}, {metadata} bytes of metadata");
            assert_eq!(metadata_of(&after, &frame, 0), SteerMeta::LEN, "{case}");
            let (meta, mark) = (SteerMeta::read(after[..16].try_into().unwrap()), &after[8..16]);
            assert_eq!((meta.mark, Mark::read(mark.try_into().unwrap())), (0xabc, numbered), "{case}");
            assert!(numbered.is_some() || mark == [0; 8], "{case}: {mark:02x?}");
        }
    }
    assert_eq!(steering.unmarked().unwrap(), 0);
}

/// If no stage of the port's program writes metadata, the metadata of the custom program stays in front of the frame,
/// where a tc program can read it.
#[test]
fn a_port_that_puts_nothing_there_keeps_it() {
    need_root!();
    let mut rig = Rig::new();
    rig.attached.set_stage(StageChange::Bridge(None)).unwrap();
    let bare = Steering::new(&SteerConfig { metadata: false, ..STEER }).unwrap();
    for steering in [None, Some(&bare)] {
        rig.attached.set_stage(StageChange::Steering(steering)).unwrap();
        rig.attached.set_user(leaving(12, 0)).unwrap();
        let (_, counter, after) = rig.see(&frame());
        assert_eq!((counter, after), (Counter::Steered, [&[0xee; 12], &frame()[..]].concat()));
    }
}

#[test]
fn a_frame_without_room_goes_on_without() {
    need_root!();
    let mut rig = Rig::new();
    let (orders, frame) = (std::sync::Arc::clone(rig.stage.orders()), frame());
    // The headroom has four bytes, too few for a sequence number. The flow therefore stays with the worker until the
    // worker reports a later frame with a number.
    rig.attached.set_user(leaving(0, ROOM - 4)).unwrap();
    let after = rig.up(&frame);
    assert_eq!((metadata_of(&after, &frame, ROOM - 4), orders.numbers(0)), (0, (1, 0)));
    assert_eq!(rig.see(&frame).1, Counter::Steered, "it went up, and nobody has said that it has left");
    assert_eq!(orders.waiting(0), 0, "to hold it would not help");
    rig.attached.set_user(leaving(0, 0)).unwrap();
    let other = [&[2, 0, 0, 0, 0, 0xcc], &frame[6..]].concat();
    let after = rig.see(&other).2;
    let number = Mark::read(after[..8].try_into().unwrap()).unwrap().0;
    assert_eq!(number, 3);
    rig.see(&frame);
    assert_eq!((orders.numbers(0).0, orders.waiting(0)), (4, 1));
    orders.finish(0, 4);
    rig.attached.set_user(leaving(0, ROOM - 4)).unwrap();
    assert_eq!(rig.see(&frame).1, Counter::Bridged);
    // The sequence number takes the space of the custom program's metadata.
    rig.attached.set_user(leaving(8, ROOM - 8)).unwrap();
    assert_eq!(Mark::read(rig.up(&frame)[..8].try_into().unwrap()), Some(Mark(5)));
    orders.finish(0, 5);
    // A tag needs four bytes.
    rig.table.insert(key(&frame[..6]), Place { tagged: true, ..place(2) }, 5);
    for (room, expected) in
        [(4, (Verdict::Redirect, Counter::Bridged)), (3, (Verdict::Drop, Counter::BridgeLost))]
    {
        rig.attached.set_user(leaving(0, ROOM - room)).unwrap();
        let (verdict, counter, _) = rig.see(&frame);
        assert_eq!((verdict, counter), expected, "{room} bytes");
    }
    // There is space for the sequence number but not for the hash, then for neither, then for both.
    let steering = Steering::new(&STEER).unwrap();
    rig.attached.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    for (unmarked, (room, length)) in (1..).zip([(12, 8), (4, 0)]) {
        rig.attached.set_user(leaving(0, ROOM - room)).unwrap();
        let after = rig.up(&frame);
        assert_eq!(metadata_of(&after, &frame, ROOM - room), length, "{room} bytes");
        assert_eq!(steering.unmarked().unwrap(), unmarked, "{room} bytes");
    }
    rig.attached.set_user(leaving(0, ROOM - 16)).unwrap();
    assert_eq!(metadata_of(&rig.up(&frame), &frame, ROOM - 16), 16);
    assert_eq!(steering.unmarked().unwrap(), 2);
}

/// Checks the sequence number and the metadata in front of real frames that a worker's socket receives.
#[test]
fn a_socket_reads_both_behind_a_users_program() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let mut port = loaded.attach(near, AttachMode::Native, None).unwrap();
    let socket = Xsk::bound(near, 0);
    port.set_socket(0, socket.fd()).unwrap();
    let (table, devices) = (StationTable::new(64, 1).unwrap(), BridgeDevices::new().unwrap());
    let stage = BridgeStage::new(&PORT, &port, &table, &devices).unwrap();
    port.set_stage(StageChange::Bridge(Some(&stage))).unwrap();
    let steering = Steering::new(&STEER).unwrap();
    let mut generator = Generator::new(&Traffic::to(far)).unwrap();
    let mut hashes = Vec::new();
    for (number, metadata) in (1..).zip([0, 0, 4, 8, 12, 32]) {
        port.set_stage(StageChange::Steering((number > 1).then_some(&steering))).unwrap();
        port.set_user(leaving(metadata, 0)).unwrap();
        generator.send(1).unwrap();
        let (before, _) = awaited("a frame", || socket.receive_noted());
        assert_eq!(Mark::read(before[8..].try_into().unwrap()), Some(Mark(number)), "{metadata} bytes");
        hashes.extend((number > 1).then(|| SteerMeta::read(before).hash));
    }
    assert!(hashes[0] != 0 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
}
