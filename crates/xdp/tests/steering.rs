//! Tests of flow steering: every target with `BPF_PROG_TEST_RUN`, the hash compared with the workers' hash, and real
//! frames to sockets and CPUs.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use packet::net::FiveTuple;
use packet::{FlowKey, L3Kind, PortId, VlanId, spec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::xsk::Xsk;
use support::{LOCAL4, Namespace, config, eventually, packets, unbound_socket};
use xdp::StageChange;
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Mark, Place, StationTable};
use xdp::fib::{FibPort, FibStage};
use xdp::filter::Moment;
use xdp::live::{Generator, Traffic};
use xdp::steer::{
    FlowEntry, FlowError, STEER_BUCKETS, SteerConfig, SteerMeta, SteerTo, Steering, online_cpus,
};
use xdp::watch::{LossEvent, Losses};
use xdp::{
    AttachMode, Attached, Counter, Counters, Error, Loaded, Mode, Owner, PinPath, PortProgram, Verdict,
    WhenDown, adopt,
};

const FLOWS: SteerConfig = SteerConfig { capacity: 64, table: false, metadata: false, cpu_queue: 192 };
const ALL: SteerConfig = SteerConfig { table: true, metadata: true, ..FLOWS };

fn to(to: SteerTo) -> FlowEntry {
    FlowEntry { to, mark: 0, expires: None, live: false }
}

