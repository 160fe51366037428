//! Configuration of virtual routers: settings and interfaces.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod load;
pub(crate) mod route_state;
pub(crate) mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use packet::{PuntClass, VlanId, VlanTags};
use serde::{Deserialize, Serialize, Serializer};

use crate::{Namespace, PortKind, PortName, VlanSet};

/// A virtual router. It takes its routes, neighbours and addresses from one network namespace, and routes packets
/// between its ports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Router {
    /// Settings that apply to all interfaces of the router.
    #[serde(flatten)]
    pub settings: RouterSettings,
    /// Interfaces of the router, by port name.
    #[serde(rename = "port")]
    pub ports: BTreeMap<PortName, RouterPort>,
}

/// Settings that apply to all interfaces of a router.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RouterSettings {
    /// Network namespace whose devices, addresses, routes, neighbours and policy rules the router uses. `None`: the
    /// daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Maximum number of routes, IPv4 and IPv6 together.
    pub routes: u32,
    /// Maximum number of neighbours, IPv4 and IPv6 together.
    pub neighbours: u32,
    /// Maximum rate at which workers punt packets of each class to the kernel, in packets per second and class. Hooks
    /// (XDP programs) have the same limits. `punt_limits` replaces the limit for individual classes.
    pub punts: u32,
    /// Punt limits of individual packet classes, which replace `punts` for these classes.
    #[serde(skip_serializing_if = "PuntLimits::is_empty")]
    pub punt_limits: PuntLimits,
    /// Address and TCP port in the namespace on which the daemon accepts FPM connections of FRR's zebra (forwarding
    /// plane manager protocol). `None`: the router learns all routes from the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fpm: Option<SocketAddr>,
    /// Whether `fpm` may be an address that other machines can reach. The FPM protocol has no authentication.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fpm_remote: bool,
    /// Local users, by name or number, whose processes may connect to the address `fpm`.
    pub fpm_users: Vec<String>,
    /// Seconds without an FPM message after which zebra's initial announcement of its routes is considered
    /// complete.
    pub fpm_settle: u32,
    /// Whether the hook (XDP program) forwards packets between ports of the router, if the hook has all required data,
    /// such as the route and the neighbour's Ethernet address.
    pub hook: bool,
}

impl RouterSettings {
    /// Maximum value of the setting `routes`.
    pub const ROUTES_MAX: u32 = 16_000_000;
    /// Maximum value of the setting `neighbours`.
    pub const NEIGHBOURS_MAX: u32 = 1_000_000;
    /// Maximum value of a punt limit, in packets per second.
    pub const PUNTS_MAX: u32 = 10_000_000;
    /// Maximum value of the setting `fpm_settle`, in seconds.
    pub const FPM_SETTLE_MAX: u32 = 3_600;

    /// Default maximum rate of ICMP errors that workers generate, in packets per second. Linux has the same
    /// default (`icmp_msgs_per_sec`).
    pub const ERRORS: u32 = 1_000;

    /// Returns the rate limit of a packet class in packets per second. For the class of ICMP
    /// errors, the limit applies to the rate at which workers generate ICMP errors. For other
    /// classes, the limit applies to the rate at which workers punt packets to the kernel, and
    /// separately to the rate at which hooks pass packets to the kernel.
    #[must_use]
    pub fn punts_of(&self, class: PuntClass) -> u32 {
        let default = if class == PuntClass::Errors { RouterSettings::ERRORS } else { self.punts };
        self.punt_limits.0.get(&class).copied().unwrap_or(default)
    }
}

/// Maximum rates at which workers punt packets to the kernel, in packets per second, by packet class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PuntLimits(pub BTreeMap<PuntClass, u32>);

