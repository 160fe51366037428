//! Layers of the configuration. The objects of each owner (the configuration file, the API, OVSDB or the kernel) form a
//! layer. All layers together form the configuration.
//!
//! An object belongs to the owner that created it, and only requests of this owner change or remove it. Applying a
//! configuration file therefore never removes objects of the API. An API request to change an object of the file is
//! refused, and the refusal names the owner.

use std::collections::BTreeMap;
use std::fmt;

use crate::check::{ObjectCount, object_counts};
use crate::{
    Bridge, BridgeName, BridgeSettings, Config, Filter, FilterName, Member, Owner, Port, PortName, Router,
    RouterName, RouterPort, RouterSettings, RuleName, StaticKey, SteeringName, SteeringPolicy,
};

/// Key of a configuration object. Each object has one owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKey {
    /// Key of a filter.
    Filter(FilterName),
    /// Key of a steering policy.
    Steering(SteeringName),
    /// Key of a port.
    Port(PortName),
    /// Key of a bridge without its members.
    Bridge(BridgeName),
    /// Key of a port's membership of a bridge.
    Member(BridgeName, PortName),
    /// Key of a static MAC table entry of a bridge.
    Static(BridgeName, StaticKey),
    /// Key of a virtual router without its interfaces.
    Router(RouterName),
    /// Key of a port as an interface of a router.
    RouterPort(RouterName, PortName),
}

/// Formats the key in the form in which problem messages name the object: `filter.edge`, `steering.spread`,
/// `port.web1`, `bridge.br0`, `bridge.br0.port.web1`, `bridge.br0.static.02:00:00:00:00:01,10`, `router.edge`,
/// `router.edge.port.left`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectKey::Filter(filter) => write!(f, "filter.{filter}"),
            ObjectKey::Steering(steering) => write!(f, "steering.{steering}"),
            ObjectKey::Port(port) => write!(f, "port.{port}"),
            ObjectKey::Bridge(bridge) => write!(f, "bridge.{bridge}"),
            ObjectKey::Member(bridge, port) => write!(f, "bridge.{bridge}.port.{port}"),
            ObjectKey::Static(bridge, key) => write!(f, "bridge.{bridge}.static.{key}"),
            ObjectKey::Router(router) => write!(f, "router.{router}"),
            ObjectKey::RouterPort(router, port) => write!(f, "router.{router}.port.{port}"),
        }
    }
}

/// Creation, replacement or removal of one configuration object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates or replaces a filter.
    PutFilter(FilterName, Filter),
    /// Creates or replaces a steering policy.
    PutSteering(SteeringName, SteeringPolicy),
    /// Creates or replaces a port.
    PutPort(PortName, Port),
    /// Creates a bridge or replaces its settings.
    PutBridge(BridgeName, BridgeSettings),
    /// Adds a port to a bridge, or replaces the settings of the membership.
    PutMember(BridgeName, PortName, Member),
    /// Creates or replaces a static MAC table entry.
    PutStatic(BridgeName, StaticKey, PortName),
    /// Creates a virtual router or replaces its settings.
    PutRouter(RouterName, RouterSettings),
    /// Adds a port to a router as an interface, or replaces the settings of the interface.
    PutRouterPort(RouterName, PortName, RouterPort),
    /// Removes the object with this key.
    Remove(ObjectKey),
}

impl Change {
    /// Returns the key of the changed object.
    pub fn object(&self) -> ObjectKey {
        match self {
            Change::PutFilter(filter, _) => ObjectKey::Filter(filter.clone()),
            Change::PutSteering(steering, _) => ObjectKey::Steering(steering.clone()),
            Change::PutPort(port, _) => ObjectKey::Port(port.clone()),
            Change::PutBridge(bridge, _) => ObjectKey::Bridge(bridge.clone()),
            Change::PutMember(bridge, port, _) => ObjectKey::Member(bridge.clone(), port.clone()),
            Change::PutStatic(bridge, key, _) => ObjectKey::Static(bridge.clone(), *key),
            Change::PutRouter(router, _) => ObjectKey::Router(router.clone()),
            Change::PutRouterPort(router, port, _) => ObjectKey::RouterPort(router.clone(), port.clone()),
            Change::Remove(object) => object.clone(),
        }
    }
}