fn flow(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> FiveTuple {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    FiveTuple { vlan: None, source, destination, protocol, ports }
}

fn udp() -> FiveTuple {
    flow("192.0.2.7", "198.51.100.9", 17, Some((7, 9)))
}

const UDP: &str = "ip_src=192.0.2.7,ip_dst=198.51.100.9,udp,src_port=7,dst_port=9";

fn frame(text: &str) -> Vec<u8> {
    spec::parse(text).unwrap()
}

/// A program with flow steering, and optionally a socket for its queue.
struct Port {
    loaded: Loaded,
    _socket: Option<OwnedFd>,
}

impl Port {
    fn new(owner: Owner, steering: &Steering, socket: bool) -> Port {
        let loaded = PortProgram::load_steered(&config(owner, WhenDown::Drop), steering).unwrap();
        let socket = socket.then(unbound_socket);
        if let Some(socket) = &socket {
            loaded.set_socket(0, socket.as_fd()).unwrap();
        }
        Port { loaded, _socket: socket }
    }

    fn run(&self, frame: &[u8]) -> (Verdict, Counter, Vec<u8>) {
        let before = self.loaded.counters().unwrap();
        let run = self.loaded.test_run(frame).unwrap();
        let after = self.loaded.counters().unwrap();
        assert_eq!(after.seen(), before.seen() + 1, "one count per frame");
        let moved = Counter::ALL.into_iter().find(|c| after.get(*c) != before.get(*c)).unwrap();
        (run.verdict, moved, run.frame)
    }

    /// Returns the verdict on a frame and the only counter that changed. The program must not change the frame.
    fn see(&self, frame: &[u8]) -> (Verdict, Counter) {
        let (verdict, moved, after) = self.run(frame);
        assert_eq!(after, frame);
        (verdict, moved)
    }
}

const KERNEL: (Verdict, Counter) = (Verdict::Pass, Counter::SteeringKernel);
const CPU: (Verdict, Counter) = (Verdict::Redirect, Counter::SteeringCpu);
const WORKER: (Verdict, Counter) = (Verdict::Redirect, Counter::Steered);

#[test]
fn flows_go_where_they_are_told_on_every_port() {
    need_root!();
    let mut steering = Steering::new(&FLOWS).unwrap();
    let local = flow("203.0.113.1", &LOCAL4.to_string(), 17, Some((7, 9)));
    for owner in [Owner::Bridged, Owner::Routed] {
        let port = Port::new(owner, &steering, true);
        // No flow matches, so the frame is processed as without a steering.
        assert_eq!(port.see(&frame(UDP)), WORKER);
        for (target, expected) in
            [(SteerTo::Kernel, KERNEL), (SteerTo::Cpu(0), CPU), (SteerTo::Worker, WORKER)]
        {
            // The running program sees the flow at once.
            steering.insert(udp(), to(target)).unwrap();
            assert_eq!(port.see(&frame(UDP)), expected, "{owner:?} {target}");
        }
        // Packets for this host go to the worker if an exact flow has the target worker.
        let text = format!("ip_src=203.0.113.1,ip_dst={LOCAL4},udp,src_port=7,dst_port=9");
        if owner == Owner::Routed {
            assert_eq!(port.see(&frame(&text)), (Verdict::Pass, Counter::PassedLocal4));
        }
        steering.insert(local, to(SteerTo::Worker)).unwrap();
        assert_eq!(port.see(&frame(&text)), WORKER);
        assert!(steering.remove(&udp()).unwrap() && steering.remove(&local).unwrap());
        assert!(!steering.remove(&udp()).unwrap());
        assert_eq!(port.see(&frame(UDP)), WORKER);
    }
    // Without a socket, frames of flows to the worker get the verdict `when_down`.
    steering.insert(udp(), to(SteerTo::Worker)).unwrap();
    let port = Port::new(Owner::Routed, &steering, false);
    assert_eq!(port.see(&frame(UDP)), (Verdict::Drop, Counter::DownDropped));
}

#[test]
fn a_flow_is_exact() {
    need_root!();
    let mut steering = Steering::new(&FLOWS).unwrap();
    let port = Port::new(Owner::Bridged, &steering, true);
    let v6 = flow("2001:db8::1", "2001:db8::2", 6, Some((1000, 80)));
    let echo = flow("192.0.2.7", "198.51.100.9", 1, None);
    for known in [udp(), v6, echo, FiveTuple { vlan: VlanId::new(7), ..v6 }] {
        steering.insert(known, to(SteerTo::Kernel)).unwrap();
    }
    const TCP6: &str = "ip_src=2001:db8::1,ip_dst=2001:db8::2,tcp,src_port=1000,dst_port=80";
    let sees = |text: &str| port.see(&frame(text)) == KERNEL;
    assert!(sees(UDP) && sees(TCP6) && sees(&format!("vlan=7,{TCP6}")));
    assert!(sees("ip_src=192.0.2.7,ip_dst=198.51.100.9,icmp"));
    // A frame with a priority tag matches flows without a VLAN.
    let mut priority = frame(&format!("vlan=7,{TCP6}"));
    priority[14..16].copy_from_slice(&[0xe0, 0]);
    assert_eq!(port.see(&priority), KERNEL);
    for other in [
        UDP.replace("192.0.2.7", "192.0.2.6"),
        UDP.replace("198.51.100.9", "198.51.100.8"),
        UDP.replace("src_port=7", "src_port=9").replace("dst_port=9", "dst_port=7"),
        UDP.replace("udp", "tcp"),
        format!("vlan=7,{UDP}"),
        format!("vlan=8,{TCP6}"),
        "ip_src=198.51.100.9,ip_dst=192.0.2.7,udp,src_port=9,dst_port=7".to_owned(),
    ] {
        assert!(!sees(&other), "{other}");
    }
    // Two tags.
    let mut tagged = frame(&format!("vlan=7,{TCP6}"));
    tagged.splice(12..12, [0x88, 0xa8, 0, 7]);
    assert_eq!(port.see(&tagged), WORKER);
}

#[test]
fn what_is_cut_short_or_in_pieces_is_no_flow() {
    need_root!();
    let mut steering = Steering::new(&FLOWS).unwrap();
    let port = Port::new(Owner::Bridged, &steering, true);
    let chained = flow("2001:db8::1", "2001:db8::2", 17, Some((7, 9)));
    let echo = flow("192.0.2.7", "198.51.100.9", 1, None);
    for known in [udp(), chained, echo] {
        steering.insert(known, to(SteerTo::Kernel)).unwrap();
    }
    let edited = |edit: fn(&mut Vec<u8>)| {
        let mut frame = frame(UDP);
        edit(&mut frame);
        port.see(&frame)
    };
    assert_eq!(edited(|_| {}), KERNEL);
    // First and later fragments, and packets with a wrong length, version or header length, match no flow.
    assert_eq!(edited(|f| f[20] = 0x20), WORKER);
    assert_eq!(edited(|f| f[21] = 1), WORKER);
    assert_eq!(edited(|f| f[16..18].copy_from_slice(&[0xff, 0])), WORKER);
    assert_eq!(edited(|f| f[16..18].copy_from_slice(&[0, 27])), WORKER);
    assert_eq!(edited(|f| f[14] = 0x55), WORKER);
    assert_eq!(edited(|f| f[14] = 0x44), WORKER);
    // "Don't fragment" does not make a fragment, and padding is not a part of the packet.
    assert_eq!(edited(|f| f[20] = 0x40), KERNEL);
    assert_eq!(edited(|f| f.extend([0; 30])), KERNEL);
    let whole = frame(UDP);
    let end = 14 + usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    for length in 14..end {
        assert_eq!(port.see(&whole[..length]), WORKER, "{length} bytes");
    }
    // A flow of a protocol without ports also matches fragments.
    let mut ping = frame("ip_src=192.0.2.7,ip_dst=198.51.100.9,icmp");
    ping[21] = 1;
    assert_eq!(port.see(&ping), KERNEL);
    // Up to eight extension headers are read.
    let with = |headers: usize, fragment: bool| {
        let mut chain: Vec<u8> = Vec::new();
        for at in 0..headers {
            let next = if at + 1 < headers {
                60
            } else if fragment {
                44
            } else {
                17
            };
            chain.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        if fragment {
            chain.extend([17, 0, 0, 1, 0, 0, 0, 0]);
        }
        chain.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        let mut packet = vec![0x60, 0, 0, 0, 0, u8::try_from(chain.len()).unwrap(), 60, 64];
        for end in ["2001:db8::1", "2001:db8::2"] {
            let IpAddr::V6(address) = end.parse().unwrap() else { unreachable!() };
            packet.extend(address.octets());
        }
        packet.extend(chain);
        support::ethernet(support::to_us(), &[], 0x86dd, &packet)
    };
    for headers in 1..=8 {
        assert_eq!(port.see(&with(headers, false)), KERNEL, "{headers} headers");
    }
    assert_eq!(port.see(&with(9, false)), WORKER);
    assert_eq!(port.see(&with(1, true)), WORKER, "a first fragment");
    // A frame in several buffers.
    let mut jumbo = frame(UDP);
    jumbo[16..18].copy_from_slice(&8986_u16.to_be_bytes());
    jumbo[38..40].copy_from_slice(&8966_u16.to_be_bytes());
    jumbo.resize(9000, 0xa5);
    assert_eq!(port.see(&jumbo), KERNEL);
}

#[test]
fn flows_are_counted_replaced_and_expire() {
    need_root!();
    let mut steering = Steering::new(&FLOWS).unwrap();
    let port = Port::new(Owner::Bridged, &steering, true);
    let frame = frame(UDP);
    let hits = |steering: &Steering| steering.flows().next().unwrap().2.packets;
    steering.insert(udp(), to(SteerTo::Kernel)).unwrap();
    for _ in 0..3 {
        port.see(&frame);
    }
    assert_eq!(steering.flows().next().unwrap().2.bytes, 3 * u64::try_from(frame.len()).unwrap());
    // A flow keeps its counts when its target changes.
    let soon = Moment::now().after(Duration::from_millis(200));
    steering.insert(udp(), FlowEntry { expires: Some(soon), ..to(SteerTo::Cpu(0)) }).unwrap();
    assert_eq!(port.see(&frame), CPU);
    assert_eq!(hits(&steering), 4);
    assert_eq!(steering.expire(Moment(soon.0 - 1)).unwrap(), 0);
    // The hook itself checks the time, before the entry is removed.
    eventually("it expires", || port.see(&frame) == WORKER);
    assert!(Moment::now() >= soon);
    assert_eq!(hits(&steering), 4 + port.loaded.counters().unwrap().get(Counter::SteeringCpu) - 1);
    assert_eq!((steering.expire(Moment::now()).unwrap(), steering.len()), (1, 0));
    let counts = steering.counts().unwrap();
    let of = |target| counts.iter().find(|(to, _)| *to == target).map_or(0, |(_, count)| count.packets);
    assert_eq!(of(SteerTo::Kernel), 3);
    assert!(of(SteerTo::Cpu(0)) >= 1);
    assert_eq!(of(SteerTo::Worker), 0, "what the steering did not decide is not counted by it");
}

/// Exact flows can be listed in parts, and the flows that were added at run time are counted without reading the list.
#[test]
fn flows_are_listed_from_a_place_and_live_ones_are_counted() {
    need_root!();
    let mut steering = Steering::new(&SteerConfig { capacity: 8, ..FLOWS }).unwrap();
    let nth = |n: u16| FiveTuple { ports: Some((n, 9)), ..udp() };
    let live = FlowEntry { live: true, ..to(SteerTo::Kernel) };
    let soon = Moment::now().after(Duration::from_secs(60));
    for (n, entry) in [(3, live), (1, to(SteerTo::Kernel)), (2, FlowEntry { expires: Some(soon), ..live })] {
        steering.insert(nth(n), entry).unwrap();
    }
    let after = |last: Option<u16>| {
        let flows = steering.flows_after(last.map(nth));
        flows.map(|(flow, ..)| flow.ports.unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!((after(None), after(Some(1)), after(Some(3))), (vec![1, 2, 3], vec![2, 3], vec![]));
    // A list can also continue after a flow that is no longer present.
    assert_eq!(after(Some(0)), [1, 2, 3]);
    assert_eq!(steering.live(), 2);
    for capacity in [8, 16] {
        let other = steering.like(&SteerConfig { capacity, ..FLOWS }).unwrap();
        assert_eq!(other.live(), 2, "{capacity}");
    }
    steering.insert(nth(3), to(SteerTo::Kernel)).unwrap();
    assert_eq!(steering.live(), 1);
    assert_eq!((steering.expire(soon).unwrap(), steering.live()), (1, 0));
    steering.insert(nth(1), live).unwrap();
    assert_eq!(steering.live(), 1);
    assert!(steering.remove(&nth(1)).unwrap());
    assert_eq!(steering.live(), 0);
}

#[test]
fn a_full_table_of_flows_refuses_one_more() {
    need_root!();
    let mut steering = Steering::new(&SteerConfig { capacity: 3, ..FLOWS }).unwrap();
    let port = Port::new(Owner::Bridged, &steering, true);
    let nth = |n: u16| FiveTuple { ports: Some((n, 9)), ..udp() };
    for n in 0..3 {
        steering.insert(nth(n), to(SteerTo::Kernel)).unwrap();
    }
    let error = steering.insert(nth(3), to(SteerTo::Kernel)).unwrap_err();
    assert!(matches!(error, Error::SteerFull { capacity: 3 }), "{error}");
    assert!(error.to_string().contains("capacity"), "{error}");
    // Present flows can be changed, and a removed flow frees a slot.
    steering.insert(nth(1), to(SteerTo::Cpu(0))).unwrap();
    assert!(steering.remove(&nth(0)).unwrap());
    steering.insert(nth(7), to(SteerTo::Kernel)).unwrap();
    assert_eq!(port.see(&frame(UDP)), KERNEL);
    // A larger capacity keeps flows and counts. A smaller one is refused.
    let more = steering.like(&SteerConfig { capacity: 8, ..FLOWS }).unwrap();
    assert_eq!(Port::new(Owner::Bridged, &more, true).see(&frame(UDP)), KERNEL);
    let hits: Vec<u64> = more.flows().map(|(_, _, count)| count.packets).collect();
    assert_eq!(hits, [0, 0, 2]);
    let less = more.like(&SteerConfig { capacity: 2, ..FLOWS });
    assert!(matches!(less, Err(Error::SteerFull { capacity: 2 })));
}

#[test]
fn what_cannot_be_is_refused() {
    need_root!();
    let mut steering = Steering::new(&ALL).unwrap();
    let absent = online_cpus().unwrap().last().unwrap() + 1;
    let error = steering.insert(udp(), to(SteerTo::Cpu(absent))).unwrap_err();
    assert!(matches!(error, Error::SteeringCpu { cpu, .. } if cpu == absent), "{error}");
    assert!(error.to_string().contains("use one of 0"), "{error}");
    let mut table = [SteerTo::Worker; STEER_BUCKETS];
    table[9] = SteerTo::Cpu(absent);
    assert!(matches!(steering.set_table(&table, true), Err(Error::SteeringCpu { .. })));
    assert_eq!(steering.table(), ([SteerTo::Worker; STEER_BUCKETS], false));
    let refused = steering.insert(FiveTuple { ports: None, ..udp() }, to(SteerTo::Kernel)).unwrap_err();
    assert!(matches!(refused, Error::SteerFlow { why: FlowError::NoPorts, .. }), "{refused}");
    assert!(steering.is_empty());
}

/// Returns the metadata and the frame that follows it.
fn noted(bytes: &[u8]) -> (SteerMeta, &[u8]) {
    let (meta, rest) = bytes.split_first_chunk().unwrap();
    (SteerMeta::read(*meta), rest)
}

#[test]
fn the_table_decides_what_nobody_did() {
    need_root!();
    let mut steering = Steering::new(&SteerConfig { metadata: false, ..ALL }).unwrap();
    let bucket = |text: &str| {
        let frame = frame(text);
        let mut key = FlowKey::default();
        FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
        usize::try_from(key.hash_symmetric()).unwrap() % STEER_BUCKETS
    };
    let other = UDP.replace("src_port=7", "src_port=8");
    assert_ne!(bucket(UDP), bucket(&other));
    for owner in [Owner::Bridged, Owner::Routed] {
        let port = Port::new(owner, &steering, true);
        for (target, expected) in
            [(SteerTo::Kernel, KERNEL), (SteerTo::Cpu(0), CPU), (SteerTo::Worker, WORKER)]
        {
            let mut table = [SteerTo::Worker; STEER_BUCKETS];
            table[bucket(UDP)] = target;
            steering.set_table(&table, true).unwrap();
            assert_eq!(steering.table(), (table, true));
            assert_eq!(port.see(&frame(UDP)), expected, "{owner:?} {target}");
            assert_eq!(port.see(&frame(&other)), WORKER);
        }
        // An exact flow precedes the table.
        steering.set_table(&[SteerTo::Kernel; STEER_BUCKETS], false).unwrap();
        steering.insert(udp(), to(SteerTo::Worker)).unwrap();
        assert_eq!(port.see(&frame(UDP)), WORKER);
        assert_eq!(port.see(&frame(&other)), KERNEL);
        steering.remove(&udp()).unwrap();
        // Frames that the kernel gets on a routed port in any case go to the CPU of the table, under their
        // own counter.
        steering.set_table(&[SteerTo::Cpu(0); STEER_BUCKETS], false).unwrap();
        let arp = support::ethernet([0xff; 6], &[], 0x0806, &[0; 46]);
        let expected =
            if owner == Owner::Bridged { CPU } else { (Verdict::Redirect, Counter::PassedControl) };
        assert_eq!(port.see(&arp), expected);
    }
    // A program without the stage counts nothing.
    let before = steering.counts().unwrap();
    let plain = PortProgram::load(&config(Owner::Bridged, WhenDown::Pass)).unwrap();
    plain.test_run(&frame(UDP)).unwrap();
    assert_eq!(steering.counts().unwrap(), before);
}

/// Returns the workers' hash of a frame, and the frame's exact flow if it has one.
fn oracle(frame: &[u8]) -> Option<(u32, Option<FiveTuple>)> {
    let mut key = FlowKey::default();
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).ok()?;
    let hash = key.hash_symmetric();
    let (source, destination): (IpAddr, IpAddr) = match key.l3_kind() {
        L3Kind::Ipv4 => (key.ipv4_src().into(), key.ipv4_dst().into()),
        L3Kind::Ipv6 => (key.ipv6_src().into(), key.ipv6_dst().into()),
        _ => return Some((hash, None)),
    };
    let with_ports = matches!(key.proto(), 6 | 17 | 132);
    let tag = key.outer_vid();
    let twice = [12, 16].iter().all(|at| matches!(frame.get(*at..at + 2), Some([0x81, 0] | [0x88, 0xa8])));
    let whole = layers.malformed().is_none() && !(with_ports && key.is_fragment());
    let flow = FiveTuple {
        vlan: tag,
        source,
        destination,
        protocol: key.proto(),
        ports: with_ports.then(|| (key.src_port(), key.dst_port())),
    };
    Some((hash, Some(flow).filter(|_| whole && !twice && tag != Some(VlanId::NONE))))
}

#[test]
fn hash_and_flows_agree_with_the_workers() {
    need_root!();
    let steering = RefCell::new(Steering::new(&SteerConfig { metadata: true, ..FLOWS }).unwrap());
    let port = Port::new(Owner::Bridged, &steering.borrow(), true);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let (flows, hashes) = (Cell::new(0), Cell::new(0));
    runner
        .run(&vec(packets::frame(), 24), |frames| {
            for mut frame in frames {
                // Most frames get a valid length, because the generator's lengths are arbitrary.
                if let Some((at, total)) = length_of(&frame) {
                    frame[at..at + 2].copy_from_slice(&total.to_be_bytes());
                }
                let Some((hash, flow)) = oracle(&frame) else { continue };
                if let Some(flow) = flow {
                    steering.borrow_mut().insert(flow, FlowEntry { mark: 7, ..to(SteerTo::Kernel) }).unwrap();
                    flows.set(flows.get() + 1);
                }
                let (verdict, counter, after) = port.run(&frame);
                let (meta, rest) = noted(&after);
                let expected = if flow.is_some() { (KERNEL, 7) } else { (WORKER, 0) };
                prop_assert_eq!(((verdict, counter), meta.mark), expected, "{:02x?}", frame);
                prop_assert_eq!(meta.hash, hash, "{:02x?}", frame);
                prop_assert_eq!(rest, &frame[..]);
                hashes.set(hashes.get() + 1);
                if let Some(flow) = flow {
                    steering.borrow_mut().remove(&flow).unwrap();
                }
            }
            Ok(())
        })
        .unwrap();
    let (flows, hashes) = (flows.get(), hashes.get());
    assert!(flows > 100 && hashes > 1000, "{flows} flows of {hashes} frames");
}

/// Returns the offset of the length field of an IP packet after any number of tags, and the correct value of this
/// field.
fn length_of(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let ethertype = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
        at += 2;
        let left = frame.len() - at;
        match ethertype {
            0x8100 | 0x88a8 => at += 2,
            0x0800 if left >= 20 => return Some((at + 2, u16::try_from(left).ok()?)),
            0x86dd if left >= 40 => return Some((at + 4, u16::try_from(left - 40).ok()?)),
            _ => return None,
        }
    }
}

fn attached(near: u32, mode: AttachMode, pin: Option<PinPath>) -> Attached {
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    loaded.attach(near, mode, pin).unwrap()
}

#[test]
fn a_bridged_port_numbers_what_a_flow_sends_up() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let (_, other) = namespace.veth("vc", "vd", "");
    let mut attached = attached(near, AttachMode::Native, None);
    let (table, devices) = (StationTable::new(64, 1).unwrap(), BridgeDevices::new().unwrap());
    devices.set(2, other).unwrap();
    let key = |mac: [u8; 6]| {
        let [a, b, c, d, e, f] = mac;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | 1 << 48
    };
    let frame = frame(UDP);
    let (destination, source) = (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
    for (mac, port) in [(source, 1), (destination, 2)] {
        let place = Place { port, tagged: false, protected: false, is_static: false, reached: Some(1512) };
        assert!(table.insert(key(mac), place, 5));
    }
    let port = BridgePort {
        port: 1,
        untagged: Some(1),
        tagged: false,
        untagged_only: false,
        protected: false,
        learning: true,
        partial_checksums: false,
    };
    let stage = BridgeStage::new(&port, &attached, &table, &devices).unwrap();
    attached.set_stage(StageChange::Bridge(Some(&stage))).unwrap();
    let mut steering = Steering::new(&SteerConfig { metadata: true, ..FLOWS }).unwrap();
    let see = |loaded: Loaded| {
        let before = attached.counters().unwrap();
        let run = loaded.test_run_from(&frame, Some((near, 0)), 1).unwrap();
        let after = attached.counters().unwrap();
        (Counter::ALL.into_iter().find(|c| after.get(*c) != before.get(*c)).unwrap(), run.frame)
    };
    // Frames between known stations are bridged, unless a flow decides otherwise.
    assert_eq!(
        see(attached.prepare_stage(StageChange::Steering(Some(&steering))).unwrap()).0,
        Counter::Bridged
    );
    steering.insert(udp(), to(SteerTo::Kernel)).unwrap();
    let (counter, after) = see(attached.prepare_stage(StageChange::Steering(Some(&steering))).unwrap());
    assert_eq!((counter, noted(&after).1), (Counter::SteeringKernel, &frame[..]));
    assert_eq!(Mark::read(after[8..16].try_into().unwrap()), None, "it does not go up, so it has no number");
    steering.insert(udp(), FlowEntry { mark: 0xabc, ..to(SteerTo::Worker) }).unwrap();
    for number in 1..3 {
        let (counter, after) = see(attached.prepare_stage(StageChange::Steering(Some(&steering))).unwrap());
        let (meta, rest) = noted(&after);
        assert_eq!((counter, rest, meta.mark), (Counter::DownDropped, &frame[..], 0xabc));
        assert_eq!(Mark::read(after[8..16].try_into().unwrap()), Some(Mark(number)));
        assert_eq!(stage.orders().numbers(0).0, number);
    }
    // Without metadata only the number is in front of the frame.
    let bare = steering.like(&FLOWS).unwrap();
    let (_, after) = see(attached.prepare_stage(StageChange::Steering(Some(&bare))).unwrap());
    assert_eq!(Mark::read(after[..8].try_into().unwrap()), Some(Mark(3)));
    assert_eq!(after[8..], frame[..]);
}

#[test]
fn a_port_in_the_kernels_routing_is_spread_by_the_table() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Pass)).unwrap();
    let mut attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    let port = FibPort { mac: [2, 0, 0, 0, 0, 2], check_sources: false, partial_checksums: false };
    attached.set_stage(StageChange::Fib(Some(&FibStage::new(&port, &attached).unwrap()))).unwrap();
    let mut steering = Steering::new(&ALL).unwrap();
    steering.set_table(&[SteerTo::Cpu(0); STEER_BUCKETS], false).unwrap();
    attached.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    let frame = frame(UDP);
    let says = attached.explainer().unwrap().explain(&frame).unwrap();
    // The counter shows the reason of the kernel routing stage, and the target is the CPU in the table.
    assert!(says.counter.name().starts_with("fib_"), "{says:?}");
    assert_eq!((says.verdict, says.steered, says.flow), (Verdict::Redirect, Some(SteerTo::Cpu(0)), None));
    steering.insert(udp(), to(SteerTo::Kernel)).unwrap();
    let says = attached.explainer().unwrap().explain(&frame).unwrap();
    assert_eq!((says.counter, says.verdict), (Counter::SteeringKernel, Verdict::Pass));
    assert_eq!((says.steered, says.flow), (Some(SteerTo::Kernel), Some(udp())));
    // Explaining a frame counts nothing.
    assert_eq!(steering.flows().next().unwrap().2.packets, 0);
    assert!(steering.counts().unwrap().iter().all(|(_, count)| count.packets == 0));
}

