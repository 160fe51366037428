//! Offsets of TCP sequence numbers, after NAT has changed the length of a payload (RFC 3022 section 4.4).
//!
//! After such a change, the sequence numbers that the receiver knows differ from the numbers of the sender. The tracker
//! keeps the numbers of the sender. Each direction has its own offset. The sequence number of a segment is corrected by
//! the offset of its direction. The acknowledgement number, and the blocks of selective acknowledgements (SACK, RFC
//! 2018), are corrected by the offset of the other direction. Linux corrects the numbers in this way, too
//! (nf_ct_seqadj).
//!
//! An offset remembers the last change only. A segment from before the last but one change, which the receiver has
//! acknowledged since, has a wrong number if the sender repeats the segment. The receiver ignores this segment.

use packet::checksum::update_bytes;
use packet::tcp::flags;

use crate::nat::translate::Checksum;

/// Length of a TCP header without options in octets.
const HEADER: usize = 20;
/// Largest length of a TCP header in octets.
const HEADER_MAX: usize = 60;
/// Offset of the checksum in a TCP header.
const CHECKSUM: usize = 16;

/// Offset of the sequence numbers of one direction: the number for the receiver, less the number of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SequenceOffset {
    /// Sequence number of the last segment that was changed, as the sender has sent the number.
    position: u32,
    /// Offset of the numbers up to the position.
    before: i32,
    /// Offset of the numbers after the position.
    after: i32,
}

impl SequenceOffset {
    /// Returns whether all numbers are unchanged.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.before == 0 && self.after == 0
    }

    /// Records that the payload of a segment of the sender has become longer by this number of octets. `seq` is the
    /// sequence number of the segment. A repeated segment changes nothing.
    pub const fn change(&mut self, seq: u32, difference: i32) {
        let is_new = self.before == self.after || is_after(seq, self.position);
        if difference != 0 && is_new {
            self.position = seq;
            self.before = self.after;
            self.after = self.after.wrapping_add(difference);
        }
    }

    /// Returns the number for the receiver.
    #[must_use]
    pub const fn for_receiver(&self, seq: u32) -> u32 {
        let offset = if is_after(seq, self.position) { self.after } else { self.before };
        seq.wrapping_add_signed(offset)
    }

    /// Returns the number of the sender that a number of the receiver means.
    #[must_use]
    pub const fn of_sender(&self, number: u32) -> u32 {
        let early = number.wrapping_sub(self.before.cast_unsigned());
        if is_after(early, self.position) {
            return number.wrapping_sub(self.after.cast_unsigned());
        }
        early
    }
}

/// Returns whether the sequence number `a` is after `b`.
const fn is_after(a: u32, b: u32) -> bool {
    // The difference is negative as a signed number.
    b.wrapping_sub(a) >> 31 != 0
}

/// Corrections of the numbers in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Correction {
    /// Offset of the direction of the segment.
    pub(crate) own: SequenceOffset,
    /// Offset of the other direction.
    pub(crate) other: SequenceOffset,
}

impl Correction {
    /// Returns the corrections of a segment, by the offset of its direction and the offset of the other direction.
    #[must_use]
    pub const fn of(own: SequenceOffset, other: SequenceOffset) -> Correction {
        Correction { own, other }
    }

    /// Returns the corrected sequence number.
    #[must_use]
    pub const fn seq(&self, seq: u32) -> u32 {
        self.own.for_receiver(seq)
    }

    /// Returns the corrected acknowledgement number, or edge of a SACK block.
    #[must_use]
    pub const fn ack(&self, ack: u32) -> u32 {
        self.other.of_sender(ack)
    }

    /// Corrects the sequence number, the acknowledgement number and the SACK blocks of a TCP segment, and updates its
    /// checksum. `checksum` is the state of the checksum. Malformed options, and the options after these, stay
    /// unchanged. Does nothing if the header is incomplete.
    pub fn apply(&self, segment: &mut [u8], checksum: Checksum) {
        let len = segment.get(12).map_or(0, |octet| usize::from(octet >> 4) * 4);
        let Some(header) = segment.get_mut(..len).filter(|header| header.len() >= HEADER) else { return };
        let mut before = [0; HEADER_MAX];
        let before = &mut before[..len];
        before.copy_from_slice(header);
        set(header, 4, |seq| self.seq(seq));
        if u16::from(header[13]) & flags::ACK != 0 {
            set(header, 8, |ack| self.ack(ack));
            self.correct_blocks(header);
        }
        if checksum == Checksum::Complete {
            let old = u16::from_be_bytes([before[CHECKSUM], before[CHECKSUM + 1]]);
            let new = update_bytes(old, before, header);
            header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&new.to_be_bytes());
        }
    }

    /// Corrects the SACK blocks of a header.
    fn correct_blocks(&self, header: &mut [u8]) {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        const SACK: u8 = 5;
        let mut at = HEADER;
        while let Some(&kind) = header.get(at) {
            if kind == END {
                return;
            }
            if kind == NO_OPERATION {
                at += 1;
                continue;
            }
            let len = usize::from(header.get(at + 1).copied().unwrap_or_default());
            if len < 2 || at + len > header.len() {
                return;
            }
            if kind == SACK && len % 8 == 2 {
                for edge in (at + 2..at + len).step_by(4) {
                    set(header, edge, |number| self.ack(number));
                }
            }
            at += len;
        }
    }
}

/// Changes the number of 32 bits at an offset. Does nothing if the number is incomplete.
fn set(header: &mut [u8], at: usize, change: impl FnOnce(u32) -> u32) {
    if let Some(field) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *field = change(u32::from_be_bytes(*field)).to_be_bytes();
    }
}
