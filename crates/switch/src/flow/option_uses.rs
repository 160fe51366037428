//! Changes of the mapping of tunnel options to fields, and the check whether flow entries or groups use these
//! fields. A field in use cannot be unmapped.

use std::borrow::Cow;

use super::field::TUN_METADATA;
use super::message::{FlowError, FlowMod};
use super::option_fields::OptionFields;
use super::pipeline::{Pipeline, Touched};
use super::{Field, OptionsError, OptionsMod, TunnelOptions};

impl Pipeline {
    /// Returns the mapping of tunnel options to fields.
    #[must_use]
    pub fn tunnel_options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Changes the mapping of tunnel options to fields. A change that unmaps fields visits all groups, but no rules.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the change is refused. In this case, the mapping is unchanged.
    pub fn change_tunnel_options(&mut self, change: &OptionsMod) -> Result<(), OptionsError> {
        let mut options = std::mem::take(&mut self.options);
        let done = options.change(change, |fields| self.uses_options(fields));
        self.options = options;
        if done.is_ok() {
            self.touch(Touched::Settings);
        }
        done
    }

    /// Returns whether a rule or group matches or uses one of these tunnel option fields.
    fn uses_options(&self, fields: &[Field]) -> bool {
        let fields = fields.iter().fold(OptionFields::default(), |set, field| set.with(*field));
        let all = self.groups.values().fold(self.uses.options(), |set, state| set.or(state.options));
        fields.intersects(all)
    }

    /// Returns a flow-mod in normalized form: a match of all bits of a tunnel option becomes an exact match of the
    /// option's field. Returns an error if the match is refused.
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
