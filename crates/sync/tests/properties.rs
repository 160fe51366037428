//! Compares the structures with naive implementations over random sequences of operations.
#![cfg(not(any(loom, miri)))]

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use sync::left_right::left_right;
use sync::mac_table::{Inserted, MacTable};
use sync::qsbr::Domain;
use sync::token_bucket::TokenBucket;
use sync::{mpmc, spsc};

#[derive(Debug, Clone)]
enum RingStep {
    Push,
    PushFrom(usize),
    PushSlice(usize),
    Pop,
    PopBurst(usize),
    PopSlice(usize),
}

fn ring_step() -> impl Strategy<Value = RingStep> {
    prop_oneof![
        Just(RingStep::Push),
        (0usize..12).prop_map(RingStep::PushFrom),
        (0usize..12).prop_map(RingStep::PushSlice),
        Just(RingStep::Pop),
        (0usize..12).prop_map(RingStep::PopBurst),
        (0usize..12).prop_map(RingStep::PopSlice),
    ]
}

/// Naive implementation of a ring.
struct Naive {
    items: VecDeque<u64>,
    capacity: usize,
    pushed: u64,
    popped: u64,
}

impl Naive {
    fn push(&mut self, count: usize) -> Vec<u64> {
        let count = count.min(self.capacity - self.items.len());
        let new: Vec<u64> = (self.pushed..).take(count).collect();
        self.pushed += count as u64;
        self.items.extend(&new);
        new
    }

    fn pop(&mut self, count: usize) -> Vec<u64> {
        let count = count.min(self.items.len());
        self.popped += count as u64;
        self.items.drain(..count).collect()
    }
}

proptest! {
    #[test]
    fn spsc_is_a_bounded_queue(capacity in 1usize..9, steps in prop::collection::vec(ring_step(), 0..100)) {
        let (mut producer, mut consumer) = spsc::channel(capacity);
        let capacity = capacity.next_power_of_two();
        let mut naive = Naive { items: VecDeque::new(), capacity, pushed: 0, popped: 0 };
        for step in steps {
            // The next items, more than any step pushes.
            let next: Vec<u64> = (naive.pushed..naive.pushed + 20).collect();
            match step {
                RingStep::Push => {
                    let pushed = usize::from(producer.push(next[0]).is_ok());
                    prop_assert_eq!(naive.push(1).len(), pushed);
                }
                RingStep::PushFrom(count) => {
                    let mut items = next[..count].iter().copied();
                    let pushed = producer.push_from(&mut items);
                    prop_assert_eq!(naive.push(count).len(), pushed);
                    prop_assert_eq!(items.len(), count - pushed, "took an item that it did not push");
                }
                RingStep::PushSlice(count) => {
                    prop_assert_eq!(producer.push_slice(&next[..count]), naive.push(count).len());
                }
                RingStep::Pop => prop_assert_eq!(consumer.pop(), naive.pop(1).first().copied()),
                RingStep::PopBurst(count) => {
                    let mut out = Vec::new();
                    prop_assert_eq!(consumer.pop_burst(count, |item| out.push(item)), out.len());
                    prop_assert_eq!(out, naive.pop(count));
                }
                RingStep::PopSlice(count) => {
                    let mut out = vec![0; count];
                    let popped = consumer.pop_slice(&mut out);
                    prop_assert_eq!(&out[..popped], &naive.pop(count)[..]);
                }
            }
            let len = naive.items.len();
            prop_assert_eq!((producer.len(), consumer.len(), producer.free()), (len, len, capacity - len));
            prop_assert_eq!((producer.is_empty(), consumer.is_empty()), (len == 0, len == 0));
            prop_assert_eq!((producer.position(), consumer.position()), (naive.pushed, naive.popped));
            prop_assert_eq!(producer.consumed(), naive.popped);
        }
    }

    #[test]
    fn mpmc_is_a_bounded_queue(capacity in 1usize..9, steps in prop::collection::vec(ring_step(), 0..100)) {
        let ring = mpmc::Ring::new(capacity);
        let capacity = capacity.next_power_of_two().max(2);
        let mut naive = Naive { items: VecDeque::new(), capacity, pushed: 0, popped: 0 };
        for step in steps {
            let next: Vec<u64> = (naive.pushed..naive.pushed + 20).collect();
            match step {
                RingStep::Push => prop_assert_eq!(ring.push(next[0]).is_ok(), naive.push(1).len() == 1),
                RingStep::PushFrom(count) | RingStep::PushSlice(count) => {
                    prop_assert_eq!(ring.push_slice(&next[..count]), naive.push(count).len());
                }
                RingStep::Pop => prop_assert_eq!(ring.pop(), naive.pop(1).first().copied()),
                RingStep::PopBurst(count) => {
                    let mut out = Vec::new();
                    ring.pop_burst(count, |item| out.push(item));
                    prop_assert_eq!(out, naive.pop(count));
                }
                RingStep::PopSlice(count) => {
                    let mut out = vec![0; count];
                    let popped = ring.pop_slice(&mut out);
                    prop_assert_eq!(&out[..popped], &naive.pop(count)[..]);
                }
            }
            prop_assert_eq!(ring.len(), naive.items.len());
        }
    }

    #[test]
    fn left_right_shows_the_last_publication(steps in prop::collection::vec(prop::option::of(0u32..100), 0..60)) {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let (mut writer, shared) = left_right(&domain, Vec::new(), |table: &mut Vec<u32>, item: &u32| table.push(*item));
        let (mut pushed, mut published) = (Vec::new(), 0);
        for step in steps {
            if let Some(item) = step {
                writer.push(item);
                pushed.push(item);
            } else {
                reader.quiescent();
                writer.publish();
                published = pushed.len();
            }
            prop_assert_eq!(shared.read(&reader), &pushed[..published]);
        }
    }
}

