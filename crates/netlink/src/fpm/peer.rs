//! The user behind a TCP connection of this host, from the kernel's list of sockets (`/proc/net/tcp`, proc_pid_net(5)).

use std::io;
use std::net::{IpAddr, SocketAddr};

/// State of a connection whose both ends are open (`TCP_ESTABLISHED`).
const ESTABLISHED: &str = "01";

/// The user behind the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// A user of this host.
    Local(u32),
    /// A socket of this host that is closed already. The kernel does not tell its user any more.
    Gone,
    /// No socket of this namespace: another machine or namespace.
    Elsewhere,
}

/// Finds the user of the socket `peer` that is connected to `local`, in the calling thread's namespace.
///
/// # Errors
/// If the list cannot be read.
pub(super) fn user_of(peer: SocketAddr, local: SocketAddr) -> io::Result<User> {
    // A socket of IPv6 that speaks IPv4 stands in the other list.
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
            // A kernel without IPv6.
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
        let open = fields.next() == Some(ESTABLISHED);
        match fields.nth(3).and_then(|user| user.parse().ok()) {
            Some(user) if open => return User::Local(user),
            _ => found = User::Gone,
        }
    }
    found
}

/// Writes an address as the kernel lists it: words of its own byte order; `None` for an IPv6 address in the list of IPv4.
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

    #[test]
    fn a_socket_of_this_process_is_found_while_it_is_open() {
        for (at, own) in
            [("127.0.0.1:0", true), ("[::1]:0", std::path::Path::new("/proc/net/if_inet6").exists())]
        {
            if !own {
                continue;
            }
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            let uid = rustix::process::geteuid().as_raw();
            assert_eq!(user_of(peer, local).unwrap(), User::Local(uid), "{at}");
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert_eq!(user_of(other, local).unwrap(), User::Elsewhere);
            drop(client);
            assert_eq!(user_of(peer, local).unwrap(), User::Gone, "{at}");
        }
    }
}
