//! Sockets of the control plane that belong to one device: nothing here is on a packet's path.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
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
    let (level, name) = match address {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    sys::set_option(socket.as_fd(), level, name, &1_i32)?;
    rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
    Ok(UdpSocket::from(socket))
}

/// A datagram that a socket of [`udp`] has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets of it that are in the buffer.
    pub length: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The number of the device that it came in by; 0 where the kernel does not say.
    pub ifindex: u32,
}

/// Receives a datagram with a socket of [`udp`].
///
/// # Errors
/// The kernel's, [`io::ErrorKind::WouldBlock`] where none waits; [`io::ErrorKind::InvalidData`] where its sender is none of IP.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut envelope = sys::Envelope { from: [0; 128], control: [0; 128] };
    let (length, filled) = sys::receive(socket.as_fd(), buffer, &mut envelope)?;
    let from = sender(&envelope.from).ok_or(io::ErrorKind::InvalidData)?;
    let ifindex = device(envelope.control.get(..filled).unwrap_or(&[])).unwrap_or(0);
    Ok(Received { length, from, ifindex })
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
fn sender(address: &[u8; 128]) -> Option<SocketAddr> {
    let family = c_int::from(u16::from_ne_bytes(*address.first_chunk()?));
    let port = u16::from_be_bytes(*address.get(2..)?.first_chunk()?);
    let ip = match family {
        libc::AF_INET => IpAddr::from(*address.get(4..)?.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Finds the device in ancillary data: `struct in_pktinfo` begins with its number, `struct in6_pktinfo` ends with it (ip(7), ipv6(7)).
fn device(mut control: &[u8]) -> Option<u32> {
    const HEADER: usize = 16;
    loop {
        let length = usize::try_from(u64::from_ne_bytes(*control.first_chunk()?)).ok()?;
        let level = c_int::from_ne_bytes(*control.get(8..)?.first_chunk()?);
        let kind = c_int::from_ne_bytes(*control.get(12..)?.first_chunk()?);
        let at = match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => Some(0),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => Some(16),
            _ => None,
        };
        if let Some(at) = at {
            return Some(u32::from_ne_bytes(*control.get(HEADER + at..length)?.first_chunk()?));
        }
        control = control.get(length.max(HEADER).next_multiple_of(8)..)?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_comes_with_its_sender_and_device() {
        for address in ["127.0.0.1", "::1"] {
            let socket = udp(address.parse().unwrap(), 0, None).unwrap();
            let sender = UdpSocket::bind((address, 0)).unwrap();
            sender.send_to(b"whence", socket.local_addr().unwrap()).unwrap();
            let mut buffer = [0; 64];
            // Over the loopback device it is there once it is sent.
            let received = receive(&socket, &mut buffer).unwrap();
            let loopback = crate::link::find("lo").unwrap().ifindex;
            assert_eq!(
                received,
                Received { length: 6, from: sender.local_addr().unwrap(), ifindex: loopback }
            );
            assert_eq!(receive(&socket, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
}
