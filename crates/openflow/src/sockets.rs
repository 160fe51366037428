//! Unix sockets of listeners, which an upgrade passes from this process to the process that replaces it (the
//! successor). Clients that connect during this hand-over wait until the successor accepts them. No connection is
//! refused.
//!
//! A socket file is removed only by the process that bound a socket to the file or took over such a socket. A file that
//! has replaced the process's own file remains.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::socket_file::SocketFile;

/// Interval at which a process that hands over to a successor checks whether all OpenFlow sessions have ended.
const LOOK: Duration = Duration::from_millis(1);

/// A listening socket with its file.
#[derive(Debug)]
struct BoundSocket {
    path: PathBuf,
    listener: UnixListener,
    /// `None` if the file did not exist.
    file: Option<SocketFile>,
}

impl BoundSocket {
    fn new(path: &Path, listener: UnixListener) -> BoundSocket {
        BoundSocket { path: path.to_owned(), listener, file: SocketFile::at(path) }
    }

    /// Closes the socket. Removes its file before, unless another file has replaced it.
    fn remove(self) {
        if let Some(file) = self.file {
            file.remove();
        }
    }
}

/// The Unix sockets on which the OpenFlow listeners of a process listen.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Duplicates of the sockets on which this process listens, to be passed to a successor process. The key is the
    /// number of the [`OpenSocket`].
    open: Mutex<BTreeMap<u64, BoundSocket>>,
    /// Number of the next open socket.
    next: AtomicU64,
    /// Sockets from the predecessor process (the process that this process replaced), by path. No listener
    /// uses these sockets yet.
    given: Mutex<BTreeMap<PathBuf, BoundSocket>>,
    held: watch::Sender<bool>,
    /// Whether the successor process has taken over all sockets.
    left: AtomicBool,
    sessions: AtomicUsize,
}

fn locked<T>(sockets: &Mutex<T>) -> MutexGuard<'_, T> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens on a Unix socket at `path`. An existing socket is replaced. The socket is created in a directory
/// that only its owner can enter, and then moved to `path` with mode 0600.
///
/// # Errors
/// Returns an error if the path is too long, or if its directory is not writable.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let directory = PathBuf::from(beside);
    let socket = directory.join("s");
    let clear = || {
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_dir(&directory);
    };
    clear();
    DirBuilder::new().mode(0o700).create(&directory)?;
    let ready = || {
        // The path goes through a file descriptor, because a socket path is limited to 107 octets, which the
        // final path alone may use.
        let entered = File::open(&directory)?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/s", entered.as_raw_fd()))?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        std::fs::rename(&socket, path)?;
        Ok(listener)
    };
    let listener = ready();
    clear();
    listener
}

impl Sockets {
    /// Creates a set of Unix sockets with the listening sockets received from the predecessor process.
    #[must_use]
    pub fn given(sockets: impl IntoIterator<Item = (PathBuf, UnixListener)>) -> Sockets {
        let given = sockets.into_iter().map(|(path, socket)| (path.clone(), BoundSocket::new(&path, socket)));
        Sockets { given: Mutex::new(given.collect()), ..Sockets::default() }
    }

    /// Removes the predecessor's socket with this path from the set and returns the socket. Returns
    /// `None` if the set does not contain such a socket.
    #[must_use]
    pub fn take(&self, path: &Path) -> Option<UnixListener> {
        locked(&self.given).remove(path).map(|given| given.listener)
    }

    /// Closes the predecessor's sockets that no listener has taken, and removes their files.
    pub fn forget_given(&self) {
        std::mem::take(&mut *locked(&self.given)).into_values().for_each(BoundSocket::remove);
    }

    /// Keeps a duplicate of a listening socket, to be passed to a successor process. The caller has just bound the
    /// socket to `path`, or has taken it with [`Sockets::take`]. The socket file is removed when the returned value is
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is available.
    pub fn keep(self: &Arc<Self>, path: &Path, listener: &impl AsFd) -> io::Result<OpenSocket> {
        let duplicate = listener.as_fd().try_clone_to_owned()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.open).insert(number, BoundSocket::new(path, duplicate.into()));
        Ok(OpenSocket { sockets: Arc::clone(self), number })
    }

    /// Returns the paths and duplicates of all open sockets, to be passed to a successor process.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is available.
    pub fn duplicates(&self) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
        let open = locked(&self.open);
        let duplicate =
            |own: &BoundSocket| Ok((own.path.clone(), own.listener.as_fd().try_clone_to_owned()?));
        open.values().map(duplicate).collect()
    }

    /// Stops accepting connections, so that new clients wait for the successor process. Blocks
    /// until all existing sessions have ended, or until `patience` has passed.
    pub fn hold(&self, patience: Duration) {
        self.held.send_replace(true);
        let start = Instant::now();
        loop {
            // A session that was just accepted is counted after this pause.
            std::thread::sleep(LOOK);
            if self.sessions.load(Ordering::Acquire) == 0 || start.elapsed() >= patience {
                return;
            }
        }
    }

    /// Starts accepting connections again, because the hand-over to a successor process has failed.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Records that a successor process has taken over all sockets. The files of the sockets then
    /// remain when this process ends.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Returns a watch receiver whose value is true while the listeners accept no connections (see
    /// [`Sockets::hold`]).
    #[must_use]
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// Counts an OpenFlow session until the returned value is dropped. [`Sockets::hold`] waits for the end of all
    /// counted sessions.
    #[must_use]
    pub fn session(self: &Arc<Self>) -> Session {
        self.sessions.fetch_add(1, Ordering::AcqRel);
        Session(Arc::clone(self))
    }
}

