//! The reader side of a trie: look-up of next hops. The crate's documentation describes the memory layout.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::qsbr::Reader;

use crate::prefix::Address;
use crate::words::Shared;

/// Index of the word that holds the next hop of the default route.
pub const DEFAULT: usize = 0;
/// Index of the first word of the root table.
pub const ROOT: usize = 1;
/// Flag in an entry of the root table. If the flag is set, the lower half of the entry is the index of a node. If the
/// flag is clear, the lower half is a next hop.
pub const IS_NODE: u64 = 1 << 63;
/// Number of address bits that select a slot of a node.
pub const STRIDE: u32 = 6;
/// Number of words in a node.
pub const NODE: usize = 3;
/// Number of addresses that are looked up together. The number is large enough to overlap memory latencies,
/// and small enough for the state to stay in registers and the L1 cache.
const LANES: usize = 16;

/// Next hop of a prefix: a number whose meaning the caller that inserts the prefix defines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hop(pub u32);

impl Hop {
    /// Next hop that a look-up returns for addresses that no prefix contains. A prefix cannot have this next
    /// hop.
    pub const NONE: Hop = Hop(0);
}

/// Read access to the trie of a `Table`, for look-ups. All clones refer to the same table.
#[derive(Debug)]
pub struct Trie<A> {
    shared: Arc<Shared>,
    address: PhantomData<fn(A)>,
}

impl<A> Clone for Trie<A> {
    fn clone(&self) -> Self {
        Trie { shared: Arc::clone(&self.shared), address: PhantomData }
    }
}

/// Returns the lower 32 bits of a word.
#[inline(always)]
pub fn low(word: u64) -> u32 {
    // The upper half is another number.
    #[allow(clippy::cast_possible_truncation, reason = "half of the word")]
    let low = word as u32;
    low
}

/// Returns the number of bits that are set in `bits`, from bit 0 to bit `slot` inclusive.
#[inline(always)]
fn rank(bits: u64, slot: usize) -> usize {
    // The shift is at most 63, and all bits above the slot are shifted out.
    let upto = bits << (63 - (slot & 63));
    upto.count_ones().try_into().unwrap_or(64)
}

