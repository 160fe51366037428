//! The Internet checksum (RFC 1071), its pseudo-headers, its incremental update (RFC 1624), and the CRC32c of SCTP.
//!
//! These functions are used when packets are rewritten (router, NAT) or built, and when checksums are completed in
//! software for a port without checksum offload.
//!
//! A partial sum is an intermediate result of the Internet checksum: a `u32` sum of 16-bit words in network byte order,
//! not complemented. Partial sums may be added in any order. [`fold`] reduces a partial sum to 16 bits, and [`finish`]
//! returns the value that is stored in a header.
//!
//! Invariant: an incremental update yields the checksum that a full computation yields (checked by a property test). A
//! sum of zero may appear as 0x0000 or 0xffff, which are equal in one's complement.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the partial sum of `bytes` for the Internet checksum. If the number of bytes is odd, a
/// zero byte is assumed after the last byte.
///
/// Partial sums may be added (`sum(a) + sum(b)`) if `a` has an even length. A result is below 2^16. Therefore
/// 65,536 results can be added without overflow.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    let mut lanes = [0u64; 4];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane += halves(word);
        }
    }
    let mut total = lanes.iter().sum::<u64>();
    let mut words = blocks.remainder().chunks_exact(8);
    for word in &mut words {
        total += halves(word);
    }
    // The remainder is read in pieces of 4, 2 and 1 bytes. Copying it into a zeroed word would cost a call.
    let mut rest = words.remainder();
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        total += u64::from(u32::from_le_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        total += u64::from(u16::from_le_bytes(*word));
        rest = after;
    }
    if let [last] = rest {
        total += u64::from(*last);
    }
    u32::from(fold_wide(total).swap_bytes())
}

/// Returns the sum of the two 32-bit halves of eight bytes, as one step of the Internet checksum. A `u64` holds the
/// sum of 2^31 results without overflow.
#[inline(always)]
fn halves(word: &[u8]) -> u64 {
    let word = word.first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_le_bytes(*bytes));
    (word & 0xffff_ffff) + (word >> 32)
}

#[inline]
fn fold_wide(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    u16::try_from(total).unwrap_or(u16::MAX)
}

/// Reduces a partial sum to 16 bits by adding the carries to the low bits. The result is not complemented.
#[inline]
pub const fn fold(partial: u32) -> u16 {
    let once = (partial & 0xffff) + (partial >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    low16(twice)
}

/// Returns the Internet checksum for a partial sum: the sum reduced to 16 bits and complemented.
#[inline]
pub const fn finish(partial: u32) -> u16 {
    !fold(partial)
}

/// Returns the UDP checksum field value for a partial sum. A computed 0 becomes 0xffff, because 0 means "no
/// checksum" (RFC 768).
#[inline]
pub const fn finish_udp(partial: u32) -> u16 {
    match finish(partial) {
        0 => 0xffff,
        value => value,
    }
}

/// Returns the Internet checksum of an IPv4 header whose checksum field is zero, or of any message without a
/// pseudo-header.
///
/// For a header that includes its checksum, the result is 0 if and only if the checksum is correct.
#[inline]
pub fn ipv4_header(header: &[u8]) -> u16 {
    finish(sum(header))
}

/// Returns the partial sum of the IPv4 pseudo-header (RFC 9293 section 3.1). `len` is the length of the L4
/// header and the payload in octets.
#[inline]
pub fn l4_pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, len: u16) -> u32 {
    let (src, dst) = (u32::from(src), u32::from(dst));
    (src >> 16) + (src & 0xffff) + (dst >> 16) + (dst & 0xffff) + u32::from(proto) + u32::from(len)
}

/// Returns the partial sum of the IPv6 pseudo-header (RFC 8200 section 8.1). `len` is the length of the L4
/// header and the payload in octets.
#[inline]
pub fn l4_pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, len: u32) -> u32 {
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    addresses + u32::from(proto) + (len >> 16) + (len & 0xffff)
}

/// Returns the Internet checksum of a message after a 16-bit field at an even offset changed from `old` to `new`
/// (RFC 1624 equation 3). `checksum` is the checksum before the change.
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    finish(!checksum as u32 + !old as u32 + new as u32)
}

/// Returns the Internet checksum of a message after a 32-bit field at an even offset changed from `old` to `new`.
/// `checksum` is the checksum before the change.
#[inline]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let old = !old;
    let old = (old >> 16) + (old & 0xffff);
    finish(!checksum as u32 + old + (new >> 16) + (new & 0xffff))
}

/// Returns the Internet checksum of a message after bytes at an even offset changed from `old` to `new`. `checksum`
/// is the checksum before the change. Both slices must have the same even length.
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    finish(u32::from(!checksum) + u32::from(!fold(sum(old))) + sum(new))
}

/// Computes the Internet checksum of a complete message and stores it at offset `at`. The old content of the
/// checksum field is ignored.
///
/// `pseudo_sum` is the partial sum of the pseudo-header (0 for ICMP and IGMP). For UDP use
/// [`udp::fill_checksum`](crate::udp::fill_checksum). Does nothing if the message ends before the field.
pub fn fill(message: &mut [u8], at: usize, pseudo_sum: u32) {
    store(message, at, 0);
    let value = finish(pseudo_sum + sum(message));
    store(message, at, value);
}

