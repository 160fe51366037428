//! Order in which the slow path revalidates the megaflows of the bridges. The bridges share the time of
//! revalidation, so that many megaflows or slow rules of one bridge do not delay the revalidation of another
//! bridge.
//!
//! Each bridge has a list of its megaflow records. The slow path revalidates each record once per round. It processes a
//! slice (part) of one bridge's list at a time. The next slice belongs to the bridge that has used the least time among
//! the bridges with records to revalidate. A bridge cannot save unused time for later. A slice of a bridge whose tables
//! a control thread has locked ends at once, but counts as a whole slice.
//!
//! A list is processed from its end to its front. A removed record is replaced by the last record of the
//! list, so a removal never moves a record out of the part that is still to be processed.

use std::collections::BTreeMap;

/// Duration of one revalidation round in nanoseconds. Each round revalidates every megaflow once.
pub(super) const ROUND_NS: u64 = 500_000_000;

/// State of the revalidation of one bridge's megaflows.
#[derive(Default)]
struct Sweep {
    /// Indices of the bridge's megaflow records.
    ids: Vec<u32>,
    /// Number of records that the current round has not revalidated yet. These records are the first ones of
    /// `ids`.
    left: usize,
    /// Time at which the current revalidation round began, in nanoseconds.
    began_ns: u64,
    /// Time that the current revalidation round has taken so far without pauses, in nanoseconds.
    work_ns: u64,
    /// Time that the last complete revalidation round took without pauses, in nanoseconds.
    took_ns: u64,
    /// Total time that the revalidation of the bridge has used, in nanoseconds. A slice that ended because
    /// the tables were locked counts as a whole slice. When a bridge gets new records to revalidate, the
    /// value is raised to the value of the bridge that has used the least time.
    spent_ns: u64,
}

impl Sweep {
    /// Returns whether records are due for revalidation, and begins a new round if the current round has ended.
    /// The records of a round become due one after another over the duration of the round, so that revalidation never
    /// keeps an otherwise idle core busy.
    fn is_due(&mut self, now: u64) -> bool {
        let elapsed = now.saturating_sub(self.began_ns);
        self.left = self.left.min(self.ids.len());
        if self.left == 0 && elapsed >= ROUND_NS {
            self.took_ns = self.work_ns;
            (self.left, self.began_ns, self.work_ns) = (self.ids.len(), now, 0);
        }
        self.due(now) > 0
    }

    /// Returns the number of megaflow records that are due for revalidation at time `now`, in nanoseconds.
    fn due(&self, now: u64) -> usize {
        let all = self.ids.len() as u64;
        let due = all * now.saturating_sub(self.began_ns).min(ROUND_NS) / ROUND_NS;
        let kept = self.ids.len() - usize::try_from(due).unwrap_or(self.ids.len());
        self.left.min(self.ids.len()).saturating_sub(kept)
    }
}

/// Megaflow records of all bridges, by bridge identifier. See the [module](self) documentation.
#[derive(Default)]
pub(super) struct Sweeps {
    bridges: BTreeMap<u16, Sweep>,
    /// Least value of `spent_ns` among the bridges with records to revalidate, at the beginning of the last slice, in
    /// nanoseconds.
    floor_ns: u64,
}

impl Sweeps {
    /// Adds the megaflow record with index `id` to the list of a bridge. Returns the position of the record in the
    /// list.
    pub fn add(&mut self, bridge: u16, id: u32) -> usize {
        let ids = &mut self.bridges.entry(bridge).or_default().ids;
        ids.push(id);
        ids.len() - 1
    }

    /// Removes the megaflow record at position `place` from the list of a bridge. Returns the index of the record that
    /// was moved from the end of the list to this position.
    pub fn remove(&mut self, bridge: u16, place: usize) -> Option<u32> {
        let ids = &mut self.bridges.get_mut(&bridge)?.ids;
        if place < ids.len() {
            ids.swap_remove(place);
        }
        let moved = ids.get(place).copied();
        if ids.is_empty() {
            self.bridges.remove(&bridge);
        }
        moved
    }

    /// Returns the identifiers of the bridges with megaflow records.
    pub fn bridges(&self) -> impl Iterator<Item = u16> {
        self.bridges.keys().copied()
    }

