//! Lookup table of a block list in the format that the XDP program reads (`bpf/include/filter_block.h`). There is one
//! writer, which changes the table while programs read it. The result of a lookup depends on one word, which is stored
//! atomically. While an entry changes, a lookup therefore returns either the old or the new result.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of 64-bit words in a line of the table, which is a cache line.
pub(super) const LINE: usize = 8;
const LENGTHS: usize = 1;
const LENGTHS_MAX: usize = 128;
const STATES: usize = 192;
const STATE_LINES: usize = 1 << 16;
/// Index of the first line of the hash tables. These lines follow the lines with the states of the IPv4 /24 blocks.
const TABLES: usize = STATES + STATE_LINES;
const PROBES: usize = 8;
const USED: u64 = 1 << 47;
const RESERVED: u64 = u64::MAX - 1;
/// Value of a hash table slot from which an IPv6 prefix was removed. A slot holds the complement of the first 64 bits
/// of a prefix. The complement of this value is the beginning of a multicast address, which cannot be a source address.
const REMOVED: u64 = 1;

/// Index, in the first line of the table, of the word that states whether ::/0 is listed (`enum block_word`).
/// `HIGH` and `LOW` are the indices of the mask words in the description of an IPv6 prefix length.
const ALL6: usize = 4;
const HIGH: usize = 4;
const LOW: usize = 5;
/// Index, in the description of a hash table, of the word with the line number at which the hash table begins. `MASK`
/// is the index of the word with the number of the hash table's lines minus one.
const BASE: usize = 0;
const MASK: usize = 1;
/// Index, in the description of the IPv4 hash table, of the word with the hash factor. `SHIFT` is the index of the word
/// with the shift of the hash.
const FACTOR: usize = 2;
const SHIFT: usize = 3;
/// Indices, in the description of an IPv6 hash table, of the words with the hash factors. There is one factor for each
/// 32 bits of an address.
const FACTORS: [usize; 4] = [2, 3, 6, 7];

/// State of an IPv4 /24 block in two bits: none, all or some of its addresses are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    None,
    All,
    Some,
}

impl State {
    const fn bits(self) -> u64 {
        match self {
            State::None => 0,
            State::All => 1,
            State::Some => 2,
        }
    }
}

/// Error of an insertion: the hash table has no space for the entry. The caller must build a larger table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// A hash table inside the lookup table of a block list. The hash table holds IPv4 /28 blocks, or the IPv6 prefixes of
/// one length.
#[derive(Debug, Clone, Copy)]
struct Region {
    base: usize,
    lines: usize,
    /// Secret factors of the hash function. Senders can influence which addresses an operator lists, so they
    /// must not be able to choose addresses that share a line. The IPv4 hash table uses only the first factor.
    factors: [u64; 4],
}

impl Region {
    /// Creates the description of a hash table that begins at line `base` and has space for twice as many
    /// entries as `entries`. A line holds `per_line` entries.
    fn new(base: usize, entries: usize, per_line: usize, factors: [u64; 4]) -> Region {
        let lines = (2 * entries).div_ceil(per_line).next_power_of_two().max(2);
        Region { base, lines, factors }
    }

    fn probes(&self, first: u64) -> impl Iterator<Item = usize> + use<> {
        let Region { base, lines, .. } = *self;
        let first = usize::try_from(first).unwrap_or(0);
        (0..PROBES).map(move |probe| (base + (first.wrapping_add(probe) & (lines - 1))) * LINE)
    }

    /// Returns the line of the hash table at which the search for an IPv4 /28 block begins.
    fn home4(&self, block: u32) -> u64 {
        home4(block, self.factors[0] | 1, u64::from(self.shift()))
    }

    fn shift(&self) -> u32 {
        64 - self.lines.trailing_zeros()
    }

    fn describe(&self, words: &[AtomicU64], rest: impl IntoIterator<Item = (usize, u64)>) {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let own = [(BASE, wide(self.base)), (MASK, wide(self.lines - 1))];
        for (at, value) in own.into_iter().chain(rest) {
            words[at].store(value, Ordering::Release);
        }
    }
}

