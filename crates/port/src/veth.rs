//! Ports for containers and network namespaces. A port is a veth pair. The near end belongs to Trivium. The peer is in
//! the namespace of the container and has the configured name.
//!
//! Offload features of both ends are set in such a way that the AF_XDP socket receives complete frames:
//!
//! - Peer: checksumming and segmentation by the device are disabled, because AF_XDP reception delivers no checksum
//!   state. Segmentation by the network stack stays enabled, because it is done before the device gets the frame. VLAN
//!   tags stay in the frame. GRO is enabled, because it makes NAPI run on the peer. NAPI aggregates TCP segments and
//!   makes XDP redirects to the peer possible.
//! - Near end: TCP segmentation by the device is disabled, so that frames of the AF_XDP socket and frames
//!   that the XDP hook redirects stay in order. IPv6 and ARP of the kernel are disabled and the device has no
//!   addresses, so that the kernel never transmits on a bridged port. Ports on which the kernel routes are an
//!   exception.
//!
//! The alias `trivium:NAME` of the near end records that the pair belongs to Trivium. After a restart or a
//! kill, Trivium adopts its existing pairs.

use std::io;
use std::os::fd::AsRawFd;

use packet::MacAddr;
use packet::net::InterfaceAddress;

use crate::ethtool;
use crate::link::{self, LinkChange, LinkError, LinkInfo};
use crate::netlink::{self, NetlinkError, Request};
use crate::netns::{self, Netns, NetnsError};

const VETH_INFO_PEER: u16 = 1;

/// Offload features of the peer with their settings. Offloads that would leave checksums, segmentation or VLAN tags
/// outside the frame are disabled, and GRO is enabled.
const FAR_OFFLOADS: [(&str, bool); 14] = [
    ("tx-checksum-ip-generic", false),
    ("tx-checksum-ipv4", false),
    ("tx-checksum-ipv6", false),
    ("tx-checksum-sctp", false),
    ("tx-tcp-segmentation", false),
    ("tx-tcp-ecn-segmentation", false),
    ("tx-tcp-mangleid-segmentation", false),
    ("tx-tcp6-segmentation", false),
    ("tx-udp-segmentation", false),
    ("tx-gso-list", false),
    ("rx-vlan-hw-parse", false),
    ("tx-vlan-hw-insert", false),
    ("tx-vlan-stag-hw-insert", false),
    ("rx-gro", true),
];

/// Offload features of the near end with their settings. VLAN tags stay in the frame in both directions. TCP
/// segmentation is disabled, because otherwise the kernel does not pass frames of AF_XDP sockets to the NAPI of the
/// peer (`veth_skb_is_eligible_for_gro`). These frames would then take the backlog of a CPU, where frames that the XDP
/// hook redirects to the peer can overtake them.
const NEAR_OFFLOADS: [(&str, bool); 9] = [
    ("tx-tcp-segmentation", false),
    ("tx-tcp-ecn-segmentation", false),
    ("tx-tcp-mangleid-segmentation", false),
    ("tx-tcp6-segmentation", false),
    ("tx-tcp-accecn-segmentation", false),
    ("rx-vlan-hw-parse", false),
    ("rx-vlan-stag-hw-parse", false),
    ("tx-vlan-hw-insert", false),
    ("tx-vlan-stag-hw-insert", false),
];

/// MAC addresses of the two ends of a veth pair. An address that is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndAddresses {
    /// MAC address of the near end.
    pub near: Option<MacAddr>,
    /// MAC address of the peer.
    pub far: Option<MacAddr>,
}

/// Configuration of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethConfig {
    /// Name of the near end, which is in the namespace of the calling thread.
    pub name: String,
    /// Namespace of the peer. `None` for the namespace of the calling thread.
    pub netns: Option<Netns>,
    /// Device name of the peer, in the namespace of the peer.
    pub far_name: String,
    /// IP addresses of the peer with their prefix lengths.
    pub addresses: Vec<InterfaceAddress>,
    /// MTU of both ends in bytes, at most 65535.
    pub mtu: u32,
    /// MTU of the peer in bytes, at most the MTU of the near end. `None` if both ends have equal MTUs.
    pub far_mtu: Option<u32>,
    /// MAC address of the peer. With `None`, `first` determines the address.
    pub mac: Option<MacAddr>,
    /// MAC addresses for the two ends when a pair is created and [`VethConfig::mac`] is `None`, for example
    /// the addresses of a deleted pair. The kernel chooses the addresses that are not given.
    pub first: EndAddresses,
    /// Number of receive queues and of transmit queues that each end has.
    pub queues: u32,
    /// Whether the kernel also uses the near end, for example to route. If so, ARP and IPv6 of the kernel are
    /// enabled on the near end.
    pub speaks: bool,
}