    /// Returns the number of megaflow records of a bridge.
    pub fn len(&self, bridge: u16) -> usize {
        self.bridges.get(&bridge).map_or(0, |sweep| sweep.ids.len())
    }

    /// Returns the index of the megaflow record at position `place` in a bridge's list.
    pub fn get(&self, bridge: u16, place: usize) -> Option<u32> {
        self.bridges.get(&bridge)?.ids.get(place).copied()
    }

    /// Selects the bridge whose megaflows are revalidated next. Candidates are bridges whose records are due, and
    /// bridges with a barrier. Returns `None` if there is no candidate.
    pub fn next(&mut self, now: u64, has_barrier: impl Fn(u16) -> bool) -> Option<u16> {
        let floor = self.floor_ns;
        let candidates = self.bridges.iter_mut().filter_map(|(bridge, sweep)| {
            let is_due = sweep.is_due(now);
            (is_due || has_barrier(*bridge)).then(|| {
                sweep.spent_ns = sweep.spent_ns.max(floor);
                (sweep.spent_ns, *bridge)
            })
        });
        let (spent_ns, bridge) = candidates.min()?;
        self.floor_ns = spent_ns;
        Some(bridge)
    }

    /// Returns the number of records that the current round of a bridge has not revalidated yet,
    /// and the number of these records that are due.
    pub fn round(&self, bridge: u16, now: u64) -> (usize, usize) {
        self.bridges.get(&bridge).map_or((0, 0), |sweep| (sweep.left, sweep.due(now)))
    }

    /// Sets the number of records that the current round of a bridge has not revalidated yet.
    pub fn set_left(&mut self, bridge: u16, left: usize) {
        if let Some(sweep) = self.bridges.get_mut(&bridge) {
            sweep.left = left;
        }
    }

    /// Adds `ns` nanoseconds of revalidation to the time that a bridge has used. `is_round` is true
    /// if the records were revalidated for the current round of the bridge, and false if the
    /// records were revalidated for a barrier.
    pub fn charge(&mut self, bridge: u16, ns: u64, is_round: bool) {
        if let Some(sweep) = self.bridges.get_mut(&bridge) {
            sweep.spent_ns += ns.max(1);
            sweep.work_ns += if is_round { ns } else { 0 };
        }
    }

    /// Charges a bridge for a slice that ended because a control thread had locked the tables of the bridge. The bridge
    /// is charged at least `slice_ns` nanoseconds, the maximum time of a slice, although an attempt to lock the tables
    /// takes much less. Otherwise, the bridge would be next again for hundreds of slices. Only the `ns` nanoseconds
    /// that the slice took count as time of the round. For `is_round`, see [`Sweeps::charge`].
    pub fn charge_locked(&mut self, bridge: u16, ns: u64, slice_ns: u64, is_round: bool) {
        self.charge(bridge, ns, is_round);
        if let Some(sweep) = self.bridges.get_mut(&bridge) {
            sweep.spent_ns += slice_ns.saturating_sub(ns.max(1));
        }
    }

