//! Offload of a bridge's stations to the hooks of its ports.

use std::fmt;
use std::sync::Arc;

use packet::PortId;
use switch::{Bridge, Shortcut};
use xdp::Error;
use xdp::bridge::{BridgePort, Place, StationTable};

/// A port whose hook has a bridge stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookPort {
    /// Maximum frame length in bytes without a tag. `None` if the device does not accept redirected frames.
    pub reached: Option<u32>,
}

/// The stations of one bridge in the hook. Used by one control thread at a time.
pub struct BridgeOffload {
    table: Arc<StationTable>,
    /// Change count of the bridge at the last full synchronisation.
    synced: Option<u64>,
    refused: usize,
}

/// Listener that removes stations from the hook's table when the bridge's MAC table changes.
struct Revoker(Arc<StationTable>);

impl fmt::Debug for Revoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the driver hook")
    }
}

impl Shortcut for Revoker {
    fn revoke(&self, key: u64) {
        self.0.remove(key);
    }
}

impl BridgeOffload {
    /// Creates the offload for a bridge with at most `stations` stations. `seed` should be secret and random.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the table.
    pub fn new(stations: u32, seed: u64) -> Result<BridgeOffload, Error> {
        let stations = usize::try_from(stations).unwrap_or(usize::MAX);
        let table = Arc::new(StationTable::new(stations, seed)?);
        Ok(BridgeOffload { table, synced: None, refused: 0 })
    }

    /// Returns the table that the hooks of all ports of the bridge read.
    #[must_use]
    pub fn table(&self) -> &StationTable {
        &self.table
    }

    /// Returns the listener that removes a station from the hook when the MAC table changes.
    #[must_use]
    pub fn shortcut(&self) -> Arc<dyn Shortcut> {
        Arc::new(Revoker(Arc::clone(&self.table)))
    }

    /// Returns the number of stations in the hook.
    #[must_use]
    pub fn stations(&self) -> usize {
        self.table.iter().count()
    }

    /// Returns the number of stations that the last synchronisation could not add, because the hook's table
    /// was full. The workers forward frames to these stations.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Removes all stations from the hook until the next [`BridgeOffload::sync`], so that the workers forward
    /// all frames.
    pub fn clear(&mut self) {
        self.table.clear();
        self.synced = None;
    }

    /// Installs the stations of the bridge in the hook, for the ports for which `port` returns a hook. Does
    /// nothing if the bridge has not changed since the last call. `secs` is the hook's clock in seconds. Its
    /// lower half is the bridge's clock.
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

    /// Updates the bridge's station ages with the times of last use in the hook. Call it before ageing. A
    /// station that the hook removed by itself is examined again by the next [`BridgeOffload::sync`] after
    /// [`BridgeOffload::doubt`].
    pub fn feed_back(&mut self, bridge: &Bridge) {
        let tables = bridge.tables();
        for (key, place, used) in self.table.iter() {
            tables.seen(key, PortId(place.port), low_half(used));
        }
    }

    /// Forces the next [`BridgeOffload::sync`] to examine all stations, even if the bridge has not changed.
    /// The hook removes a station by itself when its address appears on another port and is not learned
    /// there, and the bridge is not notified.
    pub fn doubt(&mut self) {
        self.synced = None;
    }
}

/// Returns the parameters of a port's bridge stage. `None` for ports outside the bridge and for transparent
/// members, whose frames the workers handle.
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
