//! One table of routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use lookup::{Address, Hop, Prefix, Table, TableFull, Trie, Usage};
use sync::qsbr::{Domain, Reader};
use sync::readers::Readers;

use crate::adjacency::Adjacencies;
use crate::mirror::{PathMirror, TableMirror};
use crate::paths::{Path, PathView, Paths, Sayings, Verdict};

/// Addresses that are looked up in one go.
const CHUNK: usize = 64;

/// Why a route was not taken. The table is as it was: all other routes go on forwarding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The trie has no room.
    #[error("route {prefix}: the table of {words} words is full; raise its size")]
    Full {
        /// The route.
        prefix: String,
        /// Words of eight bytes that the table has.
        words: usize,
    },
    /// There are as many routes as there may be.
    #[error("route {prefix}: the table has the {limit} routes that it may have; raise `routes`")]
    Limit {
        /// The route.
        prefix: String,
        /// How many there may be.
        limit: usize,
    },
    /// Routes lead to too many different things.
    #[error("route {prefix}: routes lead to {limit} different paths already; raise the limit of paths")]
    Paths {
        /// The route.
        prefix: String,
        /// How many there may be.
        limit: u32,
    },
}

/// The writer's side of a table: IPv4 and IPv6 routes, and their paths.
pub struct Fib {
    v4: Table<u32>,
    v6: Table<u128>,
    paths: Paths,
    /// Routes of both families together that there may be, those to the kernel aside.
    limit: usize,
    /// Routes to the kernel.
    locals: usize,
}

impl fmt::Debug for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (v4, v6) = (self.v4.len(), self.v6.len());
        f.debug_struct("Fib").field("v4", &v4).field("v6", &v6).field("paths", &self.paths.len()).finish()
    }
}

