//! The table of stations: buckets of a cache line, four stations each, a station in one of two neighbouring buckets. One
//! writer inserts; anybody removes, at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::Error;
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub(super) const TABLE: &str = "bridge_table";
/// Stations of a bucket.
const SLOTS: usize = 4;
/// Words of a station: its key; and place, below when it was seen.
const WORDS: usize = 2;
const LINE: usize = SLOTS * WORDS;

pub(crate) const TAGGED: u32 = 1 << 16;
pub(crate) const PROTECTED: u32 = 1 << 17;
pub(crate) const STATIC: u32 = 1 << 18;
pub(crate) const REACHED: u32 = 1 << 19;
pub(crate) const PORT: u32 = 0xfff;
pub(crate) const LENGTH_LOW: u32 = 12;
pub(crate) const LENGTH_HIGH: u32 = 20;
/// Bytes of the longest frame that has room here.
const LENGTH_MAX: u32 = 0x3fff;

/// Where a station is, and how frames get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of its port.
    pub port: u16,
    /// Whether frames leave there with a tag.
    pub tagged: bool,
    /// Whether the port is protected.
    pub protected: bool,
    /// Whether it never moves.
    pub is_static: bool,
    /// Bytes of the longest frame without a tag, if its device takes redirected frames; 16,383 at most.
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

/// Spreads a seed over all bits (the finalizer of splitmix64): a product's upper bits depend on all of them.
fn mixed(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}

/// The stations of one bridge that the hooks of its ports know.
#[derive(Debug)]
pub struct StationTable {
    map: OwnedFd,
    memory: Mapped,
    pub(super) factor: u64,
    pub(super) shift: u32,
}

impl StationTable {
    /// Room for about this many stations. `seed` keys the hash and should be secret and random, so that nobody can aim at
    /// a bucket.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn new(stations: usize, seed: u64) -> Result<StationTable, Error> {
        let failed = |operation| move |source| Error::Map { map: TABLE, operation, source };
        // Half full at most, and the neighbour must exist.
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

    /// The words of the key's two buckets.
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

    /// Puts a station in (VLAN above 48 bits of address, first octet lowest), seen in this second; one that is there gets
    /// the new place. For one writer. False where both buckets are full, and for key 0, which no station has.
    pub fn insert(&self, key: u64, place: Place, seen_secs: u32) -> bool {
        if key == 0 {
            return false;
        }
        let value = u64::from(place.word()) | u64::from(seen_secs) << 32;
        if let Some((_, at)) = self.find(key) {
            at.store(value, Ordering::Release);
            // Should it have been taken out meanwhile, the place stands under no key, or the caller looks again.
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

    /// Takes a station out: no frame that arrives later meets it. Any thread may, at any time. False if it was not there.
    pub fn remove(&self, key: u64) -> bool {
        fence(Ordering::SeqCst);
        let mut found = false;
        for (at, _) in self.stations(key) {
            found |= key != 0 && at.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        }
        found
    }

    /// Takes everything out.
    pub fn clear(&self) {
        for key in self.memory.words().iter().step_by(WORDS) {
            key.store(0, Ordering::Release);
        }
    }

    /// Where a station is and in which second it was last seen.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<(Place, u32)> {
        let (_, at) = self.find(key).filter(|_| key != 0)?;
        let word = at.load(Ordering::Acquire);
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Some((Place::of(half(word)), half(word >> 32)))
    }

    /// Every station with its place and the second in which it was last seen.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Place, u32)> + '_ {
        self.memory.words().chunks_exact(WORDS).filter_map(|station| {
            let [key, at] = station else { return None };
            let (key, word) = (key.load(Ordering::Acquire), at.load(Ordering::Acquire));
            let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
            (key != 0).then(|| (key, Place::of(half(word)), half(word >> 32)))
        })
    }

    /// Stations that it has room for at best.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.words().len() / WORDS
    }
}
