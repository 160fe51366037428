//! Tests of helpers in a tracker: sessions of FTP and TFTP, and the end of expectations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::net::Ipv4Addr;

use conn::extension::Extension;
use conn::headers::{Content, Packet};
use conn::helper::expectation::{Expectation, Limits, NotExpected};
use conn::helper::ftp::NotRead;
use conn::helper::{self, Help, Helper, Refusal};
use conn::table::{EntryId, Sizes};
use conn::tcp::Segment;
use conn::track::{Commit, CtState, NotCommitted, Tracked, Tracker};
use conn::tuple::{Address, End, Tuple, TupleHash};
use conn::zone::Zones;
use packet::tcp::flags::{ACK, FIN, RST, SYN};

const NEW: CtState = CtState(CtState::TRACKED.0 | CtState::NEW.0);
const EST: CtState = CtState(CtState::TRACKED.0 | CtState::ESTABLISHED.0);
const REL: CtState = CtState::RELATED;
const RPL: CtState = CtState::REPLY;

/// A tracker beside its zones, with the next sequence number of each direction of each TCP connection.
struct Case<A> {
    tracker: Tracker<A>,
    zones: Zones,
    now: u32,
    next: HashMap<[End<A>; 2], u32>,
}

/// Result of a packet.
struct Sent<A> {
    packet: Packet<A>,
    tracked: Tracked,
    help: Result<Help<A>, Refusal>,
}

impl<A: Address> Case<A> {
    fn new(sizes: helper::Sizes) -> Case<A> {
        let mut tracker = Tracker::new(Sizes::of_entries(100), TupleHash::new());
        tracker.table.enable_helpers(sizes);
        Case { tracker, zones: Zones::new(), now: u32::MAX - 100_000, next: HashMap::new() }
    }

    /// Tracks a packet, and reads its payload. A packet with `commit` opens a connection that is committed.
    fn pass(&mut self, packet: Packet<A>, payload: &[u8], commit: Option<Commit<A>>) -> Sent<A> {
        let mut tracked = self.tracker.track(&self.zones, &packet, self.now);
        assert_eq!(tracked.invalid, None);
        if let Some(commit) = commit {
            self.tracker.commit(&self.zones, &packet, &mut tracked, &commit, self.now).unwrap();
        }
        let help = self.tracker.help(&packet, &tracked, payload, self.now);
        assert!(self.tracker.has_helper(&tracked) || help == Ok(Help::default()));
        assert_eq!(self.tracker.correction(&packet, &tracked), None);
        Sent { packet, tracked, help }
    }

    /// Returns a segment with the next sequence number of its sender.
    fn segment(&mut self, [from, to]: [End<A>; 2], flags: u16, payload: &[u8]) -> Packet<A> {
        let ack = self.next.get(&[to, from]).copied().unwrap_or_default();
        let seq = *self.next.entry([from, to]).or_insert(u32::MAX - 50);
        let payload = u32::try_from(payload.len()).unwrap();
        let advance = payload + u32::from(flags & (SYN | FIN) != 0);
        self.next.insert([from, to], seq.wrapping_add(advance));
        let segment = Segment { seq, ack, flags, window: 60_000, payload, scale: None };
        let (tuple, source) = Tuple::of_ends(0, 6, from, to);
        Packet { tuple, source, content: Content::Tcp(segment) }
    }

    fn send(&mut self, ends: [End<A>; 2], flags: u16, payload: &str) -> Sent<A> {
        let packet = self.segment(ends, flags, payload.as_bytes());
        self.pass(packet, payload.as_bytes(), None)
    }

    /// Opens a TCP connection, and returns the states of the three segments.
    fn open(&mut self, [from, to]: [End<A>; 2], commit: Commit<A>) -> [CtState; 3] {
        self.next.retain(|ends, _| *ends != [from, to] && *ends != [to, from]);
        let syn = self.segment([from, to], SYN, b"");
        let before = self.tracker.track(&self.zones, &syn, self.now).state;
        let committed = self.pass(syn, b"", Some(commit)).tracked.state;
        assert_eq!(before, committed);
        [
            committed,
            self.send([to, from], SYN | ACK, "").tracked.state,
            self.send([from, to], ACK, "").tracked.state,
        ]
    }

