//! Paths: the actions and next hops of routes. Equal paths are stored once. Each path has a number, which the tries of
//! the routing table store for each prefix.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lookup::Hop;
use sync::qsbr::{Domain, Reader};
use sync::readers::{GracePeriods, Readers};
use sync::slots::{Seen, Slots};

use crate::adjacency::{Adjacencies, NextHop};
use crate::buckets::Buckets;
use crate::mirror::{PathEntry, PathMirror};

/// The action or the next hops of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Passes packets to the kernel, which delivers the packets to this host.
    Local,
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and reports to the sender that the host is unreachable.
    Unreachable,
    /// Drops packets and reports to the sender that communication is prohibited.
    Prohibit,
    /// Continues the look-up with the next policy rule, as if the table had no route.
    Throw,
    /// Forwards packets to one of these next hops. An empty list counts as no route.
    NextHops(Vec<NextHop>),
    /// Uses the path that [`crate::Fib::define`] has set for this number, which many routes can share. A number without
    /// a definition counts as no route.
    Shared(u32),
}

/// The result of looking up a packet's destination in a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No route matches the packet's destination.
    NoRoute,
    /// The packet is for this host, as in [`Path::Local`].
    Local,
    /// The packet is dropped silently, as in [`Path::Blackhole`].
    Blackhole,
    /// The destination is unreachable, as in [`Path::Unreachable`].
    Unreachable,
    /// Communication with the destination is prohibited, as in [`Path::Prohibit`].
    Prohibit,
    /// The look-up continues with the next policy rule, as in [`Path::Throw`].
    Throw,
    /// Forwarding of the packet's family is disabled on its ingress interface.
    NotForwarding,
    /// The packet is forwarded to the adjacency with this number ([`crate::AdjacencyView`]).
    Forward(u32),
}

/// A path in the form in which look-ups read it: one result for all flows, or a table of hash buckets with an adjacency
/// number in each.
#[derive(Debug)]
enum Compiled {
    Always(Verdict),
    Shared(Buckets<u32>),
}

impl Compiled {
    /// Returns the path in the form in which the mirror for BPF programs stores it. If the mirror cannot represent the
    /// path, returns an entry that makes BPF programs pass the packets to a worker.
    fn entry(&self) -> PathEntry<'_> {
        match self {
            Compiled::Always(Verdict::Forward(number)) => PathEntry::Adjacency(*number),
            Compiled::Always(Verdict::Blackhole) => PathEntry::Blackhole,
            Compiled::Always(_) => PathEntry::Up,
            Compiled::Shared(buckets) => PathEntry::Group(buckets),
        }
    }
}

/// The assignment of flows to the next hops of a path. If a path has several next hops, hash
/// buckets assign the flows.
#[derive(Clone, Debug)]
enum Held {
    /// The path has no next hops.
    Nothing,
    /// The path has one next hop.
    One(NextHop),
    Many(Box<Buckets<NextHop>>),
}

impl Held {
    /// Returns the assignment of flows to the next hops of a path. A flow keeps the next hop that `before` assigned to
    /// this flow, if the weights allow this.
    fn new(path: &Path, before: &Held) -> Held {
        let Path::NextHops(next_hops) = path else { return Held::Nothing };
        // A next hop with another weight is still equal.
        let members: Vec<(NextHop, u16)> =
            next_hops.iter().map(|hop| (NextHop { weight: 1, ..*hop }, hop.weight)).collect();
        match members.as_slice() {
            [(only, _)] => Held::One(*only),
            several => Buckets::after(before.buckets().as_ref(), several)
                .map_or(Held::Nothing, |buckets| Held::Many(Box::new(buckets))),
        }
    }

    fn buckets(&self) -> Option<Buckets<NextHop>> {
        match self {
            Held::Nothing => None,
            Held::One(hop) => Buckets::new(&[(*hop, 1)]),
            Held::Many(buckets) => Some((**buckets).clone()),
        }
    }

    /// Returns the path in the form in which look-ups read it. Appends to `taken` the numbers of the adjacencies to
    /// which the path refers.
    fn compile(&self, path: &Path, adjacencies: &mut Adjacencies, taken: &mut Vec<u32>) -> Compiled {
        let mut take = |hop: &NextHop| {
            let number = adjacencies.take(hop);
            taken.push(number);
            number
        };
        Compiled::Always(match (path, self) {
            (Path::Local, _) => Verdict::Local,
            (Path::Blackhole, _) => Verdict::Blackhole,
            (Path::Unreachable, _) => Verdict::Unreachable,
            (Path::Prohibit, _) => Verdict::Prohibit,
            (Path::Throw, _) => Verdict::Throw,
            (Path::Shared(_), _) | (Path::NextHops(_), Held::Nothing) => Verdict::NoRoute,
            (Path::NextHops(_), Held::One(hop)) => Verdict::Forward(take(hop)),
            (Path::NextHops(_), Held::Many(buckets)) => return Compiled::Shared(buckets.map(take)),
        })
    }
}

