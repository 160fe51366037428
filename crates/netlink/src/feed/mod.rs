//! Builds the routing tables and adjacencies of a virtual router from a mirror (a copy of the kernel's routing state).
//! Each kernel routing table becomes a [`Fib`], and each neighbour becomes an adjacency.
//!
//! In the common case, the destination of every packet is looked up in the local table and then in the main table. One
//! look-up must be sufficient. Therefore the [`Fib`] of the main table also contains the routes of the local table,
//! which take precedence over routes of the main table to an equal prefix.
//!
//! Among the routes to one prefix, the usable route with the lowest metric is installed. A route is usable unless all
//! its next hops are dead. If some routes to a prefix apply only to one type of service or to some sources, packets to
//! the prefix are punted to the kernel. The kernel also gets packets that it must encapsulate, broadcast and multicast
//! packets, and packets whose route has an MTU.

mod key;
mod local;
mod path;
mod selector;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet::MacAddr;
use router::{Adjacencies, Fib, FibError, Lookup, NeighbourMirror, Path, Selector, TableMirror, Verdict};
use sync::qsbr::Domain;
use sync::readers::{GracePeriods, Readers};

pub use self::local::own_addresses;

use self::key::{Key, four, six};
use self::local::{is_apart, tables_in, tables_of};
use self::path::{best, object};
use self::selector::{selected, selector};
use crate::mirror::{Change, Mirror};
use crate::rtnetlink::route::{RT_TABLE_LOCAL, RT_TABLE_MAIN};
use crate::rtnetlink::rule::{
    FR_ACT_BLACKHOLE, FR_ACT_NOP, FR_ACT_PROHIBIT, FR_ACT_TO_TBL, FR_ACT_UNREACHABLE,
};
use crate::state::{self, FibOutcome, NextHop, Rule};

/// Maximum number of routing tables of a router, in addition to the main and the local table. Each table takes
/// megabytes of memory and contains all next-hop objects. If a router needs more tables, the kernel forwards the
/// packets that use the additional tables.
const TABLES: usize = 64;
/// Maximum number of policy rules of an address family that workers evaluate. If a family has more rules, the kernel
/// forwards the packets of this family.
pub const RULES: usize = 128;

/// Number of consecutive failed attempts to install waiting routes in one table and address family. After these
/// failures, the next table or address family is tried.
const TRIES: usize = 16;

/// Limits of the tables of a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of each of a table's two tries (IPv4 and IPv6), in words of eight bytes.
    pub words: usize,
    /// Maximum number of IPv4 and IPv6 routes together in each table. Routes whose packets go to the kernel are not
    /// counted ([`Fib::with_limit`]).
    pub routes: usize,
    /// Maximum number of different paths in each table. Routes with equal paths share one path.
    pub paths: u32,
    /// Maximum number of neighbours and gateways together.
    pub neighbours: u32,
}

/// Shared memory for the copies of the main table and of all neighbours that BPF programs use to route packets.
pub struct Programs {
    /// Readers of the memory: workers and BPF programs. Memory is reused only after all readers have stopped using it.
    pub readers: Readers,
    /// Memory for the copy of the main table. Its size determines the number of words in the tries of the
    /// main table.
    pub table: TableMirror,
    /// Memory for the copy of the neighbours. This memory has one entry more than the limit of neighbours.
    pub neighbours: NeighbourMirror,
}

/// Routing tables and adjacencies of a virtual router, which are updated when the mirror of the kernel's routing state
/// changes.
pub struct Feed {
    domain: Arc<Domain>,
    /// Workers and BPF programs that read the tables. Changes of the tables never wait for these readers.
    readers: Readers,
    /// Memory for the copy of the main table that BPF programs read. `None` without BPF programs, and after
    /// the main table was created.
    programs: Option<(Readers, TableMirror)>,
    /// Whether BPF programs can read a copy of the main table.
    mirrored: bool,
    limits: Limits,
    fibs: BTreeMap<u32, Fib>,
    adjacencies: Adjacencies,
    refused: u64,
    /// Prefixes whose routes could not be installed because a table was full. The routes are installed when space
    /// becomes available.
    waiting: BTreeSet<Key>,
    /// Prefixes of routes in kernel tables for which the router has no table, because the router already has the
    /// maximum number of tables. The routes are installed when another table of the router is removed.
    without_table: BTreeSet<Key>,
    /// Routes that were refused, or were installed after a refusal, since the last call of [`Feed::take_outcome`].
    outcome: FibOutcome,
}

