//! What readers see of a table: see the crate's documentation for how it lies in memory.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::qsbr::Reader;

use crate::prefix::Address;
use crate::simd;
use crate::words::Shared;

/// The next hop of addresses that no prefix but ::/0 or 0.0.0.0/0 covers.
pub const DEFAULT: usize = 0;
/// The root table's first word.
pub const ROOT: usize = 1;
/// Of a root entry: the lower half is the place of a node, and not a hop.
pub const IS_NODE: u64 = 1 << 63;
/// Bits that a node decides by.
pub const STRIDE: u32 = 6;
/// Words of a node.
pub const NODE: usize = 3;
/// Addresses that are looked up together: enough for the memory's latency to overlap, few enough to stay in registers and L1.
const LANES: usize = 16;

/// What a prefix leads to: a number whose meaning is its owner's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hop(pub u32);

impl Hop {
    /// Of addresses that no prefix covers; prefixes cannot lead to it.
    pub const NONE: Hop = Hop(0);
}

/// A table as its readers have it; clones are the same one.
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

/// The lower half of a word.
#[inline(always)]
pub fn low(word: u64) -> u32 {
    // The other half is another number.
    #[allow(clippy::cast_possible_truncation, reason = "half of the word")]
    let low = word as u32;
    low
}

/// Set bits of a node's 64 up to and with this slot's.
#[inline(always)]
fn rank(bits: u64, slot: usize) -> usize {
    // Shifted by at most 63: all bits above the slot go.
    let upto = bits << (63 - (slot & 63));
    upto.count_ones().try_into().unwrap_or(64)
}

#[inline(always)]
fn word(words: &[AtomicU64], at: usize) -> u64 {
    // A reader that is where it should not be (an error of the program) reads something, and ends.
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// The place of something that 32 bits number.
#[inline(always)]
pub fn place(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// One step down: where a slot of a node leads, and whether that is a node. Else it is twice the place of the word that holds a hop, and one
/// more for its upper half.
///
/// Both ways are reckoned and one is chosen: which it is nobody can foresee, and a branch taken wrongly costs more.
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

    /// The hops of addresses, as many as both slices have.
    ///
    /// # Panics
    /// When the reader is offline or belongs to another domain (errors of the program).
    pub fn look_up(&self, reader: &Reader, addresses: &[A], hops: &mut [Hop]) {
        reader.check(&self.shared.domain);
        if !simd::look_up(&self.shared.words, addresses, hops) {
            look_up(&self.shared.words, addresses, hops);
        }
    }
}

/// Level by level for some addresses at a time, so that their memory accesses overlap; the next ones' first are under way meanwhile.
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
            // Of one that is a hop already, in vain.
            prefetch(words, place(low(entry)));
        }
        let (mut from, mut found) = (A::ROOT_BITS, pending);
        // Beyond the last bit there is nothing, whatever a word says.
        while pending != 0 && from < A::BITS {
            let mut lanes = pending;
            while lanes != 0 {
                let lane = place(lanes.trailing_zeros()) & (LANES - 1);
                lanes &= lanes - 1;
                let Some(address) = addresses.get(lane) else { continue };
                let (to, is_node) = step(words, at[lane], address.bits(from, STRIDE));
                at[lane] = to;
                pending &= !(u32::from(!is_node) << lane);
                // A hop is read when the others have come so far: then all of them are under way.
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
