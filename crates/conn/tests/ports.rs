//! Tests of the choice of ports for source NAT: cases, and a comparison with naive sets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};

use conn::nat::ports::{Choice, FAILED_OFFERS, Flow, NotAllocated, Ports, Range, Selection};
use conn::tuple::{End, Tuple, TupleHash};
use proptest::prelude::*;

const PUBLIC: u32 = 0xc633_6401;
const RANDOM: Selection = Selection { choice: Choice::Random, is_persistent: false };
const KEEP: Selection = Selection { choice: Choice::Keep, is_persistent: false };

fn range(addresses: u32, first_port: u16, last_port: u16) -> Range<u32> {
    Range { first_address: PUBLIC, last_address: PUBLIC + addresses - 1, first_port, last_port }
}

fn flow(source: (u32, u16), remote: (u32, u16)) -> Flow<u32> {
    let end = |(address, port)| End { address, port };
    Flow { zone: 0, protocol: 17, query: None, source: end(source), remote: end(remote) }
}

proptest! {
    /// A port is refused only if a naive search finds none, and no tuple of replies exists twice.
    #[test]
    fn allocations_agree_with_naive_sets(
        addresses in 1..4_u32, first_port in 0..70_u16, ports in 1..80_u16, limit in prop::option::of(1..60_u32),
        taken in prop::collection::hash_set((0..4_u32, 0..150_u16), 0..20),
        steps in prop::collection::vec(
            (0..6_u32, 0..150_u16, 0..3_u32, 0..2_u16, 0..3_u8, any::<bool>(), any::<prop::sample::Index>()), 0..400,
        ),
    ) {
        let range = range(addresses, first_port, first_port + ports - 1);
        let mut allocator = Ports::<u32>::new(1000);
        allocator.set_subscriber_limit(limit);
        let is_unique = |end: End<u32>| !taken.contains(&(end.address - PUBLIC, end.port));
        let mut used: Vec<(Flow<u32>, End<u32>)> = Vec::new();
        let mut replies = HashSet::new();
        let mut subscribers: HashMap<u32, u32> = HashMap::new();
        for (subscriber, port, remote, zone, choice, is_release, at) in steps {
            if is_release && !used.is_empty() {
                let (flow, external) = used.swap_remove(at.index(used.len()));
                prop_assert!(allocator.release(&range, &flow, external));
                prop_assert!(!allocator.release(&range, &flow, external));
                replies.remove(&(flow.zone, flow.remote, external));
                *subscribers.get_mut(&flow.source.address).unwrap() -= 1;
                continue;
            }
            // A subscriber is in one zone.
            let subscriber = subscriber * 2 + u32::from(zone);
            let flow = Flow { zone, ..flow((subscriber, port), (remote, 53)) };
            let choice = [Choice::Keep, Choice::Random, Choice::Hashed][usize::from(choice)];
            let selection = Selection { choice, is_persistent: subscriber % 3 == 0 };
            let is_free = |end: &End<u32>| !replies.contains(&(zone, flow.remote, *end));
            let all = || (0..addresses).flat_map(|a| (0..ports).map(move |p| (PUBLIC + a, first_port + p)));
            let mut free = all().map(|(address, port)| End { address, port }).filter(is_free);
            let count = subscribers.entry(subscriber).or_default();
            allocator.begin_burst();
            match allocator.allocate(&range, &flow, selection, is_unique) {
                Ok(external) => {
                    prop_assert!(free.any(|end| end == external) && is_unique(external));
                    prop_assert!(limit.is_none_or(|limit| *count < limit));
                    let kept = End { address: external.address, port };
                    let is_kept = is_free(&kept) && is_unique(kept) && (first_port..first_port + ports).contains(&port);
                    let is_keep = choice == Choice::Keep && addresses == 1;
                    prop_assert!(!is_keep || !is_kept || external == kept);
                    *count += 1;
                    replies.insert((zone, flow.remote, external));
                    used.push((flow, external));
                }
                Err(NotAllocated::SubscriberLimit) => prop_assert_eq!(Some(*count), limit),
                Err(NotAllocated::Exhausted) => prop_assert_eq!(free.next(), None),
                Err(NotAllocated::Clash) => prop_assert!(!free.any(is_unique)),
                Err(error) => prop_assert!(false, "{}", error),
            }
            let count = u64::from(subscribers[&subscriber]);
            prop_assert_eq!(allocator.subscriber_ports(zone, subscriber), count);
        }
    }
}