/// Returns the CPU on which a socket's last datagram was received.
#[allow(unsafe_code, reason = "a socket option that std does not have")]
fn incoming_cpu(socket: &UdpSocket) -> u32 {
    let mut cpu = 0_u32;
    let mut length = libc::socklen_t::try_from(size_of::<u32>()).unwrap();
    // SAFETY: the call writes at most `length` bytes into `cpu`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "SO_INCOMING_CPU: {}", std::io::Error::last_os_error());
    cpu
}

/// Creates a veth pair, and a socket for the generator's datagrams on its second device. Returns devices and socket.
fn receiver(namespace: &Namespace) -> (u32, u32, UdpSocket) {
    let (far, near) = namespace.veth("va", "vb", "");
    support::sh("ethtool -K vb gro on");
    namespace.ip("link set dev vb address 02:00:00:00:00:02");
    namespace.ip("address add 10.0.2.2/24 dev vb");
    namespace.ip("route add default via 10.0.2.9");
    let socket = UdpSocket::bind("10.0.2.2:9").unwrap();
    // The kernel stores the receiving CPU only for connected sockets.
    socket.connect("10.0.1.2:1024").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (far, near, socket)
}

#[test]
fn frames_reach_the_cpu_that_they_are_sent_to() {
    need_root!();
    for (mode, attach) in [(Mode::Native, AttachMode::Native), (Mode::Generic, AttachMode::Generic)] {
        let namespace = Namespace::enter_new();
        let (far, near, socket) = receiver(&namespace);
        let mut port = attached(near, attach, None);
        assert_eq!(port.mode(), mode);
        // In generic mode, frames also arrive, but the receiving CPU processes them: see `Kind::Generic`.
        let sends = mode == Mode::Native;
        assert_eq!(port.sends_to_cpus(), sends);
        let mut steering = Steering::new(&ALL).unwrap();
        port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
        let mut generator = Generator::new(&Traffic::to(far)).unwrap();
        let mut received = 0;
        for cpu in online_cpus().unwrap() {
            steering.set_table(&[SteerTo::Cpu(cpu); STEER_BUCKETS], true).unwrap();
            generator.send(20).unwrap();
            for _ in 0..20 {
                socket.recv(&mut [0; 100]).unwrap();
            }
            received += 20;
            let counts = steering.counts().unwrap();
            let (to, expected) = if sends { (SteerTo::Cpu(cpu), 20) } else { (SteerTo::Kernel, received) };
            let counted = counts.iter().find(|(other, _)| *other == to).unwrap().1;
            assert_eq!(counted.packets, expected, "{mode}");
            assert!(!sends || incoming_cpu(&socket) == cpu);
        }
        let way = if sends { Counter::SteeringCpu } else { Counter::SteeringKernel };
        assert_eq!(port.counters().unwrap().get(way), received);
        let before = port.counters().unwrap().get(Counter::SteeringKernel);
        steering.set_table(&[SteerTo::Kernel; STEER_BUCKETS], true).unwrap();
        generator.send(20).unwrap();
        for _ in 0..20 {
            socket.recv(&mut [0; 100]).unwrap();
        }
        assert_eq!(port.counters().unwrap().get(Counter::SteeringKernel), before + 20);
        assert_eq!(steering.unmarked().unwrap(), 0);
    }
}

