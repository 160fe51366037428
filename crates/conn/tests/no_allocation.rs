//! Verifies that the data path allocates nothing: tracking, commits, marks, displaced entries,
//! expiry, flushes, translations, ports for NAT, fragments, helpers, and prefixes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::fragment::{Fragment, Options, Reason, Reassembler, Sizes as FragmentSizes};
use conn::headers::{Content, Packet};
use conn::helper::expectation::Limits;
use conn::helper::{self, Helper};
use conn::nat::ports::{Flow, NotAllocated, Ports, Range, Selection};
use conn::nat::prefix::PrefixPair;
use conn::nat::spec::Nat;
use conn::nat::translate::Checksum;
use conn::table::Sizes;
use conn::tcp::Segment;
use conn::track::{Commit, Tracked, Tracker};
use conn::tuple::{End, Tuple, TupleHash};
use conn::zone::Zones;
use packet::ipv4::{Ipv4, Ipv4Repr};
use packet::tcp::flags;
use sync::heap::{CountingHeap, allocations};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn packet(from: u32, to: u32) -> Packet<u32> {
    let end = |address| End { address, port: 9 };
    let (tuple, source) = Tuple::of_ends(0, 17, end(from), end(to));
    Packet { tuple, source, content: Content::Udp }
}

/// The heap counts the allocations of all threads, and the thread of the test harness may allocate at any time. The
/// data path allocates nothing if one of several runs does not.
#[test]
fn the_data_path_allocates_nothing() {
    let runs = [(); 5].map(|()| {
        [
            track_connections(),
            allocate_ports(),
            reassemble_fragments(),
            help_connections(),
            translate_prefixes(),
        ]
    });
    for part in 0..runs[0].len() {
        assert_eq!(runs.map(|run| run[part]).into_iter().min(), Some(0));
    }
}

/// Tracks and commits connections, and returns the number of allocations.
fn track_connections() -> u64 {
    let sizes = Sizes { entries: 1000, embryonic: 100, extensions: 500, translations: 300 };
    let (mut tracker, zones) = (Tracker::<u32>::new(sizes, TupleHash::new()), Zones::new());
    let packets: Vec<_> = (1..3000).map(|number| [packet(number, 0), packet(0, number)]).collect();
    let mut tracked = vec![Tracked::default(); 2];
    let before = allocations();
    for round in 0..3_u32 {
        let now = round * 1_000_000;
        for (pair, number) in packets.iter().zip(0_u32..) {
            tracker.track_burst(&zones, &pair[..1], now, &mut tracked);
            let mark = (number % 2 == 0).then_some((number, u32::MAX));
            let nat = (number % 6 == 1).then_some(Nat {
                first_address: 5000,
                last_address: 5001,
                ..Nat::default()
            });
            let commit = Commit { mark, nat, ..Commit::default() };
            let _ = tracker.commit(&zones, &pair[0], &mut tracked[0], &commit, now);
            let _ = tracker.translate(&pair[0], &mut tracked[0]);
            // Only every third connection is answered.
            if number % 3 == 0 {
                tracker.track_burst(&zones, &pair[1..], now, &mut tracked);
            }
        }
        tracker.table.sweep(now + 500_000, 500);
    }
    tracker.table.flush_zone(0, None, u32::MAX);
    let allocations = allocations() - before;
    let counts = tracker.table.counts();
    assert!(counts.displaced > 1000 && counts.expired > 0 && counts.table_full > 0, "{counts:?}");
    let ports = tracker.table.ports().unwrap().counts();
    assert!(ports.allocated > 100 && ports.allocated == ports.released, "{ports:?}");
    assert_eq!(tracker.table.count(), 0);
    allocations
}

/// Allocates and releases ports, and returns the number of allocations on the heap.
fn allocate_ports() -> u64 {
    let mut ports = Ports::<u32>::new(2000);
    let range = Range { first_address: 1, last_address: 2, first_port: 1, last_port: 500 };
    let flow = |number: u32| {
        let (source, remote) = (End { address: number % 7, port: 80 }, End { address: number % 2, port: 80 });
        Flow { zone: 0, protocol: 6, query: None, source, remote }
    };
    let mut external = vec![End::default(); 2000];
    let before = allocations();
    for (number, external) in (0..).zip(&mut external) {
        *external = ports.allocate(&range, &flow(number), Selection::default(), |_| true).unwrap_or_default();
    }
    let refused = ports.allocate(&range, &flow(0), Selection::default(), |_| true);
    for (number, external) in (0..).zip(&external) {
        assert!(ports.release(&range, &flow(number), *external));
    }
    let allocations = allocations() - before;
    assert_eq!(refused, Err(NotAllocated::Exhausted));
    allocations
}

/// Returns the fragment of a UDP datagram with 400 octets at this offset.
fn fragment(id: u16, fragment_offset: u16, more_fragments: bool) -> Fragment<u32> {
    let (payload_len, proto) = (400, 17);
    let repr = Ipv4Repr { id, fragment_offset, more_fragments, payload_len, proto, ..Ipv4Repr::default() };
    let mut bytes = vec![0; 420];
    repr.emit(&mut bytes).unwrap();
    Fragment::of_ipv4(&Ipv4::parse(&bytes).unwrap(), 0).unwrap()
}

