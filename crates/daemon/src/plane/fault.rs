//! Faults for the tests of failures, in debug builds and with the feature `fault` only: `TRIVIUM_FAULT=worker-panic` makes a
//! port of kind `null` panic in its worker.

use port::Queue;

/// The faulty queue that was asked for, if any.
#[cfg(not(any(debug_assertions, feature = "fault")))]
pub fn queue() -> Option<Box<dyn Queue>> {
    None
}

/// The faulty queue that was asked for, if any.
#[cfg(any(debug_assertions, feature = "fault"))]
pub fn queue() -> Option<Box<dyn Queue>> {
    let asked = std::env::var("TRIVIUM_FAULT").is_ok_and(|fault| fault == "worker-panic");
    asked.then(|| Box::new(faulty::PanicQueue) as Box<dyn Queue>)
}

#[cfg(any(debug_assertions, feature = "fault"))]
mod faulty {
    use port::{Batch, Capabilities, FramePool, Queue, QueueStatus};

    /// Panics when it is asked for packets.
    pub struct PanicQueue;

    impl Queue for PanicQueue {
        fn receive(&mut self, _pool: &mut FramePool, _out: &mut Batch) -> usize {
            panic!("a fault that was asked for (TRIVIUM_FAULT)");
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
