//! The way of a burst through the cache: what memory is asked for, is asked for all packets before any waits for it.

use sync::cpu::prefetch_read;

use super::{FlowCache, KEY_WORDS};

/// What stands for "no flow" among the places that [`FlowCache::find_burst`] names.
pub const MISS: u32 = u32::MAX;
/// Packets that go through together: a few KiB of notes about them stay in L1.
const TOGETHER: usize = 256;

/// Notes about the packets of a burst.
struct Notes {
    /// Hashes of the whole keys.
    exact: [u32; TOGETHER],
    /// Hashes under the mask that is being asked.
    masked: [u32; TOGETHER],
    /// Packets without a flow yet: their numbers stand first.
    rest: [u16; TOGETHER],
    left: usize,
}

impl<const X: usize, T> FlowCache<X, T> {
    /// Finds the flows of packets, whose number `found` says: their places, for [`FlowCache::get_at`], or [`MISS`].
    ///
    /// `key` and `beyond` are asked for packets by their number; `beyond` only where a flow has bits there, and maybe several times.
    pub fn find_burst<'k>(
        &mut self,
        key: impl Fn(usize) -> &'k [u64; KEY_WORDS],
        mut beyond: impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let mut notes = Notes { exact: [0; TOGETHER], masked: [0; TOGETHER], rest: [0; TOGETHER], left: 0 };
        let mut from = 0;
        for found in found.chunks_mut(TOGETHER) {
            let (key, mut beyond) = (|at: usize| key(from + at), |at: usize| beyond(from + at));
            if self.hints.is_on() {
                self.ask_hints(&mut notes, &key, &mut beyond, found);
            } else {
                for (at, rest) in (0_u16..).zip(&mut notes.rest[..found.len()]) {
                    *rest = at;
                }
                notes.left = found.len();
            }
            self.ask_masks(&mut notes, &key, &mut beyond, found);
            from += found.len();
        }
    }

    #[inline(always)]
    fn ask_hints<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        beyond: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let count = found.len();
        for (at, hash) in notes.exact[..count].iter_mut().enumerate() {
            *hash = self.hints.hash(key(at));
            self.hints.prefetch(*hash);
        }
        for (hash, found) in notes.exact.iter().zip(found.iter_mut()) {
            *found = self.hints.find(*hash);
            self.prefetch_flow(*found);
        }
        notes.left = 0;
        for (at, found) in (0_u16..).zip(found) {
            let packet = usize::from(at);
            let is = self.flows.get(*found as usize).is_some_and(|flow| {
                let mask = self.masks.get(flow.mask as usize);
                mask.is_some_and(|mask| flow.is(mask, &self.beyond, key(packet), || beyond(packet)))
            });
            *found = if is { *found } else { MISS };
            notes.rest[notes.left] = at;
            notes.left += usize::from(!is);
        }
        self.counters.exact += (count - notes.left) as u64;
    }

    /// Both lines of a flow; the second is for whoever reads the value.
    #[inline(always)]
    fn prefetch_flow(&self, at: u32) {
        if let Some(flow) = self.flows.get(at as usize) {
            prefetch_read(&flow.key);
            prefetch_read(&flow.mask);
        }
    }

    #[inline(always)]
    fn ask_masks<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        beyond: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let waiting = notes.left;
        for place in 0..self.order.len() {
            if notes.left == 0 {
                break;
            }
            self.counters.probes += notes.left as u64;
            self.ask_mask(self.order[place], notes, key, beyond, found);
        }
        for packet in &notes.rest[..notes.left] {
            found[usize::from(*packet)] = MISS;
        }
        self.counters.wildcard += (waiting - notes.left) as u64;
        self.counters.misses += notes.left as u64;
    }

    /// Asks all packets that are left against one mask; those that it has no flow for are left.
    #[inline(always)]
    fn ask_mask<'k>(
        &mut self,
        number: u32,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        beyond: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let mask = &self.masks[number as usize];
        let asked = notes.left;
        for (packet, hash) in notes.rest[..asked].iter().zip(&mut notes.masked) {
            let packet = usize::from(*packet);
            *hash = mask.hash(key(packet), || beyond(packet));
            mask.index.prefetch(*hash);
        }
        for (packet, hash) in notes.rest[..asked].iter().zip(&notes.masked) {
            let first = mask.index.first(*hash);
            found[usize::from(*packet)] = first;
            self.prefetch_flow(first);
        }
        notes.left = 0;
        for at in 0..asked {
            let packet = usize::from(notes.rest[at]);
            let mut is = |place: u32| {
                let flow = self.flows.get(place as usize);
                flow.is_some_and(|flow| flow.is(mask, &self.beyond, key(packet), || beyond(packet)))
            };
            let first = found[packet];
            let hit = if is(first) {
                true
            } else if mask.index.is_all(notes.masked[at], first) {
                false
            } else {
                let other = mask.index.find(notes.masked[at], is);
                found[packet] = other.unwrap_or(MISS);
                other.is_some()
            };
            if hit {
                self.hints.offer(notes.exact[packet], found[packet]);
            }
            notes.rest[notes.left] = notes.rest[at];
            notes.left += usize::from(!hit);
        }
        let hits = asked - notes.left;
        self.masks[number as usize].hits += hits as u64;
    }
}
