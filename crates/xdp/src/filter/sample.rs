//! Frames that rules have sampled: heads of up to 128 bytes from a ring that the hook writes. One reader empties it; what comes while it is
//! full is counted and not sampled.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::Filter;
use super::maps::{MISSED, Shared};
use crate::dump::WallClock;
use crate::{Error, sys};

/// Bytes of `struct filter_sample` before the head.
const HEADER: usize = 24;
const MAP: &str = "filter_samples";

/// One frame that a rule sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since 1970 when it came.
    pub at_ns: u64,
    /// The rule's place among counters: [`Filter::rule_of`] tells its name.
    pub slot: u32,
    /// Index of the device that received it, in its namespace.
    pub ifindex: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Its first bytes, 128 at most.
    pub head: Vec<u8>,
}

/// The samples of a filter, whatever its rules are meanwhile.
#[derive(Debug, Clone)]
pub struct Samples {
    maps: Arc<Shared>,
}

impl Filter {
    /// Its samples.
    #[must_use]
    pub fn samples(&self) -> Samples {
        Samples { maps: Arc::clone(self.shared()) }
    }

    /// The name of the rule that took a sample; `None` when it has gone meanwhile.
    #[must_use]
    pub fn rule_of(&self, sample: &Sample) -> Option<&str> {
        self.name(sample.slot)
    }
}

impl Samples {
    /// The end of the ring where samples are taken out. Of two at once each would get some.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn reader(&self) -> Result<SampleReader, Error> {
        let query = |source| Error::Map { map: MAP, operation: "query", source };
        let [_, _, _, ring, ..] = self.maps.as_ref();
        let id = sys::map_info(OwnedFd::as_fd(ring)).map_err(query)?.id;
        let map = MapHandle::from_map_id(id).map_err(|error| unreadable(&error))?;
        let waiting = Rc::new(RefCell::new(Vec::new()));
        let (to, clock) = (Rc::clone(&waiting), WallClock::now());
        let each = move |bytes: &[u8]| {
            to.borrow_mut().extend(parse(bytes, clock));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, each).map_err(|error| unreadable(&error))?;
        Ok(SampleReader { ring: builder.build().map_err(|error| unreadable(&error))?, waiting })
    }

    /// Frames that were to be sampled while the ring was full, since the filter was made.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn missed(&self) -> Result<u64, Error> {
        let [.., missed, _] = self.maps.as_ref();
        let counted = sys::map_lookup_per_cpu(missed.as_fd(), 0, 1);
        let counted = counted.map_err(|source| Error::Map { map: MISSED, operation: "read", source })?;
        Ok(counted.iter().fold(0, |sum: u64, frames| sum.wrapping_add(*frames)))
    }
}

/// Takes samples out of a filter's ring; it belongs to one thread.
pub struct SampleReader {
    ring: RingBuffer<'static>,
    waiting: Rc<RefCell<Vec<Sample>>>,
}

impl fmt::Debug for SampleReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleReader").finish_non_exhaustive()
    }
}

impl SampleReader {
    /// The samples that have come, in the order of each CPU; waits so long for the first one.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn poll(&self, patience: Duration) -> Result<Vec<Sample>, Error> {
        match self.ring.poll(patience) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error)),
        }
        Ok(self.waiting.take())
    }
}

fn unreadable(error: &libbpf_rs::Error) -> Error {
    Error::Map { map: MAP, operation: "read", source: std::io::Error::other(error.to_string()) }
}

fn parse(bytes: &[u8], clock: WallClock) -> Option<Sample> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let captured = usize::try_from(word(20)?).ok()?;
    Some(Sample {
        at_ns: clock.at(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)),
        slot: word(8)?,
        ifindex: word(12)?,
        length: word(16)?,
        head: bytes.get(HEADER..HEADER + captured)?.to_vec(),
    })
}
