//! Who owns what: each owner's objects are a layer, and the layers together are the configuration.
//!
//! An object belongs to the layer that made it, and only that layer changes or removes it. So a file that is applied
//! never removes what the API made, and the API is refused, with the owner's name, where it reaches for the file's.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Bridge, BridgeName, BridgeSettings, Config, Filter, FilterName, Member, Port, PortName, Router,
    RouterName, RouterPort, RouterSettings, RuleName, StaticKey, Steer, SteerName,
};

/// Who made an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The configuration file.
    #[default]
    File,
    /// A client of the API.
    Api,
    /// An OVSDB server.
    Ovsdb,
    /// The kernel, by netlink.
    Netlink,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::File => "file",
            Owner::Api => "api",
            Owner::Ovsdb => "ovsdb",
            Owner::Netlink => "netlink",
        })
    }
}

/// What can have an owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKey {
    /// A filter.
    Filter(FilterName),
    /// A steering.
    Steer(SteerName),
    /// A port.
    Port(PortName),
    /// A bridge without its members.
    Bridge(BridgeName),
    /// A port's membership of a bridge.
    Member(BridgeName, PortName),
    /// A static entry of a bridge.
    Static(BridgeName, StaticKey),
    /// A virtual router without its interfaces.
    Router(RouterName),
    /// A port as a router's interface.
    RouterPort(RouterName, PortName),
}

/// As in problems: `filter.edge`, `steer.spread`, `port.web1`, `bridge.br0`, `bridge.br0.port.web1`, `bridge.br0.static.02:00:00:00:00:01,10`,
/// `router.edge`, `router.edge.port.left`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectKey::Filter(filter) => write!(f, "filter.{filter}"),
            ObjectKey::Steer(steer) => write!(f, "steer.{steer}"),
            ObjectKey::Port(port) => write!(f, "port.{port}"),
            ObjectKey::Bridge(bridge) => write!(f, "bridge.{bridge}"),
            ObjectKey::Member(bridge, port) => write!(f, "bridge.{bridge}.port.{port}"),
            ObjectKey::Static(bridge, key) => write!(f, "bridge.{bridge}.static.{key}"),
            ObjectKey::Router(router) => write!(f, "router.{router}"),
            ObjectKey::RouterPort(router, port) => write!(f, "router.{router}.port.{port}"),
        }
    }
}

/// One object to be made, replaced or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes or replaces a filter.
    PutFilter(FilterName, Filter),
    /// Makes or replaces a steering.
    PutSteer(SteerName, Steer),
    /// Makes or replaces a port.
    PutPort(PortName, Port),
    /// Makes a bridge or replaces its settings.
    PutBridge(BridgeName, BridgeSettings),
    /// Makes a port a member, or replaces how it is one.
    PutMember(BridgeName, PortName, Member),
    /// Makes or replaces a static entry.
    PutStatic(BridgeName, StaticKey, PortName),
    /// Makes a virtual router or replaces its settings.
    PutRouter(RouterName, RouterSettings),
    /// Makes a port a router's interface, or replaces what it is there.
    PutRouterPort(RouterName, PortName, RouterPort),
    /// Removes an object.
    Remove(ObjectKey),
}

