//! The packet handle: the frame, the packet's bytes in the frame, and the offload state of the packet.
//!
//! A `Packet` owns its frame, or a chain of frames if the packet is larger than one frame (jumbo frames,
//! segmentation offload). The type has no `Drop`. The worker returns the packet to a [`crate::FramePool`] or
//! to a port's ring, and tests check that no frame is lost.
//!
//! The handle is 16 bytes, two machine words, because it is copied from ring to burst to batch to ring. The
//! details of pending offload work, which few packets have, are stored beside the first frame in
//! [`FrameMemory`].
#![allow(unsafe_code, reason = "turns ownership of a frame into slices; see the SAFETY comments")]

use std::sync::atomic::Ordering;

use packet::PortId;

use crate::memory::{FrameMemory, HEADROOM, MAX_FRAMES};

/// Offload state bits of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// The L4 checksum field contains only the pseudo-header sum. `csum_start` and `csum_offset` give its
    /// location.
    pub const PARTIAL_CHECKSUM: Self = Self(1);
    /// The sender has verified or computed the checksums (virtio DATA_VALID).
    pub const CHECKSUM_VALID: Self = Self(2);
    /// The packet must be segmented. `gso` and `gso_size` give the parameters.
    pub const SEGMENT: Self = Self(4);

    /// Returns whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether no bit is set.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Sets the bits of `other`.
    #[inline]
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    #[inline]
    pub fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// Kind of pending segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Gso {
    /// No segmentation.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP segmentation (USO), IPv4 or IPv6: each segment is a separate datagram.
    Udp,
}

/// Offload work that a packet's sender left to the transmitter (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offload {
    /// Pending and recorded offload work. A field without its bit is not valid.
    pub flags: Flags,
    /// Kind of segmentation, if `SEGMENT` is set.
    pub gso: Gso,
    /// Payload bytes per segment, if `SEGMENT` is set.
    pub gso_size: u16,
    /// Offset from the packet's first byte at which the checksum begins, if `PARTIAL_CHECKSUM` is set.
    pub csum_start: u16,
    /// Offset of the checksum field after `csum_start`.
    pub csum_offset: u16,
}

impl Offload {
    /// Packs the details into the word beside the frame, with the packet's current offset in the frame.
    fn pack(self, offset: u16) -> u64 {
        debug_assert!(offset < 1 << 12, "frames have at most 4096 bytes");
        u64::from(self.csum_start)
            | u64::from(self.csum_offset) << 16
            | u64::from(self.gso_size) << 32
            | u64::from(offset & 0xfff) << 48
            | (self.gso as u64) << 60
    }

    /// Unpacks the details for a packet that begins at `offset` now. The checksum start is adjusted by the
    /// change of the offset.
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

/// An exclusive handle of one frame or a chain of frames. See the module documentation.
#[must_use = "a dropped packet leaks its frame: give it to a pool or a queue"]
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Packet {
    /// Index of the first frame in the lower 24 bits, flags in the next 3 bits, and hops in the upper 5 bits.
    frame_and_flags: u32,
    offset: u16,
    len: u16,
    /// Length of the whole packet in the lower 21 bits. The upper 11 bits are the number of the arrival port
    /// plus one, or 0 for no port.
    total_and_arrival: u32,
    memory: u16,
    segments: u16,
}

/// Number of bits of a packet's length. Tags that lengthen a packet do not exceed these bits, because the
/// packet's offset in its first frame decreases by the same number of bytes.
const LENGTH_BITS: u32 = 21;
/// Maximum length of a new packet in bytes.
pub const MAX_LENGTH: usize = (1 << LENGTH_BITS) - 1 - 4096;
/// Largest port number plus one that a packet can store.
const MAX_ARRIVAL: u32 = (1 << (32 - LENGTH_BITS)) - 1;
/// Number of bits of a packet's frame index.
const FRAME_BITS: u32 = 24;
/// Number of bits of a packet's flags.
const FLAG_BITS: u32 = 3;
/// Maximum number of patch ports that a packet may pass.
pub const HOPS: u8 = (1 << (32 - FRAME_BITS - FLAG_BITS)) - 1;
const _: () = assert!(MAX_FRAMES <= 1 << FRAME_BITS);

const _: () = assert!(size_of::<Packet>() == 16);

/// Packs a further frame of a chain into a link word: next frame + 1 (0 marks the end), offset, length.
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
    /// Creates a packet of one frame, `len` bytes at `offset`. Only pools and ports' rings create packets.
    ///
    /// # Panics
    /// If the range exceeds the frame. Values from the kernel or a peer must be checked before.
    #[inline]
    pub(crate) fn from_frame(memory: &FrameMemory, frame: u32, offset: u16, len: u16) -> Self {
        assert!(frame < memory.frames() && u32::from(offset) + u32::from(len) <= memory.frame_size());
        let total_and_arrival = u32::from(len);
        Self { frame_and_flags: frame, total_and_arrival, offset, len, memory: memory.id(), segments: 1 }
    }

