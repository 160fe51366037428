//! The places for connections on one socket. A client that only holds a connection makes room for one that asks.
//!
//! Each client (an address, a /64 of IPv6, or a user) has a share of the places. A connection that has not asked
//! anything with a valid token or as a known user gives way when room is short: the oldest one of the client that has most
//! of these. Root's connections on the unix socket have places of their own.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How long a connection that has asked nothing keeps its place when room is short.
const GRACE: Duration = Duration::from_secs(1);

/// The client that a connection counts for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    /// Root, or the daemon's own user, at this machine.
    Root,
    /// Another user of this machine.
    User(u32),
    /// An IPv4 address, or the upper half of an IPv6 address.
    Address(IpAddr),
}

impl Client {
    /// Returns the client behind an address.
    pub fn at(address: SocketAddr) -> Client {
        Client::Address(match address.ip() {
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => v4.into(),
                None => std::net::Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
            },
            v4 => v4,
        })
    }
}

struct Entry {
    number: u64,
    client: Client,
    since: Instant,
    asked: Arc<AtomicBool>,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct Inside {
    entries: Vec<Entry>,
    numbers: u64,
}

/// The places of one socket. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Places {
    inside: Arc<Mutex<Inside>>,
    freed: Arc<Notify>,
    /// Connections at once.
    limit: usize,
    /// Connections of one client at once.
    share: usize,
    /// Connections beyond `limit` that only root has.
    reserve: usize,
}

/// What becomes of a connection that has come.
pub(crate) enum Entrance {
    /// It has a place.
    Place(Place),
    /// Its client has all that it may have: the connection is closed.
    Refused,
    /// There is no room yet.
    Later,
}

/// A connection's place, free again when this is dropped.
pub(crate) struct Place {
    places: Places,
    number: u64,
    asked: Arc<AtomicBool>,
}

impl Places {
    /// `limit` places at once, `share` of them for one client at most, and `reserve` more for root.
    pub fn new(limit: usize, share: usize, reserve: usize) -> Places {
        Places { inside: Arc::default(), freed: Arc::default(), limit, share, reserve }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection a place, where need be that of one that has asked nothing.
    pub fn enter(&self, client: Client) -> Entrance {
        let mut inside = self.inside();
        let own = inside.entries.iter().filter(|entry| entry.client == client).count();
        if client != Client::Root && own >= self.share && !inside.evict(Some(client)) {
            return if inside.only_waits(client) { Entrance::Later } else { Entrance::Refused };
        }
        let limit = if client == Client::Root { self.limit + self.reserve } else { self.limit };
        if inside.entries.len() >= limit && !inside.evict(None) {
            return Entrance::Later;
        }
        inside.numbers += 1;
        let (number, asked) = (inside.numbers, Arc::new(AtomicBool::new(false)));
        let since = Instant::now();
        inside.entries.push(Entry { number, client, since, asked: asked.clone(), task: None });
        Entrance::Place(Place { places: self.clone(), number, asked })
    }

    /// Waits until a place may be free, not longer than a connection without a request keeps its own.
    pub async fn freed(&self) {
        let _ = tokio::time::timeout(GRACE / 4, self.freed.notified()).await;
    }
}

impl Inside {
    /// Ends the oldest connection that has asked nothing and has had its time: of `client`, or of the one with most of these.
    fn evict(&mut self, client: Option<Client>) -> bool {
        let idle = |entry: &&Entry| {
            !entry.asked.load(Ordering::Relaxed) && entry.task.is_some() && entry.since.elapsed() >= GRACE
        };
        let of = client.or_else(|| {
            let count = |client: Client| {
                self.entries.iter().filter(idle).filter(|entry| entry.client == client).count()
            };
            self.entries.iter().filter(idle).map(|entry| entry.client).max_by_key(|client| count(*client))
        });
        let oldest = self.entries.iter().filter(idle).find(|entry| Some(entry.client) == of);
        let Some(number) = oldest.map(|entry| entry.number) else { return false };
        self.entries.retain(|entry| {
            if entry.number == number {
                entry.task.iter().for_each(AbortHandle::abort);
            }
            entry.number != number
        });
        true
    }

    /// Returns whether some connection of the client has asked nothing, so that it gives way soon.
    fn only_waits(&self, client: Client) -> bool {
        self.entries.iter().any(|entry| entry.client == client && !entry.asked.load(Ordering::Relaxed))
    }
}

impl Place {
    /// Names the task that serves the connection, so that it can be ended.
    pub fn served_by(&self, task: AbortHandle) {
        let mut inside = self.places.inside();
        if let Some(entry) = inside.entries.iter_mut().find(|entry| entry.number == self.number) {
            entry.task = Some(task);
        }
    }

    /// Returns what is set once the client has made a request that it may make.
    pub fn asked(&self) -> Arc<AtomicBool> {
        self.asked.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.inside().entries.retain(|entry| entry.number != self.number);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(places: &Places, client: Client) -> Option<Place> {
        let Entrance::Place(place) = places.enter(client) else { return None };
        place.served_by(tokio::spawn(std::future::pending::<()>()).abort_handle());
        Some(place)
    }

    fn user(number: u32) -> Client {
        Client::User(number)
    }

    /// One client that holds all it can does not keep another out, nor does it cost that one its connection.
    #[tokio::test(start_paused = true)]
    async fn the_client_with_most_idle_connections_makes_room() {
        let places = Places::new(4, 3, 1);
        let other = place(&places, user(2)).unwrap();
        let held: Vec<_> = (0..3).filter_map(|_| place(&places, user(1))).collect();
        assert_eq!(held.len(), 3);
        assert!(place(&places, user(3)).is_none(), "each has its time first");
        let root = place(&places, Client::Root);
        assert!(root.is_some(), "root has places of its own");
        tokio::time::advance(GRACE).await;
        drop(root);
        let third = place(&places, user(3)).unwrap();
        let left = places.inside().entries.iter().map(|entry| entry.client).collect::<Vec<_>>();
        assert_eq!(left, [user(2), user(1), user(1), user(3)]);
        drop((other, third));
    }

    /// Connections that have asked stay; a client with its whole share of these is refused, and others are not.
    #[tokio::test(start_paused = true)]
    async fn a_share_is_all_that_one_client_has() {
        let places = Places::new(4, 2, 0);
        let held: Vec<_> = (0..2).filter_map(|_| place(&places, user(1))).collect();
        held.iter().for_each(|place| place.asked().store(true, Ordering::Relaxed));
        tokio::time::advance(GRACE * 2).await;
        assert!(matches!(places.enter(user(1)), Entrance::Refused));
        assert!(place(&places, user(2)).is_some());
        drop(held);
        assert!(place(&places, user(1)).is_some());
    }

    #[test]
    fn an_ipv6_host_is_its_prefix_and_a_mapped_address_is_ipv4() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("[2001:db8::1]:1"), at("[2001:db8::ffff:2]:9"));
        assert_ne!(at("[2001:db8::1]:1"), at("[2001:db8:0:1::1]:1"));
        assert_eq!(at("[::ffff:10.0.0.1]:1"), at("10.0.0.1:2"));
    }
}
