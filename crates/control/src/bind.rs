//! The listening sockets: made from the configuration, or taken over from a predecessor.
//!
//! The unix socket appears under its name only once it has its mode (0660) and group, so that nobody can connect in
//! between. A socket that nobody listens on any more is replaced; one with a listener is an error.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use model::{Daemon, Scope};

use crate::tls::{Guard, GuardError};

/// Mode of the unix socket: owner and group.
const MODE: u32 = 0o660;

/// Why the API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the unix socket.
    #[error("daemon.api: another daemon listens on {}; stop it, or choose another path", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else stands where the socket should be.
    #[error("daemon.api: {} is not a socket; move it away, or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The unix socket cannot be made.
    #[error("daemon.api: {} cannot be made: {source}; {}", path.display(), unix_fix(source))]
    Unix {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The TCP address cannot be listened on.
    #[error("daemon.tcp.listen: {address} cannot be listened on: {source}; {}", tcp_fix(source))]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Certificate, key or token cannot be used.
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

/// Sockets that the API is served on. They can be cloned for a successor before they are served.
#[derive(Debug)]
pub struct Listeners {
    /// The unix socket.
    pub unix: UnixListener,
    /// The TCP socket with what guards it.
    pub tcp: Option<(TcpListener, Guard)>,
    /// What clients on the unix socket may do that are neither root nor the daemon's own user.
    pub group_scope: Scope,
}

impl Listeners {
    /// Listens as the configuration says.
    ///
    /// # Errors
    ///
    /// If a socket cannot be made, or certificate, key or token cannot be used.
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

    /// Takes sockets over that a predecessor listened on. A TCP socket without `tcp` in the configuration is closed;
    /// `tcp` in the configuration without a socket is bound anew.
    ///
    /// # Errors
    ///
    /// As [`Listeners::bind`].
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
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(BindError::InUse { path: path.to_owned() }),
        Ok(_) => {}
    }
    bind_beside(path, group).map_err(failed)
}

/// Makes the socket in a directory that nobody else may enter, and moves it to its place when it is ready.
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
            // Then it is for our own group, which is no wider.
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

/// The number of a group of this machine's own file.
fn group_id(name: &str) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}
