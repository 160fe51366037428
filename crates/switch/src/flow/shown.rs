//! Listings of groups and meters for display, in slices. The tables are locked for one slice at a time. The listings
//! omit reference counts, because counting needs a scan over all rules.

use super::message::{Group, Meter};
use super::pipeline::{GroupState, Pipeline};

/// Maximum number of groups or meters in one slice of a listing.
const SLICE: usize = 100;
/// Maximum memory, in octets, of the groups in one slice of a listing. A larger group is alone in its slice.
const LENGTH: usize = 256 << 10;

/// A group with its counters, for display.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupShown {
    /// Group that is listed.
    pub group: Group,
    /// Number of packets that the group processed.
    pub packets: u64,
    /// Number of octets of the packets that the group processed.
    pub bytes: u64,
    /// Nanoseconds since the group was added.
    pub age_ns: u64,
    /// Number of packets and number of octets that each bucket processed, in the order of the buckets.
    pub buckets: Vec<(u64, u64)>,
}

/// A meter with its counters, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterShown {
    /// Meter that is listed.
    pub meter: Meter,
    /// Number of packets that the meter received.
    pub packets: u64,
    /// Number of octets that the meter received.
    pub bytes: u64,
    /// Nanoseconds since the meter was added.
    pub age_ns: u64,
    /// For each band, in the order of the bands, the number of packets and of octets above the
    /// band's rate.
    pub bands: Vec<(u64, u64)>,
}

impl Pipeline {
    /// Returns the groups whose numbers are `from` or higher. The result has at most `limit` groups, never more than
    /// 100, and fewer if the groups are large. The caller continues after the last number returned. Returns `None` if
    /// there are no more groups.
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
            group: Group::clone(&state.group),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            buckets: state.buckets.clone(),
        });
        Some(shown.collect()).filter(|shown: &Vec<GroupShown>| !shown.is_empty())
    }

    /// Returns the meters whose numbers are `from` or higher. The result has at most `limit` meters, and never more
    /// than 100. Returns `None` if there are no more meters.
    #[must_use]
    pub fn meters_from(&self, from: u32, limit: usize, now_ns: u64) -> Option<Vec<MeterShown>> {
        let shown = self.meters.range(from..).take(limit.min(SLICE)).map(|(_, state)| MeterShown {
            meter: Meter::clone(&state.meter),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            bands: state.bands.clone(),
        });
        Some(shown.collect()).filter(|shown: &Vec<MeterShown>| !shown.is_empty())
    }
}
