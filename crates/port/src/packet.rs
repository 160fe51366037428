//! The packet handle, which stores the index of the packet's frame, the position of the packet's bytes in the
//! frame, and the offload state of the packet.
//!
//! A `Packet` owns its frame. If the packet is larger than one frame (jumbo frames, segmentation offload), the `Packet`
//! owns a chain of frames. The type does not implement `Drop`. The worker must return each packet to a
//! [`crate::FramePool`] or to a port's ring, and tests check that no frame is lost.
//!
//! The handle has a size of 16 bytes (two machine words), because handles are often copied. Few packets still need
//! offload work. The details of this work are stored next to the packet's first frame in [`FrameMemory`].
#![allow(unsafe_code, reason = "turns ownership of a frame into slices; see the SAFETY comments")]

use std::sync::atomic::Ordering;

use packet::PortId;

use crate::memory::{FrameMemory, HEADROOM, MAX_FRAMES};

/// Flags of a packet's offload state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// The L4 checksum field contains only the pseudo-header sum. `csum_start` and `csum_offset` specify the
    /// position of the field.
    pub const PARTIAL_CHECKSUM: Self = Self(1);
    /// The sender of the packet has verified or computed the checksums (virtio DATA_VALID).
    pub const CHECKSUM_VALID: Self = Self(2);
    /// The packet must be divided into segments. `gso` specifies the kind of segmentation, and `gso_size` the segment
    /// size.
    pub const SEGMENT: Self = Self(4);

    /// Returns whether all flags of `other` are set.
    #[inline]
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether no flag is set.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Sets all flags of `other`.
    #[inline]
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears all flags of `other`.
    #[inline]
    pub fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// Kind of segmentation that a packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Gso {
    /// The packet needs no segmentation.
    #[default]
    None,
    /// Segmentation of TCP over IPv4.
    Tcp4,
    /// Segmentation of TCP over IPv6.
    Tcp6,
    /// Segmentation of UDP over IPv4 or IPv6 (USO). Each segment is a separate datagram.
    Udp,
}

/// Offload work that the sender of a packet has left to the transmitter (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offload {
    /// Flags of the offload work. Each of the other fields is valid only if its flag is set.
    pub flags: Flags,
    /// Kind of segmentation. Valid if `SEGMENT` is set.
    pub gso: Gso,
    /// Number of payload bytes per segment. Valid if `SEGMENT` is set.
    pub gso_size: u16,
    /// Offset of the first byte that the checksum covers, from the start of the packet. Valid if
    /// `PARTIAL_CHECKSUM` is set.
    pub csum_start: u16,
    /// Offset of the checksum field, from `csum_start`. Valid if `PARTIAL_CHECKSUM` is set.
    pub csum_offset: u16,
}

impl Offload {
    /// Packs the offload details into the 64-bit word that the frame memory stores for the frame. The word also
    /// contains `offset`, at which the packet starts in the frame.
    fn pack(self, offset: u16) -> u64 {
        debug_assert!(offset < 1 << 12, "frames have at most 4096 bytes");
        u64::from(self.csum_start)
            | u64::from(self.csum_offset) << 16
            | u64::from(self.gso_size) << 32
            | u64::from(offset & 0xfff) << 48
            | (self.gso as u64) << 60
    }

    /// Unpacks the offload details of a packet that now starts at `offset` in its frame. `csum_start` is adjusted if
    /// the packet started at a different offset when the details were packed.
    #[allow(clippy::cast_possible_truncation, reason = "fields of a packed word")]
    fn unpack(word: u64, flags: Flags, offset: u16) -> Self {
        let start = u32::from(word as u16) + ((word >> 48) as u32 & 0xfff);
        Self {
            flags,
            gso: match word >> 60 & 3 {
                1 => Gso::Tcp4,
                2 => Gso::Tcp6,
                3 => Gso::Udp,
                _ => Gso::None,
            },
            gso_size: (word >> 32) as u16,
            csum_start: start.saturating_sub(u32::from(offset)).min(0xffff) as u16,
            csum_offset: (word >> 16) as u16,
        }
    }
}

