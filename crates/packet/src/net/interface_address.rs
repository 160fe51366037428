//! Interface addresses: an IP address of a host with the prefix length of the host's network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// An interface address with its prefix length, such as `10.0.0.1/24` or `fd00::1/64`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceAddress {
    /// IP address of the interface, including the host part.
    pub address: IpAddr,
    /// Prefix length in bits: 0..=32 for IPv4, 0..=128 for IPv6.
    pub prefix: u8,
}

/// Error for a text that is not an interface address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not an address with its prefix length, such as 10.0.0.1/24 or fd00::1/64")]
pub struct InterfaceAddressError;

impl InterfaceAddress {
    /// Returns the reserved meaning of an address that no host may have: `Some("network")` for the network
    /// address of its prefix, `Some("broadcast")` for the broadcast address. Returns `None` for a host
    /// address.
    pub fn reserved_as(&self) -> Option<&'static str> {
        let (IpAddr::V4(address), 1..=30) = (self.address, self.prefix) else { return None };
        let host_bits = u32::MAX >> self.prefix;
        match u32::from(address) & host_bits {
            0 => Some("network"),
            bits if bits == host_bits => Some("broadcast"),
            _ => None,
        }
    }
}

impl FromStr for InterfaceAddress {
    type Err = InterfaceAddressError;

    fn from_str(text: &str) -> Result<Self, InterfaceAddressError> {
        let (address, prefix) = text.split_once('/').ok_or(InterfaceAddressError)?;
        let address: IpAddr = address.parse().map_err(|_| InterfaceAddressError)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        match prefix.parse() {
            Ok(prefix) if digits && prefix <= longest => Ok(InterfaceAddress { address, prefix }),
            _ => Err(InterfaceAddressError),
        }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for InterfaceAddress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_prefix_that_fits() {
        assert!("10.0.0.1/24".parse::<InterfaceAddress>().is_ok());
        assert!("fd00::1/128".parse::<InterfaceAddress>().is_ok());
        for bad in ["10.0.0.1", "10.0.0.1/33", "10.0.0/24", "10.0.0.1/+4", "10.0.0.1/", "fd00::1/129"] {
            assert!(bad.parse::<InterfaceAddress>().is_err(), "{bad}");
        }
        assert_eq!("10.0.0.0/24".parse::<InterfaceAddress>().unwrap().reserved_as(), Some("network"));
        assert_eq!("10.0.0.255/24".parse::<InterfaceAddress>().unwrap().reserved_as(), Some("broadcast"));
        assert_eq!("10.0.0.0/31".parse::<InterfaceAddress>().unwrap().reserved_as(), None);
    }
}