impl Change {
    /// The object that is changed.
    pub fn object(&self) -> ObjectKey {
        match self {
            Change::PutFilter(filter, _) => ObjectKey::Filter(filter.clone()),
            Change::PutSteer(steer, _) => ObjectKey::Steer(steer.clone()),
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

/// Why the objects of an owner are not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another owner's object.
    #[error("{object}: it belongs to {owner}, and {wanted} wants to change it; {}", fix_for(*owner))]
    Owned {
        /// The object.
        object: ObjectKey,
        /// Whose it is.
        owner: Owner,
        /// Who wants to change it.
        wanted: Owner,
    },
    /// An object to be removed that does not exist.
    #[error("{object}: there is no such object; look at the names with `trivium show config`")]
    Unknown {
        /// The object.
        object: ObjectKey,
    },
    /// A member or static entry whose bridge does not exist.
    #[error("{object}: there is no bridge `{bridge}`; make the bridge first")]
    NoBridge {
        /// The object.
        object: ObjectKey,
        /// The bridge that it names.
        bridge: BridgeName,
    },
    /// An interface whose router does not exist.
    #[error("{object}: there is no router `{router}`; make the router first")]
    NoRouter {
        /// The object.
        object: ObjectKey,
        /// The router that it names.
        router: RouterName,
    },
    /// A rule that its filter does not have.
    #[error("{object}: there is no rule `{rule}`; look at the names with `trivium show filters`")]
    NoRule {
        /// The filter.
        object: ObjectKey,
        /// The rule.
        rule: RuleName,
    },
}

impl Refusal {
    /// The object that is concerned.
    pub fn object(&self) -> &ObjectKey {
        match self {
            Refusal::Owned { object, .. }
            | Refusal::Unknown { object }
            | Refusal::NoBridge { object, .. }
            | Refusal::NoRouter { object, .. }
            | Refusal::NoRule { object, .. } => object,
        }
    }

    /// What is wrong, without the object and the next step.
    pub fn cause(&self) -> String {
        match self {
            Refusal::Owned { owner, wanted, .. } => {
                format!("it belongs to {owner}, and {wanted} wants to change it")
            }
            Refusal::Unknown { .. } => "there is no such object".to_owned(),
            Refusal::NoBridge { bridge, .. } => format!("there is no bridge `{bridge}`"),
            Refusal::NoRouter { router, .. } => format!("there is no router `{router}`"),
            Refusal::NoRule { rule, .. } => format!("there is no rule `{rule}`"),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Refusal::Owned { owner, .. } => fix_for(*owner).to_owned(),
            Refusal::Unknown { .. } => "look at the names with `trivium show config`".to_owned(),
            Refusal::NoBridge { .. } => "make the bridge first".to_owned(),
            Refusal::NoRouter { .. } => "make the router first".to_owned(),
            Refusal::NoRule { .. } => "look at the names with `trivium show filters`".to_owned(),
        }
    }
}

fn fix_for(owner: Owner) -> &'static str {
    match owner {
        Owner::File => "change it in the file and apply that",
        Owner::Api => "remove it by the API first, or leave it out",
        Owner::Ovsdb => "change it with ovs-vsctl",
        Owner::Netlink => "change it with ip",
    }
}

/// The objects of one owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fragment {
    /// Filters.
    pub filters: BTreeMap<FilterName, Filter>,
    /// Steerings.
    pub steers: BTreeMap<SteerName, Steer>,
    /// Ports.
    pub ports: BTreeMap<PortName, Port>,
    /// Bridges without members.
    pub bridges: BTreeMap<BridgeName, BridgeSettings>,
    /// Members of its own and of others' bridges.
    pub members: BTreeMap<(BridgeName, PortName), Member>,
    /// Static entries of its own and of others' bridges.
    pub statics: BTreeMap<(BridgeName, StaticKey), PortName>,
    /// Virtual routers without interfaces.
    pub routers: BTreeMap<RouterName, RouterSettings>,
    /// Interfaces of its own and of others' routers.
    pub router_ports: BTreeMap<(RouterName, PortName), RouterPort>,
}

impl From<&Config> for Fragment {
    fn from(config: &Config) -> Self {
        let (filters, steers, ports) = (config.filters.clone(), config.steers.clone(), config.ports.clone());
        let mut fragment = Fragment { filters, steers, ports, ..Fragment::default() };
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
    /// Every object's name.
    pub fn objects(&self) -> impl Iterator<Item = ObjectKey> + '_ {
        let filters = self.filters.keys().cloned().map(ObjectKey::Filter);
        let steers = self.steers.keys().cloned().map(ObjectKey::Steer);
        let ports = self.ports.keys().cloned().map(ObjectKey::Port);
        let bridges = self.bridges.keys().cloned().map(ObjectKey::Bridge);
        let members = self.members.keys().cloned().map(|(bridge, port)| ObjectKey::Member(bridge, port));
        let statics = self.statics.keys().cloned().map(|(bridge, key)| ObjectKey::Static(bridge, key));
        let routers = self.routers.keys().cloned().map(ObjectKey::Router);
        let router_ports =
            self.router_ports.keys().cloned().map(|(router, port)| ObjectKey::RouterPort(router, port));
        let bridged = bridges.chain(members).chain(statics);
        filters.chain(steers).chain(ports).chain(bridged).chain(routers).chain(router_ports)
    }

