//! Client for the original `ovsdb-server` with the Open_vSwitch schema (RFC 7047 and the extensions of the server).
//!
//! ```text
//!   ovsdb-server ── rpc ── session ── replica ── desired ──> Desired   (desired configuration after each transaction)
//!        ^                    |
//!        └─ one transaction ──┴── status <── SwitchStatus           (resulting status; only differences are written)
//! ```
//!
//! [`client::run`] maintains the connection. The client reconnects with increasing pauses, requests the lock that
//! `ovs-vswitchd` uses, monitors the tables and publishes a [`Desired`] after every transaction. To monitor the tables,
//! the client uses the first of the methods `monitor_cond_since`, `monitor_cond` and `monitor` that the server
//! supports. The user of the crate returns a [`SwitchStatus`] with the resulting status, and the client writes only
//! values that differ from the database. This crate only transfers values. The user of the crate applies the
//! configuration.
//!
//! [`rpc`] implements JSON-RPC 1.0 over streams and does not depend on OVSDB. `ovs-appctl` uses the same protocol.
//!
//! ```
//! use ovsdb::{Target, rpc};
//!
//! let target: Target = "unix:/run/openvswitch/db.sock".parse()?;
//! assert_eq!(target.to_string(), "unix:/run/openvswitch/db.sock");
//!
//! let mut framer = rpc::Framer::new(1 << 20);
//! framer.push(br#"{"method":"echo","params":[],"#);
//! assert!(framer.next_text()?.is_none(), "half a message");
//! framer.push(br#""id":"echo"}"#);
//! assert!(framer.next_text()?.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client;
mod datum;
mod desired;
mod replica;
pub mod rpc;
mod schema;
mod session;
mod status;

pub use client::{Client, Options, Standing};
pub use datum::{Atom, Datum, DatumError, Uuid};
pub use desired::{
    Bridge, Controller, Desired, FailMode, FlowTable, Interface, Mode, Policing, Port, Ssl, VlanMode,
};
pub use model::{Target, TargetError};
pub use replica::{Replica, UpdateError};
pub use schema::{Schema, SchemaError};
pub use session::{Event, Session, SessionError};
pub use status::{BridgeStatus, ControllerStatus, InterfaceStatus, SwitchStatus};
