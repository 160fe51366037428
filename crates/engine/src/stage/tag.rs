//! Changes the outer VLAN tag of a packet in place (IEEE 802.1Q clause 9.3). The MAC addresses move by four
//! bytes, and the rest of the packet does not move.

use packet::record::TagChange;
use packet::{DropReason, VlanTags};
use port::{FrameMemory, Packet};

/// EtherType of an 802.1Q tag.
const TPID: [u8; 2] = [0x81, 0x00];
/// EtherType of an 802.1ad tag.
const SERVICE_TPID: [u8; 2] = [0x88, 0xa8];
/// Length of the two MAC addresses in bytes.
const ADDRESSES: usize = 12;
const TAG: u16 = 4;

/// Applies a tag change to a packet.
///
/// # Errors
/// The drop reason if the frame has no headroom for a tag or is too short to contain one.
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

/// Pushes the inner tag of a tag pair. Returns the tag change that pushes the outer tag.
///
/// # Errors
/// Like [`apply`].
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
