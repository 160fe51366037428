//! Token bucket that several workers share, for policers, storm control limits and limits on flow cache misses. A
//! worker takes tokens once per burst.
//!
//! `spent` counts all tokens that were granted or forfeited. `accrued(now)` is the number of all tokens that
//! the bucket has received until `now`: the burst plus `floor(elapsed * rate)`. Each call computes this
//! number from the elapsed time. Therefore rounding errors do not accumulate. A call may grant `accrued -
//! spent` tokens. If this difference exceeds the burst, the excess is forfeited. A grant takes one
//! compare-and-swap.
//!
//! In any time window, [`TokenBucket::take`] grants at most `burst + rate * window` tokens, rounded up.
//! [`TokenBucket::take_all`] also grants a request that exceeds the burst if the bucket is full. The bucket is then
//! in debt: `spent` exceeds `accrued`, and the bucket grants nothing until it has received as many tokens as the
//! debt. A caller that always takes the available tokens gets all tokens that the bucket receives.
//!
//! `accrued` is a straight line over time. A change of rate starts a new line at the value that the old line has
//! reached. Therefore `spent` keeps its meaning. Both lines are stored side by side, and a generation number selects
//! the current one. A reader never waits for a writer, and retries only if a complete change happened during the read.
//! Both counts wrap, and the code uses only differences.

use crate::primitives::{AtomicU32, AtomicU64, ControlLock, Ordering, fence};

const NS_PER_S: u64 = 1_000_000_000;

/// A token bucket that receives `rate` tokens per second and holds at most `burst` tokens.
#[derive(Debug)]
pub struct TokenBucket {
    spent: AtomicU64,
    /// Generation number, which selects the line of the current rate and burst: `lines[generation % 2]`.
    generation: AtomicU32,
    lines: [SharedLine; 2],
    writer: ControlLock<()>,
}

/// Total number of tokens that the bucket has received, as a function of time: `offset` tokens until the time
/// `base_ns`, and from then on `rate` more tokens per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    base_ns: u64,
    offset: u64,
    rate: u64,
    burst: u64,
}

impl Line {
    #[inline]
    fn accrued(&self, now_ns: u64) -> u64 {
        // The clock reading of another worker may be older than the line.
        let elapsed = now_ns.saturating_sub(self.base_ns);
        let (seconds, ns) = (elapsed / NS_PER_S, elapsed % NS_PER_S);
        // Computes floor(ns * rate / 1e9) in 64 bits. Both factors of the last product are below 1e9.
        let part = ns * (self.rate / NS_PER_S) + ns * (self.rate % NS_PER_S) / NS_PER_S;
        self.offset.wrapping_add(seconds.wrapping_mul(self.rate)).wrapping_add(part)
    }
}

#[derive(Debug)]
struct SharedLine {
    base_ns: AtomicU64,
    offset: AtomicU64,
    rate: AtomicU64,
    burst: AtomicU64,
}

impl SharedLine {
    fn new(line: Line) -> Self {
        Self {
            base_ns: AtomicU64::new(line.base_ns),
            offset: AtomicU64::new(line.offset),
            rate: AtomicU64::new(line.rate),
            burst: AtomicU64::new(line.burst),
        }
    }

    fn store(&self, line: Line) {
        self.base_ns.store(line.base_ns, Ordering::Relaxed);
        self.offset.store(line.offset, Ordering::Relaxed);
        self.rate.store(line.rate, Ordering::Relaxed);
        self.burst.store(line.burst, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self) -> Line {
        Line {
            base_ns: self.base_ns.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            rate: self.rate.load(Ordering::Relaxed),
            burst: self.burst.load(Ordering::Relaxed),
        }
    }
}

impl TokenBucket {
    /// Returns a bucket that is full at the time `now_ns`. All calls must use one monotonic clock.
    ///
    /// `rate` is in tokens per second, up to 2^40. With a rate of 0, the bucket grants only the first burst.
    /// `burst` is in tokens.
    #[must_use]
    pub fn new(rate: u64, burst: u32, now_ns: u64) -> Self {
        let line = Line {
            base_ns: now_ns,
            offset: u64::from(burst),
            rate: rate.min(1 << 40),
            burst: u64::from(burst),
        };
        Self {
            spent: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            lines: [SharedLine::new(line), SharedLine::new(line)],
            writer: ControlLock::new(()),
        }
    }