/// A grace period of the readers of a feed's tables. After the grace period, no reader uses memory that was freed
/// before the grace period. The caller waits for the end of the grace period without holding a lock on the feed.
#[derive(Debug)]
pub struct GracePeriod {
    readers: Readers,
    ticket: GracePeriods,
}

/// Maximum time for which [`GracePeriod::wait`] waits for workers. The time is limited, because a worker that does not
/// run never reaches a quiescent point.
const WORKERS_LIMIT: Duration = Duration::from_millis(100);

impl GracePeriod {
    /// Waits until BPF programs no longer use the freed memory. Then waits for a limited time until workers no longer
    /// use the memory.
    pub fn wait(self) {
        self.readers.wait_for_strangers(self.ticket);
        let deadline = Instant::now() + WORKERS_LIMIT;
        while !self.readers.are_past(self.ticket) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.fibs.keys().collect::<Vec<_>>();
        f.debug_struct("Feed")
            .field("tables", &tables)
            .field("mirrored", &self.mirrored)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// Creates a feed (the routing tables and adjacencies of a virtual router) that has no routing tables yet.
    /// `workers` is the number of workers that count the packets to each neighbour.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, limits: Limits, workers: usize) -> Feed {
        Feed {
            domain: Arc::clone(domain),
            readers: Readers::of(domain),
            programs: None,
            mirrored: false,
            limits,
            fibs: BTreeMap::new(),
            adjacencies: Adjacencies::new(domain, limits.neighbours, workers),
            refused: 0,
            waiting: BTreeSet::new(),
            without_table: BTreeSet::new(),
            outcome: FibOutcome::default(),
        }
    }

    /// Creates a feed like [`Feed::new`], which also copies the main table and the neighbours to the memory of
    /// `programs` for BPF programs.
    #[must_use]
    pub fn mirrored(domain: &Arc<Domain>, limits: Limits, workers: usize, programs: Programs) -> Feed {
        let Programs { readers, table, neighbours } = programs;
        let own = readers.without_waiting();
        let adjacencies = Adjacencies::mirrored(&own, limits.neighbours, workers, neighbours);
        Feed {
            readers,
            programs: Some((own, table)),
            adjacencies,
            limits,
            ..Feed::new(domain, Limits { neighbours: 0, ..limits }, 1)
        }
    }

    /// Returns whether BPF programs can route the packets that workers route with the look-ups `lookups`. This is the
    /// case if there is a single look-up, which applies to all packets and uses the main table.
    #[must_use]
    pub fn serves_programs(&self, lookups: &[Lookup]) -> bool {
        let main = self.fibs.get(&RT_TABLE_MAIN).filter(|_| self.mirrored);
        let (Some(main), [only]) = (main, lookups) else { return false };
        only.is_all_of(&main.view())
    }

    /// Returns the router's table for the kernel routing table with this number (254: main, 255: local). Returns `None`
    /// if the table does not exist.
    #[must_use]
    pub fn table(&self, number: u32) -> Option<&Fib> {
        self.fibs.get(&number)
    }

