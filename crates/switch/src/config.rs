//! The configuration of a bridge, as plain values.
//!
//! The values are not validated. [`crate::Bridge::new`] accepts any value of these types and does
//! not panic. Contradictions are resolved as documented at each field. If a port has several
//! entries, the last entry is used.

use packet::{BridgeId, MacAddr, PortId, VlanId};

/// The current time, read once for each burst of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Reading of a monotonic clock, in nanoseconds. All calls for one bridge use the same clock.
    pub ns: u64,
    /// The time `ns` in whole seconds, modulo 65,536. Ages of MAC table entries are computed from this value.
    pub secs: u16,
}

impl Now {
    /// Returns the time of a monotonic clock that reads `ns` nanoseconds.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the coarse clock wraps by definition")]
    pub const fn from_ns(ns: u64) -> Now {
        Now { ns, secs: (ns / 1_000_000_000) as u16 }
    }

    /// Returns the time of a monotonic clock that reads `secs` seconds. Tests and control threads
    /// use this function.
    pub const fn from_secs(secs: u64) -> Now {
        Now::from_ns(secs * 1_000_000_000)
    }
}

/// The configuration of a bridge and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Identifier of the bridge, shown by `explain`.
    pub id: BridgeId,
    /// Name of the bridge, as shown in messages and listings.
    pub name: String,
    /// Ageing time in seconds. The bridge removes a learned address if no frame arrives from the
    /// address for this time (IEEE 802.1Q clause 8.8.3: 10 to 1,000,000, by default 300).
    ///
    /// Ages are stored as 16-bit counts of seconds. Values above [`MAX_AGEING_SECS`] are therefore reduced to
    /// this maximum.
    pub ageing_secs: u32,
    /// Maximum number of addresses in the MAC table, static addresses included.
    pub mac_limit: u32,
    /// Whether the bridge snoops IGMP and MLD and forwards a multicast group only to its listeners.
    pub snooping: bool,
    /// Members of the bridge.
    pub ports: Vec<BridgePortConfig>,
    /// Static entries of the MAC table, which never age and never move to another port.
    pub statics: Vec<StaticMac>,
}

/// Maximum ageing time in seconds. Ages are 16-bit counts of seconds. The margin below 65,536 allows for scans of the
/// MAC table that run late.
pub const MAX_AGEING_SECS: u32 = 65_000;

impl Default for BridgeConfig {
    fn default() -> Self {
        BridgeConfig {
            id: BridgeId(0),
            name: String::new(),
            ageing_secs: 300,
            mac_limit: 16_384,
            snooping: false,
            ports: Vec::new(),
            statics: Vec::new(),
        }
    }
}

/// The configuration of one bridge member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePortConfig {
    /// Number of the member port.
    pub port: PortId,
    /// VLAN mode of the member: access, trunk or transparent.
    pub mode: VlanMode,
    /// Whether the bridge drops frames that arrive with a tag of the native VLAN.
    pub native_untagged_only: bool,
    /// Whether the member is protected. The bridge forwards no frames between protected members.
    pub protected: bool,
    /// Whether the bridge accepts multicast queries and PIM hellos that arrive on this port. `None` accepts
    /// them unless the port is protected.
    pub multicast_router: Option<bool>,
    /// Whether source addresses are learned on this port.
    pub learning: bool,
    /// Whether frames for unicast addresses that are not in the MAC table are flooded to this port. Frames for group
    /// addresses are flooded to the port independently of this setting.
    pub flood: bool,
    /// Maximum number of addresses learned on this port. `None` means that only the limit of the bridge
    /// applies.
    pub mac_limit: Option<u32>,
    /// Storm limits of the member.
    pub storm: StormLimits,
}

impl BridgePortConfig {
    /// Returns the configuration of a member with default settings: learning and flooding are enabled, and
    /// there are no limits.
    pub fn new(port: PortId, mode: VlanMode) -> Self {
        BridgePortConfig {
            port,
            mode,
            native_untagged_only: false,
            protected: false,
            multicast_router: None,
            learning: true,
            flood: true,
            mac_limit: None,
            storm: StormLimits::default(),
        }
    }
}

