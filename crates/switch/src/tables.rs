//! The tables of a bridge: the MAC table, and for each port the counts of addresses and of address moves.
//!
//! All workers share the tables. The versions of a bridge ([`crate::Bridge::reconfigured`]) share them too, until a
//! higher limit of addresses requires larger tables. Workers look up, refresh and learn addresses. Control threads
//! age, flush and list entries. The MAC table is the filtering database of IEEE 802.1Q clause 8.8. One table holds
//! the entries of all VLANs, keyed by VLAN and address (independent learning, 8.8.8).

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use packet::{MacAddr, PortId, VlanId};
use sync::CachePadded;
use sync::mac_table::{BucketIndex, Entry, Inserted, MacTable};
use zerocopy::FromZeros;

/// Bit position of the VLAN in a key of the MAC table, above the 48 bits of the address.
const VID_SHIFT: u32 = 48;
const STATIC: u32 = 1 << 16;
const DISCARD: u32 = 1 << 17;
/// Number of possible ports: port numbers have 16 bits.
const PORTS: usize = 1 << 16;
/// Lowest age, in seconds, that cannot be a true age. Ages are computed modulo 65,536, so an age of this value or more
/// means that the clock was read before the entry's time stamp was written. The entry then counts as just refreshed.
const FUTURE: u16 = u16::MAX - 256;
/// Minimum number of MAC table buckets that one call of [`BridgeTables::age`] examines.
const SWEEP_MIN: usize = 4096;
/// Number of MAC table entries that an eviction reads before it selects one of them. The eviction
/// reads fewer entries if it reaches the limit of [`EVICTION_BUCKETS`] buckets.
const EVICTION_ENTRIES: usize = 64;
/// Maximum number of MAC table buckets, of one cache line each, that one eviction reads.
const EVICTION_BUCKETS: usize = 256;

/// The value of a MAC table entry: the port, a flag for static entries, and a flag for entries whose frames are
/// dropped.
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

/// Returns a MAC address in the low 48 bits of a word, with the first octet in the lowest bits. A little-endian CPU can
/// load this form directly from a flow key.
#[inline]
pub(crate) fn mac_bits(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Returns the MAC address that the low 48 bits of `bits` hold (see [`mac_bits`]).
pub(crate) fn mac_of(bits: u64) -> MacAddr {
    let [a, b, c, d, e, f, _, _] = bits.to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}

/// Returns the MAC table key for an address (in the form of [`mac_bits`]) in a VLAN.
#[inline]
pub(crate) fn station_key(vid: u16, mac_bits: u64) -> u64 {
    u64::from(vid) << VID_SHIFT | mac_bits
}

/// An entry of the MAC table, for listings and for transfer to a successor process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdbEntry {
    /// VLAN of the entry. The value is [`VlanId::NONE`] for transparent ports.
    pub vid: VlanId,
    /// MAC address of the entry.
    pub mac: MacAddr,
    /// Port of the address. The value is `None` for a static entry whose frames are dropped.
    pub port: Option<PortId>,
    /// Seconds since the last frame from the address. The value is 0 for static entries.
    pub age_secs: u16,
    /// Whether the entry comes from the configuration. All other entries were learned.
    pub is_static: bool,
}

impl FdbEntry {
    /// Returns the VLAN and the MAC address of the entry as one number: the VLAN in bits 48 to 63, and the address
    /// in bits 0 to 47, with its first octet in the lowest bits.
    pub fn key(&self) -> u64 {
        station_key(self.vid.get(), mac_bits(self.mac))
    }
}

/// An offload (for example in XDP) that forwards packets according to a copy of the MAC table. The bridge notifies the
/// offload immediately of entries that changed or were removed. The offload reads new entries from the table itself.
pub trait OffloadInvalidator: Send + Sync + fmt::Debug {
    /// Removes the entry with this key ([`FdbEntry::key`]) from the offload's copy. Workers also call this function.
    /// An implementation must therefore not lock, allocate or make system calls.
    fn revoke(&self, key: u64);
}

