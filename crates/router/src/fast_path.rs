//! Recognition of plain packets from the first octets of their frames. Nearly all packets of a router are plain.
//! Routing a plain packet needs only the destination address. Therefore no flow key is extracted.
//!
//! Other packets are routed by their flow key ([`Router::admit`](crate::Router::admit)). `Router::admit` accepts plain
//! packets too, with equal results except for two checks. The IPv4 header checksum is verified only by this module.
//! Packets from this host's own addresses are dropped only by `Router::admit`. Callers of this module must check for
//! such packets themselves ([`OwnAddresses::may_hold`](crate::OwnAddresses::may_hold)). Tests compare this module with
//! `Router::admit`.

/// Number of octets that [`four`] reads: an Ethernet header and an IPv4 header without options.
pub const HEAD_4: usize = 14 + 20;
/// Number of octets that [`six`] reads: an Ethernet header and an IPv6 header.
pub const HEAD_6: usize = 14 + 40;

/// Returns the destination of a plain IPv4 packet, and `None` for other packets. A plain packet is addressed
/// to the interface with the MAC address word `own` ([`packet::MacAddr::to_wire_word`]). It has no tags and
/// no options, is complete, has a correct header checksum and a TTL above 1, and has source and destination
/// addresses that may be forwarded (RFC 1812, 4.2.2 and 5.3.7). `len` is the length of the whole frame.
#[inline(always)]
#[must_use]
pub fn four(own: u64, head: &[u8; HEAD_4], len: usize) -> Option<u32> {
    let (first, second) = (le64::<0>(head), le64::<8>(head));
    let (third, fourth) = (le64::<16>(head), le64::<24>(head));
    let last = u64::from(u16::from_le_bytes([head[32], head[33]]));
    let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
    // All conditions are combined into one branch, because packets that are not plain are rare.
    let plain = (first << 16 == own << 16)
        // EtherType, version and header length.
        & ((second >> 32) & 0xff_ffff == 0x45_0008)
        & (total >= 20)
        & (total + 14 <= len)
        & (head[22] > 1)
        & HOSTS[usize::from(head[26])]
        & HOSTS[usize::from(head[30])]
        & adds_up(third, fourth, second >> 48 | last << 16);
    plain.then(|| u32::from_be_bytes([head[30], head[31], head[32], head[33]]))
}

/// Returns the source address of an IPv4 packet without options.
#[inline(always)]
#[must_use]
pub fn source(head: &[u8; HEAD_4]) -> u32 {
    u32::from_be_bytes([head[26], head[27], head[28], head[29]])
}

/// States for each value of the first octet of an IPv4 address whether packets from and to such addresses may be
/// forwarded. The entry is true for 1 to 223 except 127.
static HOSTS: [bool; 256] = {
    let mut hosts = [false; 256];
    let mut first = 1;
    while first < 224 {
        hosts[first] = first != 127;
        first += 1;
    }
    hosts
};

/// Returns the destination of a plain IPv6 packet, and `None` for other packets. A plain IPv6 packet fulfils all
/// conditions of [`four`] that also exist for IPv6. In addition, the packet has no hop-by-hop header, and both
/// addresses are global unicast addresses (2000::/3).
#[inline(always)]
#[must_use]
pub fn six(own: u64, head: &[u8; HEAD_6], len: usize) -> Option<u128> {
    let (first, second) = (le64::<0>(head), le64::<8>(head));
    let payload = usize::from(u16::from_be_bytes([head[18], head[19]]));
    let plain = (first << 16 == own << 16)
        & ((second >> 32) & 0xf0_ffff == 0x60_dd86)
        & (payload + 54 <= len)
        & (head[20] != 0)
        & (head[21] > 1)
        & (head[22] & 0xe0 == 0x20)
        & (head[38] & 0xe0 == 0x20);
    plain.then(|| head.last_chunk::<16>().map_or(0, |address| u128::from_be_bytes(*address)))
}

/// Returns whether the checksum of an IPv4 header without options is correct (RFC 1071).
#[inline(always)]
#[must_use]
pub fn is_sound(head: &[u8; HEAD_4]) -> bool {
    let last = u64::from(u16::from_le_bytes([head[32], head[33]]));
    adds_up(le64::<16>(head), le64::<24>(head), le64::<8>(head) >> 48 | last << 16)
}

/// Verifies an Internet checksum over three 64-bit words: returns whether the ones' complement sum of their 16-bit
/// parts is all ones. At least one part must not be zero.
#[inline(always)]
fn adds_up(one: u64, two: u64, three: u64) -> bool {
    let sum = add(add(one, two), three);
    // Ones' complement addition is addition modulo 65,535, in 64-bit words as in 16-bit words. A multiple of
    // an odd number times the number's inverse modulo 2^64 is the quotient, and any other number gives a
    // larger product.
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// Multiplicative inverse of 65,535 modulo 2^64. With this constant, one multiplication tests whether an Internet
/// checksum is divisible by 65,535.
const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);

/// Adds two 64-bit words of an Internet checksum in ones' complement arithmetic (with end-around carry).
#[inline(always)]
fn add(one: u64, two: u64) -> u64 {
    let (sum, carry) = one.overflowing_add(two);
    sum + u64::from(carry)
}

#[inline(always)]
fn le64<const AT: usize>(head: &[u8]) -> u64 {
    head.get(AT..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |word| u64::from_le_bytes(*word))
}
