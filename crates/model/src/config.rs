//! The whole configuration as one plain value, and the parts that are not ports, bridges or routers.
//!
//! A `Config` is always complete: every default is a value in it. It is serialized in the grammar of the file (TOML or
//! JSON, see docs/config.md) and read back only through the checks of [`mod@crate::load`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::load::{Format, load_on};
use crate::{
    Bridge, BridgeName, Filter, FilterName, Member, Port, PortName, Router, RouterName, RouterPort, Scope,
    Steer, SteerName, Target,
};

/// Everything that Trivium is told to be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Config {
    /// The process: its sockets and its state.
    pub daemon: Daemon,
    /// The workers.
    pub engine: Engine,
    /// The frame memory.
    pub memory: Memory,
    /// The OVSDB server that is followed.
    #[serde(skip_serializing_if = "Ovsdb::is_default")]
    pub ovsdb: Ovsdb,
    /// Filters by name.
    #[serde(rename = "filter", skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<FilterName, Filter>,
    /// Steerings by name.
    #[serde(rename = "steer", skip_serializing_if = "BTreeMap::is_empty")]
    pub steers: BTreeMap<SteerName, Steer>,
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

/// The process: where it listens and where it keeps state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Daemon {
    /// Path of the API's unix socket.
    pub api: PathBuf,
    /// Group that may use the unix socket; ignored where no such group exists.
    pub group: String,
    /// What the members of that group may do.
    pub group_scope: Scope,
    /// Directories in which files may lie that the API's clients name.
    pub files: Vec<PathBuf>,
    /// The API over TCP, only ever with TLS and a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Directory for objects that the API made and that shall survive a restart, and for OpenFlow rules.
    pub state_dir: PathBuf,
    /// Whether bridges begin with the OpenFlow rules that the last daemon had, also after a kill.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restore: bool,
    /// Path of the unix socket for `ovs-appctl`; `None`: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unixctl: Option<PathBuf>,
    /// File that tells the process while it runs, for scripts and `ovs-appctl`; `None`: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidfile: Option<PathBuf>,
    /// File that messages are appended to, in Open vSwitch's format; `None`: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<PathBuf>,
    /// What is logged where: specifications as `ovs-appctl vlog/set` takes them, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_levels: Vec<String>,
}

/// The API over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tcp {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// PEM file with the certificate chain.
    pub cert: PathBuf,
    /// PEM file with the certificate's private key.
    pub key: PathBuf,
    /// File whose first line is a bearer token with the scope `configure`, named `token` in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Further tokens by their names in the log.
    #[serde(rename = "token", skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, Token>,
}

/// A bearer token of the API over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Token {
    /// File whose first line is the token.
    pub file: PathBuf,
    /// What its holders may do.
    pub scope: Scope,
}

/// The workers: how many, where, and how they wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Engine {
    /// Cores that get one worker each, in the order of the workers' numbers; empty: one worker on the last core.
    pub workers: Vec<u16>,
    /// What a worker does when nothing arrives.
    pub mode: EngineMode,
    /// How long an adaptive worker polls without traffic before it sleeps, in microseconds.
    pub spin_us: u32,
}

/// What a worker does when nothing arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineMode {
    /// It polls under load and sleeps when idle.
    Adaptive,
    /// It polls always and takes its whole core.
    Busy,
}

/// The frame memory that AF_XDP ports share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Memory {
    /// Number of frames.
    pub frames: u32,
    /// Bytes of one frame, head room included: 2048 or 4096.
    pub frame_size: u32,
    /// Whether the memory lies in huge pages.
    pub huge_pages: HugePages,
}

/// Whether the frame memory lies in huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// In huge pages if there are any, else in normal ones with a warning.
    Try,
    /// In huge pages or not at all.
    Require,
    /// In normal pages.
    Off,
}

/// The OVSDB server whose tables are followed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ovsdb {
    /// Where it is; `None`: none is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<Target>,
    /// Entries of each of the four rings of a port that it asks for: a power of two, 64..=32768.
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
    /// Number of workers, at least one.
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
    /// What is the process's alone: no filters, steerings, ports, bridges or routers.
    pub fn settings(&self) -> Config {
        Config {
            daemon: self.daemon.clone(),
            engine: self.engine.clone(),
            memory: self.memory.clone(),
            ovsdb: self.ovsdb.clone(),
            ..Config::default()
        }
    }

    /// The bridge that this port belongs to, and how it belongs to it.
    pub fn bridge_of(&self, port: &str) -> Option<(&BridgeName, &Member)> {
        self.bridges.iter().find_map(|(name, bridge)| Some((name, bridge.ports.get(port)?)))
    }

    /// The router that this port is an interface of, and what it is there.
    pub fn router_of(&self, port: &str) -> Option<(&RouterName, &RouterPort)> {
        self.routers.iter().find_map(|(name, router)| Some((name, router.ports.get(port)?)))
    }

    /// The configuration as a file that loads to the same value, defaults written out.
    pub fn to_toml(&self) -> String {
        // Strings, numbers, lists and tables only: nothing in a Config is beyond TOML.
        toml::to_string(self).unwrap_or_default()
    }
}

/// Reads the file's grammar (as JSON, for example) with all its checks; the error lists every problem.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let tree = serde_json::Value::deserialize(from)?;
        let loaded = load_on(&tree.to_string(), "configuration", Format::Json, None);
        loaded.map(|loaded| loaded.config).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            D::Error::custom(lines.join("\n"))
        })
    }
}
