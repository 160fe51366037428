//! The daemon's implementation of Open vSwitch's interfaces. Clients use the daemon through these interfaces like
//! `ovs-vswitchd`.
//! ```text
//!   ovs-vsctl ──> ovsdb-server <──> database ──> control::Store (as one owner of configuration)
//!   ovs-appctl ──> unixctl ───────────────────> control::Store, control::Plane
//!   controllers, ovs-ofctl <──> controllers ──> dataplane::OfDatapath of each bridge
//! ```
//!
//! The crate `ovsdb` is the client of the OVSDB server, and the crate `openflow` implements OpenFlow messages and
//! sessions. This crate connects both with the configuration and the data plane.
//!
//! ```
//! // Each part of the daemon adds its own commands to the registry of `ovs-appctl`.
//! let mut commands = ovs::unixctl::Commands::default();
//! commands.add("fdb/show", "bridge", 1..=1, |arguments| Ok(arguments.concat()));
//! assert_eq!(commands.run("fdb/show", &["br0".to_owned()]), Ok("br0".to_owned()));
//! assert!(commands.run("fdb/show", &[]).is_err());
//! ```

pub mod controllers;
pub mod database;
pub mod unixctl;