    /// Opens a control connection of FTP to the point where commands are read.
    fn control(&mut self, [client, server]: [End<A>; 2], commit: Commit<A>) -> EntryId {
        let commit = Commit { helper: Some(Helper::Ftp), ..commit };
        assert_eq!(self.open([client, server], commit), [NEW, EST | RPL, EST]);
        assert_eq!(self.send([server, client], ACK, "220 ready\r\n").help, Ok(Help::default()));
        let sent = self.send([client, server], ACK, "USER a\r\n");
        assert_eq!((sent.help, sent.tracked.state), (Ok(Help::default()), EST));
        sent.tracked.id.unwrap()
    }

    /// Returns the state of a TCP connection's first segment, which is not committed.
    fn first(&mut self, ends: [End<A>; 2]) -> CtState {
        let known = self.next.clone();
        let syn = self.segment(ends, SYN, b"");
        self.next = known;
        self.tracker.track(&self.zones, &syn, self.now).state
    }

    fn expectations(&self) -> Vec<Expectation<A>> {
        self.tracker.table.helpers().unwrap().expectations.iter(self.now).copied().collect()
    }
}

fn end<A>(address: A, port: u16) -> End<A> {
    End { address, port }
}

fn case() -> Case<u32> {
    Case::new(helper::Sizes::default())
}

const CLIENT: u32 = Ipv4Addr::new(10, 0, 0, 1).to_bits();
const SERVER: u32 = Ipv4Addr::new(192, 0, 2, 9).to_bits();
const CONTROL: [End<u32>; 2] = [End { address: CLIENT, port: 3000 }, End { address: SERVER, port: 21 }];
const BACK: [End<u32>; 2] = [CONTROL[1], CONTROL[0]];
const MARK: Commit<u32> = Commit {
    force: false,
    mark: Some((0x77, u32::MAX)),
    label: Some((0x88, u128::MAX)),
    nat: None,
    helper: None,
};

/// Active mode: the server opens the data connection.
#[test]
fn all_packets_of_an_active_data_connection_are_related() {
    let mut case = case();
    let parent = case.control(CONTROL, MARK);
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    assert_eq!(case.first(data), NEW);
    let sent = case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n");
    assert_eq!((sent.tracked.state, sent.tracked.id), (EST, Some(parent)));
    let help = sent.help.unwrap();
    assert_eq!(help.replacement, None);
    let expected = help.expectation.unwrap();
    assert_eq!((expected.source, expected.destination, expected.nat), (SERVER, data[1], None));
    assert_eq!(case.send(BACK, ACK, "200 PORT command successful\r\n").tracked.state, EST | RPL);
    assert_eq!(case.send(CONTROL, ACK, "RETR file\r\n").tracked.state, EST);
    // The opposite direction, another port and another host are not expected.
    let others = [[data[1], data[0]], [data[0], end(CLIENT, 0x1388)], [end(SERVER + 1, 20), data[1]]];
    assert_eq!(others.map(|ends| case.first(ends)), [NEW; 3]);
    assert_eq!(case.first(data), NEW | REL);
    let states = case.open(data, Commit { mark: Some((0xf00, 0xf00)), ..Commit::default() });
    assert_eq!(states, [NEW | REL, EST | RPL | REL, EST | REL]);
    assert_eq!(case.send(data, ACK, "content").tracked.state, EST | REL);
    let sent = case.send([data[1], data[0]], ACK, "");
    assert_eq!(sent.tracked.state, EST | RPL | REL);
    // A challenge ACK and an ICMP error.
    assert_eq!(case.first(data), EST | REL);
    let error = Packet { content: Content::Error, ..sent.packet };
    assert_eq!(case.tracker.track(&case.zones, &error, case.now).state, CtState::TRACKED | REL | RPL);
    // The data connection inherits the mark and the label, and its own commit changes the mark.
    let extension = |id| case.tracker.table.extension(id);
    assert_eq!(extension(sent.tracked.id.unwrap()), Extension { mark: 0xf77, label: 0x88 });
    assert_eq!(extension(parent), Extension { mark: 0x77, label: 0x88 });
    assert_eq!(case.send(data, FIN | ACK, "").tracked.state, EST | REL);
    // Packets of the control connection are not related.
    assert_eq!(case.send(BACK, ACK, "226 done\r\n").tracked.state, EST | RPL);
    // The expectation was for one connection.
    assert_eq!((case.expectations().len(), case.first([end(SERVER, 21), data[1]])), (0, NEW));
}

