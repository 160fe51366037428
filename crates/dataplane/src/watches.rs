//! Running packet captures and packet traces. A hand-over ends them and waits until their threads no longer
//! access the workers' rings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::lock::locked;

/// Time limit for a capture or trace to end before a hand-over continues.
const END: Duration = Duration::from_secs(1);

/// Running packet captures and packet traces, which must end before the workers stop.
#[derive(Default)]
pub struct Watches(Mutex<Vec<Watch>>);

/// A running capture or trace. A hand-over can end the capture or trace and wait for its end.
struct Watch {
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

impl Watches {
    /// Records that a capture or trace starts. The returned value belongs to the thread of the capture or
    /// trace.
    pub fn begin(&self) -> Watched {
        let (over, (sender, done)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let mut all = locked(&self.0);
        all.retain(|watch| watch.done.try_recv() != Err(mpsc::TryRecvError::Disconnected));
        all.push(Watch { over: Arc::clone(&over), done });
        Watched { over, _done: sender }
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
