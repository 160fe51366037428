//! The four rings of one AF_XDP socket and the frames in them. The module contains reception and transmission
//! without the system calls, so that tests can simulate the kernel.
//!
//! Invariant: a frame is in the set `owned` from the time when its address enters the fill ring or the
//! transmit ring until the kernel returns the frame through the receive ring or the completion ring. No code
//! outside this module moves frames into or out of the rings.

use super::abi::{Descriptor, XDP_PKT_CONTD};
use super::owned::OwnedFrames;
use super::ring::{Consumer, Producer};
use crate::memory::FrameMemory;
use crate::packet::Packet;
use crate::pool::{FramePool, LEAST_FILL, MemoryShare};
use crate::queue::Batch;

/// Minimum number of free ring entries at which the fill ring is refilled. A refill in batches reduces the
/// number of accesses to cache lines that are shared with the kernel.
const FILL_BATCH: u32 = 64;

/// Minimum length of a packet in bytes. The kernel skips a descriptor that it considers invalid and never
/// completes it, so shorter packets must not reach the kernel.
const SHORTEST: usize = 14;

/// The four rings of one AF_XDP socket. See the module documentation.
pub(crate) struct Rings {
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) rx: Consumer<Descriptor>,
    pub(crate) tx: Producer<Descriptor>,
    pub(crate) owned: OwnedFrames,
    /// Number of free frames that the fill ring should contain. The limit in `share` may lower the number.
    pub(crate) fill_target: u32,
    /// This socket's share of the frame memory, or `None` until a pool is accessed for the first time.
    pub(crate) share: Option<MemoryShare>,
    /// Maximum number of descriptors that one transmitted packet may have.
    pub(crate) max_segments: u16,
    /// Number of invalid descriptors and completions that the kernel returned. A descriptor or
    /// completion is invalid if the address belongs to no frame that the kernel holds, or the data
    /// exceeds the frame.
    pub(crate) strange: u64,
    /// Number of packets that this socket cannot transmit, because they have too many segments or are shorter
    /// than an Ethernet header.
    pub(crate) refused: u64,
}

/// Result of reading a packet that consists of several descriptors from the receive ring.
enum Chain {
    /// All descriptors of the packet were read. `packet` is `None` if the descriptors were invalid.
    Whole { descriptors: u32, packet: Option<Packet> },
    /// The last descriptor of the packet is not in the ring yet.
    Incomplete,
}

impl Rings {
    /// Unmaps the rings and returns the frames that belonged to the rings. Each mapping keeps the
    /// socket alive like a file descriptor, so the kernel may receive into the frames until the
    /// rings are unmapped.
    pub(crate) fn unmap(self) -> OwnedFrames {
        self.owned
    }

    /// Refills the fill ring with free frames of the pool.
    ///
    /// Frames in the fill ring of an idle port are not available to other ports. One call therefore takes at
    /// most an eighth of the free frames, so that ports that are opened later also find free frames.
    #[inline]
    pub(crate) fn refill(&mut self, pool: &mut FramePool) {
        let share = self.share.get_or_insert_with(|| pool.depot().share());
        let target = self.fill_target.min(share.fill());
        let least = FILL_BATCH.min(target / 4).max(1);
        let free = self.fill.free(self.fill.size() - target + least);
        let mut standing = self.fill.size() - free;
        let mut wanted = target.saturating_sub(standing);
        let minimum = LEAST_FILL.min(target);
        share.set_lacking(minimum.saturating_sub(standing));
        if wanted < least {
            return;
        }
        let spare = u32::try_from((pool.depot().available() + pool.len()) / 8).unwrap_or(u32::MAX);
        if spare < least {
            // The level of the ring may be older than the last frames that the kernel took. With few free frames, it
            // would stay as old, because it is read again only after a refill.
            standing = self.fill.pending();
            wanted = target.saturating_sub(standing);
            share.set_lacking(minimum.saturating_sub(standing));
        }
        let wanted = wanted.min(spare.max(minimum.saturating_sub(standing)));
        // A few frames do not justify an access to the ring's cache lines, which are shared with the kernel.
        if wanted < least && standing >= LEAST_FILL {
            return;
        }
        let mut written = 0;
        while written < wanted {
            let Some(frame) = pool.take_raw() else { break };
            self.owned.insert(frame);
            self.fill.write(written, pool.memory().address(frame, 0));
            written += 1;
        }
        if written > 0 {
            self.fill.publish(written);
            share.set_lacking(minimum.saturating_sub(standing + written));
        }
    }

