//! Runs code inside a network namespace.
//!
//! Each thread belongs to one network namespace. A socket or a TAP belongs for its whole lifetime to the
//! namespace in which it was opened. To open an object in another namespace, a short-lived thread is started,
//! which enters the namespace, opens the object, and ends. Any thread can use the file descriptor afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Identification of a network namespace by name or by path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Netns {
    /// Name of a namespace that `ip netns add` has created.
    Name(String),
    /// Path of a namespace file, for example `/run/netns/x` or `/proc/PID/ns/net`.
    Path(PathBuf),
}

/// An error of entering a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The namespace does not exist, or its file cannot be opened.
    #[error(
        "network namespace {path}: cannot be opened ({source}); create it with `ip netns add` or check the name"
    )]
    Open {
        /// Path of the namespace file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The kernel refuses to move a thread into the namespace.
    #[error("network namespace {path}: cannot be entered ({source}); run as root or with CAP_SYS_ADMIN")]
    Enter {
        /// Path of the namespace file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The thread that enters the namespace could not be created.
    #[error(
        "network namespace {path}: no thread could be started to enter it ({source}); raise the limit of tasks"
    )]
    Thread {
        /// Path of the namespace file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
}

impl Netns {
    /// Returns the path of the namespace file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Name(name) => Path::new("/run/netns").join(name),
            Self::Path(path) => path.clone(),
        }
    }

    /// Opens the namespace file. The namespace exists as long as the returned file is open. The file can be
    /// passed to netlink requests.
    ///
    /// # Errors
    /// [`NetnsError::Open`] if the file cannot be opened.
    pub fn open(&self) -> Result<File, NetnsError> {
        let path = self.path();
        File::open(&path).map_err(|source| NetnsError::Open { path, source })
    }
}

/// Runs `work` inside the namespace at `path`, on a separate thread, and returns the result of
/// `work`. If `work` panics, the panic continues in the caller.
///
/// # Errors
/// [`NetnsError`] if the namespace cannot be entered. In this case, `work` has not run.
pub fn within<R: Send>(path: impl AsRef<Path>, work: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
    let path = path.as_ref().to_path_buf();
    let file = File::open(&path).map_err(|source| NetnsError::Open { path: path.clone(), source })?;
    let entered = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("netns".to_owned());
        let thread = builder
            .spawn_scoped(scope, || {
                rustix::thread::move_into_link_name_space(
                    file.as_fd(),
                    Some(rustix::thread::LinkNameSpaceType::Network),
                )?;
                Ok::<R, rustix::io::Errno>(work())
            })
            .map_err(|source| NetnsError::Thread { path: path.clone(), source })?;
        match thread.join() {
            Ok(done) => done.map_err(|e| NetnsError::Enter { path: path.clone(), source: e.into() }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    Ok(entered)
}

/// Runs `work` inside a new namespace without a name, on a separate thread. The kernel deletes the namespace
/// and all its devices when this thread and all threads and processes that it has started have ended.
///
/// # Errors
/// [`NetnsError`] if the namespace cannot be created. In this case, `work` has not run.
pub fn within_new<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
    let path = || PathBuf::from("(new)");
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("netns".to_owned());
        let thread = builder
            .spawn_scoped(scope, || {
                leave_namespace()?;
                Ok::<R, rustix::io::Errno>(work())
            })
            .map_err(|source| NetnsError::Thread { path: path(), source })?;
        match thread.join() {
            Ok(done) => done.map_err(|e| NetnsError::Enter { path: path(), source: e.into() }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Moves the calling thread into a new network namespace.
#[allow(unsafe_code, reason = "unshare(2) with flags that concern descriptors would be dangerous")]
fn leave_namespace() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace changes; descriptor tables and memory stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

/// Runs `work` like [`within`] if `netns` is given. If `netns` is `None`, `work` runs in the caller's
/// namespace.
///
/// # Errors
/// The errors of [`within`].
pub fn within_optional<R: Send>(
    netns: Option<&Netns>,
    work: impl FnOnce() -> R + Send,
) -> Result<R, NetnsError> {
    match netns {
        None => Ok(work()),
        Some(netns) => within(netns.path(), work),
    }
}
