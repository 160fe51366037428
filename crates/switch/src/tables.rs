//! What a bridge remembers: the MAC table, how many addresses each port holds, and how often one moved.
//!
//! Shared by all workers and by every [`crate::Bridge`] value that follows from another by a change of configuration.
//! Workers look up, refresh and learn; ageing, flushing and listing belong to control threads. Filtering database of
//! IEEE 802.1Q clause 8.8; one table for all VLANs, looked up by VLAN and address (independent learning, 8.8.8).

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use packet::{MacAddr, PortId, VlanId};
use sync::CachePadded;
use sync::mac_table::{BucketIndex, Entry, Inserted, MacTable};
use zerocopy::FromZeros;

/// A key's place for the VLAN, above the address.
const VID_SHIFT: u32 = 48;
const STATIC: u32 = 1 << 16;
const DISCARD: u32 = 1 << 17;
/// Ports are numbered in 16 bits.
const PORTS: usize = 1 << 16;
/// Ages that only a clock reading older than the entry's can show: such an entry is fresh.
const FUTURE: u16 = u16::MAX - 256;
/// Buckets that one call of [`BridgeTables::age`] looks at, at least.
const SWEEP_MIN: usize = 4096;
/// Entries that are read for each eviction, if the table has as many in [`EVICTION_BUCKETS`] buckets.
const EVICTION_ENTRIES: usize = 64;
/// Buckets, a cache line each, that are read for each eviction at most.
const EVICTION_BUCKETS: usize = 256;

/// What is stored with an address: its port, and whether by whose will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station(pub(crate) u32);

impl Station {
    #[inline]
    pub(crate) fn learned(port: PortId) -> Station {
        Station(u32::from(port.0))
    }

    pub(crate) fn fixed(port: Option<PortId>) -> Station {
        port.map_or(Station(STATIC | DISCARD), |port| Station(u32::from(port.0) | STATIC))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the port is the low half")]
    pub(crate) fn port(self) -> PortId {
        PortId(self.0 as u16)
    }

    #[inline]
    pub(crate) fn is_static(self) -> bool {
        self.0 & STATIC != 0
    }

    #[inline]
    pub(crate) fn discards(self) -> bool {
        self.0 & DISCARD != 0
    }
}

/// An address as the low 48 bits of a number, first octet lowest: as a little-endian machine loads it from a flow key.
#[inline]
pub(crate) fn mac_bits(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The address in the low 48 bits.
pub(crate) fn mac_of(bits: u64) -> MacAddr {
    let [a, b, c, d, e, f, _, _] = bits.to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}

/// The table's key of an address ([`mac_bits`]) in a VLAN.
#[inline]
pub(crate) fn station_key(vid: u16, mac_bits: u64) -> u64 {
    u64::from(vid) << VID_SHIFT | mac_bits
}

/// An entry of the MAC table, as `show` lists it and a hand-over carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdbEntry {
    /// VLAN, [`VlanId::NONE`] for transparent ports.
    pub vid: VlanId,
    /// Address.
    pub mac: MacAddr,
    /// Where it is; `None` for a static entry that discards.
    pub port: Option<PortId>,
    /// Seconds since it was last seen as a source; 0 for static entries.
    pub age_secs: u16,
    /// Whether it was configured rather than learned.
    pub is_static: bool,
}

impl FdbEntry {
    /// VLAN and address as one number: the VLAN above 48 bits of address, first octet lowest.
    pub fn key(&self) -> u64 {
        station_key(self.vid.get(), mac_bits(self.mac))
    }
}

/// Somebody who forwards by a copy of the table: the driver hook. It is told at once what is not so any more; what is new
/// it asks for itself.
pub trait Shortcut: Send + Sync + fmt::Debug {
    /// Forget this station ([`FdbEntry::key`]). Called by workers, too: no lock, no allocation, no system call.
    fn revoke(&self, key: u64);
}

/// What became of an attempt to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// The address is new.
    New,
    /// It was on this port before.
    Moved(PortId),
    /// Another worker was quicker, with the same result.
    Already,
    /// It became static meanwhile.
    Static(Station),
    /// Not learned, and why.
    Refused(&'static str),
}

/// How many addresses may be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Learned on the port.
    pub(crate) port: u32,
    /// In the whole bridge.
    pub(crate) bridge: u32,
}

