//! Differences between the virtual routers of two configurations.

use std::collections::{BTreeMap, BTreeSet};

use crate::diff::change::{ConfigChange, FieldChange, How, fields};
use crate::{Config, PortName, Router, RouterName};

pub(crate) fn removals(
    old: &Config,
    new: &Config,
    gone: &BTreeSet<&PortName>,
    moved: &BTreeMap<&RouterName, Vec<FieldChange>>,
    changes: &mut Vec<ConfigChange>,
) {
    let kept = |name: &RouterName| new.routers.get(name).filter(|_| !moved.contains_key(name));
    for (name, router) in &old.routers {
        let stays = |port: &PortName| {
            kept(name).is_some_and(|router| router.ports.contains_key(port) && !gone.contains(port))
        };
        let leaving = router.ports.keys().filter(|port| !stays(port)).cloned();
        changes.extend(leaving.map(|port| ConfigChange::RemoveRouterPort { router: name.clone(), port }));
    }
    let leaving = old.routers.keys().filter(|name| kept(name).is_none());
    changes.extend(leaving.map(|name| ConfigChange::RemoveRouter { name: name.clone() }));
}

pub(crate) fn routers(
    old: &Config,
    new: &Config,
    gone: &BTreeSet<&PortName>,
    moved: &BTreeMap<&RouterName, Vec<FieldChange>>,
    changes: &mut Vec<ConfigChange>,
) {
    let stayed = |name: &RouterName| old.routers.get(name).filter(|_| !moved.contains_key(name));
    for (name, router) in &new.routers {
        let (name, settings) = (name.clone(), router.settings.clone());
        match stayed(&name).map(|before| router_changes(before, router)) {
            None => {
                let recreated = moved.get(&name).cloned().unwrap_or_default();
                changes.push(ConfigChange::AddRouter { name, settings, recreated });
            }
            Some(fields) if !fields.is_empty() => {
                changes.push(ConfigChange::ChangeRouter { name, settings, fields });
            }
            Some(_) => {}
        }
    }
    for (name, router) in &new.routers {
        let before = stayed(name);
        for (port, settings) in &router.ports {
            let before = before.and_then(|router| router.ports.get(port)).filter(|_| !gone.contains(port));
            let (router, port, settings) = (name.clone(), port.clone(), settings.clone());
            match before.map(|before| fields(before, &settings, |_| How::Live)) {
                None => changes.push(ConfigChange::AddRouterPort { router, port, settings }),
                Some(fields) if !fields.is_empty() => {
                    changes.push(ConfigChange::ChangeRouterPort { router, port, settings, fields });
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns the settings that differ between two versions of a router. A change of the namespace requires a new router,
/// because all state of a router depends on its namespace.
pub(crate) fn router_changes(old: &Router, new: &Router) -> Vec<FieldChange> {
    fields(&old.settings, &new.settings, |field| match field {
        "namespace" => How::Recreate,
        _ => How::Live,
    })
}