impl VethConfig {
    /// Returns the default configuration for a pair with these names: one queue, MTU 1500, and no addresses.
    #[must_use]
    pub fn new(name: impl Into<String>, far_name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            netns: None,
            far_name: far_name.into(),
            addresses: Vec::new(),
            mtu: 1500,
            far_mtu: None,
            mac: None,
            first: EndAddresses::default(),
            queues: 1,
            speaks: false,
        }
    }

    fn alias(&self) -> String {
        format!("trivium:{}", self.name)
    }
}

/// An error of the creation, the adoption or the removal of a veth pair.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// A device with this name exists and does not belong to Trivium.
    #[error(
        "veth port {name}: a device of this name exists that this program did not make; choose another name or remove it with `ip link del {name}`"
    )]
    Foreign {
        /// Name of the device.
        name: String,
    },
    /// The pair exists and belongs to Trivium, but its peer is not in the configured namespace.
    #[error(
        "veth port {name}: the pair exists, but its far end {far_name} is not in its namespace; remove it with `ip link del {name}`"
    )]
    Elsewhere {
        /// Name of the near end.
        name: String,
        /// Name of the peer.
        far_name: String,
    },
    /// The namespace of the peer could not be entered.
    #[error("veth port {name}: {source}")]
    Netns {
        /// Name of the near end.
        name: String,
        /// Underlying error.
        source: NetnsError,
    },
    /// The kernel refused an operation on a device.
    #[error("veth port {name}: {source}")]
    Link {
        /// Name of the near end.
        name: String,
        /// Underlying error.
        source: LinkError,
    },
}

/// Device group of the near end between its creation and the assignment of its alias. In the request that
/// creates a device, the kernel accepts a group, but no alias. If the process is killed between the two
/// requests, the group identifies the device as Trivium's.
const UNFINISHED: u32 = u32::from_be_bytes(*b"triv");

/// A veth pair after its creation or adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veth {
    /// State of the near end.
    pub near: LinkInfo,
    /// State of the peer, in its namespace.
    pub far: LinkInfo,
    /// Whether the pair existed before and was adopted (true) or was created (false).
    pub adopted: bool,
}

/// Creates a veth pair, or adopts an existing pair of Trivium with this name. Configures both ends and sets
/// them up.
///
/// # Errors
/// [`VethError`] if the pair cannot be created, adopted or configured. A pair that this call has
/// created is removed again. A pair whose creation was interrupted is also removed.
pub fn ensure(config: &VethConfig) -> Result<Veth, VethError> {
    let adopted = match link::find(&config.name) {
        Ok(found) if found.alias.as_deref() == Some(&config.alias()) => true,
        Ok(found) if is_unfinished(&found) => {
            link::delete(&config.name).map_err(|e| config.link_error(e))?;
            false
        }
        Ok(_) => return Err(VethError::Foreign { name: config.name.clone() }),
        Err(error) if error.errno() == libc::ENODEV => false,
        Err(source) => return Err(config.link_error(source)),
    };
    if !adopted {
        config.create()?;
    }
    let made = config.set_up(adopted);
    if made.is_err() && !adopted {
        let _ = link::delete(&config.name);
    }
    made
}

/// Returns whether the device is a near end whose creation was interrupted before it got its alias.
fn is_unfinished(found: &LinkInfo) -> bool {
    found.alias.is_none() && found.group == UNFINISHED && found.kind.as_deref() == Some("veth")
}

/// Removes a veth pair that belongs to Trivium. The call succeeds if no such device exists.
///
/// # Errors
/// [`VethError`] if the kernel refuses the removal, or if the device does not belong to Trivium.
pub fn remove(name: &str) -> Result<(), VethError> {
    let wrap = |source| VethError::Link { name: name.to_owned(), source };
    match link::find(name) {
        Ok(found) if found.alias.as_deref() == Some(&format!("trivium:{name}")) || is_unfinished(&found) => {
            match link::delete(name) {
                Err(error) if error.errno() != libc::ENODEV => Err(wrap(error)),
                _ => Ok(()),
            }
        }
        Ok(_) => Err(VethError::Foreign { name: name.to_owned() }),
        Err(error) if error.errno() == libc::ENODEV => Ok(()),
        Err(source) => Err(wrap(source)),
    }
}

/// Removes addresses from the peer. The call succeeds if the peer does not have some of the addresses.
///
/// # Errors
/// [`VethError`] if the peer does not exist, or if the kernel refuses the removal of an address.
pub fn remove_addresses(config: &VethConfig, addresses: &[InterfaceAddress]) -> Result<(), VethError> {
    config.in_far(|| {
        let far = link::find(&config.far_name)?;
        addresses.iter().try_for_each(|address| link::remove_address(far.ifindex, *address))
    })
}

impl VethConfig {
    fn link_error(&self, source: LinkError) -> VethError {
        VethError::Link { name: self.name.clone(), source }
    }

    fn in_far<R: Send>(&self, work: impl FnOnce() -> Result<R, LinkError> + Send) -> Result<R, VethError> {
        netns::within_optional(self.netns.as_ref(), work)
            .map_err(|source| VethError::Netns { name: self.name.clone(), source })?
            .map_err(|source| self.link_error(source))
    }