/// A listening Unix socket of this process, which [`Sockets`] keeps for a successor process. When the value is dropped,
/// the duplicate of the socket is closed. The socket file is then removed, unless a successor process has taken over
/// the sockets, or another file has replaced the socket file.
#[derive(Debug)]
pub struct OpenSocket {
    sockets: Arc<Sockets>,
    number: u64,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let socket = locked(&self.sockets.open).remove(&self.number);
        if let Some(socket) = socket
            && !self.sockets.left.load(Ordering::Acquire)
        {
            socket.remove();
        }
    }
}

/// An OpenFlow session that is counted. [`Sockets::hold`] waits until all values of this type have
/// been dropped.
#[derive(Debug)]
pub struct Session(Arc<Sockets>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_has_its_rights_before_its_name() {
        let path = std::env::temp_dir().join(format!("trivium-rights-{}", std::process::id()));
        let name = path.clone();
        let (bound, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (Arc::clone(&bound), Arc::clone(&over));
        let watcher = std::thread::spawn(move || {
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) {
                if let Ok(file) = std::fs::symlink_metadata(&name) {
                    assert_eq!(file.permissions().mode() & 0o777, 0o600);
                    looks += 1;
                    seen.store(true, Ordering::Relaxed);
                }
            }
            looks
        });
        let mut rounds = 0;
        while rounds < 200 || !bound.load(Ordering::Relaxed) {
            let listener = bind_private(&path).unwrap();
            assert!(UnixStream::connect(&path).is_ok());
            drop(listener);
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
        std::fs::remove_file(&path).unwrap();
        // A path of the maximum length.
        let long = std::env::temp_dir().join("s".repeat(107 - 1 - std::env::temp_dir().as_os_str().len()));
        drop(bind_private(&long).unwrap());
        std::fs::remove_file(&long).unwrap();
    }

    #[test]
    fn who_connects_between_two_processes_is_the_second_ones() {
        let path = std::env::temp_dir().join(format!("trivium-sockets-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let first = Arc::new(Sockets::default());
        let listener = UnixListener::bind(&path).unwrap();
        let open = first.keep(&path, &listener).unwrap();
        let offered = first.duplicates().unwrap();
        first.hold(Duration::ZERO);
        let client = UnixStream::connect(&path).unwrap();
        first.leave();
        drop((open, listener, first));
        let given = offered.into_iter().map(|(path, socket)| (path, UnixListener::from(socket)));
        let second = Arc::new(Sockets::given(given));
        let listener = second.take(&path).unwrap();
        let open = second.keep(&path, &listener).unwrap();
        assert!(second.take(&path).is_none());
        listener.set_nonblocking(true).unwrap();
        listener.accept().unwrap();
        drop(client);
        // A socket without a successor is removed when it is closed.
        drop(open);
        assert!(!path.exists());
    }

    /// Checks that a socket file remains if another socket has replaced it, both for a socket of this process and for a
    /// socket from a predecessor process that no listener has taken.
    #[test]
    fn a_socket_file_that_another_process_has_replaced_is_not_removed() {
        let path = std::env::temp_dir().join(format!("trivium-sockets-other-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let sockets = Arc::new(Sockets::default());
        let listener = UnixListener::bind(&path).unwrap();
        let open = sockets.keep(&path, &listener).unwrap();
        let given = Sockets::given([(path.clone(), listener)]);
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(open);
        given.forget_given();
        assert!(path.exists(), "the file of the other socket remains");
        let open = sockets.keep(&path, &other).unwrap();
        drop(open);
        assert!(!path.exists());
    }

    #[test]
    fn what_nobody_asks_for_ends() {
        let path = std::env::temp_dir().join(format!("trivium-sockets-left-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let sockets = Sockets::given([(path.clone(), UnixListener::bind(&path).unwrap())]);
        sockets.forget_given();
        assert!(!path.exists() && sockets.take(&path).is_none());
    }

    #[test]
    fn holding_waits_for_sessions() {
        let sockets = Arc::new(Sockets::default());
        let session = sockets.session();
        let held = sockets.held();
        let ends = std::thread::spawn(move || {
            while !*held.borrow() {
                std::thread::yield_now();
            }
            drop(session);
        });
        sockets.hold(Duration::from_secs(3600));
        ends.join().unwrap();
        sockets.release();
        assert!(!*sockets.held().borrow());
    }
}