#[test]
fn what_a_cpus_full_queue_loses_is_told() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near, _socket) = receiver(&namespace);
    let mut port = attached(near, AttachMode::Native, None);
    let mut steering = Steering::new(&SteerConfig { cpu_queue: 1, ..ALL }).unwrap();
    let cpu = *online_cpus().unwrap().last().unwrap();
    steering.set_table(&[SteerTo::Cpu(cpu); STEER_BUCKETS], true).unwrap();
    port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    let (_, maps) = xdp::program_by_id(port.info().unwrap().id).unwrap();
    let map = maps.iter().find(|map| map.name == "steer_cpus").unwrap().id;
    let losses = Losses::watch().unwrap();
    assert!(losses.left_out().iter().all(|(event, _)| *event != LossEvent::Cpu), "{:?}", losses.left_out());
    let mut generator = Generator::new(&Traffic::to(far)).unwrap();
    let lost = support::awaited("a loss", || {
        generator.send(2000).unwrap();
        let all = losses.read().unwrap();
        all.into_iter().find(|loss| loss.event == LossEvent::Cpu && loss.ifindex == map)
    });
    assert_eq!((lost.netns, lost.code), (0, cpu));
    assert_eq!(lost.reason(), format!("the queue of CPU {cpu} is full"));
    assert!(lost.frames > 0 && lost.frames <= port.counters().unwrap().get(Counter::SteeringCpu));
}

