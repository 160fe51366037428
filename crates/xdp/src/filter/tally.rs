//! Counters and rate limit buckets of filter rules on ports without an XDP program. The counters and buckets are kept
//! when the rule set of the filter is replaced. The counters and the bucket of a rule belong to the rule's name. A rule
//! with a rate limit per source has a bucket for each source. Workers share the state without locks.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Compiled, RuleCounters};

/// Binary logarithm of the number of ticks in a nanosecond: `FILTER_TICK_SHIFT`. Buckets count in ticks of a
/// sixteenth of a nanosecond.
const TICK_SHIFT: u32 = 4;
/// Number of binary fraction digits in the cost of one packet or byte in ticks: `FILTER_COST_SHIFT`.
const COST_SHIFT: u32 = 16;
/// Maximum number of attempts to take tokens from a bucket that other workers change at the same time.
const ATTEMPTS: usize = 4;
/// Maximum number of source prefixes that have a rate limit bucket at a time, as in the XDP program.
const SOURCES: usize = 65_536;
/// Number of table slots among which the bucket of a source can be placed. The slots take two cache
/// lines.
const WAYS: usize = 8;
/// Maximum number of counter rows of a rule. Workers with an index below this number have rows of their own,
/// and all other workers share one additional row.
const ROWS_MAX: usize = 64;

/// Counters and rate limit buckets of a filter's rules. All ports without an XDP program share this state.
#[derive(Debug, Default)]
pub struct Tally {
    rules: BTreeMap<String, Arc<RuleTally>>,
    /// Counts that a predecessor process handed over, by rule name. The counts of a rule are kept here until a
    /// rule of this name is added.
    inherited: BTreeMap<String, [u64; 4]>,
    /// Per-source rate limit buckets. `None` until the first rule with a rate limit per source is added.
    sources: Option<Arc<Sources>>,
    /// Number of counter rows of each rule. A worker counts in its own row. `None` until the first rule is added.
    rows: Option<usize>,
    /// Number of the rule that was added last. Rules are numbered in the order in which they are added. The table of
    /// per-source buckets identifies a rule by this number.
    next: u64,
}

impl Tally {
    /// Creates the state of a filter without rules. A rule that is added later continues the counts that a rule of
    /// equal name had in the predecessor process.
    #[must_use]
    pub fn after(counted: impl IntoIterator<Item = RuleCounters>) -> Tally {
        let figures =
            |rule: RuleCounters| (rule.name, [rule.packets, rule.bytes, rule.acted, rule.acted_bytes]);
        Tally { inherited: counted.into_iter().map(figures).collect(), ..Tally::default() }
    }

    /// Stores counts of rules that are not in the filter at present. A rule with one of these names that is added later
    /// starts with the stored counts.
    pub fn inherit(&mut self, counted: impl IntoIterator<Item = RuleCounters>) {
        for rule in counted.into_iter().filter(|rule| !self.rules.contains_key(&rule.name)) {
            self.inherited.insert(rule.name, [rule.packets, rule.bytes, rule.acted, rule.acted_bytes]);
        }
    }

    /// Returns the counters of each rule with the rule's name. Counts of rules that are not in the filter at
    /// present are included.
    #[must_use]
    pub fn counters(&self) -> Vec<RuleCounters> {
        let counters = |(name, rule): (&String, &Arc<RuleTally>)| {
            let [packets, bytes, acted, acted_bytes] = rule.sums();
            RuleCounters { name: name.clone(), packets, bytes, acted, acted_bytes }
        };
        // The counts of rules that are not in the filter at present are included.
        let inherited = self.inherited.iter().map(|(name, counted)| {
            let [packets, bytes, acted, acted_bytes] = *counted;
            RuleCounters { name: name.clone(), packets, bytes, acted, acted_bytes }
        });
        self.rules.iter().map(counters).chain(inherited).collect()
    }

    /// Returns the counters and buckets of a rule set's rules, in the order of the rules. The state of rules
    /// with other names is removed. Counts by workers that still use a removed rule are lost.
    pub(super) fn assign(&mut self, compiled: &Compiled) -> Vec<Arc<RuleTally>> {
        let rows = *self.rows.get_or_insert_with(|| crate::sys::possible_cpus().map_or(ROWS_MAX, rows_for));
        let mut old = std::mem::take(&mut self.rules);
        for rule in compiled.rules() {
            let tally = old.remove(&rule.name).unwrap_or_else(|| {
                self.next += 1;
                let before = self.inherited.remove(&rule.name).unwrap_or_default();
                Arc::new(RuleTally::new(self.next, before, rows))
            });
            self.rules.insert(rule.name.clone(), tally);
        }
        compiled.rules().iter().filter_map(|rule| self.rules.get(&rule.name).cloned()).collect()
    }

    /// Returns the per-source rate limit buckets. Creates the buckets at the first call.
    pub(super) fn sources(&mut self) -> Arc<Sources> {
        Arc::clone(self.sources.get_or_insert_with(|| Arc::new(Sources::new())))
    }
}

