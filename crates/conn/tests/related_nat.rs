//! Tests of helpers of translated connections: whole sessions of FTP between two hosts, octet by octet, with checksums,
//! changed payloads and corrected sequence numbers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;

use conn::headers::Packet;
use conn::helper::expectation::{Limits, NotExpected};
use conn::helper::ftp::{Announcement, Replacement, read_command};
use conn::helper::replace::{replace_ipv4, replace_ipv6};
use conn::helper::{self, Helper, Refusal};
use conn::nat::spec::{Nat, Target};
use conn::nat::translate::{Checksum, translate_ipv4};
use conn::table::Sizes;
use conn::track::{Commit, CtState, Tracker};
use conn::tuple::{End, TupleHash};
use conn::zone::Zones;
use packet::checksum::{fill, fold};
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::tcp::Tcp;
use packet::tcp::flags::{ACK, SYN};
use packet::udp::Udp;

const NEW: CtState = CtState(CtState::TRACKED.0 | CtState::NEW.0);
const EST: CtState = CtState(CtState::TRACKED.0 | CtState::ESTABLISHED.0);
const REL: CtState = CtState::RELATED;
const RPL: CtState = CtState::REPLY;
const SNAT: CtState = CtState::SNAT;
const DNAT: CtState = CtState::DNAT;

const CLIENT: u32 = Ipv4Addr::new(10, 0, 0, 1).to_bits();
const PUBLIC: u32 = Ipv4Addr::new(198, 51, 100, 100).to_bits();
const SERVER: u32 = Ipv4Addr::new(192, 0, 2, 9).to_bits();
const VIRTUAL: u32 = Ipv4Addr::new(203, 0, 113, 7).to_bits();

fn end(address: u32, port: u16) -> End<u32> {
    End { address, port }
}

/// Returns an IPv4 packet with a header of TCP or UDP without checksum, and with all checksums.
fn ipv4(from: u32, to: u32, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + upper.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    fill(&mut packet, 10, 0);
    packet.extend(upper);
    let pseudo = Ipv4::parse(&packet).unwrap().pseudo_sum();
    fill(&mut packet[20..], if protocol == 6 { 16 } else { 6 }, pseudo);
    packet
}

/// One end of a TCP connection, as its host knows the connection.
struct Peer {
    local: End<u32>,
    remote: End<u32>,
    next: u32,
    expected: u32,
}

impl Peer {
    fn new(local: End<u32>, remote: End<u32>, next: u32) -> Peer {
        Peer { local, remote, next, expected: 0 }
    }

    /// Returns a segment with options.
    fn segment(&mut self, flags: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut tcp = [self.local.port.to_be_bytes(), self.remote.port.to_be_bytes()].concat();
        tcp.extend(self.next.to_be_bytes());
        tcp.extend(self.expected.to_be_bytes());
        tcp.extend([
            u8::try_from(20 + options.len()).unwrap() << 2,
            flags.to_be_bytes()[1],
            0xf0,
            0,
            0,
            0,
            0,
            0,
        ]);
        tcp.extend(options);
        tcp.extend(payload);
        let advance = u32::try_from(payload.len()).unwrap() + u32::from(flags & SYN != 0);
        self.next = self.next.wrapping_add(advance);
        ipv4(self.local.address, self.remote.address, 6, &tcp)
    }

    fn send(&mut self, flags: u16, payload: &str) -> Vec<u8> {
        self.segment(flags, &[], payload.as_bytes())
    }

    /// Returns the payload of a segment, which continues the stream, and which acknowledges all that the peer has sent.
    fn receive(&mut self, packet: &[u8]) -> String {
        let ip = Ipv4::parse(packet).unwrap();
        let tcp = Tcp::parse(ip.payload()).unwrap();
        assert!(ip.checksum_ok() && tcp.checksum_ok(ip.pseudo_sum()));
        assert_eq!(packet.len(), usize::from(ip.total_len()));
        let ends = [end(ip.src().to_bits(), tcp.src_port()), end(ip.dst().to_bits(), tcp.dst_port())];
        if tcp.flags() & SYN != 0 {
            self.expected = tcp.seq();
        }
        assert_eq!(ends, [self.remote, self.local]);
        assert_eq!(tcp.seq(), self.expected);
        assert!(tcp.flags() & ACK == 0 || tcp.ack() == self.next, "{} {}", tcp.ack(), self.next);
        let advance = u32::try_from(tcp.payload().len()).unwrap() + u32::from(tcp.flags() & SYN != 0);
        self.expected = self.expected.wrapping_add(advance);
        String::from_utf8(tcp.payload().to_vec()).unwrap()
    }
}

