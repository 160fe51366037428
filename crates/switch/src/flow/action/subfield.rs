//! Ranges of bits of a field, which actions read and write.

use crate::flow::{Field, Flow, Match};

/// A contiguous range of bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// Field that the range belongs to.
    pub field: Field,
    /// Lowest bit of the range. Bit 0 is the field's least significant bit.
    pub first: u16,
    /// Width of the range in bits, at least 1.
    pub bits: u16,
}

impl SubField {
    /// Returns the range that covers all bits of a field.
    #[must_use]
    pub fn whole(field: Field) -> SubField {
        SubField { field, first: 0, bits: u16::try_from(field.bits()).unwrap_or(u16::MAX) }
    }

    /// Returns a mask of the bits of the range. Bit 0 of the mask is the field's least significant bit.
    #[must_use]
    pub fn mask(&self) -> u128 {
        (u128::MAX >> (128 - u32::from(self.bits.clamp(1, 128)))) << self.first
    }

    /// Returns whether the range has at least one bit and lies within its field.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.bits > 0 && usize::from(self.first) + usize::from(self.bits) <= self.field.bits()
    }

    /// Returns the value that the bits of the range have in a flow, right-aligned.
    #[must_use]
    pub fn get(&self, flow: &Flow) -> u128 {
        (flow.get(self.field) & self.mask()) >> self.first
    }

    /// Sets the bits of the range in a flow to a right-aligned value.
    pub fn set(&self, flow: &mut Flow, value: u128) {
        let kept = flow.get(self.field) & !self.mask();
        flow.set(self.field, kept | value << self.first & self.mask());
    }

    /// Sets the bits of the range in `wild`, the mask of the bits on which the result of a translation depends.
    pub fn want(&self, wild: &mut Flow) {
        wild.set(self.field, wild.get(self.field) | self.mask());
    }

    /// Returns whether the range is the low 16 bits of `in_port`, which hold the port number of OpenFlow 1.0
    /// (NXM_OF_IN_PORT). In a match, this range represents the whole port number, as in Open vSwitch.
    pub(in crate::flow) fn is_port16(&self) -> bool {
        *self == SubField { field: Field::InPort, first: 0, bits: 16 }
    }

    /// Adds the condition that the range has this value to the match `to`.
    pub fn put(&self, to: &mut Match, value: u128) {
        to.put(self.field, value << self.first, self.mask());
    }
}
