//! Routing tables of the routing scenarios, and the destination addresses of the generated packets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use lookup::Prefix;
use packet::{MacAddr, PortId};
use router::{
    Adjacencies, Errors, Fib, FibError, Interface, Lookup, Mirrored, NextHop, Path, PuntPolicer, Router,
    Selector,
};
use sync::qsbr::Domain;

use crate::bench::generator::Destinations;

/// Number of destination addresses that are generated. The packet generator uses the addresses in turn.
const DESTINATIONS: usize = 1 << 20;
/// Number of next hops that the routes of a full table use.
pub const NEXT_HOPS: u8 = 64;
/// Kernel interface index of all next hops. No port of the benchmark is a kernel device, so the
/// index is arbitrary.
const DEVICE: u32 = 7;
/// Size of the lookup trie of each address family, in words.
const WORDS: usize = 1 << 22;

/// MAC address of the router interface on which packets arrive.
pub const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0xff, 1]);

/// A prefix of a routing table: the first address and the prefix length.
pub type Route = (IpAddr, u8);

/// Parses a text with one prefix per line.
///
/// # Errors
/// The line number and the text of the first line that is not a prefix.
pub fn parse(text: &str) -> Result<Vec<Route>, (usize, String)> {
    let line = |(number, line): (usize, &str)| {
        let route = line.trim().split_once('/').and_then(|(address, length)| {
            let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
            (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
        });
        route.ok_or_else(|| (number + 1, line.to_owned()))
    };
    text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(line).collect()
}

/// Selects how packets are distributed over the prefixes of a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// Uniform distribution: every prefix receives equally many packets.
    Even,
    /// Zipf distribution: the prefixes are ordered at random, and the n-th prefix receives packets with
    /// weight 1/n.
    Zipf,
}