/// The tracker between the hosts.
struct Middle {
    tracker: Tracker<u32>,
    zones: Zones,
    /// Options of the commit of control connections. Data connections are committed without options.
    control: Commit<u32>,
    /// Result of the helper for the last packet.
    help: Result<helper::Help<u32>, Refusal>,
}

impl Middle {
    fn new(nat: Nat<u32>) -> Middle {
        let sizes = Sizes { translations: 100, ..Sizes::of_entries(100) };
        let mut tracker = Tracker::new(sizes, TupleHash::new());
        tracker.table.enable_helpers(helper::Sizes { connections: 10, limits: Limits::default() });
        let control = Commit { nat: Some(nat), helper: Some(Helper::Ftp), ..Commit::default() };
        Middle { tracker, zones: Zones::new(), control, help: Ok(helper::Help::default()) }
    }

    /// Passes a packet from one host to the other, and returns the packet as sent with its state.
    fn pass(&mut self, mut bytes: Vec<u8>) -> (Vec<u8>, CtState) {
        let packet = Packet::of_ipv4(&Ipv4::parse(&bytes).unwrap(), 0).unwrap();
        let mut tracked = self.tracker.track(&self.zones, &packet, 0);
        assert_eq!(tracked.invalid, None);
        if tracked.id.is_none() {
            let is_control = !tracked.state.has(REL);
            let commit = if is_control { self.control } else { Commit::default() };
            self.tracker.commit(&self.zones, &packet, &mut tracked, &commit, 0).unwrap();
        }
        let correction = self.tracker.correction(&packet, &tracked);
        let upper = Ipv4::parse(&bytes).unwrap();
        let payload = match upper.proto() {
            6 => Tcp::parse(upper.payload()).unwrap().payload(),
            _ => &upper.payload()[8..],
        };
        self.help = self.tracker.help(&packet, &tracked, payload, 0);
        if let Ok(help) = &self.help
            && let Some(replacement) = &help.replacement
        {
            let len = bytes.len();
            bytes.resize(len + 64, 0xee);
            let difference = replace_ipv4(&mut bytes, replacement, Checksum::Complete).unwrap();
            bytes.truncate(len.checked_add_signed(difference.try_into().unwrap()).unwrap());
            self.tracker.change_length(&packet, &tracked, difference);
        }
        if let Some(correction) = correction {
            correction.apply(&mut bytes[20..], Checksum::Complete);
        }
        if let Some(rewrite) = self.tracker.translate(&packet, &mut tracked) {
            translate_ipv4(&mut bytes, &rewrite, Checksum::Complete).unwrap();
        }
        (bytes, tracked.state)
    }

    /// Passes a segment from one peer to the other, and returns the payload as received with the state.
    fn deliver(&mut self, from: &mut Peer, to: &mut Peer, flags: u16, payload: &str) -> (String, CtState) {
        let (bytes, state) = self.pass(from.send(flags, payload));
        (to.receive(&bytes), state)
    }

    /// Opens a connection from one peer to the other, and returns the states of the three segments.
    fn open(&mut self, from: &mut Peer, to: &mut Peer) -> [CtState; 3] {
        let (_, a) = self.deliver(from, to, SYN, "");
        let (_, b) = self.deliver(to, from, SYN | ACK, "");
        let (_, c) = self.deliver(from, to, ACK, "");
        [a, b, c]
    }

    /// Opens a control connection to the point where commands are read.
    fn control(&mut self, client: &mut Peer, server: &mut Peer) {
        self.open(client, server);
        self.deliver(server, client, ACK, "220 ready\r\n");
        self.deliver(client, server, ACK, "USER a\r\n");
    }
}

