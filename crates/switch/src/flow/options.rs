//! Tunnel options (Geneve, RFC 8926, 3.5) and their mapping to the fields `tun_metadata0` to `tun_metadata7`
//! (ovs-fields(7), "Tunnel Metadata"; NXT_TLV_TABLE_MOD).
//!
//! A field without a mapped option cannot be matched or set. A field that flow entries use cannot be
//! unmapped. An option shorter than its field occupies the field's lowest octets, and the other octets are
//! zero.

use std::collections::BTreeMap;

use super::field::TUN_METADATA;
use super::message::FlowError;
use super::{Field, Match, MatchError, SubField};

/// Maximum length of a mapped option's value, in octets.
const MAX_OCTETS: u8 = 8;
/// Maximum total length of the values of all mapped options, in octets. The total is reached when
/// all fields are in use.
pub const OPTION_SPACE: u32 = MAX_OCTETS as u32 * TUN_METADATA as u32;

/// A tunnel option and the field that it is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelOption {
    /// Option class of the tunnel option (RFC 8926, 3.5).
    pub class: u16,
    /// Type of the tunnel option within its class.
    pub kind: u8,
    /// Length of the option's value in octets, a multiple of 4.
    pub octets: u8,
    /// Number of the field that the option is mapped to: 0 for `tun_metadata0`.
    pub place: u16,
}

/// A change of the mapping of tunnel options to fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionsMod {
    /// Maps options to free fields.
    Add(Vec<TunnelOption>),
    /// Unmaps the fields of these options.
    Delete(Vec<TunnelOption>),
    /// Unmaps all fields of tunnel options.
    Clear,
}

/// The reason why a change of the mapping is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    /// NXTTMFC_BAD_OPT_LEN: the length of the tunnel option is invalid.
    #[error("no option has such a length: it is a multiple of 4 octets, and at most 124")]
    Length,
    /// NXTTMFC_BAD_FIELD_IDX: there is no field with this number for the tunnel option.
    #[error("there is no such field: {TUN_METADATA} are there, from tun_metadata0 on")]
    Place,
    /// NXTTMFC_TABLE_FULL: the tunnel option is longer than a field.
    #[error("a field has room for {MAX_OCTETS} octets, and the option is longer")]
    Full,
    /// NXTTMFC_ALREADY_MAPPED: another tunnel option is mapped to the field already.
    #[error("the field has an option already: delete that first")]
    Mapped,
    /// NXTTMFC_DUP_ENTRY: the tunnel option is mapped to another field already.
    #[error("the option is mapped to another field already")]
    Twice,
    /// NXTTMFC_INVALID_TLV_DEL: flow entries or groups use the field to unmap.
    #[error("rules speak of the field: remove them first")]
    Used,
}

/// The mapping of tunnel options to fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TunnelOptions(BTreeMap<u16, TunnelOption>);

impl TunnelOptions {
    /// Returns the tunnel options that are mapped to fields, ordered by field number.
    pub fn iter(&self) -> impl Iterator<Item = &TunnelOption> {
        self.0.values()
    }

    /// Returns a mask of the bits of a field that may be matched or set. For a tunnel option field, the mask covers the
    /// length of the mapped option, and is empty without a mapped option. For all other fields, all bits are set.
    #[must_use]
    pub fn bits(&self, field: Field) -> u128 {
        let Some(place) = field.tun_metadata_number() else { return field.all_ones() };
        self.0.get(&place).map_or(0, |option| u128::MAX >> (128 - 8 * u32::from(option.octets)))
    }

    /// Makes a change of the mapping, either completely or not at all. `is_used` returns whether flow entries or
    /// groups use any of the given fields.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the change is refused.
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

    /// Returns a match in normalized form: a match of all bits of an option becomes an exact match of the field.
    /// Returns an error if a matched field has no mapped option, or if the value is longer than the option.
    pub(super) fn matching(&self, matching: &Match) -> Result<Match, FlowError> {
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

    /// Returns an error unless a range of bits of a field lies within the tunnel option that is mapped to the field.
    pub(super) fn check(&self, part: &SubField) -> Result<(), FlowError> {
        match self.bits(part.field) {
            0 => Err(FlowError::UnmappedOption),
            bits if part.mask() & !bits != 0 => Err(FlowError::BadArgument),
            _ => Ok(()),
        }
    }

    /// Returns an error if a field for tunnel options cannot be set to a value, because no option is mapped to the
    /// field or the option is shorter than the value.
    pub(super) fn check_value(&self, field: Field, value: u128) -> Result<(), FlowError> {
        match self.bits(field) {
            0 => Err(FlowError::UnmappedOption),
            bits if value & !bits != 0 => Err(FlowError::BadSetArgument),
            _ => Ok(()),
        }
    }
}