/// An exclusive handle to one frame or to a chain of frames, which contain a packet. See the module
/// documentation.
#[must_use = "a dropped packet leaks its frame: give it to a pool or a queue"]
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Packet {
    /// Index of the first frame in the lower 24 bits, offload flags in the next 3 bits, and the number of
    /// patch ports passed in the upper 5 bits.
    frame_and_flags: u32,
    offset: u16,
    len: u16,
    /// Length of the whole packet in bytes in the lower 21 bits. The upper 11 bits contain the index of the
    /// port on which the packet arrived plus 1, or 0 if the port is not known.
    total_and_arrival: u32,
    memory: u16,
    segments: u16,
}

/// Number of bits that store the length of a packet. A packet that is extended at the front (by a tag) cannot
/// exceed this range, because the packet can grow at most by the offset of the data in its first frame.
const LENGTH_BITS: u32 = 21;
/// Maximum length of a newly created packet in bytes.
pub const MAX_LENGTH: usize = (1 << LENGTH_BITS) - 1 - 4096;
/// Greatest number that a packet can store as the index of its arrival port plus 1.
const MAX_ARRIVAL: u32 = (1 << (32 - LENGTH_BITS)) - 1;
/// Number of bits that store the index of a packet's first frame.
const FRAME_BITS: u32 = 24;
/// Number of bits that store the offload flags of a packet.
const FLAG_BITS: u32 = 3;
/// Maximum number of patch ports that a packet may pass.
pub const HOPS: u8 = (1 << (32 - FRAME_BITS - FLAG_BITS)) - 1;
const _: () = assert!(MAX_FRAMES <= 1 << FRAME_BITS);

const _: () = assert!(size_of::<Packet>() == 16);

/// Packs the index, the data offset and the data length of a chain's next frame into a link word.
/// The word contains the index plus 1, so a word of 0 marks the end of the chain.
#[inline]
fn pack(frame: u32, offset: u16, len: u16) -> u64 {
    (u64::from(frame) + 1) << 32 | u64::from(offset) << 16 | u64::from(len)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "fields of a packed word")]
fn unpack(word: u64) -> Option<(u32, u16, u16)> {
    let frame = (word >> 32) as u32;
    (frame != 0).then(|| (frame - 1, (word >> 16) as u16, word as u16))
}

impl Packet {
    /// Creates a packet that consists of `len` bytes at `offset` of one frame. Only pools and the rings of
    /// ports create packets.
    ///
    /// # Panics
    /// Panics if the range exceeds the frame. The caller must check values from the kernel or a peer before
    /// the call.
    #[inline]
    pub(crate) fn from_frame(memory: &FrameMemory, frame: u32, offset: u16, len: u16) -> Self {
        assert!(frame < memory.frames() && u32::from(offset) + u32::from(len) <= memory.frame_size());
        let total_and_arrival = u32::from(len);
        Self { frame_and_flags: frame, total_and_arrival, offset, len, memory: memory.id(), segments: 1 }
    }

    /// Creates a packet from the frames in `parts`, in order. Each part consists of a frame index, an offset
    /// and a length. Returns `None` if there are no parts, too many parts, or more than [`MAX_LENGTH`] bytes.
    pub(crate) fn chain(
        memory: &FrameMemory,
        parts: impl IntoIterator<Item = (u32, u16, u16)>,
    ) -> Option<Self> {
        let mut parts = parts.into_iter();
        let (frame, offset, len) = parts.next()?;
        let mut whole = Self::from_frame(memory, frame, offset, len);
        let mut last = frame;
        for (frame, offset, len) in parts {
            assert!(frame < memory.frames() && u32::from(offset) + u32::from(len) <= memory.frame_size());
            memory.link(last).store(pack(frame, offset, len), Ordering::Relaxed);
            whole.segments = whole.segments.checked_add(1)?;
            whole.lengthen(len).then_some(())?;
            last = frame;
        }
        memory.link(last).store(0, Ordering::Relaxed);
        Some(whole)
    }

    /// Appends the frame of the packet `tail` to the end of the chain. `tail` must have only one frame. The function
    /// walks the chain, so its time is proportional to the number of frames.
    pub(crate) fn append(&mut self, memory: &FrameMemory, tail: Self) {
        self.check(memory);
        tail.check(memory);
        assert!(tail.segments == 1, "only single frames are appended");
        let mut last = self.frame();
        for _ in 1..self.segments {
            if let Some((next, ..)) = unpack(memory.link(last).load(Ordering::Relaxed)) {
                last = next;
            }
        }
        memory.link(last).store(pack(tail.frame(), tail.offset, tail.len), Ordering::Relaxed);
        memory.link(tail.frame()).store(0, Ordering::Relaxed);
        self.segments += 1;
        assert!(self.lengthen(tail.len), "a packet has at most {MAX_LENGTH} bytes");
    }

