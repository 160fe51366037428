//! Queries and changes driver properties and offload settings of devices through the ethtool ioctls. Offload
//! features are identified by their internal kernel names. `ethtool -k` shows these names only for some
//! features (`tx-checksum-ip-generic`, `rx-vlan-hw-parse`).
#![allow(unsafe_code, reason = "ioctls with pointers to buffers; see the SAFETY comments")]

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use crate::link_error::LinkError;
use crate::netlink::{NetlinkError, text, u32_at};
use crate::sys;

const SIOCETHTOOL: u64 = 0x8946;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_SS_FEATURES: u32 = 4;
const STRING: usize = 32;

/// Driver, firmware and bus address of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name of the driver, for example `veth` or `mlx5_core`.
    pub driver: String,
    /// Version of the driver.
    pub version: String,
    /// Version of the device's firmware.
    pub firmware: String,
    /// Address of the device on its bus, for example a PCI address.
    pub bus: String,
}

/// Numbers of receive and transmit queues of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Number of queues in use that only receive.
    pub rx_only: u32,
    /// Number of queues in use that both receive and transmit.
    pub combined: u32,
    /// Maximum number of queues that both receive and transmit.
    pub max_combined: u32,
    /// Maximum number of queues that only receive.
    pub max_rx: u32,
}

impl Channels {
    /// Returns the number of queues in use that receive: receive-only queues and combined queues.
    #[must_use]
    pub fn rx(&self) -> u32 {
        self.rx_only + self.combined
    }
}

/// State of one offload feature of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Internal kernel name of the feature.
    pub name: String,
    /// Whether the feature is enabled.
    pub active: bool,
    /// Whether the setting of the feature can be changed.
    pub changeable: bool,
}

/// Executes an ethtool command for a device (ioctl `SIOCETHTOOL`). The buffer begins with the number of the
/// command and receives the answer.
fn command(device: &str, action: &'static str, buffer: &mut [u8]) -> Result<(), LinkError> {
    let fail = |e: io::Error| LinkError::new(device, action, NetlinkError::Socket(e));
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(fail)?;
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(fail(io::Error::from_raw_os_error(libc::ENODEV)));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
    // SAFETY: the buffer has the length that the command and the counts in the buffer require, which each
    // caller below ensures.
    unsafe { sys::ioctl(socket.as_fd(), SIOCETHTOOL, &mut request) }.map(drop).map_err(fail)
}

fn put(buffer: &mut [u8], at: usize, value: u32) {
    buffer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

/// Returns the driver information of a device.
///
/// # Errors
/// [`LinkError`] if there is no such device, or if the driver does not report the information.
pub fn driver(device: &str) -> Result<DriverInfo, LinkError> {
    // struct ethtool_drvinfo: cmd, then five strings of 32 bytes, then numbers; 196 bytes.
    let mut buffer = [0; 196];
    put(&mut buffer, 0, ETHTOOL_GDRVINFO);
    command(device, "asking the driver", &mut buffer)?;
    let field = |i: usize| text(&buffer[4 + i * STRING..4 + (i + 1) * STRING]);
    Ok(DriverInfo { driver: field(0), version: field(1), firmware: field(2), bus: field(3) })
}

/// Returns the link speed of a device in Mbit/s. Returns `None` if the link is down or the driver does not
/// report a speed.
///
/// # Errors
/// [`LinkError`] if there is no such device, or if the driver does not support the query.
pub fn speed(device: &str) -> Result<Option<u32>, LinkError> {
    // struct ethtool_cmd: the low half of the speed at 12, the high half at 28; 44 bytes.
    let mut buffer = [0; 44];
    put(&mut buffer, 0, ETHTOOL_GSET);
    command(device, "asking for the speed", &mut buffer)?;
    let half = |at: usize| u32::from(u16::from_ne_bytes([buffer[at], buffer[at + 1]]));
    let speed = half(12) | half(28) << 16;
    // SPEED_UNKNOWN is all ones. Older drivers set only the low half.
    Ok(Some(speed).filter(|speed| !matches!(*speed, 0 | 0xffff | u32::MAX)))
}

/// Returns the numbers of receive and transmit queues of a device.
///
/// # Errors
/// [`LinkError`]. The error number is `EOPNOTSUPP` if the driver does not report the numbers of queues.
pub fn channels(device: &str) -> Result<Channels, LinkError> {
    // struct ethtool_channels: cmd, maximum numbers of rx, tx, other, combined, then the numbers in use; 36
    // bytes.
    let mut buffer = [0; 36];
    put(&mut buffer, 0, ETHTOOL_GCHANNELS);
    command(device, "asking for queues", &mut buffer)?;
    let number = |i: usize| u32_at(&buffer, i * 4).unwrap_or(0);
    Ok(Channels { max_rx: number(1), max_combined: number(4), rx_only: number(5), combined: number(8) })
}

/// Returns the names of all offload features that the kernel knows. The position of a name is the bit number of the
/// feature. The names are the same for all devices, so only the first call queries the kernel.
fn feature_names(device: &str) -> Result<&'static [String], LinkError> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    match NAMES.get() {
        Some(names) => Ok(names),
        None => ask_feature_names(device).map(|names| NAMES.get_or_init(|| names).as_slice()),
    }
}