/// Returns the line at which the search for an IPv4 /28 block begins. Mirrors `listed4()` of the XDP program.
fn home4(block: u32, factor: u64, shift: u64) -> u64 {
    u64::from(block).wrapping_mul(factor) >> (shift & 63)
}

/// Returns the line at which the search for an IPv6 prefix begins. Mirrors `block_home6()` of the XDP program. The hash
/// is a multilinear function of the 32-bit words of the prefix. A sender that does not know the factors cannot choose
/// prefixes that share a line more often than random prefixes do.
fn home6(high: u64, low: u64, factors: [u64; 4]) -> u64 {
    let words = [high >> 32, high & 0xffff_ffff, low >> 32, low & 0xffff_ffff];
    let sum = words
        .into_iter()
        .zip(factors)
        .fold(0_u64, |sum, (word, factor)| sum.wrapping_add(word.wrapping_mul(factor)));
    sum >> 32
}

/// Layout of a block list's lookup table, sized for the number of prefixes to be stored.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    v4: Region,
    /// Hash tables by the length of the IPv6 prefixes that they hold.
    v6: BTreeMap<u8, Region>,
    lines: usize,
}

impl Layout {
    /// Creates a layout with space for `blocks4` IPv4 /28 blocks. `lengths6` is the number of IPv6 prefixes
    /// of each length, 1 to 128. `random` returns the secret hash factors.
    pub fn new(blocks4: usize, lengths6: &BTreeMap<u8, usize>, mut random: impl FnMut() -> u64) -> Layout {
        let mut factors = || std::array::from_fn(|_| random());
        let v4 = Region::new(TABLES, blocks4, LINE, factors());
        let mut lines = TABLES + v4.lines;
        let mut v6 = BTreeMap::new();
        for (length, count) in lengths6 {
            let per_line = if *length > 64 { LINE / 2 } else { LINE };
            let region = Region::new(lines, *count, per_line, factors());
            lines += region.lines;
            v6.insert(*length, region);
        }
        Layout { v4, v6, lines }
    }

    /// Returns the number of lines of the whole lookup table.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Writes the descriptions of the hash tables to the words of the lookup table. The hash tables of the
    /// IPv6 prefix lengths are described in the given order.
    pub fn describe(&self, words: &[AtomicU64], order: impl Iterator<Item = u8>) {
        let shift = u64::from(self.v4.shift());
        self.v4.describe(words, [(FACTOR, self.v4.factors[0] | 1), (SHIFT, shift)]);
        for (length, at) in order.zip(LENGTHS..LENGTHS + LENGTHS_MAX) {
            let Some(region) = self.v6.get(&length) else { continue };
            let words = &words[at * LINE..];
            region.describe(words, FACTORS.into_iter().zip(region.factors));
            let (high, low) = masks(length);
            words[LOW].store(low, Ordering::Release);
            words[HIGH].store(high, Ordering::Release);
        }
    }
}

/// Returns the masks of the upper and the lower 64 bits of an IPv6 address for a prefix length.
fn masks(length: u8) -> (u64, u64) {
    let mask = |bits: u8| u64::MAX.checked_shl(64 - u32::from(bits)).unwrap_or(0);
    (mask(length.min(64)), mask(length.saturating_sub(64)))
}

/// Words of a block list's lookup table, in a map or (in tests) in other memory.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub &'a [AtomicU64]);

