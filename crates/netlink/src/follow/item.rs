//! Items of the queue from the thread that reads notifications to the thread that applies them, and requests in
//! this queue.

use std::sync::mpsc::Sender;

use crate::error::NetlinkError;
use crate::fpm;
use crate::mirror::{Change, Mirror};

/// Items in the queue from the thread that reads notifications to the thread that applies them (the applier).
pub(super) enum Item {
    Datagram(Vec<u8>),
    /// Notifications were lost. Items before this item in the queue are out of date, and items behind it are
    /// not.
    Overrun,
    /// The notification socket can no longer be read, for this reason.
    Failed(String),
    /// A fence, which is a mark in the queue. All notifications that the kernel had sent when the fence was requested
    /// are before the fence in the queue.
    Fence(u64),
    Ask(Ask),
    /// Input of an FPM session that provides FRR's routes.
    Fpm(fpm::Said),
}

/// Request to the applier, the thread that updates the mirror of the kernel's routing state.
pub(super) enum Ask {
    /// Report when the applier reaches the fence of this request, which means that all earlier notifications are
    /// applied.
    Settle(Sender<()>),
    /// Call a function with the mirror of the kernel's routing state on the applier's thread.
    Look(Box<dyn FnOnce(&Mirror) + Send>),
    /// Compare the mirror with the kernel and repair the differences.
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

/// Result of a comparison of the mirror with the kernel's state: differences for which the kernel sent no notification.
/// The differences have been repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects of the mirror that differed from the kernel's state.
    pub changes: Vec<Change>,
    /// Number of objects that differed and for which a notification arrived during the comparison. The next comparison
    /// examines these objects.
    pub busy: usize,
}