/// Flag in the word of a path ([`PathView::words`]): the path has one next hop, and the lower half of the word is the
/// adjacency number of this next hop. The word of any other path is 0, and readers load the path's slot instead.
const ONWARD: u64 = 1 << 32;

/// Read access to the paths of a routing table by path number, for workers.
#[derive(Clone, Debug)]
pub struct PathView {
    slots: Arc<Slots<Compiled>>,
    /// One word for each path ([`ONWARD`]). For a path with one next hop, which is the most common kind, readers need
    /// only this word and follow no pointer.
    words: Arc<[AtomicU64]>,
}

impl PathView {
    /// Returns whether two views refer to the same paths.
    pub fn is(&self, other: &PathView) -> bool {
        Arc::ptr_eq(&self.slots, &other.slots)
    }

    /// Returns the paths of the table, for look-ups by one reader.
    #[inline]
    pub fn seen_by<'a>(&'a self, reader: &'a Reader) -> PathEntries<'a> {
        PathEntries { slots: self.slots.seen_by(reader), words: &self.words }
    }
}

/// The paths of a routing table for look-ups by one reader.
pub struct PathEntries<'a> {
    slots: Seen<'a, Compiled>,
    words: &'a [AtomicU64],
}

impl PathEntries<'_> {
    /// Returns the look-up result of the path with the number `hop` for a flow. `hash` returns the hash of the flow,
    /// and is called only if the path has several next hops.
    #[inline(always)]
    pub fn verdict(&self, hop: Hop, hash: impl FnOnce() -> u32) -> Verdict {
        match self.onward(hop) {
            Some(adjacency) => Verdict::Forward(adjacency),
            None => self.verdict_at(usize::try_from(hop.0).unwrap_or(usize::MAX), hash),
        }
    }

    /// Returns the adjacency number of a path with one next hop. Returns `None` for other paths.
    #[inline(always)]
    pub fn onward(&self, hop: Hop) -> Option<u32> {
        let at = usize::try_from(hop.0).unwrap_or(usize::MAX);
        let word = self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
        (word & ONWARD != 0).then_some(word as u32)
    }

    /// Calls `each` with every look-up result that a flow can get from the path.
    pub fn each(&self, hop: Hop, mut each: impl FnMut(Verdict)) {
        match usize::try_from(hop.0).ok().and_then(|at| self.slots.get(at)) {
            None => each(Verdict::NoRoute),
            Some(Compiled::Always(verdict)) => each(*verdict),
            Some(Compiled::Shared(buckets)) => {
                buckets.members().iter().for_each(|number| each(Verdict::Forward(*number)));
            }
        }
    }

    #[inline(never)]
    fn verdict_at(&self, at: usize, hash: impl FnOnce() -> u32) -> Verdict {
        // Slot 0 is always empty.
        match self.slots.get(at) {
            None => Verdict::NoRoute,
            Some(Compiled::Always(verdict)) => *verdict,
            Some(Compiled::Shared(buckets)) => {
                buckets.of(hash()).map_or(Verdict::NoRoute, |number| Verdict::Forward(*number))
            }
        }
    }
}

/// Record of a path in use, for the thread that changes the routing table.
#[derive(Debug)]
struct Used {
    number: u32,
    routes: usize,
    /// Current assignment of flows to next hops. A change of the path keeps this assignment as far as possible.
    held: Held,
    /// Numbers of the adjacencies to which the path refers. The path has one counted reference to each of them.
    taken: Vec<u32>,
}

/// The paths of a routing table, for the thread that changes the routes. Workers use [`PathView`].
pub struct Paths {
    slots: Arc<Slots<Compiled>>,
    words: Arc<[AtomicU64]>,
    readers: Readers,
    mirror: Option<PathMirror>,
    used: HashMap<Path, Used>,
    by_number: HashMap<u32, Path>,
    free: Vec<u32>,
    /// Freed path numbers that readers may still use. Each number is free for reuse after the grace periods stored with
    /// it.
    leaving: VecDeque<(GracePeriods, u32)>,
    /// Definitions of the shared paths. The key is the number in [`Path::Shared`].
    shared: HashMap<u32, Path>,
    /// Numbers of the paths with a next hop for which there was no space in the table of adjacencies.
    without_adjacency: BTreeSet<u32>,
    /// Numbers of the paths for whose next hops there was no space in the mirror for BPF programs.
    without_group: BTreeSet<u32>,
    /// Number of the path that the last call of [`Paths::retry`] tried last. The next call continues after this path.
    tried: u32,
    /// Value of [`Adjacencies::created`] at the time when [`Paths::retry`] last completed a pass over all paths without
    /// an adjacency.
    created: u64,
    limit: u32,
}

