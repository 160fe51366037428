//! Samples of frames that filter rules have selected. The XDP program writes the first 128 bytes of a sampled frame to
//! a ring buffer, from which one reader takes the samples. While the ring buffer is full, matching frames are counted
//! and not sampled.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::Filter;
use super::maps::{MISSED, Shared};
use crate::Error;
use crate::ring::{self, RingReader, WallClock};

/// Number of bytes of `struct filter_sample` (the description of a sampled frame) in front of the first bytes of the
/// frame.
const HEADER: usize = 24;
const MAP: &str = "filter_samples";

/// A frame that a filter rule sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Time of arrival of the frame in nanoseconds since 1970.
    pub at_ns: u64,
    /// Index of the counters of the rule that sampled the frame. [`Filter::rule_at`] returns the rule's name.
    pub slot: u32,
    /// Index of the receiving device in the device's network namespace.
    pub ifindex: u32,
    /// Length of the whole frame in bytes.
    pub length: u32,
    /// First bytes of the frame, 128 at most.
    pub head: Vec<u8>,
}

/// Access to the ring buffer of a filter's samples. The value remains valid when the filter's rules are
/// replaced.
#[derive(Debug, Clone)]
pub struct Samples {
    maps: Arc<Shared>,
}

impl Filter {
    /// Returns access to the samples of the filter.
    #[must_use]
    pub fn samples(&self) -> Samples {
        Samples { maps: Arc::clone(self.shared()) }
    }
}

impl Samples {
    /// Returns a reader that takes the samples out of the ring buffer. Two readers at a time would each
    /// receive only a part of the samples.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn reader(&self) -> Result<RingReader<Sample>, Error> {
        let [_, _, _, ring, ..] = self.maps.as_ref();
        RingReader::new(MAP, OwnedFd::as_fd(ring), parse)
    }

    /// Returns the number of samples that were lost because the ring buffer was full, since the filter was
    /// created.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
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
