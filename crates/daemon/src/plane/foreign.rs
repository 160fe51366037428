//! Settings of devices that the daemon did not create: the changes for a bridge port, and their reversal.
//!
//! On a bridged device, the kernel's ARP and IPv6 are disabled, because their frames would leave by the
//! device, and promiscuous mode is enabled. All functions are called in the device's namespace.

use port::link::{self, LinkChange, LinkError, LinkInfo};
use serde::{Deserialize, Serialize};

/// Saved settings of a foreign device from before it became a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Former {
    /// Interface index in the device's namespace.
    pub ifindex: u32,
    up: bool,
    arp: bool,
    promiscuous: bool,
    ipv6: bool,
    mtu: u32,
}

impl Former {
    /// Returns the current settings of a device.
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

    /// Returns the kernel's default settings, for a device that an earlier process has already changed.
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

    /// Returns the MTU in bytes that the device had.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Restores the device's settings as far as its port has changed them. `bridged` is whether the port was
    /// bridged. `resized` is whether the port set an MTU.
    ///
    /// # Errors
    /// If the kernel refuses. A device that is gone is no error.
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

    /// Restores the kernel's ARP, IPv6 and address filter on the device.
    ///
    /// # Errors
    /// If the device is gone or the kernel refuses.
    pub fn listen_again(&self) -> Result<(), LinkError> {
        let change =
            LinkChange { arp: Some(self.arp), promiscuous: Some(self.promiscuous), ..LinkChange::default() };
        let info = link::by_index(self.ifindex)?;
        link::set(self.ifindex, &change)?;
        if self.ipv6 && !link::has_ipv6(&info.name) {
            // If the kernel refuses, IPv6 stays disabled on the device.
            let _ = link::enable_ipv6(&info.name);
        }
        Ok(())
    }
}

/// Disables the kernel's ARP and IPv6 on a device and enables promiscuous mode.
///
/// # Errors
/// If the kernel refuses.
pub fn silence(info: &LinkInfo) -> Result<(), SilenceError> {
    link::disable_ipv6(&info.name)?;
    let change = LinkChange { arp: Some(false), promiscuous: Some(true), ..LinkChange::default() };
    Ok(link::set(info.ifindex, &change)?)
}

/// Reason why a device could not be silenced.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// The kernel's sysctl for IPv6 could not be written.
    #[error("IPv6 could not be switched off on the device: {0}")]
    Ipv6(#[from] std::io::Error),
    /// The device could not be changed.
    #[error(transparent)]
    Link(#[from] LinkError),
}
