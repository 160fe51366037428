//! Execution of code inside a network namespace.
//!
//! A thread belongs to one namespace. Sockets, TAPs and netlink sockets belong to the namespace in which they
//! were opened for their whole lifetime. Objects of another namespace are therefore opened on a short-lived
//! thread that enters the namespace and ends there. Any thread can use the descriptors afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Location of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Netns {
    /// Name of a namespace created by `ip netns add`.
    Name(String),
    /// Path of a namespace file, for example `/run/netns/x` or `/proc/PID/ns/net`.
    Path(PathBuf),
}

/// An error of entering a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The namespace does not exist or cannot be opened.
    #[error(
        "network namespace {path}: cannot be opened ({source}); create it with `ip netns add` or check the name"
    )]
    Open {
        /// Path of the namespace file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("network namespace {path}: cannot be entered ({source}); run as root or with CAP_SYS_ADMIN")]
    Enter {
        /// Path of the namespace file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The thread could not be created.
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

    /// Opens the namespace file. The descriptor keeps the namespace alive and can be passed to netlink.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn open(&self) -> Result<File, NetnsError> {
        let path = self.path();
        File::open(&path).map_err(|source| NetnsError::Open { path, source })
    }
}

/// Runs `work` on a separate thread inside the namespace at `path` and returns its result. A panic of `work`
/// continues in the caller.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered. In this case, `work` has not run.
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

/// Runs `work` on a separate thread inside a new unnamed namespace. The namespace disappears with that
/// thread, the threads and processes that the thread has started, and all devices in it.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be created. In this case, `work` has not run.
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

/// Like [`within`], or in the caller's own namespace if `netns` is `None`.
///
/// # Errors
/// Like [`within`].
pub fn within_optional<R: Send>(
    netns: Option<&Netns>,
    work: impl FnOnce() -> R + Send,
) -> Result<R, NetnsError> {
    match netns {
        None => Ok(work()),
        Some(netns) => within(netns.path(), work),
    }
}