/// The result of an attempt to learn an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// The address was not in the table before.
    New,
    /// The entry moved from the port given here to the port of the frame.
    Moved(PortId),
    /// Another worker learned the address on the same port first.
    Already,
    /// A control thread made the entry of the address static in the meantime.
    Static(Station),
    /// The address was not learned, for this reason.
    Refused(&'static str),
}

/// Limits on the number of addresses in the MAC table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of addresses learned on the port.
    pub(crate) port: u32,
    /// Maximum number of addresses in the whole bridge.
    pub(crate) bridge: u32,
}

/// Sort key of entries for eviction: the number of addresses on the entry's port, the age of the entry in seconds, and
/// the reversed MAC table key, which makes the order unambiguous. The entry with the greatest sort key is evicted.
type EvictionRank = (u32, u16, std::cmp::Reverse<u64>);

/// Text for packet tracing that explains why an address is not learned if the bridge is at its
/// limit of addresses.
const BRIDGE_LIMIT: &str = "the bridge's table holds as many addresses as its limit allows, and none of a port with as many as this one was found that could give way";
const PORT_LIMIT: &str = "the port holds as many addresses as its limit allows";
const BUCKETS_FULL: &str = "there is no room in the two buckets where the table could keep this address";
const BUCKET_BUSY: &str = "another worker was writing in the same bucket; the next frame will do";

/// Counts of learned, expired, evicted and moved MAC addresses of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableCounts {
    /// Number of new addresses learned.
    pub learned: u64,
    /// Number of addresses removed by ageing.
    pub expired: u64,
    /// Number of addresses evicted from a full table in favour of new addresses.
    pub evicted: u64,
    /// Number of moves of MAC addresses from one port to another.
    pub moved: u64,
}

