//! What a router's follower sees of its namespace, and writes for workers and hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use model::RouterName;
use netlink::{Change, Feed, FibOutcome, Mirror, own_addresses};
use packet::MacAddr;
use router::Lookup;

use super::hook::Switch;

/// What the follower's thread writes.
pub struct State {
    pub router: RouterName,
    pub feed: Feed,
    /// The numbers of the router's interfaces by the names of their devices.
    pub interfaces: BTreeMap<String, u16>,
    /// The numbers of those devices whose ports are open: a device that is called otherwise than the configuration names it is found by it.
    pub open: BTreeMap<String, u32>,
    /// Those of them that are there.
    pub bound: BTreeMap<u32, u16>,
    pub seen: Seen,
    /// Neighbours that somebody has entered for good.
    pub permanent: BTreeSet<(u32, IpAddr)>,
    /// Says when hooks answer.
    pub switch: Option<Switch>,
    pub wake: SyncSender<()>,
    pub refused: Option<Instant>,
}

/// What is seen of a namespace besides routes and neighbours.
#[derive(Default)]
pub struct Seen {
    pub devices: BTreeMap<String, Seat>,
    pub own: (BTreeSet<Ipv4Addr>, BTreeSet<Ipv6Addr>),
    /// Addresses of interfaces' devices, by the devices' numbers, with the lengths of their prefixes.
    pub addresses: BTreeMap<u32, Vec<(IpAddr, u8)>>,
    pub four: Vec<Lookup>,
    pub six: Vec<Lookup>,
    pub tables: Vec<u32>,
}

/// A device of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    pub index: u32,
    pub mac: MacAddr,
    pub mtu: u32,
    /// Set up by its administrator.
    pub up: bool,
}

impl State {
    /// Applies what has changed in the mirror, and returns what became of routes.
    pub fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> FibOutcome {
        let errors = self.feed.apply(mirror, changes);
        if let Some(error) = errors.first() {
            // A table that is full says so with every route: once a minute is enough.
            if self.refused.is_none_or(|last| last.elapsed().as_secs() >= 60) {
                let count = errors.len();
                tracing::error!(router = %self.router, count, "{error}; what there is goes on forwarding");
                self.refused = Some(Instant::now());
            }
        }
        for change in changes {
            let Change::Neighbour(key) = change else { continue };
            if mirror.neighbours.get(key).is_some_and(|known| known.permanent) {
                self.permanent.insert((key.link, key.address));
            } else {
                self.permanent.remove(&(key.link, key.address));
            }
        }
        let elsewhere = |change: &Change| match change {
            Change::Link(_) | Change::Address(_) | Change::Rules | Change::Settings(_) => true,
            Change::Route4(key) => key.table == 255,
            Change::Route6(key) => key.table == 255,
            Change::Neighbour(_) | Change::NextHop(_) => false,
        };
        if changes.iter().any(elsewhere) || !self.feed.tables().eq(self.seen.tables.iter().copied()) {
            self.look(mirror);
            // One that waits to be taken is enough.
            let _ = self.wake.try_send(());
        }
        self.feed.take_outcome()
    }

    /// Looks at everything but routes and neighbours.
    pub fn look(&mut self, mirror: &Mirror) {
        let mut devices = BTreeMap::new();
        let mut bound = BTreeMap::new();
        let mut names = BTreeMap::new();
        let by_name: BTreeMap<&str, &netlink::Link> =
            mirror.links.values().map(|link| (link.name.as_str(), link)).collect();
        for (device, number) in &self.interfaces {
            // A device that is called otherwise by now is the same.
            let before = self.seen.devices.get(device).map(|seat| seat.index);
            let known = before.into_iter().chain(self.open.get(device).copied());
            let known = known.filter_map(|index| mirror.links.get(&index)).next();
            let Some(link) = known.or_else(|| by_name.get(device.as_str()).copied()) else { continue };
            let Ok(mac) = link.address.as_slice().try_into() else { continue };
            bound.insert(link.index, *number);
            names.insert(link.name.as_str(), *number);
            let seat = Seat { index: link.index, mac: MacAddr(mac), mtu: link.mtu, up: link.up };
            devices.insert(device.clone(), seat);
        }
        for device in self.bound.keys().chain(bound.keys()).copied().collect::<BTreeSet<u32>>() {
            if self.bound.get(&device) != bound.get(&device) {
                self.feed.bind(device, bound.get(&device).copied());
            }
        }
        let mut addresses: BTreeMap<u32, Vec<(IpAddr, u8)>> = BTreeMap::new();
        for own in mirror.addresses.iter().filter(|own| bound.contains_key(&own.link)) {
            addresses.entry(own.link).or_default().push((own.local, own.prefix_length));
        }
        self.bound = bound;
        let number = |name: &str| names.get(name).copied();
        self.seen = Seen {
            devices,
            own: own_addresses(mirror),
            addresses,
            four: self.feed.lookups(mirror, false, number),
            six: self.feed.lookups(mirror, true, number),
            tables: self.feed.tables().collect(),
        };
        if let Some(switch) = &self.switch {
            let known = |lookups: &[Lookup]| self.feed.serves_programs(lookups);
            switch.know(known(&self.seen.four), known(&self.seen.six));
        }
    }
}