/// Reason why a configuration, or a change that an owner requests, is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The object belongs to another owner.
    #[error("{object}: it belongs to {owner}, and {wanted} wants to change it; {}", fix_for(*owner))]
    Owned {
        /// Key of the object of the other owner.
        object: ObjectKey,
        /// Owner of the object. Only this owner may change the object.
        owner: Owner,
        /// Owner that requested the change.
        wanted: Owner,
    },
    /// The object to be removed does not exist.
    #[error("{object}: there is no such object; look at the names with `trivium show config`")]
    Unknown {
        /// Key of the object that does not exist.
        object: ObjectKey,
    },
    /// The bridge of a member or static entry does not exist.
    #[error("{object}: there is no bridge `{bridge}`; make the bridge first")]
    NoBridge {
        /// Key of the member or static entry.
        object: ObjectKey,
        /// Name of the bridge that does not exist.
        bridge: BridgeName,
    },
    /// The router to which an interface belongs does not exist.
    #[error("{object}: there is no router `{router}`; make the router first")]
    NoRouter {
        /// Key of the router interface.
        object: ObjectKey,
        /// Name of the router that does not exist.
        router: RouterName,
    },
    /// The filter does not contain the rule that a request names.
    #[error("{object}: there is no rule `{rule}`; look at the names with `trivium show filters`")]
    NoRule {
        /// Key of the filter that lacks the rule.
        object: ObjectKey,
        /// Name of the rule that does not exist.
        rule: RuleName,
    },
    /// The new object would exceed the maximum number of objects of its type.
    #[error("{object}: there are {limit} {what} already, and more are not possible; {}", too_many_fix(what))]
    TooMany {
        /// Key of the new object that would exceed the maximum.
        object: ObjectKey,
        /// Name of the type of the object, in the plural.
        what: &'static str,
        /// Maximum number of objects of this type.
        limit: usize,
    },
}

impl Refusal {
    /// Returns the key of the refused object.
    pub fn object(&self) -> &ObjectKey {
        match self {
            Refusal::Owned { object, .. }
            | Refusal::Unknown { object }
            | Refusal::NoBridge { object, .. }
            | Refusal::NoRouter { object, .. }
            | Refusal::NoRule { object, .. }
            | Refusal::TooMany { object, .. } => object,
        }
    }

    /// Returns the cause of the refusal as text, without the name of the object and without the remedy.
    pub fn cause(&self) -> String {
        match self {
            Refusal::Owned { owner, wanted, .. } => {
                format!("it belongs to {owner}, and {wanted} wants to change it")
            }
            Refusal::Unknown { .. } => "there is no such object".to_owned(),
            Refusal::NoBridge { bridge, .. } => format!("there is no bridge `{bridge}`"),
            Refusal::NoRouter { router, .. } => format!("there is no router `{router}`"),
            Refusal::NoRule { rule, .. } => format!("there is no rule `{rule}`"),
            Refusal::TooMany { what, limit, .. } => {
                format!("there are {limit} {what} already, and more are not possible")
            }
        }
    }

    /// Returns the remedy for the cause of the refusal.
    pub fn fix(&self) -> String {
        match self {
            Refusal::Owned { owner, .. } => fix_for(*owner).to_owned(),
            Refusal::Unknown { .. } => "look at the names with `trivium show config`".to_owned(),
            Refusal::NoBridge { .. } => "make the bridge first".to_owned(),
            Refusal::NoRouter { .. } => "make the router first".to_owned(),
            Refusal::NoRule { .. } => "look at the names with `trivium show filters`".to_owned(),
            Refusal::TooMany { what, .. } => too_many_fix(what),
        }
    }
}

