//! Rewriting of IPv4 and IPv6 packets for NAT, and of the packets that ICMP errors quote.
//!
//! The input is a byte of flags, the ports and addresses of the translated ends in 12 bytes, and a packet of any bytes.
//! A refused packet is unchanged. The tuple of a translated packet follows from its mapping. A checksum that is correct
//! before the translation is correct after the translation, too.

#![no_main]

use conn::Direction;
use conn::headers::Packet;
use conn::nat::mapping::Mapping;
use conn::nat::translate::{Checksum, NotTranslated, Rewrite, translate_ipv4, translate_ipv6};
use conn::tuple::{Address, End, QueryClass, Side};
use libfuzzer_sys::fuzz_target;
use packet::checksum::{fold, l4_pseudo_v4, l4_pseudo_v6, sum};
use packet::ip_proto;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;

/// Translated ends of the input. Bits 0 to 3 of the flags say which addresses and ports change.
struct Input {
    flags: u8,
    ports: [u16; 2],
    addresses: [u32; 2],
}

impl Input {
    /// Returns the mapping of the connection of a packet, and the direction of the packet.
    fn mapping<A: Address + From<u32>>(&self, packet: &Packet<A>) -> (Mapping<A>, Direction) {
        let tuple = packet.tuple;
        let icmp = if size_of::<A>() == 4 { ip_proto::ICMP } else { ip_proto::ICMPV6 };
        let is_query = tuple.protocol == icmp;
        let query = is_query.then(|| match tuple.high_port >> 1 {
            1 => QueryClass::Echo,
            2 => QueryClass::Timestamp,
            3 => QueryClass::Information,
            _ => QueryClass::AddressMask,
        });
        let querier = if tuple.high_port & 1 == 0 { Side::Low } else { Side::High };
        let is_reply = if is_query { packet.source != querier } else { self.flags & 32 != 0 };
        let direction = if is_reply { Direction::Reply } else { Direction::Original };
        let originator = if is_reply { packet.source.opposite() } else { packet.source };
        let mut present = [tuple.end(originator), tuple.end(originator.opposite())];
        if is_query {
            (present[0].port, present[1].port) = (tuple.low_port, 0);
        }
        let has_ports = matches!(tuple.protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
        let mut new = present;
        for (at, end) in new.iter_mut().enumerate() {
            if self.flags >> (2 * at) & 1 != 0 {
                end.address = self.addresses[at].into();
            }
            if self.flags >> (2 * at) & 2 != 0 && (has_ports || is_query && at == 0) {
                end.port = self.ports[at];
            }
        }
        let (original, translated) = if is_reply { (new, present) } else { (present, new) };
        let (zone, protocol) = (tuple.zone, tuple.protocol);
        (Mapping { zone, protocol, query, original, translated }, direction)
    }
}

/// Translates a packet and verifies the result. `read` reads the headers, and `is_valid` returns whether all checksums
/// of a packet are correct.
fn verify<A: Address + From<u32>>(
    input: &Input,
    bytes: &[u8],
    read: fn(&[u8]) -> Option<Packet<A>>,
    is_valid: fn(&[u8]) -> bool,
    translate: fn(&mut [u8], &Rewrite<A>, Checksum) -> Result<(), NotTranslated>,
) {
    let checksum = if input.flags & 16 == 0 { Checksum::Complete } else { Checksum::Partial };
    let mut after = bytes.to_vec();
    let packet = read(bytes);
    let End { address, port } = End { address: A::from(input.addresses[0]), port: input.ports[0] };
    let (rewrite, tuple) = match &packet {
        Some(packet) => {
            let (mapping, direction) = input.mapping(packet);
            let tuple = if direction == Direction::Reply { mapping.tuple() } else { mapping.reply_tuple() };
            (mapping.rewrite(direction), Some(tuple.0))
        }
        // The packet has no tuple, for example because it is a fragment.
        None => (Rewrite { source: Some(address), source_port: Some(port), ..Rewrite::default() }, None),
    };
    if translate(&mut after, &rewrite, checksum).is_err() {
        assert_eq!(after, bytes);
        return;
    }
    assert_eq!(after.len(), bytes.len());
    if let Some(tuple) = tuple {
        assert_eq!(read(&after).map(|packet| packet.tuple), Some(tuple));
    }
    if checksum == Checksum::Complete && is_valid(bytes) {
        assert!(is_valid(&after));
    }
}

fn read_ipv4(bytes: &[u8]) -> Option<Packet<u32>> {
    Packet::of_ipv4(&Ipv4::parse(bytes).ok()?, 3).ok()
}

fn read_ipv6(bytes: &[u8]) -> Option<Packet<u128>> {
    Packet::of_ipv6(&Ipv6::parse(bytes).ok()?, 3).ok()
}

/// Returns whether the checksum above IP is correct. `pseudo` is the sum of the pseudo-header.
fn is_upper_valid(protocol: u8, upper: &[u8], pseudo: u32) -> bool {
    let has_no_checksum = protocol == ip_proto::UDP && upper.get(6..8) == Some(&[0, 0]);
    has_no_checksum || fold(pseudo + u32::from(fold(sum(upper)))) == 0xffff
}

fn is_ipv4_valid(bytes: &[u8]) -> bool {
    let Ok(packet) = Ipv4::parse(bytes) else { return false };
    let upper = packet.payload();
    let len = u16::try_from(upper.len()).unwrap_or_default();
    let pseudo = l4_pseudo_v4(packet.src(), packet.dst(), packet.proto(), len);
    let is_upper_valid = match packet.proto() {
        _ if packet.is_fragment() => true,
        ip_proto::TCP | ip_proto::UDP => is_upper_valid(packet.proto(), upper, pseudo),
        ip_proto::ICMP => is_upper_valid(ip_proto::ICMP, upper, 0),
        _ => true,
    };
    fold(sum(&bytes[..usize::from(packet.total_len()) - upper.len()])) == 0xffff && is_upper_valid
}

fn is_ipv6_valid(bytes: &[u8]) -> bool {
    let Ok(packet) = Ipv6::parse(bytes) else { return false };
    let Ok(upper) = packet.upper() else { return false };
    let len = u32::try_from(upper.payload.len()).unwrap_or_default();
    match upper.proto {
        _ if upper.fragment.is_some() => true,
        ip_proto::TCP | ip_proto::UDP | ip_proto::ICMPV6 => is_upper_valid(
            upper.proto,
            upper.payload,
            l4_pseudo_v6(packet.src(), packet.dst(), upper.proto, len),
        ),
        _ => true,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[flags, a, b, c, d, ref addresses @ ..], packet)) = bytes.split_first_chunk::<13>() else {
        return;
    };
    let [e, f, g, h, i, j, k, l] = *addresses;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let addresses = [u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([i, j, k, l])];
    let input = Input { flags, ports, addresses };
    verify(&input, packet, read_ipv4, is_ipv4_valid, translate_ipv4);
    verify(&input, packet, read_ipv6, is_ipv6_valid, translate_ipv6);
});
