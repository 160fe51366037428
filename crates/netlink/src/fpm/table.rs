//! Merges the routes that FPM sessions announce into a mirror (the copy of the kernel's routing state). The table
//! records which routes and next-hop objects come from sessions, which of them a replay has not announced again, and
//! the IDs of next-hop objects in the mirror.
//!
//! Sessions are the source of the routes of FRR's protocols ([`is_frrs`]) in all routing tables. Until the first replay
//! is complete, a route that no session has announced yet is taken from the kernel, which has a copy of it. A data
//! plane that starts while FRR is running therefore forwards immediately. From then on, the kernel's copies are
//! ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::answers::{Key, Said};
use crate::decode::{Event, Object};
use crate::frr::is_frrs;
use crate::mirror::{Change, Mirror};
use crate::routes::{Paths, Routes};
use crate::rtnetlink::protocol::RTPROT_ZEBRA;
use crate::rtnetlink::route::{
    RT_TABLE_LOCAL, RT_TABLE_MAIN, RT_TABLE_UNSPEC, RTN_BLACKHOLE, RTN_PROHIBIT, RTN_THROW, RTN_UNICAST,
    RTN_UNREACHABLE, RTN_UNSPEC,
};
use crate::state::{Family, Kind, Member, NextHop, Path, Prefix, RouteKey, TablePrefix};

/// Maximum number of routing tables that can contain routes of FPM sessions at a time.
const TABLES: usize = 64;
/// Maximum number of routes of a routing table that are examined in the search for a route of FRR. If the search
/// reaches this number without a result, the table counts as used by FPM sessions.
const LOOKED_AT: usize = 64;
/// Maximum number of next-hop objects of FPM sessions.
const OBJECTS: usize = 65_536;
/// Maximum number of members in all next-hop groups of FPM sessions together.
const MEMBERS: usize = 1 << 20;
/// First ID of the range from which the mirror assigns IDs to next-hop objects of FPM sessions whose own ID is already
/// in use. Neither the kernel nor zebra uses IDs in this range.
const ALIASES: u32 = 0x8000_0000;

/// Answer to zebra's announcement of a route, with the key of the route. `None` instead of an answer means a
/// withdrawal.
pub(crate) type Answer = (Key, Option<Said>);

/// Routes and next-hop objects that FPM sessions have announced, as merged into the mirror of the kernel's routing
/// state.
#[derive(Debug)]
pub(crate) struct Table {
    /// Whether a replay of zebra's routes was completed. From then on, the kernel's copies of FRR's routes are ignored.
    whole: bool,
    replay: Option<Replay>,
    /// Maps the ID that zebra uses for a next-hop object in the FPM session to the ID of this object in the mirror of
    /// the kernel's routing state.
    ids: HashMap<u32, u32>,
    /// ID to try first for another next-hop object whose own ID is already in use in the mirror of the kernel's routing
    /// state.
    next_alias: u32,
    /// Number of members of the next-hop groups in the mirror that FRR announced. While `members_went` is set, the
    /// number is only an upper bound, because removed members may still be counted.
    members: usize,
    members_went: bool,
    /// Routing tables that contain routes of FPM sessions. A routing table whose routes were removed stays in the set
    /// until the set is full and another routing table is added.
    tables: BTreeSet<u32>,
    /// Answers about announced routes that the router's tables refused, by route. If such a route is announced again,
    /// it counts as changed, even if the announcement is equal.
    failed: BTreeMap<Key, Said>,
    /// Maximum number of routes of all origins in the mirror of the kernel's routing state.
    limit: usize,
    /// Number of ignored messages: messages about routes whose source is the kernel, and messages about object types
    /// that the mirror does not contain.
    pub(crate) left: u64,
    /// Number of announced routes and next-hop objects that were refused because of a limit or an unknown next hop.
    pub(crate) refused: u64,
    /// Number of routes that were removed because a replay of zebra's routes did not announce them.
    pub(crate) swept: u64,
}

/// Keys of the routes that were announced since the start of the FPM session.
#[derive(Debug, Default)]
struct Replay {
    four: HashSet<RouteKey<Ipv4Addr>>,
    six: HashSet<RouteKey<Ipv6Addr>>,
}

