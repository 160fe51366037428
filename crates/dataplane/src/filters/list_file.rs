//! Reads files of block lists, and builds tables from the prefixes in the files before the data
//! plane is locked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::PlaneError;
use model::{Config, FilterName};
use packet::net::Prefix;
use xdp::filter::FilterError;

use super::list_build::{BuiltList, ListState};
use super::{BuiltLists, failed, named_by_ports, refused};

/// Maximum size in bytes of a block list's file. A file of this size holds about four million prefixes.
const LIST_LIMIT: u64 = 256 << 20;

/// Prefixes in the files of block lists, by the path of the file. The files are read and the lists are built before the
/// running state is locked, because reading and building a long list takes seconds.
#[derive(Default)]
pub struct BlocklistFiles(BTreeMap<PathBuf, Arc<[Prefix]>>);

impl BlocklistFiles {
    /// Reads the block lists of the filters in `new` that `before` does not contain or that have changed
    /// since.
    ///
    /// # Errors
    /// Returns an error for the first block list that cannot be read.
    pub fn read(new: &Config, before: &Config) -> Result<BlocklistFiles, PlaneError> {
        let mut files = BTreeMap::new();
        let changed = new.filters.iter().filter(|(name, wanted)| before.filters.get(*name) != Some(wanted));
        for (name, wanted) in changed {
            if let Some(path) = &wanted.blocklist
                && !files.contains_key(path)
            {
                files.insert(path.clone(), read_blocklist(name, path)?);
            }
        }
        Ok(BlocklistFiles(files))
    }

    /// Builds the block lists that a change of the configuration from `before` to `new` needs. `state_of` returns the
    /// current state of a filter's block list.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory for a list.
    pub fn build(
        &self,
        new: &Config,
        before: &Config,
        state_of: impl Fn(&FilterName) -> Option<ListState>,
    ) -> Result<BuiltLists, PlaneError> {
        let (named, named_before) = (named_by_ports(new), named_by_ports(before));
        let mut lists = BuiltLists::new();
        for (name, wanted) in new.filters.iter().filter(|(name, _)| named.contains(name)) {
            let is_same = before.filters.get(name) == Some(wanted);
            let asks_for_list = wanted.rules.iter().any(|rule| rule.matches.listed);
            if !asks_for_list || (is_same && named_before.contains(name)) {
                continue;
            }
            let state = state_of(name);
            let read = wanted.blocklist.as_ref().map(|path| self.0.get(path).cloned());
            let Some(prefixes) = read.unwrap_or_else(|| Some(Arc::default())).or_else(|| {
                // The file of an unchanged filter is not read again.
                state.as_ref().filter(|_| is_same).map(|state| Arc::clone(&state.prefixes))
            }) else {
                continue;
            };
            let is_written =
                state.as_ref().is_some_and(|state| state.has_table && state.prefixes == prefixes);
            if !is_written {
                let blocks = state.map(|state| state.blocks).unwrap_or_default();
                let built = BuiltList::new(prefixes, blocks).map_err(|error| failed(name, &error))?;
                lists.insert(name.clone(), built);
            }
        }
        Ok(lists)
    }

    /// Returns the prefixes in the file of a filter's block list. If the file was not read before the running state was
    /// locked, because another change of the configuration was applied in the meantime, reads the file now.
    pub(super) fn prefixes(&self, name: &FilterName, path: &Path) -> Result<Arc<[Prefix]>, PlaneError> {
        match self.0.get(path) {
            Some(prefixes) => Ok(Arc::clone(prefixes)),
            None => read_blocklist(name, path),
        }
    }
}

/// Reads the prefixes in a block list's file and returns them sorted.
pub(super) fn read(path: &Path) -> Result<Arc<[Prefix]>, FilterError> {
    let failed = |source| FilterError::File { path: path.to_owned(), source };
    let text = crate::file::read_text(path, LIST_LIMIT).map_err(failed)?;
    let mut prefixes = xdp::filter::list_of(path, &text)?;
    prefixes.sort_unstable();
    Ok(prefixes.into())
}

/// Reads the block list of a filter.
///
/// # Errors
/// Returns an error if the file cannot be read or contains something other than prefixes.
pub fn read_blocklist(name: &FilterName, path: &Path) -> Result<Arc<[Prefix]>, PlaneError> {
    read(path).map_err(|error| refused(name, &error))
}
