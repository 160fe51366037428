//! Where controllers are, or are waited for, in Open vSwitch's words (ovs-vswitchd.conf.db(5), table Controller).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::tls::Tls;
use crate::wire::Version;

/// OpenFlow's port.
pub const PORT: u16 = 6653;

/// An address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `tcp:IP[:PORT]`: we connect.
    Tcp(SocketAddr),
    /// `unix:PATH`: we connect.
    Unix(PathBuf),
    /// `ssl:IP[:PORT]`: we connect, and TLS is spoken.
    Tls(SocketAddr),
    /// `ptcp:[PORT][:IP]`: they connect.
    ListenTcp(SocketAddr),
    /// `pssl:[PORT][:IP]`: they connect, and TLS is spoken.
    ListenTls(SocketAddr),
    /// `punix:PATH`: they connect.
    ListenUnix(PathBuf),
}

/// Why an address is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// Neither of the forms.
    #[error(
        "controller {0:?}: not an address; write tcp:IP[:PORT], ssl:IP[:PORT], unix:PATH, ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH \
         (names are not looked up)"
    )]
    Form(String),
}

impl Address {
    /// Whether they connect to us.
    #[must_use]
    pub fn is_passive(&self) -> bool {
        matches!(self, Address::ListenTcp(_) | Address::ListenTls(_) | Address::ListenUnix(_))
    }

    /// Whether TLS is spoken.
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
    /// Reads an address. A `ptcp:` listener without an IP address is at every address of the machine where `allow_remote` is set, as in
    /// Open vSwitch, and else at 127.0.0.1.
    ///
    /// # Errors
    /// [`TargetError`] where the text is no address.
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

    /// Whether the address is a listener without authentication that other machines can reach.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Address::ListenTcp(at) if !at.ip().is_loopback())
    }
}

/// `IP[:PORT]`, IPv6 in brackets where a port follows.
fn socket(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT));
    }
    text.parse().ok()
}

/// `[PORT][:IP]`.
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

/// A controller, or a place where some may come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Where.
    pub address: Address,
    /// Silence after which a peer is asked whether it is there, whoever has connected; as much again ends the session. `None`: never asked.
    pub inactivity_probe: Option<Duration>,
    /// Longest time between two attempts to connect, which begin at a second.
    pub max_backoff: Duration,
    /// Packets a second that it is sent at most, and how many at once; `None`: all.
    pub rate_limit: Option<(u32, u32)>,
    /// Whether it is sent asynchronous messages unless it says otherwise.
    pub asynchronous: bool,
    /// Versions that it may speak, the highest of which is chosen.
    pub versions: Vec<Version>,
    /// What `ssl:` and `pssl:` are spoken with.
    pub tls: Option<Tls>,
    /// Time that a peer has for the whole of an answer, besides a second for each 256 KiB of it.
    pub patience: Duration,
    /// Time after which a bundle that is left alone is removed.
    pub bundle_timeout: Duration,
    /// Whether a `ptcp:` listener may be at an address that other machines can reach. There is no authentication.
    pub allow_remote: bool,
    /// Users of this machine whose processes may connect to a `ptcp:` listener, besides root and the daemon's own; `None`: all users. There is no
    /// authentication. Where `allow_remote` is set, everybody may connect.
    pub users: Option<Vec<u32>>,
    /// Who comes there listens: it is sent copies of what the bridge and its controllers say to each other, and is answered nothing.
    pub snoops: bool,
}

impl Target {
    /// A target with the defaults of Open vSwitch: probes after 5 s, a back-off of 8 s, no limit of packets, all versions, and 10 s for
    /// bundles; peers that connect are probed, too. An answer has 30 s, and listeners without TLS are at loopback addresses only, for root and
    /// the daemon's own user.
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
