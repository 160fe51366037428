//! Settings of bridge ports' devices that were not created by the daemon. The module changes these settings when a
//! device becomes a bridge port, and restores them when the device is no longer a bridge port.
//!
//! On a bridged device, the kernel's ARP and IPv6 are disabled, because otherwise the kernel would send frames of its
//! own on the device. Promiscuous mode is enabled. All functions must be called in the device's namespace.

use port::link::{self, LinkChange, LinkError, LinkInfo};
use serde::{Deserialize, Serialize};

/// Settings of a device before the device became a port. The settings are saved only for devices that the daemon did
/// not create.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Former {
    /// Interface index of the device in its namespace.
    pub ifindex: u32,
    up: bool,
    arp: bool,
    promiscuous: bool,
    ipv6: bool,
    mtu: u32,
}

impl Former {
    /// Reads the current settings of a device from the kernel.
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

    /// Returns the kernel's default settings. They are used for a device whose original settings are unknown, because
    /// an earlier daemon process has already changed them.
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

    /// Returns the MTU in bytes that the device had before it became a port.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Restores the settings that were changed when the device became a port. `bridged` means that
    /// the port belonged to a bridge. `resized` means that the port's configuration contains an
    /// MTU.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a setting. No error is returned if the device no longer exists.
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

    /// Restores the former states of the kernel's ARP, of IPv6 and of promiscuous mode on the device. If the kernel
    /// refuses to enable IPv6, IPv6 stays disabled.
    ///
    /// # Errors
    /// Returns an error if the device no longer exists or the kernel refuses a setting.
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

/// Disables the kernel's ARP and IPv6 on a device, and enables promiscuous mode.
///
/// # Errors
/// Returns an error if the kernel refuses a setting.
pub fn silence(info: &LinkInfo) -> Result<(), SilenceError> {
    link::disable_ipv6(&info.name)?;
    let change = LinkChange { arp: Some(false), promiscuous: Some(true), ..LinkChange::default() };
    Ok(link::set(info.ifindex, &change)?)
}

/// Reason why the kernel's ARP and IPv6 could not be disabled on a device.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// The kernel's sysctl that disables IPv6 could not be written.
    #[error("IPv6 could not be switched off on the device: {0}")]
    Ipv6(#[from] std::io::Error),
    /// The flags of the device could not be changed.
    #[error(transparent)]
    Link(#[from] LinkError),
}
