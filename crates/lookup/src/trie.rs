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

/// What a slot of a node leads to.
#[derive(Clone, Copy)]
enum Next {
    /// The place of a node.
    Node(usize),
    /// Twice the place of the word that holds a hop, and one more for its upper half.
    Hop(usize),
}

/// One step down.
#[inline(always)]
fn step(words: &[AtomicU64], node: usize, slot: usize) -> Next {
    let (children, bases) = (word(words, node), word(words, node + 2));
    if children >> slot & 1 == 1 {
        return Next::Node(place(low(bases)) + NODE * (rank(children, slot) - 1));
    }
    let nth = rank(word(words, node + 1), slot).saturating_sub(1);
    Next::Hop(2 * place(low(bases >> 32)) + nth)
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

/// Level by level for some addresses at a time, so that their memory accesses overlap.
#[inline(always)]
pub fn look_up<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) {
    for (addresses, hops) in addresses.chunks(LANES).zip(hops.chunks_mut(LANES)) {
        let mut at = [0_usize; LANES];
        let mut pending = 0_u32;
        for (lane, (address, hop)) in addresses.iter().zip(hops.iter_mut()).enumerate() {
            let root = ROOT + address.bits(0, A::ROOT_BITS);
            let entry = words.get(root).map_or(0, |entry| entry.load(Ordering::Acquire));
            *hop = Hop::NONE;
            if entry & IS_NODE == 0 {
                *hop = Hop(low(entry));
            } else {
                at[lane] = place(low(entry));
                pending |= 1 << lane;
                prefetch(words, at[lane]);
            }
        }
        let (mut from, mut found) = (A::ROOT_BITS, pending);
        // Beyond the last bit there is nothing, whatever a word says.
        while pending != 0 && from < A::BITS {
            let mut lanes = pending;
            while lanes != 0 {
                let lane = place(lanes.trailing_zeros());
                lanes &= lanes - 1;
                let Some(address) = addresses.get(lane) else { continue };
                match step(words, at[lane & (LANES - 1)], address.bits(from, STRIDE)) {
                    Next::Node(node) => {
                        at[lane & (LANES - 1)] = node;
                        prefetch(words, node);
                    }
                    // Read when the others have come so far: then all of them are under way.
                    Next::Hop(half) => {
                        at[lane & (LANES - 1)] = half;
                        prefetch(words, half / 2);
                        pending &= !(1 << lane);
                    }
                }
            }
            from += STRIDE;
        }
        found &= !pending;
        while found != 0 {
            let lane = place(found.trailing_zeros());
            found &= found - 1;
            let half = at[lane & (LANES - 1)];
            if let Some(hop) = hops.get_mut(lane) {
                *hop = Hop(low(word(words, half / 2) >> (32 * (half & 1))));
            }
        }
        let default = Hop(low(word(words, DEFAULT)));
        for hop in hops.iter_mut().filter(|hop| **hop == Hop::NONE) {
            *hop = default;
        }
    }
}