fn too_many_fix(what: &str) -> String {
    format!("remove one of the {what} first")
}

fn fix_for(owner: Owner) -> &'static str {
    match owner {
        Owner::File => "change it in the file and apply that",
        Owner::Api => "remove it by the API first, or leave it out",
        Owner::Ovsdb => "change it with ovs-vsctl",
        Owner::Netlink => "change it with ip",
    }
}

/// Configuration objects that belong to one owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fragment {
    /// Filters by name.
    pub filters: BTreeMap<FilterName, Filter>,
    /// Steering policies by name.
    pub steering: BTreeMap<SteeringName, SteeringPolicy>,
    /// Ports by name.
    pub ports: BTreeMap<PortName, Port>,
    /// Bridges by name, without members.
    pub bridges: BTreeMap<BridgeName, BridgeSettings>,
    /// Members of bridges, by the names of bridge and port. The bridge may belong to another owner.
    pub members: BTreeMap<(BridgeName, PortName), Member>,
    /// Port of each static MAC table entry, by the name of the bridge and the key of the entry. The bridge may belong
    /// to another owner.
    pub statics: BTreeMap<(BridgeName, StaticKey), PortName>,
    /// Virtual routers by name, without interfaces.
    pub routers: BTreeMap<RouterName, RouterSettings>,
    /// Interfaces of routers, by the names of router and port. The router may belong to another owner.
    pub router_ports: BTreeMap<(RouterName, PortName), RouterPort>,
}

impl From<&Config> for Fragment {
    fn from(config: &Config) -> Self {
        let (filters, policies, ports) =
            (config.filters.clone(), config.steering.clone(), config.ports.clone());
        let mut fragment = Fragment { filters, steering: policies, ports, ..Fragment::default() };
        for (name, bridge) in &config.bridges {
            fragment.bridges.insert(name.clone(), bridge.settings.clone());
            let members =
                bridge.ports.iter().map(|(port, member)| ((name.clone(), port.clone()), member.clone()));
            fragment.members.extend(members);
            fragment
                .statics
                .extend(bridge.statics.iter().map(|(key, port)| ((name.clone(), *key), port.clone())));
        }
        for (name, router) in &config.routers {
            fragment.routers.insert(name.clone(), router.settings.clone());
            let ports =
                router.ports.iter().map(|(port, value)| ((name.clone(), port.clone()), value.clone()));
            fragment.router_ports.extend(ports);
        }
        fragment
    }
}

