//! Tests of the tracker: cases of each protocol, and a comparison with a naive tracker over random packets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use conn::Direction;
use conn::headers::{Content, Packet};
use conn::table::{Refused, Sizes};
use conn::timeout::{Timeout, Timeouts};
use conn::track::{Commit, CtState, Invalid, NotCommitted, Options, Tracked, Tracker};
use conn::tuple::{End, Query, QueryClass, Side, Tuple, TupleHash};
use conn::zone::Zones;
use conn::{sctp, tcp};
use packet::tcp::flags::{ACK, FIN, RST, SYN};
use proptest::prelude::*;

const NEW: CtState = CtState(CtState::TRACKED.0 | CtState::NEW.0);
const EST: CtState = CtState(CtState::TRACKED.0 | CtState::ESTABLISHED.0);
const INV: CtState = CtState(CtState::TRACKED.0 | CtState::INVALID.0);
const REL: CtState = CtState(CtState::TRACKED.0 | CtState::RELATED.0);
const RPL: CtState = CtState::REPLY;

/// Address and port of the client and of the server.
const CLIENT: (u32, u16) = (20, 1000);
const SERVER: (u32, u16) = (10, 80);

fn packet(content: Content, from: (u32, u16), to: (u32, u16)) -> Packet<u32> {
    let protocol = match content {
        Content::Tcp(_) => 6,
        Content::Udp => 17,
        Content::Sctp(_) => 132,
        Content::Query { .. } | Content::Error => 1,
        Content::Other => 47,
    };
    let end = |(address, port): (u32, u16)| match content {
        Content::Other => End { address, port: 0 },
        _ => End { address, port },
    };
    let (tuple, source) = match content {
        Content::Query { is_reply } => {
            let query = Query { class: QueryClass::Echo, identifier: 7, is_reply };
            Tuple::of_query(0, 1, from.0, to.0, query)
        }
        _ => Tuple::of_ends(0, protocol, end(from), end(to)),
    };
    Packet { tuple, source, content }
}

/// Returns an ICMP error about a packet.
fn error_about(cause: &Packet<u32>) -> Packet<u32> {
    Packet { tuple: cause.tuple, source: cause.source.opposite(), content: Content::Error }
}

fn segment(flags: u16, seq: u32, ack: u32) -> Content {
    Content::Tcp(tcp::Segment { seq, ack, flags, window: 1000, payload: 0, scale: None })
}

/// A tracker with its zones and the time in milliseconds.
struct Case {
    tracker: Tracker<u32>,
    zones: Zones,
    now: u32,
}

impl Case {
    fn new() -> Case {
        let sizes = Sizes { entries: 100, embryonic: 50, extensions: 2, translations: 0 };
        Case { tracker: Tracker::new(sizes, TupleHash::new()), zones: Zones::new(), now: u32::MAX - 5_000 }
    }

    fn track(&mut self, packet: &Packet<u32>) -> Tracked {
        self.tracker.track(&self.zones, packet, self.now)
    }

    /// Tracks a packet, commits its connection, and returns the state before the commit.
    fn commit(&mut self, packet: &Packet<u32>, commit: &Commit<u32>) -> CtState {
        let mut tracked = self.track(packet);
        let state = tracked.state;
        self.tracker.commit(&self.zones, packet, &mut tracked, commit, self.now).unwrap();
        state
    }

    /// Returns the seconds after which the connection of a packet expires.
    fn timeout(&self, packet: &Packet<u32>) -> u32 {
        let id = self.tracker.table.find(&packet.tuple, self.now).unwrap();
        self.tracker.table.expires(id).unwrap().wrapping_sub(self.now) / 1000
    }
}

fn from_client(content: Content) -> Packet<u32> {
    packet(content, CLIENT, SERVER)
}

fn from_server(content: Content) -> Packet<u32> {
    packet(content, SERVER, CLIENT)
}

