//! Words of masks that several subtables have.
//!
//! What a key's word adds to its hashes is then the same for all of them, and a burst of keys works it out once.

/// Words that are known to be of several masks, at most.
pub const MOST_TERMS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Term {
    at: usize,
    mask: u64,
    /// Subtables.
    uses: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Terms([Term; MOST_TERMS]);

impl Terms {
    /// A subtable has come whose mask has these bits in one word. Where that stands; `None`: there are too many already.
    pub fn take(&mut self, at: usize, mask: u64) -> Option<u8> {
        let same = self.0.iter().position(|term| term.uses > 0 && (term.at, term.mask) == (at, mask));
        let place = same.or_else(|| self.0.iter().position(|term| term.uses == 0))?;
        let uses = self.0[place].uses + 1;
        self.0[place] = Term { at, mask, uses };
        u8::try_from(place).ok()
    }

    /// One that was taken goes.
    pub fn release(&mut self, place: Option<u8>) {
        if let Some(term) = place.and_then(|place| self.0.get_mut(usize::from(place))) {
            term.uses -= 1;
        }
    }

    /// The place, if more than one subtable has it.
    #[inline(always)]
    pub fn shared(&self, place: Option<u8>) -> Option<usize> {
        let place = usize::from(place?) % MOST_TERMS;
        (self.0[place].uses > 1).then_some(place)
    }
}