    /// Takes up to `want` tokens from the bucket and returns the number of tokens that were granted.
    #[inline]
    pub fn take(&self, now_ns: u64, want: u32) -> u32 {
        let line = self.line();
        let accrued = line.accrued(now_ns);
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let available = available(accrued, spent, line.burst);
            let granted = available.min(u64::from(want));
            if granted == 0 {
                return 0;
            }
            // Tokens beyond the burst are forfeited. The next count starts from there.
            let next = accrued.wrapping_sub(available).wrapping_add(granted);
            match self.spent.compare_exchange_weak(spent, next, Ordering::Relaxed, Ordering::Relaxed) {
                // The value is at most `want`, which is a u32.
                Ok(_) => return u32::try_from(granted).unwrap_or(want),
                Err(now) => spent = now,
            }
        }
    }

    /// Takes `want` tokens and returns true, or takes none and returns false. A request that exceeds the burst is
    /// granted if the bucket is full, and the bucket is then in debt.
    #[inline]
    #[must_use]
    pub fn take_all(&self, now_ns: u64, want: u32) -> bool {
        let line = self.line();
        let accrued = line.accrued(now_ns);
        let want = u64::from(want);
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let available = available(accrued, spent, line.burst);
            if available < want.min(line.burst) {
                return false;
            }
            // Tokens beyond the burst are forfeited. With a debt, the next count starts ahead of `accrued`.
            let next = accrued.wrapping_sub(available).wrapping_add(want);
            match self.spent.compare_exchange_weak(spent, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => spent = now,
            }
        }
    }

    /// Puts tokens that the caller has taken but not used back into the bucket. Tokens that then exceed the burst are
    /// forfeited.
    #[inline]
    pub fn give_back(&self, tokens: u32) {
        self.spent.fetch_sub(u64::from(tokens), Ordering::Relaxed);
    }

    /// Returns the number of tokens that [`TokenBucket::take`] could grant at the time `now_ns`.
    #[must_use]
    pub fn available(&self, now_ns: u64) -> u64 {
        let line = self.line();
        available(line.accrued(now_ns), self.spent.load(Ordering::Relaxed), line.burst)
    }

    /// Changes the rate and the burst from the time `now_ns` on. Tokens in the bucket are kept, up to the new
    /// burst. Only control threads may call this method.
    pub fn set_rate(&self, rate: u64, burst: u32, now_ns: u64) {
        let _guard = self.writer.lock();
        let generation = self.generation.load(Ordering::Relaxed);
        let old = self.lines[generation as usize & 1].load();
        // Idle time up to now is limited by the old burst, not by the new one.
        let accrued = old.accrued(now_ns);
        self.forfeit(accrued, old.burst);
        let line = Line {
            base_ns: now_ns.max(old.base_ns),
            offset: accrued,
            rate: rate.min(1 << 40),
            burst: u64::from(burst),
        };
        let next = generation.wrapping_add(1);
        // The previous generation store retired the line that is overwritten here. A reader that sees the new
        // numbers must also see that store, and retry.
        fence(Ordering::Release);
        self.lines[next as usize & 1].store(line);
        self.generation.store(next, Ordering::Release);
    }

    /// Returns a consistent copy of the current [`Line`] (the bucket's rate and burst).
    #[inline]
    fn line(&self) -> Line {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let line = self.lines[generation as usize & 1].load();
            fence(Ordering::Acquire);
            if self.generation.load(Ordering::Relaxed) == generation {
                return line;
            }
        }
    }

    /// Removes the tokens in the bucket that exceed `burst`. `accrued` is the number of tokens received so far.
    fn forfeit(&self, accrued: u64, burst: u64) {
        let floor = accrued.wrapping_sub(burst);
        let mut spent = self.spent.load(Ordering::Relaxed);
        while available(accrued, spent, u64::MAX) > burst {
            match self.spent.compare_exchange_weak(spent, floor, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => spent = now,
            }
        }
    }
}

