//! Set of the frames that an AF_XDP queue has passed to the kernel, with one bit per frame. A bit is set when
//! the frame's address enters the fill ring or the transmit ring. The bit is cleared when the kernel returns
//! the frame. The set has the following purposes:
//!
//! - The queue detects and refuses a frame that the kernel returns twice, or that the kernel did not have.
//! - When a socket is closed, the frames that the kernel held internally are returned to the pool as well.
//! - A successor process knows which frames the kernel holds.

/// A set of frame indices, stored as a bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnedFrames {
    words: Box<[u64]>,
    count: u32,
}

impl OwnedFrames {
    /// Creates an empty set for a frame memory of `frames` frames.
    pub(crate) fn new(frames: u32) -> Self {
        Self { words: vec![0; (frames as usize).div_ceil(64)].into(), count: 0 }
    }

    /// Adds a frame to the set. Returns false if the set already contained the frame.
    #[inline]
    pub(crate) fn insert(&mut self, frame: u32) -> bool {
        let Some(word) = self.words.get_mut(frame as usize / 64) else { return false };
        let bit = 1 << (frame % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Removes a frame from the set. Returns false if the set did not contain the frame.
    #[inline]
    pub(crate) fn remove(&mut self, frame: u32) -> bool {
        let Some(word) = self.words.get_mut(frame as usize / 64) else { return false };
        let bit = 1 << (frame % 64);
        let there = *word & bit != 0;
        *word &= !bit;
        self.count -= u32::from(there);
        there
    }

    /// Returns whether the set contains a frame.
    pub(crate) fn contains(&self, frame: u32) -> bool {
        self.words.get(frame as usize / 64).is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// Returns the number of frames in the set.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Iterates over the frames in the set, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..).zip(&self.words).flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i * 64 + bit)
            })
        })
    }

    /// Removes all frames from the set, and calls `each` with each removed frame.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        for frame in self.iter() {
            each(frame);
        }
        self.words.fill(0);
        self.count = 0;
    }
}

impl FromIterator<u32> for OwnedFrames {
    fn from_iter<I: IntoIterator<Item = u32>>(frames: I) -> Self {
        let frames: Vec<u32> = frames.into_iter().collect();
        let mut set = Self::new(frames.iter().max().map_or(0, |max| max.saturating_add(1)));
        for frame in frames {
            set.insert(frame);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(operations in proptest::collection::vec((any::<bool>(), 0_u32..300), 0..200)) {
            let (mut set, mut oracle) = (OwnedFrames::new(257), BTreeSet::new());
            for (add, frame) in operations {
                if frame < 320 && frame / 64 < 5 {
                    let (got, want) = if add { (set.insert(frame), oracle.insert(frame)) } else { (set.remove(frame), oracle.remove(&frame)) };
                    prop_assert_eq!(got, want);
                }
                prop_assert_eq!(set.len() as usize, oracle.len());
                prop_assert_eq!(set.contains(frame), oracle.contains(&frame));
            }
            prop_assert!(set.iter().eq(oracle.iter().copied()));
            prop_assert_eq!(set.iter().collect::<OwnedFrames>().iter().collect::<Vec<_>>(), oracle.into_iter().collect::<Vec<_>>());
            set.drain(|_| {});
            prop_assert_eq!(set.len(), 0);
        }
    }
}