#[inline(always)]
fn word(words: &[AtomicU64], at: usize) -> u64 {
    // An index out of range is a programming error. The reader then reads 0, and the walk ends.
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Converts a 32-bit index to `usize`.
#[inline(always)]
pub fn place(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Descends one level in the trie: follows the slot `slot` of the node at index `node`. Returns the index of the slot's
/// target and whether the target is a node. If the target is a next hop, the returned number is twice the index of the
/// word that holds the next hop, plus one if the next hop is in the upper half of the word.
///
/// The function computes both possible targets and selects one of them without a branch. The CPU cannot predict the
/// selection, and a mispredicted branch costs more than the second computation.
#[inline(always)]
fn step(words: &[AtomicU64], node: usize, slot: usize) -> (usize, bool) {
    let (children, leaves, bases) = (word(words, node), word(words, node + 1), word(words, node + 2));
    let is_node = children >> (slot & 63) & 1 == 1;
    let child = place(low(bases)) + NODE * rank(children, slot).saturating_sub(1);
    let half = 2 * place(low(bases >> 32)) + rank(leaves, slot).saturating_sub(1);
    (std::hint::select_unpredictable(is_node, child, half), is_node)
}

#[inline(always)]
fn prefetch(words: &[AtomicU64], at: usize) {
    if let Some(word) = words.get(at) {
        sync::cpu::prefetch_read(word);
    }
}

impl<A: Address> Trie<A> {
    pub(crate) fn new(shared: &Arc<Shared>) -> Trie<A> {
        Trie { shared: Arc::clone(shared), address: PhantomData }
    }

    /// Looks up the next hop of each address and writes it to `hops`. If the slices have different lengths,
    /// only the length of the shorter slice is processed.
    ///
    /// # Panics
    /// Panics if the reader is offline or belongs to another domain (programming errors).
    pub fn look_up(&self, reader: &Reader, addresses: &[A], hops: &mut [Hop]) {
        reader.check(&self.shared.domain);
        if !look_up_counting(&self.shared.words, addresses, hops) {
            look_up(&self.shared.words, addresses, hops);
        }
    }
}

/// Looks up the addresses in groups. All addresses of a group descend one level before the next level begins, so that
/// their memory accesses overlap. Meanwhile, the first words for the next group are prefetched.
#[inline(always)]
pub fn look_up<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) {
    let root = |address: &A| ROOT + address.bits(0, A::ROOT_BITS);
    addresses.iter().take(LANES).for_each(|address| prefetch(words, root(address)));
    let ahead = addresses.chunks(LANES).skip(1).chain(std::iter::once(&[][..]));
    for ((addresses, hops), ahead) in addresses.chunks(LANES).zip(hops.chunks_mut(LANES)).zip(ahead) {
        ahead.iter().for_each(|address| prefetch(words, root(address)));
        let mut at = [0_usize; LANES];
        let mut pending = 0_u32;
        for (lane, (address, hop)) in addresses.iter().zip(hops.iter_mut()).enumerate() {
            let entry = words.get(root(address)).map_or(0, |entry| entry.load(Ordering::Acquire));
            let is_node = entry & IS_NODE != 0;
            *hop = Hop(std::hint::select_unpredictable(is_node, 0, low(entry)));
            at[lane & (LANES - 1)] = place(low(entry));
            pending |= u32::from(is_node) << lane;
            // If the entry is a next hop, the prefetch has no use and does no harm.
            prefetch(words, place(low(entry)));
        }
        let (mut from, mut found) = (A::ROOT_BITS, pending);
        // The loop ends after the last bit of the address, whatever the words contain.
        while pending != 0 && from < A::BITS {
            let mut lanes = pending;
            while lanes != 0 {
                let lane = place(lanes.trailing_zeros()) & (LANES - 1);
                lanes &= lanes - 1;
                let Some(address) = addresses.get(lane) else { continue };
                let (to, is_node) = step(words, at[lane], address.bits(from, STRIDE));
                at[lane] = to;
                pending &= !(u32::from(!is_node) << lane);
                // Next hops are only prefetched here. They are read after all lanes have reached their next hops, so
                // that the memory accesses overlap.
                prefetch(words, to >> u32::from(!is_node));
            }
            from += STRIDE;
        }
        found &= !pending;
        while found != 0 {
            let lane = place(found.trailing_zeros()) & (LANES - 1);
            found &= found - 1;
            let half = at[lane];
            if let Some(hop) = hops.get_mut(lane) {
                *hop = Hop(low(word(words, half / 2) >> (32 * (half & 1))));
            }
        }
        let default = Hop(low(word(words, DEFAULT)));
        for hop in hops.iter_mut() {
            *hop = if *hop == Hop::NONE { default } else { *hop };
        }
    }
}

/// Looks up addresses like [`look_up`], with the instruction `popcnt`. Returns `true` if the look-up was done. On a CPU
/// without the instruction, returns `false` and does nothing.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls what was compiled for a feature that the CPU has")]
#[inline(always)]
fn look_up_counting<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) -> bool {
    if !std::arch::is_x86_feature_detected!("popcnt") {
        return false;
    }
    // SAFETY: The CPU has the feature, which was checked above.
    unsafe { counting(words, addresses, hops) }
    true
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn counting<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) {
    look_up(words, addresses, hops);
}

/// Returns `false` and does nothing. On architectures other than x86-64, the compiler uses a population count
/// instruction where it exists.
#[cfg(not(target_arch = "x86_64"))]
fn look_up_counting<A: Address>(_: &[AtomicU64], _: &[A], _: &mut [Hop]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use sync::qsbr::Domain;

    use super::*;
    use crate::{Prefix, Table};

    #[test]
    fn both_twins_find_the_same() {
        let mut table = Table::<u32>::new(&Domain::new(), 1 << 20);
        let scattered = |number: u32| number.wrapping_mul(0x9e37_79b1);
        for number in 0..3000 {
            let length = u8::try_from(8 + number % 25).unwrap_or(32);
            table.insert(Prefix::new(scattered(number), length), Hop(number + 1)).unwrap();
        }
        let addresses: Vec<u32> = (0..100_000).map(|number| scattered(number) ^ (number % 7)).collect();
        let (mut with, mut without) = (vec![Hop::NONE; addresses.len()], vec![Hop::NONE; addresses.len()]);
        let done = table.read(|words| {
            look_up(words, &addresses, &mut without);
            look_up_counting(words, &addresses, &mut with)
        });
        assert!(!done || with == without);
        assert!(without.iter().any(|hop| *hop != Hop::NONE));
    }
}
