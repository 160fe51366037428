//! Per-worker counters: written by one worker with plain loads and stores, summed by readers.
//!
//! Each worker has a row of its own on its own cache lines, so counting costs an L1 hit. A reader sees each counter
//! whole, but not several at one instant. Invariant: one thread writes a row; a second writer would lose counts
//! (never more than that).

use crate::primitives::{AtomicU64, Ordering};

/// A count with a single writer. Wraps at 2^64.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A count of zero.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`: the owning worker only. No read-modify-write instruction.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the count: for gauges and for taking over a predecessor's counts; the owning worker only.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The count, from any thread.
    #[must_use]
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// A fixed set of counters of one writer, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct CounterBlock<const N: usize>([Counter; N]);

impl<const N: usize> CounterBlock<N> {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Counter::new()))
    }

    /// Adds `n` to counter `index`; out of range counts nothing.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.add(n);
        }
    }

    /// All counts, each read on its own.
    #[must_use]
    pub fn read(&self) -> [u64; N] {
        std::array::from_fn(|index| self.0[index].get())
    }
}

impl<const N: usize> Default for CounterBlock<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> std::ops::Index<usize> for CounterBlock<N> {
    type Output = Counter;
    #[inline(always)]
    fn index(&self, index: usize) -> &Counter {
        &self.0[index]
    }
}

/// Counters per line of [`CounterArray`].
const PER_LINE: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([Counter; PER_LINE]);

/// `workers` rows of `counters` counters each; rows share no cache line.
#[derive(Debug)]
pub struct CounterArray {
    lines: Box<[Line]>,
    lines_per_row: usize,
    counters: usize,
}

impl CounterArray {
    /// All zero.
    #[must_use]
    pub fn new(workers: usize, counters: usize) -> Self {
        let lines_per_row = counters.div_ceil(PER_LINE);
        let lines = (0..workers * lines_per_row).map(|_| Line::default()).collect();
        Self { lines, lines_per_row, counters }
    }

    /// The row that `worker` counts in; empty if out of range.
    #[must_use]
    pub fn row(&self, worker: usize) -> Row<'_> {
        let start = worker * self.lines_per_row;
        Row(self.lines.get(start..start + self.lines_per_row).unwrap_or(&[]))
    }

    /// Counters per row.
    #[must_use]
    pub fn counters(&self) -> usize {
        self.counters
    }

    /// Rows.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.lines.len().checked_div(self.lines_per_row).unwrap_or(0)
    }

    /// The sum of counter `index` over all workers.
    #[must_use]
    pub fn sum(&self, index: usize) -> u64 {
        (0..self.workers()).fold(0u64, |sum, worker| sum.wrapping_add(self.row(worker).get(index)))
    }

    /// The sums of all counters.
    #[must_use]
    pub fn sums(&self) -> Vec<u64> {
        (0..self.counters).map(|index| self.sum(index)).collect()
    }
}

/// One worker's counters in a [`CounterArray`].
#[derive(Debug, Clone, Copy)]
pub struct Row<'a>(&'a [Line]);

impl Row<'_> {
    /// Adds `n` to counter `index`: the owning worker only; out of range counts nothing.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        if let Some(counter) = self.counter(index) {
            counter.add(n);
        }
    }

    /// The count, from any thread; 0 if out of range.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.counter(index).map_or(0, Counter::get)
    }

    #[inline(always)]
    fn counter(&self, index: usize) -> Option<&Counter> {
        self.0.get(index / PER_LINE).map(|line| &line.0[index % PER_LINE])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rows_are_apart_and_sum_up() {
        let array = CounterArray::new(3, 17);
        assert_eq!((array.workers(), array.counters()), (3, 17));
        for worker in 0..3 {
            for index in 0..17 {
                array.row(worker).add(index, (worker * 100 + index) as u64);
            }
        }
        array.row(9).add(0, 1);
        array.row(0).add(99, 1);
        let expected: Vec<u64> = (0..17).map(|index| 300 + 3 * index).collect();
        assert_eq!(array.sums(), expected);
    }

    #[test]
    fn blocks_count() {
        let block = CounterBlock::<3>::new();
        block.add(1, 5);
        block[2].set(7);
        block[2].add(u64::MAX);
        block.add(3, 1);
        assert_eq!(block.read(), [0, 5, 6]);
        assert_eq!(align_of::<CounterBlock<3>>(), 128);
    }
}
