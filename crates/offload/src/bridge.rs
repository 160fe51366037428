//! Offload of a bridge's MAC table entries to the hooks of its ports.

use std::fmt;
use std::sync::Arc;

use packet::PortId;
use switch::{Bridge, OffloadInvalidator};
use xdp::Error;
use xdp::bridge::{BridgePort, Place, StationTable};

/// A bridge port whose XDP hook forwards frames according to MAC table entries (the bridge stage of the hook).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookPort {
    /// Maximum length in bytes of an untagged frame that a hook may redirect to this port. `None` if the port's device
    /// does not accept redirected frames.
    pub reached: Option<u32>,
}

/// Copy of one bridge's MAC table entries for the hooks of the bridge's ports. One control thread at a time uses
/// this value.
pub struct BridgeOffload {
    table: Arc<StationTable>,
    /// Change count of the bridge at the last synchronisation. `None` if the next synchronisation must examine all
    /// entries.
    synced: Option<u64>,
    refused: usize,
}

/// Listener that removes an entry from the hook's table when the bridge's MAC table changes.
struct Revoker(Arc<StationTable>);

impl fmt::Debug for Revoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the driver hook")
    }
}

impl OffloadInvalidator for Revoker {
    fn revoke(&self, key: u64) {
        self.0.remove(key);
    }
}

impl BridgeOffload {
    /// Creates the offload for a bridge. The hook's table has space for `stations` MAC table entries. `seed` is the key
    /// of the table's hash function and should be secret and random.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to create the table.
    pub fn new(stations: u32, seed: u64) -> Result<BridgeOffload, Error> {
        let stations = usize::try_from(stations).unwrap_or(usize::MAX);
        let table = Arc::new(StationTable::new(stations, seed)?);
        Ok(BridgeOffload { table, synced: None, refused: 0 })
    }

    /// Returns the hook's table, which the hooks of all ports of the bridge read.
    #[must_use]
    pub fn table(&self) -> &StationTable {
        &self.table
    }

    /// Returns the listener that removes an entry from the hook's table when the bridge's MAC table changes.
    #[must_use]
    pub fn offload_invalidator(&self) -> Arc<dyn OffloadInvalidator> {
        Arc::new(Revoker(Arc::clone(&self.table)))
    }

    /// Returns the number of MAC table entries in the hook's table.
    #[must_use]
    pub fn stations(&self) -> usize {
        self.table.iter().count()
    }

    /// Returns the number of entries that the last synchronisation could not add because the hook's table was full. The
    /// workers forward the frames to these addresses.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Removes all entries from the hook's table until the next [`BridgeOffload::sync`]. Until then, the
    /// workers forward all frames.
    pub fn clear(&mut self) {
        self.table.clear();
        self.synced = None;
    }

    /// Copies the entries of the bridge's MAC table to the hook's table. `port` returns the hook of a port, or `None`
    /// if the port has none. Does nothing if the bridge has not changed since the last call. `secs` is the time of the
    /// hook's clock in seconds. The low 16 bits of this time are the time of the bridge's clock.
    pub fn sync(&mut self, bridge: &Bridge, port: impl Fn(PortId) -> Option<HookPort>, secs: u32) {
        let tables = bridge.tables();
        let changes = tables.changes();
        if self.synced == Some(changes) {
            return;
        }
        self.synced = Some(changes);
        self.refused = 0;
        for entry in tables.fdb(low_half(secs)) {
            let Some(at) = entry.port else { continue };
            let (Some(hook), Some(tagged)) = (port(at), bridge.leaves_tagged(at, entry.vid)) else {
                continue;
            };
            let place = Place {
                port: at.0,
                tagged,
                protected: bridge.facts(at).is_some_and(|facts| facts.protected),
                is_static: entry.is_static,
                // Limited to the value range of the hook's table, so that the comparison below holds.
                reached: hook.reached.map(|length| length.min(0x3fff)),
            };
            let key = entry.key();
            if self.table.get(key).is_some_and(|(known, _)| known == place) {
                continue;
            }
            let seen = secs.wrapping_sub(u32::from(entry.age_secs));
            if !self.table.insert(key, place, seen) {
                self.refused += 1;
            } else if tables.port_of(key) != Some(at) {
                // The station moved between look-up and insertion. Its revocation may have come before the
                // insertion.
                self.table.remove(key);
            }
        }
    }

    /// Updates the ages in the bridge's MAC table from the times at which the hook last used the entries. Callers do
    /// this before they age out entries. If the hook has removed an entry itself, the next [`BridgeOffload::sync`]
    /// after [`BridgeOffload::doubt`] examines this entry again.
    pub fn feed_back(&mut self, bridge: &Bridge) {
        let tables = bridge.tables();
        for (key, place, used) in self.table.iter() {
            tables.seen(key, PortId(place.port), low_half(used));
        }
    }

    /// Forces the next [`BridgeOffload::sync`] to examine all entries, even if the bridge has not changed. This is
    /// necessary because the hook itself removes an entry if the entry's address appears on another port and is not
    /// learned there. The hook does not notify the bridge of this removal.
    pub fn doubt(&mut self) {
        self.synced = None;
    }
}

/// Returns the settings for a port in the bridge stage of its hook. Returns `None` for ports outside the bridge, and
/// for transparent members, whose frames the workers forward.
#[must_use]
pub fn port_stage(bridge: &Bridge, port: PortId, partial_checksums: bool) -> Option<BridgePort> {
    let facts = bridge.facts(port)?;
    Some(BridgePort {
        port: port.0,
        untagged: facts.untagged.map(|vlan| vlan.get()),
        tagged: facts.tagged,
        untagged_only: facts.untagged_only,
        protected: facts.protected,
        learning: facts.learning,
        partial_checksums,
    })
}

#[allow(clippy::cast_possible_truncation, reason = "the bridge's clock wraps by definition")]
fn low_half(secs: u32) -> u16 {
    secs as u16
}
