//! Routes of one address family, in the order in which the kernel prefers them. Several routes may have equal keys. The
//! kernel uses the first of these routes.
//!
//! The effect of a message depends on the address family and on the flags of the message, as in the kernel
//! (`fib_table_insert()` in `net/ipv4/fib_trie.c` and `fib6_add_rt2node()` in `net/ipv6/ip6_fib.c`). Messages that were
//! queued during a dump are applied to the result of the dump. Therefore, applying a message a second time has no
//! effect.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use port::netlink::{NLM_F_APPEND, NLM_F_EXCL, NLM_F_REPLACE};

use crate::rtnetlink::protocol::RTPROT_RA;
use crate::state::{Family, Path, Prefix, RouteKey};

/// Paths of the routes with one key, in order of preference. Most keys have a single route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Path of the only route with the key.
    One(Arc<Path>),
    /// Paths of several routes with the key. The first path is used.
    Several(Box<[Arc<Path>]>),
}

impl Paths {
    /// Returns the paths of all routes with the key.
    #[must_use]
    pub fn all(&self) -> &[Arc<Path>] {
        match self {
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Several(paths) => paths,
        }
    }

    /// Returns the path that the kernel uses, which is the first path. Returns `None` if there is no path.
    #[must_use]
    pub fn first(&self) -> Option<&Path> {
        self.all().first().map(Arc::as_ref)
    }

    fn of(mut paths: Vec<Arc<Path>>) -> Option<Paths> {
        match (paths.len(), paths.pop()) {
            (_, None) => None,
            (1, Some(only)) => Some(Paths::One(only)),
            (_, Some(last)) => {
                paths.push(last);
                Some(Paths::Several(paths.into()))
            }
        }
    }
}

/// Routes of one address family, by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes<A: Ord>(BTreeMap<RouteKey<A>, Paths>);

impl<A: Ord> Default for Routes<A> {
    fn default() -> Routes<A> {
        Routes(BTreeMap::new())
    }
}

impl<A: Family> Routes<A> {
    /// Returns the route that the kernel uses for all destinations in the prefix `of`. Among the prefixes that contain
    /// `of` and have a usable route, the longest is selected, and among its usable routes the one with the lowest
    /// metric. Routes for one type of service or for some sources are ignored. Returns `None` if there is no such
    /// route.
    #[must_use]
    pub fn longest(&self, table: u32, of: Prefix<A>) -> Option<(&RouteKey<A>, &Path)> {
        (0..=of.length).rev().find_map(|length| {
            let prefix = Prefix { address: of.address.masked(length), length };
            self.of_prefix(table, prefix).find(|(_, path)| path.is_usable())
        })
    }

    /// Returns whether a route to exactly this prefix applies only to one type of service or to some sources.
    #[must_use]
    pub fn is_divided(&self, table: u32, prefix: Prefix<A>) -> bool {
        self.to_prefix(table, prefix).any(|(key, _)| key.is_for_some())
    }

