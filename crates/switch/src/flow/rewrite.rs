//! Execution of datapath actions on a frame: sets fields, adds and removes tags, labels and headers, and updates
//! Internet checksums incrementally (RFC 1624).
//!
//! Lengths are checked for each frame, because the actions apply to all packets of a megaflow, and a packet may be
//! shorter than the packet for which the actions were translated.

use packet::icmpv6::kind as icmpv6;
use packet::{DropReason, FlowKey, L3Kind, Layers, PortId, checksum, ethertype, ip_proto};
use zerocopy::IntoBytes;

use super::extended_key::{SOURCE_ADDRESS, TARGET_ADDRESS};
use super::program::{Op, SetBits};
use super::{BEYOND_WORDS, CONNECTION_WORDS, Field, PBB_TAG};

/// A frame with headroom: octets can be added and removed at the front.
pub trait Frame {
    /// Returns the first segment of the frame, which holds all headers.
    fn head(&mut self) -> &mut [u8];
    /// Returns the length of the whole frame in octets.
    fn total(&self) -> usize;
    /// Adds `n` octets at the front. Returns false if the headroom is too small.
    fn prepend(&mut self, n: u16) -> bool;
    /// Removes `n` octets from the front. Returns false if the frame has fewer than `n` octets.
    fn trim(&mut self, n: u16) -> bool;
    /// Returns whether the TCP or UDP checksum is not complete yet (checksum offload): the field holds only the sum of
    /// the pseudo header.
    fn is_open(&self) -> bool;
}

impl Frame for Vec<u8> {
    fn head(&mut self) -> &mut [u8] {
        self
    }

    fn total(&self) -> usize {
        self.len()
    }

    fn prepend(&mut self, n: u16) -> bool {
        self.splice(0..0, std::iter::repeat_n(0, usize::from(n)));
        true
    }

    fn trim(&mut self, n: u16) -> bool {
        let is_there = self.len() >= usize::from(n);
        if is_there {
            self.drain(..usize::from(n));
        }
        is_there
    }

    fn is_open(&self) -> bool {
        false
    }
}

/// Executes a datapath action that changes the frame. Other datapath actions have no effect.
///
/// # Errors
/// Returns a drop reason if the frame has no headroom or is too short.
pub fn apply(frame: &mut impl Frame, op: &Op) -> Result<(), DropReason> {
    match op {
        Op::Set(bits) => set(frame, bits),
        Op::PushVlan(tpid, tci) => {
            let mut tag = [0; 4];
            tag[..2].copy_from_slice(&tpid.to_be_bytes());
            tag[2..].copy_from_slice(&(tci & !packet::flow_key::TAG_PRESENT).to_be_bytes());
            insert(frame, 12, &tag)
        }
        Op::PopVlan => remove(frame, 12, 4),
        Op::PushMpls(eth_type, entry) => {
            let at = read(frame)?.1.l2_len();
            insert(frame, at, &entry.to_be_bytes())?;
            set_eth_type(frame, at, *eth_type)
        }
        Op::PopMpls(eth_type) => {
            let at = read(frame)?.1.l2_len();
            remove(frame, at, 4)?;
            set_eth_type(frame, at, *eth_type)
        }
        Op::CopyTtlIn(ttl) => {
            let at = read(frame)?.1.l2_len() + 4;
            copy_ttl_in(frame.head().get_mut(at..).unwrap_or_default(), *ttl);
            Ok(())
        }
        Op::PushPbb(eth_type, tag) => {
            let head = frame.head();
            let addresses: [u8; 12] = head.first_chunk().copied().ok_or(DropReason::EthTruncated)?;
            if !frame.prepend(18) {
                return Err(DropReason::TagOverflow);
            }
            let head = frame.head();
            head[..12].copy_from_slice(&addresses);
            head[12..14].copy_from_slice(&eth_type.to_be_bytes());
            head[14..18].copy_from_slice(&tag.to_be_bytes());
            Ok(())
        }
        Op::PopPbb => {
            // An 802.1ad service tag may precede the header.
            let n = read(frame)?.1.l2_len() + 4;
            let trims = u16::try_from(n).unwrap_or(u16::MAX);
            if frame.head().len() < n + 14 || !frame.trim(trims) {
                return Err(DropReason::EthTruncated);
            }
            Ok(())
        }
        Op::Output(_) | Op::Normal | Op::Recirculate(_) => Ok(()),
        Op::Meter(_) | Op::Queue(_) | Op::Clone(_) | Op::Track(_) | Op::ClearTrack => Ok(()),
    }
}

