//! Mirror (copy) of the kernel's routing state, and the effects of kernel messages on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::decode::{Event, Object};
use crate::frr::is_frrs;
use crate::routes::{Paths, Routes};
use crate::rtnetlink::route::{RT_SCOPE_HOST, RT_TABLE_MAIN};
use crate::state::{
    Address, Family, Hop, Kind, Link, Neighbour, NeighbourKey, NextHop, Path, RouteKey, Rule, Settings,
    SettingsKey,
};

/// Identifies an object of the mirror that has changed. The mirror contains the new state of the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The device with this index has changed.
    Link(u32),
    /// This IP address of the host was added or removed.
    Address(Address),
    /// The neighbour with this key has changed.
    Neighbour(NeighbourKey),
    /// The next-hop object with this ID has changed.
    NextHop(u32),
    /// The IPv4 routes with this key have changed.
    Route4(RouteKey<Ipv4Addr>),
    /// The IPv6 routes with this key have changed.
    Route6(RouteKey<Ipv6Addr>),
    /// The policy rules of at least one address family have changed.
    Rules,
    /// The forwarding settings of a device or of all devices have changed.
    Settings(SettingsKey),
}

/// Mirror (copy) of the kernel's routing state in one network namespace.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    /// Network devices by interface index.
    pub links: BTreeMap<u32, Link>,
    /// IP addresses that are assigned to this host.
    pub addresses: BTreeSet<Address>,
    /// Neighbours whose link-layer addresses may be used, by interface index and IP address.
    pub neighbours: BTreeMap<NeighbourKey, Neighbour>,
    /// Next-hop objects by ID.
    pub next_hops: BTreeMap<u32, NextHop>,
    /// IPv4 routes of all routing tables.
    pub routes4: Routes<Ipv4Addr>,
    /// IPv6 routes of all routing tables.
    pub routes6: Routes<Ipv6Addr>,
    /// Policy rules in the order of their evaluation. The kernel accepts several equal rules, and the list contains
    /// each of these rules.
    pub rules: Vec<Rule>,
    /// Forwarding settings (set by `sysctl`), by address family and device.
    pub settings: BTreeMap<SettingsKey, Settings>,
    /// Set of the paths of all routes. Routes with equal paths share one value of this set.
    paths: HashSet<Arc<Path>>,
    /// Whether FPM sessions are the source of FRR's routes and next-hop objects. FRR's objects that the
    /// kernel removes with a device are then only marked as dead, until the device is up again or FRR
    /// withdraws them.
    pub(crate) told_apart: bool,
}

impl PartialEq for Mirror {
    fn eq(&self, other: &Mirror) -> bool {
        self.differences(other).is_empty()
    }
}

impl Mirror {
    /// Adds an object from a dump of the kernel's state to the mirror.
    pub(crate) fn dumped(&mut self, object: Object) {
        match object {
            Object::Link(link) => drop(self.links.insert(link.index, link)),
            Object::Address(address) => drop(self.addresses.insert(address)),
            Object::Neighbour(key, Some(known)) => drop(self.neighbours.insert(key, known)),
            Object::Neighbour(_, None) => {}
            Object::NextHop(id, next) => drop(self.next_hops.insert(id, next)),
            Object::Route4(key, path) => {
                self.routes4.dumped(key, known(&mut self.paths, &Arc::new(path)));
            }
            Object::Route6(key, path) => {
                self.routes6.dumped(key, known(&mut self.paths, &Arc::new(path)));
            }
            Object::Rule(rule) => self.add_rule(rule),
            Object::Settings(key, settings) => drop(self.settings.insert(key, settings)),
        }
    }

    fn add_rule(&mut self, rule: Rule) {
        // Like the kernel, inserts the rule after all rules of equal priority.
        let at = self.rules.partition_point(|other| (other.v6, other.priority) <= (rule.v6, rule.priority));
        self.rules.insert(at, rule);
    }

