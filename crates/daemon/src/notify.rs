//! Status notifications to systemd, the service manager (sd_notify(3)). A notification is one datagram of
//! `KEY=value` lines to the socket whose path is in the variable `NOTIFY_SOCKET`. Nothing is sent if the variable
//! is not set.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

/// Environment variable with the ID of the process to which systemd's watchdog applies. An upgrade starts the new
/// daemon process (the successor) without this variable, because systemd cannot know its process ID. The successor
/// sends the watchdog notifications in place of its predecessor.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Environment variable with the path of a FIFO, which a parent process other than a service
/// manager sets, such as `contrib/ovs-vswitchd --detach`. The daemon writes one line to the FIFO
/// when it is ready.
const READY_FIFO: &str = "TRIVIUM_READY_FIFO";

/// Environment variables that an upgrade does not pass to the new daemon process.
pub const NOT_INHERITED: [&str; 2] = [WATCHDOG_PID, READY_FIFO];

/// Maximum time for which the daemon waits until the service manager has read all notifications.
const BARRIER: Duration = Duration::from_secs(2);

/// Connection to the service manager (systemd). Without a service manager, notifications have no effect.
#[derive(Debug)]
pub struct Notifier {
    target: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// Path of the FIFO to which the daemon writes a line when it is ready. `None` if there is no FIFO, or after
    /// the line was written.
    fifo: Mutex<Option<PathBuf>>,
}

impl Notifier {
    /// Creates a notifier from environment variables such as `NOTIFY_SOCKET`.
    pub fn from_environment() -> Self {
        let target = std::env::var_os("NOTIFY_SOCKET").and_then(|name| target(&name).ok());
        let watchdog = watchdog(|key| std::env::var(key).ok(), std::process::id());
        Notifier { target, watchdog, fifo: Mutex::new(std::env::var_os(READY_FIFO).map(PathBuf::from)) }
    }

    /// Returns the interval between calls of [`Notifier::alive`]: half of systemd's watchdog
    /// timeout. Returns `None` if no watchdog is set.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the daemon is ready and forwards traffic, with a status text.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
        let fifo = self.fifo.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A parent process that is gone must not stop the daemon.
        let _ = fifo.map(|path| write_ready(&path));
    }

    /// Reports that the daemon is reloading its configuration. The next call of [`Notifier::ready`] ends this
    /// state.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Reports to systemd's watchdog that the daemon is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the daemon is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports `pid` as the service's main process. In an upgrade, a predecessor reports its successor before it
    /// ends, because systemd stops the whole service when the main process ends. The successor also reports itself.
    pub fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Waits until the service manager has read all earlier notifications (`BARRIER=1` of sd_notify(3)), for
    /// at most [`BARRIER`].
    pub fn settle(&self) {
        if let Some((socket, address)) = &self.target {
            // A manager that is gone or does not support barriers must not delay the daemon.
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

/// Writes the line `ready` to a FIFO. Returns an error immediately if no process reads from the FIFO.
fn write_ready(path: &Path) -> io::Result<()> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().write(true).custom_flags(flags).open(path)?.write_all(b"ready\n")
}

/// Sends a barrier (`BARRIER=1`) to the service manager and waits until the manager has read all messages up
/// to the barrier. The manager then closes its end of a pipe, which the daemon observes as a hang-up of the
/// other end.
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
    let deadline = Instant::now() + BARRIER;
    loop {
        let patience = deadline.saturating_duration_since(Instant::now());
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        match rustix::event::poll(&mut [PollFd::new(&ours, PollFlags::empty())], Some(&patience)) {
            // A signal does not end the wait.
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(drop).map_err(io::Error::from),
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
        let notifier = Notifier {
            target: target(&format!("@{name}").into()).ok(),
            watchdog: None,
            fifo: Mutex::default(),
        };
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
        let notifier = Notifier {
            target: target(&format!("@{name}").into()).ok(),
            watchdog: None,
            fifo: Mutex::default(),
        };
        let deaf = std::time::Instant::now();
        notifier.settle();
        assert!(deaf.elapsed() >= BARRIER, "nobody has read it");
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 256];
            // Receives the earlier message and the barrier. The kernel closes the descriptor in the barrier, because
            // the receiver does not accept descriptors.
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
        // A successor has no `WATCHDOG_PID`.
        let anyone = |key: &str| (key == "WATCHDOG_USEC").then(|| "10000000".to_owned());
        assert_eq!(watchdog(anyone, 7), Some(Duration::from_secs(5)));
    }
}