/// Source NAT of clients to one address.
fn masquerade() -> Middle {
    Middle::new(Nat {
        first_address: PUBLIC,
        last_address: PUBLIC,
        ports: Some([40_000, 40_009]),
        ..Nat::default()
    })
}

/// Destination NAT of a virtual address to a server.
fn virtual_server() -> Middle {
    let target = Target::Destination;
    Middle::new(Nat { target, first_address: SERVER, last_address: SERVER, ..Nat::default() })
}

/// Returns the two ends of an FTP control connection, whose client is behind source NAT. `port` is the client's own
/// port, and the server sees `translated` instead.
fn behind_nat(client: u32, port: u16, translated: u16) -> [Peer; 2] {
    let (server, public) = (end(SERVER, 21), end(PUBLIC, translated));
    [Peer::new(end(client, port), server, u32::MAX - 30), Peer::new(server, public, 7000)]
}

#[test]
fn active_sessions_behind_source_nat_work_octet_by_octet() {
    let mut middle = masquerade();
    // The port is in the range, so it is kept.
    let [mut client, mut server] = behind_nat(CLIENT, 40_003, 40_003);
    middle.control(&mut client, &mut server);
    for (number, (line, changed, port)) in [
        ("PORT 10,0,0,1,19,137\r\n", "PORT 198,51,100,100,19,137\r\n", 0x1389),
        ("EPRT |1|10.0.0.1|5002|\r\n", "EPRT |1|198.51.100.100|5002|\r\n", 5002),
        ("port 010,000,000,001,019,139\r\nNOOP\r\n", "port 198,51,100,100,19,139\r\nNOOP\r\n", 0x138b),
        // A client that knows the public address.
        ("PORT 198,51,100,100,19,140\r\n", "PORT 198,51,100,100,19,140\r\n", 0x138c),
    ]
    .into_iter()
    .enumerate()
    {
        let sent = client.send(ACK, line);
        let (bytes, state) = middle.pass(sent.clone());
        assert_eq!((server.receive(&bytes), state), (changed.into(), EST | SNAT));
        // The client repeats the line, because the acknowledgement was lost.
        let repeated = middle.pass(sent.clone());
        assert_eq!(repeated, (bytes, EST | SNAT));
        assert!(middle.help.as_ref().unwrap().expectation.is_none());
        assert_eq!(middle.deliver(&mut server, &mut client, ACK, "200 OK\r\n").1, EST | RPL | DNAT);
        let lines =
            [(true, "RETR file\r\n"), (false, "150 file\r\n"), (true, "NOOP\r\n"), (false, "200 OK\r\n")];
        for (is_command, line) in lines {
            let (from, to) = if is_command { (&mut client, &mut server) } else { (&mut server, &mut client) };
            assert_eq!(middle.deliver(from, to, ACK, line).0, line);
        }
        let mut to = Peer::new(end(CLIENT, port), end(SERVER, 20), 900);
        let mut from = Peer::new(end(SERVER, 20), end(PUBLIC, port), 100);
        assert_eq!(
            middle.open(&mut from, &mut to),
            [NEW | REL | DNAT, EST | RPL | REL | SNAT, EST | REL | DNAT]
        );
        assert_eq!(
            middle.deliver(&mut from, &mut to, ACK, "PORT 10,0,0,1,1,1\r\n").0,
            "PORT 10,0,0,1,1,1\r\n"
        );
        // A repetition of the line after the end of the expectation has the same octets.
        assert_eq!(middle.pass(sent).0.len(), 40 + changed.len());
        assert_eq!(middle.tracker.table.helpers().unwrap().expectations.count(), 0, "{number}");
    }
    // SACK blocks of the server mean octets of the client.
    let numbers = [client.next, client.next.wrapping_add(5)];
    let edges = numbers.map(|number| number.wrapping_add(server.expected.wrapping_sub(client.next)));
    let options = [&[1, 1, 5, 10][..], &edges[0].to_be_bytes(), &edges[1].to_be_bytes()].concat();
    let (bytes, _) = middle.pass(server.segment(ACK, &options, b""));
    assert_eq!(bytes[44..52], numbers.map(u32::to_be_bytes).concat());
    client.receive(&bytes);
}

