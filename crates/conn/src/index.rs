//! Index of a connection table: finds the number of an entry by the hash of its tuple.
//!
//! The index is an array of buckets. A bucket is one cache line of 64 bytes with ten slots. A slot holds 15 bits of the
//! hash (the tag), and the number of an entry. An entry has two buckets: the primary bucket, which the hash selects,
//! and the alternate bucket, which the primary bucket and the tag select. The index uses the alternate bucket only if
//! the primary bucket is full. A bit of the tag marks such a slot, and the primary bucket counts these entries. A
//! look-up reads the alternate bucket only if the primary bucket has a count. At most 75 % of the slots are in use. In
//! a full table whose entries were replaced many times, 15 % of the entries are in their alternate bucket.
//!
//! If both buckets of a new entry are full, the index moves one entry of these buckets to its other bucket.
//!
//! The number of buckets is even, and not rounded to a power of two. The alternate bucket is `offset - bucket` modulo
//! the number of buckets. The tag determines the offset. Because the subtraction is its own inverse, the primary bucket
//! follows from the alternate bucket and the tag in the same way. The offset is odd. Therefore the buckets differ.

use sync::cpu::prefetch_read;
use sync::memory::vec_on_huge_pages;

/// Number of slots of a bucket.
const SLOTS: usize = 10;
/// Bit of a tag: the slot is in the alternate bucket of its entry.
const ALTERNATE: u16 = 1 << 15;
/// Bits of a tag from the hash.
const TAG: u16 = ALTERNATE - 1;
/// Largest number of entries for two buckets, 75 % of their slots.
const LOAD: u64 = 15;

/// One cache line of the index.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// Tags of the slots. 0: the slot is empty.
    tags: [u16; SLOTS],
    /// Number of entries that have this primary bucket, and are in their alternate bucket.
    overflow: u32,
    /// Numbers of the entries.
    entries: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// Returns the slots with this tag, as the bits of a number. The compiler compares eight tags at once.
    #[inline(always)]
    fn with_tag(&self, tag: u16) -> u16 {
        let mut slots = 0;
        for (slot, other) in self.tags.iter().enumerate() {
            slots |= if *other == tag { 1 << slot } else { 0 };
        }
        slots
    }

    /// Returns the first empty slot.
    #[inline]
    fn empty(&self) -> Option<usize> {
        self.tags.iter().position(|&tag| tag == 0)
    }

    /// Returns the first entry with this tag for which `is` returns true.
    #[inline(always)]
    fn find(&self, tag: u16, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut slots = self.with_tag(tag);
        while slots != 0 {
            let entry = self.entries.get(slots.trailing_zeros() as usize).copied()?;
            if is(entry) {
                return Some(entry);
            }
            slots &= slots - 1;
        }
        None
    }
}

/// Place of a hash in the index: the primary bucket and the tag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    bucket: u32,
    tag: u16,
}

/// Error: both buckets are full, and no entry in these buckets can move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Crowded;

#[derive(Debug)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    /// Number of buckets, even.
    count: u32,
}

impl Index {
    /// Returns an empty index for this number of entries.
    pub(crate) fn new(entries: u32) -> Index {
        // One more pair of buckets, so that small indexes have enough slots, too.
        let count = u32::try_from(2 * (u64::from(entries).div_ceil(LOAD) + 1)).unwrap_or(u32::MAX - 1);
        let mut buckets = vec_on_huge_pages(count as usize);
        buckets.resize(count as usize, Bucket::default());
        Index { buckets, count }
    }

