//! Duplicates of map descriptors, and copies of map contents for test runs that must not change the maps in use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Error, sys};

/// Returns another file descriptor of the map `name`.
pub(crate) fn duplicate(name: &'static str, map: &impl AsFd) -> Result<OwnedFd, Error> {
    let duplicate = map.as_fd().try_clone_to_owned();
    duplicate.map_err(|source| Error::Map { map: name, operation: "duplicate", source })
}

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