fn read(frame: &mut impl Frame) -> Result<(FlowKey, Layers), DropReason> {
    let total = frame.total();
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame.head(), total, PortId(0), &mut key)?;
    Ok((key, layers))
}

/// Sets the EtherType in the two octets before the offset `at`.
fn set_eth_type(frame: &mut impl Frame, at: usize, eth_type: u16) -> Result<(), DropReason> {
    let place = frame.head().get_mut(at - 2..at).ok_or(DropReason::EthTruncated)?;
    place.copy_from_slice(&eth_type.to_be_bytes());
    Ok(())
}

fn insert(frame: &mut impl Frame, at: usize, bytes: &[u8]) -> Result<(), DropReason> {
    let n = bytes.len();
    if frame.head().len() < at {
        return Err(DropReason::EthTruncated);
    }
    if !frame.prepend(u16::try_from(n).unwrap_or(u16::MAX)) {
        return Err(DropReason::TagOverflow);
    }
    let head = frame.head();
    head.copy_within(n..n + at, 0);
    head[at..at + n].copy_from_slice(bytes);
    Ok(())
}

fn remove(frame: &mut impl Frame, at: usize, n: usize) -> Result<(), DropReason> {
    let head = frame.head();
    if head.len() <= at + n {
        return Err(DropReason::VlanTruncated);
    }
    head.copy_within(..at, n);
    if frame.trim(u16::try_from(n).unwrap_or(u16::MAX)) { Ok(()) } else { Err(DropReason::VlanTruncated) }
}

/// Sets the TTL (hop limit) of the IP header at the start of `ip` and updates its checksum. The IP version is read
/// from the header, because no EtherType follows an MPLS label. If `ip` is not a complete IP header, it is left
/// unchanged.
fn copy_ttl_in(ip: &mut [u8], ttl: u8) {
    match ip.first().map(|first| first >> 4) {
        Some(4) if ip.len() >= 20 => {
            let header = Sum { at: 10, pseudo: false, optional: false, open: false };
            change(ip, 8, &[ttl, 0], &[0xff, 0], &[Some(header)]);
        }
        Some(6) if ip.len() >= 40 => ip[7] = ttl,
        _ => {}
    }
}

/// Returns the parts of the value and of the mask of a set-field step that belong to a range of octets of the flow.
fn part(bits: &SetBits, octets: std::ops::Range<usize>) -> (&[u8], &[u8]) {
    (&bits.value.0.as_bytes()[octets.clone()], &bits.mask.0.as_bytes()[octets])
}

fn set(frame: &mut impl Frame, bits: &SetBits) -> Result<(), DropReason> {
    let head = frame.head();
    if head.len() < 14 {
        return Err(DropReason::EthTruncated);
    }
    let (value, mask) = part(bits, Field::EthDst.octets(12));
    mix(&mut head[..12], value, mask);
    let (value, mask) = part(bits, Field::VlanTci.octets(2));
    if mask != [0, 0] && matches!(head[12..14], [0x81, 0x00] | [0x88, 0xa8]) {
        let tci = head.get_mut(14..16).ok_or(DropReason::VlanTruncated)?;
        // The flow's "tag present" bit is drop eligibility (DEI) on the wire, which stays unchanged.
        mix(tci, value, &[mask[0] & 0xef, mask[1]]);
    }
    if bits.mask.0[BEYOND_WORDS[0]..CONNECTION_WORDS.start].iter().all(|word| *word == 0)
        && bits.mask.0.as_bytes()[Field::ArpOp.octet()] == 0
    {
        return Ok(());
    }
    let (key, layers) = read(frame)?;
    let first_label = Field::MplsLabel.octet();
    for label in 0..3 {
        let (value, mask) = part(bits, first_label + 4 * label..first_label + 4 * label + 4);
        if mask != [0; 4] {
            let at = layers.l2_len() + 4 * label;
            mix(frame.head().get_mut(at..at + 4).ok_or(DropReason::EthTruncated)?, value, mask);
        }
    }
    let (value, mask) = part(bits, PBB_TAG..PBB_TAG + 4);
    if mask != [0; 4] && key.eth_type() == ethertype::PBB {
        let at = layers.l2_len();
        mix(frame.head().get_mut(at..at + 4).ok_or(DropReason::EthTruncated)?, value, mask);
    }
    let Some(l3) = layers.l3() else { return Ok(()) };
    match key.l3_kind() {
        L3Kind::Arp => set_arp(frame.head(), l3, bits),
        L3Kind::Ipv4 | L3Kind::Ipv6 => set_ip(frame, l3, layers.l4(), &key, bits),
        L3Kind::None => {}
    }
    Ok(())
}

