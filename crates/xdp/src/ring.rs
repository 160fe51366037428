//! Readers of BPF ring buffers in user space.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::{Error, sys};

/// Maximum number of records that one call of [`RingReader::poll`] returns. Without a limit, libbpf would read
/// until the ring buffer is empty, which never happens while frames arrive faster than they are read.
pub const MOST: usize = 512;

/// A reader that takes records of type `T` out of a BPF ring buffer. Only one thread at a time can use a
/// reader.
pub struct RingReader<T> {
    map: &'static str,
    ring: RingBuffer<'static>,
    waiting: Rc<RefCell<Vec<T>>>,
}

impl<T> fmt::Debug for RingReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("map", &self.map).finish_non_exhaustive()
    }
}

impl<T: 'static> RingReader<T> {
    /// Creates a reader of the ring buffer `map`. `parse` decodes the bytes of a record. The reader skips records for
    /// which `parse` returns `None`.
    pub(crate) fn new(
        map: &'static str,
        ring: BorrowedFd<'_>,
        parse: fn(&[u8], WallClock) -> Option<T>,
    ) -> Result<RingReader<T>, Error> {
        let id = sys::map_info(ring).map_err(|source| Error::Map { map, operation: "query", source })?.id;
        let failed = |error: libbpf_rs::Error| unreadable(map, &error);
        let handle = MapHandle::from_map_id(id).map_err(failed)?;
        let waiting = Rc::new(RefCell::new(Vec::new()));
        let (to, clock) = (Rc::clone(&waiting), WallClock::now());
        let each = move |bytes: &[u8]| {
            let mut waiting = to.borrow_mut();
            waiting.extend(parse(bytes, clock));
            // If the callback returns an error, libbpf stops reading. The record still counts as read (libbpf,
            // `ringbuf.c`).
            if waiting.len() >= MOST { -libc::EAGAIN } else { 0 }
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&handle, each).map_err(failed)?;
        Ok(RingReader { map, ring: builder.build().map_err(failed)?, waiting })
    }

    /// Returns at most [`MOST`] records that have arrived in the ring buffer. Records that the same CPU wrote are in
    /// order. If there is no record, waits for the first one, at most for the duration `patience`.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn poll(&self, patience: Duration) -> Result<Vec<T>, Error> {
        match self.ring.poll(patience) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    libbpf_rs::ErrorKind::Interrupted | libbpf_rs::ErrorKind::WouldBlock
                ) => {}
            Err(error) => return Err(unreadable(self.map, &error)),
        }
        Ok(self.waiting.take())
    }
}

fn unreadable(map: &'static str, error: &libbpf_rs::Error) -> Error {
    Error::Map { map, operation: "read", source: io::Error::other(error.to_string()) }
}

/// Returns the number of records that were lost because the ring buffer was full, summed over all CPUs.
pub(crate) fn missed(map: &'static str, counts: BorrowedFd<'_>) -> Result<u64, Error> {
    let counted = sys::map_lookup_per_cpu(counts, 0, 1);
    let counted = counted.map_err(|source| Error::Map { map, operation: "read", source })?;
    Ok(counted.iter().fold(0, |sum: u64, records| sum.wrapping_add(*records)))
}

/// Conversion of times of the kernel's monotonic clock to nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    offset: u64,
}

impl WallClock {
    pub(crate) fn now() -> WallClock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        WallClock { offset: u64::try_from(wall).unwrap_or(u64::MAX).saturating_sub(sys::monotonic_ns()) }
    }

    pub(crate) fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset)
    }
}
