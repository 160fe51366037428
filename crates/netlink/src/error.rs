//! Errors that occur while the mirror, which is this process's copy of the kernel's routing state, is kept up to date.

use std::io;
use std::time::Duration;

use port::netns::NetnsError;

/// Reason why the copy of the kernel's routing state (the mirror) cannot be kept up to date.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// A netlink socket or a netlink request failed.
    #[error("{what} by netlink: {source}; run as root or with CAP_NET_ADMIN")]
    Kernel {
        /// Description of the netlink operation that failed.
        what: &'static str,
        /// Error that the kernel returned for the operation.
        source: port::NetlinkError,
    },
    /// No consistent dump of the kernel's routing state could be made, because the state changed during every attempt.
    #[error("a dump of the kernel's {what} was interrupted by changes {times} times in a row")]
    Interrupted {
        /// Part of the routing state that was to be dumped.
        what: &'static str,
        /// Number of attempts to make the dump. Each attempt was interrupted by changes of the routing state.
        times: u32,
    },
    /// The thread that maintains the mirror (the copy of the kernel's routing state) returned no result within the time
    /// limit. The value is the limit.
    #[error("the thread that follows the kernel has not answered within {0:?}: it is busy with changes")]
    Busy(Duration),
    /// A thread that keeps the mirror (the copy of the kernel's routing state) up to date could not be started.
    #[error("no thread could be started to follow the kernel ({0}); raise the limit of tasks")]
    Thread(io::Error),
    /// The threads that keep the mirror (the copy of the kernel's routing state) up to date have ended. The value is
    /// the reason.
    #[error("the kernel is no longer followed: {0}")]
    Ended(String),
}
