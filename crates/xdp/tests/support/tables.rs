//! A virtual router with the devices n1, n2 and n3 in a namespace, and its tables in the form for XDP programs and in
//! the form for workers. Tests compare the result of n1's XDP program (hook) on a frame with the worker's decision.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use lookup::Prefix;
use packet::{FlowKey, MacAddr, PortId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use router::{
    Adjacencies, COUNT_WORDS, Decision, Errors, Fib, GROUP_WORDS, Interface, LINE_WORDS, Lookup, Mirrored,
    NEIGHBOUR_WORDS, NeighbourMirror, NextHop, Path, PuntPolicer, ReversePath, Scratch, Selector,
    TableMirror,
};
use sync::qsbr::{Domain, Reader};
use sync::readers::{ExternalReaders, Readers};
use xdp::fib::Takes;
use xdp::route::{AnswerInterface, AnswerPort, AnswerSizes, Answers, Own, RoutePort, RouteStage, Sources};
use xdp::{Counter, Loaded, StageChange, Verdict};

use crate::support::router::{FAR, NEAR, Router, ipv4, ipv6, seal};

pub const SEED: u32 = 0x5eed_0001;
pub const NEIGHBOURS: u32 = 64;
/// MTUs by interface number: n1, n2 and n3, VLANs 100 and 200 of n1, and VLAN 100 of n2.
pub const MTU: [u32; 6] = [1500, 1000, 1500, 1500, 1500, 900];
/// Ethernet addresses by interface number. `TAG` is the VLAN identifier by interface number, or 0 for untagged frames.
pub const MAC: [[u8; 6]; 6] = [NEAR[0], NEAR[1], NEAR[2], [2, 0, 0, 1, 1, 1], NEAR[0], [2, 0, 0, 1, 2, 1]];
pub const TAG: [u16; 6] = [0, 0, 0, 100, 200, 100];
/// VLANs of n1, each with its interface number. Frames of a VLAN with `None` go to the worker.
pub const VLANS: [(u16, Option<u16>); 3] = [(100, Some(3)), (200, Some(4)), (300, None)];
/// Index of the kernel device of each VLAN interface, by interface number.
pub const VLAN_DEVICE: [u32; 6] = [0, 0, 0, 1003, 1004, 1005];
pub const PORT: RoutePort = RoutePort { mac: NEAR[0], vrrp: false };
pub const ANSWER: AnswerPort =
    AnswerPort { number: 1, interface: 0, sources: Sources::Any, partial_checksums: false, seed: SEED };

/// A router's tables as programs and workers read them.
pub struct Tables {
    pub answers: Answers,
    pub fib: Fib,
    pub adjacencies: Adjacencies,
    pub reader: Reader,
}

impl Tables {
    pub fn new() -> Tables {
        let sizes = AnswerSizes { words4: 1 << 19, words6: 1 << 18, paths: 65, groups: 16, neighbours: 65 };
        let answers = Answers::new(&sizes).unwrap();
        let domain = Domain::new();
        let readers = Readers::with(&domain, &ExternalReaders::start(xdp::wait_for_programs).unwrap());
        assert_eq!(answers.groups().as_ref().len(), 16 * GROUP_WORDS);
        assert_eq!(answers.neighbours().as_ref().len(), 65 * NEIGHBOUR_WORDS);
        assert_eq!(answers.links().as_ref().len() % LINE_WORDS, 0);
        assert_eq!(answers.sent().as_ref().len() % (65 * COUNT_WORDS), 0);
        let mirror = TableMirror {
            four: Box::new(answers.four()),
            six: Box::new(answers.six()),
            paths: Box::new(answers.paths()),
            groups: Box::new(answers.groups()),
        };
        let fib = Fib::mirrored(&readers, mirror, 64).unwrap();
        let mirror = NeighbourMirror {
            neighbours: Box::new(answers.neighbours()),
            links: Box::new(answers.links()),
            secrets: answers.link_secrets(),
            counts: Box::new(answers.sent()),
        };
        let adjacencies = Adjacencies::mirrored(&readers, NEIGHBOURS, 1, mirror);
        answers.answer(true, true);
        Tables { answers, fib, adjacencies, reader: domain.register().unwrap() }
    }

    /// Adds the interface of a VLAN. No other device has the device index of the interface.
    pub fn vlan(&mut self, number: u16, port: u16) {
        let at = usize::from(number);
        let interface = AnswerInterface {
            port,
            device: VLAN_DEVICE[at],
            mac: MAC[at],
            mtu: MTU[at],
            takes: Takes::Frames,
            vlan: TAG[at],
        };
        self.answers.set_interface(number, Some(&interface));
        self.adjacencies.bind(VLAN_DEVICE[at], Some(number));
    }

    /// Adds the interface of a device. The interface number is the port number minus one.
    pub fn interface(&mut self, port: u16, device: u32, mac: [u8; 6], mtu: u32) {
        let takes = if port == 3 { Takes::MultiBuffer } else { Takes::Frames };
        let interface = AnswerInterface { port, device, mac, mtu, takes, vlan: 0 };
        self.answers.set_interface(port - 1, Some(&interface));
        self.answers.set_device(port, device).unwrap();
        self.adjacencies.bind(device, Some(port - 1));
    }

    pub fn set(&mut self, prefix: &str, path: &Path) {
        let (address, length) = prefix.split_once('/').unwrap();
        let length = length.parse().unwrap();
        match address.parse().unwrap() {
            IpAddr::V4(four) => {
                self.fib.set4(Prefix::new(four.to_bits(), length), path, &mut self.adjacencies).unwrap();
            }
            IpAddr::V6(six) => {
                self.fib.set6(Prefix::new(six.to_bits(), length), path, &mut self.adjacencies).unwrap();
            }
        }
    }

    pub fn resolve(&mut self, device: u32, address: &str, mac: [u8; 6]) {
        self.adjacencies.resolve(device, address.parse().unwrap(), Some(MacAddr(mac)));
    }
}

pub fn hop(device: u32, gateway: &str) -> NextHop {
    NextHop { interface: device, gateway: gateway.parse().ok(), weight: 1 }
}

pub fn next_hops(all: &[NextHop]) -> Path {
    Path::NextHops(all.to_vec())
}

/// A virtual router with routes of every kind between n1, n2 and n3 of a namespace, and the XDP program of n1.
pub struct Rig {
    pub tables: Tables,
    pub router: Router,
    pub loaded: Loaded,
    pub worker: router::Router,
    _own: Own,
}

impl Rig {
    pub fn new(answer: &AnswerPort) -> Rig {
        Rig::with_vlans(answer, &[])
    }

    /// Like `Rig::new`, with these VLANs of n1 as interfaces.
    pub fn with_vlans(answer: &AnswerPort, vlans: &[(u16, Option<u16>)]) -> Rig {
        let router = Router::new();
        let [n1, n2, n3] = router.near;
        let mut tables = Tables::new();
        for at in 0..3 {
            tables.interface([1, 2, 3][at], router.near[at], NEAR[at], MTU[at]);
        }
        for (device, far, number) in [(n1, 0, 1), (n2, 1, 2), (n3, 2, 3)] {
            for address in [format!("10.0.{number}.2"), format!("fd00:{number}::2")] {
                tables.resolve(device, &address, FAR[far]);
            }
            let on_link = next_hops(&[NextHop { interface: device, gateway: None, weight: 1 }]);
            tables.set(&format!("10.0.{number}.0/24"), &on_link);
            tables.set(&format!("fd00:{number}::/64"), &on_link);
            tables.set(&format!("10.0.{number}.1/32"), &Path::Local);
            tables.set(&format!("fd00:{number}::1/128"), &Path::Local);
        }
        for (number, port, net) in [(3, 1, "1.100"), (4, 1, "1.200"), (5, 2, "2.100")] {
            let device = VLAN_DEVICE[usize::from(number)];
            tables.vlan(number, port);
            let six = net.replace('.', ":");
            tables.set(&format!("10.{net}.0/24"), &next_hops(&[hop(device, "")]));
            tables.set(&format!("fd00:{six}::/64"), &next_hops(&[hop(device, "")]));
            tables.resolve(device, &format!("10.{net}.2"), FAR[usize::from(port) - 1]);
            tables.resolve(device, &format!("fd00:{six}::2"), FAR[usize::from(port) - 1]);
        }
        let group = next_hops(&[hop(n2, "10.0.2.2"), NextHop { weight: 2, ..hop(n3, "10.0.3.2") }]);
        for (prefix, path) in [
            ("198.51.100.0/24", next_hops(&[hop(n2, "10.0.2.2")])),
            ("198.51.100.128/25", next_hops(&[hop(n3, "fd00:3::2")])),
            ("203.0.113.0/24", next_hops(&[hop(n3, "fd00:3::2")])),
            ("0.0.0.0/0", next_hops(&[hop(n3, "10.0.3.2")])),
            ("192.0.2.0/30", Path::Blackhole),
            ("192.0.2.4/30", Path::Unreachable),
            ("192.0.2.8/30", Path::Prohibit),
            ("192.0.2.12/30", Path::Throw),
            ("192.0.2.16/30", next_hops(&[])),
            ("192.0.2.20/30", next_hops(&[hop(n2, "10.0.2.99")])),
            ("192.0.2.24/30", next_hops(&[hop(9999, "10.0.9.9")])),
            ("192.0.2.28/30", next_hops(&[hop(n1, "10.0.1.2")])),
            ("100.64.0.0/16", group.clone()),
            ("100.65.0.0/16", next_hops(&[hop(n1, "10.0.1.2"), hop(n2, "10.0.2.2")])),
            ("198.18.0.0/24", next_hops(&[hop(VLAN_DEVICE[5], "10.2.100.2")])),
            ("198.18.1.0/24", next_hops(&[hop(VLAN_DEVICE[4], "10.1.200.2")])),
            ("2001:db8:8::/64", next_hops(&[hop(VLAN_DEVICE[5], "fd00:2:100::2")])),
            ("2001:db8:9::/64", next_hops(&[hop(VLAN_DEVICE[4], "fd00:1:200::2")])),
            ("2001:db8::/64", next_hops(&[hop(n2, "fd00:2::2")])),
            ("2001:db8:1::/64", group),
            ("2001:db8:2::/64", Path::Blackhole),
            ("2001:db8:3::/64", Path::Unreachable),
            ("2001:db8:4::/127", next_hops(&[hop(n3, "fd00:3::2")])),
            ("2001:db8:6::/64", next_hops(&[hop(n1, "fd00:1::2")])),
        ] {
            tables.set(prefix, &path);
        }
        let mut own = Own::new("blue").unwrap();
        for address in OWN_SOURCES {
            own.insert(Ipv4Addr::from(address).into()).unwrap();
        }
        own.insert("fd00:1::1".parse().unwrap()).unwrap();
        let stage =
            RouteStage::answering(&PORT, &own, &tables.answers, answer).with_vlans(vlans.iter().copied());
        let loaded = router.attached.prepare_stage(StageChange::Route(Some(&stage))).unwrap();
        let interface =
            |at: usize| Interface { port: PortId(0), mac: MacAddr(MAC[at]), mtu: MTU[at], vrrp: false };
        let asks = || vec![Lookup::table_for(Selector::ALL, tables.fib.view())];
        let worker = router::Router {
            interfaces: (0..6).map(|at| Some(interface(at))).collect(),
            four: asks(),
            six: asks(),
            adjacencies: tables.adjacencies.view(),
            kernel: None,
            mirrored: Mirrored::default(),
            reverse_paths: match answer.sources {
                Sources::Any => Vec::new(),
                Sources::Strict => vec![ReversePath::Strict; 6],
                Sources::Loose => vec![ReversePath::Loose; 6],
            },
            own_addresses: Arc::new(OWN_SOURCES.into_iter().map(Ipv4Addr::from).collect()),
            errors: Errors::default(),
            punt_policer: Arc::new(PuntPolicer::new(|_| 1, 1, 0)),
            seed: SEED,
        };
        Rig { tables, router, loaded, worker, _own: own }
    }

    pub fn see(&self, frame: &[u8]) -> (Verdict, Counter, Vec<u8>) {
        self.router.see(&self.loaded, frame)
    }

    /// Returns the worker's decision on a frame that n1 has received.
    pub fn worker_says(&self, frame: &[u8], scratch: &mut Scratch) -> Decision {
        self.worker_says_at(0, frame, scratch)
    }

    /// Returns the worker's decision on an untagged frame that the interface of this number has received.
    pub fn worker_says_at(&self, interface: u16, frame: &[u8], scratch: &mut Scratch) -> Decision {
        let mut key = FlowKey::default();
        let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
        let mut out = [Decision::default()];
        self.worker.decide(interface, &self.tables.reader, &[key], &[layers], scratch, &mut out);
        out[0]
    }

    #[track_caller]
    pub fn goes(&self, frame: &[u8], to: usize) {
        let (verdict, counter, after) = self.see(frame);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::RouteForwarded));
        assert_eq!(after, sent(frame, FAR[to], NEAR[to], 0));
    }

    #[track_caller]
    pub fn goes_up(&self, frame: &[u8]) {
        assert_eq!(self.see(frame), (Verdict::Pass, Counter::DownPassed, frame.to_vec()));
    }
}

