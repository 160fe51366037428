//! Sets of the fields for tunnel options (`tun_metadata0` to `tun_metadata7`) that rules and groups use.

use super::action::{Action, LearnPart, LearnSource, Reference, each_reference};
use super::field::{Field, TUN_METADATA};
use super::instructions::Instructions;
use super::matching::Match;
use super::message::Bucket;

/// A set of the tunnel option fields. Bit *n* represents `tun_metadata`*n*.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OptionFields(u8);

impl OptionFields {
    /// Returns the tunnel option fields that a rule matches, reads or sets.
    pub fn of_rule(matching: &Match, instructions: &Instructions) -> OptionFields {
        let matched = (0..TUN_METADATA)
            .filter_map(Field::tun_metadata)
            .filter(|field| matching.mask.get(*field) != 0)
            .fold(OptionFields::default(), OptionFields::with);
        matched
            .or(OptionFields::of_actions(&instructions.apply))
            .or(OptionFields::of_actions(&instructions.write))
    }

    /// Returns the tunnel option fields that actions read or set.
    pub fn of_actions(actions: &[Action]) -> OptionFields {
        let mut set = OptionFields::default();
        each_reference(actions, &mut |named| set = set.with_named(named));
        set
    }

    /// Returns the tunnel option fields that the actions of a group's buckets read or set.
    pub fn of_buckets(buckets: &[Bucket]) -> OptionFields {
        buckets
            .iter()
            .fold(OptionFields::default(), |set, bucket| set.or(OptionFields::of_actions(&bucket.actions)))
    }

    /// Returns the numbers of the fields in the set, from 0 to 7.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..usize::from(TUN_METADATA)).filter(move |number| self.0 & 1 << number != 0)
    }

    /// Returns whether both sets have a field in common.
    pub fn intersects(self, other: OptionFields) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns a copy of the set to which the field with this number (0 to 7) is added.
    pub fn with_number(self, number: usize) -> OptionFields {
        OptionFields(self.0 | 1 << number)
    }

    /// Returns a copy of the set with `field` added. If `field` is not for tunnel options, the copy equals the
    /// original.
    pub fn with(self, field: Field) -> OptionFields {
        field.tun_metadata_number().map_or(self, |number| self.with_number(usize::from(number)))
    }

    /// Returns the union of both sets.
    pub fn or(self, other: OptionFields) -> OptionFields {
        OptionFields(self.0 | other.0)
    }

    /// Returns a copy of the set that also contains the tunnel option fields to which an action refers.
    fn with_named(self, named: Reference<'_>) -> OptionFields {
        match named {
            Reference::Constant(field, ..) => self.with(field),
            Reference::Read(part) | Reference::Written(part) => self.with(part.field),
            Reference::Learn(learn) => learn.parts.iter().fold(self, |set, part| match part {
                LearnPart::Match(source, to) | LearnPart::Load(source, to) => match source {
                    LearnSource::Field(from) => set.with(to.field).with(from.field),
                    LearnSource::Constant { .. } => set.with(to.field),
                },
                LearnPart::Output(from) => set.with(from.field),
            }),
            Reference::Port(_)
            | Reference::Group(_)
            | Reference::Meter(_)
            | Reference::Table(_)
            | Reference::Actions(_) => self,
        }
    }
}
