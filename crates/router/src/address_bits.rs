//! Conversion of IPv4 and IPv6 addresses to 128-bit integers.

use std::net::IpAddr;

/// Returns an IPv4 or IPv6 address as a 128-bit integer. An IPv4 address is converted to the IPv4-mapped IPv6 address
/// (RFC 4291, 2.5.5.2).
#[must_use]
pub fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => mapped(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns an IPv4 address as the 128 bits of its IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2).
#[inline]
#[must_use]
pub fn mapped(address: u32) -> u128 {
    0xffff_0000_0000 | u128::from(address)
}

/// Returns the upper and the lower 64 bits of an address.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the halves of 128 bits")]
pub fn halves(address: u128) -> (u64, u64) {
    ((address >> 64) as u64, address as u64)
}
