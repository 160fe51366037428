//! Tests of the rewriting of packets. The oracle builds the translated packet from its fields, with checksums that are
//! computed over all bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::nat::translate::{Checksum, NotTranslated, Rewrite, translate_ipv4, translate_ipv6};
use packet::DropReason;
use proptest::prelude::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Stands for ICMP or ICMPv6, depending on the address family.
const ICMP: u8 = 1;

/// Fields of a packet.
#[derive(Clone, Debug)]
struct Fields {
    is_ipv6: bool,
    source: u128,
    destination: u128,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
    identifier: u16,
    has_udp_checksum: bool,
    /// Whether the checksum of TCP or UDP is partial. Other checksums are complete.
    is_partial: bool,
    /// Number of words of IPv4 options, or of IPv6 extension headers.
    options: usize,
    payload: Vec<u8>,
}

/// Returns the sum of 16-bit words in one's complement.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Returns the CRC32c, bit by bit.
fn naive_crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 };
        }
    }
    !crc
}

impl Fields {
    fn address(&self, address: u128) -> Vec<u8> {
        address.to_be_bytes()[if self.is_ipv6 { 0 } else { 12 }..].to_vec()
    }

    fn ip_protocol(&self) -> u8 {
        if self.protocol == ICMP && self.is_ipv6 { 58 } else { self.protocol }
    }

