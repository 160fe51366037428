//! Running packet captures and packet traces. A hand-over ends them and waits until their threads no longer
//! access the workers' rings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use model::{DoctorFinding, Finding};

use super::lock::locked;

/// Time limit for a capture or trace to end before a hand-over continues.
const END: Duration = Duration::from_secs(1);

/// Duration of a capture or trace after which `trivium doctor` reports a warning.
const LONG: Duration = Duration::from_secs(600);

/// Running packet captures and packet traces, which must end before the workers stop.
#[derive(Default)]
pub struct Watches(Mutex<Vec<Watch>>);

/// A running capture or trace. A hand-over can end the capture or trace and wait for its end.
struct Watch {
    /// Name of the capture or trace, such as `capture of port.red`.
    object: String,
    since: Instant,
    over: Arc<AtomicBool>,
    /// Channel that is disconnected as soon as the thread of the capture or trace no longer accesses the workers'
    /// rings.
    done: mpsc::Receiver<()>,
}

/// Value that the thread of a capture or trace holds as long as it accesses the workers' rings. Dropping the value
/// reports that the thread no longer accesses the rings.
pub struct Watched {
    over: Arc<AtomicBool>,
    _done: mpsc::Sender<()>,
}

impl Watched {
    /// Returns whether a hand-over requires the capture or trace to end.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Watch {
    fn runs(&self) -> bool {
        self.done.try_recv() != Err(mpsc::TryRecvError::Disconnected)
    }

    fn finding(&self, age: Duration) -> DoctorFinding {
        let seconds = age.as_secs();
        DoctorFinding {
            object: self.object.clone(),
            severity: if age < LONG { Finding::Ok } else { Finding::Warning },
            finding: format!(
                "it has run for {seconds} s, and hooks send every packet to the workers until it ends"
            ),
            fix: if age < LONG { String::new() } else { "end the client of the capture or trace".to_owned() },
        }
    }
}

impl Watches {
    /// Records that a capture or trace starts. The returned value belongs to the thread of the capture or
    /// trace.
    pub fn begin(&self, object: String) -> Watched {
        let (over, (sender, done)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let mut all = locked(&self.0);
        all.retain(Watch::runs);
        all.push(Watch { object, since: Instant::now(), over: Arc::clone(&over), done });
        Watched { over, _done: sender }
    }

    /// Returns a finding with the age of each running capture or trace.
    pub fn examine(&self) -> Vec<DoctorFinding> {
        let mut all = locked(&self.0);
        all.retain(Watch::runs);
        all.iter().map(|watch| watch.finding(watch.since.elapsed())).collect()
    }

    /// Ends all captures and traces, and waits until their threads no longer access the workers' rings, at most `END`
    /// for each.
    pub fn end(&self) {
        let all = std::mem::take(&mut *locked(&self.0));
        all.iter().for_each(|watch| watch.over.store(true, Ordering::Release));
        for watch in all {
            if watch.done.recv_timeout(END) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::warn!("a capture or trace does not end; the hand-over goes on without it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the diagnostics name running captures and traces only, with a warning about those that have run for
    /// a long time.
    #[test]
    fn running_captures_are_named() {
        let watches = Watches::default();
        let (capture, trace) =
            (watches.begin("capture of port.red".to_owned()), watches.begin("trace".to_owned()));
        let named = || watches.examine().into_iter().map(|finding| finding.object).collect::<Vec<_>>();
        assert_eq!(named(), ["capture of port.red", "trace"]);
        drop(trace);
        assert_eq!(named(), ["capture of port.red"]);
        let severity = |age| locked(&watches.0)[0].finding(age).severity;
        assert_eq!(severity(Duration::ZERO), Finding::Ok);
        assert_eq!(severity(LONG), Finding::Warning);
        drop(capture);
        assert!(watches.examine().is_empty());
    }
}
