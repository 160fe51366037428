//! OpenFlow: the protocol between a bridge and its controllers or clients such as `ovs-ofctl`.
//!
//! ```text
//!   ovs-ofctl, controllers              Controllers: targets, listeners, back-off, status
//!        |  tcp, tls, unix                     |
//!        +----------- Session -----------------+        one task each: negotiation, requests in order, echo, roles
//!                        |  wire: octets <-> switch::flow
//!                     Datapath                          the bridge, which sends its events to every session
//! ```
//!
//! A bridge implements [`Datapath`]. Messages of all versions are converted to the common form of
//! [`switch::flow`]. OpenFlow 1.0 to 1.5 are supported, with the extensions that Open vSwitch's clients use.
//!
//! ```
//! use openflow::wire::{Reader, Version, action, error::Error};
//! use switch::flow::{Action, Match};
//!
//! let mut octets = Vec::new();
//! action::put_actions(&mut octets, Version::V13, &[Action::SetQueue(3)]);
//! assert_eq!(octets, [0, 21, 0, 8, 0, 0, 0, 3]);
//! let read = action::get_actions(Reader::new(&octets, Error::ActionLength), Version::V13, &Match::ANY);
//! assert_eq!(read, Ok(vec![Action::SetQueue(3)]));
//! ```

mod admission;
mod budget;
mod connection_manager;
pub mod controllers;
pub mod datapath;
mod events;
pub mod fuzz;
mod losses;
mod session;
mod socket_file;
pub mod sockets;
pub mod target;
mod target_status;
pub mod tls;
pub mod wire;

pub use connection_manager::Role;
pub use controllers::Controllers;
pub use datapath::{Datapath, Subscription, events};
pub use socket_file::SocketFile;
pub use sockets::{OpenSocket, Sockets};
pub use target::{Address, Target, TargetError};
pub use target_status::Status;
pub use tls::{Tls, TlsError};
pub use wire::Version;