#[test]
fn sockets_read_hash_and_mark_in_front_of_frames() {
    need_root!();
    for attach in [AttachMode::Native, AttachMode::Generic] {
        let namespace = Namespace::enter_new();
        let (far, near) = namespace.veth("va", "vb", "");
        support::sh("ethtool -K vb gro on");
        let mut port = attached(near, attach, None);
        let socket = Xsk::bound(near, 0);
        port.set_socket(0, socket.fd()).unwrap();
        let mut steering = Steering::new(&ALL).unwrap();
        port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
        let mut generator = Generator::new(&Traffic::to(far)).unwrap();
        generator.send(1).unwrap();
        let first = support::awaited("a frame", || socket.receive_noted());
        let (hash, flow) = oracle(&first.1).unwrap();
        assert_eq!(SteerMeta::read(first.0), SteerMeta { hash, mark: 0 });
        steering.insert(flow.unwrap(), FlowEntry { mark: 0x1234_5678, ..to(SteerTo::Worker) }).unwrap();
        generator.send(1).unwrap();
        let second = support::awaited("a frame", || socket.receive_noted());
        assert_eq!(SteerMeta::read(second.0), SteerMeta { hash, mark: 0x1234_5678 });
    }
}

#[test]
fn flows_and_tables_change_under_load_without_loss() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attached(near, AttachMode::Native, None);
    let mut steering = Steering::new(&ALL).unwrap();
    port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    steering.set_table(&[SteerTo::Kernel; STEER_BUCKETS], true).unwrap();
    let both = |met: &Counters| met.get(Counter::SteeringCpu) > 0 && met.get(Counter::SteeringKernel) > 0;
    let sent = namespace.under_load(&Traffic { flows: 64, ..Traffic::to(far) }, || {
        let (mut round, begin) = (0_u16, std::time::Instant::now());
        // On a busy machine all 200 changes may be over between two bursts of frames.
        while round < 200 || !both(&port.counters().unwrap()) {
            let target = if round.is_multiple_of(2) { SteerTo::Cpu(0) } else { SteerTo::Kernel };
            let generated = flow("10.0.1.2", "10.0.2.2", 17, Some((1024 + round % 64, 9)));
            steering.insert(generated, to(target)).unwrap();
            let table: [SteerTo; STEER_BUCKETS] = std::array::from_fn(|at| {
                if (at + usize::from(round)).is_multiple_of(2) { SteerTo::Kernel } else { SteerTo::Cpu(0) }
            });
            steering.set_table(&table, true).unwrap();
            if round.is_multiple_of(20) {
                // The whole stage is replaced too.
                steering = steering.like(&SteerConfig { capacity: 64 + u32::from(round), ..ALL }).unwrap();
                port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
            }
            steering.remove(&generated).unwrap();
            round = if round == 60_000 { 200 } else { round + 1 };
            assert!(begin.elapsed() < Duration::from_secs(60), "frames have not met both ways");
        }
    });
    eventually("all frames have met the hook", || port.counters().unwrap().seen() >= sent);
    let counters = port.counters().unwrap();
    let steered = counters.get(Counter::SteeringKernel) + counters.get(Counter::SteeringCpu);
    assert_eq!((counters.seen(), steered), (sent, sent), "each was steered as it was told, none astray");
    assert!(both(&counters));
}

