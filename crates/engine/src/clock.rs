//! Clock of the workers and of the slow path. A worker reads the clock once per round, not per packet.

use switch::Now;

/// Returns the current time of CLOCK_MONOTONIC, both in nanoseconds and in seconds modulo 65,536.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "coarse seconds wrap by design; the clock is not negative"
)]
pub fn monotonic() -> Now {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Now { ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, secs: time.tv_sec as u16 }
}
