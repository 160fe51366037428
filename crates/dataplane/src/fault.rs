//! Fault injection for tests, available only in debug builds and in builds with the feature `fault`. The environment
//! variable `TRIVIUM_FAULT` names one fault:
//!
//! - `worker-panic`: the worker of a port of kind `null` panics.
//! - `worker-hang`: the worker of a port of kind `null` stops responding as soon as the file `TRIVIUM_FAULT_FILE`
//!   exists.
//! - `slow-path-hang`: the thread of the slow path does not end while the file `TRIVIUM_FAULT_FILE` exists.
//! - `hand-over`: a successor process fails at steps of the hand-over. Each line of the file `TRIVIUM_FAULT_FILE` names
//!   a step and a kind of failure: `STEP kill`, `STEP refuse` or `STEP hang`. A successor that hangs creates a file
//!   beside `TRIVIUM_FAULT_FILE`, with the extension `STEP`, and continues when `TRIVIUM_FAULT_FILE` no longer exists.

use port::Queue;

/// Returns a port queue that fails as the environment variable `TRIVIUM_FAULT` specifies. Always returns `None`
/// in builds without fault injection.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn queue() -> Option<Box<dyn Queue>> {
    None
}

/// Returns a port queue that fails as the environment variable `TRIVIUM_FAULT` specifies. Returns `None` if the
/// variable names no fault of a queue.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn queue() -> Option<Box<dyn Queue>> {
    match std::env::var("TRIVIUM_FAULT").ok()?.as_str() {
        "worker-panic" => Some(Box::new(faulty::FaultyQueue { hang: None })),
        "worker-hang" => Some(Box::new(faulty::FaultyQueue { hang: Some(file()?) })),
        _ => None,
    }
}

/// Delays the end of the slow path's thread as `TRIVIUM_FAULT` specifies. Never waits in builds without fault
/// injection.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn slow_path_end() {}

/// If `TRIVIUM_FAULT` is `slow-path-hang`, delays the end of the slow path's thread until the file `TRIVIUM_FAULT_FILE`
/// no longer exists.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn slow_path_end() {
    if std::env::var("TRIVIUM_FAULT").is_ok_and(|fault| fault == "slow-path-hang") {
        let file = file().unwrap_or_default();
        while file.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Fails at a step of the hand-over if a fault is configured for the step. Never fails in builds without
/// fault injection.
///
/// # Errors
/// Returns an error if the configured fault for the step is `refuse`.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn step(_name: &str) -> Result<(), String> {
    Ok(())
}

/// Whether this process is a successor that is taking over the data plane. The steps of the hand-over fail only
/// in such a process.
#[cfg(any(debug_assertions, feature = "fault"))]
static TAKES_OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Sets whether this process is a successor that is taking over the data plane.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn takes_over(now: bool) {
    TAKES_OVER.store(now, std::sync::atomic::Ordering::Relaxed);
}

/// Sets whether this process is a successor that is taking over the data plane. Has no effect in builds without
/// fault injection.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn takes_over(_now: bool) {}

/// Injects the fault that is configured for a step of the hand-over, if any: ends the process, waits, or returns an
/// error.
///
/// # Errors
/// Returns an error if the configured fault for the step is `refuse`.
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
            // The signal ends this thread when it leaves the kernel.
            Ok(())
        }
        Some((_, "refuse")) => Err(format!("a fault that was asked for at {name}")),
        Some((_, "hang")) => {
            // The existence of the file shows the test that the step is reached.
            let file = file().unwrap_or_default();
            let _ = std::fs::write(file.with_extension(name), "");
            while file.exists() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(())
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
    use port::{Batch, Capabilities, Exported, FramePool, Queue, QueueStatus};

    /// A port queue whose function `receive` panics, or blocks while a file exists.
    pub struct FaultyQueue {
        /// Path of a file. The function `receive` blocks as long as this file exists. `None` means
        /// that `receive` panics.
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

        fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
            self.close(pool);
            Exported::Closed
        }
    }
}
