//! Differences between two configurations, as values.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::{
    BridgeName, BridgeSettings, Filter, FilterName, HookPolicy, Member, Port, PortName, RouterName,
    RouterPort, RouterSettings, StaticKey, SteeringName, SteeringPolicy,
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

pub(crate) fn prefixed(prefix: &str, fields: Vec<FieldChange>) -> impl Iterator<Item = FieldChange> + '_ {
    fields
        .into_iter()
        .map(move |change| FieldChange { field: format!("{prefix}.{}", change.field), ..change })
}

/// Returns the fields that differ between two values of one type, with the field names of the
/// configuration file. `how` determines, by the name of a field, how a change of the field takes
/// effect.
pub(crate) fn fields<T: Serialize + PartialEq>(
    old: &T,
    new: &T,
    how: impl Fn(&str) -> How,
) -> Vec<FieldChange> {
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