/// Stores the checksum `value` in network byte order at offset `at`. Does nothing if the message ends before the
/// field.
#[inline]
pub fn store(message: &mut [u8], at: usize, value: u16) {
    if let Some(place) = message.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *place = value.to_be_bytes();
    }
}

/// Returns the CRC32c (Castagnoli) of `bytes` as used by SCTP (RFC 9260 appendix A). The software
/// implementation processes eight bytes in each step.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !crc32c_continue(u32::MAX, bytes)
}

/// Continues a CRC32c over more bytes, and returns the new state of the CRC register. The initial state is `u32::MAX`.
/// The caller must complement the last state to get the CRC32c.
pub fn crc32c_continue(state: u32, bytes: &[u8]) -> u32 {
    let mut state = state;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let [a, b, c, d] = state.to_le_bytes();
        state = CRC_TABLES[7][usize::from(word[0] ^ a)]
            ^ CRC_TABLES[6][usize::from(word[1] ^ b)]
            ^ CRC_TABLES[5][usize::from(word[2] ^ c)]
            ^ CRC_TABLES[4][usize::from(word[3] ^ d)]
            ^ CRC_TABLES[3][usize::from(word[4])]
            ^ CRC_TABLES[2][usize::from(word[5])]
            ^ CRC_TABLES[1][usize::from(word[6])]
            ^ CRC_TABLES[0][usize::from(word[7])];
    }
    for byte in words.remainder() {
        state = CRC_TABLES[0][usize::from(byte ^ state.to_le_bytes()[0])] ^ (state >> 8);
    }
    state
}

/// Tables for computing the CRC32c of eight bytes at a time. Entry `b` of table `n` is the CRC (initial state 0,
/// not complemented) of the byte `b` and `n` zero bytes.
static CRC_TABLES: [[u32; 256]; 8] = crc_tables();

const fn crc_tables() -> [[u32; 256]; 8] {
    const REFLECTED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ REFLECTED_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[inline]
const fn low16(value: u32) -> u16 {
    let [low, high, _, _] = value.to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Reference implementation of the checksum in RFC 1071 section 4.1, which adds one word at a time.
    fn naive(bytes: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in bytes.chunks(2) {
            total += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        }
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        u16::try_from(total).unwrap()
    }

    fn naive_crc32c(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        !crc
    }

    /// Returns whether two checksums are equal. The values 0x0000 and 0xffff count as equal, because both are zero in
    /// one's complement.
    fn same(a: u16, b: u16) -> bool {
        a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
    }

    #[test]
    fn known_values() {
        // The example of RFC 1071 section 3.
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        // The example of RFC 1624 section 4: 0x5555 becomes 0x3285 under a checksum of 0xdd2f.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
        // RFC 3720 section B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(finish_udp(0xffff), 0xffff);
    }

    #[test]
    fn the_largest_packets_do_not_overflow() {
        let bytes = vec![0xff; 1 << 20];
        assert_eq!(fold(sum(&bytes)), 0xffff);
        assert_eq!(fold(u32::MAX), 0xffff);
    }

    proptest! {
        #[test]
        fn sum_agrees_with_the_rfc(bytes in vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(fold(sum(&bytes)), naive(&bytes));
        }

        #[test]
        fn partial_sums_add(a in vec(any::<[u8; 2]>(), 0..40), b in vec(any::<u8>(), 0..80)) {
            let a = a.concat();
            let whole = [a.clone(), b.clone()].concat();
            prop_assert_eq!(fold(sum(&a) + sum(&b)), fold(sum(&whole)));
        }

        #[test]
        fn crc_agrees_with_bit_by_bit(bytes in vec(any::<u8>(), 0..100), cut in 0usize..100) {
            prop_assert_eq!(crc32c(&bytes), naive_crc32c(&bytes));
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(!crc32c_continue(crc32c_continue(u32::MAX, head), tail), naive_crc32c(&bytes));
        }

        #[test]
        fn incremental_is_recomputed(
            words in vec(any::<[u8; 4]>(), 1..20),
            place in 0usize..20,
            new: [u8; 4],
        ) {
            let before = words.concat();
            let at = place % words.len() * 4;
            let mut after = before.clone();
            after[at..at + 4].copy_from_slice(&new);
            let (old_sum, new_sum) = (finish(sum(&before)), finish(sum(&after)));
            let old: [u8; 4] = before[at..at + 4].try_into().unwrap();
            let (old32, new32) = (u32::from_be_bytes(old), u32::from_be_bytes(new));
            prop_assert!(same(update32(old_sum, old32, new32), new_sum));
            prop_assert!(same(update_bytes(old_sum, &old, &new), new_sum));
            let high = update16(old_sum, fold(old32 >> 16), fold(new32 >> 16));
            prop_assert!(same(update16(high, low16(old32), low16(new32)), new_sum));
        }
    }
}
