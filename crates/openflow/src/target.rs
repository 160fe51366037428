//! Addresses and settings of controllers and listeners, in the syntax of Open vSwitch
//! (ovs-vswitchd.conf.db(5), table Controller).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::tls::Tls;
use crate::wire::Version;

/// Default TCP port of OpenFlow.
pub const PORT: u16 = 6653;

/// Address of a controller or listener.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `tcp:IP[:PORT]`: the bridge connects over TCP.
    Tcp(SocketAddr),
    /// `unix:PATH`: the bridge connects to a Unix socket.
    Unix(PathBuf),
    /// `ssl:IP[:PORT]`: the bridge connects with TLS.
    Tls(SocketAddr),
    /// `ptcp:[PORT][:IP]`: the bridge listens on TCP.
    ListenTcp(SocketAddr),
    /// `pssl:[PORT][:IP]`: the bridge listens with TLS.
    ListenTls(SocketAddr),
    /// `punix:PATH`: the bridge listens on a Unix socket.
    ListenUnix(PathBuf),
}

/// Reason why an address is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// The text has none of the supported forms of an address.
    #[error(
        "controller {0:?}: not an address; write tcp:IP[:PORT], ssl:IP[:PORT], unix:PATH, ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH \
         (names are not looked up)"
    )]
    Form(String),
}

impl Address {
    /// Returns whether the bridge listens on the address, instead of connecting to it.
    #[must_use]
    pub fn is_passive(&self) -> bool {
        matches!(self, Address::ListenTcp(_) | Address::ListenTls(_) | Address::ListenUnix(_))
    }

    /// Returns whether the connection uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tls(_) | Address::ListenTls(_))
    }
}

impl FromStr for Address {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Address, TargetError> {
        Address::parse(text, false)
    }
}

impl Address {
    /// Parses an address. A `ptcp:` listener without an IP address listens on 127.0.0.1. If `allow_remote` is true, a
    /// listener without an IP address listens on all addresses of the machine, like in Open vSwitch.
    ///
    /// # Errors
    /// Returns [`TargetError`] if the text is not an address.
    pub fn parse(text: &str, allow_remote: bool) -> Result<Address, TargetError> {
        let bad = || TargetError::Form(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        let unsaid = if allow_remote { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        match kind {
            "tcp" => socket(rest).map(Address::Tcp).ok_or_else(bad),
            "ssl" => socket(rest).map(Address::Tls).ok_or_else(bad),
            "ptcp" => passive(rest, unsaid).map(Address::ListenTcp).ok_or_else(bad),
            "pssl" => passive(rest, Ipv4Addr::UNSPECIFIED).map(Address::ListenTls).ok_or_else(bad),
            "unix" if !rest.is_empty() => Ok(Address::Unix(rest.into())),
            "punix" if !rest.is_empty() => Ok(Address::ListenUnix(rest.into())),
            _ => Err(bad()),
        }
    }

    /// Returns whether the address is a listener without authentication that other machines can reach.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Address::ListenTcp(at) if !at.ip().is_loopback())
    }
}

/// Parses `IP[:PORT]`. If an IPv6 address is followed by a port, the address must be in brackets.
fn socket(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT));
    }
    text.parse().ok()
}