fn set_arp(head: &mut [u8], l3: usize, bits: &SetBits) {
    let Some(arp) = head.get_mut(l3..l3 + 28) else { return };
    for (to, field, octets) in [
        (7, Field::ArpOp, 1),
        (8, Field::ArpSha, 6),
        (14, Field::ArpSpa, 4),
        (18, Field::ArpTha, 6),
        (24, Field::ArpTpa, 4),
    ] {
        let (value, mask) = part(bits, field.octets(octets));
        mix(&mut arp[to..to + octets], value, mask);
    }
}

/// The position of an Internet checksum in a frame, and the octets that the checksum covers.
#[derive(Clone, Copy)]
struct Sum {
    at: usize,
    /// Whether the checksum covers the IP addresses (pseudo header).
    pseudo: bool,
    /// Whether a value of zero means that there is no checksum (UDP over IPv4).
    optional: bool,
    /// Whether the checksum is not complete yet (checksum offload): the field holds only the sum of the pseudo header.
    open: bool,
}

impl Sum {
    fn mend(self, head: &mut [u8], old: &[u8], new: &[u8]) {
        let Some(place) = head.get_mut(self.at..self.at + 2) else { return };
        let now = u16::from_be_bytes([place[0], place[1]]);
        if self.optional && now == 0 {
            return;
        }
        let mended = if self.open {
            !checksum::update_bytes(!now, old, new)
        } else {
            checksum::update_bytes(now, old, new)
        };
        let mended = if self.optional && mended == 0 { 0xffff } else { mended };
        place.copy_from_slice(&mended.to_be_bytes());
    }
}

fn set_ip(frame: &mut impl Frame, l3: usize, l4: Option<usize>, key: &FlowKey, bits: &SetBits) {
    let open = frame.is_open();
    let total = frame.total();
    let is_v4 = key.l3_kind() == L3Kind::Ipv4;
    let head = frame.head();
    let sum = l4.and_then(|l4| {
        Some(match key.proto() {
            ip_proto::TCP => Sum { at: l4 + 16, pseudo: true, optional: false, open },
            // Zero means no checksum, in IPv6 too (RFC 8200, 8.1 and RFC 6935).
            ip_proto::UDP => Sum { at: l4 + 6, pseudo: true, optional: !open, open },
            ip_proto::ICMP if is_v4 => Sum { at: l4 + 2, pseudo: false, optional: false, open: false },
            ip_proto::ICMPV6 if !is_v4 => Sum { at: l4 + 2, pseudo: true, optional: false, open: false },
            _ => return None,
        })
    });
    let over_addresses = sum.filter(|sum| sum.pseudo);
    let header = is_v4.then_some(Sum { at: l3 + 10, pseudo: false, optional: false, open: false });
    let len = if is_v4 { 4 } else { 16 };
    let (src, dst) = if is_v4 { (l3 + 12, l3 + 16) } else { (l3 + 8, l3 + 24) };
    for (to, from) in [(src, Field::Ipv6Src.octet()), (dst, Field::Ipv6Dst.octet())] {
        let (value, mask) = part(bits, from..from + len);
        change(head, to, value, mask, &[header, over_addresses]);
    }
    let (tos, tos_mask) =
        (bits.value.0.as_bytes()[Field::IpDscp.octet()], bits.mask.0.as_bytes()[Field::IpDscp.octet()]);
    let (ttl, ttl_mask) =
        (bits.value.0.as_bytes()[Field::NwTtl.octet()], bits.mask.0.as_bytes()[Field::NwTtl.octet()]);
    if is_v4 {
        // Checksums are updated in 16-bit units, from the even octet.
        change(head, l3, &[0, tos], &[0, tos_mask], &[header]);
        change(head, l3 + 8, &[ttl, 0], &[ttl_mask, 0], &[header]);
    } else {
        change(head, l3, &[tos >> 4, tos << 4], &[tos_mask >> 4, tos_mask << 4], &[]);
        change(head, l3 + 7, &[ttl], &[ttl_mask], &[]);
        let (value, mask) = part(bits, Field::Ipv6Label.octets(3));
        change(head, l3 + 1, value, mask, &[]);
    }
    if let Some(l4) = l4 {
        let at = |place: usize| usize::from(u16::from_be_bytes([head[place], head[place + 1]]));
        let end = if is_v4 { l3 + at(l3 + 2) } else { l3 + 40 + at(l3 + 4) };
        // Fragments and multi-segment packets do not hold the whole message here.
        let whole = (head.len() == total && end <= total && !key.is_fragment()).then_some(end);
        set_l4(head, l4, whole, key, sum, bits);
    }
}

