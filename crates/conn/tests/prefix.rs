//! Tests of the stateless translation between two IPv6 prefixes. The oracle overwrites the prefix bit by bit and adds
//! words as RFC 6296 describes the algorithm.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv6Addr};

use conn::nat::prefix::{InvalidPair, NotMapped, PrefixPair};
use packet::DropReason;
use packet::net::Prefix;
use proptest::prelude::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Type of an ICMPv6 echo request.
const ECHO: u8 = 128;

fn pair(inside: &str, outside: &str) -> PrefixPair {
    PrefixPair::new(inside.parse().unwrap(), outside.parse().unwrap()).unwrap()
}

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

/// Asserts that two addresses are images of each other.
fn verify(pair: &PrefixPair, inside: &str, outside: &str) {
    let image = |mapped: Option<u128>| mapped.map(Ipv6Addr::from_bits);
    assert_eq!(image(pair.outward(address(inside))), outside.parse().ok());
    assert_eq!(image(pair.inward(address(outside))), inside.parse().ok());
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

/// Returns whether two sums are equal in one's complement, in which 0 and 0xffff are equal.
fn is_equal(a: u16, b: u16) -> bool {
    a == b || [a, b].iter().all(|sum| [0, 0xffff].contains(sum))
}

/// Returns the image of an address, step by step (RFC 6296 sections 3.1 to 3.7).
fn naive_map(from: (u128, u8), to: (u128, u8), address: u128) -> Result<u128, NotMapped> {
    let bit = |number: u128, at: u8| number >> (127 - at) & 1;
    let padded = |(prefix, length): (u128, u8), at: u8| if at < length { bit(prefix, at) } else { 0 };
    if (0..from.1).any(|at| bit(address, at) != bit(from.0, at)) {
        return Err(NotMapped::Prefix);
    }
    let length = from.1.max(to.1);
    if (0..length).any(|at| bit(address, at) != padded(from, at)) {
        return Err(NotMapped::Subnet);
    }
    let mut image = 0_u128;
    for at in 0..128 {
        image = image << 1 | if at < length { padded(to, at) } else { bit(address, at) };
    }
    let sum_of = |prefix| {
        let number = (0..128).fold(0_u128, |number, at| number << 1 | padded(prefix, at));
        naive_sum(&number.to_be_bytes())
    };
    // A subtraction adds the complement.
    let adjustment = naive_sum(&[sum_of(from).to_be_bytes(), (!sum_of(to)).to_be_bytes()].concat());
    let mut bytes = image.to_be_bytes();
    let is_ones = |word: usize| bytes[2 * word..2 * word + 2] == [0xff, 0xff];
    let word = if length <= 48 {
        Some(3).filter(|word| !is_ones(*word)).ok_or(NotMapped::Subnet)?
    } else {
        (4..8).find(|word| !is_ones(*word)).ok_or(NotMapped::InterfaceIdentifier)?
    };
    let at = 2 * word;
    let sum = naive_sum(&[&bytes[at..at + 2], &adjustment.to_be_bytes()].concat());
    bytes[at..at + 2].copy_from_slice(&(if sum == 0xffff { 0 } else { sum }).to_be_bytes());
    Ok(u128::from_be_bytes(bytes))
}

#[test]
fn the_example_of_rfc_6296_section_3_6() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    verify(&pair, "fd01:203:405:1::1234", "2001:db8:1:d550::1234");
}

/// The example is in the message of the commit that added quoted packets to `ip6t_NPT` of Linux.
#[test]
fn the_example_of_linux_with_prefixes_of_64_bits() {
    let pair = pair("1:2:3:4::/64", "5:6:7:8::/64");
    verify(&pair, "1:2:3:4::1", "5:6:7:8:ffef::1");
}

#[test]
fn a_long_prefix_adjusts_the_first_word_that_is_not_all_ones() {
    let pair = pair("fd00:0:0:10::/60", "2001:db8:0:20::/60");
    // The adjustment is 0xfd10 - 0x2dd9 = 0xcf37.
    verify(&pair, "fd00:0:0:13:1:2:3:4", "2001:db8:0:23:cf38:2:3:4");
    verify(&pair, "fd00:0:0:13:ffff:2:3:4", "2001:db8:0:23:ffff:cf39:3:4");
    verify(&pair, "fd00:0:0:13:ffff:ffff:3:4", "2001:db8:0:23:ffff:ffff:cf3a:4");
    verify(&pair, "fd00:0:0:13:ffff:ffff:ffff:4", "2001:db8:0:23:ffff:ffff:ffff:cf3b");
    // The sum is 0xffff, which becomes 0.
    verify(&pair, "fd00:0:0:13:30c8::1", "2001:db8:0:23::1");
    assert_eq!(pair.outward(address("fd00:0:0:13:ffff:ffff:ffff:ffff")), None);
    assert_eq!(pair.inward(address("2001:db8:0:23:ffff:ffff:ffff:ffff")), None);
}

