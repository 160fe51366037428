//! Sockets of the control plane that belong to one device: nothing here is on a packet's path.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys;

/// Opens a UDP socket of `address` (of any, if it is unspecified) that others may share, as they do while one daemon takes over from
/// another. With a `device` it gets only what comes in by that one. It does not block.
/// An IPv6 address may still be looked for twins (RFC 4862, section 5.4), and an IPv6 socket is for IPv6 alone.
///
/// # Errors
/// The kernel's: no such device or address in the calling thread's namespace, or no privilege.
pub fn udp(address: IpAddr, port: u16, device: Option<&str>) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_freebind(&socket, true)?;
    }
    if let Some(device) = device {
        let mut name = [0_u8; libc::IFNAMSIZ];
        // The last octet stays 0: a name that long is no device's.
        let room = name.get_mut(..device.len()).filter(|room| room.len() < libc::IFNAMSIZ);
        room.ok_or(rustix::io::Errno::NODEV)?.copy_from_slice(device.as_bytes());
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)?;
    }
    rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
    Ok(UdpSocket::from(socket))
}

/// Sends whole Ethernet frames by a device, and receives none.
#[derive(Debug)]
pub struct FrameSender(OwnedFd);

impl FrameSender {
    /// By the device of that number in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's: no such device, or no privilege.
    pub fn open(ifindex: u32) -> io::Result<FrameSender> {
        let nodev = |_| io::Error::from(rustix::io::Errno::NODEV);
        // Protocol 0: the kernel delivers nothing to it.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).map_err(nodev)?,
            sll_protocol: 0,
            sll_ifindex: c_int::try_from(ifindex).map_err(nodev)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        sys::bind(socket.as_fd(), &address)?;
        Ok(FrameSender(socket))
    }

    /// Sends a frame, from its Ethernet header on and without its FCS.
    ///
    /// # Errors
    /// The kernel's: longer than the device takes, the device is down or its queue full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty())?;
        Ok(())
    }
}
