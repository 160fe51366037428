//! Ethernet addresses (IEEE 802 EUI-48) as plain values, which MAC tables, flow keys and packet specs use.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit Ethernet address in network byte order.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

/// Errors of parsing an Ethernet address from text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MacParseError {
    /// The text is not six groups separated by colons or by hyphens. The value is the number of groups found.
    #[error(
        "an Ethernet address has six groups of two hex digits, such as 02:00:00:00:00:01; found {0} groups"
    )]
    Groups(usize),
    /// A group does not consist of one or two hex digits. The value is the position of the group, starting at
    /// 1.
    #[error("group {0} of the Ethernet address is not one or two hex digits (such as 0a)")]
    Digits(usize),
}

impl MacAddr {
    /// The broadcast address ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// The zero address 00:00:00:00:00:00, which no interface has.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Returns the address as a 48-bit number. The first octet on the wire is the most significant octet of
    /// the number.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns the address for a 48-bit number. This is the inverse of [`MacAddr::as_u64`]. The
    /// high 16 bits of the number are ignored.
    #[inline]
    pub const fn from_u64(number: u64) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }

    /// Returns the address as a number whose least significant octet is the first octet of the
    /// address on the wire. If the number is stored in little-endian order, its first six octets
    /// are the address in wire order.
    ///
    /// With such numbers, one operation compares two addresses or writes an address into a frame.
    #[inline]
    pub const fn to_wire_word(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Returns whether the address is a group address (multicast or broadcast).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns whether the address is ff:ff:ff:ff:ff:ff.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.as_u64() == Self::BROADCAST.as_u64()
    }

    /// Returns whether the address is in 01:80:c2:00:00:00 to 01:80:c2:00:00:0f.
    ///
    /// Bridges never forward these addresses (IEEE 802.1D table 7-10, 802.1Q table 8-1).
    #[inline]
    pub const fn is_reserved_group(self) -> bool {
        self.as_u64() & !0xf == 0x0180_c200_0000
    }

    /// Returns whether the address is 00:00:00:00:00:00.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.as_u64() == 0
    }

    /// Returns whether the address is locally administered (U/L bit set).
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 == 2
    }

    /// Returns the group MAC address of an IPv4 multicast group (RFC 1112 section 6.4).
    pub const fn for_ipv4_multicast(group: std::net::Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// Returns the group MAC address of an IPv6 multicast group (RFC 2464 section 7).
    pub const fn for_ipv6_multicast(group: std::net::Ipv6Addr) -> MacAddr {
        let octets = group.octets();
        MacAddr([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, MacParseError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let groups = text.split(separator).count();
        if groups != 6 {
            return Err(MacParseError::Groups(groups));
        }
        let mut octets = [0; 6];
        for (place, group) in text.split(separator).enumerate() {
            let digits = (1..=2).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_hexdigit());
            octets[place] = match u8::from_str_radix(group, 16) {
                Ok(octet) if digits => octet,
                _ => return Err(MacParseError::Digits(place + 1)),
            };
        }
        Ok(MacAddr(octets))
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> Self {
        MacAddr(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reserved_groups_are_sixteen() {
        let reserved = |text: &str| text.parse::<MacAddr>().unwrap().is_reserved_group();
        assert!(reserved("01:80:c2:00:00:00"));
        assert!(reserved("01:80:c2:00:00:0f"));
        assert!(!reserved("01:80:c2:00:00:10"));
        assert!(!reserved("01:80:c2:00:01:00"));
        assert!(!reserved("00:80:c2:00:00:00"));
    }

    #[test]
    fn broadcast_is_multicast_and_only_all_ones() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(!"ff:ff:ff:ff:ff:fe".parse::<MacAddr>().unwrap().is_broadcast());
    }

    #[test]
    fn bad_texts_say_what_is_wrong() {
        assert_eq!("02:00:00:00:00".parse::<MacAddr>(), Err(MacParseError::Groups(5)));
        assert_eq!("02:00:00:00:00:+1".parse::<MacAddr>(), Err(MacParseError::Digits(6)));
        assert_eq!("02:00::00:00:01".parse::<MacAddr>(), Err(MacParseError::Digits(3)));
        assert_eq!("0-1-2-3-4-f".parse::<MacAddr>(), Ok(MacAddr([0, 1, 2, 3, 4, 15])));
    }

    #[test]
    fn multicast_groups_map_to_their_addresses() {
        assert_eq!(MacAddr::for_ipv4_multicast([239, 129, 2, 3].into()), MacAddr([1, 0, 0x5e, 1, 2, 3]));
        let group = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0x1234);
        assert_eq!(MacAddr::for_ipv6_multicast(group), MacAddr([0x33, 0x33, 0xff, 0, 0x12, 0x34]));
    }

    proptest! {
        #[test]
        fn numbers_and_texts_round_trip(octets: [u8; 6]) {
            let mac = MacAddr(octets);
            prop_assert_eq!(MacAddr::from_u64(mac.as_u64() | 0xabcd << 48), mac);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    }
}
