//! Numbers that are the same in every run, and the time of what is done to a batch without the time of making it.

use std::time::Duration;

use sync::cpu::{TscClock, tsc};

/// The output function of Vigna's splitmix64: a number's scattered one.
pub fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Numbers in a row.
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

/// The time that `measured` takes, all times together; `before` each, something that does not count.
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