impl Fragment {
    /// Returns the keys of all objects in the fragment (the objects of one owner).
    pub fn objects(&self) -> impl Iterator<Item = ObjectKey> + '_ {
        let filters = self.filters.keys().cloned().map(ObjectKey::Filter);
        let policies = self.steering.keys().cloned().map(ObjectKey::Steering);
        let ports = self.ports.keys().cloned().map(ObjectKey::Port);
        let bridges = self.bridges.keys().cloned().map(ObjectKey::Bridge);
        let members = self.members.keys().cloned().map(|(bridge, port)| ObjectKey::Member(bridge, port));
        let statics = self.statics.keys().cloned().map(|(bridge, key)| ObjectKey::Static(bridge, key));
        let routers = self.routers.keys().cloned().map(ObjectKey::Router);
        let router_ports =
            self.router_ports.keys().cloned().map(|(router, port)| ObjectKey::RouterPort(router, port));
        let bridged = bridges.chain(members).chain(statics);
        filters.chain(policies).chain(ports).chain(bridged).chain(routers).chain(router_ports)
    }

    /// Returns whether the fragment (the objects of one owner) contains an object.
    pub fn contains(&self, object: &ObjectKey) -> bool {
        match object {
            ObjectKey::Filter(filter) => self.filters.contains_key(filter),
            ObjectKey::Steering(steering) => self.steering.contains_key(steering),
            ObjectKey::Port(port) => self.ports.contains_key(port),
            ObjectKey::Bridge(bridge) => self.bridges.contains_key(bridge),
            ObjectKey::Member(bridge, port) => self.members.contains_key(&(bridge.clone(), port.clone())),
            ObjectKey::Static(bridge, key) => self.statics.contains_key(&(bridge.clone(), *key)),
            ObjectKey::Router(router) => self.routers.contains_key(router),
            ObjectKey::RouterPort(router, port) => {
                self.router_ports.contains_key(&(router.clone(), port.clone()))
            }
        }
    }

    /// Applies a change to the fragment (the objects of one owner) without checking the owner of the object.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::PutFilter(filter, value) => drop(self.filters.insert(filter, value)),
            Change::PutSteering(steering, value) => drop(self.steering.insert(steering, value)),
            Change::PutPort(port, value) => drop(self.ports.insert(port, value)),
            Change::PutBridge(bridge, value) => drop(self.bridges.insert(bridge, value)),
            Change::PutMember(bridge, port, value) => drop(self.members.insert((bridge, port), value)),
            Change::PutStatic(bridge, key, port) => drop(self.statics.insert((bridge, key), port)),
            Change::PutRouter(router, value) => drop(self.routers.insert(router, value)),
            Change::PutRouterPort(router, port, value) => {
                self.router_ports.insert((router, port), value);
            }
            Change::Remove(ObjectKey::Filter(filter)) => drop(self.filters.remove(&filter)),
            Change::Remove(ObjectKey::Steering(steering)) => drop(self.steering.remove(&steering)),
            Change::Remove(ObjectKey::Port(port)) => drop(self.ports.remove(&port)),
            Change::Remove(ObjectKey::Bridge(bridge)) => {
                self.bridges.remove(&bridge);
                // Members and static entries of this owner in the bridge are removed with the bridge.
                self.members.retain(|(of, _), _| *of != bridge);
                self.statics.retain(|(of, _), _| *of != bridge);
            }
            Change::Remove(ObjectKey::Member(bridge, port)) => drop(self.members.remove(&(bridge, port))),
            Change::Remove(ObjectKey::Static(bridge, key)) => drop(self.statics.remove(&(bridge, key))),
            Change::Remove(ObjectKey::Router(router)) => {
                self.routers.remove(&router);
                // Interfaces of this owner in the router are removed with the router.
                self.router_ports.retain(|(of, _), _| *of != router);
            }
            Change::Remove(ObjectKey::RouterPort(router, port)) => {
                self.router_ports.remove(&(router, port));
            }
        }
    }

    /// Returns the change that would create an object of the fragment (the objects of one owner). Returns `None` if the
    /// fragment does not contain the object.
    pub fn get(&self, object: &ObjectKey) -> Option<Change> {
        Some(match object {
            ObjectKey::Filter(filter) => Change::PutFilter(filter.clone(), self.filters.get(filter)?.clone()),
            ObjectKey::Steering(steering) => {
                Change::PutSteering(steering.clone(), self.steering.get(steering)?.clone())
            }
            ObjectKey::Port(port) => Change::PutPort(port.clone(), self.ports.get(port)?.clone()),
            ObjectKey::Bridge(bridge) => Change::PutBridge(bridge.clone(), self.bridges.get(bridge)?.clone()),
            ObjectKey::Member(bridge, port) => {
                let member = self.members.get(&(bridge.clone(), port.clone()))?.clone();
                Change::PutMember(bridge.clone(), port.clone(), member)
            }
            ObjectKey::Static(bridge, key) => {
                Change::PutStatic(bridge.clone(), *key, self.statics.get(&(bridge.clone(), *key))?.clone())
            }
            ObjectKey::Router(router) => Change::PutRouter(router.clone(), self.routers.get(router)?.clone()),
            ObjectKey::RouterPort(router, port) => {
                let value = self.router_ports.get(&(router.clone(), port.clone()))?.clone();
                Change::PutRouterPort(router.clone(), port.clone(), value)
            }
        })
    }
}

