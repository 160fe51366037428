//! How often work is done that a tenant can bring about: pauses after rounds.

use std::time::Duration;

/// The least pause after a round.
const PAUSE: Duration = Duration::from_millis(20);

/// Does a round for each wake, and pauses behind it as long as it took, at least [`PAUSE`]. The first wake after a
/// quiet time is served at once. Ends with the wakes, or when a round returns `None` instead of its duration.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_round_before_it() {
        let took = [1, 20, 300].map(Duration::from_millis);
        let mut left = took.into_iter();
        let mut paused = Vec::new();
        // The fourth wake finds the end.
        rounds(std::iter::repeat_n((), 10), || left.next(), |pause| paused.push(pause));
        assert_eq!(paused, [20, 20, 300].map(Duration::from_millis));
    }
}
