//! Symmetric flow hash that distributes packets over workers. Both directions of a conversation have equal
//! hashes.
//!
//! Invariant: all packets of a flow have equal hashes, so that one worker processes them in order.
//! Fragments other than the first have no ports. Therefore the hash of a fragment does not include
//! the ports. All fragments of a flow have equal hashes, but their hash differs from that of the
//! flow's unfragmented packets. The invariant still holds, because a flow of fragments is defined
//! by addresses and protocol only.

use super::{FRAGMENT_ANY, FlowKey, L3Kind};
use crate::numbers::ip_proto;

// Odd constants with well mixed bits, from the digits of sqrt(2), sqrt(3) and sqrt(5).
const K0: u64 = 0x6a09_e667_f3bc_c909;
const K1: u64 = 0xbb67_ae85_84ca_a73b;
const K2: u64 = 0x3c6e_f372_fe94_f82b;

impl FlowKey {
    /// Returns a hash of the packet's conversation. Swapping source and destination (addresses and
    /// ports) does not change the hash.
    ///
    /// The hash covers these fields:
    /// - IP packets: addresses and protocol. Also the ports of TCP, UDP and SCTP, unless the packet is a
    ///   fragment.
    /// - Other frames, including ARP: both MAC addresses and the EtherType.
    ///
    /// The hash has no secret seed. A sender can therefore provoke collisions. Structures that use the hash
    /// must bound the length of their buckets.
    #[inline]
    pub fn hash_symmetric(&self) -> u32 {
        let word = |place: usize| u64::from_le(self.words()[place]);
        let (from, to) = match self.l3_kind() {
            L3Kind::Ipv4 | L3Kind::Ipv6 => {
                let ports = self.hashed_ports();
                // Words 4 and 6 are zero for IPv4. The multiplication distributes the bits of the first address word.
                // Without it, they would overlap with the bits of the second word. The ports are shifted between the
                // octets that usually differ.
                let from = word(3).wrapping_mul(K1) ^ word(4) ^ (ports & 0xffff) << 20;
                let to = word(5).wrapping_mul(K1) ^ word(6) ^ (ports >> 16) << 20;
                (from, to)
            }
            L3Kind::None | L3Kind::Arp => (self.eth_src().as_u64(), self.eth_dst().as_u64()),
        };
        // EtherType and protocol are adjacent in word 2. The fragment bits above them are shifted out.
        let kind = word(2) >> 32 << 40;
        // A product of the two ends is symmetric. Unlike a sum or an xor, the product changes if one end increases and
        // the other end decreases by an equal amount. `fold` xors the high half of the product, which depends on all
        // input bits, into the low half.
        let ends = fold(from ^ kind ^ K0, to ^ kind ^ K0).wrapping_mul(K2);
        u32::try_from(ends >> 32).unwrap_or_default()
    }

    /// Returns the source port in the low 16 bits and the destination port in the next 16 bits, in network
    /// byte order. Returns 0 if the hash does not cover the ports.
    ///
    /// The hash does not cover the port fields of fragments, nor of ICMP and IGMP packets, because the type and code
    /// differ between the two directions. For protocols other than TCP, UDP and SCTP, the port fields of the key are
    /// zero.
    #[inline]
    fn hashed_ports(&self) -> u64 {
        let ports = u64::from_le(self.words()[7]) & 0xffff_ffff;
        let messages = matches!(self.proto, ip_proto::ICMP | ip_proto::IGMP | ip_proto::ICMPV6);
        if messages | (self.fragment & FRAGMENT_ANY != 0) { 0 } else { ports }
    }
}

/// Mixes two words for a hash: returns the xor of the two halves of the 128-bit product of `a` and `b`.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a 128-bit product")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortId;

    fn key(src: u32, dst: u32, src_port: u16, dst_port: u16) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_l3_kind(L3Kind::Ipv4);
        key.set_ipv4_src(src.into());
        key.set_ipv4_dst(dst.into());
        key.set_proto(ip_proto::UDP);
        key.set_src_port(src_port);
        key.set_dst_port(dst_port);
        key
    }

    /// Distributes the hashes of `keys` over 2^`bits` buckets by their high or low bits. Returns the largest deviation
    /// of any bucket's load from the mean load, in standard deviations.
    fn spread(keys: impl Iterator<Item = FlowKey>, bits: u32, high: bool) -> f64 {
        let mut loads = vec![0u32; 1 << bits];
        let mut count = 0u32;
        for key in keys {
            let hash = key.hash_symmetric();
            let bucket = if high { hash >> (32 - bits) } else { hash & ((1 << bits) - 1) };
            loads[bucket as usize] += 1;
            count += 1;
        }
        let mean = f64::from(count) / f64::from(1u32 << bits);
        loads.iter().map(|load| (f64::from(*load) - mean).abs() / mean.sqrt()).fold(0.0, f64::max)
    }

    #[test]
    fn sequential_traffic_spreads() {
        let hosts = || (0..65_536u32).map(|i| key(0x0a00_0000 + i, 0x0a80_0000, 1000, 80));
        let ports = || (0..=u16::MAX).map(|p| key(0x0a00_0001, 0x0a00_0002, p, 80));
        let pairs = || {
            (0..256u32).flat_map(|a| (0..256u32).map(move |b| key(0x0a00_0000 + a, 0x0a00_0100 + b, 9, 9)))
        };
        let crossing = || (0..=u16::MAX).map(|p| key(0x0a00_0001, 0x0a00_0002, p, u16::MAX - p));
        for high in [false, true] {
            for bits in [1, 3, 7, 10] {
                for (name, worst) in [
                    ("hosts", spread(hosts(), bits, high)),
                    ("ports", spread(ports(), bits, high)),
                    ("pairs", spread(pairs(), bits, high)),
                    ("crossing", spread(crossing(), bits, high)),
                ] {
                    assert!(worst < 6.0, "{name}: {worst:.1} sigma over 2^{bits} buckets, high bits: {high}");
                }
            }
        }
    }

    #[test]
    fn ipv6_neighbours_spread() {
        let prefix = u128::from_be_bytes([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let keys = (0..256u128).flat_map(|a| {
            (0..256u128).map(move |b| {
                let mut key = key(0, 0, 4000, 443);
                key.set_l3_kind(L3Kind::Ipv6);
                key.set_ipv6_src((prefix | a << 64 | 1).into());
                key.set_ipv6_dst((prefix | 7 << 64 | b).into());
                key
            })
        });
        let worst = spread(keys, 7, false);
        assert!(worst < 6.0, "{worst}");
    }

    #[test]
    fn fragments_and_icmp_ignore_ports() {
        let mut first = key(1, 2, 1000, 2000);
        first.set_fragment_bits(FRAGMENT_ANY);
        let mut later = key(1, 2, 0, 0);
        later.set_fragment_bits(super::super::FRAGMENT_ANY | super::super::FRAGMENT_LATER);
        assert_eq!(first.hash_symmetric(), later.hash_symmetric());

        let mut request = key(1, 2, 8, 0);
        request.set_proto(ip_proto::ICMP);
        let mut reply = key(2, 1, 0, 0);
        reply.set_proto(ip_proto::ICMP);
        assert_eq!(request.hash_symmetric(), reply.hash_symmetric());
    }

    #[test]
    fn the_port_of_arrival_does_not_matter_but_the_protocol_does() {
        let mut key = key(1, 2, 3, 4);
        let before = key.hash_symmetric();
        key.set_in_port(PortId(9));
        assert_eq!(key.hash_symmetric(), before);
        key.set_proto(ip_proto::TCP);
        assert_ne!(key.hash_symmetric(), before);
    }
}