    /// Whether it has this object.
    pub fn contains(&self, object: &ObjectKey) -> bool {
        match object {
            ObjectKey::Filter(filter) => self.filters.contains_key(filter),
            ObjectKey::Steer(steer) => self.steers.contains_key(steer),
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

    /// Makes one change without asking who may.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::PutFilter(filter, value) => drop(self.filters.insert(filter, value)),
            Change::PutSteer(steer, value) => drop(self.steers.insert(steer, value)),
            Change::PutPort(port, value) => drop(self.ports.insert(port, value)),
            Change::PutBridge(bridge, value) => drop(self.bridges.insert(bridge, value)),
            Change::PutMember(bridge, port, value) => drop(self.members.insert((bridge, port), value)),
            Change::PutStatic(bridge, key, port) => drop(self.statics.insert((bridge, key), port)),
            Change::PutRouter(router, value) => drop(self.routers.insert(router, value)),
            Change::PutRouterPort(router, port, value) => {
                self.router_ports.insert((router, port), value);
            }
            Change::Remove(ObjectKey::Filter(filter)) => drop(self.filters.remove(&filter)),
            Change::Remove(ObjectKey::Steer(steer)) => drop(self.steers.remove(&steer)),
            Change::Remove(ObjectKey::Port(port)) => drop(self.ports.remove(&port)),
            Change::Remove(ObjectKey::Bridge(bridge)) => {
                self.bridges.remove(&bridge);
                // What this owner put into its bridge goes with it.
                self.members.retain(|(of, _), _| *of != bridge);
                self.statics.retain(|(of, _), _| *of != bridge);
            }
            Change::Remove(ObjectKey::Member(bridge, port)) => drop(self.members.remove(&(bridge, port))),
            Change::Remove(ObjectKey::Static(bridge, key)) => drop(self.statics.remove(&(bridge, key))),
            Change::Remove(ObjectKey::Router(router)) => {
                self.routers.remove(&router);
                // As with a bridge.
                self.router_ports.retain(|(of, _), _| *of != router);
            }
            Change::Remove(ObjectKey::RouterPort(router, port)) => {
                self.router_ports.remove(&(router, port));
            }
        }
    }

    /// The change that would make this object anew, if it is here.
    pub fn get(&self, object: &ObjectKey) -> Option<Change> {
        Some(match object {
            ObjectKey::Filter(filter) => Change::PutFilter(filter.clone(), self.filters.get(filter)?.clone()),
            ObjectKey::Steer(steer) => Change::PutSteer(steer.clone(), self.steers.get(steer)?.clone()),
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

/// The whole configuration with each object's owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// The configuration.
    pub config: Config,
    /// The owner of each object.
    pub owners: BTreeMap<ObjectKey, Owner>,
}

/// All owners' objects, and the process settings, which are the file's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layers {
    /// Settings of the process; no filters, ports, bridges or routers.
    pub base: Config,
    /// Objects by owner.
    pub fragments: BTreeMap<Owner, Fragment>,
}

impl Layers {
    /// The owner of an object, if it exists.
    pub fn owner_of(&self, object: &ObjectKey) -> Option<Owner> {
        self.fragments.iter().find(|(_, fragment)| fragment.contains(object)).map(|(owner, _)| *owner)
    }

    /// The layers with this configuration as all that `owner` has. The file's also sets the process.
    ///
    /// # Errors
    ///
    /// Refused, one by one, are objects that another owner has.
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

    /// The layers with one change by `owner`.
    ///
    /// # Errors
    ///
    /// Refused is a change to an object that another owner has, a removal of what does not exist, a member or
    /// entry of a bridge that does not exist, and an interface of a router that does not exist.
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
        let mut layers = self.clone();
        layers.fragments.entry(owner).or_default().apply(change);
        Ok(layers)
    }

    /// All layers as one configuration.
    ///
    /// # Errors
    ///
    /// Refused is what two owners have, and an owner's member or entry whose bridge nobody has (as after a file that
    /// drops a bridge which an object of the API still uses); routers and interfaces alike.
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
            let steers = fragment.steers.iter().map(|(name, steer)| (name.clone(), steer.clone()));
            merged.config.steers.extend(steers);
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