/// The configuration that results from merging the layers of all owners, with the owner of each object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Configuration that contains the objects of all layers.
    pub config: Config,
    /// Owner of each configuration object.
    pub owners: BTreeMap<ObjectKey, Owner>,
}

/// Configuration objects of all owners, and the settings of the process, which belong to the owner `File`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layers {
    /// Settings of the process. Contains no filters, ports, bridges or routers.
    pub base: Config,
    /// Configuration objects by owner.
    pub fragments: BTreeMap<Owner, Fragment>,
}

impl Layers {
    /// Returns the owner of an object. Returns `None` if the object does not exist.
    pub fn owner_of(&self, object: &ObjectKey) -> Option<Owner> {
        self.fragments.iter().find(|(_, fragment)| fragment.contains(object)).map(|(owner, _)| *owner)
    }

    /// Returns the layers (the configuration objects of all owners) that result when `config` replaces all objects of
    /// `owner`. If the owner is the configuration file, `config` also replaces the process settings.
    ///
    /// # Errors
    ///
    /// Returns one refusal for each object that belongs to another owner.
    pub fn replaced(&self, owner: Owner, config: &Config) -> Result<Layers, Vec<Refusal>> {
        let mut layers = self.clone();
        layers.fragments.insert(owner, Fragment::from(config));
        if owner == Owner::File {
            layers.base = config.settings();
        }
        let mut refusals = Vec::new();
        for object in layers.fragments.get(&owner).into_iter().flat_map(Fragment::objects) {
            let other =
                self.fragments.iter().find(|(other, layer)| **other != owner && layer.contains(&object));
            if let Some((&other, _)) = other {
                refusals.push(Refusal::Owned { object, owner: other, wanted: owner });
            }
        }
        if refusals.is_empty() { Ok(layers) } else { Err(refusals) }
    }

    /// Returns the layers (the configuration objects of all owners) that result from one change by `owner`.
    ///
    /// # Errors
    ///
    /// Returns a refusal for:
    ///
    /// - a change of an object that belongs to another owner;
    /// - a removal of an object that does not exist;
    /// - a member or static entry of a bridge that does not exist;
    /// - an interface of a router that does not exist;
    /// - a new filter, steering policy, port, bridge or router beyond the maximum number of such objects.
    pub fn changed(&self, owner: Owner, change: Change) -> Result<Layers, Refusal> {
        let object = change.object();
        match (self.owner_of(&object), &change) {
            (Some(other), _) if other != owner => {
                return Err(Refusal::Owned { object, owner: other, wanted: owner });
            }
            (None, Change::Remove(_)) => return Err(Refusal::Unknown { object }),
            _ => {}
        }
        if let Change::PutMember(bridge, ..) | Change::PutStatic(bridge, ..) = &change
            && self.owner_of(&ObjectKey::Bridge(bridge.clone())).is_none()
        {
            return Err(Refusal::NoBridge { object, bridge: bridge.clone() });
        }
        if let Change::PutRouterPort(router, ..) = &change
            && self.owner_of(&ObjectKey::Router(router.clone())).is_none()
        {
            return Err(Refusal::NoRouter { object, router: router.clone() });
        }
        if self.owner_of(&object).is_none()
            && let Some(ObjectCount { what, limit, .. }) = self.count_beside(&object)
        {
            return Err(Refusal::TooMany { object, what, limit });
        }
        let mut layers = self.clone();
        layers.fragments.entry(owner).or_default().apply(change);
        Ok(layers)
    }

