//! Virtual routers: their settings and interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use packet::{PuntClass, VlanId, VlanTags};
use serde::{Deserialize, Serialize, Serializer};

use crate::{AfXdp, Namespace, PortKind, PortName, Veth, VlanSet};

/// A virtual router: the routing state of one network namespace, and the ports that packets are routed between.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Router {
    /// What holds for all its interfaces.
    #[serde(flatten)]
    pub settings: RouterSettings,
    /// Its interfaces by port.
    #[serde(rename = "port")]
    pub ports: BTreeMap<PortName, RouterPort>,
}

/// What holds for all interfaces of a router.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RouterSettings {
    /// The namespace whose devices, addresses, routes, neighbours and rules are its own; `None`: the daemon's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Routes of both families together at most.
    pub routes: u32,
    /// Neighbours of both families together at most.
    pub neighbours: u32,
    /// Packets per second at most that workers give to the kernel of each class that has no limit of its own.
    pub punts: u32,
    /// Classes with limits of their own.
    #[serde(skip_serializing_if = "PuntLimits::is_empty")]
    pub punt_limits: PuntLimits,
    /// Where FRR's zebra connects in the namespace, to say by FPM what its routes are; `None`: they are the kernel's as everybody else's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fpm: Option<SocketAddr>,
    /// Whether `fpm` may be an address that other machines reach. FPM has no authentication.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fpm_remote: bool,
    /// Users of this machine, by name or number, whose processes may connect there.
    pub fpm_users: Vec<String>,
    /// Seconds without a message after which zebra has announced all that it has.
    pub fpm_settle: u32,
    /// Whether packets between its ports are answered in the driver hook where all is known.
    pub hook: bool,
}

impl RouterSettings {
    /// Most routes that a router can be told to hold.
    pub const ROUTES_MAX: u32 = 16_000_000;
    /// Most neighbours that a router can be told to hold.
    pub const NEIGHBOURS_MAX: u32 = 1_000_000;
    /// Most packets per second of a class that can be let through to the kernel.
    pub const PUNTS_MAX: u32 = 10_000_000;
    /// Most seconds that a replay of FPM may pause.
    pub const FPM_SETTLE_MAX: u32 = 3_600;

    /// ICMP errors per second at most that workers make, unless told otherwise: as many as Linux makes (`icmp_msgs_per_sec`).
    pub const ERRORS: u32 = 1_000;

    /// Packets per second at most of a class: that workers give to the kernel, or whose senders they tell themselves.
    #[must_use]
    pub fn punts_of(&self, class: PuntClass) -> u32 {
        let default = if class == PuntClass::Errors { RouterSettings::ERRORS } else { self.punts };
        self.punt_limits.0.get(&class).copied().unwrap_or(default)
    }
}

/// Packets per second at most that workers give to the kernel, by class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PuntLimits(pub BTreeMap<PuntClass, u32>);

impl PuntLimits {
    /// Whether no class has a limit of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for PuntLimits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(class, limit)| (class.name(), limit)))
    }
}

impl Default for RouterSettings {
    fn default() -> Self {
        RouterSettings {
            namespace: None,
            routes: 2_000_000,
            neighbours: 65_536,
            punts: 20_000,
            punt_limits: PuntLimits::default(),
            fpm: None,
            fpm_remote: false,
            fpm_users: vec!["root".to_owned(), "frr".to_owned()],
            fpm_settle: 30,
            hook: true,
        }
    }
}

/// What a port is as a router's interface; its addresses and its MTU are the kernel's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RouterPort {
    /// What becomes of packets that no route is for.
    pub miss: Miss,
    /// VLANs of the port that are interfaces of their own, each with a device `DEVICE.VLAN` in the router's namespace.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub vlans: VlanSet,
    /// Pairs of tags, a customer's VLAN behind a provider's, that are interfaces of their own, each with a device `DEVICE.OUTER.INNER`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub qinq: BTreeSet<QinQ>,
    /// The kind of the outer tags of those.
    #[serde(skip_serializing_if = "OuterTag::is_default")]
    pub qinq_outer: OuterTag,
    /// What it asks of the sources of packets that are to be routed; of those of its VLANs, too.
    #[serde(skip_serializing_if = "Rpf::is_off")]
    pub rpf: Rpf,
    /// Whether packets to VRRP's Ethernet addresses of their family are for it, too; for its VLANs as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vrrp: bool,
    /// DHCP servers that get the requests of its clients, and of those in its VLANs: IPv4 servers those for DHCP, IPv6 servers those for
    /// DHCPv6. None: requests are not relayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dhcp_relay: Vec<IpAddr>,
    /// Whether messages that other DHCP relay agents have passed on (with a `giaddr`, or in an envelope) are relayed, too.
    #[serde(skip_serializing_if = "is_true")]
    pub dhcp_relay_agents: bool,
}

