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

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::{
    Bridge, BridgeName, BridgeSettings, Config, Filter, FilterName, HookPolicy, Member, Port, PortName,
    Router, RouterName, RouterPort, RouterSettings, StaticKey, SteeringName, SteeringPolicy, WhenDown,
};

/// How a changed field of the configuration takes effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The running object is changed, without interruption.
    Live,
    /// The object is removed and added again.
    Recreate,
    /// The daemon must be restarted before the change takes effect.
    Restart,
}

/// A configuration field whose old and new values differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FieldChange {
    /// Name of the field in the configuration file, such as `mtu` or `peer.mac`.
    pub field: String,
    /// Old value of the field. Empty: the field was absent.
    pub old: String,
    /// New value of the field. Empty: the field is absent.
    pub new: String,
    /// How the changed field takes effect.
    pub how: How,
}

/// One difference between two configurations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigChange {
    /// Removes a static MAC table entry.
    RemoveStatic {
        /** Name of the bridge. */
        bridge: BridgeName,
        /** Key of the entry. */
        key: StaticKey,
        /** Name of the port. */
        port: PortName,
    },
    /// Removes a port from a bridge.
    RemoveMember {
        /** Name of the bridge. */
        bridge: BridgeName,
        /** Name of the port. */
        port: PortName,
    },
    /// Removes a bridge. The members and static entries of the bridge were removed before.
    RemoveBridge {
        /** Name of the bridge. */
        name: BridgeName,
    },
    /// Removes a port after its queues have transmitted their packets.
    RemovePort {
        /** Name of the port. */
        name: PortName,
    },
    /// Adds a filter.
    AddFilter {
        /// Name of the filter to add.
        name: FilterName,
        /// Configuration of the filter to add.
        filter: Box<Filter>,
    },
    /// Changes the rules or the block list of a running filter.
    ChangeFilter {
        /// Name of the filter to change.
        name: FilterName,
        /// New configuration of the filter.
        filter: Box<Filter>,
        /// Rules and settings of the filter that differ.
        fields: Vec<FieldChange>,
    },
    /// Removes a filter, which no port uses after the earlier changes.
    RemoveFilter {
        /** Name of the filter. */
        name: FilterName,
    },
    /// Adds a steering policy.
    AddSteering {
        /// Name of the steering policy to add.
        name: SteeringName,
        /// Configuration of the steering policy to add.
        steering: Box<SteeringPolicy>,
    },
    /// Changes the exact-match flow entries, the indirection table or the sizes of a running steering policy.
    ChangeSteering {
        /// Name of the steering policy to change.
        name: SteeringName,
        /// New configuration of the steering policy.
        steering: Box<SteeringPolicy>,
        /// Flow entries and settings of the steering policy that differ.
        fields: Vec<FieldChange>,
    },
    /// Removes a steering policy, which no port uses after the earlier changes.
    RemoveSteering {
        /** Name of the steering policy. */
        name: SteeringName,
    },
    /// Adds a port.
    AddPort {
        /// Name of the port to add.
        name: PortName,
        /// Configuration of the port to add.
        port: Box<Port>,
        /// Fields whose change required that the port was removed first. Empty for a new port.
        recreated: Vec<FieldChange>,
    },
    /// Changes a running port.
    ChangePort {
        /// Name of the port to change.
        name: PortName,
        /// New configuration of the port.
        port: Box<Port>,
        /// Fields of the port that differ. All changes are applied while the port runs.
        fields: Vec<FieldChange>,
    },
    /// Changes what the hook (XDP program) of a port does with packets while no daemon runs, because the bridge
    /// membership of the port has changed.
    ChangeHookPolicy {
        /** Name of the port. */
        port: PortName,
        /** New policy of the hook. */
        policy: HookPolicy,
    },
    /// Adds a bridge without members.
    AddBridge {
        /** Name of the bridge. */
        name: BridgeName,
        /** Settings of the bridge. */
        settings: BridgeSettings,
    },
    /// Changes the settings of a running bridge.
    ChangeBridge {
        /// Name of the bridge to change.
        name: BridgeName,
        /// New settings of the bridge.
        settings: BridgeSettings,
        /// Settings of the bridge that differ.
        fields: Vec<FieldChange>,
    },
    /// Adds a port to a bridge.
    AddMember {
        /** Name of the bridge. */
        bridge: BridgeName,
        /** Name of the port. */
        port: PortName,
        /** Settings of the member. */
        member: Member,
    },
    /// Changes the settings of a member of a bridge.
    ChangeMember {
        /// Name of the bridge of which the port is a member.
        bridge: BridgeName,
        /// Name of the port that is a member.
        port: PortName,
        /// New settings of the bridge member.
        member: Member,
        /// Settings of the bridge member that differ.
        fields: Vec<FieldChange>,
    },
    /// Adds a static MAC table entry, or moves it to another port.
    SetStatic {
        /** Name of the bridge. */
        bridge: BridgeName,
        /** Key of the entry. */
        key: StaticKey,
        /** Name of the port. */
        port: PortName,
    },
    /// Removes an interface from a router.
    RemoveRouterPort {
        /** Name of the router. */
        router: RouterName,
        /** Name of the port. */
        port: PortName,
    },
    /// Removes a router. The interfaces of the router were removed before.
    RemoveRouter {
        /** Name of the router. */
        name: RouterName,
    },
    /// Adds a router without interfaces.
    AddRouter {
        /// Name of the router to add.
        name: RouterName,
        /// Settings of the router to add.
        settings: RouterSettings,
        /// Fields whose change required that the router was removed first. Empty for a new router.
        recreated: Vec<FieldChange>,
    },
    /// Changes the settings of a running router.
    ChangeRouter {
        /// Name of the router to change.
        name: RouterName,
        /// New settings of the router.
        settings: RouterSettings,
        /// Settings of the router that differ.
        fields: Vec<FieldChange>,
    },
    /// Adds a port to a router as an interface.
    AddRouterPort {
        /** Name of the router. */
        router: RouterName,
        /** Name of the port. */
        port: PortName,
        /** Settings of the interface. */
        settings: RouterPort,
    },
    /// Changes the settings of a router's interface.
    ChangeRouterPort {
        /// Name of the router to which the interface belongs.
        router: RouterName,
        /// Name of the port that is the interface.
        port: PortName,
        /// New settings of the router interface.
        settings: RouterPort,
        /// Settings of the router interface that differ.
        fields: Vec<FieldChange>,
    },
    /// Reports a changed setting of `daemon`, `engine`, `memory` or `ovsdb` that takes effect after a
    /// restart.
    NeedsRestart(FieldChange),
}

