//! Adjacency numbers. They have 24 bits in hash buckets and in the mirrors (the copies that BPF programs read).

/// Maximum number of adjacencies of a router. Adjacency numbers have 24 bits.
pub const MOST: u32 = (1 << 24) - 1;

/// Converts an adjacency number to an index into the adjacency tables.
#[inline]
pub fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
