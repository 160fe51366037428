//! Station table (MAC table) that the XDP programs of a bridge read. A station is a MAC address in a VLAN. A hash
//! bucket is a cache line with four stations, and each station is in one of two neighbouring buckets. One thread
//! inserts stations. Any thread may remove stations, with immediate effect.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::Error;
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub(super) const TABLE: &str = "bridge_table";
/// Number of stations in a hash bucket.
const SLOTS: usize = 4;
/// Size of a station in 64-bit words. The first word is the key. The lower half of the second word is the
/// encoded `Place`, the upper half is the time in seconds at which the station was last seen.
const WORDS: usize = 2;
const LINE: usize = SLOTS * WORDS;

pub(crate) const TAGGED: u32 = 1 << 16;
pub(crate) const PROTECTED: u32 = 1 << 17;
pub(crate) const STATIC: u32 = 1 << 18;
pub(crate) const REACHED: u32 = 1 << 19;
pub(crate) const PORT: u32 = 0xfff;
pub(crate) const LENGTH_LOW: u32 = 12;
pub(crate) const LENGTH_HIGH: u32 = 20;
/// Maximum frame length that an encoded [`Place`] can state, in bytes.
const LENGTH_MAX: u32 = 0x3fff;

/// Port of a station, with the properties of the port that affect the forwarding of frames to the station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the port on which the station is.
    pub port: u16,
    /// Whether frames to the station leave the port with a VLAN tag.
    pub tagged: bool,
    /// Whether the station's port is protected. Frames are not forwarded between two protected ports.
    pub protected: bool,
    /// Whether the station is a static MAC table entry, which never moves to another port.
    pub is_static: bool,
    /// Maximum length of a frame that the port's device can transmit, in bytes without a VLAN tag, at most 16,383.
    /// `None` if no frame can be redirected to the device.
    pub reached: Option<u32>,
}

impl Place {
    fn word(self) -> u32 {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let length = self.reached.map_or(0, |length| length.min(LENGTH_MAX));
        let length = length >> 2 << LENGTH_HIGH | (length & 3) << LENGTH_LOW;
        (u32::from(self.port) & PORT)
            | flag(self.tagged, TAGGED)
            | flag(self.protected, PROTECTED)
            | flag(self.is_static, STATIC)
            | flag(self.reached.is_some(), REACHED)
            | length
    }

    fn of(word: u32) -> Place {
        let has = |bit: u32| word & bit != 0;
        Place {
            port: u16::try_from(word & PORT).unwrap_or(0),
            tagged: has(TAGGED),
            protected: has(PROTECTED),
            is_static: has(STATIC),
            reached: has(REACHED).then_some(word >> LENGTH_HIGH << 2 | word >> LENGTH_LOW & 3),
        }
    }
}

/// Returns the seed of the hash function with its bits mixed (the finalizer of splitmix64). When a key is multiplied by
/// the result, the upper bits of the product depend on all bits of the seed.
fn mixed(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}

/// Station table (MAC table) of one bridge that the XDP programs of its ports read.
#[derive(Debug)]
pub struct StationTable {
    map: OwnedFd,
    memory: Mapped,
    pub(super) factor: u64,
    pub(super) shift: u32,
}

impl StationTable {
    /// Creates a station table with space for about `stations` stations. `seed` is the key of the hash function. The
    /// seed should be secret and random, because otherwise senders could fill a chosen bucket.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(stations: usize, seed: u64) -> Result<StationTable, Error> {
        let failed = |operation| move |source| Error::Map { map: TABLE, operation, source };
        // The table is at most half full, and every bucket needs a neighbour.
        let lines = (stations.clamp(1, 1 << 22) * 2 / SLOTS).next_power_of_two().max(2);
        let entries = u32::try_from(lines).unwrap_or(u32::MAX);
        let spec = MapSpec { name: TABLE, kind: MapKind::Mappable, key: 4, value: 64, entries };
        let map = sys::map_create(spec, None).map_err(failed("create"))?;
        let memory = Mapped::new(map.as_fd()).map_err(failed("map"))?;
        let shift = 64 - lines.trailing_zeros();
        Ok(StationTable { map, memory, factor: mixed(seed) | 1, shift })
    }

    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Returns the words of the two buckets that can hold the station with this key.
    fn buckets(&self, key: u64) -> [&[AtomicU64]; 2] {
        let at = usize::try_from(key.wrapping_mul(self.factor) >> self.shift).unwrap_or(0);
        let words = self.memory.words();
        [at, at ^ 1].map(|line| words.get(line * LINE..(line + 1) * LINE).unwrap_or(&[]))
    }

    fn stations(&self, key: u64) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
        self.buckets(key).into_iter().flat_map(|bucket| bucket.chunks_exact(WORDS)).filter_map(|station| {
            let [key, place] = station else { return None };
            Some((key, place))
        })
    }

    fn find(&self, key: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        self.stations(key).find(|(at, _)| at.load(Ordering::Acquire) == key)
    }

    /// Inserts a station that was last seen at the time `seen_secs` in seconds, or updates a station that is present.
    /// The key holds the MAC address in its lower 48 bits, with the first octet in the lowest bits, and the VLAN in the
    /// bits above the address. Only one thread may insert stations. Returns `false` if both buckets are full, and for
    /// key 0, which no station has.
    pub fn insert(&self, key: u64, place: Place, seen_secs: u32) -> bool {
        if key == 0 {
            return false;
        }
        let value = u64::from(place.word()) | u64::from(seen_secs) << 32;
        if let Some((_, at)) = self.find(key) {
            at.store(value, Ordering::Release);
            // If another thread has removed the station meanwhile, either the key is 0 and the new place has no effect,
            // or the caller detects the removal in a later check.
            fence(Ordering::SeqCst);
            return true;
        }
        let Some((free, at)) = self.stations(key).find(|(at, _)| at.load(Ordering::Acquire) == 0) else {
            return false;
        };
        // The hook reads the key, the place, and the key again.
        at.store(value, Ordering::Release);
        free.store(key, Ordering::Release);
        fence(Ordering::SeqCst);
        true
    }

    /// Removes a station. Lookups for frames that arrive later no longer find the station. Any thread may call this
    /// function at any time. Returns `false` if the station was not present.
    pub fn remove(&self, key: u64) -> bool {
        fence(Ordering::SeqCst);
        let mut found = false;
        for (at, _) in self.stations(key) {
            found |= key != 0 && at.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        }
        found
    }

    /// Removes all stations from the table.
    pub fn clear(&self) {
        for key in self.memory.words().iter().step_by(WORDS) {
            key.store(0, Ordering::Release);
        }
    }

    /// Returns the port of a station and the time in seconds at which the station was last seen. Returns `None` if the
    /// station is not in the table.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<(Place, u32)> {
        let (_, at) = self.find(key).filter(|_| key != 0)?;
        let word = at.load(Ordering::Acquire);
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Some((Place::of(half(word)), half(word >> 32)))
    }

    /// Returns the key of every station, its port and the time in seconds at which the station was last seen.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Place, u32)> + '_ {
        self.memory.words().chunks_exact(WORDS).filter_map(|station| {
            let [key, at] = station else { return None };
            let (key, word) = (key.load(Ordering::Acquire), at.load(Ordering::Acquire));
            let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
            (key != 0).then(|| (key, Place::of(half(word)), half(word >> 32)))
        })
    }

    /// Returns the maximum number of stations in the table.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.words().len() / WORDS
    }
}
