//! Frames as they are, into and out of a device of a namespace: for what no ordinary socket would send, or would show.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};

use crate::{LabError, Namespace};

/// Bytes of a frame that a receiver keeps.
const LONGEST: usize = 2048;
/// `PACKET_OUTGOING`: a frame that leaves by the device.
const OUTGOING: u8 = 4;

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
        // Protocol 0: it sends only, and never copies what arrives.
        Ok(RawSender { socket: open(namespace, device, None)?, device: device.to_owned() })
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

/// A packet socket that sees every frame of one device, whoever it is for, those that it sends included.
#[derive(Debug)]
pub struct RawReceiver {
    socket: OwnedFd,
    device: String,
}

impl RawReceiver {
    /// Opens `device` in `namespace`; from then on nothing is missed.
    ///
    /// # Errors
    /// If there is no such device or no privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        let socket = open(namespace, device, Some(SockProtocol::EthAll))?;
        // A full receive buffer would look like loss on the path.
        set_socket_recv_buffer_size_force(&socket, 64 << 20)
            .map_err(|error| LabError::system(format!("receive buffer on {device}"), error))?;
        Ok(RawReceiver { socket, device: device.to_owned() })
    }

    /// The next frame that the device brings in, a VLAN tag taken out as the kernel does; what it sends is passed over. `None` if
    /// none has come within `timeout`.
    ///
    /// # Errors
    /// If the device is gone.
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

    /// Counts the frames that `wanted` accepts, up to the first one that `last` accepts.
    ///
    /// # Errors
    /// If that one does not come within `timeout`.
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

/// Counts what a device brings to the kernel's stack. What a program in the device's hook drops or redirects does not get
/// there.
#[derive(Debug)]
pub struct StackWatch {
    socket: OwnedFd,
    seen: u64,
}

impl StackWatch {
    /// Watches `device` in `namespace` from now on.
    ///
    /// # Errors
    /// If there is no such device or no privilege.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self, LabError> {
        let socket = open(namespace, device, Some(SockProtocol::EthAll))?;
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|error| LabError::system(format!("packet socket on {device}"), error))?;
        let mut watch = StackWatch { socket, seen: 0 };
        // Before it was bound it heard other devices too.
        watch.seen();
        watch.seen = 0;
        Ok(watch)
    }

    /// Frames that have come so far. Of many between two looks some may be left out, never all.
    pub fn seen(&mut self) -> u64 {
        let mut buffer = [0; 64];
        while let Ok((_, Some(from))) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
            self.seen += u64::from(from.pkttype() != OUTGOING);
        }
        self.seen
    }
}

/// A packet socket on one device; without a protocol it receives nothing.
fn open(namespace: &Namespace, device: &str, protocol: Option<SockProtocol>) -> Result<OwnedFd, LabError> {
    let what = || format!("packet socket on {device} in {}", namespace.name());
    namespace.inside(|| {
        // The address of the device as the kernel spells it, interface index included.
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
