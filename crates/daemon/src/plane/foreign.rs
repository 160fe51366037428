//! Devices that are not of our making: what becoming a bridge's port changes about them, and how that is undone.
//!
//! A bridged device has no ARP and no IPv6 of the kernel's, whose frames would leave by it, and takes frames for every
//! address. All functions are called in the device's namespace.

use port::link::{self, LinkChange, LinkError, LinkInfo};
use serde::{Deserialize, Serialize};

/// What a foreign device was like before it became a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Former {
    /// Its number in its namespace.
    pub ifindex: u32,
    up: bool,
    arp: bool,
    promiscuous: bool,
    ipv6: bool,
    mtu: u32,
}

impl Former {
    /// A device as it is now.
    pub fn of(info: &LinkInfo) -> Self {
        Former {
            ifindex: info.ifindex,
            up: info.up,
            arp: info.arp,
            promiscuous: info.promiscuous,
            ipv6: link::has_ipv6(&info.name),
            mtu: info.mtu,
        }
    }

    /// A device that a process before us has changed already: what the kernel makes of new ones.
    pub fn usual(info: &LinkInfo) -> Self {
        Former {
            ifindex: info.ifindex,
            up: true,
            arp: true,
            promiscuous: false,
            ipv6: link::has_ipv6("default"),
            mtu: info.mtu,
        }
    }

    /// Bytes of the largest L3 packet that it carried.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Makes the device what it was, as far as a port that was `bridged` and told an MTU has changed it.
    ///
    /// # Errors
    /// If the kernel refuses; a device that is gone is no error.
    pub fn restore(&self, bridged: bool, resized: bool) -> Result<(), LinkError> {
        let restored = || {
            if bridged {
                self.listen_again()?;
            }
            let mtu = resized.then_some(self.mtu);
            link::set(self.ifindex, &LinkChange { up: Some(self.up), mtu, ..LinkChange::default() })
        };
        match restored() {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives the device back to the kernel's ARP, IPv6 and address filter.
    ///
    /// # Errors
    /// If it is gone or the kernel refuses.
    pub fn listen_again(&self) -> Result<(), LinkError> {
        let change =
            LinkChange { arp: Some(self.arp), promiscuous: Some(self.promiscuous), ..LinkChange::default() };
        let info = link::by_index(self.ifindex)?;
        link::set(self.ifindex, &change)?;
        if self.ipv6 && !link::has_ipv6(&info.name) {
            // A kernel that refuses leaves the device as quiet as it is.
            let _ = link::enable_ipv6(&info.name);
        }
        Ok(())
    }
}

/// Keeps the kernel's ARP and IPv6 off a device and makes it take frames for every address.
///
/// # Errors
/// If the kernel refuses.
pub fn silence(info: &LinkInfo) -> Result<(), SilenceError> {
    link::disable_ipv6(&info.name)?;
    let change = LinkChange { arp: Some(false), promiscuous: Some(true), ..LinkChange::default() };
    Ok(link::set(info.ifindex, &change)?)
}

/// Why a device could not be silenced.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// The kernel variable of IPv6 could not be written.
    #[error("IPv6 could not be switched off on the device: {0}")]
    Ipv6(#[from] std::io::Error),
    /// The device could not be changed.
    #[error(transparent)]
    Link(#[from] LinkError),
}
