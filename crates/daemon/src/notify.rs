//! Telling systemd how the daemon is (sd_notify(3)): one datagram of `KEY=value` lines to the socket in
//! `NOTIFY_SOCKET`. Without that variable nobody listens and nothing is sent.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager's ear, if there is one.
#[derive(Debug)]
pub struct Notifier {
    target: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let target = std::env::var_os("NOTIFY_SOCKET").and_then(|name| target(&name).ok());
        Notifier { target, watchdog: watchdog(|key| std::env::var(key).ok(), std::process::id()) }
    }

    /// How often to call [`Notifier::alive`]: half of what systemd waits; `None`: never.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Traffic flows.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is being read again; [`Notifier::ready`] ends it.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Still alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// About to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// From now on this process is the service (after a hand-over).
    pub fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.target {
            // A manager that is gone must not stop traffic.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

fn target(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

fn watchdog(variable: impl Fn(&str) -> Option<String>, pid: u32) -> Option<Duration> {
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    let ours = variable("WATCHDOG_PID").is_none_or(|wanted| wanted == pid.to_string());
    (ours && micros > 0).then(|| Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_the_states() {
        let name = format!("trivium-notify-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = Notifier { target: target(&format!("@{name}").into()).ok(), watchdog: None };
        let hear = || {
            let mut buffer = [0; 256];
            let length = manager.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        notifier.ready("4 ports");
        assert_eq!(hear(), "READY=1\nSTATUS=4 ports");
        notifier.reloading();
        assert!(hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.main_pid(42);
        assert_eq!(hear(), "MAINPID=42");
    }

    #[test]
    fn the_watchdog_is_fed_twice_as_often_as_needed() {
        let environment = |pid: &'static str| {
            move |key: &str| match key {
                "WATCHDOG_USEC" => Some("10000000".to_owned()),
                "WATCHDOG_PID" => Some(pid.to_owned()),
                _ => None,
            }
        };
        assert_eq!(watchdog(environment("7"), 7), Some(Duration::from_secs(5)));
        assert_eq!(watchdog(environment("8"), 7), None);
        assert_eq!(watchdog(|_| None, 7), None);
    }
}
