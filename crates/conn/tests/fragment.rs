//! Comparison of the reassembler with a naive one over random sequences of fragments, and cases of each limit and each
//! refusal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "naive/fragments.rs"]
mod naive;

use std::net::{Ipv4Addr, Ipv6Addr};

use conn::fragment::{Counts, Fragment, Options, Outcome, Reason, Reassembler, Refused, Returned, Sizes};
use conn::headers::{Content, NoTuple, Packet};
use conn::tuple::{Address, TupleHash};
use naive::{Back, Lengths, Model, Piece, Verdict};
use packet::DropReason;
use packet::ipv4::{Ipv4, Ipv4Repr};
use packet::ipv6::{Ipv6, Ipv6Repr};
use packet::ipv6_ext::FragmentRepr;
use proptest::prelude::*;

/// Length of the data of most fragments. With the headers, the packets exceed the least minimum of 400.
const UNIT: usize = 400;

/// Returns the protocol of a datagram: TCP, UDP or SCTP.
fn protocol(datagram: u8) -> u8 {
    [6, 17, 132][usize::from(datagram % 3)]
}

/// Returns the lengths of the headers of these protocols: at least, and in [`octets`].
fn transport(datagram: u8) -> [usize; 2] {
    [[20, 32], [8, 8], [20, 20]][usize::from(datagram % 3)]
}

/// Returns a part of the octets of a datagram.
fn octets(datagram: u8, start: usize, len: usize) -> Vec<u8> {
    let mut bytes = match protocol(datagram) {
        // A header of 32 bytes with the flags SYN and ACK.
        6 => [&[0, datagram, 0, 80, 0, 0, 0, 9, 0, 0, 0, 9, 0x80, 0x12, 4, 0][..], &[1; 16]].concat(),
        // The length field says 1,000 bytes.
        17 => vec![0, datagram, 0, 53, 3, 232, 0, 0],
        // A chunk of data with 1,000 bytes.
        _ => vec![0, datagram, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 3, 232],
    };
    bytes.resize(start + len, 0);
    bytes[start..].to_vec()
}

/// IPv4 or IPv6, with packets of this family.
trait Family: Address {
    const LENGTHS: Lengths;
    const OPTIONS: Options;

    /// Returns the fragment with these data.
    fn fragment(piece: &Piece, data: &[u8]) -> Fragment<Self>;

    /// Returns the fields of a packet that is not fragmented.
    fn whole(datagram: u8, data: &[u8]) -> Result<Packet<Self>, NoTuple>;
}

fn ipv4(piece: &Piece, data: &[u8], is_whole: bool) -> Vec<u8> {
    let repr = Ipv4Repr {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        proto: protocol(piece.datagram),
        id: piece.datagram.into(),
        more_fragments: !is_whole && !piece.is_last,
        fragment_offset: u16::try_from(piece.start).unwrap(),
        payload_len: u16::try_from(data.len()).unwrap(),
        ..Ipv4Repr::default()
    };
    let mut bytes = vec![0; 20 + data.len()];
    repr.emit(&mut bytes).unwrap().copy_from_slice(data);
    bytes
}

/// Returns an IPv6 packet with these extension headers before the data.
fn ipv6(next_header: u8, extensions: &[u8], data: &[u8]) -> Vec<u8> {
    let len = extensions.len() + data.len();
    let repr = Ipv6Repr {
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::from(2),
        next_header,
        payload_len: u16::try_from(len).unwrap(),
        ..Ipv6Repr::default()
    };
    let mut bytes = vec![0; 40 + len];
    repr.emit(&mut bytes).unwrap().copy_from_slice(&[extensions, data].concat());
    bytes
}

fn fragment_header(next_header: u8, start: usize, more: bool, id: u32) -> Vec<u8> {
    let mut bytes = vec![0; FragmentRepr::LEN];
    let offset = u16::try_from(start).unwrap();
    FragmentRepr { next_header, offset, more, id }.emit(&mut bytes).unwrap();
    bytes
}

impl Family for u32 {
    const LENGTHS: Lengths = Lengths { packet: 20, counted: 20 };
    const OPTIONS: Options = Options::ipv4();

    fn fragment(piece: &Piece, data: &[u8]) -> Fragment<u32> {
        let bytes = ipv4(piece, data, false);
        Fragment::of_ipv4(&Ipv4::parse(&bytes).unwrap(), 3).unwrap()
    }