/// Receives fragments of datagrams that become complete, are refused, expire or give way, and returns the number of
/// allocations.
fn reassemble_fragments() -> u64 {
    let sizes = FragmentSizes { datagrams: 50, fragments: 100, fragments_per_datagram: 8, refused: 20 };
    let options = Options { min_fragment: 400, ..Options::ipv4() };
    let mut reassembler = Reassembler::new(sizes, options, TupleHash::new());
    // The second fragment overlaps the first one in every fifth datagram, and is missing in every third one.
    let datagrams: Vec<_> = (0..2000)
        .map(|id| [fragment(id, 0, true), fragment(id, if id % 5 == 0 { 392 } else { 400 }, false)])
        .collect();
    let (mut complete, mut refused, mut expired, mut purged) = (0, 0, 0, 0);
    let before = allocations();
    for round in 0..3_u32 {
        for (pair, number) in datagrams.iter().zip(0_u32..) {
            let now = round * 1_000_000 + number * 10;
            let parts = if number % 3 == 0 { &pair[..1] } else { &pair[..] };
            let mut count = |reason| match reason {
                Reason::Complete => complete += 1,
                Reason::Refused(_) => refused += 1,
                Reason::Expired => expired += 1,
                Reason::Purged => purged += 1,
            };
            for fragment in parts {
                reassembler.receive(fragment, number, number % 7, now, |returned| count(returned.reason));
            }
            if number % 1000 > 900 {
                reassembler.expire(now + 14_900, 2, |returned| count(returned.reason));
            }
        }
    }
    reassembler.flush(u32::MAX, |_| purged += 1);
    let allocations = allocations() - before;
    assert!(
        [complete, refused, expired, purged].iter().all(|count| *count > 100),
        "{:?}",
        reassembler.counts()
    );
    assert_eq!((reassembler.held(), reassembler.counts().purged), (0, purged));
    allocations
}

/// Tracks sessions of FTP behind source NAT with their data connections, and returns the number of allocations.
fn help_connections() -> u64 {
    let sizes = Sizes { entries: 400, embryonic: 100, extensions: 0, translations: 400 };
    let (mut tracker, zones) = (Tracker::<u32>::new(sizes, TupleHash::new()), Zones::new());
    let limits = Limits { expectations: 20, ..Limits::default() };
    tracker.table.enable_helpers(helper::Sizes { connections: 50, limits });
    let segment = |from: (u32, u16), to: (u32, u16), flags, seq, payload: &[u8]| {
        let end = |(address, port)| End { address, port };
        let (tuple, source) = Tuple::of_ends(0, 6, end(from), end(to));
        let payload = u32::try_from(payload.len()).unwrap_or_default();
        let segment = Segment { seq, ack: 1, flags, window: 1000, payload, scale: None };
        Packet { tuple, source, content: Content::Tcp(segment) }
    };
    let lines: [&[u8]; 2] = [b"USER a\r\n", b"PORT 10,0,0,1,19,137\r\n"];
    let nat = Some(Nat { first_address: 5000, last_address: 5001, ..Nat::default() });
    let commit = Commit { nat, helper: Some(Helper::Ftp), ..Commit::default() };
    let (mut announced, mut related, mut refused) = (0, 0, 0);
    let mut buffer = [0; 100];
    let before = allocations();
    for port in 1..1000_u16 {
        let now = u32::from(port) * 1000;
        let control = ((0x0a00_0001, port), (9, 21));
        for (seq, line) in [(1, lines[0]), (9, lines[1])] {
            let packet = segment(control.0, control.1, flags::ACK, seq, line);
            let mut tracked = tracker.track(&zones, &packet, now);
            let _ = tracker.commit(&zones, &packet, &mut tracked, &commit, now);
            let help = tracker.help(&packet, &tracked, line, now);
            refused += u32::from(help.is_err());
            let Some(help) = help.ok().filter(|help| help.expectation.is_some()) else { continue };
            announced += 1;
            buffer[..line.len()].copy_from_slice(line);
            let replacement = help.replacement.and_then(|change| change.apply(&mut buffer, line.len()));
            tracker.change_length(&packet, &tracked, replacement.unwrap_or_default());
            if let Some(correction) = tracker.correction(&packet, &tracked) {
                correction.apply(&mut buffer, Checksum::Complete);
            }
            // Some data connections are opened.
            let end = help
                .expectation
                .map_or((0, 0), |expected| (expected.destination.address, expected.destination.port));
            let syn = segment((9, 20), end, flags::SYN, 1, b"");
            let mut tracked = tracker.track(&zones, &syn, now);
            if port % 3 == 0 && tracker.commit(&zones, &syn, &mut tracked, &Commit::default(), now).is_ok() {
                related += 1;
            }
        }
        tracker.table.sweep(now, 10);
    }
    let allocations = allocations() - before;
    assert!(announced > 100 && related > 30 && refused > 50, "{announced} {related} {refused}");
    allocations
}

/// Translates the packets and the errors of a site with NPTv6, and returns the number of allocations.
fn translate_prefixes() -> u64 {
    let prefixes = ["fd01:203:405::/48", "2001:db8:1:100::/56"].map(|text| text.parse().unwrap());
    let pair = PrefixPair::new(prefixes[0], prefixes[1]).unwrap();
    // An ICMPv6 error from a host of the site quotes a packet to this host.
    let mut error = vec![0; 88];
    let host = [0xfd, 0x01, 0x02, 0x03, 0x04, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    (error[0], error[5], error[6], error[40], error[48]) = (0x60, 48, 58, 1, 0x60);
    error[8..24].copy_from_slice(&host);
    error[72..88].copy_from_slice(&host);
    let mut bytes = error.clone();
    let before = allocations();
    let results = [pair.translate_outward(&mut bytes), pair.translate_inward(&mut bytes)];
    let allocations = allocations() - before;
    assert!(results[0].is_ok() && results[1].is_err());
    assert!(bytes[8..24] != host && bytes[8..24] == bytes[72..88]);
    allocations
}