    /// Moves received packets to the end of `out` until `out` is full. Returns the number of packets moved.
    #[inline]
    pub(crate) fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let (before, room) = (out.len(), out.remaining_capacity());
        let available = self.rx.available();
        let mut read = 0;
        while read < available && out.len() - before < room {
            let descriptor = self.rx.peek(read);
            if descriptor.options & XDP_PKT_CONTD == 0 {
                read += 1;
                if let Some(packet) = self.claim(pool, descriptor) {
                    packet.prefetch(pool.memory());
                    out.push(packet);
                }
            } else {
                match self.claim_chain(pool, read, available) {
                    Chain::Whole { descriptors, packet } => {
                        read += descriptors;
                        out.extend(packet);
                    }
                    Chain::Incomplete => break,
                }
            }
        }
        self.rx.release(read);
        out.len() - before
    }

    /// Converts a received descriptor into a packet. Returns `None` if the descriptor's frame was not passed to
    /// the kernel, or if the descriptor exceeds the frame.
    #[inline]
    fn claim(&mut self, pool: &mut FramePool, descriptor: Descriptor) -> Option<Packet> {
        let memory = pool.memory();
        let Some((frame, offset)) =
            memory.locate(descriptor.addr).filter(|(frame, _)| self.owned.remove(*frame))
        else {
            self.strange += 1;
            return None;
        };
        match u16::try_from(descriptor.len) {
            Ok(len) if len > 0 && u32::from(offset) + u32::from(len) <= memory.frame_size() => {
                Some(Packet::from_frame(memory, frame, offset, len))
            }
            _ => {
                self.strange += 1;
                pool.put_raw(frame);
                None
            }
        }
    }

    /// Reads a packet of several descriptors, starting at entry `from`. An incomplete packet stays in the ring.
    /// Therefore no state of the packet has to be kept between calls or handed over.
    #[cold]
    fn claim_chain(&mut self, pool: &mut FramePool, from: u32, available: u32) -> Chain {
        let last = (from..available).find(|i| self.rx.peek(*i).options & XDP_PKT_CONTD == 0);
        let end = match last {
            Some(last) => last + 1,
            // A chain longer than the ring never ends and is discarded.
            None if available == self.rx.size() && from == 0 => available,
            None => return Chain::Incomplete,
        };
        let mut whole: Option<Packet> = None;
        let mut sound = last.is_some();
        for i in from..end {
            let Some(part) = self.claim(pool, self.rx.peek(i)) else {
                sound = false;
                continue;
            };
            match &mut whole {
                None => whole = Some(part),
                Some(packet) => packet.append(pool.memory(), part),
            }
        }
        let packet = match whole {
            Some(packet) if sound => Some(packet),
            Some(broken) => {
                pool.free(broken);
                None
            }
            None => None,
        };
        Chain::Whole { descriptors: end - from, packet }
    }

    /// Moves packets from the front of `batch` into the transmit ring until the ring is full. While free
    /// frames are scarce, the number of frames in transmission is also limited by this socket's share of the
    /// memory. Returns the number of packets moved.
    #[inline]
    pub(crate) fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let mut wanted = 0;
        for packet in batch.iter() {
            wanted += u32::from(packet.segments());
        }
        let share = self.share.get_or_insert_with(|| pool.depot().share());
        let free = match share.transmit() {
            None => self.tx.free(wanted),
            Some(limit) => {
                // Both numbers count descriptors since the creation of the socket. The kernel completes each
                // descriptor.
                let leaving = self.tx.head().wrapping_sub(self.completion.tail());
                self.tx.free(wanted).min(limit.saturating_sub(leaving))
            }
        };
        let taken = if wanted <= free { batch.len() } else { Self::fitting(batch, free) };
        let mut written = 0;
        for packet in batch.drain(..taken) {
            if packet.len() < SHORTEST {
                self.refuse(pool, packet);
            } else if packet.segments() == 1 {
                self.write_frame(pool.memory(), written, &packet, 0);
                written += 1;
            } else {
                written = self.write_chain(pool, written, packet);
            }
        }
        if written > 0 {
            self.tx.publish(written);
        }
        taken
    }

    #[cold]
    fn fitting(batch: &Batch, free: u32) -> usize {
        let mut used = 0;
        batch
            .iter()
            .take_while(|packet| {
                used += u32::from(packet.segments());
                used <= free
            })
            .count()
    }

    #[inline]
    fn write_frame(&mut self, memory: &FrameMemory, at: u32, packet: &Packet, options: u32) {
        let (frame, offset) = (packet.frame(), packet.offset());
        self.owned.insert(frame);
        let len = u32::from(packet.head_bytes());
        self.tx.write(at, Descriptor { addr: memory.address(frame, offset), len, options });
    }

    #[cold]
    fn write_chain(&mut self, pool: &mut FramePool, at: u32, packet: Packet) -> u32 {
        if packet.segments() > self.max_segments {
            self.refuse(pool, packet);
            return at;
        }
        let (mut at, mut rest) = (at, Some(packet));
        while let Some(packet) = rest {
            let (first, tail) = packet.split_first(pool.memory());
            rest = tail;
            self.write_frame(pool.memory(), at, &first, if rest.is_some() { XDP_PKT_CONTD } else { 0 });
            at += 1;
        }
        at
    }

    #[cold]
    fn refuse(&mut self, pool: &mut FramePool, packet: Packet) {
        self.refused += 1;
        pool.free(packet);
    }

    /// Returns frames to the pool after the kernel has completed the transmission of their packets.
    #[inline]
    pub(crate) fn reclaim(&mut self, pool: &mut FramePool) {
        let available = self.completion.available();
        for i in 0..available {
            match pool.memory().locate(self.completion.peek(i)) {
                Some((frame, _)) if self.owned.remove(frame) => pool.put_raw(frame),
                _ => self.strange += 1,
            }
        }
        self.completion.release(available);
    }

    /// Returns the number of transmit descriptors that the kernel has not completed. The descriptors are in
    /// the ring or inside the kernel.
    pub(crate) fn tx_in_flight(&self) -> usize {
        // The frames that the kernel holds for reception are in the fill ring. Frames in neither ring are in
        // transmission, or in a zero-copy driver's receive ring. In the latter case, the result is too high
        // but never too low.
        let receiving = self.fill.standing().count() + self.rx.standing().count();
        (self.owned.len() as usize).saturating_sub(receiving)
    }

    /// Returns the frames that are currently in the rings, which are a subset of `owned`. The other owned
    /// frames are inside the kernel, in a driver's descriptors or in packets that are being transmitted.
    pub(crate) fn frames_in_rings(&self, memory: &FrameMemory) -> Vec<u32> {
        let addresses = self.fill.standing().chain(self.completion.standing());
        let packets = self.rx.standing().chain(self.tx.standing()).map(|descriptor| descriptor.addr);
        addresses
            .chain(packets)
            .filter_map(|address| memory.locate(address))
            .map(|(frame, _)| frame)
            .collect()
    }
}
