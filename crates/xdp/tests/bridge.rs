//! Tests of the bridge stage: every verdict with `BPF_PROG_TEST_RUN`, and real frames between veth devices.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::os::fd::{AsFd, OwnedFd};

use support::{Namespace, config, unbound_socket};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Mark, Place, StationTable};
use xdp::live::{Generator, Pass, Sink, Traffic};
use xdp::{AttachMode, Attached, Counter, Loaded, Owner, PortProgram, StageChange, Verdict, WhenDown};

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
const VLAN: u16 = 10;

fn key(vid: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | u64::from(vid) << 48
}

fn place(port: u16) -> Place {
    Place { port, tagged: false, protected: false, is_static: false, reached: Some(1512) }
}

const PORT: BridgePort = BridgePort {
    port: 1,
    untagged: Some(VLAN),
    tagged: false,
    untagged_only: false,
    protected: false,
    learning: true,
    partial_checksums: false,
};

/// A bridge in which port 1 has a hook (XDP program) and port 2 is another device. Station A is on port 1, and station
/// B is on port 2.
struct Rig {
    table: StationTable,
    devices: BridgeDevices,
    attached: Attached,
    near: u32,
    socket: Option<OwnedFd>,
    _namespace: Namespace,
}

impl Rig {
    fn new(socket: bool) -> Rig {
        let namespace = Namespace::enter_new();
        let (_, near) = namespace.veth("f1", "n1", "");
        let (_, other) = namespace.veth("f2", "n2", "");
        let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Pass)).unwrap();
        let attached = loaded.attach(near, AttachMode::Native, None).unwrap();
        let socket = socket.then(unbound_socket);
        if let Some(socket) = &socket {
            attached.set_socket(0, socket.as_fd()).unwrap();
        }
        let devices = BridgeDevices::new().unwrap();
        devices.set(2, other).unwrap();
        let table = StationTable::new(64, 0x9e37_79b9_7f4a_7c15).unwrap();
        assert!(table.insert(key(VLAN, A), place(1), 5));
        assert!(table.insert(key(VLAN, B), place(2), 5));
        Rig { table, devices, attached, near, socket, _namespace: namespace }
    }

    fn stage(&self, port: BridgePort) -> BridgeStage {
        BridgeStage::new(&port, &self.attached, &self.table, &self.devices).unwrap()
    }

    fn loaded(&self, stage: &BridgeStage) -> Loaded {
        self.attached.prepare_stage(StageChange::Bridge(Some(stage))).unwrap()
    }

    /// Runs the program on a frame. Returns the verdict, the only counter that changed, and the frame after the run.
    fn see(&self, loaded: &Loaded, frame: &[u8]) -> (Verdict, Counter, Vec<u8>) {
        let before = self.attached.counters().unwrap();
        let run = loaded.test_run_from(frame, Some((self.near, 0)), 1).unwrap();
        let after = self.attached.counters().unwrap();
        let moved: Vec<Counter> =
            Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
        assert_eq!(moved.len(), 1, "{moved:?}");
        (run.verdict, moved[0], run.frame)
    }

    /// Returns whether a bridge stage with the configuration `port` forwards a frame. Checks that a frame for the
    /// worker is unchanged and preceded by the frame's sequence number.
    fn answers(&self, port: BridgePort, frame: &[u8]) -> bool {
        let stage = self.stage(port);
        let (verdict, counter, after) = self.see(&self.loaded(&stage), frame);
        match counter {
            Counter::Bridged => {
                assert_eq!(verdict, Verdict::Redirect);
                true
            }
            Counter::DownPassed => {
                let (mark, rest) = after.split_first_chunk().unwrap();
                assert_eq!((verdict, rest), (Verdict::Pass, frame));
                assert_eq!(Mark::read(*mark), Some(Mark(stage.orders().numbers(0).0)));
                assert_eq!(Mark::read(rest[..8].try_into().unwrap()), None);
                false
            }
            other => panic!("{other}"),
        }
    }
}

