//! Clock for the times in flow entries (creation, last use, timeouts).

use engine::worker::monotonic;

/// Returns the current time in nanoseconds, on the clock that workers use.
pub fn now() -> u64 {
    monotonic().ns
}
