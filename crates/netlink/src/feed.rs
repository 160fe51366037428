//! From a mirror to the tables of a virtual router: each of the kernel's tables is a [`Fib`], each neighbour an adjacency.
//!
//! Nearly always every packet's destination is looked for in the local table and then in the main one: the main table's [`Fib`] holds
//! the local one's routes, too, before its own to the same prefix, so that one look-up does.
//!
//! Of the routes to one prefix the one with the lowest metric counts whose ways out are not all dead. Where some are for one type of service
//! or from some sources only, the kernel knows which one counts, and gets the packets. What the kernel encapsulates, broadcasts, sends to a
//! group or by a route with an MTU of its own stays the kernel's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::Arc;

use packet::MacAddr;
use router::{
    Adjacencies, Fib, FibError, Lookup, NeighbourMirror, Path, Selector, TableMirror, Verdict, Way,
};
use sync::qsbr::Domain;
use sync::readers::Readers;

use crate::mirror::{Change, Mirror};
use crate::routes::Routes;
use crate::state::{self, Family, FibOutcome, Hop, Kind, Member, NextHop, RouteKey, Rule, TablePrefix};

/// The kernel's main and local tables.
const MAIN: u32 = 254;
const LOCAL: u32 = 255;
/// `FIB_RULE_INVERT`.
const INVERT: u32 = 2;

/// How much a virtual router holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Words of eight bytes of each table's tries.
    pub words: usize,
    /// Routes of both families together of each table, those to the kernel aside ([`Fib::with_limit`]).
    pub routes: usize,
    /// Different paths of each table.
    pub paths: u32,
    /// Neighbours and gateways.
    pub neighbours: u32,
}

/// Memory in which the main table and all neighbours stand once more, for programs that route.
pub struct Programs {
    /// Workers, and the programs.
    pub readers: Readers,
    /// The main table's; its tries have as many words as this has.
    pub table: TableMirror,
    /// For one neighbour more than the limit.
    pub neighbours: NeighbourMirror,
}

/// Tables that follow a mirror.
pub struct Feed {
    domain: Arc<Domain>,
    /// Until there is a main table.
    programs: Option<(Readers, TableMirror)>,
    /// Whether the main table is where programs look.
    mirrored: bool,
    limits: Limits,
    fibs: BTreeMap<u32, Fib>,
    adjacencies: Adjacencies,
    refused: u64,
    /// Routes that found no room: they come when there is some.
    waiting: BTreeSet<Key>,
    /// What became of routes since the last [`Feed::take_outcome`].
    outcome: FibOutcome,
}

/// A prefix of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Four(u32, state::Prefix<Ipv4Addr>),
    Six(u32, state::Prefix<Ipv6Addr>),
}

/// Routes of a table and family that are tried one after the other, and find no room, before those of the next one are.
const TRIES: usize = 16;

impl Key {
    /// The key before those of the next table, or family.
    fn next_table(self) -> Option<Key> {
        let four = |table| Key::Four(table, state::Prefix { address: Ipv4Addr::UNSPECIFIED, length: 0 });
        let six = |table| Key::Six(table, state::Prefix { address: Ipv6Addr::UNSPECIFIED, length: 0 });
        match self {
            Key::Four(table, _) => Some(table.checked_add(1).map_or_else(|| six(0), four)),
            Key::Six(table, _) => table.checked_add(1).map(six),
        }
    }
}

impl Key {
    fn table_prefix(self) -> TablePrefix {
        match self {
            Key::Four(table, state::Prefix { address, length }) => {
                (table, state::Prefix { address: address.into(), length })
            }
            Key::Six(table, state::Prefix { address, length }) => {
                (table, state::Prefix { address: address.into(), length })
            }
        }
    }
}

fn four(prefix: state::Prefix<Ipv4Addr>) -> lookup::Prefix<u32> {
    lookup::Prefix::new(prefix.address.to_bits(), prefix.length)
}