/// Number of failed attempts to store a path's next hops after which [`Paths::retry`] stops.
const TRIES: usize = 16;

impl Paths {
    /// Creates an empty set of paths with space for `limit` different paths.
    pub fn new(domain: &Arc<Domain>, limit: u32) -> Paths {
        Paths::made(&Readers::of(domain), limit, None)
    }

    /// Creates an empty set of paths like [`Paths::new`], and also writes the paths to `mirror`, which BPF programs
    /// read.
    pub fn mirrored(readers: &Readers, limit: u32, mirror: PathMirror) -> Paths {
        Paths::made(readers, limit, Some(mirror))
    }

    fn made(readers: &Readers, limit: u32, mirror: Option<PathMirror>) -> Paths {
        // Number 0 is no path.
        let places = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1);
        Paths {
            slots: Arc::new(Slots::new(readers.workers(), places)),
            words: (0..places).map(|_| AtomicU64::new(0)).collect(),
            readers: readers.clone(),
            mirror,
            used: HashMap::new(),
            by_number: HashMap::new(),
            free: (1..=limit).rev().collect(),
            leaving: VecDeque::new(),
            shared: HashMap::new(),
            without_adjacency: BTreeSet::new(),
            without_group: BTreeSet::new(),
            tried: 0,
            created: 0,
            limit,
        }
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    pub fn len(&self) -> usize {
        self.used.len()
    }

    pub fn view(&self) -> PathView {
        PathView { slots: Arc::clone(&self.slots), words: Arc::clone(&self.words) }
    }

    pub fn of(&self, hop: Hop) -> Option<&Path> {
        self.by_number.get(&hop.0)
    }

    /// Returns the number of a path and counts one more route that uses it. A new path with several next hops inherits
    /// the flow-to-next-hop assignment of the path `before`, so that existing flows keep their next hops. Returns
    /// `None` if the path table is full.
    pub fn take(&mut self, path: &Path, before: Option<Hop>, adjacencies: &mut Adjacencies) -> Option<Hop> {
        if let Some(used) = self.used.get_mut(path) {
            used.routes += 1;
            return Some(Hop(used.number));
        }
        let number = self.number()?;
        let before = before.and_then(|hop| Some(self.used.get(self.by_number.get(&hop.0)?)?.held.clone()));
        let (held, taken) = self.compile(number, path, &before.unwrap_or(Held::Nothing), adjacencies);
        self.used.insert(path.clone(), Used { number, routes: 1, held, taken });
        self.by_number.insert(number, path.clone());
        Some(Hop(number))
    }

    /// Releases the reference of one route to a path.
    pub fn give_back(&mut self, hop: Hop, adjacencies: &mut Adjacencies) {
        let Some(path) = self.by_number.get(&hop.0) else { return };
        let Some(used) = self.used.get_mut(path) else { return };
        used.routes -= 1;
        if used.routes > 0 {
            return;
        }
        let taken = std::mem::take(&mut used.taken);
        self.used.remove(path);
        self.by_number.remove(&hop.0);
        self.without_adjacency.remove(&hop.0);
        self.without_group.remove(&hop.0);
        taken.into_iter().for_each(|number| adjacencies.give_back(number));
        if let Some(mirror) = &mut self.mirror {
            mirror.leave(hop.0, &self.readers);
        }
        // Readers that have looked the number up may use it until their burst ends.
        self.leaving.push_back((self.readers.begin(), hop.0));
    }

    /// Sets the definition of the shared path with the number `shared`, for all routes that use the path. A
    /// `path` of `None` removes the definition.
    pub fn define(&mut self, shared: u32, path: Option<&Path>, adjacencies: &mut Adjacencies) {
        match path {
            Some(path) => drop(self.shared.insert(shared, path.clone())),
            None => drop(self.shared.remove(&shared)),
        }
        self.compile_again(&Path::Shared(shared), adjacencies);
    }

    /// Returns the number of paths whose next hops have no adjacency or no space in the mirror for BPF programs yet.
    pub fn waiting(&self) -> usize {
        self.without_adjacency.len() + self.without_group.len()
    }

    /// Returns whether some freed path numbers or next-hop groups of the mirror cannot be reused yet because readers
    /// may still use them.
    pub fn is_freeing(&self) -> bool {
        !self.leaving.is_empty() || self.mirror.as_ref().is_some_and(PathMirror::is_freeing)
    }

