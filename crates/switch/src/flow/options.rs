//! Options of tunnels (Geneve's, RFC 8926, 3.5) and the fields that controllers map them to: `tun_metadata0` and so on (ovs-fields(7),
//! "Tunnel Metadata"; NXT_TLV_TABLE_MOD).
//!
//! A field that nothing is mapped to cannot be matched or set, and one that rules speak of keeps its option. An option shorter than its field stands
//! in the field's lowest octets; the others are zero.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::field::TUN_METADATA;
use super::message::{FlowError, FlowMod};
use super::{Action, Field, Instructions, LearnPart, LearnSource, Match, MatchError, Pipeline, SubField};

/// Octets that an option has at most here.
const MAX_OCTETS: u8 = 8;
/// Octets that all of them have at most.
pub const OPTION_SPACE: u32 = MAX_OCTETS as u32 * TUN_METADATA as u32;

/// An option and the field that it is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelOption {
    /// Its class.
    pub class: u16,
    /// Its type.
    pub kind: u8,
    /// Octets of its value: a multiple of 4.
    pub octets: u8,
    /// The number of the field: 0 for `tun_metadata0`.
    pub place: u16,
}

/// A change of what is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionsMod {
    /// Maps options to fields that are free.
    Add(Vec<TunnelOption>),
    /// Frees the fields that these name.
    Delete(Vec<TunnelOption>),
    /// Frees all.
    Clear,
}

/// Why nothing is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    /// NXTTMFC_BAD_OPT_LEN.
    #[error("no option has such a length: it is a multiple of 4 octets, and at most 124")]
    Length,
    /// NXTTMFC_BAD_FIELD_IDX.
    #[error("there is no such field: {TUN_METADATA} are there, from tun_metadata0 on")]
    Place,
    /// NXTTMFC_TABLE_FULL.
    #[error("a field has room for {MAX_OCTETS} octets, and the option is longer")]
    Full,
    /// NXTTMFC_ALREADY_MAPPED.
    #[error("the field has an option already: delete that first")]
    Mapped,
    /// NXTTMFC_DUP_ENTRY.
    #[error("the option is mapped to another field already")]
    Twice,
    /// NXTTMFC_INVALID_TLV_DEL.
    #[error("rules speak of the field: remove them first")]
    Used,
}

/// What is mapped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TunnelOptions(BTreeMap<u16, TunnelOption>);

impl TunnelOptions {
    /// By the fields' numbers.
    pub fn iter(&self) -> impl Iterator<Item = &TunnelOption> {
        self.0.values()
    }

    /// The bits of a field that its option has: none where there is no option, all of a field that is not for options.
    #[must_use]
    pub fn bits(&self, field: Field) -> u128 {
        let Some(place) = field.tun_metadata_number() else { return field.all_ones() };
        self.0.get(&place).map_or(0, |option| u128::MAX >> (128 - 8 * u32::from(option.octets)))
    }

