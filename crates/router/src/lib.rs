//! The router function: makes the routing decisions for the packets of a burst.
//!
//! ```text
//!   Router::decide: for this router? -> rules choose tables -> destination
//!     destination ──lookup's trie──► number of a path ──slots──► Path: an action, or a group of next hops
//!                                                                  │ hash of the flow
//!                                                                  └──buckets──► one of them
//!       next hop ──► adjacency: the neighbour's address and the interface  ──► Decision: Forward | Punt | Drop
//! ```
//!
//! The engine calls the router with the flow keys of a burst, or with the destinations of [`fast_path`] packets.
//! The router returns one [`Decision`] for each packet and accesses no frame. For a refused packet the router
//! builds the ICMP error to its sender ([`IcmpError`]).
//!
//! A [`Fib`] (one routing table) has one writer, and the [`Adjacencies`] of all tables of a router have the same
//! writer. Any number of workers read the tables and the adjacencies through views. Routes with equal next hops share a
//! path. One write therefore redirects all these routes. A path that changes keeps as many flows on their next hops as
//! the new shares allow ([`Buckets`]). A change of a neighbour's link-layer address costs one write, too.
//!
//! ```
//! use lookup::Prefix;
//! use router::{Adjacencies, Fib, Path, Verdict, NextHop};
//! use sync::qsbr::Domain;
//!
//! let domain = Domain::new();
//! let mut adjacencies = Adjacencies::new(&domain, 1000, 1);
//! let mut fib = Fib::new(&domain, 1 << 20, 64);
//! let gateway = Some([10, 0, 0, 1].into());
//! let hop = NextHop { interface: 3, gateway, weight: 1 };
//! fib.set4(Prefix::new(0xc000_0200, 24), &Path::NextHops(vec![hop]), &mut adjacencies).unwrap();
//!
//! let (view, reader) = (fib.view(), domain.register().unwrap());
//! let mut verdicts = [Verdict::NoRoute; 2];
//! let addresses = [0xc000_0207, 0x0a00_0001];
//! view.route4(&reader, &addresses, |_| 17, |place, verdict| verdicts[place] = verdict);
//! let Verdict::Forward(number) = verdicts[0] else { panic!("there is a route") };
//! assert_eq!(adjacencies.leads(number), Some((3, gateway)));
//! assert_eq!(verdicts[1], Verdict::NoRoute);
//! ```

mod address_bits;
mod adjacency;
mod adjacency_number;
mod buckets;
mod decision;
pub mod dhcp;
pub mod dhcp6;
mod errors;
pub mod fast_path;
mod fib;
mod icmp_settings;
mod interface;
mod link_hash;
mod mirror;
mod mirrored;
mod own_addresses;
mod paths;
mod policy;
mod punt;
mod punt_policer;
mod reverse;

pub use adjacency::{
    Acquaintance, Adjacencies, Adjacency, AdjacencyUse, AdjacencyView, Counts, FOREIGN, NextHop,
};
pub use adjacency_number::MOST;
pub use buckets::{BUCKETS, Buckets, spread};
pub use decision::{Admitted, Decision, Gathering, Refusal, Router, Scratch};
pub use errors::IcmpError;
pub use fib::{Fib, FibError, View};
pub use icmp_settings::Errors;
pub use interface::{Interface, ReversePath};
pub use link_hash::LINK_SECRETS;
pub use mirror::{COUNT_WORDS, GROUP_WORDS, LINE_WORDS, NEIGHBOUR_WORDS, NeighbourMirror, TableMirror};
pub use mirrored::{Kernel, Mirrored};
pub use own_addresses::OwnAddresses;
pub use paths::{Path, Verdict};
pub use policy::{Lookup, Selector};
pub use punt::Punt;
pub use punt_policer::{Origin, Peer, PuntPolicer, class, punt_burst};
