//! The hash by which addresses behind a device are found: secret, since hosts on a link choose their addresses.
//!
//! A host of a /64 can have any number of addresses there, and answer for all of them. If it knew which addresses share places with
//! a victim's, it could fill these places. So each table has secret numbers of its own, and its two places come from two sums of
//! products with numbers apart (multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is fast", 2014): whatever
//! two addresses are chosen, the upper halves of the sums agree as often as chance has it.
//!
//! The sums of addresses in a row are an arithmetic progression, whose low bits cluster under some secrets. A bijection of 32 bits spreads
//! the upper halves, so that all of their bits decide about the place; it maps no two different halves to one. Programs in the kernel
//! compute the same (`route_link_hash()` in `bpf/include/route_answer.h`).

use std::hash::{BuildHasher, RandomState};

/// Secret numbers of a table.
pub const LINK_SECRETS: usize = 12;
/// Numbers of one of the two sums: one to begin with, and one for each 32 bits of device and address.
const OF_A_SUM: usize = LINK_SECRETS / 2;

/// The hash of one table.
#[derive(Clone)]
pub struct LinkHash([u64; LINK_SECRETS]);

impl LinkHash {
    /// With new secrets.
    pub fn new() -> LinkHash {
        let random = RandomState::new();
        LinkHash(std::array::from_fn(|nth| random.hash_one(nth)))
    }

    /// With these secrets.
    pub fn with(secrets: [u64; LINK_SECRETS]) -> LinkHash {
        LinkHash(secrets)
    }

    /// Two independent numbers of 32 bits: one in each half.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of words")]
    pub fn of(&self, device: u32, high: u64, low: u64) -> u64 {
        let words = [device, (high >> 32) as u32, high as u32, (low >> 32) as u32, low as u32];
        let sum = |secrets: &[u64]| {
            let products =
                secrets.iter().skip(1).zip(words).map(|(secret, word)| secret.wrapping_mul(word.into()));
            let sum = products.fold(secrets.first().copied().unwrap_or(0), u64::wrapping_add);
            u64::from(spread((sum >> 32) as u32))
        };
        let (first, second) = self.0.split_at(OF_A_SUM);
        sum(first) << 32 | sum(second)
    }
}

/// Maps 32 bits to 32 bits one to one, so that each bit of the result depends on all bits of `half` (the finish of MurmurHash3, public domain).
#[inline]
fn spread(half: u32) -> u32 {
    let half = (half ^ half >> 16).wrapping_mul(0x85eb_ca6b);
    let half = (half ^ half >> 13).wrapping_mul(0xc2b2_ae35);
    half ^ half >> 16
}

impl std::fmt::Debug for LinkHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What differs in few bits, at either end of the address, spreads as chance has it.
    #[test]
    fn addresses_that_differ_little_spread() {
        let hash = LinkHash::new();
        let lows: [fn(u64) -> u64; 3] = [|nth| nth, |nth| nth << 48, |nth| nth << 24];
        for (which, low) in lows.into_iter().enumerate() {
            for shift in [0, 32] {
                let mut counts = [0_u32; 256];
                for nth in 0..65_536 {
                    let at = hash.of(3, 0x2001_0db8_0000_0000, low(nth)) >> shift & 255;
                    counts[usize::try_from(at).unwrap()] += 1;
                }
                // 256 each, give or take eight standard deviations.
                assert!(
                    counts.iter().all(|count| (128..=512).contains(count)),
                    "{which}, {shift}: {counts:?}"
                );
            }
        }
    }
}
