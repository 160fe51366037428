//! What routes lead to. Equal paths are one, with a number that tries hold.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lookup::Hop;
use sync::qsbr::{Domain, Reader};
use sync::readers::{Readers, Ticket};
use sync::slots::{Seen, Slots};

use crate::adjacency::Adjacencies;
use crate::buckets::Buckets;
use crate::mirror::{PathMirror, Saying};

/// A way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The interface.
    pub interface: u32,
    /// The next router, which may be of the other family; none where destinations are on the link itself.
    pub gateway: Option<IpAddr>,
    /// Its share among others, from 1 on.
    pub weight: u16,
}

/// What a route says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// It is this host: the kernel's.
    Local,
    /// Drop without a word.
    Blackhole,
    /// Drop, and say that the host is unreachable.
    Unreachable,
    /// Drop, and say that it is forbidden.
    Prohibit,
    /// Look in the next table.
    Throw,
    /// Go on by one of these. Without any it is as if there were no route.
    Ways(Vec<Way>),
    /// What [`crate::Fib::define`] has said of this number; nothing, until it has.
    Shared(u32),
}

/// What a table says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    NoRoute,
    /// As [`Path::Local`].
    Local,
    /// As [`Path::Blackhole`].
    Blackhole,
    /// As [`Path::Unreachable`].
    Unreachable,
    /// As [`Path::Prohibit`].
    Prohibit,
    /// As [`Path::Throw`].
    Throw,
    /// Packets of its family are not routed that come in where it did.
    NotForwarding,
    /// Go on to the adjacency of this number ([`crate::AdjacencyView`]).
    Forward(u32),
}

/// A path as readers have it.
#[derive(Debug)]
enum Compiled {
    Always(Verdict),
    Shared(Buckets<u32>),
}

impl Compiled {
    /// The same for a mirror: what it cannot carry out is the workers' to say.
    fn saying(&self) -> Saying<'_> {
        match self {
            Compiled::Always(Verdict::Forward(number)) => Saying::Way(*number),
            Compiled::Always(Verdict::Blackhole) => Saying::Blackhole,
            Compiled::Always(_) => Saying::Up,
            Compiled::Shared(buckets) => Saying::Group(buckets),
        }
    }
}

/// How flows share a path.
#[derive(Clone, Debug)]
enum Held {
    /// None go on by it.
    Nothing,
    /// All of them take this way.
    One(Way),
    Many(Box<Buckets<Way>>),
}

impl Held {
    /// How flows share what a path says, if before they shared it like this.
    fn new(path: &Path, before: &Held) -> Held {
        let Path::Ways(ways) = path else { return Held::Nothing };
        // A way is the same one with another weight.
        let members: Vec<(Way, u16)> =
            ways.iter().map(|way| (Way { weight: 1, ..*way }, way.weight)).collect();
        match members.as_slice() {
            [(only, _)] => Held::One(*only),
            several => Buckets::after(before.buckets().as_ref(), several)
                .map_or(Held::Nothing, |buckets| Held::Many(Box::new(buckets))),
        }
    }

    fn buckets(&self) -> Option<Buckets<Way>> {
        match self {
            Held::Nothing => None,
            Held::One(way) => Buckets::new(&[(*way, 1)]),
            Held::Many(buckets) => Some((**buckets).clone()),
        }
    }

    /// The form for readers of what a path says; `taken` gets the adjacencies that it leads to.
    fn compile(&self, path: &Path, adjacencies: &mut Adjacencies, taken: &mut Vec<u32>) -> Compiled {
        let mut take = |way: &Way| {
            let number = adjacencies.take(way);
            taken.push(number);
            number
        };
        Compiled::Always(match (path, self) {
            (Path::Local, _) => Verdict::Local,
            (Path::Blackhole, _) => Verdict::Blackhole,
            (Path::Unreachable, _) => Verdict::Unreachable,
            (Path::Prohibit, _) => Verdict::Prohibit,
            (Path::Throw, _) => Verdict::Throw,
            (Path::Shared(_), _) | (Path::Ways(_), Held::Nothing) => Verdict::NoRoute,
            (Path::Ways(_), Held::One(way)) => Verdict::Forward(take(way)),
            (Path::Ways(_), Held::Many(buckets)) => return Compiled::Shared(buckets.map(take)),
        })
    }
}

/// In a path's word: all flows go on to the adjacency whose number is the lower half. A path without it says more than a word holds.
const ONWARD: u64 = 1 << 32;

/// Paths by number, as readers have them.
#[derive(Clone, Debug)]
pub struct PathView {
    slots: Arc<Slots<Compiled>>,
    /// What most paths say, in a word, so that readers need not follow a pointer.
    words: Arc<[AtomicU64]>,
}

