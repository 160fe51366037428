//! What outlives a set of rules on ports without a hook: counters and buckets by the rules' names, and the buckets of
//! single sources. Workers share all of it without locks.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Compiled, RuleCounters};

/// Buckets keep time in sixteenths of a nanosecond: `FILTER_TICK_SHIFT`.
const TICK_SHIFT: u32 = 4;
/// Cost of one packet or byte, ticks with a binary fraction: `FILTER_COST_SHIFT`.
const COST_SHIFT: u32 = 16;
/// Attempts at a bucket that others charge at the same time.
const ATTEMPTS: usize = 4;
/// Sources that have buckets of their own at a time, as in the hook.
const SOURCES: usize = 65_536;
/// Places in which one source can be: two cache lines.
const WAYS: usize = 8;
/// More workers than that share counters.
const ROWS_MAX: usize = 64;

/// The counters and buckets of a filter's rules, on all ports that have no hook.
#[derive(Debug, Default)]
pub struct Tally {
    rules: BTreeMap<String, Arc<RuleTally>>,
    /// What a process before this one has counted, until a rule of the name comes.
    inherited: BTreeMap<String, [u64; 4]>,
    /// Made for the first rule that asks for it.
    sources: Option<Arc<Sources>>,
    /// Rows of counters that each rule has, for as many workers; set with the first rule.
    rows: Option<usize>,
    /// The number of the next rule that comes.
    next: u64,
}

impl Tally {
    /// Nothing is counted yet, but for what a process before this one has counted.
    #[must_use]
    pub fn after(counted: impl IntoIterator<Item = RuleCounters>) -> Tally {
        let figures =
            |rule: RuleCounters| (rule.name, [rule.packets, rule.bytes, rule.acted, rule.acted_bytes]);
        Tally { inherited: counted.into_iter().map(figures).collect(), ..Tally::default() }
    }

    /// Keeps what rules have done that are not among these now, until rules of their names come.
    pub fn inherit(&mut self, counted: impl IntoIterator<Item = RuleCounters>) {
        for rule in counted.into_iter().filter(|rule| !self.rules.contains_key(&rule.name)) {
            self.inherited.insert(rule.name, [rule.packets, rule.bytes, rule.acted, rule.acted_bytes]);
        }
    }

    /// What each rule has done, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<RuleCounters> {
        let counters = |(name, rule): (&String, &Arc<RuleTally>)| {
            let [packets, bytes, acted, acted_bytes] = rule.sums();
            RuleCounters { name: name.clone(), packets, bytes, acted, acted_bytes }
        };
        // What waits for its rule has been counted all the same.
        let inherited = self.inherited.iter().map(|(name, counted)| {
            let [packets, bytes, acted, acted_bytes] = *counted;
            RuleCounters { name: name.clone(), packets, bytes, acted, acted_bytes }
        });
        self.rules.iter().map(counters).chain(inherited).collect()
    }

    /// The tallies of a set's rules in their order. Rules of other names are forgotten; workers that have them yet count
    /// where nobody looks any more.
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

    /// The buckets of single sources.
    pub(super) fn sources(&mut self) -> Arc<Sources> {
        Arc::clone(self.sources.get_or_insert_with(|| Arc::new(Sources::new())))
    }
}

/// A worker has a core.
fn rows_for(cpus: u32) -> usize {
    usize::try_from(cpus).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX)
}

/// One rule's counters and its bucket.
#[derive(Debug)]
pub(super) struct RuleTally {
    /// Tells its sources from those of other rules.
    number: u64,
    /// What was counted before.
    before: [u64; 4],
    /// Of workers by their numbers, each written by that one alone.
    rows: Box<[Row]>,
    /// Of all others.
    shared: Row,
    bucket: Bucket,
}

/// One worker's counters: packets, bytes, and those of both on which the rule acted.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Row([AtomicU64; 4]);

impl RuleTally {
    fn new(number: u64, before: [u64; 4], rows: usize) -> RuleTally {
        let rows = (0..rows).map(|_| Row::default()).collect();
        RuleTally { number, before, rows, shared: Row::default(), bucket: Bucket::default() }
    }

    /// Counts a frame of so many bytes that a worker has seen.
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

/// What a frame costs of a bucket, and when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charge {
    cost: u64,
    burst: u64,
    /// In ticks.
    now: u64,
    /// Whether a full bucket pays more than it holds, and is empty for longer.
    debt: bool,
    /// Whether nothing is to be taken.
    dry: bool,
}

impl Charge {
    /// A charge of so many packets or bytes at `now_ns` of CLOCK_MONOTONIC.
    pub fn new(cost: u64, burst: u64, units: u64, now_ns: u64, dry: bool) -> Charge {
        let cost = cost.saturating_mul(units) >> COST_SHIFT;
        Charge { cost, burst, now: now_ns << TICK_SHIFT, debt: false, dry }
    }

    /// The same, which a full bucket pays even where it is more than its burst.
    pub fn on_debt(self) -> Charge {
        Charge { debt: true, ..self }
    }
}

/// A bucket is the time until which its tokens are spent (ITU-T I.371, virtual scheduling).
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Whether a frame exceeds the rate; it is charged if it does not.
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
        // Contended by that many workers, it is as good as empty.
        true
    }
}

/// Buckets of single sources under all rules of a filter.
///
/// A place is taken by 64 bits of a keyed hash, by which nobody outside can make two sources meet. Where all places of a
/// source are taken, the one whose bucket is the fullest makes room: a full bucket is as good as a new one, so nothing
/// is lost by that, and a source that goes on is not put out by many that come once. Two workers that meet in one place
/// charge one of the two sources for the other's frame, or give a source a second burst; both are over with that frame.
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
    /// 0: nobody's.
    owner: AtomicU64,
    bucket: Bucket,
}

impl Sources {
    fn new() -> Sources {
        Sources { hasher: RandomState::new(), sets: (0..SOURCES / WAYS).map(|_| Set::default()).collect() }
    }

    /// Whether a frame of this source exceeds the rate of a rule.
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
            // Somebody who has found it meanwhile has charged it already.
            let _ = place.bucket.0.compare_exchange(before.1, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        place.bucket.exceeded(charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick a packet.
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
        // Nothing comes back: a burst of two, and no time passes.
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
        // A worker with a number that machines have, and one with a number that they have not.
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
