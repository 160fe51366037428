//! Doing something inside a network namespace.
//!
//! A thread belongs to one namespace, and sockets, TAPs and netlink belong to the one in which they were opened, for as long
//! as they live. So what must be opened elsewhere is opened on a short-lived thread that enters the namespace and never
//! comes back; the descriptors are then used from any thread.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Where a namespace is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Netns {
    /// By name, as `ip netns add` made it.
    Name(String),
    /// By path: `/run/netns/x`, `/proc/PID/ns/net`.
    Path(PathBuf),
}

/// Why a namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// It is not there or cannot be opened.
    #[error(
        "network namespace {path}: cannot be opened ({source}); create it with `ip netns add` or check the name"
    )]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot be entered.
    #[error("network namespace {path}: cannot be entered ({source}); run as root or with CAP_SYS_ADMIN")]
    Enter {
        /// Where it is.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread could be made.
    #[error(
        "network namespace {path}: no thread could be started to enter it ({source}); raise the limit of tasks"
    )]
    Thread {
        /// Where it is.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Netns {
    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Name(name) => Path::new("/run/netns").join(name),
            Self::Path(path) => path.clone(),
        }
    }

    /// Opens it: the descriptor keeps it alive and can be given to netlink.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn open(&self) -> Result<File, NetnsError> {
        let path = self.path();
        File::open(&path).map_err(|source| NetnsError::Open { path, source })
    }
}

/// Runs `work` on a thread of its own inside the namespace at `path` and returns what it returns. A panic in it continues in
/// the caller.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered; then `work` has not run.
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

/// Runs `work` on a thread of its own inside a new namespace without a name, which goes away with that thread, the
/// threads and processes that it has started, and all devices in it.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be made; then `work` has not run.
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

/// The calling thread goes into a network namespace of its own.
#[allow(unsafe_code, reason = "unshare(2) with flags that concern descriptors would be dangerous")]
fn leave_namespace() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace changes; descriptor tables and memory stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

/// As [`within`], in the caller's own namespace when `netns` is none.
///
/// # Errors
/// As [`within`].
pub fn within_optional<R: Send>(
    netns: Option<&Netns>,
    work: impl FnOnce() -> R + Send,
) -> Result<R, NetnsError> {
    match netns {
        None => Ok(work()),
        Some(netns) => within(netns.path(), work),
    }
}
