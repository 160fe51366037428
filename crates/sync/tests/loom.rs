//! Models of the lock-free structures. loom explores interleavings and stale reads. Each model takes seconds. The
//! command `RUSTFLAGS="--cfg loom" cargo test -p sync --test loom --release` runs the models.
#![cfg(loom)]
#![allow(unsafe_code, reason = "reads loom's cells, whose checking is the point of the models")]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use sync::left_right::left_right;
use sync::mac_table::{Inserted, MacTable};
use sync::qsbr::Domain;
use sync::slots::Slots;
use sync::snapshot::Snapshot;
use sync::token_bucket::TokenBucket;
use sync::wake::WakeFlag;
use sync::{mpmc, spsc};

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// Published data. loom reports a read that is not ordered before the drop, or a drop that is not ordered
/// after the reads. The cell outlives the model's run, so that a broken structure causes a report and not a
/// crash.
struct Probe(Arc<UnsafeCell<u32>>);

// SAFETY: The models check the accesses to the cell.
unsafe impl Send for Probe {}
// SAFETY: As for `Send`.
unsafe impl Sync for Probe {}

impl Probe {
    fn new(value: u32) -> Self {
        Self(Arc::new(UnsafeCell::new(value)))
    }

    fn get(&self) -> u32 {
        // SAFETY: loom panics if this races.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&mut self, new: u32) {
        // SAFETY: loom panics if this races.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.set(u32::MAX);
    }
}

#[test]
fn snapshot_is_not_freed_under_a_reader() {
    model(3, || {
        let domain = Domain::with_max_readers(1);
        let snapshot = Arc::new(Snapshot::new(&domain, Probe::new(1)));
        let mut reader = domain.register().unwrap();
        let worker = thread::spawn({
            let snapshot = Arc::clone(&snapshot);
            move || {
                let first = snapshot.read(&reader).get();
                assert!(first == 1 || first == 2);
                reader.quiescent();
                let second = snapshot.read(&reader).get();
                assert!(second == 2 || second == first);
            }
        });
        snapshot.publish(Probe::new(2));
        domain.reclaim();
        domain.reclaim();
        worker.join().unwrap();
    });
}

#[test]
fn synchronize_waits_for_a_reader_that_comes_online() {
    model(3, || {
        let domain = Domain::with_max_readers(1);
        let snapshot = Arc::new(Snapshot::new(&domain, Probe::new(1)));
        let mut reader = domain.register().unwrap();
        reader.offline();
        let worker = thread::spawn({
            let snapshot = Arc::clone(&snapshot);
            move || {
                reader.online();
                assert_ne!(snapshot.read(&reader).get(), u32::MAX);
                reader.offline();
            }
        });
        snapshot.publish(Probe::new(2));
        domain.synchronize();
        assert_eq!(domain.pending(), 0);
        worker.join().unwrap();
    });
}

