//! Tests of the tracker with NAT: cases, and a comparison with a naive tracker over random packets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::headers::{Content, Packet};
use conn::nat::mapping::Mapping;
use conn::nat::ports::{Choice, NotAllocated, Selection};
use conn::nat::spec::{Nat, Target};
use conn::nat::translate::Rewrite;
use conn::table::{EntryId, Refused, Sizes};
use conn::track::{Commit, CtState, Invalid, NotCommitted, Tracked, Tracker};
use conn::tuple::{End, Query, QueryClass, Side, Tuple, TupleHash};
use conn::zone::Zones;
use proptest::prelude::*;

const NEW: CtState = CtState(CtState::TRACKED.0 | CtState::NEW.0);
const EST: CtState = CtState(CtState::TRACKED.0 | CtState::ESTABLISHED.0);
const INV: CtState = CtState(CtState::TRACKED.0 | CtState::INVALID.0);
const REL: CtState = CtState(CtState::TRACKED.0 | CtState::RELATED.0);
const RPL: CtState = CtState::REPLY;

const CLIENT: End<u32> = End { address: 0x0a00_0001, port: 5000 };
const SERVER: End<u32> = End { address: 0x0a00_0101, port: 53 };
const PUBLIC: u32 = 0xc633_6401;

/// Returns a packet. The port of the source is the identifier of a query.
fn packet(content: Content, from: End<u32>, to: End<u32>) -> Packet<u32> {
    let (tuple, source) = match content {
        Content::Query { is_reply } => {
            let identifier = if is_reply { to.port } else { from.port };
            let query = Query { class: QueryClass::Echo, identifier, is_reply };
            Tuple::of_query(0, 1, from.address, to.address, query)
        }
        Content::Other => {
            let end = |end: End<u32>| End { port: 0, ..end };
            Tuple::of_ends(0, 47, end(from), end(to))
        }
        _ => Tuple::of_ends(0, 17, from, to),
    };
    Packet { tuple, source, content }
}

fn udp(from: End<u32>, to: End<u32>) -> Packet<u32> {
    packet(Content::Udp, from, to)
}

/// Returns an ICMP error about a packet.
fn error_about(cause: &Packet<u32>) -> Packet<u32> {
    Packet { tuple: cause.tuple, source: cause.source.opposite(), content: Content::Error }
}

fn snat(addresses: [u32; 2], ports: Option<[u16; 2]>) -> Nat<u32> {
    let [first_address, last_address] = addresses;
    Nat { first_address, last_address, ports, ..Nat::default() }
}

fn dnat(addresses: [u32; 2], ports: Option<[u16; 2]>) -> Nat<u32> {
    Nat { target: Target::Destination, ..snat(addresses, ports) }
}

fn commit_with(nat: Nat<u32>) -> Commit<u32> {
    Commit { nat: Some(nat), ..Commit::default() }
}

/// A tracker with its zones and the time in milliseconds.
struct Case {
    tracker: Tracker<u32>,
    zones: Zones,
    now: u32,
}

impl Case {
    fn new() -> Case {
        let sizes = Sizes { entries: 200, embryonic: 200, extensions: 200, translations: 200 };
        Case { tracker: Tracker::new(sizes, TupleHash::new()), zones: Zones::new(), now: u32::MAX - 90_000 }
    }

    /// Tracks a packet and translates it, as `ct(nat)`.
    fn track(&mut self, packet: &Packet<u32>) -> (Tracked, Option<Rewrite<u32>>) {
        let mut tracked = self.tracker.track(&self.zones, packet, self.now);
        let rewrite = self.tracker.translate(packet, &mut tracked);
        (tracked, rewrite)
    }

    fn state(&mut self, packet: &Packet<u32>) -> CtState {
        self.track(packet).0.state
    }