/// Differences between two configurations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigDiff {
    /// Changes that lead from the old configuration to the new one, in an order in which they could be applied one by
    /// one.
    pub changes: Vec<ConfigChange>,
}

impl ConfigDiff {
    /// Returns whether the two configurations are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the changed settings that take effect after a restart of the daemon.
    pub fn needs_restart(&self) -> impl Iterator<Item = &FieldChange> {
        self.changes.iter().filter_map(|change| match change {
            ConfigChange::NeedsRestart(change) => Some(change),
            _ => None,
        })
    }
}

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
    removals(old, new, &gone, &mut changes);
    router_removals(old, new, &gone, &moved, &mut changes);
    changes.extend(gone.iter().map(|name| ConfigChange::RemovePort { name: (*name).clone() }));
    filters(old, new, &mut changes);
    steering(old, new, &mut changes);
    ports(old, new, &recreated, &mut changes);
    bridges(old, new, &gone, &mut changes);
    routers(old, new, &gone, &moved, &mut changes);
    let unused = old.filters.keys().filter(|name| !new.filters.contains_key(*name));
    changes.extend(unused.map(|name| ConfigChange::RemoveFilter { name: name.clone() }));
    let unused = old.steering.keys().filter(|name| !new.steering.contains_key(*name));
    changes.extend(unused.map(|name| ConfigChange::RemoveSteering { name: name.clone() }));
    settings(old, new, &mut changes);
    ConfigDiff { changes }
}

fn removals(old: &Config, new: &Config, gone: &BTreeSet<&PortName>, changes: &mut Vec<ConfigChange>) {
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

fn filters(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    for (name, filter) in &new.filters {
        let (before, name, boxed) = (old.filters.get(name), name.clone(), Box::new(filter.clone()));
        match before {
            None => changes.push(ConfigChange::AddFilter { name, filter: boxed }),
            Some(before) if before != filter => {
                let fields = filter_changes(before, filter);
                changes.push(ConfigChange::ChangeFilter { name, filter: boxed, fields });
            }
            Some(_) => {}
        }
    }
}

fn steering(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    for (name, steering) in &new.steering {
        let (before, name, boxed) = (old.steering.get(name), name.clone(), Box::new(steering.clone()));
        match before {
            None => changes.push(ConfigChange::AddSteering { name, steering: boxed }),
            Some(before) if before != steering => {
                let fields = steering_changes(before, steering);
                changes.push(ConfigChange::ChangeSteering { name, steering: boxed, fields });
            }
            Some(_) => {}
        }
    }
}

/// Returns the differences between two steering policies, one entry for each exact-match flow entry or
/// setting that differs.
fn steering_changes(old: &SteeringPolicy, new: &SteeringPolicy) -> Vec<FieldChange> {
    let bare = |steering: &SteeringPolicy| SteeringPolicy { flows: Vec::new(), ..steering.clone() };
    let mut changes = fields(&bare(old), &bare(new), |_| How::Live);
    let by_key = |steering: &SteeringPolicy| -> BTreeMap<_, _> {
        steering.flows.iter().map(|flow| (flow.key, (flow.to, flow.mark))).collect()
    };
    let (before, after) = (by_key(old), by_key(new));
    let text = |flow: Option<&(crate::SteeringTarget, u32)>, none: &str| match flow {
        None => none.to_owned(),
        Some((to, 0)) => to.to_string(),
        Some((to, mark)) => format!("{to} with mark {mark:#x}"),
    };
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            let (old, new) = (text(old, "none"), text(new, "removed"));
            changes.push(FieldChange { field: format!("flow {key}"), old, new, how: How::Live });
        }
    }
    if changes.is_empty() {
        let order = |steering: &SteeringPolicy| format!("{} flows", steering.flows.len());
        let field = "the order of flows".to_owned();
        changes.push(FieldChange { field, old: order(old), new: order(new), how: How::Live });
    }
    changes
}

