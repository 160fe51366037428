//! Configuration of bridges: settings, members and static MAC table entries.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod load;
pub(crate) mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use packet::{MacAddr, VlanId};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{PortName, VlanMode, VlanSet};

/// A VLAN-aware learning bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bridge {
    /// Settings that apply to all members of the bridge.
    #[serde(flatten)]
    pub settings: BridgeSettings,
    /// Members of the bridge, by port name.
    #[serde(rename = "port")]
    pub ports: BTreeMap<PortName, Member>,
    /// Port of each static MAC table entry. The port does not change when a frame from the entry's address arrives on
    /// another port.
    #[serde(rename = "static", serialize_with = "static_entries")]
    pub statics: BTreeMap<StaticKey, PortName>,
}

/// Settings that apply to all members of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BridgeSettings {
    /// Ageing time of learned MAC table entries in seconds, 10..=1000000 (IEEE 802.1Q table 8-11).
    pub ageing: u32,
    /// Maximum number of entries in the MAC table of the bridge.
    pub mac_limit: u32,
    /// Whether IGMP and MLD snooping is enabled. With snooping, multicast is forwarded only to ports with
    /// listeners.
    pub snooping: bool,
    /// Whether the hook (XDP program) forwards unicast frames to addresses in the MAC table between kernel devices. On
    /// a bridge with `openflow`, the hook forwards packets according to the most used megaflows instead.
    pub hook: bool,
    /// OpenFlow settings. If present, OpenFlow flow entries forward the packets of the bridge, and the learning bridge
    /// executes their `NORMAL` action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openflow: Option<OpenFlow>,
}

/// OpenFlow settings of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OpenFlow {
    /// Controllers of the bridge, with the settings of each connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
    /// Handling of packets while no controller is connected.
    pub fail_mode: FailMode,
    /// OpenFlow datapath ID of the bridge. `None`: the daemon derives the ID from the name of the bridge.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "datapath_id")]
    pub datapath_id: Option<u64>,
    /// OpenFlow versions that the bridge offers when it negotiates with a controller. `None`: all versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<BTreeSet<OpenFlowVersion>>,
    /// Number of VLAN tags of a packet that flow entries can match, 1 or 2. `None`: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_limit: Option<u8>,
    /// Key and certificate files for `ssl:` and `pssl:` connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<OpenFlowTls>,
    /// Settings of the flow tables that differ from the defaults, by table number.
    #[serde(rename = "table", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<FlowTableId, FlowTable>,
}

/// A controller to connect to, or an address to listen on for controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// Connection method with address, in the syntax of `ovs-vsctl set-controller`: `tcp:10.0.0.1:6653`,
    /// `ssl:10.0.0.1`, `ptcp:6654:127.0.0.1`, `pssl:`, `unix:PATH`, `punix:PATH`.
    pub target: String,
    /// Milliseconds without a message from the controller after which the bridge sends an OpenFlow echo request. 0: the
    /// bridge sends no echo requests. `None`: 5,000.
    pub inactivity_probe_ms: Option<u32>,
    /// Longest pause between attempts to connect, in milliseconds. `None`: 8,000.
    pub max_backoff_ms: Option<u32>,
    /// Maximum rate of packet-in messages to the controller, in packets per second. `None`: unlimited.
    pub rate_limit: Option<u32>,
    /// Maximum burst of packet-in messages, in packets. `None`: a quarter of `rate_limit`.
    pub burst_limit: Option<u32>,
    /// Whether the controller receives asynchronous messages (packet-in, flow-removed, port-status and
    /// others).
    pub asynchronous: bool,
    /// Whether a `ptcp:` listener may use an address that other machines can reach.
    pub allow_remote: bool,
    /// Local users whose processes may connect to a `ptcp:` listener, besides root and the daemon's own user. Each user
    /// is a name or a number; `*` represents all users.
    pub passive_users: Vec<String>,
}

impl Controller {
    /// Entry of `passive_users` that represents all users.
    pub const ALL_USERS: &str = "*";

    /// Returns a controller with the connection method `target` and default settings.
    pub fn at(target: &str) -> Controller {
        Controller {
            target: target.to_owned(),
            inactivity_probe_ms: None,
            max_backoff_ms: None,
            rate_limit: None,
            burst_limit: None,
            asynchronous: true,
            allow_remote: false,
            passive_users: Vec::new(),
        }
    }
}

