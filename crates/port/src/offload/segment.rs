//! Segmentation in software of TCP packets over IPv4 and IPv6 (RFC 9293) and of UDP packets (USO). VLAN tags,
//! IP options and extension headers are copied unchanged.
//!
//! Each segment gets a copy of the headers. The lengths, the TCP sequence number, the IPv4 identification and
//! the checksums are adapted to the segment. The flags FIN and PSH are set only in the last segment, and CWR
//! only in the first (RFC 3168, 6.1.2).

use packet::{DropReason, checksum};

use super::{assemble, complete_checksum, reader};
use crate::memory::FrameMemory;
use crate::packet::{Flags, Gso, Offload, Packet};
use crate::pool::FramePool;
use crate::queue::Capabilities;

/// Maximum number of segments into which one packet is divided. The number is sufficient for a packet of 64 KiB
/// with segments of 48 bytes, the smallest size that TCP stacks accept. Without the limit, the segmentation of
/// one packet could take as long as thousands of other packets.
const MAX_SEGMENTS: usize = 1400;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Positions and lengths of the headers in a packet. All positions and lengths have been checked
/// against the length of the packet's first frame.
struct Plan {
    l3: usize,
    v6: bool,
    l4: usize,
    tcp: bool,
    /// Length of all headers together in bytes.
    headers: usize,
    payload: usize,
    size: usize,
}

impl Plan {
    fn new(packet: &Packet, memory: &FrameMemory) -> Result<Self, DropReason> {
        const BAD: DropReason = DropReason::RxBadOffload;
        let head = packet.head(memory);
        let (l3, v6) = network(head).ok_or(BAD)?;
        let offload = packet.offload(memory);
        let tcp = matches!(offload.gso, Gso::Tcp4 | Gso::Tcp6);
        let udp = offload.gso == Gso::Udp;
        if !(tcp || udp) || !offload.flags.contains(Flags::PARTIAL_CHECKSUM) || offload.gso_size == 0 {
            return Err(BAD);
        }
        if (offload.gso == Gso::Tcp4 && v6) || (offload.gso == Gso::Tcp6 && !v6) {
            return Err(BAD);
        }
        let l4 = usize::from(offload.csum_start);
        let l3_header = if v6 { 40 } else { usize::from(*head.get(l3).ok_or(BAD)? & 15) * 4 };
        if l3_header < 20 || l4 < l3 + l3_header || offload.csum_offset != if tcp { 16 } else { 6 } {
            return Err(BAD);
        }
        let l4_header = if tcp { usize::from(*head.get(l4 + 12).ok_or(BAD)? >> 4) * 4 } else { 8 };
        let headers = l4 + l4_header;
        if (tcp && l4_header < 20) || headers > head.len() {
            return Err(BAD);
        }
        let plan = Self {
            l3,
            v6,
            l4,
            tcp,
            headers,
            payload: packet.len() - headers,
            size: usize::from(offload.gso_size),
        };
        // Every length field is 16 bits wide. The IPv6 payload length excludes the IPv6 header.
        if plan.headers + plan.size.min(plan.payload) - l3 > 65535 || plan.count() > MAX_SEGMENTS {
            return Err(DropReason::OffloadUnsupported);
        }
        Ok(plan)
    }

    fn count(&self) -> usize {
        self.payload.div_ceil(self.size).max(1)
    }
}

/// Returns the position of the IP header in `head`, and whether this is an IPv6 header. Returns `None` if
/// there is no IP header.
fn network(head: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    for _ in 0..3 {
        match u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]) {
            0x0800 => return Some((at + 2, false)),
            0x86dd => return Some((at + 2, true)),
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            _ => return None,
        }
    }
    None
}

/// Returns the number of segments that `segment` makes of a packet. Returns 1 if the packet cannot be
/// segmented.
#[must_use]
pub fn segment_count(packet: &Packet, memory: &FrameMemory) -> usize {
    if packet.flags().contains(Flags::SEGMENT) {
        Plan::new(packet, memory).map_or(1, |plan| plan.count())
    } else {
        1
    }
}

/// Returns the length in bytes of the longest frame that is transmitted for a packet, without FCS. If the
/// packet is to be segmented, this is the length of a segment with its headers. Callers compare this length
/// with the maximum frame length.
#[must_use]
pub fn wire_len(packet: &Packet, memory: &FrameMemory) -> usize {
    if !packet.flags().contains(Flags::SEGMENT) {
        return packet.len();
    }
    Plan::new(packet, memory).map_or(packet.len(), |plan| plan.headers + plan.size.min(plan.payload))
}

