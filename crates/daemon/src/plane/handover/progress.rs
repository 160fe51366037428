//! How far a hand-over of this process is, for threads that must not wait for it: the watchdog's, and those of signals.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By when the data plane is to answer again.
    until: Option<Instant>,
    /// The successor, while ending it takes everything back.
    successor: Option<Pid>,
    /// Whether this process is to end instead.
    cancelled: bool,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the data plane may be without an answer for this time.
    pub fn within(&self, time: Duration) {
        self.state().until = Instant::now().checked_add(time);
    }

    /// The data plane answers again, or another process has it.
    pub fn over(&self) {
        self.state().until = None;
    }

    /// Whether a hand-over is under way that has not taken too long yet.
    pub fn is_in_time(&self) -> bool {
        self.state().until.is_some_and(|until| Instant::now() < until)
    }

    /// Remembers a successor until [`Progress::taken`] or [`Progress::failed`], which is called before it is waited for. False if there is to be none.
    pub fn started(&self, successor: u32) -> bool {
        let mut state = self.state();
        state.successor = i32::try_from(successor).ok().and_then(Pid::from_raw);
        !state.cancelled
    }

    /// Everything is the successor's. False if the hand-over was cancelled before: then the successor is ending or has ended.
    pub fn taken(&self) -> bool {
        let mut state = self.state();
        state.successor = None;
        !state.cancelled
    }

    /// There is no successor any more.
    pub fn failed(&self) {
        self.state().successor = None;
    }

    /// Ends the successor that is taking over, and lets none begin.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.cancelled = true;
        if let Some(successor) = state.successor {
            // Its end is noticed where its answers are awaited.
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
        // Nothing is left to end.
        progress.cancel();
    }
}
