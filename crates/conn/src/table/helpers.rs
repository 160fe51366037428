//! Helpers of the connections of a table.

use crate::entry::EntryId;
use crate::helper::expectation::{Expectation, Parent};
use crate::helper::{Helper, Helpers, ParentConnection, Sizes};
use crate::table::Table;
use crate::tuple::{Address, Side, Tuple};

impl<A: Address> Table<A> {
    /// Allocates the memory for helpers. A table that was not prepared in this way has no helpers. The caller prepares
    /// the table before the table has connections.
    pub fn enable_helpers(&mut self, sizes: Sizes) {
        self.helpers = Some(Box::new(Helpers::new(sizes, self.hash.clone())));
    }

    /// Returns the helpers. Returns `None` if the table has none.
    #[must_use]
    pub fn helpers(&self) -> Option<&Helpers<A>> {
        self.helpers.as_deref()
    }

    /// Returns the helpers for a change of the settings or of the expected connections.
    pub fn helpers_mut(&mut self) -> Option<&mut Helpers<A>> {
        self.helpers.as_deref_mut()
    }

    /// Returns the identifier of a connection as the parent of expected connections.
    #[must_use]
    pub fn parent(&self, id: EntryId) -> Parent {
        Parent { worker: self.worker.0, id }
    }

    /// Returns the expectation of the connection that a packet opens, if the parent has not expired. `source` is the
    /// side of the packet's source. `now` is the time in milliseconds.
    #[must_use]
    pub fn expectation(&self, tuple: &Tuple<A>, source: Side, now: u32) -> Option<&Expectation<A>> {
        let expectation = self.helpers.as_ref()?.expectations.find(tuple, source, now)?;
        let Parent { worker, id } = expectation.parent;
        (worker != self.worker.0 || self.is_live(id.0, now)).then_some(expectation)
    }

    /// Takes the helpers away from the table. [`Table::restore_helpers`] gives them back.
    pub(crate) fn take_helpers(&mut self) -> Option<Box<Helpers<A>>> {
        self.helpers.take()
    }

    /// Gives the helpers back to the table.
    pub(crate) fn restore_helpers(&mut self, helpers: Box<Helpers<A>>) {
        self.helpers = Some(helpers);
    }

    /// Returns whether the table has expectations.
    #[inline(always)]
    pub(crate) fn has_expectations(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.expectations.count() != 0)
    }

    /// Assigns a helper to a new connection.
    pub(crate) fn assign_helper(&mut self, id: EntryId, helper: Helper) {
        if let Some(helpers) = &mut self.helpers
            && let Some(entry) = self.entries.get_mut(id.0 as usize)
            && helpers.assign(id, helper)
        {
            entry.set_helper();
        }
    }

    /// Returns the ends and the inherited fields of a connection that has a helper.
    pub(crate) fn parent_connection(&self, id: EntryId) -> Option<ParentConnection<A>> {
        let entry = self.get(id)?;
        let (parent, zone, extension) = (self.parent(id), entry.zone(), self.extension(id));
        let ends = entry.tuple().ends(entry.originator());
        let (original, translated) = match self.mapping(id) {
            Some((mapping, _)) => (mapping.original, mapping.translated),
            None => (ends, ends),
        };
        Some(ParentConnection { parent, zone, original, translated, extension })
    }

    /// Removes the helper of a connection, and the expectations of the connection.
    #[cold]
    pub(super) fn remove_helper(&mut self, id: EntryId) {
        let parent = self.parent(id);
        if let Some(helpers) = &mut self.helpers {
            helpers.remove(parent);
        }
    }
}
