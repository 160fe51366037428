use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU64;

use sync::readers::{ExternalReaders, Memory};

use super::*;
use crate::decode::Object;
use crate::state::{Hop, Kind, RouteKey};

const MANY: u32 = 200;

fn rule(priority: u32, table: u32) -> Rule {
    Rule {
        priority,
        v6: false,
        action: FR_ACT_TO_TBL,
        table,
        source: None,
        destination: None,
        tos: 0,
        input: None,
        output: None,
        mark: None,
        flags: 0,
        other: Vec::new(),
    }
}

fn path() -> state::Path {
    let hop = Hop { link: 3, gateway: None, weight: 1, onlink: true, encapsulates: false, dead: false };
    state::Path {
        kind: Kind::Unicast,
        protocol: 3,
        scope: 0,
        next_hop: None,
        hops: vec![hop],
        source: None,
        mtu: None,
    }
}

fn key(table: u32, third: u8) -> RouteKey<Ipv4Addr> {
    let everyone = state::Prefix { address: Ipv4Addr::UNSPECIFIED, length: 0 };
    let prefix = state::Prefix { address: Ipv4Addr::new(10, 0, third, 0), length: 24 };
    RouteKey { table, prefix, tos: 0, metric: 0, from: everyone }
}

fn feed() -> Feed {
    let limits = Limits { words: 1 << 21, routes: 1000, paths: 16, neighbours: 16 };
    Feed::new(&Domain::new(), limits, 1)
}

/// Updates the feed with changes that the mirror reports. Returns the number of routes that were refused, and the
/// number of routes that were installed after a refusal.
fn told(feed: &mut Feed, mirror: &Mirror, changes: &[Change]) -> (usize, usize) {
    feed.apply(mirror, changes);
    let outcome = feed.take_outcome();
    (outcome.refused.len(), outcome.found.len())
}

fn routes(mirror: &mut Mirror, tables: impl Iterator<Item = u32>, gone: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for table in tables {
        let object = Object::Route4(key(table, 1), path());
        mirror.apply(crate::decode::Event { gone, flags: 0, object }, &mut changes);
    }
    changes
}

#[test]
fn tables_beyond_the_limit_are_the_kernels() {
    let (mut feed, mut mirror) = (feed(), Mirror::default());
    mirror.dumped(Object::Rule(rule(10, 1)));
    mirror.dumped(Object::Rule(rule(20, MANY)));
    mirror.dumped(Object::Rule(rule(30, RT_TABLE_MAIN)));
    let says = |feed: &Feed, mirror: &Mirror| {
        let lookups = feed.lookups(mirror, false, |_| None);
        lookups.iter().filter(|lookup| lookup.has_verdict(Verdict::Local)).count()
    };
    let changes = routes(&mut mirror, (1..=MANY).chain([RT_TABLE_MAIN, RT_TABLE_LOCAL]), false);
    let refused = usize::try_from(MANY).unwrap() - TABLES;
    assert_eq!(told(&mut feed, &mirror, &changes), (refused, 0));
    assert_eq!(feed.tables().count(), TABLES + 2);
    assert!(feed.table(RT_TABLE_MAIN).is_some() && feed.table(RT_TABLE_LOCAL).is_some());
    assert!(feed.waits(MANY, "10.0.1.0".parse().unwrap(), 24));
    // Packets that match a rule whose table does not fit into the router are punted to the kernel.
    assert_eq!(says(&feed, &mirror), 1);
    // A table without routes is removed in favour of another table, unless a policy rule refers to it.
    let changes = routes(&mut mirror, 1..=10, true);
    assert_eq!(told(&mut feed, &mirror, &changes), (0, 9));
    assert_eq!(feed.tables().count(), TABLES + 2);
    assert!(feed.table(1).is_some() && feed.table(2).is_none());
    mirror.rules.retain(|rule| rule.table != 1);
    assert_eq!(told(&mut feed, &mirror, &[Change::Rules]), (0, 1));
    assert!(feed.table(1).is_none());
    // All routes are removed.
    let changes = routes(&mut mirror, 1..=MANY, true);
    assert_eq!(told(&mut feed, &mirror, &changes).0, 0);
    assert_eq!(feed.tables().collect::<Vec<_>>(), [RT_TABLE_MAIN, RT_TABLE_LOCAL]);
    assert_eq!(says(&feed, &mirror), 0);
    assert!(!feed.waits(MANY, "10.0.1.0".parse().unwrap(), 24));
}

#[test]
fn a_family_with_too_many_rules_is_the_kernels() {
    let (mut feed, mut mirror) = (feed(), Mirror::default());
    let changes = routes(&mut mirror, [RT_TABLE_MAIN].into_iter(), false);
    told(&mut feed, &mirror, &changes);
    let says = |mirror: &Mirror| {
        let lookups = feed.lookups(mirror, false, |_| None);
        let kernel = matches!(lookups.as_slice(), [only] if only.has_verdict(Verdict::Local));
        (lookups.len(), kernel, feed.excess_rules(mirror, false, |_| None))
    };
    for priority in 0..128 {
        mirror.dumped(Object::Rule(rule(priority, RT_TABLE_MAIN)));
        mirror.dumped(Object::Rule(Rule { output: Some("e1".to_owned()), ..rule(priority, RT_TABLE_MAIN) }));
    }
    assert_eq!(says(&mirror), (128, false, None));
    mirror.dumped(Object::Rule(rule(200, RT_TABLE_MAIN)));
    assert_eq!(says(&mirror), (1, true, Some(129)));
    // There are no IPv6 rules.
    assert_eq!(feed.lookups(&mirror, true, |_| None).len(), 0);
}

