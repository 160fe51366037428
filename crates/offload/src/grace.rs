//! Grace periods for running BPF programs. A separate thread waits for the end of the programs, which takes
//! milliseconds. Meanwhile, the slow path continues.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Grace periods for running BPF programs. Each grace period has a number. Dropping this value ends the thread that
/// waits for the grace periods.
#[derive(Debug)]
pub(crate) struct Grace {
    asked: u64,
    ask: Sender<u64>,
    done: Arc<AtomicU64>,
}

impl Grace {
    /// Starts the thread that waits. `passed` is called after the end of each grace period.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn new(passed: impl Fn() + Send + 'static) -> io::Result<Grace> {
        let (ask, asked) = channel();
        let done = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&done);
        std::thread::Builder::new()
            .name("hook-grace".to_owned())
            .spawn(move || wait(&asked, &told, &passed))?;
        Ok(Grace { asked: 0, ask, done })
    }

    /// Begins a grace period, which ends when all programs that run now have ended. Returns the number of the grace
    /// period.
    pub fn begin(&mut self) -> u64 {
        self.asked += 1;
        if self.ask.send(self.asked).is_err() {
            // The thread has ended, so this thread waits itself.
            xdp::wait_for_programs();
            self.done.store(self.asked, Ordering::Release);
        }
        self.asked
    }

    /// Returns whether the grace period with this number has ended.
    pub fn has_passed(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }
}

fn wait(asked: &Receiver<u64>, told: &AtomicU64, passed: &impl Fn()) {
    while let Ok(number) = asked.recv() {
        // One wait serves all requests that arrived before it begins.
        let number = asked.try_iter().last().unwrap_or(number);
        xdp::wait_for_programs();
        told.store(number, Ordering::Release);
        passed();
    }
}