/// What is compared of entries for an eviction, the greatest goes: how many its port holds, its age, and of several the lowest key.
type EvictionRank = (u32, u16, std::cmp::Reverse<u64>);

/// Why an address is not learned, in words for recorders.
const BRIDGE_LIMIT: &str = "the bridge's table holds as many addresses as its limit allows, and none of a port with as many as this one was found that could give way";
const PORT_LIMIT: &str = "the port holds as many addresses as its limit allows";
const BUCKETS_FULL: &str = "there is no room in the two buckets where the table could keep this address";
const BUCKET_BUSY: &str = "another worker was writing in the same bucket; the next frame will do";

/// What has become of a bridge's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableCounts {
    /// Addresses that came new.
    pub learned: u64,
    /// Addresses that went after their time.
    pub expired: u64,
    /// Addresses that gave way to others, in a full table.
    pub evicted: u64,
    /// Addresses that were seen at another port.
    pub moved: u64,
}

/// What a bridge remembers: MAC table, addresses per port, moves. Shared by all versions of the bridge and by all
/// workers.
#[derive(Debug)]
pub struct BridgeTables {
    table: MacTable,
    /// Entries, static ones included, counted before they are made so that no limit is overstepped.
    held: AtomicU32,
    /// Learned entries per port. Zero pages until a port is used.
    per_port: Box<[AtomicU32]>,
    moves: AtomicU64,
    /// Moves by the port that they led to. Zero pages until a port is used.
    moves_to: Box<[AtomicU64]>,
    /// Addresses that came new, that were silent for too long, and that gave way to others.
    learned: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
    /// Changes of what is known, so that workers can tell whether what they recall still holds. Raised after each.
    changes: CachePadded<AtomicU64>,
    sweep_from: AtomicUsize,
    /// Number of the port that holds most learned entries, as far as the last learning or sweep has seen.
    fullest: AtomicU32,
    /// Bucket at which the next eviction begins to read.
    evict_from: AtomicUsize,
    capacity: u32,
    shortcut: OnceLock<Arc<dyn Shortcut>>,
}

impl BridgeTables {
    pub(crate) fn new(mac_limit: u32, seed: u64) -> BridgeTables {
        let entries = usize::try_from(mac_limit).unwrap_or(usize::MAX).min(1 << 26);
        let per_port = <[AtomicU32]>::new_box_zeroed_with_elems(PORTS);
        let moves_to = <[AtomicU64]>::new_box_zeroed_with_elems(PORTS);
        BridgeTables {
            table: MacTable::with_capacity(entries, seed),
            held: AtomicU32::new(0),
            per_port: per_port.unwrap_or_else(|_| (0..PORTS).map(|_| AtomicU32::new(0)).collect()),
            moves: AtomicU64::new(0),
            moves_to: moves_to.unwrap_or_else(|_| (0..PORTS).map(|_| AtomicU64::new(0)).collect()),
            learned: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            changes: CachePadded(AtomicU64::new(0)),
            sweep_from: AtomicUsize::new(0),
            fullest: AtomicU32::new(0),
            evict_from: AtomicUsize::new(0),
            capacity: mac_limit,
            shortcut: OnceLock::new(),
        }
    }

    /// Who is told what is not so any more; once for these tables. False if there is somebody already.
    pub fn set_shortcut(&self, shortcut: Arc<dyn Shortcut>) -> bool {
        self.shortcut.set(shortcut).is_ok()
    }

    fn revoke(&self, key: u64) {
        if let Some(shortcut) = self.shortcut.get() {
            shortcut.revoke(key);
        }
    }

