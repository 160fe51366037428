//! Waits for running programs on a thread of its own: milliseconds in which the decider goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Counts waits. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Grace {
    asked: u64,
    ask: Sender<u64>,
    done: Arc<AtomicU64>,
}

impl Grace {
    /// `passed` is called after each wait.
    ///
    /// # Errors
    /// When there is no thread left.
    pub fn new(passed: impl Fn() + Send + 'static) -> io::Result<Grace> {
        let (ask, asked) = channel();
        let done = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&done);
        std::thread::Builder::new()
            .name("hook-grace".to_owned())
            .spawn(move || wait(&asked, &told, &passed))?;
        Ok(Grace { asked: 0, ask, done })
    }

    /// Begins to wait for the programs that run now; the wait's number.
    pub fn begin(&mut self) -> u64 {
        self.asked += 1;
        if self.ask.send(self.asked).is_err() {
            // Nobody waits any more: it is done here.
            xdp::wait_for_programs();
            self.done.store(self.asked, Ordering::Release);
        }
        self.asked
    }

    /// Whether the wait of this number is over.
    pub fn has_passed(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }
}

fn wait(asked: &Receiver<u64>, told: &AtomicU64, passed: &impl Fn()) {
    while let Ok(number) = asked.recv() {
        // One wait is for all that were asked before it begins.
        let number = asked.try_iter().last().unwrap_or(number);
        xdp::wait_for_programs();
        told.store(number, Ordering::Release);
        passed();
    }
}