    /// Increases the stored length of the packet by `by` bytes. Returns false and changes nothing if the
    /// packet would exceed [`MAX_LENGTH`].
    fn lengthen(&mut self, by: u16) -> bool {
        let fits = self.len() + usize::from(by) <= MAX_LENGTH;
        if fits {
            self.total_and_arrival += u32::from(by);
        }
        fits
    }

    /// Divides the chain into packets of one frame each, and calls `each` with each of these
    /// packets, from first to last.
    pub(crate) fn dismantle(self, memory: &FrameMemory, mut each: impl FnMut(Self)) {
        let mut rest = Some(self);
        while let Some(packet) = rest {
            let (first, tail) = packet.split_first(memory);
            rest = tail;
            each(first);
        }
    }

    /// Separates the first frame from the rest of the chain. Returns the first frame as a packet that has the
    /// offload state, and the rest of the chain as another packet. The rest is `None` if the packet has only
    /// one frame.
    pub(crate) fn split_first(self, memory: &FrameMemory) -> (Self, Option<Self>) {
        self.check(memory);
        let next =
            if self.segments > 1 { unpack(memory.link(self.frame()).load(Ordering::Relaxed)) } else { None };
        let tail = next.map(|(frame, offset, len)| {
            let mut tail = Self::from_frame(memory, frame, offset, len);
            tail.segments = self.segments - 1;
            tail.total_and_arrival = self.total_and_arrival - u32::from(self.len);
            tail
        });
        let mut first = Self { segments: 1, ..self };
        first.set_total(self.len);
        (first, tail)
    }

    #[inline]
    fn check(&self, memory: &FrameMemory) {
        assert!(self.memory == memory.id(), "packet used with another frame memory");
    }

    /// Returns the length of the packet in bytes, summed over all its frames.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a packet is never empty")]
    pub fn len(&self) -> usize {
        (self.total_and_arrival & ((1 << LENGTH_BITS) - 1)) as usize
    }

    #[inline]
    fn set_total(&mut self, total: u16) {
        self.total_and_arrival = self.total_and_arrival >> LENGTH_BITS << LENGTH_BITS | u32::from(total);
    }

    /// Sets the port on which the packet was received. The port stays the same if the packet passes patch ports. If the
    /// port's index is too large to be stored, the port becomes unknown.
    #[inline]
    pub fn set_arrival(&mut self, port: PortId) {
        let number = u32::from(port.0) + 1;
        let kept = if number <= MAX_ARRIVAL { number } else { 0 };
        self.total_and_arrival = self.total_and_arrival & ((1 << LENGTH_BITS) - 1) | kept << LENGTH_BITS;
    }

    /// Returns the port on which the packet was received, before it passed any patch ports. For a copy or a segment,
    /// this is the port on which the original packet was received. Returns `None` if the port is not known.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "11 of 32 bits")]
    pub fn arrival(&self) -> Option<PortId> {
        (self.total_and_arrival >> LENGTH_BITS).checked_sub(1).map(|number| PortId(number as u16))
    }

    /// Returns the port on which the packet was received ([`Packet::arrival`]), or `port` if that is not known.
    #[inline]
    #[must_use]
    pub fn arrival_or(&self, port: PortId) -> PortId {
        self.arrival().unwrap_or(port)
    }

    /// Returns the number of frames in the chain. The number is 1 except for jumbo packets and packets that
    /// need segmentation.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// Returns the offload flags of the packet. [`Self::offload`] also returns the details of the offload work.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "8 of 32 bits, of which 3 are kept")]
    pub fn flags(&self) -> Flags {
        Flags((self.frame_and_flags >> FRAME_BITS) as u8 & ((1 << FLAG_BITS) - 1))
    }

