//! Limits the rate of work that a tenant can cause. There is a pause after each round of work, and after each failed
//! attempt of an operation.

use std::time::{Duration, Instant};

/// Minimum pause after a round of work. The pause limits the CPU time that a tenant can make the
/// daemon use.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after the first failed attempt of an operation. The pause doubles with each failure, up to [`RETRY_MOST`].
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Runs one round of work for each wake-up. After a round, pauses for as long as the round took, at least for
/// [`PAUSE`]. The first wake-up after a quiet time is served without a pause. Returns when the wake-up
/// channel is closed, or when a round returns `None` instead of its duration.
pub fn rounds(
    wakes: impl Iterator<Item = ()>,
    mut round: impl FnMut() -> Option<Duration>,
    mut pause: impl FnMut(Duration),
) {
    for () in wakes {
        let Some(took) = round() else { return };
        pause(took.max(PAUSE));
    }
}

/// Length and end time of the pause after consecutive failed attempts of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    not_before: Instant,
    pause: Duration,
}

impl Retry {
    /// Returns the pause after an attempt that failed at `now`. `before` is the pause after the preceding
    /// failure, if any.
    #[must_use]
    pub fn failed(before: Option<Retry>, now: Instant) -> Retry {
        let pause = before.map_or(RETRY, |before| before.pause.saturating_mul(2).min(RETRY_MOST));
        Retry { not_before: now + pause, pause }
    }

    /// Returns whether the pause after the last failed attempt has passed, so that the operation may be
    /// attempted again.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_round_before_it() {
        let took = [1, 20, 300].map(Duration::from_millis);
        let mut left = took.into_iter();
        let mut paused = Vec::new();
        // The fourth round returns `None`, which ends the loop.
        rounds(std::iter::repeat_n((), 10), || left.next(), |pause| paused.push(pause));
        assert_eq!(paused, [20, 20, 300].map(Duration::from_millis));
    }

    #[test]
    fn pauses_between_attempts_grow_up_to_a_minute() {
        let mut now = Instant::now();
        let mut retry = None;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let failed = Retry::failed(retry, now);
            let pause = failed.pause;
            assert!(!failed.is_due(now + pause - Duration::from_millis(1)) && failed.is_due(now + pause));
            pauses.push(pause.as_secs());
            (retry, now) = (Some(failed), now + pause);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