/// Passive mode: the client opens the data connection.
#[test]
fn all_packets_of_a_passive_data_connection_are_related() {
    let mut case = case();
    case.control(CONTROL, MARK);
    for (request, reply, port) in [
        ("PASV\r\n", "227 Entering Passive Mode (192,0,2,9,19,137)\r\n", 0x1389),
        ("EPSV\r\n", "229 Entering Extended Passive Mode (|||40000|)\r\n", 40_000),
    ] {
        assert_eq!(case.send(CONTROL, ACK, request).help, Ok(Help::default()));
        let data = [end(CLIENT, 3333), end(SERVER, port)];
        assert_eq!(case.first(data), NEW);
        let help = case.send(BACK, ACK, reply).help.unwrap();
        assert_eq!(help.expectation.unwrap().destination, data[1]);
        assert_eq!(case.open(data, Commit::default()), [NEW | REL, EST | RPL | REL, EST | REL]);
        assert_eq!(case.send([data[1], data[0]], ACK, "content").tracked.state, EST | RPL | REL);
        let sent = case.send(data, RST | ACK, "");
        assert_eq!(sent.tracked.state, EST | REL);
        let extension = case.tracker.table.extension(sent.tracked.id.unwrap());
        assert_eq!(extension, Extension { mark: 0x77, label: 0x88 });
    }
}

#[test]
fn sessions_of_ipv6_are_related() {
    let mut case = Case::<u128>::new(helper::Sizes::default());
    let (client, server) = (0x2001_0db8_u128 << 96 | 1, 0x2001_0db8_u128 << 96 | 2);
    let control = [end(client, 3000), end(server, 21)];
    let back = [control[1], control[0]];
    case.control(control, Commit::default());
    for line in ["PORT 10,0,0,1,19,137\r\n", "EPRT |1|10.0.0.1|5000|\r\n"] {
        assert_eq!(case.send(control, ACK, line).help, Err(Refusal::Line(NotRead::Family)));
    }
    case.send(control, ACK, "EPRT |2|2001:db8::1|5000|\r\n").help.unwrap();
    let data = [end(server, 20), end(client, 5000)];
    assert_eq!(case.open(data, Commit::default()), [NEW | REL, EST | RPL | REL, EST | REL]);
    case.send(back, ACK, "229 Passive (|||6000|)\r\n").help.unwrap();
    let data = [end(client, 3001), end(server, 6000)];
    assert_eq!(case.open(data, Commit::default()), [NEW | REL, EST | RPL | REL, EST | REL]);
    assert!(case.expectations().is_empty());
}