/// Returns a frame of 60 bytes between two stations, with these 802.1Q tags.
fn frame(to: [u8; 6], from: [u8; 6], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    for (protocol, control) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    let from = frame.len();
    frame.resize(60, 0);
    for (byte, value) in frame[from..].iter_mut().zip(1..) {
        *byte = value;
    }
    frame
}

fn udp(to: [u8; 6], from: [u8; 6], partial: bool) -> Vec<u8> {
    let mut frame = frame(to, from, &[]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip: [u8; 20] = [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&ip);
    // 10.0.0.1 + 10.0.0.2 + 17 + 26, in network byte order.
    let bare: u16 = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 26;
    frame[40..42].copy_from_slice(&if partial { bare } else { bare + 1 }.to_be_bytes());
    frame
}

/// Changes the last word of a datagram, so that its complete checksum equals the partial checksum.
fn as_if_partial(mut frame: Vec<u8>) -> Vec<u8> {
    frame[58..60].fill(0);
    let word = |at: usize| u64::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let sum: u64 = word(40) + (34..60).step_by(2).map(word).sum::<u64>();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[58..60].copy_from_slice(&(!folded).to_be_bytes());
    frame
}

#[test]
fn known_unicast_is_redirected_and_the_rest_goes_up() {
    need_root!();
    let rig = Rig::new(false);
    let known = frame(B, A, &[]);
    assert!(rig.answers(PORT, &known));
    let counts = |port| rig.devices.counts(port).unwrap();
    assert_eq!((counts(1).rx_packets, counts(1).rx_bytes, counts(1).tx_packets), (1, 60, 0));
    assert_eq!((counts(2).tx_packets, counts(2).tx_bytes, counts(2).rx_packets), (1, 60, 0));

    assert!(!rig.answers(PORT, &frame(B, C, &[])), "the source is unknown");
    assert!(!rig.answers(PORT, &frame(C, A, &[])), "the destination is unknown");
    assert!(!rig.answers(PORT, &frame([0xff; 6], A, &[])), "broadcast");
    assert!(!rig.answers(PORT, &frame([1, 0, 0x5e, 0, 0, 1], A, &[])), "multicast");
    assert!(!rig.answers(PORT, &frame(A, A, &[])), "it is on this very port");
    assert!(!rig.answers(PORT, &known[..14]), "too short to be read");
    assert!(!rig.answers(BridgePort { untagged: None, ..PORT }, &known), "untagged frames are not admitted");
    assert!(!rig.answers(BridgePort { untagged: Some(11), ..PORT }, &known), "another VLAN");
    for protocol in [0x8100, 0x88a8] {
        assert!(!rig.answers(PORT, &frame(B, A, &[(protocol, VLAN)])), "tagged on an access port");
    }
    let protected = BridgePort { protected: true, ..PORT };
    assert!(rig.answers(protected, &known));
    rig.table.insert(key(VLAN, B), Place { protected: true, ..place(2) }, 5);
    assert!(rig.answers(PORT, &known));
    assert!(!rig.answers(protected, &known), "both are protected");
    rig.table.insert(key(VLAN, B), Place { reached: None, ..place(2) }, 5);
    assert!(!rig.answers(PORT, &known), "its device takes no redirected frames");
    rig.table.insert(key(VLAN, B), Place { reached: Some(60), ..place(2) }, 5);
    assert!(rig.answers(PORT, &known));
    rig.table.insert(key(VLAN, B), Place { reached: Some(59), ..place(2) }, 5);
    assert!(!rig.answers(PORT, &known), "too long");
}

#[test]
fn tags_are_put_on_and_taken_off() {
    need_root!();
    let rig = Rig::new(false);
    let trunk = BridgePort { untagged: None, tagged: true, ..PORT };
    let tagged_at_b = Place { tagged: true, ..place(2) };
    let (plain, tagged) = (frame(B, A, &[]), frame(B, A, &[(0x8100, VLAN | 0xa000)]));
    let run = |port: BridgePort, frame: &[u8]| {
        let (verdict, counter, after) = rig.see(&rig.loaded(&rig.stage(port)), frame);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::Bridged));
        after
    };
    let without = |frame: &[u8]| [&frame[..12], &frame[16..]].concat();
    assert_eq!(run(PORT, &plain), plain, "access to access");
    assert_eq!(run(trunk, &tagged), without(&tagged), "trunk to access");
    rig.table.insert(key(VLAN, B), tagged_at_b, 5);
    assert_eq!(run(trunk, &tagged), tagged, "trunk to trunk keeps the priority");
    let put = run(PORT, &plain);
    assert_eq!((&put[12..16], without(&put)), (&[0x81, 0, 0, 10][..], plain.clone()), "access to trunk");
    assert_eq!(rig.devices.counts(2).unwrap().tx_bytes, 60 + 56 + 60 + 64);
    assert_eq!(rig.devices.counts(1).unwrap().rx_bytes, 240);
    assert!(!rig.answers(trunk, &plain), "no native VLAN");
    assert!(!rig.answers(trunk, &frame(B, A, &[(0x8100, 0x2000)])), "priority tag");
    // The inner tag is payload.
    let double = frame(B, A, &[(0x8100, VLAN), (0x8100, 7)]);
    assert_eq!(run(trunk, &double), double);
}