    /// Returns the time in nanoseconds that one revalidation of all megaflows takes, without pauses. For a
    /// bridge whose current round has already taken longer than its last round, the current duration counts.
    pub fn work_ns(&self) -> u64 {
        self.bridges.values().map(|sweep| sweep.took_ns.max(sweep.work_ns)).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const SLOW: u16 = 1;
    const QUICK: u16 = 2;

    /// Begins a round of each bridge. Returns the time, in nanoseconds, at which all records of the round are due.
    fn all_due(sweeps: &mut Sweeps, now: u64) -> u64 {
        assert_eq!(sweeps.next(now, |_| false), None, "the records become due over the round");
        now + ROUND_NS
    }

    /// Revalidates one record of the next bridge. The revalidation takes the time that `cost` returns for the bridge,
    /// in nanoseconds. Returns the bridge and this time.
    fn step(sweeps: &mut Sweeps, now: u64, cost: impl Fn(u16) -> u64) -> Option<(u16, u64)> {
        let bridge = sweeps.next(now, |_| false)?;
        let (left, due) = sweeps.round(bridge, now);
        assert!(left > 0 && due > 0);
        sweeps.set_left(bridge, left - 1);
        sweeps.charge(bridge, cost(bridge), true);
        Some((bridge, cost(bridge)))
    }

    /// Checks that a bridge whose records take long does not delay the round of another bridge. One record of
    /// the first bridge takes as long as a hundred records of the second bridge.
    #[test]
    fn records_that_take_long_use_the_time_of_their_own_bridge() {
        let mut sweeps = Sweeps::default();
        (0..5000).for_each(|id| _ = sweeps.add(SLOW, id));
        (5000..6000).for_each(|id| _ = sweeps.add(QUICK, id));
        let cost = |bridge| if bridge == SLOW { 1_000_000 } else { 10_000 };
        let begin = all_due(&mut sweeps, 2 * ROUND_NS);
        let (mut now, mut done) = (begin, 0);
        while done < 1000 {
            let (bridge, took) = step(&mut sweeps, now, cost).unwrap();
            done += u32::from(bridge == QUICK);
            now += took;
        }
        // The records of the second bridge take 10 ms, and the first bridge gets as much time.
        assert!(now - begin <= 22_000_000, "{} us", (now - begin) / 1000);
    }

    /// Checks that a bridge whose tables stay locked does not delay the round of another bridge. An attempt to
    /// lock the tables takes 1 us, and the other bridge's slices take 150 us.
    #[test]
    fn a_locked_bridge_does_not_delay_another_bridge() {
        const LOCKED: u16 = SLOW;
        const SLICE_NS: u64 = 200_000;
        let mut sweeps = Sweeps::default();
        (0..1000).for_each(|id| _ = sweeps.add(LOCKED, id));
        (1000..2000).for_each(|id| _ = sweeps.add(QUICK, id));
        let now = all_due(&mut sweeps, 2 * ROUND_NS);
        let (mut attempts, mut slices) = (0, 0);
        while let Some(bridge) = sweeps.next(now, |bridge| bridge == LOCKED) {
            if bridge == LOCKED {
                attempts += 1;
                sweeps.charge_locked(bridge, 1000, SLICE_NS, false);
            } else {
                let (left, _) = sweeps.round(bridge, now);
                sweeps.set_left(bridge, left - 10);
                sweeps.charge(bridge, 150_000, true);
                slices += 1;
            }
            if slices == 100 {
                break;
            }
        }
        assert!((50..=100).contains(&attempts), "{attempts} attempts for {slices} slices");
        // After the lock was released, both bridges get the same time.
        let before = sweeps.bridges[&LOCKED].spent_ns;
        assert!(before.abs_diff(sweeps.bridges[&QUICK].spent_ns) <= SLICE_NS);
    }

    /// Checks that a bridge without records to revalidate does not save unused time for later.
    #[test]
    fn a_bridge_saves_no_time() {
        let mut sweeps = Sweeps::default();
        (0..100).for_each(|id| _ = sweeps.add(SLOW, id));
        let mut now = all_due(&mut sweeps, 2 * ROUND_NS);
        while let Some((_, took)) = step(&mut sweeps, now, |_| 1_000_000) {
            now += took;
        }
        (100..200).for_each(|id| _ = sweeps.add(QUICK, id));
        now = all_due(&mut sweeps, now);
        let turns: Vec<u16> = (0..20).map(|_| step(&mut sweeps, now, |_| 1_000_000).unwrap().0).collect();
        assert!(turns.chunks(2).all(|turn| turn.contains(&SLOW) && turn.contains(&QUICK)), "{turns:?}");
    }

    /// Checks that a round revalidates each record, although records are removed and added meanwhile.
    #[test]
    fn a_round_leaves_out_no_record() {
        let mut sweeps = Sweeps::default();
        (0..100).for_each(|id| assert_eq!(sweeps.add(SLOW, id), id as usize));
        let now = all_due(&mut sweeps, 2 * ROUND_NS);
        let mut seen = Vec::new();
        for turn in 0..1000_u32 {
            if sweeps.next(now, |_| false).is_none() {
                break;
            }
            let (left, _) = sweeps.round(SLOW, now);
            seen.extend(sweeps.get(SLOW, left - 1));
            sweeps.set_left(SLOW, left - 1);
            if turn % 3 == 0 {
                // The record has been revalidated, so its removal takes no other record's turn.
                let place = left - 1 + (turn as usize * 7) % (sweeps.len(SLOW) - (left - 1));
                sweeps.remove(SLOW, place);
                sweeps.add(SLOW, 1000 + turn);
            }
        }
        seen.retain(|id| *id < 1000);
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u32>>());
    }
}