    /// Returns the number of existing objects of the type of `object`, and the maximum number of such objects, if the
    /// maximum is reached. Returns `None` if the maximum is not reached. Members, static entries and interfaces have no
    /// maximum. For these objects, the function returns `None`.
    fn count_beside(&self, object: &ObjectKey) -> Option<ObjectCount> {
        let sum = |of: fn(&Fragment) -> usize| self.fragments.values().map(of).sum();
        let counts = object_counts([
            sum(|fragment| fragment.filters.len()),
            sum(|fragment| fragment.steering.len()),
            sum(|fragment| fragment.ports.len()),
            sum(|fragment| fragment.bridges.len()),
            sum(|fragment| fragment.routers.len()),
        ]);
        let [filters, policies, ports, bridges, routers] = counts;
        let count = match object {
            ObjectKey::Filter(_) => filters,
            ObjectKey::Steering(_) => policies,
            ObjectKey::Port(_) => ports,
            ObjectKey::Bridge(_) => bridges,
            ObjectKey::Router(_) => routers,
            ObjectKey::Member(..) | ObjectKey::Static(..) | ObjectKey::RouterPort(..) => return None,
        };
        (count.count >= count.limit).then_some(count)
    }

    /// Merges the layers of all owners into one configuration.
    ///
    /// # Errors
    ///
    /// Returns a refusal for each object that two owners have, and for each member, static entry or interface whose
    /// bridge or router does not exist. The second case occurs when a new configuration file omits a bridge that an
    /// object of the API still uses.
    pub fn merged(&self) -> Result<Merged, Vec<Refusal>> {
        let mut merged = Merged { config: self.base.clone(), ..Merged::default() };
        let mut refusals = Vec::new();
        for (&owner, fragment) in &self.fragments {
            for object in fragment.objects() {
                if let Some(&other) = merged.owners.get(&object) {
                    refusals.push(Refusal::Owned { object, owner: other, wanted: owner });
                    continue;
                }
                merged.owners.insert(object, owner);
            }
            let filters = fragment.filters.iter().map(|(name, filter)| (name.clone(), filter.clone()));
            merged.config.filters.extend(filters);
            let policies = fragment.steering.iter().map(|(name, steering)| (name.clone(), steering.clone()));
            merged.config.steering.extend(policies);
            merged
                .config
                .ports
                .extend(fragment.ports.iter().map(|(name, port)| (name.clone(), port.clone())));
            for (name, settings) in &fragment.bridges {
                merged
                    .config
                    .bridges
                    .insert(name.clone(), Bridge { settings: settings.clone(), ..Bridge::default() });
            }
            for (name, settings) in &fragment.routers {
                let router = Router { settings: settings.clone(), ..Router::default() };
                merged.config.routers.insert(name.clone(), router);
            }
        }
        for fragment in self.fragments.values() {
            refusals.extend(fill_bridges(&mut merged.config, fragment));
            refusals.extend(fill_routers(&mut merged.config, fragment));
        }
        if refusals.is_empty() { Ok(merged) } else { Err(refusals) }
    }
}

fn fill_bridges(config: &mut Config, fragment: &Fragment) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for ((bridge, port), member) in &fragment.members {
        match config.bridges.get_mut(bridge) {
            Some(found) => drop(found.ports.insert(port.clone(), member.clone())),
            None => refusals.push(Refusal::NoBridge {
                object: ObjectKey::Member(bridge.clone(), port.clone()),
                bridge: bridge.clone(),
            }),
        }
    }
    for ((bridge, key), port) in &fragment.statics {
        match config.bridges.get_mut(bridge) {
            Some(found) => drop(found.statics.insert(*key, port.clone())),
            None => refusals.push(Refusal::NoBridge {
                object: ObjectKey::Static(bridge.clone(), *key),
                bridge: bridge.clone(),
            }),
        }
    }
    refusals
}

fn fill_routers(config: &mut Config, fragment: &Fragment) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for ((router, port), value) in &fragment.router_ports {
        match config.routers.get_mut(router) {
            Some(found) => drop(found.ports.insert(port.clone(), value.clone())),
            None => refusals.push(Refusal::NoRouter {
                object: ObjectKey::RouterPort(router.clone(), port.clone()),
                router: router.clone(),
            }),
        }
    }
    refusals
}
