//! Table of cached flows that the XDP programs of all ports read: buckets of a hash table, flows, their masks and
//! counts, and the maximum frame length of each port's device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::action::ENTRY_BYTES;
use crate::bridge::BRIDGE_PORTS;
use crate::sys::{self, MapKind, MapSpec, Mapped};
use crate::{Error, map_copy};

pub(super) const TABLE: &str = "flow_table";
pub(super) const ENTRIES: &str = "flow_entries";
pub(super) const COUNTS: &str = "flow_counts";
pub(super) const MASKS_MAP: &str = "flow_masks";
pub(super) const PORTS: &str = "flow_ports";
pub(super) const STATE: &str = "flow_state";
pub(super) const HINTS_MAP: &str = "flow_hints";
pub(super) const FRAMES: &str = "flow_frames";

/// Maximum number of distinct flow masks in the table (`FLOW_MASKS`).
pub(crate) const MASKS: u32 = 8;
/// Number of cached flows in a bucket (cache line) of the hash table (`FLOW_PLACES`).
pub(crate) const PLACES: u32 = 8;
/// Number of entries of the mask cache (`FLOW_HINTS`). An entry is selected by the packet's hash and holds the index of
/// the mask under which the last such packet matched.
pub(crate) const HINTS: u32 = 4096;
/// Size of `struct flow_count` (the packet counts of a cached flow) in octets.
pub(crate) const COUNT_BYTES: usize = 32;
/// Size of `struct flow_frame` (the fields that the program reads from a frame) in octets.
pub(crate) const FRAME_BYTES: u32 = 80;
const COUNT_WORDS: usize = COUNT_BYTES / 8;

/// Counts of the packets that XDP programs have processed with a cached flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowCounts {
    /// Number of packets that the flow matched.
    pub packets: u64,
    /// Number of octets of the matched packets, measured as received.
    pub bytes: u64,
    /// Time of the last packet in nanoseconds of CLOCK_MONOTONIC, with the resolution of the kernel's timer
    /// tick.
    pub used_ns: u64,
}

/// A table of cached flows. Clones of the value refer to one table. See the module documentation.
#[derive(Debug, Clone)]
pub struct FlowTable {
    pub(super) maps: Arc<TableMaps>,
}

/// Kernel maps of a table of cached flows.
#[derive(Debug)]
pub(super) struct TableMaps {
    table: OwnedFd,
    entries: OwnedFd,
    counts: OwnedFd,
    masks: OwnedFd,
    ports: OwnedFd,
    state: OwnedFd,
    hints: OwnedFd,
    frames: OwnedFd,
    pub places: Mapped,
    pub flows: Mapped,
    pub counted: Mapped,
    pub masked: Mapped,
    reached: Mapped,
    until: Mapped,
    /// Two flags for each port: whether the port's XDP program reads this table, and whether it also reads a station
    /// table (MAC table).
    served: Vec<[AtomicBool; 2]>,
    /// Secret odd hash factors, one for each word of a flow key.
    pub factors: [u64; 8],
    /// Number of buckets (cache lines) of the hash table minus one. This number is the bit mask
    /// that reduces a hash to a bucket index.
    pub lines: u32,
}

fn create(name: &'static str, kind: MapKind, value: usize, entries: u32) -> Result<OwnedFd, Error> {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    sys::map_create(MapSpec { name, kind, key: 4, value, entries }, None).map_err(|source| Error::Map {
        map: name,
        operation: "create",
        source,
    })
}

fn unserved() -> Vec<[AtomicBool; 2]> {
    (0..BRIDGE_PORTS).map(|_| [AtomicBool::new(false), AtomicBool::new(false)]).collect()
}

fn mapped(name: &'static str, map: &OwnedFd) -> Result<Mapped, Error> {
    Mapped::new(map.as_fd()).map_err(|source| Error::Map { map: name, operation: "map", source })
}

