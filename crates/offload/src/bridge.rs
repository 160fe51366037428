//! A bridge's stations in the hooks of its ports.

use std::fmt;
use std::sync::Arc;

use packet::PortId;
use switch::{Bridge, Shortcut};
use xdp::Error;
use xdp::bridge::{BridgePort, Place, StationTable};

/// A port whose hook has a bridge stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookPort {
    /// Bytes of the longest frame without a tag, if its device takes redirected frames.
    pub reached: Option<u32>,
}

/// The stations of one bridge in the hook. For one control thread at a time.
pub struct BridgeOffload {
    table: Arc<StationTable>,
    /// The bridge's count of changes when all of it was last looked at.
    synced: Option<u64>,
    refused: usize,
}

/// Takes stations out of the hook's table when the bridge's says so.
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
    /// For a bridge of this many stations at most; `seed` should be secret and random.
    ///
    /// # Errors
    /// If the kernel refuses the table.
    pub fn new(stations: u32, seed: u64) -> Result<BridgeOffload, Error> {
        let stations = usize::try_from(stations).unwrap_or(usize::MAX);
        let table = Arc::new(StationTable::new(stations, seed)?);
        Ok(BridgeOffload { table, synced: None, refused: 0 })
    }

    /// The table that the hooks of all its ports read.
    #[must_use]
    pub fn table(&self) -> &StationTable {
        &self.table
    }

    /// Whom the bridge's tables tell what is not so any more.
    #[must_use]
    pub fn shortcut(&self) -> Arc<dyn Shortcut> {
        Arc::new(Revoker(Arc::clone(&self.table)))
    }

    /// Stations in the hook.
    #[must_use]
    pub fn stations(&self) -> usize {
        self.table.iter().count()
    }

    /// Stations that the hook had no room for at the last look; their frames go up.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Leaves everything to the workers, until the next look.
    pub fn clear(&mut self) {
        self.table.clear();
        self.synced = None;
    }

    /// Lets the hook know the stations that the bridge knows, behind the ports that `port` gives. Looks only if something
    /// has changed since the last time. `secs` is the hook's clock, whose low half is the bridge's.
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
                // As the table gives it back.
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
                // It moved between the two: whoever moved it may have revoked before it stood here.
                self.table.remove(key);
            }
        }
    }

    /// Tells the bridge when its stations were last seen in the hook. Call before ageing. A station that the hook has taken
    /// out by itself is looked at again by the next [`BridgeOffload::sync`].
    pub fn feed_back(&mut self, bridge: &Bridge) {
        let tables = bridge.tables();
        for (key, place, used) in self.table.iter() {
            tables.seen(key, PortId(place.port), low_half(used));
        }
    }

    /// Looks at everything at the next [`BridgeOffload::sync`], whether or not the bridge has changed: what the hook takes
    /// out by itself, when an address turns up elsewhere and then is not learned there, is known to nobody else.
    pub fn doubt(&mut self) {
        self.synced = None;
    }
}

/// The constants of a port's stage; `None` for strangers and transparent members, whose frames are the workers'.
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