    fn whole(datagram: u8, data: &[u8]) -> Result<Packet<u32>, NoTuple> {
        let piece = Piece { datagram, start: 0, len: data.len(), is_last: true };
        Packet::of_ipv4(&Ipv4::parse(&ipv4(&piece, data, true)).unwrap(), 3)
    }
}

impl Family for u128 {
    const LENGTHS: Lengths = Lengths { packet: 48, counted: 0 };
    const OPTIONS: Options = Options::ipv6();

    fn fragment(piece: &Piece, data: &[u8]) -> Fragment<u128> {
        let (datagram, more) = (piece.datagram, !piece.is_last);
        let header = fragment_header(protocol(datagram), piece.start, more, datagram.into());
        Fragment::of_ipv6(&Ipv6::parse(&ipv6(44, &header, data)).unwrap(), 3).unwrap()
    }

    fn whole(datagram: u8, data: &[u8]) -> Result<Packet<u128>, NoTuple> {
        Packet::of_ipv6(&Ipv6::parse(&ipv6(protocol(datagram), &[], data)).unwrap(), 3)
    }
}

fn fragment<A: Family>(piece: &Piece) -> Fragment<A> {
    A::fragment(piece, &octets(piece.datagram, piece.start, piece.len))
}

fn reassembler<A: Family>(sizes: Sizes) -> Reassembler<A, usize> {
    let options = Options { min_fragment: 400, ..A::OPTIONS };
    Reassembler::new(sizes, options, TupleHash::new())
}

fn piece(datagram: u8, start: usize, len: usize, is_last: bool) -> Piece {
    Piece { datagram, start, len, is_last }
}

/// Receives the fragments at the time 0 with the share key 1, and returns the outcomes with the packets that return.
/// The packets are numbered from 0.
fn receive_all<A: Family>(
    reassembler: &mut Reassembler<A, usize>,
    pieces: &[Piece],
) -> Vec<(Outcome<A>, Vec<Back>)> {
    let receive = |(id, piece)| {
        let mut back = Vec::new();
        let outcome = reassembler.receive(&fragment(piece), id, 1, 0, |returned| back.push(tuple(returned)));
        (outcome, back)
    };
    pieces.iter().enumerate().map(receive).collect()
}

fn tuple(returned: Returned<usize>) -> Back {
    (returned.packet, returned.offset.into(), returned.reason)
}

/// Checks that all fragments but the last one are held, and that the last one is refused together with the fragments
/// `with`.
fn assert_refused<A: Family>(pieces: &[Piece], refused: Refused, with: &[usize]) {
    let mut reassembler = reassembler::<A>(Sizes::default());
    let mut received = receive_all(&mut reassembler, pieces);
    let (outcome, back) = received.pop().unwrap();
    assert!(received.iter().all(|held| *held == (Outcome::Held, vec![])), "{received:?}");
    assert_eq!(outcome, Outcome::Refused(refused));
    let numbers = with.iter().copied().chain([pieces.len() - 1]);
    let expected: Vec<_> = numbers.map(|id| (id, pieces[id].start, Reason::Refused(refused))).collect();
    assert_eq!(back, expected);
    assert_eq!(reassembler.held() as usize, pieces.len() - 1 - with.len());
}

fn assert_refused_by_both(pieces: &[Piece], refused: Refused, with: &[usize]) {
    assert_refused::<u32>(pieces, refused, with);
    assert_refused::<u128>(pieces, refused, with);
}

#[test]
fn the_packets_of_a_complete_datagram_return_in_the_order_of_arrival() {
    fn check<A: Family>(datagram: u8) {
        let mut reassembler = reassembler::<A>(Sizes::default());
        let pieces = [
            piece(datagram, 2 * UNIT, 500, true),
            piece(datagram, 0, UNIT, false),
            piece(datagram, UNIT, UNIT, false),
        ];
        let received = receive_all(&mut reassembler, &pieces);
        let whole = A::whole(datagram, &octets(datagram, 0, 1300));
        assert!(whole.is_ok());
        let back = vec![(0, 800, Reason::Complete), (1, 0, Reason::Complete), (2, 400, Reason::Complete)];
        assert_eq!(received[2], (Outcome::Complete(whole), back));
        assert_eq!((reassembler.held(), reassembler.incomplete()), (0, 0));
        let counts = Counts { accepted: 3, completed: 3, ..Counts::default() };
        assert_eq!(reassembler.counts(), counts);
    }
    (0..3).for_each(check::<u32>);
    (0..3).for_each(check::<u128>);
}