    /// Creates a packet of the frames in `parts` (frame, offset, length), in order. Returns `None` if there
    /// are no parts, too many parts, or more than [`MAX_LENGTH`] bytes.
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

    /// Appends the single-frame packet `tail` as the last segment. The function walks the chain, which is
    /// O(segments).
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

    /// Adds bytes at the end. Returns false without a change if the packet would be longer than
    /// [`MAX_LENGTH`].
    fn lengthen(&mut self, by: u16) -> bool {
        let fits = self.len() + usize::from(by) <= MAX_LENGTH;
        if fits {
            self.total_and_arrival += u32::from(by);
        }
        fits
    }

    /// Splits the chain into single-frame packets, first to last, and passes each to `each`.
    pub(crate) fn dismantle(self, memory: &FrameMemory, mut each: impl FnMut(Self)) {
        let mut rest = Some(self);
        while let Some(packet) = rest {
            let (first, tail) = packet.split_first(memory);
            rest = tail;
            each(first);
        }
    }

    /// Splits off the first frame as a packet, which keeps the offload state. Returns it with the rest of the
    /// chain.
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

    /// Returns the length of the packet in bytes, over all its frames.
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

    /// Sets the port on which the packet arrived. A port number that is too large is not stored.
    #[inline]
    pub fn set_arrival(&mut self, port: PortId) {
        let number = u32::from(port.0) + 1;
        let kept = if number <= MAX_ARRIVAL { number } else { 0 };
        self.total_and_arrival = self.total_and_arrival & ((1 << LENGTH_BITS) - 1) | kept << LENGTH_BITS;
    }

    /// Returns the port on which the packet arrived, or on which the original of a copy or segment arrived.
    /// Returns `None` if the port is not known.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "11 of 32 bits")]
    pub fn arrival(&self) -> Option<PortId> {
        (self.total_and_arrival >> LENGTH_BITS).checked_sub(1).map(|number| PortId(number as u16))
    }

    /// Returns the number of frames in the chain, which is 1 for all but jumbo and unsegmented packets.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// Returns the offload state bits. [`Self::offload`] returns the details.
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

    /// Counts a patch port that the packet passes. Returns false without a change if the packet has already
    /// passed [`HOPS`] patch ports.
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

    /// Copies the arrival port and the number of patch ports passed from the packet that this packet is a
    /// copy or segment of.
    pub(crate) fn copy_path(&mut self, from: &Self) {
        let own = (1 << (FRAME_BITS + FLAG_BITS)) - 1;
        self.frame_and_flags = self.frame_and_flags & own | from.frame_and_flags & !own;
        let own = (1 << LENGTH_BITS) - 1;
        self.total_and_arrival = self.total_and_arrival & own | from.total_and_arrival & !own;
    }

    /// Returns the offload work with its details.
    #[must_use]
    pub fn offload(&self, memory: &FrameMemory) -> Offload {
        self.check(memory);
        if self.flags().is_empty() {
            return Offload::default();
        }
        Offload::unpack(memory.offload(self.frame()).load(Ordering::Relaxed), self.flags(), self.offset)
    }

    /// Sets the offload work that must be done before or during transmission.
    pub fn set_offload(&mut self, memory: &FrameMemory, offload: Offload) {
        self.check(memory);
        self.set_flags(offload.flags);
        memory.offload(self.frame()).store(offload.pack(self.offset), Ordering::Relaxed);
    }