impl Fib {
    /// An empty table whose tries have so many words of eight bytes each, and at most so many paths. Readers come from `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, words: usize, paths: u32) -> Fib {
        let (v4, v6) = (Table::new(domain, words), Table::new(domain, words));
        Fib { v4, v6, paths: Paths::new(domain, paths), limit: usize::MAX, locals: 0 }
    }

    /// The same with at most so many routes, of both families together. Those that give packets to the kernel ([`Path::Local`]) are not
    /// counted: its own addresses are always known.
    #[must_use]
    pub fn with_limit(self, routes: usize) -> Fib {
        Fib { limit: routes, ..self }
    }

    /// The same with a mirror, whose memory says how many words its tries have.
    ///
    /// # Errors
    /// [`TableFull`]: the memory of one of them is too small.
    pub fn mirrored(readers: &Readers, mirror: TableMirror, paths: u32) -> Result<Fib, TableFull> {
        let TableMirror { four, six, paths: words, groups } = mirror;
        Ok(Fib {
            v4: Table::mirrored(readers, four)?,
            v6: Table::mirrored(readers, six)?,
            paths: Paths::mirrored(readers, paths, PathMirror::new(words, groups)),
            limit: usize::MAX,
            locals: 0,
        })
    }

    /// What workers ask.
    #[must_use]
    pub fn view(&self) -> View {
        View { v4: self.v4.trie(), v6: self.v6.trie(), paths: self.paths.view() }
    }

    /// Makes an IPv4 prefix lead somewhere, whatever it did before.
    ///
    /// # Errors
    /// [`FibError`]: nothing has changed.
    pub fn set4(
        &mut self,
        prefix: Prefix<u32>,
        path: &Path,
        adjacencies: &mut Adjacencies,
    ) -> Result<(), FibError> {
        let before = self.v4.get(&prefix).and_then(|hop| self.paths.of(hop));
        let (was, is) = (before.map(is_local), is_local(path));
        self.has_room(was, is, prefix)?;
        set(&mut self.v4, &mut self.paths, prefix, path, adjacencies)?;
        self.locals = self.locals + usize::from(is) - usize::from(was == Some(true));
        Ok(())
    }

    /// Makes an IPv6 prefix lead somewhere, whatever it did before.
    ///
    /// # Errors
    /// [`FibError`]: nothing has changed.
    pub fn set6(
        &mut self,
        prefix: Prefix<u128>,
        path: &Path,
        adjacencies: &mut Adjacencies,
    ) -> Result<(), FibError> {
        let before = self.v6.get(&prefix).and_then(|hop| self.paths.of(hop));
        let (was, is) = (before.map(is_local), is_local(path));
        self.has_room(was, is, prefix)?;
        set(&mut self.v6, &mut self.paths, prefix, path, adjacencies)?;
        self.locals = self.locals + usize::from(is) - usize::from(was == Some(true));
        Ok(())
    }

    /// Whether a route may be that leads to the kernel or not, where there was one that did, one that did not, or none.
    fn has_room(&self, was: Option<bool>, is: bool, prefix: impl fmt::Display) -> Result<(), FibError> {
        if is || was == Some(false) || self.v4.len() + self.v6.len() - self.locals < self.limit {
            return Ok(());
        }
        Err(FibError::Limit { prefix: prefix.to_string(), limit: self.limit })
    }

    /// Takes an IPv4 route out; one that is not there is no error.
    ///
    /// # Errors
    /// [`FibError::Full`]: nothing has changed.
    pub fn remove4(&mut self, prefix: Prefix<u32>, adjacencies: &mut Adjacencies) -> Result<(), FibError> {
        let before = self.v4.get(&prefix).and_then(|hop| self.paths.of(hop));
        let was = before.is_some_and(is_local);
        remove(&mut self.v4, &mut self.paths, prefix, adjacencies)?;
        self.locals -= usize::from(was);
        Ok(())
    }

    /// Takes an IPv6 route out; one that is not there is no error.
    ///
    /// # Errors
    /// [`FibError::Full`]: nothing has changed.
    pub fn remove6(&mut self, prefix: Prefix<u128>, adjacencies: &mut Adjacencies) -> Result<(), FibError> {
        let before = self.v6.get(&prefix).and_then(|hop| self.paths.of(hop));
        let was = before.is_some_and(is_local);
        remove(&mut self.v6, &mut self.paths, prefix, adjacencies)?;
        self.locals -= usize::from(was);
        Ok(())
    }

    /// Whether there is an IPv4 route for just this prefix.
    #[must_use]
    pub fn has4(&self, prefix: Prefix<u32>) -> bool {
        self.v4.get(&prefix).is_some()
    }

    /// Whether there is an IPv6 route for just this prefix.
    #[must_use]
    pub fn has6(&self, prefix: Prefix<u128>) -> bool {
        self.v6.get(&prefix).is_some()
    }

    /// Says what [`Path::Shared`] of a number is, for all routes that lead there, by one write; with `None` it leads nowhere.
    /// What it says must not be shared in turn: then it leads nowhere, too.
    pub fn define(&mut self, shared: u32, path: Option<&Path>, adjacencies: &mut Adjacencies) {
        self.paths.define(shared, path, adjacencies);
    }

    /// Routes of both families.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the tries of IPv4 and IPv6 take.
    #[must_use]
    pub fn usage(&self) -> [Usage; 2] {
        [self.v4.usage(), self.v6.usage()]
    }

    /// Different paths that routes lead to.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// The route that an address takes, and what it says.
    #[must_use]
    pub fn why(&self, address: IpAddr) -> Option<(IpAddr, u8, &Path)> {
        let (first, length, hop) = match address {
            IpAddr::V4(address) => {
                let (prefix, hop) = self.v4.longest(address.to_bits())?;
                (Ipv4Addr::from_bits(prefix.address()).into(), prefix.length(), hop)
            }
            IpAddr::V6(address) => {
                let (prefix, hop) = self.v6.longest(address.to_bits())?;
                (Ipv6Addr::from_bits(prefix.address()).into(), prefix.length(), hop)
            }
        };
        Some((first, length, self.paths.of(hop)?))
    }
}