#[test]
fn the_payload_of_a_segment_is_that_of_the_whole_datagram() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let received = receive_all(&mut reassembler, &[piece(0, 0, UNIT, false), piece(0, UNIT, 1001, true)]);
    let Outcome::Complete(Ok(packet)) = received[1].0 else { panic!("{received:?}") };
    let Content::Tcp(segment) = packet.content else { panic!("{packet:?}") };
    assert_eq!(segment.payload, 1401 - 32);
}

#[test]
fn a_udp_datagram_that_is_shorter_than_its_length_field_has_no_tuple() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let received = receive_all(&mut reassembler, &[piece(1, 0, UNIT, false), piece(1, UNIT, 599, true)]);
    let expected = Outcome::Complete(Err(NoTuple::Header(DropReason::UdpBadLength)));
    assert_eq!(received[1].0, expected);
}

#[test]
fn datagrams_with_different_keys_are_apart() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let first = ipv4(&piece(0, 0, UNIT, false), &octets(0, 0, UNIT), false);
    let last = ipv4(&piece(0, UNIT, UNIT, true), &octets(0, UNIT, UNIT), false);
    let mut receive = |bytes: &[u8], zone| {
        let fragment = Fragment::of_ipv4(&Ipv4::parse(bytes).unwrap(), zone).unwrap();
        reassembler.receive(&fragment, 0, 1, 0, |_| {})
    };
    assert_eq!(receive(&first, 3), Outcome::Held);
    assert_eq!(receive(&last, 4), Outcome::Held);
    // Another identification, protocol, source and destination.
    for (at, value) in [(5, 1), (9, 17), (15, 9), (19, 9)] {
        let mut other = last.clone();
        other[at] = value;
        assert_eq!(receive(&other, 3), Outcome::Held, "byte {at}");
    }
    assert!(matches!(receive(&last, 3), Outcome::Complete(Ok(_))));
}

#[test]
fn packets_that_are_no_fragments_have_no_fields() {
    let whole = ipv4(&piece(0, 0, UNIT, true), &octets(0, 0, UNIT), true);
    assert!(Fragment::of_ipv4(&Ipv4::parse(&whole).unwrap(), 0).is_none());
    let none = |bytes: &[u8]| Fragment::of_ipv6(&Ipv6::parse(bytes).unwrap(), 0).is_none();
    assert!(none(&ipv6(6, &[], &octets(0, 0, UNIT))));
    // An atomic fragment (RFC 6946).
    assert!(none(&ipv6(44, &fragment_header(6, 0, false, 1), &octets(0, 0, UNIT))));
    // A routing header that is longer than the packet, before the fragment header.
    assert!(none(&ipv6(43, &[44, 255, 0, 0, 0, 0, 0, 0], &fragment_header(6, 0, true, 1))));
}

#[test]
fn fragments_with_wrong_lengths_are_refused_alone() {
    assert_refused_by_both(&[piece(0, 0, UNIT, false), piece(0, UNIT, 404, false)], Refused::Length, &[]);
    assert_refused_by_both(&[piece(0, 0, UNIT, false), piece(0, UNIT, 0, true)], Refused::Length, &[]);
    assert_refused_by_both(&[piece(0, 65_520, 24, true)], Refused::TooLong, &[]);
    // The IPv4 header counts, and the IPv6 header does not.
    assert_refused::<u32>(&[piece(0, 65_504, 12, true)], Refused::TooLong, &[]);
    for (pieces, len) in [([piece(0, 65_504, 11, true)], 65_515), ([piece(0, 65_504, 12, true)], 65_516)] {
        let received = receive_all(&mut reassembler::<u128>(Sizes::default()), &pieces);
        assert_eq!((received[0].0, pieces[0].end()), (Outcome::Held, len));
    }
    let received = receive_all(&mut reassembler::<u32>(Sizes::default()), &[piece(0, 65_504, 11, true)]);
    assert_eq!(received[0].0, Outcome::Held);
}

