//! Conversion between the virtio network header (virtio 1.2, 5.1.6; `linux/virtio_net.h`) and the offload
//! state of a packet. A TAP has a virtio header in host byte order in front of each frame.
//!
//! The header of a received packet is checked against the length of the packet. A packet with an offset
//! outside its bytes is refused here, so later code can rely on the offsets.

use packet::DropReason;

use crate::memory::FrameMemory;
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
    if !offload.flags.is_empty() {
        packet.set_offload(memory, offload);
    }
    Ok(())
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
mod tests {
    use super::*;
    use crate::memory::{HugePages, MemoryConfig};
    use crate::pool::Depot;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn what_is_accepted_comes_out_again_and_lies_inside(
            header in proptest::array::uniform10(any::<u8>()), small in any::<bool>(), len in 60_usize..4000,
        ) {
            let memory = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
            let depot = Depot::new(Arc::new(FrameMemory::new(memory).unwrap()));
            let mut pool = depot.pool();
            let mut header = header;
            if small {
                // The offsets are small, so that most headers are accepted.
                (header[7], header[9]) = (0, 0);
                header[1] %= 6;
            }
            let mut packet = pool.alloc_copy(&vec![0; len]).unwrap();
            if decode(&header, &mut packet, pool.memory()).is_ok() {
                let inside = usize::from(packet.offload(pool.memory()).csum_start)
                    + usize::from(packet.offload(pool.memory()).csum_offset) + 2 <= len;
                prop_assert!(inside);
                let again = encode(&packet, pool.memory());
                let mut second = pool.alloc_copy(&vec![0; len]).unwrap();
                decode(&again, &mut second, pool.memory()).unwrap();
                prop_assert_eq!(packet.offload(pool.memory()), second.offload(pool.memory()));
                pool.free(second);
            }
            pool.free(packet);
        }
    }
}
