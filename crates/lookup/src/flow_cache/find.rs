//! Burst look-up in the flow cache. Memory for all packets of a burst is prefetched before it is first read.
//! Packets are sorted into hits and misses without branches, because such branches would be unpredictable.

use sync::cpu::prefetch_read;

use super::mask::Mask;
use super::{FlowCache, KEY_WORDS};
use crate::buckets::{NO_NUMBER, Slot};
use crate::simd;

/// Flow index that denotes a miss in the results of [`FlowCache::find_burst`].
pub const MISS: u32 = u32::MAX;
/// Number of packets that are processed together. The state of these packets has a few KiB and stays in the
/// L1 cache.
const TOGETHER: usize = 256;

/// State of the look-up of a burst. The state is kept between bursts, because initialising it takes as long
/// as looking up a dozen packets. Most bursts of a worker with little load have only one packet.
#[derive(Debug)]
pub(super) struct Notes {
    /// For each packet, hash of the complete key.
    exact: [u32; TOGETHER],
    /// For each packet that has no flow yet, hash of the key under the current mask, in the order of `rest`.
    masked: [u32; TOGETHER],
    /// Packets for which no flow has been found yet.
    rest: Packets,
    /// Packets for which a flow with the current mask may exist. `hashes` and `slots` hold the hash of each
    /// packet and the position of its flow index in the hash table.
    likely: Packets,
    hashes: [u32; TOGETHER],
    slots: [Slot; TOGETHER],
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            exact: [0; TOGETHER],
            masked: [0; TOGETHER],
            rest: Packets::NONE,
            likely: Packets::NONE,
            hashes: [0; TOGETHER],
            slots: [Slot::NONE; TOGETHER],
        }
    }
}

/// A subset of the packets of a burst, by their indexes.
#[derive(Debug)]
struct Packets {
    numbers: [u16; TOGETHER],
    len: usize,
}

impl Packets {
    const NONE: Packets = Packets { numbers: [0; TOGETHER], len: 0 };

    fn all(&self) -> &[u16] {
        &self.numbers[..self.len.min(TOGETHER)]
    }

    /// Adds the packet with index `number` if `is` is `true`.
    #[inline(always)]
    fn add_if(&mut self, number: u16, is: bool) {
        self.numbers[self.len % TOGETHER] = number;
        self.len += usize::from(is);
    }
}

impl<const X: usize, T> FlowCache<X, T> {
    /// Finds the flow of each packet of a burst that was received on one port. Writes the index of the
    /// packet's flow, for [`FlowCache::get_at`], or [`MISS`] to `found`. The length of `found` is the number
    /// of packets.
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
        if !simd::find_burst(self, port, &key, &mut extended, found) {
            self.find_in_bursts(port, &key, &mut extended, found);
        }
    }

    #[inline(always)]
    pub(crate) fn find_in_bursts<'k>(
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

    /// Looks up packets in the exact-match cache, for bursts in which most packets have the key of the
    /// preceding packet. A packet with the key of the preceding packet gets the flow of that packet, without
    /// hashing and look-up.
    #[inline(always)]
    fn ask_hints_in_rows<'k>(
        &mut self,
        notes: &mut Notes,
        key: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
        extended: &mut impl FnMut(usize) -> [u64; X],
        found: &mut [u32],
    ) {
        let mut before = None;
        // Flow of the preceding packet, and whether it is the flow of every packet with an equal key.
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
            let is = self.flows.get(*found as usize).is_some_and(|flow| {
                let mask = self.masks.get(flow.mask as usize);
                mask.is_some_and(|mask| flow.is(mask, &self.extended, key(at), || extended(at)))
            });
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

    /// Looks up all packets that have no flow yet under one mask. Removes the packets that match from
    /// `rest`. Returns the number of packets for which a flow was found.
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

/// Returns whether most packets of the burst probably have the key of the preceding packet. Compares only the
/// words that differ most often between flows, without a branch for each packet.
#[inline(always)]
fn come_in_rows<'k>(key: &impl Fn(usize) -> &'k [u64; KEY_WORDS], packets: usize) -> bool {
    /// Indexes of the compared words of a `packet::FlowKey`. One word contains the first half of the
    /// destination address. The other word contains the ports, TOS and TTL.
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

/// Computes the hash of each packet that has no flow yet, and prefetches the memory that its search reads
/// first.
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