impl Table {
    /// Creates an empty table for FPM sessions. `limit` is the maximum number of routes of all origins in the mirror of
    /// the kernel's routing state.
    pub(crate) fn new(limit: usize) -> Table {
        Table {
            whole: false,
            replay: None,
            ids: HashMap::new(),
            next_alias: ALIASES,
            members: 0,
            members_went: false,
            tables: BTreeSet::new(),
            failed: BTreeMap::new(),
            limit,
            left: 0,
            refused: 0,
            swept: 0,
        }
    }

    /// Returns whether FPM sessions, and not the kernel, are the source of the object that a kernel event describes.
    /// The event is then ignored.
    pub(crate) fn speaks_for(&self, event: &Event) -> bool {
        let named = |replay: &Replay| match &event.object {
            Object::Route4(key, _) => replay.four.contains(key),
            Object::Route6(key, _) => replay.six.contains(key),
            Object::NextHop(id, _) => self.ids.values().any(|own| own == id),
            _ => false,
        };
        let protocol = match &event.object {
            Object::Route4(key, path) if key.table != RT_TABLE_LOCAL => path.protocol,
            Object::Route6(key, path) if key.table != RT_TABLE_LOCAL => path.protocol,
            Object::NextHop(_, next) => next.protocol,
            _ => return false,
        };
        is_frrs(protocol) && (self.whole || self.replay.as_ref().is_some_and(named))
    }

    /// Copies the routes and next-hop objects of FPM sessions from `mirror` to the mirror `to`, which is a new dump of
    /// the kernel's state.
    pub(crate) fn carry(&self, mirror: &Mirror, to: &mut Mirror) {
        to.told_apart = true;
        let own: HashSet<u32> = self.ids.values().copied().collect();
        for (id, next) in &mirror.next_hops {
            if is_frrs(next.protocol) && (self.whole || own.contains(id)) {
                let next = to.with_life(next.clone());
                to.next_hops.insert(*id, next);
            }
        }
        let (four, six): (Option<_>, Option<_>) =
            self.replay.as_ref().map(|replay| (&replay.four, &replay.six)).unzip();
        let own = |table: u32, path: &Path| table != RT_TABLE_LOCAL && is_frrs(path.protocol);
        for (key, paths) in mirror.routes4.iter() {
            let counts = self.whole || four.is_some_and(|four| four.contains(key));
            let path = paths.all().iter().find(|path| counts && own(key.table, path));
            if let Some(path) = path.map(|path| to.share(false, path)) {
                to.routes4.put(*key, Some(path), |path| is_frrs(path.protocol));
            }
        }
        for (key, paths) in mirror.routes6.iter() {
            let counts = self.whole || six.is_some_and(|six| six.contains(key));
            let path = paths.all().iter().find(|path| counts && own(key.table, path));
            if let Some(path) = path.map(|path| to.share(true, path)) {
                to.routes6.put(*key, Some(path), |path| is_frrs(path.protocol));
            }
        }
    }

    /// Returns the number of routes that FRR has announced in this FPM session, or `None` after the first complete
    /// replay. Until then, FRR's routes that were not announced yet are in the mirror as copies from the kernel.
    pub(crate) fn named(&self) -> Option<u64> {
        let replay = self.replay.as_ref().map_or(0, |replay| replay.four.len() + replay.six.len());
        (!self.whole).then_some(replay as u64)
    }

    /// Starts an FPM session, in which zebra first replays all its routes.
    pub(crate) fn begin(&mut self) {
        self.replay = Some(Replay::default());
        self.ids.clear();
    }

    /// Ends an FPM session. All its routes are kept, including routes that its replay did not announce.
    pub(crate) fn lost(&mut self) {
        self.replay = None;
    }

