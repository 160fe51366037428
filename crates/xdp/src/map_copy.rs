//! Copies of map contents, for test runs that must not change the maps in use.

use std::os::fd::{AsFd, BorrowedFd};

use crate::{Error, sys};

/// Copies all elements of an array map to another array map of equal size. `V` is the size of an element's value in
/// bytes.
pub(crate) fn copy_array<const V: usize>(
    name: &'static str,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> Result<(), Error> {
    let failed = |source| Error::Map { map: name, operation: "copy", source };
    let entries = sys::map_info(from.as_fd()).map_err(failed)?.max_entries;
    for index in 0..entries {
        let value = sys::map_lookup::<V>(from, index).map_err(failed)?;
        if value != [0; V] {
            sys::map_update(to, &index.to_ne_bytes(), &value).map_err(failed)?;
        }
    }
    Ok(())
}
