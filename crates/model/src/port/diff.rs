//! Differences between the ports of two configurations.

use std::collections::BTreeMap;

use crate::diff::change::{ConfigChange, FieldChange, How, fields};
use crate::{Config, Port, PortName};

pub(crate) fn ports(
    old: &Config,
    new: &Config,
    recreated: &BTreeMap<&PortName, Vec<FieldChange>>,
    changes: &mut Vec<ConfigChange>,
) {
    for (name, port) in &new.ports {
        let fields = recreated.get(name);
        match old.ports.get(name) {
            Some(before) if fields.is_none() => {
                let fields = port_changes(before, port);
                if !fields.is_empty() {
                    let port = Box::new(port.clone());
                    changes.push(ConfigChange::ChangePort { name: name.clone(), port, fields });
                } else if let (Some(was), Some(policy)) =
                    (old.hook_policy(name.as_str()), new.hook_policy(name.as_str()))
                    && was != policy
                {
                    changes.push(ConfigChange::ChangeHookPolicy { port: name.clone(), policy });
                }
            }
            _ => {
                let recreated = fields.cloned().unwrap_or_default();
                changes.push(ConfigChange::AddPort {
                    name: name.clone(),
                    port: Box::new(port.clone()),
                    recreated,
                });
            }
        }
    }
}

/// Returns whether a change of a port from `old` to `new` requires that the port is removed and added.
#[must_use]
pub fn is_recreated(old: &Port, new: &Port) -> bool {
    old != new && port_changes(old, new).iter().any(|field| field.how == How::Recreate)
}

/// Returns the fields that differ between two versions of a port, and how each change takes effect.
pub(crate) fn port_changes(old: &Port, new: &Port) -> Vec<FieldChange> {
    // Without a device, the MTU before the change is not known.
    let mtu = if new.mtu.is_some() || new.kind.device().is_some() { How::Live } else { How::Recreate };
    fields(old, new, |field| match field {
        "admin" | "software_rss" | "workers" | "filter" => How::Live,
        "mtu" => mtu,
        key if new.kind.settings().changes_live(key) => How::Live,
        _ => How::Recreate,
    })
}
