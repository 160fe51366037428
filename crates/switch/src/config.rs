//! What a bridge is told: plain values, built from the configuration by whoever applies it.
//!
//! Nothing here is checked against the machine; [`crate::Bridge::new`] takes any value of these types. Contradictions
//! are settled in the documented way (a port listed twice counts once, the last wins), never by a panic.

use packet::{BridgeId, MacAddr, PortId, VlanId};

/// Time as the data path is told it, read once per burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of a monotonic clock; the same clock in all calls.
    pub ns: u64,
    /// The same clock in whole seconds, wrapping at 65,536.
    pub secs: u16,
}

impl Now {
    /// Both readings from one: `ns` nanoseconds of a monotonic clock.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the coarse clock wraps by definition")]
    pub const fn from_ns(ns: u64) -> Now {
        Now { ns, secs: (ns / 1_000_000_000) as u16 }
    }

    /// The instant `secs` seconds after the clock's start; for tests and control threads.
    pub const fn from_secs(secs: u64) -> Now {
        Now::from_ns(secs * 1_000_000_000)
    }
}

/// A bridge and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Its number, shown by `explain`.
    pub id: BridgeId,
    /// Its name in messages and tables.
    pub name: String,
    /// Seconds after which a silent address is forgotten (IEEE 802.1Q clause 8.8.3: 10 to 1,000,000, by default 300).
    ///
    /// Ages are kept in a 16-bit count of seconds, so more than [`MAX_AGEING_SECS`] counts as that.
    pub ageing_secs: u32,
    /// Addresses that its table holds at most, static ones included.
    pub mac_limit: u32,
    /// Whether IGMP and MLD are read, so that multicast goes only where somebody listens.
    pub snooping: bool,
    /// Its members.
    pub ports: Vec<BridgePortConfig>,
    /// Entries that never age and never move.
    pub statics: Vec<StaticMac>,
}

/// The longest ageing time that the table's clock can tell from zero, with room for a sweep that comes late.
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

/// A member of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePortConfig {
    /// The port.
    pub port: PortId,
    /// What it does with VLAN tags.
    pub mode: VlanMode,
    /// Whether frames that come with the native VLAN's tag are dropped.
    pub native_untagged_only: bool,
    /// Whether it is kept apart from the other protected members.
    pub protected: bool,
    /// Whether multicast routers may be here: whether queries and PIM hellos that come in here are believed. `None`: unless the
    /// port is protected.
    pub multicast_router: Option<bool>,
    /// Whether source addresses are learned here.
    pub learning: bool,
    /// Whether frames for unicast addresses that are not in the table leave here. Group addresses always may.
    pub flood: bool,
    /// Addresses learned here at most; `None`: as many as the bridge holds.
    pub mac_limit: Option<u32>,
    /// Limits for what it may flood.
    pub storm: StormLimits,
}

impl BridgePortConfig {
    /// A member with default settings: learns, floods, no limits.
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

/// What a member does with VLAN tags (IEEE 802.1Q clauses 6.9, 8.6.2 and 8.8.2). Only 802.1Q tags (0x8100) name a VLAN
/// here; a frame whose outer tag is an 802.1ad service tag (0x88a8) counts as untagged, as for any C-VLAN bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Untagged and priority-tagged frames belong to this VLAN and leave untagged. A frame with any VLAN tag is
    /// dropped, also when it names this very VLAN (Open vSwitch does the same): an access port's neighbour has no
    /// business tagging.
    Access(VlanId),
    /// Carries several VLANs by tag.
    Trunk {
        /// VLANs that it carries; the native one counts as among them.
        allowed: VlanSet,
        /// VLAN of untagged and priority-tagged frames; `None`: they are dropped.
        native: Option<VlanId>,
        /// Whether frames of the native VLAN leave with a tag.
        native_tagged: bool,
    },
    /// No VLAN separation: tags pass unchanged, and addresses are learned in VLAN 0. A transparent port talks only to
    /// the bridge's other transparent ports.
    Transparent,
}

/// Frames per second that a member may send of each kind; `None`: no limit, `Some(0)`: nothing.
///
/// What was not used is saved up to a tenth of a second's worth, but at least 32 frames (a second's worth where the
/// limit is less): see [`StormLimits::burst`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// To ff:ff:ff:ff:ff:ff.
    pub broadcast: Option<u32>,
    /// To other group addresses, snooped or not.
    pub multicast: Option<u32>,
    /// To unicast addresses that are not in the table.
    pub unknown: Option<u32>,
}

impl StormLimits {
    /// Frames that may pass at once under a limit of `rate` frames per second.
    pub const fn burst(rate: u32) -> u32 {
        let tenth = rate / 10;
        let floor = if rate < 32 { rate } else { 32 };
        if tenth > floor { tenth } else { floor }
    }
}

/// A static entry of the MAC table (IEEE 802.1Q clause 8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StaticMac {
    /// VLAN, [`VlanId::NONE`] on transparent ports.
    pub vid: VlanId,
    /// Unicast address; group addresses are ignored.
    pub mac: MacAddr,
    /// Where it is; `None`: frames for it and from it are discarded.
    pub port: Option<PortId>,
}

/// A set of VLANs as 4,096 bits: one load tells membership.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// No VLAN.
    pub fn new() -> Self {
        VlanSet(Box::new([0; 64]))
    }

    /// 1..=4094
    pub fn all() -> Self {
        (1..=4094).filter_map(VlanId::new).collect()
    }

    /// Adds a VLAN; [`VlanId::NONE`] is not one.
    pub fn insert(&mut self, vlan: VlanId) {
        if !vlan.is_none() {
            self.0[vlan.index() / 64] |= 1 << (vlan.index() % 64);
        }
    }

    /// Whether this VLAN is in the set.
    #[inline]
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.contains_vid(vlan.get())
    }

    /// As [`VlanSet::contains`], by the tag's twelve bits.
    #[inline]
    pub(crate) fn contains_vid(&self, vid: u16) -> bool {
        let vid = usize::from(vid) & 0xfff;
        self.0[vid / 64] >> (vid % 64) & 1 == 1
    }

    /// Every VLAN, in order.
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
