//! The instructions of a flow entry: lists of actions, a meter, metadata and the next table.

use super::action::{
    Action, KEEPER_OCTETS, OCTETS_OF_WORK, Reference, any_reference, each_keeper, each_reference, memory_of,
};

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
    /// Returns instructions that consist only of `apply` actions.
    #[must_use]
    pub fn apply(actions: Vec<Action>) -> Instructions {
        Instructions { apply: actions, ..Instructions::default() }
    }

    /// Returns whether any action outputs to `port`, for requests that are restricted by `out_port`.
    #[must_use]
    pub fn outputs_to(&self, port: u32) -> bool {
        self.names(|named| matches!(named, Reference::Port(own) if own == port))
    }

    /// Returns whether any action uses the group `group`, for requests that are restricted by `out_group`.
    #[must_use]
    pub fn uses_group(&self, group: u32) -> bool {
        self.names(|named| matches!(named, Reference::Group(own) if own == group))
    }

    /// Returns the approximate heap size of the actions, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory_of(&self.apply) + memory_of(&self.write)
    }

    /// Returns the number of octets that the actions count towards the memory limit of rules: the
    /// heap size of the actions, and [`KEEPER_OCTETS`] for each reference count of learned flow
    /// entries.
    pub(crate) fn charged_memory(&self) -> usize {
        let mut keepers = 0;
        each_keeper(&self.apply, &mut |_| keepers += 1);
        self.memory() + keepers * KEEPER_OCTETS
    }

    /// Returns the work of visiting, copying or removing all actions once, nested actions included. The unit is the
    /// work of visiting one rule.
    pub(crate) fn work(&self) -> usize {
        self.charged_memory() / OCTETS_OF_WORK
    }

    /// Appends to `into` the numbers of the groups that the actions use. A number may occur more than once.
    pub(crate) fn groups(&self, into: &mut Vec<u32>) {
        self.each_reference(|named| {
            if let Reference::Group(id) = named {
                into.push(id);
            }
        });
    }

    /// Appends to `into` the numbers of the meters that the instructions use. A number may occur more than once.
    pub(crate) fn meters(&self, into: &mut Vec<u32>) {
        into.extend(self.meter);
        self.each_reference(|named| {
            if let Reference::Meter(id) = named {
                into.push(id);
            }
        });
    }

    /// Returns whether the actions use a group.
    pub(crate) fn has_group(&self) -> bool {
        self.names(|named| matches!(named, Reference::Group(_)))
    }

    /// Returns whether the instructions use a meter.
    pub(crate) fn has_meter(&self) -> bool {
        self.meter.is_some() || self.names(|named| matches!(named, Reference::Meter(_)))
    }

    /// Returns whether `is_meant` returns true for any object that an action names, nested actions included.
    fn names(&self, mut is_meant: impl FnMut(Reference<'_>) -> bool) -> bool {
        any_reference(&self.apply, &mut is_meant) || any_reference(&self.write, &mut is_meant)
    }

    /// Calls `see` with each object that an action names, nested actions included.
    fn each_reference(&self, mut see: impl FnMut(Reference<'_>)) {
        each_reference(&self.apply, &mut see);
        each_reference(&self.write, &mut see);
    }
}