#[test]
fn a_packet_is_new_until_its_connection_is_committed_and_answered() {
    let mut case = Case::new();
    let (there, back) = (from_client(Content::Udp), from_server(Content::Udp));
    assert_eq!((case.track(&there).state, case.track(&there).id), (NEW, None));
    // Without a commit, the answer is the first packet of another connection.
    assert_eq!(case.track(&back).state, NEW);
    assert_eq!(case.commit(&there, &Commit::default()), NEW);
    assert_eq!(case.timeout(&there), 120);
    assert_eq!(case.track(&there).state, NEW);
    assert_eq!(case.track(&back).state, EST | RPL);
    assert_eq!(case.timeout(&there), 300);
    assert_eq!(case.track(&there).state, EST);
    case.now = case.now.wrapping_add(300_000);
    assert_eq!(case.track(&back).state, NEW);
}

#[test]
fn a_tcp_connection_has_the_time_out_of_its_state() {
    let mut case = Case::new();
    assert_eq!(case.commit(&from_client(segment(SYN, 99, 0)), &Commit::default()), NEW);
    let step = |case: &mut Case, packet: Packet<u32>| {
        let state = case.track(&packet).state;
        (state, case.timeout(&packet), case.tracker.table.embryonic_count())
    };
    assert_eq!(step(&mut case, from_client(segment(SYN, 99, 0))), (NEW, 240, 1));
    assert_eq!(step(&mut case, from_server(segment(SYN | ACK, 499, 100))), (EST | RPL, 240, 1));
    assert_eq!(step(&mut case, from_client(segment(ACK, 100, 500))), (EST, 7440, 0));
    // A segment beyond the window is invalid, and does not prolong the connection.
    case.now = case.now.wrapping_add(40_000);
    assert_eq!(step(&mut case, from_client(segment(ACK, 9_000, 500))), (INV, 7400, 0));
    assert_eq!(step(&mut case, from_client(segment(FIN | ACK, 100, 500))), (EST, 240, 0));
    assert_eq!(step(&mut case, from_server(segment(FIN | ACK, 500, 101))), (EST | RPL, 240, 0));
    assert_eq!(step(&mut case, from_client(segment(ACK, 101, 501))), (EST, 240, 0));
    // The client uses the ports again (tuple reuse while closing).
    let again = from_client(segment(SYN, 9_000, 0));
    assert_eq!((case.track(&again).state, case.tracker.table.count()), (NEW, 0));
    assert_eq!(case.commit(&again, &Commit::default()), NEW);
    // The server refuses the connection.
    assert_eq!(step(&mut case, from_server(segment(RST | ACK, 0, 9_001))), (EST | RPL, 10, 1));
}

/// RFC 5961: a sender that guesses the ports and a sequence number within the window keeps no connection alive.
#[test]
fn a_syn_and_an_inexact_reset_do_not_prolong_a_connection() {
    let mut case = Case::new();
    case.commit(&from_client(segment(SYN, 99, 0)), &Commit::default());
    case.track(&from_server(segment(SYN | ACK, 499, 100)));
    assert_eq!(case.track(&from_client(segment(ACK, 100, 500))).state, EST);
    case.now = case.now.wrapping_add(1_000_000);
    let segments = [segment(SYN, 700, 0), segment(SYN | ACK, 499, 100), segment(RST, 700, 0)];
    for content in segments {
        assert_eq!(case.track(&from_client(content)).state, EST);
        assert_eq!(case.track(&from_server(content)).state, EST | RPL);
        assert_eq!(case.timeout(&from_client(content)), 6440);
    }
    assert_eq!(case.track(&from_server(segment(RST, 500, 0))).state, EST | RPL);
    assert_eq!(case.timeout(&from_client(segment(ACK, 100, 500))), 10);
    // Such a segment is no reply to a connection that was picked up.
    let mut case = Case::new();
    case.commit(&from_client(segment(ACK, 100, 500)), &Commit::default());
    assert_eq!(case.track(&from_server(segment(SYN, 700, 0))).state, EST | RPL);
    assert_eq!(case.track(&from_client(segment(ACK, 100, 500))).state, NEW);
}