    /// Completes the replay of zebra's routes in the FPM session. Removes routes and next-hop objects that the replay
    /// did not announce. Returns the number of removed routes.
    pub(crate) fn settled(&mut self, mirror: &mut Mirror, changes: &mut Vec<Change>) -> u64 {
        let Some(Replay { four, six }) = self.replay.take() else { return 0 };
        self.whole = true;
        let before = changes.len();
        let stays = |table: u32, path: &Path| table == RT_TABLE_LOCAL || !is_frrs(path.protocol);
        let gone = mirror.routes4.retain(|key, path| stays(key.table, path) || four.contains(key));
        changes.extend(gone.into_iter().map(Change::Route4));
        let gone = mirror.routes6.retain(|key, path| stays(key.table, path) || six.contains(key));
        changes.extend(gone.into_iter().map(Change::Route6));
        let swept = (changes.len() - before) as u64;
        let own: HashSet<u32> = self.ids.values().copied().collect();
        let old = |(id, next): &(&u32, &NextHop)| is_frrs(next.protocol) && !own.contains(*id);
        let old = mirror.next_hops.iter().filter(old).map(|(id, _)| *id).collect();
        mirror.next_hops_gone(old, changes);
        self.members_went = true;
        // A route that is gone gets no further answer.
        self.failed.retain(|key, _| match key {
            Key::Four(key) => mirror.routes4.get(key).is_some(),
            Key::Six(key) => mirror.routes6.get(key).is_some(),
        });
        self.swept += swept;
        swept
    }

    /// Applies events of the FPM session in order. Consecutive removals of next-hop objects are applied in one pass
    /// over the routes.
    pub(crate) fn apply_all(
        &mut self,
        mirror: &mut Mirror,
        events: Vec<Event>,
        changes: &mut Vec<Change>,
        answers: &mut Vec<Answer>,
    ) {
        let mut gone = HashSet::new();
        self.members_went |= events.iter().any(|event| event.gone);
        for event in events {
            match event {
                Event { gone: true, object: Object::NextHop(id, _), .. } => gone.extend(self.ids.remove(&id)),
                event => {
                    if !gone.is_empty() {
                        mirror.next_hops_gone(std::mem::take(&mut gone), changes);
                    }
                    self.apply(mirror, event, changes, answers);
                }
            }
        }
        if !gone.is_empty() {
            mirror.next_hops_gone(gone, changes);
        }
    }

    /// Applies one event of the FPM session to the mirror of the kernel's routing state, and appends the answer about
    /// an announced route to `answers`.
    pub(crate) fn apply(
        &mut self,
        mirror: &mut Mirror,
        event: Event,
        changes: &mut Vec<Change>,
        answers: &mut Vec<Answer>,
    ) {
        let Event { gone, object, .. } = event;
        match object {
            Object::NextHop(id, _) if gone => {
                self.members_went = true;
                mirror.next_hops_gone(self.ids.remove(&id).into_iter().collect(), changes);
            }
            Object::NextHop(id, next) => self.next_hop(mirror, id, next, changes),
            Object::Route4(key, path) => self.route(mirror, gone, key, path, changes, answers),
            Object::Route6(key, path) => self.route(mirror, gone, key, path, changes, answers),
            _ => self.left += 1,
        }
    }

    fn route<A: Told>(
        &mut self,
        mirror: &mut Mirror,
        gone: bool,
        mut key: RouteKey<A>,
        path: Path,
        changes: &mut Vec<Change>,
        answers: &mut Vec<Answer>,
    ) {
        // A missing table means the main table.
        key.table = if key.table == RT_TABLE_UNSPEC { RT_TABLE_MAIN } else { key.table };
        key.prefix.address = key.prefix.address.masked(key.prefix.length);
        let kind = match path.kind {
            Kind::Unicast => RTN_UNICAST,
            Kind::Blackhole => RTN_BLACKHOLE,
            Kind::Unreachable => RTN_UNREACHABLE,
            Kind::Prohibit => RTN_PROHIBIT,
            Kind::Throw => RTN_THROW,
            _ => RTN_UNSPEC,
        };
        let plain = key.table != RT_TABLE_LOCAL && key.tos == 0 && key.from.length == 0;
        if !plain || !is_frrs(path.protocol) || kind == RTN_UNSPEC && !gone {
            self.left += 1;
            return;
        }
        let protocol = path.protocol;
        let found = if gone { None } else { self.resolved(mirror, &key, path) };
        let is_there = found.is_some();
        let path = found.map(|path| mirror.share(A::BYTES == 16, &path));
        let changed = A::routes(mirror).put(key, path, |path| is_frrs(path.protocol));
        if self.failed.remove(&A::key(key)).is_some() || changed {
            changes.push(A::change(key));
        }
        if let Some(replay) = &mut self.replay {
            let named = A::named(replay);
            let _ = if is_there { named.insert(key) } else { named.remove(&key) };
        }
        self.refused += u64::from(!gone && !is_there);
        answers.push((A::key(key), (!gone).then_some(Said { protocol, kind, offloaded: is_there })));
    }

