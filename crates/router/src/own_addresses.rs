//! The set of the IPv4 addresses of this host and of the broadcast addresses of its links. A packet with such a source
//! address must not be forwarded (RFC 1812, 5.3.7 and 4.2.2.11; Linux `fib_validate_source`).
//!
//! The source address of every packet is looked up in the set. A bitmap with one bit for each of 16,384 hash values
//! excludes nearly all other addresses with one load. BPF programs use an equal bitmap, `route_own_bits`
//! (`bpf/include/route_checks.h`).

use std::collections::HashSet;
use std::fmt;
use std::net::Ipv4Addr;

/// Number of bits of the hash of an address. The hash is the index of the address in the bitmap.
const HASH_BITS: u32 = 14;
const WORDS: usize = 1 << (HASH_BITS - 6);
/// Multiplier of the hash: 2^32 divided by the golden ratio (Fibonacci hashing).
const MIX: u32 = 0x9e37_79b9;

/// The set of the IPv4 addresses of this host and the broadcast addresses of its links.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnAddresses {
    bits: Box<[u64; WORDS]>,
    all: HashSet<u32>,
}

impl Default for OwnAddresses {
    fn default() -> Self {
        OwnAddresses { bits: Box::new([0; WORDS]), all: HashSet::new() }
    }
}

impl fmt::Debug for OwnAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.iter().map(|address| Ipv4Addr::from(*address))).finish()
    }
}

impl FromIterator<Ipv4Addr> for OwnAddresses {
    fn from_iter<T: IntoIterator<Item = Ipv4Addr>>(addresses: T) -> Self {
        let mut own = OwnAddresses::default();
        for address in addresses {
            let (word, bit) = place(address.to_bits());
            own.bits[word] |= 1 << bit;
            own.all.insert(address.to_bits());
        }
        own
    }
}

impl OwnAddresses {
    /// Returns whether an address may be in the set, according to the bitmap alone. Returns false for nearly all
    /// addresses outside the set, and true for all addresses in the set. `address` holds the first octet of the IPv4
    /// address in its most significant bits.
    #[inline(always)]
    #[must_use]
    pub fn may_hold(&self, address: u32) -> bool {
        let (word, bit) = place(address);
        self.bits[word] >> bit & 1 != 0
    }

    /// Returns whether an address is in the set. `address` holds the first octet of the IPv4 address in its most
    /// significant bits.
    #[inline]
    #[must_use]
    pub fn holds(&self, address: u32) -> bool {
        self.may_hold(address) && self.all.contains(&address)
    }
}

/// Returns the position of an address in the bitmap: index of the word, and index of the bit in this word.
#[inline(always)]
fn place(address: u32) -> (usize, u32) {
    let hash = address.wrapping_mul(MIX) >> (32 - HASH_BITS);
    // The result is below WORDS, because the hash has HASH_BITS bits.
    ((hash >> 6) as usize & (WORDS - 1), hash & 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(own: Vec<u32>, others: Vec<u32>) {
            let addresses: OwnAddresses = own.iter().map(|address| Ipv4Addr::from(*address)).collect();
            for address in own.iter().chain(&others) {
                prop_assert_eq!(addresses.holds(*address), own.contains(address));
                prop_assert!(addresses.may_hold(*address) || !own.contains(address));
            }
        }
    }

    #[test]
    fn few_others_are_looked_for() {
        let own: OwnAddresses = (1..=16).map(|number| Ipv4Addr::new(10, 0, number, 1)).collect();
        let others = (0..65_536_u32).filter(|low| own.may_hold(0x0b00_0000 | low)).count();
        assert!(others < 200, "{others} of 65,536");
    }
}
