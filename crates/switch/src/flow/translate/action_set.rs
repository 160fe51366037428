//! The action set of a packet (OpenFlow 1.3, 5.10): its collection, and its execution in the specified order.

use super::{Run, Trace, work_of, work_to_copy};
use crate::flow::action::{POSITION_OF_OUTPUT, port};
use crate::flow::{Action, Field, text};

impl Run<'_> {
    /// Returns the text of a trace event about the action set, which consists of the verb `verb`
    /// and the actions. Returns `None` if no trace is requested.
    pub(super) fn shown_action_set(&self, verb: &str) -> Option<String> {
        self.asked.trace.then(|| {
            if self.action_set.is_empty() {
                return format!("action set {verb} empty");
            }
            format!("action set {verb}: {}", text::actions(&self.action_set))
        })
    }

    /// Adds an action to the action set. The action replaces an action of the same type. A set-field action replaces
    /// only a set-field action for the same field (OpenFlow 1.3, 5.10).
    pub(super) fn put_in_set(&mut self, action: &Action) {
        // The whole set is searched, and the action is copied.
        let copied = work_to_copy(std::slice::from_ref(action));
        if !self.works_for(copied.saturating_add(1 + work_of(self.action_set.len()))) {
            return;
        }
        let is_same = |own: &Action| match (own, action) {
            (Action::Set { field, mask, .. }, Action::Set { field: new, mask: bits, .. }) => {
                (field, mask) == (new, bits)
            }
            (Action::Move { to, .. }, Action::Move { to: new, .. }) => to == new,
            _ => std::mem::discriminant(own) == std::mem::discriminant(action),
        };
        self.action_set.retain(|own| !is_same(own));
        self.action_set.push(action.clone());
        self.note_output();
    }

    /// Stores the output port of the action set in the field `actset_output`.
    pub(super) fn note_output(&mut self) {
        let to = self.action_set.iter().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        });
        let has_group = self.action_set.iter().any(|action| matches!(action, Action::Group(_)));
        let to = to.filter(|_| !has_group).unwrap_or(port::UNSET);
        self.flow.set(Field::ActsetOutput, u128::from(to));
    }

    /// Executes the action set in the order that OpenFlow 1.3, 5.10 specifies.
    pub(super) fn finish_action_set(&mut self) {
        if self.stopped || self.exits || self.ends {
            return;
        }
        let set = std::mem::take(&mut self.action_set);
        if self.asked.trace && !set.is_empty() {
            self.tell(Trace::ActionSet(self.depth));
        }
        let before = std::mem::replace(&mut self.in_action_set, true);
        self.ordered(&set);
        self.in_action_set = before;
    }

    /// Executes the actions of an action set or bucket in the order of their types. If an action set has a group
    /// action, its output action is not executed.
    pub(super) fn ordered(&mut self, set: &[Action]) {
        if !self.works_for(work_to_copy(set)) {
            return;
        }
        let mut actions: Vec<Action> = set.to_vec();
        actions.sort_by_key(Action::position_in_set);
        if actions.iter().any(|action| matches!(action, Action::Group(_))) && self.in_action_set {
            actions.retain(|action| action.position_in_set() != POSITION_OF_OUTPUT);
        }
        self.list(&actions);
    }
}
