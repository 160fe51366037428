//! Kernel maps of a steering policy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packet::net::FiveTuple;

use super::flow::{FlowEntry, KEY_SIZE, SteerTo, VALUE_SIZE, decode};
use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub(super) const FLOWS: &str = "steer_flows";
const HITS: &str = "steer_hits";
const TABLE: &str = "steer_table";
const COUNTS: &str = "steer_counts";
const CPUS: &str = "steer_cpus";

/// Number of hash buckets in the table of a steering policy: `STEER_BUCKETS`.
pub const STEER_BUCKETS: usize = 256;
/// Number of 32-bit words of `struct steer_conf` (the constants of the steering stage).
pub(crate) const STEER_WORDS: usize = 4;
/// Size of `struct steer_table` (the targets of the hash buckets) in bytes. Of the last two words, the first states
/// whether the table was set at run time, and the second identifies the steering policy.
const TABLE_SIZE: u32 = 1032;
/// Index of the count of frames without metadata: `STEER_COUNT_UNMARKED` of `enum steer_counted`. The following
/// constants are the indices of the counts for the targets worker, kernel and other CPUs.
const COUNT_UNMARKED: u32 = 0;
const COUNT_WORKER: u32 = 1;
const COUNT_KERNEL: u32 = 2;
const COUNT_CPU: u32 = 3;

/// Numbers of frames and bytes that matched an exact flow, or that were sent to a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SteerCount {
    /// Number of steered frames.
    pub packets: u64,
    /// Number of bytes of the steered frames, without frame check sequences.
    pub bytes: u64,
}

/// Maps of one steering policy that programs of all kinds ([`super::Kind`]) share.
#[derive(Debug)]
pub(crate) struct Shared {
    flows: OwnedFd,
    hits: OwnedFd,
    table: OwnedFd,
    counts: OwnedFd,
    hits_memory: Mapped,
    table_memory: Mapped,
}

/// Constants and maps with which one program applies a steering policy.
#[derive(Debug)]
pub(crate) struct SteerMaps {
    pub conf: [u32; STEER_WORDS],
    pub shared: Arc<Shared>,
    cpus: OwnedFd,
}

/// Exact flow and target that a test run with the maps of [`SteerMaps::scratch`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steered {
    pub flow: Option<FiveTuple>,
    pub to: Option<SteerTo>,
}

