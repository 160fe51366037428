//! The router: what becomes of a packet that is to be routed.
//!
//! ```text
//!   Router::decide: for this router? -> rules choose tables -> destination
//!     destination ──lookup's trie──► number of a path ──slots──► Path: an end, or a group of ways out
//!                                                                  │ hash of the flow
//!                                                                  └──buckets──► one of them
//!       way out ──► adjacency: the neighbour's address and the interface  ──► Decision: Forward | Punt | Drop
//! ```
//!
//! A room of the engine: it is handed the flow keys of a burst, or the destinations of [`plain`] packets, and answers with a [`Decision`]
//! for each; it touches no frame. What the sender of a refused packet is told it says in full ([`IcmpError`]).
//! A [`Fib`] belongs to one writer, the [`Adjacencies`] to the same one for all tables of a router; any number of workers ask their
//! views. Routes that lead to the same share a path, so that one write repoints all of them, and a path that changes keeps as many
//! flows where they are as its new shares allow ([`Buckets`]). A neighbour that changes its address is one write, too.
//!
//! ```
//! use lookup::Prefix;
//! use router::{Adjacencies, Fib, Path, Verdict, Way};
//! use sync::qsbr::Domain;
//!
//! let domain = Domain::new();
//! let mut adjacencies = Adjacencies::new(&domain, 1000, 1);
//! let mut fib = Fib::new(&domain, 1 << 20, 64);
//! let gateway = Some([10, 0, 0, 1].into());
//! let way = Way { interface: 3, gateway, weight: 1 };
//! fib.set4(Prefix::new(0xc000_0200, 24), &Path::Ways(vec![way]), &mut adjacencies).unwrap();
//!
//! let (view, reader) = (fib.view(), domain.register().unwrap());
//! let mut verdicts = [Verdict::NoRoute; 2];
//! let addresses = [0xc000_0207, 0x0a00_0001];
//! view.route4(&reader, &addresses, |_| 17, |place, verdict| verdicts[place] = verdict);
//! let Verdict::Forward(number) = verdicts[0] else { panic!("there is a route") };
//! assert_eq!(adjacencies.leads(number), Some((3, gateway)));
//! assert_eq!(verdicts[1], Verdict::NoRoute);
//! ```

mod adjacency;
mod buckets;
pub mod dhcp;
pub mod dhcp6;
mod errors;
mod fib;
mod gate;
mod link_hash;
mod mirror;
mod mirrored;
mod own_addresses;
mod paths;
pub mod plain;
mod policy;
mod reverse;
mod room;

pub use adjacency::{
    Acquaintance, Adjacencies, Adjacency, AdjacencyUse, AdjacencyView, Counts, FOREIGN, MOST,
};
pub use buckets::{BUCKETS, Buckets, spread};
pub use errors::{Errors, IcmpError};
pub use fib::{Fib, FibError, View};
pub use gate::{Gate, Origin, Peer, class};
pub use link_hash::LINK_SECRETS;
pub use mirror::{COUNT_WORDS, GROUP_WORDS, LINE_WORDS, NEIGHBOUR_WORDS, NeighbourMirror, TableMirror};
pub use mirrored::Mirrored;
pub use own_addresses::OwnAddresses;
pub use paths::{Path, Verdict, Way};
pub use policy::{Lookup, Selector};
pub use reverse::ReversePath;
pub use room::{Admitted, Decision, Gathering, Interface, Kernel, Punt, Refusal, Router, Scratch};
