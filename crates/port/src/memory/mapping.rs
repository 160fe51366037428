//! Memory region that contains the frames. The region is a shared mapping of a sealed memfd. Under miri, which has no
//! memfd, the region is plain memory.

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

/// Error of a system call. The tuple contains the name of the system call, and the error that the
/// kernel returned.
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
    /// pages. Otherwise the memory has no pages before [`Mapping::collapse`] or [`Mapping::populate`].
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
        Self::map(fd, len, huge, huge)
    }

    /// Maps the first `len` bytes of a memfd, which must be sealed against shrinking.
    pub(super) fn open(fd: OwnedFd, len: usize, huge: bool) -> Result<Self, Refusal> {
        Self::map(fd, len, huge, true)
    }

    fn map(fd: OwnedFd, len: usize, huge: bool, populate: bool) -> Result<Self, Refusal> {
        let os = |call| move |e: rustix::io::Errno| (call, io::Error::from(e));
        let size = rustix::fs::fstat(&fd).map_err(os("fstat"))?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        if usize::try_from(size).unwrap_or(0) < len || !seals.contains(SealFlags::SHRINK) {
            return Err(("mapping what was handed over", io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = if populate { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
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

    /// Backs the mapping with 2 MiB pages (madvise(2), MADV_COLLAPSE; Linux 6.1), regardless of the
    /// administrator's setting for shared memory. The kernel copies pages that exist, so the call should come
    /// before [`Mapping::populate`]. Returns true if the whole mapping consists of 2 MiB pages.
    pub(super) fn collapse(&self) -> bool {
        const MADV_COLLAPSE: libc::c_int = 25;
        let whole = self.len & !(HUGE - 1);
        // The kernel refuses a range of 2 MiB in which no page is mapped.
        self.touch(whole, HUGE);
        // SAFETY: advice on a mapping of this process.
        whole > 0 && unsafe { libc::madvise(self.base.as_ptr().cast(), whole, MADV_COLLAPSE) } == 0
    }

    /// Allocates all pages of the mapping that do not exist yet.
    pub(super) fn populate(&self) {
        // SAFETY: advice on a mapping of this process.
        let done = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE) };
        // Kernels before 5.14 do not know this advice.
        if done != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            self.touch(self.len, PAGE);
        }
    }

    /// Reads one byte in every `step` bytes of the first `len` bytes of the mapping. The kernel allocates and
    /// maps a missing page when a byte of the page is read.
    fn touch(&self, len: usize, step: usize) {
        for at in (0..len.min(self.len)).step_by(step) {
            // SAFETY: `at` is less than the length of the mapping. Any byte is a valid u8.
            let _ = unsafe { self.base.as_ptr().add(at).read_volatile() };
        }
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

    pub(super) fn populate(&self) {}

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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Returns the number of pages of the mapping that are in memory.
    fn resident(mapping: &Mapping) -> usize {
        let mut pages = vec![0_u8; mapping.len.div_ceil(PAGE)];
        // SAFETY: the mapping exists, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(mapping.base.as_ptr().cast(), mapping.len, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn all_pages_exist_in_the_end_with_and_without_huge_pages() {
        // The last page does not belong to a whole huge page.
        let len = 3 * HUGE + PAGE;
        for collapses in [false, true] {
            let mapping = Mapping::create(len, false).unwrap();
            assert_eq!(resident(&mapping), 0);
            if collapses {
                mapping.collapse();
            }
            mapping.populate();
            assert_eq!(resident(&mapping), len / PAGE, "collapses: {collapses}");
        }
    }

    /// Checks that a mapping can be collapsed into 2 MiB pages both before and after its pages are allocated. The test
    /// makes several attempts, because the kernel may lack free huge pages. Without MADV_COLLAPSE, no attempt succeeds.
    #[test]
    fn pages_that_do_not_exist_yet_collapse_like_pages_that_exist() {
        let whole = |populates: bool| {
            let mapping = Mapping::create(3 * HUGE, false).unwrap();
            if populates {
                mapping.populate();
            }
            mapping.collapse()
        };
        let attempts = |populates| (0..5).any(|_| whole(populates));
        assert_eq!(attempts(false), attempts(true));
    }

    #[test]
    fn each_page_can_be_touched() {
        let mapping = Mapping::create(2 * HUGE, false).unwrap();
        mapping.touch(mapping.len, PAGE);
        assert_eq!(resident(&mapping), 2 * HUGE / PAGE);
    }
}
