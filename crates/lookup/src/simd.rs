//! Look-ups with the CPU's own counting of bits (`popcnt`), which x86-64 does not promise. It is compiled from the same source as its
//! twin without, [`look_up`](crate::trie::look_up); tests compare both.
#![allow(unsafe_code, reason = "calls what was compiled for a feature that the CPU has")]

use std::sync::atomic::AtomicU64;

use crate::prefix::Address;
use crate::trie::Hop;

/// As [`crate::trie::look_up`]; `false`, and nothing done, on a CPU without the instruction.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn look_up<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) -> bool {
    if !std::arch::is_x86_feature_detected!("popcnt") {
        return false;
    }
    // SAFETY: the CPU has the feature, which was asked for just now.
    unsafe { counting(words, addresses, hops) }
    true
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn counting<A: Address>(words: &[AtomicU64], addresses: &[A], hops: &mut [Hop]) {
    crate::trie::look_up(words, addresses, hops);
}

/// Elsewhere the compiler knows the instruction by itself.
#[cfg(not(target_arch = "x86_64"))]
pub fn look_up<A: Address>(_: &[AtomicU64], _: &[A], _: &mut [Hop]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use sync::qsbr::Domain;

    use super::*;
    use crate::{Hop, Prefix, Table};

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
