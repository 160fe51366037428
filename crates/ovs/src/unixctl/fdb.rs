//! Commands `fdb/*` and `mdb/*` of `ovs-appctl`: MAC table, and multicast groups that IGMP and MLD snooping has
//! learned.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use control::{Plane, Store};
use model::{BridgeCounts, BridgeState, FdbFilter, StaticKey, UNTAGGED};
use packet::{MacAddr, VlanId};
use tokio::sync::watch;

use super::{Answer, Commands, known_bridge};
use crate::database::{Layout, Stations};

/// Maximum number of MAC table entries that one command prints.
const LIMIT: usize = 1_000_000;
/// Maximum time to wait until a static entry has been added to the MAC table of a bridge or removed from it.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

const NO_BRIDGE: &str = "no such bridge";
const FLUSHED: &str = "table successfully flushed";

/// Channels of the task that applies the OVSDB tables: the OpenFlow port numbers, and the static MAC table entries that
/// the commands add. `None` if no OVSDB server is configured.
pub type Sides = Option<(watch::Receiver<Layout>, Arc<watch::Sender<Stations>>)>;

struct Fdb {
    plane: Arc<dyn Plane>,
    sides: Sides,
    /// Values of the MAC table counters at the last `fdb/stats-clear`, by bridge name. They are subtracted from the
    /// counters that are printed.
    cleared: Mutex<BTreeMap<String, BridgeCounts>>,
}

type Run = fn(&Fdb, &[String]) -> Answer;

/// Adds the `fdb/*` and `mdb/*` commands to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>, sides: Sides) {
    let fdb = Arc::new(Fdb { plane: Arc::clone(store.plane()), sides, cleared: Mutex::default() });
    let all: [(&str, &str, usize, usize, Run); 8] = [
        ("fdb/show", "bridge", 1, 1, |fdb, arguments| fdb.show(word(arguments, 0))),
        ("fdb/add", "bridge port vlan mac", 4, 4, Fdb::add_static),
        ("fdb/del", "bridge vlan mac", 3, 3, Fdb::remove_static),
        ("fdb/flush", "[bridge]", 0, 1, Fdb::flush),
        ("fdb/stats-show", "bridge", 1, 1, |fdb, arguments| fdb.statistics(word(arguments, 0))),
        ("fdb/stats-clear", "[bridge]", 0, 1, Fdb::clear_statistics),
        ("mdb/show", "bridge", 1, 1, |fdb, arguments| fdb.groups(word(arguments, 0))),
        ("mdb/flush", "[bridge]", 0, 1, Fdb::flush_groups),
    ];
    for (name, usage, least, most, run) in all {
        let fdb = Arc::clone(&fdb);
        commands.add(name, usage, least..=most, move |arguments| run(&fdb, arguments));
    }
}

fn word(arguments: &[String], at: usize) -> &str {
    arguments.get(at).map_or("", String::as_str)
}

/// Parses the VLAN argument of `fdb/add` and `fdb/del`. The number 0, and a text that is not a 16-bit number, represent
/// untagged frames. Any other number that is not a valid VLAN ID is an error.
fn vlan(text: &str) -> Result<VlanId, String> {
    match text.parse::<u16>() {
        Err(_) | Ok(0) => Ok(UNTAGGED),
        Ok(number) => VlanId::new(number)
            .filter(|vlan| vlan.get() < UNTAGGED.get())
            .ok_or_else(|| format!("{text}: no VLAN; use 1 to {}, or 0 for none", UNTAGGED.get() - 1)),
    }
}

impl Fdb {
    fn layout(&self) -> Layout {
        self.sides.as_ref().map(|(layout, _)| layout.borrow().clone()).unwrap_or_default()
    }

    fn bridge(&self, name: &str) -> Result<BridgeState, String> {
        self.plane
            .bridges()
            .into_iter()
            .find(|bridge| bridge.name == name)
            .ok_or_else(|| NO_BRIDGE.to_owned())
    }

