//! Code paths for CPUs with additional instructions. Tests compare each code path with the portable one.
//!
//! The additional path and the portable path of a function are compiled from one source:
//! - [`look_up`](crate::trie::look_up) with the population count instruction (`popcnt`), which baseline
//!   x86-64 lacks.
//! - Look-ups in a [`FlowCache`], and look-ups of several keys in a [`Classifier`], with 256-bit words and
//!   multiplication that leaves the flags unchanged (`avx2`, `bmi1`, `bmi2`, `popcnt`).
//!
//! Comparisons of sixteen octets use SSE2, which is part of baseline x86-64.
#![allow(unsafe_code, reason = "calls what was compiled for a feature that the CPU has")]

use std::sync::atomic::AtomicU64;

use crate::Classifier;
use crate::flow_cache::{FlowCache, KEY_WORDS};
use crate::prefix::Address;
use crate::trie::Hop;

/// Like [`crate::trie::look_up`], with the instruction `popcnt`. Returns `true` if the look-up was done. On a
/// CPU without the instruction, returns `false` and does nothing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn look_up<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) -> bool {
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
    crate::trie::look_up(words, addresses, hops);
}

/// Returns `false` and does nothing. On architectures other than x86-64, the compiler uses a population count
/// instruction where it exists.
#[cfg(not(target_arch = "x86_64"))]
pub fn look_up<A: Address>(_: &[AtomicU64], _: &[A], _: &mut [Hop]) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_wide_words() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt")
}

/// Like [`FlowCache::find_burst`], with 256-bit words. Returns `true` if the look-up was done. On a CPU
/// without the instructions, returns `false` and does nothing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn find_burst<'k, const X: usize, T>(
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
pub fn find_burst<'k, const X: usize, T>(
    _: &mut FlowCache<X, T>,
    _: u16,
    _: &impl Fn(usize) -> &'k [u64; KEY_WORDS],
    _: &mut impl FnMut(usize) -> [u64; X],
    _: &mut [u32],
) -> bool {
    false
}

/// Like [`Classifier::burst`], with 256-bit words if the CPU has the instructions.
#[inline]
pub fn burst<'a, const TRACKED: bool, const W: usize, T>(
    classifier: &'a Classifier<W, T>,
    keys: &[&[u64; W]],
    wild: &mut [[u64; W]],
    found: &mut [Option<(&'a T, u16)>],
) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_words() {
        // SAFETY: The CPU has the features, which were checked above.
        return unsafe { burst_in_wide_words::<TRACKED, W, T>(classifier, keys, wild, found) };
    }
    classifier.burst::<TRACKED>(keys, wild, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn burst_in_wide_words<'a, const TRACKED: bool, const W: usize, T>(
    classifier: &'a Classifier<W, T>,
    keys: &[&[u64; W]],
    wild: &mut [[u64; W]],
    found: &mut [Option<(&'a T, u16)>],
) {
    classifier.burst::<TRACKED>(keys, wild, found);
}

/// Compares each octet of two words with `wanted`. Returns a mask with one bit for each octet that is equal
/// to `wanted`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn octets_that_are(words: [u64; 2], wanted: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: The instructions are SSE2, which every x86-64 CPU has.
    let bits = unsafe {
        let octets = _mm_set_epi64x(words[1].cast_signed(), words[0].cast_signed());
        _mm_movemask_epi8(_mm_cmpeq_epi8(octets, _mm_set1_epi8(wanted.cast_signed())))
    };
    bits.cast_unsigned()
}

/// Portable variant of `octets_that_are`, for any architecture.
#[cfg(any(test, not(target_arch = "x86_64"), miri))]
pub fn octets_that_are_anywhere(words: [u64; 2], wanted: u8) -> u32 {
    let octets = words.into_iter().flat_map(u64::to_le_bytes);
    octets.enumerate().fold(0, |bits, (at, octet)| bits | u32::from(octet == wanted) << at)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub use octets_that_are_anywhere as octets_that_are;

#[cfg(test)]
mod tests {
    use sync::qsbr::Domain;

    use super::*;
    use crate::{Hop, Prefix, Table};

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
            let done = find_burst(&mut cache, 3, &|at| &keys[at], &mut |at| [at as u64], &mut with);
            assert!(!done || with == without);
            assert_eq!(without.iter().filter(|found| **found != crate::MISS).count(), 2000);
        }
    }

    #[test]
    fn both_twins_classify_the_same() {
        use crate::{Layout, Octets, Options, Rule};
        const WORDS: usize = 4;
        const LAYOUT: Layout<WORDS> =
            Layout::new([1, 2, 3, 4], &[Octets { from: 16, count: 4 }], &[24, 26], (0, 1));
        let mut rules = Classifier::new(LAYOUT, Options::default());
        let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = |number: u64| [number % 3, number % 50, scattered(number % 40), scattered(number % 99)];
        for number in 0..2000_u64 {
            let mask = std::array::from_fn(|word| match number >> (2 * word) & 3 {
                0 | 1 => 0,
                2 => u64::from(u32::MAX),
                _ => u64::MAX,
            });
            let priority = u16::try_from(number % 7).unwrap();
            rules.insert(Rule { value: key(number), mask, priority, payload: number }).unwrap();
        }
        let mut hits = 0;
        for from in 0..300 {
            let keys: Vec<[u64; WORDS]> = (0..from % 33).map(|at| key(from * 31 + at)).collect();
            let keys: Vec<&[u64; WORDS]> = keys.iter().collect();
            let mut found = [vec![None; keys.len()], vec![None; keys.len()]];
            let mut wild = [vec![[0; WORDS]; keys.len()], vec![[0; WORDS]; keys.len()]];
            burst::<true, WORDS, u64>(&rules, &keys, &mut wild[0], &mut found[0]);
            rules.burst::<true>(&keys, &mut wild[1], &mut found[1]);
            assert!(found[0] == found[1] && wild[0] == wild[1]);
            rules.burst::<false>(&keys, &mut [], &mut found[1]);
            assert_eq!(found[0], found[1]);
            burst::<false, WORDS, u64>(&rules, &keys, &mut [], &mut found[0]);
            assert_eq!(found[0], found[1]);
            hits += found[0].iter().flatten().count();
        }
        assert!(hits > 1000);
    }

    #[test]
    fn both_twins_find_the_same_octets() {
        let words = [0x00ff_7f80_0100_ff01, 0x8000_01ff_7f00_0180_u64];
        for wanted in [0, 1, 2, 0x7f, 0x80, 0xff] {
            assert_eq!(octets_that_are(words, wanted), octets_that_are_anywhere(words, wanted));
        }
        assert_eq!(octets_that_are(words, 0x7f), 1 << 5 | 1 << 11);
    }

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
            crate::trie::look_up(words, &addresses, &mut without);
            look_up(words, &addresses, &mut with)
        });
        assert!(!done || with == without);
        assert!(without.iter().any(|hop| *hop != Hop::NONE));
    }
}
