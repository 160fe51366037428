//! Table of the mask words that several subtables share.
//!
//! If the masks of several subtables have equal bits in a word, then this word of a key adds an equal number to the
//! hash sums of the key in all these subtables. A burst look-up computes this number once for each key.

/// Maximum number of mask words that are recorded as shared.
pub const MOST_TERMS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Term {
    at: usize,
    mask: u64,
    /// Number of subtables whose masks have this word.
    uses: u32,
}

/// Table of shared mask words. See the [module](self).
#[derive(Debug, Default)]
pub struct Terms([Term; MOST_TERMS]);

impl Terms {
    /// Records that a new subtable has the mask bits `mask` in the key word with the index `at`. Returns the index of
    /// this mask word in the table, or `None` if the table is full.
    pub fn take(&mut self, at: usize, mask: u64) -> Option<u8> {
        let same = self.0.iter().position(|term| term.uses > 0 && (term.at, term.mask) == (at, mask));
        let place = same.or_else(|| self.0.iter().position(|term| term.uses == 0))?;
        let uses = self.0[place].uses + 1;
        self.0[place] = Term { at, mask, uses };
        u8::try_from(place).ok()
    }

    /// Records that a subtable no longer uses a mask word. `place` is the index that [`Terms::take`]
    /// returned.
    pub fn release(&mut self, place: Option<u8>) {
        if let Some(term) = place.and_then(|place| self.0.get_mut(usize::from(place))) {
            term.uses -= 1;
        }
    }

    /// Returns the index of a mask word if more than one subtable uses the word, and `None` if not.
    #[inline(always)]
    pub fn shared(&self, place: Option<u8>) -> Option<usize> {
        let place = usize::from(place?) % MOST_TERMS;
        (self.0[place].uses > 1).then_some(place)
    }
}
