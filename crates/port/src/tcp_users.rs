//! Finds the user that owns the other end of a TCP connection within this host. The kernel's socket
//! diagnostics (sock_diag(7), `linux/inet_diag.h`) can query a single connection. On kernels without socket
//! diagnostics, the module searches the list of all sockets (`/proc/net/tcp`, proc_pid_net(5)).

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{NLM_F_ACK, NLM_F_DUMP, Netlink, NetlinkError, Request, u32_at};

/// Message type of a socket diagnostics request (`SOCK_DIAG_BY_FAMILY`).
const BY_FAMILY: u16 = 20;
/// TCP state of an established connection (`TCP_ESTABLISHED`).
const ESTABLISHED: u8 = 1;
/// TCP state of a listening socket (`TCP_LISTEN`).
const LISTEN: u8 = 10;
/// Size of `struct inet_diag_req_v2` in bytes.
const REQUEST: usize = 56;

/// User that owns the socket at the other end of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// The socket belongs to this user of this host. The field is the user ID.
    Local(u32),
    /// The socket belongs to this host but was closed. The kernel does not report the user of a
    /// closed socket.
    Gone,
    /// The socket is not in this namespace. The socket is on another machine or in another namespace.
    Elsewhere,
}

/// Returns whether the user ID `user` is root or the user of this process.
#[must_use]
pub fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// A handle with which the users of TCP connections are queried. The handle belongs to the network namespace of
/// the thread that opened it.
pub struct TcpUsers {
    /// Socket for the kernel's socket diagnostics, or `None` if the kernel does not support them.
    diagnostics: Option<Netlink>,
}

impl TcpUsers {
    /// Opens a handle in the calling thread's namespace. The handle uses socket diagnostics if the kernel
    /// supports them.
    #[must_use]
    pub fn open() -> TcpUsers {
        TcpUsers { diagnostics: diagnostics().ok() }
    }

    /// Returns the user of the socket whose own address is `peer` and whose remote address is `local`. On
    /// kernels without socket diagnostics, the calling thread must be in the namespace of the handle.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn user_of(&mut self, peer: SocketAddr, local: SocketAddr) -> io::Result<User> {
        let Some(netlink) = &mut self.diagnostics else { return listed_user(peer, local) };
        match netlink.transact(request(peer, local, NLM_F_ACK, u32::MAX)) {
            Ok(answers) => Ok(answers.first().map_or(User::Elsewhere, |answer| user(&answer.payload))),
            Err(error) if error.errno() == libc::ENOENT => Ok(User::Elsewhere),
            Err(NetlinkError::Refused { source, .. } | NetlinkError::Socket(source)) => Err(source),
        }
    }

    /// Returns whether a thread that calls [`TcpUsers::user_of`] must be in the namespace of the handle. This
    /// is the case on kernels without socket diagnostics.
    #[must_use]
    pub fn reads_list(&self) -> bool {
        self.diagnostics.is_none()
    }
}

/// Opens a socket for socket diagnostics, and checks that the kernel supports them. The check requests sockets with an
/// empty bit mask of TCP states. The answer is an empty list, or an error if diagnostics are not supported.
fn diagnostics() -> Result<Netlink, NetlinkError> {
    let mut netlink = Netlink::open_for(Some(SOCK_DIAG))?;
    let any = SocketAddr::new(IpAddr::from([0; 4]), 0);
    netlink.transact(request(any, any, NLM_F_DUMP, 0))?;
    Ok(netlink)
}

