//! State of a router that the router's thread reads from the kernel over netlink and prepares for workers and
//! hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use model::RouterName;
use netlink::{Change, Feed, FibOutcome, GracePeriod, Mirror, own_addresses};
use packet::MacAddr;
use packet::net::InterfaceAddress;
use router::{FibError, Lookup};
use xdp::route::Answers;

use super::super::lock::locked;

/// State of a router. The thread that tracks the router's namespace maintains this state.
pub struct State {
    pub router: RouterName,
    pub feed: Feed,
    /// Interface numbers of the router's interfaces, by device name.
    pub interfaces: BTreeMap<String, u16>,
    /// Interface indices of the devices of open ports, by configured device name. The index still identifies a device
    /// that was renamed.
    pub open: BTreeMap<String, u32>,
    /// Numbers of the router interfaces whose devices exist, by interface index in the kernel.
    pub bound: BTreeMap<u32, u16>,
    pub seen: ObservedNamespace,
    /// Neighbours (interface index and IP address) whose entry in the kernel is permanent (`NUD_PERMANENT`).
    pub permanent: BTreeSet<(u32, IpAddr)>,
    /// Routing tables of the hooks. `None` if the router does not offload routes to hooks.
    pub answers: Option<Arc<Answers>>,
    pub wake: SyncSender<()>,
    pub refused: Option<Instant>,
    /// Errors of routes that did not fit into the tables when changes were applied. The errors are logged only if other
    /// attempts fail too: a route may fit when readers no longer use the memory that the changes have freed.
    pub errors: Vec<FibError>,
    /// Whether interface numbers have changed since the devices, addresses and policy routing rules were last
    /// read.
    pub is_renumbered: bool,
}

/// State of a router's namespace except for routes and neighbours: devices, addresses and policy routing rules.
#[derive(Default)]
pub struct ObservedNamespace {
    pub devices: BTreeMap<String, Netdev>,
    pub own: (BTreeSet<Ipv4Addr>, BTreeSet<Ipv6Addr>),
    /// IP addresses and prefix lengths of the devices of router interfaces, by interface index.
    pub addresses: BTreeMap<u32, Vec<InterfaceAddress>>,
    pub four: Vec<Lookup>,
    pub six: Vec<Lookup>,
    pub tables: Vec<u32>,
    /// For IPv4 and for IPv6, the number of policy routing rules if there are more than the workers support. The kernel
    /// then routes all packets of the address family. `None` if the workers support all rules.
    pub excess_rules: [Option<usize>; 2],
}

/// State of the kernel device of a router interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Netdev {
    pub index: u32,
    pub mac: MacAddr,
    pub mtu: u32,
    /// Whether the interface's device is administratively up.
    pub up: bool,
}

/// Returns the message for an address family whose `count` policy routing rules exceed the limit of
/// the workers.
pub fn excess(count: usize) -> String {
    let limit = netlink::RULES;
    format!(
        "there are {count} policy rules, of which workers ask {limit} at most: the kernel routes its packets"
    )
}

/// Applies changes of the mirror (the copy of the kernel's routing state) to the tables of workers and hooks. Returns
/// the routes that were refused, and those that were installed after a refusal. If routes or neighbours do not fit,
/// waits until readers no longer use freed memory (grace period), and tries again. The state is not locked during this
/// wait, and one grace period is enough for all changes.
pub fn apply(state: &Mutex<State>, mirror: &Mirror, changes: &[Change]) -> FibOutcome {
    let mut grace = locked(state).apply(mirror, changes);
    while let Some(period) = grace {
        period.wait();
        grace = locked(state).retry(mirror);
    }
    locked(state).outcome()
}

