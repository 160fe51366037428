//! IP addresses as numbers in host byte order, and address prefixes.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

mod sealed {
    /// Prevents implementations of `Address` for other types.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An IPv4 address as `u32` or an IPv6 address as `u128`, with the first octet in the highest bits.
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// Lowest address of the family.
    const FIRST: Self;
    /// Number of bits in an address.
    const BITS: u32;
    /// Number of leading address bits that index the root table of a trie: 18 for IPv4, 16 for IPv6.
    const ROOT_BITS: u32;

    /// Returns `count` bits of the address as a number, from bit `from` on. Bit 0 is the highest bit. `count` is at
    /// most 18. Bits beyond the end of the address are zero.
    #[must_use]
    fn bits(self, from: u32, count: u32) -> usize;

    /// Returns the first address of a prefix: this address with all bits after the first `length` bits cleared.
    #[must_use]
    fn masked(self, length: u32) -> Self;

    /// Returns the last address of a prefix: this address with all bits after the first `length` bits set.
    #[must_use]
    fn last(self, length: u32) -> Self;

    /// Type of the upper part of an address (see [`Address::halves`]). A table stores this part of every address.
    type Upper: Copy + Ord + Send + Sync;
    /// Type of the lower part of an address. A table in which all lower parts are zero stores no lower parts.
    type Lower: Copy + Default + PartialEq + Send + Sync;

    /// Splits the address into an upper and a lower part. The parts of an IPv6 address are its halves. The
    /// upper part of an IPv4 address is the whole address, and the lower part is empty.
    fn halves(self) -> (Self::Upper, Self::Lower);

    /// Joins the two parts that [`Address::halves`] returned to an address.
    fn joined(upper: Self::Upper, lower: Self::Lower) -> Self;

    /// Writes the address in its usual notation.
    ///
    /// # Errors
    /// Returns the errors of the formatter.
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! address {
    ($type:ty, $root:expr, $shown:ty, $upper:ty, $lower:ty, $halves:expr, $joined:expr) => {
        impl Address for $type {
            const FIRST: Self = 0;
            const BITS: u32 = <$type>::BITS;
            const ROOT_BITS: u32 = $root;

            #[inline(always)]
            fn bits(self, from: u32, count: u32) -> usize {
                let shifted =
                    self.checked_shl(from).unwrap_or(0).checked_shr(<$type>::BITS - count).unwrap_or(0);
                // At most 18 bits are left.
                #[allow(clippy::cast_possible_truncation, reason = "18 bits")]
                let bits = shifted as usize;
                bits
            }

            fn masked(self, length: u32) -> Self {
                self & !<$type>::MAX.checked_shr(length).unwrap_or(0)
            }

            fn last(self, length: u32) -> Self {
                self | <$type>::MAX.checked_shr(length).unwrap_or(0)
            }

            type Upper = $upper;
            type Lower = $lower;

            #[inline(always)]
            fn halves(self) -> ($upper, $lower) {
                $halves(self)
            }

            #[inline(always)]
            fn joined(upper: $upper, lower: $lower) -> Self {
                $joined(upper, lower)
            }

            fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&<$shown>::from_bits(self), f)
            }
        }
    };
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "halves of the address")]
fn halves(address: u128) -> (u64, u64) {
    ((address >> 64) as u64, address as u64)
}

#[inline(always)]
fn joined(upper: u64, lower: u64) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

address!(u32, 18, Ipv4Addr, u32, (), |address| (address, ()), |address, ()| address);
address!(u128, 16, Ipv6Addr, u64, u64, halves, joined);

/// An address prefix: all addresses whose first `length` bits are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// Returns the prefix of `length` bits that contains an address. A length above [`Address::BITS`] counts
    /// as [`Address::BITS`].
    #[must_use]
    pub fn new(address: A, length: u8) -> Prefix<A> {
        let bits = A::BITS.min(u32::from(length));
        Prefix { address: address.masked(bits), length: u8::try_from(bits).unwrap_or(length) }
    }

    /// Returns the first address of the prefix.
    #[must_use]
    pub fn address(&self) -> A {
        self.address
    }

    /// Returns the length of the prefix in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether the prefix contains an address.
    #[must_use]
    pub fn contains(&self, address: A) -> bool {
        address.masked(u32::from(self.length)) == self.address
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.write(f)?;
        write!(f, "/{}", self.length)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_masked_contain_and_print() {
        let ten = Prefix::new(0x0a01_0203_u32, 8);
        assert_eq!(
            (ten.to_string(), ten.contains(0x0aff_ffff), ten.contains(0x0b00_0000)),
            ("10.0.0.0/8".to_owned(), true, false)
        );
        let all = Prefix::new(u128::MAX, 0);
        assert!(all.to_string() == "::/0" && all.contains(1));
        assert_eq!(Prefix::new(7_u32, 40), Prefix::new(7, 32));
    }

    #[test]
    fn bits_are_counted_from_the_highest_and_end_with_zeros() {
        assert_eq!(
            (0xffff_c000_u32.bits(0, 18), 3_u32.bits(30, 6), 3_u32.bits(36, 6)),
            (0x3ffff, 0b11_0000, 0)
        );
        assert_eq!((1_u128.bits(124, 6), u128::MAX.bits(0, 16)), (0b0100, 0xffff));
        assert_eq!((0_u32.last(8), 0_u32.last(32), 0_u32.last(0)), (0x00ff_ffff, 0, u32::MAX));
    }
}