    /// Returns the path of an announced route, with zebra's next-hop ID replaced by the ID in the mirror of the
    /// kernel's routing state. Returns `None` if a limit is reached, or if the next-hop object is unknown.
    fn resolved<A: Told>(&mut self, mirror: &mut Mirror, key: &RouteKey<A>, mut path: Path) -> Option<Path> {
        if let Some(id) = path.next_hop {
            path.next_hop = Some(*self.ids.get(&id)?);
        }
        if !self.tables.contains(&key.table) {
            if self.tables.len() >= TABLES {
                self.tables
                    .retain(|table| is_filled(&mirror.routes4, *table) || is_filled(&mirror.routes6, *table));
            }
            if self.tables.len() >= TABLES {
                return None;
            }
            self.tables.insert(key.table);
        }
        let full = mirror.routes4.len() + mirror.routes6.len() >= self.limit;
        (!full || A::routes(mirror).get(key).is_some()).then_some(path)
    }

    fn next_hop(&mut self, mirror: &mut Mirror, id: u32, mut next: NextHop, changes: &mut Vec<Change>) {
        if !is_frrs(next.protocol) {
            next.protocol = RTPROT_ZEBRA;
        }
        let is_group = !next.group.is_empty();
        // As in the kernel, the members of a group must not be groups.
        let member = |member: &Member| {
            let id = *self.ids.get(&member.id)?;
            let single = mirror.next_hops.get(&id).is_some_and(|next| next.group.is_empty());
            single.then_some(Member { id, ..*member })
        };
        next.group = next.group.iter().filter_map(member).collect();
        next.group.sort_unstable();
        let next = mirror.with_life(next);
        let own = self.ids.get(&id).copied();
        let becomes =
            |own| mirror.next_hops.get(&own).is_none_or(|old: &NextHop| old.group.is_empty() != is_group);
        let fits = own.is_none_or(becomes) && (own.is_some() || self.ids.len() < OBJECTS);
        let said = |next: &NextHop| NextHop { protocol: RTPROT_ZEBRA, ..next.clone() };
        let same = |old: &NextHop| is_frrs(old.protocol) && said(old) == said(&next);
        // An equal object of the previous session is kept, and its members need no additional space.
        let old = mirror.next_hops.get(&own.unwrap_or(id));
        let old = old.filter(|old| own.is_some() || same(old));
        let before = old.map_or(0, |old| old.group.len());
        let more = next.group.len().saturating_sub(before);
        if id >= ALIASES || is_group && next.group.is_empty() || !fits || !self.has_members(mirror, more) {
            self.refused += 1;
            return;
        }
        let own = own.unwrap_or_else(|| {
            // The ID belongs to an object of the kernel, or to an object of the previous session, which routes
            // without a new announcement still use.
            let other = mirror.next_hops.get(&id).is_some_and(|old| !same(old));
            if other { self.free_alias(mirror) } else { id }
        });
        self.ids.insert(id, own);
        let before = mirror.next_hops.get(&own).map_or(0, |old| old.group.len());
        self.members = (self.members + next.group.len()).saturating_sub(before);
        if mirror.next_hops.get(&own) != Some(&next) {
            mirror.next_hops.insert(own, next);
            changes.push(Change::NextHop(own));
        }
    }

