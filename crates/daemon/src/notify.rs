//! Telling systemd how the daemon is (sd_notify(3)): one datagram of `KEY=value` lines to the socket in
//! `NOTIFY_SOCKET`. Without that variable nobody listens and nothing is sent.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

/// The variable that says whose watchdog it is. A successor is spawned without it: it feeds the watchdog that its
/// predecessor fed, and systemd cannot have known its number.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// How long to wait for a manager that does not read.
const BARRIER: Duration = Duration::from_secs(2);

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

    /// From now on `pid` is the service's main process. A predecessor says it of its successor before it leaves: were the
    /// main process to end first, systemd would end the whole service. The successor repeats it of itself.
    pub fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Waits until the manager has read everything sent so far (`BARRIER=1` of sd_notify(3)), or [`BARRIER`] has passed.
    pub fn settle(&self) {
        if let Some((socket, address)) = &self.target {
            // A manager that is gone or does not know barriers must not keep us.
            let _ = barrier(socket, address);
        }
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.target {
            // A manager that is gone must not stop traffic.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

/// The manager closes its copy of the pipe's end when it comes to this message: then ours hangs up.
fn barrier(socket: &UnixDatagram, address: &SocketAddr) -> io::Result<()> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let descriptors = [theirs.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let name = match (address.as_abstract_name(), address.as_pathname()) {
        (Some(name), _) => SocketAddrUnix::new_abstract_name(name)?,
        (None, Some(path)) => SocketAddrUnix::new(path)?,
        (None, None) => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
    };
    let text = [io::IoSlice::new(b"BARRIER=1")];
    sendmsg_addr(socket, &name, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
    drop(theirs);
    let patience = Timespec::try_from(BARRIER).map_err(io::Error::other)?;
    rustix::event::poll(&mut [PollFd::new(&ours, PollFlags::empty())], Some(&patience))?;
    Ok(())
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
    let ours = variable(WATCHDOG_PID).is_none_or(|wanted| wanted == pid.to_string());
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
    fn settling_waits_for_the_manager_and_not_for_ever() {
        let name = format!("trivium-settle-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = Notifier { target: target(&format!("@{name}").into()).ok(), watchdog: None };
        let deaf = std::time::Instant::now();
        notifier.settle();
        assert!(deaf.elapsed() >= BARRIER, "nobody has read it");
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 256];
            // The one from before, and this one; what is not asked for (the descriptor) is closed.
            [(); 2].map(|()| manager.recv(&mut buffer).unwrap())
        });
        let heard = std::time::Instant::now();
        notifier.settle();
        assert!(heard.elapsed() < BARRIER);
        assert_eq!(reader.join().unwrap(), [9, 9]);
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
        // A successor.
        let anyone = |key: &str| (key == "WATCHDOG_USEC").then(|| "10000000".to_owned());
        assert_eq!(watchdog(anyone, 7), Some(Duration::from_secs(5)));
    }
}