/// Divides a packet into segments, and calls `emit` with each segment in order. Returns the number of
/// segments. If `caps` permits partial checksums, the checksums of the segments are left partial. The frames
/// of the original packet are returned to the pool.
///
/// # Errors
/// - [`DropReason::RxBadOffload`] if the packet's offload state contradicts its headers.
/// - [`DropReason::OffloadUnsupported`] if the packet would have too many segments.
/// - [`DropReason::NoFrame`] if no frame is free. `emit` may have been called with the first segments in this
///   case.
pub fn segment(
    packet: Packet,
    caps: &Capabilities,
    pool: &mut FramePool,
    emit: &mut impl FnMut(&mut FramePool, Packet),
) -> Result<usize, DropReason> {
    let memory = pool.memory_arc();
    let result = Plan::new(&packet, &memory).and_then(|plan| cut(&packet, &plan, &memory, caps, pool, emit));
    pool.free(packet);
    result
}

fn cut(
    packet: &Packet,
    plan: &Plan,
    memory: &FrameMemory,
    caps: &Capabilities,
    pool: &mut FramePool,
    emit: &mut impl FnMut(&mut FramePool, Packet),
) -> Result<usize, DropReason> {
    let headers = &packet.head(memory)[..plan.headers];
    if headers.len() > memory.data_room() as usize {
        return Err(DropReason::OffloadUnsupported);
    }
    let mut bytes = reader(packet, memory);
    bytes.skip(plan.headers);
    let count = plan.count();
    let Offload { csum_start, csum_offset, .. } = packet.offload(memory);
    let flags = Flags::PARTIAL_CHECKSUM;
    let left = Offload { flags, csum_start, csum_offset, ..Offload::default() };
    let mut rest = plan.payload;
    for i in 0..count {
        let n = rest.min(plan.size);
        rest -= n;
        let mut part = assemble(&mut bytes, n, headers, pool)?;
        part.set_offload(memory, left);
        part.copy_path(packet);
        plan.adjust(part.head_mut(memory), i, count, packet.len() - plan.l4);
        if !caps.partial_checksum
            && let Err(reason) = complete_checksum(&mut part, memory)
        {
            pool.free(part);
            return Err(reason);
        }
        emit(pool, part);
    }
    Ok(count)
}

impl Plan {
    /// Adapts the copied headers to segment `i` of `count` segments. `whole` is the length in bytes of the L4
    /// header and payload of the original packet.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "lengths were checked to fit; counters wrap as their fields do"
    )]
    fn adjust(&self, head: &mut [u8], i: usize, count: usize, whole: usize) {
        let put =
            |head: &mut [u8], at: usize, value: u16| head[at..at + 2].copy_from_slice(&value.to_be_bytes());
        let get = |head: &[u8], at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let n = if i + 1 == count { self.payload - self.size * i } else { self.size };
        let total = self.headers + n - self.l3;
        if self.v6 {
            put(head, self.l3 + 4, (total - 40) as u16);
        } else {
            put(head, self.l3 + 2, total as u16);
            let id = get(head, self.l3 + 4).wrapping_add(i as u16);
            put(head, self.l3 + 4, id);
            put(head, self.l3 + 10, 0);
            let header = usize::from(head[self.l3] & 15) * 4;
            let sum = checksum::finish(checksum::sum(&head[self.l3..self.l3 + header]));
            put(head, self.l3 + 10, sum);
        }
        let l4_len = self.headers - self.l4 + n;
        let field = self.l4 + if self.tcp { 16 } else { 6 };
        if self.tcp {
            let at = self.l4 + 4;
            let sequence = u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let sequence = sequence.wrapping_add((self.size * i) as u32);
            head[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            let keep = if i + 1 == count { 0xff } else { !FIN_PSH } & if i == 0 { 0xff } else { !CWR };
            head[self.l4 + 13] &= keep;
        } else {
            put(head, self.l4 + 4, l4_len as u16);
        }
        // The field contains the pseudo-header sum with the original length. The length is replaced according
        // to RFC 1624, which is correct even if extension headers change the addresses in the sum.
        let pseudo = u32::from(get(head, field)) + u32::from(!(whole as u16)) + u32::from(l4_len as u16);
        put(head, field, checksum::fold(pseudo));
    }
}