/// A frame with a priority tag goes to the worker, whatever follows the tag. The hook never reads the second tag as
/// the frame's VLAN.
#[test]
fn a_tag_behind_a_priority_tag_is_no_vlan() {
    need_root!();
    let rig = Rig::new(false);
    rig.table.insert(key(200, A), place(1), 5);
    rig.table.insert(key(200, B), place(2), 5);
    let trunk = BridgePort { tagged: true, ..PORT };
    assert!(rig.answers(trunk, &frame(B, A, &[(0x8100, 200)])), "the VLAN of a single tag");
    for port in [PORT, trunk, BridgePort { untagged: None, ..trunk }] {
        for priority in [0x8100, 0x88a8] {
            for second in [200, VLAN, 0] {
                let tags = [(priority, 0x2000), (0x8100, second)];
                assert!(!rig.answers(port, &frame(B, A, &tags)), "{port:?}: {tags:x?}");
            }
        }
    }
}

#[test]
fn open_checksums_go_up_where_senders_leave_them() {
    need_root!();
    let rig = Rig::new(true);
    let answers = |port, frame: &[u8]| {
        let stage = rig.stage(port);
        stage.orders().finish(0, stage.orders().numbers(0).0);
        match rig.see(&rig.loaded(&stage), frame).1 {
            Counter::Bridged => true,
            Counter::Steered => false,
            other => panic!("{other}"),
        }
    };
    let completing = BridgePort { partial_checksums: true, ..PORT };
    assert!(answers(PORT, &udp(B, A, true)), "nobody leaves checksums open here");
    assert!(!answers(completing, &udp(B, A, true)));
    assert!(answers(completing, &udp(B, A, false)));
    // A complete checksum may equal the sum of the pseudo-header. It is verified, unless the sender has just left
    // a checksum to its device.
    let equal = as_if_partial(udp(B, A, true));
    assert!(answers(completing, &equal));
    let mut wrong = equal.clone();
    wrong[59] ^= 1;
    assert!(!answers(completing, &wrong));
    let stage = rig.stage(completing);
    let loaded = rig.loaded(&stage);
    for (frame, is_forwarded) in [
        (&equal, true),
        (&udp(B, A, true), false),
        (&frame(B, A, &[]), true),
        (&equal, false),
        (&udp(B, A, false), true),
        (&equal, true),
    ] {
        stage.orders().finish(0, stage.orders().numbers(0).0);
        assert_eq!(rig.see(&loaded, frame).1 == Counter::Bridged, is_forwarded);
    }
    let mut fragment = udp(B, A, true);
    fragment[20] = 0x20;
    assert!(answers(completing, &fragment), "what is fragmented is complete");
    let mut options = udp(B, A, false);
    options[14] = 0x46;
    assert!(!answers(completing, &options), "not read here");
    let mut other = udp(B, A, true);
    other[23] = 1;
    assert!(answers(completing, &other), "ICMP");
    let mut six = frame(B, A, &[]);
    six.resize(74, 0);
    six[12..14].copy_from_slice(&[0x86, 0xdd]);
    six[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 20, 6, 64]);
    six[22..54].fill(0);
    (six[37], six[53]) = (1, 2);
    six[54..74].fill(0);
    six[71] = 1 + 2 + 6 + 20;
    assert!(!answers(completing, &six), "TCP over IPv6");
    six[71] += 1;
    assert!(answers(completing, &six));
    six[20] = 0;
    assert!(!answers(completing, &six), "behind a hop-by-hop header");
    // A complete checksum may have the same value.
    let alone = Rig::new(false);
    assert!(alone.answers(completing, &udp(B, A, true)), "nobody is there to complete it");
}

