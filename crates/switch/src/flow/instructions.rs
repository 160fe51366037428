//! The instructions of a flow entry: lists of actions, a meter, metadata and the next table.

use super::action::{Action, KEEPER_OCTETS, OCTETS_OF_WORK, each_keeper, memory_of};

/// The instructions of a flow entry (OpenFlow 1.1 and later), in the order of execution. The actions of an
/// OpenFlow 1.0 flow entry are `apply` actions, without other instructions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions {
    /// Number of the meter that is applied before all actions. `None` means no meter.
    pub meter: Option<u32>,
    /// Actions that are executed immediately, in this order.
    pub apply: Vec<Action>,
    /// Whether the action set is cleared.
    pub clear: bool,
    /// Actions that are written to the action set.
    pub write: Vec<Action>,
    /// Value and mask that are written to the metadata field.
    pub metadata: Option<(u64, u64)>,
    /// Number of the table in which processing continues. `None` ends the processing.
    pub goto: Option<u8>,
}

impl Instructions {
    /// Returns instructions that only apply actions.
    #[must_use]
    pub fn apply(actions: Vec<Action>) -> Instructions {
        Instructions { apply: actions, ..Instructions::default() }
    }

    /// Returns whether any action outputs to `port`, for requests that are restricted by `out_port`.
    #[must_use]
    pub fn outputs_to(&self, port: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.outputs_to(port))
    }

    /// Returns whether any action uses the group `group`, for requests that are restricted by `out_group`.
    #[must_use]
    pub fn uses_group(&self, group: u32) -> bool {
        self.apply.iter().chain(&self.write).any(|action| action.uses_group(group))
    }

    /// Returns the approximate heap size of the actions, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory_of(&self.apply) + memory_of(&self.write)
    }

    /// Returns the octets that the actions count for the memory limit of rules: the heap size of the actions, and
    /// [`KEEPER_OCTETS`] for each reference count of learned flow entries.
    pub(crate) fn charged_memory(&self) -> usize {
        let mut keepers = 0;
        each_keeper(&self.apply, &mut |_| keepers += 1);
        self.memory() + keepers * KEEPER_OCTETS
    }

    /// Returns the work of visiting, copying or removing all actions once, nested actions included, in visited
    /// rules.
    pub(crate) fn work(&self) -> usize {
        self.charged_memory() / OCTETS_OF_WORK
    }

    /// Appends the numbers of the groups that the actions use to `into`. A number may occur more than once.
    pub(crate) fn groups(&self, into: &mut Vec<u32>) {
        self.apply.iter().chain(&self.write).for_each(|action| action.groups(into));
    }

    /// Appends the numbers of the meters that the instructions use to `into`. A number may occur more than once.
    pub(crate) fn meters(&self, into: &mut Vec<u32>) {
        into.extend(self.meter);
        self.apply.iter().chain(&self.write).for_each(|action| action.meters(into));
    }
}
