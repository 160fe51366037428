//! Progress of a hand-over in the predecessor. The watchdog thread and the signal thread read the progress, because
//! they cannot wait for the end of the hand-over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Progress of the current hand-over. The watchdog thread and the signal thread read this state.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Deadline by which the data plane must answer requests again. `None` outside a hand-over.
    until: Option<Instant>,
    /// Process ID of the successor, as long as this process can still kill the successor and resume the data
    /// plane.
    successor: Option<Pid>,
    /// Whether this process is about to end and must not begin or continue a hand-over.
    cancelled: bool,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a period of length `time` in which the data plane need not answer requests.
    pub fn within(&self, time: Duration) {
        self.state().until = Instant::now().checked_add(time);
    }

    /// Ends the period that [`Progress::within`] started, because the data plane answers requests again, or because
    /// another process has taken over the data plane.
    pub fn over(&self) {
        self.state().until = None;
    }

    /// Returns whether a hand-over is in progress and within its time limit.
    pub fn is_in_time(&self) -> bool {
        self.state().until.is_some_and(|until| Instant::now() < until)
    }

    /// Records a running successor. The caller must call [`Progress::taken`] or [`Progress::failed`] before it
    /// waits for the successor's exit. Returns false if this process is about to end and hand-overs are
    /// cancelled.
    pub fn started(&self, successor: u32) -> bool {
        let mut state = self.state();
        state.successor = i32::try_from(successor).ok().and_then(Pid::from_raw);
        !state.cancelled
    }

    /// Records that the successor owns the data plane. Returns false if the hand-over was cancelled before, in which
    /// case the successor has been killed.
    pub fn taken(&self) -> bool {
        let mut state = self.state();
        state.successor = None;
        !state.cancelled
    }

    /// Records that the successor process has ended without taking over.
    pub fn failed(&self) {
        self.state().successor = None;
    }

    /// Kills the successor that is taking over, and prevents later hand-overs.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.cancelled = true;
        if let Some(successor) = state.successor {
            // The thread that waits for the successor's answers detects its end.
            let _ = kill_process(successor, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_has_its_time_and_no_more() {
        let progress = Progress::default();
        assert!(!progress.is_in_time());
        progress.within(Duration::from_secs(3600));
        assert!(progress.is_in_time());
        progress.within(Duration::ZERO);
        assert!(!progress.is_in_time(), "the watchdog is to bite");
        progress.within(Duration::from_secs(3600));
        progress.over();
        assert!(!progress.is_in_time());
    }

    #[test]
    fn a_cancelled_hand_over_ends_its_successor_and_no_other() {
        let progress = Progress::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(progress.started(child.id()));
        progress.cancel();
        assert!(!child.wait().unwrap().success());
        assert!(!progress.taken());
        assert!(!progress.started(child.id()), "none begins any more");
        progress.failed();
        // There is no successor that could be killed.
        progress.cancel();
    }
}
