//! Detects TCP and UDP checksums that a sender on the same machine has left to hardware offload. AF_XDP does
//! not report whether a received checksum is complete, but a checksum field that was left to hardware contains
//! only the pseudo-header sum.

use packet::{DropReason, FlowKey, L3Kind, Layers, checksum};

use crate::memory::FrameMemory;
use crate::packet::{Flags, Offload, Packet};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Marks a TCP or UDP packet as `PARTIAL_CHECKSUM` if its checksum field contains only the
/// pseudo-header sum. Returns whether the packet was marked. One in 65,536 complete checksums
/// equals the pseudo-header sum by chance. The completion of such a checksum does not change the
/// checksum.
///
/// Padding after the IP packet is set to zero, so that the padding does not affect the sum.
pub fn mark_bare_checksum(packet: &mut Packet, memory: &FrameMemory, layers: &Layers, key: &FlowKey) -> bool {
    if !packet.flags().is_empty() || layers.is_fragment() || layers.malformed().is_some() {
        return false;
    }
    let (Some(l3), Some(l4)) = (layers.l3(), layers.l4()) else { return false };
    let offset = match key.proto() {
        TCP => 16,
        UDP => 6,
        _ => return false,
    };
    match bare(packet.head(memory), l3, l4, offset, key) {
        Ok(l4_len) => {
            let end = l4 + l4_len;
            if end > packet.len() {
                return false;
            }
            if let Some(padding) = packet.head_mut(memory).get_mut(end..) {
                padding.fill(0);
            }
            let (Ok(start), Ok(offset)) = (u16::try_from(l4), u16::try_from(offset)) else { return false };
            let flags = Flags::PARTIAL_CHECKSUM;
            packet.set_offload(
                memory,
                Offload { flags, csum_start: start, csum_offset: offset, ..Offload::default() },
            );
            true
        }
        Err(_) => false,
    }
}

/// Returns the length of the L4 header and payload in bytes if the checksum field contains only the pseudo-header sum.
/// Otherwise returns an error.
fn bare(head: &[u8], l3: usize, l4: usize, offset: usize, key: &FlowKey) -> Result<usize, DropReason> {
    const NO: DropReason = DropReason::L4BadChecksum;
    let word = |at: usize| head.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]])).ok_or(NO);
    let field = word(l4 + offset)?;
    let (l4_len, pseudo) = match key.l3_kind() {
        L3Kind::Ipv4 => {
            let len = usize::from(word(l3 + 2)?).checked_sub(l4 - l3).ok_or(NO)?;
            let short = u16::try_from(len).map_err(|_| NO)?;
            (len, checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), key.proto(), short))
        }
        L3Kind::Ipv6 => {
            let len = (usize::from(word(l3 + 4)?) + 40).checked_sub(l4 - l3).ok_or(NO)?;
            let long = u32::try_from(len).map_err(|_| NO)?;
            (len, checksum::l4_pseudo_v6(key.ipv6_src(), key.ipv6_dst(), key.proto(), long))
        }
        _ => return Err(NO),
    };
    if field == checksum::fold(pseudo) && field != 0 { Ok(l4_len) } else { Err(NO) }
}
