//! Differences between the bridges of two configurations.

use std::collections::BTreeSet;

use crate::diff::change::{ConfigChange, How, fields};
use crate::{Bridge, Config, PortName};

pub(crate) fn removals(
    old: &Config,
    new: &Config,
    gone: &BTreeSet<&PortName>,
    changes: &mut Vec<ConfigChange>,
) {
    let kept = |name, port: &PortName| {
        let bridge: Option<&Bridge> = new.bridges.get(name);
        bridge.filter(|_| !gone.contains(port))
    };
    for (name, bridge) in &old.bridges {
        for (key, port) in &bridge.statics {
            // An entry that only moves is set again without removal, so that no frames are flooded in
            // between. An entry whose port is removed or leaves the bridge is removed first.
            let stays = kept(name, port)
                .is_some_and(|bridge| bridge.ports.contains_key(port) && bridge.statics.contains_key(key));
            if !stays {
                changes.push(ConfigChange::RemoveStatic {
                    bridge: name.clone(),
                    key: *key,
                    port: port.clone(),
                });
            }
        }
    }
    for (name, bridge) in &old.bridges {
        for port in bridge.ports.keys() {
            if !kept(name, port).is_some_and(|bridge| bridge.ports.contains_key(port)) {
                changes.push(ConfigChange::RemoveMember { bridge: name.clone(), port: port.clone() });
            }
        }
    }
    let bridges = old.bridges.keys().filter(|name| !new.bridges.contains_key(*name));
    changes.extend(bridges.map(|name| ConfigChange::RemoveBridge { name: name.clone() }));
}

pub(crate) fn bridges(
    old: &Config,
    new: &Config,
    gone: &BTreeSet<&PortName>,
    changes: &mut Vec<ConfigChange>,
) {
    for (name, bridge) in &new.bridges {
        let settings = bridge.settings.clone();
        match old.bridges.get(name).map(|bridge| fields(&bridge.settings, &settings, |_| How::Live)) {
            None => changes.push(ConfigChange::AddBridge { name: name.clone(), settings }),
            Some(fields) if !fields.is_empty() => {
                changes.push(ConfigChange::ChangeBridge { name: name.clone(), settings, fields });
            }
            Some(_) => {}
        }
    }
    for (name, bridge) in &new.bridges {
        let before = old.bridges.get(name);
        for (port, member) in &bridge.ports {
            let before = before.and_then(|bridge| bridge.ports.get(port)).filter(|_| !gone.contains(port));
            let (bridge, port, member) = (name.clone(), port.clone(), member.clone());
            match before.map(|before| fields(before, &member, |_| How::Live)) {
                None => changes.push(ConfigChange::AddMember { bridge, port, member }),
                Some(fields) if !fields.is_empty() => {
                    changes.push(ConfigChange::ChangeMember { bridge, port, member, fields });
                }
                Some(_) => {}
            }
        }
    }
    for (name, bridge) in &new.bridges {
        let before = old.bridges.get(name);
        for (key, port) in &bridge.statics {
            let same =
                before.and_then(|bridge| bridge.statics.get(key)) == Some(port) && !gone.contains(port);
            if !same {
                changes.push(ConfigChange::SetStatic { bridge: name.clone(), key: *key, port: port.clone() });
            }
        }
    }
}