/// Returns the number of counter rows of a rule. There is one row for each CPU, because each worker runs on its
/// own CPU core.
fn rows_for(cpus: u32) -> usize {
    usize::try_from(cpus).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX)
}

/// Counters and rate limit bucket of one rule.
#[derive(Debug)]
pub(super) struct RuleTally {
    /// Number of the rule. In the table of per-source buckets, the number distinguishes the buckets of this rule from
    /// the buckets of other rules.
    number: u64,
    /// Counts of the rule that a predecessor process handed over: packets, bytes, and the packets and bytes on
    /// which the rule acted.
    before: [u64; 4],
    /// Counter rows by the index of the worker. Each row is written by one worker.
    rows: Box<[Row]>,
    /// Counter row of all workers without a row of their own.
    shared: Row,
    bucket: Bucket,
}

/// Counter row of one worker: packets, bytes, and the packets and bytes on which the rule acted.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Row([AtomicU64; 4]);

impl RuleTally {
    fn new(number: u64, before: [u64; 4], rows: usize) -> RuleTally {
        let rows = (0..rows).map(|_| Row::default()).collect();
        RuleTally { number, before, rows, shared: Row::default(), bucket: Bucket::default() }
    }

    /// Counts a frame of `length` bytes in the row of a worker. `acted` is whether the rule acted on the
    /// frame.
    pub fn count(&self, worker: usize, length: u64, acted: bool) {
        let more = [1, length, u64::from(acted), if acted { length } else { 0 }];
        if let Some(Row(counts)) = self.rows.get(worker) {
            for (count, more) in counts.iter().zip(more) {
                // A locked addition would cost some 20 cycles.
                count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            }
        } else {
            for (count, more) in self.shared.0.iter().zip(more) {
                count.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    fn sums(&self) -> [u64; 4] {
        let mut sums = self.before;
        for row in self.rows.iter().chain([&self.shared]) {
            for (sum, count) in sums.iter_mut().zip(&row.0) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

/// Tokens that a frame takes from a rate limit bucket, and the time at which it takes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charge {
    cost: u64,
    burst: u64,
    /// Time of CLOCK_MONOTONIC at which the tokens are taken, in ticks.
    now: u64,
    /// Whether a full bucket lets a frame pass that costs more tokens than the bucket can hold. The bucket then needs
    /// longer to refill.
    debt: bool,
    /// Whether the rate limit bucket is only read (dry run).
    dry: bool,
}

impl Charge {
    /// Creates the charge for `units` packets or bytes at the time `now_ns` of CLOCK_MONOTONIC in
    /// nanoseconds.
    pub fn new(cost: u64, burst: u64, units: u64, now_ns: u64, dry: bool) -> Charge {
        let cost = cost.saturating_mul(units) >> COST_SHIFT;
        Charge { cost, burst, now: now_ns << TICK_SHIFT, debt: false, dry }
    }

    /// Returns a copy of the charge that a full bucket accepts even if the charge exceeds the burst.
    pub fn on_debt(self) -> Charge {
        Charge { debt: true, ..self }
    }
}

/// A token bucket, stored as the time until which its tokens are spent, in ticks (virtual scheduling algorithm
/// of ITU-T I.371).
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Returns whether a frame exceeds the rate limit. A frame that does not exceed the rate limit is charged
    /// to the bucket.
    pub fn exceeded(&self, charge: Charge) -> bool {
        let Charge { cost, burst, now, debt, dry } = charge;
        for _ in 0..ATTEMPTS {
            let spent = self.0.load(Ordering::Relaxed);
            let after = spent.max(now).saturating_add(cost);
            if after > now.saturating_add(burst) && !(debt && spent <= now) {
                return true;
            }
            let charged =
                dry || self.0.compare_exchange(spent, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if charged {
                return false;
            }
        }
        // After this many failed attempts, the bucket counts as empty.
        true
    }
}

/// Table of per-source rate limit buckets, one for each source prefix, for all rules of a filter.
///
/// A slot of the table is assigned to a source by 64 bits of a keyed hash, so senders cannot make two sources collide.
/// When all slots in which a source can be placed are taken, the slot with the fullest bucket is reassigned. If that
/// bucket is full, no state is lost, because a new bucket is full too. Many sources that send once do not displace a
/// source that sends continuously.
///
/// Two workers that use one slot at the same time may charge one source for the frame of the other source, or
/// allow a source a second burst. The error is limited to that frame.
#[derive(Debug)]
pub(super) struct Sources {
    hasher: RandomState,
    sets: Box<[Set]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Set([Place; WAYS]);

#[derive(Debug, Default)]
struct Place {
    /// Hash of the source prefix to which the slot is assigned. 0 if the slot is free.
    owner: AtomicU64,
    bucket: Bucket,
}

impl Sources {
    fn new() -> Sources {
        Sources { hasher: RandomState::new(), sets: (0..SOURCES / WAYS).map(|_| Set::default()).collect() }
    }

    /// Returns whether a frame from the source `address` exceeds the rate limit of a rule. A frame that does not exceed
    /// the limit is charged to the bucket of the source.
    pub fn exceeded(&self, rule: u64, family: u32, address: u128, charge: Charge) -> bool {
        let hash = self.hasher.hash_one((rule, family, address)).max(1);
        let index = usize::try_from(hash >> 32).unwrap_or(0) % self.sets.len().max(1);
        let Some(Set(places)) = self.sets.get(index) else { return false };
        if let Some(own) = places.iter().find(|place| place.owner.load(Ordering::Relaxed) == hash) {
            return own.bucket.exceeded(charge);
        }
        if charge.dry {
            return Bucket::default().exceeded(charge);
        }
        let spent = |place: &&Place| place.bucket.0.load(Ordering::Relaxed);
        let Some(place) = places.iter().min_by_key(spent) else { return false };
        let before = (place.owner.load(Ordering::Relaxed), spent(&place));
        let taken = place.owner.compare_exchange(before.0, hash, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            // If another worker has found the new slot meanwhile, that worker has already charged the bucket.
            let _ = place.bucket.0.compare_exchange(before.1, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        place.bucket.exceeded(charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cost of one tick for each packet, as a fixed-point number.
    const ONE: u64 = 1 << COST_SHIFT;

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_its_rate() {
        let bucket = Bucket::default();
        let at = |now_ns| Charge::new(160 * ONE, 320, 1, now_ns, false);
        assert_eq!([0; 3].map(|_| bucket.exceeded(at(100))), [false, false, true]);
        assert!(bucket.exceeded(at(109)), "ten nanoseconds are a packet");
        assert!(bucket.exceeded(Charge { dry: true, ..at(109) }));
        assert!(!bucket.exceeded(Charge { dry: true, ..at(110) }), "nothing is taken");
        assert!(!bucket.exceeded(at(110)));
        assert!(bucket.exceeded(at(110)));
        let piece = Charge::new(160 * ONE, 320, 10, 200, false);
        assert!(bucket.exceeded(piece), "more than a burst at once");
        assert!(
            !bucket.exceeded(piece.on_debt()) && bucket.exceeded(piece.on_debt()),
            "of many frames it goes on debt"
        );
        assert!(bucket.exceeded(at(289)) && !bucket.exceeded(at(290)), "which is paid by then");
        let much = Charge::new(u64::MAX, 320, u64::MAX, 0, false);
        assert!(Bucket::default().exceeded(much), "it does not wrap");
    }

    #[test]
    fn a_source_that_goes_on_keeps_its_bucket_among_many_that_come_once() {
        let sources = Sources::new();
        // The bucket is not refilled: the burst is two, and no time passes.
        let charge = Charge::new(ONE, 2, 1, 1_000, false);
        let mut passed = 0;
        for other in 0..400_000 {
            assert!(!sources.exceeded(1, 1, other, charge), "the first frame of {other}");
            if other % 16 == 0 {
                passed += u32::from(!sources.exceeded(1, 1, u128::MAX, charge));
            }
        }
        assert!(passed <= 4, "{passed}");
        assert!(!sources.exceeded(2, 1, u128::MAX, charge), "another rule's bucket is another");
        assert!(!sources.exceeded(1, 2, u128::MAX, charge), "and another family's");
    }

    #[test]
    fn what_was_counted_before_is_counted_on_once() {
        let before = RuleCounters { name: "a".to_owned(), packets: 5, bytes: 300, acted: 1, acted_bytes: 60 };
        let rule = super::super::Rule {
            name: "a".to_owned(),
            priority: 0,
            matches: super::super::Match::default(),
            action: super::super::Action::Count,
            dry_run: false,
            expires: None,
        };
        let set =
            |rules: Vec<_>| Compiled::new(&super::super::RuleSet { rules, ..Default::default() }).unwrap();
        let mut tally = Tally::after([before.clone()]);
        assert_eq!(tally.counters(), std::slice::from_ref(&before), "also without a rule");
        let rules = tally.assign(&set(vec![rule.clone()]));
        assert_eq!(tally.counters(), [before]);
        // One worker number is below the number of CPUs, and one is above.
        rules[0].count(0, 60, true);
        rules[0].count(ROWS_MAX, 40, false);
        let RuleCounters { packets, bytes, acted, acted_bytes, .. } = tally.counters().remove(0);
        assert_eq!((packets, bytes, acted, acted_bytes), (7, 400, 2, 120));
        assert_eq!(tally.assign(&set(vec![rule.clone()]))[0].number(), rules[0].number(), "the same name");
        tally.assign(&set(vec![]));
        tally.assign(&set(vec![rule]));
        assert_eq!(tally.counters()[0].packets, 0, "it has gone meanwhile");
    }
}
