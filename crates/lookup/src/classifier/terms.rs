//! Mask words that several subtables share.
//!
//! A key's word has an equal contribution to the hashes of all these subtables, so a burst of keys computes
//! it once.

/// Maximum number of mask words that are recorded as shared.
pub const MOST_TERMS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Term {
    at: usize,
    mask: u64,
    /// Number of subtables that use the word.
    uses: u32,
}

/// Table of shared mask words. See the [module](self).
#[derive(Debug, Default)]
pub struct Terms([Term; MOST_TERMS]);

impl Terms {
    /// Records a new subtable with these mask bits in one word. Returns the index of the term, or `None` if
    /// the table is full.
    pub fn take(&mut self, at: usize, mask: u64) -> Option<u8> {
        let same = self.0.iter().position(|term| term.uses > 0 && (term.at, term.mask) == (at, mask));
        let place = same.or_else(|| self.0.iter().position(|term| term.uses == 0))?;
        let uses = self.0[place].uses + 1;
        self.0[place] = Term { at, mask, uses };
        u8::try_from(place).ok()
    }

    /// Releases a term that [`Terms::take`] returned.
    pub fn release(&mut self, place: Option<u8>) {
        if let Some(term) = place.and_then(|place| self.0.get_mut(usize::from(place))) {
            term.uses -= 1;
        }
    }

    /// Returns the index of a term if more than one subtable uses it.
    #[inline(always)]
    pub fn shared(&self, place: Option<u8>) -> Option<usize> {
        let place = usize::from(place?) % MOST_TERMS;
        (self.0[place].uses > 1).then_some(place)
    }
}