impl FlowTable {
    /// Creates a table for at most `flows` flows, rounded up to a power of two. `seed` is the key of the hash
    /// function and should be secret and random.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(flows: u32, seed: u64) -> Result<FlowTable, Error> {
        // The hash table is at most half full, so that there is nearly always a free place for a flow.
        let flows = flows.clamp(PLACES, 1 << 20).next_power_of_two();
        let lines = flows * 2 / PLACES;
        let frames = usize::try_from(FRAME_BYTES).unwrap_or(usize::MAX);
        FlowTable::of(factors(seed), lines - 1, |name| {
            let (kind, value, entries) = match name {
                HINTS_MAP => (MapKind::Array, 8, HINTS),
                FRAMES => (MapKind::PerCpuArray, frames, 1),
                TABLE => (MapKind::Mappable, 64, lines),
                ENTRIES => (MapKind::Mappable, ENTRY_BYTES, flows),
                COUNTS => (MapKind::Mappable, COUNT_BYTES, flows),
                MASKS_MAP => (MapKind::Mappable, 64, MASKS),
                PORTS => (MapKind::Mappable, 8, BRIDGE_PORTS),
                _ => (MapKind::Mappable, 8, 1),
            };
            create(name, kind, value, entries)
        })
    }

    /// Returns the maximum number of cached flows in the table.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.maps.counted.words().len() / COUNT_WORDS
    }

    /// Sets the maximum frame length that a port's device can transmit, in octets without a VLAN tag. `None` means that
    /// no frame can be redirected to the device.
    pub fn set_reached(&self, port: u16, longest: Option<u32>) {
        if let Some(word) = self.maps.reached.words().get(usize::from(port)) {
            word.store(longest.map_or(0, u64::from), Ordering::Release);
        }
    }

    /// Returns the maximum frame length that a port's device can transmit, in octets without a VLAN tag. Returns `None`
    /// if no frame can be redirected to the device.
    #[must_use]
    pub fn reached(&self, port: u16) -> Option<u64> {
        let word = self.maps.reached.words().get(usize::from(port))?;
        Some(word.load(Ordering::Acquire)).filter(|longest| *longest > 0)
    }

    /// Records whether a port's XDP program reads this table, and whether it also reads a station table (MAC table).
    pub fn set_served(&self, port: u16, served: bool, stations: bool) {
        if let Some([reads, asks]) = self.maps.served.get(usize::from(port)) {
            reads.store(served, Ordering::Release);
            asks.store(served && stations, Ordering::Release);
        }
    }

    /// Returns whether a port's XDP program also reads a station table (MAC table), which flows with the action
    /// `NORMAL` require.
    #[must_use]
    pub fn asks_stations(&self, port: u16) -> bool {
        self.maps.served.get(usize::from(port)).is_some_and(|[_, asks]| asks.load(Ordering::Acquire))
    }

    /// Returns whether a port's XDP program reads this table.
    #[must_use]
    pub fn is_served(&self, port: u16) -> bool {
        self.maps.served.get(usize::from(port)).is_some_and(|[reads, _]| reads.load(Ordering::Acquire))
    }

    /// Allows the XDP programs to use the table until the time `until_ns` of CLOCK_MONOTONIC in nanoseconds.
    /// After that time the programs use no flows of the table.
    pub fn renew(&self, until_ns: u64) {
        if let Some(word) = self.maps.until.words().first() {
            word.store(until_ns, Ordering::Release);
        }
    }

    /// Returns the packet counts of the flow in a slot of the table since the flow was inserted.
    #[must_use]
    pub fn counts(&self, slot: u32) -> FlowCounts {
        let at = usize::try_from(slot).unwrap_or(usize::MAX).saturating_mul(COUNT_WORDS);
        let read = |nth: usize| {
            let word = self.maps.counted.words().get(at.saturating_add(nth));
            word.map_or(0, |word| word.load(Ordering::Acquire))
        };
        FlowCounts { packets: read(0), bytes: read(1), used_ns: read(2) }
    }

    /// Creates a counts map and a mask cache for a test run.
    pub(super) fn scratch(&self) -> Result<[OwnedFd; 2], Error> {
        let entries = u32::try_from(self.capacity()).unwrap_or(u32::MAX);
        let counts = create(COUNTS, MapKind::Mappable, COUNT_BYTES, entries)?;
        let hints = create(HINTS_MAP, MapKind::Array, 8, HINTS)?;
        map_copy::copy_array::<8>(HINTS_MAP, self.maps.hints.as_fd(), hints.as_fd())?;
        Ok([counts, hints])
    }

    pub(super) fn list(&self) -> [(&'static str, BorrowedFd<'_>); 8] {
        let TableMaps { table, entries, counts, masks, ports, state, hints, frames, .. } = &*self.maps;
        [
            (TABLE, table.as_fd()),
            (ENTRIES, entries.as_fd()),
            (COUNTS, counts.as_fd()),
            (MASKS_MAP, masks.as_fd()),
            (PORTS, ports.as_fd()),
            (STATE, state.as_fd()),
            (HINTS_MAP, hints.as_fd()),
            (FRAMES, frames.as_fd()),
        ]
    }

    /// Creates a table from kernel maps, which are new or belong to a program that is already in the kernel. `take`
    /// returns the map of a given name.
    pub(super) fn of(
        factors: [u64; 8],
        lines: u32,
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<FlowTable, Error> {
        let (table, entries, counts, masks) = (take(TABLE)?, take(ENTRIES)?, take(COUNTS)?, take(MASKS_MAP)?);
        let (ports, state) = (take(PORTS)?, take(STATE)?);
        let maps = TableMaps {
            places: mapped(TABLE, &table)?,
            flows: mapped(ENTRIES, &entries)?,
            counted: mapped(COUNTS, &counts)?,
            masked: mapped(MASKS_MAP, &masks)?,
            reached: mapped(PORTS, &ports)?,
            until: mapped(STATE, &state)?,
            hints: take(HINTS_MAP)?,
            frames: take(FRAMES)?,
            table,
            entries,
            counts,
            masks,
            ports,
            state,
            served: unserved(),
            factors,
            lines,
        };
        Ok(FlowTable { maps: Arc::new(maps) })
    }
}

