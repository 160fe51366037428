//! A mirror (an exact copy) of the kernel's routing state: links, addresses, neighbours, next-hop objects, routes and
//! rules of one network namespace.
//!
//! ```text
//!   kernel ==notifications==> reader ==datagrams, bounded==> applier: Mirror --changes--> callback
//!      |                        | overrun: drains, marks        |
//!      '------------- dumps: at first, after an overrun, to look for drift ------'
//! ```
//!
//! Separate threads read and apply notifications. If changes are not applied fast enough, the queue between
//! the threads fills first, and then the receive buffer of the socket. If notifications are lost
//! nevertheless, all state is dumped again, and the differences are reported as changes. The mirror is then
//! again equal to the kernel's state.
//!
//! **Derived changes.** The kernel sends no notification for some changes. [`Mirror::apply`] derives these
//! changes from others: IPv4 routes that are removed with a link or an address, next-hop objects that are
//! removed with a link, and the routes that used these next-hop objects.
//!
//! **Omitted state.** The mirror omits state that changes without a notification: the age and the confirmation state of
//! neighbours (an entry exists while its address may be used), and IPv6 addresses that may not be used yet. It also
//! omits the carrier state of next hops, because links report this state.
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
mod rtnetlink;
mod state;

pub use decode::{Event, Object, decode};
pub use error::NetlinkError;
pub use feed::{Feed, GracePeriod, Limits, Programs, RULES, own_addresses};
pub use follow::{Drift, Follower, Status};
pub use fpm::{Fpm, FpmError, FpmListener, FpmStatus};
pub use mirror::{Change, Mirror};
pub use routes::{Paths, Routes};
pub use rtnetlink::route::RT_TABLE_LOCAL;
pub use state::{
    Address, Family, FibOutcome, Hop, Kind, Link, Member, Neighbour, NeighbourKey, NextHop, Path, Prefix,
    RouteKey, Rule, Settings, SettingsKey, TablePrefix,
};