#[test]
fn a_station_seen_elsewhere_is_taken_out_at_once() {
    need_root!();
    let rig = Rig::new(false);
    assert!(!rig.answers(BridgePort { learning: false, ..PORT }, &frame(A, B, &[])));
    assert!(rig.table.get(key(VLAN, B)).is_some(), "it is not learned here");
    assert!(!rig.answers(PORT, &frame(A, B, &[])), "B on port 1");
    assert_eq!(rig.table.get(key(VLAN, B)), None);
    assert!(!rig.answers(PORT, &frame(B, A, &[])));
    rig.table.insert(key(VLAN, B), Place { is_static: true, ..place(2) }, 5);
    assert!(!rig.answers(PORT, &frame(A, B, &[])));
    assert!(rig.answers(PORT, &frame(B, A, &[])), "it never moves");
    assert!(rig.table.remove(key(VLAN, B)) && !rig.table.remove(key(VLAN, B)));
    assert!(!rig.answers(PORT, &frame(B, A, &[])));
}

/// Frames from or to a station that does not fit into the MAC table go to the worker. All other frames are still
/// forwarded.
#[test]
fn a_full_table_leaves_the_rest_to_the_worker() {
    need_root!();
    let rig = Rig::new(false);
    let station = |number: u16| {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 1, high, low]
    };
    let (known, refused): (Vec<u16>, Vec<u16>) =
        (0..4_000).partition(|number| rig.table.insert(key(VLAN, station(*number)), place(2), 5));
    // The table is full: every pair of buckets has been tried.
    assert_eq!((known.len() + 2, rig.table.iter().count()), (rig.table.capacity(), rig.table.capacity()));
    let known_still = || {
        let here =
            known.iter().all(|number| rig.table.get(key(VLAN, station(*number))) == Some((place(2), 5)));
        assert!(here, "what is known stays");
        for number in known.iter().step_by(8) {
            assert!(rig.answers(PORT, &frame(station(*number), A, &[])));
        }
        assert!(rig.answers(PORT, &frame(B, A, &[])));
    };
    known_still();
    for number in refused.iter().take(20) {
        let other = station(*number);
        assert_eq!(rig.table.get(key(VLAN, other)), None);
        // The frames are unchanged, with a number in front, as `answers` checks.
        assert!(!rig.answers(PORT, &frame(other, A, &[])), "to it");
        assert!(!rig.answers(PORT, &frame(B, other, &[])), "from it");
        assert!(!rig.table.remove(key(VLAN, other)));
    }
    known_still();
    // A present station may move, and a removed station frees a place.
    assert!(rig.table.insert(key(VLAN, B), Place { reached: None, ..place(2) }, 6));
    assert!(!rig.answers(PORT, &frame(B, A, &[])));
    let waiting = key(VLAN, station(refused[0]));
    let gone = known.iter().position(|number| {
        assert!(rig.table.remove(key(VLAN, station(*number))));
        rig.table.insert(waiting, place(2), 7)
    });
    assert!(gone.is_some() && rig.answers(PORT, &frame(station(refused[0]), A, &[])));
    assert_eq!(rig.table.get(waiting), Some((place(2), 7)));
}