#[derive(Debug, Clone)]
enum MacStep {
    Insert(u64, u32),
    Lookup(u64),
    Refresh(u64),
    Update(u64, u32),
    Remove(u64),
    RemoveIfOld(u64, u16),
    SweepOld(u16),
    SweepValue(u32),
    Pass(u16),
}

fn mac_step(keys: u64) -> impl Strategy<Value = MacStep> {
    let value = 0u32..4;
    prop_oneof![
        8 => (0..keys, value.clone()).prop_map(|(key, value)| MacStep::Insert(key, value)),
        3 => (0..keys).prop_map(MacStep::Lookup),
        2 => (0..keys).prop_map(MacStep::Refresh),
        1 => (0..keys, value.clone()).prop_map(|(key, value)| MacStep::Update(key, value)),
        4 => (0..keys).prop_map(MacStep::Remove),
        1 => (0..keys, 0u16..100).prop_map(|(key, age)| MacStep::RemoveIfOld(key, age)),
        1 => (100u16..5_000).prop_map(MacStep::SweepOld),
        1 => value.prop_map(MacStep::SweepValue),
        4 => (0u16..3_000).prop_map(MacStep::Pass),
    ]
}

/// Applies the steps to the table and to a map from key to value and age. The table may refuse new keys.
/// Returns the number of refused keys.
fn mac_table_against_map(table: &MacTable, steps: Vec<MacStep>, now: u16) -> Result<usize, TestCaseError> {
    let (mut map, mut now, mut refused) = (HashMap::new(), now, 0);
    for step in steps {
        match step {
            MacStep::Insert(key, value) => match table.insert(key, value, now) {
                Inserted::New => prop_assert!(map.insert(key, (value, now)).is_none()),
                Inserted::Updated(old) => {
                    prop_assert_eq!(map.insert(key, (value, now)).map(|(old, _)| old), Some(old))
                }
                Inserted::Full => {
                    prop_assert!(!map.contains_key(&key), "a known key cannot be refused");
                    refused += 1;
                }
                Inserted::Busy => prop_assert!(false, "nobody else is here"),
            },
            MacStep::Lookup(key) => {
                let hit = table.lookup_at(table.prefetch(key), key);
                prop_assert_eq!(hit.map(|hit| (hit.value, hit.age)), map.get(&key).copied());
                // A glance returns an equal result, but only for entries in the first bucket.
                let glancer = table.glancer();
                let first = hit.filter(|hit| hit.slot.bucket() == table.buckets_of(key)[0]);
                let glance = glancer.glance(glancer.hash(key), key);
                prop_assert_eq!(glance, first.map(|hit| (hit.value, hit.age)));
            }
            MacStep::Refresh(key) => {
                if let Some(hit) = table.lookup(key) {
                    table.refresh(hit.slot, key, now);
                    map.entry(key).and_modify(|(_, age)| *age = now);
                    // A slot of another key is not refreshed.
                    table.refresh(hit.slot, key + 1_000_000, now.wrapping_add(1));
                }
            }
            MacStep::Update(key, value) => {
                let old = map.get_mut(&key).map(|(known, _)| std::mem::replace(known, value));
                prop_assert_eq!(table.update_value(key, value), old);
            }
            MacStep::Remove(key) => {
                prop_assert_eq!(table.remove(key), map.remove(&key).map(|(value, _)| value))
            }
            MacStep::RemoveIfOld(key, limit) => {
                let goes = map.get(&key).is_some_and(|(_, age)| now.wrapping_sub(*age) > limit);
                let removed = table.remove_if(key, |entry| now.wrapping_sub(entry.age) > limit);
                prop_assert_eq!(removed, goes.then(|| map.remove(&key)).flatten().map(|(value, _)| value));
            }
            MacStep::SweepOld(limit) => {
                let before = map.len();
                map.retain(|_, (_, age)| now.wrapping_sub(*age) <= limit);
                let half = table.buckets() / 2;
                let keep = |entry: sync::mac_table::Entry| now.wrapping_sub(entry.age) <= limit;
                let removed = table.sweep_range(0..half, keep) + table.sweep_range(half..usize::MAX, keep);
                prop_assert_eq!(removed, before - map.len());
            }
            MacStep::SweepValue(value) => {
                map.retain(|_, (known, _)| *known != value);
                table.sweep(|entry| entry.value != value);
            }
            MacStep::Pass(seconds) => now = now.wrapping_add(seconds),
        }
        prop_assert_eq!(table.len(), map.len());
    }
    let listed: HashMap<_, _> = table.iter().map(|entry| (entry.key, (entry.value, entry.age))).collect();
    prop_assert_eq!(table.iter().count(), map.len());
    prop_assert_eq!(listed, map);
    Ok(refused)
}

