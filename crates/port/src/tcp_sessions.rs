//! Queries the TCP sessions in the calling thread's network namespace (sock_diag(7), `linux/inet_diag.h`),
//! for example the BGP sessions of routing daemons.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{NLM_F_DUMP, Netlink, NetlinkError, Request};

/// Message type of a socket diagnostics request (`SOCK_DIAG_BY_FAMILY`).
const BY_FAMILY: u16 = 20;
/// TCP states to query, as a bit mask of `TCP_ESTABLISHED` and `TCP_SYN_SENT`. These are the states of sessions that
/// this host has accepted or initiated. Half-open incoming sessions are not queried, because any host can create them.
const STATES: u32 = 1 << 1 | 1 << 2;
/// TCP state of sockets that wait for connections (`TCP_LISTEN`), as a bit mask.
const LISTENING: u32 = 1 << 10;

/// Returns the local and the remote address of each TCP session that has `port` at either end. Only sessions that are
/// established or that this host has initiated are returned. Sessions that this host has accepted on another port are
/// left out, because any host can open them from `port`. IPv4 sessions have IPv4 addresses, even if the socket is an
/// IPv6 socket. The kernel selects the sessions by state and port. Local users can create any number of sessions.
/// Therefore `most` limits the number of sessions for each combination of address family and end (local or remote
/// port).
///
/// # Errors
/// [`NetlinkError`] if the kernel does not support `inet_diag` or refuses the request.
pub fn tcp_sessions(port: u16, most: usize) -> Result<Vec<(SocketAddr, SocketAddr)>, NetlinkError> {
    let mut services = BTreeSet::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        Netlink::open_for(Some(SOCK_DIAG))?.dump_until(request(family, LISTENING, (0, 0)), |answer| {
            services.extend(session(answer.payload).map(|(own, _)| own.port()));
            ControlFlow::Continue(())
        })?;
    }
    let mut sessions = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for ports in [(port, 0), (0, port)] {
            let before = sessions.len();
            // The rest of an answer that is cut is discarded with its socket.
            Netlink::open_for(Some(SOCK_DIAG))?.dump_until(request(family, STATES, ports), |answer| {
                if sessions.len() - before >= most {
                    return ControlFlow::Break(());
                }
                let is_accepted = |own: u16| own != port && services.contains(&own);
                sessions.extend(session(answer.payload).filter(|(own, _)| !is_accepted(own.port())));
                ControlFlow::Continue(())
            })?;
        }
    }
    sessions.sort_unstable();
    sessions.dedup();
    Ok(sessions)
}

/// Builds a request with a `struct inet_diag_req_v2`, which selects TCP sockets by their states, local ports and
/// remote ports. Port 0 matches any port.
fn request(family: i32, states: u32, (local, remote): (u16, u16)) -> Request {
    let mut body = [0; 56];
    body[0] = family.to_ne_bytes()[0];
    body[1] = libc::IPPROTO_TCP.to_ne_bytes()[0];
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    body[8..10].copy_from_slice(&local.to_be_bytes());
    body[10..12].copy_from_slice(&remote.to_be_bytes());
    // No cookie.
    body[48..56].fill(0xff);
    Request::new(BY_FAMILY, NLM_F_DUMP, &body)
}

/// Parses a `struct inet_diag_msg` into the local and the remote address. Returns `None` if the message is
/// too short.
fn session(payload: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let is_six = i32::from(*payload.first()?) == libc::AF_INET6;
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes(*payload.get(port..)?.first_chunk()?);
        let address = if is_six {
            IpAddr::V6(Ipv6Addr::from(*payload.get(address..)?.first_chunk::<16>()?)).to_canonical()
        } else {
            IpAddr::from(*payload.get(address..)?.first_chunk::<4>()?)
        };
        Some(SocketAddr::new(address, port))
    };
    Some((end(4, 8)?, end(6, 24)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_port_are_told_with_both_ends() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let here = listener.local_addr().unwrap();
            let other = std::net::TcpListener::bind(address).unwrap();
            let client = std::net::TcpStream::connect(here).unwrap();
            let _unconcerned = std::net::TcpStream::connect(other.local_addr().unwrap()).unwrap();
            let (server, there) = listener.accept().unwrap();
            let mut expected = vec![(here, there), (there, here)];
            expected.sort_unstable();
            assert_eq!(tcp_sessions(here.port(), 16).unwrap(), expected);
            drop((client, server));
        }
    }

    /// Checks that connections from the BGP port of another host to a service of this host are not
    /// returned as sessions. Any host can open such connections.
    #[test]
    fn connections_from_the_port_to_another_service_are_no_sessions() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let service = std::net::TcpListener::bind(address).unwrap();
            let client = std::net::TcpStream::connect(service.local_addr().unwrap()).unwrap();
            let (server, there) = service.accept().unwrap();
            // Only the client's own end is a session that this host has initiated.
            let sessions = tcp_sessions(there.port(), 16).unwrap();
            assert_eq!(sessions, [(there, service.local_addr().unwrap())]);
            drop((client, server));
        }
    }

    /// Checks that a query returns at most the requested number of sessions for each end, and that sessions which a
    /// truncated query has not returned do not appear in the result of the next query.
    #[test]
    fn at_most_the_given_number_of_sessions_of_each_end_is_returned() {
        let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
        let here = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..5).map(|_| std::net::TcpStream::connect(here).unwrap()).collect();
        let servers: Vec<_> = (0..5).map(|_| listener.accept().unwrap()).collect();
        for (most, expected) in [(0, 0), (1, 2), (4, 8), (5, 10), (16, 10)] {
            let sessions = tcp_sessions(here.port(), most).unwrap();
            assert_eq!(sessions.len(), expected, "{most}: {sessions:?}");
            assert_eq!(sessions.iter().filter(|(own, _)| *own == here).count(), expected / 2);
        }
        drop((clients, servers));
    }
}
