//! Hash chains over the slots of an array: for each bucket, a list of slots.
//!
//! The memory is allocated once. A slot is an element of at most one list.

/// Number of no slot: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Lists of slots.
#[derive(Debug)]
pub(crate) struct Chains {
    /// First slot of the list of each bucket. The number of buckets is a power of two.
    heads: Vec<u32>,
    /// Next slot of the list of each slot.
    next: Vec<u32>,
}

impl Chains {
    /// Returns empty lists for this number of slots. There are at least as many buckets as slots.
    pub(crate) fn new(slots: u32) -> Chains {
        let buckets = slots.max(1).next_power_of_two();
        Chains { heads: vec![NONE; buckets as usize], next: vec![NONE; slots as usize] }
    }

    /// Returns the slots of the list of a hash. Slots of other hashes may be in the list.
    pub(crate) fn slots(&self, hash: u64) -> impl Iterator<Item = u32> {
        let first = self.heads.get(self.bucket(hash)).copied();
        std::iter::successors(first, |slot| self.next.get(*slot as usize).copied())
            .take_while(|slot| *slot != NONE)
    }

    /// Adds a slot that is in no list to the list of a hash.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let bucket = self.bucket(hash);
        if let (Some(head), Some(next)) = (self.heads.get_mut(bucket), self.next.get_mut(slot as usize)) {
            *next = std::mem::replace(head, slot);
        }
    }

    /// Removes a slot from the list of a hash. Does nothing if the slot is not in the list.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let Some(after) = self.next.get(slot as usize).copied() else { return };
        let before = self.slots(hash).find(|other| self.next.get(*other as usize) == Some(&slot));
        let bucket = self.bucket(hash);
        let link = match before {
            Some(before) => self.next.get_mut(before as usize),
            None => self.heads.get_mut(bucket).filter(|head| **head == slot),
        };
        if let Some(link) = link {
            *link = after;
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        usize::try_from(hash & (self.heads.len() as u64 - 1)).unwrap_or_default()
    }
}