/// Parses `[PORT][:IP]`. `unsaid` is the IP address that is used if the text contains no IP
/// address.
fn passive(text: &str, unsaid: Ipv4Addr) -> Option<SocketAddr> {
    let (port, ip) = text.split_once(':').unwrap_or((text, ""));
    let port = if port.is_empty() { PORT } else { port.parse().ok()? };
    let ip = match ip {
        "" => IpAddr::V4(unsaid),
        ip => ip.trim_matches(['[', ']']).parse().ok()?,
    };
    Some(SocketAddr::new(ip, port))
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_tls() { "ssl" } else { "tcp" };
        match self {
            Address::Tcp(to) | Address::Tls(to) => write!(f, "{kind}:{to}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::ListenTcp(at) | Address::ListenTls(at) if at.ip().is_ipv6() => {
                write!(f, "p{kind}:{}:[{}]", at.port(), at.ip())
            }
            Address::ListenTcp(at) | Address::ListenTls(at) => write!(f, "p{kind}:{}:{}", at.port(), at.ip()),
            Address::ListenUnix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

/// A controller to which the bridge connects, or an address on which the bridge accepts connections of controllers and
/// clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Address of the controller or listener.
    pub address: Address,
    /// Time without messages from the peer after which the bridge sends an echo request to the
    /// peer. If no message arrives within this time after the echo request, the bridge ends the
    /// session. Peers that connect to listeners are also probed. `None` disables these probes.
    pub inactivity_probe: Option<Duration>,
    /// Maximum pause between two attempts to connect. The initial pause is one second.
    pub max_backoff: Duration,
    /// Maximum rate of packet-in messages in packets per second, and maximum burst in packets. Packets above this rate
    /// are stored in queues, one for each input port. The number of queued packets is limited to the burst size. `None`
    /// means that the rate is not limited.
    pub rate_limit: Option<(u32, u32)>,
    /// Whether the peer receives asynchronous messages, such as packet-ins, without requesting them.
    pub asynchronous: bool,
    /// OpenFlow versions that may be negotiated. The highest version that the peer also supports is selected.
    pub versions: Vec<Version>,
    /// Paths of the TLS files for `ssl:` and `pssl:` addresses. `None` if TLS is not configured.
    pub tls: Option<Tls>,
    /// Fixed part of the time limit for a peer to read a reply. One second is added for each 256 KiB of the reply.
    pub patience: Duration,
    /// Maximum time between two messages about a bundle. After this time, the bridge discards the bundle.
    pub bundle_timeout: Duration,
    /// Whether a `ptcp:` listener may use an address that other machines can reach, although such a listener
    /// has no authentication.
    pub allow_remote: bool,
    /// IDs of the local users whose processes may connect to a `ptcp:` listener, in addition to root and the
    /// daemon's own user. `None` admits all users. There is no other authentication. With `allow_remote`,
    /// every peer may connect.
    pub users: Option<Vec<u32>>,
    /// Whether the address is a snoop socket. Peers of a snoop socket receive copies of the messages between the
    /// bridge and its controllers. The bridge does not reply to messages of these peers.
    pub snoops: bool,
}

impl Target {
    /// Creates a target with the defaults of Open vSwitch: probes after 5 s without messages, a
    /// maximum pause of 8 s between connection attempts, no rate limit, all versions, and a timeout
    /// of 10 s for bundles. Peers of listeners are also probed. A peer must read a reply within
    /// 30 s. Listeners without TLS use loopback addresses only, and admit only root and the daemon's
    /// own user.
    #[must_use]
    pub fn new(address: Address) -> Target {
        Target {
            inactivity_probe: Some(Duration::from_secs(5)),
            address,
            max_backoff: Duration::from_secs(8),
            rate_limit: None,
            asynchronous: true,
            versions: Version::ALL.to_vec(),
            tls: None,
            patience: Duration::from_secs(30),
            bundle_timeout: Duration::from_secs(10),
            allow_remote: false,
            users: Some(Vec::new()),
            snoops: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_open_vswitch_reads_them() {
        for (text, shown) in [
            ("tcp:10.0.0.1", "tcp:10.0.0.1:6653"),
            ("tcp:10.0.0.1:6633", "tcp:10.0.0.1:6633"),
            ("tcp:[::1]:66", "tcp:[::1]:66"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
            ("ptcp:", "ptcp:6653:127.0.0.1"),
            ("ptcp:6654:127.0.0.1", "ptcp:6654:127.0.0.1"),
            ("ptcp:1:[::1]", "ptcp:1:[::1]"),
            ("ssl:10.0.0.1", "ssl:10.0.0.1:6653"),
            ("ssl:[::1]:66", "ssl:[::1]:66"),
            ("pssl:", "pssl:6653:0.0.0.0"),
            ("pssl:6654:[::1]", "pssl:6654:[::1]"),
            ("unix:/run/c", "unix:/run/c"),
            ("punix:/run/br0.mgmt", "punix:/run/br0.mgmt"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        assert_eq!(Address::parse("ptcp:7", true).unwrap().to_string(), "ptcp:7:0.0.0.0");
        for (text, is_open) in [("ptcp:1:0.0.0.0", true), ("ptcp:1:[::1]", false), ("pssl:", false)] {
            assert_eq!(text.parse::<Address>().unwrap().is_open(), is_open);
        }
        for text in ["", "tcp", "tcp:", "tcp:host", "udp:1.1.1.1", "punix:", "ptcp:99999", "tcp:1.2.3.4:x"] {
            assert_eq!(text.parse::<Address>(), Err(TargetError::Form(text.into())));
        }
    }
}
