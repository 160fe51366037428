//! Kernel maps with the tables of a compiled rule set. The maps do not depend on the filter that gets the rule set. A
//! caller can therefore create the maps before it locks the filter.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use crate::Error;
use crate::sys::{self, MapKind, MapSpec, Mapped};

/// Names of the kernel maps with the tables of a rule set.
pub(super) const CLASSES: &str = "filter_classes";
pub(super) const TRIES: &str = "filter_tries";
pub(super) const ROWS: &str = "filter_rows";
pub(super) const PROBES: &str = "filter_probes";

/// Kernel maps with the tables of a rule set. The list of rules is in another map, which belongs to one filter.
#[derive(Debug)]
pub(super) struct TableMaps {
    pub classes: OwnedFd,
    pub tries: OwnedFd,
    pub rows: OwnedFd,
    pub probes: OwnedFd,
}

impl TableMaps {
    /// Creates the kernel maps with the tables `classes`, `tries`, `rows` and `probes`. The key of `probes` consists of
    /// the index of a place in the frame and a value at this place.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(
        classes: &[u16],
        tries: &[u32],
        rows: &[u64],
        probes: &BTreeMap<(u32, u64), u32>,
    ) -> Result<TableMaps, Error> {
        let entries = u32::try_from(probes.len().max(1)).unwrap_or(u32::MAX);
        let probe_map = create(PROBES, MapKind::Hash, 16, 4, entries)?;
        for ((probe, value), class) in probes {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&value.to_ne_bytes());
            key[8..12].copy_from_slice(&probe.to_ne_bytes());
            sys::map_update(probe_map.as_fd(), &key, &class.to_ne_bytes()).map_err(|source| Error::Map {
                map: PROBES,
                operation: "add to",
                source,
            })?;
        }
        Ok(TableMaps {
            classes: filled(CLASSES, 64, classes.len() * 2, classes.iter().flat_map(|c| c.to_ne_bytes()))?,
            tries: filled(TRIES, 64, tries.len() * 4, tries.iter().flat_map(|e| e.to_ne_bytes()))?,
            rows: filled(ROWS, 8, rows.len() * 8, rows.iter().flat_map(|w| w.to_ne_bytes()))?,
            probes: probe_map,
        })
    }
}

/// Creates a map. `key` and `value` are sizes in bytes.
///
/// # Errors
/// Returns [`Error::Map`] if the kernel refuses the map.
pub(super) fn create(
    name: &'static str,
    kind: MapKind,
    key: u32,
    value: u32,
    entries: u32,
) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key, value, entries };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}

/// Creates an array map that contains the `length` bytes of `bytes`. An element has `value` bytes. The array has at
/// least one element.
///
/// # Errors
/// Returns [`Error::Map`] if the kernel refuses the map.
pub(super) fn filled(
    name: &'static str,
    value: usize,
    length: usize,
    bytes: impl Iterator<Item = u8>,
) -> Result<OwnedFd, Error> {
    let size = |n| u32::try_from(n).unwrap_or(u32::MAX);
    let map = create(name, MapKind::Mappable, 4, size(value), size(length.div_ceil(value).max(1)))?;
    let memory =
        Mapped::new(map.as_fd()).map_err(|source| Error::Map { map: name, operation: "map", source })?;
    memory.write(bytes);
    Ok(map)
}