/// If the receive queue has an AF_XDP socket, frames to a station that does not fit into the table go to the socket,
/// with consecutive sequence numbers.
#[test]
fn a_station_without_a_place_goes_to_the_socket() {
    need_root!();
    let rig = Rig::new(true);
    let stage = rig.stage(PORT);
    let (loaded, orders) = (rig.loaded(&stage), stage.orders());
    let mut others = (0..=u16::MAX).map(|number| {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 1, high, low]
    });
    let other = others.find(|mac| !rig.table.insert(key(VLAN, *mac), place(2), 5)).unwrap();
    let numbered = |frame: &[u8]| {
        let (verdict, counter, _) = rig.see(&loaded, frame);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::Steered));
        orders.numbers(0).0
    };
    let first = numbered(&frame(other, A, &[]));
    let rest: Vec<u32> = (0..100).map(|_| numbered(&frame(other, A, &[]))).collect();
    assert_eq!(rest, (first + 1..=first + 100).collect::<Vec<u32>>(), "none is lost on the way");
    orders.finish(0, first + 100);
    let known = rig.see(&loaded, &frame(B, A, &[]));
    assert_eq!((known.0, known.1), (Verdict::Redirect, Counter::Bridged));
}

#[test]
fn what_is_seen_in_the_hook_is_told() {
    need_root!();
    let rig = Rig::new(false);
    let stage = rig.stage(PORT);
    stage.orders().set_now(77);
    rig.see(&rig.loaded(&stage), &frame(B, A, &[]));
    assert_eq!(rig.table.get(key(VLAN, A)).unwrap(), (place(1), 77));
    assert_eq!(rig.table.get(key(VLAN, B)).unwrap(), (place(2), 5), "it has sent nothing");
}

#[test]
fn no_frame_overtakes_one_that_went_up() {
    need_root!();
    let rig = Rig::new(true);
    let mut port = PORT;
    let stage = rig.stage(port);
    let (loaded, orders) = (rig.loaded(&stage), stage.orders());
    let (known, unknown, other) = (frame(B, A, &[]), frame(C, A, &[]), frame(B, A, &[]));
    let way = |loaded: &Loaded, frame: &[u8]| rig.see(loaded, frame).1;
    // It was not reported yet that the frames from before the stage have left the worker.
    assert_eq!(way(&loaded, &known), Counter::Steered);
    assert_eq!(orders.numbers(0), (1, u32::MAX));
    orders.finish(0, 1);
    assert_eq!(way(&loaded, &known), Counter::Bridged);
    // The flow goes to the worker for a while.
    orders.set_bypass(true);
    assert_eq!(way(&loaded, &known), Counter::Steered);
    orders.set_bypass(false);
    assert_eq!(orders.waiting(0), 1, "nobody had said that what came before has left");
    assert_eq!(way(&loaded, &known), Counter::Steered, "number 2 is under way");
    assert_eq!(orders.waiting(0), 2);
    assert_eq!(orders.numbers(0).0, 3);
    orders.finish(0, 2);
    assert_eq!(way(&loaded, &other), Counter::Steered, "number 3 is");
    orders.finish(0, 4);
    assert_eq!(way(&loaded, &other), Counter::Bridged);
    // The frames of another flow do not delay this flow.
    assert_eq!(way(&loaded, &unknown), Counter::Steered);
    assert_eq!(way(&loaded, &known), Counter::Bridged);
    // While the queue overflows, frames of the flow are dropped until the flow can move.
    orders.set_bypass(true);
    assert_eq!(way(&loaded, &known), Counter::Steered);
    orders.set_bypass(false);
    orders.hold(0, true);
    assert_eq!(rig.see(&loaded, &known).0, Verdict::Drop);
    assert_eq!(way(&loaded, &known), Counter::BridgeHeld);
    assert_eq!(way(&loaded, &unknown), Counter::Steered, "what the hook cannot answer goes up still");
    orders.finish(0, orders.numbers(0).0);
    assert_eq!(way(&loaded, &known), Counter::Bridged);
    orders.hold(0, false);
    // Without a socket, the observation that a killed daemon has left enabled has no effect.
    orders.set_bypass(true);
    assert_eq!(way(&loaded, &known), Counter::Steered);
    rig.attached.clear_socket(0).unwrap();
    assert_eq!(way(&loaded, &known), Counter::Bridged);
    orders.set_bypass(false);
    rig.attached.set_socket(0, rig.socket.as_ref().unwrap().as_fd()).unwrap();
    // The frame order is kept when the constants change.
    assert_eq!(way(&loaded, &unknown), Counter::Steered);
    port.learning = false;
    let mut rig = rig;
    rig.attached.set_stage(StageChange::Bridge(Some(&stage))).unwrap();
    let next = rig.stage(port);
    assert_eq!(next.orders().numbers(0), orders.numbers(0));
    assert!(stage.is_on(&rig.attached) && !next.is_on(&rig.attached));
    rig.attached.clear_socket(0).unwrap();
    assert_eq!(
        rig.see(&rig.loaded(&next), &known).1,
        Counter::Bridged,
        "nothing can be under way without a socket"
    );
}