/// The VLAN mode of a member (IEEE 802.1Q clauses 6.9, 8.6.2 and 8.8.2). Only 802.1Q tags (0x8100) assign a frame to a
/// VLAN. A frame whose outer tag is an 802.1ad service tag (0x88a8) counts as untagged, as in any bridge for customer
/// VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// An access port: untagged and priority-tagged frames belong to this VLAN and are transmitted untagged.
    /// A frame with any VLAN tag is dropped, even if the tag names this VLAN (as in Open vSwitch).
    Access(VlanId),
    /// A trunk port, which carries the frames of several VLANs, distinguished by their tags.
    Trunk {
        /// VLANs that the port carries. The native VLAN is always included.
        allowed: VlanSet,
        /// VLAN of untagged and priority-tagged frames. The value is `None` if these frames are dropped.
        native: Option<VlanId>,
        /// Whether frames of the native VLAN are transmitted with a tag.
        native_tagged: bool,
    },
    /// A port that is not VLAN-aware. Tags pass unchanged, and addresses are learned in VLAN 0. A
    /// transparent port exchanges frames only with the other transparent ports of the bridge.
    Transparent,
}

/// Storm limits of a bridge member: the maximum number of flooded frames per second that the bridge accepts from the
/// member, for each class of frames. `None` means no limit, and `Some(0)` drops all frames of the class.
///
/// The limits are token buckets. Their burst is the number of frames that the limit allows in a tenth of a second, but
/// at least 32 frames (or one second's frames for limits below 32 frames per second). See [`StormLimits::burst`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// Limit for frames to ff:ff:ff:ff:ff:ff, in frames per second.
    pub broadcast: Option<u32>,
    /// Limit for frames to all other multicast addresses, with or without snooped listeners, in frames per second.
    pub multicast: Option<u32>,
    /// Limit for frames to unicast addresses that are not in the MAC table, in frames per second.
    pub unknown: Option<u32>,
}

impl StormLimits {
    /// Returns the burst size of a storm limit, in frames. `rate` is the limit in frames per second.
    pub const fn burst(rate: u32) -> u32 {
        let tenth = rate / 10;
        let floor = if rate < 32 { rate } else { 32 };
        if tenth > floor { tenth } else { floor }
    }
}

/// A static entry of the MAC table (IEEE 802.1Q clause 8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StaticMac {
    /// VLAN of the entry. The value is [`VlanId::NONE`] on transparent ports.
    pub vid: VlanId,
    /// Unicast address. Entries with group addresses are ignored.
    pub mac: MacAddr,
    /// Port on which the address can be reached. `None` means that frames to and from the address are dropped.
    pub port: Option<PortId>,
}

/// A set of VLANs, stored as a bitmap of 4,096 bits. A membership test reads one word.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// Returns an empty set.
    pub fn new() -> Self {
        VlanSet(Box::new([0; 64]))
    }

    /// Returns the set of all VLANs, 1 to 4094.
    pub fn all() -> Self {
        (1..=4094).filter_map(VlanId::new).collect()
    }

    /// Adds a VLAN to the set. [`VlanId::NONE`] is ignored.
    pub fn insert(&mut self, vlan: VlanId) {
        if !vlan.is_none() {
            self.0[vlan.index() / 64] |= 1 << (vlan.index() % 64);
        }
    }

    /// Returns whether the set contains the VLAN.
    #[inline]
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.contains_vid(vlan.get())
    }

    /// Returns whether the set contains the VLAN with this 12-bit identifier, as a tag holds it.
    #[inline]
    pub(crate) fn contains_vid(&self, vid: u16) -> bool {
        let vid = usize::from(vid) & 0xfff;
        self.0[vid / 64] >> (vid % 64) & 1 == 1
    }

    /// Returns the VLANs of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=4094).filter_map(VlanId::new).filter(|&vlan| self.contains(vlan))
    }
}

impl Default for VlanSet {
    fn default() -> Self {
        VlanSet::new()
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<T: IntoIterator<Item = VlanId>>(vlans: T) -> Self {
        let mut set = VlanSet::new();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

impl std::fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(VlanId::get)).finish()
    }
}
