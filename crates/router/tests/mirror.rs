//! Tests of mirrors (copies of routing tables in the memory that BPF programs read). A reader of the mirror's words
//! must make the same decisions as the workers, while routes, paths and neighbours are added and removed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lookup::{Address, Prefix};
use packet::MacAddr;
use proptest::prelude::*;
use router::{
    Adjacencies, BUCKETS, Fib, GROUP_WORDS, LINE_WORDS, NEIGHBOUR_WORDS, NeighbourMirror, NextHop, Path,
    TableMirror, Verdict,
};
use sync::qsbr::{Domain, Reader};
use sync::readers::{ExternalReaders, Memory, Readers};

#[derive(Clone)]
struct Words(Arc<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Words {
    fn new(words: usize) -> Words {
        Words((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn memory(&self) -> Memory {
        Box::new(self.clone())
    }

    fn at(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }
}

fn low(word: u64) -> usize {
    usize::try_from(word & 0xffff_ffff).unwrap()
}

const NEIGHBOURS: u32 = 12;
const NUMBERS: usize = 13;
const GROUPS: usize = 3;
const LINES: usize = 4;
const CPUS: usize = 2;

struct Rig {
    trie: Words,
    paths: Words,
    groups: Words,
    neighbours: Words,
    links: Words,
    counts: Words,
    fib: Fib,
    adjacencies: Adjacencies,
    reader: Reader,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Up,
    Drop,
    Send(MacAddr, u16),
}

impl Rig {
    fn new() -> Rig {
        let domain = Domain::new();
        let readers = Readers::with(&domain, &ExternalReaders::start(|| ()).unwrap());
        let (trie, six) = (Words::new(1 << 19), Words::new(1 << 18));
        let (paths, groups) = (Words::new(20), Words::new(GROUPS * GROUP_WORDS));
        let (neighbours, links) = (Words::new(NUMBERS * NEIGHBOUR_WORDS), Words::new(LINES * LINE_WORDS));
        let counts = Words::new(CPUS * NUMBERS * 2);
        let mirror = TableMirror {
            four: trie.memory(),
            six: six.memory(),
            paths: paths.memory(),
            groups: groups.memory(),
        };
        let fib = Fib::mirrored(&readers, mirror, 19).unwrap();
        let mirror = NeighbourMirror {
            neighbours: neighbours.memory(),
            links: links.memory(),
            secrets: std::array::from_fn(|nth| 0x9e37_79b9_7f4a_7c15 << nth),
            counts: counts.memory(),
        };
        let adjacencies = Adjacencies::mirrored(&readers, NEIGHBOURS, 1, mirror);
        let reader = domain.register().unwrap();
        Rig { trie, paths, groups, neighbours, links, counts, fib, adjacencies, reader }
    }

    fn hop(&self, address: u32) -> usize {
        let rank = |bits: u64, slot: usize| (bits << (63 - slot)).count_ones() as usize;
        let root = self.trie.at(1 + address.bits(0, 18));
        let (mut hop, mut node, mut from) = (low(root), low(root), 18);
        let mut is_node = root >> 63 == 1;
        while is_node {
            let slot = address.bits(from, 6);
            let (children, leaves, bases) =
                (self.trie.at(node), self.trie.at(node + 1), self.trie.at(node + 2));
            is_node = children >> slot & 1 == 1;
            if is_node {
                node = low(bases) + 3 * (rank(children, slot) - 1);
            } else {
                let nth = rank(leaves, slot) - 1;
                hop = low(self.trie.at(low(bases >> 32) + nth / 2) >> (32 * (nth & 1)));
            }
            from += 6;
        }
        if hop == 0 { low(self.trie.at(0)) } else { hop }
    }

    fn words(&self, number: usize) -> [u64; 4] {
        std::array::from_fn(|nth| self.neighbours.at(number * NEIGHBOUR_WORDS + nth))
    }

    /// Returns the decision about a packet that a BPF program would make from the mirror's words. The workers' tables
    /// are not read.
    fn mirror_says(&self, address: u32, hash: u32) -> Says {
        let word = self.paths.at(self.hop(address));
        let bucket = hash as usize % BUCKETS;
        let mut number = match word >> 32 {
            1 => low(word),
            2 => low(self.groups.at(low(word) * GROUP_WORDS + bucket / 2) >> (32 * (bucket & 1))),
            3 => return Says::Drop,
            _ => return Says::Up,
        };
        let [mut first, mut place, ..] = self.words(number);
        if first >> 49 & 1 == 1 {
            // All lines are searched, whatever the hash.
            let found =
                (0..LINES * LINE_WORDS).map(|at| (self.links.at(at) & 0xff_ffff) as usize).find(|n| {
                    let [_, own, high, low] = self.words(*n);
                    *n != 0
                        && own >> 32 == place >> 32
                        && (high, low) == (0, 0xffff_0000_0000 | u64::from(address))
                });
            number = found.unwrap_or(0);
            [first, place, ..] = self.words(number);
        }
        let interface = u16::try_from(place & 0xffff).unwrap();
        if first >> 48 & 1 == 0 || number == 0 || interface == router::FOREIGN {
            return Says::Up;
        }
        let octets = first.to_le_bytes();
        Says::Send(MacAddr(octets[..6].try_into().unwrap()), interface)
    }

    /// Returns the decisions that workers make from their view of the tables.
    fn workers_say(&self, addresses: &[u32], hash: u32) -> Vec<Says> {
        let (view, adjacencies) = (self.fib.view(), self.adjacencies.view());
        let mut said = vec![Says::Up; addresses.len()];
        view.route4(
            &self.reader,
            addresses,
            |_| hash,
            |place, verdict| {
                said[place] = match verdict {
                    Verdict::Blackhole => Says::Drop,
                    Verdict::Forward(number) => {
                        let mut found = adjacencies.read(number);
                        if found.is_on_link() {
                            let to = 0xffff_0000_0000 | u128::from(addresses[place]);
                            found = adjacencies.read(adjacencies.find(found.device(), to));
                        }
                        match found.mac() {
                            Some(mac) if found.interface() != router::FOREIGN => {
                                Says::Send(mac, found.interface())
                            }
                            _ => Says::Up,
                        }
                    }
                    _ => Says::Up,
                };
            },
        );
        said
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32, u8, Path),
    Remove(u32, u8),
    Define(u32, Option<Path>),
    Resolve(u32, u8, Option<u8>),
    Bind(u32, Option<u16>),
}

fn path() -> impl Strategy<Value = Path> {
    let hop = (1_u32..4, proptest::option::of(1_u8..5), 1_u16..4);
    let next_hops = proptest::collection::vec(hop, 0..4).prop_map(|next_hops| {
        let hop = |(interface, last, weight)| {
            let gateway = Option::map(last, |last| Ipv4Addr::new(10, 0, 0, last).into());
            NextHop { interface, gateway, weight }
        };
        Path::NextHops(next_hops.into_iter().map(hop).collect())
    });
    prop_oneof![
        6 => next_hops,
        1 => Just(Path::Local),
        1 => Just(Path::Blackhole),
        1 => Just(Path::Unreachable),
        1 => Just(Path::Throw),
        3 => (0_u32..3).prop_map(Path::Shared),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let address = (0_u32..8).prop_map(|last| 0x0a00_0000 | last);
    let length = prop_oneof![Just(0_u8), Just(8), Just(24), Just(30), Just(32)];
    prop_oneof![
        6 => (address.clone(), length.clone(), path()).prop_map(|(a, l, path)| Step::Set(a, l, path)),
        2 => (address, length).prop_map(|(a, l)| Step::Remove(a, l)),
        3 => (0_u32..3, proptest::option::of(path())).prop_map(|(number, path)| Step::Define(number, path)),
        6 => (1_u32..4, 0_u8..8, proptest::option::of(1_u8..9)).prop_map(|(d, l, m)| Step::Resolve(d, l, m)),
        2 => (1_u32..4, proptest::option::of(0_u16..4)).prop_map(|(d, i)| Step::Bind(d, i)),
    ]
}

proptest! {
    #[test]
    fn words_alone_say_what_the_view_says(steps in proptest::collection::vec(step(), 1..80), hash: u32) {
        let mut rig = Rig::new();
        let mut most = 0;
        for step in steps {
            rig.reader.quiescent();
            let Rig { fib, adjacencies, .. } = &mut rig;
            match step {
                // A route that does not fit changes nothing.
                Step::Set(address, length, path) => {
                    let _ = fib.set4(Prefix::new(address, length), &path, adjacencies);
                }
                Step::Remove(address, length) => fib.remove4(Prefix::new(address, length), adjacencies).unwrap(),
                Step::Define(number, path) => {
                    let path = path.filter(|path| !matches!(path, Path::Shared(_)));
                    fib.define(number, path.as_ref(), adjacencies);
                }
                Step::Resolve(device, last, mac) => {
                    let mac = mac.map(|last| MacAddr([2, 0, 0, 0, 0, last]));
                    adjacencies.resolve(device, Ipv4Addr::new(10, 0, 0, last).into(), mac);
                }
                Step::Bind(device, interface) => adjacencies.bind(device, interface),
            }
            most = most.max(rig.fib.paths());
            let addresses: Vec<u32> = (0..8).map(|last| 0x0a00_0000 | last).chain([0xc000_0201]).collect();
            for hash in [hash, hash ^ 0x155] {
                for (address, wanted) in addresses.iter().zip(rig.workers_say(&addresses, hash)) {
                    let says = rig.mirror_says(*address, hash);
                    // Groups may have been used up when a path was written, because a changing path
                    // temporarily needs two. The path is then left to the workers until it is written again.
                    let used_up = says == Says::Up && most >= GROUPS;
                    prop_assert!(says == wanted || used_up, "{address:#x}: {says:?}, not {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn what_programs_sent_counts_and_not_for_whoever_comes_later() {
    let mut rig = Rig::new();
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    let count = |rig: &Rig, cpu: usize, number: usize, packets| {
        let at = (cpu * NUMBERS + number) * 2;
        rig.counts.0[at].fetch_add(packets, Ordering::Relaxed);
        rig.counts.0[at + 1].fetch_add(60 * packets, Ordering::Relaxed);
    };
    rig.adjacencies.resolve(1, address(1), Some(MacAddr([2; 6])));
    let view = rig.adjacencies.view();
    let number = view.find(1, 0xffff_0a00_0001) as usize;
    count(&rig, 0, number, 2);
    count(&rig, 1, number, 5);
    count(&rig, 1, number - 1, 7);
    view.counts(0).add(u32::try_from(number).unwrap(), 1, 60);
    let sent = |rig: &Rig| rig.adjacencies.iter().map(|it| (it.packets, it.bytes)).collect::<Vec<_>>();
    assert_eq!(sent(&rig), [(8, 480)]);
    rig.adjacencies.resolve(1, address(1), None);
    rig.reader.quiescent();
    // The counts stay zero until the number is reused.
    for last in 2..200 {
        rig.adjacencies.resolve(1, address(last), Some(MacAddr([2; 6])));
        assert_eq!(sent(&rig), [(0, 0)], "{last}");
        rig.adjacencies.resolve(1, address(last), None);
        rig.reader.quiescent();
    }
}