/// Returns an untagged frame as a router sends it. `tag` is the VLAN of the sent frame, or 0 for none.
pub fn sent(frame: &[u8], to: [u8; 6], from: [u8; 6], tag: u16) -> Vec<u8> {
    let mut after = [&to[..], &from, &frame[12..]].concat();
    let length = if frame[12..14] == [8, 0] {
        after[22] -= 1;
        seal(&mut after[14..34]);
        u16::from_be_bytes([frame[16], frame[17]])
    } else {
        after[21] -= 1;
        40 + u16::from_be_bytes([frame[18], frame[19]])
    };
    after.truncate(60.max(14 + usize::from(length)));
    if tag == 0 { after } else { tagged(&after, tag) }
}

/// Returns the frame with an IEEE 802.1Q tag.
pub fn tagged(frame: &[u8], control: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &control.to_be_bytes(), &frame[12..]].concat()
}

pub fn address4() -> impl Strategy<Value = [u8; 4]> {
    let usual =
        select(vec![[10, 0, 2, 2], [198, 51, 100, 7], [198, 51, 100, 130], [203, 0, 113, 9], [8, 8, 8, 8]]);
    let group = any::<u8>().prop_map(|last| [100, 64, 1, last]);
    let special = prop_oneof![
        (0_u8..40).prop_map(|last| [192, 0, 2, last]),
        select(vec![
            [10, 0, 1, 1],
            [10, 0, 1, 2],
            [10, 0, 2, 9],
            [127, 0, 0, 1],
            [0, 1, 2, 3],
            [224, 0, 0, 1]
        ]),
    ];
    let vlans = select(vec![[198, 18, 0, 1], [198, 18, 1, 1], [10, 1, 100, 2], [10, 1, 200, 2]]);
    prop_oneof![4 => usual, 3 => group, 2 => special, 2 => vlans, 1 => any::<[u8; 4]>()]
}

