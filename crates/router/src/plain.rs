//! Plain packets, told from their first octets: nearly all that a router gets. Nothing but their destination has to be known of them
//! to route them, so that no flow key is made.
//!
//! What is not plain takes the way by the key ([`Router::admit`](crate::Router::admit)), which says the same of plain ones, too, but
//! for an IPv4 header's checksum: here it has been verified. Tests hold the two against each other. So does what may come from one of this
//! host's own addresses ([`OwnAddresses::may_hold`](crate::OwnAddresses::may_hold)), which callers ask.

/// Octets that [`four`] reads: Ethernet's header, and IPv4's without options.
pub const HEAD_4: usize = 14 + 20;
/// Octets that [`six`] reads: Ethernet's header, and IPv6's.
pub const HEAD_6: usize = 14 + 40;

/// The destination of a plain IPv4 packet: for the station whose address is the word `own` ([`packet::MacAddr::to_wire_word`]), without
/// tags and options, whole, its checksum right, with a hop left, between addresses that packets on their way may have (RFC 1812, 4.2.2
/// and 5.3.7). `len` is the whole frame's.
#[inline(always)]
#[must_use]
pub fn four(own: u64, head: &[u8; HEAD_4], len: usize) -> Option<u32> {
    let (first, second) = (le64::<0>(head), le64::<8>(head));
    let (third, fourth) = (le64::<16>(head), le64::<24>(head));
    let last = u64::from(u16::from_le_bytes([head[32], head[33]]));
    let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
    // One branch: a packet that is not plain is the exception, whatever it is.
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

/// The source of an IPv4 packet without options.
#[inline(always)]
#[must_use]
pub fn source(head: &[u8; HEAD_4]) -> u32 {
    u32::from_be_bytes([head[26], head[27], head[28], head[29]])
}

/// Whether IPv4 addresses that begin with an octet may be those of packets on their way: neither 0 nor 127, nor 224 and above.
static HOSTS: [bool; 256] = {
    let mut hosts = [false; 256];
    let mut first = 1;
    while first < 224 {
        hosts[first] = first != 127;
        first += 1;
    }
    hosts
};

/// The destination of a plain IPv6 packet: as [`four`], without a hop-by-hop header, between global unicast addresses (2000::/3).
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

/// Whether the checksum of an IPv4 header without options holds (RFC 1071).
#[inline(always)]
#[must_use]
pub fn is_sound(head: &[u8; HEAD_4]) -> bool {
    let last = u64::from(u16::from_le_bytes([head[32], head[33]]));
    adds_up(le64::<16>(head), le64::<24>(head), le64::<8>(head) >> 48 | last << 16)
}

/// Whether 16-bit words, four to each of these, add up to all ones. Not all of them are zero.
#[inline(always)]
fn adds_up(one: u64, two: u64, three: u64) -> bool {
    let sum = add(add(one, two), three);
    // Ones' complement addition is addition modulo 65,535, in words of 64 bits as in those of 16. What an odd number divides is the
    // product of its inverse, modulo 2^64, and a quotient; what it does not divide is the product of something larger.
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// Of 65,535 modulo 2^64.
const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);

/// Ones' complement addition: a carry out comes in again.
#[inline(always)]
fn add(one: u64, two: u64) -> u64 {
    let (sum, carry) = one.overflowing_add(two);
    sum + u64::from(carry)
}

#[inline(always)]
fn le64<const AT: usize>(head: &[u8]) -> u64 {
    head.get(AT..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |word| u64::from_le_bytes(*word))
}