#[test]
fn small_fragments_are_refused_unless_they_are_the_last() {
    fn check<A: Family>(least: usize) {
        let mut reassembler = Reassembler::<A, usize>::new(Sizes::default(), A::OPTIONS, TupleHash::new());
        let len = (least - A::LENGTHS.packet).next_multiple_of(8);
        let pieces = [
            piece(0, 0, len - 8, false),
            piece(0, 0, len, false),
            piece(1, 800, 1, true),
            piece(2, 8, 8, true),
        ];
        let received = receive_all(&mut reassembler, &pieces);
        assert_eq!(received[0].0, Outcome::Refused(Refused::TooSmall));
        assert_eq!((received[1].0, received[2].0), (Outcome::Held, Outcome::Held));
        assert_eq!(reassembler.counts().too_small, 1);
        // The minimum changes at run time, and is at least 400.
        reassembler.set_options(Options { min_fragment: 1, ..A::OPTIONS });
        assert_eq!(reassembler.options().min_fragment, 400);
        let len = 400 - A::LENGTHS.packet;
        let len = len - len % 8;
        let pieces = [piece(4, 0, len - 8, false), piece(4, 0, len + 8, false)];
        let received = receive_all(&mut reassembler, &pieces);
        assert_eq!((received[0].0, received[1].0), (Outcome::Refused(Refused::TooSmall), Outcome::Held));
    }
    check::<u32>(1200);
    check::<u128>(1280);
}

#[test]
fn a_first_fragment_without_the_whole_header_is_refused_with_its_datagram() {
    // The TCP header has 32 bytes.
    assert_refused_by_both(
        &[piece(0, UNIT, UNIT, false), piece(0, 0, 24, false)],
        Refused::ShortHeader,
        &[0],
    );
    assert_refused_by_both(
        &[piece(2, UNIT, UNIT, false), piece(2, 0, 16, false)],
        Refused::ShortHeader,
        &[0],
    );
    let mut reassembler = reassembler::<u32>(Sizes::default());
    receive_all(&mut reassembler, &[piece(0, UNIT, UNIT, false), piece(0, 0, 24, false)]);
    let counts = Counts { accepted: 1, discarded: 1, too_small: 1, ..Counts::default() };
    assert_eq!(reassembler.counts(), counts);
}

/// RFC 3128 describes this attack for TCP.
#[test]
fn a_later_fragment_inside_the_header_is_refused_with_its_datagram() {
    for datagram in [0, 2] {
        let held = piece(datagram, UNIT, UNIT, false);
        for start in [8, 16] {
            let early = piece(datagram, start, UNIT, false);
            assert_refused_by_both(&[held, early], Refused::EarlyOffset, &[0]);
        }
    }
    let received = receive_all(&mut reassembler::<u32>(Sizes::default()), &[piece(0, 24, UNIT, false)]);
    assert_eq!(received[0].0, Outcome::Held);
}

#[test]
fn ipv6_fragments_whose_header_chain_is_split_are_refused() {
    let outcome = |extensions: &[u8], data: &[u8]| {
        let bytes = ipv6(44, extensions, data);
        let fragment = Fragment::of_ipv6(&Ipv6::parse(&bytes).unwrap(), 0).unwrap();
        reassembler::<u128>(Sizes::default()).receive(&fragment, 0, 1, 0, |_| {})
    };
    let mut options = vec![0; 800];
    // Destination options of 808 bytes, of which 800 are present (RFC 7112).
    options[..2].copy_from_slice(&[6, 100]);
    let first = fragment_header(60, 0, true, 1);
    assert_eq!(outcome(&first, &options), Outcome::Refused(Refused::ShortHeader));
    options[1] = 99;
    assert_eq!(outcome(&first, &options), Outcome::Refused(Refused::ShortHeader), "there is no TCP header");
    options.extend(octets(0, 0, UNIT));
    assert_eq!(outcome(&first, &options), Outcome::Held);
    let nested = [fragment_header(6, 0, true, 2), octets(0, 0, UNIT)].concat();
    assert_eq!(outcome(&fragment_header(44, 0, true, 1), &nested), Outcome::Refused(Refused::HeaderChain));
    let many = [[60, 0, 0, 0, 0, 0, 0, 0].repeat(8), octets(0, 0, UNIT)].concat();
    assert_eq!(outcome(&first, &many), Outcome::Refused(Refused::HeaderChain));
}

