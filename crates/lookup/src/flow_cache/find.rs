//! Burst look-up in the flow cache. Memory for all packets of a burst is prefetched before it is first read.
//! Packets are sorted into hits and misses without branches, because such branches would be unpredictable.

use sync::cpu::prefetch_read;

use super::FlowCache;
use super::mask::{KEY_WORDS, Mask};
use super::notes::{Notes, TOGETHER};
use crate::buckets::NO_NUMBER;
#[cfg(target_arch = "x86_64")]
use crate::simd::has_wide_words;

/// Flow index that denotes a miss in the results of [`FlowCache::find_burst`].
pub const MISS: u32 = u32::MAX;

impl<const X: usize, T> FlowCache<X, T> {
    /// Finds the flow of each packet of a burst that was received on one port. Writes to `found` the index of each
    /// packet's flow (for [`FlowCache::get_at`]), or [`MISS`]. The length of `found` is the number of packets.
    ///
    /// `key` and `extended` return the key and the extended key of the packet with a given index. `extended` is
    /// called only if a flow has bits in the extended key, possibly several times for a packet.
    pub fn find_burst<'k>(
        &mut self,
        port: u16,
        key: impl Fn(usize) -> &'k [u64; KEY_WORDS],
        mut extended: impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        if !find_burst_if_wide(self, port, &key, &mut extended, found) {
            self.find_in_bursts(port, &key, &mut extended, found);
        }
    }

    #[inline(always)]
    fn find_in_bursts<'k>(
        &mut self,
        port: u16,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let mut notes = self.notes.take().unwrap_or_default();
        let mut from = 0;
        for found in found.chunks_mut(TOGETHER) {
            let (key, mut extended) = (|at: usize| key(from + at), |at: usize| extended(from + at));
            notes.rest.len = 0;
            if self.hints.is_on() {
                self.ask_hints(&mut notes, &key, &mut extended, found);
            } else {
                (0_u16..).zip(&*found).for_each(|(packet, _)| notes.rest.add_if(packet, true));
            }
            self.ask_masks(usize::from(port), &mut notes, &key, &mut extended, found);
            from += found.len();
        }
        self.notes = Some(notes);
    }

    #[inline(always)]
    fn ask_hints<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        if come_in_rows(key, found.len()) {
            self.ask_hints_in_rows(notes, key, extended, found);
        } else {
            self.ask_hints_each(notes, key, extended, found);
        }
        self.counters.exact += (found.len() - notes.rest.len) as u64;
    }

    /// Looks up packets in the exact-match cache, for bursts in which most packets have the key of the preceding
    /// packet. Such a packet gets the flow of the preceding packet, without hashing and look-up.
    #[inline(always)]
    fn ask_hints_in_rows<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let mut before = None;
        // Flow of the preceding packet, and whether every packet with an equal key belongs to this flow.
        let (mut flow, mut suffices) = (MISS, false);
        let mut hash = 0;
        for (packet, found) in (0_u16..).zip(found.iter_mut()) {
            let at = usize::from(packet);
            let own = key(at);
            if !(suffices && before.is_some_and(|before| is_same(before, own))) {
                hash = self.hints.hash(own);
                let hint = self.hints.find(hash);
                let known = self.flows.get(hint as usize).and_then(|flow| {
                    let mask = self.masks.get(flow.mask as usize)?;
                    flow.is(mask, &self.extended, own, || extended(at)).then_some(!mask.has_beyond())
                });
                (flow, suffices) = known.map_or((MISS, false), |suffices| (hint, suffices));
                before = Some(own);
            }
            notes.exact[at % TOGETHER] = hash;
            *found = flow;
            notes.rest.add_if(packet, flow == MISS);
        }
    }

    #[inline(always)]
    fn ask_hints_each<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        for (at, hash) in notes.exact[..found.len()].iter_mut().enumerate() {
            *hash = self.hints.hash(key(at));
            self.hints.prefetch(*hash);
        }
        for (hash, found) in notes.exact.iter().zip(found.iter_mut()) {
            *found = self.hints.find(*hash);
            self.prefetch_flow(*found);
        }
        for (packet, found) in (0_u16..).zip(found.iter_mut()) {
            let at = usize::from(packet);
            // Not `is_some_and`: the compiler may not inline its closure here.
            let is = if let Some(flow) = self.flows.get(*found as usize)
                && let Some(mask) = self.masks.get(flow.mask as usize)
            {
                flow.is(mask, &self.extended, key(at), || extended(at))
            } else {
                false
            };
            *found = if is { *found } else { MISS };
            notes.rest.add_if(packet, !is);
        }
    }

    /// Prefetches both cache lines of the flow at an index. The second line holds the value, which the caller
    /// reads.
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
        port: usize,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let waiting = notes.rest.len;
        for place in 0..self.ranks.get(port).map_or(0, Vec::len) {
            if notes.rest.len == 0 {
                break;
            }
            self.counters.probes += notes.rest.len as u64;
            let hits = self.ask_mask(self.ranks[port][place].mask, notes, key, extended, found);
            self.ranks[port][place].hits += hits as u64;
        }
        for packet in notes.rest.all() {
            found[usize::from(*packet)] = MISS;
        }
        self.counters.wildcard += (waiting - notes.rest.len) as u64;
        self.counters.misses += notes.rest.len as u64;
    }

    /// Looks up under one mask all packets that have no flow yet. Packets that match are removed from `notes.rest`.
    /// Returns the number of packets for which a flow was found.
    #[inline(always)]
    fn ask_mask<'k>(
        &mut self,
        number: u32,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) -> usize {
        let mask = &self.masks[number as usize];
        let asked = notes.rest.len;
        match mask.pairs() {
            1 => hash_all::<1, X>(mask, notes, key, extended),
            2 => hash_all::<2, X>(mask, notes, key, extended),
            3 => hash_all::<3, X>(mask, notes, key, extended),
            _ => hash_all::<4, X>(mask, notes, key, extended),
        }
        (notes.rest.len, notes.likely.len) = (0, 0);
        for at in 0..asked.min(TOGETHER) {
            let (packet, hash) = (notes.rest.numbers[at], notes.masked[at]);
            let (slot, is_likely) = mask.index.glance(hash);
            (notes.slots[notes.likely.len % TOGETHER], notes.hashes[notes.likely.len % TOGETHER]) =
                (slot, hash);
            notes.likely.add_if(packet, is_likely);
            notes.rest.add_if(packet, !is_likely);
        }
        for slot in &notes.slots[..notes.likely.len.min(TOGETHER)] {
            mask.index.prefetch_slot(*slot);
        }
        for (packet, slot) in notes.likely.all().iter().zip(&notes.slots) {
            let flow = mask.index.number_at(*slot);
            found[usize::from(*packet)] = flow;
            self.prefetch_flow(flow);
        }
        for (packet, hash) in notes.likely.all().iter().zip(&notes.hashes) {
            let at = usize::from(*packet);
            let mut is = |place: u32| {
                let flow = self.flows.get(place as usize);
                flow.is_some_and(|flow| flow.is(mask, &self.extended, key(at), || extended(at)))
            };
            // Usually the likely flow matches. Otherwise another entry may have an equal tag.
            let hit = is(found[at]) || {
                found[at] = mask.index.find(*hash, is).unwrap_or(NO_NUMBER);
                found[at] != NO_NUMBER
            };
            notes.rest.add_if(*packet, !hit);
            if hit {
                self.hints.offer(notes.exact[at], found[at]);
            }
        }
        asked - notes.rest.len
    }
}