#[test]
fn a_connection_may_be_picked_up_in_the_middle() {
    let mut case = Case::new();
    let (there, back) = (from_client(segment(ACK, 100, 500)), from_server(segment(ACK, 500, 100)));
    assert_eq!(case.commit(&there, &Commit::default()), NEW);
    assert_eq!(case.track(&there).state, NEW);
    // A flood of such segments neither fills the table nor stays for hours.
    assert_eq!((case.timeout(&there), case.tracker.table.embryonic_count()), (240, 1));
    assert_eq!(case.track(&back).state, EST | RPL);
    assert_eq!((case.timeout(&there), case.tracker.table.embryonic_count()), (7440, 0));
    let mut strict = Case::new();
    strict.tracker.options = Options { pick_up: false, ..Options::default() };
    let mut tracked = strict.track(&there);
    assert_eq!(tracked.invalid, Some(Invalid::Tcp(tcp::Invalid::NotOpening)));
    let (zones, now) = (&strict.zones, strict.now);
    let committed = strict.tracker.commit(zones, &there, &mut tracked, &Commit::default(), now);
    assert_eq!(committed, Err(NotCommitted::Invalid));
}

#[test]
fn queries_of_both_ends_with_one_identifier_are_two_connections() {
    let mut case = Case::new();
    let (request, reply) = (Content::Query { is_reply: false }, Content::Query { is_reply: true });
    assert_eq!(case.track(&from_server(reply)).invalid, Some(Invalid::NoConnection));
    assert_eq!(case.commit(&from_client(request), &Commit::default()), NEW);
    assert_eq!(case.commit(&from_server(request), &Commit::default()), NEW);
    assert_eq!(case.tracker.table.count(), 2);
    assert_eq!(case.track(&from_server(reply)).state, EST | RPL);
    assert_eq!(case.track(&from_client(request)).state, EST);
    assert_eq!(case.track(&from_server(request)).state, NEW);
    assert_eq!(case.timeout(&from_client(request)), 60);
}

#[test]
fn an_icmp_error_is_related_to_the_connection_of_the_packet_that_it_quotes() {
    let mut case = Case::new();
    let there = from_client(Content::Udp);
    let error = error_about(&there);
    assert_eq!(case.track(&error).invalid, Some(Invalid::NoConnection));
    case.commit(&there, &Commit { mark: Some((7, u32::MAX)), ..Commit::default() });
    case.now = case.now.wrapping_add(20_000);
    let tracked = case.track(&error);
    assert_eq!(tracked.state, REL | RPL);
    assert_eq!(case.tracker.table.extension(tracked.id.unwrap()).mark, 7);
    // The error does not prolong the connection, and is no reply.
    assert_eq!((case.timeout(&there), case.track(&there).state), (100, NEW));
    assert_eq!(case.track(&error_about(&from_server(Content::Udp))).state, REL);
}

#[test]
fn a_forced_commit_turns_a_connection_round() {
    let mut case = Case::new();
    let (there, back) = (from_client(Content::Udp), from_server(Content::Udp));
    let mark = Some((7, u32::MAX));
    case.commit(&there, &Commit { mark, ..Commit::default() });
    let force = Commit { force: true, ..Commit::default() };
    assert_eq!(case.commit(&there, &force), NEW);
    assert_eq!(case.track(&back).state, EST | RPL);
    let mut tracked = case.track(&back);
    let id = case.tracker.commit(&case.zones, &back, &mut tracked, &force, case.now).unwrap();
    assert_eq!((tracked.state, case.tracker.table.extension(id).mark), (NEW, 0));
    assert_eq!((case.track(&there).state, case.tracker.table.count()), (EST | RPL, 1));
}

/// A forced commit that the table refuses leaves the connection as it was.
#[test]
fn a_forced_commit_that_fails_keeps_the_connection() {
    let mut case = Case::new();
    let (there, back) = (from_client(Content::Udp), from_server(Content::Udp));
    case.commit(&there, &Commit::default());
    case.commit(&packet(Content::Udp, (20, 2), SERVER), &Commit::default());
    assert_eq!(case.track(&back).state, EST | RPL);
    // The table has two records, which other connections have. The zone is beyond its limit.
    let mark = Commit { mark: Some((7, u32::MAX)), ..Commit::default() };
    for port in 3..5 {
        case.commit(&packet(Content::Udp, (20, port), SERVER), &mark);
    }
    case.zones.set_limit(0, Some(1));
    let mut tracked = case.track(&back);
    let (force, zones, now) = (Commit { force: true, ..mark }, &case.zones, case.now);
    let refused = case.tracker.commit(zones, &back, &mut tracked, &force, now);
    assert_eq!((refused, tracked.state), (Err(NotCommitted::NoExtension), EST | RPL));
    assert_eq!((case.track(&back).state, case.timeout(&back)), (EST | RPL, 300));
    // A connection takes the place of the one that it replaces.
    assert_eq!(case.commit(&back, &Commit { force: true, ..Commit::default() }), EST | RPL);
    assert_eq!((case.track(&there).state, case.tracker.table.count()), (EST | RPL, 4));
}