    /// Returns the numbers of the kernel routing tables that this feed has copied to tables of the router.
    pub fn tables(&self) -> impl Iterator<Item = u32> + '_ {
        self.fibs.keys().copied()
    }

    /// Returns the adjacencies. There is one adjacency for each gateway of a route and each known neighbour.
    #[must_use]
    pub fn adjacencies(&self) -> &Adjacencies {
        &self.adjacencies
    }

    /// Assigns an interface of the router to a kernel device. `None` states that the device is not an
    /// interface of the router.
    pub fn bind(&mut self, device: u32, interface: Option<u16>) {
        self.adjacencies.bind(device, interface);
    }

    /// Returns the number of look-ups that the policy rules of an address family require, if this number exceeds
    /// [`RULES`]. Returns `None` if the number is within the limit. `interface` returns the router interface number for
    /// a device name.
    #[must_use]
    pub fn excess_rules(
        &self,
        mirror: &Mirror,
        v6: bool,
        interface: impl Fn(&str) -> Option<u16>,
    ) -> Option<usize> {
        let all = mirror.rules.iter().filter(|rule| rule.v6 == v6).count();
        let asked = if all > RULES { self.rule_lookups(mirror, v6, &interface).len() } else { all };
        Some(asked).filter(|asked| *asked > RULES)
    }

    /// Returns the look-ups that the policy rules of an address family require, in the order of evaluation. If the
    /// rules require more than [`RULES`] look-ups, the result punts all packets to the kernel. `interface` returns the
    /// router interface number for a device name. The result changes when the rules change or when a table is created.
    pub fn lookups(&self, mirror: &Mirror, v6: bool, interface: impl Fn(&str) -> Option<u16>) -> Vec<Lookup> {
        let mut lookups = self.without_forwarding(mirror, v6, &interface);
        let asked = self.rule_lookups(mirror, v6, &interface);
        if asked.len() > RULES {
            lookups.push(Lookup::say(Selector::ALL, Verdict::Local));
        } else {
            lookups.extend(asked);
        }
        lookups
    }

    /// Returns the lookups that the policy rules of an address family require, in the order of the rules.
    fn rule_lookups(
        &self,
        mirror: &Mirror,
        v6: bool,
        interface: &impl Fn(&str) -> Option<u16>,
    ) -> Vec<Lookup> {
        let rules: Vec<&Rule> = mirror.rules.iter().filter(|rule| rule.v6 == v6).collect();
        let mut lookups = Vec::new();
        let apart = is_apart(mirror, v6, rules.len());
        for (at, rule) in rules.iter().enumerate() {
            let Some(selector) = selector(rule, interface) else { continue };
            // The main table also contains the routes of the local table.
            let next =
                rules.get(at + 1).filter(|next| next.action == FR_ACT_TO_TBL && next.table == RT_TABLE_MAIN);
            let both = next.is_some_and(|next| selected(next, interface) == Some(Selector::ALL));
            if rule.table == RT_TABLE_LOCAL && rule.is_plain() && selector == Selector::ALL && both && !apart
            {
                continue;
            }
            match (rule.action, self.fibs.get(&rule.table)) {
                (FR_ACT_TO_TBL, Some(fib)) if rule.is_plain() => {
                    lookups.push(Lookup::table_for(selector, fib.view()))
                }
                // The kernel may have routes in this table, but the router has no space for the table.
                (FR_ACT_TO_TBL, None) if rule.is_plain() && self.has_all_tables() => {
                    lookups.push(Lookup::say(selector, Verdict::Local))
                }
                (FR_ACT_TO_TBL, None) if rule.is_plain() => {}
                (FR_ACT_NOP, _) => {}
                (FR_ACT_BLACKHOLE, _) if rule.is_plain() => {
                    lookups.push(Lookup::say(selector, Verdict::Blackhole))
                }
                (FR_ACT_UNREACHABLE, _) if rule.is_plain() => {
                    lookups.push(Lookup::say(selector, Verdict::Unreachable))
                }
                (FR_ACT_PROHIBIT, _) if rule.is_plain() => {
                    lookups.push(Lookup::say(selector, Verdict::Prohibit))
                }
                // The rule uses unsupported conditions or jumps to another rule, so the packets are punted to
                // the kernel.
                _ => lookups.push(Lookup::say(selector, Verdict::Local)),
            }
        }
        lookups
    }

    /// Returns look-ups for packets that arrive on devices with disabled forwarding. Of these packets, only those to
    /// this host's own addresses are accepted. The look-ups precede those of the policy rules.
    fn without_forwarding(
        &self,
        mirror: &Mirror,
        v6: bool,
        interface: &impl Fn(&str) -> Option<u16>,
    ) -> Vec<Lookup> {
        let off = mirror.links.values().filter(|link| !mirror.forwards(v6, link.index));
        let off = off.filter_map(|link| interface(&link.name));
        let said: Vec<Lookup> =
            off.map(|number| Lookup::say(Selector::ALL.interface(number), Verdict::NotForwarding)).collect();
        let local = self.fibs.get(&RT_TABLE_LOCAL).filter(|_| !said.is_empty());
        local.map(|fib| Lookup::table_for(Selector::ALL, fib.view())).into_iter().chain(said).collect()
    }

    /// Returns how often a route was refused because a table was full. A refused route is installed when space becomes
    /// available.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the routes that were refused, and the routes that were installed after a refusal, since the last call. A
    /// route is in at most one of these two lists.
    pub fn take_outcome(&mut self) -> FibOutcome {
        let FibOutcome { mut refused, mut found } = std::mem::take(&mut self.outcome);
        refused.retain(|(table, prefix)| self.waits(*table, prefix.address, prefix.length));
        found.retain(|(table, prefix)| !self.waits(*table, prefix.address, prefix.length));
        FibOutcome { refused, found }
    }

    /// Returns whether a route to exactly this prefix of a kernel table is not installed yet, because there
    /// is no space for it.
    #[must_use]
    pub fn waits(&self, table: u32, address: IpAddr, length: u8) -> bool {
        let key = match address {
            IpAddr::V4(address) => Key::Four(table, state::Prefix { address, length }),
            IpAddr::V6(address) => Key::Six(table, state::Prefix { address, length }),
        };
        self.waiting.contains(&key) || self.without_table.contains(&key)
    }

    /// Returns whether the router has the maximum number of tables, so no other table can be created. The main and the
    /// local table are not counted.
    fn has_all_tables(&self) -> bool {
        let own = self.fibs.keys().filter(|table| !matches!(**table, RT_TABLE_MAIN | RT_TABLE_LOCAL)).count();
        own >= TABLES
    }

    /// Returns whether the router has no table for this kernel table, and cannot create such a table because the router
    /// already has the maximum number of tables.
    fn lacks_table(&self, table: u32) -> bool {
        !matches!(table, RT_TABLE_MAIN | RT_TABLE_LOCAL)
            && !self.fibs.contains_key(&table)
            && self.has_all_tables()
    }

    /// Removes tables that have no routes and to which no policy rule refers. Then creates tables that could not be
    /// created before because of the maximum number of tables, and installs their routes.
    fn change_tables(&mut self, mirror: &Mirror) {
        let is_empty =
            |(table, fib): (&u32, &Fib)| !matches!(*table, RT_TABLE_MAIN | RT_TABLE_LOCAL) && fib.is_empty();
        if self.fibs.iter().any(is_empty) {
            let named =
                mirror.rules.iter().filter(|rule| rule.action == FR_ACT_TO_TBL).map(|rule| rule.table);
            let waiting = self.waiting.iter().map(|key| key.table());
            let used: BTreeSet<u32> = named.chain(waiting).collect();
            self.fibs.retain(|table, fib| !is_empty((table, fib)) || used.contains(table));
        }
        while let Some(first) = self.without_table.first().copied().filter(|_| !self.has_all_tables()) {
            let begins = [Key::first_of(first.table(), false), Key::first_of(first.table(), true)];
            let own = begins.into_iter().flat_map(|from| {
                let same = move |key: &&Key| key.table() == from.table() && key.is_v6() == from.is_v6();
                self.without_table.range(from..).take_while(same).copied()
            });
            for key in own.collect::<Vec<Key>>() {
                self.without_table.remove(&key);
                if self.bring(mirror, key).is_ok() {
                    self.outcome.found.push(key.table_prefix());
                } else {
                    self.waiting.insert(key);
                }
            }
        }
    }

    /// Updates the routing tables and adjacencies with `changes`, which the mirror of the kernel's routing state
    /// reports. Returns an error for each route that was refused. All other changes are applied.
    ///
    /// The method never waits for readers. A refusal can be temporary: memory that earlier changes released cannot be
    /// reused while readers still use this memory. In this case, the caller waits for [`Feed::grace`] and calls
    /// [`Feed::retry`].
    pub fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Vec<FibError> {
        let mut errors = Vec::new();
        // Each object is processed once, regardless of the number of its changes.
        let mut objects = BTreeSet::new();
        let (mut four, mut six) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::NextHop(id) => {
                    let member = |next: &NextHop| next.group.iter().any(|member| member.id == *id);
                    objects.insert(*id);
                    objects
                        .extend(mirror.next_hops.iter().filter(|(_, next)| member(next)).map(|(id, _)| *id));
                }
                Change::Route4(key) => four.extend(tables_of(key.table).map(|table| (table, key.prefix))),
                Change::Route6(key) => six.extend(tables_of(key.table).map(|table| (table, key.prefix))),
                Change::Neighbour(key) => {
                    let mac =
                        mirror.neighbours.get(key).and_then(|known| known.address.as_slice().try_into().ok());
                    self.adjacencies.resolve(key.link, key.address, mac.map(MacAddr));
                }
                Change::Link(_) | Change::Address(_) | Change::Rules | Change::Settings(_) => {}
            }
        }
        // Deleted objects are removed at the end, when no route uses them any more.
        let (there, gone): (Vec<u32>, Vec<u32>) =
            objects.into_iter().partition(|id| mirror.next_hops.contains_key(id));
        for id in there {
            let path = mirror.next_hops.get(&id).map(|next| object(mirror, next));
            self.fibs.values_mut().for_each(|fib| fib.define(id, path.as_ref(), &mut self.adjacencies));
        }
        let keys = four.into_iter().map(|(table, prefix)| Key::Four(table, prefix));
        let keys = keys.chain(six.into_iter().map(|(table, prefix)| Key::Six(table, prefix)));
        // Existing prefixes come first, because removals free space for new prefixes.
        let (there, new): (Vec<Key>, Vec<Key>) = keys.partition(|key| self.has(*key));
        for key in there.into_iter().chain(new) {
            let has_waited = self.waiting.remove(&key) | self.without_table.remove(&key);
            match self.bring(mirror, key) {
                Ok(()) if has_waited => self.outcome.found.push(key.table_prefix()),
                Ok(()) => {}
                Err(error) => {
                    self.leave_to_kernel(mirror, key);
                    self.outcome.refused.push(key.table_prefix());
                    let lacks_table = matches!(error, FibError::Tables { .. });
                    let waits = if lacks_table { &mut self.without_table } else { &mut self.waiting };
                    waits.insert(key);
                    errors.push(error);
                }
            }
        }
        self.bring_waiting(mirror);
        for id in gone {
            self.fibs.values_mut().for_each(|fib| fib.define(id, None, &mut self.adjacencies));
        }
        self.change_tables(mirror);
        self.retry_paths();
        self.refused += u64::try_from(errors.len()).unwrap_or(u64::MAX);
        errors
    }

    /// Begins a grace period, after which freed memory is available for the routes, paths and neighbours that could not
    /// be stored. Returns `None` if all routes, paths and neighbours are stored, or if no memory is waiting to be
    /// freed.
    #[must_use]
    pub fn grace(&self) -> Option<GracePeriod> {
        let is_freeing = self.adjacencies.is_freeing() || self.fibs.values().any(Fib::is_freeing);
        (self.waiting() > 0 && is_freeing)
            .then(|| GracePeriod { readers: self.readers.clone(), ticket: self.readers.begin() })
    }

    /// Tries again to install the routes and neighbours for which there was no space. Returns whether at least one was
    /// installed.
    pub fn retry(&mut self, mirror: &Mirror) -> bool {
        let before = self.waiting();
        self.bring_waiting(mirror);
        self.retry_paths();
        self.waiting() < before
    }

    fn retry_paths(&mut self) {
        self.fibs.values_mut().for_each(|fib| fib.retry(&mut self.adjacencies));
        self.adjacencies.retry();
    }

    /// Returns the number of routes, paths and neighbours for which there is no space yet.
    fn waiting(&self) -> usize {
        let paths: usize = self.fibs.values().map(Fib::waiting).sum();
        self.waiting.len() + self.adjacencies.waiting() + paths
    }

    /// Tries again to install the routes that were refused earlier. Continues after a failed attempt, because later
    /// routes may need less space. After `TRIES` consecutive failures in a table and address family, continues with the
    /// next table or address family.
    fn bring_waiting(&mut self, mirror: &Mirror) {
        let (mut from, mut refused) = (Bound::Unbounded, 0);
        while let Some(key) = self.waiting.range((from, Bound::Unbounded)).next().copied() {
            from = Bound::Excluded(key);
            if self.bring(mirror, key).is_ok() {
                self.waiting.remove(&key);
                self.outcome.found.push(key.table_prefix());
                refused = 0;
                continue;
            }
            refused += 1;
            if refused >= TRIES {
                refused = 0;
                let Some(next) = key.next_table() else { break };
                from = Bound::Included(next);
            }
        }
    }

    /// Replaces the route to a prefix with a route that punts the packets to the kernel. This is done if the table had
    /// no space for a new route and still contains the previous route, whose next hop may no longer be valid. Does
    /// nothing if the table has no route to exactly this prefix.
    fn leave_to_kernel(&mut self, mirror: &Mirror, key: Key) {
        if !self.has(key) {
            return;
        }
        let kernel = match key {
            Key::Four(table, prefix) => {
                let (fib, adjacencies) = self.fib(mirror, table);
                fib.set4(four(prefix), &Path::Local, adjacencies)
            }
            Key::Six(table, prefix) => {
                let (fib, adjacencies) = self.fib(mirror, table);
                fib.set6(six(prefix), &Path::Local, adjacencies)
            }
        };
        if let Err(error) = kernel {
            tracing::warn!(?key, %error, "a changed route goes on by its old way");
        }
    }

    /// Returns whether a table has a route to exactly this prefix.
    fn has(&self, key: Key) -> bool {
        match key {
            Key::Four(table, prefix) => self.fibs.get(&table).is_some_and(|fib| fib.has4(four(prefix))),
            Key::Six(table, prefix) => self.fibs.get(&table).is_some_and(|fib| fib.has6(six(prefix))),
        }
    }

    /// Installs, replaces or removes the route to a prefix in a table of the router, so that the table agrees with the
    /// mirror of the kernel's routing state.
    fn bring(&mut self, mirror: &Mirror, key: Key) -> Result<(), FibError> {
        let lacks_table = self.lacks_table(key.table());
        let no_table = |prefix: &dyn fmt::Display| {
            Err(FibError::Tables { prefix: prefix.to_string(), table: key.table(), limit: TABLES })
        };
        match key {
            Key::Four(table, prefix) => {
                let path = tables_in(table).find_map(|table| best(&mirror.routes4, table, prefix));
                if lacks_table && path.is_some() {
                    return no_table(&prefix);
                }
                match (path, self.fibs.get_mut(&table)) {
                    (Some(path), _) => {
                        let (fib, adjacencies) = self.fib(mirror, table);
                        fib.set4(four(prefix), &path, adjacencies)
                    }
                    (None, Some(fib)) => fib.remove4(four(prefix), &mut self.adjacencies),
                    (None, None) => Ok(()),
                }
            }
            Key::Six(table, prefix) => {
                let path = tables_in(table).find_map(|table| best(&mirror.routes6, table, prefix));
                if lacks_table && path.is_some() {
                    return no_table(&prefix);
                }
                match (path, self.fibs.get_mut(&table)) {
                    (Some(path), _) => {
                        let (fib, adjacencies) = self.fib(mirror, table);
                        fib.set6(six(prefix), &path, adjacencies)
                    }
                    (None, Some(fib)) => fib.remove6(six(prefix), &mut self.adjacencies),
                    (None, None) => Ok(()),
                }
            }
        }
    }

    /// Returns the router's table with this number, and the adjacencies. If the table does not exist, it is created
    /// with the paths of all next-hop objects.
    fn fib(&mut self, mirror: &Mirror, table: u32) -> (&mut Fib, &mut Adjacencies) {
        let Feed { domain, limits, fibs, adjacencies, programs, mirrored, .. } = self;
        let fib = fibs.entry(table).or_insert_with(|| {
            let programs = (table == RT_TABLE_MAIN).then(|| programs.take()).flatten();
            let made = programs.map(|(readers, memory)| Fib::mirrored(&readers, memory, limits.paths));
            // If the memory for BPF programs is too small, only workers route packets.
            let made = made.and_then(Result::ok);
            *mirrored |= made.is_some();
            let fib = made.unwrap_or_else(|| Fib::new(domain, limits.words, limits.paths));
            let mut fib = fib.with_limit(limits.routes);
            for (id, next) in &mirror.next_hops {
                fib.define(*id, Some(&object(mirror, next)), adjacencies);
            }
            fib
        });
        (fib, adjacencies)
    }
}

#[cfg(test)]
mod tests;