    /// Applies a kernel message to the mirror. Also applies the changes that the kernel makes together with the
    /// reported change without reporting them. The changed objects are appended to `changes`. A message about state
    /// that the mirror already contains causes no change.
    pub fn apply(&mut self, event: Event, changes: &mut Vec<Change>) {
        let Event { gone, flags, object } = event;
        match object {
            Object::Link(link) if gone => self.link_gone(link.index, changes),
            Object::Link(link) => self.link_is(link, changes),
            Object::Address(address) => {
                let changed =
                    if gone { self.addresses.remove(&address) } else { self.addresses.insert(address) };
                if changed {
                    changes.push(Change::Address(address));
                }
                if gone && changed {
                    self.address_gone(address, changes);
                }
                if !gone
                    && address.local.is_ipv4()
                    && self.links.get(&address.link).is_some_and(|link| link.up)
                {
                    self.revive4(address.link, changes);
                }
            }
            Object::Neighbour(key, known) => {
                let known = known.filter(|_| !gone);
                if self.neighbours.get(&key) != known.as_ref() {
                    match known {
                        Some(known) => drop(self.neighbours.insert(key, known)),
                        None => drop(self.neighbours.remove(&key)),
                    }
                    changes.push(Change::Neighbour(key));
                }
            }
            Object::NextHop(id, _) if gone => self.next_hops_gone(HashSet::from([id]), changes),
            Object::NextHop(id, next) => {
                if self.next_hops.get(&id) != Some(&next) {
                    self.next_hops.insert(id, next);
                    changes.push(Change::NextHop(id));
                }
            }
            Object::Route4(key, path) => {
                let changed = if gone {
                    self.routes4.remove4(key, &path)
                } else {
                    self.routes4.add4(key, flags, known(&mut self.paths, &Arc::new(path)))
                };
                changes.extend(changed.then_some(Change::Route4(key)));
            }
            Object::Route6(key, path) => {
                let changed = if gone {
                    let paths = &mut self.paths;
                    self.routes6.remove6(key, &path, |left| known(paths, &Arc::new(left)))
                } else {
                    self.routes6.add6(key, flags, known(&mut self.paths, &Arc::new(path)))
                };
                changes.extend(changed.then_some(Change::Route6(key)));
            }
            Object::Rule(rule) => {
                let there = self.rules.iter().position(|other| *other == rule);
                match (gone, there) {
                    (true, Some(at)) => drop(self.rules.remove(at)),
                    (false, None) => self.add_rule(rule),
                    _ => return,
                }
                changes.push(Change::Rules);
            }
            Object::Settings(key, told) => {
                let before = self.settings.get(&key).copied();
                let now = (!gone).then(|| before.unwrap_or_default().with(told));
                if before == now {
                    return;
                }
                match now {
                    Some(now) => drop(self.settings.insert(key, now)),
                    None => drop(self.settings.remove(&key)),
                }
                changes.push(Change::Settings(key));
                let concerned = |link: &&u32| key.link == SettingsKey::ALL || key.link == **link;
                let ignores =
                    |settings: Option<Settings>| settings.and_then(|own| own.ignores_linkdown) == Some(true);
                if ignores(before) != ignores(now) {
                    for index in self.links.keys().filter(concerned).copied().collect::<Vec<_>>() {
                        self.judge_linkdown(index, changes);
                    }
                }
            }
        }
    }

    /// Returns whether packets of an address family that arrive on a device are forwarded. For IPv4, the device's own
    /// setting decides. For IPv6, the setting for all devices decides, and IPv6 must be enabled on the device. Returns
    /// `true` as long as the setting for all devices is unknown.
    #[must_use]
    pub fn forwards(&self, v6: bool, link: u32) -> bool {
        let all = self.settings.get(&SettingsKey { v6, link: SettingsKey::ALL });
        let own = self.settings.get(&SettingsKey { v6, link });
        match (v6, all, own) {
            (_, None, _) => true,
            (true, Some(_), None) => false,
            (true, Some(all), Some(_)) => all.forwarding != Some(false),
            (false, Some(_), own) => own.is_none_or(|own| own.forwarding != Some(false)),
        }
    }

    /// Returns whether routes of an address family through a device are ignored. This is the case if the device has no
    /// carrier and the setting `ignore_routes_with_linkdown` is enabled.
    fn ignores(&self, v6: bool, link: u32) -> bool {
        let is_set = |link| {
            let settings = self.settings.get(&SettingsKey { v6, link });
            settings.is_some_and(|settings| settings.ignores_linkdown == Some(true))
        };
        let lost = self.links.get(&link).is_some_and(|link| !link.carrier);
        // IPv6 copies the setting of "all" to the devices.
        lost && (is_set(link) || !v6 && is_set(SettingsKey::ALL))
    }