    #[inline]
    fn set_flags(&mut self, flags: Flags) {
        let rest = self.frame_and_flags & !(((1 << FLAG_BITS) - 1) << FRAME_BITS);
        self.frame_and_flags = rest | u32::from(flags.0) << FRAME_BITS;
    }

    /// Increments the number of patch ports that the packet has passed. Returns false and changes nothing if
    /// the packet has already passed [`HOPS`] patch ports.
    #[inline]
    #[must_use]
    pub fn hop(&mut self) -> bool {
        let one = 1 << (FRAME_BITS + FLAG_BITS);
        self.frame_and_flags.checked_add(one).map(|counted| self.frame_and_flags = counted).is_some()
    }

    /// Returns the number of patch ports that the packet has passed.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the upper 5 of 32 bits")]
    pub fn hops(&self) -> u8 {
        (self.frame_and_flags >> (FRAME_BITS + FLAG_BITS)) as u8
    }

    /// Copies the arrival port and the number of passed patch ports from `from`. This packet is a copy or a
    /// segment of `from`.
    pub(crate) fn copy_path(&mut self, from: &Self) {
        let own = (1 << (FRAME_BITS + FLAG_BITS)) - 1;
        self.frame_and_flags = self.frame_and_flags & own | from.frame_and_flags & !own;
        let own = (1 << LENGTH_BITS) - 1;
        self.total_and_arrival = self.total_and_arrival & own | from.total_and_arrival & !own;
    }

    /// Returns the offload work that the packet still needs, with its details.
    #[must_use]
    pub fn offload(&self, memory: &FrameMemory) -> Offload {
        self.check(memory);
        if self.flags().is_empty() {
            return Offload::default();
        }
        Offload::unpack(memory.offload(self.frame()).load(Ordering::Relaxed), self.flags(), self.offset)
    }

    /// Sets the offload work that remains to be done before or during the transmission of the packet.
    pub fn set_offload(&mut self, memory: &FrameMemory, offload: Offload) {
        self.check(memory);
        self.set_flags(offload.flags);
        memory.offload(self.frame()).store(offload.pack(self.offset), Ordering::Relaxed);
    }

    /// Clears the flags in `done`, because this part of the offload work has been done.
    #[inline]
    pub fn clear_offload(&mut self, done: Flags) {
        let mut flags = self.flags();
        flags.remove(done);
        self.set_flags(flags);
    }

