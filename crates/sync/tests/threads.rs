//! Tests of the structures with real threads, for invariants that hold at any interleaving. The tests are
//! small under miri, which checks every access, and larger otherwise.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use sync::left_right::left_right;
use sync::mac_table::{Inserted, MacTable};
use sync::qsbr::Domain;
use sync::slots::Slots;
use sync::snapshot::Snapshot;
use sync::token_bucket::TokenBucket;
use sync::wake::WakeFlag;
use sync::{mpmc, spsc};

const fn rounds(natively: u64) -> u64 {
    if cfg!(miri) { 20 } else { natively }
}

/// A value that reveals a torn read or a use after free.
struct Whole {
    number: u64,
    inverse: u64,
    alive: Arc<AtomicUsize>,
}

impl Whole {
    fn new(number: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number, inverse: !number, alive: Arc::clone(alive) }
    }

    fn check(&self) -> u64 {
        assert_eq!(self.number, !self.inverse, "torn or freed");
        self.number
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.inverse = self.number;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn published_data_is_whole_and_all_of_it_is_freed() {
    let domain = Domain::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let snapshot = Snapshot::new(&domain, Whole::new(0, &alive));
    let slots = Slots::new(&domain, 2);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..2 {
            let mut reader = domain.register().unwrap();
            let (snapshot, slots, done) = (&snapshot, &slots, &done);
            scope.spawn(move || {
                let (mut last, mut turn) = (0, 0u64);
                while !done.load(Ordering::Acquire) {
                    let now = snapshot.read(&reader).check();
                    assert!(now >= last, "went back in time");
                    last = now;
                    for slot in 0..2 {
                        slots.read(slot, &reader).map(Whole::check);
                    }
                    turn += 1;
                    if worker == 1 && turn.is_multiple_of(16) {
                        reader.while_offline(thread::yield_now);
                    }
                    reader.quiescent();
                }
            });
        }
        for round in 1..=rounds(4_000) {
            snapshot.publish(Whole::new(round, &alive));
            let chunk = (round % 3 != 0).then(|| Box::new(Whole::new(round, &alive)));
            slots.replace(usize::from(round % 2 == 0), chunk);
            assert_eq!(snapshot.load_arc().check(), round);
            if round % 1_000 == 0 {
                domain.synchronize();
                assert!(alive.load(Ordering::Relaxed) <= 3, "old values are freed");
            }
        }
        done.store(true, Ordering::Release);
    });
    drop((snapshot, slots));
    domain.synchronize();
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn left_right_readers_see_whole_operations() {
    let domain = Domain::new();
    let (mut writer, shared) =
        left_right(&domain, vec![0u64; 16], |table: &mut Vec<u64>, number: &u64| table.fill(*number));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut reader, shared, done) = (domain.register().unwrap(), &shared, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let table = shared.read(&reader);
                    assert!(table.iter().all(|number| *number == table[0]) && table[0] >= last);
                    last = table[0];
                    reader.quiescent();
                }
            });
        }
        for round in 1..=rounds(300) {
            writer.push(round);
            writer.publish();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn spsc_keeps_order_across_threads() {
    let count = rounds(100_000);
    let (mut producer, mut consumer) = spsc::channel(64);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut items = (0..count).map(Box::new).peekable();
            while items.peek().is_some() {
                if producer.push_from(&mut items.by_ref().take(7)) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < count {
            let popped = consumer.pop_burst(5, |item| {
                assert_eq!(*item, expected);
                expected += 1;
            });
            if popped == 0 {
                thread::yield_now();
            }
        }
        assert!(consumer.pop().is_none());
    });
}

#[test]
fn mpmc_neither_loses_nor_doubles_a_frame() {
    let ring = mpmc::Ring::new(64);
    let frames: Vec<u32> = (0..48).collect();
    assert_eq!(ring.push_slice(&frames), 48);
    thread::scope(|scope| {
        for worker in 1..=3usize {
            let ring = &ring;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..rounds(10_000) {
                    let mut burst = [0; 8];
                    let popped = ring.pop_slice(&mut burst[..worker + 1]);
                    held.extend(&burst[..popped]);
                    if round % 2 == 0 {
                        let pushed = ring.push_slice(&held);
                        held.drain(..pushed);
                    }
                }
                // The ring has space for all of them, except for places claimed by a preempted thread.
                while !held.is_empty() {
                    let pushed = ring.push_slice(&held);
                    held.drain(..pushed);
                    thread::yield_now();
                }
            });
        }
    });
    let mut back: Vec<u32> = std::iter::from_fn(|| ring.pop()).collect();
    back.sort_unstable();
    assert_eq!(back, frames);
}