/// Maximum number of tokens by which `spent` can exceed `accrued`. `spent` exceeds `accrued` while the bucket is in
/// debt (at most 2^32 tokens), or if another worker took tokens at a slightly later clock reading. At the highest rate
/// (2^40 tokens per second), a bucket receives this number of tokens in about four minutes.
const AHEAD: u64 = 1 << 48;

/// Returns the difference between the wrapping counts `accrued` and `spent`, limited to `burst`. Returns 0 if `spent`
/// exceeds `accrued`, see [`AHEAD`].
#[inline]
fn available(accrued: u64, spent: u64, burst: u64) -> u64 {
    let difference = accrued.wrapping_sub(spent);
    // The limit is not half of the range, because a bucket that was idle for years is full and not overdrawn.
    if difference > u64::MAX - AHEAD { 0 } else { difference.min(burst) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn grants_the_burst_then_the_rate() {
        let bucket = TokenBucket::new(1_000, 10, 5);
        assert_eq!((bucket.take(5, 100), bucket.take(5, 1)), (10, 0));
        assert_eq!(bucket.take(5 + 999_999, 1), 0);
        assert_eq!(bucket.take(5 + 1_000_000, 5), 1);
        assert_eq!(bucket.take(5 + NS_PER_S, 100), 10);
        bucket.give_back(3);
        assert_eq!(bucket.available(5 + NS_PER_S), 3);
    }

    #[test]
    fn a_full_bucket_grants_more_than_its_burst_and_pays_the_debt() {
        let bucket = TokenBucket::new(1_000, 10, 0);
        assert!(bucket.take_all(0, 1));
        assert!(!bucket.take_all(0, 30), "the bucket is not full");
        assert_eq!(bucket.available(0), 9);
        // The bucket is full after 1 ms, and in debt of 20 tokens after the grant.
        assert!(bucket.take_all(1_000_000, 30));
        assert_eq!((bucket.available(21_000_000), bucket.take_all(21_000_000, 1)), (0, false));
        assert!(bucket.take_all(22_000_000, 1));
        assert!(!bucket.take_all(22_000_000, 1));
        assert!(bucket.take_all(27_000_000, 5), "a request within the burst needs its tokens only");
    }

    #[test]
    #[cfg(not(miri))]
    fn an_uneven_rate_does_not_drift() {
        // 3 tokens per second in steps of 1 ms for 300 s: exactly 900 tokens after the burst.
        let bucket = TokenBucket::new(3, 1, 0);
        assert_eq!(bucket.take(0, 1), 1);
        let granted: u32 = (1..=300_000u64).map(|ms| bucket.take(ms * 1_000_000, 7)).sum();
        assert_eq!(granted, 900);
    }

    #[test]
    fn very_high_rates_and_long_times_stay_exact() {
        let rate = 50_000_000_000; // bytes per second of 400 Gbit/s
        let year = 365 * 86_400 * NS_PER_S;
        let bucket = TokenBucket::new(rate, u32::MAX, 0);
        assert_eq!(bucket.take(20 * year, u32::MAX), u32::MAX);
        assert_eq!(bucket.take(20 * year, 1), 0);
        assert_eq!(bucket.take(20 * year + 1, 1_000), 50);
    }

    #[test]
    fn a_change_of_rate_keeps_what_was_saved_and_no_more() {
        let bucket = TokenBucket::new(1_000, 10, 0);
        bucket.take(0, 10);
        bucket.set_rate(1, 100, 4_000_000);
        assert_eq!(bucket.available(4_000_000), 4);
        let idle = 60 * NS_PER_S;
        bucket.set_rate(1, 5, idle);
        assert_eq!(bucket.available(idle), 5);
        bucket.set_rate(0, 50, 2 * idle);
        assert_eq!(
            (bucket.available(2 * idle), bucket.take(9 * idle, 50), bucket.take(99 * idle, 1)),
            (5, 5, 0)
        );
    }
}