impl State {
    /// Applies changes of the mirror (the copy of the kernel's routing state) to the tables of workers and hooks.
    /// Returns a grace period if a route or neighbour does not fit. It may fit after the grace period, because readers
    /// then no longer use freed memory.
    fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Option<GracePeriod> {
        self.errors = self.feed.apply(mirror, changes);
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
            Change::Route4(key) => key.table == netlink::RT_TABLE_LOCAL,
            Change::Route6(key) => key.table == netlink::RT_TABLE_LOCAL,
            Change::Neighbour(_) | Change::NextHop(_) => false,
        };
        self.look_if(self.is_renumbered || changes.iter().any(elsewhere), mirror);
        self.feed.grace()
    }

    /// Tries again to install routes and neighbours that did not fit into the tables. Returns the next grace period if
    /// some were installed and others still do not fit.
    fn retry(&mut self, mirror: &Mirror) -> Option<GracePeriod> {
        let has_progress = self.feed.retry(mirror);
        self.look_if(false, mirror);
        if has_progress { self.feed.grace() } else { None }
    }

    /// Returns the routes that were refused since the last call, and those that were installed after a refusal. Logs
    /// the routes that did not fit.
    fn outcome(&mut self) -> FibOutcome {
        let outcome = self.feed.take_outcome();
        let errors = std::mem::take(&mut self.errors);
        // A full table refuses every additional route, so at most one message a minute is logged.
        let is_due = self.refused.is_none_or(|last| last.elapsed().as_secs() >= 60);
        if let (false, true, Some(error)) = (outcome.refused.is_empty(), is_due, errors.first()) {
            let count = outcome.refused.len();
            tracing::error!(router = %self.router, count, "{error}; what there is goes on forwarding");
            self.refused = Some(Instant::now());
        }
        outcome
    }

    /// Reads devices, addresses and policy routing rules again from the mirror of the kernel's routing state, if
    /// `is_changed` is true or if the numbers of the mirrored route tables have changed since the last read.
    fn look_if(&mut self, is_changed: bool, mirror: &Mirror) {
        if is_changed || !self.feed.tables().eq(self.seen.tables.iter().copied()) {
            self.look(mirror);
            // One pending wake-up is enough.
            let _ = self.wake.try_send(());
        }
    }

    /// Reads devices, addresses and policy routing rules again from the mirror of the kernel's routing state, if
    /// interface numbers have changed since the last read.
    pub fn look_renumbered(&mut self, mirror: &Mirror) {
        if self.is_renumbered {
            self.look(mirror);
            let _ = self.wake.try_send(());
        }
    }

    /// Reads devices, addresses and policy routing rules from the mirror (the copy of the kernel's routing
    /// state). Routes and neighbours are not read.
    pub fn look(&mut self, mirror: &Mirror) {
        self.is_renumbered = false;
        let mut devices = BTreeMap::new();
        let mut bound = BTreeMap::new();
        let mut names = BTreeMap::new();
        let by_name: BTreeMap<&str, &netlink::Link> =
            mirror.links.values().map(|link| (link.name.as_str(), link)).collect();
        for (device, number) in &self.interfaces {
            // A renamed device is still the interface's device.
            let before = self.seen.devices.get(device).map(|netdev| netdev.index);
            let known = before.into_iter().chain(self.open.get(device).copied());
            let known = known.filter_map(|index| mirror.links.get(&index)).next();
            let Some(link) = known.or_else(|| by_name.get(device.as_str()).copied()) else { continue };
            let Ok(mac) = link.address.as_slice().try_into() else { continue };
            bound.insert(link.index, *number);
            names.insert(link.name.as_str(), *number);
            let netdev = Netdev { index: link.index, mac: MacAddr(mac), mtu: link.mtu, up: link.up };
            devices.insert(device.clone(), netdev);
        }
        for device in self.bound.keys().chain(bound.keys()).copied().collect::<BTreeSet<u32>>() {
            if self.bound.get(&device) != bound.get(&device) {
                self.feed.bind(device, bound.get(&device).copied());
            }
        }
        let mut addresses: BTreeMap<u32, Vec<InterfaceAddress>> = BTreeMap::new();
        for own in mirror.addresses.iter().filter(|own| bound.contains_key(&own.link)) {
            addresses
                .entry(own.link)
                .or_default()
                .push(InterfaceAddress { address: own.local, prefix: own.prefix_length });
        }
        self.bound = bound;
        let number = |name: &str| names.get(name).copied();
        let excess_rules = [false, true].map(|v6| self.feed.excess_rules(mirror, v6, number));
        for (family, count, before) in [
            ("IPv4", excess_rules[0], self.seen.excess_rules[0]),
            ("IPv6", excess_rules[1], self.seen.excess_rules[1]),
        ] {
            if let (Some(count), None) = (count, before) {
                tracing::warn!(router = %self.router, family, count, "{}", excess(count));
            }
        }
        self.seen = ObservedNamespace {
            devices,
            own: own_addresses(mirror),
            addresses,
            four: self.feed.lookups(mirror, false, number),
            six: self.feed.lookups(mirror, true, number),
            tables: self.feed.tables().collect(),
            excess_rules,
        };
        // A hook routes packets of an address family only if its tables contain all routes that the policy routing
        // rules can select.
        if let Some(answers) = &self.answers {
            let known = |lookups: &[Lookup]| self.feed.serves_programs(lookups);
            answers.answer(known(&self.seen.four), known(&self.seen.six));
        }
    }
}
