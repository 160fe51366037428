//! Frame memory, which is one region of frames of equal size. All ports of a process share the memory. The
//! memory is a memfd, so that AF_XDP sockets can register it and a successor process can map it.
//!
//! Invariants:
//!
//! - The mapping exists as long as the `FrameMemory` value.
//! - Frame `i` consists of the bytes `[i << shift, (i + 1) << shift)` of the mapping.
//! - A frame is accessed only through the [`crate::Packet`] that owns it, or by the kernel while the frame's
//!   index is in one of the kernel's rings.
#![allow(unsafe_code, reason = "maps memory and hands out slices of it; see the SAFETY comments")]

mod mapping;

#[cfg(not(miri))]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use mapping::Mapping;

/// Headroom: the number of bytes before the packet data in a newly allocated frame (the kernel's
/// XDP_PACKET_HEADROOM). The headroom is for VLAN tags, outer headers and AF_XDP transmit metadata.
pub const HEADROOM: u16 = 256;

/// Maximum number of frames in one frame memory.
pub const MAX_FRAMES: u32 = 1 << 24;

/// Policy that selects the size of the pages for frame memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Uses reserved 2 MiB pages if enough are available, otherwise transparent huge pages, and otherwise
    /// normal pages. With normal pages, [`FrameMemory::warning`] contains a warning.
    Try,
    /// Uses reserved 2 MiB pages. The creation of the memory fails if too few reserved pages are
    /// available.
    Require,
    /// Uses normal pages. The kernel may still use huge pages if the administrator has enabled transparent
    /// huge pages for shared memory.
    Off,
}

/// Kind of the pages of which frame memory consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Backing {
    /// Huge pages of 2 MiB that the administrator has reserved (vm.nr_hugepages).
    Reserved,
    /// Transparent huge pages of 2 MiB.
    Transparent,
    /// Normal pages of 4 KiB.
    #[default]
    Normal,
}

/// Configuration of frame memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Number of frames in the memory.
    pub frames: u32,
    /// Size of each frame in bytes. The size must be 2048 or 4096 (AF_XDP's aligned chunk sizes).
    pub frame_size: u32,
    /// Policy that selects the size of the pages.
    pub huge_pages: HugePages,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { frames: 16 * 1024, frame_size: 2048, huge_pages: HugePages::Try }
    }
}

/// An error of the creation or mapping of frame memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// AF_XDP does not support the requested frame size. The field is the size in bytes.
    #[error("frame memory: frame_size {0} is not supported; use 2048 or 4096")]
    FrameSize(u32),
    /// The requested number of frames is out of range, or the memory would exceed the address
    /// space. The field is the requested number of frames.
    #[error("frame memory: {0} frames cannot be mapped; choose between 64 and 16777216")]
    Frames(u32),
    /// The policy requires reserved huge pages, but too few reserved huge pages are available.
    #[error(
        "frame memory: {need} huge pages of 2 MiB are required and could not be had ({source}); run `sysctl vm.nr_hugepages={reserve}` or set huge_pages = \"try\""
    )]
    HugePages {
        /// Number of huge pages that the memory needs.
        need: u64,
        /// Minimum value of the sysctl vm.nr_hugepages for this memory.
        reserve: u64,
        /// Error that the kernel returned.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("frame memory: {call} of {bytes} bytes failed ({source}); lower memory.frames or free memory")]
    Os {
        /// Name of the system call.
        call: &'static str,
        /// Requested size of the memory in bytes.
        bytes: u64,
        /// Error that the kernel returned.
        source: std::io::Error,
    },
}

/// Returns the minimum value of the sysctl `vm.nr_hugepages` for frame memory of `bytes` bytes. The value
/// includes the huge pages that other processes use.
#[must_use]
pub fn pages_to_reserve(bytes: u64) -> u64 {
    let need = bytes.div_ceil(HUGE);
    // Miri has no /proc.
    let text = if cfg!(miri) { None } else { std::fs::read_to_string("/proc/meminfo").ok() };
    let number = |key: &str| -> Option<u64> {
        let line = text.as_deref()?.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    };
    // Free pages with a reservation (HugePages_Rsvd) are not available.
    let held = || {
        Some(
            (number("HugePages_Total:")? + number("HugePages_Rsvd:")?)
                .saturating_sub(number("HugePages_Free:")?),
        )
    };
    need + held().unwrap_or(0)
}