/// Memory for the copy of the tables for BPF programs. No program reads it in these tests.
struct Words(Box<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

fn words(count: usize) -> Memory {
    Box::new(Words((0..count).map(|_| AtomicU64::new(0)).collect()))
}

/// Creates a feed that copies its main table for BPF programs and has space for `paths` paths. The grace periods of
/// external readers (such as BPF programs) end when the returned sender is dropped.
fn mirrored(paths: u32) -> (Feed, std::sync::mpsc::Sender<()>) {
    let (end, ends) = std::sync::mpsc::channel();
    let external_readers = ExternalReaders::start(move || _ = ends.recv()).unwrap();
    let domain = Domain::new();
    let places = usize::try_from(paths).unwrap() + 1;
    let programs = Programs {
        readers: Readers::with(&domain, &external_readers),
        table: TableMirror {
            four: words(1 << 19),
            six: words(1 << 19),
            paths: words(places),
            groups: words(4 * router::GROUP_WORDS),
        },
        neighbours: NeighbourMirror {
            neighbours: words(17 * router::NEIGHBOUR_WORDS),
            links: words(4 * router::LINE_WORDS),
            secrets: std::array::from_fn(|nth| 0x9e37_79b9_7f4a_7c15 << nth),
            counts: words(2 * 17),
        },
    };
    let limits = Limits { words: 1 << 19, routes: 1000, paths, neighbours: 16 };
    (Feed::mirrored(&domain, limits, 1, programs), end)
}

/// Adds the route `10.0.NUMBER.0/24` through the device with the interface index NUMBER to the mirror, or removes the
/// route. Returns the changes of the mirror.
fn route(mirror: &mut Mirror, number: u8, gone: bool) -> Vec<Change> {
    let mut path = path();
    path.hops[0].link = u32::from(number);
    let mut changes = Vec::new();
    let object = Object::Route4(key(RT_TABLE_MAIN, number), path);
    mirror.apply(crate::decode::Event { gone, flags: 0, object }, &mut changes);
    changes
}

/// Checks that changes of a full table do not wait for external readers (such as BPF programs). A wait for each route
/// could take as long as a grace period of the kernel. Instead, the caller waits once for all changes, without a lock
/// on the feed.
#[test]
fn changes_of_a_full_table_do_not_wait_for_readers() {
    let (mut feed, end) = mirrored(3);
    let mut mirror = Mirror::default();
    for number in 1..=3 {
        let changes = route(&mut mirror, number, false);
        assert_eq!(feed.apply(&mirror, &changes), []);
    }
    let mut changes = route(&mut mirror, 1, true);
    changes.extend(route(&mut mirror, 2, true));
    changes.extend((4..=5).flat_map(|number| route(&mut mirror, number, false)));
    assert_eq!(feed.apply(&mirror, &changes).len(), 2, "the numbers of the old paths are still in use");
    let grace = feed.grace().unwrap();
    drop(end);
    grace.wait();
    assert!(feed.retry(&mirror));
    assert!(feed.grace().is_none());
    let outcome = feed.take_outcome();
    assert_eq!((outcome.refused.len(), outcome.found.len()), (0, 2));
    assert_eq!(feed.table(RT_TABLE_MAIN).unwrap().len(), 3);
}

/// Checks that a neighbour that was refused is installed when another neighbour is removed, and that routes through the
/// refused neighbour then use it.
#[test]
fn a_refused_neighbour_is_tried_again() {
    let limits = Limits { words: 1 << 21, routes: 1000, paths: 16, neighbours: 2 };
    let (mut feed, mut mirror) = (Feed::new(&Domain::new(), limits, 1), Mirror::default());
    let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let neighbour = |mirror: &mut Mirror, last: u8, gone: bool| {
        let known = state::Neighbour { address: vec![2, 0, 0, 0, 0, last], permanent: false };
        let key = state::NeighbourKey { link: 3, address: address(last) };
        let (object, mut changes) = (Object::Neighbour(key, Some(known)), Vec::new());
        mirror.apply(crate::decode::Event { gone, flags: 0, object }, &mut changes);
        changes
    };
    for last in 1..=3 {
        let changes = neighbour(&mut mirror, last, false);
        feed.apply(&mirror, &changes);
    }
    let mut path = path();
    path.hops[0].gateway = Some(address(3));
    let mut changes = Vec::new();
    let object = Object::Route4(key(RT_TABLE_MAIN, 1), path);
    mirror.apply(crate::decode::Event { gone: false, flags: 0, object }, &mut changes);
    assert_eq!(feed.apply(&mirror, &changes), []);
    let known = |feed: &Feed| {
        let all = feed.adjacencies().iter();
        let mut all: Vec<_> = all.map(|it| (it.address, it.mac.is_some(), it.next_hops)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(known(&feed), [(Some(address(1)), true, 0), (Some(address(2)), true, 0)]);
    let changes = neighbour(&mut mirror, 1, true);
    feed.apply(&mirror, &changes);
    if let Some(grace) = feed.grace() {
        grace.wait();
        feed.retry(&mirror);
    }
    assert_eq!(known(&feed), [(Some(address(2)), true, 0), (Some(address(3)), true, 1)]);
}