/// The tuple is that of the upper layer, and extension headers do not count as payload.
#[test]
fn ipv6_datagrams_with_extension_headers_are_tracked_as_whole_ones() {
    // The length fields of UDP and of the SCTP chunk say 1,000 bytes.
    for (datagram, len) in [(0, 900), (1, 999), (1, 1000), (2, 1011), (2, 1012)] {
        let options = [protocol(datagram), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let data = [&options[..], &octets(datagram, 0, len)].concat();
        let routing = [44, 0, 0, 0, 0, 0, 0, 0];
        let mut reassembler = reassembler::<u128>(Sizes::default());
        let mut outcome = None;
        for (start, end, more) in [(0, 800, true), (800, data.len(), false)] {
            let extensions = [&routing[..], &fragment_header(60, start, more, 1)].concat();
            let bytes = ipv6(43, &extensions, &data[start..end]);
            let fragment = Fragment::of_ipv6(&Ipv6::parse(&bytes).unwrap(), 3).unwrap();
            outcome = Some(reassembler.receive(&fragment, 0, 1, 0, |_| {}));
        }
        let whole = u128::whole(datagram, &octets(datagram, 0, len));
        assert_eq!(whole.is_ok(), ![999, 1011].contains(&len));
        assert_eq!(outcome, Some(Outcome::Complete(whole)));
    }
}

#[test]
fn overlaps_refuse_the_datagram_and_later_fragments_of_it_until_the_time_out() {
    let held = [piece(0, UNIT, 2 * UNIT, false), piece(0, 4 * UNIT, UNIT, false)];
    for (start, len) in [(800, 800), (392, 400), (400, 400), (800, 400), (408, 400), (408, 1600), (1592, 8)] {
        let overlap = piece(0, start, len.max(384), false);
        assert_refused_by_both(&[held[0], held[1], overlap], Refused::Overlap, &[0, 1]);
    }
    assert_refused_by_both(&[piece(0, 800, 1, true), piece(0, 800, 400, false)], Refused::Overlap, &[0]);
    let mut reassembler = reassembler::<u32>(Sizes::default());
    receive_all(&mut reassembler, &[held[0], held[1], piece(0, 800, 800, false)]);
    assert_eq!((reassembler.held(), reassembler.incomplete(), reassembler.refused_datagrams()), (0, 0, 1));
    let counts = Counts { accepted: 2, discarded: 2, overlapped: 1, ..Counts::default() };
    assert_eq!(reassembler.counts(), counts);
    let later = fragment(&piece(0, 0, UNIT, false));
    let outcome = reassembler.receive(&later, 3, 1, 14_999, |_| {});
    assert_eq!(outcome, Outcome::Refused(Refused::RefusedBefore));
    assert_eq!(reassembler.receive(&later, 3, 1, 15_000, |_| {}), Outcome::Held);
    assert_eq!(reassembler.refused_datagrams(), 0);
}

#[test]
fn a_duplicate_is_refused_alone_and_the_datagram_becomes_complete() {
    let pieces = [piece(0, 0, UNIT, false), piece(0, 800, 100, true)];
    for number in [0, 1] {
        assert_refused_by_both(&[pieces[0], pieces[1], pieces[number]], Refused::Duplicate, &[]);
    }
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let all = [pieces[0], pieces[1], pieces[0], pieces[1], piece(0, UNIT, UNIT, false)];
    let received = receive_all(&mut reassembler, &all);
    assert!(matches!(received[4].0, Outcome::Complete(Ok(_))));
    assert_eq!(received[4].1.iter().map(|back| back.0).collect::<Vec<_>>(), [0, 1, 4]);
    let counts = Counts { accepted: 3, completed: 3, overlapped: 2, ..Counts::default() };
    assert_eq!(reassembler.counts(), counts);
}

#[test]
fn fragments_that_contradict_each_other_about_the_end_refuse_the_datagram() {
    let (last, middle) = (piece(0, 800, 400, true), piece(0, 1600, UNIT, false));
    assert_refused_by_both(&[last, middle], Refused::End, &[0]);
    assert_refused_by_both(&[middle, last], Refused::End, &[0]);
    assert_refused_by_both(&[last, piece(0, 400, 400, true)], Refused::End, &[0]);
    assert_refused_by_both(&[last, piece(0, 1600, 400, true)], Refused::End, &[0]);
    // Equal octets, of which only one fragment says that they are the last ones.
    assert_refused_by_both(&[last, piece(0, 800, 400, false)], Refused::Overlap, &[0]);
}

#[test]
fn a_datagram_has_a_largest_number_of_fragments() {
    let sizes = Sizes { fragments_per_datagram: 3, ..Sizes::default() };
    let mut reassembler = reassembler::<u32>(sizes);
    let pieces: Vec<_> = (0..4).map(|number| piece(0, number * UNIT, UNIT, number == 3)).collect();
    let received = receive_all(&mut reassembler, &pieces);
    assert_eq!(received[3].0, Outcome::Refused(Refused::TooMany));
    assert_eq!(received[3].1.len(), 4);
    assert_eq!((reassembler.held(), reassembler.refused_datagrams()), (0, 1));
}

#[test]
fn a_family_that_is_switched_off_refuses_fragments_and_returns_held_ones_in_time() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    receive_all(&mut reassembler, &[piece(0, 0, UNIT, false)]);
    reassembler.set_options(Options { enabled: false, ..reassembler.options() });
    let received = receive_all(&mut reassembler, &[piece(0, UNIT, UNIT, true)]);
    assert_eq!(received[0].0, Outcome::Refused(Refused::Disabled));
    let mut back = Vec::new();
    assert_eq!(reassembler.expire(15_000, 9, |returned| back.push(tuple(returned))), 1);
    assert_eq!(back, [(0, 0, Reason::Expired)]);
}