/// A new connection for whose mark there is no record displaces no connection.
#[test]
fn a_commit_without_a_record_displaces_no_connection() {
    let mut case = Case::new();
    let mark = Commit { mark: Some((7, u32::MAX)), ..Commit::default() };
    case.commit(&from_client(Content::Udp), &Commit::default());
    for port in 1..3 {
        case.commit(&packet(Content::Udp, (20, port), SERVER), &mark);
    }
    case.zones.set_limit(0, Some(3));
    let new = packet(Content::Udp, (20, 4), SERVER);
    let mut tracked = case.track(&new);
    let refused = case.tracker.commit(&case.zones, &new, &mut tracked, &mark, case.now);
    assert_eq!((refused, case.tracker.table.count()), (Err(NotCommitted::NoExtension), 3));
    assert!(case.track(&from_client(Content::Udp)).id.is_some());
}

/// The first packets of both ends may be in one burst, before the commit of either.
#[test]
fn a_burst_may_contain_the_first_packets_of_both_ends() {
    let mut case = Case::new();
    let packets = [from_client(Content::Udp), from_server(Content::Udp), from_client(Content::Udp)];
    let mut tracked = [Tracked::default(); 3];
    case.tracker.track_burst(&case.zones, &packets, case.now, &mut tracked);
    assert_eq!(tracked.map(|tracked| tracked.state), [NEW; 3]);
    for (packet, tracked) in packets.iter().zip(&mut tracked) {
        case.tracker.commit(&case.zones, packet, tracked, &Commit::default(), case.now).unwrap();
    }
    assert_eq!(tracked.map(|tracked| tracked.state), [NEW, EST | RPL, EST]);
    assert_eq!((case.tracker.table.count(), case.timeout(&packets[0])), (1, 300));
}

#[test]
fn marks_and_labels_change_under_their_masks() {
    let mut case = Case::new();
    let there = from_client(Content::Udp);
    case.commit(
        &there,
        &Commit { mark: Some((0x12, 0xff)), label: Some((1 << 100, u128::MAX)), ..Commit::default() },
    );
    case.commit(&there, &Commit { mark: Some((0xff00, 0x0f00)), ..Commit::default() });
    let id = case.track(&there).id.unwrap();
    let extension = case.tracker.table.extension(id);
    assert_eq!((extension.mark, extension.label), (0xf12, 1 << 100));
    // The table has two records. A third connection with a mark is not entered.
    let mut others = (1..3).map(|port| packet(Content::Udp, (20, port), SERVER));
    let commit = Commit { mark: Some((1, 1)), ..Commit::default() };
    case.commit(&others.next().unwrap(), &commit);
    let third = others.next().unwrap();
    let mut tracked = case.track(&third);
    let refused = case.tracker.commit(&case.zones, &third, &mut tracked, &commit, case.now);
    assert_eq!((refused, case.tracker.table.count()), (Err(NotCommitted::NoExtension), 2));
    // A record is free when its connection ends.
    case.tracker.table.remove(id);
    assert_eq!(case.commit(&third, &commit), NEW);
}