#[test]
fn a_device_that_went_is_counted() {
    need_root!();
    let rig = Rig::new(false);
    let loaded = rig.loaded(&rig.stage(PORT));
    rig._namespace.ip("link del dev n2");
    support::eventually("the kernel forgets the device", || {
        let (verdict, counter, _) = rig.see(&loaded, &frame(B, A, &[]));
        (verdict, counter) == (Verdict::Drop, Counter::BridgeLost)
    });
}

#[test]
fn frames_cross_between_devices_and_pins_keep_them_crossing() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("f1", "n1", "");
    let (other_far, other) = namespace.veth("f2", "n2", "");
    assert!(!xdp::features("n2").unwrap().transmit, "its far end takes no redirected frames");
    let sink = Sink::attach(other_far, AttachMode::Native).unwrap();
    assert!(xdp::features("n2").unwrap().transmit);
    let _pass = Pass::attach(far, AttachMode::Native).unwrap();
    let pin = xdp::PinPath::new(&format!("bridge-{}", std::process::id())).unwrap();
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let mut attached = loaded.attach(near, AttachMode::Native, Some(pin.clone())).unwrap();
    let devices = BridgeDevices::new().unwrap();
    devices.set(2, other).unwrap();
    let table = StationTable::new(64, 1).unwrap();
    let traffic = Traffic::to(far);
    table.insert(key(VLAN, traffic.source_mac), place(1), 0);
    table.insert(key(VLAN, traffic.destination_mac), place(2), 0);
    let stage = BridgeStage::new(&PORT, &attached, &table, &devices).unwrap();
    attached.set_stage(StageChange::Bridge(Some(&stage))).unwrap();
    let mut generator = Generator::new(&traffic).unwrap();
    let all_arrive = |generator: &mut Generator| {
        let before = sink.sunk().unwrap().packets;
        let sent = generator.send(10_000).unwrap();
        support::eventually("all frames have crossed", || sink.sunk().unwrap().packets - before >= 10_000);
        sent
    };
    all_arrive(&mut generator);
    assert_eq!(attached.counters().unwrap().get(Counter::Bridged), 10_000);
    // Dropping these values simulates the end of the process that created the port.
    drop((attached, table, devices, stage));
    all_arrive(&mut generator);
    let mut adopted = xdp::adopt(&pin).unwrap().unwrap();
    assert!(adopted.has_bridge());
    let again = adopted.prepare(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    adopted.swap(again).unwrap();
    all_arrive(&mut generator);
    assert_eq!(adopted.counters().unwrap().get(Counter::Bridged), 30_000);
    adopted.set_stage(StageChange::Bridge(None)).unwrap();
    generator.send(1000).unwrap();
    support::eventually("they follow when_down", || {
        adopted.counters().unwrap().get(Counter::DownDropped) >= 1000
    });
    adopted.detach().unwrap();
}