fn ask_feature_names(device: &str) -> Result<Vec<String>, LinkError> {
    // struct ethtool_sset_info: cmd, reserved, mask (u64), one count for the one bit requested.
    let mut info = [0; 20];
    put(&mut info, 0, ETHTOOL_GSSET_INFO);
    info[8..16].copy_from_slice(&(1_u64 << ETH_SS_FEATURES).to_ne_bytes());
    command(device, "asking for features", &mut info)?;
    let count = u32_at(&info, 16).unwrap_or(0).min(1024);
    // struct ethtool_gstrings: cmd, set, count, then the strings.
    let mut strings = vec![0; 12 + count as usize * STRING];
    put(&mut strings, 0, ETHTOOL_GSTRINGS);
    put(&mut strings, 4, ETH_SS_FEATURES);
    put(&mut strings, 8, count);
    command(device, "asking for features", &mut strings)?;
    Ok(strings[12..].chunks(STRING).map(text).collect())
}

/// Returns the states of all offload features of a device.
///
/// # Errors
/// [`LinkError`] if there is no such device.
pub fn features(device: &str) -> Result<Vec<Feature>, LinkError> {
    let names = feature_names(device)?;
    let blocks = names.len().div_ceil(32);
    // struct ethtool_gfeatures: cmd, size, then per block: available, requested, active, never changed.
    let mut buffer = vec![0; 8 + blocks * 16];
    put(&mut buffer, 0, ETHTOOL_GFEATURES);
    put(&mut buffer, 4, u32::try_from(blocks).unwrap_or(0));
    command(device, "asking for features", &mut buffer)?;
    let bit =
        |i: usize, word: usize| u32_at(&buffer, 8 + i / 32 * 16 + word * 4).unwrap_or(0) >> (i % 32) & 1 == 1;
    let feature = |(i, name): (usize, &String)| Feature {
        name: name.clone(),
        active: bit(i, 2),
        changeable: bit(i, 0) && !bit(i, 3),
    };
    Ok(names.iter().enumerate().filter(|(_, name)| !name.is_empty()).map(feature).collect())
}

/// Enables or disables offload features, which `changes` identifies by name. Features that the kernel does
/// not know and features that cannot be changed are skipped. The caller can query the resulting state with
/// [`features`].
///
/// # Errors
/// [`LinkError`] if there is no such device, or if the driver refuses a change.
pub fn set_features(device: &str, changes: &[(&str, bool)]) -> Result<(), LinkError> {
    let names = feature_names(device)?;
    let known = features(device)?;
    let blocks = names.len().div_ceil(32);
    // struct ethtool_sfeatures: cmd, size, then per block: valid, requested.
    let mut buffer = vec![0; 8 + blocks * 8];
    put(&mut buffer, 0, ETHTOOL_SFEATURES);
    put(&mut buffer, 4, u32::try_from(blocks).unwrap_or(0));
    for (name, on) in changes {
        let Some(i) = names.iter().position(|known| known == name) else { continue };
        if !known.iter().any(|feature| feature.name == *name && feature.changeable) {
            continue;
        }
        for (word, set) in [(0, true), (1, *on)] {
            let at = 8 + i / 32 * 8 + word * 4;
            let bits = u32_at(&buffer, at).unwrap_or(0) | u32::from(set) << (i % 32);
            put(&mut buffer, at, bits);
        }
    }
    command(device, "switching offloads", &mut buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_and_a_missing_device_has_none() {
        let features = features("lo").unwrap();
        let gso = features.iter().find(|feature| feature.name == "tx-generic-segmentation").unwrap();
        assert!(gso.active);
        assert_eq!(super::features("no-such-dev0").unwrap_err().errno(), libc::ENODEV);
        assert_eq!(driver("a-name-that-is-too-long").unwrap_err().errno(), libc::ENODEV);
    }
}