/// The frame memory of a process, in one shared mapping. See the module documentation.
pub struct FrameMemory {
    base: NonNull<u8>,
    /// Size of each frame in bytes, which is a power of two. Addresses are computed by multiplication by this size,
    /// which is faster than a shift by a variable number of bits.
    frame_size: u32,
    shift: u32,
    frames: u32,
    id: u16,
    backing: Backing,
    warning: Option<String>,
    /// Links of the packets that consist of several frames, one 64-bit word per frame. The word contains the index of
    /// the packet's next frame and the offset and length of the data in the next frame. The links are private to the
    /// process. Only the owner of a packet accesses the links of its frames.
    links: Box<[AtomicU64]>,
    /// Details of the offload work that packets still need, one 64-bit word per frame. Only the word of a
    /// packet's first frame is used. Only the owner of a frame accesses its word.
    offloads: Box<[AtomicU64]>,
    mapping: Mapping,
}

// SAFETY: the mapping is plain memory. Every access goes through a `Packet`, which owns its frames
// exclusively and is `Send`. The links are atomics.
unsafe impl Send for FrameMemory {}
// SAFETY: like `Send`; a shared reference gives no access to frame bytes without a `Packet`.
unsafe impl Sync for FrameMemory {}

static NEXT_ID: AtomicU16 = AtomicU16::new(1);
const HUGE: u64 = 2 << 20;

impl FrameMemory {
    /// Creates and maps a memory of `config.frames` frames. The frames are filled with zeros.
    ///
    /// # Errors
    /// [`MemoryError`] if the configuration is not supported, or if the kernel refuses the mapping.
    pub fn new(config: MemoryConfig) -> Result<Self, MemoryError> {
        if config.frame_size != 2048 && config.frame_size != 4096 {
            return Err(MemoryError::FrameSize(config.frame_size));
        }
        if !(64..=MAX_FRAMES).contains(&config.frames) {
            return Err(MemoryError::Frames(config.frames));
        }
        let bytes = u64::from(config.frames) * u64::from(config.frame_size);
        let mut warning = None;
        if config.huge_pages != HugePages::Off {
            match Self::create(config, bytes.next_multiple_of(HUGE), true) {
                Ok(memory) => return Ok(memory),
                Err(MemoryError::Os { source, .. }) => {
                    let need = bytes.div_ceil(HUGE);
                    let reserve = pages_to_reserve(bytes);
                    if config.huge_pages == HugePages::Require {
                        return Err(MemoryError::HugePages { need, reserve, source });
                    }
                    warning = Some(format!(
                        "frame memory: no huge pages ({source}), normal pages are used; `sysctl vm.nr_hugepages={reserve}` before the start gives {need} pages of 2 MiB"
                    ));
                }
                Err(other) => return Err(other),
            }
        }
        let mut memory = Self::create(config, bytes, false)?;
        if config.huge_pages == HugePages::Try && memory.mapping.collapse() {
            memory.backing = Backing::Transparent;
        } else {
            memory.warning = warning;
        }
        memory.mapping.populate();
        Ok(memory)
    }

    fn create(config: MemoryConfig, bytes: u64, huge: bool) -> Result<Self, MemoryError> {
        let len = usize::try_from(bytes).map_err(|_| MemoryError::Frames(config.frames))?;
        let mapping =
            Mapping::create(len, huge).map_err(|(call, source)| MemoryError::Os { call, bytes, source })?;
        let backing = if huge { Backing::Reserved } else { Backing::Normal };
        Ok(Self::over(mapping, config.frames, config.frame_size, backing))
    }

    /// Maps the frame memory that a predecessor process has handed over as the memfd `fd`.
    ///
    /// # Errors
    /// [`MemoryError`] if the memfd is smaller than `frames * frame_size`, is not sealed against shrinking,
    /// or cannot be mapped.
    #[cfg(not(miri))]
    pub fn from_fd(fd: OwnedFd, frames: u32, frame_size: u32, backing: Backing) -> Result<Self, MemoryError> {
        if frames > MAX_FRAMES {
            return Err(MemoryError::Frames(frames));
        }
        let huge = backing == Backing::Reserved;
        if frame_size != 2048 && frame_size != 4096 {
            return Err(MemoryError::FrameSize(frame_size));
        }
        let bytes = u64::from(frames) * u64::from(frame_size);
        let bytes = if huge { bytes.next_multiple_of(HUGE) } else { bytes };
        let len = usize::try_from(bytes).map_err(|_| MemoryError::Frames(frames))?;
        let mapping =
            Mapping::open(fd, len, huge).map_err(|(call, source)| MemoryError::Os { call, bytes, source })?;
        Ok(Self::over(mapping, frames, frame_size, backing))
    }

    fn over(mapping: Mapping, frames: u32, frame_size: u32, backing: Backing) -> Self {
        Self {
            base: mapping.base(),
            frame_size,
            shift: frame_size.trailing_zeros(),
            frames,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            backing,
            warning: None,
            links: (0..frames).map(|_| AtomicU64::new(0)).collect(),
            offloads: (0..frames).map(|_| AtomicU64::new(0)).collect(),
            mapping,
        }
    }