    /// Creates both ends with one request to the kernel. The peer is created in its namespace with its final name.
    /// Therefore the peer never appears in another namespace.
    fn create(&self) -> Result<(), VethError> {
        let file = match &self.netns {
            None => None,
            Some(netns) => {
                Some(netns.open().map_err(|source| VethError::Netns { name: self.name.clone(), source })?)
            }
        };
        let flags = netlink::NLM_F_ACK | netlink::NLM_F_CREATE | netlink::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWLINK, flags, &link::header(0, 0, 0));
        self.common(&mut request, &self.name);
        request.number(link::IFLA_GROUP, UNFINISHED);
        if let Some(mac) = self.first.near {
            request.attribute(link::IFLA_ADDRESS, &mac.0);
        }
        request.nest(link::IFLA_LINKINFO, &[], |info| {
            info.text(link::IFLA_INFO_KIND, "veth").nest(link::IFLA_INFO_DATA, &[], |data| {
                data.nest(VETH_INFO_PEER, &link::header(0, 0, 0), |peer| {
                    self.common(peer, &self.far_name);
                    if let Some(mac) = self.mac.or(self.first.far) {
                        peer.attribute(link::IFLA_ADDRESS, &mac.0);
                    }
                    if let Some(file) = &file {
                        peer.number(link::IFLA_NET_NS_FD, file.as_raw_fd().unsigned_abs());
                    }
                });
            });
        });
        link::transact(request).map_err(|e| self.link_error(LinkError::new(&self.name, "creation", e)))
    }

    fn common(&self, request: &mut Request, name: &str) {
        request
            .text(link::IFLA_IFNAME, name)
            .number(link::IFLA_MTU, self.mtu)
            .number(link::IFLA_NUM_TX_QUEUES, self.queues.max(1))
            .number(link::IFLA_NUM_RX_QUEUES, self.queues.max(1));
    }

    fn set_up(&self, adopted: bool) -> Result<Veth, VethError> {
        let near = link::find(&self.name).map_err(|e| self.link_error(e))?;
        let far = self.in_far(|| link::find(&self.far_name)).map_err(|error| match error {
            VethError::Link { source, .. } if source.errno() == libc::ENODEV => {
                VethError::Elsewhere { name: self.name.clone(), far_name: self.far_name.clone() }
            }
            other => other,
        })?;
        if near.peer != Some(far.ifindex) {
            return Err(VethError::Elsewhere { name: self.name.clone(), far_name: self.far_name.clone() });
        }
        self.set_near(&near).map_err(|e| self.link_error(e))?;
        let far = self.in_far(|| self.set_far(&far))?;
        // The near end is set up after the far end accepts redirected frames, because the near end reports
        // the capability (`ndo-xmit`) when it comes up.
        link::set(near.ifindex, &LinkChange { up: Some(true), ..LinkChange::default() })
            .map_err(|e| self.link_error(e))?;
        let near = link::by_index(near.ifindex).map_err(|e| self.link_error(e))?;
        Ok(Veth { near, far, adopted })
    }

    fn set_near(&self, near: &LinkInfo) -> Result<(), LinkError> {
        let alias = self.alias();
        // The alias is set first, so that a pair left over by a crash is recognized as Trivium's.
        let group = (near.group == UNFINISHED).then_some(0);
        link::set(
            near.ifindex,
            &LinkChange { alias: Some(&alias), group, arp: Some(self.speaks), ..LinkChange::default() },
        )?;
        match (self.speaks, near.arp) {
            (false, _) => link::disable_ipv6(&self.name),
            // IPv6 is enabled only if it was disabled before. Later changes are the operator's.
            (true, false) => link::enable_ipv6(&self.name),
            (true, true) => Ok(()),
        }
        .map_err(|e| sysctl_error(&self.name, e))?;
        ethtool::set_features(&self.name, &NEAR_OFFLOADS)?;
        if near.mtu == self.mtu {
            return Ok(());
        }
        link::set(near.ifindex, &LinkChange { mtu: Some(self.mtu), ..LinkChange::default() })
    }

    fn set_far(&self, far: &LinkInfo) -> Result<LinkInfo, LinkError> {
        ethtool::set_features(&self.far_name, &FAR_OFFLOADS)?;
        let mac = self.mac.filter(|mac| far.mac != Some(*mac));
        let wanted = self.far_mtu.unwrap_or(self.mtu);
        let mtu = (far.mtu != wanted).then_some(wanted);
        link::set(far.ifindex, &LinkChange { mac, mtu, up: Some(true), ..LinkChange::default() })?;
        for address in &self.addresses {
            link::add_address(far.ifindex, *address)?;
        }
        link::by_index(far.ifindex)
    }
}

pub(crate) fn sysctl_error(device: &str, error: io::Error) -> LinkError {
    LinkError::new(device, "switching IPv6 off", NetlinkError::Socket(error))
}