/// A version of the OpenFlow protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum OpenFlowVersion {
    /// OpenFlow 1.0.
    #[serde(rename = "OpenFlow10")]
    V10,
    /// OpenFlow 1.1.
    #[serde(rename = "OpenFlow11")]
    V11,
    /// OpenFlow 1.2.
    #[serde(rename = "OpenFlow12")]
    V12,
    /// OpenFlow 1.3.
    #[serde(rename = "OpenFlow13")]
    V13,
    /// OpenFlow 1.4.
    #[serde(rename = "OpenFlow14")]
    V14,
    /// OpenFlow 1.5.
    #[serde(rename = "OpenFlow15")]
    V15,
}

impl OpenFlowVersion {
    /// Names of the OpenFlow versions, as `ovs-ofctl -O` accepts them.
    pub const NAMES: [&str; 6] =
        ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
    /// All OpenFlow versions, in the order of [`OpenFlowVersion::NAMES`].
    pub const ALL: [OpenFlowVersion; 6] = [
        OpenFlowVersion::V10,
        OpenFlowVersion::V11,
        OpenFlowVersion::V12,
        OpenFlowVersion::V13,
        OpenFlowVersion::V14,
        OpenFlowVersion::V15,
    ];
}

/// PEM files for TLS connections with controllers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OpenFlowTls {
    /// Path of the file with the private key of the bridge.
    pub key: PathBuf,
    /// Path of the file with the certificate for the private key.
    pub certificate: PathBuf,
    /// Path of the CA certificate with which the certificates of controllers are verified.
    pub ca: PathBuf,
}

/// Identifier of an OpenFlow flow table, 0..=254.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowTableId(pub u8);

impl Serialize for FlowTableId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// Settings of an OpenFlow flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FlowTable {
    /// Name of the OpenFlow flow table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Maximum number of flow entries in the flow table. `None`: one million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Handling of a new flow entry when the table is full.
    pub when_full: WhenFull,
    /// Subfields that group the flow entries for eviction, such as `NXM_OF_IN_PORT[]`. Entries with equal
    /// values in these subfields form a group, and eviction starts with the largest group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// IP address fields for which lookups in the flow table use prefix tracking (a trie of the
    /// prefixes in the flow entries). Prefix tracking lets a megaflow match fewer address bits and
    /// therefore more packets. `None`: source and destination addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<BTreeSet<PrefixField>>,
}

/// IP address field for which a flow table can use prefix tracking. The field covers IPv4, IPv6 and ARP addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum PrefixField {
    /// Source addresses of IPv4, IPv6 and ARP packets.
    #[serde(rename = "ip_src")]
    Source,
    /// Destination addresses of IPv4, IPv6 and ARP packets.
    #[serde(rename = "ip_dst")]
    Destination,
}

impl PrefixField {
    /// All address fields for which a flow table can use prefix tracking.
    pub const ALL: [PrefixField; 2] = [PrefixField::Source, PrefixField::Destination];
    /// Names of the address fields, in the order of [`PrefixField::ALL`].
    pub const NAMES: [&str; 2] = ["ip_src", "ip_dst"];
}

/// Handling of a new flow entry when the flow table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The bridge refuses the new flow entry.
    #[default]
    Refuse,
    /// The bridge evicts the least important flow entry that may be evicted.
    Evict,
}

impl Serialize for Controller {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if *self == Controller::at(&self.target) {
            return to.serialize_str(&self.target);
        }
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("target", &self.target)?;
        for (key, number) in [
            ("inactivity_probe_ms", self.inactivity_probe_ms),
            ("max_backoff_ms", self.max_backoff_ms),
            ("rate_limit", self.rate_limit),
            ("burst_limit", self.burst_limit),
        ] {
            if let Some(number) = number {
                map.serialize_entry(key, &number)?;
            }
        }
        map.serialize_entry("asynchronous", &self.asynchronous)?;
        if self.allow_remote {
            map.serialize_entry("allow_remote", &true)?;
        }
        if !self.passive_users.is_empty() {
            map.serialize_entry("passive_users", &self.passive_users)?;
        }
        map.end()
    }
}

/// Behaviour of a bridge while no controller is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// The bridge forwards packets like a learning bridge: the flow table contains one flow entry of priority 0 with
    /// the action `NORMAL`.
    #[default]
    Standalone,
    /// The bridge continues to forward packets according to the flow entries that it already has. Packets that match no
    /// entry are dropped.
    Secure,
}

