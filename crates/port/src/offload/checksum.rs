//! Completion of a partial checksum (virtio 1.2, 5.1.6.2). In a packet with a partial checksum, the checksum
//! field contains only the pseudo-header sum. Completion sums the packet from `csum_start` to its end,
//! including this field, and writes the complement of the sum into the field (RFC 1071).

use packet::{DropReason, checksum};

use crate::memory::FrameMemory;
use crate::packet::{Flags, Packet};

/// Completes the TCP or UDP checksum of a packet with a partial checksum. Any other packet is not changed.
///
/// # Errors
/// [`DropReason::RxBadOffload`] if the checksum offsets are outside the packet. The packet is not changed in
/// this case.
pub fn complete_checksum(packet: &mut Packet, memory: &FrameMemory) -> Result<(), DropReason> {
    if !packet.flags().contains(Flags::PARTIAL_CHECKSUM) {
        return Ok(());
    }
    let offload = packet.offload(memory);
    let start = usize::from(offload.csum_start);
    let field = start + usize::from(offload.csum_offset);
    if field + 2 > packet.len() {
        return Err(DropReason::RxBadOffload);
    }
    let sum = if packet.segments() == 1 {
        checksum::sum(&packet.head(memory)[start..])
    } else {
        sum_from(packet, memory, start)
    };
    // A UDP checksum of 0 means no checksum. For other protocols, both representations of zero are
    // equivalent.
    let value = checksum::finish_udp(sum);
    write(packet, memory, field, &value.to_be_bytes());
    packet.clear_offload(Flags::PARTIAL_CHECKSUM);
    Ok(())
}

/// Returns the sum of the Internet checksum (RFC 1071), not complemented, over the bytes of a packet from byte `start`
/// to the end. The sum of a frame whose bytes begin at an odd position is byte-swapped before it is added.
fn sum_from(packet: &Packet, memory: &FrameMemory, start: usize) -> u32 {
    let (mut skip, mut odd, mut sum) = (start, false, 0_u32);
    for bytes in packet.parts(memory) {
        let from = skip.min(bytes.len());
        skip -= from;
        let part = checksum::fold(checksum::sum(&bytes[from..]));
        sum += u32::from(if odd { part.swap_bytes() } else { part });
        odd ^= (bytes.len() - from) % 2 == 1;
    }
    sum
}

/// Writes bytes at position `at` of a packet. The position may be in any frame, and the bytes may span two
/// frames.
fn write(packet: &mut Packet, memory: &FrameMemory, at: usize, value: &[u8]) {
    let mut position = 0;
    packet.for_each_segment_mut(memory, |bytes| {
        for (i, byte) in value.iter().enumerate() {
            if let Some(place) = (at + i).checked_sub(position).and_then(|place| bytes.get_mut(place)) {
                *place = *byte;
            }
        }
        position += bytes.len();
    });
}