/// Returns whether most packets of the burst probably have the key of the preceding packet. Compares only the words
/// that differ most often between flows, without a branch for each packet.
#[inline(always)]
fn come_in_rows<'k>(key: &impl Fn(usize) -> &'k [u64; KEY_WORDS], packets: usize) -> bool {
    /// Indexes of the compared words of a `packet::FlowKey`. Word 5 contains the first half of the IP destination
    /// address. Word 7 contains the L4 ports, TCP flags, TOS and TTL.
    const TELLING: [usize; 2] = [5, 7];
    let follows = |at: &usize| {
        let (before, own) = (key(at - 1), key(*at));
        TELLING.iter().fold(0, |other, word| other | (before[*word] ^ own[*word])) == 0
    };
    2 * (1..packets).map(|at| usize::from(follows(&at))).sum::<usize>() > packets
}

/// Returns whether two keys are equal. Compares all words, without an early exit.
#[inline(always)]
fn is_same(one: &[u64; KEY_WORDS], other: &[u64; KEY_WORDS]) -> bool {
    (0..KEY_WORDS).fold(0, |differ, at| differ | (one[at] ^ other[at])) == 0
}

/// Computes the hash, under `mask`, of each packet that has no flow yet. Prefetches the memory that the search for
/// the packet's flow reads first.
#[inline(always)]
fn hash_all<'k, const PAIRS: usize, const X: usize>(
    mask: &Mask<X>,
    notes: &mut Notes,
    key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
    extended: &mut impl FnMut(usize) -> [u64; X],
) {
    for (packet, hash) in notes.rest.all().iter().zip(&mut notes.masked) {
        let packet = usize::from(*packet);
        *hash = mask.hash_pairs::<PAIRS>(key(packet), || extended(packet));
        mask.index.prefetch(*hash);
    }
}

