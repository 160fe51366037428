//! The exact-match cache: hints that a packet with these very words is likely of that flow.
//!
//! A hint is 32 bits: the place of a flow, and above it as much of the packet's hash as there is room for. Who follows one compares the
//! flow with the packet. Hints are replaced pseudo-randomly, so that nobody can choose packets that keep others out.

use std::num::NonZeroU32;

use super::{KEY_WORDS, NONE};
use crate::hash::{Secret, Secrets, fold, short};

const SETS: usize = 1024;
const WAYS: usize = 8;

/// Half a cache line.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct Set([u32; WAYS]);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Hints {
    sets: Box<[Set]>,
    /// The bits of a hint that are a flow's place: more than places, so that all of them set is no place.
    places: u32,
    secrets: [Secret; KEY_WORDS / 2],
    /// Of packets without a good hint, one of so many leaves one; `None`: hints are neither asked nor left.
    one_in: Option<NonZeroU32>,
    random: u32,
}

impl Hints {
    pub fn new(flows: u32, secrets: &Secrets) -> Hints {
        // Of its own: places of masks and of words beyond the key are far below.
        let secret = |at| secrets.of(usize::MAX - at);
        Hints {
            sets: vec![Set([NONE; WAYS]); SETS].into_boxed_slice(),
            places: u32::MAX.checked_shr(flows.leading_zeros()).unwrap_or(0),
            secrets: std::array::from_fn(secret),
            one_in: NonZeroU32::new(1),
            random: short(secret(KEY_WORDS).add) | 1,
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.sets.len() * size_of::<Set>()
    }

    pub fn set_one_in(&mut self, one_in: Option<NonZeroU32>) {
        self.one_in = one_in;
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.one_in.is_some()
    }

    /// The hash of a packet's words.
    #[inline(always)]
    pub fn hash(&self, key: &[u64; KEY_WORDS]) -> u32 {
        let pairs = self.secrets.iter().enumerate();
        let products =
            pairs.map(|(at, secret)| fold(key[2 * at] ^ secret.add, key[2 * at + 1] ^ secret.multiply));
        short(products.fold(0, u64::wrapping_add))
    }

    #[inline(always)]
    fn set(hash: u32) -> usize {
        hash as usize % SETS
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        sync::cpu::prefetch_read(&self.sets[Self::set(hash)]);
    }

    /// The place of a flow that may be the packet's; or what is no place.
    #[inline(always)]
    pub fn find(&self, hash: u32) -> u32 {
        let Set(ways) = &self.sets[Self::set(hash)];
        // What is left of a hint of this tag is a place, of all others more: no search, and no branch.
        ways.iter().fold(u32::MAX, |least, hint| least.min(hint ^ hash & !self.places))
    }

    /// The next of a row of numbers that repeats after 2^32 - 1 (Marsaglia's xorshift).
    #[inline(always)]
    fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    /// Leaves a hint, if it is this packet's turn.
    #[inline(always)]
    pub fn offer(&mut self, hash: u32, place: u32) {
        let Some(one_in) = self.one_in else { return };
        if one_in.get() == 1 || self.random() <= u32::MAX / one_in {
            self.leave(hash, place);
        }
    }

    fn leave(&mut self, hash: u32, place: u32) {
        let (places, random) = (self.places, self.random() as usize % WAYS);
        let Set(ways) = &mut self.sets[Self::set(hash)];
        // In place of one for the same packet that was not good; else of none; else of any.
        let same = ways.iter().position(|hint| hint ^ hash & !places <= places);
        let free = || ways.iter().position(|hint| hint & places == places);
        let way = same.or_else(free).unwrap_or(random);
        ways[way] = hash & !places | place & places;
    }
}
