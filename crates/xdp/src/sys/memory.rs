//! Memory mapping of an array map. BPF programs access the memory at the same time, so the memory is read and written
//! only in whole aligned 64-bit words.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory mapping of all elements of an array map. Dropping the value removes the mapping. The map is kept.
#[derive(Debug)]
pub(crate) struct Mapped {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read and written through atomics.
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`, the mapping is only read and written through atomics.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps an array map of the kind [`super::MapKind::Mappable`] into memory. The size of its values must be
    /// a multiple of eight bytes.
    pub(crate) fn new(map: BorrowedFd<'_>) -> io::Result<Mapped> {
        let info = super::map_info(map)?;
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let bytes = u64::from(info.value_size) * u64::from(info.max_entries);
        let bytes = usize::try_from(bytes).map_err(|_| invalid())?;
        if !info.value_size.is_multiple_of(8) || bytes == 0 {
            return Err(invalid());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the call creates a new mapping at an address that the kernel chooses. The kernel refuses a
        // length beyond the map's, and maps that are not mappable arrays.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(invalid)?;
        Ok(Mapped { at, words: bytes / size_of::<u64>() })
    }

    /// Returns the words of all elements of the array, in the order of the elements.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is mapped readable and writable for that many words until this value is dropped.
        // It is aligned to a page, zeroed or written by atomics, and has no other references.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }

    /// Writes bytes to the mapping, starting at its first word. The last word is padded with zeros.
    pub(crate) fn write(&self, bytes: impl Iterator<Item = u8>) {
        let mut bytes = bytes.peekable();
        for word in self.words() {
            if bytes.peek().is_none() {
                break;
            }
            let mut piece = [0; 8];
            for (to, from) in piece.iter_mut().zip(bytes.by_ref()) {
                *to = from;
            }
            word.store(u64::from_ne_bytes(piece), Ordering::Release);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to it remains.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}
