//! Versions of DHCP, each of which is relayed separately.

use std::fmt;
use std::net::IpAddr;

/// A version of DHCP. Each address family has its own version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    V4,
    V6,
}

impl Version {
    /// Returns the DHCP version of servers with this address: DHCPv4 for IPv4, and DHCPv6 for IPv6.
    pub fn of(address: IpAddr) -> Version {
        if address.is_ipv4() { Version::V4 } else { Version::V6 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V4 => "DHCP",
            Version::V6 => "DHCPv6",
        })
    }
}

/// The name of a device, and the version of DHCP that is relayed on it.
pub type Key = (String, Version);
