//! Count of the lost messages to a controller or a listener. The sessions of the target share the count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::target::Address;

/// Interval between two log messages about lost messages to one target.
const LOSS_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Number of messages to a target that were dropped. The sessions of the target add their losses when they occur.
#[derive(Debug)]
pub(crate) struct Losses {
    target: String,
    count: AtomicU64,
    /// Time of the last log message.
    logged: Mutex<Option<Instant>>,
}

impl Losses {
    /// Creates a count for the target with this address, without any lost message.
    pub fn new(address: &Address) -> Losses {
        Losses { target: address.to_string(), count: AtomicU64::new(0), logged: Mutex::default() }
    }

    /// Adds `count` lost messages. Logs the number of all lost messages, at most once in [`LOSS_LOG_INTERVAL`].
    pub fn add(&self, count: u64) {
        if count == 0 {
            return;
        }
        let lost = self.count.fetch_add(count, Ordering::Relaxed).saturating_add(count);
        if self.may_log() {
            tracing::warn!(
                controller = self.target,
                lost,
                "messages to the controller are lost, as it reads too slowly or they exceed a limit; let it read faster or ask for less"
            );
        }
    }

    /// Returns the number of lost messages.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether a message may be logged now, and then counts the message as logged.
    fn may_log(&self) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let may_log = logged.is_none_or(|at| at.elapsed() >= LOSS_LOG_INTERVAL);
        if may_log {
            *logged = Some(Instant::now());
        }
        may_log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that lost messages are all counted, and that the log does not report each of them.
    #[test]
    fn losses_are_counted_and_logged_once_in_an_interval() {
        let losses = Losses::new(&Address::ListenUnix("/run/br0.mgmt".into()));
        losses.add(0);
        assert!(losses.may_log(), "nothing was lost");
        *losses.logged.lock().unwrap_or_else(PoisonError::into_inner) = None;
        losses.add(3);
        losses.add(4);
        assert_eq!(losses.count(), 7);
        assert!(!losses.may_log());
    }
}
