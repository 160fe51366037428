//! MTUs of ports and devices.

use serde::Serialize;

/// An MTU: size of the largest L3 packet in bytes, 68..=9000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Mtu(u16);

impl Mtu {
    /// Minimum MTU of IPv4 (RFC 791).
    pub const MIN: Mtu = Mtu(68);
    /// Maximum MTU that a port can have.
    pub const MAX: Mtu = Mtu(9000);
    /// Standard MTU of Ethernet.
    pub const ETHERNET: Mtu = Mtu(1500);

    /// Returns an MTU of `bytes` bytes. Returns `None` if the number is less than [`Mtu::MIN`] or greater
    /// than [`Mtu::MAX`].
    pub const fn new(bytes: u16) -> Option<Mtu> {
        if bytes >= Self::MIN.0 && bytes <= Self::MAX.0 { Some(Mtu(bytes)) } else { None }
    }

    /// Returns the MTU in bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for Mtu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