fn create(name: &'static str, kind: MapKind, key: u32, value: u32, entries: u32) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key, value, entries };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}

fn possible_cpus() -> Result<u32, Error> {
    let what = "how many CPUs there can be";
    sys::possible_cpus().map_err(|source| Error::Query { what, source })
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Shared {
    /// Creates the maps of a steering policy with slots for `capacity` exact flows.
    pub fn new(capacity: u32) -> Result<Shared, Error> {
        let slots = capacity.max(1);
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Shared::over(
            create(FLOWS, MapKind::SparseHash, size(KEY_SIZE), size(VALUE_SIZE), slots)?,
            create(HITS, MapKind::Mappable, 4, 16, slots)?,
            create(TABLE, MapKind::Mappable, 4, TABLE_SIZE, 1)?,
            create(COUNTS, MapKind::PerCpuArray, 4, 16, COUNT_CPU + possible_cpus()?)?,
        )
    }

    fn over(flows: OwnedFd, hits: OwnedFd, table: OwnedFd, counts: OwnedFd) -> Result<Shared, Error> {
        let mapped = |name, map: &OwnedFd| {
            Mapped::new(map.as_fd()).map_err(|source| Error::Map { map: name, operation: "map", source })
        };
        let (hits_memory, table_memory) = (mapped(HITS, &hits)?, mapped(TABLE, &table)?);
        Ok(Shared { flows, hits, table, counts, hits_memory, table_memory })
    }

    pub fn id(&self) -> Result<u32, Error> {
        let failed = |source| Error::Map { map: COUNTS, operation: "query", source };
        sys::map_info(self.counts.as_fd()).map(|info| info.id).map_err(failed)
    }

    pub fn put(&self, key: &[u8; KEY_SIZE], value: &[u8; VALUE_SIZE]) -> io::Result<()> {
        sys::map_update(self.flows.as_fd(), key, value)
    }

    pub fn delete(&self, key: &[u8; KEY_SIZE]) -> io::Result<bool> {
        sys::map_delete(self.flows.as_fd(), key)
    }

    /// Returns all exact flows in the kernel map. Each flow comes with the index of its counters and with its entry.
    pub fn read_flows(&self) -> Result<Vec<(FiveTuple, u32, FlowEntry)>, Error> {
        let failed = |source| Error::Map { map: FLOWS, operation: "read", source };
        let mut flows = Vec::new();
        for key in sys::map_keys::<KEY_SIZE>(self.flows.as_fd()).map_err(failed)? {
            let value = sys::map_get::<VALUE_SIZE>(self.flows.as_fd(), &key).map_err(failed)?;
            if let (Some(flow), Some(value)) = (decode(&key), value) {
                let (slot, entry) = FlowEntry::from_value(&value);
                flows.push((flow, slot, entry));
            }
        }
        Ok(flows)
    }

    pub fn hits(&self, slot: u32) -> SteerCount {
        let words = self.hits_memory.words().get(2 * wide(slot)..2 * wide(slot) + 2);
        words.map_or(SteerCount::default(), |words| SteerCount {
            packets: words[0].load(Ordering::Relaxed),
            bytes: words[1].load(Ordering::Relaxed),
        })
    }

    pub fn set_hits(&self, slot: u32, count: SteerCount) {
        let words = self.hits_memory.words().get(2 * wide(slot)..2 * wide(slot) + 2);
        for (word, value) in words.into_iter().flatten().zip([count.packets, count.bytes]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub fn read_table(&self) -> ([SteerTo; STEER_BUCKETS], bool) {
        let words = self.table_memory.words();
        let code = |at: usize| {
            let pair = words.get(at / 2).map_or(0, |word| word.load(Ordering::Relaxed)).to_ne_bytes();
            let half = 4 * (at % 2);
            pair.get(half..half + 4).and_then(|half| half.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        (std::array::from_fn(|at| SteerTo::from_code(code(at))), code(STEER_BUCKETS) != 0)
    }

    /// Returns the number of the steering policy ([`Shared::set_owner`]). Returns 0 if no number was stored.
    pub fn owner(&self) -> u32 {
        let last =
            self.table_memory.words().get(STEER_BUCKETS / 2).map_or(0, |word| word.load(Ordering::Relaxed));
        let [.., a, b, c, d] = last.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Stores the number of the steering policy in the last word of the table, which the program does not read.
    pub fn set_owner(&self, owner: u32) {
        let (table, live) = self.read_table();
        self.write(&table, live, owner);
    }

    /// Writes the targets of all buckets, two buckets at a time. The program reads each bucket atomically.
    pub fn write_table(&self, table: &[SteerTo; STEER_BUCKETS], live: bool) {
        self.write(table, live, self.owner());
    }

    fn write(&self, table: &[SteerTo; STEER_BUCKETS], live: bool, owner: u32) {
        let codes = table.iter().map(|to| to.code()).chain([u32::from(live), owner]);
        self.table_memory.write(codes.flat_map(u32::to_ne_bytes));
    }

    fn entries(&self) -> Result<u32, Error> {
        let failed = |source| Error::Map { map: COUNTS, operation: "query", source };
        sys::map_info(self.counts.as_fd()).map(|info| info.max_entries).map_err(failed)
    }

    fn count(&self, at: u32) -> Result<SteerCount, Error> {
        let failed = |source| Error::Map { map: COUNTS, operation: "read", source };
        let words = sys::map_lookup_per_cpu(self.counts.as_fd(), at, 2).map_err(failed)?;
        let sum = |at: usize| words.iter().skip(at).step_by(2).fold(0, |a: u64, b| a.wrapping_add(*b));
        Ok(SteerCount { packets: sum(0), bytes: sum(1) })
    }

    /// Returns the frame and byte counts of each target. CPUs that received no frames are left out.
    pub fn counts(&self) -> Result<Vec<(SteerTo, SteerCount)>, Error> {
        let mut counts = Vec::new();
        for at in COUNT_WORKER..self.entries()? {
            let to = match at {
                COUNT_WORKER => SteerTo::Worker,
                COUNT_KERNEL => SteerTo::Kernel,
                cpu => SteerTo::Cpu(cpu - COUNT_CPU),
            };
            let count = self.count(at)?;
            if count.packets > 0 || to.cpu().is_none() {
                counts.push((to, count));
            }
        }
        Ok(counts)
    }

    pub fn unmarked(&self) -> Result<u64, Error> {
        self.count(COUNT_UNMARKED).map(|count| count.packets)
    }

    /// Adds the frame and byte counts of `others` to these counts.
    pub fn add_counts(&self, others: &Shared) -> Result<(), Error> {
        let failed = |source| Error::Map { map: COUNTS, operation: "copy", source };
        for at in 0..self.entries()?.min(others.entries()?) {
            let (mine, theirs) = (self.count(at)?, others.count(at)?);
            let sum = [mine.packets + theirs.packets, mine.bytes + theirs.bytes];
            sys::map_write_one_cpu(self.counts.as_fd(), at, &sum).map_err(failed)?;
        }
        Ok(())
    }
}

impl SteerMaps {
    /// Names of the maps that only a program with flow steering has.
    pub const NAMES: [&'static str; 5] = [FLOWS, HITS, TABLE, COUNTS, CPUS];

    pub fn new(conf: [u32; STEER_WORDS], shared: Arc<Shared>) -> Result<SteerMaps, Error> {
        let cpus = create(CPUS, MapKind::Cpus, 4, 4, possible_cpus()?)?;
        Ok(SteerMaps { conf, shared, cpus })
    }

    pub fn list(&self) -> [(&'static str, BorrowedFd<'_>); 5] {
        let Shared { flows, hits, table, counts, .. } = self.shared.as_ref();
        [
            (FLOWS, flows.as_fd()),
            (HITS, hits.as_fd()),
            (TABLE, table.as_fd()),
            (COUNTS, counts.as_fd()),
            (CPUS, self.cpus.as_fd()),
        ]
    }

    /// Adds a CPU to the CPU map. The kernel creates a queue of `queue` frames for the CPU.
    pub fn allow(&self, cpu: u32, queue: u32) -> Result<(), Error> {
        let failed = |source| Error::Map { map: CPUS, operation: "add to", source };
        sys::map_update(self.cpus.as_fd(), &cpu.to_ne_bytes(), &queue.to_ne_bytes()).map_err(failed)
    }

    /// Returns a copy with new counts that refers to the same flows and table. A test run with the copy
    /// therefore changes no counts.
    pub fn scratch(&self) -> Result<SteerMaps, Error> {
        let failed = |map, operation| move |source| Error::Map { map, operation, source };
        let Shared { flows, hits, table, .. } = self.shared.as_ref();
        let slots = sys::map_info(hits.as_fd()).map_err(failed(HITS, "query"))?.max_entries;
        let shared = Shared::over(
            duplicate(FLOWS, flows)?,
            create(HITS, MapKind::Mappable, 4, 16, slots)?,
            duplicate(TABLE, table)?,
            create(COUNTS, MapKind::PerCpuArray, 4, 16, self.shared.entries()?)?,
        )?;
        Ok(SteerMaps { conf: self.conf, shared: Arc::new(shared), cpus: duplicate(CPUS, &self.cpus)? })
    }

    /// Returns the exact flow and the target that a single test run has counted in this scratch copy.
    pub fn steered(&self) -> Result<Steered, Error> {
        let mut counts = self.shared.counts()?.into_iter();
        let to = counts.find(|(_, count)| count.packets > 0).map(|(to, _)| to);
        let words = self.shared.hits_memory.words();
        let slot = words.iter().step_by(2).zip(0_u32..).find(|(hits, _)| hits.load(Ordering::Relaxed) > 0);
        let flow = match slot {
            None => None,
            Some((_, slot)) => {
                let flows = self.shared.read_flows()?;
                flows.into_iter().find(|(_, other, _)| *other == slot).map(|(flow, ..)| flow)
            }
        };
        Ok(Steered { flow, to })
    }

    /// Restores the steering maps of a program that is already in the kernel. `take` returns the program's map of a
    /// given name.
    pub fn adopt(
        conf: [u32; STEER_WORDS],
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<SteerMaps, Error> {
        let shared = Shared::over(take(FLOWS)?, take(HITS)?, take(TABLE)?, take(COUNTS)?)?;
        Ok(SteerMaps { conf, shared: Arc::new(shared), cpus: take(CPUS)? })
    }
}
