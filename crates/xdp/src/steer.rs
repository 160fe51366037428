//! Flow steering of a port's XDP program. The steering selects whether a frame goes to the worker, to the kernel, or to
//! the kernel on another CPU. Entries for exact flows come first. A table that is indexed by the flow hash applies to
//! the other frames.
//!
//! ```text
//!  frame --> [filter] --> exact flow? --> stage of the function --> table[hash % 256] --> socket of the queue | kernel | CPU
//!                            |  yes                                   (frames without a decision)
//!                            '--> worker | kernel | CPU
//! ```
//!
//! The programs of any number of ports can share one [`Steering`]. User space changes the exact flows and the table
//! while frames are processed. Each lookup finds either the old or the new entry. The entries are in kernel maps. A
//! process that takes over a pinned program reads these maps ([`Steering::of`]). The maps also hold the counts of the
//! entries, and state which entries were added at run time.

mod flow;
mod maps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

pub use flow::{FlowEntry, FlowError, SteerTo};
pub use maps::{STEER_BUCKETS, SteerCount};
pub(crate) use maps::{STEER_WORDS, SteerMaps};

use packet::net::FiveTuple;

use crate::build::Build;
use crate::filter::Moment;
use crate::{Error, Mode};
use flow::encode;
use maps::{FLOWS, Shared};

/// Maximum number of slots for exact flows of a steering policy.
pub const STEER_FLOWS_MAX: u32 = 1 << 20;
/// Maximum length, in frames, of the queue of frames for another CPU. The kernel sets this limit.
pub const STEER_QUEUE_MAX: u32 = 16_384;

/// Configuration of a steering policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteerConfig {
    /// Maximum number of exact flows, up to [`STEER_FLOWS_MAX`]. With 0 the program does not look up exact
    /// flows.
    pub capacity: u32,
    /// Whether a table indexed by the flow hash selects the target of frames that match no exact flow and that no stage
    /// has forwarded, passed or dropped.
    pub table: bool,
    /// Whether the program writes the flow hash and the exact flow's mark in front of frames for a socket or the
    /// kernel, as XDP metadata (see `struct steer_meta`).
    pub metadata: bool,
    /// Length in frames of the queue to each target CPU, 1 to [`STEER_QUEUE_MAX`]. Frames for a full queue are lost.
    pub cpu_queue: u32,
}

/// XDP metadata that the program writes in front of a frame for a socket or the kernel: `struct steer_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteerMeta {
    /// Flow hash of the frame, which is equal for both directions of a connection: `FlowKey::hash_symmetric` of
    /// the crate `packet`.
    pub hash: u32,
    /// Mark (a number that the configuration or the API sets) of the exact flow that matched the frame. 0 if no exact
    /// flow matched or the flow has no mark.
    pub mark: u32,
}

impl SteerMeta {
    /// Length of the metadata in bytes. The metadata is immediately in front of the frame. The last eight bytes of the
    /// metadata are the frame's sequence number ([`crate::bridge::Mark`]), or zero.
    pub const LEN: usize = 16;

    /// Decodes the metadata in front of a frame. Frames of a port have metadata only if
    /// `SteerConfig::metadata` is set.
    #[must_use]
    pub fn read(bytes: [u8; SteerMeta::LEN]) -> SteerMeta {
        let word = |at: usize| {
            bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        SteerMeta { hash: word(0), mark: word(4) }
    }
}

/// A steering policy with its kernel maps, which the programs of several ports can share. See the module documentation.
#[derive(Debug)]
pub struct Steering {
    config: SteerConfig,
    shared: Arc<Shared>,
    /// Maps of the steering policy for each [`Kind`] of program. The maps for a kind are created when a program of this
    /// kind first needs them.
    maps: [OnceLock<Arc<SteerMaps>>; 3],
    /// CPUs in the CPU maps, to which the steering policy may send frames.
    cpus: BTreeSet<u32>,
    flows: BTreeMap<FiveTuple, (u32, FlowEntry)>,
    /// Number of exact flows that were added at run time.
    live: usize,
    /// Exact flows that expire, ordered by the time of expiry.
    ending: BTreeSet<(Moment, FiveTuple)>,
    /// Slots for exact flows that are not in use. A released slot is reused last, because running programs may still
    /// count in it for a moment.
    free: VecDeque<u32>,
}

/// Returns the numbers of the CPUs that are online.
///
/// # Errors
/// Returns an error if the kernel's list cannot be read.
pub fn online_cpus() -> io::Result<BTreeSet<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(io::Error::other);
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

/// Kinds of programs for which the kernel requires separate CPU maps. Programs of one kind can share a CPU map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Multi-buffer programs in native mode. The kernel does not allow multi-buffer programs and other
    /// programs to share a CPU map.
    Frags,
    /// Programs without multi-buffer support.
    Linear,
    /// Multi-buffer programs in generic mode. The CPU map of these programs stays empty, because another CPU would drop
    /// packets (seen with Linux 6.18). In generic mode, the kernel copies a socket buffer without the headroom that XDP
    /// requires, and the copy lacks the length of the Ethernet header (`mac_len`). On another CPU, the stack would take
    /// the Ethernet header of the copy for the IP header.
    Generic,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Frags, Kind::Linear, Kind::Generic];

    pub fn of(build: Build, mode: Mode) -> Kind {
        match (build, mode) {
            (Build::Frags, Mode::Native | Mode::Offload) => Kind::Frags,
            (Build::Frags, Mode::Generic) => Kind::Generic,
            (Build::Linear, _) => Kind::Linear,
        }
    }

    /// Returns whether programs of this kind can send frames to another CPU. If not, frames for another CPU are
    /// processed by the kernel on the CPU that received them.
    pub fn sends_to_cpus(self) -> bool {
        self != Kind::Generic
    }
}