/// Fills a range to a share of its ports, replaces ports at random, and returns the largest number of words that one
/// allocation has read. Every allocation succeeds.
fn words_read(range: &Range<u32>, total: usize, use_of_1000: usize, replaced: usize) -> u64 {
    let mut ports = Ports::<u32>::new(100_000);
    let mut used = Vec::new();
    let (mut state, mut most) = (1_u64, 0);
    for step in 0..total * use_of_1000 / 1000 + replaced {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if used.len() >= total * use_of_1000 / 1000 {
            let at = usize::try_from(state >> 33).unwrap() % used.len();
            let (flow, external) = used.swap_remove(at);
            // A release is no search.
            let before = ports.counts().words_read;
            assert!(ports.release(range, &flow, external));
            assert_eq!(ports.counts().words_read, before);
        }
        let flow = flow((u32::try_from(step % 5000).unwrap(), 7), (9, 443));
        let before = ports.counts().words_read;
        used.push((flow, ports.allocate(range, &flow, RANDOM, |_| true).unwrap()));
        most = most.max(ports.counts().words_read - before);
    }
    most
}

/// A search goes up and down the tree once in each of at most four parts of the range.
#[test]
fn a_search_reads_few_words_at_99_percent_use() {
    let one_address = range(1, 1024, 65_535);
    // Four words show that the part behind the random port is full, and five lead to a free port before this port.
    assert!(words_read(&one_address, 64_512, 990, 100_000) <= 9);
    assert!(words_read(&one_address, 64_512, 1000, 20_000) <= 16);
    // Most addresses have no free port.
    let many_addresses = range(10_000, 5000, 5003);
    assert!(words_read(&many_addresses, 40_000, 990, 50_000) <= 20);
    assert!(words_read(&range(40_000, 80, 80), 40_000, 1000, 20_000) <= 28);
}

#[test]
fn a_full_range_refuses_only_its_remote_end() {
    let (range, mut ports) = (range(1, 1024, 65_535), Ports::<u32>::new(200_000));
    let mut all = HashSet::new();
    for _ in 0..64_512 {
        all.insert(ports.allocate(&range, &flow((1, 7), (9, 443)), RANDOM, |_| true).unwrap().port);
    }
    assert!(all.len() == 64_512 && all.iter().all(|port| *port >= 1024));
    let before = ports.counts().words_read;
    let refused = ports.allocate(&range, &flow((1, 7), (9, 443)), RANDOM, |_| true);
    assert_eq!(refused, Err(NotAllocated::Exhausted));
    assert!(ports.counts().words_read - before <= 16);
    // Another port of the remote end, another remote end, another protocol and another zone have all ports.
    let others = [flow((1, 7), (9, 80)), flow((1, 7), (8, 443))];
    let tcp = Flow { protocol: 6, ..flow((1, 7), (9, 443)) };
    let zone = Flow { zone: 1, ..flow((1, 7), (9, 443)) };
    for flow in others.into_iter().chain([tcp, zone]) {
        assert!(ports.allocate(&range, &flow, RANDOM, |_| true).is_ok());
    }
    assert_eq!((ports.counts().allocated, ports.counts().exhausted), (64_516, 1));
}

/// Each of 64 workers finds a port whose replies hash to the worker, for each of many connections.
#[test]
fn a_worker_of_64_finds_a_port_that_hashes_to_itself() {
    const WORKERS: u32 = 64;
    let (range, hash) = (range(1, 1024, 65_535), TupleHash::new());
    let (mut ports, mut offers) = (Ports::<u32>::new(10_000), 0_u64);
    for number in 0..10_000_u32 {
        let (worker, flow) = (number % WORKERS, flow((number, 7), (number % 100, 443)));
        let is_own = |external| {
            offers += 1;
            hash.worker(&Tuple::of_ends(0, 17, external, flow.remote).0, WORKERS) == worker
        };
        assert!(ports.allocate(&range, &flow, RANDOM, is_own).is_ok());
    }
    let average = offers / 10_000;
    assert!((58..=70).contains(&average), "{average} offers on average");
}