    /// Where a station ([`FdbEntry::key`]) is now; `None` where it is unknown or discarded.
    pub fn port_of(&self, key: u64) -> Option<PortId> {
        let station = self.table.lookup(key).map(|hit| Station(hit.value))?;
        (!station.discards()).then(|| station.port())
    }

    /// Says that a station was seen on its port in this second by somebody else than a worker.
    pub fn seen(&self, key: u64, port: PortId, secs: u16) {
        let Some(hit) = self.table.lookup(key) else { return };
        let later = secs.wrapping_sub(hit.age);
        if hit.value == Station::learned(port).0 && later != 0 && later < FUTURE / 2 {
            self.table.refresh(hit.slot, key, secs);
        }
    }

    /// Empty tables with room for more entries, under the same count of moves.
    pub(crate) fn larger(&self, mac_limit: u32, seed: u64) -> BridgeTables {
        let tables = BridgeTables::new(mac_limit, seed);
        let counts = self.counts();
        tables.moves.store(counts.moved, Ordering::Relaxed);
        for (to, count) in tables.moves_to.iter().zip(&self.moves_to) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                to.store(count, Ordering::Relaxed);
            }
        }
        tables.learned.store(counts.learned, Ordering::Relaxed);
        tables.expired.store(counts.expired, Ordering::Relaxed);
        tables.evicted.store(counts.evicted, Ordering::Relaxed);
        if let Some(shortcut) = self.shortcut.get() {
            tables.set_shortcut(Arc::clone(shortcut));
        }
        tables
    }

    /// The limit that the table's size was made for.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline]
    pub(crate) fn table(&self) -> &MacTable {
        &self.table
    }

    /// A number that is another one after every change of an entry (its age aside).
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.0.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.0.fetch_add(1, Ordering::Release);
    }

    /// Entries held, static ones included.
    pub fn len(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses learned on a port.
    pub fn learned_on(&self, port: PortId) -> u32 {
        self.per_port[port.index()].load(Ordering::Relaxed)
    }

    /// How often a known address turned up on another port, since the bridge was made.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns how often an address turned up on this port that was known on another one, since the bridge was made.
    pub fn moves_to(&self, port: PortId) -> u64 {
        self.moves_to[port.index()].load(Ordering::Relaxed)
    }

    /// Returns what has become of addresses since the bridge was made.
    pub fn counts(&self) -> TableCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TableCounts {
            learned: of(&self.learned),
            expired: of(&self.expired),
            evicted: of(&self.evicted),
            moved: of(&self.moves),
        }
    }

    /// Every entry, in no particular order; each entry whole, the list not of one instant. `now_secs` is the coarse
    /// clock of [`crate::Now`].
    pub fn fdb(&self, now_secs: u16) -> impl Iterator<Item = FdbEntry> + '_ {
        self.table.iter().map(move |entry| listed(&entry, now_secs))
    }

    /// Forgets learned entries that were silent for more than `ageing_secs`. Looks at an eighth of the table at a
    /// call, but at least 4,096 buckets: call it about once a second. Returns how many went.
    pub fn age(&self, now_secs: u16, ageing_secs: u32) -> usize {
        let buckets = self.table.buckets();
        let step = (buckets / 8).max(SWEEP_MIN).min(buckets);
        let from = self.sweep_from.load(Ordering::Relaxed) % buckets;
        self.sweep_from.store((from + step) % buckets, Ordering::Relaxed);
        let ageing = ageing_secs.min(crate::config::MAX_AGEING_SECS);
        let expired = |entry: &Entry| {
            let age = now_secs.wrapping_sub(entry.age);
            if !Station(entry.value).is_static() {
                self.note_fullest(Station(entry.value).port());
            }
            !Station(entry.value).is_static() && age < FUTURE && u32::from(age) > ageing
        };
        let wrapped = (from + step).saturating_sub(buckets);
        let gone = self.remove_range(from..from + step, &expired) + self.remove_range(0..wrapped, &expired);
        self.expired.fetch_add(u64::try_from(gone).unwrap_or(u64::MAX), Ordering::Relaxed);
        gone
    }

    /// Forgets the learned entries of a port.
    pub fn flush_port(&self, port: PortId) -> usize {
        self.flush(|entry| entry.port == Some(port))
    }

    /// Forgets the learned entries of a VLAN.
    pub fn flush_vlan(&self, vid: VlanId) -> usize {
        self.flush(|entry| entry.vid == vid)
    }

    /// Forgets what was learned of an address, in every VLAN.
    pub fn flush_mac(&self, mac: MacAddr) -> usize {
        self.flush(|entry| entry.mac == mac)
    }

    /// Forgets everything learned.
    pub fn flush_all(&self) -> usize {
        self.flush(|_| true)
    }

    /// Forgets the learned entries that `unwanted` names (their `age_secs` are not set). Returns how many went.
    pub fn flush(&self, unwanted: impl Fn(&FdbEntry) -> bool) -> usize {
        let unwanted =
            |entry: &Entry| !Station(entry.value).is_static() && unwanted(&listed(entry, entry.age));
        self.remove_range(0..self.table.buckets(), &unwanted)
    }

    /// Why [`BridgeTables::learn`] would refuse an address, as far as the limits go; changes nothing.
    pub(crate) fn refusal(
        &self,
        port: PortId,
        known: bool,
        limits: Limits,
        now_secs: u16,
    ) -> Option<&'static str> {
        let held_here = self.learned_on(port);
        if held_here >= limits.port {
            return Some(PORT_LIMIT);
        }
        let held = self.len();
        let is_refused = held > limits.bridge
            || held == limits.bridge && self.first_to_go(port, held_here + 1, now_secs).is_none();
        (!known && is_refused).then_some(BRIDGE_LIMIT)
    }

    /// Learns that a station is on `port`. `known`: whether the caller has just seen an entry for it.
    ///
    /// In a full table a new station takes the place of another one ([`BridgeTables::evict`]).
    #[cold]
    #[inline(never)]
    pub(crate) fn learn(
        &self,
        at: BucketIndex,
        key: u64,
        port: PortId,
        known: bool,
        limits: Limits,
        now_secs: u16,
    ) -> Learned {
        if !reserve(&self.per_port[port.index()], limits.port) {
            return Learned::Refused(PORT_LIMIT);
        }
        // A known station needs no more room in the bridge, wherever it moves. If its entry vanishes at this moment,
        // the bridge holds one more than its limit until the next departure.
        if !known && !reserve(&self.held, limits.bridge) && !self.evict(port, limits.bridge, now_secs) {
            release(&self.per_port[port.index()]);
            return Learned::Refused(BRIDGE_LIMIT);
        }
        let inserted = self.table.insert_at(at, key, Station::learned(port).0, now_secs);
        self.correct_held(known, inserted);
        self.note_fullest(port);
        match inserted {
            Inserted::New => {
                self.learned.fetch_add(1, Ordering::Relaxed);
                self.changed();
                Learned::New
            }
            Inserted::Updated(old) => self.moved(at, key, port, Station(old), now_secs),
            Inserted::Full | Inserted::Busy => {
                release(&self.per_port[port.index()]);
                Learned::Refused(if inserted == Inserted::Full { BUCKETS_FULL } else { BUCKET_BUSY })
            }
        }
    }

    /// Remembers the port as the one with most entries if it holds more than that one.
    fn note_fullest(&self, port: PortId) {
        let fullest = self.fullest.load(Ordering::Relaxed);
        let held =
            |port: u32| self.per_port.get(port as usize).map_or(0, |held| held.load(Ordering::Relaxed));
        if fullest != u32::from(port.0) && held(u32::from(port.0)) > held(fullest) {
            self.fullest.store(u32::from(port.0), Ordering::Relaxed);
        }
    }

    /// Removes a learned entry of another station in favour of a new one on `port`, for which the port's count is already
    /// raised: the oldest entry of the port that has most, as Open vSwitch does. Returns whether the new station has the
    /// place of the one removed.
    ///
    /// For workers: reads at most [`EVICTION_BUCKETS`] buckets and does not wait. In a table with more than
    /// [`EVICTION_ENTRIES`] entries, "oldest" and "most" therefore count among the entries read, at another place of the
    /// table each time.
    fn evict(&self, port: PortId, limit: u32, now_secs: u16) -> bool {
        let oldest = self.first_to_go(port, self.learned_on(port), now_secs);
        self.evict_from.fetch_add(EVICTION_BUCKETS / 8, Ordering::Relaxed);
        let Some(oldest) = oldest else { return false };
        let is_unchanged = |entry: Entry| entry.value == oldest.value && entry.age == oldest.age;
        if self.table.try_remove_if(oldest.key, is_unchanged).is_none() {
            return false;
        }
        self.uncount_port(Station(oldest.value));
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.changed();
        self.revoke(oldest.key);
        // A table that holds more than a limit that was lowered shrinks by one with each attempt.
        let has_place = self.held.load(Ordering::Relaxed) <= limit;
        if !has_place {
            release(&self.held);
        }
        has_place
    }

    /// Returns the key of the entry that a new station on `port` would displace; changes nothing.
    pub(crate) fn displaced(&self, port: PortId, limits: Limits, now_secs: u16) -> Option<u64> {
        let held_here = self.learned_on(port);
        if held_here >= limits.port || self.len() < limits.bridge {
            return None;
        }
        self.first_to_go(port, held_here + 1, now_secs).map(|entry| entry.key)
    }

    /// Returns the entry that gives way to a new station on `port`, which holds `held_here` with the new one: the oldest of
    /// the port that has most among the entries read, if that port has as many as the new station's.
    fn first_to_go(&self, port: PortId, held_here: u32, now_secs: u16) -> Option<Entry> {
        let held = |of: PortId| if of == port { held_here } else { self.learned_on(of) };
        let fullest = PortId(u16::try_from(self.fullest.load(Ordering::Relaxed)).unwrap_or_default());
        let most = held(fullest).max(held_here);
        let from = self.evict_from.load(Ordering::Relaxed);
        let mut first: Option<(EvictionRank, Entry)> = None;
        let mut read = 0;
        for bucket in 0..self.table.buckets().min(EVICTION_BUCKETS) {
            if read >= EVICTION_ENTRIES && first.as_ref().is_some_and(|((held, ..), _)| *held >= most) {
                break;
            }
            for entry in self.table.glimpse(from.wrapping_add(bucket)).into_iter().flatten() {
                let station = Station(entry.value);
                if station.is_static() {
                    continue;
                }
                read += 1;
                let age = now_secs.wrapping_sub(entry.age);
                let age = if age >= FUTURE { 0 } else { age };
                let rank = (held(station.port()), age, std::cmp::Reverse(entry.key));
                if first.as_ref().is_none_or(|(before, _)| rank > *before) {
                    first = Some((rank, entry));
                }
            }
        }
        first.filter(|((held, ..), _)| *held >= held_here).map(|(_, entry)| entry)
    }

    /// Settles the bridge's count: the entry may have come or gone between the look-up and the insertion, or found no room or a bucket
    /// that another worker held.
    fn correct_held(&self, known: bool, inserted: Inserted) {
        match (known, inserted) {
            (true, Inserted::New) => drop(self.held.fetch_add(1, Ordering::Relaxed)),
            (true, _) => {}
            (false, Inserted::New) => {}
            (false, _) => release(&self.held),
        }
    }

    /// Settles the accounts after an entry of `old` was overwritten by one for `port`.
    fn moved(&self, at: BucketIndex, key: u64, port: PortId, old: Station, now_secs: u16) -> Learned {
        if old.is_static() {
            // Configured between our look-up and our insertion: put back. A frame in between may follow the wrong
            // entry, as it would had it come a moment earlier.
            let _ = self.table.insert_at(at, key, old.0, now_secs);
            self.changed();
            self.revoke(key);
            release(&self.per_port[port.index()]);
            return Learned::Static(old);
        }
        release(&self.per_port[old.port().index()]);
        if old.port() == port {
            return Learned::Already;
        }
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.moves_to[port.index()].fetch_add(1, Ordering::Relaxed);
        self.changed();
        self.revoke(key);
        Learned::Moved(old.port())
    }

    /// Every entry with the second in which it was last seen.
    pub(crate) fn entries_with_stamps(&self) -> impl Iterator<Item = (FdbEntry, u16)> + '_ {
        self.table.iter().map(|entry| (listed(&entry, entry.age), entry.age))
    }

    /// Takes over an entry that is not known yet. Returns whether it did. For control threads.
    pub(crate) fn import(&self, key: u64, port: PortId, limits: Limits, seen_secs: u16) -> bool {
        if self.table.lookup(key).is_some() {
            return false;
        }
        loop {
            match self.learn(self.table.hash(key), key, port, false, limits, seen_secs) {
                Learned::Refused(BUCKET_BUSY) => std::thread::yield_now(),
                outcome => return outcome == Learned::New,
            }
        }
    }

    /// Makes an entry static, or changes one. For control threads. Returns whether the table took it.
    pub(crate) fn set_static(&self, key: u64, station: Station) -> bool {
        loop {
            match self.table.insert(key, station.0, 0) {
                Inserted::New => {
                    self.held.fetch_add(1, Ordering::Relaxed);
                    self.changed();
                    return true;
                }
                Inserted::Updated(old) => {
                    self.uncount_port(Station(old));
                    self.changed();
                    self.revoke(key);
                    return true;
                }
                Inserted::Full => return false,
                Inserted::Busy => std::thread::yield_now(),
            }
        }
    }

    /// Takes a static entry away; a learned one stays.
    pub(crate) fn clear_static(&self, key: u64) {
        if self.table.remove_if(key, |entry| Station(entry.value).is_static()).is_some() {
            self.changed();
            self.revoke(key);
            release(&self.held);
        }
    }

    /// Removes what `unwanted` names from a range of buckets, keeping the counts right.
    fn remove_range(&self, buckets: std::ops::Range<usize>, unwanted: &impl Fn(&Entry) -> bool) -> usize {
        let found = RefCell::new(Vec::new());
        self.table.sweep_range(buckets, |entry| {
            if unwanted(&entry) {
                found.borrow_mut().push(entry.key);
            }
            true
        });
        let mut removed = 0;
        for key in found.into_inner() {
            if let Some(value) = self.table.remove_if(key, |entry| unwanted(&entry)) {
                release(&self.held);
                self.uncount_port(Station(value));
                self.revoke(key);
                removed += 1;
            }
        }
        if removed > 0 {
            self.changed();
        }
        removed
    }

    fn uncount_port(&self, station: Station) {
        if !station.is_static() {
            release(&self.per_port[station.port().index()]);
        }
    }
}

/// Counts one more unless that would exceed `limit`.
fn reserve(count: &AtomicU32, limit: u32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| (held < limit).then(|| held + 1)).is_ok()
}

fn release(count: &AtomicU32) {
    count.fetch_sub(1, Ordering::Relaxed);
}

fn listed(entry: &Entry, now_secs: u16) -> FdbEntry {
    let station = Station(entry.value);
    let age = now_secs.wrapping_sub(entry.age);
    let vid = u16::try_from(entry.key >> VID_SHIFT).unwrap_or_default();
    FdbEntry {
        vid: VlanId::new(vid).unwrap_or(VlanId::NONE),
        mac: mac_of(entry.key),
        port: (!station.discards()).then(|| station.port()),
        age_secs: if station.is_static() || age >= FUTURE { 0 } else { age },
        is_static: station.is_static(),
    }
}
