//! Building blocks of integration tests: labs of network namespaces, hosts in them, and traffic that detects
//! a single lost or reordered packet. Only tests import this crate.
//!
//! ```text
//!   Lab ─┬─ hub namespace "tv-<pid>-<n>-hub": the system under test and its devices
//!        ├─ Host h1: namespace, eth0 ──veth── "h1" in the hub
//!        └─ Host h2: namespace, eth0 ──veth── "h2" in the hub
//!   UdpFlow h1 -> h2: sequence numbers at a rate; FlowReport: lost, overtaken, doubled, longest gap
//! ```
//!
//! A lab removes its namespaces when it is dropped, also after a panic. Namespaces that a killed process left are
//! removed by the next lab.
//!
//! ```no_run
//! let lab = testbed::Lab::new()?;
//! let (a, b) = (lab.host("a", "10.0.0.1/24")?, lab.host("b", "10.0.0.2/24")?);
//! lab.hub().run(["ip", "link", "add", "br0", "type", "bridge"])?;
//! assert!(a.ping("10.0.0.2", 3).is_err(), "nothing joins them yet");
//! # drop(b);
//! # Ok::<(), testbed::LabError>(())
//! ```

mod error;
pub mod golden;
mod host;
mod iperf;
mod lab;
mod mutate;
mod namespace;
mod ovsdb;
pub mod packet_cases;
pub mod page;
mod ping;
mod prefixes;
mod process;
mod raw;
mod require;
mod udp;
mod wait;

pub use error::LabError;
pub use host::Host;
pub use iperf::{Iperf, iperf_tcp};
pub use lab::Lab;
pub use mutate::{mutated, seed};
pub use namespace::Namespace;
pub use ovsdb::OvsdbServer;
pub use ping::PingReport;
pub use prefixes::real_prefixes;
pub use process::Process;
pub use raw::{RawReceiver, RawSender, StackWatch};
pub use require::{SKIP_RECORD, have_command, privileged, skip};
pub use udp::{FlowReport, UdpFlow, UdpReceiver};
pub use wait::{eventually, wait_until};
