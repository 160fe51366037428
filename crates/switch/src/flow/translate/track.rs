//! Translation of `ct` actions. A `ct` action with a table ends in a further look-up of a copy of the packet, because
//! the connection fields are known only after the tracker has seen the packet. The state of the translation at this
//! point is part of the program ([`FrozenState`]), and the translation of the copy goes on with it.

use std::sync::Arc;

use super::{
    Action, Failed, Field, Op, Prerequisite, Run, Translated, TranslationInput, work_of, work_to_copy,
};
use crate::flow::pipeline::Pipeline;
use crate::flow::program::{FrozenState, Recirculation, TrackStep};
use crate::flow::{CONNECTION_WORDS, Ct, CtNat, STAGES, ZoneSource};

/// Maximum number of times that a packet is looked up in the flow cache again.
const MAX_PASSES: u8 = 16;

impl Pipeline {
    /// Translates a packet that the connection tracker has seen, from the state at the `ct` action on. The pipeline and
    /// its counters do not change.
    #[must_use]
    pub fn recirculate(&self, asked: TranslationInput<'_>, state: &FrozenState) -> Translated {
        self.run(asked, |mut run| {
            run.thaw(state);
            run.table(state.table, None, false);
            run.finish_action_set();
            run.done()
        })
    }
}

impl Run<'_> {
    pub(super) fn ct(&mut self, ct: &Ct) {
        if !self.meets(Prerequisite::Ip) {
            return self.note("only IP packets are tracked");
        }
        self.commit();
        let zone = match &ct.zone {
            ZoneSource::Number(zone) => *zone,
            ZoneSource::Field(part) => u16::try_from(self.part(part)).unwrap_or_default(),
        };
        let (mark, label) = self.exec(&ct.exec);
        let is_v6 = self.flow.get(Field::EthType) == super::super::numbers::eth_type::IPV6;
        let is_of_family = |nat: &CtNat| match nat {
            CtNat::Existing => true,
            CtNat::New(range) => range.addresses.is_none_or(|(first, _)| first.is_ipv6() == is_v6),
        };
        let nat = ct.nat.filter(is_of_family);
        let mark =
            mark.and_then(|(value, mask)| Some((u32::try_from(value).ok()?, u32::try_from(mask).ok()?)));
        let (commit, force, alg) = (ct.commit, ct.force, ct.alg);
        self.push(Op::Track(Box::new(TrackStep { zone, commit, force, mark, label, nat, alg })));
        if let Some(table) = ct.table {
            self.freeze(table);
        }
    }

    pub(super) fn ct_clear(&mut self) {
        self.flow.0[CONNECTION_WORDS].fill(0);
        self.made.0[CONNECTION_WORDS].fill(u64::MAX);
        self.push(Op::ClearTrack);
    }

    /// Executes the actions that set the mark and the label of a connection. Returns value and mask of both.
    #[allow(clippy::type_complexity, reason = "two pairs of value and mask")]
    fn exec(&mut self, actions: &[Action]) -> (Option<(u128, u128)>, Option<(u128, u128)>) {
        let (mut mark, mut label) = (None, None);
        for action in actions {
            if !self.works() {
                break;
            }
            let (field, value, mask) = match action {
                Action::Set { field, value, mask, .. } => (*field, *value, *mask),
                Action::Move { from, to } => {
                    if !self.meets(from.field.prerequisite()) {
                        continue;
                    }
                    (to.field, self.part(from) << to.first, to.mask())
                }
                _ => continue,
            };
            let own = if field == Field::CtMark { &mut mark } else { &mut label };
            let (old, covered) = own.unwrap_or_default();
            *own = Some((old & !mask | value & mask, covered | mask));
        }
        (mark, label)
    }

    /// Adds the step that looks a copy of the packet up again. The translation of the copy continues in `table`.
    fn freeze(&mut self, table: u8) {
        let copied = work_to_copy(&self.action_set).saturating_add(work_of(self.stack.len()));
        if !self.works_for(copied) {
            return;
        }
        if self.passes >= MAX_PASSES {
            self.note(
                "the connection tracker has seen the packet too often: look for a loop of `ct` actions",
            );
            self.out.failed = Some(Failed::Depth);
            self.stopped = true;
            return;
        }
        let mut metadata = [0; STAGES[0]];
        metadata.copy_from_slice(&self.flow.0[..STAGES[0]]);
        let state = FrozenState {
            table,
            metadata,
            stack: self.stack.clone(),
            action_set: self.action_set.clone(),
            queue: self.queue,
            passes: self.passes + 1,
        };
        self.push(Op::Recirculate(Arc::new(Recirculation { state, number: None })));
    }

    fn thaw(&mut self, state: &FrozenState) {
        self.flow.0[..STAGES[0]].copy_from_slice(&state.metadata);
        self.stack = state.stack.clone();
        self.action_set = state.action_set.clone();
        (self.queue, self.passes) = (state.queue, state.passes);
    }
}
