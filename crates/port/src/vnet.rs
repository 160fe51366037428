//! Conversion between the virtio network header (virtio 1.2, 5.1.6; `linux/virtio_net.h`) and the offload
//! state of a packet. A TAP has a virtio header in host byte order in front of each frame.
//!
//! The sender chooses the header. A partial checksum lets the transmitter write two bytes of the packet after
//! filters and routers have read the packet. Therefore a checksum stays partial only if its position is the
//! checksum field of the TCP or UDP header that the flow key describes. Any other partial checksum is completed
//! at reception. A packet is refused if an offset exceeds the packet, or if its kind of segmentation
//! contradicts its headers.

use packet::{DropReason, FlowKey, L3Kind, PortId, ip_proto};

use crate::memory::FrameMemory;
use crate::offload::complete_checksum;
use crate::packet::{Flags, Gso, Offload, Packet};

/// Length of the virtio header in bytes, without the field `num_buffers`.
pub(crate) const VNET_HEADER: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
const TCP_CWR: u8 = 0x80;

/// Sets the offload state of a received packet from its virtio header.
///
/// # Errors
/// [`DropReason::RxBadOffload`] if the header contradicts the packet.
pub(crate) fn decode(
    header: &[u8; VNET_HEADER],
    packet: &mut Packet,
    memory: &FrameMemory,
) -> Result<(), DropReason> {
    let offload = read(header, packet.len())?;
    if offload.flags.is_empty() {
        return Ok(());
    }
    packet.set_offload(memory, offload);
    if !offload.flags.contains(Flags::PARTIAL_CHECKSUM)
        || is_checksum_of_l4(packet.head(memory), packet.len(), &offload)
    {
        return Ok(());
    }
    if offload.flags.contains(Flags::SEGMENT) {
        return Err(DropReason::RxBadOffload);
    }
    complete_checksum(packet, memory)
}

/// Returns whether the partial checksum of a packet of `len` bytes is the checksum of its TCP or UDP header,
/// and whether this header matches the kind of segmentation. `head` is the content of the packet's first frame.
/// Fragments have no such checksum, because the checksum covers the whole datagram.
fn is_checksum_of_l4(head: &[u8], len: usize, offload: &Offload) -> bool {
    let mut key = FlowKey::default();
    let Ok(layers) = FlowKey::extract(head, len, PortId(0), &mut key) else { return false };
    let (field, is_tcp) = match key.proto() {
        ip_proto::TCP => (16, true),
        ip_proto::UDP => (6, false),
        _ => return false,
    };
    let suits = match offload.gso {
        Gso::None => true,
        Gso::Tcp4 => is_tcp && key.l3_kind() == L3Kind::Ipv4,
        Gso::Tcp6 => is_tcp && key.l3_kind() == L3Kind::Ipv6,
        Gso::Udp => !is_tcp,
    };
    suits
        && !layers.is_fragment()
        && layers.l4() == Some(usize::from(offload.csum_start))
        && offload.csum_offset == field
}

/// Parses the virtio header of a packet of `len` bytes.
fn read(header: &[u8; VNET_HEADER], len: usize) -> Result<Offload, DropReason> {
    let mut offload = Offload::default();
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (flags, gso, gso_size) = (header[0], header[1], word(4));
    if flags & F_NEEDS_CSUM != 0 {
        let (start, offset) = (word(6), word(8));
        if start < 14 || usize::from(start) + usize::from(offset) + 2 > len {
            return Err(DropReason::RxBadOffload);
        }
        offload.csum_start = start;
        offload.csum_offset = offset;
        offload.flags.insert(Flags::PARTIAL_CHECKSUM);
    } else if flags & F_DATA_VALID != 0 {
        offload.flags.insert(Flags::CHECKSUM_VALID);
    }
    let kind = match gso & !GSO_ECN {
        GSO_NONE => return Ok(offload),
        GSO_TCPV4 => Gso::Tcp4,
        GSO_TCPV6 => Gso::Tcp6,
        GSO_UDP_L4 => Gso::Udp,
        _ => return Err(DropReason::RxBadOffload),
    };
    // Segmentation requires the position of the L4 header.
    if gso_size == 0 || flags & F_NEEDS_CSUM == 0 {
        return Err(DropReason::RxBadOffload);
    }
    offload.gso = kind;
    offload.gso_size = gso_size;
    offload.flags.insert(Flags::SEGMENT);
    Ok(offload)
}

/// Builds the virtio header for the offload state of a packet.
pub(crate) fn encode(packet: &Packet, memory: &FrameMemory) -> [u8; VNET_HEADER] {
    let mut header = [0; VNET_HEADER];
    if packet.flags().is_empty() {
        return header;
    }
    let offload = packet.offload(memory);
    if offload.flags.contains(Flags::PARTIAL_CHECKSUM) {
        header[0] = F_NEEDS_CSUM;
        header[6..8].copy_from_slice(&offload.csum_start.to_ne_bytes());
        header[8..10].copy_from_slice(&offload.csum_offset.to_ne_bytes());
    } else if offload.flags.contains(Flags::CHECKSUM_VALID) {
        header[0] = F_DATA_VALID;
    }
    if offload.flags.contains(Flags::SEGMENT) {
        let l4 = packet.head(memory).get(usize::from(offload.csum_start)..).unwrap_or(&[]);
        let tcp = |kind: u8| {
            let ecn = if l4.get(13).is_some_and(|flags| flags & TCP_CWR != 0) { GSO_ECN } else { 0 };
            (kind | ecn, l4.get(12).map_or(20, |offset| u16::from(offset >> 4) * 4))
        };
        let (kind, l4_header) = match offload.gso {
            Gso::None => (GSO_NONE, 0),
            Gso::Tcp4 => tcp(GSO_TCPV4),
            Gso::Tcp6 => tcp(GSO_TCPV6),
            Gso::Udp => (GSO_UDP_L4, 8),
        };
        header[1] = kind;
        header[2..4].copy_from_slice(&offload.csum_start.saturating_add(l4_header).to_ne_bytes());
        header[4..6].copy_from_slice(&offload.gso_size.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests;