    /// Updates the routes through a device that is up, after a change of its carrier or of the setting
    /// `ignore_routes_with_linkdown`.
    fn judge_linkdown(&mut self, index: u32, changes: &mut Vec<Change>) {
        if !self.links.get(&index).is_some_and(|link| link.up) {
            return;
        }
        if self.ignores(false, index) {
            self.mark4(index, true, |path| path.scope != RT_SCOPE_HOST, changes);
        } else if self.addresses.iter().any(|own| own.link == index && own.local.is_ipv4()) {
            // Without an IPv4 address, the next hops stay dead.
            self.revive4(index, changes);
        }
        if self.ignores(true, index) {
            let own = |path: &Path| matches!(path.kind, Kind::Local | Kind::Anycast);
            self.mark6(index, true, |path| !own(path), changes);
        } else if self.links.get(&index).is_some_and(|link| link.running) {
            // Next hops that became dead because the device was activated without a carrier stay dead until the device
            // has a carrier (`addrconf_notify()`).
            self.revive6(index, changes);
        }
    }

    /// Returns whether FPM sessions, and not the kernel, are the source of routes and next-hop objects of this
    /// protocol.
    fn spares(&self, protocol: u8) -> bool {
        self.told_apart && is_frrs(protocol)
    }

    /// Returns the shared path that equals `path`, with a next hop marked as dead if its device is down, or has no
    /// carrier although the settings require one.
    pub(crate) fn share(&mut self, v6: bool, path: &Path) -> Arc<Path> {
        let is_up = |link| self.links.get(&link).is_some_and(|own| own.up) && !self.ignores(v6, link);
        let dead = |hop: &Hop| hop.link != 0 && !is_up(hop.link);
        if path.hops.iter().any(|hop| hop.dead != dead(hop)) {
            let mut other = path.clone();
            other.hops.iter_mut().for_each(|hop| hop.dead = dead(hop));
            other.hops.sort_unstable();
            return known(&mut self.paths, &Arc::new(other));
        }
        match self.paths.get(path) {
            Some(known) => Arc::clone(known),
            None => known(&mut self.paths, &Arc::new(path.clone())),
        }
    }

    /// Returns a next-hop object in which the next hop is marked as dead if its device is down or has no carrier, and
    /// as alive otherwise.
    pub(crate) fn with_life(&self, mut next: NextHop) -> NextHop {
        if let Some(hop) = next.hop.as_mut().filter(|hop| hop.link != 0) {
            hop.dead = !self.links.get(&hop.link).is_some_and(|link| link.up && link.carrier);
        }
        next
    }

    /// Returns the number of routes in the mirror of the kernel's routing state that have a protocol of FRR. Returns 0
    /// if FPM sessions are not the source of these routes.
    #[must_use]
    pub fn announced(&self) -> u64 {
        if !self.told_apart {
            return 0;
        }
        let own = |paths: &Paths| paths.all().iter().any(|path| is_frrs(path.protocol));
        let four = self.routes4.iter().filter(|(_, paths)| own(paths)).count();
        (four + self.routes6.iter().filter(|(_, paths)| own(paths)).count()) as u64
    }

    fn link_is(&mut self, link: Link, changes: &mut Vec<Change>) {
        let (index, up, carrier, running) = (link.index, link.up, link.carrier, link.running);
        let known = self.links.get(&index);
        let was_up = known.map(|link| link.up);
        let was_carrier = known.map(|link| link.carrier);
        if known != Some(&link) {
            self.links.insert(index, link);
            changes.push(Change::Link(index));
        }
        match up {
            true if was_up != Some(true) => self.revive4(index, changes),
            false if was_up != Some(false) => {
                self.flush4(index, false, changes);
                self.bury6(index, changes);
            }
            _ => {}
        }
        // IPv6 next hops require an operational device (`addrconf_notify()`).
        if up && running {
            self.revive6(index, changes);
        }
        // Routes become dead with the carrier only if a setting requires it.
        if was_carrier.is_some_and(|was| was != carrier) {
            self.judge_linkdown(index, changes);
        }
        // Next-hop objects are removed with the carrier (`nexthop_flush_dev()`).
        if !up || !carrier {
            self.flush_next_hops(index, changes);
        }
        self.look_after_next_hops(index, changes);
    }