#[test]
fn a_short_prefix_adjusts_the_subnet_only() {
    let pair = pair("fd00::/8", "2000::/3");
    // The zeros of the shorter prefix take part: its subnets beyond bit 8 have no image.
    assert_eq!(pair.inward(address("2100::1")), None);
    verify(&pair, "fd12:3456:7890:1:ffff:ffff:ffff:ffff", "2012:3456:7890:dd01:ffff:ffff:ffff:ffff");
    assert_eq!(pair.outward(address("fd12:3456:7890:ffff::1")), None);
    assert_eq!(pair.inward(address("2012:3456:7890:ffff::1")), None);
    assert_eq!(pair.outward(address("fe12::1")), None);
}

#[test]
fn zeros_extend_the_shorter_prefix() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1:ab00::/56");
    // The adjustment is 0x030a - 0xd8ba = 0x2a4f.
    verify(&pair, "fd01:203:405:42::1", "2001:db8:1:ab42:2a4f::1");
    assert_eq!(pair.outward(address("fd01:203:405:142::1")), None);
    assert_eq!(pair.inward(address("2001:db8:1:ac42::1")), None);
}

#[test]
fn prefixes_of_another_family_or_length_are_refused() {
    let good: Prefix = "2001:db8::/64".parse().unwrap();
    for (text, error) in [
        (
            "192.0.2.0/24",
            "prefix 192.0.2.0/24: not an IPv6 prefix; NPTv6 translates between two IPv6 prefixes",
        ),
        (
            "::/0",
            "prefix ::/0: NPTv6 translates prefixes of 1 to 64 bits; choose the prefix of the whole site",
        ),
        (
            "2001:db8::/65",
            "prefix 2001:db8::/65: NPTv6 translates prefixes of 1 to 64 bits; choose the prefix of the whole site",
        ),
    ] {
        let bad: Prefix = text.parse().unwrap();
        for pair in [PrefixPair::new(bad, good), PrefixPair::new(good, bad)] {
            assert_eq!(pair.unwrap_err().to_string(), error);
        }
    }
    assert_eq!(
        PrefixPair::new("::/0".parse().unwrap(), good),
        Err(InvalidPair::Length("::/0".parse().unwrap()))
    );
}

/// Returns the sum of the pseudo-header and the bytes above IP.
fn upper_sum(ends: [u128; 2], protocol: u8, upper: &[u8]) -> u16 {
    let len = u32::try_from(upper.len()).unwrap();
    let words = [len.to_be_bytes(), u32::from(protocol).to_be_bytes()].concat();
    naive_sum(&[&ends[0].to_be_bytes()[..], &ends[1].to_be_bytes(), &words, upper].concat())
}

/// Returns an IPv6 packet. `options` is the number of hop-by-hop options headers.
fn ipv6(ends: [u128; 2], protocol: u8, options: usize, upper: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 * options + upper.len()).unwrap();
    let next = |more: usize| if more > 0 { 60 } else { protocol };
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(len.to_be_bytes());
    bytes.extend([next(options), 64]);
    bytes.extend(ends[0].to_be_bytes());
    bytes.extend(ends[1].to_be_bytes());
    for more in (0..options).rev() {
        bytes.extend([next(more), 0, 1, 4, 0, 0, 0, 0]);
    }
    bytes.extend(upper);
    bytes
}

