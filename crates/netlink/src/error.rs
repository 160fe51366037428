//! Errors between the mirror and the kernel.

use std::io;
use std::time::Duration;

use port::netns::NetnsError;

/// Reason why the kernel's state cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// A socket or a request failed.
    #[error("{what} by netlink: {source}; run as root or with CAP_NET_ADMIN")]
    Kernel {
        /// Description of the attempted operation.
        what: &'static str,
        /// Error of the kernel.
        source: port::NetlinkError,
    },
    /// The state changes too fast for a consistent dump.
    #[error("a dump of the kernel's {what} was interrupted by changes {times} times in a row")]
    Interrupted {
        /// Part of the state that was dumped.
        what: &'static str,
        /// Number of interrupted dumps.
        times: u32,
    },
    /// The thread that follows the kernel has not answered in time.
    #[error("the thread that follows the kernel has not answered within {0:?}: it is busy with changes")]
    Busy(Duration),
    /// A thread could not be started.
    #[error("no thread could be started to follow the kernel ({0}); raise the limit of tasks")]
    Thread(io::Error),
    /// The follower has ended.
    #[error("the kernel is no longer followed: {0}")]
    Ended(String),
}
