//! Faults for the tests of failures, in debug builds and with the feature `fault` only. The variable `TRIVIUM_FAULT` names one:
//!
//! - `worker-panic`: a port of kind `null` panics in its worker.
//! - `worker-hang`: the worker of a port of kind `null` does not answer any more as soon as the file `TRIVIUM_FAULT_FILE` exists.
//! - `hand-over`: a successor fails at the steps of the hand-over that the lines of the file `TRIVIUM_FAULT_FILE` name, in the ways
//!   that they name: `STEP kill`, `STEP refuse` or `STEP hang`. One that hangs makes a file with the extension `STEP` beside it.

use port::Queue;

/// The faulty queue that was asked for, if any.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn queue() -> Option<Box<dyn Queue>> {
    None
}

/// The faulty queue that was asked for, if any.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn queue() -> Option<Box<dyn Queue>> {
    match std::env::var("TRIVIUM_FAULT").ok()?.as_str() {
        "worker-panic" => Some(Box::new(faulty::FaultyQueue { hang: None })),
        "worker-hang" => Some(Box::new(faulty::FaultyQueue { hang: Some(file()?) })),
        _ => None,
    }
}

/// Fails at a step of the hand-over if that was asked for.
///
/// # Errors
/// If the step was asked to refuse.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn step(_name: &str) -> Result<(), String> {
    Ok(())
}

/// Whether this process takes over at the moment: only then its steps fail.
#[cfg(any(debug_assertions, feature = "fault"))]
static TAKES_OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Says whether this process takes over at the moment.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn takes_over(now: bool) {
    TAKES_OVER.store(now, std::sync::atomic::Ordering::Relaxed);
}

/// Says whether this process takes over at the moment.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn takes_over(_now: bool) {}

/// Fails at a step of the hand-over if that was asked for.
///
/// # Errors
/// If the step was asked to refuse.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn step(name: &str) -> Result<(), String> {
    if !TAKES_OVER.load(std::sync::atomic::Ordering::Relaxed)
        || std::env::var("TRIVIUM_FAULT").is_ok_and(|fault| fault != "hand-over")
    {
        return Ok(());
    }
    let Some(text) = file().and_then(|file| std::fs::read_to_string(file).ok()) else { return Ok(()) };
    let way = text.lines().find_map(|line| line.split_once(' ').filter(|(at, _)| *at == name));
    match way {
        Some((_, "kill")) => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // The signal ends this thread too, on its way out of the kernel.
            Ok(())
        }
        Some((_, "refuse")) => Err(format!("a fault that was asked for at {name}")),
        Some((_, "hang")) => {
            // Whoever waits for this moment looks for the file.
            let _ = file().map(|file| std::fs::write(file.with_extension(name), ""));
            loop {
                std::thread::park();
            }
        }
        _ => Ok(()),
    }
}

#[cfg(any(debug_assertions, feature = "fault"))]
fn file() -> Option<std::path::PathBuf> {
    std::env::var_os("TRIVIUM_FAULT_FILE").map(Into::into)
}

#[cfg(any(debug_assertions, feature = "fault"))]
mod faulty {
    use port::{Batch, Capabilities, FramePool, Queue, QueueStatus};

    /// Panics when it is asked for packets, or hangs there while a file exists.
    pub struct FaultyQueue {
        /// The file.
        pub hang: Option<std::path::PathBuf>,
    }

    impl Queue for FaultyQueue {
        fn receive(&mut self, _pool: &mut FramePool, _out: &mut Batch) -> usize {
            let Some(file) = &self.hang else { panic!("a fault that was asked for (TRIVIUM_FAULT)") };
            while file.exists() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            0
        }

        fn transmit(&mut self, _pool: &mut FramePool, _batch: &mut Batch) -> usize {
            0
        }

        fn kick(&mut self, _pool: &mut FramePool) {}

        fn has_pending(&mut self) -> bool {
            true
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn status(&self) -> QueueStatus {
            QueueStatus { kind: "null", ..QueueStatus::default() }
        }

        fn close(self: Box<Self>, _pool: &mut FramePool) {}
    }
}
