//! Address prefixes (RFC 4632, RFC 4291 section 2.3).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// An IPv4 or IPv6 address prefix. Address bits beyond the prefix length are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Error for a text that is not a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither an address nor a prefix such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct PrefixError;

/// Error for a prefix length that exceeds the number of bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("prefix {address}/{length}: too long; IPv4 has 32 bits and IPv6 128")]
pub struct PrefixLengthError {
    /// Address that was passed with the invalid prefix length.
    pub address: IpAddr,
    /// Invalid prefix length in bits.
    pub length: u8,
}

impl Prefix {
    /// Creates a prefix. Bits of `address` beyond `length` are cleared.
    ///
    /// # Errors
    /// Returns an error if `length` exceeds 32 for an IPv4 address, or 128 for an IPv6 address.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, PrefixLengthError> {
        let too_long = PrefixLengthError { address, length };
        let address = match address {
            IpAddr::V4(v4) => {
                let host = u32::BITS.checked_sub(length.into()).ok_or(too_long)?;
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)))
            }
            IpAddr::V6(v6) => {
                let host = u128::BITS.checked_sub(length.into()).ok_or(too_long)?;
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)))
            }
        };
        Ok(Prefix { address, length })
    }

    /// Returns the first address of the prefix.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether an address is in the prefix. Returns `false` for an address of the other family.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Prefix::new(address, self.length).is_ok_and(|other| other == *self)
    }

    /// Returns whether all addresses of another prefix are in this prefix.
    #[must_use]
    pub fn covers(&self, inner: Prefix) -> bool {
        self.length <= inner.length && self.contains(inner.address)
    }
}

/// Converts an address to the prefix of full length (/32 or /128) that contains only the address.
impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Prefix {
        Prefix { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Parses `ADDRESS/LENGTH`, or an address without a length. An address without a length is parsed as a
    /// host prefix (/32 or /128).
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        match length {
            None => Ok(address.into()),
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                let length = text.parse().map_err(|_| PrefixError)?;
                Prefix::new(address, length).map_err(|_| PrefixError)
            }
            Some(_) => Err(PrefixError),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read_and_cleared() {
        for (text, shown) in [("10.1.2.3/8", "10.0.0.0/8"), ("::1", "::1/128"), ("2001:db8::1/0", "::/0")] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), shown);
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "x/1", "1.2.3.4/-1"]
        {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
        let long = Prefix::new(Ipv4Addr::LOCALHOST.into(), 33).unwrap_err();
        assert_eq!(long.to_string(), "prefix 127.0.0.1/33: too long; IPv4 has 32 bits and IPv6 128");
    }

    #[test]
    fn a_prefix_contains_addresses_of_its_family_only() {
        let prefix: Prefix = "10.1.2.3/8".parse().unwrap();
        assert!(prefix.contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix.contains("11.0.0.1".parse().unwrap()));
        assert!(!"::/0".parse::<Prefix>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!(!"0.0.0.0/0".parse::<Prefix>().unwrap().contains("::1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn a_prefix_covers_exactly_the_prefixes_all_of_whose_addresses_are_in_it(
            outer in (0_u32..16, 0_u8..=32), inner in (0_u32..16, 0_u8..=32)
        ) {
            let prefix = |(bits, length): (u32, u8)| Prefix::new(Ipv4Addr::from_bits(bits << 28).into(), length);
            let (outer, inner) = (prefix(outer).unwrap(), prefix(inner).unwrap());
            let IpAddr::V4(first) = inner.address() else { unreachable!() };
            let host = u32::MAX.checked_shr(inner.length().into()).unwrap_or(0);
            let last = Ipv4Addr::from_bits(first.to_bits() | host);
            prop_assert_eq!(outer.covers(inner), outer.contains(first.into()) && outer.contains(last.into()));
        }
    }
}
