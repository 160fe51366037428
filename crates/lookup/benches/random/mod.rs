//! Pseudo-random numbers that are equal in every run, and a measurement that excludes the time of the preparation.

use std::time::Duration;

use sync::cpu::{TscClock, tsc};

/// Returns a pseudo-random number that depends only on `number` (the output function of Vigna's splitmix64).
pub fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A generator of a sequence of pseudo-random numbers.
pub struct Row(u64);

impl Row {
    pub fn new() -> Row {
        Row(1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 += 1;
        scattered(self.0)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Calls `before` and then `measured`, `times` times. Returns the total time of the calls of `measured`.
pub fn time(times: u64, mut before: impl FnMut(), mut measured: impl FnMut()) -> Duration {
    let clock = TscClock::new();
    let ticks = (0..times).map(|_| {
        before();
        let start = tsc();
        measured();
        tsc() - start
    });
    let (from, ticks) = (tsc(), ticks.sum::<u64>());
    Duration::from_nanos(clock.ns_of(from + ticks) - clock.ns_of(from))
}
