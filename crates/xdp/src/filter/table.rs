//! The words of a block list as the hook reads them (`bpf/include/filter_block.h`), and their
//! change under its eyes. There is one writer. Each look-up decides by one word, which is stored
//! at once, so it sees an address listed or not and nothing between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
pub(super) const LINE: usize = 8;
const LENGTHS: usize = 1;
const LENGTHS_MAX: usize = 128;
const STATES: usize = 192;
const STATE_LINES: usize = 1 << 16;
/// The first line of the hash tables.
const TABLES: usize = STATES + STATE_LINES;
const PROBES: usize = 8;
const USED: u64 = 1 << 47;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const RESERVED: u64 = u64::MAX - 1;
/// A slot whose prefix was removed: the complement of what no source begins with.
const REMOVED: u64 = 1;

/// `enum block_word`; the first four are written in their order.
const ALL6: usize = 4;
const HIGH: usize = 4;
const LOW: usize = 5;
/// Where a table's description has its first line, its lines less one, its factor and its shift.
const DESCRIPTION: [usize; 4] = [0, 1, 2, 3];

/// What two bits say of a /24.
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

/// The table has no room; build a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// A hash table inside the list.
#[derive(Debug, Clone, Copy)]
struct Region {
    base: usize,
    lines: usize,
    factor: u64,
    shift: u32,
}

impl Region {
    /// Twice the room that the entries need, in lines of `per_line`.
    fn new(base: usize, entries: usize, per_line: usize, factor: u64) -> Region {
        let lines = (2 * entries).div_ceil(per_line).next_power_of_two().max(2);
        Region { base, lines, factor: factor | 1, shift: 64 - lines.trailing_zeros() }
    }

    fn probes(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let Region { base, lines, factor, shift } = *self;
        let first = usize::try_from(key.wrapping_mul(factor) >> shift).unwrap_or(0);
        (0..PROBES).map(move |probe| (base + ((first + probe) & (lines - 1))) * LINE)
    }

    fn describe(&self, words: &[AtomicU64]) {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let values = [wide(self.base), wide(self.lines - 1), self.factor, u64::from(self.shift)];
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Release);
        }
    }
}

/// Where everything lies: sizes by what is to go in.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    v4: Region,
    /// By prefix length.
    v6: BTreeMap<u8, Region>,
    lines: usize,
}

impl Layout {
    /// Room for so many /28 blocks and so many prefixes of each length, which is 1 to 128.
    pub fn new(blocks4: usize, lengths6: &BTreeMap<u8, usize>, mut random: impl FnMut() -> u64) -> Layout {
        let v4 = Region::new(TABLES, blocks4, LINE, random());
        let mut lines = TABLES + v4.lines;
        let mut v6 = BTreeMap::new();
        for (length, count) in lengths6 {
            let per_line = if *length > 64 { LINE / 2 } else { LINE };
            let region = Region::new(lines, *count, per_line, random());
            lines += region.lines;
            v6.insert(*length, region);
        }
        Layout { v4, v6, lines }
    }

    /// Lines of the whole list.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Writes the descriptions, the lengths in the given order.
    pub fn describe(&self, words: &[AtomicU64], order: impl Iterator<Item = u8>) {
        self.v4.describe(words);
        for (length, at) in order.zip(LENGTHS..LENGTHS + LENGTHS_MAX) {
            let Some(region) = self.v6.get(&length) else { continue };
            let words = &words[at * LINE..];
            region.describe(words);
            let (high, low) = masks(length);
            words[LOW].store(low, Ordering::Release);
            words[HIGH].store(high, Ordering::Release);
        }
    }
}

/// The bits that count of both halves of an address.
fn masks(length: u8) -> (u64, u64) {
    let mask = |bits: u8| u64::MAX.checked_shl(64 - u32::from(bits)).unwrap_or(0);
    (mask(length.min(64)), mask(length.saturating_sub(64)))
}

/// The words, in a map or (in tests) elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub &'a [AtomicU64]);

impl Words<'_> {
    fn get(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Release);
    }

    /// Sets the state of each /24 from `first` to `last`, given by its upper 24 bits.
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

    /// Sets the addresses of a /28, given by its upper 28 bits. Its state is not touched.
    pub fn set_block(&self, layout: &Layout, block: u32, change: impl Fn(u16) -> u16) -> Result<(), Full> {
        let want = USED | u64::from(block);
        for line in layout.v4.probes(u64::from(block)) {
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

    /// Adds an IPv6 prefix of 1 to 128 bits. Full as well when its length has no table.
    pub fn add6(&self, layout: &Layout, address: u128, length: u8) -> Result<(), Full> {
        let Some((region, high, low)) = locate(layout, address, length) else { return Err(Full) };
        if high >= RESERVED {
            return Ok(());
        }
        let step = if length > 64 { 2 } else { 1 };
        let mut free = None;
        'lines: for line in region.probes(high.wrapping_add(low.wrapping_mul(MIX))) {
            for at in (line..line + LINE).step_by(step) {
                let word = self.get(at);
                if word == !high && (step == 1 || self.get(at + 1) == low) {
                    return Ok(());
                }
                // A removed pair keeps its place: look-ups may stand between its halves.
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

    /// Removes an IPv6 prefix.
    pub fn remove6(&self, layout: &Layout, address: u128, length: u8) {
        let Some((region, high, low)) = locate(layout, address, length) else { return };
        let step = if length > 64 { 2 } else { 1 };
        for line in region.probes(high.wrapping_add(low.wrapping_mul(MIX))) {
            for at in (line..line + LINE).step_by(step) {
                if self.get(at) == !high && (step == 1 || self.get(at + 1) == low) {
                    self.set(at, REMOVED);
                }
            }
        }
    }

    /// Whether an IPv4 address is listed: `listed4()` of the hook.
    pub fn lists4(&self, address: u32) -> bool {
        match self.state(address >> 8) {
            State::None => return false,
            State::All => return true,
            State::Some => {}
        }
        let want = USED | u64::from(address >> 4);
        for line in self.lines(0, u64::from(address >> 4)) {
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

    /// Whether an IPv6 address is listed: `search6()` of the hook.
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
            for line in self.lines(length, high.wrapping_add(low.wrapping_mul(MIX))) {
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

    /// The lines of a table in which a key can be, by the line that describes the table.
    fn lines(&self, description: usize, key: u64) -> impl Iterator<Item = usize> + use<> {
        let [base, mask, factor, shift] = DESCRIPTION.map(|word| self.seen(description * LINE + word));
        let first = key.wrapping_mul(factor) >> (shift & 63);
        (0_u64..).take(PROBES).map(move |probe| {
            let line = base.wrapping_add(first.wrapping_add(probe) & mask);
            usize::try_from(line).unwrap_or(0).saturating_mul(LINE)
        })
    }

    /// A word of a table that may be written at this moment; beyond the table nothing is.
    fn seen(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Whether ::/0 is listed.
    pub fn set_all6(&self, all: bool) {
        self.set(ALL6, u64::from(all));
    }
}

fn locate(layout: &Layout, address: u128, length: u8) -> Option<(&Region, u64, u64)> {
    let half = |shift: u32| u64::try_from(address >> shift & u128::from(u64::MAX)).unwrap_or(0);
    layout.v6.get(&length).map(|region| (region, half(64), half(0)))
}
