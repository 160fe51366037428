//! Builds the tables of block lists while the data plane is not locked, because the table of a long list takes seconds
//! to build. The data plane is only locked before the build, to copy the blocked prefixes, and after it, to exchange
//! the tables. Prefixes that are blocked or unblocked during the build are also changed in the new table.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use model::{Blocked, FilterName};
use packet::net::Prefix;
use xdp::filter::{Blocklist, FormerList, Moment};

/// Prefixes that an operator has blocked while the daemon ran, each with the end time of the block. `None`
/// means that the block has no end time.
pub type Blocks = BTreeMap<Prefix, Option<Moment>>;

/// File and blocked prefixes from which the block list of a filter is built again.
pub struct ListSource {
    /// Name of the filter that the block list belongs to.
    pub name: FilterName,
    /// Path of the block list's file.
    pub path: PathBuf,
    /// Whether a hook or a worker uses the list, so that a table must be built.
    pub has_table: bool,
    /// Prefixes that an operator has blocked at run time.
    pub blocks: Arc<Blocks>,
}

/// Current block list of a filter.
pub struct ListState {
    /// Prefixes in the block list's file, sorted.
    pub prefixes: Arc<[Prefix]>,
    /// Prefixes that an operator has blocked at run time.
    pub blocks: Arc<Blocks>,
    /// Whether a hook or a worker uses the block list.
    pub has_table: bool,
}

/// Prefixes that were read from a list's file, with their table if a hook or a worker uses the list.
pub struct ReadList {
    pub(super) prefixes: Arc<[Prefix]>,
    pub(super) built: Option<BuiltList>,
}

/// Result of an attempt to exchange a block list.
pub enum Reloaded {
    /// The filter now uses the list that was read.
    Done(Blocked),
    /// Prefixes were blocked or unblocked while the list was built. The caller must update the list to the prefixes
    /// that are blocked now (second value), and try again.
    Behind(Box<ReadList>, Arc<Blocks>),
    /// The list must be read again, because the configuration now names another file for the filter, or because the
    /// list now needs a table and did not need one before, or the other way round.
    OtherSource,
}

impl ListSource {
    /// Builds the list from the prefixes that were read from its file.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory for the table.
    pub(super) fn build(&self, prefixes: Arc<[Prefix]>) -> Result<ReadList, xdp::Error> {
        let build = || BuiltList::new(Arc::clone(&prefixes), Arc::clone(&self.blocks));
        let built = self.has_table.then(build).transpose()?;
        Ok(ReadList { prefixes, built })
    }
}

impl ReadList {
    /// Updates the built list to the currently blocked prefixes.
    pub fn follow(&mut self, blocks: &Arc<Blocks>) {
        if let Some(built) = &mut self.built {
            built.follow(blocks);
        }
    }
}

/// Block list that no hook and no worker uses yet.
pub struct BuiltList {
    pub(super) list: Blocklist,
    /// Prefixes in the block list's file, sorted.
    prefixes: Arc<[Prefix]>,
    /// Prefixes that an operator had blocked at run time when the list was built.
    blocks: Arc<Blocks>,
}

impl BuiltList {
    /// Builds a list of the prefixes in a file and the prefixes that an operator has blocked at run time.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory for the table.
    pub fn new(prefixes: Arc<[Prefix]>, blocks: Arc<Blocks>) -> Result<BuiltList, xdp::Error> {
        let of_file = |prefix: &Prefix| prefixes.binary_search(prefix).is_ok();
        let besides = || blocks.iter().filter(|(prefix, _)| !of_file(prefix));
        let all = prefixes.iter().chain(besides().map(|(prefix, _)| prefix));
        let mut list = Blocklist::new(all.copied())?;
        for (prefix, until) in besides().filter(|(_, until)| until.is_some()) {
            list.insert(*prefix, *until)?;
        }
        Ok(BuiltList { list, prefixes, blocks })
    }

    /// Returns whether the list was built from these prefixes of a file.
    pub(super) fn is_of(&self, prefixes: &Arc<[Prefix]>) -> bool {
        Arc::ptr_eq(&self.prefixes, prefixes) || self.prefixes == *prefixes
    }

    /// Returns whether the list contains these prefixes that are blocked at run time.
    pub(super) fn is_current(&self, blocks: &Arc<Blocks>) -> bool {
        Arc::ptr_eq(&self.blocks, blocks)
    }

    /// Updates the blocked prefixes in the list to `blocks`. Logs prefixes that do not fit into the table.
    pub(super) fn follow(&mut self, blocks: &Arc<Blocks>) {
        if self.is_current(blocks) {
            return;
        }
        // Prefixes of the file stay listed without an end time.
        let of_file = |prefix: &Prefix| self.prefixes.binary_search(prefix).is_ok();
        let ended = self.blocks.keys().filter(|prefix| !blocks.contains_key(prefix) && !of_file(prefix));
        let mut begun: BTreeMap<Option<Moment>, Vec<Prefix>> = BTreeMap::new();
        for (prefix, until) in blocks.iter().filter(|(prefix, _)| !of_file(prefix)) {
            if self.blocks.get(prefix) != Some(until) {
                begun.entry(*until).or_default().push(*prefix);
            }
        }
        for prefix in ended {
            if let Err(error) = self.list.remove(*prefix) {
                tracing::error!(%prefix, %error, "it was unblocked while its list was built, and stays listed");
            }
        }
        for (until, prefixes) in begun {
            let (refused, error) = self.list.insert_all(&prefixes, until);
            if let Some((prefix, error)) = refused.first().zip(error) {
                tracing::error!(%prefix, refused = refused.len(), %error, "it was blocked while its list was built, and is not listed");
            }
        }
        self.blocks = Arc::clone(blocks);
    }

    /// Replaces the contents of a list with this list. Returns the old contents.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the exchange.
    pub(super) fn replace(self, list: &mut Blocklist) -> Result<FormerList, xdp::Error> {
        list.take_over(self.list)
    }

    /// Converts the built list into the block list of a filter that has no block list yet.
    pub(super) fn into_list(self) -> Blocklist {
        self.list
    }
}
