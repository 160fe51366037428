//! Listening sockets of the API. The sockets are created from the configuration, or received from the
//! predecessor process.
//!
//! The Unix socket appears under its path only after its mode (0660) and group are set, so that no client can
//! connect earlier. A socket file on which no process listens is replaced. A socket on which another process
//! listens is an error.
//!
//! After a hand-over, the access rights are those of the configuration that the successor process starts with. If the
//! predecessor's Unix socket has another group or mode, the successor creates a new socket before the hand-over, and
//! moves it to the path after the hand-over. Clients that wait on the old socket were admitted by the old group, so the
//! successor does not serve them. A TCP socket at another address than the configured one is replaced as well.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
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
    /// The TCP address overlaps with the address on which the predecessor process still listens.
    #[error(
        "daemon.tcp.listen: {address} cannot be listened on while the running daemon listens on {old}; restart the \
         daemon, or choose another port"
    )]
    Overlap {
        /// Configured IP address and TCP port of the API.
        address: SocketAddr,
        /// IP address and TCP port on which the predecessor process listens.
        old: SocketAddr,
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
    /// Path of the Unix socket. After a hand-over, this is the path of the predecessor's socket.
    pub path: PathBuf,
    /// The listening TCP socket, with its TLS and token settings. `None` if the configuration has no `tcp`.
    pub tcp: Option<(TcpListener, Guard)>,
    /// Access scope of clients on the Unix socket that are neither root nor the daemon's own user.
    pub group_scope: Scope,
    /// File of the Unix socket, as long as the file is not at its path yet (see [`Listeners::publish`]).
    unpublished: Option<UnpublishedSocket>,
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
                Some((bind_tcp(tcp.listen)?, guard))
            }
        };
        let unix = bind_unix(&daemon.api, &daemon.group)?;
        let (path, group_scope) = (daemon.api.clone(), daemon.group_scope);
        Ok(Listeners { unix, path, tcp, group_scope, unpublished: None })
    }

    /// Takes over the listening API sockets of the predecessor process:
    ///
    /// - The Unix socket keeps its path. If its file does not have the configured group and mode, or does not exist, a
    ///   new Unix socket is created. No client can connect to the new socket before [`Listeners::publish`].
    /// - If the configuration has no `tcp`, a TCP socket of the predecessor is closed. If the predecessor passed on no
    ///   TCP socket at the configured address, a TCP socket is created. A socket at another address is closed.
    ///
    /// The function changes nothing that the predecessor uses, so that the predecessor can continue after an error.
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
            (Some(settings), old) => {
                let guard = Guard::read(settings)?;
                Some((adopt_tcp(old, settings.listen)?, guard))
            }
        };
        let path = bound_path(&unix).unwrap_or_else(|| daemon.api.clone());
        let (unix, unpublished) = match replacement(&path, &daemon.group)? {
            None => (unix, None),
            Some((socket, file)) => (socket, Some(file)),
        };
        Ok(Listeners { unix, path, tcp, group_scope: daemon.group_scope, unpublished })
    }

    /// Moves the Unix socket that [`Listeners::adopt`] may have created to its path, where the file replaces that of
    /// the predecessor's socket. The predecessor must have handed over before.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be moved. Clients can then not connect to the Unix socket.
    pub fn publish(&mut self) -> Result<(), BindError> {
        let Some(file) = self.unpublished.take() else { return Ok(()) };
        file.publish(&self.path).map_err(|source| BindError::Unix { path: self.path.clone(), source })
    }
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).map_err(|source| BindError::Tcp { address, source })
}