    /// Returns the number of frames in the memory.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the size of each frame in bytes.
    #[must_use]
    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }

    /// Returns the number of bytes in a frame after the headroom ([`HEADROOM`]).
    #[must_use]
    pub fn data_room(&self) -> u32 {
        self.frame_size() - u32::from(HEADROOM)
    }

    /// Returns the total size of all frames in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) << self.shift
    }

    /// Returns the kind of the pages of which the memory consists.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns a warning for the operator about the page size, or `None` if there is no warning.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the memfd of the memory. The memfd is needed for the registration as a umem and for a
    /// hand-over.
    #[cfg(not(miri))]
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd().as_fd()
    }

    /// Returns the address at which the mapping starts (for `XDP_UMEM_REG`).
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns a pointer to byte `offset` of a frame, for a system call. The caller must own the frame until the kernel
    /// no longer accesses it.
    ///
    /// # Panics
    /// Panics if the memory has no such frame, or if the offset is outside the frame.
    pub(crate) fn raw(&self, frame: u32, offset: u16) -> *mut u8 {
        assert!(frame < self.frames && u32::from(offset) < self.frame_size());
        // SAFETY: in bounds by the check above.
        unsafe { self.base.as_ptr().add(self.at(frame, offset)) }
    }

    /// Returns the index of byte `offset` of a frame, in bytes from the start of the mapping.
    #[inline(always)]
    fn at(&self, frame: u32, offset: u16) -> usize {
        frame as usize * self.frame_size as usize + usize::from(offset)
    }

    #[inline]
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Returns the address of byte `offset` of a frame in the form of an AF_XDP descriptor, which is relative
    /// to the start of the mapping.
    #[inline]
    #[must_use]
    pub(crate) fn address(&self, frame: u32, offset: u16) -> u64 {
        u64::from(frame) * u64::from(self.frame_size) + u64::from(offset)
    }

    /// Converts an AF_XDP address into a frame index and an offset in this frame. Returns `None` if the
    /// address is outside the memory.
    #[inline]
    #[must_use]
    pub(crate) fn locate(&self, address: u64) -> Option<(u32, u16)> {
        let frame = u32::try_from(address >> self.shift).ok().filter(|f| *f < self.frames)?;
        let offset = u16::try_from(address & u64::from(self.frame_size() - 1)).ok()?;
        Some((frame, offset))
    }

    #[inline]
    pub(crate) fn link(&self, frame: u32) -> &AtomicU64 {
        &self.links[frame as usize]
    }

    #[inline]
    pub(crate) fn offload(&self, frame: u32) -> &AtomicU64 {
        &self.offloads[frame as usize]
    }

    /// Returns the bytes `[offset, offset + len)` of a frame.
    ///
    /// # Panics
    /// Panics if the range exceeds the frame or the frame is not part of the memory. The check is also active
    /// in release builds, because it protects the memory of the process.
    ///
    /// # Safety
    /// The caller must own the frame (hold its `Packet`), and no mutable slice of the frame may exist.
    #[inline]
    pub(crate) unsafe fn slice(&self, frame: u32, offset: u16, len: u16) -> &[u8] {
        assert!(frame < self.frames && u32::from(offset) + u32::from(len) <= self.frame_size());
        // SAFETY: in bounds by the check above, initialized (memfd pages are zeroed), and exclusive by the
        // caller's contract.
        unsafe {
            let start = self.base.as_ptr().add(self.at(frame, offset));
            std::slice::from_raw_parts(start, usize::from(len))
        }
    }

    /// Returns the bytes `[offset, offset + len)` of a frame as a mutable slice. Panics like [`Self::slice`].
    ///
    /// # Safety
    /// The caller must own the frame exclusively, and no other reference into the frame may exist.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "exclusivity comes from the Packet, not from the memory")]
    pub(crate) unsafe fn slice_mut(&self, frame: u32, offset: u16, len: u16) -> &mut [u8] {
        assert!(frame < self.frames && u32::from(offset) + u32::from(len) <= self.frame_size());
        // SAFETY: like `slice`; no other reference exists by the caller's contract.
        unsafe {
            let start = self.base.as_ptr().add(self.at(frame, offset));
            std::slice::from_raw_parts_mut(start, usize::from(len))
        }
    }

    /// Prefetches the cache line that contains byte `offset` of a frame.
    #[inline]
    pub(crate) fn prefetch(&self, frame: u32, offset: u16) {
        if frame < self.frames {
            // SAFETY: inside the mapping; a prefetch has no effect on memory.
            let line = unsafe { &*self.base.as_ptr().add(self.at(frame, offset)) };
            sync::cpu::prefetch_read(line);
        }
    }
}

impl std::fmt::Debug for FrameMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameMemory({} x {} bytes, {:?} pages)", self.frames, self.frame_size(), self.backing)
    }
}