    /// Tries again to create missing adjacencies of paths and to write next hops to the mirror for BPF programs. A call
    /// stops after `TRIES` failed attempts, and the next call continues with the next path.
    pub fn retry(&mut self, adjacencies: &mut Adjacencies) {
        let (mut failed, mut last) = (0, self.tried);
        // Each path is tried once.
        let begin = self.tried;
        let mut has_wrapped = false;
        // A missing adjacency may exist by now, because another path or a neighbour has created it.
        let created = adjacencies.created();
        let has_new = created != self.created;
        while failed < TRIES {
            let mut lacking: Vec<&BTreeSet<u32>> = Vec::new();
            if !self.without_adjacency.is_empty() && (has_new || adjacencies.has_room()) {
                lacking.push(&self.without_adjacency);
            }
            let mirror = self.mirror.as_mut().filter(|_| !self.without_group.is_empty());
            if mirror.is_some_and(|mirror| mirror.has_room(&self.readers)) {
                lacking.push(&self.without_group);
            }
            let next = |from: u32| lacking.iter().filter_map(|set| set.range(from..).next().copied()).min();
            let number = match next(last.saturating_add(1)) {
                Some(number) if !has_wrapped || number <= begin => number,
                None if !has_wrapped => {
                    (has_wrapped, last) = (true, 0);
                    continue;
                }
                _ => break,
            };
            (last, self.tried) = (number, number);
            let Some(path) = self.by_number.get(&number).cloned() else { continue };
            self.compile_again(&path, adjacencies);
            let lacks = self.without_adjacency.contains(&number) || self.without_group.contains(&number);
            failed += usize::from(lacks);
        }
        if failed < TRIES {
            self.created = created;
        }
    }

    /// Recomputes the form of a path that look-ups read. The caller calls this function after the path's definition or
    /// the available space has changed.
    fn compile_again(&mut self, key: &Path, adjacencies: &mut Adjacencies) {
        let Some(used) = self.used.get_mut(key) else { return };
        let (number, before) = (used.number, std::mem::replace(&mut used.held, Held::Nothing));
        let (held, taken) = self.compile(number, key, &before, adjacencies);
        let Some(used) = self.used.get_mut(key) else { return };
        // A path that is temporarily without next hops keeps its distribution.
        used.held = if matches!(held, Held::Nothing) { before } else { held };
        // The former references are released last, so that adjacencies that are in use before and after the change keep
        // their numbers.
        let left = std::mem::replace(&mut used.taken, taken);
        left.into_iter().for_each(|number| adjacencies.give_back(number));
    }

    fn compile(
        &mut self,
        number: u32,
        path: &Path,
        before: &Held,
        adjacencies: &mut Adjacencies,
    ) -> (Held, Vec<u32>) {
        let said = match path {
            Path::Shared(shared) => self.shared.get(shared).unwrap_or(path),
            path => path,
        };
        let (held, mut taken) = (Held::new(said, before), Vec::new());
        let compiled = held.compile(said, adjacencies, &mut taken);
        let readers = &self.readers;
        let has_group =
            self.mirror.as_mut().is_none_or(|mirror| mirror.write(number, &compiled.entry(), readers));
        for (lacks, all) in
            [(taken.contains(&0), &mut self.without_adjacency), (!has_group, &mut self.without_group)]
        {
            if lacks {
                all.insert(number);
            } else {
                all.remove(&number);
            }
        }
        self.say(number, Some(compiled));
        (held, taken)
    }

    /// Publishes `said` to readers as the path with this number. A concurrent reader gets the old or the new path, and
    /// both are valid.
    fn say(&self, number: u32, said: Option<Compiled>) {
        let at = usize::try_from(number).unwrap_or(0);
        let word = match said {
            Some(Compiled::Always(Verdict::Forward(adjacency))) => ONWARD | u64::from(adjacency),
            _ => 0,
        };
        self.slots.replace(at, said.map(Box::new));
        if let Some(place) = self.words.get(at) {
            place.store(word, Ordering::Release);
        }
    }

    fn number(&mut self) -> Option<u32> {
        while let Some((ticket, number)) = self.leaving.front().copied() {
            if self.free.is_empty() {
                // There is no wait for workers: a worker reaches the end of the grace period soon, or, if it does not
                // run, never. External readers reach it within milliseconds.
                self.readers.wait_for_strangers(ticket);
            }
            if !self.readers.are_past(ticket) {
                break;
            }
            self.leaving.pop_front();
            self.say(number, None);
            self.free.push(number);
        }
        self.free.pop()
    }
}