#[test]
fn passive_sessions_behind_source_nat_have_the_public_address() {
    let mut middle = masquerade();
    let [mut client, mut server] = behind_nat(CLIENT, 40_003, 40_003);
    middle.control(&mut client, &mut server);
    for (line, port) in [("227 Passive (192,0,2,9,19,137).\r\n", 0x1389), ("229 (|||6000|)\r\n", 6000)] {
        assert_eq!(middle.deliver(&mut server, &mut client, ACK, line).0, line);
        let mut from = Peer::new(end(CLIENT, 3333), end(SERVER, port), 100);
        let mut to = Peer::new(end(SERVER, port), end(PUBLIC, 3333), 900);
        assert_eq!(
            middle.open(&mut from, &mut to),
            [NEW | REL | SNAT, EST | RPL | REL | DNAT, EST | REL | SNAT]
        );
    }
}

#[test]
fn passive_sessions_to_a_virtual_address_work_octet_by_octet() {
    let mut middle = virtual_server();
    let mut client = Peer::new(end(CLIENT, 3000), end(VIRTUAL, 21), 1);
    let mut server = Peer::new(end(SERVER, 21), end(CLIENT, 3000), u32::MAX);
    middle.control(&mut client, &mut server);
    for (line, changed, port) in [
        ("227 (192,0,2,9,19,137) x\r\n", "227 (203,0,113,7,19,137) x\r\n", 0x1389),
        ("229 (|||6000|)\r\n", "229 (|||6000|)\r\n", 6000),
        ("227 =203,0,113,7,19,138\r\n", "227 =203,0,113,7,19,138\r\n", 0x138a),
    ] {
        assert_eq!(middle.deliver(&mut server, &mut client, ACK, line), (changed.into(), EST | RPL | SNAT));
        assert_eq!(middle.deliver(&mut client, &mut server, ACK, "RETR file\r\n").0, "RETR file\r\n");
        assert_eq!(middle.deliver(&mut server, &mut client, ACK, "150 file\r\n").0, "150 file\r\n");
        let mut from = Peer::new(end(CLIENT, 3333), end(VIRTUAL, port), 100);
        let mut to = Peer::new(end(SERVER, port), end(CLIENT, 3333), 900);
        assert_eq!(
            middle.open(&mut from, &mut to),
            [NEW | REL | DNAT, EST | RPL | REL | SNAT, EST | REL | DNAT]
        );
    }
}

#[test]
fn active_sessions_of_a_virtual_address_have_the_virtual_source() {
    let mut middle = virtual_server();
    let mut client = Peer::new(end(CLIENT, 3000), end(VIRTUAL, 21), 1);
    let mut server = Peer::new(end(SERVER, 21), end(CLIENT, 3000), 7000);
    middle.control(&mut client, &mut server);
    let line = "PORT 10,0,0,1,19,137\r\n";
    assert_eq!(middle.deliver(&mut client, &mut server, ACK, line).0, line);
    let mut from = Peer::new(end(SERVER, 20), end(CLIENT, 0x1389), 100);
    let mut to = Peer::new(end(CLIENT, 0x1389), end(VIRTUAL, 20), 900);
    assert_eq!(middle.open(&mut from, &mut to), [NEW | REL | SNAT, EST | RPL | REL | DNAT, EST | REL | SNAT]);
}