    /// Returns whether `more` additional members of FRR's next-hop groups are within the limit `MEMBERS`.
    fn has_members(&mut self, mirror: &Mirror, more: usize) -> bool {
        if self.members + more > MEMBERS && std::mem::take(&mut self.members_went) {
            let own = mirror.next_hops.values().filter(|next| is_frrs(next.protocol));
            self.members = own.map(|next| next.group.len()).sum();
        }
        more == 0 || self.members + more <= MEMBERS
    }

    /// Returns an ID that no next-hop object in the mirror uses. The ID is at least [`ALIASES`]. IDs that were in use
    /// recently are reused last.
    fn free_alias(&mut self, mirror: &Mirror) -> u32 {
        loop {
            let id = self.next_alias;
            self.next_alias = id.checked_add(1).unwrap_or(ALIASES);
            // The loop ends, because there are far more IDs than objects.
            if !mirror.next_hops.contains_key(&id) {
                return id;
            }
        }
    }

    /// Changes answers about installed routes to refusals, for the routes to `prefixes`, because the router's tables
    /// had no space for these routes.
    pub(crate) fn no_room(&mut self, prefixes: &[TablePrefix], answers: &mut [Answer]) {
        if prefixes.is_empty() {
            return;
        }
        let prefixes: HashSet<&TablePrefix> = prefixes.iter().collect();
        for (key, said) in answers {
            let Some(said) = said else { continue };
            if said.offloaded && prefixes.contains(&key.table_prefix()) {
                said.offloaded = false;
                self.refused += 1;
                self.failed.insert(*key, *said);
            }
        }
    }

    /// Queues answers about announced routes to `prefixes` that were refused before and are installed now. Removes
    /// these routes from the list of refused routes.
    pub(crate) fn found_room(&mut self, prefixes: &[TablePrefix], answers: &mut Vec<Answer>) {
        if prefixes.is_empty() || self.failed.is_empty() {
            return;
        }
        let prefixes: HashSet<&TablePrefix> = prefixes.iter().collect();
        self.failed.retain(|key, said| {
            let found = prefixes.contains(&key.table_prefix());
            if found {
                answers.push((*key, Some(Said { offloaded: true, ..*said })));
            }
            !found
        });
    }
}

/// Returns whether a routing table contains routes of FRR. Also returns `true` if the search ends without a result
/// because the table has more than [`LOOKED_AT`] routes.
fn is_filled<A: Family>(routes: &Routes<A>, table: u32) -> bool {
    let of_frr = |paths: &Paths| paths.all().iter().any(|path| is_frrs(path.protocol));
    let mut all = routes.within(None, Some(table), Prefix { address: A::ZERO, length: 0 });
    all.by_ref().take(LOOKED_AT).any(|(_, paths)| of_frr(paths)) || all.next().is_some()
}

/// Access to the routes of one address family (IPv4 or IPv6) in the mirror of the kernel's routing state and in a
/// replay of zebra's routes.
trait Told: Family + Hash {
    fn routes(mirror: &mut Mirror) -> &mut Routes<Self>;
    fn named(replay: &mut Replay) -> &mut HashSet<RouteKey<Self>>;
    fn key(key: RouteKey<Self>) -> Key;
    fn change(key: RouteKey<Self>) -> Change;
}

impl Told for Ipv4Addr {
    fn routes(mirror: &mut Mirror) -> &mut Routes<Self> {
        &mut mirror.routes4
    }
    fn named(replay: &mut Replay) -> &mut HashSet<RouteKey<Self>> {
        &mut replay.four
    }
    fn key(key: RouteKey<Self>) -> Key {
        Key::Four(key)
    }
    fn change(key: RouteKey<Self>) -> Change {
        Change::Route4(key)
    }
}

impl Told for Ipv6Addr {
    fn routes(mirror: &mut Mirror) -> &mut Routes<Self> {
        &mut mirror.routes6
    }
    fn named(replay: &mut Replay) -> &mut HashSet<RouteKey<Self>> {
        &mut replay.six
    }
    fn key(key: RouteKey<Self>) -> Key {
        Key::Six(key)
    }
    fn change(key: RouteKey<Self>) -> Change {
        Change::Route6(key)
    }
}
