//! Validation of `learn` actions: their arguments, and the match of the flow entries that they add. A learned flow
//! entry that OpenFlow cannot express would be lost or changed when it is dumped, stored or handed over.

use crate::flow::action::{Learn, LearnPart, LearnSource, SubField};
use crate::flow::message::FlowError;
use crate::flow::pipeline::Pipeline;
use crate::flow::{Match, MatchError};

/// Maximum number of actions of a learned flow entry. An encoded action has at most 56 octets. The flow entry with its
/// match therefore fits into an OpenFlow message of 64 KiB.
const MAX_LEARNED_ACTIONS: usize = 1024;

impl Pipeline {
    /// Validates the arguments of a `learn` action and the match of the flow entries that it adds.
    ///
    /// # Errors
    /// Returns the reason if the action is refused.
    pub(super) fn check_learn(&self, learn: &Learn) -> Result<(), FlowError> {
        learn.parts.iter().try_for_each(|part| self.check_learn_part(part))?;
        if learn.result.is_some_and(|result| result.field.belongs_to_connection()) {
            return Err(FlowError::BadSetArgument);
        }
        let is_action = |part: &&LearnPart| !matches!(part, LearnPart::Match(..));
        if learn.parts.iter().filter(is_action).count() > MAX_LEARNED_ACTIONS {
            return Err(FlowError::TooMany);
        }
        check_learned_fields(&learn.parts)
    }

    fn check_learn_part(&self, part: &LearnPart) -> Result<(), FlowError> {
        let width = |source: &LearnSource| -> Result<Option<u16>, FlowError> {
            Ok(match source {
                LearnSource::Field(part) => {
                    self.options.check(part)?;
                    Some(part.bits).filter(|_| part.is_sound())
                }
                LearnSource::Constant { bits, .. } => Some(*bits),
            })
        };
        let fits = match part {
            LearnPart::Match(source, to) | LearnPart::Load(source, to) => {
                self.options.check(to)?;
                let may_set = to.field.is_writable() && !to.field.belongs_to_connection();
                let may = matches!(part, LearnPart::Match(..)) || may_set;
                may && to.is_sound() && width(source)? == Some(to.bits)
            }
            LearnPart::Output(from) => {
                self.options.check(from)?;
                from.is_sound()
            }
        };
        if fits { Ok(()) } else { Err(FlowError::BadArgument) }
    }
}

/// Checks the match and the loads of the flow entries that a `learn` action adds. The prerequisites of each matched or
/// loaded field must follow from constants in preceding parts (as in Open vSwitch). Later parts must not remove the
/// prerequisites of a matched field. A field that does not support partial masks must be matched completely.
fn check_learned_fields(parts: &[LearnPart]) -> Result<(), FlowError> {
    // `known` has the bits whose values are constants, and `all` has all bits of the match.
    let (mut known, mut all) = (Match::ANY, Match::ANY);
    for part in parts {
        let (LearnPart::Match(source, to) | LearnPart::Load(source, to)) = part else { continue };
        if !known.meets(to.field.prerequisite()) {
            return Err(FlowError::MatchInconsistent);
        }
        if matches!(part, LearnPart::Load(..)) {
            continue;
        }
        let to = if to.is_port16() { SubField::whole(to.field) } else { *to };
        all.put(to.field, 0, to.mask());
        match source {
            LearnSource::Constant { value, .. } => to.put(&mut known, *value),
            LearnSource::Field(_) => known.mask.set(to.field, known.mask.get(to.field) & !to.mask()),
        }
    }
    for part in parts {
        let LearnPart::Match(_, to) = part else { continue };
        if !known.meets(to.field.prerequisite()) {
            return Err(FlowError::MatchInconsistent);
        }
        if !to.field.is_maskable() && all.mask.get(to.field) != to.field.all_ones() {
            return Err(MatchError::Mask(to.field).into());
        }
    }
    Ok(())
}