impl PuntLimits {
    /// Returns whether no packet class has an individual limit.
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

/// Settings of a port as an interface of a router. The kernel determines the addresses and the MTU of the interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RouterPort {
    /// Handling of packets that arrive on the interface and match no route.
    pub miss: Miss,
    /// VLANs of the port that are separate router interfaces. Each VLAN interface has a device `DEVICE.VLAN`
    /// in the namespace of the router.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub vlans: VlanSet,
    /// Double-tagged VLANs (a customer VLAN inside a provider VLAN) that are separate router interfaces. Each
    /// of these interfaces has a device `DEVICE.OUTER.INNER` in the namespace of the router.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub qinq: BTreeSet<QinQ>,
    /// Type of the outer VLAN tags of the interfaces in `qinq`.
    #[serde(skip_serializing_if = "OuterTag::is_default")]
    pub qinq_outer: OuterTag,
    /// Reverse path check for the source addresses of packets that arrive on the interface or on one of its VLAN
    /// interfaces.
    #[serde(skip_serializing_if = "Rpf::is_off")]
    pub rpf: Rpf,
    /// Whether the interface and its VLAN interfaces accept packets that are sent to a VRRP virtual router MAC address
    /// of the packet's address family.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vrrp: bool,
    /// Addresses of the DHCP servers to which requests of clients on the interface and on its VLANs are
    /// relayed. DHCP requests are sent to the IPv4 servers, and DHCPv6 requests to the IPv6 servers. Empty:
    /// requests are not relayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dhcp_relay: Vec<IpAddr>,
    /// Whether messages from other DHCP relay agents (DHCP with a `giaddr`, or a DHCPv6 Relay-forward message) are
    /// relayed.
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
    /// Returns the name of the device that represents a port of this kind in the namespace of the router. For a port
    /// with a kernel device, this is the device of the port. For any other port, this is a mirror interface: a TAP
    /// device with the name of the port, which the daemon creates.
    pub fn device<'a>(port: &'a PortName, kind: &'a PortKind) -> &'a str {
        match kind.device() {
            Some((device, _)) if !RouterPort::is_mirrored(kind) => device.as_str(),
            _ => port.as_str(),
        }
    }

    /// Returns whether a port of this kind has no kernel device. The daemon creates a TAP device
    /// (mirror interface) for such a port.
    pub fn is_mirrored(kind: &PortKind) -> bool {
        kind.xdp().is_none()
    }

    /// Maximum number of DHCP servers of an interface.
    pub const DHCP_SERVERS_MAX: usize = 8;

    /// Maximum number of VLAN interfaces of a router. Each VLAN interface requires a kernel device and a queue.
    pub const VLANS_MAX: usize = 256;

    /// Returns the name of the device that represents a VLAN of a port whose own device is named `device`.
    pub fn vlan_device(device: &str, tags: VlanTags) -> String {
        format!("{device}.{tags}")
    }

    /// Returns the VLAN tags of each VLAN interface: first the single tags, then the double tags.
    pub fn tags(&self) -> impl Iterator<Item = VlanTags> + '_ {
        let service = self.qinq_outer == OuterTag::Service;
        let two = move |pair: &QinQ| VlanTags { outer: pair.outer, inner: Some(pair.inner), service };
        self.vlans.iter().map(VlanTags::one).chain(self.qinq.iter().map(two))
    }
}

/// A double-tagged VLAN: a customer VLAN inside a provider VLAN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QinQ {
    /// Identifier of the provider VLAN (outer tag).
    pub outer: VlanId,
    /// Identifier of the customer VLAN (inner tag).
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

/// Type of the outer VLAN tag of double-tagged frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub enum OuterTag {
    /// A service tag (IEEE 802.1ad, EtherType 0x88a8).
    #[default]
    #[serde(rename = "802.1ad")]
    Service,
    /// A customer tag (IEEE 802.1Q, EtherType 0x8100), as for inner tags.
    #[serde(rename = "802.1q")]
    Customer,
}

impl OuterTag {
    /// Returns whether the outer tag is a service tag, which is the default.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub fn is_default(&self) -> bool {
        *self == OuterTag::Service
    }
}

/// Handling of packets that arrive on an interface and match no route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Miss {
    /// The router drops the packets, and sends rate-limited ICMP errors to their senders.
    #[default]
    Unreachable,
    /// The router punts the packets to the kernel.
    Punt,
}

/// Unicast reverse path check of an interface (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rpf {
    /// The router does not check the source addresses of packets.
    #[default]
    Off,
    /// The router requires a route to the source address. At least one next hop of the route must use the interface
    /// that received the packet.
    Strict,
    /// The router requires a route to the source address through any interface.
    Loose,
}

impl Rpf {
    /// Returns whether the reverse path check is disabled.
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
