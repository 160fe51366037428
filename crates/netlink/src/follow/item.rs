//! Items of the queue to the applier (the thread that applies notifications): notifications from the reader thread,
//! input of FPM sessions, and requests.

use std::sync::mpsc::Sender;

use crate::error::NetlinkError;
use crate::fpm;
use crate::mirror::{Change, Mirror};

/// An item in the queue to the applier (the thread that applies notifications).
pub(super) enum Item {
    Datagram(Vec<u8>),
    /// The kernel has discarded notifications. Notifications before this item in the queue are out of date, and
    /// notifications after it are valid.
    Overrun,
    /// The notification socket can no longer be read. The value is the reason.
    Failed(String),
    /// A fence, which is a mark in the queue. All notifications that the kernel had sent when the fence was requested
    /// are before the fence in the queue.
    Fence(u64),
    Ask(Ask),
    /// Input of an FPM session, in which FRR announces routes.
    Fpm(fpm::Said),
}

/// Request to the applier, the thread that updates the mirror of the kernel's routing state.
pub(super) enum Ask {
    /// Requests a fence and a report when the applier reaches the fence. All notifications that the kernel had sent
    /// before the request are then applied.
    Settle(Sender<()>),
    /// Requests a call of a function on the applier's thread, with the mirror of the kernel's routing state.
    Look(Box<dyn FnOnce(&Mirror) + Send>),
    /// Requests a comparison of the mirror of the kernel's routing state with the kernel, and the repair of the
    /// differences.
    Check(Sender<Result<Drift, NetlinkError>>),
    End,
}

impl Ask {
    pub(super) fn look<R: Send + 'static>(
        to: Sender<R>,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Ask {
        Ask::Look(Box::new(move |mirror| {
            let _ = to.send(look(mirror));
        }))
    }
}

/// Result of a comparison of the mirror of the kernel's routing state with the kernel: differences for which the kernel
/// sent no notification. The differences have been repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects of the mirror that differed from the kernel's state.
    pub changes: Vec<Change>,
    /// Number of objects that differed, but for which a notification arrived during the comparison. The next comparison
    /// examines these objects.
    pub busy: usize,
}