/// A worker of 8 finds a port although the worker uses 95 % of its ports towards a remote end.
#[test]
fn a_worker_of_8_finds_a_port_at_95_percent_use() {
    let (range, hash) = (range(1, 1024, 65_535), TupleHash::new());
    let (mut ports, mut used, mut state) = (Ports::<u32>::new(10_000), Vec::new(), 1_u64);
    for number in 0..27_000_u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The share of the worker is 8,064 ports, with a standard deviation of 84.
        if used.len() >= 7_600 {
            let at = usize::try_from(state >> 33).unwrap() % used.len();
            let (flow, external) = used.swap_remove(at);
            assert!(ports.release(&range, &flow, external));
        }
        let selection = if number % 2 == 0 { RANDOM } else { Selection { choice: Choice::Hashed, ..RANDOM } };
        let flow = flow((number, 7), (9, 443));
        let is_own = |external| hash.worker(&Tuple::of_ends(0, 17, external, flow.remote).0, 8) == 3;
        let external = ports.allocate(&range, &flow, selection, is_own);
        assert!(external.is_ok(), "{external:?} after {number} allocations");
        used.push((flow, external.unwrap()));
    }
}

#[test]
fn a_source_port_is_kept_if_it_is_free() {
    let (range, mut ports) = (range(1, 1024, 2047), Ports::<u32>::new(100));
    let mut port_of = |source, remote| {
        ports.allocate(&range, &flow(source, remote), KEEP, |end| end.port != 1500).unwrap().port
    };
    assert_eq!(port_of((1, 1024), (9, 53)), 1024);
    // Another subscriber has the port towards the remote end, but not towards another one.
    assert_ne!(port_of((2, 1024), (9, 53)), 1024);
    assert_eq!(port_of((2, 1024), (8, 53)), 1024);
    // Another connection has the tuple of the replies, or the port is outside the range.
    assert_ne!(port_of((1, 1500), (9, 53)), 1500);
    assert!((1024..2048).contains(&port_of((1, 80), (9, 53))));
}

#[test]
fn hashed_ports_repeat_and_persistent_ones_survive_a_restart() {
    let range = range(200, 1024, 65_535);
    let of = |ports: &mut Ports<u32>, subscriber, port, choice, is_persistent| {
        let flow = flow((subscriber, port), (9, 53));
        let external = ports.allocate(&range, &flow, Selection { choice, is_persistent }, |_| true).unwrap();
        ports.release(&range, &flow, external);
        external
    };
    let (mut a, mut b) = (Ports::new(100), Ports::new(100));
    let (mut equal, mut addresses) = (0, HashSet::new());
    for subscriber in 0..100 {
        let hashed = of(&mut a, subscriber, 5, Choice::Hashed, false);
        assert_eq!(of(&mut a, subscriber, 5, Choice::Hashed, false), hashed);
        equal += usize::from(of(&mut b, subscriber, 5, Choice::Hashed, false) == hashed);
        let persistent = of(&mut a, subscriber, 5, Choice::Hashed, true);
        assert_eq!(of(&mut b, subscriber, 5, Choice::Hashed, true), persistent);
        // All choices have the address of the subscriber.
        assert_eq!(of(&mut b, subscriber, 6, Choice::Random, true).address, persistent.address);
        addresses.insert(persistent.address);
    }
    assert!(equal <= 1 && addresses.len() > 50, "{equal} {}", addresses.len());
    let random: HashSet<u16> = (0..100).map(|_| of(&mut a, 1, 5, Choice::Random, false).port).collect();
    assert!(random.len() > 90);
}

#[test]
fn a_subscriber_moves_to_another_address_if_its_ports_are_used() {
    let (range, mut ports) = (range(3, 10, 13), Ports::<u32>::new(100));
    let mut address =
        || ports.allocate(&range, &flow((1, 7), (9, 53)), RANDOM, |_| true).map(|end| end.address);
    let all: Vec<u32> = (0..12).map(|_| address().unwrap()).collect();
    assert!(all.chunks(4).all(|part| part.iter().all(|address| *address == part[0])), "{all:?}");
    assert_eq!(address(), Err(NotAllocated::Exhausted));
}

