//! The kernel's routing state, kept exactly in step: links, addresses, neighbours, next-hop objects, routes and rules of one
//! network namespace.
//!
//! ```text
//!   kernel ==notifications==> reader ==datagrams, bounded==> applier: Mirror --changes--> whoever follows
//!      |                        | overrun: drains, marks        |
//!      '------------- dumps: at first, after an overrun, to look for drift ------'
//! ```
//!
//! Reading stands apart from applying, so that a slow follower fills a queue and then the socket's buffer, and not the kernel's
//! patience at once. When notifications are lost all the same, everything is dumped again, and what differs is a change like any
//! other: after it the mirror is the kernel's state again.
//!
//! **What the kernel does not tell** the mirror derives ([`Mirror::apply`]): IPv4 routes that go with a link or an address, next-hop
//! objects that go with a link, and the routes that used them.
//!
//! **What is left out** because it changes without a notification: ages, confirmation states of neighbours (an entry is there
//! while its address may be used), IPv6 addresses that may not be used yet, whether the carrier of a way out is lost, which links tell.
//!
//! ```no_run
//! use netlink::Follower;
//!
//! let follower = Follower::start(None, Follower::BUFFER, |mirror, changes| {
//!     println!("{} changes, {} IPv4 routes", changes.len(), mirror.routes4.len());
//! })?;
//! follower.settle()?;
//! # Ok::<(), netlink::NetlinkError>(())
//! ```

mod decode;
mod error;
mod feed;
mod follow;
pub mod fpm;
mod mirror;
mod routes;
mod state;

pub use decode::{Event, Object, decode};
pub use error::NetlinkError;
pub use feed::{Feed, Limits, Programs, own_addresses};
pub use follow::{Drift, Follower, Status};
pub use fpm::{Fpm, FpmError, FpmListener, FpmStatus};
pub use mirror::{Change, Mirror};
pub use routes::{Paths, Routes};
pub use state::{
    Address, Family, FibOutcome, Hop, Kind, Link, Member, Neighbour, NeighbourKey, NextHop, Path, Prefix,
    RouteKey, Rule, Settings, SettingsKey, TablePrefix,
};
