//! VLAN modes of a bridge member (access or trunk), and sets of VLAN identifiers (IEEE 802.1Q clause 8.8).

use std::fmt;
use std::str::FromStr;

use packet::VlanId;
use serde::{Serialize, Serializer};

/// VLAN that represents untagged frames of a bridge that OVSDB configures. Open vSwitch uses VLAN 0 for this purpose,
/// but 0 is no valid VLAN identifier here.
pub const UNTAGGED: VlanId = VlanId::MAX;

/// VLAN mode of a bridge member, which determines the handling of tagged and untagged frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VlanMode {
    /// Access port. Untagged frames that arrive belong to this VLAN, and frames of this VLAN are transmitted
    /// untagged. Tagged frames that arrive are dropped.
    Access(VlanId),
    /// Trunk port. The port carries tagged frames of the allowed VLANs. If there is a native VLAN, the port
    /// also carries untagged frames, which belong to the native VLAN.
    Trunk {
        /// VLANs that the member carries, including the native VLAN.
        allowed: VlanSet,
        /// Native VLAN, to which untagged frames belong. `None`: untagged frames are dropped.
        native: Option<VlanId>,
        /// Whether frames of the native VLAN are transmitted with a tag.
        native_tagged: bool,
    },
}

impl VlanMode {
    /// Returns whether the bridge member carries a VLAN.
    pub fn carries(&self, vlan: VlanId) -> bool {
        match self {
            VlanMode::Access(access) => *access == vlan,
            VlanMode::Trunk { allowed, .. } => allowed.contains(vlan),
        }
    }

    /// Returns the VLAN to which untagged frames belong. Returns `None` if untagged frames are dropped.
    pub fn untagged(&self) -> Option<VlanId> {
        match self {
            VlanMode::Access(access) => Some(*access),
            VlanMode::Trunk { native, .. } => *native,
        }
    }
}

impl Default for VlanMode {
    fn default() -> Self {
        VlanMode::Access(VlanId::MIN)
    }
}

/// A set of VLANs. The set is a list of sorted ranges that are neither overlapping nor adjacent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VlanSet {
    ranges: Vec<(VlanId, VlanId)>,
}

impl VlanSet {
    /// Returns an empty set of VLANs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set of all VLANs, 1..=4094.
    pub fn all() -> Self {
        VlanSet { ranges: vec![(VlanId::MIN, VlanId::MAX)] }
    }

    /// Adds the VLANs from `from` to `to` inclusive. Does nothing if `from` is greater than `to`.
    pub fn insert(&mut self, from: VlanId, to: VlanId) {
        if from > to || from.is_none() {
            return;
        }
        let (mut low, mut high) = (from, to);
        self.ranges.retain(|&(first, last)| {
            let apart = last.get() + 1 < low.get() || high.get() + 1 < first.get();
            if !apart {
                low = low.min(first);
                high = high.max(last);
            }
            apart
        });
        let place = self.ranges.partition_point(|&(first, _)| first < low);
        self.ranges.insert(place, (low, high));
    }

    /// Returns whether the set contains a VLAN.
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.ranges.iter().any(|&(first, last)| first <= vlan && vlan <= last)
    }

    /// Returns whether the set contains no VLAN.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the first and last VLAN of each range, in ascending order.
    pub fn ranges(&self) -> &[(VlanId, VlanId)] {
        &self.ranges
    }

    /// Returns all VLANs of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| (first.get()..=last.get()).filter_map(VlanId::new))
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<T: IntoIterator<Item = VlanId>>(vlans: T) -> Self {
        let mut set = VlanSet::new();
        vlans.into_iter().for_each(|vlan| set.insert(vlan, vlan));
        set
    }
}

/// Formats the set as a list of VLANs and ranges, such as `10, 20-29`.
impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for VlanSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if *self == VlanSet::all() {
            return to.serialize_str("all");
        }
        to.collect_seq(self.ranges.iter().map(|(first, last)| format!("{first}-{last}")))
    }
}

/// A VLAN range as written in a configuration file, such as `20-29` or `7`. The bounds may be outside of 1..=4094.
pub(crate) struct RawRange(pub i64, pub i64);

impl FromStr for RawRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let digits = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse().map_err(|_| ()) } else { Err(()) }
        };
        match text.split_once('-') {
            Some((first, last)) => Ok(RawRange(number(first.trim())?, number(last.trim())?)),
            None => number(text.trim()).map(|only| RawRange(only, only)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set(inserts in prop::collection::vec((1u16..120, 0u16..20), 0..20)) {
            let mut set = VlanSet::new();
            let mut oracle = BTreeSet::new();
            for (from, length) in inserts {
                set.insert(VlanId::new(from).unwrap(), VlanId::new(from + length).unwrap());
                oracle.extend(from..=from + length);
            }
            prop_assert_eq!(set.iter().map(VlanId::get).collect::<Vec<_>>(), oracle.iter().copied().collect::<Vec<_>>());
            for vid in 1..=200 {
                prop_assert_eq!(set.contains(VlanId::new(vid).unwrap()), oracle.contains(&vid));
            }
            for pair in set.ranges().windows(2) {
                prop_assert!(pair[0].1.get() + 1 < pair[1].0.get(), "ranges touch: {}", set);
            }
            prop_assert_eq!(set.iter().collect::<VlanSet>(), set);
        }
    }
}