    /// Changes what is mapped, all of it or nothing.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn change(
        &mut self,
        change: &OptionsMod,
        is_used: impl FnOnce(&[Field]) -> bool,
    ) -> Result<(), OptionsError> {
        let mut next = self.0.clone();
        let gone: Vec<u16> = match change {
            OptionsMod::Add(options) => {
                for option in options {
                    if option.octets == 0 || !option.octets.is_multiple_of(4) || option.octets > 124 {
                        return Err(OptionsError::Length);
                    }
                    if option.place >= TUN_METADATA {
                        return Err(OptionsError::Place);
                    }
                    if option.octets > MAX_OCTETS {
                        return Err(OptionsError::Full);
                    }
                    if next.contains_key(&option.place) {
                        return Err(OptionsError::Mapped);
                    }
                    if next.values().any(|own| (own.class, own.kind) == (option.class, option.kind)) {
                        return Err(OptionsError::Twice);
                    }
                    next.insert(option.place, *option);
                }
                Vec::new()
            }
            OptionsMod::Delete(options) if options.iter().any(|option| option.place >= TUN_METADATA) => {
                return Err(OptionsError::Place);
            }
            OptionsMod::Delete(options) => options.iter().map(|option| option.place).collect(),
            OptionsMod::Clear => next.keys().copied().collect(),
        };
        let fields: Vec<Field> = gone
            .iter()
            .filter(|place| next.remove(place).is_some())
            .filter_map(|place| Field::tun_metadata(*place))
            .collect();
        if !fields.is_empty() && is_used(&fields) {
            return Err(OptionsError::Used);
        }
        self.0 = next;
        Ok(())
    }

    /// A match in the one form that rules have: an option that is matched whole is a field that is.
    fn matching(&self, matching: &Match) -> Result<Match, FlowError> {
        let mut own = *matching;
        for field in (0..TUN_METADATA).filter_map(Field::tun_metadata) {
            let (value, mask) = (matching.value.get(field), matching.mask.get(field));
            let bits = self.bits(field);
            if mask == 0 {
                continue;
            }
            if bits == 0 {
                return Err(FlowError::UnmappedOption);
            }
            if value & !bits != 0 {
                return Err(MatchError::Value(field).into());
            }
            own.mask.set(field, if mask & bits == bits { field.all_ones() } else { mask & bits });
        }
        Ok(own)
    }

    /// Whether part of a field is there.
    pub(super) fn check(&self, part: &SubField) -> Result<(), FlowError> {
        match self.bits(part.field) {
            0 => Err(FlowError::UnmappedOption),
            bits if part.mask() & !bits != 0 => Err(FlowError::BadArgument),
            _ => Ok(()),
        }
    }

    /// Whether a field can be set to a value.
    pub(super) fn check_value(&self, field: Field, value: u128) -> Result<(), FlowError> {
        match self.bits(field) {
            0 => Err(FlowError::UnmappedOption),
            bits if value & !bits != 0 => Err(FlowError::BadSetArgument),
            _ => Ok(()),
        }
    }
}

impl Pipeline {
    /// What options of tunnels are mapped to.
    #[must_use]
    pub fn tunnel_options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Changes that. Takes a look at every rule and group where something goes.
    ///
    /// # Errors
    /// [`OptionsError`], and nothing is changed.
    pub fn change_tunnel_options(&mut self, change: &OptionsMod) -> Result<(), OptionsError> {
        let mut options = std::mem::take(&mut self.options);
        let done = options.change(change, |fields| self.speaks_of(fields));
        self.options = options;
        if done.is_ok() {
            self.touch(super::pipeline::Touched::Settings);
        }
        done
    }

    /// Whether a rule or a group names one of these fields.
    fn speaks_of(&self, fields: &[Field]) -> bool {
        let named = |actions: &[Action]| actions.iter().any(|action| names(action, fields));
        let by_rule = |matching: &Match, does: &Instructions| {
            fields.iter().any(|field| matching.mask.get(*field) != 0)
                || named(&does.apply)
                || named(&does.write)
        };
        self.rules.iter().any(|(_, rule)| by_rule(&rule.matching, &rule.instructions))
            || self
                .groups
                .values()
                .any(|state| state.group.buckets.iter().any(|bucket| named(&bucket.actions)))
    }

    /// A change whose match has the form that rules have.
    pub(super) fn in_form<'a>(&self, change: &'a FlowMod) -> Result<Cow<'a, FlowMod>, FlowError> {
        let words = Field::TunMetadata0.octet() / 8;
        let words = &change.matching.mask.0[words..words + usize::from(TUN_METADATA)];
        if words.iter().all(|word| *word == 0) {
            return Ok(Cow::Borrowed(change));
        }
        let matching = self.options.matching(&change.matching)?;
        Ok(Cow::Owned(FlowMod { matching, ..change.clone() }))
    }
}

/// Whether an action names one of these fields.
fn names(action: &Action, fields: &[Field]) -> bool {
    let is = |part: &SubField| fields.contains(&part.field);
    match action {
        Action::Set { field, .. } => fields.contains(field),
        Action::Move { from, to } => is(from) || is(to),
        Action::Push(part)
        | Action::Pop(part)
        | Action::OutputReg { source: part, .. }
        | Action::CheckPktLarger { to: part, .. }
        | Action::Multipath { to: part, .. }
        | Action::Bundle { to: Some(part), .. } => is(part),
        Action::Learn(learn) => learn.parts.iter().any(|part| match part {
            LearnPart::Match(source, to) | LearnPart::Load(source, to) => {
                is(to) || matches!(source, LearnSource::Field(from) if is(from))
            }
            LearnPart::Output(from) => is(from),
        }),
        Action::Clone(actions) => actions.iter().any(|action| names(action, fields)),
        _ => false,
    }
}
