//! The complete configuration as one plain value, and the sections other than ports, bridges and routers.
//!
//! A `Config` is always complete: a field that the text omits has its default value. A `Config` is serialized in the
//! syntax of the configuration file (TOML or JSON, see docs/config.md), and deserialized only through the checks of
//! [`mod@crate::load`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::{
    Bridge, BridgeName, Filter, FilterName, Member, Port, PortName, Router, RouterName, RouterPort, Scope,
    SteeringName, SteeringPolicy, Target,
};

/// The complete configuration of a Trivium daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Config {
    /// Settings of the daemon process: sockets, log and state directory.
    pub daemon: Daemon,
    /// Settings of the worker threads.
    pub engine: Engine,
    /// Settings of the frame memory.
    pub memory: Memory,
    /// Settings of the OVSDB client.
    #[serde(skip_serializing_if = "Ovsdb::is_default")]
    pub ovsdb: Ovsdb,
    /// Filters by name.
    #[serde(rename = "filter", skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<FilterName, Filter>,
    /// Steering policies by name.
    #[serde(rename = "steering", skip_serializing_if = "BTreeMap::is_empty")]
    pub steering: BTreeMap<SteeringName, SteeringPolicy>,
    /// Ports by name.
    #[serde(rename = "port")]
    pub ports: BTreeMap<PortName, Port>,
    /// Bridges by name, with their members and static entries.
    #[serde(rename = "bridge")]
    pub bridges: BTreeMap<BridgeName, Bridge>,
    /// Virtual routers by name, with their interfaces.
    #[serde(rename = "router", skip_serializing_if = "BTreeMap::is_empty")]
    pub routers: BTreeMap<RouterName, Router>,
}

/// Settings of the daemon process: sockets, log and state directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Daemon {
    /// Path of the API's Unix socket.
    pub api: PathBuf,
    /// Group whose members may use the API's Unix socket. Ignored if the group does not exist.
    pub group: String,
    /// Access scope of the members of `group`.
    pub group_scope: Scope,
    /// Directories with the files to which API clients may refer, such as block lists.
    pub files: Vec<PathBuf>,
    /// Settings of the API over TCP, which always requires TLS and a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Directory for API objects that persist across restarts, and for saved OpenFlow flow entries.
    pub state_dir: PathBuf,
    /// Whether bridges start with the OpenFlow flow entries of the previous daemon, even if that daemon was killed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restore: bool,
    /// Path of the Unix socket for `ovs-appctl`. `None`: no socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unixctl: Option<PathBuf>,
    /// Path of the PID file for scripts and `ovs-appctl`, which exists while the process runs. `None`: no PID
    /// file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidfile: Option<PathBuf>,
    /// Path of the log file, in Open vSwitch's format. `None`: no log file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<PathBuf>,
    /// Log levels, each in the syntax of `ovs-appctl vlog/set`. Later entries override earlier ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_levels: Vec<String>,
}

/// Settings of the API over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tcp {
    /// IP address and TCP port on which the API listens.
    pub listen: SocketAddr,
    /// Path of the PEM file with the certificate chain.
    pub cert: PathBuf,
    /// Path of the PEM file with the private key of the certificate.
    pub key: PathBuf,
    /// Path of a file whose first line is a bearer token with the scope `configure`. The log calls this token
    /// `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Additional bearer tokens, by the names that the log uses for them.
    #[serde(rename = "token", skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, Token>,
}

/// A bearer token of the API over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Token {
    /// Path of the file whose first line is the token.
    pub file: PathBuf,
    /// Access scope of clients that present the token.
    pub scope: Scope,
}

/// Settings of the workers: number, cores, and behaviour when no packets arrive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Engine {
    /// Indexes of the CPU cores that run workers, one worker on each core, in the order of the
    /// worker numbers. Empty: one worker on the last core.
    pub workers: Vec<u16>,
    /// Behaviour of a worker when no packets arrive.
    pub mode: EngineMode,
    /// Microseconds that an adaptive worker polls without receiving packets before it sleeps.
    pub spin_us: u32,
}

/// Behaviour of a worker when no packets arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineMode {
    /// The worker polls under load, and sleeps when idle.
    Adaptive,
    /// The worker always polls, and occupies its core completely.
    Busy,
}

/// Settings of the frame memory that AF_XDP ports share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Memory {
    /// Number of packet frames in the frame memory.
    pub frames: u32,
    /// Size of one frame in bytes, including headroom: 2048 or 4096.
    pub frame_size: u32,
    /// Whether the frame memory consists of huge pages.
    pub huge_pages: HugePages,
}

/// Whether the frame memory consists of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// The daemon uses huge pages if they are available. If not, it uses normal pages and logs a warning.
    Try,
    /// The daemon uses huge pages, and fails if there are not enough.
    Require,
    /// The frame memory consists of pages of the normal size.
    Off,
}

/// Settings of the OVSDB client, through which `ovs-vsctl` can configure the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ovsdb {
    /// OVSDB server whose database the daemon applies as configuration. `None`: the daemon connects to no OVSDB server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<Target>,
    /// Number of entries in each of the four AF_XDP rings of a port that was created through OVSDB. A power of two,
    /// 64..=32768.
    pub ring_size: u32,
}

impl Default for Ovsdb {
    fn default() -> Self {
        Ovsdb { database: None, ring_size: 2048 }
    }
}

impl Ovsdb {
    fn is_default(&self) -> bool {
        *self == Ovsdb::default()
    }
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon {
            api: PathBuf::from("/run/trivium/trivium.sock"),
            group: "trivium".to_owned(),
            group_scope: Scope::Configure,
            files: vec![PathBuf::from("/etc/trivium"), PathBuf::from("/var/lib/trivium")],
            tcp: None,
            state_dir: PathBuf::from("/var/lib/trivium"),
            restore: false,
            unixctl: None,
            pidfile: None,
            log_file: None,
            log_levels: Vec::new(),
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Engine { workers: Vec::new(), mode: EngineMode::Adaptive, spin_us: 50 }
    }
}

impl Engine {
    /// Returns the number of workers, which is at least one.
    pub fn worker_count(&self) -> usize {
        self.workers.len().max(1)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory { frames: 65_536, frame_size: 2048, huge_pages: HugePages::Try }
    }
}

impl Config {
    /// Returns a configuration with only the daemon's own settings, without filters, steering policies, ports, bridges
    /// and routers.
    pub fn settings(&self) -> Config {
        Config {
            daemon: self.daemon.clone(),
            engine: self.engine.clone(),
            memory: self.memory.clone(),
            ovsdb: self.ovsdb.clone(),
            ..Config::default()
        }
    }

    /// Returns the bridge of which a port is a member, and the settings of the membership. Returns `None` if the port
    /// is not a member of a bridge.
    pub fn bridge_of(&self, port: &str) -> Option<(&BridgeName, &Member)> {
        self.bridges.iter().find_map(|(name, bridge)| Some((name, bridge.ports.get(port)?)))
    }

    /// Returns the router of which a port is an interface, and the settings of the interface. Returns `None` if the
    /// port is not an interface of a router.
    pub fn router_of(&self, port: &str) -> Option<(&RouterName, &RouterPort)> {
        self.routers.iter().find_map(|(name, router)| Some((name, router.ports.get(port)?)))
    }

    /// Returns the configuration as a TOML text that includes default values. Loading the text
    /// results in an equal configuration.
    pub fn to_toml(&self) -> String {
        // A `Config` contains only strings, numbers, lists and tables, all of which TOML can represent.
        toml::to_string(self).unwrap_or_default()
    }
}