/// Looks up packets like [`FlowCache::find_burst`], with 256-bit words. Returns `true` if the look-up was done. On a
/// CPU without the instructions for such words (AVX2), returns `false` and does nothing.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls what was compiled for a feature that the CPU has")]
#[inline(always)]
fn find_burst_if_wide<'k, const X: usize, T>(
    cache: &mut FlowCache<X, T>,
    port: u16,
    key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
    beyond: &mut impl FnMut(usize) -> [u64; X],
    found: &mut [u32],
) -> bool {
    if !has_wide_words() {
        return false;
    }
    // SAFETY: The CPU has the features, which were checked above.
    unsafe { find_burst_in_wide_words(cache, port, key, beyond, found) }
    true
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn find_burst_in_wide_words<'k, const X: usize, T>(
    cache: &mut FlowCache<X, T>,
    port: u16,
    key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
    beyond: &mut impl FnMut(usize) -> [u64; X],
    found: &mut [u32],
) {
    cache.find_in_bursts(port, key, beyond, found);
}

/// Returns `false` and does nothing, because architectures other than x86-64 have only the portable path.
#[cfg(not(target_arch = "x86_64"))]
fn find_burst_if_wide<'k, const X: usize, T>(
    _: &mut FlowCache<X, T>,
    _: u16,
    _: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
    _: &mut impl FnMut(usize) -> [u64; X],
    _: &mut [u32],
) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_twins_find_the_same_flows() {
        let mut cache = FlowCache::<1, u32>::new(crate::FlowLimits::default());
        let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = |number: u64| std::array::from_fn(|word| scattered(number << 3 | word as u64));
        for number in 0..2000 {
            let mask = std::array::from_fn(|word| if word as u64 <= number % 8 { u64::MAX } else { 0 });
            cache.insert(3, &key(number), &[number], &mask, &[number % 2], 0).unwrap();
        }
        let keys: Vec<[u64; KEY_WORDS]> = (0..3000).map(key).collect();
        for _ in 0..2 {
            let (mut with, mut without) = (vec![0; keys.len()], vec![0; keys.len()]);
            cache.find_in_bursts(3, &|at| &keys[at], &mut |at| [at as u64], &mut without);
            let done = find_burst_if_wide(&mut cache, 3, &|at| &keys[at], &mut |at| [at as u64], &mut with);
            assert!(!done || with == without);
            assert_eq!(without.iter().filter(|found| **found != MISS).count(), 2000);
        }
    }
}
