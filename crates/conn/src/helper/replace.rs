//! Replacement of an address and a port in the payload of a TCP segment, with the lengths and checksums of the packet.
//!
//! The functions are total. The caller gives a buffer with space after the packet, at most 64 octets are needed.

use packet::checksum::{fold, sum, update16};
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::{ip_proto, ipv6};

use crate::helper::ftp::Replacement;
use crate::layout::Layout;
use crate::nat::translate::Checksum;

/// Offset of the checksum in a TCP header.
const CHECKSUM: usize = 16;

/// Replaces text in the payload of an IPv4 packet, and returns the change of the length of the packet. The packet
/// begins with the buffer. Octets after the packet are overwritten. `checksum` is the state of the checksum of TCP.
/// Returns `None` if the buffer holds no TCP segment in one packet, or if the new text does not fit. The buffer is
/// unchanged then.
pub fn replace_ipv4(buffer: &mut [u8], replacement: &Replacement<u32>, checksum: Checksum) -> Option<i32> {
    let end = usize::from(Ipv4::parse(buffer).ok()?.total_len());
    let layout = Layout::of_ipv4(buffer.get(..end)?)?;
    let apply = |payload: &mut [u8], len| replacement.apply(payload, len);
    let difference = replace(buffer, end, &layout, checksum, apply)?;
    let new = u16::try_from(end.checked_add_signed(difference.try_into().ok()?)?).ok()?;
    set_u16(buffer, 2, |_| new);
    set_u16(buffer, 10, |old| update16(old, u16::try_from(end).unwrap_or_default(), new));
    Some(difference)
}

/// Replaces text in the payload of an IPv6 packet (see [`replace_ipv4`]).
pub fn replace_ipv6(buffer: &mut [u8], replacement: &Replacement<u128>, checksum: Checksum) -> Option<i32> {
    let view = Ipv6::parse(buffer).ok()?;
    view.upper().ok()?;
    let payload = view.payload().len();
    let end = size_of::<ipv6::Header>() + payload;
    let layout = Layout::of_ipv6(buffer.get(..end)?)?;
    let apply = |payload: &mut [u8], len| replacement.apply(payload, len);
    let difference = replace(buffer, end, &layout, checksum, apply)?;
    let new = u16::try_from(payload.checked_add_signed(difference.try_into().ok()?)?).ok()?;
    set_u16(buffer, 4, |_| new);
    Some(difference)
}

/// Replaces text in the payload of a packet that ends at `end`, and updates the checksum of TCP.
fn replace(
    buffer: &mut [u8],
    end: usize,
    layout: &Layout,
    checksum: Checksum,
    apply: impl FnOnce(&mut [u8], usize) -> Option<i32>,
) -> Option<i32> {
    let upper = layout.upper.filter(|_| layout.protocol == ip_proto::TCP && !layout.is_fragment)?;
    // The new packet is shorter than 65,536 octets, so its length fits into the fields of the lengths.
    let most = buffer.len().min(usize::from(u16::MAX));
    let segment = buffer.get_mut(upper..most)?;
    let len = end.checked_sub(upper)?;
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let payload_len = len.checked_sub(header).filter(|_| header >= 20)?;
    let before = sum(segment.get(..len)?);
    let difference = apply(segment.get_mut(header..)?, payload_len)?;
    let new_len = len.checked_add_signed(difference.try_into().ok()?)?;
    let after = sum(segment.get(..new_len)?);
    // The length in the pseudo-header changes by the difference, too.
    let [old_length, new_length] = [len, new_len].map(|len| u16::try_from(len).unwrap_or_default());
    let (old_sum, new_sum) = (fold(before), fold(after));
    set_u16(segment, CHECKSUM, |old| match checksum {
        Checksum::Complete => update16(update16(old, old_sum, new_sum), old_length, new_length),
        Checksum::Partial => fold(u32::from(old) + u32::from(!old_length) + u32::from(new_length)),
    });
    Some(difference)
}

/// Changes the number of 16 bits at an offset. Does nothing if the number is incomplete.
fn set_u16(bytes: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}