impl Default for RouterPort {
    fn default() -> Self {
        RouterPort {
            miss: Miss::default(),
            vlans: VlanSet::default(),
            qinq: BTreeSet::new(),
            qinq_outer: OuterTag::default(),
            rpf: Rpf::default(),
            vrrp: false,
            dhcp_relay: Vec::new(),
            dhcp_relay_agents: true,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_true(flag: &bool) -> bool {
    *flag
}

impl RouterPort {
    /// The device in the router's namespace that stands for a port of this kind: its own, or where the kernel knows nothing of the port one of
    /// ours that is called like it.
    pub fn device<'a>(port: &'a PortName, kind: &'a PortKind) -> &'a str {
        match kind {
            PortKind::AfXdp(AfXdp { device, .. }) | PortKind::Veth(Veth { device, .. }) => device.as_str(),
            _ => port.as_str(),
        }
    }

    /// Whether the device that stands for a port of this kind is a mirror of our making.
    pub fn is_mirrored(kind: &PortKind) -> bool {
        !matches!(kind, PortKind::AfXdp(_) | PortKind::Veth(_))
    }

    /// Most servers that an interface's DHCP requests go to.
    pub const DHCP_SERVERS_MAX: usize = 8;

    /// Most VLANs of a router that are interfaces: each has a device of the kernel's and a queue.
    pub const VLANS_MAX: usize = 256;

    /// The device of a VLAN of a port whose own device is `device`.
    pub fn vlan_device(device: &str, tags: VlanTags) -> String {
        format!("{device}.{tags}")
    }

    /// The tags of its VLANs, those with two behind those with one.
    pub fn tags(&self) -> impl Iterator<Item = VlanTags> + '_ {
        let service = self.qinq_outer == OuterTag::Service;
        let two = move |pair: &QinQ| VlanTags { outer: pair.outer, inner: Some(pair.inner), service };
        self.vlans.iter().map(VlanTags::one).chain(self.qinq.iter().map(two))
    }
}

/// Two tags: a customer's VLAN behind a provider's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QinQ {
    /// The provider's.
    pub outer: VlanId,
    /// The customer's.
    pub inner: VlanId,
}

impl fmt::Display for QinQ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.outer, self.inner)
    }
}

impl FromStr for QinQ {
    type Err = ();

    fn from_str(text: &str) -> Result<QinQ, ()> {
        let (outer, inner) = text.split_once('.').ok_or(())?;
        let vlan = |text: &str| text.parse().ok().and_then(VlanId::new).ok_or(());
        Ok(QinQ { outer: vlan(outer)?, inner: vlan(inner)? })
    }
}

impl Serialize for QinQ {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The kind of an outer tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub enum OuterTag {
    /// A service tag (IEEE 802.1ad, EtherType 0x88a8).
    #[default]
    #[serde(rename = "802.1ad")]
    Service,
    /// As inner ones (IEEE 802.1Q, EtherType 0x8100).
    #[serde(rename = "802.1q")]
    Customer,
}

impl OuterTag {
    /// Whether it is a service tag.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub fn is_default(&self) -> bool {
        *self == OuterTag::Service
    }
}

/// What becomes of packets that came in by an interface and that no route is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Miss {
    /// They are dropped, and their sender is told by ICMP (rate-limited).
    #[default]
    Unreachable,
    /// They go to the kernel, whatever it makes of them.
    Punt,
}

/// Unicast reverse path forwarding (RFC 3704): what is asked of the sources of packets that come in by an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rpf {
    /// Nothing.
    #[default]
    Off,
    /// A route leads to them by that interface, as one of several ways at least.
    Strict,
    /// A route leads to them, by whatever interface.
    Loose,
}

impl Rpf {
    /// Whether nothing is asked.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub fn is_off(&self) -> bool {
        *self == Rpf::Off
    }
}

impl fmt::Display for Rpf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rpf::Off => "off",
            Rpf::Strict => "strict",
            Rpf::Loose => "loose",
        })
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Miss::Unreachable => "unreachable",
            Miss::Punt => "punt",
        })
    }
}