impl Words<'_> {
    fn get(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Release);
    }

    /// Sets the states of the IPv4 /24 blocks from `first` to `last`. A block is identified by its upper 24
    /// bits.
    pub fn set_states(&self, first: u32, last: u32, state: impl Fn(u32) -> State) {
        let word_of = |block: u32| usize::try_from(block >> 5).unwrap_or(0);
        for index in word_of(first)..=word_of(last) {
            let at = STATES * LINE + index;
            let before = self.get(at);
            let mut word = before;
            for place in 0..32_u32 {
                let block = u32::try_from(index).unwrap_or(0) << 5 | place;
                if (first..=last).contains(&block) {
                    word = word & !(3 << (2 * place)) | state(block).bits() << (2 * place);
                }
            }
            if word != before {
                self.set(at, word);
            }
        }
    }

    pub fn state(&self, block: u32) -> State {
        let at = STATES * LINE + usize::try_from(block >> 5).unwrap_or(0);
        match self.get(at) >> (2 * (block & 31)) & 3 {
            0 => State::None,
            1 => State::All,
            _ => State::Some,
        }
    }

    /// Changes the bits of the listed addresses in an IPv4 /28 block, which is identified by its upper 28 bits. The
    /// state of the enclosing /24 block is not changed. Returns [`Full`] if the hash table has no space for the /28
    /// block.
    pub fn set_block(&self, layout: &Layout, block: u32, change: impl Fn(u16) -> u16) -> Result<(), Full> {
        let want = USED | u64::from(block);
        for line in layout.v4.probes(layout.v4.home4(block)) {
            for at in line..line + LINE {
                let word = self.get(at);
                if word == 0 || word >> 16 == want {
                    let after = change(u16::try_from(word & 0xffff).unwrap_or(0));
                    if word != 0 || after != 0 {
                        self.set(at, want << 16 | u64::from(after));
                    }
                    return Ok(());
                }
            }
        }
        Err(Full)
    }

    /// Adds an IPv6 prefix with a length of 1 to 128 bits. Returns [`Full`] if the hash table of this prefix length has
    /// no space, or if the layout has no hash table for this length.
    pub fn add6(&self, layout: &Layout, address: u128, length: u8) -> Result<(), Full> {
        let Some((region, high, low)) = locate(layout, address, length) else { return Err(Full) };
        if high >= RESERVED {
            return Ok(());
        }
        let step = if length > 64 { 2 } else { 1 };
        let mut free = None;
        'lines: for line in region.probes(home6(high, low, region.factors)) {
            for at in (line..line + LINE).step_by(step) {
                let word = self.get(at);
                if word == !high && (step == 1 || self.get(at + 1) == low) {
                    return Ok(());
                }
                // A pair of words from which a prefix was removed is not reused, because a lookup that has read the
                // first word may read the second word afterwards.
                if word == 0 || (word == REMOVED && step == 1) {
                    free = free.or(Some(at));
                }
                if word == 0 {
                    break 'lines;
                }
            }
        }
        let at = free.ok_or(Full)?;
        if step == 2 {
            self.set(at + 1, low);
        }
        self.set(at, !high);
        Ok(())
    }

    /// Removes an IPv6 prefix from its hash table.
    pub fn remove6(&self, layout: &Layout, address: u128, length: u8) {
        let Some((region, high, low)) = locate(layout, address, length) else { return };
        let step = if length > 64 { 2 } else { 1 };
        for line in region.probes(home6(high, low, region.factors)) {
            for at in (line..line + LINE).step_by(step) {
                if self.get(at) == !high && (step == 1 || self.get(at + 1) == low) {
                    self.set(at, REMOVED);
                }
            }
        }
    }

    /// Returns whether a prefix of the block list covers an IPv4 address. Mirrors `listed4()` of the XDP program.
    pub fn lists4(&self, address: u32) -> bool {
        match self.state(address >> 8) {
            State::None => return false,
            State::All => return true,
            State::Some => {}
        }
        let want = USED | u64::from(address >> 4);
        let home = home4(address >> 4, self.seen(FACTOR), self.seen(SHIFT));
        for line in self.lines(0, home) {
            for word in (line..line + LINE).map(|at| self.seen(at)) {
                if word >> 16 == want {
                    return word >> (address & 15) & 1 != 0;
                }
            }
            if self.seen(line + LINE - 1) == 0 {
                return false;
            }
        }
        false
    }

    /// Returns whether a prefix of the block list covers an IPv6 address. Mirrors `search6()` of the XDP program.
    pub fn lists6(&self, address: u128) -> bool {
        if self.seen(ALL6) != 0 {
            return true;
        }
        let half = |shift: u32| u64::try_from(address >> shift & u128::from(u64::MAX)).unwrap_or(0);
        if half(64) >= RESERVED {
            return false;
        }
        for length in LENGTHS..LENGTHS + LENGTHS_MAX {
            let masks = (self.seen(length * LINE + HIGH), self.seen(length * LINE + LOW));
            if masks.0 == 0 {
                return false;
            }
            let (high, low) = (half(64) & masks.0, half(0) & masks.1);
            let step = if masks.1 == 0 { 1 } else { 2 };
            let factors = FACTORS.map(|at| self.seen(length * LINE + at));
            for line in self.lines(length, home6(high, low, factors)) {
                let is_here = |at: usize| self.seen(at) == !high && (step == 1 || self.seen(at + 1) == low);
                if (line..line + LINE).step_by(step).any(is_here) {
                    return true;
                }
                if self.seen(line + LINE - step) == 0 {
                    break;
                }
            }
        }
        false
    }

    /// Returns the index of the first word of each line that can hold an entry of a hash table. `first` is the
    /// line at which the search begins. `description` is the index of the words that describe the hash table.
    fn lines(&self, description: usize, first: u64) -> impl Iterator<Item = usize> + use<> {
        let [base, mask] = [BASE, MASK].map(|word| self.seen(description * LINE + word));
        (0_u64..).take(PROBES).map(move |probe| {
            let line = base.wrapping_add(first.wrapping_add(probe) & mask);
            usize::try_from(line).unwrap_or(0).saturating_mul(LINE)
        })
    }

    /// Reads a word of the table that another thread may write at the same time. Words beyond the table are
    /// read as 0.
    fn seen(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets whether the block list contains the prefix ::/0, which covers all IPv6 addresses.
    pub fn set_all6(&self, all: bool) {
        self.set(ALL6, u64::from(all));
    }
}