/// Returns an IPv6 packet with a header of TCP, UDP or ICMPv6 and a correct checksum. `kind` is the type of an ICMPv6
/// message.
fn packet(ends: [u128; 2], protocol: u8, options: usize, kind: u8, payload: &[u8]) -> Vec<u8> {
    let (mut upper, at) = match protocol {
        TCP => (vec![1, 2, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 4, 0, 0, 0, 0, 0], 16),
        UDP => {
            let [a, b] = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
            (vec![1, 2, 0, 53, a, b, 0, 0], 6)
        }
        _ => (vec![kind, 0, 0, 0, 0, 0, 0, 7], 2),
    };
    upper.extend(payload);
    let checksum = match !upper_sum(ends, protocol, &upper) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    upper[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    ipv6(ends, protocol, options, &upper)
}

fn ends(packet: &[u8]) -> [u128; 2] {
    [8, 24].map(|at| u128::from_be_bytes(packet[at..at + 16].try_into().unwrap()))
}

/// Returns whether the checksum above IP of a complete packet is correct.
fn is_valid(packet: &[u8], protocol: u8, options: usize) -> bool {
    upper_sum(ends(packet), protocol, &packet[40 + 8 * options..]) == 0xffff
}

/// Two prefixes of random lengths. Bytes of 0 and 0xff are frequent.
fn prefixes() -> impl Strategy<Value = [(u128, u8); 2]> {
    let prefix = (octets(), prop_oneof![1_u8..=64, Just(48), Just(56), Just(64)]);
    [prefix.clone(), prefix]
        .prop_map(|prefixes| prefixes.map(|(bytes, length)| (bytes & !(u128::MAX >> length), length)))
}

fn octets() -> impl Strategy<Value = u128> + Clone {
    let word = prop_oneof![any::<u16>(), Just(0), Just(0xffff), Just(0xfffe), Just(1)];
    [(); 8]
        .map(|()| word.clone())
        .prop_map(|words| words.into_iter().fold(0, |bits, word| bits << 16 | u128::from(word)))
}

fn pair_of([inside, outside]: [(u128, u8); 2]) -> PrefixPair {
    let prefix = |(bits, length)| Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), length).unwrap();
    PrefixPair::new(prefix(inside), prefix(outside)).unwrap()
}