#[test]
fn garbage_of_two_writers_waits_for_its_own_grace_period() {
    model(2, || {
        let domain = Domain::with_max_readers(1);
        let slots = Arc::new(Slots::new(&domain, 1));
        slots.replace(0, Some(Box::new(Probe::new(1))));
        let mut reader = domain.register().unwrap();
        let worker = thread::spawn({
            let slots = Arc::clone(&slots);
            move || {
                assert_ne!(slots.read(0, &reader).map_or(0, Probe::get), u32::MAX);
                reader.quiescent();
                assert_ne!(slots.read(0, &reader).map_or(0, Probe::get), u32::MAX);
            }
        });
        let other = thread::spawn({
            let domain = Arc::clone(&domain);
            move || domain.reclaim()
        });
        slots.replace(0, None);
        domain.reclaim();
        other.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn left_right_writer_never_meets_a_reader() {
    model(3, || {
        let domain = Domain::with_max_readers(1);
        let (mut writer, shared) =
            left_right(&domain, Probe::new(0), |probe: &mut Probe, add: &u32| probe.set(probe.get() + add));
        let mut reader = domain.register().unwrap();
        let worker = thread::spawn(move || {
            let first = shared.read(&reader).get();
            assert!([0, 1, 3].contains(&first));
            reader.quiescent();
            let second = shared.read(&reader).get();
            assert!([0, 1, 3].contains(&second) && second >= first);
        });
        writer.push(1);
        writer.publish();
        writer.push(2);
        writer.publish();
        worker.join().unwrap();
        assert_eq!(writer.read().get(), 3);
    });
}

#[test]
fn spsc_hands_over_items_in_order() {
    model(3, || {
        let (mut producer, mut consumer) = spsc::channel(2);
        let watch = producer.watch();
        let pusher = thread::spawn(move || {
            let mut items = (1..=3).map(Probe::new);
            let mut pushed = producer.push_from(&mut items);
            if let Some(item) = items.next() {
                pushed += usize::from(producer.push(item).is_ok());
            }
            (pushed, producer.position(), producer.consumed())
        });
        let mut got = Vec::new();
        for _ in 0..2 {
            consumer.pop_burst(2, |item: Probe| got.push(item.get()));
        }
        let (pushed, position, consumed) = pusher.join().unwrap();
        assert!(consumed <= consumer.position());
        while let Some(item) = consumer.pop() {
            got.push(item.get());
        }
        let expected: Vec<u32> = (1..).take(pushed).collect();
        assert_eq!(got, expected);
        assert_eq!(
            (watch.pushed(), watch.consumed(), position),
            (got.len() as u64, got.len() as u64, position)
        );
    });
}

#[test]
fn spsc_ends_drop_what_is_left() {
    model(3, || {
        let (mut producer, mut consumer) = spsc::channel(2);
        let pusher = thread::spawn(move || (1..=3).filter(|n| producer.push(Probe::new(*n)).is_ok()).count());
        drop(consumer.pop());
        drop(consumer);
        assert!(pusher.join().unwrap() >= 2);
    });
}

#[test]
fn mpmc_gives_each_value_to_one() {
    model(2, || {
        let ring = Arc::new(mpmc::Ring::new(2));
        assert_eq!(ring.push_slice(&[1u32]), 1);
        let workers: Vec<_> = [[2, 3], [4, 5]]
            .into_iter()
            .map(|values| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    let pushed = ring.push_slice(&values);
                    let mut out = [0; 2];
                    let popped = ring.pop_slice(&mut out);
                    (values[..pushed].to_vec(), out[..popped].to_vec())
                })
            })
            .collect();
        let (mut pushed, mut popped) = (vec![1], Vec::new());
        for worker in workers {
            let (went_in, came_out) = worker.join().unwrap();
            pushed.extend(went_in);
            popped.extend(came_out);
        }
        popped.extend(std::iter::from_fn(|| ring.pop()));
        pushed.sort_unstable();
        popped.sort_unstable();
        assert_eq!(pushed, popped);
    });
}

#[test]
fn no_wake_up_is_lost() {
    use loom::sync::atomic::{AtomicBool, Ordering};
    model(3, || {
        let (flag, work) = (Arc::new(WakeFlag::new()), Arc::new(AtomicBool::new(false)));
        let producer = thread::spawn({
            let (flag, work) = (Arc::clone(&flag), Arc::clone(&work));
            move || {
                work.store(true, Ordering::Release);
                flag.notify_if_sleeping(|| {})
            }
        });
        flag.prepare_sleep();
        let saw = work.load(Ordering::Acquire);
        if saw {
            flag.awake();
        }
        let notified = producer.join().unwrap();
        assert!(saw || notified, "asleep with work to do");
    });
}

#[test]
fn a_sleeper_is_notified_once() {
    model(3, || {
        let flag = Arc::new(WakeFlag::new());
        flag.prepare_sleep();
        let other = thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.notify_if_sleeping(|| {})
        });
        let here = flag.notify_if_sleeping(|| {});
        assert!(here ^ other.join().unwrap());
    });
}

#[test]
fn mac_table_values_belong_to_their_keys() {
    model(2, || {
        // Two buckets. Both keys use one way of their bucket alternately.
        let table = Arc::new(MacTable::with_capacity(1, 1));
        let mut same = keys(&table, |[first, _]| first == 0);
        let (old, new) = (same.next().unwrap(), same.next().unwrap());
        assert_eq!(table.insert(old, 1, 0), Inserted::New);
        let reader = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                if let Some(hit) = table.lookup(old) {
                    assert_eq!(hit.value, 1);
                }
            }
        });
        assert_eq!(table.remove(old), Some(1));
        assert_eq!(table.insert(new, 2, 0), Inserted::New);
        reader.join().unwrap();
        assert_eq!((table.len(), table.lookup(new).map(|hit| hit.value)), (1, Some(2)));
    });
}

