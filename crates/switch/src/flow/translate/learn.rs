//! Execution of the `learn` action, by which a packet adds a flow entry to a table.

use super::{Action, Field, Run};
use crate::flow::LearnedFlow;
use crate::flow::action::{Learn, LearnPart, LearnSource};
use crate::flow::message::{FlowFlags, FlowMod};
use crate::flow::{Instructions, Match, SubField};

const SEND_REMOVED: u16 = 1;

impl Run<'_> {
    pub(super) fn learn(&mut self, learn: &Learn) {
        if self.out.learns.len() >= super::MAX_TOLD {
            return self.note("too many rules are taught by one packet");
        }
        // The action itself has been counted, and each part is as much work as an action.
        if !self.works_for(u32::try_from(learn.parts.len()).unwrap_or(u32::MAX)) {
            return;
        }
        let mut matching = Match::ANY;
        let mut actions = Vec::new();
        for part in &learn.parts {
            match part {
                LearnPart::Match(source, to) if to.is_port16() => {
                    let port = match source {
                        // The whole port number is copied, also if it has more than 16 bits.
                        LearnSource::Field(from) if from.is_port16() => self.flow.get(Field::InPort),
                        source => super::actions::port_of(self.learnt(source), to),
                    };
                    SubField::whole(Field::InPort).put(&mut matching, port);
                }
                LearnPart::Match(source, to) => {
                    let value = self.learnt(source);
                    to.put(&mut matching, value);
                }
                LearnPart::Load(source, to) => {
                    let value = self.learnt(source) << to.first;
                    actions.push(Action::Set { field: to.field, value, mask: to.mask(), load: true });
                }
                LearnPart::Output(from) => {
                    let port = u32::try_from(super::actions::port_of(self.part(from), from))
                        .unwrap_or(super::port::ANY);
                    actions.push(Action::Output { port, max_len: 0 });
                }
            }
        }
        let mut change = FlowMod::add(learn.table, learn.priority, matching, Instructions::apply(actions));
        change.cookie = Some(learn.cookie);
        (change.idle_timeout, change.hard_timeout) = (learn.idle_timeout, learn.hard_timeout);
        change.flags = FlowFlags { send_removed: learn.flags & SEND_REMOVED != 0, ..FlowFlags::default() };
        if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
            let ends = Action::FinTimeout { idle: learn.fin_idle_timeout, hard: learn.fin_hard_timeout };
            change.instructions.apply.insert(0, ends);
        }
        let learned = LearnedFlow { rule: change, limit: learn.limit };
        let octets = self.learned + learned.memory();
        if octets > super::MAX_LEARNED_OCTETS {
            return self.note("the rules that one packet teaches are too large together");
        }
        self.learned = octets;
        if let Some(result) = &learn.result {
            let learns = self.pipeline.may_learn(&learned);
            if learn.limit != 0 {
                self.note("whether there is room for what is learnt may differ for the next packet; the flow is not cached");
                self.out.is_own = true;
            }
            self.put(result, u128::from(learns));
        }
        self.out.learns.push(learned);
    }

    fn learnt(&mut self, source: &LearnSource) -> u128 {
        match source {
            LearnSource::Constant { value, .. } => *value,
            LearnSource::Field(part) if part.field == Field::InPort => part.get(&self.flow),
            LearnSource::Field(part) => self.part(part),
        }
    }
}