    /// Tracks a packet and commits its connection, as `ct,ct(commit,...)`.
    fn commit(&mut self, packet: &Packet<u32>, commit: &Commit<u32>) -> Result<EntryId, NotCommitted> {
        let (mut tracked, _) = self.track(packet);
        self.tracker.commit(&self.zones, packet, &mut tracked, commit, self.now)
    }

    fn mapping(&self, id: EntryId) -> Mapping<u32> {
        self.tracker.table.mapping(id).unwrap().0
    }

    /// Returns the number of ports in use.
    fn ports(&self) -> u64 {
        let counts = self.tracker.table.ports().unwrap().counts();
        counts.allocated - counts.released
    }
}

#[test]
fn both_directions_of_source_nat_have_the_bits_and_fields_of_their_translation() {
    let mut case = Case::new();
    let request = udp(CLIENT, SERVER);
    let id = case.commit(&request, &commit_with(snat([PUBLIC; 2], Some([80, 80])))).unwrap();
    let reply = udp(SERVER, End { address: PUBLIC, port: 80 });
    // The packet that opens the connection is translated after the commit.
    let source = Rewrite { source: Some(PUBLIC), source_port: Some(80), ..Rewrite::default() };
    let (tracked, rewrite) = case.track(&request);
    assert_eq!((tracked.state, rewrite), (NEW | CtState::SNAT, Some(source)));
    let destination = Rewrite {
        destination: Some(CLIENT.address),
        destination_port: Some(CLIENT.port),
        ..Rewrite::default()
    };
    let (tracked, rewrite) = case.track(&reply);
    assert_eq!((tracked.state, rewrite), (EST | RPL | CtState::DNAT, Some(destination)));
    assert_eq!(case.state(&request), EST | CtState::SNAT);
    assert_eq!(format!("{:?}", case.state(&reply)), "est|rpl|trk|dnat");
    // ICMP errors of routers on both sides.
    let (tracked, rewrite) = case.track(&error_about(&udp(End { address: PUBLIC, port: 80 }, SERVER)));
    assert_eq!((tracked.state, rewrite), (REL | RPL | CtState::DNAT, Some(destination)));
    let (tracked, rewrite) = case.track(&error_about(&udp(SERVER, CLIENT)));
    assert_eq!((tracked.state, rewrite), (REL | CtState::SNAT, Some(source)));
    // Each tuple belongs to one direction.
    for wrong in [udp(SERVER, CLIENT), udp(End { address: PUBLIC, port: 80 }, SERVER)] {
        let (tracked, rewrite) = case.track(&wrong);
        assert_eq!((tracked.state, tracked.invalid, rewrite), (INV, Some(Invalid::NotTranslated), None));
        assert_eq!(case.commit(&wrong, &Commit::default()), Err(NotCommitted::Invalid));
    }
    // An existing connection keeps its translation.
    assert_eq!(case.commit(&request, &commit_with(snat([77; 2], None))), Ok(id));
    assert_eq!((case.mapping(id).translated[0].address, case.ports()), (PUBLIC, 1));
}

#[test]
fn both_directions_of_destination_nat_have_the_bits_and_fields_of_their_translation() {
    let mut case = Case::new();
    let (public, server) = (End { address: PUBLIC, port: 80 }, End { address: 77, port: 8080 });
    let request = udp(CLIENT, public);
    case.commit(&request, &commit_with(dnat([77; 2], Some([8080, 8080])))).unwrap();
    let new = Rewrite { destination: Some(77), destination_port: Some(8080), ..Rewrite::default() };
    let (tracked, rewrite) = case.track(&request);
    assert_eq!((tracked.state, rewrite), (NEW | CtState::DNAT, Some(new)));
    let new = Rewrite { source: Some(PUBLIC), source_port: Some(80), ..Rewrite::default() };
    let (tracked, rewrite) = case.track(&udp(server, CLIENT));
    assert_eq!((tracked.state, rewrite, case.ports()), (EST | RPL | CtState::SNAT, Some(new), 0));
    // The client also talks to the server directly, with its port. The translated connection gets another port.
    let other = End { port: 6000, ..CLIENT };
    case.commit(&udp(other, server), &Commit::default()).unwrap();
    let id = case.commit(&udp(other, public), &commit_with(dnat([77; 2], Some([8080, 8080])))).unwrap();
    let [source, destination] = case.mapping(id).translated;
    assert!(destination == server && source.address == CLIENT.address && source.port != 6000);
    assert_eq!(case.ports(), 1);
    let (tracked, rewrite) = case.track(&udp(server, source));
    assert_eq!(tracked.state, EST | RPL | CtState::SNAT);
    assert_eq!(rewrite.unwrap().destination_port, Some(6000));
}

