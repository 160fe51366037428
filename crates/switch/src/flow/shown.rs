//! Tables for people to look at: bounded, and without what takes a walk over all rules for each line.

use super::message::{FlowFilter, FlowStats, Group, Meter};
use super::pipeline::Pipeline;

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
    /// The first `limit` of [`Pipeline::flows`].
    #[must_use]
    pub fn first_flows(&self, filter: &FlowFilter, limit: usize, now_ns: u64) -> Vec<FlowStats> {
        let mut found: Vec<_> = self.selected(filter).map(|(_, rule)| rule).collect();
        let order = |rule: &&super::Rule| (rule.table, std::cmp::Reverse(rule.priority), rule.created_ns);
        if limit == 0 {
            return Vec::new();
        }
        if found.len() > limit {
            found.select_nth_unstable_by_key(limit - 1, order);
            found.truncate(limit);
        }
        found.sort_by_key(order);
        found.into_iter().map(|rule| rule.stats(now_ns)).collect()
    }

    /// The first `limit` groups by number.
    #[must_use]
    pub fn first_groups(&self, limit: usize, now_ns: u64) -> Vec<GroupShown> {
        let shown = self.groups.values().take(limit).map(|state| GroupShown {
            group: state.group.clone(),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            buckets: state.buckets.clone(),
        });
        shown.collect()
    }

    /// The first `limit` meters by number.
    #[must_use]
    pub fn first_meters(&self, limit: usize, now_ns: u64) -> Vec<MeterShown> {
        let shown = self.meters.values().take(limit).map(|state| MeterShown {
            meter: state.meter.clone(),
            packets: state.packets,
            bytes: state.bytes,
            age_ns: now_ns.saturating_sub(state.created_ns),
            bands: state.bands.clone(),
        });
        shown.collect()
    }
}