fn datapath_id<S: Serializer>(id: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format!("{:016x}", id.unwrap_or_default()))
}

impl Default for BridgeSettings {
    fn default() -> Self {
        BridgeSettings { ageing: 300, mac_limit: 16_384, snooping: true, hook: true, openflow: None }
    }
}

/// Settings of a port as a member of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// VLANs that the member carries, and the handling of untagged frames.
    pub vlans: VlanMode,
    /// Whether frames that arrive with the tag of the native VLAN are dropped.
    pub native_untagged_only: bool,
    /// Whether the member is protected: it exchanges no frames with the other protected members of the bridge.
    pub protected: bool,
    /// How the bridge detects multicast routers on the member port. `None`: [`MulticastRouter::Auto`], or
    /// [`MulticastRouter::Off`] for a protected member.
    pub multicast_router: Option<MulticastRouter>,
    /// Whether the bridge learns the source MAC addresses of frames that arrive on this member.
    pub learning: bool,
    /// Whether frames to MAC addresses that the bridge has not learned are flooded to this member.
    pub flood: bool,
    /// Maximum number of MAC addresses that are learned on this member. `None`: only the limit of the bridge's MAC
    /// table applies.
    pub mac_limit: Option<u32>,
    /// Storm control limits for frames that arrive on the member.
    pub storm: Storm,
    /// OpenFlow port number of the member, 1..=65279. `None`: the lowest free number.
    pub number: Option<u16>,
}

impl Default for Member {
    fn default() -> Self {
        Member {
            vlans: VlanMode::default(),
            native_untagged_only: false,
            protected: false,
            multicast_router: None,
            learning: true,
            flood: true,
            mac_limit: None,
            storm: Storm::default(),
            number: None,
        }
    }
}

/// Whether a bridge with snooping treats a member as a multicast router port (a port to which it forwards all
/// multicast). The values correspond to the option `multicast_router` of a Linux bridge port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MulticastRouter {
    /// The member is a multicast router port while IGMP or MLD queries or PIM hellos arrive at it.
    Auto,
    /// The member is never a multicast router port. Queries and PIM hellos that arrive on the member do not change the
    /// multicast groups.
    Off,
}

/// Storm control limits for frames that arrive on a member. Each limit is in packets per second. `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Storm {
    /// Rate limit for broadcast frames, which are frames to ff:ff:ff:ff:ff:ff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<u32>,
    /// Rate limit for frames to multicast addresses other than the broadcast address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<u32>,
    /// Limit for frames to unicast addresses that are not in the MAC table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
}

/// Key of a static MAC table entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StaticKey {
    /// VLAN of the static MAC table entry.
    pub vlan: VlanId,
    /// MAC address of the static MAC table entry.
    pub mac: MacAddr,
}

impl std::fmt::Display for StaticKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.mac, self.vlan)
    }
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match &self.vlans {
            VlanMode::Access(vlan) => map.serialize_entry("access", &vlan.get())?,
            VlanMode::Trunk { allowed, native, native_tagged } => {
                map.serialize_entry::<_, VlanSet>("trunk", allowed)?;
                if let Some(native) = native {
                    map.serialize_entry("native", &native.get())?;
                    map.serialize_entry("native_tagged", native_tagged)?;
                }
            }
        }
        if self.native_untagged_only {
            map.serialize_entry("native_untagged_only", &true)?;
        }
        map.serialize_entry("protected", &self.protected)?;
        if let Some(role) = self.multicast_router {
            map.serialize_entry("multicast_router", &role)?;
        }
        map.serialize_entry("learning", &self.learning)?;
        map.serialize_entry("flood", &self.flood)?;
        if let Some(limit) = self.mac_limit {
            map.serialize_entry("mac_limit", &limit)?;
        }
        if let Some(number) = self.number {
            map.serialize_entry("number", &number)?;
        }
        if self.storm != Storm::default() {
            map.serialize_entry("storm", &self.storm)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct StaticEntry<'a> {
    #[serde(with = "crate::text::mac")]
    mac: MacAddr,
    #[serde(with = "crate::text::vlan")]
    vlan: VlanId,
    port: &'a PortName,
}

fn static_entries<S: Serializer>(statics: &BTreeMap<StaticKey, PortName>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(statics.iter().map(|(key, port)| StaticEntry { mac: key.mac, vlan: key.vlan, port }))
}