/// Clients behind one public address announce one port.
#[test]
fn each_client_has_its_own_translated_port() {
    let mut middle = masquerade();
    let clients = [CLIENT, CLIENT + 1, CLIENT + 2, CLIENT + 3];
    let mut sessions: Vec<[Peer; 2]> = Vec::new();
    for (client, port) in clients.into_iter().zip(40_000..) {
        let [mut client, mut server] = behind_nat(client, port, port);
        middle.control(&mut client, &mut server);
        sessions.push([client, server]);
    }
    let announce = |middle: &mut Middle, session: &mut [Peer; 2], last: usize, port: u16| {
        let [client, server] = session;
        let [high, low] = port.to_be_bytes();
        let line = format!("PORT 10,0,0,{},{high},{low}\r\n", last + 1);
        middle.deliver(client, server, ACK, &line).0
    };
    let data = |middle: &mut Middle, client: u32, port: u16, translated: u16| {
        let mut from = Peer::new(end(SERVER, 20), end(PUBLIC, translated), 100);
        let mut to = Peer::new(end(client, port), end(SERVER, 20), 900);
        middle.open(&mut from, &mut to)
    };
    for (number, session) in sessions.iter_mut().enumerate().take(2) {
        let changed = announce(&mut middle, session, number, 5000);
        assert_eq!(changed, format!("PORT 198,51,100,100,19,{}\r\n", 136 + number));
    }
    let related = [NEW | REL | DNAT, EST | RPL | REL | SNAT, EST | REL | DNAT];
    assert_eq!(data(&mut middle, CLIENT + 1, 5000, 5001), related);
    assert_eq!(data(&mut middle, CLIENT, 5000, 5000), related);
    // The data connections have the ports, and nothing is expected there.
    assert_eq!(announce(&mut middle, &mut sessions[2], 2, 5000), "PORT 198,51,100,100,19,138\r\n");
    assert_eq!(data(&mut middle, CLIENT + 2, 5000, 5002), related);
    // The highest port of another client is expected already.
    assert_eq!(announce(&mut middle, &mut sessions[2], 2, u16::MAX), "PORT 198,51,100,100,255,255\r\n");
    let sent = sessions[3][0].send(ACK, "PORT 10,0,0,4,255,255\r\n");
    middle.pass(sent);
    assert_eq!(middle.help, Err(Refusal::NotExpected(NotExpected::NoPort)));
}

#[test]
fn tftp_works_behind_source_nat() {
    let mut middle = masquerade();
    middle.control.helper = Some(Helper::Tftp);
    let datagram = |from: End<u32>, to: End<u32>, payload: &[u8]| {
        let len = u16::try_from(8 + payload.len()).unwrap();
        let header = [from.port.to_be_bytes(), to.port.to_be_bytes(), len.to_be_bytes(), [0; 2]].concat();
        ipv4(from.address, to.address, 17, &[&header, payload].concat())
    };
    let ends = |bytes: &[u8]| {
        let ip = Ipv4::parse(bytes).unwrap();
        let udp = Udp::parse(ip.payload()).unwrap();
        assert!(ip.checksum_ok());
        [end(ip.src().to_bits(), udp.src_port()), end(ip.dst().to_bits(), udp.dst_port())]
    };
    let (client, server) = (end(CLIENT, 777), end(SERVER, 69));
    let (sent, state) = middle.pass(datagram(client, server, b"\0\x01file\0octet\0"));
    assert_eq!(state, NEW | SNAT);
    let [public, to] = ends(&sent);
    assert_eq!((public.address, to), (PUBLIC, server));
    let answering = end(SERVER, 1500);
    let (sent, state) = middle.pass(datagram(answering, public, b"\0\x03\0\x01data"));
    assert_eq!((ends(&sent), state), ([answering, client], NEW | REL | DNAT));
    let (sent, state) = middle.pass(datagram(client, answering, b"\0\x04\0\x01"));
    assert_eq!((ends(&sent), state), ([public, answering], EST | RPL | REL | SNAT));
}

/// A buffer that is too small, and packets that hold no segment, stay unchanged.
#[test]
fn a_packet_without_space_is_unchanged() {
    let mut middle = masquerade();
    let [mut client, mut server] = behind_nat(CLIENT, 40_003, 40_003);
    middle.control(&mut client, &mut server);
    let sent = client.send(ACK, "PORT 10,0,0,1,19,137\r\n");
    middle.pass(sent.clone());
    let replacement = middle.help.unwrap().replacement.unwrap();
    for space in 0..6 {
        let mut bytes = sent.clone();
        bytes.resize(sent.len() + space, 0);
        let before = bytes.clone();
        assert_eq!(
            (replace_ipv4(&mut bytes, &replacement, Checksum::Complete), bytes == before),
            (None, true)
        );
    }
    let spaced = || [&sent[..], &[0; 64]].concat();
    assert_eq!(replace_ipv4(&mut spaced(), &replacement, Checksum::Partial), Some(6));
    let changes: [fn(&mut Vec<u8>); 6] = [
        |bytes| bytes[9] = 17,
        |bytes| bytes[6] = 0x20,
        |bytes| bytes[32] = 0x40,
        |bytes| bytes[32] = 0xf0,
        |bytes| bytes[3] = 30,
        |bytes| bytes.truncate(50),
    ];
    for change in changes {
        let mut bytes = spaced();
        change(&mut bytes);
        let before = bytes.clone();
        assert_eq!(
            (replace_ipv4(&mut bytes, &replacement, Checksum::Complete), bytes == before),
            (None, true)
        );
    }
}