#[test]
fn expired_datagrams_return_in_slices_also_when_the_time_wraps() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let start = u32::MAX - 5_000;
    for number in 0..10 {
        let first = fragment(&piece(number, 0, UNIT, false));
        let now = start.wrapping_add(u32::from(number) * 1000);
        assert_eq!(reassembler.receive(&first, number.into(), 1, now, |_| {}), Outcome::Held);
    }
    let mut expire = |now: u32, slice| {
        let mut back = Vec::new();
        let count = reassembler.expire(now, slice, |returned| back.push(returned.packet));
        assert_eq!(count as usize, back.len());
        back
    };
    assert_eq!(expire(start.wrapping_add(14_999), 9), []);
    assert_eq!(expire(start.wrapping_add(15_000), 9), [0]);
    assert_eq!(expire(start.wrapping_add(30_000), 4), [1, 2, 3, 4]);
    assert_eq!(expire(start.wrapping_add(30_000), 4), [5, 6, 7, 8]);
    assert_eq!(expire(start.wrapping_add(30_000), 4), [9]);
    assert_eq!((reassembler.held(), reassembler.counts().expired), (0, 10));
}

#[test]
fn a_fragment_of_an_expired_datagram_begins_a_new_one() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    receive_all(&mut reassembler, &[piece(0, 0, UNIT, false)]);
    let mut back = Vec::new();
    let last = fragment(&piece(0, UNIT, UNIT, true));
    let outcome = reassembler.receive(&last, 7, 1, 15_000, |returned| back.push(tuple(returned)));
    assert_eq!((outcome, back), (Outcome::Held, vec![(0, 0, Reason::Expired)]));
}

#[test]
fn a_key_holds_at_most_half_and_its_oldest_datagrams_give_way() {
    let sizes = Sizes { datagrams: 100, fragments: 10, ..Sizes::default() };
    let mut reassembler = reassembler::<u32>(sizes);
    let mut back = Vec::new();
    let mut receive = |reassembler: &mut Reassembler<u32, usize>, number: u8, share| {
        let first = fragment(&piece(number, 0, UNIT, false));
        let outcome =
            reassembler.receive(&first, number.into(), share, 0, |returned| back.push(tuple(returned)));
        assert_eq!(outcome, Outcome::Held);
    };
    (0..50).for_each(|number| receive(&mut reassembler, number, 1));
    assert_eq!((reassembler.held(), reassembler.counts().purged), (5, 45));
    // Other keys find places, and the first key has to give way until all keys hold an equal number.
    (50..100).for_each(|number| receive(&mut reassembler, number, 2));
    assert!((6..=8).contains(&reassembler.held()), "{}", reassembler.held());
    (100..200).for_each(|number| receive(&mut reassembler, number, u32::from(number)));
    assert_eq!(reassembler.held(), 10);
    let counts = reassembler.counts();
    assert_eq!(counts.purged, 190);
    assert!(back.iter().enumerate().all(|(at, (_, _, reason))| at < 190 && *reason == Reason::Purged));
    let mut numbers: Vec<_> = back.iter().map(|back| back.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 190);
}