#[test]
fn zones_have_connections_time_outs_and_limits_of_their_own() {
    let mut case = Case::new();
    let mut timeouts = Timeouts::default();
    timeouts.set(Timeout::UdpFirst, 5);
    case.zones.set_timeouts(3, Some(timeouts));
    case.zones.set_limit(3, Some(1));
    let there = from_client(Content::Udp);
    let mut in_zone = there;
    in_zone.tuple.zone = 3;
    case.commit(&there, &Commit::default());
    assert_eq!(case.commit(&in_zone, &Commit::default()), NEW);
    assert_eq!((case.timeout(&there), case.timeout(&in_zone)), (120, 5));
    let mut answer = from_server(Content::Udp);
    answer.tuple.zone = 3;
    assert_eq!(case.track(&answer).state, EST | RPL);
    let mut second = packet(Content::Udp, (20, 1), SERVER);
    second.tuple.zone = 3;
    let mut tracked = case.track(&second);
    let refused = case.tracker.commit(&case.zones, &second, &mut tracked, &Commit::default(), case.now);
    assert_eq!(refused, Err(NotCommitted::Refused(Refused::ZoneFull)));
    // The zone goes while a packet is on its way from `ct` to `ct(commit)`. Another connection has its entry then.
    let mut tracked = case.track(&in_zone);
    case.tracker.table.flush_zone(3, None, u32::MAX);
    case.commit(&packet(Content::Udp, (20, 2), SERVER), &Commit::default());
    let mark = Commit { mark: Some((7, 7)), ..Commit::default() };
    let id = case.tracker.commit(&case.zones, &in_zone, &mut tracked, &mark, case.now).unwrap();
    assert_eq!(case.tracker.table.get(id).unwrap().tuple(), in_zone.tuple);
    assert_eq!((case.tracker.table.zone_count(3), case.tracker.table.zone_count(0)), (1, 2));
}

/// One connection of the naive tracker.
struct Known {
    originator: Side,
    has_replied: bool,
    expires: u64,
    tcp: Option<tcp::Connection>,
    sctp: Option<sctp::Association>,
}

/// A naive tracker: a map of tuples.
#[derive(Default)]
struct Naive(HashMap<Tuple<u32>, Known>);

impl Naive {
    fn open(packet: &Packet<u32>, now: u64) -> Option<Known> {
        let (mut tcp, mut sctp) = (None, None);
        let seconds = match &packet.content {
            Content::Tcp(segment) => {
                tcp = Some(tcp::Connection::open(segment, true).ok()?);
                240
            }
            Content::Sctp(packet) => {
                sctp = Some(sctp::Association::open(packet, true).ok()?);
                60
            }
            Content::Error | Content::Query { is_reply: true } => return None,
            Content::Udp => 120,
            Content::Query { .. } | Content::Other => 60,
        };
        let (originator, expires) = (packet.source, now + seconds * 1000);
        Some(Known { originator, has_replied: false, expires, tcp, sctp })
    }

    fn track(&mut self, packet: &Packet<u32>, now: u64) -> CtState {
        self.0.retain(|_, known| known.expires > now);
        let unknown = Naive::open(packet, now).map_or(INV, |_| NEW);
        let Some(known) = self.0.get_mut(&packet.tuple) else { return unknown };
        let is_reply = packet.source != known.originator;
        let direction = if is_reply { Direction::Reply } else { Direction::Original };
        let reply = if is_reply { RPL } else { CtState::default() };
        let has_replied = known.has_replied || is_reply;
        let seconds = match &packet.content {
            Content::Error => return REL | reply,
            Content::Tcp(segment) => {
                let connection = known.tcp.as_mut().unwrap();
                match connection.track(direction, segment, true) {
                    tcp::Verdict::Accepted => {}
                    tcp::Verdict::Unconfirmed => return reply | if has_replied { EST } else { NEW },
                    tcp::Verdict::NewConnection => {
                        self.0.remove(&packet.tuple);
                        return unknown;
                    }
                    tcp::Verdict::Invalid(_) => return INV,
                }
                match connection.state() {
                    tcp::State::Established if has_replied => 7440,
                    tcp::State::Closed => 10,
                    _ => 240,
                }
            }
            Content::Sctp(packet) => {
                let association = known.sctp.as_mut().unwrap();
                match association.track(direction, packet) {
                    sctp::Verdict::Accepted => {}
                    sctp::Verdict::NewAssociation => unreachable!("these packets close no association"),
                    sctp::Verdict::Invalid(_) => return INV,
                }
                if association.state() == sctp::State::Established && has_replied { 7440 } else { 60 }
            }
            Content::Udp if has_replied => 300,
            Content::Udp => 120,
            Content::Query { .. } => 60,
            Content::Other if has_replied => 600,
            Content::Other => 60,
        };
        known.has_replied = has_replied;
        known.expires = now + seconds * 1000;
        reply | if has_replied { EST } else { NEW }
    }