    /// Returns the routes to a prefix and to all more specific prefixes, in the order of their keys. If `table` is
    /// given, returns only routes of this table. If `behind` is given, starts with the first route after this key. The
    /// iteration does not visit routes to other prefixes.
    pub fn within(
        &self,
        behind: Option<RouteKey<A>>,
        table: Option<u32>,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = (&RouteKey<A>, &Paths)> {
        let all = Prefix { address: A::ZERO, length: 0 };
        let first = move |table, prefix| RouteKey { table, prefix, tos: 0, metric: 0, from: all };
        let is_asked_for = move |key: &RouteKey<A>| {
            key.prefix.length >= prefix.length && key.prefix.address.masked(prefix.length) == prefix.address
        };
        // Table of the current iteration, and the remaining routes in it.
        let mut walk = behind.map(|key| (key.table, self.0.range((Bound::Excluded(key), Bound::Unbounded))));
        let mut next = if behind.is_some() { None } else { Some(table.unwrap_or(0)) };
        std::iter::from_fn(move || {
            loop {
                if let Some((own, keys)) = &mut walk {
                    if let Some(found) = keys.next().filter(|(key, _)| key.table == *own && is_asked_for(key))
                    {
                        return Some(found);
                    }
                    next = if table.is_some() { None } else { own.checked_add(1) };
                }
                let (own, _) = self.0.range(first(next?, all)..).next()?;
                if table.is_some_and(|table| table != own.table) {
                    return None;
                }
                walk = Some((own.table, self.0.range(first(own.table, prefix)..)));
            }
        })
    }

    /// Returns all routes to exactly this prefix, in the order of their keys. Routes that apply to all packets are in
    /// the order of preference.
    pub(crate) fn to_prefix(
        &self,
        table: u32,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = (&RouteKey<A>, &Path)> {
        let everyone = Prefix { address: A::ZERO, length: 0 };
        let first = RouteKey { table, prefix, tos: 0, metric: 0, from: everyone };
        let all =
            self.0.range(first..).take_while(move |(key, _)| key.table == table && key.prefix == prefix);
        all.flat_map(|(key, paths)| paths.all().iter().map(move |path| (key, path.as_ref())))
    }

    /// Returns the routes to exactly this prefix that apply to all packets (TOS 0 and no source prefix),
    /// ordered by metric.
    pub fn of_prefix(&self, table: u32, prefix: Prefix<A>) -> impl Iterator<Item = (&RouteKey<A>, &Path)> {
        let everyone = Prefix { address: A::ZERO, length: 0 };
        let key = |metric| RouteKey { table, prefix, tos: 0, metric, from: everyone };
        let all =
            self.0.range(key(0)..=key(u32::MAX)).filter(|(key, _)| key.tos == 0 && key.from.length == 0);
        all.flat_map(|(key, paths)| paths.all().iter().map(move |path| (key, path.as_ref())))
    }
}

impl<A: Ord + Copy> Routes<A> {
    /// Returns the paths of the routes with this key. Returns `None` if there is no such route.
    #[must_use]
    pub fn get(&self, key: &RouteKey<A>) -> Option<&Paths> {
        self.0.get(key)
    }

    /// Returns the number of keys that have routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no routes of this address family.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all keys with the paths of their routes, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&RouteKey<A>, &Paths)> {
        self.0.iter()
    }

    /// Returns the keys within a range, with the paths of their routes, in the order of the keys.
    pub(crate) fn range(
        &self,
        keys: std::ops::RangeInclusive<RouteKey<A>>,
    ) -> impl Iterator<Item = (&RouteKey<A>, &Paths)> {
        self.0.range(keys)
    }

    /// Calls `change` with the paths of the routes with the key `key`. Returns whether the paths have changed.
    fn change(&mut self, key: RouteKey<A>, change: impl FnOnce(&mut Vec<Arc<Path>>)) -> bool {
        let entry = self.0.entry(key);
        let before: Vec<_> = match &entry {
            Entry::Occupied(there) => there.get().all().to_vec(),
            Entry::Vacant(_) => Vec::new(),
        };
        let mut paths = before.clone();
        change(&mut paths);
        if paths == before {
            return false;
        }
        match (entry, Paths::of(paths)) {
            (Entry::Occupied(mut there), Some(paths)) => drop(there.insert(paths)),
            (Entry::Vacant(place), Some(paths)) => drop(place.insert(paths)),
            (Entry::Occupied(there), None) => drop(there.remove()),
            (Entry::Vacant(_), None) => {}
        }
        true
    }

    /// Changes the paths of the routes with one key. Removes the paths that `replaces` accepts, and inserts `path`, if
    /// given, in front of all others. Returns whether the paths have changed.
    pub(crate) fn put(
        &mut self,
        key: RouteKey<A>,
        path: Option<Arc<Path>>,
        replaces: impl Fn(&Path) -> bool,
    ) -> bool {
        // In most cases, the path is the only one.
        match (self.0.entry(key), path) {
            (Entry::Vacant(place), Some(path)) => {
                place.insert(Paths::One(path));
                true
            }
            (Entry::Vacant(_), None) => false,
            (Entry::Occupied(mut there), path) => match (there.get(), path) {
                (Paths::One(old), Some(path)) if replaces(old) => {
                    let changed = *old != path;
                    there.insert(Paths::One(path));
                    changed
                }
                (_, path) => self.change(key, |paths| {
                    paths.retain(|old| !replaces(old));
                    if let Some(path) = path {
                        paths.insert(0, path);
                    }
                }),
            },
        }
    }

    /// Appends a route of a dump to the routes with an equal key. Returns whether the routes have changed.
    pub(crate) fn dumped(&mut self, key: RouteKey<A>, path: Arc<Path>) -> bool {
        self.change(key, |paths| paths.push(path))
    }

    /// Removes the routes that `keep` rejects. Returns the keys of the removed routes.
    pub(crate) fn retain(&mut self, keep: impl Fn(&RouteKey<A>, &Path) -> bool) -> Vec<RouteKey<A>> {
        let hit = |(key, paths): &(&RouteKey<A>, &Paths)| paths.all().iter().any(|path| !keep(key, path));
        let keys: Vec<_> = self.0.iter().filter(hit).map(|(key, _)| *key).collect();
        for key in &keys {
            self.change(*key, |paths| paths.retain(|path| keep(key, path)));
        }
        keys
    }

    /// Replaces each path for which `change` returns another path. Returns the keys of the changed routes.
    pub(crate) fn rewrite(&mut self, change: impl Fn(&Path) -> Option<Arc<Path>>) -> Vec<RouteKey<A>> {
        let hit = |paths: &Paths| paths.all().iter().any(|path| change(path).is_some());
        let keys: Vec<_> = self.0.iter().filter(|(_, paths)| hit(paths)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.change(*key, |paths| {
                for path in paths {
                    if let Some(other) = change(path) {
                        *path = other;
                    }
                }
            });
        }
        keys
    }

    /// Replaces the routes with one key by the routes with this key in `other`.
    pub(crate) fn copy(
        &mut self,
        key: RouteKey<A>,
        other: &Routes<A>,
        known: impl FnMut(&Arc<Path>) -> Arc<Path>,
    ) {
        let there = other.get(&key).map_or(&[][..], Paths::all);
        let there: Vec<_> = there.iter().map(known).collect();
        self.change(key, |paths| *paths = there);
    }

    /// Returns the keys whose routes differ between `self` and `other`.
    pub(crate) fn differences(&self, other: &Routes<A>) -> Vec<RouteKey<A>> {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut differ = Vec::new();
        loop {
            match (ours.peek(), theirs.peek()) {
                (None, None) => return differ,
                (Some((key, paths)), Some((same, others))) if key == same => {
                    if paths != others {
                        differ.push(**key);
                    }
                    ours.next();
                    theirs.next();
                }
                (Some((key, _)), None) => {
                    differ.push(**key);
                    ours.next();
                }
                (None, Some((key, _))) => {
                    differ.push(**key);
                    theirs.next();
                }
                (Some((key, _)), Some((other, _))) => {
                    let first = *key.min(other);
                    if first == *key {
                        ours.next();
                    } else {
                        theirs.next();
                    }
                    differ.push(*first);
                }
            }
        }
    }

    /// Adds the IPv4 route of a notification. A route whose key and path are present already is not added again.
    /// Returns whether the routes have changed.
    pub(crate) fn add4(&mut self, key: RouteKey<A>, flags: u16, path: Arc<Path>) -> bool {
        self.change(key, |paths| {
            if flags & NLM_F_REPLACE != 0 && paths.first() == Some(&path) {
                return;
            }
            paths.retain(|other| *other != path);
            if flags & NLM_F_REPLACE != 0 && !paths.is_empty() {
                paths[0] = path;
            } else if flags & NLM_F_APPEND != 0 {
                paths.push(path);
            } else if flags & NLM_F_EXCL != 0 {
                *paths = vec![path];
            } else {
                paths.insert(0, path);
            }
        })
    }

    /// Removes the IPv4 route with this key and path. Other routes with the key are kept. Returns whether the
    /// routes have changed.
    pub(crate) fn remove4(&mut self, key: RouteKey<A>, path: &Path) -> bool {
        self.change(key, |paths| {
            if let Some(at) = paths.iter().position(|other| **other == *path) {
                paths.remove(at);
            }
        })
    }

    /// Adds the IPv6 route of a notification, which contains all current next hops of the route. Returns whether the
    /// routes have changed.
    pub(crate) fn add6(&mut self, key: RouteKey<A>, flags: u16, path: Arc<Path>) -> bool {
        self.change(key, |paths| {
            if paths.contains(&path) {
                return;
            }
            if flags & NLM_F_REPLACE != 0 {
                let alike = paths.iter().position(|other| shares(other) == shares(&path));
                match alike.or(if paths.is_empty() { None } else { Some(0) }) {
                    Some(at) => paths[at] = path,
                    None => paths.push(path),
                }
                return;
            }
            // Multipath route that the new route joined. The message contains all its next hops.
            let group = paths.iter().position(|other| shares(other) && shares(&path) && !apart(other, &path));
            match group {
                Some(at) => paths[at] = path,
                None => paths.push(path),
            }
        })
    }

    /// Removes an IPv6 route. If the notification contains only some next hops of the route, only these next hops are
    /// removed. Returns whether the routes have changed.
    pub(crate) fn remove6(
        &mut self,
        key: RouteKey<A>,
        path: &Path,
        intern: impl FnOnce(Path) -> Arc<Path>,
    ) -> bool {
        self.change(key, |paths| {
            if let Some(at) = paths.iter().position(|other| **other == *path) {
                paths.remove(at);
                return;
            }
            let among = |other: &Arc<Path>| {
                shares(other) && !path.hops.is_empty() && path.hops.iter().all(|hop| names(other, hop))
            };
            let Some(at) = paths.iter().position(among) else { return };
            let mut left = (*paths[at]).clone();
            left.hops.retain(|hop| !names(path, hop));
            // The kernel does not report a weight for a single next hop.
            if let [only] = left.hops.as_mut_slice() {
                only.weight = 1;
            }
            if left.hops.is_empty() {
                paths.remove(at);
            } else {
                paths[at] = intern(left);
            }
        })
    }
}

/// Returns whether a path contains a next hop with this device and gateway, regardless of the weight.
fn names(path: &Path, hop: &crate::Hop) -> bool {
    path.hops.iter().any(|other| (other.link, other.gateway) == (hop.link, hop.gateway))
}

fn apart(one: &Path, other: &Path) -> bool {
    !one.hops.iter().any(|hop| names(other, hop))
}

/// Returns whether the kernel combines IPv6 routes with equal keys into one multipath route if they have paths like
/// this one (`rt6_qualify_for_ecmp()`). Routes from router advertisements are never combined.
fn shares(path: &Path) -> bool {
    let gateways = !path.hops.is_empty() && path.hops.iter().all(|hop| hop.gateway.is_some());
    gateways && path.next_hop.is_none() && path.protocol != RTPROT_RA
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::state::Kind;

    fn prefix(address: u8, length: u8) -> Prefix<Ipv4Addr> {
        let length = length % 9;
        Prefix { address: Ipv4Addr::new(address, 0, 0, 0).masked(length), length }
    }

    proptest! {
        /// Reads all routes to a prefix with [`Routes::within`] in slices of any length. Checks that the result equals
        /// the result of a search through all routes.
        #[test]
        fn routes_within_a_prefix_are_found_slice_by_slice(
            keys in prop::collection::vec((prop::sample::select(vec![0, 1, 2, 254, u32::MAX]), any::<u8>(), any::<u8>(), 0..2_u32), 0..60),
            table in prop::option::of(prop::sample::select(vec![0, 1, 3, 254, u32::MAX])),
            of in (any::<u8>(), any::<u8>()),
            slice in 1..7_usize,
        ) {
            let all = Prefix { address: Ipv4Addr::ZERO, length: 0 };
            let mut routes = Routes::default();
            for (table, address, length, metric) in keys {
                let key = RouteKey { table, prefix: prefix(address, length), tos: 0, metric, from: all };
                let path = Path { kind: Kind::Blackhole, protocol: 4, scope: 0, next_hop: None, hops: Vec::new(), source: None, mtu: None };
                routes.dumped(key, Arc::new(path));
            }
            let of = prefix(of.0, of.1);
            let is_within = |key: &RouteKey<Ipv4Addr>| {
                table.is_none_or(|table| table == key.table)
                    && key.prefix.length >= of.length
                    && key.prefix.address.masked(of.length) == of.address
            };
            let wanted: Vec<_> = routes.iter().map(|(key, _)| *key).filter(is_within).collect();
            let (mut found, mut behind) = (Vec::new(), None);
            loop {
                let next: Vec<_> = routes.within(behind, table, of).map(|(key, _)| *key).take(slice).collect();
                behind = next.last().copied();
                found.extend(next);
                if behind.is_none() {
                    break;
                }
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
