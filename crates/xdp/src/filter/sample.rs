//! Frames that rules have sampled: heads of up to 128 bytes from a ring that the hook writes. One reader empties it; what comes while it is
//! full is counted and not sampled.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::Filter;
use super::maps::{MISSED, Shared};
use crate::Error;
use crate::ring::{self, RingReader, WallClock};

/// Bytes of `struct filter_sample` before the head.
const HEADER: usize = 24;
const MAP: &str = "filter_samples";

/// One frame that a rule sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since 1970 when it came.
    pub at_ns: u64,
    /// The rule's place among counters: [`Filter::rule_at`] tells its name.
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
}

impl Samples {
    /// The end of the ring where samples are taken out. Of two at once each would get some.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn reader(&self) -> Result<RingReader<Sample>, Error> {
        let [_, _, _, ring, ..] = self.maps.as_ref();
        RingReader::new(MAP, OwnedFd::as_fd(ring), parse)
    }

    /// Frames that were to be sampled while the ring was full, since the filter was made.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn missed(&self) -> Result<u64, Error> {
        let [.., missed, _] = self.maps.as_ref();
        ring::missed(MISSED, missed.as_fd())
    }
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
