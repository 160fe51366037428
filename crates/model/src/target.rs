//! Connection methods of an OVSDB server: `unix:FILE` or `tcp:HOST:PORT`, in the syntax of Open vSwitch
//! (ovsdb(7), "Connection Methods").

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Default TCP port of an OVSDB server (RFC 7047 section 7).
const PORT: u16 = 6640;

/// Address of an OVSDB server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Path of the Unix socket of the OVSDB server.
    Unix(PathBuf),
    /// Host name or address, and TCP port of the OVSDB server.
    Tcp(String, u16),
}

/// Reason why a text is not a supported connection method.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// The connection method is `ssl:`, which is not supported yet.
    #[error("`ssl:` is not there yet")]
    Ssl,
    /// The connection method is passive: the client would wait until the server connects to it. Such methods are not
    /// supported yet.
    #[error("`{0}:` would wait for the server to connect, which is not there yet")]
    Passive(String),
    /// The text is not a connection method of an OVSDB server.
    #[error("it names no way to connect")]
    Unknown,
    /// The path of the socket is not absolute.
    #[error("the socket's path does not begin with `/`")]
    Relative,
    /// The port of the connection method is not a valid TCP port.
    #[error("`{0}` is none of the TCP ports 1 to 65535")]
    Port(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (method, rest) = text.split_once(':').ok_or(TargetError::Unknown)?;
        match method {
            "unix" if rest.starts_with('/') => Ok(Target::Unix(PathBuf::from(rest))),
            "unix" => Err(TargetError::Relative),
            "tcp" => tcp(rest),
            "ssl" => Err(TargetError::Ssl),
            "punix" | "ptcp" | "pssl" => Err(TargetError::Passive(method.to_owned())),
            _ => Err(TargetError::Unknown),
        }
    }
}

/// Parses `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
fn tcp(rest: &str) -> Result<Target, TargetError> {
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(TargetError::Unknown)?;
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return Err(TargetError::Unknown),
            }
        }
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || !host.chars().all(|c| c.is_ascii_graphic()) {
        return Err(TargetError::Unknown);
    }
    let port = match port {
        Some(text) => match text.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(TargetError::Port(text.to_owned())),
        },
        None => PORT,
    };
    Ok(Target::Tcp(host.to_owned(), port))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Target::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_reached_is_read_and_written_alike() {
        for text in
            ["unix:/run/openvswitch/db.sock", "tcp:127.0.0.1:6640", "tcp:[::1]:1", "tcp:db.example:65535"]
        {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!("tcp:10.0.0.1".parse::<Target>().unwrap().to_string(), "tcp:10.0.0.1:6640");
        assert_eq!("tcp:[fd00::1]".parse::<Target>().unwrap().to_string(), "tcp:[fd00::1]:6640");
    }

    #[test]
    fn what_cannot_is_named() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        assert!(error("ssl:10.0.0.1:6640").to_string().contains("not there yet"));
        assert!(error("ptcp:6640").to_string().contains("`ptcp:`"));
        assert_eq!(error("unix:db.sock"), TargetError::Relative);
        assert_eq!(error("tcp:10.0.0.1:0"), TargetError::Port("0".into()));
        for text in ["", "db.sock", "tcp:", "tcp::6640", "tcp:[::1", "tcp:[::1]6640", "http://x"] {
            assert_eq!(error(text), TargetError::Unknown, "{text}");
        }
    }
}
