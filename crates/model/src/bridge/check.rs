//! Checks of the bridges in a configuration: the references and settings of their members, their static MAC table
//! entries, and the Unix sockets of their OpenFlow listeners.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::references::{exists, no_such_port};
use crate::{Bridge, BridgeName, Cause, Config, FileAccess, PortName, Problem, unix_socket};

pub(crate) fn members<'a>(
    config: &Config,
    name: &'a BridgeName,
    bridge: &'a Bridge,
    declared: &BTreeSet<String>,
    homes: &mut BTreeMap<&'a PortName, &'a BridgeName>,
    problems: &mut Vec<Problem>,
) {
    let mut numbers = BTreeMap::new();
    for (port, member) in &bridge.ports {
        let object = format!("bridge.{name}.port.{port}");
        if let Some(number) = member.number
            && let Some(other) = numbers.insert(number, port)
        {
            let cause = Cause::NumberTaken { number, other: other.to_string() };
            problems.push(Problem::new(format!("{object}.number"), cause));
        }
        if !exists(config, declared, port) {
            let cause = no_such_port(config, port, problems.len());
            problems.push(Problem::new(object.clone(), cause));
        }
        if let Some(other) = homes.insert(port, name) {
            let cause = Cause::TwoBridges { port: port.to_string(), other: other.to_string() };
            problems.push(Problem::new(object.clone(), cause));
        }
        let bridge_limit = bridge.settings.mac_limit;
        if let Some(limit) = member.mac_limit.filter(|limit| *limit > bridge_limit) {
            let cause = Cause::LimitAboveBridge { limit, bridge: bridge_limit };
            problems.push(Problem::new(format!("{object}.mac_limit"), cause));
        }
        let storm = member.storm;
        let rates =
            [("broadcast", storm.broadcast), ("multicast", storm.multicast), ("unknown", storm.unknown)];
        for (key, _) in rates.iter().filter(|(_, rate)| *rate == Some(0)) {
            problems.push(Problem::new(format!("{object}.storm.{key}"), Cause::ZeroStorm));
        }
    }
    let members = bridge.ports.len();
    if members > 1 && bridge.ports.values().all(|member| member.protected) {
        problems.push(Problem::new(format!("bridge.{name}.port"), Cause::AllProtected { members }).warning());
    }
}

/// Checks that no OpenFlow listener of the bridge uses a Unix socket of the daemon itself.
pub(crate) fn listeners(config: &Config, name: &BridgeName, bridge: &Bridge, problems: &mut Vec<Problem>) {
    let controllers = bridge.settings.openflow.iter().flat_map(|openflow| &openflow.controllers);
    for controller in controllers {
        if let Some((FileAccess::Listen, path)) = unix_socket(&controller.target)
            && let Some(field) = config.reserves_socket(path)
        {
            let cause = Cause::ReservedSocket { target: controller.target.clone(), field };
            problems.push(Problem::new(format!("bridge.{name}.openflow.controllers"), cause));
        }
    }
}

pub(crate) fn static_entries(
    config: &Config,
    name: &BridgeName,
    bridge: &Bridge,
    declared: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) {
    for (key, port) in &bridge.statics {
        let cause = match bridge.ports.get(port) {
            None if exists(config, declared, port) => Cause::NotAMember { port: port.to_string() },
            None => no_such_port(config, port, problems.len()),
            Some(member) if !member.vlans.carries(key.vlan) => {
                Cause::VlanNotCarried { port: port.to_string(), vlan: key.vlan }
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(format!("bridge.{name}.static.{key}"), cause));
    }
    let (count, limit) = (bridge.statics.len(), bridge.settings.mac_limit as usize);
    if count > limit {
        let object = format!("bridge.{name}.static");
        problems.push(Problem::new(object, Cause::TooMany { what: "static entries", count, limit }));
    }
}
