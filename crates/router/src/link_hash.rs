//! The keyed hash of on-link IP addresses. The key is secret because hosts on a link choose their own addresses.
//!
//! A host on a /64 link can use any number of addresses and answer neighbour solicitations for all these addresses. If
//! the host knew which addresses share slots with a victim's address, it could fill these slots. Each table therefore
//! has its own secret numbers, and the two slots of an address come from two sums of products with separate numbers
//! (multilinear hashing, Lemire and Kaser, "Strongly universal string hashing is fast", 2014). The upper halves of the
//! sums of any two addresses collide with the probability of random values.
//!
//! The sums of consecutive addresses form an arithmetic progression, whose low bits cluster for some secrets. A
//! bijection on 32 bits mixes the upper halves. All bits of an upper half therefore affect the slot, and
//! different halves map to different values. Programs in the kernel compute the same function
//! (`route_link_hash()` in `bpf/include/route_answer.h`).

use std::hash::{BuildHasher, RandomState};

/// Number of secret numbers of one hash table of on-link addresses.
pub const LINK_SECRETS: usize = 12;
/// Number of secret numbers for one of the two sums: one initial value, and one factor for each 32-bit part of the
/// kernel device index (one part) and of the address (four parts).
const OF_A_SUM: usize = LINK_SECRETS / 2;

/// The keyed hash function of one hash table of on-link addresses.
#[derive(Clone)]
pub struct LinkHash([u64; LINK_SECRETS]);

impl LinkHash {
    /// Creates a hash function with new random secrets.
    pub fn new() -> LinkHash {
        let random = RandomState::new();
        LinkHash(std::array::from_fn(|nth| random.hash_one(nth)))
    }

    /// Creates a hash function with these secrets.
    pub fn with(secrets: [u64; LINK_SECRETS]) -> LinkHash {
        LinkHash(secrets)
    }

    /// Returns two independent 32-bit hashes of a kernel device and an address, as the two halves of the result. `high`
    /// and `low` are the upper and lower 64 bits of the address.
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

/// Maps 32 bits to 32 bits one to one. Each bit of the result depends on all bits of `half`. The function is the
/// finaliser of MurmurHash3 (public domain).
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

    /// Checks that addresses that differ only in a few of the highest or lowest bits are distributed over the slots as
    /// evenly as random addresses.
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
                // Each slot is expected to hold 256 addresses. The limits are eight standard deviations away.
                assert!(
                    counts.iter().all(|count| (128..=512).contains(count)),
                    "{which}, {shift}: {counts:?}"
                );
            }
        }
    }
}
