//! Changes of the mapping of tunnel options to fields, and the uses of these fields by flow entries and groups. A
//! field that is in use cannot be unmapped.

use std::borrow::Cow;

use super::field::TUN_METADATA;
use super::message::{FlowError, FlowMod};
use super::pipeline::{Pipeline, Touched};
use super::{
    Action, Field, Instructions, LearnPart, LearnSource, Match, OptionsError, OptionsMod, SubField,
    TunnelOptions,
};

impl Pipeline {
    /// Returns the mapping of tunnel options.
    #[must_use]
    pub fn tunnel_options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Changes the mapping of tunnel options. A change that unmaps fields scans all rules and groups.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the change is refused. Nothing is changed then.
    pub fn change_tunnel_options(&mut self, change: &OptionsMod) -> Result<(), OptionsError> {
        let mut options = std::mem::take(&mut self.options);
        let done = options.change(change, |fields| self.speaks_of(fields));
        self.options = options;
        if done.is_ok() {
            self.touch(Touched::Settings);
        }
        done
    }

    /// Returns whether a rule or group matches or uses one of these fields.
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

    /// Returns a flow-mod with its match in normalized form. Returns an error if the match is refused.
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

/// Returns whether an action reads or sets one of these fields.
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
