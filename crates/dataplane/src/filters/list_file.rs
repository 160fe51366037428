//! Reads files of block lists.

use std::path::Path;
use std::sync::Arc;

use control::PlaneError;
use model::FilterName;
use packet::net::Prefix;
use xdp::filter::FilterError;

use super::refused;

/// Maximum size in bytes of a block list's file. A file of this size holds about four million prefixes.
const LIST_LIMIT: u64 = 256 << 20;

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