/// Without `alg=`, port 21 has no meaning. With `alg=`, the port of the server may have any value.
#[test]
fn only_a_commit_assigns_a_helper() {
    let mut case = case();
    for helper in [None, Some(Helper::Tftp)] {
        case.open(CONTROL, Commit { helper, ..MARK });
        case.send(CONTROL, ACK, "USER a\r\n");
        case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n");
        assert_eq!((case.expectations().len(), case.tracker.table.helpers().unwrap().connections()), (0, 0));
        let id = case.send(CONTROL, RST | ACK, "").tracked.id.unwrap();
        case.tracker.table.remove(id);
    }
    let control = [end(CLIENT, 3000), end(SERVER, 2121)];
    let id = case.control(control, MARK);
    case.send(control, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    assert_eq!(case.expectations().len(), 1);
    let helpers = case.tracker.table.helpers().unwrap();
    assert_eq!((helpers.helper(id), helpers.connections()), (Some(Helper::Ftp), 1));
    // A table without helpers refuses the commit.
    let mut tracker = Tracker::<u32>::new(Sizes::of_entries(9), TupleHash::new());
    let packet = case.segment(CONTROL, SYN, b"");
    let mut tracked = tracker.track(&case.zones, &packet, 0);
    let commit = Commit { helper: Some(Helper::Ftp), ..MARK };
    let refused = tracker.commit(&case.zones, &packet, &mut tracked, &commit, 0);
    assert_eq!((refused, tracker.table.count()), (Err(NotCommitted::NoHelper), 0));
}

/// RFC 2577: a client does not direct the server to another host, nor to a port of a service.
#[test]
fn foreign_addresses_and_low_ports_are_refused() {
    let mut case = case();
    case.control(CONTROL, Commit::default());
    let foreign = Err(Refusal::ForeignAddress);
    assert_eq!(case.send(CONTROL, ACK, "PORT 10,0,0,2,19,137\r\n").help, foreign);
    assert_eq!(case.send(CONTROL, ACK, "EPRT |1|192.0.2.9|5000|\r\n").help, foreign);
    assert_eq!(case.send(BACK, ACK, "227 (10,0,0,1,19,137)\r\n").help, foreign);
    assert_eq!(case.send(CONTROL, ACK, "PORT 10,0,0,1,3,255\r\n").help, Err(Refusal::LowPort));
    assert_eq!(case.send(BACK, ACK, "229 (|||1023|)\r\n").help, Err(Refusal::LowPort));
    let malformed = Err(Refusal::Line(NotRead::Malformed));
    assert_eq!(case.send(CONTROL, ACK, "PORT 10,0,0,1,256,1\r\n").help, malformed);
    let incomplete = Err(Refusal::Line(NotRead::Incomplete));
    assert_eq!(case.send(CONTROL, ACK, "PORT 10,0,0,1,4").help, incomplete);
    assert!(case.expectations().is_empty());
    // The control connection goes on.
    assert_eq!(case.send(CONTROL, ACK, ",1\r\n").tracked.state, EST);
    let helpers = case.tracker.table.helpers_mut().unwrap();
    helpers.options = helper::Options { any_address: true, lowest_port: 20 };
    case.send(CONTROL, ACK, "PORT 10,0,0,2,0,20\r\n").help.unwrap();
    assert_eq!(case.first([end(SERVER, 20), end(CLIENT + 1, 20)]), NEW | REL);
    assert_eq!(case.send(CONTROL, ACK, "PORT 10,0,0,1,0,19\r\n").help, Err(Refusal::LowPort));
}

/// A peer that controls a part of a line, but not its start, announces nothing (NAT slipstreaming).
#[test]
fn a_command_within_a_line_is_not_read() {
    let mut case = case();
    case.control(CONTROL, Commit::default());
    let command = "PORT 10,0,0,1,19,137\r\n";
    case.send(CONTROL, ACK, "STOR a-name-that-fills-a-segment-and-ends-with-");
    assert_eq!(case.send(CONTROL, ACK, command).help, Ok(Help::default()));
    assert!(case.expectations().is_empty());
    // A second line of a segment.
    assert_eq!(case.send(CONTROL, ACK, &format!("NOOP\r\n{command}")).help, Ok(Help::default()));
    // The other direction.
    assert_eq!(case.send(BACK, ACK, command).help, Ok(Help::default()));
    assert_eq!(case.send(CONTROL, ACK, "227 (10,0,0,1,19,137)\r\n").help, Ok(Help::default()));
    assert!(case.expectations().is_empty());
    // Segments may arrive out of order: the starts of the last two lines are known.
    let [first, second] = ["NOOP\r\n", command].map(|line| case.segment(CONTROL, ACK, line.as_bytes()));
    assert_eq!(case.pass(second, command.as_bytes(), None).help, Ok(Help::default()));
    case.pass(first, b"NOOP\r\n", None).help.unwrap();
    assert!(case.pass(second, command.as_bytes(), None).help.unwrap().expectation.is_some());
    // A repetition announces nothing, also after the data connection was opened.
    case.open([end(SERVER, 20), end(CLIENT, 0x1389)], Commit::default());
    assert_eq!(case.pass(second, command.as_bytes(), None).help, Ok(Help::default()));
    assert!(case.expectations().is_empty());
}

/// The first segment of a connection is not read, because the start of its line was not seen.
#[test]
fn the_first_segment_of_a_direction_is_not_read() {
    let mut case = case();
    case.open(CONTROL, Commit { helper: Some(Helper::Ftp), ..MARK });
    let command = "PORT 10,0,0,1,19,137\r\n";
    assert_eq!(case.send(CONTROL, ACK, command).help, Ok(Help::default()));
    assert!(case.send(CONTROL, ACK, command).help.unwrap().expectation.is_some());
}

#[test]
fn an_expectation_ends_with_its_time_out() {
    let mut case = case();
    case.control(CONTROL, Commit::default());
    case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    case.now = case.now.wrapping_add(299_999);
    assert_eq!(case.first(data), NEW | REL);
    case.now = case.now.wrapping_add(1);
    assert_eq!(case.first(data), NEW);
    // A packet that was related when the packet was tracked is new when the expectation has ended before the commit.
    let mut tracked = Tracked { state: NEW | REL, ..Tracked::default() };
    let packet = case.segment(data, SYN, b"");
    case.tracker.commit(&case.zones, &packet, &mut tracked, &MARK, case.now).unwrap();
    assert_eq!(tracked.state, NEW);
    case.tracker.table.sweep(case.now, 10);
    assert_eq!(case.tracker.table.helpers().unwrap().expectations.count(), 0);
}

/// Every end of the parent ends its expectations.
#[test]
fn an_expectation_ends_with_its_parent() {
    let ends: [fn(&mut Case<u32>, EntryId); 5] = [
        |case, id| case.tracker.table.remove(id),
        |case, _| assert_eq!(case.tracker.table.flush_zone(0, None, u32::MAX), None),
        |case, id| {
            // The parent has expired, and no sweep has removed the parent.
            case.tracker.table.set_expires(id, case.now);
        },
        |case, id| {
            case.tracker.table.set_expires(id, case.now);
            assert_eq!(case.tracker.table.sweep(case.now, 10), 1);
        },
        |case, _| {
            // The client uses the port of the control connection again.
            case.send(BACK, RST | ACK, "");
            assert_eq!(case.open(CONTROL, Commit::default()), [NEW, EST | RPL, EST]);
        },
    ];
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    for (number, end) in ends.into_iter().enumerate() {
        let mut case = case();
        let id = case.control(CONTROL, Commit::default());
        case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
        assert_eq!(case.first(data), NEW | REL);
        end(&mut case, id);
        assert_eq!(case.first(data), NEW, "{number}");
        let helpers = case.tracker.table.helpers().unwrap();
        let is_swept = number != 2;
        assert_eq!((helpers.connections() == 0, helpers.expectations.count() == 0), (is_swept, is_swept));
    }
}

/// The end of the parent does not end the data connection, which stays related.
#[test]
fn a_data_connection_outlives_its_parent() {
    let mut case = case();
    let parent = case.control(CONTROL, MARK);
    case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    case.open(data, Commit::default());
    case.tracker.table.remove(parent);
    assert_eq!(case.send(data, ACK, "content").tracked.state, EST | REL);
}

#[test]
fn a_full_table_of_expectations_refuses_and_the_parent_survives() {
    let limits = Limits { expectations: 1, ..Limits::default() };
    let mut case = Case::<u32>::new(helper::Sizes { connections: 2, limits });
    let first = case.control(CONTROL, Commit::default());
    let other = [end(CLIENT, 3001), CONTROL[1]];
    let second = case.control(other, Commit::default());
    case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    let sent = case.send(other, ACK, "PORT 10,0,0,1,20,1\r\n");
    let full = Refusal::NotExpected(NotExpected::Full);
    assert_eq!((sent.help, sent.tracked.state, sent.tracked.id), (Err(full), EST, Some(second)));
    assert_eq!(full.to_string(), "the table of expected connections is full");
    // Two sessions of one pair of hosts announce one port.
    let sent = case.send(other, ACK, "PORT 10,0,0,1,19,137\r\n");
    let exists = Refusal::NotExpected(NotExpected::Exists(case.tracker.table.parent(first)));
    assert_eq!(sent.help, Err(exists));
    assert_eq!(case.expectations().len(), 1);
    // A further connection with a helper is refused, and one without a helper is not.
    let third = [end(CLIENT, 3002), CONTROL[1]];
    let packet = case.segment(third, SYN, b"");
    let mut tracked = case.tracker.track(&case.zones, &packet, case.now);
    let commit = Commit { helper: Some(Helper::Ftp), ..MARK };
    let refused = case.tracker.commit(&case.zones, &packet, &mut tracked, &commit, case.now);
    assert_eq!((refused, tracked.id), (Err(NotCommitted::NoHelper), None));
    assert!(case.tracker.commit(&case.zones, &packet, &mut tracked, &MARK, case.now).is_ok());
    // The end of a session gives its places.
    case.tracker.table.remove(first);
    case.send(other, ACK, "PORT 10,0,0,1,20,1\r\n").help.unwrap();
    case.control([end(CLIENT, 3003), CONTROL[1]], Commit::default());
}

/// The marks of connections with a helper change without a change of the helper.
#[test]
fn a_mark_keeps_the_helper_and_the_relation() {
    let mut case = case();
    let parent = case.control(CONTROL, Commit::default());
    for mark in [5, 0, 6] {
        case.tracker.table.set_extension(parent, Extension { mark, label: 0 }).unwrap();
        assert!(case.tracker.table.get(parent).unwrap().has_helper());
    }
    case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    case.open(data, Commit::default());
    let id = case.send(data, ACK, "").tracked.id.unwrap();
    assert_eq!(case.tracker.table.extension(id).mark, 6);
    for mark in [0, 7] {
        case.tracker.table.set_extension(id, Extension { mark, label: 9 }).unwrap();
        case.tracker.table.set_extension(id, Extension { mark, label: 0 }).unwrap();
        assert_eq!(
            (case.send(data, ACK, "").tracked.state, case.tracker.table.extension(id).mark),
            (EST | REL, mark)
        );
    }
}

/// The data connection belongs to another worker than its parent.
#[test]
fn another_worker_gets_the_expectation() {
    let (mut case, mut other) = (case(), case());
    other.tracker.table.set_worker(1, 2);
    let id = case.control(CONTROL, MARK);
    let help = case.send(CONTROL, ACK, "PORT 10,0,0,1,19,137\r\n").help.unwrap();
    let expected = help.expectation.unwrap();
    let expectations = &mut other.tracker.table.helpers_mut().unwrap().expectations;
    expectations.expect(&expected, case.now).unwrap();
    let data = [end(SERVER, 20), end(CLIENT, 0x1389)];
    assert_eq!(other.first(data), NEW | REL);
    assert_eq!(other.open(data, Commit::default()), [NEW | REL, EST | RPL | REL, EST | REL]);
    let id_of_data = other.send(data, ACK, "").tracked.id.unwrap();
    assert_eq!(other.tracker.table.extension(id_of_data), Extension { mark: 0x77, label: 0x88 });
    let expectations = &mut other.tracker.table.helpers_mut().unwrap().expectations;
    expectations.expect(&expected, case.now).unwrap();
    assert_eq!(expectations.remove_of(case.tracker.table.parent(id)), 1);
}

fn datagram(from: End<u32>, to: End<u32>) -> Packet<u32> {
    let (tuple, source) = Tuple::of_ends(0, 17, from, to);
    Packet { tuple, source, content: Content::Udp }
}

#[test]
fn the_answers_of_a_tftp_server_are_related() {
    let mut case = case();
    let (client, server) = (end(CLIENT, 777), end(SERVER, 69));
    let commit = Commit { helper: Some(Helper::Tftp), ..MARK };
    let track =
        |case: &mut Case<u32>, from, to| case.tracker.track(&case.zones, &datagram(from, to), case.now).state;
    let answers = |port| (end(SERVER, port), client);
    for (request, port) in [(&b"\0\x01file\0octet\0"[..], 1500), (b"\0\x02file\0netascii\0", 1501)] {
        let (from, to) = answers(port);
        assert_eq!(track(&mut case, from, to), NEW);
        // The request opens the connection, or is a further request of the connection.
        let sent = case.pass(datagram(client, server), request, Some(commit));
        assert!(sent.help.unwrap().expectation.is_some());
        assert_eq!(track(&mut case, to, from), NEW);
        assert_eq!(track(&mut case, from, to), NEW | REL);
        let sent = case.pass(datagram(from, to), b"\0\x03\0\x01data", Some(Commit::default()));
        assert_eq!(sent.tracked.state, NEW | REL);
        assert_eq!(track(&mut case, to, from), EST | RPL | REL);
        assert_eq!(track(&mut case, from, to), EST | REL);
        assert_eq!(case.tracker.table.extension(sent.tracked.id.unwrap()).mark, 0x77);
        assert!(case.expectations().is_empty());
    }
    // Neither a request of the server nor other datagrams announce a connection.
    let sent = case.pass(datagram(server, client), b"\0\x01file\0octet\0", None);
    assert_eq!(sent.help, Ok(Help::default()));
    for payload in [&b""[..], b"\0\x05\0\x01error\0", b"\0\x01file", b"PORT 10,0,0,1,19,137\r\n"] {
        assert_eq!(case.pass(datagram(client, server), payload, None).help, Ok(Help::default()));
    }
    assert!(case.expectations().is_empty());
}