/// The search at random places leaves half of the offers for the other addresses.
#[test]
fn a_subscriber_moves_to_another_address_if_the_caller_refuses_its_ports() {
    let (range, mut ports) = (range(2, 1024, 65_535), Ports::<u32>::new(100_000));
    let flow = flow((1, 7), (9, 53));
    let first = ports.allocate(&range, &flow, RANDOM, |_| true).unwrap();
    for choice in [Choice::Keep, Choice::Random, Choice::Hashed] {
        let (selection, mut offers) = (Selection { choice, is_persistent: false }, 0);
        let is_other = |end: End<u32>| {
            offers += 1;
            end.address != first.address
        };
        let other = ports.allocate(&range, &flow, selection, is_other).unwrap();
        assert!(other.address != first.address && offers <= 2100, "{offers} offers");
    }
    // All ports of the first address are used.
    for _ in 1..64_512 {
        assert!(ports.allocate(&range, &flow, RANDOM, |end| end.address == first.address).is_ok());
    }
    assert_ne!(ports.allocate(&range, &flow, RANDOM, |_| true).unwrap().address, first.address);
}

/// Searches that fail take much time, so few of them are made in a burst.
#[test]
fn failed_searches_of_a_burst_are_limited() {
    let (range, mut ports) = (range(1, 1024, 65_535), Ports::<u32>::new(100));
    for _ in 0..2 {
        let mut offers = 0;
        let mut refused = || {
            let is_unique = |_| {
                offers += 1;
                false
            };
            ports.allocate(&range, &flow((1, 7), (9, 53)), RANDOM, is_unique)
        };
        let all: Vec<_> = (0..100).map(|_| refused().unwrap_err()).collect();
        assert_eq!(all[..2], [NotAllocated::Clash; 2]);
        assert_eq!(all[2..], [NotAllocated::BurstLimit; 98]);
        assert_eq!(offers, FAILED_OFFERS);
        let refused = ports
            .choose_destination(&range, &flow((1, 7), (9, 53)), RANDOM, |_| unreachable!("it is offered"));
        assert_eq!(refused, Err(NotAllocated::BurstLimit));
        ports.begin_burst();
    }
    assert!(ports.allocate(&range, &flow((1, 7), (9, 53)), RANDOM, |_| true).is_ok());
}

#[test]
fn unusual_ranges_are_accepted() {
    let mut ports = Ports::<u32>::new(4);
    for empty in [Range { last_address: 1, ..range(1, 1, 2) }, range(1, 2, 1)] {
        let refused = ports.allocate(&empty, &flow((1, 1), (2, 2)), KEEP, |_| true);
        assert_eq!(refused, Err(NotAllocated::EmptyRange));
        assert!(!ports.release(&empty, &flow((1, 1), (2, 2)), End { address: PUBLIC, port: 1 }));
    }
    // All IPv4 addresses and ports, and all IPv6 addresses with a protocol without ports.
    let all = Range { first_address: 0, last_address: u32::MAX, first_port: 0, last_port: u16::MAX };
    for source in 0..4 {
        let external = ports.allocate(&all, &flow((source, 80), (2, 2)), KEEP, |_| true).unwrap();
        assert_eq!(external.port, 80);
    }
    let mut ports = Ports::<u128>::new(4);
    let all = Range { first_address: 0, last_address: u128::MAX, first_port: 0, last_port: 0 };
    let (source, remote) = (End { address: 5, port: 0 }, End { address: u128::MAX, port: 0 });
    let flow = Flow { zone: 3, protocol: 47, query: None, source, remote };
    let external = ports.allocate(&all, &flow, RANDOM, |_| true).unwrap();
    assert!(external.port == 0 && ports.release(&all, &flow, external));
}

#[test]
fn full_memory_refuses_a_port_and_changes_nothing() {
    let (range, mut ports) = (range(1, 1024, 65_535), Ports::<u32>::new(10));
    let mut refused = 0;
    for remote in 0..1000 {
        let flow = flow((remote, 7), (remote, 53));
        match ports.allocate(&range, &flow, RANDOM, |_| true) {
            Ok(_) => assert_eq!(ports.subscriber_ports(0, remote), 1),
            Err(error) => {
                assert_eq!((error, ports.subscriber_ports(0, remote)), (NotAllocated::NoMemory, 0));
                refused += 1;
            }
        }
    }
    assert_eq!((ports.counts().no_memory, ports.counts().allocated), (refused, 1000 - refused));
    assert!((985..=990).contains(&refused), "{refused}");
}