#[test]
fn a_pinned_steering_outlives_its_owner_and_is_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near, socket) = receiver(&namespace);
    let pin = PinPath::new(&format!("xdp-t{}-steer", std::process::id())).unwrap();
    let mut port = attached(near, AttachMode::Native, Some(pin.clone()));
    let mut steering = Steering::new(&ALL).unwrap();
    port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    let mut generator = Generator::new(&Traffic::to(far)).unwrap();
    let generated = flow("10.0.1.2", "10.0.2.2", 17, Some((1024, 9)));
    let last = *online_cpus().unwrap().last().unwrap();
    let entry = FlowEntry { live: true, mark: 5, ..to(SteerTo::Cpu(last)) };
    steering.insert(generated, entry).unwrap();
    steering.insert(udp(), to(SteerTo::Kernel)).unwrap();
    let table: [SteerTo; STEER_BUCKETS] =
        std::array::from_fn(|at| if at == 3 { SteerTo::Cpu(0) } else { SteerTo::Worker });
    steering.set_table(&table, true).unwrap();
    drop((port, steering));
    generator.send(10).unwrap();
    for _ in 0..10 {
        socket.recv(&mut [0; 100]).unwrap();
    }
    assert_eq!(incoming_cpu(&socket), last, "steered while nobody was there");
    let mut port = adopt(&pin).unwrap().unwrap();
    let found = Steering::of(&port).unwrap().unwrap();
    assert!(found.is_on(&port));
    assert_eq!(port.steering_id().unwrap(), Some(found.id().unwrap()));
    assert_eq!((found.len(), found.live(), found.get(&generated)), (2, 1, Some(entry)));
    assert_eq!((found.table(), found.get(&udp())), ((table, true), Some(to(SteerTo::Kernel))));
    let hits = found.flows().find(|(flow, ..)| *flow == generated).unwrap().2;
    assert_eq!(hits.packets, 10);
    // The successor process takes over the steering and can change it.
    let mut steering = found.like(&ALL).unwrap();
    port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    steering.insert(generated, FlowEntry { to: SteerTo::Kernel, ..entry }).unwrap();
    generator.send(10).unwrap();
    for _ in 0..10 {
        socket.recv(&mut [0; 100]).unwrap();
    }
    let hits = steering.flows().find(|(flow, ..)| *flow == generated).unwrap().2;
    assert_eq!((hits.packets, port.counters().unwrap().get(Counter::SteeringKernel)), (20, 10));
    // A swap by the owner keeps the steering, which can be removed.
    port.swap(port.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    assert!(steering.is_on(&port));
    port.set_stage(StageChange::Steering(None)).unwrap();
    assert!(port.steering_id().unwrap().is_none() && Steering::of(&port).unwrap().is_none());
    port.detach().unwrap();
}