fn set_l4(head: &mut [u8], l4: usize, end: Option<usize>, key: &FlowKey, sum: Option<Sum>, bits: &SetBits) {
    // Octets that a partial checksum does not cover yet need no update.
    let sum = sum.filter(|sum| !sum.open);
    let (value, mask) = part(bits, Field::TcpSrc.octets(4));
    match key.proto() {
        ip_proto::TCP | ip_proto::UDP => change(head, l4, value, mask, &[sum]),
        ip_proto::SCTP if mask != [0; 4] => {
            // A CRC is linear, so that the difference is added and a wrong CRC stays wrong (as in Open
            // vSwitch). This needs the whole message. Otherwise the receiver rejects the packet.
            let Some(message) =
                end.and_then(|end| head.get_mut(l4..end)).filter(|message| message.len() >= 12)
            else {
                return change(head, l4, value, mask, &[]);
            };
            let was = u32::from_le_bytes([message[8], message[9], message[10], message[11]]);
            message[8..12].fill(0);
            let before = checksum::crc32c(message);
            mix(&mut message[..4], value, mask);
            let after = checksum::crc32c(message);
            message[8..12].copy_from_slice(&(was ^ before ^ after).to_le_bytes());
        }
        ip_proto::ICMP | ip_proto::ICMPV6 => {
            change(head, l4, &[value[1], value[3]], &[mask[1], mask[3]], &[sum]);
            set_nd(head, l4, key, sum, bits);
        }
        _ => {}
    }
}

fn set_nd(head: &mut [u8], l4: usize, key: &FlowKey, sum: Option<Sum>, bits: &SetBits) {
    let is_nd = |kind| matches!(kind, icmpv6::NEIGHBOUR_SOLICIT | icmpv6::NEIGHBOUR_ADVERT);
    if key.proto() != ip_proto::ICMPV6 || !u8::try_from(key.src_port()).is_ok_and(is_nd) {
        return;
    }
    let (value, mask) = part(bits, Field::NdTarget.octets(16));
    change(head, l4 + 8, value, mask, &[sum]);
    let mut at = l4 + 24;
    while let Some(&[kind, len]) = head.get(at..at + 2).and_then(|it| it.first_chunk::<2>()) {
        let len = usize::from(len) * 8;
        if len == 0 {
            break;
        }
        if len == 8 && matches!(kind, SOURCE_ADDRESS | TARGET_ADDRESS) {
            let field = if kind == SOURCE_ADDRESS { Field::NdSll } else { Field::NdTll };
            let (value, mask) = part(bits, field.octets(6));
            change(head, at + 2, value, mask, &[sum]);
        }
        at += len;
    }
}

/// Changes octets of a frame and updates the Internet checksums that cover them.
fn change(head: &mut [u8], at: usize, value: &[u8], mask: &[u8], sums: &[Option<Sum>]) {
    if mask.iter().all(|bits| *bits == 0) {
        return;
    }
    let n = value.len();
    let Some(place) = head.get_mut(at..at + n) else { return };
    let mut old = [0_u8; 16];
    old[..n].copy_from_slice(place);
    mix(place, value, mask);
    let mut new = [0_u8; 16];
    new[..n].copy_from_slice(place);
    for sum in sums.iter().flatten() {
        sum.mend(head, &old[..n], &new[..n]);
    }
}

#[inline]
fn mix(place: &mut [u8], value: &[u8], mask: &[u8]) {
    for ((own, value), mask) in place.iter_mut().zip(value).zip(mask) {
        *own = *own & !mask | value & mask;
    }
}
