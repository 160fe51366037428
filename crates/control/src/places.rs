//! Limits the number of connections on one listening socket. The daemon closes a connection that has made no request if
//! another client needs the connection's slot.
//!
//! Each client (an IPv4 address, a /64 prefix of IPv6, or a local user) may use a limited number of the slots. If no
//! slot is free, the daemon closes (evicts) a connection that has made no request with a valid token or as a known
//! user. The evicted connection is the oldest one of the client that has the most such connections. Connections of root
//! on the Unix socket have separate slots.
//!
//! A connection that finds no free slot waits in a separate task, so it does not delay other connections. The number of
//! waiting connections is limited as well. A connection beyond this limit is closed immediately.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Minimum age at which a connection that has made no request can be evicted to free its slot for another client.
const GRACE: Duration = Duration::from_secs(1);

/// Client to which a connection is attributed for the limits on connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    /// A local process of root, or of the daemon's own user.
    Root,
    /// A local process of another user, with the user's ID.
    User(u32),
    /// A network client: an IPv4 address, or the upper 64 bits of an IPv6 address.
    Address(IpAddr),
}

impl Client {
    /// Returns the client to which a connection from the socket address `address` is attributed.
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
    evicted: Arc<Notify>,
}

#[derive(Default)]
struct Inside {
    entries: Vec<Entry>,
    /// Client of each connection that waits for a slot.
    waiting: Vec<Client>,
    numbers: u64,
}

/// Connection slots of one listening socket. Clones refer to the same slots.
#[derive(Clone)]
pub(crate) struct Places {
    inside: Arc<Mutex<Inside>>,
    freed: Arc<Notify>,
    /// Number of connection slots, without those that are reserved for root.
    limit: usize,
    /// Maximum number of connection slots that one client may use.
    share: usize,
    /// Number of additional connection slots that are reserved for root.
    reserve: usize,
}

/// Result of an attempt to get a connection slot of a listening socket.
enum Entrance {
    /// The connection has one of the slots of the listening socket.
    Place(Place),
    /// The client already uses its maximum number of slots. The connection must be closed.
    Refused,
    /// No slot is free now. The connection can try again later.
    Later,
}

/// State of a new connection, which has a connection slot or waits for one.
pub(crate) enum Arrival {
    /// The connection has a connection slot.
    Place(Place),
    /// The connection waits for a connection slot.
    Waiting(Waiting),
}

/// The slot of a connection, which is released when this value is dropped.
pub(crate) struct Place {
    places: Places,
    number: u64,
    asked: Arc<AtomicBool>,
    evicted: Arc<Notify>,
}

/// A connection that waits for a slot. The connection stops waiting when this value is dropped.
pub(crate) struct Waiting {
    places: Places,
    client: Client,
}

impl Places {
    /// Creates the connection slots of a listening socket. There are `limit` slots, of which one client may use
    /// `share`, and `reserve` additional slots for root.
    pub fn new(limit: usize, share: usize, reserve: usize) -> Places {
        Places { inside: Arc::default(), freed: Arc::default(), limit, share, reserve }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns a slot to a new connection. If no slot is free, the connection waits for one, unless too many
    /// connections wait already: at most `share` connections of one client, and `limit` connections of all clients.
    /// Returns `None` if the connection must be closed.
    pub fn arrive(&self, client: Client) -> Option<Arrival> {
        let mut inside = self.inside();
        match self.enter(&mut inside, client) {
            Entrance::Place(place) => return Some(Arrival::Place(place)),
            Entrance::Refused => return None,
            Entrance::Later => {}
        }
        let waiting = &mut inside.waiting;
        let own = waiting.iter().filter(|other| **other == client).count();
        let others = waiting.iter().filter(|other| **other != Client::Root).count();
        let most = if client == Client::Root { self.limit + self.reserve } else { self.share };
        if own >= most || (client != Client::Root && others >= self.limit) {
            return None;
        }
        waiting.push(client);
        Some(Arrival::Waiting(Waiting { places: self.clone(), client }))
    }

    /// Tries to assign a slot to a connection. If no slot is free, a connection that has made no request is
    /// evicted.
    fn enter(&self, inside: &mut Inside, client: Client) -> Entrance {
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
        let (since, evicted) = (Instant::now(), Arc::new(Notify::new()));
        let entry = Entry { number, client, since, asked: asked.clone(), evicted: evicted.clone() };
        inside.entries.push(entry);
        Entrance::Place(Place { places: self.clone(), number, asked, evicted })
    }

    /// Waits until a slot may be free. Returns after a quarter of `GRACE` at the latest, because a
    /// connection that reaches the age `GRACE` can be evicted without a notification.
    async fn freed(&self) {
        let _ = tokio::time::timeout(GRACE / 4, self.freed.notified()).await;
    }
}

impl Arrival {
    /// Waits until the connection has a slot, and returns it. Returns `None` if the connection must be
    /// closed.
    pub async fn place(self) -> Option<Place> {
        let waiting = match self {
            Arrival::Place(place) => return Some(place),
            Arrival::Waiting(waiting) => waiting,
        };
        loop {
            waiting.places.freed().await;
            let entrance = {
                let mut inside = waiting.places.inside();
                waiting.places.enter(&mut inside, waiting.client)
            };
            match entrance {
                Entrance::Place(place) => return Some(place),
                Entrance::Refused => return None,
                Entrance::Later => {}
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiting = &mut self.places.inside().waiting;
        if let Some(own) = waiting.iter().position(|client| *client == self.client) {
            waiting.swap_remove(own);
        }
    }
}

impl Inside {
    /// Evicts a connection that has made no request and is older than `GRACE`. If `client` is given, selects the oldest
    /// such connection of this client. Otherwise, selects the oldest one of the client that has the most such
    /// connections. Returns whether a connection was evicted.
    fn evict(&mut self, client: Option<Client>) -> bool {
        let idle = |entry: &&Entry| !entry.asked.load(Ordering::Relaxed) && entry.since.elapsed() >= GRACE;
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
                entry.evicted.notify_one();
            }
            entry.number != number
        });
        true
    }

