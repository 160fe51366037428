//! Frames as they are, out of a device of a namespace: for what no ordinary socket would send.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, bind, socket};

use crate::{LabError, Namespace};

/// A packet socket bound to one device.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
    device: String,
}

impl RawSender {
    /// Opens `device` in `namespace` for sending.
    ///
    /// # Errors
    /// If there is no such device or no privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        let what = || format!("packet socket on {device} in {}", namespace.name());
        let socket = namespace.inside(|| {
            // The address of the device as the kernel spells it, interface index included.
            let address = getifaddrs()
                .map_err(|error| LabError::system(what(), error))?
                .filter(|entry| entry.interface_name == device)
                .find_map(|entry| entry.address?.as_link_addr().copied())
                .ok_or_else(|| LabError::system(what(), io::Error::from(io::ErrorKind::NotFound)))?;
            // Protocol 0: it sends only, and never copies what arrives.
            let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
                .map_err(|error| LabError::system(what(), error))?;
            bind(socket.as_raw_fd(), &address).map_err(|error| LabError::system(what(), error))?;
            Ok(socket)
        })?;
        Ok(RawSender { socket, device: device.to_owned() })
    }

    /// Sends one frame, Ethernet header first.
    ///
    /// # Errors
    /// If the device is down or its queue is full.
    pub fn send(&self, frame: &[u8]) -> Result<(), LabError> {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::empty())
            .map(drop)
            .map_err(|error| LabError::system(format!("sending a frame out of {}", self.device), error))
    }
}