fn six(prefix: state::Prefix<Ipv6Addr>) -> lookup::Prefix<u128> {
    lookup::Prefix::new(prefix.address.to_bits(), prefix.length)
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
    /// No tables yet. What is sent to each neighbour is counted by so many workers.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, limits: Limits, workers: usize) -> Feed {
        Feed {
            domain: Arc::clone(domain),
            programs: None,
            mirrored: false,
            limits,
            fibs: BTreeMap::new(),
            adjacencies: Adjacencies::new(domain, limits.neighbours, workers),
            refused: 0,
            waiting: BTreeSet::new(),
            outcome: FibOutcome::default(),
        }
    }

    /// The same with programs that read the main table and neighbours, too.
    #[must_use]
    pub fn mirrored(domain: &Arc<Domain>, limits: Limits, workers: usize, programs: Programs) -> Feed {
        let Programs { readers, table, neighbours } = programs;
        let adjacencies = Adjacencies::mirrored(&readers, limits.neighbours, workers, neighbours);
        Feed {
            programs: Some((readers, table)),
            adjacencies,
            limits,
            ..Feed::new(domain, Limits { neighbours: 0, ..limits }, 1)
        }
    }

    /// Whether programs find all that these lookups say: the main table is asked about all packets, and nothing else.
    #[must_use]
    pub fn serves_programs(&self, lookups: &[Lookup]) -> bool {
        let main = self.fibs.get(&MAIN).filter(|_| self.mirrored);
        let (Some(main), [only]) = (main, lookups) else { return false };
        only.is_all_of(&main.view())
    }

    /// A table of the kernel's (254: main, 255: local).
    #[must_use]
    pub fn table(&self, number: u32) -> Option<&Fib> {
        self.fibs.get(&number)
    }

    /// Numbers of the tables that there are.
    pub fn tables(&self) -> impl Iterator<Item = u32> + '_ {
        self.fibs.keys().copied()
    }

    /// Whom routes lead to, and who is known on the links.
    #[must_use]
    pub fn adjacencies(&self) -> &Adjacencies {
        &self.adjacencies
    }

    /// Which of the router's interfaces one of the kernel's devices is; `None`: none of them.
    pub fn bind(&mut self, device: u32, interface: Option<u16>) {
        self.adjacencies.bind(device, interface);
    }

    /// Where packets' routes are looked for, as the rules of a family say; `interface` gives the number of the device of a name. It says
    /// something else when the rules have changed or a table has come.
    pub fn lookups(&self, mirror: &Mirror, v6: bool, interface: impl Fn(&str) -> Option<u16>) -> Vec<Lookup> {
        let rules: Vec<&Rule> = mirror.rules.iter().filter(|rule| rule.v6 == v6).collect();
        let mut lookups = self.without_forwarding(mirror, v6, &interface);
        let apart = is_apart(mirror, v6, rules.len());
        for (at, rule) in rules.iter().enumerate() {
            let Some(selector) = selector(rule, &interface) else { continue };
            // The main table holds what the local one does.
            let next = rules.get(at + 1).filter(|next| next.action == TO_TABLE && next.table == MAIN);
            let both = next.is_some_and(|next| selected(next, &interface) == Some(Selector::ALL));
            if rule.table == LOCAL && rule.is_plain() && selector == Selector::ALL && both && !apart {
                continue;
            }
            match (rule.action, self.fibs.get(&rule.table)) {
                (TO_TABLE, Some(fib)) if rule.is_plain() => {
                    lookups.push(Lookup::table_for(selector, fib.view()))
                }
                (TO_TABLE, None) if rule.is_plain() => {}
                (NOTHING, _) => {}
                (6, _) if rule.is_plain() => lookups.push(Lookup::say(selector, Verdict::Blackhole)),
                (7, _) if rule.is_plain() => lookups.push(Lookup::say(selector, Verdict::Unreachable)),
                (8, _) if rule.is_plain() => lookups.push(Lookup::say(selector, Verdict::Prohibit)),
                // It asks for more than is read here, or jumps: the kernel knows.
                _ => lookups.push(Lookup::say(selector, Verdict::Local)),
            }
        }
        lookups
    }

    /// What packets meet first that have come in where their family is not routed: this host's own addresses, and nothing else.
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
        let local = self.fibs.get(&LOCAL).filter(|_| !said.is_empty());
        local.map(|fib| Lookup::table_for(Selector::ALL, fib.view())).into_iter().chain(said).collect()
    }

    /// How often routes found no room so far: they come as soon as there is some.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes what became of changed routes since the last call.
    pub fn take_outcome(&mut self) -> FibOutcome {
        std::mem::take(&mut self.outcome)
    }

    /// Whether a route to just this prefix waits for room in a table of the kernel's.
    #[must_use]
    pub fn waits(&self, table: u32, address: IpAddr, length: u8) -> bool {
        self.waiting.contains(&match address {
            IpAddr::V4(address) => Key::Four(table, state::Prefix { address, length }),
            IpAddr::V6(address) => Key::Six(table, state::Prefix { address, length }),
        })
    }

    /// Brings the tables up to what has changed in a mirror. Gives what found no room; the rest is done all the same.
    pub fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Vec<FibError> {
        let mut errors = Vec::new();
        // Once for each, however often it has changed.
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
        // Those that have gone when no route leads there any more.
        let (there, gone): (Vec<u32>, Vec<u32>) =
            objects.into_iter().partition(|id| mirror.next_hops.contains_key(id));
        for id in there {
            let path = mirror.next_hops.get(&id).map(|next| object(mirror, next));
            self.fibs.values_mut().for_each(|fib| fib.define(id, path.as_ref(), &mut self.adjacencies));
        }
        let keys = four.into_iter().map(|(table, prefix)| Key::Four(table, prefix));
        let keys = keys.chain(six.into_iter().map(|(table, prefix)| Key::Six(table, prefix)));
        // What goes makes room for what comes.
        let (there, new): (Vec<Key>, Vec<Key>) = keys.partition(|key| self.has(*key));
        for key in there.into_iter().chain(new) {
            let has_waited = self.waiting.remove(&key);
            match self.bring(mirror, key) {
                Ok(()) if has_waited => self.outcome.found.push(key.table_prefix()),
                Ok(()) => {}
                Err(error) => {
                    self.leave_to_kernel(mirror, key);
                    self.outcome.refused.push(key.table_prefix());
                    self.waiting.insert(key);
                    errors.push(error);
                }
            }
        }
        self.bring_waiting(mirror);
        for id in gone {
            self.fibs.values_mut().for_each(|fib| fib.define(id, None, &mut self.adjacencies));
        }
        self.refused += u64::try_from(errors.len()).unwrap_or(u64::MAX);
        errors
    }

    /// Brings what waits for room, as far as there is some: each table and family has its own room, and what stands first there may need
    /// more than what follows.
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

    /// Has the kernel forward what a prefix says of which a table still has the way that it had before, and no room for the one that it has
    /// now: the old way may lead to nobody any more.
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

    /// Whether a table has a route for just this prefix.
    fn has(&self, key: Key) -> bool {
        match key {
            Key::Four(table, prefix) => self.fibs.get(&table).is_some_and(|fib| fib.has4(four(prefix))),
            Key::Six(table, prefix) => self.fibs.get(&table).is_some_and(|fib| fib.has6(six(prefix))),
        }
    }

    /// Makes a table say what the mirror says of a prefix.
    fn bring(&mut self, mirror: &Mirror, key: Key) -> Result<(), FibError> {
        match key {
            Key::Four(table, prefix) => {
                let path = tables_in(table).find_map(|table| best(&mirror.routes4, table, prefix));
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

    /// A table, which begins with what all next-hop objects are.
    fn fib(&mut self, mirror: &Mirror, table: u32) -> (&mut Fib, &mut Adjacencies) {
        let Feed { domain, limits, fibs, adjacencies, programs, mirrored, .. } = self;
        let fib = fibs.entry(table).or_insert_with(|| {
            let programs = (table == MAIN).then(|| programs.take()).flatten();
            let made = programs.map(|(readers, memory)| Fib::mirrored(&readers, memory, limits.paths));
            // Memory that is too small serves nobody: workers route alone.
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

/// This host's own addresses, and those of all hosts on its links, as the local table has them one by one: what is sent to them is
/// the kernel's.
#[must_use]
pub fn own_addresses(mirror: &Mirror) -> (BTreeSet<Ipv4Addr>, BTreeSet<Ipv6Addr>) {
    let own = |kind| matches!(kind, Kind::Local | Kind::Broadcast | Kind::Anycast);
    (hosts(&mirror.routes4, 32, own), hosts(&mirror.routes6, 128, own))
}

/// Single addresses of the local table whose routes are of a kind.
fn hosts<A: Family>(routes: &Routes<A>, length: u8, wanted: impl Fn(Kind) -> bool) -> BTreeSet<A> {
    let everyone = state::Prefix { address: A::ZERO, length: 0 };
    let key = |table| RouteKey { table, prefix: everyone, tos: 0, metric: 0, from: everyone };
    let local = routes.range(key(LOCAL)..=key(LOCAL + 1));
    let single = local.filter(|(key, paths)| {
        key.table == LOCAL
            && key.prefix.length == length
            && paths.first().is_some_and(|path| wanted(path.kind))
    });
    single.map(|(key, _)| key.prefix.address).collect()
}

/// Whether the local table has to be asked before the main one, because it has a wider prefix than one host's, which would not cover what the
/// main table has within it. The kernel looks into both at once only for IPv4 without rules but its own (`fib_lookup()`).
fn is_apart(mirror: &Mirror, v6: bool, rules: usize) -> bool {
    const OWN_RULES: usize = 3;
    let loopback = state::Prefix { address: Ipv4Addr::new(127, 0, 0, 0), length: 8 };
    match v6 {
        true => is_wide(&mirror.routes6, 128, None),
        false => rules > OWN_RULES && is_wide(&mirror.routes4, 32, Some(loopback)),
    }
}

/// Whether the local table has a prefix of this host's own that is no single address; the loopback network aside.
fn is_wide<A: Family>(routes: &Routes<A>, length: u8, loopback: Option<state::Prefix<A>>) -> bool {
    let everyone = state::Prefix { address: A::ZERO, length: 0 };
    let key = |table| RouteKey { table, prefix: everyone, tos: 0, metric: 0, from: everyone };
    routes.range(key(LOCAL)..=key(LOCAL + 1)).any(|(key, paths)| {
        let kind = paths.first().map(|path| path.kind);
        key.table == LOCAL
            && key.prefix.length < length
            && kind != Some(Kind::Multicast)
            && Some(key.prefix) != loopback
    })
}

/// `FR_ACT_TO_TBL` and `FR_ACT_NOP`.
const TO_TABLE: u8 = 1;
const NOTHING: u8 = 3;

/// The tables that routes of one of the kernel's tables stand in.
fn tables_of(table: u32) -> impl Iterator<Item = u32> {
    std::iter::once(table).chain((table == LOCAL).then_some(MAIN))
}

/// The kernel's tables whose routes stand in a table, the first of them counting.
fn tables_in(table: u32) -> impl Iterator<Item = u32> {
    (table == MAIN).then_some(LOCAL).into_iter().chain(std::iter::once(table))
}

fn selector(rule: &Rule, interface: &impl Fn(&str) -> Option<u16>) -> Option<Selector> {
    match selected(rule, interface) {
        Some(selector) if rule.flags & INVERT != 0 => Some(selector.invert()),
        None if rule.flags & INVERT != 0 => Some(Selector::ALL),
        selector => selector,
    }
}

/// The packets that a rule names; `None` if there are none among those that are routed here.
fn selected(rule: &Rule, interface: &impl Fn(&str) -> Option<u16>) -> Option<Selector> {
    // Nobody has said yet where they are to leave, and they bear no mark.
    if rule.output.is_some() || rule.mark.is_some_and(|(mark, mask)| mark & mask != 0) {
        return None;
    }
    let mut selector = Selector::ALL.tos(rule.tos);
    if let Some(name) = &rule.input {
        selector = selector.interface(interface(name)?);
    }
    if let Some(source) = rule.source {
        selector = selector.from(source.address, source.length);
    }
    if let Some(destination) = rule.destination {
        selector = selector.to(destination.address, destination.length);
    }
    Some(selector)
}

/// What the routes to a prefix say.
fn best<A: Family>(routes: &Routes<A>, table: u32, prefix: state::Prefix<A>) -> Option<Path> {
    let mut usable = None;
    for (key, path) in routes.to_prefix(table, prefix) {
        if key.is_for_some() {
            return Some(Path::Local);
        }
        usable = usable.or(Some(path).filter(|path| path.is_usable()));
    }
    usable.map(said)
}

/// What a usable route says.
fn said(path: &state::Path) -> Path {
    match (path.kind, path.next_hop) {
        (Kind::Blackhole, _) => Path::Blackhole,
        (Kind::Unreachable, _) => Path::Unreachable,
        (Kind::Prohibit, _) => Path::Prohibit,
        (Kind::Throw, _) => Path::Throw,
        (Kind::Local | Kind::Broadcast | Kind::Anycast | Kind::Multicast | Kind::Other(_), _) => Path::Local,
        // Packets that are longer are cut or refused before they leave, though the device has room for them.
        (Kind::Unicast, _) if path.mtu.is_some() => Path::Local,
        (Kind::Unicast, Some(id)) => Path::Shared(id),
        (Kind::Unicast, None) if path.hops.iter().any(|hop| hop.encapsulates) => Path::Local,
        (Kind::Unicast, None) => Path::Ways(path.hops.iter().filter(|hop| !hop.dead).map(way).collect()),
    }
}

fn way(hop: &state::Hop) -> Way {
    Way { interface: hop.link, gateway: hop.gateway, weight: hop.weight }
}

/// What a next-hop object says.
fn object(mirror: &Mirror, next: &NextHop) -> Path {
    if next.blackhole {
        return Path::Blackhole;
    }
    if let Some(hop) = &next.hop {
        return match (hop.encapsulates, hop.dead) {
            (true, _) => Path::Local,
            // The kernel, which has no such object any more, answers.
            (false, true) => Path::Unreachable,
            (false, false) => Path::Ways(vec![way(hop)]),
        };
    }
    let hop = |member: &Member| Some((member.weight, mirror.next_hops.get(&member.id)?.hop?));
    let hops: Vec<(u16, Hop)> = next.group.iter().filter_map(hop).collect();
    let live = hops.iter().filter(|(_, hop)| !hop.dead);
    let ways: Vec<Way> = live.map(|(weight, hop)| Way { weight: *weight, ..way(hop) }).collect();
    match (ways.is_empty(), hops.is_empty()) {
        (false, _) => Path::Ways(ways),
        (true, false) => Path::Unreachable,
        // A group of one blackhole.
        (true, true) => Path::Blackhole,
    }
}