    /// Returns the packet. `quote` is the quoted packet of an ICMP error.
    fn build(&self, quote: Option<&[u8]>) -> Vec<u8> {
        let mut upper = self.upper(quote);
        let len = u32::try_from(upper.len()).unwrap();
        let pseudo = [
            &self.address(self.source)[..],
            &self.address(self.destination)[..],
            &len.to_be_bytes()[..],
            &u32::from(self.ip_protocol()).to_be_bytes()[..],
        ];
        let pseudo = pseudo.concat();
        let has_pseudo = self.protocol != ICMP || self.is_ipv6;
        let at = match self.protocol {
            TCP => Some(16),
            UDP | 33 | 136 => Some(6),
            ICMP => Some(2),
            _ => None,
        };
        if let Some(at) = at.filter(|_| self.protocol != UDP || self.has_udp_checksum) {
            let covered = [if has_pseudo { &pseudo[..] } else { &[] }, &upper[..]].concat();
            let mut checksum = !naive_sum(&covered);
            if self.protocol == UDP && checksum == 0 {
                checksum = 0xffff;
            }
            if self.is_partial && matches!(self.protocol, TCP | UDP) {
                checksum = naive_sum(&pseudo);
            }
            upper[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        if self.protocol == SCTP {
            let crc = naive_crc(&upper);
            upper[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        [self.header(upper.len()), upper].concat()
    }

    /// Returns the bytes above IP without a checksum.
    fn upper(&self, quote: Option<&[u8]>) -> Vec<u8> {
        let ports = [self.source_port.to_be_bytes(), self.destination_port.to_be_bytes()].concat();
        let (kind, identifier) = (if self.is_ipv6 { 128 } else { 8 }, self.identifier.to_be_bytes());
        let header = match (self.protocol, quote) {
            (TCP, _) => [&ports[..], &[1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 4, 0, 0, 0, 0, 0]].concat(),
            (UDP, _) => {
                let len = u16::try_from(8 + self.payload.len()).unwrap();
                [&ports[..], &len.to_be_bytes(), &[0, 0]].concat()
            }
            (SCTP, _) => [&ports[..], &[9, 8, 7, 6, 0, 0, 0, 0]].concat(),
            (33 | 136, _) => [&ports[..], &[4, 0, 0, 0]].concat(),
            (ICMP, None) => [&[kind, 0, 0, 0][..], &identifier, &[0, 1]].concat(),
            (ICMP, Some(quote)) => {
                return [&[if self.is_ipv6 { 1 } else { 3 }, 1, 0, 0, 0, 0, 0, 0], quote].concat();
            }
            _ => Vec::new(),
        };
        [header, self.payload.clone()].concat()
    }

    fn header(&self, upper: usize) -> Vec<u8> {
        let ends = [self.address(self.source), self.address(self.destination)].concat();
        if self.is_ipv6 {
            let len = u16::try_from(upper + 8 * self.options).unwrap();
            let mut header = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[0, 64], &ends].concat();
            let mut next_at = 6;
            for _ in 0..self.options {
                header[next_at] = 60;
                next_at = header.len();
                header.extend([0, 0, 1, 4, 0, 0, 0, 0]);
            }
            header[next_at] = self.ip_protocol();
            return header;
        }
        let words = u8::try_from(5 + self.options).unwrap();
        let len = u16::try_from(usize::from(words) * 4 + upper).unwrap();
        let mut header =
            [&[0x40 | words, 0][..], &len.to_be_bytes(), &[0, 7, 0, 0, 64, self.protocol, 0, 0], &ends]
                .concat();
        header.extend(vec![1; 4 * self.options]);
        let checksum = !naive_sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn rewritten(&self, rewrite: &Rewrite<u128>) -> Fields {
        let has_ports = matches!(self.protocol, TCP | UDP | SCTP);
        Fields {
            source: rewrite.source.unwrap_or(self.source),
            destination: rewrite.destination.unwrap_or(self.destination),
            source_port: rewrite.source_port.filter(|_| has_ports).unwrap_or(self.source_port),
            destination_port: rewrite.destination_port.filter(|_| has_ports).unwrap_or(self.destination_port),
            identifier: rewrite.identifier.unwrap_or(self.identifier),
            ..self.clone()
        }
    }

    fn translate(&self, bytes: &mut [u8], rewrite: &Rewrite<u128>) -> Result<(), NotTranslated> {
        let checksum = if self.is_partial { Checksum::Partial } else { Checksum::Complete };
        if self.is_ipv6 {
            return translate_ipv6(bytes, rewrite, checksum);
        }
        translate_ipv4(bytes, &of_ipv4(rewrite), checksum)
    }
}

fn of_ipv4(rewrite: &Rewrite<u128>) -> Rewrite<u32> {
    let address =
        |address: Option<u128>| address.map(|address| u32::try_from(address & 0xffff_ffff).unwrap());
    Rewrite {
        source: address(rewrite.source),
        destination: address(rewrite.destination),
        source_port: rewrite.source_port,
        destination_port: rewrite.destination_port,
        identifier: rewrite.identifier,
    }
}

fn fields() -> impl Strategy<Value = Fields> {
    let protocol = prop::sample::select(vec![TCP, UDP, SCTP, ICMP, 33, 136, 47, 253]);
    // Words of zeros and ones lead to sums of 0 and 0xffff.
    let word = prop_oneof![Just(0_u16), Just(0xffff), any::<u16>()];
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..700),
        prop::collection::vec(prop::sample::select(vec![0, 0xff]), 0..9),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0..3_usize);
    (any::<[u128; 2]>(), protocol, [word.clone(), word.clone(), word], flags, payload).prop_map(
        |([source, destination], protocol, [source_port, destination_port, identifier], flags, payload)| {
            let (is_ipv6, has_udp_checksum, is_partial, options) = flags;
            Fields {
                is_ipv6,
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                identifier,
                has_udp_checksum: has_udp_checksum || is_partial,
                is_partial,
                options,
                payload,
            }
        },
    )
}

fn rewrite() -> impl Strategy<Value = Rewrite<u128>> {
    let port = || prop::option::of(prop_oneof![Just(0_u16), Just(0xffff), any::<u16>()]);
    let addresses = (any::<Option<u128>>(), any::<Option<u128>>());
    (addresses, port(), port(), port()).prop_map(|(addresses, source_port, destination_port, identifier)| {
        let (source, destination) = addresses;
        Rewrite { source, destination, source_port, destination_port, identifier }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The translated packet is equal to the packet that is built from the new fields. Padding stays unchanged.
    #[test]
    fn packets_have_the_new_fields_and_complete_checksums(
        fields in fields(), rewrite in rewrite(), padding in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = [fields.build(None), padding.clone()].concat();
        fields.translate(&mut bytes, &rewrite).unwrap();
        prop_assert_eq!(bytes, [fields.rewritten(&rewrite).build(None), padding].concat());
    }

    /// Both headers of an ICMP error are translated, however short the quote is.
    #[test]
    fn errors_have_the_new_fields_in_both_headers(
        error in fields(), inner in fields(), rewrite in rewrite(), len in any::<prop::sample::Index>(), is_short: bool,
    ) {
        let error = Fields { protocol: ICMP, ..error };
        let inner = Fields { is_ipv6: error.is_ipv6, is_partial: false, ..inner };
        let original = inner.build(None);
        let mut new = inner.rewritten(&rewrite.exchanged()).build(None);
        let header = original.len() - inner.upper(None).len();
        if inner.protocol == SCTP {
            new[header + 8..header + 12].copy_from_slice(&original[header + 8..header + 12]);
        }
        // The quote ends between two fields. The quote of a query without its identifier has no tuple.
        let ports = if inner.protocol == ICMP { 8 } else { 4 };
        let upper = [0, ports, 8, 20, inner.payload.len().max(20)][len.index(5)];
        let len = if is_short { original.len().min(header + upper) } else { original.len() };
        let mut bytes = error.build(Some(&original[..len]));
        error.translate(&mut bytes, &rewrite).unwrap();
        let expected = Fields { identifier: 0, ..error.rewritten(&rewrite) }.build(Some(&new[..len]));
        prop_assert_eq!(bytes, expected);
    }

    /// Random bytes and mutated packets never lead to a panic. An error leaves the packet unchanged.
    #[test]
    fn any_bytes_are_accepted(
        error in fields(), inner in fields(), rewrite in rewrite(), is_error: bool, is_random: bool,
        random in prop::collection::vec(any::<u8>(), 0..120),
        edits in prop::collection::vec((0..120_usize, any::<u8>()), 0..6), len in any::<prop::sample::Index>(),
    ) {
        let inner = inner.build(None);
        let quote = &inner[..len.index(inner.len())];
        let packet = if is_error { Fields { protocol: ICMP, ..error.clone() }.build(Some(quote)) } else { inner };
        let mut bytes = if is_random { random } else { packet };
        for (at, value) in edits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let checksum = if error.is_partial { Checksum::Partial } else { Checksum::Complete };
        let before = bytes.clone();
        if translate_ipv4(&mut bytes, &of_ipv4(&rewrite), checksum).is_err() {
            prop_assert_eq!(&bytes, &before);
        }
        let before = bytes.clone();
        if translate_ipv6(&mut bytes, &rewrite, checksum).is_err() {
            prop_assert_eq!(&bytes, &before);
        }
        prop_assert_eq!(bytes.len(), before.len());
    }
}

/// An ICMP error that quotes only a part of the IP header keeps a complete checksum of its own.
#[test]
fn every_length_of_a_quote_leads_to_a_complete_checksum() {
    for (protocol, is_ipv6) in [TCP, UDP, SCTP, ICMP, 253].into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let inner = Fields { protocol, is_ipv6, ..example() }.build(None);
        let error = Fields { protocol: ICMP, is_ipv6, ..example() };
        for len in 0..=inner.len() {
            let mut bytes = error.build(Some(&inner[..len]));
            error.translate(&mut bytes, &EXAMPLE).unwrap();
            let header = bytes.len() - len - 8;
            let expected = error.rewritten(&EXAMPLE).build(Some(&bytes[header + 8..]));
            assert_eq!(bytes, expected, "{len} bytes of protocol {protocol}");
        }
    }
}

/// Fragments of a TCP segment are translated one by one. Together they are the translated segment.
#[test]
fn fragments_are_translated_like_the_whole_packet() {
    let fields = example();
    let (whole, new) = (fields.build(None), fields.rewritten(&EXAMPLE).build(None));
    for (from, to, field) in [(20, 44, 0x2000_u16), (44, whole.len(), 3)] {
        let part = |whole: &[u8]| {
            let mut bytes = [&whole[..20], &whole[from..to]].concat();
            let total = u16::try_from(bytes.len()).unwrap();
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            bytes[10..12].fill(0);
            let checksum = !naive_sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            bytes
        };
        let mut bytes = part(&whole);
        fields.translate(&mut bytes, &EXAMPLE).unwrap();
        assert_eq!(bytes, part(&new));
    }
}

#[test]
fn packets_that_cannot_be_translated_stay_unchanged() {
    let refused = |mut bytes: Vec<u8>, why| {
        let before = bytes.clone();
        assert_eq!(example().translate(&mut bytes, &EXAMPLE), Err(why));
        assert_eq!(bytes, before);
    };
    let mut fragment = Fields { protocol: SCTP, ..example() }.build(None);
    fragment[6] = 0x20;
    refused(fragment, NotTranslated::SctpFragment);
    let mut short = example().build(None);
    short[3] = 30;
    refused(short, NotTranslated::Header(DropReason::TcpTruncated));
    refused(vec![0x45; 19], NotTranslated::Header(DropReason::Ipv4Truncated));
}

/// The receiver of a translated redirect would send packets to the router without translation.
#[test]
fn redirects_are_refused() {
    let cause = example().build(None);
    let mut redirect = Fields { protocol: ICMP, ..example() }.build(Some(&cause));
    let mut redirect_v6 = Fields { protocol: ICMP, is_ipv6: true, ..example() }.build(None);
    (redirect[20], redirect_v6[40]) = (5, 137);
    for (bytes, is_ipv6) in [(redirect, false), (redirect_v6, true)] {
        let mut after = bytes.clone();
        let fields = Fields { is_ipv6, ..example() };
        assert_eq!(fields.translate(&mut after, &EXAMPLE), Err(NotTranslated::Redirect));
        assert_eq!(after, bytes);
    }
}

/// A computed UDP checksum of 0 becomes 0xffff, because 0 means that there is no checksum (RFC 768).
#[test]
fn a_udp_checksum_never_becomes_zero() {
    let fields = Fields { protocol: UDP, payload: Vec::new(), ..example() };
    let original = fields.build(None);
    let mut all_ones = 0;
    for port in 0..=u16::MAX {
        let rewrite = Rewrite { source_port: Some(port), ..EXAMPLE };
        let mut bytes = original.clone();
        fields.translate(&mut bytes, &rewrite).unwrap();
        assert_eq!(bytes, fields.rewritten(&rewrite).build(None));
        all_ones += usize::from(bytes[26..28] == [0xff, 0xff]);
        // The way back restores the packet.
        let back = Rewrite { source: Some(fields.source), source_port: Some(1000), ..Rewrite::default() };
        fields.translate(&mut bytes, &back).unwrap();
        assert_eq!(bytes, original);
    }
    assert!(all_ones > 0);
}

/// A corrupt packet stays corrupt, so that its receiver drops it.
#[test]
fn wrong_checksums_stay_wrong() {
    for protocol in [TCP, UDP, SCTP, ICMP] {
        let fields = Fields { protocol, ..example() };
        let (mut bytes, mut new) = (fields.build(None), fields.rewritten(&EXAMPLE).build(None));
        *bytes.last_mut().unwrap() ^= 0x10;
        *new.last_mut().unwrap() ^= 0x10;
        fields.translate(&mut bytes, &EXAMPLE).unwrap();
        assert_eq!(bytes, new);
    }
}

/// SNAT of the example: a new source.
const EXAMPLE: Rewrite<u128> = Rewrite {
    source: Some(0xc633_6401),
    destination: None,
    source_port: Some(40_000),
    destination_port: None,
    identifier: Some(40_000),
};

fn example() -> Fields {
    Fields {
        is_ipv6: false,
        source: 0x0a00_0001,
        destination: 0x0a00_0002,
        protocol: TCP,
        source_port: 1000,
        destination_port: 80,
        identifier: 0,
        has_udp_checksum: true,
        is_partial: false,
        options: 0,
        payload: (0..60).collect(),
    }
}
