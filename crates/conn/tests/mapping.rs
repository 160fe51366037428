//! Tests of the translation of both directions of a connection, and of ICMP errors about its packets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::Direction::{Original, Reply};
use conn::headers::{Content, Packet};
use conn::nat::mapping::Mapping;
use conn::nat::ports::{Flow, Ports, Range, Selection};
use conn::nat::translate::{Checksum, translate_ipv4};
use conn::tuple::{End, QueryClass};
use packet::ipv4::Ipv4;
use packet::spec;

/// Returns the IPv4 packet that a text describes (see [`packet::spec`]).
fn packet(text: &str) -> Vec<u8> {
    spec::parse(text).unwrap()[14..].to_vec()
}

fn read(bytes: &[u8]) -> Packet<u32> {
    Packet::of_ipv4(&Ipv4::parse(bytes).unwrap(), 0).unwrap()
}

/// Returns an ICMP error of a router to the source of a packet.
fn error_about(cause: &[u8]) -> Vec<u8> {
    let mut bytes = packet("ip_src=192.0.2.1,ip_dst=0.0.0.0,icmp,icmp_type=3,len=1000");
    bytes.truncate(28);
    bytes[16..20].copy_from_slice(&cause[12..16]);
    bytes.extend(&cause[..28]);
    bytes[2..4].copy_from_slice(&56_u16.to_be_bytes());
    bytes
}

/// Translates the packets and the errors of both directions, and compares their tuples with the tuples of the mapping.
fn verify(mapping: &Mapping<u32>, request: &str, reply: &str) {
    let translated = |bytes: &[u8], direction| {
        let mut bytes = bytes.to_vec();
        translate_ipv4(&mut bytes, &mapping.rewrite(direction), Checksum::Complete).unwrap();
        bytes
    };
    let (original, of_replies) = (mapping.tuple(), mapping.reply_tuple());
    assert_eq!(Mapping::of_tuples(original, of_replies), *mapping);
    let (request, reply) = (packet(request), packet(reply));
    assert_eq!((read(&request).tuple, read(&request).source), original);
    assert_eq!((read(&reply).tuple, read(&reply).source), (of_replies.0, of_replies.1.opposite()));
    let translated_request = translated(&request, Original);
    assert_eq!((read(&translated_request).tuple, read(&translated_request).source), of_replies);
    let translated_reply = translated(&reply, Reply);
    assert_eq!(
        (read(&translated_reply).tuple, read(&translated_reply).source),
        (original.0, original.1.opposite())
    );
    // A router near the server answers the request, and a router near the client answers the reply.
    let error = error_about(&translated_request);
    assert_eq!((read(&error).tuple, read(&error).source), (of_replies.0, of_replies.1.opposite()));
    let error = translated(&error, Reply);
    assert_eq!((read(&error).tuple, read(&error).content), (original.0, Content::Error));
    assert_eq!(error[28..56], request[..28]);
    let error = translated(&error_about(&translated_reply), Original);
    assert_eq!((read(&error).tuple, read(&error).source), of_replies);
    assert_eq!(error[28..56], reply[..28]);
}

const fn end(address: u32, port: u16) -> End<u32> {
    End { address, port }
}

const CLIENT: u32 = 0x0a00_0002;
const SERVER: u32 = 0x0a00_0009;
const PUBLIC: u32 = 0xc633_6401;

#[test]
fn udp_has_a_new_source_or_destination_or_both() {
    let original = [end(CLIENT, 1000), end(SERVER, 53)];
    let mapping = |translated| Mapping { zone: 0, protocol: 17, query: None, original, translated };
    let request = "ip_src=10.0.0.2,ip_dst=10.0.0.9,udp,src_port=1000,dst_port=53";
    let source = mapping([end(PUBLIC, 40_000), end(SERVER, 53)]);
    assert!(source.has_new_source() && !source.has_new_destination());
    verify(&source, request, "ip_src=10.0.0.9,ip_dst=198.51.100.1,udp,src_port=53,dst_port=40000");
    let destination = mapping([end(CLIENT, 1000), end(PUBLIC, 5353)]);
    assert!(!destination.has_new_source() && destination.has_new_destination());
    verify(&destination, request, "ip_src=198.51.100.1,ip_dst=10.0.0.2,udp,src_port=5353,dst_port=1000");
    let both = mapping([end(PUBLIC, 7), end(PUBLIC + 1, 8)]);
    verify(&both, request, "ip_src=198.51.100.2,ip_dst=198.51.100.1,udp,src_port=8,dst_port=7");
}

#[test]
fn a_query_has_a_new_identifier() {
    let request = packet("ip_src=10.0.0.2,ip_dst=10.0.0.9,icmp,icmp_type=8");
    let identifier = u16::from_be_bytes([request[24], request[25]]);
    let original = [end(CLIENT, identifier), end(SERVER, 0)];
    let query = Some(QueryClass::Echo);
    let translated = [end(PUBLIC, identifier), end(SERVER, 0)];
    let mapping = Mapping { zone: 0, protocol: 1, query, original, translated };
    let (request, reply) = (
        "ip_src=10.0.0.2,ip_dst=10.0.0.9,icmp,icmp_type=8",
        "ip_src=10.0.0.9,ip_dst=198.51.100.1,icmp,icmp_type=0",
    );
    verify(&mapping, request, reply);
    let translated = [end(PUBLIC, identifier ^ 0x1234), end(SERVER, 0)];
    let rewrite = |direction| Mapping { translated, ..mapping }.rewrite(direction);
    assert_eq!(
        (rewrite(Original).identifier, rewrite(Original).source_port),
        (Some(identifier ^ 0x1234), None)
    );
    assert_eq!((rewrite(Reply).identifier, rewrite(Reply).destination_port), (Some(identifier), None));
}

#[test]
fn a_protocol_without_ports_has_a_new_address() {
    let (original, translated) = ([end(CLIENT, 0), end(SERVER, 0)], [end(PUBLIC, 0), end(SERVER, 0)]);
    let mapping = Mapping { zone: 0, protocol: 47, query: None, original, translated };
    let (request, reply) =
        ("ip_src=10.0.0.2,ip_dst=10.0.0.9,proto=47", "ip_src=10.0.0.9,ip_dst=198.51.100.1,proto=47");
    verify(&mapping, request, reply);
}

/// The port of a translated source is released with nothing but the mapping, although the destination of a query has no
/// port.
#[test]
fn a_port_is_released_by_its_mapping() {
    let range = Range { first_address: PUBLIC, last_address: PUBLIC, first_port: 1000, last_port: 1003 };
    for (protocol, query) in [(17, None), (1, Some(QueryClass::Echo)), (47, None)] {
        let mut ports = Ports::new(10);
        let original = [end(CLIENT, 1001), end(SERVER, if query.is_some() { 0 } else { 53 })];
        let mapping = Mapping { zone: 4, protocol, query, original, translated: original };
        let flow = Flow { remote: end(SERVER, 53), ..mapping.flow() };
        let external = ports.allocate(&range, &flow, Selection::default(), |_| true).unwrap();
        let mapping = Mapping { translated: [external, original[1]], ..mapping };
        assert!(ports.release(&range, &mapping.flow(), mapping.translated[0]));
        assert_eq!(ports.subscriber_ports(4, CLIENT), 0);
    }
}
