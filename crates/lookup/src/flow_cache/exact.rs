//! The exact-match cache (EMC). An entry, called a hint, maps the hash of a packet's key to the flow that a packet with
//! this hash probably matches.
//!
//! A hint has 32 bits: the index of a flow in the low bits, and a part of the packet's hash in the high bits. The flow
//! cache verifies a hint by comparing the flow with the packet. If the set for a new hint is full, the new hint
//! replaces a pseudo-randomly chosen hint of the set. Therefore a sender cannot choose packets that keep the packets of
//! other senders out of the cache.

use std::num::NonZeroU32;

use sync::hash::{Secret, Secrets, fold, short};

use super::mask::KEY_WORDS;

const SETS: usize = 1024;
const WAYS: usize = 8;
/// Hint (entry of the exact-match cache) that refers to no flow. All bits of its flow index are set.
const NO_HINT: u32 = u32::MAX;

/// One set of hints (entries of the exact-match cache). A set occupies half a cache line.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct Set([u32; WAYS]);

/// The exact-match cache. See the [module](self).
#[derive(Debug)]
pub(super) struct Hints {
    sets: Box<[Set]>,
    /// Bit mask of the low bits that hold the flow index in a hint (an entry of the exact-match cache). An index with
    /// all these bits set denotes no flow.
    places: u32,
    secrets: [Secret; KEY_WORDS / 2],
    /// Average number of packets without a valid hint (entry of the exact-match cache) for each hint that is inserted.
    /// `None` if the cache is disabled.
    one_in: Option<NonZeroU32>,
    random: u32,
}

impl Hints {
    pub fn new(flows: u32, secrets: &Secrets) -> Hints {
        // The exact-match cache uses the secrets with the highest indexes. Masks and extended keys use the secrets with
        // the lowest indexes.
        let secret = |at| secrets.of(usize::MAX - at);
        Hints {
            sets: vec![Set([NO_HINT; WAYS]); SETS].into_boxed_slice(),
            places: u32::MAX.checked_shr(flows.leading_zeros()).unwrap_or(0),
            secrets: std::array::from_fn(secret),
            one_in: NonZeroU32::new(1),
            random: short(secret(KEY_WORDS).add) | 1,
        }
    }

    /// Returns the memory use of the exact-match cache in bytes.
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

    /// Returns the hash of a packet's key words.
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

    /// Returns the index of the flow that a packet with this hash probably matches. If the exact-match cache has no
    /// entry for the hash, returns an index that is out of range for the table of flows.
    #[inline(always)]
    pub fn find(&self, hash: u32) -> u32 {
        let Set(ways) = &self.sets[Self::set(hash)];
        // The xor turns a hint with a matching tag into a flow index, and every other hint into a greater number. The
        // minimum of the results is therefore the flow index, without a search or a branch.
        ways.iter().fold(u32::MAX, |least, hint| least.min(hint ^ hash & !self.places))
    }

    /// Returns the next number of a pseudo-random sequence with period 2^32 - 1 (Marsaglia's xorshift).
    #[inline(always)]
    fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    /// Inserts a hint (an entry of the exact-match cache) for a packet with this hash, but on average only in one of
    /// `one_in` calls. `place` is the index of the packet's flow.
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
        // Replaces a stale hint for the packet's tag, else a free way, else a random way.
        let same = ways.iter().position(|hint| hint ^ hash & !places <= places);
        let free = || ways.iter().position(|hint| hint & places == places);
        let way = same.or_else(free).unwrap_or(random);
        ways[way] = hash & !places | place & places;
    }
}