impl PathView {
    /// Whether it is the same paths'.
    pub fn is(&self, other: &PathView) -> bool {
        Arc::ptr_eq(&self.slots, &other.slots)
    }

    /// The paths as a reader sees them.
    #[inline]
    pub fn seen_by<'a>(&'a self, reader: &'a Reader) -> Sayings<'a> {
        Sayings { slots: self.slots.seen_by(reader), words: &self.words }
    }
}

/// Paths as a reader sees them.
pub struct Sayings<'a> {
    slots: Seen<'a, Compiled>,
    words: &'a [AtomicU64],
}

impl Sayings<'_> {
    /// What the path of this number says of a flow, whose hash is asked for where several ways share it.
    #[inline(always)]
    pub fn verdict(&self, hop: Hop, hash: impl FnOnce() -> u32) -> Verdict {
        match self.onward(hop) {
            Some(adjacency) => Verdict::Forward(adjacency),
            None => self.said(usize::try_from(hop.0).unwrap_or(usize::MAX), hash),
        }
    }

    /// The adjacency that the path of this number leads to, if it is one for all flows.
    #[inline(always)]
    pub fn onward(&self, hop: Hop) -> Option<u32> {
        let at = usize::try_from(hop.0).unwrap_or(usize::MAX);
        let word = self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
        (word & ONWARD != 0).then_some(word as u32)
    }

    /// Tells all that the path of this number says, of whatever flow.
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
    fn said(&self, at: usize, hash: impl FnOnce() -> u32) -> Verdict {
        // Nobody is at 0.
        match self.slots.get(at) {
            None => Verdict::NoRoute,
            Some(Compiled::Always(verdict)) => *verdict,
            Some(Compiled::Shared(buckets)) => {
                buckets.of(hash()).map_or(Verdict::NoRoute, |number| Verdict::Forward(*number))
            }
        }
    }
}

/// A path that is in use.
#[derive(Debug)]
struct Used {
    number: u32,
    routes: usize,
    /// What a changed path begins with.
    held: Held,
    /// Adjacencies that it leads to.
    taken: Vec<u32>,
}

/// The writer's side.
pub struct Paths {
    slots: Arc<Slots<Compiled>>,
    words: Arc<[AtomicU64]>,
    readers: Readers,
    mirror: Option<PathMirror>,
    used: HashMap<Path, Used>,
    by_number: HashMap<u32, Path>,
    free: Vec<u32>,
    /// Numbers that readers may still have looked up, with when they cannot any more.
    leaving: VecDeque<(Ticket, u32)>,
    /// What shared paths say.
    shared: HashMap<u32, Path>,
    limit: u32,
}

impl Paths {
    /// Room for so many different paths.
    pub fn new(domain: &Arc<Domain>, limit: u32) -> Paths {
        Paths::made(&Readers::of(domain), limit, None)
    }

    /// The same with a mirror.
    pub fn mirrored(readers: &Readers, limit: u32, mirror: PathMirror) -> Paths {
        Paths::made(readers, limit, Some(mirror))
    }

    fn made(readers: &Readers, limit: u32, mirror: Option<PathMirror>) -> Paths {
        // 0 is no path.
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

    /// The number of a path, for one route more; one that is new begins with the flows' shares of `before`. `None`: there is no room.
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

    /// One route less leads to a path.
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
        taken.into_iter().for_each(|number| adjacencies.give_back(number));
        if let Some(mirror) = &mut self.mirror {
            mirror.leave(hop.0, &self.readers);
        }
        // Readers that have looked it up may ask what it says until their burst ends.
        self.leaving.push_back((self.readers.begin(), hop.0));
    }

    /// What a shared path says from now on, for all routes that lead to it; with `None` nothing.
    pub fn define(&mut self, shared: u32, path: Option<&Path>, adjacencies: &mut Adjacencies) {
        match path {
            Some(path) => drop(self.shared.insert(shared, path.clone())),
            None => drop(self.shared.remove(&shared)),
        }
        let key = Path::Shared(shared);
        let Some(used) = self.used.get_mut(&key) else { return };
        let (number, before) = (used.number, std::mem::replace(&mut used.held, Held::Nothing));
        let (held, taken) = self.compile(number, &key, &before, adjacencies);
        let Some(used) = self.used.get_mut(&key) else { return };
        // A path without ways for a while keeps its flows.
        used.held = if matches!(held, Held::Nothing) { before } else { held };
        // Only now: those that it leads to before and after keep their numbers.
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
        if let Some(mirror) = &mut self.mirror {
            mirror.write(number, &compiled.saying(), &self.readers);
        }
        self.say(number, Some(compiled));
        (held, taken)
    }

    /// Tells readers what a path says. Those in between meet what it said before or what it says now: each is right.
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
                // Workers are past it soon or not at all; strangers are in some milliseconds.
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
