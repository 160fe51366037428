//! Completing a partial checksum (virtio 1.2, 5.1.6.2): the sum of everything from `csum_start` on, in which the field holds
//! the pseudo-header's sum, is complemented into the field. RFC 1071.

use packet::{DropReason, checksum};

use crate::memory::FrameMemory;
use crate::packet::{Flags, Packet};

/// Computes a checksum that the sender left partial. A packet without one is left alone.
///
/// # Errors
/// [`DropReason::RxBadOffload`] when the offsets lie outside the packet; it is unchanged then.
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
    // A UDP checksum of 0 would say that there is none; for others both forms of zero are the same.
    let value = checksum::finish_udp(sum);
    write(packet, memory, field, &value.to_be_bytes());
    packet.clear_offload(Flags::PARTIAL_CHECKSUM);
    Ok(())
}

/// The sum over a chain from the byte `start` on: frames may be of odd length, and bytes then change places.
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

/// Writes bytes at a position that may lie in any frame, or over two.
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
