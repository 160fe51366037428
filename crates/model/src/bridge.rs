//! Bridges: their settings, members and static entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use packet::{MacAddr, VlanId};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{PortName, VlanMode, VlanSet};

/// A VLAN-aware learning bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bridge {
    /// What holds for all its members.
    #[serde(flatten)]
    pub settings: BridgeSettings,
    /// Its members by port.
    #[serde(rename = "port")]
    pub ports: BTreeMap<PortName, Member>,
    /// Addresses that stay at a port whatever is learnt.
    #[serde(rename = "static", serialize_with = "static_entries")]
    pub statics: BTreeMap<StaticKey, PortName>,
}

/// What holds for all members of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BridgeSettings {
    /// Seconds after which a silent address is forgotten, 10..=1000000 (IEEE 802.1Q table 8-11).
    pub ageing: u32,
    /// Addresses that its table holds at most.
    pub mac_limit: u32,
    /// Whether IGMP and MLD are read, so that multicast goes only where somebody listens.
    pub snooping: bool,
    /// Whether known unicast between kernel devices, or of a bridge with `openflow` its hot flows, are answered in the driver hook.
    pub hook: bool,
    /// Packets go by OpenFlow's rules; this bridge is what their `NORMAL` means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openflow: Option<OpenFlow>,
}

/// How a bridge is led by OpenFlow controllers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OpenFlow {
    /// Where they are, and how they are spoken to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
    /// What becomes of packets while none of them is there.
    pub fail_mode: FailMode,
    /// Its number for controllers; `None`: made of its name.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "datapath_id")]
    pub datapath_id: Option<u64>,
    /// Versions that may be spoken with it; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<BTreeSet<OpenFlowVersion>>,
    /// VLAN tags of a packet that rules see at most, 1 or 2; `None`: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_limit: Option<u8>,
    /// What `ssl:` and `pssl:` are spoken with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<OpenFlowTls>,
    /// Tables that are not as tables are, by number.
    #[serde(rename = "table", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<FlowTableId, FlowTable>,
}

/// A controller, or a place where some may come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// As `ovs-vsctl set-controller` has it: `tcp:10.0.0.1:6653`, `ssl:10.0.0.1`, `ptcp:6654:127.0.0.1`, `pssl:`, `unix:PATH`, `punix:PATH`.
    pub target: String,
    /// Milliseconds of silence after which it is asked whether it is there; 0: never; `None`: 5,000.
    pub inactivity_probe_ms: Option<u32>,
    /// Longest pause between attempts to connect, in milliseconds; `None`: 8,000.
    pub max_backoff_ms: Option<u32>,
    /// Packets a second that it is sent at most; `None`: all.
    pub rate_limit: Option<u32>,
    /// Packets that it may be sent at once within that; `None`: a quarter of a second's.
    pub burst_limit: Option<u32>,
    /// Whether it is sent messages that it has not asked for.
    pub asynchronous: bool,
    /// Whether a `ptcp:` listener may be at an address that other machines can reach.
    pub allow_remote: bool,
    /// Users of this machine (names or numbers; `*`: all) whose processes may connect to a `ptcp:` listener, besides root and the daemon's own.
    pub passive_users: Vec<String>,
}

impl Controller {
    /// The word in `passive_users` for all users.
    pub const ALL_USERS: &str = "*";

    /// One with nothing but an address.
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

/// A version of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum OpenFlowVersion {
    /// 1.0
    #[serde(rename = "OpenFlow10")]
    V10,
    /// 1.1
    #[serde(rename = "OpenFlow11")]
    V11,
    /// 1.2
    #[serde(rename = "OpenFlow12")]
    V12,
    /// 1.3
    #[serde(rename = "OpenFlow13")]
    V13,
    /// 1.4
    #[serde(rename = "OpenFlow14")]
    V14,
    /// 1.5
    #[serde(rename = "OpenFlow15")]
    V15,
}

impl OpenFlowVersion {
    /// Their names, as `ovs-ofctl -O` has them.
    pub const NAMES: [&str; 6] =
        ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
    /// All, as they are named there.
    pub const ALL: [OpenFlowVersion; 6] = [
        OpenFlowVersion::V10,
        OpenFlowVersion::V11,
        OpenFlowVersion::V12,
        OpenFlowVersion::V13,
        OpenFlowVersion::V14,
        OpenFlowVersion::V15,
    ];
}

/// Files in PEM for TLS with controllers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OpenFlowTls {
    /// The private key.
    pub key: PathBuf,
    /// Its certificate.
    pub certificate: PathBuf,
    /// The certificate of the CA that controllers' certificates come from.
    pub ca: PathBuf,
}

/// A table's number, 0..=254.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowTableId(pub u8);

impl Serialize for FlowTableId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// A table of rules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FlowTable {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Rules that it holds at most; `None`: a million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What becomes of a rule that is one too many.
    pub when_full: WhenFull,
    /// Parts of fields, as `NXM_OF_IN_PORT[]`: of the rules with the same values in them, those that are most make room first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whose prefixes are tracked; `None`: those of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<BTreeSet<PrefixField>>,
}

/// Addresses whose prefixes a table tracks: of IPv4, IPv6 and ARP alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum PrefixField {
    /// Of sources.
    #[serde(rename = "ip_src")]
    Source,
    /// Of destinations.
    #[serde(rename = "ip_dst")]
    Destination,
}

impl PrefixField {
    /// Both.
    pub const ALL: [PrefixField; 2] = [PrefixField::Source, PrefixField::Destination];
    /// Their names.
    pub const NAMES: [&str; 2] = ["ip_src", "ip_dst"];
}

/// What becomes of a rule that is one too many for its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// It is refused.
    #[default]
    Refuse,
    /// The least important one that may go makes room.
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

/// What a bridge does while no controller is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// It is a learning bridge: one rule of priority 0 says `NORMAL`.
    #[default]
    Standalone,
    /// Its rules are all there is; without any, packets are dropped.
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

/// How a port belongs to a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its VLANs.
    pub vlans: VlanMode,
    /// Whether frames that come with the native VLAN's tag are dropped.
    pub native_untagged_only: bool,
    /// Whether it is kept apart from the other protected members.
    pub protected: bool,
    /// Whether multicast routers may be here; `None`: [`MulticastRouter::Auto`], or [`MulticastRouter::Off`] for a protected member.
    pub multicast_router: Option<MulticastRouter>,
    /// Whether source addresses are learnt here.
    pub learning: bool,
    /// Whether frames for unknown addresses leave here.
    pub flood: bool,
    /// Addresses that may be learnt here; `None`: as many as the bridge holds.
    pub mac_limit: Option<u32>,
    /// Limits for what it may flood.
    pub storm: Storm,
    /// Its number for OpenFlow, 1..=65279; `None`: the lowest that is free.
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

/// Whether a bridge with snooping takes a member for one with a multicast router, as Linux's bridge has it by the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MulticastRouter {
    /// While queries or PIM hellos come in there.
    Auto,
    /// Never: queries and PIM hellos that come in there have no effect on groups.
    Off,
}

/// Packets per second that a member may send of each kind; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Storm {
    /// To ff:ff:ff:ff:ff:ff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<u32>,
    /// To other group addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<u32>,
    /// To unicast addresses that the table does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
}

/// What a static entry is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StaticKey {
    /// Its VLAN.
    pub vlan: VlanId,
    /// Its address.
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
