//! Groups and meters for people to look at, in slices and without what takes a walk over all rules for each line. The tables are held for one
//! slice at a time.

use super::message::{Group, Meter};
use super::pipeline::{GroupState, Pipeline};

/// Groups or meters in one slice.
const SLICE: usize = 100;
/// Octets of memory that the groups of a slice take, unless the slice is one group.
const LENGTH: usize = 256 << 10;

/// A group with its counters.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupShown {
    /// The group.
    pub group: Group,
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
    /// Packets and octets of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// A meter with its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterShown {
    /// The meter.
    pub meter: Meter,
    /// Packets that came.
    pub packets: u64,
    /// Octets that came.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
    /// Packets and octets that each band met.
    pub bands: Vec<(u64, u64)>,
}

impl Pipeline {
    /// The first `limit` groups from a number on, and fewer where they are long: the next ones are those behind the last. `None`: there are none.
    #[must_use]
    pub fn groups_from(&self, from: u32, limit: usize, now_ns: u64) -> Option<Vec<GroupShown>> {
        let mut memory = 0;
        let is_within = |(_, state): &(&u32, &GroupState)| {
            let is_first = memory == 0;
            memory += state.group.memory();
            is_first || memory <= LENGTH
        };
        let next = self.groups.range(from..).take(limit.min(SLICE)).take_while(is_within);
        let shown = next.map(|(_, state)| GroupShown {
            group: state.group.clone(),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            buckets: state.buckets.clone(),
        });
        Some(shown.collect()).filter(|shown: &Vec<GroupShown>| !shown.is_empty())
    }

    /// The first `limit` meters from a number on, or the first hundred of them. `None`: there are none.
    #[must_use]
    pub fn meters_from(&self, from: u32, limit: usize, now_ns: u64) -> Option<Vec<MeterShown>> {
        let shown = self.meters.range(from..).take(limit.min(SLICE)).map(|(_, state)| MeterShown {
            meter: state.meter.clone(),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            bands: state.bands.clone(),
        });
        Some(shown.collect()).filter(|shown: &Vec<MeterShown>| !shown.is_empty())
    }
}
