//! The extended key: packet fields that OpenFlow can match and that the [`FlowKey`] does not hold. These are MPLS
//! labels, the IPv6 flow label and extension headers, hardware addresses in ARP and neighbour discovery (ND), and
//! target addresses of ND. Workers extract the extended key only if a cached megaflow or a flow entry matches one of
//! these fields.

use packet::ethertype::{MPLS, MPLS_MULTICAST, PBB};
use packet::{FlowKey, L3Kind, Layers, icmpv6, ip_proto};

use super::connection::ConnectionFields;

const SOLICIT: u16 = icmpv6::kind::NEIGHBOUR_SOLICIT as u16;
const ADVERT: u16 = icmpv6::kind::NEIGHBOUR_ADVERT as u16;
/// Type of the ND option with the source link-layer address (RFC 4861 section 4.6.1).
pub(super) const SOURCE_ADDRESS: u8 = 1;
/// Type of the ND option with the target link-layer address (RFC 4861 section 4.6.1).
pub(super) const TARGET_ADDRESS: u8 = 2;

/// Bits of the match field for IPv6 extension headers, OFPXMT_OFB_IPV6_EXTHDR (OFPIEH_*, OpenFlow 1.5.1 section
/// 7.2.3.8).
mod exthdr {
    pub const NO_NEXT: u16 = 1;
    pub const ESP: u16 = 1 << 1;
    pub const AUTH: u16 = 1 << 2;
    pub const DEST: u16 = 1 << 3;
    pub const FRAG: u16 = 1 << 4;
    pub const ROUTER: u16 = 1 << 5;
    pub const HOP: u16 = 1 << 6;
    /// Bit for an extension header that occurs more than once.
    pub const UNREP: u16 = 1 << 7;
    /// Bit for extension headers that are not in the recommended order (RFC 8200 section 4.1).
    pub const UNSEQ: u16 = 1 << 8;
}

/// Number of 64-bit words of an [`ExtendedKey`].
pub const EXTENDED_WORDS: usize = 16;
/// Number of words of an [`ExtendedKey`] that are extracted from the headers of the packet.
const HEADER_WORDS: usize = 7;

/// The words of the extended key. Two words hold three MPLS label stack entries and the 802.1ah service tag. One word
/// holds the IPv6 flow label and the extension header bits. Two words hold the ND target address, and two words hold
/// the source and target hardware addresses of ARP or ND. The remaining words hold the connection of a packet that the
/// action `ct` has tracked ([`ConnectionFields`]), and are zero for other packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ExtendedKey(pub [u64; EXTENDED_WORDS]);

impl ExtendedKey {
    /// An extended key with all bits zero. The value represents a packet without these fields, or a mask that matches
    /// all packets.
    pub const ZERO: ExtendedKey = ExtendedKey([0; EXTENDED_WORDS]);

    /// Extracts the extended key from the frame's first segment. Fields of malformed or truncated headers
    /// remain zero.
    #[must_use]
    pub fn extract(frame: &[u8], key: &FlowKey, layers: &Layers) -> ExtendedKey {
        let mut bytes = [0_u8; 56];
        let l2 = layers.l2_len();
        match key.eth_type() {
            MPLS | MPLS_MULTICAST => labels(frame.get(l2..).unwrap_or_default(), &mut bytes),
            PBB => {
                if let Some(tag) = frame.get(l2..l2 + 4) {
                    bytes[12..16].copy_from_slice(tag);
                }
            }
            _ => {}
        }
        match (key.l3_kind(), layers.l3()) {
            (L3Kind::Arp, Some(l3)) => {
                if let Some(arp) = frame.get(l3..l3 + 28) {
                    bytes[40..46].copy_from_slice(&arp[8..14]);
                    bytes[46..52].copy_from_slice(&arp[18..24]);
                }
            }
            (L3Kind::Ipv6, Some(l3)) => ipv6(frame, l3, layers.l4(), key, &mut bytes),
            _ => {}
        }
        let headers: [u64; HEADER_WORDS] = zerocopy::transmute!(bytes);
        let mut words = [0; EXTENDED_WORDS];
        words[..HEADER_WORDS].copy_from_slice(&headers);
        ExtendedKey(words)
    }

    /// Returns the key with the connection of the packet.
    #[must_use]
    pub fn with_connection(mut self, connection: &ConnectionFields) -> ExtendedKey {
        self.0[HEADER_WORDS..].copy_from_slice(&connection.words());
        self
    }

    /// Returns the connection of the packet.
    #[must_use]
    pub fn connection(&self) -> ConnectionFields {
        let mut words = [0; EXTENDED_WORDS - HEADER_WORDS];
        words.copy_from_slice(&self.0[HEADER_WORDS..]);
        ConnectionFields::of_words(words)
    }

    /// Returns whether all bits are zero. A mask of zero matches all packets.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; EXTENDED_WORDS]
    }
}

/// Copies up to three MPLS label stack entries from `stack` to `bytes`, and stops after the entry with the
/// bottom-of-stack bit.
fn labels(stack: &[u8], bytes: &mut [u8; 56]) {
    for (entry, to) in stack.chunks_exact(4).zip(bytes[..12].chunks_exact_mut(4)) {
        to.copy_from_slice(entry);
        if entry[2] & 1 != 0 {
            break;
        }
    }
}

