//! From a mirror to the tables of a virtual router: each of the kernel's tables is a [`Fib`].
//!
//! Of the routes to one prefix the one with the lowest metric counts whose ways out are not all dead. Routes for one type of service or
//! from some sources only are not followed. What the kernel encapsulates, broadcasts or sends to a group stays the kernel's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use router::{Fib, FibError, Path, Way};
use sync::qsbr::Domain;

use crate::mirror::{Change, Mirror};
use crate::routes::Routes;
use crate::state::{self, Family, Kind, NextHop, RouteKey};

/// Tables that follow a mirror.
#[derive(Debug)]
pub struct Feed {
    domain: Arc<Domain>,
    words: usize,
    paths: u32,
    fibs: BTreeMap<u32, Fib>,
    refused: u64,
}

impl Feed {
    /// No tables yet: each that comes has tries of so many words of eight bytes, and room for so many different paths.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, words: usize, paths: u32) -> Feed {
        Feed { domain: Arc::clone(domain), words, paths, fibs: BTreeMap::new(), refused: 0 }
    }

    /// A table of the kernel's (254: main, 255: local).
    #[must_use]
    pub fn table(&self, number: u32) -> Option<&Fib> {
        self.fibs.get(&number)
    }

    /// Routes that found no room so far: they are told again with their next change.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
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
                Change::Route4(key) => drop(four.insert((key.table, key.prefix))),
                Change::Route6(key) => drop(six.insert((key.table, key.prefix))),
                Change::Link(_) | Change::Address(_) | Change::Neighbour(_) | Change::Rules => {}
            }
        }
        for id in objects {
            let path = mirror.next_hops.get(&id).map(|next| object(mirror, next));
            self.fibs.values_mut().for_each(|fib| fib.define(id, path.as_ref()));
        }
        for (table, prefix) in four {
            let wanted = lookup::Prefix::new(prefix.address.to_bits(), prefix.length);
            match (best(&mirror.routes4, table, prefix), self.fibs.get_mut(&table)) {
                (Some(path), _) => errors.extend(self.fib(mirror, table).set4(wanted, &path).err()),
                (None, Some(fib)) => errors.extend(fib.remove4(wanted).err()),
                (None, None) => {}
            }
        }
        for (table, prefix) in six {
            let wanted = lookup::Prefix::new(prefix.address.to_bits(), prefix.length);
            match (best(&mirror.routes6, table, prefix), self.fibs.get_mut(&table)) {
                (Some(path), _) => errors.extend(self.fib(mirror, table).set6(wanted, &path).err()),
                (None, Some(fib)) => errors.extend(fib.remove6(wanted).err()),
                (None, None) => {}
            }
        }
        self.refused += u64::try_from(errors.len()).unwrap_or(u64::MAX);
        errors
    }

    /// A table, which begins with what all next-hop objects are.
    fn fib(&mut self, mirror: &Mirror, table: u32) -> &mut Fib {
        self.fibs.entry(table).or_insert_with(|| {
            let mut fib = Fib::new(&self.domain, self.words, self.paths);
            for (id, next) in &mirror.next_hops {
                fib.define(*id, Some(&object(mirror, next)));
            }
            fib
        })
    }
}

/// What the routes to a prefix say.
fn best<A: Family>(routes: &Routes<A>, table: u32, prefix: state::Prefix<A>) -> Option<Path> {
    let everyone = state::Prefix { address: A::ZERO, length: 0 };
    let key = |metric| RouteKey { table, prefix, tos: 0, metric, from: everyone };
    let paths = routes.range(key(0)..=key(u32::MAX)).filter(|(key, _)| key.from.length == 0);
    paths.flat_map(|(_, paths)| paths.all()).find_map(|path| said(path))
}

/// What a route says; `None` when all its ways out are dead.
fn said(path: &state::Path) -> Option<Path> {
    match path.kind {
        Kind::Blackhole => return Some(Path::Blackhole),
        Kind::Unreachable => return Some(Path::Unreachable),
        Kind::Prohibit => return Some(Path::Prohibit),
        Kind::Throw => return Some(Path::Throw),
        Kind::Unicast => {}
        Kind::Local | Kind::Broadcast | Kind::Anycast | Kind::Multicast | Kind::Other(_) => {
            return Some(Path::Local);
        }
    }
    if let Some(id) = path.next_hop {
        return Some(Path::Shared(id));
    }
    if path.hops.iter().any(|hop| hop.encapsulates) {
        return Some(Path::Local);
    }
    let ways: Vec<Way> = path.hops.iter().filter(|hop| !hop.dead).map(way).collect();
    (!ways.is_empty()).then_some(Path::Ways(ways))
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
        return if hop.encapsulates { Path::Local } else { Path::Ways(vec![way(hop)]) };
    }
    let members = next.group.iter().filter_map(|member| {
        let hop = mirror.next_hops.get(&member.id)?.hop?;
        Some(Way { weight: member.weight, ..way(&hop) })
    });
    let ways: Vec<Way> = members.collect();
    // A group of one blackhole.
    if ways.is_empty() { Path::Blackhole } else { Path::Ways(ways) }
}