/// Returns an address in a prefix that has an image, apart from rare cases.
fn inside(prefixes: [(u128, u8); 2], bits: u128) -> u128 {
    prefixes[0].0 | bits & u128::MAX >> prefixes[0].1.max(prefixes[1].1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn the_mapping_is_checksum_neutral_and_has_an_inverse(
        prefixes in prefixes(),
        bits in octets(),
        // The address is in the zero-extended prefix, in the prefix, or anywhere.
        kind in 0..3,
    ) {
        let [from, to] = prefixes;
        let pair = pair_of(prefixes);
        let address = match kind {
            0 => inside(prefixes, bits),
            1 => from.0 | bits & u128::MAX >> from.1,
            _ => bits,
        };
        let image = pair.outward(address);
        prop_assert_eq!(image, naive_map(from, to, address).ok());
        prop_assert_eq!(pair_of([to, from]).inward(address), image);
        prop_assert_eq!(pair.inward(address), naive_map(to, from, address).ok());
        if let Some(image) = image {
            prop_assert_eq!(pair.inward(image), Some(address));
            prop_assert!(is_equal(naive_sum(&address.to_be_bytes()), naive_sum(&image.to_be_bytes())));
            prop_assert_eq!(image >> (128 - to.1), to.0 >> (128 - to.1));
        }
    }

    #[test]
    fn checksums_stay_valid(
        prefixes in prefixes(),
        bits in octets(),
        remote in octets(),
        protocol in prop_oneof![Just(TCP), Just(UDP), Just(ICMPV6)],
        options in 0_usize..3,
        payload in proptest::collection::vec(any::<u8>(), 0..40),
        trailer in 0_usize..5,
    ) {
        let [from, to] = prefixes;
        let (pair, local) = (pair_of(prefixes), inside(prefixes, bits));
        for is_outward in [true, false] {
            let ends = if is_outward { [local, remote] } else { [remote, local] };
            let before = packet(ends, protocol, options, ECHO, &payload);
            prop_assert!(is_valid(&before, protocol, options));
            let mut after = [&before[..], &[9; 5][..trailer]].concat();
            let result = match is_outward {
                true => pair.translate_outward(&mut after),
                false => pair_of([to, from]).translate_inward(&mut after),
            };
            let image = naive_map(from, to, local);
            prop_assert_eq!(result, image.map(|_| ()));
            // Nothing but the address changes.
            let mut expected = [&before[..], &[9; 5][..trailer]].concat();
            let at = if is_outward { 8 } else { 24 };
            expected[at..at + 16].copy_from_slice(&image.unwrap_or(local).to_be_bytes());
            prop_assert_eq!(&after, &expected);
            prop_assert!(is_valid(&after[..before.len()], protocol, options));
        }
    }

    /// The router that sends the error is inside or outside, and quotes a packet in the opposite direction.
    #[test]
    fn errors_quote_the_address_that_their_receiver_knows(
        prefixes in prefixes(),
        bits in [octets(), octets()],
        remotes in [octets(), octets()],
        protocol in prop_oneof![Just(TCP), Just(UDP), Just(ICMPV6)],
        options in [0_usize..3, 0_usize..3],
        kind in 1_u8..5,
        // Length of the quote, and whether the quoted packet is from a host of the site.
        quoted in 0_usize..120,
        is_of_site in any::<bool>(),
    ) {
        let [from, to] = prefixes;
        let pair = pair_of(prefixes);
        let hosts = bits.map(|bits| inside(prefixes, bits));
        let host = if is_of_site { hosts[1] } else { bits[1] };
        for is_outward in [true, false] {
            let (ends, quoted_ends) = match is_outward {
                true => ([hosts[0], remotes[0]], [remotes[1], host]),
                false => ([remotes[0], hosts[0]], [host, remotes[1]]),
            };
            let cause = packet(quoted_ends, protocol, options[0], ECHO, &[1, 2, 3, 4, 5]);
            let quote = &cause[..quoted.min(cause.len())];
            let before = packet(ends, ICMPV6, options[1], kind, quote);
            let mut after = before.clone();
            let result = match is_outward {
                true => pair.translate_outward(&mut after),
                false => pair_of([to, from]).translate_inward(&mut after),
            };
            let image = naive_map(from, to, hosts[0]);
            prop_assert_eq!(result, image.map(|_| ()));
            let mut expected = before.clone();
            if let Ok(image) = image {
                let at = if is_outward { 8 } else { 24 };
                expected[at..at + 16].copy_from_slice(&image.to_be_bytes());
                let at = 48 + 8 * options[1] + if is_outward { 24 } else { 8 };
                let quoted_image = naive_map(from, to, host).unwrap_or(host);
                if quote.len() >= 40 {
                    expected[at..at + 16].copy_from_slice(&quoted_image.to_be_bytes());
                }
            }
            prop_assert_eq!(&after, &expected);
            prop_assert!(is_valid(&after, ICMPV6, options[1]));
            if quote.len() == cause.len() {
                prop_assert!(is_valid(&after[48 + 8 * options[1]..], protocol, options[0]));
            }
        }
    }

    #[test]
    fn any_bytes_are_translated_or_unchanged(
        prefixes in prefixes(),
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        next in prop_oneof![Just(ICMPV6), Just(0), Just(44), Just(60), any::<u8>()],
    ) {
        if let Some(header) = bytes.first_chunk_mut::<40>() {
            (header[0], header[4], header[5], header[6]) = (0x60, 0, header[5] % 90, next);
            header[8..24].copy_from_slice(&prefixes[0].0.to_be_bytes());
        }
        let mut after = bytes.clone();
        if pair_of(prefixes).translate_outward(&mut after).is_err() {
            prop_assert_eq!(after, bytes);
        }
    }
}

#[test]
fn the_reason_says_which_answer_the_sender_receives() {
    let pair = pair("fd00::/56", "2001:db8::/48");
    let reason = |source: &str| {
        let mut bytes = packet([address(source), 1], UDP, 0, 0, b"x");
        let before = bytes.clone();
        let result = pair.translate_outward(&mut bytes);
        assert_eq!(result.is_ok(), bytes != before);
        result
    };
    assert_eq!(reason("fd00::1"), Ok(()));
    assert_eq!(reason("fd00:0:0:100::1"), Err(NotMapped::Prefix));
    assert_eq!(reason("fd00::ffff:ffff:ffff:ffff"), Err(NotMapped::InterfaceIdentifier));
    let mut bytes = packet([1, address("2001:db8:0:100::1")], UDP, 0, 0, b"x");
    assert_eq!(pair.translate_inward(&mut bytes), Err(NotMapped::Subnet));
    assert_eq!(pair.translate_inward(&mut bytes[..39]), Err(NotMapped::Header(DropReason::Ipv6Truncated)));
    assert_eq!(pair.translate_inward(&mut []), Err(NotMapped::Header(DropReason::Ipv6Truncated)));
}

/// Two hosts of a site use their outside addresses.
#[test]
fn a_hairpinned_packet_passes_both_translations() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let hosts = [address("fd01:203:405:1::1234"), address("fd01:203:405:2::5678")];
    let images = hosts.map(|host| pair.outward(host).unwrap());
    let mut bytes = packet([hosts[0], images[1]], TCP, 1, 0, b"request");
    pair.translate_outward(&mut bytes).unwrap();
    pair.translate_inward(&mut bytes).unwrap();
    assert_eq!(ends(&bytes), [images[0], hosts[1]]);
    assert!(is_valid(&bytes, TCP, 1));
}