    /// Commits the connection of a packet. `was_known`: the packet's connection was committed when it was tracked.
    fn commit(&mut self, packet: &Packet<u32>, state: CtState, was_known: bool, is_forced: bool, now: u64) {
        let replaced = is_forced && state.has(RPL) && packet.content != Content::Error;
        if state.has(CtState::INVALID) {
            return;
        }
        if self.0.contains_key(&packet.tuple) && !replaced {
            if !was_known {
                self.track(packet, now);
            }
            return;
        }
        if let Some(known) = Naive::open(packet, now) {
            self.0.insert(packet.tuple, known);
        }
    }
}

/// A random packet between few ends.
fn any_packet() -> impl Strategy<Value = Packet<u32>> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST, RST | ACK, SYN | FIN]);
    let content = prop_oneof![
        8 => (flags, 99..103_u32, 99..103_u32).prop_map(|(flags, seq, ack)| segment(flags, seq, ack)),
        3 => Just(Content::Udp),
        2 => any::<bool>().prop_map(|is_reply| Content::Query { is_reply }),
        1 => Just(Content::Other),
        // INIT, INIT ACK, COOKIE ECHO, COOKIE ACK and DATA chunks.
        4 => (prop::sample::select(vec![1, 2, 10, 11, 0]), 0..3_u32, 1..3_u32).prop_map(|(kind, tag, initiate_tag)| {
            Content::Sctp(sctp::Packet { tag, chunks: 1 << kind, initiate_tag, is_reflected: false })
        }),
    ];
    let ends = (0..3_u32, 0..3_u32, 0..4_u8);
    (content, ends).prop_map(|(content, (from, to, error))| {
        let packet = packet(content, (from, 1), (to, 1));
        if error == 0 { error_about(&packet) } else { packet }
    })
}

proptest! {
    /// The tracker agrees with the naive tracker, and a burst has the results of its packets one by one.
    #[test]
    fn the_tracker_agrees_with_the_naive_tracker(
        steps in prop::collection::vec(
            (prop::collection::vec(any_packet(), 1..4), any::<bool>(), prop::option::of(any::<bool>()), 0..100_000_u32),
            1..60,
        ),
    ) {
        let (mut case, mut naive) = (Case::new(), Naive::default());
        let start = case.now;
        let mut passed = 0_u64;
        for (packets, in_burst, commit, ms) in steps {
            case.now = case.now.wrapping_add(ms);
            passed += u64::from(ms);
            let now = u64::from(start) + passed;
            let mut tracked = vec![Tracked::default(); packets.len()];
            if in_burst {
                case.tracker.track_burst(&case.zones, &packets, case.now, &mut tracked);
            } else {
                for (packet, tracked) in packets.iter().zip(&mut tracked) {
                    *tracked = case.track(packet);
                }
            }
            let expected: Vec<CtState> = packets.iter().map(|packet| naive.track(packet, now)).collect();
            let states: Vec<CtState> = tracked.iter().map(|tracked| tracked.state).collect();
            prop_assert_eq!(&states, &expected);
            for ((packet, tracked), state) in packets.iter().zip(&mut tracked).zip(expected) {
                let Some(force) = commit else { continue };
                let commit = Commit { force, ..Commit::default() };
                let was_known = tracked.id.is_some();
                let done = case.tracker.commit(&case.zones, packet, tracked, &commit, case.now);
                // A forced commit fails if the packet cannot open a connection.
                let may_fail = tracked.state.has(CtState::INVALID) || force || !naive.0.contains_key(&packet.tuple);
                prop_assert!(done.is_ok() || may_fail, "{:?}", done);
                naive.commit(packet, state, was_known, force, now);
            }
            for (tuple, known) in &naive.0 {
                let id = case.tracker.table.find(tuple, case.now);
                prop_assert!(id.is_some(), "{:?} is missing", tuple);
                let table = &case.tracker.table;
                let expires = table.expires(id.unwrap()).unwrap().wrapping_sub(start);
                prop_assert_eq!(u64::from(expires), known.expires - u64::from(start));
                let entry = table.get(id.unwrap()).unwrap();
                prop_assert_eq!(entry.originator(), known.originator);
                prop_assert_eq!(entry.has_replied(), known.has_replied);
                prop_assert!(entry.is_embryonic() || known.has_replied);
            }
            let live = case.tracker.table.connections(0, u32::MAX, case.now).count();
            prop_assert_eq!(live, naive.0.values().filter(|known| known.expires > now).count());
        }
    }
}
