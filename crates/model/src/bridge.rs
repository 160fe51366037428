//! Bridges: their settings, members and static entries.

use std::collections::BTreeMap;

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
    /// Whether known unicast between kernel devices is answered in the driver hook. A bridge with `openflow` leaves all to the workers.
    pub hook: bool,
    /// Packets go by OpenFlow's rules; this bridge is what their `NORMAL` means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openflow: Option<OpenFlow>,
}

/// How a bridge is led by OpenFlow controllers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OpenFlow {
    /// Where they are, as `ovs-vsctl set-controller` has it: `tcp:10.0.0.1:6653`, `ptcp:6654:127.0.0.1`, `unix:PATH`, `punix:PATH`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// What becomes of packets while none of them is there.
    pub fail_mode: FailMode,
    /// Its number for controllers; `None`: made of its name.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "datapath_id")]
    pub datapath_id: Option<u64>,
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
    /// Whether it is kept apart from the other protected members.
    pub protected: bool,
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
            protected: false,
            learning: true,
            flood: true,
            mac_limit: None,
            storm: Storm::default(),
            number: None,
        }
    }
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
        map.serialize_entry("protected", &self.protected)?;
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