/// SYN/ACK not translated under churn (cilium #23126): a burst has the replies of connections that were just committed.
#[test]
fn a_burst_finds_connections_by_the_tuples_of_their_replies() {
    let mut case = Case::new();
    let (mut requests, mut replies, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for port in 5000..5100 {
        let request = udp(End { port, ..CLIENT }, SERVER);
        let id = case.commit(&request, &commit_with(snat([PUBLIC; 2], Some([10, 200])))).unwrap();
        let [external, _] = case.mapping(id).translated;
        requests.push(request);
        replies.push(udp(SERVER, external));
        ids.push(Some(id));
    }
    let mut tracked = vec![Tracked::default(); 100];
    case.tracker.track_burst(&case.zones, &replies, case.now, &mut tracked);
    assert!(tracked.iter().all(|tracked| tracked.state == EST | RPL));
    assert_eq!(tracked.iter().map(|tracked| tracked.id).collect::<Vec<_>>(), ids);
    case.tracker.track_burst(&case.zones, &requests, case.now, &mut tracked);
    assert_eq!(tracked.iter().map(|tracked| tracked.id).collect::<Vec<_>>(), ids);
}

/// Insertions and ports at 60 to 95 % use (cilium #33074, #8740): the last port is found, and one more is refused.
#[test]
fn all_ports_are_found_and_no_established_connection_is_lost() {
    let mut case = Case::new();
    let nat = Nat {
        selection: Selection { choice: Choice::Random, is_persistent: false },
        ..snat([PUBLIC; 2], Some([1, 150]))
    };
    let request = |port| udp(End { port, ..CLIENT }, SERVER);
    for port in 0..150 {
        let id = case.commit(&request(port), &commit_with(nat)).unwrap();
        let [external, _] = case.mapping(id).translated;
        assert_eq!(case.state(&udp(SERVER, external)), EST | RPL | CtState::DNAT);
    }
    let refused = Err(NotCommitted::Refused(Refused::Nat(NotAllocated::Exhausted)));
    assert_eq!(case.commit(&request(150), &commit_with(nat)), refused);
    assert!((0..150).all(|port| case.state(&request(port)) == EST | CtState::SNAT));
    // The ports are free after the time-out.
    case.now = case.now.wrapping_add(300_000);
    assert_eq!(case.tracker.table.sweep(case.now, u32::MAX), 150);
    assert_eq!(case.ports(), 0);
    assert!(case.commit(&request(150), &commit_with(nat)).is_ok());
}

/// A server that opens a connection from the tuple of the replies replaces the translated connection.
#[test]
fn a_forced_commit_replaces_a_translated_connection() {
    let mut case = Case::new();
    let external = End { address: PUBLIC, port: 80 };
    case.commit(&udp(CLIENT, SERVER), &commit_with(snat([PUBLIC; 2], Some([80, 80])))).unwrap();
    let back = udp(SERVER, external);
    // The server asks for the translation of the old connection, as a port forwarding rule would.
    let nat = dnat([CLIENT.address; 2], Some([CLIENT.port; 2]));
    let id = case.commit(&back, &Commit { force: true, ..commit_with(nat) }).unwrap();
    assert_eq!((case.mapping(id).translated, case.ports()), ([SERVER, CLIENT], 0));
    assert_eq!(case.state(&back), NEW | CtState::DNAT);
    assert_eq!(case.state(&udp(CLIENT, SERVER)), EST | RPL | CtState::SNAT);
    // A forced commit that finds no port keeps the connection.
    let force = Commit { force: true, ..commit_with(snat([PUBLIC, 0], None)) };
    let refused = Err(NotCommitted::Refused(Refused::Nat(NotAllocated::EmptyRange)));
    assert_eq!(case.commit(&udp(CLIENT, SERVER), &force), refused);
    assert_eq!(case.state(&back), EST | CtState::DNAT);
}

#[test]
fn the_tuple_of_the_replies_belongs_to_the_worker() {
    let hash = TupleHash::new();
    let sizes = Sizes { translations: 2000, ..Sizes::of_entries(2000) };
    for worker in [0, 3, 63] {
        let mut case = Case { tracker: Tracker::new(sizes, hash.clone()), ..Case::new() };
        case.tracker.table.set_worker(worker, 64);
        for port in 5000..5200 {
            let request = udp(End { port, ..CLIENT }, SERVER);
            let nats = [snat([PUBLIC; 2], None), dnat([77; 2], None)];
            let id = case.commit(&request, &commit_with(nats[usize::from(port % 2)])).unwrap();
            assert_eq!(hash.worker(&case.mapping(id).reply_tuple().0, 64), worker);
        }
    }
}

/// One connection of the naive tracker.
#[derive(Clone, Debug)]
struct Known {
    original: (Tuple<u32>, Side),
    /// Tuple of the replies, and the side of the originator.
    translated: (Tuple<u32>, Side),
    target: Option<Target>,
    has_replied: bool,
    expires: u64,
}

/// A naive tracker: a list of connections that is searched from the start.
#[derive(Default)]
struct Naive(Vec<Known>);

impl Naive {
    fn position(&self, tuple: &Tuple<u32>) -> Option<usize> {
        self.0.iter().position(|known| known.original.0 == *tuple || known.translated.0 == *tuple)
    }

    fn track(&mut self, packet: &Packet<u32>, now: u64) -> CtState {
        let Some(at) = self.position(&packet.tuple) else {
            let is_new = !matches!(packet.content, Content::Error | Content::Query { is_reply: true });
            return if is_new { NEW } else { INV };
        };
        let known = &mut self.0[at];
        let is_request = (packet.tuple, packet.source) == known.original;
        let is_reply = (packet.tuple, packet.source.opposite()) == known.translated;
        if !is_request && !is_reply {
            return INV;
        }
        let (snat, dnat) =
            if is_reply { (CtState::DNAT, CtState::SNAT) } else { (CtState::SNAT, CtState::DNAT) };
        let nat = match known.target {
            None => CtState::default(),
            Some(Target::Source) => snat,
            Some(Target::Destination) => dnat,
        };
        let direction = nat | if is_reply { RPL } else { CtState::default() };
        if packet.content == Content::Error {
            return REL | direction;
        }
        known.has_replied |= is_reply;
        let seconds = match packet.content {
            Content::Udp if known.has_replied => 300,
            Content::Udp => 120,
            Content::Other if known.has_replied => 600,
            _ => 60,
        };
        known.expires = now + seconds * 1000;
        direction | if known.has_replied { EST } else { NEW }
    }

    /// Returns whether a translation of a packet is possible: another connection neither has the tuple of the replies,
    /// nor are the translated ends ambiguous. `replaced` is the connection that gives way.
    fn is_free(&self, mapping: &Mapping<u32>, replaced: Option<usize>) -> bool {
        let reply_tuple = mapping.reply_tuple().0;
        let is_exchanged = reply_tuple == mapping.tuple().0;
        let is_equal = mapping.query.is_none() && mapping.translated[0] == mapping.translated[1];
        let is_taken = self.position(&reply_tuple).is_some_and(|at| Some(at) != replaced);
        mapping.translated == mapping.original || !is_exchanged && !is_equal && !is_taken
    }
}

/// Returns all translations that a specification allows, apart from other source ports of destination NAT.
fn allowed(nat: &Nat<u32>, packet: &Packet<u32>) -> Vec<Mapping<u32>> {
    let original = packet.tuple.ends(packet.source);
    let untranslated = Mapping::of_tuples((packet.tuple, packet.source), (packet.tuple, packet.source));
    let is_udp = packet.content == Content::Udp;
    let [first, last] = match nat.target {
        Target::Source if packet.content == Content::Other => [0, 0],
        Target::Source => nat.ports.unwrap_or([original[0].port; 2]),
        Target::Destination if is_udp => nat.ports.unwrap_or([original[1].port; 2]),
        Target::Destination => [0, 0],
    };
    let ends = (nat.first_address..=nat.last_address)
        .flat_map(|address| (first..=last).map(move |port| End { address, port }));
    ends.map(|end| match nat.target {
        Target::Source => Mapping { translated: [end, original[1]], ..untranslated },
        Target::Destination => Mapping { translated: [original[0], end], ..untranslated },
    })
    .collect()
}

/// A random packet between few ends, which may also be translated ends.
fn any_packet() -> impl Strategy<Value = Packet<u32>> {
    let content = prop_oneof![
        6 => Just(Content::Udp),
        3 => any::<bool>().prop_map(|is_reply| Content::Query { is_reply }),
        1 => Just(Content::Other),
    ];
    let end = || (1..6_u32, 2000..2003_u16).prop_map(|(address, port)| End { address, port });
    (content, end(), end(), 0..5_u8).prop_map(|(content, from, to, error)| {
        let packet = packet(content, from, to);
        if error == 0 { error_about(&packet) } else { packet }
    })
}

fn any_nat() -> impl Strategy<Value = Nat<u32>> {
    let choice = prop::sample::select(vec![Choice::Keep, Choice::Random, Choice::Hashed]);
    let ports = prop::option::of((2000..2003_u16, 0..2_u16));
    (any::<bool>(), 1..6_u32, 0..2_u32, ports, choice, any::<bool>()).prop_map(
        |(is_source, first_address, more, ports, choice, is_persistent)| Nat {
            target: if is_source { Target::Source } else { Target::Destination },
            first_address,
            last_address: first_address + more,
            // A source without a range of ports has too many ports for a naive search.
            ports: ports.or(is_source.then_some((2001, 1))).map(|(first, more)| [first, first + more]),
            selection: Selection { choice, is_persistent },
        },
    )
}

/// Commits the connection of a packet, and compares the result with the naive tracker.
fn verify_commit(
    case: &mut Case,
    naive: &mut Naive,
    packet: &Packet<u32>,
    tracked: &mut Tracked,
    commit: &Commit<u32>,
    now: u64,
) {
    let replaced = naive.position(&packet.tuple);
    let state = tracked.state;
    let result = case.tracker.commit(&case.zones, packet, tracked, commit, case.now);
    if state.has(CtState::INVALID) {
        assert_eq!(result, Err(NotCommitted::Invalid));
        return;
    }
    let is_forced = commit.force && state.has(RPL) && packet.content != Content::Error;
    if replaced.is_some() && !is_forced {
        assert!(result.is_ok());
        return;
    }
    if matches!(packet.content, Content::Error | Content::Query { is_reply: true }) {
        assert_eq!(result, Err(NotCommitted::Invalid));
        return;
    }
    let choices = commit.nat.map(|nat| allowed(&nat, packet)).unwrap_or_default();
    let is_free = |mapping: &&Mapping<u32>| naive.is_free(mapping, replaced);
    let seconds = if packet.content == Content::Udp { 120 } else { 60 };
    let original = (packet.tuple, packet.source);
    let mut known = Known {
        original,
        translated: original,
        target: None,
        has_replied: false,
        expires: now + seconds * 1000,
    };
    match (&commit.nat, result) {
        (None, result) => assert!(result.is_ok(), "{result:?}"),
        (Some(nat), Ok(id)) => {
            let mapping = case.mapping(id);
            assert!(naive.is_free(&mapping, replaced), "{mapping:?}");
            // Destination NAT changes the source port only if no destination is free.
            let has_new_port =
                nat.target == Target::Destination && mapping.translated[0] != mapping.original[0];
            if has_new_port {
                assert!(choices.iter().find(is_free).is_none() && packet.content != Content::Other);
                let source = Mapping { translated: [mapping.original[0], mapping.translated[1]], ..mapping };
                assert!(choices.contains(&source), "{mapping:?}");
            } else {
                assert!(choices.contains(&mapping), "{mapping:?} of {choices:?}");
            }
            known.translated = mapping.reply_tuple();
            known.target = Some(nat.target);
        }
        (Some(nat), Err(NotCommitted::Refused(Refused::Nat(why)))) => {
            assert!(matches!(why, NotAllocated::Clash | NotAllocated::Exhausted), "{why:?}");
            assert!(choices.iter().find(is_free).is_none(), "{why:?} with {choices:?}");
            assert!(nat.target == Target::Source || packet.content == Content::Other);
            return;
        }
        (Some(_), result) => panic!("{result:?}"),
    }
    if let Some(at) = replaced {
        naive.0.remove(at);
    }
    naive.0.push(known);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The tracker agrees with the naive tracker. Both tuples of each connection lead to it, and no port is lost.
    #[test]
    fn the_tracker_agrees_with_the_naive_tracker(
        steps in prop::collection::vec(
            (any_packet(), prop::option::of((any::<bool>(), prop::option::of(any_nat()))), 0..30_000_u32),
            1..80,
        ),
    ) {
        let (mut case, mut naive) = (Case::new(), Naive::default());
        let start = case.now;
        let mut passed = 0_u64;
        for (packet, commit, ms) in steps {
            (case.now, passed) = (case.now.wrapping_add(ms), passed + u64::from(ms));
            let now = u64::from(start) + passed;
            case.tracker.table.sweep(case.now, u32::MAX);
            naive.0.retain(|known| known.expires > now);
            let (mut tracked, rewrite) = case.track(&packet);
            prop_assert_eq!(tracked.state, naive.track(&packet, now), "{:?}", packet);
            prop_assert_eq!(rewrite.is_some(), tracked.state.0 & (CtState::SNAT | CtState::DNAT).0 != 0);
            if let Some((force, nat)) = commit {
                let commit = Commit { force, nat, ..Commit::default() };
                verify_commit(&mut case, &mut naive, &packet, &mut tracked, &commit, now);
            }
            let table = &case.tracker.table;
            prop_assert_eq!(table.count() as usize, naive.0.len());
            let mut ports = 0;
            for known in &naive.0 {
                let id = table.find(&known.original.0, case.now);
                prop_assert!(id.is_some(), "{:?} is missing", known);
                prop_assert_eq!(table.find(&known.translated.0, case.now), id);
                let mapping = table.mapping(id.unwrap());
                let expected = known.target.map(|target| (Mapping::of_tuples(known.original, known.translated), target));
                prop_assert_eq!(mapping, expected);
                ports += u64::from(mapping.is_some_and(|(mapping, target)| {
                    target == Target::Source || mapping.has_new_source()
                }));
            }
            prop_assert_eq!(case.ports(), ports);
        }
        // Without connections, no port is in use.
        case.tracker.table.flush_zone(0, None, u32::MAX);
        prop_assert_eq!((case.tracker.table.count(), case.ports()), (0, 0));
    }
}