    /// Marks a part of the offload work as done.
    #[inline]
    pub fn clear_offload(&mut self, done: Flags) {
        let mut flags = self.flags();
        flags.remove(done);
        self.set_flags(flags);
    }

    /// Returns the index of the first frame, for diagnostics and for the frame accounting of hand-over.
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

    /// Returns the number of bytes in the first frame.
    #[inline]
    #[must_use]
    pub fn head_len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns the bytes in the first frame. These are all bytes unless the packet is a chain, and always
    /// contain the headers.
    #[inline]
    #[must_use]
    pub fn head<'m>(&'m self, memory: &'m FrameMemory) -> &'m [u8] {
        self.check(memory);
        // SAFETY: this packet owns the frame, and the shared borrow excludes a mutable slice.
        unsafe { memory.slice(self.frame(), self.offset, self.len) }
    }

    /// Returns the bytes in front of the packet in its first frame. The bytes are XDP metadata of a driver
    /// hook, or undefined. Returns `None` if the headroom is smaller than `N` bytes.
    #[inline]
    #[must_use]
    pub fn before<const N: usize>(&self, memory: &FrameMemory) -> Option<[u8; N]> {
        self.check(memory);
        let bytes = u16::try_from(N).ok()?;
        let from = self.offset.checked_sub(bytes)?;
        // SAFETY: like `head`; the bytes in front of the packet are in the same frame, which the packet owns.
        unsafe { memory.slice(self.frame(), from, bytes) }.try_into().ok()
    }

    /// Returns the bytes in the first frame, mutable.
    #[inline]
    #[must_use]
    pub fn head_mut<'m>(&'m mut self, memory: &'m FrameMemory) -> &'m mut [u8] {
        self.check(memory);
        // SAFETY: this packet owns the frame and is borrowed mutably for the lifetime of the slice.
        unsafe { memory.slice_mut(self.frame(), self.offset, self.len) }
    }

    /// Iterates over the bytes of each frame in order.
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

    /// Calls `each` with the bytes of each frame in order.
    pub fn for_each_segment(&self, memory: &FrameMemory, each: impl FnMut(&[u8])) {
        self.parts(memory).for_each(each);
    }

    /// Calls `each` with the mutable bytes of each frame in order.
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

    /// Copies as much of the packet as fits into `out`. Returns the number of bytes written.
    pub fn copy_to(&self, memory: &FrameMemory, out: &mut [u8]) -> usize {
        let mut at = 0;
        for bytes in self.parts(memory) {
            let n = bytes.len().min(out.len() - at);
            out[at..at + n].copy_from_slice(&bytes[..n]);
            at += n;
        }
        at
    }

    /// Extends the packet by `n` bytes at the front (a tag, an outer header). The new bytes have undefined
    /// contents. Offload offsets are adjusted. Returns false without a change if the headroom is too small.
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

    /// Removes `n` bytes at the front. Returns false without a change if the first frame has no more than `n`
    /// bytes.
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

    /// Sets the length of a single-frame packet, at most to the end of its frame. Returns false if the length
    /// does not fit or the packet is a chain.
    #[must_use]
    pub fn set_len(&mut self, memory: &FrameMemory, len: u16) -> bool {
        if self.segments != 1 || u32::from(self.offset) + u32::from(len) > memory.frame_size() {
            return false;
        }
        self.len = len;
        self.set_total(len);
        true
    }

    /// Resets a single-frame packet to an empty packet after the default headroom, so that it can be filled
    /// again.
    pub fn reset(&mut self) {
        self.offset = HEADROOM;
        self.len = 0;
        self.total_and_arrival = 0;
        self.frame_and_flags = self.frame();
    }

    /// Copies the offload state of another packet with the same headers.
    pub(crate) fn copy_offload(&mut self, memory: &FrameMemory, from: &Self) {
        if !from.flags().is_empty() {
            self.set_offload(memory, from.offload(memory));
        }
    }

    /// Prefetches the packet's first bytes.
    #[inline]
    pub fn prefetch(&self, memory: &FrameMemory) {
        memory.prefetch(self.frame(), self.offset);
    }
}
