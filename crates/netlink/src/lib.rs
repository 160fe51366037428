//! An exact mirror of the kernel's routing state: links, addresses, neighbours, next-hop objects, routes and
//! rules of one network namespace.
//!
//! ```text
//!   kernel ==notifications==> reader ==datagrams, bounded==> applier: Mirror --changes--> whoever follows
//!      |                        | overrun: drains, marks        |
//!      '------------- dumps: at first, after an overrun, to look for drift ------'
//! ```
//!
//! Separate threads read and apply notifications. A slow follower therefore fills the queue between the
//! threads first, and then the receive buffer of the socket. If notifications are lost nevertheless, all
//! state is dumped again, and the differences are reported as changes. The mirror then equals the kernel's
//! state again.
//!
//! **Derived changes.** The kernel sends no notification for some changes, which the mirror derives
//! ([`Mirror::apply`]): IPv4 routes that are removed with a link or an address, next-hop objects that are
//! removed with a link, and the routes that used them.
//!
//! **Omitted state.** The mirror omits state that changes without a notification: ages, confirmation states
//! of neighbours (an entry exists while its address may be used), IPv6 addresses that may not be used yet,
//! and the carrier state of next hops, which links report.
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
mod frr;
mod mirror;
mod routes;
mod state;

pub use decode::{Event, Object, decode};
pub use error::NetlinkError;
pub use feed::{Feed, Limits, Programs, RULES, own_addresses};
pub use follow::{Drift, Follower, Status};
pub use fpm::{Fpm, FpmError, FpmListener, FpmStatus};
pub use mirror::{Change, Mirror};
pub use routes::{Paths, Routes};
pub use state::{
    Address, Family, FibOutcome, Hop, Kind, Link, Member, Neighbour, NeighbourKey, NextHop, Path, Prefix,
    RouteKey, Rule, Settings, SettingsKey, TablePrefix,
};
