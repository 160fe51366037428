//! Sockets of the control plane that are bound to one device. No code in this module runs per packet.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys;

/// Opens a non-blocking UDP socket bound to `address` and `port`. Other sockets may be bound to
/// this address and port at the same time (`SO_REUSEADDR`), because two daemons bind the address
/// and port during a hand-over. If `device` is given, the socket receives only datagrams that
/// arrive on this device.
///
/// An IPv6 address may be bound while its duplicate address detection is in progress (RFC 4862, section 5.4).
/// An IPv6 socket receives only IPv6 datagrams.
///
/// # Errors
/// The kernel's error, for example if the calling thread's namespace has no such device or address, or if the
/// process lacks privileges.
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
        // The last byte stays 0. No device has a name without space for the terminating 0.
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

/// Length, sender and arrival device of a datagram that [`receive`] has stored in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes that were stored in the buffer.
    pub length: usize,
    /// Address and port of the sender.
    pub from: SocketAddr,
    /// Interface index of the device on which the datagram arrived, or 0 if the kernel does not report it.
    pub ifindex: u32,
}

/// Receives a datagram from a socket that [`udp`] has opened, and stores it in `buffer`.
///
/// # Errors
/// - The kernel's error. If no datagram is pending, this is [`io::ErrorKind::WouldBlock`].
/// - [`io::ErrorKind::InvalidData`] if the sender's address is not an IP address.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut envelope = sys::Envelope { from: [0; 128], control: [0; 128] };
    let (length, filled) = sys::receive(socket.as_fd(), buffer, &mut envelope)?;
    let from = sender(&envelope.from).ok_or(io::ErrorKind::InvalidData)?;
    let ifindex = device(envelope.control.get(..filled).unwrap_or(&[])).unwrap_or(0);
    Ok(Received { length, from, ifindex })
}

/// Parses a `struct sockaddr_in` or `struct sockaddr_in6`. Returns `None` for any other address family.
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

/// Returns the index of the arrival interface from the ancillary data of a datagram, or `None` if
/// the data does not contain the index. The index is the first field of `struct in_pktinfo` and the
/// last field of `struct in6_pktinfo` (ip(7), ipv6(7)).
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

/// A packet socket that transmits Ethernet frames on one device. The socket receives no frames.
#[derive(Debug)]
pub struct FrameSender(OwnedFd);

impl FrameSender {
    /// Opens a socket for the device with interface index `ifindex` in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's error, for example if there is no such device or the process lacks privileges.
    pub fn open(ifindex: u32) -> io::Result<FrameSender> {
        let nodev = |_| io::Error::from(rustix::io::Errno::NODEV);
        // With protocol 0, the kernel delivers no frames to the socket.
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

    /// Transmits `frame`, which begins with the Ethernet header and does not include an FCS.
    ///
    /// # Errors
    /// The kernel's error, for example if the frame is too long, the device is down, or the device's queue is
    /// full.
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
            // A datagram over the loopback device is pending as soon as it is sent.
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