#[test]
fn the_datagrams_of_a_key_are_limited_as_its_fragments() {
    let sizes = Sizes { datagrams: 4, fragments: 100, ..Sizes::default() };
    let mut reassembler = reassembler::<u32>(sizes);
    let pieces: Vec<_> = (0..9).map(|number| piece(number, 0, UNIT, false)).collect();
    let received = receive_all(&mut reassembler, &pieces);
    assert_eq!(reassembler.incomplete(), 2);
    assert_eq!(received[2].1, [(0, 0, Reason::Purged)]);
}

#[test]
fn a_datagram_that_uses_up_the_share_of_its_key_is_refused() {
    let sizes = Sizes { fragments: 4, ..Sizes::default() };
    let mut reassembler = reassembler::<u32>(sizes);
    let pieces: Vec<_> = (0..4).map(|number| piece(0, number * UNIT, UNIT, false)).collect();
    let received = receive_all(&mut reassembler, &pieces[..3]);
    assert_eq!(received[2].0, Outcome::Refused(Refused::Share));
    assert_eq!(reassembler.held(), 0);
    // The fragment that completes a datagram needs no place.
    let mut reassembler = self::reassembler::<u32>(sizes);
    let pieces = [piece(0, 0, UNIT, false), piece(0, UNIT, UNIT, false), piece(0, 800, 9, true)];
    let received = receive_all(&mut reassembler, &pieces);
    assert!(matches!(received[2].0, Outcome::Complete(Ok(_))));
}

#[test]
fn the_number_of_fragments_is_limited_at_run_time() {
    let mut reassembler = reassembler::<u32>(Sizes::default());
    let pieces: Vec<_> = (0..200).map(|number| piece(number, 0, UNIT, false)).collect();
    receive_all(&mut reassembler, &pieces);
    assert_eq!(reassembler.held(), 200);
    reassembler.set_options(Options { max_fragments: 20, ..reassembler.options() });
    receive_all(&mut reassembler, &[piece(201, 0, UNIT, false)]);
    assert_eq!((reassembler.held(), reassembler.counts().purged), (10, 191));
    reassembler.set_options(Options { max_fragments: u32::MAX, ..reassembler.options() });
    assert_eq!(reassembler.options().max_fragments, 1000);
}

#[test]
fn the_records_of_refused_datagrams_are_limited() {
    let mut reassembler = reassembler::<u32>(Sizes { refused: 2, ..Sizes::default() });
    for number in 0..3 {
        receive_all(&mut reassembler, &[piece(3 * number, 8, UNIT, true)]);
    }
    assert_eq!(reassembler.refused_datagrams(), 2);
    let received = receive_all(&mut reassembler, &[0, 3, 6].map(|number| piece(number, 800, UNIT, true)));
    let before = Outcome::Refused(Refused::RefusedBefore);
    assert_eq!(
        received.iter().map(|received| received.0).collect::<Vec<_>>(),
        [Outcome::Held, before, before]
    );
    reassembler.expire(15_000, 1, |_| {});
    assert_eq!(reassembler.refused_datagrams(), 1);
}

/// A random event. Numbers select a datagram and a share.
#[derive(Clone, Debug)]
enum Step {
    Receive(Piece, u32),
    Advance(u64),
    Expire(usize),
    Flush(usize),
    Enable(bool),
    MaxFragments(u32),
    MinFragment(u32),
}

/// Returns fragments of datagrams with three fragments, and other ones that do not match them.
fn pieces() -> impl Strategy<Value = Piece> {
    let proper = (0..9_u8, 0..3_usize).prop_map(|(datagram, part)| {
        piece(datagram, part * UNIT, if part == 2 { 500 } else { UNIT }, part == 2)
    });
    let starts = prop_oneof![
        Just(0_usize),
        Just(8),
        Just(16),
        Just(24),
        Just(UNIT - 8),
        Just(UNIT),
        Just(UNIT + 8),
        Just(2 * UNIT),
        Just(3 * UNIT),
        Just(65_520)
    ];
    let lens = prop_oneof![
        4 => Just(UNIT), 1 => Just(0_usize), 1 => Just(7), 1 => Just(16), 1 => Just(24), 1 => Just(32), 1 => Just(404),
        1 => Just(UNIT + 8), 1 => Just(2 * UNIT)
    ];
    let other = (0..9_u8, starts, lens, any::<bool>()).prop_map(|(datagram, start, len, is_last)| {
        // The packet would not be a fragment otherwise.
        piece(datagram, start, len, is_last && start > 0)
    });
    prop_oneof![6 => proper, 1 => other]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (pieces(), 0..4_u32).prop_map(|(piece, share)| Step::Receive(piece, share)),
        2 => (0..9_000_u64).prop_map(Step::Advance),
        1 => (0..4_usize).prop_map(Step::Expire),
        1 => (0..3_usize).prop_map(Step::Flush),
        1 => prop::bool::weighted(0.8).prop_map(Step::Enable),
        1 => (1..20_u32).prop_map(Step::MaxFragments),
        1 => prop_oneof![4 => Just(400_u32), 1 => Just(430)].prop_map(Step::MinFragment),
    ]
}