fn locate(layout: &Layout, address: u128, length: u8) -> Option<(&Region, u64, u64)> {
    let half = |shift: u32| u64::try_from(address >> shift & u128::from(u64::MAX)).unwrap_or(0);
    layout.v6.get(&length).map(|region| (region, half(64), half(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a generator of pseudo-random words. The sequence of words is the same in every run.
    fn noise(secret: u64) -> impl FnMut() -> u64 {
        let mut state = secret.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
    }

    fn memory(layout: &Layout) -> Vec<AtomicU64> {
        (0..layout.lines() * LINE).map(|_| AtomicU64::new(0)).collect()
    }

    /// Adds `addresses` to a new lookup table that has space for this number of addresses. Returns the number of
    /// addresses that a lookup then finds in the table.
    fn placed(addresses: &[u128], random: impl FnMut() -> u64) -> usize {
        let layout = Layout::new(64, &BTreeMap::from([(128, addresses.len().max(64))]), random);
        let memory = memory(&layout);
        layout.describe(&memory, std::iter::once(128));
        let words = Words(&memory);
        let placed = addresses.iter().filter(|address| words.add6(&layout, **address, 128).is_ok());
        placed.filter(|address| words.lists6(**address)).count()
    }

    #[test]
    fn no_chosen_addresses_meet_in_one_line_whatever_the_secret() {
        let half = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let families: [Vec<u128>; 3] = [
            // These addresses would collide in a hash that multiplies the lower half by a publicly known number and
            // adds the upper half.
            (0..256_u64)
                .map(|i| half((0x2001_u64 << 48).wrapping_sub(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)), i))
                .collect(),
            // These addresses differ only in the upper bits of a half. They would collide in hashes that use products
            // with odd numbers.
            (0..4096_u64).map(|i| half((i >> 6) << 58, (i & 63) << 58)).collect(),
            (0..4096_u64).map(|i| half(0x2001 << 48 | i << 32, i << 32)).collect(),
        ];
        for (number, family) in families.iter().enumerate() {
            for secret in 1..20 {
                assert_eq!(placed(family, noise(secret)), family.len(), "family {number}, secret {secret}");
            }
        }
    }

    #[test]
    fn what_finds_no_place_is_told_and_not_listed() {
        // All addresses hash to the first line.
        let addresses: Vec<u128> = (0..40).map(|i| 0x2001_0db8 << 96 | i).collect();
        assert_eq!(placed(&addresses, || 0), PROBES * LINE / 2);
    }
}
