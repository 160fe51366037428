//! Instructions that only some CPUs have: detection at run time, and comparison of sixteen octets at a time.
//!
//! Some portable functions are compiled a second time with such instructions. The program contains both variants of
//! these functions:
//! - Look-ups in a trie (`trie.rs`), with the population count instruction (`popcnt`), which baseline x86-64
//!   lacks.
//! - Look-ups in a flow cache (`flow_cache/find.rs`), and look-ups of several keys in a classifier
//!   (`classifier/burst.rs`), with 256-bit words and multiplication that leaves the flags unchanged (`avx2`,
//!   `bmi1`, `bmi2`, `popcnt`).
//!
//! Tests compare the results of both variants. Comparisons of sixteen octets use SSE2, which is part of baseline
//! x86-64.
#![allow(unsafe_code, reason = "calls the compiler's functions for SSE2 instructions")]

/// Returns whether the CPU has instructions for 256-bit words (AVX2), and the bit manipulation instructions that the
/// code for 256-bit words uses (BMI1, BMI2, `popcnt`).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn has_wide_words() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt")
}

/// Compares each octet of two words with `wanted`. Returns a bit mask in which bit `n` is set if octet `n` is equal to
/// `wanted`.
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
    use super::*;

    #[test]
    fn both_twins_find_the_same_octets() {
        let words = [0x00ff_7f80_0100_ff01, 0x8000_01ff_7f00_0180_u64];
        for wanted in [0, 1, 2, 0x7f, 0x80, 0xff] {
            assert_eq!(octets_that_are(words, wanted), octets_that_are_anywhere(words, wanted));
        }
        assert_eq!(octets_that_are(words, 0x7f), 1 << 5 | 1 << 11);
    }
}