fn is_local(path: &Path) -> bool {
    *path == Path::Local
}

fn set<A: Address>(
    table: &mut Table<A>,
    paths: &mut Paths,
    prefix: Prefix<A>,
    path: &Path,
    adjacencies: &mut Adjacencies,
) -> Result<(), FibError> {
    let before = table.get(&prefix);
    if before.is_some_and(|hop| paths.of(hop) == Some(path)) {
        return Ok(());
    }
    let limit = paths.limit();
    let full = || FibError::Paths { prefix: prefix.to_string(), limit };
    let hop = paths.take(path, before, adjacencies).ok_or_else(full)?;
    if let Err(error) = table.insert(prefix, hop) {
        paths.give_back(hop, adjacencies);
        return Err(FibError::Full { prefix: prefix.to_string(), words: error.words });
    }
    if let Some(before) = before {
        paths.give_back(before, adjacencies);
    }
    Ok(())
}

fn remove<A: Address>(
    table: &mut Table<A>,
    paths: &mut Paths,
    prefix: Prefix<A>,
    adjacencies: &mut Adjacencies,
) -> Result<(), FibError> {
    let removed = table.remove(prefix);
    let before =
        removed.map_err(|error| FibError::Full { prefix: prefix.to_string(), words: error.words })?;
    if let Some(before) = before {
        paths.give_back(before, adjacencies);
    }
    Ok(())
}

/// A table as workers have it; clones are the same one.
#[derive(Clone, Debug)]
pub struct View {
    v4: Trie<u32>,
    v6: Trie<u128>,
    paths: PathView,
}

impl View {
    /// Whether it is the same table's.
    #[must_use]
    pub fn is(&self, other: &View) -> bool {
        self.paths.is(&other.paths)
    }

    /// What paths say of hops that [`View::hops4`] and [`View::hops6`] have found.
    #[inline(always)]
    pub(crate) fn said<'a>(&'a self, reader: &'a Reader) -> Sayings<'a> {
        self.paths.seen_by(reader)
    }

    /// The hops of IPv4 addresses, as many as both slices have.
    #[inline(always)]
    pub(crate) fn hops4(&self, reader: &Reader, addresses: &[u32], hops: &mut [Hop]) {
        self.v4.look_up(reader, addresses, hops);
    }

    /// The hops of IPv6 addresses, as many as both slices have.
    #[inline(always)]
    pub(crate) fn hops6(&self, reader: &Reader, addresses: &[u128], hops: &mut [Hop]) {
        self.v6.look_up(reader, addresses, hops);
    }

    /// Tells what the table says of packets to each of these IPv4 addresses, in order, with its place. `hash` gives the hash of the
    /// flow at a place, and is asked only where several ways share it.
    ///
    /// # Panics
    /// When the reader is offline or belongs to another domain (errors of the program).
    pub fn route4(
        &self,
        reader: &Reader,
        addresses: &[u32],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    ) {
        route(&self.v4, &self.paths, reader, addresses, hash, each);
    }

    /// The same of IPv6.
    ///
    /// # Panics
    /// As [`View::route4`].
    pub fn route6(
        &self,
        reader: &Reader,
        addresses: &[u128],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    ) {
        route(&self.v6, &self.paths, reader, addresses, hash, each);
    }
}

#[inline(always)]
fn route<A: Address>(
    trie: &Trie<A>,
    paths: &PathView,
    reader: &Reader,
    addresses: &[A],
    hash: impl Fn(usize) -> u32,
    mut each: impl FnMut(usize, Verdict),
) {
    let paths = paths.seen_by(reader);
    let mut hops = [Hop::NONE; CHUNK];
    let mut place = 0;
    for addresses in addresses.chunks(CHUNK) {
        trie.look_up(reader, addresses, &mut hops);
        for hop in &hops[..addresses.len()] {
            each(place, paths.verdict(*hop, || hash(place)));
            place += 1;
        }
    }
}
