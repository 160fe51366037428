//! What sessions say, put into a mirror: which routes and next-hop objects are theirs, which of them a replay has not named again, and
//! which numbers of next-hop objects are whose.
//!
//! Routes of FRR's protocols ([`is_frrs`]) are the sessions' to say, in all tables. Until a first replay is whole the kernel's copies
//! of them stand in for what was not announced yet: a daemon that starts beside FRR forwards at once. From then on the kernel's word on them
//! does not count any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::answers::{Key, Said};
use crate::decode::{Event, Object};
use crate::mirror::{Change, Mirror};
use crate::routes::{Paths, Routes};
use crate::state::{Family, Kind, Member, NextHop, Path, Prefix, RouteKey, TablePrefix};

const RTPROT_ZEBRA: u8 = 11;
const RTPROT_BABEL: u8 = 42;
/// `RTPROT_BGP` up to FRR's last one (`zebra/rt_netlink.h`): OSPF, RIP, static routes of its own, ...
const FRRS: std::ops::RangeInclusive<u8> = 186..=198;
const MAIN: u32 = 254;
const LOCAL: u32 = 255;
/// Tables that sessions may fill at once.
const TABLES: usize = 64;
/// Routes of a table among which one of FRR's is looked for. A table with more routes counts as one that sessions fill.
const LOOKED_AT: usize = 64;
/// Next-hop objects that they may make.
const OBJECTS: usize = 65_536;
/// Numbers of next-hop objects from here on are none of the kernel's and of zebra's.
const ALIASES: u32 = 0x8000_0000;

/// Whether FRR's daemons make routes of this protocol. Those that zebra only knows from the kernel it calls the kernel's.
pub(crate) fn is_frrs(protocol: u8) -> bool {
    protocol == RTPROT_ZEBRA || protocol == RTPROT_BABEL || FRRS.contains(&protocol)
}

/// What became of an announcement.
pub(crate) type Answer = (Key, Option<Said>);

/// What sessions have said.
#[derive(Debug)]
pub(crate) struct Table {
    /// A replay has been whole: the kernel's copies do not count any more.
    whole: bool,
    replay: Option<Replay>,
    /// The session's numbers of next-hop objects, and the mirror's.
    ids: HashMap<u32, u32>,
    /// The number from which on the next number that is neither the session's nor the kernel's is looked for.
    next_alias: u32,
    /// Tables that sessions have filled. A table without routes of theirs goes when there is no room for another one.
    tables: BTreeSet<u32>,
    /// Announced, and in no table of the workers, with what was said of it: told to them again with the next announcement.
    failed: BTreeMap<Key, Said>,
    /// Most routes of the mirror.
    limit: usize,
    /// Messages about routes that are the kernel's to say, and of kinds that are not followed.
    pub(crate) left: u64,
    /// Announcements that found no room.
    pub(crate) refused: u64,
    /// Routes that were not announced again.
    pub(crate) swept: u64,
}

/// What was announced since the session began.
#[derive(Debug, Default)]
struct Replay {
    four: HashSet<RouteKey<Ipv4Addr>>,
    six: HashSet<RouteKey<Ipv6Addr>>,
}

impl Table {
    /// With a mirror of so many routes at most.
    pub(crate) fn new(limit: usize) -> Table {
        Table {
            whole: false,
            replay: None,
            ids: HashMap::new(),
            next_alias: ALIASES,
            tables: BTreeSet::new(),
            failed: BTreeMap::new(),
            limit,
            left: 0,
            refused: 0,
            swept: 0,
        }
    }

    /// Whether the kernel's word on something does not count.
    pub(crate) fn speaks_for(&self, event: &Event) -> bool {
        let named = |replay: &Replay| match &event.object {
            Object::Route4(key, _) => replay.four.contains(key),
            Object::Route6(key, _) => replay.six.contains(key),
            Object::NextHop(id, _) => self.ids.values().any(|own| own == id),
            _ => false,
        };
        let protocol = match &event.object {
            Object::Route4(key, path) if key.table != LOCAL => path.protocol,
            Object::Route6(key, path) if key.table != LOCAL => path.protocol,
            Object::NextHop(_, next) => next.protocol,
            _ => return false,
        };
        is_frrs(protocol) && (self.whole || self.replay.as_ref().is_some_and(named))
    }

    /// Gives a mirror of the kernel's state what sessions have said in `mirror`.
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
        let own = |table: u32, path: &Path| table != LOCAL && is_frrs(path.protocol);
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

