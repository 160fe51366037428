//! Sending and receiving of raw frames on a device in a namespace, for frames that ordinary sockets cannot
//! send or receive.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};

use crate::{LabError, Namespace};

/// Maximum number of bytes of a frame that a receiver stores.
const LONGEST: usize = 2048;
/// Packet type `PACKET_OUTGOING` of packet(7): frames that the device sends.
const OUTGOING: u8 = 4;

/// A packet socket that sends frames on one device.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
    device: String,
}

impl RawSender {
    /// Opens a packet socket for sending on `device` in `namespace`.
    ///
    /// # Errors
    /// Returns an error if the device does not exist or the process lacks the privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        // With protocol 0 the socket only sends and does not receive copies of frames.
        Ok(RawSender { socket: open(namespace, device, None)?, device: device.to_owned() })
    }

    /// Sends one frame, which begins with the Ethernet header.
    ///
    /// # Errors
    /// Returns an error if the device is down or its queue is full.
    pub fn send(&self, frame: &[u8]) -> Result<(), LabError> {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::empty())
            .map(drop)
            .map_err(|error| LabError::system(format!("sending a frame out of {}", self.device), error))
    }
}

/// A packet socket that receives every frame on one device, for any destination and in both directions.
#[derive(Debug)]
pub struct RawReceiver {
    socket: OwnedFd,
    device: String,
}

impl RawReceiver {
    /// Opens a packet socket for receiving on `device` in `namespace`. The socket receives all frames from
    /// this call on.
    ///
    /// # Errors
    /// Returns an error if the device does not exist or the process lacks the privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        let socket = open(namespace, device, Some(SockProtocol::EthAll))?;
        // A full receive buffer would look like loss on the path.
        set_socket_recv_buffer_size_force(&socket, 64 << 20)
            .map_err(|error| LabError::system(format!("receive buffer on {device}"), error))?;
        Ok(RawReceiver { socket, device: device.to_owned() })
    }

    /// Returns the next frame that the device receives. VLAN tags that the kernel has stripped are missing in the
    /// frame. Frames that the device sends are skipped. Returns `None` if no frame arrives within `timeout`.
    ///
    /// # Errors
    /// Returns an error if the device no longer exists.
    pub fn arrived(&self, timeout: Duration) -> Result<Option<Vec<u8>>, LabError> {
        let failed = |error| LabError::system(format!("receiving frames of {}", self.device), error);
        let (deadline, mut buffer) = (Instant::now() + timeout, [0_u8; LONGEST]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left)).map_err(failed)?;
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((length, from)) if from.is_none_or(|from| from.pkttype() != OUTGOING) => {
                    return Ok(Some(buffer[..length].to_vec()));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) if Instant::now() >= deadline => return Ok(None),
                Err(nix::errno::Errno::EAGAIN) => {}
                Err(error) => {
                    return Err(LabError::system(format!("receiving frames of {}", self.device), error));
                }
            }
        }
    }

    /// Counts the frames for which `wanted` returns `true`, until a frame arrives for which `last` returns
    /// `true`.
    ///
    /// # Errors
    /// Returns an error if no such last frame arrives within `timeout`.
    pub fn count_until(
        &self,
        wanted: impl Fn(&[u8]) -> bool,
        last: impl Fn(&[u8]) -> bool,
        timeout: Duration,
    ) -> Result<u64, LabError> {
        let failed = |error| LabError::system(format!("receiving frames of {}", self.device), error);
        let (started, mut count, mut buffer) = (Instant::now(), 0, [0_u8; LONGEST]);
        set_socket_timeout(&self.socket, Timeout::Recv, Some(Duration::from_millis(20))).map_err(failed)?;
        while started.elapsed() < timeout {
            let frame = match rustix::net::recv(&self.socket, &mut buffer, rustix::net::RecvFlags::empty()) {
                Ok((length, _)) => &buffer[..length],
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => return Err(failed(error)),
            };
            if last(frame) {
                return Ok(count);
            }
            count += u64::from(wanted(frame));
        }
        Err(LabError::TimedOut {
            what: format!("the last frame on {}", self.device),
            seconds: timeout.as_secs_f64(),
            detail: format!(": {count} of the wanted ones came"),
        })
    }
}

/// A counter of frames that the kernel's network stack receives from a device. Frames that an XDP program of
/// the device drops or redirects do not reach the network stack.
#[derive(Debug)]
pub struct StackWatch {
    socket: OwnedFd,
    seen: u64,
}

impl StackWatch {
    /// Starts to count frames on `device` in `namespace`.
    ///
    /// # Errors
    /// Returns an error if the device does not exist or the process lacks the privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        let socket = open(namespace, device, Some(SockProtocol::EthAll))?;
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|error| LabError::system(format!("packet socket on {device}"), error))?;
        let mut watch = StackWatch { socket, seen: 0 };
        // Discards frames of other devices that the socket received before it was bound.
        watch.seen();
        watch.seen = 0;
        Ok(watch)
    }

    /// Returns the number of frames counted so far. If many frames arrive between two calls, some of them may not be
    /// counted, but at least one is counted.
    pub fn seen(&mut self) -> u64 {
        let mut buffer = [0; 64];
        while let Ok((_, Some(from))) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
            self.seen += u64::from(from.pkttype() != OUTGOING);
        }
        self.seen
    }
}

/// Opens a packet socket on one device. If `protocol` is `None`, the socket receives nothing.
fn open(namespace: &Namespace, device: &str, protocol: Option<SockProtocol>) -> Result<OwnedFd, LabError> {
    let what = || format!("packet socket on {device} in {}", namespace.name());
    namespace.inside(|| {
        // Link-layer address of the device as the kernel returns it, with the interface index.
        let address = getifaddrs()
            .map_err(|error| LabError::system(what(), error))?
            .filter(|entry| entry.interface_name == device)
            .find_map(|entry| entry.address?.as_link_addr().copied())
            .ok_or_else(|| LabError::system(what(), io::Error::from(io::ErrorKind::NotFound)))?;
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
            .map_err(|error| LabError::system(what(), error))?;
        bind(socket.as_raw_fd(), &address).map_err(|error| LabError::system(what(), error))?;
        Ok(socket)
    })
}
