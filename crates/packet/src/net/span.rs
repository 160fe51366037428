//! Ranges of 16-bit numbers, such as port numbers, and conditions on the VLAN of a frame.

use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

/// An inclusive range of numbers, written as `7` or `"7-9"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Lowest number of the range.
    pub first: u16,
    /// Highest number of the range.
    pub last: u16,
}

impl Span {
    /// Returns the numbers of the range.
    #[must_use]
    pub fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => to.serialize_u16(self.first),
            false => to.collect_str(&format_args!("{}-{}", self.first, self.last)),
        }
    }
}

/// VLAN condition of a rule. The VLAN of a frame is the identifier of its outermost tag with a nonzero
/// identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VlanMatch {
    /// Matches frames without a nonzero VLAN identifier.
    Untagged,
    /// Matches frames with a VLAN identifier in this range, 0 to 4095. The value 0 matches untagged frames,
    /// because a tag with identifier 0 carries only a priority.
    Tagged(Span),
}

impl Serialize for VlanMatch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            VlanMatch::Untagged => to.serialize_str("untagged"),
            VlanMatch::Tagged(ids) => ids.serialize(to),
        }
    }
}