    fn link_gone(&mut self, index: u32, changes: &mut Vec<Change>) {
        if self.links.remove(&index).is_some() {
            changes.push(Change::Link(index));
        }
        if self.names(index) {
            let apart = self.told_apart;
            let stays = |_: &RouteKey<_>, path: &Path| {
                path.hops.iter().all(|hop| hop.link != index) || apart && is_frrs(path.protocol)
            };
            changes.extend(self.routes4.retain(stays).into_iter().map(Change::Route4));
            if apart {
                self.mark4(index, true, |path| is_frrs(path.protocol), changes);
                self.mark6(index, true, |path| is_frrs(path.protocol), changes);
            }
        }
        self.flush_next_hops(index, changes);
        self.look_after_next_hops(index, changes);
    }

    /// Returns whether any path in the set of paths has a next hop through a device. If there is no such path, no route
    /// uses the device.
    fn names(&self, index: u32) -> bool {
        self.paths.iter().any(|path| path.hops.iter().any(|hop| hop.link == index))
    }

    /// Creates, for each path with next hops through a device, a path in which these next hops are marked as dead
    /// (`dead` is `true`) or alive. Returns the old and new paths that differ. Only paths that routes use and that
    /// `concerned` accepts are included.
    fn with_dead(
        &mut self,
        index: u32,
        dead: bool,
        concerned: impl Fn(&Path) -> bool,
    ) -> HashMap<Arc<Path>, Arc<Path>> {
        let through = |path: &Path| path.hops.iter().any(|hop| hop.link == index && hop.dead != dead);
        let all = self.used().filter(|path| through(path) && concerned(path)).cloned().collect::<Vec<_>>();
        let changed = all.into_iter().map(|path| {
            let mut other = (*path).clone();
            other.hops.iter_mut().filter(|hop| hop.link == index).for_each(|hop| hop.dead = dead);
            other.hops.sort_unstable();
            (path, known(&mut self.paths, &Arc::new(other)))
        });
        changed.collect()
    }

    /// Returns the paths in the set of shared paths that at least one route uses.
    fn used(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.paths.iter().filter(|path| Arc::strong_count(path) > 1)
    }

    /// Updates IPv4 routes after a device went down (`all` is `false`), or after it lost its last IPv4 address (`all`
    /// is `true`). The kernel removes routes whose next hops are then all dead, without a notification
    /// (`fib_sync_down_dev()`). If `all` is `false`, the kernel keeps routes to this host itself.
    fn flush4(&mut self, index: u32, all: bool, changes: &mut Vec<Change>) {
        if !self.names(index) {
            return;
        }
        let apart = self.told_apart;
        let spared = |path: &Path| path.scope == RT_SCOPE_HOST && !all;
        let dies = |hop: &Hop| hop.dead || hop.link == index;
        let keep = |_: &RouteKey<_>, path: &Path| {
            path.hops.iter().all(|hop| hop.link != index)
                || spared(path)
                || !path.hops.iter().all(dies)
                || apart && is_frrs(path.protocol)
        };
        changes.extend(self.routes4.retain(keep).into_iter().map(Change::Route4));
        self.mark4(index, true, |path| !spared(path), changes);
    }

    /// Updates IPv6 routes after a device went down. In multipath routes, the next hops through the device are marked
    /// as dead. The kernel sends notifications for the other IPv6 routes.
    fn bury6(&mut self, index: u32, changes: &mut Vec<Change>) {
        let apart = self.told_apart;
        self.mark6(index, true, |path| path.hops.len() > 1 || apart && is_frrs(path.protocol), changes);
    }

    /// Marks IPv4 next hops through a device as alive after the device came up or got an address.
    fn revive4(&mut self, index: u32, changes: &mut Vec<Change>) {
        if self.ignores(false, index) {
            return;
        }
        self.mark4(index, false, |_| true, changes);
    }

    /// Marks IPv6 next hops through a device as alive after the device became operational.
    fn revive6(&mut self, index: u32, changes: &mut Vec<Change>) {
        self.mark6(index, false, |_| true, changes);
    }