    /// Returns whether the client has at least one connection that has made no request yet. Such a connection can be
    /// evicted soon.
    fn only_waits(&self, client: Client) -> bool {
        self.entries.iter().any(|entry| entry.client == client && !entry.asked.load(Ordering::Relaxed))
    }
}

impl Place {
    /// Serves the connection with `work`. If the connection is evicted from its slot, `work` is cancelled.
    pub async fn serve(self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            () = self.evicted.notified() => {}
        }
    }

    /// Returns the flag that is set when the client makes a permitted request on this connection.
    pub fn request_flag(&self) -> Arc<AtomicBool> {
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
        let mut inside = places.inside();
        let Entrance::Place(place) = places.enter(&mut inside, client) else { return None };
        Some(place)
    }

    fn user(number: u32) -> Client {
        Client::User(number)
    }

    /// Checks that other clients get slots by eviction if a client with idle connections uses all slots. The other
    /// clients keep their connections.
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

    /// Checks that connections that have made requests are not evicted. A client that uses its maximum number of slots
    /// with such connections is refused, and other clients are not.
    #[tokio::test(start_paused = true)]
    async fn a_share_is_all_that_one_client_has() {
        let places = Places::new(4, 2, 0);
        let held: Vec<_> = (0..2).filter_map(|_| place(&places, user(1))).collect();
        held.iter().for_each(|place| place.request_flag().store(true, Ordering::Relaxed));
        tokio::time::advance(GRACE * 2).await;
        assert!(places.arrive(user(1)).is_none());
        assert!(place(&places, user(2)).is_some());
        drop(held);
        assert!(place(&places, user(1)).is_some());
    }

    /// Checks that connections that wait because their client uses its maximum number of slots do not delay other
    /// clients. Other clients are admitted meanwhile, and connections beyond the limit of waiting connections are
    /// closed immediately.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_keeps_no_other_waiting() {
        let places = Places::new(4, 2, 1);
        let arrive = |client| places.arrive(client);
        let held: Vec<_> = (0..2).filter_map(|_| place(&places, user(1))).collect();
        let waiting: Vec<_> = (0..2).filter_map(|_| arrive(user(1))).collect();
        assert!(held.len() == 2 && waiting.iter().all(|own| matches!(own, Arrival::Waiting(_))));
        assert!(arrive(user(1)).is_none(), "its share waits already");
        for client in [user(2), Client::Root] {
            assert!(matches!(arrive(client), Some(Arrival::Place(_))), "{client:?}");
        }
        drop(held);
        let mut got = Vec::new();
        for own in waiting {
            got.push(own.place().await.unwrap());
        }
        assert!(places.inside().waiting.is_empty());
        // A connection is evicted after its grace time while a newcomer waits.
        let newcomer = tokio::spawn(arrive(user(1)).unwrap().place());
        got.remove(0).serve(std::future::pending()).await;
        assert!(newcomer.await.unwrap().is_some());
    }

    #[test]
    fn an_ipv6_host_is_its_prefix_and_a_mapped_address_is_ipv4() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("[2001:db8::1]:1"), at("[2001:db8::ffff:2]:9"));
        assert_ne!(at("[2001:db8::1]:1"), at("[2001:db8:0:1::1]:1"));
        assert_eq!(at("[::ffff:10.0.0.1]:1"), at("10.0.0.1:2"));
    }
}