/// Returns one secret odd number for each word of a flow key, derived from `seed` (`SplitMix64`, Steele and
/// others, OOPSLA 2014).
fn factors(seed: u64) -> [u64; 8] {
    let mut state = seed;
    std::array::from_fn(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) | 1
    })
}

impl TableMaps {
    /// Returns the hash of a flow key under a mask. Mirrors `flow_by()` in `bpf/include/stage_flows.h`.
    pub fn hash(&self, mask: u32, key: &[u64; 8]) -> u64 {
        hash(&self.factors, mask, key)
    }
}

/// Returns the hash of a flow key under a mask. A secret is added to both halves of each word, and the products of the
/// halves are summed (NH: Black and others, "UMAC: fast and secure message authentication", 1999). A sender that
/// chooses the key's words therefore cannot predict the hash. The sum is multiplied by 2^64 over the golden ratio, and
/// the table uses the upper half of the product.
fn hash(secrets: &[u64; 8], mask: u32, key: &[u64; 8]) -> u64 {
    let number = u64::from(mask).wrapping_mul(secrets[0]);
    let products = key.iter().zip(secrets).map(|(word, secret)| {
        let (low, high) =
            (half(*word).wrapping_add(half(*secret)), half(word >> 32).wrapping_add(half(secret >> 32)));
        u64::from(low) * u64::from(high)
    });
    products.fold(number, u64::wrapping_add).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[allow(clippy::cast_possible_truncation, reason = "takes 32 bits")]
fn half(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that keys with two words that differ in their highest bits have different hashes. A sum of products of
    /// whole words with odd numbers would lose this difference, whatever the numbers are.
    #[test]
    fn keys_that_differ_in_highest_bits_do_not_collide() {
        let key: [u64; 8] = std::array::from_fn(|word| 0x0102_0304_0506_0708 << word);
        for seed in 0..64 {
            let secrets = factors(seed);
            let mut seen = std::collections::BTreeSet::new();
            for bits in 0..256_u64 {
                let other: [u64; 8] = std::array::from_fn(|word| key[word] ^ (bits >> word & 1) << 63);
                seen.insert(hash(&secrets, 3, &other) >> 32);
            }
            assert_eq!(seen.len(), 256, "{seed}");
        }
    }
}
