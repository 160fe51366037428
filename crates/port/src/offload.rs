//! Performs in software the offloads that an output queue does not support. The offloads are
//! checksums, segmentation, and the copying of packets with too many frames into fewer frames.
//!
//! The transmit stage checks each packet with [`needs_completion`] (two comparisons), and calls
//! [`complete_packet`] for the few packets that need completion. All offsets come from peers, so
//! each offset is checked against the packet. A packet with contradictory offsets is dropped with
//! the reason [`DropReason::RxBadOffload`].

mod checksum;
mod mark;
mod segment;
#[cfg(test)]
mod tests;

use packet::DropReason;

pub use checksum::complete_checksum;
pub use mark::mark_bare_checksum;
pub use segment::{segment, segment_count, wire_len};

use crate::memory::FrameMemory;
use crate::packet::{Flags, Gso, Packet};
use crate::pool::FramePool;
use crate::queue::{BURST, Batch, Capabilities};

/// Returns whether a packet must be processed by [`complete_packet`] before a queue with the capabilities
/// `caps` accepts it.
#[inline]
#[must_use]
pub fn needs_completion(packet: &Packet, memory: &FrameMemory, caps: &Capabilities) -> bool {
    let undone = packet.flags().contains(Flags::PARTIAL_CHECKSUM) || packet.flags().contains(Flags::SEGMENT);
    (undone && !takes(packet, memory, caps)) || packet.segments() > caps.max_segments
}

fn takes(packet: &Packet, memory: &FrameMemory, caps: &Capabilities) -> bool {
    let segmentation = !packet.flags().contains(Flags::SEGMENT)
        || match packet.offload(memory).gso {
            Gso::None => true,
            Gso::Tcp4 | Gso::Tcp6 => caps.tcp_segmentation,
            Gso::Udp => caps.udp_segmentation,
        };
    segmentation && (caps.partial_checksum || !packet.flags().contains(Flags::PARTIAL_CHECKSUM))
}

/// Converts a packet into packets that a queue with the capabilities `caps` accepts. Segmentation
/// turns one packet into several. The function calls `emit` with each resulting packet in order, as
/// soon as this packet is ready.
///
/// # Errors
/// The drop reason if the packet could not be converted. The packet's frames have been returned to the pool.
/// `emit` may have been called with the first segments of the packet.
pub fn complete_packet(
    mut packet: Packet,
    caps: &Capabilities,
    pool: &mut FramePool,
    emit: &mut impl FnMut(&mut FramePool, Packet),
) -> Result<(), DropReason> {
    if packet.flags().contains(Flags::SEGMENT) && !takes(&packet, pool.memory(), caps) {
        return segment(packet, caps, pool, emit).map(drop);
    }
    if !caps.partial_checksum
        && let Err(reason) = complete_checksum(&mut packet, pool.memory())
    {
        pool.free(packet);
        return Err(reason);
    }
    if packet.segments() > caps.max_segments {
        packet = repack(packet, pool)?;
        if packet.segments() > caps.max_segments {
            pool.free(packet);
            return Err(DropReason::TooManySegments);
        }
    }
    emit(pool, packet);
    Ok(())
}

/// Takes packets from the front of `batch`, converts them with [`complete_packet`], and appends the results to
/// `out`. Stops when the results of a packet do not fit into `out`. The remaining packets stay in `batch`, and
/// the caller calls the function again with an empty `out`. For each packet that cannot be converted, the
/// function calls `dropped` with the drop reason.
///
/// A packet that results in more than [`BURST`] segments does not fit into any batch and is dropped. Callers
/// with such packets must use [`complete_packet`].
pub fn complete(
    batch: &mut Batch,
    caps: &Capabilities,
    pool: &mut FramePool,
    out: &mut Batch,
    dropped: &mut impl FnMut(DropReason),
) {
    while let Some(packet) = batch.first() {
        let count = if needs_completion(packet, pool.memory(), caps) {
            segment_count(packet, pool.memory())
        } else {
            1
        };
        if count > out.remaining_capacity() && count <= BURST {
            return;
        }
        let packet = batch.remove(0);
        if count > BURST {
            pool.free(packet);
            dropped(DropReason::OffloadUnsupported);
        } else if let Err(reason) = complete_packet(packet, caps, pool, &mut |_, packet| out.push(packet)) {
            dropped(reason);
        }
    }
}

/// Copies a packet into as few frames as possible. Returns a drop reason if no frame is free.
fn repack(packet: Packet, pool: &mut FramePool) -> Result<Packet, DropReason> {
    let memory = pool.memory_arc();
    let made = assemble(&mut reader(&packet, &memory), packet.len(), &[], pool);
    let made = made.map(|mut made| {
        made.copy_offload(&memory, &packet);
        made.copy_path(&packet);
        made
    });
    pool.free(packet);
    made
}

/// A reader of the bytes of a packet in order, across the frames of the packet.
struct Reader<'m, I> {
    parts: I,
    current: &'m [u8],
}

fn reader<'m>(packet: &'m Packet, memory: &'m FrameMemory) -> Reader<'m, impl Iterator<Item = &'m [u8]>> {
    Reader { parts: packet.parts(memory), current: &[] }
}

impl<'m, I: Iterator<Item = &'m [u8]>> Reader<'m, I> {
    /// Skips the next `n` bytes of the packet. These bytes must be in the first frame.
    fn skip(&mut self, n: usize) {
        if self.current.is_empty() {
            self.current = self.parts.next().unwrap_or(&[]);
        }
        self.current = self.current.get(n..).unwrap_or(&[]);
    }

    /// Copies the next bytes of the packet to `out`. If the packet ends before `out` is full, the rest of
    /// `out` is not changed.
    fn copy(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            if self.current.is_empty() {
                let Some(next) = self.parts.next() else { return };
                self.current = next;
            }
            let n = self.current.len().min(out.len());
            let (now, later) = self.current.split_at(n);
            out[..n].copy_from_slice(now);
            out = &mut out[n..];
            self.current = later;
        }
    }
}

/// Builds a packet from `headers` and the next `len` bytes of `reader`, in as few frames as possible.
/// `headers` must fit into one frame.
fn assemble<'m>(
    reader: &mut Reader<'m, impl Iterator<Item = &'m [u8]>>,
    len: usize,
    headers: &[u8],
    pool: &mut FramePool,
) -> Result<Packet, DropReason> {
    let room = pool.memory().data_room() as usize;
    let mut rest = headers.len() + len;
    let mut headers = headers;
    let mut whole: Option<Packet> = None;
    while rest > 0 {
        let Some(mut part) = pool.alloc() else {
            if let Some(whole) = whole {
                pool.free(whole);
            }
            return Err(DropReason::NoFrame);
        };
        let n = rest.min(room);
        let fits = u16::try_from(n).is_ok_and(|n| part.set_len(pool.memory(), n));
        assert!(fits && headers.len() <= n, "a frame holds its own data room, and headers fit into one");
        let bytes = part.head_mut(pool.memory());
        bytes[..headers.len()].copy_from_slice(headers);
        reader.copy(&mut bytes[headers.len()..]);
        headers = &[];
        rest -= n;
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => whole.append(pool.memory(), part),
        }
    }
    whole.ok_or(DropReason::RxBadOffload)
}