fn ipv6(frame: &[u8], l3: usize, l4: Option<usize>, key: &FlowKey, bytes: &mut [u8; 56]) {
    let Some(head) = frame.get(l3..l3 + 40) else { return };
    bytes[17..20].copy_from_slice(&[head[1] & 0x0f, head[2], head[3]]);
    let kinds = extensions(head[6], frame.get(l3 + 40..).unwrap_or_default(), key.is_later_fragment());
    bytes[20..22].copy_from_slice(&kinds.to_be_bytes());
    let Some(icmp) = l4.and_then(|at| frame.get(at..)) else { return };
    if key.proto() != ip_proto::ICMPV6
        || key.is_later_fragment()
        || !matches!(key.src_port(), SOLICIT | ADVERT)
    {
        return;
    }
    let Some(target) = icmp.get(8..24) else { return };
    bytes[24..40].copy_from_slice(target);
    let mut options = icmp.get(24..).unwrap_or_default();
    while let [kind, len, ..] = *options {
        let len = usize::from(len) * 8;
        if len == 0 || options.len() < len {
            break;
        }
        if len == 8 && matches!(kind, SOURCE_ADDRESS | TARGET_ADDRESS) {
            let at = if kind == SOURCE_ADDRESS { 40 } else { 46 };
            bytes[at..at + 6].copy_from_slice(&options[2..8]);
        }
        options = &options[len..];
    }
}

/// Returns the extension header bits (OFPXMT_OFB_IPV6_EXTHDR) of an IPv6 packet.
fn extensions(first: u8, mut rest: &[u8], later: bool) -> u16 {
    let (mut kinds, mut next, mut last) = (0_u16, first, 0);
    for _ in 0..8 {
        // Position in the order that RFC 8200, section 4.1 recommends. Destination options may appear in two
        // positions.
        let (bit, place) = match next {
            ip_proto::HOP_BY_HOP => (exthdr::HOP, 1),
            ip_proto::DEST_OPTS => (exthdr::DEST, if kinds & exthdr::ROUTER == 0 { 2 } else { 6 }),
            ip_proto::ROUTING => (exthdr::ROUTER, 3),
            ip_proto::FRAGMENT => (exthdr::FRAG, 4),
            ip_proto::AH => (exthdr::AUTH, 5),
            ip_proto::ESP => (exthdr::ESP, 5),
            ip_proto::NO_NEXT => (exthdr::NO_NEXT, 7),
            _ => return kinds,
        };
        if kinds & bit != 0 && !(next == ip_proto::DEST_OPTS && place == 6) {
            kinds |= exthdr::UNREP;
        }
        if place < last {
            kinds |= exthdr::UNSEQ;
        }
        (kinds, last) = (kinds | bit, place);
        let [following, len, ..] = *rest else { return kinds };
        if matches!(next, ip_proto::ESP | ip_proto::NO_NEXT) || (next == ip_proto::FRAGMENT && later) {
            return kinds;
        }
        let octets = match next {
            ip_proto::FRAGMENT => 8,
            ip_proto::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        let Some(behind) = rest.get(octets..) else { return kinds };
        (rest, next) = (behind, following);
    }
    kinds
}

#[cfg(test)]
mod tests {
    use packet::{MacAddr, PortId};

    use super::*;

    fn read(frame: &[u8]) -> (FlowKey, ExtendedKey) {
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(frame, frame.len(), PortId(1), &mut key).unwrap();
        (key, ExtendedKey::extract(frame, &key, &layers))
    }

    fn frame(eth_type: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = [MacAddr([2; 6]).0, MacAddr([4; 6]).0].concat();
        frame.extend(eth_type.to_be_bytes());
        frame.extend(payload);
        frame
    }

    #[test]
    fn labels_end_at_the_bottom_of_the_stack() {
        let (key, extended) = read(&frame(0x8847, &[0, 1, 0x20, 64, 0, 2, 0x31, 63, 0xff, 0xff, 0xff, 0xff]));
        let flow = crate::flow::Flow::new(&key, &extended, 7);
        use crate::flow::Field;
        assert_eq!(flow.get(Field::MplsLabel), 0x12);
        assert_eq!(flow.get(Field::MplsTtl), 64);
        assert_eq!(flow.get(Field::MplsBos), 0);
        assert_eq!(extended.0[1], 0, "behind the bottom nothing is read");
        assert_eq!(flow.get(Field::InPort), 7);
        assert_eq!(flow.extended(), extended);
    }

    #[test]
    fn addresses_in_arp_and_neighbour_discovery_are_found() {
        use crate::flow::{Field, Flow};
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
        arp.extend([1, 2, 3, 4, 5, 6, 10, 0, 0, 1, 7, 8, 9, 10, 11, 12, 10, 0, 0, 2]);
        let (key, extended) = read(&frame(0x0806, &arp));
        let flow = Flow::new(&key, &extended, 1);
        assert_eq!(flow.get(Field::ArpSha), 0x0102_0304_0506);
        assert_eq!(flow.get(Field::ArpTha), 0x0708_090a_0b0c);
        assert_eq!(flow.get(Field::ArpOp), 1);
        assert_eq!(flow.get(Field::ArpTpa), 0x0a00_0002);

        let mut nd = vec![0x60, 1, 2, 3, 0, 32, 58, 255];
        nd.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
        nd.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        nd.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        nd.extend([1, 1, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf]);
        let (key, extended) = read(&frame(0x86dd, &nd));
        let flow = Flow::new(&key, &extended, 1);
        assert_eq!(flow.get(Field::Ipv6Label), 0x1_0203 & 0xf_ffff);
        assert_eq!(flow.get(Field::Icmpv6Type), 135);
        assert_eq!(flow.get(Field::NdTarget), 0x2001_0000_0000_0000_0000_0000_0000_0009);
        assert_eq!(flow.get(Field::NdSll), 0x0a0b_0c0d_0e0f);
    }
}