    /// How many routes this session has announced, until a first replay is whole: everything else of FRR's is the kernel's copy.
    pub(crate) fn named(&self) -> Option<u64> {
        let replay = self.replay.as_ref().map_or(0, |replay| replay.four.len() + replay.six.len());
        (!self.whole).then_some(replay as u64)
    }

    /// A session begins: it will name again what there is.
    pub(crate) fn begin(&mut self) {
        self.replay = Some(Replay::default());
        self.ids.clear();
    }

    /// The session is lost. What it has said stays; what it has not said again, too.
    pub(crate) fn lost(&mut self) {
        self.replay = None;
    }

    /// The replay is whole: what it has not named goes. Gives how many routes those were.
    pub(crate) fn settled(&mut self, mirror: &mut Mirror, changes: &mut Vec<Change>) -> u64 {
        let Some(Replay { four, six }) = self.replay.take() else { return 0 };
        self.whole = true;
        let before = changes.len();
        let stays = |table: u32, path: &Path| table == LOCAL || !is_frrs(path.protocol);
        let gone = mirror.routes4.retain(|key, path| stays(key.table, path) || four.contains(key));
        changes.extend(gone.into_iter().map(Change::Route4));
        let gone = mirror.routes6.retain(|key, path| stays(key.table, path) || six.contains(key));
        changes.extend(gone.into_iter().map(Change::Route6));
        let swept = (changes.len() - before) as u64;
        let own: HashSet<u32> = self.ids.values().copied().collect();
        let old = |(id, next): &(&u32, &NextHop)| is_frrs(next.protocol) && !own.contains(*id);
        let old = mirror.next_hops.iter().filter(old).map(|(id, _)| *id).collect();
        mirror.next_hops_gone(old, changes);
        self.swept += swept;
        swept
    }

    /// What messages say in turn. Next-hop objects that go one after the other go together.
    pub(crate) fn apply_all(
        &mut self,
        mirror: &mut Mirror,
        events: Vec<Event>,
        changes: &mut Vec<Change>,
        answers: &mut Vec<Answer>,
    ) {
        let mut gone = HashSet::new();
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

    /// What a message says.
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
        // Without a table it is the main one.
        key.table = if key.table == 0 { MAIN } else { key.table };
        key.prefix.address = key.prefix.address.masked(key.prefix.length);
        let kind = match path.kind {
            Kind::Unicast => 1,
            Kind::Blackhole => 6,
            Kind::Unreachable => 7,
            Kind::Prohibit => 8,
            Kind::Throw => 9,
            _ => 0,
        };
        let plain = key.table != LOCAL && key.tos == 0 && key.from.length == 0;
        if !plain || !is_frrs(path.protocol) || kind == 0 && !gone {
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

    /// What is announced, in the mirror's numbers; `None`: there is no room for it, or it leads to an object that nobody has announced.
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
        // As in the kernel: groups have no groups in them.
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
        if id >= ALIASES || is_group && next.group.is_empty() || !fits {
            self.refused += 1;
            return;
        }
        let own = own.unwrap_or_else(|| {
            let said = |next: &NextHop| NextHop { protocol: RTPROT_ZEBRA, ..next.clone() };
            let other = mirror.next_hops.get(&id).is_some_and(|old| said(old) != said(&next));
            // An object of the session before, to which routes lead that have not been announced again.
            if other { self.free_alias(mirror) } else { id }
        });
        self.ids.insert(id, own);
        if mirror.next_hops.get(&own) != Some(&next) {
            mirror.next_hops.insert(own, next);
            changes.push(Change::NextHop(own));
        }
    }

    /// A number of a next-hop object that nobody uses. Numbers that were used last come last.
    fn free_alias(&mut self, mirror: &Mirror) -> u32 {
        loop {
            let id = self.next_alias;
            self.next_alias = id.checked_add(1).unwrap_or(ALIASES);
            // There are far more numbers than objects.
            if !mirror.next_hops.contains_key(&id) {
                return id;
            }
        }
    }

    /// Of these prefixes some found no room in the workers' tables: that is said of them instead.
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

    /// Routes to these prefixes have found the room that they had not: that is said of those that were announced.
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

/// Whether a table has routes of FRR's, or so many that it is not looked through.
fn is_filled<A: Family>(routes: &Routes<A>, table: u32) -> bool {
    let of_frr = |paths: &Paths| paths.all().iter().any(|path| is_frrs(path.protocol));
    let mut all = routes.within(None, Some(table), Prefix { address: A::ZERO, length: 0 });
    all.by_ref().take(LOOKED_AT).any(|(_, paths)| of_frr(paths)) || all.next().is_some()
}

/// The two families.
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