    /// Marks IPv4 next hops through a device as dead or alive, in the paths that `concerned` accepts. The
    /// routes with a changed path are appended to `changes`.
    fn mark4(
        &mut self,
        index: u32,
        dead: bool,
        concerned: impl Fn(&Path) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let list = self.with_dead(index, dead, concerned);
        replace(&mut self.routes4, &list, Change::Route4, changes);
    }

    /// Marks IPv6 next hops through a device as dead or alive, like `mark4`.
    fn mark6(
        &mut self,
        index: u32,
        dead: bool,
        concerned: impl Fn(&Path) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let list = self.with_dead(index, dead, concerned);
        replace(&mut self.routes6, &list, Change::Route6, changes);
    }

    /// Removes the next-hop objects through a device. The kernel removes these objects without a notification when the
    /// device is removed or loses its carrier.
    fn flush_next_hops(&mut self, index: u32, changes: &mut Vec<Change>) {
        let through =
            |next: &NextHop| next.hop.is_some_and(|hop| hop.link == index) && !self.spares(next.protocol);
        let lost = self.next_hops.iter().filter(|(_, next)| through(next)).map(|(id, _)| *id).collect();
        self.next_hops_gone(lost, changes);
    }

    /// Marks FRR's next-hop objects through a device as dead or alive, according to the state of the device. Does
    /// nothing unless FPM sessions are the source of these objects.
    fn look_after_next_hops(&mut self, index: u32, changes: &mut Vec<Change>) {
        if !self.told_apart {
            return;
        }
        let through = |next: &NextHop| next.hop.is_some_and(|hop| hop.link == index);
        let concerned = self.next_hops.iter().filter(|(_, next)| through(next) && is_frrs(next.protocol));
        let looked: Vec<_> = concerned.map(|(id, next)| (*id, self.with_life(next.clone()))).collect();
        for (id, next) in looked {
            if self.next_hops.get(&id) != Some(&next) {
                self.next_hops.insert(id, next);
                changes.push(Change::NextHop(id));
            }
        }
    }

    /// Removes next-hop objects from the mirror of the kernel's routing state and from the groups that contain them. A
    /// group without members is removed too. Routes that used a removed object are removed in one pass over all routes.
    pub(crate) fn next_hops_gone(&mut self, mut gone: HashSet<u32>, changes: &mut Vec<Change>) {
        loop {
            let mut emptied = Vec::new();
            for (id, next) in self.next_hops.iter_mut().filter(|(id, _)| !gone.contains(id)) {
                let before = next.group.len();
                next.group.retain(|member| !gone.contains(&member.id));
                match (next.group.len(), before) {
                    (now, before) if now == before => {}
                    (0, _) => emptied.push(*id),
                    _ => changes.push(Change::NextHop(*id)),
                }
            }
            if emptied.is_empty() {
                break;
            }
            gone.extend(emptied);
        }
        let were_there = gone.iter().filter(|id| self.next_hops.remove(id).is_some());
        changes.extend(were_there.map(|id| Change::NextHop(*id)));
        let stays = |path: &Path| path.next_hop.is_none_or(|id| !gone.contains(&id));
        if self.used().all(|path| stays(path)) {
            return;
        }
        changes.extend(self.routes4.retain(|_, path| stays(path)).into_iter().map(Change::Route4));
        changes.extend(self.routes6.retain(|_, path| stays(path)).into_iter().map(Change::Route6));
    }

    /// Updates routes after an IP address was removed. IPv4 routes of the main table with this preferred source address
    /// are removed. IPv6 routes with this preferred source address are kept without a preferred source.
    fn address_gone(&mut self, address: Address, changes: &mut Vec<Change>) {
        match address.local {
            IpAddr::V4(_) => {
                let here = |other: &&Address| other.link == address.link && other.local.is_ipv4();
                if !self.addresses.iter().any(|other| here(&other)) {
                    self.flush4(address.link, true, changes);
                }
                if self.addresses.iter().any(|other| other.local == address.local) {
                    return;
                }
                let prefers = |path: &Path| path.source == Some(address.local);
                if self.used().any(|path| prefers(path)) {
                    let apart = self.told_apart;
                    let keep = |key: &RouteKey<_>, path: &Path| {
                        key.table != RT_TABLE_MAIN || !prefers(path) || apart && is_frrs(path.protocol)
                    };
                    changes.extend(self.routes4.retain(keep).into_iter().map(Change::Route4));
                }
            }
            IpAddr::V6(_) => {
                let prefers = |path: &Path| {
                    let here = path.hops.iter().any(|hop| hop.link == address.link);
                    path.source == Some(address.local) && here
                };
                let concerned: Vec<_> = self.used().filter(|path| prefers(path)).cloned().collect();
                let without = concerned.into_iter().map(|path| {
                    let without = Path { source: None, ..(*path).clone() };
                    (path, known(&mut self.paths, &Arc::new(without)))
                });
                replace(&mut self.routes6, &without.collect(), Change::Route6, changes);
            }
        }
    }

