//! Configuration and state as plain values, shared by the configuration file, the API and the command line.
//!
//! This crate does not access the machine: no device is opened, and no thread is started. The crate provides:
//!
//! - loading: one text becomes one checked [`Config`], or the list of all its problems;
//! - comparison: two configurations become a [`ConfigDiff`];
//! - ownership: the objects of the configuration file, of the API and of other sources become one configuration, with
//!   an [`Owner`] for each object.
//!
//! ```text
//!  TOML text / JSON --load--> Config --merge with the other owners' layers--> Config + owners
//!                       |                                                        |
//!                       +--> every Problem (file:line:col, object,               +--diff with the running one--> ConfigDiff
//!                            cause; fix) and nothing else                             (changes in order)
//! ```
//!
//! ```
//! let text = r#"
//!     [port.web1]
//!     kind = "veth"
//!     peer = { name = "eth0", namespace = "web1", address = ["10.0.0.1/24"] }
//!
//!     [bridge.br0.port.web1]
//!     access = 10
//! "#;
//! let config = model::load(text, "trivium.toml").expect("no problems");
//! assert!(config.bridge_of("web1").is_some());
//!
//! let problems = model::load(&text.replace("10\n", "4095\n"), "trivium.toml").unwrap_err();
//! assert!(problems[0].to_string().starts_with("trivium.toml:7:14: bridge.br0.port.web1.access: 4095 is outside"));
//! ```

mod bridge;
mod cause;
mod check;
mod config;
mod connection_state;
mod diff;
mod diff_text;
mod explain;
mod files;
mod filter;
mod finding;
mod flow_state;
mod hook;
mod hook_state;
mod layers;
mod load;
mod loss_reason;
mod mtu;
mod name;
mod owner;
mod port;
mod problem;
mod router;
mod scope;
mod spelling;
mod steering;
mod stored;
pub mod table;
mod target;
mod text;
mod timestamp;
mod vlan;
mod vlog;
mod worker_state;

pub use bridge::state::*;
pub use bridge::{
    Bridge, BridgeSettings, Controller, FailMode, FlowTable, FlowTableId, Member, MulticastRouter, OpenFlow,
    OpenFlowTls, OpenFlowVersion, PrefixField, StaticKey, Storm, WhenFull,
};
pub use cause::Cause;
pub use check::{LEAST_FILL, Machine, validate};
pub use config::{Config, Daemon, Engine, EngineMode, HugePages, Memory, Ovsdb, Tcp, Token};
pub use connection_state::{ConnectionQuery, ConnectionState, ConnectionTuple, IcmpQueryState};
pub use diff::change::{ConfigChange, ConfigDiff, FieldChange, How};
pub use diff::diff;
pub use diff_text::{PlanLine, PlanReport};
pub use explain::{CapturedFrame, Explanation, Output, PacketFilter, Step, Tier, TraceEvent};
pub use files::{FileAccess, FileUse, MANAGEMENT_SOCKET, SNOOP_SOCKET, unix_socket};
pub use filter::state::*;
pub use filter::{
    CookieMode, CookieScheme, Filter, FilterAction, FilterMatch, FilterRule, RateLimit, Sampling, SynCookie,
    Unreadable,
};
pub use finding::{DoctorFinding, Finding};
pub use flow_state::*;
pub use hook::HookPolicy;
pub use hook_state::{HookMap, HookProgram, HookRuns, HookState, OBJECT_LIMIT, ProgramChange, UserProgram};
pub use layers::{Change, Fragment, Layers, Merged, ObjectKey, Refusal};
pub use load::{
    Format, HANDED_OVER_LIMIT_BYTES, LIMIT_BYTES, Loaded, load, load_change, load_handed_over, load_on,
};
pub use loss_reason::LossReason;
pub use mtu::Mtu;
pub use name::{
    BridgeName, DeviceName, FilterName, NameError, Namespace, PortName, RouterName, RuleName, SteeringName,
};
pub use owner::Owner;
pub use packet::net::{
    Family, FiveTuple, FragmentState, InterfaceAddress, InterfaceAddressError, Pattern, PatternBase, Prefix,
    PrefixError, Protocol, RateUnit, SourceBits, Span, TcpFlags, VlanMatch,
};
pub use port::Port;
pub use port::diff::is_recreated;
pub use port::kind::{AfXdp, Patch, Pcap, PcapTiming, Peer, PortKind, Ring, Tap, Veth};
pub use port::state::*;
pub use port::xdp_options::{Checksums, Queues, Routing, WhenDown, XdpMode, XdpOptions, ZeroCopy};
pub use problem::{Problem, ProblemReport, Severity};
pub use router::route_state::*;
pub use router::state::*;
pub use router::{Miss, OuterTag, PuntLimits, QinQ, Router, RouterPort, RouterSettings, Rpf};
pub use scope::Scope;
pub use steering::{
    SteeringDone, SteeringEntry, SteeringFlow, SteeringPolicy, SteeringRequest, SteeringSent, SteeringShare,
    SteeringState, SteeringTable, SteeringTarget, SteeringTargetError,
};
pub use stored::StoredError;
pub use target::{Target, TargetError};
pub use timestamp::{Timestamp, TimestampError};
pub use vlan::{UNTAGGED, VlanMode, VlanSet};
pub use vlog::{VLOG_MODULES, VlogDestination, VlogLevel, VlogSpec, vlog_module};
pub use worker_state::*;