/// The MAC table and the address counts of a bridge. All versions of the bridge and all workers share them.
#[derive(Debug)]
pub struct BridgeTables {
    table: MacTable,
    /// Number of entries of the MAC table, static entries included. The number is incremented
    /// before an entry is inserted, so that the limit is not exceeded.
    held: AtomicU32,
    /// Number of learned entries for each port. Memory pages are allocated when a port is first used.
    per_port: Box<[AtomicU32]>,
    moves: AtomicU64,
    /// Number of moves of MAC addresses to the port from another port, for each port. Memory pages are allocated
    /// when a port is first used.
    moves_to: Box<[AtomicU64]>,
    /// Number of addresses learned. The next two fields count expired and evicted addresses.
    learned: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
    /// Number of changes of MAC table entries. Workers compare the number to detect that their MAC
    /// cache is out of date. The number is incremented after each change.
    changes: CachePadded<AtomicU64>,
    sweep_from: AtomicUsize,
    /// Number of the port with the most learned entries. The value is updated when an address is
    /// learned and when entries are aged.
    fullest: AtomicU32,
    /// Index of the first bucket that the next eviction reads.
    evict_from: AtomicUsize,
    capacity: u32,
    offload_invalidator: OnceLock<Arc<dyn OffloadInvalidator>>,
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
            offload_invalidator: OnceLock::new(),
        }
    }

    /// Sets the offload that is notified of changed and removed entries. Returns false if an offload is already set.
    pub fn set_offload_invalidator(&self, offload_invalidator: Arc<dyn OffloadInvalidator>) -> bool {
        self.offload_invalidator.set(offload_invalidator).is_ok()
    }

    fn revoke(&self, key: u64) {
        if let Some(offload_invalidator) = self.offload_invalidator.get() {
            offload_invalidator.revoke(key);
        }
    }

    /// Returns the port of the entry with this key ([`FdbEntry::key`]). Returns `None` if there is no entry, or if
    /// the entry's frames are dropped.
    pub fn port_of(&self, key: u64) -> Option<PortId> {
        let station = self.table.lookup(key).map(|hit| Station(hit.value))?;
        (!station.discards()).then(|| station.port())
    }

    /// Refreshes the age of the learned entry `key` on `port`, for example because an offload saw a frame from the
    /// address. `secs` is the second of the coarse clock at which the frame was seen.
    pub fn seen(&self, key: u64, port: PortId, secs: u16) {
        let Some(hit) = self.table.lookup(key) else { return };
        let later = secs.wrapping_sub(hit.age);
        if hit.value == Station::learned(port).0 && later != 0 && later < FUTURE / 2 {
            self.table.refresh(hit.slot, key, secs);
        }
    }

    /// Returns empty tables with a capacity of `mac_limit` addresses. The new tables continue the counts of learned,
    /// expired, evicted and moved addresses of these tables.
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
        if let Some(offload_invalidator) = self.offload_invalidator.get() {
            tables.set_offload_invalidator(Arc::clone(offload_invalidator));
        }
        tables
    }

    /// Returns the number of addresses for which the table was allocated.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline]
    pub(crate) fn table(&self) -> &MacTable {
        &self.table
    }

    /// Returns the number of changes of MAC table entries so far. Changes of an entry's age do not count.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.0.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.0.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of entries of the MAC table, static entries included.
    pub fn len(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether the table holds no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of addresses learned on a port.
    pub fn learned_on(&self, port: PortId) -> u32 {
        self.per_port[port.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of moves of MAC addresses from one port to another since the bridge was created.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns the number of moves of MAC addresses to this port from another port since the bridge was created.
    pub fn moves_to(&self, port: PortId) -> u64 {
        self.moves_to[port.index()].load(Ordering::Relaxed)
    }

    /// Returns the counts of learned, expired, evicted and moved addresses since the bridge was created.
    pub fn counts(&self) -> TableCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TableCounts {
            learned: of(&self.learned),
            expired: of(&self.expired),
            evicted: of(&self.evicted),
            moved: of(&self.moves),
        }
    }

    /// Returns every entry of the MAC table, in no particular order. Each entry is consistent, but entries may change
    /// during the iteration. `now_secs` is the current time of the coarse clock of [`crate::Now`].
    pub fn fdb(&self, now_secs: u16) -> impl Iterator<Item = FdbEntry> + '_ {
        self.table.iter().map(move |entry| listed(&entry, now_secs))
    }

    /// Removes learned entries whose address has sent no frame for more than `ageing_secs` seconds. Each call
    /// examines an eighth of the table, but at least 4,096 buckets. Call this function about once a second. Returns
    /// the number of entries removed.
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

    /// Removes the learned entries of a port. Returns the number of entries removed.
    pub fn flush_port(&self, port: PortId) -> usize {
        self.flush(|entry| entry.port == Some(port))
    }

    /// Removes the learned entries of a VLAN. Returns the number of entries removed.
    pub fn flush_vlan(&self, vid: VlanId) -> usize {
        self.flush(|entry| entry.vid == vid)
    }

    /// Removes the learned entries of an address in every VLAN. Returns the number of entries removed.
    pub fn flush_mac(&self, mac: MacAddr) -> usize {
        self.flush(|entry| entry.mac == mac)
    }

    /// Removes all learned entries. Returns the number of entries removed.
    pub fn flush_all(&self) -> usize {
        self.flush(|_| true)
    }

    /// Removes the learned entries for which `unwanted` returns true. `age_secs` is 0 in the entries that `unwanted`
    /// receives. Returns the number of entries removed.
    pub fn flush(&self, unwanted: impl Fn(&FdbEntry) -> bool) -> usize {
        let unwanted =
            |entry: &Entry| !Station(entry.value).is_static() && unwanted(&listed(entry, entry.age));
        self.remove_range(0..self.table.buckets(), &unwanted)
    }

    /// Returns a description of the limit that would make [`BridgeTables::learn`] refuse an address. Returns `None` if
    /// no limit would be exceeded. The call changes nothing.
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

    /// Learns the address with the MAC table key `key` on `port`. `known` states whether the caller's lookup has
    /// just found an entry for the address.
    ///
    /// In a full table a new address displaces another address ([`BridgeTables::evict`]).
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
        // A known station needs no more space in the bridge, wherever it moves. If its entry is removed at
        // this moment, the bridge holds one entry more than its limit until the next removal.
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

    /// Records `port` as the port with the most learned entries, if `port` has more entries than
    /// the recorded port.
    fn note_fullest(&self, port: PortId) {
        let fullest = self.fullest.load(Ordering::Relaxed);
        let held =
            |port: u32| self.per_port.get(port as usize).map_or(0, |held| held.load(Ordering::Relaxed));
        if fullest != u32::from(port.0) && held(u32::from(port.0)) > held(fullest) {
            self.fullest.store(u32::from(port.0), Ordering::Relaxed);
        }
    }

    /// Evicts a learned entry in favour of a new address on `port`. The number of addresses on `port` already
    /// includes the new address. The evicted entry is the oldest entry of the port that has the most entries, as in
    /// Open vSwitch. Returns whether the new address may take the place of the evicted entry.
    ///
    /// Workers call this function. The function reads at most [`EVICTION_BUCKETS`] buckets and does
    /// not wait. In a table with more than [`EVICTION_ENTRIES`] entries, "oldest" and "most"
    /// therefore apply only to the entries read, and each eviction reads another part of the table.
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
        // A table that holds more entries than a lowered limit shrinks by one entry with each attempt.
        let has_place = self.held.load(Ordering::Relaxed) <= limit;
        if !has_place {
            release(&self.held);
        }
        has_place
    }

    /// Returns the key of the entry that a new address on `port` would displace. Returns `None` if
    /// the address would displace no entry. The call changes nothing.
    pub(crate) fn displaced(&self, port: PortId, limits: Limits, now_secs: u16) -> Option<u64> {
        let held_here = self.learned_on(port);
        if held_here >= limits.port || self.len() < limits.bridge {
            return None;
        }
        self.first_to_go(port, held_here + 1, now_secs).map(|entry| entry.key)
    }

    /// Returns the entry that a new address on `port` displaces: among the entries read, the oldest entry of the port
    /// with the most entries. `held_here` is the number of entries of `port`, including the new address. Returns
    /// `None` if the port with the most entries has fewer entries than `port`.
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

    /// Corrects the count of entries in the table after an insertion. Another thread may have added or removed the
    /// entry between the lookup and the insertion, or the insertion may have failed because the buckets were full or
    /// locked by another worker.
    fn correct_held(&self, known: bool, inserted: Inserted) {
        match (known, inserted) {
            (true, Inserted::New) => drop(self.held.fetch_add(1, Ordering::Relaxed)),
            (true, _) => {}
            (false, Inserted::New) => {}
            (false, _) => release(&self.held),
        }
    }

    /// Updates the counts of addresses and moves after the entry `old` of an address was overwritten by an entry for
    /// `port`.
    fn moved(&self, at: BucketIndex, key: u64, port: PortId, old: Station, now_secs: u16) -> Learned {
        if old.is_static() {
            // The entry was made static between the lookup and the insertion. Restore it. A frame in between
            // may follow the wrong entry, as a frame that came a moment earlier would have.
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

    /// Returns every entry with the second of the coarse clock (modulo 65,536) in which its address was last seen.
    pub(crate) fn entries_with_stamps(&self) -> impl Iterator<Item = (FdbEntry, u16)> + '_ {
        self.table.iter().map(|entry| (listed(&entry, entry.age), entry.age))
    }

    /// Adds an entry for an address that is not in the table. Returns whether the entry was added. Only control
    /// threads call this function.
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

    /// Adds a static entry, or makes an existing entry static. Returns false if the table is full. Only control
    /// threads call this function.
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

    /// Removes a static entry. A learned entry is not removed.
    pub(crate) fn clear_static(&self, key: u64) {
        if self.table.remove_if(key, |entry| Station(entry.value).is_static()).is_some() {
            self.changed();
            self.revoke(key);
            release(&self.held);
        }
    }

    /// Removes the entries for which `unwanted` returns true from a range of buckets, and updates the counts of
    /// addresses. Returns the number of entries removed.
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

/// Increments `count` unless this would exceed `limit`. Returns whether `count` was incremented.
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
