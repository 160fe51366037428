//! Frames that rules have sampled: heads of up to 128 bytes from a ring that the hook writes.

use std::collections::BTreeMap;

use libbpf_rs::{MapHandle, RingBufferBuilder};

use super::{Filter, Moment};
use crate::Error;

/// Bytes of `struct filter_sample` before the head.
const HEADER: usize = 24;
const MAP: &str = "filter_samples";

/// One frame that a rule sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// When it came.
    pub at: Moment,
    /// Name of the rule; `None` when it has gone meanwhile.
    pub rule: Option<&'a str>,
    /// Index of the device that received it, in its namespace.
    pub ifindex: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Its first bytes, 128 at most.
    pub head: &'a [u8],
}

impl Filter {
    /// Gives away the samples that wait in the ring, without waiting for more. What does not fit
    /// into the ring is not sampled.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn samples(&self, mut take: impl FnMut(Sample<'_>)) -> Result<(), Error> {
        let failed = |operation| {
            move |error: libbpf_rs::Error| Error::Map {
                map: MAP,
                operation,
                source: std::io::Error::other(error.to_string()),
            }
        };
        let id = crate::sys::map_info(self.ring())
            .map_err(|source| Error::Map { map: MAP, operation: "query", source })?
            .id;
        let map = MapHandle::from_map_id(id).map_err(failed("open"))?;
        let names: BTreeMap<u32, &str> = self.names().collect();
        let mut builder = RingBufferBuilder::new();
        let each = |bytes: &[u8]| {
            if let Some(sample) = parse(bytes, &names) {
                take(sample);
            }
            0
        };
        builder.add(&map, each).map_err(failed("read"))?;
        let ring = builder.build().map_err(failed("read"))?;
        ring.consume().map_err(failed("read"))
    }
}

fn parse<'a>(bytes: &'a [u8], names: &BTreeMap<u32, &'a str>) -> Option<Sample<'a>> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let captured = usize::try_from(word(20)?).ok()?;
    Some(Sample {
        at: Moment(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)),
        rule: names.get(&word(8)?).copied(),
        ifindex: word(12)?,
        length: word(16)?,
        head: bytes.get(HEADER..HEADER + captured)?,
    })
}