pub fn address6() -> impl Strategy<Value = [u8; 16]> {
    let all = vec![
        "2001:db8::7",
        "2001:db8:1::1",
        "2001:db8:1::2",
        "2001:db8:1::3",
        "fd00:2::2",
        "2001:db8:2::1",
        "2001:db8:3::1",
        "2001:db8:4::1",
        "2001:db8:4::2",
        "2001:db8:6::1",
        "2001:db8:8::1",
        "2001:db8:9::1",
        "fd00:1:100::2",
        "fd00:2::9",
        "fe80::1",
        "::1",
        "ff02::1",
    ];
    select(all).prop_map(|text| text.parse::<Ipv6Addr>().unwrap().octets())
}

/// Source addresses that must not be routed: the router's own addresses, and a broadcast address of a link.
pub const OWN_SOURCES: [[u8; 4]; 4] = [[10, 0, 1, 1], [10, 0, 2, 1], [10, 0, 3, 1], [10, 0, 2, 255]];

pub fn frame() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<bool>(), address4(), address6(), select(vec![1_u8, 6, 17, 44, 58, 132]));
    let length = prop_oneof![5 => 60_u16..120, 1 => 890_u16..910, 1 => 990_u16..1010, 1 => 1490_u16..1500];
    let ttl = prop_oneof![6 => Just(64_u8), 1 => 0_u8..4];
    let fragment = prop_oneof![6 => Just(0_u16), 1 => select(vec![0x4000, 0x2000, 1, 0x2001])];
    let noise = prop_oneof![3 => Just(None), 1 => (0_usize..60, any::<u8>()).prop_map(Some)];
    let source = prop_oneof![12 => Just(None), 1 => select(OWN_SOURCES.to_vec()).prop_map(Some)];
    (header, length, ttl, fragment, vec(any::<u8>(), 12), noise, 0_usize..20, source).prop_map(
        |((v4, to4, to6, protocol), length, ttl, fragment, payload, noise, behind, source)| {
            let mut frame = if v4 {
                ipv4(to4.into(), length, |ip| {
                    (ip[8], ip[9]) = (ttl, protocol);
                    if let Some(source) = source {
                        ip[12..16].copy_from_slice(&source);
                    }
                    ip[6..8].copy_from_slice(&fragment.to_be_bytes());
                    ip[20..32].copy_from_slice(&payload);
                })
            } else {
                ipv6(to6.into(), length, |ip| {
                    (ip[6], ip[7]) = (protocol, ttl);
                    ip[40..52].copy_from_slice(&payload);
                })
            };
            frame.extend(vec![7; behind]);
            if let Some((at, byte)) = noise {
                frame[at] = byte;
            }
            frame
        },
    )
}