proptest! {
    #[test]
    fn mac_table_is_a_map(
        seed in any::<u64>(),
        now in any::<u16>(),
        steps in prop::collection::vec(mac_step(200), 0..400),
    ) {
        prop_assert_eq!(mac_table_against_map(&MacTable::with_capacity(200, seed), steps, now)?, 0);
    }

    /// The table agrees with a map on every key that the table accepted. The test uses far more keys than the table has
    /// slots, so that second buckets, moves and refusals occur often.
    #[test]
    fn mac_table_is_a_map_of_what_it_accepted(
        seed in any::<u64>(),
        now in any::<u16>(),
        steps in prop::collection::vec(mac_step(60), 0..600),
    ) {
        let table = MacTable::with_capacity(16, seed);
        mac_table_against_map(&table, steps, now)?;
        prop_assert!(table.len() <= table.buckets() * 4);
    }

    /// In any time window, a bucket grants at most `burst + rate * window` tokens. A caller that always takes the
    /// available tokens gets all tokens that the bucket receives.
    #[test]
    fn token_bucket_is_exact(
        rate in 0u64..100_000_000_000,
        burst in 0u32..1_000_000,
        start in any::<u32>(),
        steps in prop::collection::vec((0u64..5_000_000_000, 0u32..2_000_000), 1..60),
    ) {
        let bucket = TokenBucket::new(rate, burst, u64::from(start));
        let mut naive = NaiveBucket::new(rate, burst, u64::from(start));
        let mut now = u64::from(start);
        for (pass, want) in steps {
            // Short intervals occur as often as long ones.
            now += if pass % 2 == 0 { pass % 10_000 } else { pass };
            prop_assert_eq!(bucket.take(now, want), naive.take(now, want));
            prop_assert_eq!(bucket.available(now), naive.available(now));
        }
    }

    #[test]
    fn token_bucket_keeps_its_balance_when_the_rate_changes(
        rates in prop::collection::vec((0u64..10_000_000, 1u32..100_000, 1u64..3_000_000_000), 1..20),
    ) {
        let (first_rate, first_burst, _) = rates[0];
        let bucket = TokenBucket::new(first_rate, first_burst, 0);
        let mut now = 0;
        for (rate, burst, pass) in rates {
            let before = bucket.available(now);
            bucket.set_rate(rate, burst, now);
            prop_assert_eq!(bucket.available(now), before.min(u64::from(burst)));
            now += pass;
            let due = u128::from(pass) * u128::from(rate) / 1_000_000_000;
            let expected = (u128::from(bucket.available(now - pass)) + due).min(u128::from(burst));
            prop_assert_eq!(u128::from(bucket.available(now)), expected);
            bucket.take(now, burst / 3);
        }
    }
}

/// Naive token bucket that counts billionths of tokens, so that nothing is rounded.
struct NaiveBucket {
    rate: u64,
    burst: u128,
    billionths: u128,
    now: u64,
}

impl NaiveBucket {
    const ONE: u128 = 1_000_000_000;

    fn new(rate: u64, burst: u32, now: u64) -> Self {
        let burst = u128::from(burst) * Self::ONE;
        Self { rate, burst, billionths: burst, now }
    }

    fn available(&self, now: u64) -> u64 {
        assert_eq!(now, self.now);
        u64::try_from(self.billionths / Self::ONE).expect("small")
    }

    fn take(&mut self, now: u64, want: u32) -> u32 {
        let passed = u128::from(now - std::mem::replace(&mut self.now, now));
        self.billionths += passed * u128::from(self.rate);
        if self.billionths >= self.burst + Self::ONE {
            // Tokens beyond the burst are forfeited as whole tokens. The fraction of a token is kept.
            self.billionths = self.burst + self.billionths % Self::ONE;
        }
        let granted = u32::try_from((self.billionths.min(self.burst) / Self::ONE).min(u128::from(want)))
            .expect("small");
        self.billionths -= u128::from(granted) * Self::ONE;
        granted
    }
}

#[test]
fn mac_table_takes_what_it_promises() {
    for seed in 0..4 {
        let table = MacTable::with_capacity(100_000, seed);
        for key in 0..100_000 {
            assert_eq!(table.insert(key << 8, 1, 0), Inserted::New);
        }
        // Continues far beyond the capacity, until half of the attempts fail.
        let (mut refused, mut key) = (0, 100_000u64);
        while refused < 1_000 {
            refused += usize::from(table.insert(key << 8, 1, 0) == Inserted::Full);
            key += 1;
        }
        let load = (table.len() * 100) / (table.buckets() * 4);
        assert!(load > 75, "full at {load} % of the slots");
        assert!((0..100_000).all(|key| table.lookup(key << 8).is_some()), "a known key made way");
    }
}
