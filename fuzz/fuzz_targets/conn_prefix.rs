//! Stateless translation of packets between two IPv6 prefixes, and of the packets that ICMPv6 errors quote.
//!
//! The input is a byte of flags, the lengths and the first 64 bits of both prefixes in 18 bytes, and a packet of any
//! bytes. A refused packet is unchanged. A translated packet differs only in its address and in the quoted address, and
//! the opposite translation restores both addresses. A correct checksum stays correct.

#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use conn::nat::prefix::PrefixPair;
use libfuzzer_sys::fuzz_target;
use packet::checksum::{fold, l4_pseudo_v6, sum};
use packet::ip_proto;
use packet::ipv6::Ipv6;
use packet::net::Prefix;

/// Offset of the source in the IPv6 header.
const SOURCE: usize = 8;
/// Offset of the destination in the IPv6 header.
const DESTINATION: usize = 24;
/// Number of bytes from the start of an ICMPv6 error to the quoted packet.
const ERROR_HEADER: usize = 8;

fn address(bytes: &[u8], at: usize) -> u128 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u128::from_be_bytes(*field))
}

fn prefix(address: u128, length: u8) -> Prefix {
    let address = IpAddr::V6(Ipv6Addr::from_bits(address));
    Prefix::new(address, length).expect("the length is at most 128")
}

/// Returns the upper protocol of a packet, the offset of the header above IP, and whether the checksum is correct.
fn upper_of(bytes: &[u8]) -> Option<(u8, usize, bool)> {
    let packet = Ipv6::parse(bytes).ok()?;
    let upper = packet.upper().ok()?;
    let at = 40 + packet.payload().len() - upper.payload.len();
    let len = u32::try_from(upper.payload.len()).unwrap_or_default();
    let pseudo = l4_pseudo_v6(packet.src(), packet.dst(), upper.proto, len);
    let has_checksum = matches!(upper.proto, ip_proto::TCP | ip_proto::UDP | ip_proto::ICMPV6);
    let is_valid = has_checksum && fold(pseudo + sum(upper.payload)) == 0xffff;
    Some((upper.proto, at, is_valid))
}

/// Verifies that one field is translated, and that the opposite translation restores its address.
fn verify_field(before: &[u8], after: &[u8], at: usize, inverse: impl Fn(u128) -> Option<u128>) {
    assert_eq!(inverse(address(after, at)), Some(address(before, at)));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[flags, ref lengths @ ..], rest)) = bytes.split_first_chunk::<3>() else { return };
    let Some((prefixes, packet)) = rest.split_first_chunk::<16>() else { return };
    let is_outward = flags & 1 == 0;
    let (at, quoted_at) = if is_outward { (SOURCE, DESTINATION) } else { (DESTINATION, SOURCE) };
    let [high, low] = [0, 64].map(|shift| u128::from_be_bytes(*prefixes) << shift);
    // The address of the packet is in the prefix unless a flag says otherwise.
    let from = if flags & 2 == 0 { address(packet, at) } else { high };
    let (from, to) = (prefix(from, lengths[0] % 129), prefix(low, lengths[1] % 129));
    let pair = if is_outward { PrefixPair::new(from, to) } else { PrefixPair::new(to, from) };
    let is_valid_length = |prefix: Prefix| (1..=64).contains(&prefix.length());
    assert_eq!(pair.is_ok(), is_valid_length(from) && is_valid_length(to));
    let Ok(pair) = pair else { return };

    let mut after = packet.to_vec();
    let result =
        if is_outward { pair.translate_outward(&mut after) } else { pair.translate_inward(&mut after) };
    if result.is_err() {
        assert_eq!(after, packet);
        return;
    }
    let inverse = |address| if is_outward { pair.inward(address) } else { pair.outward(address) };
    verify_field(packet, &after, at, inverse);
    let (protocol, upper, is_valid) = upper_of(packet).expect("a translated packet is valid");
    let quoted_at = upper + ERROR_HEADER + quoted_at;
    let mut expected = packet.to_vec();
    expected[at..at + 16].copy_from_slice(&after[at..at + 16]);
    if expected != after {
        assert_eq!(protocol, ip_proto::ICMPV6);
        verify_field(packet, &after, quoted_at, inverse);
        expected[quoted_at..quoted_at + 16].copy_from_slice(&after[quoted_at..quoted_at + 16]);
    }
    assert_eq!(after, expected);
    assert_eq!(upper_of(&after), Some((protocol, upper, is_valid)));
});
