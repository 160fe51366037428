//! Computes the differences between two configurations, for output by the API and the commands. The data plane does not
//! apply these differences, but compares its ports, bridges and routers with the new configuration itself. The
//! differences are in an order in which they could be applied one by one.
//!
//! The order is:
//!
//! 1. removals of static entries, members, bridges, router interfaces, routers and ports;
//! 2. additions and changes of filters and steering policies;
//! 3. additions and changes of ports, of bridges with their members and static entries, and of routers with
//!    their interfaces;
//! 4. removals of filters and steering policies, which no port references after step 3.
//!
//! A port whose change requires a new device is removed and added, together with its membership or interface.
//! A router whose namespace changes is removed and added with its interfaces. Every other change is made
//! while the object runs. Objects that are equal in both configurations do not appear.

pub(crate) mod change;

use std::collections::{BTreeMap, BTreeSet};

use change::{ConfigChange, ConfigDiff, FieldChange, How, fields, prefixed};

use crate::port::diff::port_changes;
use crate::router::diff::router_changes;
use crate::{Config, PortName, RouterName, bridge, filter, port, router, steering};

/// Returns the changes that lead from `old` to `new`.
pub fn diff(old: &Config, new: &Config) -> ConfigDiff {
    let recreated: BTreeMap<&PortName, Vec<FieldChange>> = old
        .ports
        .iter()
        .filter_map(|(name, port)| Some((name, port_changes(port, new.ports.get(name)?))))
        .filter(|(_, fields)| fields.iter().any(|field| field.how == How::Recreate))
        .collect();
    let gone: BTreeSet<&PortName> = old
        .ports
        .keys()
        .filter(|name| !new.ports.contains_key(*name) || recreated.contains_key(name))
        .collect();
    let moved: BTreeMap<&RouterName, Vec<FieldChange>> = old
        .routers
        .iter()
        .filter_map(|(name, router)| Some((name, router_changes(router, new.routers.get(name)?))))
        .filter(|(_, fields)| fields.iter().any(|field| field.how == How::Recreate))
        .collect();
    let mut changes = Vec::new();
    bridge::diff::removals(old, new, &gone, &mut changes);
    router::diff::removals(old, new, &gone, &moved, &mut changes);
    changes.extend(gone.iter().map(|name| ConfigChange::RemovePort { name: (*name).clone() }));
    filter::diff::filters(old, new, &mut changes);
    steering::diff::policies(old, new, &mut changes);
    port::diff::ports(old, new, &recreated, &mut changes);
    bridge::diff::bridges(old, new, &gone, &mut changes);
    router::diff::routers(old, new, &gone, &moved, &mut changes);
    let unused = old.filters.keys().filter(|name| !new.filters.contains_key(*name));
    changes.extend(unused.map(|name| ConfigChange::RemoveFilter { name: name.clone() }));
    let unused = old.steering.keys().filter(|name| !new.steering.contains_key(*name));
    changes.extend(unused.map(|name| ConfigChange::RemoveSteering { name: name.clone() }));
    settings(old, new, &mut changes);
    ConfigDiff { changes }
}

fn settings(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    let mut all = Vec::new();
    all.extend(prefixed("daemon", fields(&old.daemon, &new.daemon, |_| How::Restart)));
    all.extend(prefixed("engine", fields(&old.engine, &new.engine, |_| How::Restart)));
    all.extend(prefixed("memory", fields(&old.memory, &new.memory, |_| How::Restart)));
    all.extend(prefixed("ovsdb", fields(&old.ovsdb, &new.ovsdb, |_| How::Restart)));
    changes.extend(all.into_iter().map(ConfigChange::NeedsRestart));
}