/// The lengths and the checksums of a changed packet are valid, whether the checksum is complete or partial.
#[test]
fn a_changed_packet_has_valid_lengths_and_checksums() {
    let address = |last: u128| 0x2001_0db8_u128 << 96 | last;
    let six = |payload: &[u8]| {
        let len = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], 6, 64];
        packet.extend(address(1).to_be_bytes());
        packet.extend(address(2).to_be_bytes());
        packet.extend([4, 1, 0, 21, 0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x10, 1, 1, 0, 0, 0, 0]);
        packet.extend(payload);
        let pseudo = Ipv6::parse(&packet).unwrap().pseudo_sum(6, 20 + payload.len());
        fill(&mut packet[40..], 16, pseudo);
        packet
    };
    // Lengths of the payload and of the new text are odd and even.
    for (line, port) in [("EPRT |2|2001:db8::1|5000|\r\n", 5000), ("EPRT |2|2001:db8::1|5000|\r\n\0", 10_000)]
    {
        let Announcement { kind, range, .. } = read_command::<u128>(line.as_bytes()).unwrap();
        let replacement = Replacement { kind, range, address: address(0xabcd_ef01), port };
        let changed = line.replace("::1|", "::abcd:ef01|").replace("5000", &port.to_string());
        let mut bytes = [&six(line.as_bytes())[..], &[0xee; 64]].concat();
        let difference = replace_ipv6(&mut bytes, &replacement, Checksum::Complete).unwrap();
        assert_eq!(difference, i32::try_from(changed.len()).unwrap() - i32::try_from(line.len()).unwrap());
        assert_eq!(bytes[..60 + changed.len()], six(changed.as_bytes()));
    }
    let four = |payload: &[u8]| {
        ipv4(
            CLIENT,
            SERVER,
            6,
            &[&[4, 1, 0, 21, 0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x10, 1, 1, 0, 0, 0, 0], payload].concat(),
        )
    };
    for (line, address, port) in [
        ("PORT 10,0,0,1,4,1\r\n", PUBLIC, 5000),
        ("PORT 10,0,0,1,4,1\r\nx", PUBLIC, 5),
        ("PORT 10,0,0,111,4,1\r\n", 1, 1),
    ] {
        let Announcement { kind, range, .. } = read_command::<u32>(line.as_bytes()).unwrap();
        let mut changed = [line.as_bytes(), &[0; 64]].concat();
        let replacement = Replacement { kind, range, address, port };
        let difference = replacement.apply(&mut changed, line.len()).unwrap();
        changed.truncate(line.len().checked_add_signed(difference.try_into().unwrap()).unwrap());
        let (before, expected) = (four(line.as_bytes()), four(&changed));
        let mut bytes = [&before[..], &[0xee; 64]].concat();
        assert_eq!(replace_ipv4(&mut bytes, &replacement, Checksum::Complete), Some(difference));
        assert_eq!(bytes[..expected.len()], expected);
        // A partial checksum holds the sum of the pseudo-header.
        let partial = |packet: &[u8]| fold(Ipv4::parse(packet).unwrap().pseudo_sum()).to_be_bytes();
        let mut bytes = [&before[..], &[0xee; 64]].concat();
        bytes[36..38].copy_from_slice(&partial(&before));
        replace_ipv4(&mut bytes, &replacement, Checksum::Partial).unwrap();
        assert_eq!(bytes[36..38], partial(&expected));
    }
}