/// Returns the predecessor's TCP socket `old` if it listens on `address`, and otherwise a new socket. A predecessor
/// that was configured with port 0 listens on a port that the kernel chose.
fn adopt_tcp(old: Option<TcpListener>, address: SocketAddr) -> Result<TcpListener, BindError> {
    let Some(old) = old else { return bind_tcp(address) };
    let at = old.local_addr().map_err(|source| BindError::Tcp { address, source })?;
    if at == address || (address.port() == 0 && at.ip() == address.ip()) {
        return Ok(old);
    }
    bind_tcp(address).map_err(|error| match error {
        BindError::Tcp { source, .. }
            if source.kind() == io::ErrorKind::AddrInUse && at.port() == address.port() =>
        {
            BindError::Overlap { address, old: at }
        }
        error => error,
    })
}

fn bind_unix(path: &Path, group: &str) -> Result<UnixListener, BindError> {
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
    let (socket, file) = bind_beside(path, group).map_err(failed)?;
    file.publish(path).map_err(failed)?;
    Ok(socket)
}

/// Returns a new Unix socket for `path` if the file of the predecessor's socket does not have the configured group and
/// mode, or does not exist. Returns `None` if the predecessor's socket can be used, and if this process cannot give a
/// new socket other rights than the old one has.
fn replacement(path: &Path, group: &str) -> Result<Option<(UnixListener, UnpublishedSocket)>, BindError> {
    let failed = |source| BindError::Unix { path: path.to_owned(), source };
    let rights = |file: &Metadata| (file.gid(), file.mode() & 0o7777);
    let old = match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(file) if rights(&file) == (socket_group(group), MODE) => return Ok(None),
        Ok(file) => Some(rights(&file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let (socket, file) = bind_beside(path, group).map_err(failed)?;
    let new = rights(&fs::symlink_metadata(file.socket()).map_err(failed)?);
    Ok((old != Some(new)).then_some((socket, file)))
}

/// Returns the path at which the file of an API socket was published. Returns `None` if the socket was not created by
/// [`bind_beside`].
fn bound_path(socket: &UnixListener) -> Option<PathBuf> {
    let address = socket.local_addr().ok()?;
    let directory = address.as_pathname()?.parent()?;
    let process = directory.extension()?.to_str()?;
    process.parse::<u32>().is_ok().then(|| directory.with_extension(""))
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

/// Creates the API's Unix socket in a temporary directory that only the daemon's user can access, and sets the mode and
/// the group of the socket. The directory is beside `path`, to which [`UnpublishedSocket::publish`] moves the socket.
/// No client can connect before.
fn bind_beside(path: &Path, group: &str) -> io::Result<(UnixListener, UnpublishedSocket)> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let file = UnpublishedSocket { directory: PathBuf::from(beside) };
    file.clear();
    DirBuilder::new().mode(0o700).create(&file.directory)?;
    let socket = file.socket();
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(MODE))?;
    if let Err(error) = std::os::unix::fs::chown(&socket, None, Some(socket_group(group))) {
        // If the group cannot be set, the socket keeps the daemon's own group, which grants no wider access.
        tracing::warn!(
            "daemon.group: the socket cannot be given to {group}: {error}; start the daemon as root"
        );
    }
    Ok((listener, file))
}

/// Socket file in a temporary directory. The directory is removed when the value is dropped.
#[derive(Debug)]
struct UnpublishedSocket {
    directory: PathBuf,
}

impl UnpublishedSocket {
    fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    /// Moves the socket file to `path`. A file at this path is replaced.
    fn publish(self, path: &Path) -> io::Result<()> {
        fs::rename(self.socket(), path)
    }

    fn clear(&self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Drop for UnpublishedSocket {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the numeric ID of the group that the API's Unix socket belongs to. This is the daemon's own group if there
/// is no group with the configured name.
fn socket_group(name: &str) -> u32 {
    group_id(name).unwrap_or_else(|| rustix::process::getegid().as_raw())
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

    /// Returns a new directory for a test, and settings of a daemon whose API socket is in this directory.
    fn place(name: &str) -> (PathBuf, Daemon) {
        let directory = std::env::temp_dir().join(format!("trivium-bind-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let daemon = Daemon { api: directory.join("api"), group: String::new(), ..Daemon::default() };
        (directory, daemon)
    }

    /// Checks that a successor replaces a socket with another group or mode, that the predecessor's socket is unchanged
    /// until the hand-over is complete, and that clients of the predecessor's socket do not get the new scope.
    #[test]
    fn a_socket_of_another_group_or_mode_is_replaced_after_the_hand_over() {
        let (directory, daemon) = place("group");
        let rights = || fs::metadata(&daemon.api).map(|file| (file.gid(), file.mode() & 0o7777)).unwrap();
        let own = socket_group("");
        let mut cases = vec![(own, 0o666)];
        if rustix::process::geteuid().is_root() {
            cases.push((own + 1, MODE));
        }
        for (group, mode) in cases {
            let old = Listeners::bind(&daemon).unwrap();
            assert_eq!(rights(), (own, MODE));
            fs::set_permissions(&daemon.api, Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&daemon.api, None, Some(group)).unwrap();
            // A hand-over that fails leaves the predecessor's socket and no other file.
            drop(Listeners::adopt(old.unix.try_clone().unwrap(), None, &daemon).unwrap());
            assert_eq!(rights(), (group, mode));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            let mut new = Listeners::adopt(old.unix.try_clone().unwrap(), None, &daemon).unwrap();
            let _waiting = UnixStream::connect(&daemon.api).unwrap();
            old.unix.set_nonblocking(true).unwrap();
            old.unix.accept().unwrap();
            new.publish().unwrap();
            assert_eq!(rights(), (own, MODE));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            let _client = UnixStream::connect(&daemon.api).unwrap();
            new.unix.set_nonblocking(true).unwrap();
            new.unix.accept().unwrap();
            assert_eq!(new.path, daemon.api);
            drop((old, new));
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Checks that a successor continues to use a socket with the configured rights, at the path of the predecessor,
    /// and that a socket file that was removed is created again.
    #[test]
    fn a_socket_with_the_configured_rights_is_kept_at_its_path() {
        let (directory, daemon) = place("kept");
        let old = Listeners::bind(&daemon).unwrap();
        let elsewhere = Daemon { api: directory.join("elsewhere"), ..daemon.clone() };
        let mut kept = Listeners::adopt(old.unix, None, &elsewhere).unwrap();
        kept.publish().unwrap();
        assert_eq!(kept.path, daemon.api);
        let _client = UnixStream::connect(&daemon.api).unwrap();
        kept.unix.set_nonblocking(true).unwrap();
        kept.unix.accept().unwrap();
        fs::remove_file(&daemon.api).unwrap();
        let mut new = Listeners::adopt(kept.unix, None, &elsewhere).unwrap();
        new.publish().unwrap();
        let _client = UnixStream::connect(&daemon.api).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Checks that a successor keeps a TCP socket at the configured address only.
    #[test]
    fn a_tcp_socket_at_another_address_is_replaced() {
        let old = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (kept, free) = (old(), old().local_addr().unwrap());
        let at = kept.local_addr().unwrap();
        let kept = adopt_tcp(Some(kept), at).unwrap();
        let kept = adopt_tcp(Some(kept), "127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(kept.local_addr().unwrap(), at);
        let moved = adopt_tcp(Some(kept), free).unwrap();
        assert_eq!(moved.local_addr().unwrap(), free);
        assert!(std::net::TcpStream::connect(at).is_err(), "the old socket is closed");
        let moved = adopt_tcp(Some(moved), "127.0.0.2:0".parse().unwrap()).unwrap();
        let at = moved.local_addr().unwrap();
        assert_eq!(at.ip().to_string(), "127.0.0.2");
        let wildcard = SocketAddr::new("0.0.0.0".parse().unwrap(), at.port());
        let error = adopt_tcp(Some(moved), wildcard).unwrap_err();
        assert!(matches!(error, BindError::Overlap { .. }), "{error}");
    }
}
