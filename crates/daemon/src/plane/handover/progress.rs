//! Progress of a hand-over of this process, for threads that must not wait for it: those of the watchdog and
//! of signals.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Progress of the current hand-over, if any.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Deadline by which the data plane must answer again.
    until: Option<Instant>,
    /// Process ID of the successor, while ending it takes everything back.
    successor: Option<Pid>,
    /// Whether this process must end instead of handing over.
    cancelled: bool,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time for which the data plane may not answer, from now on.
    pub fn within(&self, time: Duration) {
        self.state().until = Instant::now().checked_add(time);
    }

    /// Ends that time: the data plane answers again, or another process has taken it over.
    pub fn over(&self) {
        self.state().until = None;
    }

    /// Returns whether a hand-over is in progress and within its time limit.
    pub fn is_in_time(&self) -> bool {
        self.state().until.is_some_and(|until| Instant::now() < until)
    }

    /// Records a successor until [`Progress::taken`] or [`Progress::failed`]. The caller calls one of them
    /// before it waits for the successor's exit. Returns false if hand-overs are cancelled.
    pub fn started(&self, successor: u32) -> bool {
        let mut state = self.state();
        state.successor = i32::try_from(successor).ok().and_then(Pid::from_raw);
        !state.cancelled
    }

    /// Records that the successor owns everything. Returns false if the hand-over was cancelled before. The
    /// successor is then ending or has ended.
    pub fn taken(&self) -> bool {
        let mut state = self.state();
        state.successor = None;
        !state.cancelled
    }

    /// Records that there is no successor any more.
    pub fn failed(&self) {
        self.state().successor = None;
    }

    /// Ends the successor that is taking over, and prevents further hand-overs.
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
        // No successor is left to end.
        progress.cancel();
    }
}