    /// Returns the objects that differ between this mirror and the mirror `other`.
    #[must_use]
    pub fn differences(&self, other: &Mirror) -> Vec<Change> {
        let mut differ = Vec::new();
        differ.extend(differing(&self.links, &other.links).into_iter().map(Change::Link));
        let addresses = self.addresses.symmetric_difference(&other.addresses);
        differ.extend(addresses.map(|address| Change::Address(*address)));
        differ.extend(differing(&self.neighbours, &other.neighbours).into_iter().map(Change::Neighbour));
        differ.extend(differing(&self.next_hops, &other.next_hops).into_iter().map(Change::NextHop));
        differ.extend(self.routes4.differences(&other.routes4).into_iter().map(Change::Route4));
        differ.extend(self.routes6.differences(&other.routes6).into_iter().map(Change::Route6));
        differ.extend((self.rules != other.rules).then_some(Change::Rules));
        differ.extend(differing(&self.settings, &other.settings).into_iter().map(Change::Settings));
        differ
    }

    /// Copies the state of the object that `change` identifies from the mirror `other` to this mirror.
    pub(crate) fn take(&mut self, change: &Change, other: &Mirror) {
        match change {
            Change::Link(index) => copy(&mut self.links, &other.links, index),
            Change::Address(address) => {
                match other.addresses.contains(address) {
                    true => self.addresses.insert(*address),
                    false => self.addresses.remove(address),
                };
            }
            Change::Neighbour(key) => copy(&mut self.neighbours, &other.neighbours, key),
            Change::NextHop(id) => copy(&mut self.next_hops, &other.next_hops, id),
            Change::Route4(key) => {
                self.routes4.copy(*key, &other.routes4, |path| known(&mut self.paths, path))
            }
            Change::Route6(key) => {
                self.routes6.copy(*key, &other.routes6, |path| known(&mut self.paths, path))
            }
            Change::Rules => self.rules.clone_from(&other.rules),
            Change::Settings(key) => copy(&mut self.settings, &other.settings, key),
        }
    }
}

/// Replaces the paths of routes. `list` maps each path to be replaced to its replacement. The changed routes are
/// appended to `changes`.
fn replace<A: Family>(
    routes: &mut Routes<A>,
    list: &HashMap<Arc<Path>, Arc<Path>>,
    change: impl Fn(RouteKey<A>) -> Change,
    changes: &mut Vec<Change>,
) {
    if !list.is_empty() {
        changes.extend(routes.rewrite(|path| list.get(path).cloned()).into_iter().map(change));
    }
}

/// Returns the path in the set of shared paths that is equal to `path`. If there is none, adds `path` to the set.
fn known(paths: &mut HashSet<Arc<Path>>, path: &Arc<Path>) -> Arc<Path> {
    if let Some(known) = paths.get(path) {
        return Arc::clone(known);
    }
    // Paths that no route uses are removed whenever the set has doubled in size.
    if paths.len() >= 1024 && paths.len().is_power_of_two() {
        paths.retain(|path| Arc::strong_count(path) > 1);
    }
    paths.insert(Arc::clone(path));
    Arc::clone(path)
}

fn differing<K: Ord + Copy, V: PartialEq>(one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> Vec<K> {
    let changed = one.iter().filter(|(key, value)| other.get(key) != Some(value)).map(|(key, _)| *key);
    changed.chain(other.keys().filter(|key| !one.contains_key(key)).copied()).collect()
}

fn copy<K: Ord + Copy, V: Clone>(to: &mut BTreeMap<K, V>, from: &BTreeMap<K, V>, key: &K) {
    match from.get(key) {
        Some(value) => drop(to.insert(*key, value.clone())),
        None => drop(to.remove(key)),
    }
}
