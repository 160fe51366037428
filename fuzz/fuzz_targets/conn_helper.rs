//! The helpers of the connection tracker, with payloads of any octets from both ends of a session of FTP and of TFTP.
//!
//! The first byte says whether the sessions are translated. The rest is a row of records: a byte of flags, the length
//! of a payload in one byte, and the payload. The flags say which end sends the payload, and which session.

#![no_main]

use conn::headers::{Content, Packet};
use conn::helper::expectation::Limits;
use conn::helper::ftp::{read_command, read_reply};
use conn::helper::tftp::read_request;
use conn::helper::{self, Helper};
use conn::nat::spec::{Nat, Target};
use conn::nat::translate::Checksum;
use conn::table::Sizes;
use conn::tcp::Segment;
use conn::track::{Commit, CtState, Tracker};
use conn::tuple::{Address, End, Tuple, TupleHash};
use conn::zone::Zones;
use libfuzzer_sys::fuzz_target;
use packet::tcp::flags;

const CLIENT: u32 = 0x0a00_0001;
const SERVER: u32 = 0x0a00_0002;
const TRANSLATED: u32 = 0xc633_6401;

/// Reads a payload as a line of FTP, and replaces the address and the port.
fn read<A: Address>(payload: &[u8], address: A) {
    for read in [read_command::<A>(payload), read_reply(payload)] {
        let Ok(line) = read else { continue };
        assert!(payload.get(line.range.clone()).is_some_and(|text| !text.is_empty()) && line.port != 0);
        let (kind, range) = (line.kind, line.range);
        let replacement = helper::ftp::Replacement { kind, range: range.clone(), address, port: 1025 };
        let mut buffer = [payload, &[0; 64]].concat();
        let difference = replacement.apply(&mut buffer, payload.len()).expect("the buffer has space");
        let len = payload.len().checked_add_signed(difference as isize).expect("the payload has a length");
        let after = range.end.checked_add_signed(difference as isize).expect("the text has a length");
        assert_eq!(
            (&buffer[..range.start], &buffer[after..len]),
            (&payload[..range.start], &payload[range.end..])
        );
        let again = read_command::<A>(&buffer[..len]).or_else(|_| read_reply(&buffer[..len]));
        let again = again.expect("the new line is valid");
        assert_eq!((again.kind, again.port), (kind, 1025));
        assert!(again.address.is_none_or(|new| new == address));
    }
    let _ = read_request(payload);
}

/// A session between a client and a server.
struct Session {
    helper: Helper,
    /// Next sequence number of each end.
    next: [u32; 2],
    /// Ends as the client knows the ends, and as the server knows the ends.
    ends: [[End<u32>; 2]; 2],
}

impl Session {
    /// Returns the packet of an end with this payload.
    fn packet(&mut self, is_server: bool, payload: &[u8]) -> Packet<u32> {
        let end = usize::from(is_server);
        let [client, server] = self.ends[end];
        let (from, to) = if is_server { (server, client) } else { (client, server) };
        let (tuple, source) = Tuple::of_ends(0, self.helper.protocol(), from, to);
        let (seq, ack) = (self.next[end], self.next[1 - end]);
        let len = payload.len() as u32;
        self.next[end] = seq.wrapping_add(len);
        let segment = Segment { seq, ack, flags: flags::ACK, window: 60_000, payload: len, scale: None };
        let content = if self.helper == Helper::Ftp { Content::Tcp(segment) } else { Content::Udp };
        Packet { tuple, source, content }
    }
}

/// Sends the payload of one record, and opens the connection that the payload announces.
fn send(tracker: &mut Tracker<u32>, session: &mut Session, commit: &Commit<u32>, flags: u8, payload: &[u8]) {
    let (zones, now) = (Zones::new(), u32::from(flags));
    let packet = session.packet(flags & 1 != 0, payload);
    let mut tracked = tracker.track(&zones, &packet, now);
    if tracked.id.is_none() && flags & 1 == 0 {
        let commit = Commit { helper: Some(session.helper), ..*commit };
        let _ = tracker.commit(&zones, &packet, &mut tracked, &commit, now);
        if let Some((mapping, _)) = tracked.id.and_then(|id| tracker.table.mapping(id)) {
            session.ends[1] = mapping.translated;
        }
    }
    let help = tracker.help(&packet, &tracked, payload, now).unwrap_or_default();
    if let Some(correction) = tracker.correction(&packet, &tracked) {
        correction.apply(&mut payload.to_vec(), Checksum::Complete);
    }
    if let Some(replacement) = help.replacement {
        let mut buffer = [payload, &[0; 64]].concat();
        let difference = replacement.apply(&mut buffer, payload.len()).expect("the buffer has space");
        tracker.change_length(&packet, &tracked, difference);
    }
    let Some(expected) = help.expectation else { return };
    // The announced end is the sender, or its translated address.
    assert!([CLIENT, SERVER, TRANSLATED].contains(&expected.destination.address));
    assert_ne!(expected.source, expected.destination.address);
    assert!(session.helper == Helper::Tftp || expected.destination.port >= 1024);
    let source = End { address: expected.source, port: u16::from(flags) };
    let (tuple, side) = Tuple::of_ends(0, expected.protocol, source, expected.destination);
    let segment = Segment { flags: flags::SYN, ..Segment::default() };
    let content = if session.helper == Helper::Ftp { Content::Tcp(segment) } else { Content::Udp };
    let data = Packet { tuple, source: side, content };
    let mut tracked = tracker.track(&zones, &data, now);
    if tracked.id.is_none() {
        assert!(tracked.state.has(CtState::NEW | CtState::RELATED));
        if tracker.commit(&zones, &data, &mut tracked, &Commit::default(), now).is_ok() {
            assert!(tracked.state.has(CtState::RELATED));
            let _ = tracker.translate(&data, &mut tracked);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let sizes = Sizes { entries: 8, embryonic: 8, extensions: 1, translations: 8 };
    let mut tracker = Tracker::<u32>::new(sizes, TupleHash::new());
    let limits = Limits { expectations: 2, ..Limits::default() };
    tracker.table.enable_helpers(helper::Sizes { connections: 2, limits });
    let target = if first & 2 != 0 { Target::Source } else { Target::Destination };
    let server = if first & 3 == 1 { TRANSLATED } else { SERVER };
    let address = if target == Target::Source { TRANSLATED } else { SERVER };
    let nat = Nat { target, first_address: address, last_address: address, ..Nat::default() };
    let commit = Commit { nat: (first & 1 != 0).then_some(nat), ..Commit::default() };
    let session = |helper, port| {
        let end = |address, port| End { address, port };
        Session { helper, next: [0; 2], ends: [[end(CLIENT, 3000), end(server, port)]; 2] }
    };
    let mut sessions = [session(Helper::Ftp, 21), session(Helper::Tftp, 69)];
    while let [flags, len, records @ ..] = rest {
        let (payload, after) = records.split_at(records.len().min(usize::from(*len)));
        rest = after;
        read::<u32>(payload, u32::MAX);
        read::<u128>(payload, u128::MAX);
        let session = &mut sessions[usize::from(flags >> 1 & 1)];
        send(&mut tracker, session, &commit, *flags, payload);
        if flags & 4 != 0 {
            tracker.table.sweep(u32::from(*flags), 2);
        }
        let helpers = tracker.table.helpers().expect("the table has helpers");
        assert!(helpers.connections() <= 2 && helpers.expectations.count() <= 2);
    }
});