#[test]
fn mac_table_values_belong_to_their_keys() {
    // A small table, in which buckets overflow and entries move and are refused. All values of a key are
    // multiples of the key.
    let table = MacTable::with_capacity(32, 7);
    let value = |key: u64, version: u64| u32::try_from(key * 1_000 + version % 1_000).unwrap();
    // These keys are never removed and must always be found.
    for key in 1..=8 {
        assert_eq!(table.insert(key, value(key, 0), 0), Inserted::New);
    }
    let done = AtomicBool::new(false);
    let found = AtomicU64::new(0);
    thread::scope(|scope| {
        let (table, done, found) = (&table, &done, &found);
        let reader = scope.spawn(move || {
            let mut lost = 0u64;
            while !done.load(Ordering::Acquire) {
                for key in 1..100 {
                    let hit = table.lookup(key);
                    if let Some(hit) = hit {
                        assert_eq!(u64::from(hit.value) / 1_000, key);
                        table.refresh(hit.slot, key, 9);
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                    let glancer = table.glancer();
                    if let Some((value, _)) = glancer.glance(glancer.hash(key), key) {
                        assert_eq!(u64::from(value) / 1_000, key);
                    }
                    lost += u64::from(key <= 8 && hit.is_none());
                }
                assert!(table.iter().all(|entry| u64::from(entry.value) / 1_000 == entry.key));
            }
            lost
        });
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = writer + 1;
                    for round in 0..rounds(20_000) {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = 9 + (random >> 33) % 91;
                        match round % 8 {
                            0..4 => {
                                let _ = table.insert(key, value(key, round), 1);
                            }
                            4..6 => drop(table.remove(key)),
                            6 => {
                                let known = 1 + key % 8;
                                assert!(table.update_value(known, value(known, round)).is_some());
                            }
                            _ => {
                                table.sweep(|entry| entry.key <= 8 || entry.key % 5 != round % 5);
                            }
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        let lost = reader.join().unwrap();
        // A lookup may give up on a bucket whose writer is preempted, which is rare.
        assert!(lost * 100 <= found.load(Ordering::Relaxed), "{lost} of {found:?} lookups gave up");
    });
    assert!((1..=8).all(|key| table.lookup(key).is_some()));
    let mut keys: Vec<u64> = table.iter().map(|entry| entry.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), table.iter().count()), (table.len(), table.len()), "each key once, all counted");
    table.sweep(|_| false);
    assert!(table.is_empty() && table.iter().next().is_none());
    // The displaced counts must be zero again, so that each bucket can be filled by first choices.
    for key in 1..=8 {
        assert_eq!(table.insert(key, value(key, 0), 0), Inserted::New);
    }
}

#[test]
fn token_bucket_grants_the_same_to_many_as_to_one() {
    let bucket = TokenBucket::new(1_000_000, 100, 0);
    let clock = AtomicU64::new(0);
    let granted: u64 = thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut granted = 0;
                    for _ in 0..rounds(100_000) {
                        let now = clock.fetch_add(700, Ordering::Relaxed);
                        granted += u64::from(bucket.take(now, 32));
                    }
                    granted
                })
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    let end = clock.load(Ordering::Relaxed);
    let granted = granted + u64::from(bucket.take(end, u32::MAX));
    let due = 100 + end / 1_000;
    assert!(granted <= due, "{granted} granted, {due} due");
    // The result is less only if all three threads were preempted for longer than the burst lasts.
    assert!(granted > 0);
}

#[test]
fn a_worker_sleeps_and_misses_nothing() {
    let count = rounds(5_000);
    let (mut producer, mut consumer) = spsc::channel(8);
    let flag = Arc::new(WakeFlag::new());
    let sleeper = thread::spawn({
        let flag = Arc::clone(&flag);
        move || {
            let mut taken = 0;
            while taken < count {
                taken += consumer.pop_burst(8, drop) as u64;
                if consumer.is_empty() && taken < count {
                    flag.prepare_sleep();
                    // Parks for ever if a wake-up is lost, because unparking leaves a token.
                    if consumer.is_empty() {
                        thread::park();
                    }
                    flag.awake();
                }
            }
        }
    });
    for item in 0..count {
        while producer.push(item).is_err() {
            thread::yield_now();
        }
        flag.notify_if_sleeping(|| sleeper.thread().unpark());
    }
    sleeper.join().unwrap();
}