/// Returns the differences between two filters, one entry for each rule or setting that differs.
fn filter_changes(old: &Filter, new: &Filter) -> Vec<FieldChange> {
    let live = |field: String, old: String, new: String| FieldChange { field, old, new, how: How::Live };
    let mut changes = Vec::new();
    if old.blocklist != new.blocklist {
        let text = |filter: &Filter| {
            filter.blocklist.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
        };
        changes.push(live("blocklist".to_owned(), text(old), text(new)));
    }
    if old.unreadable != new.unreadable {
        let text = |filter: &Filter| filter.unreadable.name().to_owned();
        changes.push(live("unreadable".to_owned(), text(old), text(new)));
    }
    let find = |filter: &Filter, name| filter.rules.iter().find(|rule| rule.name == name).cloned();
    for rule in &old.rules {
        match find(new, rule.name.clone()) {
            None => {
                let action = rule.action.name().to_owned();
                changes.push(live(format!("rule.{}", rule.name), action, "removed".to_owned()));
            }
            Some(after) => {
                let prefix = format!("rule.{}", rule.name);
                changes.extend(prefixed(&prefix, fields(rule, &after, |_| How::Live)));
            }
        }
    }
    for rule in new.rules.iter().filter(|rule| find(old, rule.name.clone()).is_none()) {
        let action = rule.action.name().to_owned();
        changes.push(live(format!("rule.{}", rule.name), "none".to_owned(), action));
    }
    if changes.is_empty() {
        let order = |filter: &Filter| {
            filter.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        changes.push(live("the order of rules".to_owned(), order(old), order(new)));
    }
    changes
}

fn ports(
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

fn bridges(old: &Config, new: &Config, gone: &BTreeSet<&PortName>, changes: &mut Vec<ConfigChange>) {
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

fn router_removals(
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

fn routers(
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
fn router_changes(old: &Router, new: &Router) -> Vec<FieldChange> {
    fields(&old.settings, &new.settings, |field| match field {
        "namespace" => How::Recreate,
        _ => How::Live,
    })
}

fn settings(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    let mut all = Vec::new();
    all.extend(prefixed("daemon", fields(&old.daemon, &new.daemon, |_| How::Restart)));
    all.extend(prefixed("engine", fields(&old.engine, &new.engine, |_| How::Restart)));
    all.extend(prefixed("memory", fields(&old.memory, &new.memory, |_| How::Restart)));
    all.extend(prefixed("ovsdb", fields(&old.ovsdb, &new.ovsdb, |_| How::Restart)));
    changes.extend(all.into_iter().map(ConfigChange::NeedsRestart));
}

fn prefixed(prefix: &str, fields: Vec<FieldChange>) -> impl Iterator<Item = FieldChange> + '_ {
    fields
        .into_iter()
        .map(move |change| FieldChange { field: format!("{prefix}.{}", change.field), ..change })
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

/// Returns the fields that differ between two values of one type, with the field names of the
/// configuration file. `how` determines, by the name of a field, how a change of the field takes
/// effect.
fn fields<T: Serialize + PartialEq>(old: &T, new: &T, how: impl Fn(&str) -> How) -> Vec<FieldChange> {
    if old == new {
        return Vec::new();
    }
    let (old, new) = (flat(old), flat(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changes = names.into_iter().filter(|name| old.get(*name) != new.get(*name)).map(|name| FieldChange {
        field: name.clone(),
        old: old.get(name).cloned().unwrap_or_default(),
        new: new.get(name).cloned().unwrap_or_default(),
        how: how(name),
    });
    changes.collect()
}

fn flat<T: Serialize>(value: &T) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    flatten("", &serde_json::to_value(value).unwrap_or_default(), &mut all);
    all
}

fn flatten(name: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, all);
            }
        }
        other => drop(all.insert(name.to_owned(), other.to_string())),
    }
}

impl std::fmt::Display for WhenDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WhenDown::Drop => "drop",
            WhenDown::Pass => "pass",
        })
    }
}
