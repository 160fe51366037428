//! Changes the outer VLAN tag of a packet in place (IEEE 802.1Q clause 9.3). The insertion or removal of a tag moves
//! only the MAC addresses, by four bytes, and not the rest of the frame.

use packet::record::TagChange;
use packet::{DropReason, VlanTags};
use port::{FrameMemory, Packet};

/// EtherType of an IEEE 802.1Q VLAN tag.
const TPID: [u8; 2] = [0x81, 0x00];
/// EtherType of an IEEE 802.1ad service VLAN tag.
const SERVICE_TPID: [u8; 2] = [0x88, 0xa8];
/// Length of the destination and source MAC addresses together, in bytes.
const ADDRESSES: usize = 12;
const TAG: u16 = 4;

/// Pushes, removes or rewrites the outer VLAN tag of a packet, as `change` specifies.
///
/// # Errors
/// The drop reason if the frame has no headroom for a tag, or is too short to contain a tag.
#[inline]
pub fn apply(packet: &mut Packet, memory: &FrameMemory, change: TagChange) -> Result<(), DropReason> {
    match change {
        TagChange::Keep => Ok(()),
        TagChange::Pop => pop(packet, memory),
        TagChange::Push(vid) => push(packet, memory, TPID, vid),
        TagChange::PushService(vid) => push(packet, memory, SERVICE_TPID, vid),
        TagChange::Set(vid) => set(packet, memory, vid),
    }
}

/// Pushes the inner tag of a pair of tags. Returns the change with which the caller pushes the outer tag with
/// [`apply`].
///
/// # Errors
/// The errors of [`apply`].
#[inline]
pub fn begin(packet: &mut Packet, memory: &FrameMemory, tags: VlanTags) -> Result<TagChange, DropReason> {
    if let Some(inner) = tags.inner {
        push(packet, memory, TPID, inner.get())?;
    }
    Ok(match tags.service {
        true => TagChange::PushService(tags.outer.get()),
        false => TagChange::Push(tags.outer.get()),
    })
}

/// Removes all priority tags (VLAN tags with identifier 0) at the start of a frame, because a priority-tagged frame
/// counts as untagged (IEEE 802.1Q 6.9). Returns whether the frame changed.
#[inline]
pub fn strip_priority(packet: &mut Packet, memory: &FrameMemory) -> bool {
    strip_priority_at(packet, memory, ADDRESSES)
}

/// Removes all priority tags that follow the outer tag of a frame, if the frame has an outer tag.
/// Returns whether the frame changed.
#[inline]
pub fn strip_inner_priority(packet: &mut Packet, memory: &FrameMemory) -> bool {
    let is_tagged =
        matches!(packet.head(memory).get(ADDRESSES..ADDRESSES + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    is_tagged && strip_priority_at(packet, memory, ADDRESSES + usize::from(TAG))
}

/// Removes all consecutive priority tags that begin at byte `start` of a frame.
#[inline]
fn strip_priority_at(packet: &mut Packet, memory: &FrameMemory, start: usize) -> bool {
    let head = packet.head(memory);
    let is_priority = |at: usize| match head.get(at..at + 6) {
        Some([0x81, 0x00, high, low, _, _] | [0x88, 0xa8, high, low, _, _]) => high & 0x0f == 0 && *low == 0,
        _ => false,
    };
    let mut end = start;
    while is_priority(end) {
        end += usize::from(TAG);
    }
    let length = end - start;
    let Ok(trimmed) = u16::try_from(length) else { return false };
    if trimmed == 0 {
        return false;
    }
    packet.head_mut(memory).copy_within(..start, length);
    packet.trim_front(trimmed)
}

fn pop(packet: &mut Packet, memory: &FrameMemory) -> Result<(), DropReason> {
    let head = packet.head_mut(memory);
    if head.len() <= ADDRESSES + usize::from(TAG) {
        return Err(DropReason::VlanTruncated);
    }
    head.copy_within(..ADDRESSES, usize::from(TAG));
    if packet.trim_front(TAG) { Ok(()) } else { Err(DropReason::VlanTruncated) }
}

fn push(packet: &mut Packet, memory: &FrameMemory, tpid: [u8; 2], vid: u16) -> Result<(), DropReason> {
    if packet.head_len() < ADDRESSES || !packet.prepend(TAG) {
        return Err(DropReason::TagOverflow);
    }
    let head = packet.head_mut(memory);
    head.copy_within(usize::from(TAG)..usize::from(TAG) + ADDRESSES, 0);
    head[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid);
    head[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&(vid & 0x0fff).to_be_bytes());
    Ok(())
}

fn set(packet: &mut Packet, memory: &FrameMemory, vid: u16) -> Result<(), DropReason> {
    let head = packet.head_mut(memory);
    let Some(tci) = head.get_mut(ADDRESSES + 2..ADDRESSES + 4) else {
        return Err(DropReason::VlanTruncated);
    };
    // Priority and drop eligibility do not change.
    let kept = u16::from_be_bytes([tci[0], tci[1]]) & 0xf000;
    tci.copy_from_slice(&(kept | vid & 0x0fff).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use packet::MacAddr;
    use packet::build::PacketBuilder;
    use port::{Depot, Flags, HugePages, MemoryConfig, Offload};

    use super::*;

    #[test]
    fn any_number_of_priority_tags_is_removed_and_a_partial_checksum_keeps_its_place() {
        let memory = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
        let mut pool = Depot::new(Arc::new(FrameMemory::new(memory).unwrap())).pool();
        let (src, dst) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let plain = PacketBuilder::eth(src, dst).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
        for tags in [1_u16, 2, 16, 17, 40, 300] {
            let pairs = [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 0]];
            let tag_bytes: Vec<u8> = pairs.into_iter().cycle().take(usize::from(tags)).flatten().collect();
            let mut packet = pool.alloc_copy(&[&plain[..12], &tag_bytes, &plain[12..]].concat()).unwrap();
            let flags = Flags::PARTIAL_CHECKSUM;
            let offload = Offload { flags, csum_start: 34, csum_offset: 6, ..Offload::default() };
            let memory = pool.memory_arc();
            packet.set_offload(&memory, Offload { csum_start: 34 + 4 * tags, ..offload });
            assert!(strip_priority(&mut packet, &memory), "{tags} tags");
            assert_eq!(packet.head(&memory), plain, "{tags} tags");
            assert_eq!(packet.offload(&memory), offload, "{tags} tags");
            assert!(!strip_priority(&mut packet, &memory), "{tags} tags");
            pool.free(packet);
        }
    }
}
