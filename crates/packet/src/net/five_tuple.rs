//! Connection keys: addresses, protocol and ports of one direction of a connection, with the VLAN.

use std::fmt;
use std::net::IpAddr;

use super::protocol::Protocol;
use crate::VlanId;

/// Five-tuple of one direction of a connection, with the VLAN of its frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FiveTuple {
    /// VLAN of packets with exactly one tag. `None`: the packets are untagged, or have a priority tag only.
    pub vlan: Option<VlanId>,
    /// Source IP address of the packets.
    pub source: IpAddr,
    /// Destination IP address of the packets, of the same family as the source address.
    pub destination: IpAddr,
    /// IP protocol number of the packets. For IPv6, the protocol of the header after the extension headers.
    pub protocol: u8,
    /// Source port and destination port. Both ports are required for TCP, UDP and SCTP, and not allowed for other
    /// protocols.
    pub ports: Option<(u16, u16)>,
}

impl FiveTuple {
    /// Returns whether flows of this IP protocol have ports.
    #[must_use]
    pub const fn has_ports(protocol: u8) -> bool {
        matches!(protocol, 6 | 17 | 132)
    }

    /// Returns a text form in which protocols without ports appear as numbers, such as `protocol 1`.
    #[must_use]
    pub fn with_number(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| self.write(f, FiveTuple::has_ports(self.protocol)))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, is_named: bool) -> fmt::Result {
        if let Some(vlan) = self.vlan {
            write!(f, "vlan {vlan}, ")?;
        }
        match Protocol::WORDS.iter().find(|(_, number)| is_named && *number == self.protocol) {
            Some((word, _)) => write!(f, "{word} ")?,
            None => write!(f, "protocol {} ", self.protocol)?,
        }
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(v4), Some(port)) => format!("{v4}:{port}"),
            (IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
        };
        let (from, to) = (self.ports.map(|ports| ports.0), self.ports.map(|ports| ports.1));
        write!(f, "{} > {}", end(self.source, from), end(self.destination, to))
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_tuples_are_written_with_the_name_or_the_number_of_the_protocol() {
        let (source, destination) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let tcp = FiveTuple { vlan: VlanId::new(7), source, destination, protocol: 6, ports: Some((80, 81)) };
        assert_eq!(tcp.to_string(), "vlan 7, tcp [2001:db8::1]:80 > [2001:db8::2]:81");
        assert_eq!(tcp.with_number().to_string(), tcp.to_string());
        let echo = FiveTuple { vlan: None, protocol: 58, ports: None, ..tcp };
        assert_eq!(echo.to_string(), "icmpv6 2001:db8::1 > 2001:db8::2");
        assert_eq!(echo.with_number().to_string(), "protocol 58 2001:db8::1 > 2001:db8::2");
    }
}