    /// Returns a function that converts a bridge name and a port name into the port number to print. The interface of
    /// the bridge itself is printed as `LOCAL`.
    fn number(&self) -> impl Fn(&str, &str) -> String {
        let layout = self.layout();
        let ids: BTreeMap<String, u16> =
            self.plane.ports().into_iter().map(|port| (port.name, port.id)).collect();
        move |bridge, port| {
            if layout.desired.bridges.contains_key(bridge) && bridge == port {
                return "LOCAL".to_owned();
            }
            let number = layout.number(bridge, port).or_else(|| ids.get(port).copied());
            number.map_or_else(|| "?".to_owned(), |number| number.to_string())
        }
    }

    /// Returns a function that converts a VLAN into the VLAN ID to print. The VLAN that represents untagged frames is
    /// printed as 0.
    fn shown_vlan(&self, bridge: &str) -> impl Fn(VlanId) -> u16 {
        let ours = self.layout().desired.bridges.contains_key(bridge);
        move |vlan| if ours && vlan == UNTAGGED { 0 } else { vlan.get() }
    }

    /// Returns the MAC table of a bridge as text. Each line has the port number (or `LOCAL`), the VLAN ID (0 for
    /// untagged frames), the MAC address, and the age in seconds.
    fn show(&self, bridge: &str) -> Answer {
        known_bridge(&*self.plane, bridge, NO_BRIDGE)?;
        let filter =
            FdbFilter { bridge: Some(bridge.to_owned()), limit: Some(LIMIT), ..FdbFilter::default() };
        let (number, vlan) = (self.number(), self.shown_vlan(bridge));
        let mut text = " port  VLAN  MAC                Age\n".to_owned();
        for entry in self.plane.fdb(&filter) {
            let age = if entry.is_static { "static".to_owned() } else { format!("{:3}", entry.age_s) };
            let port = number(bridge, &entry.port);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{port:>5}  {:>4}  {}  {age}", vlan(entry.vlan), entry.mac);
        }
        Ok(text)
    }

    /// Parses the arguments that identify a static MAC table entry of a bridge. Returns the entry's key, and the
    /// channel for static entries. Returns an error if the bridge is not configured by the database.
    fn entry(
        &self,
        bridge: &str,
        vid: &str,
        mac: &str,
    ) -> Result<(&watch::Sender<Stations>, StaticKey), String> {
        known_bridge(&*self.plane, bridge, NO_BRIDGE)?;
        let mac: MacAddr = mac.parse().map_err(|_| "bad MAC address".to_owned())?;
        let key = StaticKey { vlan: vlan(vid)?, mac };
        match &self.sides {
            Some((layout, stations)) if layout.borrow().desired.bridges.contains_key(bridge) => {
                Ok((stations, key))
            }
            _ => Err(format!("{bridge} is the configuration file's; write bridge.{bridge}.static there")),
        }
    }