#[test]
fn mac_table_glances_see_values_of_their_keys() {
    model(2, || {
        let table = Arc::new(MacTable::with_capacity(1, 1));
        let mut same = keys(&table, |[first, _]| first == 0);
        let (old, new) = (same.next().unwrap(), same.next().unwrap());
        assert_eq!(table.insert(old, 1, 10), Inserted::New);
        let reader = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                let glancer = table.glancer();
                let glance = |key| glancer.glance(glancer.hash(key), key);
                assert!(glance(old).is_none_or(|seen| seen == (1, 10)));
                assert!(glance(new).is_none_or(|seen| seen == (2, 20)));
            }
        });
        assert_eq!(table.remove(old), Some(1));
        assert_eq!(table.insert(new, 2, 20), Inserted::New);
        reader.join().unwrap();
    });
}

#[test]
fn mac_table_new_key_comes_with_its_value() {
    model(2, || {
        let table = Arc::new(MacTable::with_capacity(1, 1));
        let mut same = keys(&table, |[first, _]| first == 0);
        let (old, new) = (same.next().unwrap(), same.next().unwrap());
        assert_eq!((table.insert(old, 1, 0), table.remove(old)), (Inserted::New, Some(1)));
        let reader = thread::spawn({
            let table = Arc::clone(&table);
            move || table.lookup(new).is_none_or(|hit| hit.value == 2)
        });
        assert_eq!(table.insert(new, 2, 0), Inserted::New);
        assert!(reader.join().unwrap(), "the value of the way's previous key");
    });
}

#[test]
fn mac_table_learns_a_key_once() {
    model(2, || {
        let table = Arc::new(MacTable::with_capacity(1, 1));
        let other = thread::spawn({
            let table = Arc::clone(&table);
            move || table.insert(5, 1, 0)
        });
        let here = table.insert(5, 2, 0);
        let there = other.join().unwrap();
        let new = [here, there].iter().filter(|inserted| **inserted == Inserted::New).count();
        assert_eq!((new, table.len(), table.iter().count()), (1, 1, 1));
    });
}

#[test]
fn mac_table_entry_stays_known_while_it_moves() {
    model(2, || {
        let table = Arc::new(MacTable::with_capacity(4, 1));
        assert_eq!(table.buckets(), 4);
        // Fills buckets 0 and 1. The new key fits in neither, and the first resident may move to bucket 2 or
        // 3.
        let resident = keys(&table, |[first, second]| first == 0 && second > 1).next().unwrap();
        let others = keys(&table, |[first, _]| first == 0).filter(|key| *key != resident).take(1);
        let others = others.chain(keys(&table, |[first, _]| first == 1).take(2));
        for key in std::iter::once(resident).chain(others) {
            assert_eq!(table.insert(key, 7, 0), Inserted::New);
        }
        let newcomer = keys(&table, |buckets| buckets == [0, 1]).last().unwrap();
        let slot = table.lookup(resident).unwrap().slot;
        let reader = thread::spawn({
            let table = Arc::clone(&table);
            move || assert_eq!(table.lookup(resident).map(|hit| hit.value), Some(7))
        });
        assert_eq!(table.insert(newcomer, 8, 0), Inserted::New);
        reader.join().unwrap();
        assert_ne!(table.lookup(resident).unwrap().slot, slot, "the model moves the entry");
        assert_eq!((table.len(), table.iter().count()), (5, 5));
    });
}

/// Returns keys whose first and second bucket satisfy a condition.
fn keys(table: &MacTable, wanted: impl Fn([usize; 2]) -> bool) -> impl Iterator<Item = u64> {
    (1..100).filter(move |key| wanted(table.buckets_of(*key)))
}

#[test]
fn token_bucket_grants_no_token_twice() {
    model(2, || {
        let bucket = Arc::new(TokenBucket::new(1_000_000_000, 4, 0));
        let takers: Vec<_> = (0..2u64)
            .map(|late| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || bucket.take(late, 4))
            })
            .collect();
        bucket.set_rate(2_000_000_000, 4, 1);
        let granted: u32 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!((4..=5).contains(&granted), "{granted}");
    });
}

#[test]
fn token_bucket_lines_are_read_whole() {
    model(2, || {
        let bucket = Arc::new(TokenBucket::new(0, 1_000, 0));
        assert_eq!(bucket.take(0, 1_000), 1_000);
        let taker = thread::spawn({
            let bucket = Arc::clone(&bucket);
            move || bucket.take(1_000, 1_000)
        });
        // The second change overwrites the line that the taker may be reading. The old base with the new rate
        // would make a thousand tokens due.
        bucket.set_rate(0, 1_000, 500);
        bucket.set_rate(1_000_000_000, 1_000, 1_000);
        assert_eq!(taker.join().unwrap(), 0);
    });
}
