//! Waiting for events that have no file descriptor. The functions poll, up to a time limit.

use std::time::{Duration, Instant};

use crate::LabError;

const POLL: Duration = Duration::from_millis(5);

/// Polls until `condition` returns `true`.
///
/// # Errors
/// Returns [`LabError::TimedOut`] if `timeout` has elapsed. The error describes the awaited event by `what`.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<(), LabError> {
    eventually(what, timeout, || if condition() { Ok(()) } else { Err(String::new()) })
}

/// Polls until `attempt` returns a value, and returns this value.
///
/// # Errors
/// Returns [`LabError::TimedOut`] if `timeout` has elapsed. The error describes the awaited event by `what`,
/// and contains the last error of `attempt`.
pub fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, LabError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(_) if started.elapsed() < timeout => std::thread::sleep(POLL),
            Err(refusal) => {
                let detail = if refusal.is_empty() { refusal } else { format!(": {refusal}") };
                return Err(LabError::TimedOut {
                    what: what.to_owned(),
                    seconds: timeout.as_secs_f64(),
                    detail,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_refusal_is_named() {
        let error =
            eventually::<()>("the bus", Duration::from_millis(20), || Err("road closed".into())).unwrap_err();
        assert_eq!(error.to_string(), "the bus did not happen within 0.0 s: road closed");
    }

    #[test]
    fn a_late_event_is_seen() {
        let mut left = 3;
        wait_until("a countdown", Duration::from_secs(5), || {
            left -= 1;
            left == 0
        })
        .unwrap();
    }
}
