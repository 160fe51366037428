//! The forwarding information base (FIB): one routing table with IPv4 and IPv6 routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use lookup::{Address, Hop, Prefix, Table, TableFull, Trie, Usage};
use sync::qsbr::{Domain, Reader};
use sync::readers::Readers;

use crate::adjacency::Adjacencies;
use crate::mirror::{PathMirror, TableMirror};
use crate::paths::{Path, PathEntries, PathView, Paths, Verdict};

/// Maximum number of addresses that are looked up in a trie in one batch.
const CHUNK: usize = 64;

/// The reason why a route was not installed. The table is unchanged, and other routes are not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The trie that holds the routes is full.
    #[error("route {prefix}: the table of {words} words is full; raise its size")]
    Full {
        /// Prefix of the route.
        prefix: String,
        /// Size of the trie, in words of eight bytes.
        words: usize,
    },
    /// The table has reached its maximum number of routes.
    #[error("route {prefix}: the table has the {limit} routes that it may have; raise `routes`")]
    Limit {
        /// Prefix of the route.
        prefix: String,
        /// Maximum number of routes of the table.
        limit: usize,
    },
    /// The router has reached its maximum number of routing tables.
    #[error(
        "route {prefix} of table {table}: the router has the {limit} tables that it may have; the kernel routes by this one"
    )]
    Tables {
        /// Prefix of the route.
        prefix: String,
        /// Number of the routing table that the route belongs to.
        table: u32,
        /// Maximum number of routing tables in addition to the main and the local table.
        limit: usize,
    },
    /// The table has reached its maximum number of paths.
    #[error("route {prefix}: routes lead to {limit} different paths already; raise the limit of paths")]
    Paths {
        /// Prefix of the route.
        prefix: String,
        /// Maximum number of different paths of the table.
        limit: u32,
    },
}

/// A routing table: IPv4 and IPv6 routes and their paths. Only the thread that changes the routes uses this type.
/// Workers use [`View`].
pub struct Fib {
    v4: Table<u32>,
    v6: Table<u128>,
    paths: Paths,
    /// Maximum number of routes of both families together, without local routes ([`Path::Local`]).
    limit: usize,
    /// Number of local routes ([`Path::Local`]).
    locals: usize,
}

impl fmt::Debug for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (v4, v6) = (self.v4.len(), self.v6.len());
        f.debug_struct("Fib").field("v4", &v4).field("v6", &v6).field("paths", &self.paths.len()).finish()
    }
}

