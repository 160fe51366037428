//! Memory region that contains the frames. The region is a shared mapping of a sealed memfd. Under miri,
//! which has no memfd, it is plain memory.

use std::io;
#[cfg(not(miri))]
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

#[cfg(not(miri))]
use rustix::fs::{MemfdFlags, SealFlags};
#[cfg(not(miri))]
use rustix::mm::{MapFlags, ProtFlags};

/// Size of a huge page in bytes.
#[cfg(not(miri))]
const HUGE: usize = 2 << 20;
#[cfg(not(miri))]
const PAGE: usize = 4096;

/// Error of a system call: the name of the system call, and the error that the kernel returned.
pub(super) type Refusal = (&'static str, io::Error);

/// A region of memory whose address does not change during the lifetime of the value. New regions are filled
/// with zeros.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    #[cfg(not(miri))]
    fd: OwnedFd,
}

#[cfg(not(miri))]
impl Mapping {
    /// Creates and maps a memfd of `len` bytes. If `huge` is true, the memory consists of reserved 2 MiB
    /// pages.
    pub(super) fn create(len: usize, huge: bool) -> Result<Self, Refusal> {
        let os = |call| move |e: rustix::io::Errno| (call, io::Error::from(e));
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let fd = rustix::fs::memfd_create("trivium-frames", flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(os("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("fcntl(F_ADD_SEALS)"))?;
        Self::open(fd, len, huge)
    }

    /// Maps the first `len` bytes of a memfd, which must be sealed against shrinking.
    pub(super) fn open(fd: OwnedFd, len: usize, huge: bool) -> Result<Self, Refusal> {
        let os = |call| move |e: rustix::io::Errno| (call, io::Error::from(e));
        let size = rustix::fs::fstat(&fd).map_err(os("fstat"))?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        if usize::try_from(size).unwrap_or(0) < len || !seals.contains(SealFlags::SHRINK) {
            return Err(("mapping what was handed over", io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let place = if huge { None } else { reserve(len) };
        let (at, flags) = place.map_or((std::ptr::null_mut(), flags), |at| (at, flags | MapFlags::FIXED));
        // SAFETY: a new mapping of a file that is long enough and cannot shrink, at an address of the
        // kernel's choice or over the addresses just reserved for it.
        let base = unsafe { rustix::mm::mmap(at, len, prot, flags, &fd, 0) }.map_err(os("mmap"))?;
        if !huge {
            // SAFETY: advice on a mapping of this process; failure only reduces speed.
            let _ = unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| os("mmap")(rustix::io::Errno::FAULT))?;
        Ok(Self { base, len, fd })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Converts the pages of the mapping into 2 MiB pages (madvise(2), MADV_COLLAPSE; Linux 6.1). The
    /// conversion does not depend on the administrator's setting for shared memory. Returns true if all pages
    /// that can be converted have been converted.
    pub(super) fn collapse(&self) -> bool {
        const MADV_COLLAPSE: libc::c_int = 25;
        let whole = self.len & !(HUGE - 1);
        // SAFETY: advice on a mapping of this process.
        whole > 0 && unsafe { libc::madvise(self.base.as_ptr().cast(), whole, MADV_COLLAPSE) } == 0
    }
}

/// Reserves an address range of `len` bytes that begins on a 2 MiB boundary. Returns `None` if `len` is less
/// than the size of a huge page, or if the reservation fails.
#[cfg(not(miri))]
fn reserve(len: usize) -> Option<*mut std::ffi::c_void> {
    if len < HUGE {
        return None;
    }
    // The length is rounded up to whole pages, which the caller's mapping covers.
    let len = len.next_multiple_of(PAGE);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping without access, at an address of the kernel's choice.
    let start = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + HUGE, ProtFlags::empty(), flags).ok()?
    };
    let before = start.addr().next_multiple_of(HUGE) - start.addr();
    let at = start.wrapping_byte_add(before);
    for (from, bytes) in [(start, before), (at.wrapping_byte_add(len), HUGE - before)] {
        if bytes > 0 {
            // SAFETY: inside the reservation, outside of the caller's later mapping.
            let _ = unsafe { rustix::mm::munmap(from, bytes) };
        }
    }
    Some(at)
}

#[cfg(not(miri))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a mapping owned by this value, of this length; no pointer into it remains, because every
        // access borrows its owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(miri)]
impl Mapping {
    pub(super) fn collapse(&self) -> bool {
        false
    }

    pub(super) fn create(len: usize, huge: bool) -> Result<Self, Refusal> {
        let none = || ("memfd_create", io::Error::from_raw_os_error(libc::ENOMEM));
        if huge {
            return Err(none());
        }
        // SAFETY: the layout's size is not 0.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Ok(Self { base: NonNull::new(base).ok_or_else(none)?, len })
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len.max(1), 4096).expect("sizes of tests")
    }
}

#[cfg(miri)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len)) };
    }
}

impl Mapping {
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}