    /// Returns the memory of the index in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Returns the place of a hash.
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half of a product of 32-bit numbers has 32 bits"
    )]
    pub(crate) fn place(&self, hash: u64) -> Place {
        Place {
            bucket: (((hash >> 32) * u64::from(self.count)) >> 32) as u32,
            tag: (hash as u16 & TAG).max(1),
        }
    }

    /// Prefetches the primary bucket of a place.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: Place) {
        if let Some(bucket) = self.buckets.get(place.bucket as usize) {
            prefetch_read(bucket);
        }
    }

    /// Returns the entry at a place for which `is` returns true.
    #[inline(always)]
    pub(crate) fn find(&self, place: Place, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let primary = self.buckets.get(place.bucket as usize)?;
        if let Some(entry) = primary.find(place.tag, &mut is) {
            return Some(entry);
        }
        if primary.overflow == 0 {
            return None;
        }
        let alternate = self.buckets.get(self.other(place.bucket, place.tag) as usize)?;
        alternate.find(place.tag | ALTERNATE, is)
    }

    /// Inserts an entry that is not in the index.
    ///
    /// # Errors
    /// Returns an error if there is no slot. The index is unchanged then.
    pub(crate) fn insert(&mut self, place: Place, entry: u32) -> Result<(), Crowded> {
        let Place { bucket: primary, tag } = place;
        let alternate = self.other(primary, tag);
        let slot = |index: &Index, bucket: u32| index.buckets.get(bucket as usize).and_then(Bucket::empty);
        if let Some(slot) = slot(self, primary) {
            self.set(primary, slot, tag, entry);
        } else if let Some(slot) = slot(self, alternate).or_else(|| self.make_room(alternate)) {
            self.set(alternate, slot, tag | ALTERNATE, entry);
            self.add_overflow(primary, 1);
        } else {
            let slot = self.make_room(primary).ok_or(Crowded)?;
            self.set(primary, slot, tag, entry);
        }
        Ok(())
    }

    /// Removes an entry from its place. Does nothing if the entry is not there.
    pub(crate) fn remove(&mut self, place: Place, entry: u32) {
        let alternate = self.other(place.bucket, place.tag);
        for (at, tag) in [(place.bucket, place.tag), (alternate, place.tag | ALTERNATE)] {
            let Some(bucket) = self.buckets.get_mut(at as usize) else { return };
            let slots = bucket.tags.iter_mut().zip(&bucket.entries);
            let Some((slot, _)) =
                slots.into_iter().find(|(other, number)| **other == tag && **number == entry)
            else {
                continue;
            };
            *slot = 0;
            if at != place.bucket {
                self.add_overflow(place.bucket, -1);
            }
            return;
        }
    }

    /// Returns the other bucket of an entry with this tag.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the offset is less than the number of buckets")]
    fn other(&self, bucket: u32, tag: u16) -> u32 {
        let offset = ((u64::from(tag & TAG) * u64::from(self.count)) >> 15) as u32 | 1;
        if bucket <= offset { offset - bucket } else { self.count - (bucket - offset) }
    }

    fn set(&mut self, bucket: u32, slot: usize, tag: u16, entry: u32) {
        if let Some(bucket) = self.buckets.get_mut(bucket as usize) {
            bucket.tags[slot] = tag;
            bucket.entries[slot] = entry;
        }
    }

    fn add_overflow(&mut self, bucket: u32, change: i32) {
        if let Some(bucket) = self.buckets.get_mut(bucket as usize) {
            bucket.overflow = bucket.overflow.saturating_add_signed(change);
        }
    }

    /// Moves one entry of a full bucket to its other bucket, and returns the slot that is empty then.
    fn make_room(&mut self, from: u32) -> Option<usize> {
        let Bucket { tags, entries, .. } = *self.buckets.get(from as usize)?;
        for (slot, (tag, entry)) in tags.into_iter().zip(entries).enumerate() {
            let to = self.other(from, tag);
            let Some(free) = self.buckets.get(to as usize).and_then(Bucket::empty) else { continue };
            self.set(to, free, tag ^ ALTERNATE, entry);
            self.set(from, slot, 0, 0);
            let was_primary = tag & ALTERNATE == 0;
            if was_primary {
                self.add_overflow(from, 1);
            } else {
                self.add_overflow(to, -1);
            }
            return Some(slot);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next number of the sequence splitmix64.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn overflows(index: &Index) -> u32 {
        index.buckets.iter().map(|bucket| bucket.overflow).sum()
    }

    #[test]
    fn the_other_bucket_of_the_other_bucket_is_the_first() {
        for count in [2, 4, 6, 1000, 131_072] {
            let index = Index { buckets: Vec::new(), count };
            for bucket in [0, 1, count / 2, count - 1] {
                for tag in 1..=TAG {
                    let other = index.other(bucket, tag);
                    assert!(other < count && other != bucket);
                    assert_eq!(index.other(other, tag | ALTERNATE), bucket);
                }
            }
        }
    }

    /// Inserts as many entries as the index is for, and replaces all of them twice. No insertion fails.
    #[test]
    fn a_full_index_accepts_all_replacements() {
        for entries in [1, 8, 9, 100, 5_000, 200_000_u32] {
            let mut index = Index::new(entries);
            let mut state = 1;
            let mut hashes: Vec<u64> = (0..entries).map(|_| random(&mut state)).collect();
            for (number, hash) in (0..).zip(&hashes) {
                assert_eq!(index.insert(index.place(*hash), number), Ok(()));
            }
            for _ in 0..2 {
                for (number, hash) in (0..).zip(&mut hashes) {
                    index.remove(index.place(*hash), number);
                    *hash = random(&mut state);
                    assert_eq!(index.insert(index.place(*hash), number), Ok(()));
                }
            }
            for (number, hash) in (0..).zip(&hashes) {
                assert_eq!(index.find(index.place(*hash), |other| other == number), Some(number));
            }
            let share = f64::from(overflows(&index)) / f64::from(entries);
            assert!(share < 0.25, "{share} of {entries} entries are in their alternate bucket");
            for (number, hash) in (0..).zip(&hashes) {
                index.remove(index.place(*hash), number);
            }
            assert_eq!(overflows(&index), 0);
            assert!(index.buckets.iter().all(|bucket| bucket.tags == [0; SLOTS]));
        }
    }

    #[test]
    fn an_index_without_a_slot_refuses_an_entry_and_is_unchanged() {
        let mut index = Index::new(1);
        let slots = u32::try_from(index.buckets.len() * SLOTS).unwrap();
        let mut state = 1;
        let hashes: Vec<u64> = (0..slots).map(|_| random(&mut state)).collect();
        let inserted: Vec<u32> = (0..slots)
            .filter(|number| index.insert(index.place(hashes[*number as usize]), *number).is_ok())
            .collect();
        assert_eq!(index.insert(index.place(7), slots), Err(Crowded));
        for number in inserted {
            assert!(index.find(index.place(hashes[number as usize]), |other| other == number).is_some());
        }
    }
}