impl Fib {
    /// Creates an empty routing table. Each of its two tries has `words` words of eight bytes, and the table has at
    /// most `paths` paths. The threads that read the table register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, words: usize, paths: u32) -> Fib {
        let (v4, v6) = (Table::new(domain, words), Table::new(domain, words));
        Fib { v4, v6, paths: Paths::new(domain, paths), limit: usize::MAX, locals: 0 }
    }

    /// Sets the maximum number of routes of both families together. Local routes ([`Path::Local`]) do not
    /// count. The host's own addresses are therefore always installed.
    #[must_use]
    pub fn with_limit(self, routes: usize) -> Fib {
        Fib { limit: routes, ..self }
    }

    /// Creates an empty routing table. The table is also copied to `mirror`, the memory from which BPF programs read
    /// routes. The size of this memory determines the size of the tries.
    ///
    /// # Errors
    /// Returns [`TableFull`] if the memory of a trie is too small.
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

    /// Returns a handle through which workers look up routes in the table.
    #[must_use]
    pub fn view(&self) -> View {
        View { v4: self.v4.trie(), v6: self.v6.trie(), paths: self.paths.view() }
    }

    /// Installs or replaces the route of an IPv4 prefix.
    ///
    /// # Errors
    /// Returns [`FibError`] if the route is refused. In this case, the table is unchanged.
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

    /// Installs or replaces the route of an IPv6 prefix.
    ///
    /// # Errors
    /// Returns [`FibError`] if the route is refused. In this case, the table is unchanged.
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

    /// Checks whether the limit of routes permits a new route, and returns an error if not. `is` states whether the new
    /// route is local. `was` states whether the replaced route is local, and is `None` if the new route replaces no
    /// route.
    fn has_room(&self, was: Option<bool>, is: bool, prefix: impl fmt::Display) -> Result<(), FibError> {
        if is || was == Some(false) || self.v4.len() + self.v6.len() - self.locals < self.limit {
            return Ok(());
        }
        Err(FibError::Limit { prefix: prefix.to_string(), limit: self.limit })
    }

    /// Removes an IPv4 route. The removal of a route that does not exist is not an error.
    ///
    /// # Errors
    /// Returns [`FibError::Full`] if the trie has no space for the change. In this case, the table is unchanged.
    pub fn remove4(&mut self, prefix: Prefix<u32>, adjacencies: &mut Adjacencies) -> Result<(), FibError> {
        let before = self.v4.get(&prefix).and_then(|hop| self.paths.of(hop));
        let was = before.is_some_and(is_local);
        remove(&mut self.v4, &mut self.paths, prefix, adjacencies)?;
        self.locals -= usize::from(was);
        Ok(())
    }

    /// Removes an IPv6 route. The removal of a route that does not exist is not an error.
    ///
    /// # Errors
    /// Returns [`FibError::Full`] if the trie has no space for the change. In this case, the table is unchanged.
    pub fn remove6(&mut self, prefix: Prefix<u128>, adjacencies: &mut Adjacencies) -> Result<(), FibError> {
        let before = self.v6.get(&prefix).and_then(|hop| self.paths.of(hop));
        let was = before.is_some_and(is_local);
        remove(&mut self.v6, &mut self.paths, prefix, adjacencies)?;
        self.locals -= usize::from(was);
        Ok(())
    }

    /// Returns whether there is an IPv4 route for exactly this prefix.
    #[must_use]
    pub fn has4(&self, prefix: Prefix<u32>) -> bool {
        self.v4.get(&prefix).is_some()
    }

    /// Returns whether there is an IPv6 route for exactly this prefix.
    #[must_use]
    pub fn has6(&self, prefix: Prefix<u128>) -> bool {
        self.v6.get(&prefix).is_some()
    }

    /// Defines the shared path with the number `shared`, to which routes refer by [`Path::Shared`]. One write changes
    /// the path for all routes that use it. If `path` is `None` or is itself [`Path::Shared`], the shared path has no
    /// next hops.
    pub fn define(&mut self, shared: u32, path: Option<&Path>, adjacencies: &mut Adjacencies) {
        self.paths.define(shared, path, adjacencies);
    }

    /// Returns the number of paths whose next hops are not completely stored yet, because the table of adjacencies or
    /// the mirror for BPF programs is full. The kernel forwards the packets of a next hop without an adjacency.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.paths.waiting()
    }

    /// Returns whether some freed memory of the table cannot be reused yet, because readers may still use this memory.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        self.v4.is_freeing() || self.v6.is_freeing() || self.paths.is_freeing()
    }

    /// Tries again to store the next hops of the paths for which there was no space ([`Fib::waiting`]).
    pub fn retry(&mut self, adjacencies: &mut Adjacencies) {
        self.paths.retry(adjacencies);
    }

    /// Returns the number of routes of the table, of both families together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether the table has no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory usage of the IPv4 and IPv6 tries.
    #[must_use]
    pub fn usage(&self) -> [Usage; 2] {
        [self.v4.usage(), self.v6.usage()]
    }

    /// Returns the number of different paths that the routes of the table use.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Returns the route with the longest prefix that matches an address: the first address of the prefix, the length
    /// of the prefix in bits, and the path of the route. Returns `None` if no route matches.
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

/// Read access to a routing table, for workers. Clones refer to the same table.
#[derive(Clone, Debug)]
pub struct View {
    v4: Trie<u32>,
    v6: Trie<u128>,
    paths: PathView,
}

impl View {
    /// Returns whether two views refer to the same table.
    #[must_use]
    pub fn is(&self, other: &View) -> bool {
        self.paths.is(&other.paths)
    }

    /// Returns the paths of the table for look-ups by `reader`. The path numbers ([`Hop`]) come from [`View::hops4`]
    /// and [`View::hops6`].
    #[inline(always)]
    pub(crate) fn path_entries<'a>(&'a self, reader: &'a Reader) -> PathEntries<'a> {
        self.paths.seen_by(reader)
    }

    /// Looks up IPv4 addresses and stores the path number of each address at the same index of `hops`. If the slices
    /// have different lengths, the shorter one determines the number of addresses.
    #[inline(always)]
    pub(crate) fn hops4(&self, reader: &Reader, addresses: &[u32], hops: &mut [Hop]) {
        self.v4.look_up(reader, addresses, hops);
    }

    /// Looks up IPv6 addresses and stores the path number of each address at the same index of `hops`. If the slices
    /// have different lengths, the shorter one determines the number of addresses.
    #[inline(always)]
    pub(crate) fn hops6(&self, reader: &Reader, addresses: &[u128], hops: &mut [Hop]) {
        self.v6.look_up(reader, addresses, hops);
    }

    /// Looks up IPv4 addresses, and calls `each` with the index of each address and its look-up result, in order.
    /// `hash` returns the flow hash of the packet at an index. The function calls `hash` only if the path has several
    /// next hops.
    ///
    /// # Panics
    /// Panics if the reader is offline or belongs to another domain (programming errors).
    pub fn route4(
        &self,
        reader: &Reader,
        addresses: &[u32],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    ) {
        route(&self.v4, &self.paths, reader, addresses, hash, each);
    }

    /// Looks up IPv6 addresses like [`View::route4`].
    ///
    /// # Panics
    /// Panics under the conditions of [`View::route4`].
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
