//! Tests of the fields that the tracker reads from packets, and of the packets that ICMP errors quote.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::headers::{Content, NoTuple, Packet};
use conn::tuple::{End, Side, Tuple};
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::{DropReason, spec};
use proptest::prelude::*;

/// Length of the Ethernet header in bytes.
const ETH: usize = 14;

/// Returns the IP packet that a text describes (see [`packet::spec`]).
fn packet(text: &str) -> Vec<u8> {
    spec::parse(text).unwrap()[ETH..].to_vec()
}

fn of_ipv4(bytes: &[u8]) -> Result<Packet<u32>, NoTuple> {
    Packet::of_ipv4(&Ipv4::parse(bytes).unwrap(), 5)
}

fn of_ipv6(bytes: &[u8]) -> Result<Packet<u128>, NoTuple> {
    Packet::of_ipv6(&Ipv6::parse(bytes).unwrap(), 5)
}

/// Returns an ICMP error of 10.0.0.9 to `destination`, with the first `len` bytes of a packet.
fn error_v4(destination: &str, quoted: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = packet(&format!("ip_src=10.0.0.9,ip_dst={destination},icmp,icmp_type=3,len=1000"));
    bytes.truncate(28);
    bytes.extend(&quoted[..len]);
    let total = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes
}

/// Returns an ICMPv6 error of fd00::9 to `destination` with this type, with a quoted packet.
fn error_v6(destination: &str, kind: u8, quoted: &[u8]) -> Vec<u8> {
    let mut bytes =
        packet(&format!("ipv6_src=fd00::9,ipv6_dst={destination},icmpv6,icmp_type={kind},len=1000"));
    bytes.truncate(48);
    bytes.extend(quoted);
    let payload = u16::try_from(bytes.len() - 40).unwrap();
    bytes[4..6].copy_from_slice(&payload.to_be_bytes());
    bytes
}

const UDP: &str = "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=1000,dst_port=53";

#[test]
fn packets_have_the_tuple_of_their_protocol() {
    let udp = of_ipv4(&packet(UDP)).unwrap();
    assert_eq!((udp.source, udp.content), (Side::High, Content::Udp));
    assert_eq!((udp.tuple.zone, udp.tuple.protocol), (5, 17));
    assert_eq!(udp.tuple.end(Side::Low), End { address: 0x0a00_0001, port: 53 });
    let tcp = of_ipv4(&packet("ip_src=10.0.0.1,ip_dst=10.0.0.2,tcp,src_port=1,dst_port=2,tcp_flags=0x12"));
    let Content::Tcp(segment) = tcp.unwrap().content else { panic!("a TCP segment") };
    assert_eq!(segment.flags, 0x12);
    let gre = of_ipv4(&packet("ip_src=10.0.0.1,ip_dst=10.0.0.2,proto=47")).unwrap();
    assert_eq!((gre.tuple.low_port, gre.tuple.high_port, gre.content), (0, 0, Content::Other));
    let echo = of_ipv6(&packet("ipv6_src=fd00::1,ipv6_dst=fd00::2,icmpv6,icmp_type=129")).unwrap();
    assert_eq!(echo.content, Content::Query { is_reply: true });
}

#[test]
fn packets_without_a_tuple_are_named() {
    let mut bytes = packet(UDP);
    bytes[6] = 0x20;
    assert_eq!(of_ipv4(&bytes), Err(NoTuple::Fragment));
    let mut bytes = packet(UDP);
    bytes[25] = 7;
    assert_eq!(of_ipv4(&bytes), Err(NoTuple::Header(DropReason::UdpBadLength)));
    let solicitation = packet("ipv6_src=fd00::1,ipv6_dst=fd00::2,icmpv6,icmp_type=135");
    assert_eq!(of_ipv6(&solicitation), Err(NoTuple::Message));
}

#[test]
fn an_error_has_the_tuple_of_the_packet_that_it_quotes() {
    let cause = packet(UDP);
    let expected = of_ipv4(&cause).unwrap();
    // An error quotes at least 8 bytes above the IP header (RFC 792). The ports need 4.
    for len in [24, 28, cause.len()] {
        let error = of_ipv4(&error_v4("10.0.0.2", &cause, len)).unwrap();
        assert_eq!((error.tuple, error.content), (expected.tuple, Content::Error));
        assert_eq!(error.source, expected.source.opposite());
    }
    let request = packet("ip_src=10.0.0.2,ip_dst=10.0.0.1,icmp,icmp_type=8");
    let error = of_ipv4(&error_v4("10.0.0.2", &request, 28)).unwrap();
    assert_eq!(error.tuple, of_ipv4(&request).unwrap().tuple);
    let cause = packet("ipv6_src=fd00::2,ipv6_dst=fd00::1,tcp,src_port=1,dst_port=2,tcp_flags=2");
    let error = of_ipv6(&error_v6("fd00::2", 2, &cause)).unwrap();
    assert_eq!(error.tuple, of_ipv6(&cause).unwrap().tuple);
}

/// An ICMP error that quotes an unknown protocol crashes VPP (#3728).
#[test]
fn an_error_may_quote_an_unknown_protocol() {
    let cause = packet("ip_src=10.0.0.2,ip_dst=10.0.0.1,proto=253");
    let error = of_ipv4(&error_v4("10.0.0.2", &cause, 20)).unwrap();
    assert_eq!(error.tuple, of_ipv4(&cause).unwrap().tuple);
}

#[test]
fn errors_with_a_useless_quote_have_no_tuple() {
    let cause = packet(UDP);
    let refused = |bytes: &[u8]| assert_eq!(of_ipv4(bytes), Err(NoTuple::Quote));
    // The quote is too short for the IP header or for the ports.
    refused(&error_v4("10.0.0.2", &cause, 19));
    refused(&error_v4("10.0.0.2", &cause, 23));
    // The receiver of the error has not sent the quoted packet.
    refused(&error_v4("10.0.0.3", &cause, 28));
    // The quoted packet is an error itself, or a fragment without ports.
    refused(&error_v4("10.0.0.9", &error_v4("10.0.0.2", &cause, 28), 56));
    let mut later = cause.clone();
    later[7] = 1;
    refused(&error_v4("10.0.0.2", &later, 28));
}

proptest! {
    /// Mutated and truncated packets never lead to a panic, and a tuple is always canonical.
    #[test]
    fn any_bytes_are_read(
        base in 0..4_usize, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len in any::<prop::sample::Index>(), cut: bool,
    ) {
        let v6 = packet("ipv6_src=fd00::2,ipv6_dst=fd00::1,udp,src_port=1,dst_port=2");
        let mut bytes = match base {
            0 => packet(UDP),
            1 => error_v4("10.0.0.2", &packet(UDP), 28),
            2 => error_v6("fd00::2", 1, &v6),
            _ => v6,
        };
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(len.index(bytes.len()));
        }
        let four = Ipv4::parse(&bytes).ok().and_then(|packet| Packet::of_ipv4(&packet, 0).ok());
        let six = Ipv6::parse(&bytes).ok().and_then(|packet| Packet::of_ipv6(&packet, 0).ok());
        prop_assert!(four.is_none_or(|packet| is_canonical(&packet.tuple)));
        prop_assert!(six.is_none_or(|packet| is_canonical(&packet.tuple)));
    }
}

fn is_canonical<A: conn::tuple::Address>(tuple: &Tuple<A>) -> bool {
    let (low, high) = (tuple.end(Side::Low), tuple.end(Side::High));
    let has_query = matches!(tuple.protocol, 1 | 58);
    low.address < high.address || low.address == high.address && (has_query || low.port <= high.port)
}