/// Performs the steps on a reassembler and its model, and compares everything that can be read. The time of the
/// reassembler wraps soon after the start.
fn agree<A: Family>(sizes: Sizes, steps: &[Step]) {
    let options = Options { min_fragment: 400, max_fragments: sizes.fragments, ..A::OPTIONS };
    let mut tested = Reassembler::<A, usize>::new(sizes, options, TupleHash::new());
    let mut model = Model::new(sizes, options, A::LENGTHS, transport);
    let mut now = u64::from(u32::MAX) - 20_000;
    let (mut back, mut received) = (Vec::new(), 0);
    for step in steps {
        let mut returned = |returned| back.push(tuple(returned));
        match *step {
            Step::Receive(piece, share) => {
                let outcome = tested.receive(&fragment(&piece), received, share, wrapped(now), &mut returned);
                let expected = match model.receive(piece, received, share, now) {
                    Verdict::Held => Outcome::Held,
                    Verdict::Refused(refused) => Outcome::Refused(refused),
                    Verdict::Complete(len) => {
                        Outcome::Complete(A::whole(piece.datagram, &octets(piece.datagram, 0, len)))
                    }
                };
                assert_eq!(outcome, expected, "{step:?}");
                received += 1;
            }
            Step::Advance(ms) => now += ms,
            Step::Expire(slice) => {
                let slice_of = u32::try_from(slice).unwrap();
                let expired = tested.expire(wrapped(now), slice_of, &mut returned);
                assert_eq!(expired as usize, model.expire(now, slice));
            }
            Step::Flush(slice) => {
                let flushed = tested.flush(u32::try_from(slice).unwrap(), &mut returned);
                assert_eq!(flushed as usize, model.flush(slice));
            }
            Step::Enable(enabled) => model.options.enabled = enabled,
            Step::MaxFragments(most) => model.options.max_fragments = most.min(sizes.fragments),
            Step::MinFragment(least) => model.options.min_fragment = least,
        }
        tested.set_options(model.options);
        assert_eq!(back, model.back, "{step:?}");
        let counts =
            [tested.held(), tested.incomplete(), tested.refused_datagrams()].map(|count| count as usize);
        assert_eq!(counts, [model.held(), model.incomplete(), model.records()]);
    }
    assert_counts(&tested.counts(), &back, tested.held().into());
    tested.flush(u32::MAX, |returned| back.push(tuple(returned)));
    // Each packet has returned exactly once.
    let mut numbers: Vec<_> = back.iter().map(|back| back.0).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..received));
}

/// Compares the counts with the packets that have returned.
fn assert_counts(counts: &Counts, back: &[Back], held: u64) {
    let count = |is: fn(&Reason) -> bool| back.iter().filter(|(_, _, reason)| is(reason)).count() as u64;
    assert_eq!(counts.completed, count(|reason| *reason == Reason::Complete));
    assert_eq!(counts.expired, count(|reason| *reason == Reason::Expired));
    assert_eq!(counts.purged, count(|reason| *reason == Reason::Purged));
    let refused = counts.too_small + counts.overlapped + counts.refused + counts.discarded;
    assert_eq!(refused, count(|reason| matches!(reason, Reason::Refused(_))));
    let returned = counts.completed + counts.expired + counts.purged + counts.discarded;
    assert_eq!(counts.accepted, returned + held);
}

#[allow(clippy::cast_possible_truncation, reason = "times of the reassembler wrap")]
fn wrapped(time: u64) -> u32 {
    time as u32
}

proptest! {
    #[test]
    fn the_reassembler_agrees_with_the_model(
        datagrams in 1..8_u32, fragments in 1..16_u32, fragments_per_datagram in 2..5_u32, refused in 1..4_u32,
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let sizes = Sizes { datagrams, fragments, fragments_per_datagram, refused };
        agree::<u32>(sizes, &steps);
        agree::<u128>(sizes, &steps);
    }
}