/// Builds a request with a `struct inet_diag_req_v2` for one connection. A connection over IPv4 is identified
/// by its IPv4 addresses, even if the socket is an IPv6 socket.
fn request(source: SocketAddr, destination: SocketAddr, flags: u16, states: u32) -> Request {
    let mut body = [0; REQUEST];
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let family = if from.is_ipv4() && to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    body[0] = family.to_ne_bytes()[0];
    body[1] = libc::IPPROTO_TCP.to_ne_bytes()[0];
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    body[8..10].copy_from_slice(&source.port().to_be_bytes());
    body[10..12].copy_from_slice(&destination.port().to_be_bytes());
    for (at, address) in [(12, from), (28, to)] {
        match address {
            IpAddr::V4(v4) if family == libc::AF_INET => body[at..at + 4].copy_from_slice(&v4.octets()),
            IpAddr::V4(v4) => body[at..at + 16].copy_from_slice(&v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => body[at..at + 16].copy_from_slice(&v6.octets()),
        }
    }
    if let SocketAddr::V6(v6) = source {
        // Interface index of a link-local address.
        body[44..48].copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    // No cookie.
    body[48..56].fill(0xff);
    Request::new(BY_FAMILY, flags, &body)
}

/// Parses a `struct inet_diag_msg` and returns the user that owns the socket.
fn user(payload: &[u8]) -> User {
    match (payload.get(1), u32_at(payload, 64)) {
        (Some(&ESTABLISHED), Some(user)) => User::Local(user),
        // If there is no such connection, the kernel answers with the listening socket of the address.
        (Some(&LISTEN) | None, _) => User::Elsewhere,
        // The kernel reports a closed socket as root's.
        _ => User::Gone,
    }
}

/// Returns the user like [`TcpUsers::user_of`], but searches the socket list of the calling thread's namespace.
fn listed_user(peer: SocketAddr, local: SocketAddr) -> io::Result<User> {
    // An IPv6 socket with an IPv4 connection is in the other list.
    let (first, second) = (listed(peer, false), listed(local, false));
    let mut found = User::Elsewhere;
    if let (Some(from), Some(to)) = (&first, &second) {
        found = find(&std::fs::read_to_string("/proc/thread-self/net/tcp")?, from, to);
    }
    if found == User::Elsewhere
        && let (Some(from), Some(to)) = (listed(peer, true), listed(local, true))
    {
        match std::fs::read_to_string("/proc/thread-self/net/tcp6") {
            Ok(text) => found = find(&text, &from, &to),
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn find(list: &str, from: &str, to: &str) -> User {
    let mut found = User::Elsewhere;
    for line in list.lines().skip(1) {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next() != Some(from) || fields.next() != Some(to) {
            continue;
        }
        // A closed socket is listed as root's.
        let open = fields.next() == Some("01");
        match fields.nth(3).and_then(|user| user.parse().ok()) {
            Some(user) if open => return User::Local(user),
            _ => found = User::Gone,
        }
    }
    found
}

/// Formats an address as in the kernel's socket list, which prints each 32-bit word of the address in host byte order.
/// `v6` selects the format of the IPv6 list. Returns `None` for an IPv6 address if `v6` is false.
fn listed(address: SocketAddr, v6: bool) -> Option<String> {
    let octets: Vec<u8> = match (address.ip(), v6) {
        (IpAddr::V4(v4), false) => v4.octets().to_vec(),
        (IpAddr::V4(v4), true) => v4.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V6(v6), true) => v6.octets().to_vec(),
        (IpAddr::V6(v6), false) => v6.to_ipv4_mapped()?.octets().to_vec(),
    };
    let mut text = String::new();
    for word in octets.as_chunks::<4>().0 {
        text.push_str(&format!("{:08X}", u32::from_ne_bytes(*word)));
    }
    Some(format!("{text}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the user of an open socket of this process is found, both with socket diagnostics and in the socket
    /// list. The socket is tested over IPv4, over IPv6, and over IPv4 with an IPv6 socket.
    #[test]
    fn a_socket_of_this_process_is_found_while_it_is_open() {
        for (at, to, own) in [
            ("127.0.0.1:0", "127.0.0.1", true),
            ("[::1]:0", "::1", std::path::Path::new("/proc/net/if_inet6").exists()),
            ("[::]:0", "127.0.0.1", std::path::Path::new("/proc/net/if_inet6").exists()),
        ] {
            if !own {
                continue;
            }
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let uid = rustix::process::geteuid().as_raw();
            for mut users in [TcpUsers::open(), TcpUsers { diagnostics: None }] {
                let there = SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
                let client = std::net::TcpStream::connect(there).unwrap();
                let (server, peer) = listener.accept().unwrap();
                let local = server.local_addr().unwrap();
                let mut user_of = |peer| users.user_of(peer, local).unwrap();
                assert_eq!(user_of(peer), User::Local(uid), "{at}");
                assert_eq!(user_of(SocketAddr::new(peer.ip(), peer.port() ^ 1)), User::Elsewhere);
                drop(client);
                assert_eq!(user_of(peer), User::Gone, "{at}");
            }
        }
    }

    #[test]
    fn the_kernel_is_asked_where_it_answers() {
        if crate::tcp_sessions::tcp_sessions(1, 1).is_ok() {
            assert!(!TcpUsers::open().reads_list());
        }
    }
}
