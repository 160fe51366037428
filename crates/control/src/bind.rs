//! Listening sockets of the API. The sockets are created from the configuration, or received from the
//! predecessor process.
//!
//! The Unix socket appears under its path only after its mode (0660) and group are set, so that no client can
//! connect earlier. A socket file on which no process listens is replaced. A socket on which another process
//! listens is an error.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use model::{Daemon, Scope};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::tls::{Guard, GuardError};

/// Mode of the API's Unix socket: read and write for owner and group.
const MODE: u32 = 0o660;

/// Reason why the daemon cannot listen for API clients.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the Unix socket.
    #[error("daemon.api: another daemon listens on {}; stop it, or choose another path", path.display())]
    InUse {
        /// Path of the Unix socket that is in use.
        path: PathBuf,
    },
    /// The path of the Unix socket exists, but is not a socket.
    #[error("daemon.api: {} is not a socket; move it away, or choose another path", path.display())]
    NotASocket {
        /// Path of the existing file, which is not a socket.
        path: PathBuf,
    },
    /// The Unix socket cannot be created.
    #[error("daemon.api: {} cannot be made: {source}; {}", path.display(), unix_fix(source))]
    Unix {
        /// Path of the Unix socket that cannot be created.
        path: PathBuf,
        /// Error that the operating system returned.
        source: io::Error,
    },
    /// The TCP address cannot be used for listening.
    #[error("daemon.tcp.listen: {address} cannot be listened on: {source}; {}", tcp_fix(source))]
    Tcp {
        /// Configured IP address and TCP port of the API.
        address: SocketAddr,
        /// Error that the operating system returned.
        source: io::Error,
    },
    /// The certificate, the key or a token for the TCP socket cannot be used.
    #[error(transparent)]
    Guard(#[from] GuardError),
}

fn unix_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "start the daemon as root, or choose a directory that it may write"
        }
        io::ErrorKind::InvalidInput => "choose a path of at most 90 characters",
        io::ErrorKind::StorageFull => "make room on its disk",
        _ => "look at the directory",
    }
}

fn tcp_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there (`ss -ltnp`), or choose another port",
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine (`ip address`)",
        io::ErrorKind::PermissionDenied => "choose a port above 1023, or start the daemon as root",
        _ => "look at the address",
    }
}

/// Listening sockets of the API. Until the API is served, the sockets can be duplicated for a successor
/// process.
#[derive(Debug)]
pub struct Listeners {
    /// Unix socket on which the API listens.
    pub unix: UnixListener,
    /// The listening TCP socket, with its TLS and token settings. `None` if the configuration has no `tcp`.
    pub tcp: Option<(TcpListener, Guard)>,
    /// Access scope of clients on the Unix socket that are neither root nor the daemon's own user.
    pub group_scope: Scope,
}

impl Listeners {
    /// Creates the listening sockets that the configuration describes.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket cannot be created, or if the certificate, the key or a token cannot be
    /// used.
    pub fn bind(daemon: &Daemon) -> Result<Listeners, BindError> {
        let tcp = match &daemon.tcp {
            None => None,
            Some(tcp) => {
                let guard = Guard::read(tcp)?;
                let failed = |source| BindError::Tcp { address: tcp.listen, source };
                Some((TcpListener::bind(tcp.listen).map_err(failed)?, guard))
            }
        };
        let unix = bind_unix(&daemon.api, &daemon.group)?;
        Ok(Listeners { unix, tcp, group_scope: daemon.group_scope })
    }

    /// Takes over the listening API sockets of the predecessor process. If the configuration has no `tcp`, a TCP socket
    /// of the predecessor is closed. If the configuration has `tcp` and the predecessor passed on no TCP socket, a TCP
    /// socket is created.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Listeners::bind`].
    pub fn adopt(
        unix: UnixListener,
        tcp: Option<TcpListener>,
        daemon: &Daemon,
    ) -> Result<Listeners, BindError> {
        let tcp = match (&daemon.tcp, tcp) {
            (None, _) => None,
            (Some(settings), Some(socket)) => Some((socket, Guard::read(settings)?)),
            (Some(settings), None) => {
                let guard = Guard::read(settings)?;
                let failed = |source| BindError::Tcp { address: settings.listen, source };
                Some((TcpListener::bind(settings.listen).map_err(failed)?, guard))
            }
        };
        Ok(Listeners { unix, tcp, group_scope: daemon.group_scope })
    }
}

fn bind_unix(path: &Path, group: &str) -> Result<UnixListener, BindError> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |source| BindError::Unix { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(_) if has_listener(path).map_err(failed)? => {
            return Err(BindError::InUse { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    bind_beside(path, group).map_err(failed)
}

/// Returns whether a process listens on the Unix socket at `path`. The function does not block: if the queue of the
/// listening process is full, connect(2) fails with `EAGAIN`, and the function returns true.
fn has_listener(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(_) => Ok(false),
    }
}

/// Creates the API's Unix socket in a temporary directory that only the daemon's user can access. Sets the mode and the
/// group of the socket, and then moves it to its path. No client can connect before mode and group are set.
fn bind_beside(path: &Path, group: &str) -> io::Result<UnixListener> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let directory = PathBuf::from(beside);
    let socket = directory.join("s");
    let clear = || {
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_dir(&directory);
    };
    clear();
    DirBuilder::new().mode(0o700).create(&directory)?;
    let ready = || {
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, Permissions::from_mode(MODE))?;
        if let Some(id) = group_id(group)
            && let Err(error) = std::os::unix::fs::chown(&socket, None, Some(id))
        {
            // If the group cannot be set, the socket keeps the daemon's own group, which grants no wider access.
            tracing::warn!(
                "daemon.group: the socket cannot be given to {group}: {error}; start the daemon as root"
            );
        }
        fs::rename(&socket, path)?;
        Ok(listener)
    };
    let listener = ready();
    clear();
    listener
}

/// Returns the numeric ID of a group in the local /etc/group, or `None` if there is no such group.
fn group_id(name: &str) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Checks that an existing listener is detected without waiting even if its queue of connections is full. The queue
    /// of a stopped daemon may be full. A blocking connect(2) would wait for space in the queue.
    #[test]
    fn a_listener_with_a_full_queue_is_found_without_a_wait() {
        let directory = std::env::temp_dir().join(format!("trivium-bind-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("api");
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting = UnixStream::connect(&path).unwrap();
        let (send, receive) = mpsc::channel();
        let probed = path.clone();
        std::thread::spawn(move || send.send(bind_unix(&probed, "")));
        let bound = receive.recv_timeout(Duration::from_secs(10)).expect("the probe does not wait");
        assert!(matches!(bound, Err(BindError::InUse { .. })), "{bound:?}");
        drop((waiting, listener));
        // No process listens any more, so the file is replaced.
        bind_unix(&path, "").unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
