//! Packet and error counters of the workers. Each worker writes its own counters with plain loads and stores. A reader
//! sums the counters of all workers.
//!
//! The counters of a worker form a row on cache lines of its own. Therefore an increment costs only an access to the L1
//! cache. A reader sees a consistent value of each counter, but not the values of several counters at one instant.
//! Invariant: one thread writes a row. If a second thread wrote the row, counts would be lost, but no other error would
//! occur.

use crate::primitives::{AtomicU64, Ordering};

/// A 64-bit counter that one thread writes and any thread reads. The counter wraps at 2^64.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns a counter whose value is zero.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n` to the counter without a read-modify-write instruction. Only the worker that owns the counter may call
    /// this method.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the value of the counter. Gauges use this method, and so do counters that continue the count of a previous
    /// process (upgrade). Only the worker that owns the counter may call this method.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Returns the value of the counter. Any thread may call this method.
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

/// A fixed set of `N` counters that one thread writes. The set shares no cache line with other data.
#[derive(Debug)]
#[repr(align(128))]
pub struct CounterBlock<const N: usize>([Counter; N]);

impl<const N: usize> CounterBlock<N> {
    /// Returns a block in which all counters are zero.
    #[must_use]
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Counter::new()))
    }

    /// Adds `n` to the counter at position `index`. Does nothing if `index` is out of range.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.add(n);
        }
    }

    /// Returns the values of all counters. The values are not read at one instant.
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

/// Number of counters in a [`Line`] of a [`CounterArray`]. A line has 128 bytes, which are two cache lines.
const PER_LINE: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([Counter; PER_LINE]);

/// An array of counters with one row for each worker. No two rows share a cache line.
#[derive(Debug)]
pub struct CounterArray {
    lines: Box<[Line]>,
    lines_per_row: usize,
    counters: usize,
}

impl CounterArray {
    /// Returns an array in which all counters are zero.
    #[must_use]
    pub fn new(workers: usize, counters: usize) -> Self {
        let lines_per_row = counters.div_ceil(PER_LINE);
        let lines = (0..workers * lines_per_row).map(|_| Line::default()).collect();
        Self { lines, lines_per_row, counters }
    }

    /// Returns the row of counters of a worker. Returns an empty row if `worker` is out of range.
    #[must_use]
    pub fn row(&self, worker: usize) -> Row<'_> {
        let start = worker * self.lines_per_row;
        Row(self.lines.get(start..start + self.lines_per_row).unwrap_or(&[]))
    }

    /// Returns the number of counters of each worker.
    #[must_use]
    pub fn counters(&self) -> usize {
        self.counters
    }

    /// Returns the number of rows, which is the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.lines.len().checked_div(self.lines_per_row).unwrap_or(0)
    }

    /// Returns the sum of the counters at position `index` over all workers. The sum wraps at 2^64.
    #[must_use]
    pub fn sum(&self, index: usize) -> u64 {
        (0..self.workers()).fold(0u64, |sum, worker| sum.wrapping_add(self.row(worker).get(index)))
    }

    /// Returns, for each position in a row, the sum of the counters at this position over all workers.
    #[must_use]
    pub fn sums(&self) -> Vec<u64> {
        (0..self.counters).map(|index| self.sum(index)).collect()
    }
}

/// Counters of one worker in a [`CounterArray`].
#[derive(Debug, Clone, Copy)]
pub struct Row<'a>(&'a [Line]);

impl Row<'_> {
    /// Adds `n` to the counter at position `index`. Does nothing if `index` is out of range. Only the worker that owns
    /// the row may call this method.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        if let Some(counter) = self.counter(index) {
            counter.add(n);
        }
    }

    /// Returns the value of the counter at position `index`, or 0 if `index` is out of range. Any thread may call this
    /// method.
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