/// A deterministic pseudorandom number generator (xorshift). Every run produces equal numbers.
pub struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random(0x2545_f491_4f6c_dd1d)
    }
}

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a pseudorandom number less than `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.next()) * limit as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns the index of a random next hop, less than `NEXT_HOPS`.
    pub fn next_hop(&mut self) -> u8 {
        u8::try_from(self.below(NEXT_HOPS.into())).unwrap_or(0)
    }
}

/// Routing table and next hops of a benchmark, for the thread that adds and removes routes.
pub struct RoutesOf {
    pub fib: Fib,
    adjacencies: Adjacencies,
}

impl RoutesOf {
    /// Creates an empty routing table and `next_hops` next hops whose MAC addresses are resolved.
    pub fn none(domain: &Arc<Domain>, workers: usize, next_hops: u8) -> RoutesOf {
        let mut adjacencies = Adjacencies::new(domain, 1024, workers);
        adjacencies.bind(DEVICE, Some(1));
        for nth in 0..next_hops {
            adjacencies.resolve(DEVICE, gateway(nth), Some(MacAddr([2, 0, 0, 0, 0xfe, nth])));
        }
        RoutesOf { fib: Fib::new(domain, WORDS, 1024), adjacencies }
    }

    /// Sets the next hop of a route. Adds the route if it does not exist.
    ///
    /// # Errors
    /// [`FibError`] if the table has no space. The table is unchanged in this case.
    pub fn set(&mut self, (address, length): Route, next_hop: u8) -> Result<(), FibError> {
        let RoutesOf { fib, adjacencies } = self;
        let path =
            Path::NextHops(vec![NextHop { interface: DEVICE, gateway: Some(gateway(next_hop)), weight: 1 }]);
        match address {
            IpAddr::V4(a) => fib.set4(Prefix::new(a.to_bits(), length), &path, adjacencies),
            IpAddr::V6(a) => fib.set6(Prefix::new(a.to_bits(), length), &path, adjacencies),
        }
    }

    /// Removes a route from the routing table.
    ///
    /// # Errors
    /// [`FibError`] if the route cannot be removed. The table is unchanged in this case.
    pub fn remove(&mut self, (address, length): Route) -> Result<(), FibError> {
        let RoutesOf { fib, adjacencies } = self;
        match address {
            IpAddr::V4(a) => fib.remove4(Prefix::new(a.to_bits(), length), adjacencies),
            IpAddr::V6(a) => fib.remove6(Prefix::new(a.to_bits(), length), adjacencies),
        }
    }
}

fn gateway(nth: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, 0, nth).into()
}

/// Routing table of a benchmark, and the destinations of the benchmark's packets. This value must outlive the routers
/// that use it.
pub struct Tables {
    pub routes: RoutesOf,
    pub destinations: Destinations,
}

/// Creates a routing table that contains `routes`, and random destination addresses within these routes.
///
/// # Errors
/// [`FibError`] if the table has no space for the routes.
pub fn tables(
    domain: &Arc<Domain>,
    routes: &[Route],
    popularity: Popularity,
    workers: usize,
) -> Result<Tables, FibError> {
    let next_hops = if routes.len() == 1 { 1 } else { NEXT_HOPS };
    let mut held = RoutesOf::none(domain, workers, next_hops);
    let mut random = Random::default();
    for route in routes {
        held.set(*route, if next_hops == 1 { 0 } else { random.next_hop() })?;
    }
    let mut order: Vec<usize> = (0..routes.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    let shares = zipf(routes.len());
    let mut pick = || {
        let nth = match popularity {
            Popularity::Even => random.below(routes.len()),
            Popularity::Zipf => {
                let share = random.next() as f64 / u64::MAX as f64;
                shares.partition_point(|sum| *sum < share).min(routes.len() - 1)
            }
        };
        let (address, length) = routes[order[nth]];
        (address, length, u128::from(random.next()) << 64 | u128::from(random.next()))
    };
    let destinations = match routes.first() {
        Some((IpAddr::V6(_), _)) => Destinations::Six(
            (0..DESTINATIONS).map(|_| pick()).map(|(a, length, noise)| within6(a, length, noise)).collect(),
        ),
        _ => Destinations::Four(
            (0..DESTINATIONS).map(|_| pick()).map(|(a, length, noise)| within4(a, length, noise)).collect(),
        ),
    };
    Ok(Tables { routes: held, destinations })
}

/// Returns the cumulative weights of a Zipf distribution over `count` items. The last cumulative weight is 1.
fn zipf(count: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=count)
        .map(|nth| {
            sum += 1.0 / nth as f64;
            sum
        })
        .collect();
    sums.iter_mut().for_each(|share| *share /= sum);
    sums
}

#[allow(clippy::cast_possible_truncation, reason = "some of the random bits")]
fn within4(address: IpAddr, length: u8, noise: u128) -> u32 {
    let host = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
    match address {
        IpAddr::V4(address) => address.to_bits() | noise as u32 & host,
        IpAddr::V6(_) => 0,
    }
}

fn within6(address: IpAddr, length: u8, noise: u128) -> u128 {
    let host = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) => address.to_bits() | noise & host,
    }
}

impl Tables {
    /// Returns the number of destination addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.destinations {
            Destinations::Four(list) => list.len(),
            Destinations::Six(list) => list.len(),
        }
    }

    /// Returns the router that processes packets from port `inside`. Every route leads to port `outside`.
    #[must_use]
    pub fn router(&self, inside: PortId, outside: PortId) -> Router {
        let interface = |port| Some(Interface { port, mac: OWN, mtu: 1500, vrrp: false });
        Router {
            interfaces: vec![interface(inside), interface(outside)],
            four: vec![Lookup::table_for(Selector::ALL, self.routes.fib.view())],
            six: vec![Lookup::table_for(Selector::ALL, self.routes.fib.view())],
            adjacencies: self.routes.adjacencies.view(),
            kernel: None,
            mirrored: Mirrored::default(),
            reverse_paths: Vec::new(),
            own_addresses: Arc::default(),
            errors: Errors::default(),
            punt_policer: Arc::new(PuntPolicer::new(|_| 1, 1, 0)),
            seed: 1,
        }
    }
}

/// Returns the only route of the scenario `route-1`.
#[must_use]
pub fn one() -> Vec<Route> {
    vec![(Ipv4Addr::new(10, 0, 0, 0).into(), 8)]
}

/// Returns the routes of one address family without the default route: IPv6 if `six` is true, otherwise IPv4.
#[must_use]
pub fn family(routes: &[Route], six: bool) -> Vec<Route> {
    // A table with a default route would not exercise the trie.
    routes.iter().copied().filter(|(address, length)| address.is_ipv6() == six && *length > 0).collect()
}