    /// Waits until the bridge's MAC table contains the static entry `key` with the port `port`. If `port` is `None`,
    /// waits until the MAC table does not contain such a static entry.
    fn until(&self, bridge: &str, key: StaticKey, port: Option<&str>) -> Answer {
        let filter = FdbFilter {
            bridge: Some(bridge.to_owned()),
            vlan: Some(key.vlan),
            mac: Some(key.mac),
            ..FdbFilter::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let entry = self.plane.fdb(&filter).into_iter().find(|entry| entry.is_static);
            if entry.as_ref().map(|entry| entry.port.as_str()) == port {
                return Ok(String::new());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "the table is not changed within {PATIENCE:?}; look at the daemon's log"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn add_static(&self, arguments: &[String]) -> Answer {
        let (bridge, port) = (word(arguments, 0), word(arguments, 1));
        let (stations, key) = self.entry(bridge, word(arguments, 2), word(arguments, 3))?;
        if !self.bridge(bridge)?.members.iter().any(|member| member.port == port) {
            return Err("software error, odp port is present but no ofp port".to_owned());
        }
        stations.send_modify(|all| {
            all.entry(bridge.to_owned()).or_default().insert(key, port.to_owned());
        });
        self.until(bridge, key, Some(port))
    }

    fn remove_static(&self, arguments: &[String]) -> Answer {
        let bridge = word(arguments, 0);
        let (stations, key) = self.entry(bridge, word(arguments, 1), word(arguments, 2))?;
        let removed = stations.send_if_modified(|all| {
            all.get_mut(bridge).is_some_and(|entries| entries.remove(&key).is_some())
        });
        if !removed {
            return Err("could not find static mac entry".to_owned());
        }
        self.until(bridge, key, None)
    }

    fn flush(&self, arguments: &[String]) -> Answer {
        if let Some(bridge) = arguments.first() {
            known_bridge(&*self.plane, bridge, NO_BRIDGE)?;
        }
        let filter = FdbFilter { bridge: arguments.first().cloned(), ..FdbFilter::default() };
        self.plane.flush_fdb(&filter).map_err(|error| error.to_string())?;
        Ok(FLUSHED.to_owned())
    }

    fn statistics(&self, bridge: &str) -> Answer {
        let state = self.bridge(bridge)?;
        let filter = FdbFilter { bridge: Some(bridge.to_owned()), ..FdbFilter::default() };
        let fixed = self.plane.fdb(&filter).iter().filter(|entry| entry.is_static).count();
        let cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner).get(bridge).copied();
        let counts = state.counts.since(cleared.unwrap_or_default());
        Ok(format!(
            "Statistics for bridge \"{bridge}\":\n\
             \x20 Current/maximum MAC entries in the table: {}/{}\n\
             \x20 Current static MAC entries in the table : {fixed}\n\
             \x20 Total number of learned MAC entries     : {}\n\
             \x20 Total number of expired MAC entries     : {}\n\
             \x20 Total number of evicted MAC entries     : {}\n\
             \x20 Total number of port moved MAC entries  : {}\n",
            state.macs, state.mac_limit, counts.learned, counts.expired, counts.evicted, counts.moved
        ))
    }

    fn clear_statistics(&self, arguments: &[String]) -> Answer {
        if let Some(bridge) = arguments.first() {
            known_bridge(&*self.plane, bridge, NO_BRIDGE)?;
        }
        let wanted = |bridge: &BridgeState| arguments.first().is_none_or(|name| *name == bridge.name);
        let counts =
            self.plane.bridges().into_iter().filter(wanted).map(|bridge| (bridge.name, bridge.counts));
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner).extend(counts);
        Ok("statistics successfully cleared".to_owned())
    }

    fn groups(&self, bridge: &str) -> Answer {
        if !self.bridge(bridge)?.snooping {
            return Err("multicast snooping is disabled".to_owned());
        }
        let (number, vlan) = (self.number(), self.shown_vlan(bridge));
        let mut text = " port  VLAN  GROUP                Age\n".to_owned();
        // Directly after snooping was enabled, no state is available.
        let members = self.plane.multicast(bridge).unwrap_or_default();
        let (groups, routers): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.group.is_some());
        for member in groups.iter().chain(&routers) {
            let (port, vlan) = (number(bridge, &member.port), vlan(member.vlan));
            // Writing to a string cannot fail.
            let _ = match member.group {
                Some(group) => writeln!(text, "{port:>5}  {vlan:>4}  {group}         {:3}", member.age_s),
                None => writeln!(text, "{port:>5}  {vlan:>4}  querier             {:3}", member.age_s),
            };
        }
        Ok(text)
    }

    fn flush_groups(&self, arguments: &[String]) -> Answer {
        let snoops = match arguments.first() {
            Some(bridge) => vec![self.bridge(bridge)?],
            None => self.plane.bridges().into_iter().filter(|bridge| bridge.snooping).collect(),
        };
        for bridge in snoops {
            if !bridge.snooping {
                return Err("multicast snooping is disabled".to_owned());
            }
            // A bridge that has not started snooping has no groups.
            let _ = self.plane.flush_multicast(&bridge.name);
        }
        Ok(FLUSHED.to_owned())
    }
}