    /// Returns the index of the packet's first frame. Diagnostics and the frame accounting of a hand-over use
    /// the index.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> u32 {
        self.frame_and_flags & ((1 << FRAME_BITS) - 1)
    }

    #[inline]
    pub(crate) fn offset(&self) -> u16 {
        self.offset
    }

    #[inline]
    pub(crate) fn head_bytes(&self) -> u16 {
        self.len
    }

    /// Returns the number of the packet's bytes in its first frame.
    #[inline]
    #[must_use]
    pub fn head_len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns the packet's bytes in its first frame. If the packet has only one frame, these are all its
    /// bytes. The headers are always in the first frame.
    #[inline]
    #[must_use]
    pub fn head<'m>(&'m self, memory: &'m FrameMemory) -> &'m [u8] {
        self.check(memory);
        // SAFETY: this packet owns the frame, and the shared borrow excludes a mutable slice.
        unsafe { memory.slice(self.frame(), self.offset, self.len) }
    }

    /// Returns the `N` bytes in front of the packet in its first frame. The bytes contain metadata that an XDP
    /// program has written, or are undefined. Returns `None` if there are fewer than `N` bytes in front of the
    /// packet.
    #[inline]
    #[must_use]
    pub fn before<const N: usize>(&self, memory: &FrameMemory) -> Option<[u8; N]> {
        self.check(memory);
        let bytes = u16::try_from(N).ok()?;
        let from = self.offset.checked_sub(bytes)?;
        // SAFETY: like `head`; the bytes in front of the packet are in the same frame, which the packet owns.
        unsafe { memory.slice(self.frame(), from, bytes) }.try_into().ok()
    }

    /// Returns the packet's bytes in its first frame as a mutable slice.
    #[inline]
    #[must_use]
    pub fn head_mut<'m>(&'m mut self, memory: &'m FrameMemory) -> &'m mut [u8] {
        self.check(memory);
        // SAFETY: this packet owns the frame and is borrowed mutably for the lifetime of the slice.
        unsafe { memory.slice_mut(self.frame(), self.offset, self.len) }
    }

    /// Iterates over the frames of the packet in order. Each item is the slice of the packet's bytes in one
    /// frame.
    pub fn parts<'m>(&'m self, memory: &'m FrameMemory) -> impl Iterator<Item = &'m [u8]> {
        self.check(memory);
        let mut next = Some((self.frame(), self.offset, self.len));
        let mut left = self.segments;
        std::iter::from_fn(move || {
            let (frame, offset, len) = next?;
            left -= 1;
            next = if left > 0 { unpack(memory.link(frame).load(Ordering::Relaxed)) } else { None };
            // SAFETY: the frames of the chain belong to this packet, which is borrowed for the lifetime of
            // the slices.
            Some(unsafe { memory.slice(frame, offset, len) })
        })
    }

    /// Calls `each` with the packet's bytes in each frame, in order.
    pub fn for_each_segment(&self, memory: &FrameMemory, each: impl FnMut(&[u8])) {
        self.parts(memory).for_each(each);
    }

    /// Calls `each` with the packet's bytes in each frame as a mutable slice, in order.
    pub fn for_each_segment_mut(&mut self, memory: &FrameMemory, mut each: impl FnMut(&mut [u8])) {
        let (mut frame, segments) = (self.frame(), self.segments);
        each(self.head_mut(memory));
        for _ in 1..segments {
            let Some((next, offset, len)) = unpack(memory.link(frame).load(Ordering::Relaxed)) else {
                return;
            };
            // SAFETY: the frames of the chain belong to this packet, which is borrowed mutably; only one
            // slice exists at a time.
            each(unsafe { memory.slice_mut(next, offset, len) });
            frame = next;
        }
    }

    /// Copies bytes from the start of the packet to `out`, until `out` is full or the packet ends.
    /// Returns the number of bytes copied.
    pub fn copy_to(&self, memory: &FrameMemory, out: &mut [u8]) -> usize {
        let mut at = 0;
        for bytes in self.parts(memory) {
            let n = bytes.len().min(out.len() - at);
            out[at..at + n].copy_from_slice(&bytes[..n]);
            at += n;
        }
        at
    }

    /// Extends the packet by `n` bytes at the front, for example for a tag or an outer header. The contents
    /// of the new bytes are undefined. Offload offsets are adjusted. Returns false and changes nothing if
    /// there are fewer than `n` bytes in front of the packet.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, n: u16) -> bool {
        if self.offset < n {
            return false;
        }
        self.offset -= n;
        self.len += n;
        self.total_and_arrival += u32::from(n);
        true
    }

    /// Removes `n` bytes at the front of the packet. Returns false and changes nothing if the first frame
    /// contains `n` bytes or fewer.
    #[inline]
    #[must_use]
    pub fn trim_front(&mut self, n: u16) -> bool {
        if self.len <= n {
            return false;
        }
        self.offset += n;
        self.len -= n;
        self.total_and_arrival -= u32::from(n);
        true
    }

    /// Sets the length of a packet of one frame in bytes. Returns false and changes nothing if the
    /// packet would exceed its frame, or if the packet is a chain of frames.
    #[must_use]
    pub fn set_len(&mut self, memory: &FrameMemory, len: u16) -> bool {
        if self.segments != 1 || u32::from(self.offset) + u32::from(len) > memory.frame_size() {
            return false;
        }
        self.len = len;
        self.set_total(len);
        true
    }

    /// Empties a packet, which must consist of one frame. The packet data starts after the default headroom again, so
    /// that the frame can be filled with another packet.
    pub fn reset(&mut self) {
        self.offset = HEADROOM;
        self.len = 0;
        self.total_and_arrival = 0;
        self.frame_and_flags = self.frame();
    }

    /// Copies the offload state of `from`, a packet with equal headers, to this packet.
    pub(crate) fn copy_offload(&mut self, memory: &FrameMemory, from: &Self) {
        if !from.flags().is_empty() {
            self.set_offload(memory, from.offload(memory));
        }
    }

    /// Prefetches the cache line that contains the first bytes of the packet.
    #[inline]
    pub fn prefetch(&self, memory: &FrameMemory) {
        memory.prefetch(self.frame(), self.offset);
    }
}