impl Steering {
    /// Creates a steering policy without exact flows. Every bucket of the policy's table selects the worker as the
    /// target.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(config: &SteerConfig) -> Result<Steering, Error> {
        let shared = Arc::new(Shared::new(config.capacity)?);
        let steering = Steering::over(*config, shared);
        steering.shared.write_table(&[SteerTo::Worker; STEER_BUCKETS], false);
        Ok(steering)
    }

    fn over(config: SteerConfig, shared: Arc<Shared>) -> Steering {
        Steering {
            config,
            shared,
            maps: std::array::from_fn(|_| OnceLock::new()),
            cpus: BTreeSet::new(),
            flows: BTreeMap::new(),
            live: 0,
            ending: BTreeSet::new(),
            free: (0..config.capacity).collect(),
        }
    }

    /// Creates the [`Steering`] value of a program that another process has loaded, from the maps of this program.
    /// `build` states whether the program supports multi-buffer frames, and `mode` is the XDP mode of the program.
    pub(crate) fn over_maps(maps: &Arc<SteerMaps>, build: Build, mode: Mode) -> Result<Steering, Error> {
        let [_, capacity, table, metadata] = maps.conf;
        let config = SteerConfig { capacity, table: table != 0, metadata: metadata != 0, cpu_queue: 0 };
        let mut steering = Steering::over(config, Arc::clone(&maps.shared));
        for (flow, slot, entry) in maps.shared.read_flows()? {
            steering.ending.extend(entry.expires.map(|at| (at, flow)));
            steering.cpus.extend(entry.to.cpu());
            steering.live += usize::from(entry.live);
            steering.flows.insert(flow, (slot, entry));
        }
        let used: BTreeSet<u32> = steering.flows.values().map(|(slot, _)| *slot).collect();
        steering.free.retain(|slot| !used.contains(slot));
        let (table, _) = maps.shared.read_table();
        steering.cpus.extend(table.iter().filter_map(|to| to.cpu()));
        drop(steering.of_kind(Kind::of(build, mode)).set(Arc::clone(maps)));
        Ok(steering)
    }

    /// Returns a steering policy with the exact flows, table and counts of `self` and with the configuration `config`.
    /// Programs apply the old steering policy until [`crate::Attached::set_stage`] is called with the returned one.
    ///
    /// # Errors
    /// Returns [`Error::SteerFull`] or [`Error::Map`]. Nothing changes on failure.
    pub fn like(&self, config: &SteerConfig) -> Result<Steering, Error> {
        let same = config.capacity == self.config.capacity;
        let shared = if same { Arc::clone(&self.shared) } else { Arc::new(Shared::new(config.capacity)?) };
        let mut other = Steering::over(*config, shared);
        other.cpus.clone_from(&self.cpus);
        if same {
            other.flows.clone_from(&self.flows);
            other.live = self.live;
            other.ending.clone_from(&self.ending);
            other.free.clone_from(&self.free);
            return Ok(other);
        }
        for (flow, (slot, entry)) in &self.flows {
            other.insert(*flow, *entry)?;
            if let Some((new, _)) = other.flows.get(flow) {
                other.shared.set_hits(*new, self.shared.hits(*slot));
            }
        }
        let (table, live) = self.shared.read_table();
        other.shared.write_table(&table, live);
        other.shared.set_owner(self.shared.owner());
        other.shared.add_counts(&self.shared)?;
        Ok(other)
    }

    /// Returns the number that identifies the configured steering policy to which the exact flows and counts belong
    /// ([`Steering::set_owner`]). Returns 0 if no number was stored.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.shared.owner()
    }

    /// Stores the number that identifies the configured steering policy to which the exact flows and counts belong. A
    /// process that takes over the maps reads the number.
    pub fn set_owner(&self, owner: u32) {
        self.shared.set_owner(owner);
    }

    /// Returns the configuration of the steering policy.
    #[must_use]
    pub fn config(&self) -> SteerConfig {
        self.config
    }

    /// Returns the kernel's id of the map of steering counts. Programs with equal ids apply the same steering policy.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn id(&self) -> Result<u32, Error> {
        self.shared.id()
    }

    /// Returns whether the maps of a program belong to exactly this steering policy.
    pub(crate) fn has_maps(&self, maps: &SteerMaps) -> bool {
        maps.conf == self.config.words() && Arc::ptr_eq(&maps.shared, &self.shared)
    }

    /// Adds an exact flow, or replaces the entry of an exact flow that is present. The counts of a present flow are
    /// kept.
    ///
    /// # Errors
    /// Returns [`Error::SteerFull`], [`Error::SteerFlow`], [`Error::SteeringCpu`] or [`Error::Map`]. Nothing
    /// changes on failure.
    pub fn insert(&mut self, flow: FiveTuple, entry: FlowEntry) -> Result<(), Error> {
        let key =
            encode(&flow).map_err(|why| Error::SteerFlow { flow: flow.with_number().to_string(), why })?;
        self.allow(entry.to.cpu())?;
        let known = self.flows.get(&flow).copied();
        let slot = match known {
            Some((slot, _)) => slot,
            None => self.free.pop_front().ok_or(Error::SteerFull { capacity: self.config.capacity })?,
        };
        if known.is_none() {
            self.shared.set_hits(slot, SteerCount::default());
        }
        if let Err(source) = self.shared.put(&key, &entry.value(slot)) {
            if known.is_none() {
                self.free.push_back(slot);
            }
            return Err(Error::Map { map: FLOWS, operation: "add to", source });
        }
        if let Some((_, before)) = known {
            self.live -= usize::from(before.live);
            self.ending.remove(&(before.expires.unwrap_or(Moment(0)), flow));
        }
        self.ending.extend(entry.expires.map(|at| (at, flow)));
        self.live += usize::from(entry.live);
        self.flows.insert(flow, (slot, entry));
        Ok(())
    }

    /// Removes an exact flow. Returns `false` if the flow was not present.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn remove(&mut self, flow: &FiveTuple) -> Result<bool, Error> {
        let Some((slot, entry)) = self.flows.get(flow).copied() else { return Ok(false) };
        let key =
            encode(flow).map_err(|why| Error::SteerFlow { flow: flow.with_number().to_string(), why })?;
        let failed = |source| Error::Map { map: FLOWS, operation: "delete from", source };
        self.shared.delete(&key).map_err(failed)?;
        self.flows.remove(flow);
        self.live -= usize::from(entry.live);
        self.ending.remove(&(entry.expires.unwrap_or(Moment(0)), *flow));
        self.free.push_back(slot);
        Ok(true)
    }

    /// Removes the exact flows that have expired at the time `now`, and returns their number. The program ignores
    /// expired flows even before they are removed.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn expire(&mut self, now: Moment) -> Result<usize, Error> {
        let mut gone = 0;
        while let Some((_, flow)) = self.ending.first().copied().filter(|(at, _)| *at <= now) {
            self.remove(&flow)?;
            gone += 1;
        }
        Ok(gone)
    }

    /// Returns the target, mark and expiry of an exact flow. Returns `None` if the flow is not present.
    #[must_use]
    pub fn get(&self, flow: &FiveTuple) -> Option<FlowEntry> {
        self.flows.get(flow).map(|(_, entry)| *entry)
    }

    /// Returns all exact flows with their entries and counts, in the order of the flows.
    pub fn flows(&self) -> impl Iterator<Item = (FiveTuple, FlowEntry, SteerCount)> + '_ {
        self.flows_after(None)
    }

    /// Returns the exact flows that come after `last` in the order of the flows, with their entries and counts. With
    /// `None`, returns all exact flows.
    pub fn flows_after(
        &self,
        last: Option<FiveTuple>,
    ) -> impl Iterator<Item = (FiveTuple, FlowEntry, SteerCount)> + '_ {
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        let flows = self.flows.range((first, Bound::Unbounded));
        flows.map(|(flow, (slot, entry))| (*flow, *entry, self.shared.hits(*slot)))
    }

    /// Returns the number of exact flows that were added at run time ([`FlowEntry::live`]).
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of exact flows in the steering policy.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns whether the steering policy has no exact flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns the target of each hash bucket of the table. The Boolean states whether the table was set at run time.
    #[must_use]
    pub fn table(&self) -> ([SteerTo; STEER_BUCKETS], bool) {
        self.shared.read_table()
    }

    /// Sets the target of each hash bucket of the table. The buckets change one after the other. `live` is `true` if
    /// the table is set at run time, and `false` if the configuration sets the table.
    ///
    /// # Errors
    /// Returns [`Error::SteeringCpu`] or [`Error::Map`]. The table is unchanged on failure.
    pub fn set_table(&mut self, table: &[SteerTo; STEER_BUCKETS], live: bool) -> Result<(), Error> {
        self.allow(table.iter().filter_map(|to| to.cpu()))?;
        self.shared.write_table(table, live);
        Ok(())
    }

    /// Returns the numbers of frames and bytes steered to each target. The numbers include frames
    /// steered by exact flows and frames steered by the table.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counts(&self) -> Result<Vec<(SteerTo, SteerCount)>, Error> {
        self.shared.counts()
    }

    /// Returns the number of frames that got no metadata, because the driver left no headroom in front of the frame.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn unmarked(&self) -> Result<u64, Error> {
        self.shared.unmarked()
    }

    /// Adds CPUs to the CPU maps. For each entry of a CPU map, the kernel creates a queue and a thread.
    /// Entries are never removed.
    fn allow(&mut self, cpus: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        let new: BTreeSet<u32> = cpus.into_iter().filter(|cpu| !self.cpus.contains(cpu)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let what = "which CPUs there are";
        let online = online_cpus().map_err(|source| Error::Query { what, source })?;
        if let Some(cpu) = new.difference(&online).next() {
            return Err(Error::SteeringCpu { cpu: *cpu, cpus: listed(&online) });
        }
        let sending = Kind::ALL.into_iter().filter(|kind| kind.sends_to_cpus());
        for maps in sending.filter_map(|kind| self.of_kind(kind).get()) {
            new.iter().try_for_each(|cpu| maps.allow(*cpu, self.config.cpu_queue))?;
        }
        self.cpus.extend(new);
        Ok(())
    }

    /// Returns whether any exact flow or bucket of the table has, or has had, a CPU as its target.
    #[must_use]
    pub fn names_cpus(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// Returns the maps of this steering policy for a program with this build and XDP mode. Creates the maps if they do
    /// not exist yet.
    pub(crate) fn maps(&self, build: Build, mode: Mode) -> Result<Arc<SteerMaps>, Error> {
        let kind = Kind::of(build, mode);
        let mine = self.of_kind(kind);
        if let Some(maps) = mine.get() {
            return Ok(Arc::clone(maps));
        }
        let maps = Arc::new(SteerMaps::new(self.config.words(), Arc::clone(&self.shared))?);
        if kind.sends_to_cpus() {
            self.cpus.iter().try_for_each(|cpu| maps.allow(*cpu, self.config.cpu_queue))?;
        }
        Ok(Arc::clone(mine.get_or_init(|| maps)))
    }

    fn of_kind(&self, kind: Kind) -> &OnceLock<Arc<SteerMaps>> {
        let [frags, linear, generic] = &self.maps;
        match kind {
            Kind::Frags => frags,
            Kind::Linear => linear,
            Kind::Generic => generic,
        }
    }
}

impl SteerConfig {
    /// Encodes the configuration as `struct steer_conf` (the constants of the steering stage).
    fn words(&self) -> [u32; STEER_WORDS] {
        [1, self.capacity, u32::from(self.table), u32::from(self.metadata)]
    }
}

/// Formats CPU numbers as the kernel does, for example `0-3,6`.
fn listed(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(listed(&BTreeSet::from([0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
        assert_eq!(listed(&online_cpus().unwrap()).parse::<u32>().is_err(), online_cpus().unwrap().len() > 1);
    }
}