#[test]
fn programs_of_both_builds_share_a_steering() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let (_, other) = namespace.veth("vc", "vd", "");
    let mut steering = Steering::new(&ALL).unwrap();
    steering.insert(udp(), to(SteerTo::Cpu(0))).unwrap();
    let mut ports = [attached(near, AttachMode::Native, None), {
        let linear = PortProgram::load_linear(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
        linear.attach(other, AttachMode::Native, None).unwrap()
    }];
    assert!(ports[0].multi_buffer() && !ports[1].multi_buffer());
    for port in &mut ports {
        port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
        assert!(steering.is_on(port));
        let says = port.explainer().unwrap().explain(&frame(UDP)).unwrap();
        assert_eq!((says.verdict, says.counter), CPU);
    }
    // A CPU that is added later is available for both ports.
    let last = *online_cpus().unwrap().last().unwrap();
    steering.set_table(&[SteerTo::Cpu(last); STEER_BUCKETS], true).unwrap();
    for port in &ports {
        let other = frame(&UDP.replace("src_port=7", "src_port=8"));
        assert_eq!(port.explainer().unwrap().explain(&other).unwrap().steered, Some(SteerTo::Cpu(last)));
        assert_eq!(port.explainer().unwrap().explain(&other).unwrap().verdict, Verdict::Redirect);
    }
}
