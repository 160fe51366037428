//! Ports that we make for a container or namespace: a veth pair whose near end is ours and whose far end is handed into the
//! namespace under its own name, with offloads set so that what arrives at our AF_XDP socket is complete.
//!
//! Far end: transmit checksumming and segmentation in "hardware" are off, since AF_XDP receive carries no checksum state;
//! software segmentation stays (the stack segments before the device sees the frame). VLAN tags stay in the frame. Its
//! GRO is on: it makes NAPI run there, which both aggregates TCP and lets an XDP redirect reach it. Near end: no IPv6, no ARP
//! and no addresses of the kernel's, so that it never speaks on a bridged port; unless the kernel is to route there.
//!
//! The near end's alias `trivium:NAME` says whose it is: after a restart, or a kill, a pair of ours is adopted.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use packet::MacAddr;

use crate::ethtool;
use crate::link::{self, LinkChange, LinkError, LinkInfo};
use crate::netlink::{self, NetlinkError, Request};
use crate::netns::{self, Netns, NetnsError};

const VETH_INFO_PEER: u16 = 1;

/// Off on the far end: checksums and segmentation that nobody completes, and tags beside the frame.
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

/// Near end: tags stay in the frame in both directions.
const NEAR_OFFLOADS: [(&str, bool); 4] = [
    ("rx-vlan-hw-parse", false),
    ("rx-vlan-stag-hw-parse", false),
    ("tx-vlan-hw-insert", false),
    ("tx-vlan-stag-hw-insert", false),
];

/// The Ethernet addresses of a pair's ends, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndAddresses {
    /// The near end's.
    pub near: Option<MacAddr>,
    /// The far end's.
    pub far: Option<MacAddr>,
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethConfig {
    /// Our end's name, in the calling thread's namespace.
    pub name: String,
    /// The far end's namespace; `None` leaves it in ours.
    pub netns: Option<Netns>,
    /// The far end's name there.
    pub far_name: String,
    /// The far end's addresses with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of both ends, up to 65535.
    pub mtu: u32,
    /// The far end's MTU where it differs; at most that of our end.
    pub far_mtu: Option<u32>,
    /// The far end's Ethernet address; `None` lets the kernel choose.
    pub mac: Option<MacAddr>,
    /// The Ethernet addresses that the ends get if the pair is made in this call, for want of [`VethConfig::mac`]: those of a pair that was
    /// deleted. Without them the kernel chooses.
    pub first: EndAddresses,
    /// Receive and transmit queues of both ends.
    pub queues: u32,
    /// Whether the near end is the kernel's to speak on, too: it has ARP and IPv6 then.
    pub speaks: bool,
}

impl VethConfig {
    /// A pair with one queue, MTU 1500 and no addresses.
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

/// Why a pair could not be made, adopted or removed.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// A device of that name exists and is not ours.
    #[error(
        "veth port {name}: a device of this name exists that this program did not make; choose another name or remove it with `ip link del {name}`"
    )]
    Foreign {
        /// The name.
        name: String,
    },
    /// A pair of ours exists, but its other end is not where it should be.
    #[error(
        "veth port {name}: the pair exists, but its far end {far_name} is not in its namespace; remove it with `ip link del {name}`"
    )]
    Elsewhere {
        /// The near end's name.
        name: String,
        /// The far end's name.
        far_name: String,
    },
    /// The namespace.
    #[error("veth port {name}: {source}")]
    Netns {
        /// The near end's name.
        name: String,
        /// Why.
        source: NetnsError,
    },
    /// The kernel refused.
    #[error("veth port {name}: {source}")]
    Link {
        /// The near end's name.
        name: String,
        /// Why.
        source: LinkError,
    },
}

/// A pair that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veth {
    /// Our end.
    pub near: LinkInfo,
    /// The far end, as seen in its namespace.
    pub far: LinkInfo,
    /// Whether it had been made before.
    pub adopted: bool,
}

/// Makes the pair, or adopts one of ours with this name, and sets both ends as configured and up.
///
/// # Errors
/// [`VethError`]; a pair that was made in this call is removed again.
pub fn ensure(config: &VethConfig) -> Result<Veth, VethError> {
    let adopted = match link::find(&config.name) {
        Ok(found) if found.alias.as_deref() == Some(&config.alias()) => true,
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

/// Removes a pair of ours; one that is gone already is no error.
///
/// # Errors
/// [`VethError`], also when the device is not ours.
pub fn remove(name: &str) -> Result<(), VethError> {
    let wrap = |source| VethError::Link { name: name.to_owned(), source };
    match link::find(name) {
        Ok(found) if found.alias.as_deref() == Some(&format!("trivium:{name}")) => match link::delete(name) {
            Err(error) if error.errno() != libc::ENODEV => Err(wrap(error)),
            _ => Ok(()),
        },
        Ok(_) => Err(VethError::Foreign { name: name.to_owned() }),
        Err(error) if error.errno() == libc::ENODEV => Ok(()),
        Err(source) => Err(wrap(source)),
    }
}

/// Takes addresses from the far end; those that it does not have are no error.
///
/// # Errors
/// [`VethError`] when the far end is not there or the kernel refuses.
pub fn remove_addresses(config: &VethConfig, addresses: &[(IpAddr, u8)]) -> Result<(), VethError> {
    config.in_far(|| {
        let far = link::find(&config.far_name)?;
        addresses
            .iter()
            .try_for_each(|(address, prefix)| link::remove_address(far.ifindex, *address, *prefix))
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

    /// One request makes both ends, the far one straight in its namespace under its name, so that it never shows up elsewhere.
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
        // Now that its far end takes redirected frames: the near end tells so (`ndo-xmit`) as of when it comes up.
        link::set(near.ifindex, &LinkChange { up: Some(true), ..LinkChange::default() })
            .map_err(|e| self.link_error(e))?;
        let near = link::by_index(near.ifindex).map_err(|e| self.link_error(e))?;
        Ok(Veth { near, far, adopted })
    }

    fn set_near(&self, near: &LinkInfo) -> Result<(), LinkError> {
        let alias = self.alias();
        // The alias goes first: a pair that is left over by a crash in between is known as ours.
        link::set(
            near.ifindex,
            &LinkChange { alias: Some(&alias), arp: Some(self.speaks), ..LinkChange::default() },
        )?;
        match (self.speaks, near.arp) {
            (false, _) => link::disable_ipv6(&self.name),
            // Only where it was silent before: whether it has IPv6 is the operator's from then on.
            (true, false) => link::enable_ipv6(&self.name),
            (true, true) => Ok(()),
        }
        .map_err(|e| sysctl_error(&self.name, e))?;
        ethtool::set_features(&self.name, &NEAR_OFFLOADS)?;
        let mtu = (near.mtu != self.mtu).then_some(self.mtu);
        link::set(near.ifindex, &LinkChange { mtu, ..LinkChange::default() })
    }

    fn set_far(&self, far: &LinkInfo) -> Result<LinkInfo, LinkError> {
        ethtool::set_features(&self.far_name, &FAR_OFFLOADS)?;
        let mac = self.mac.filter(|mac| far.mac != Some(*mac));
        let wanted = self.far_mtu.unwrap_or(self.mtu);
        let mtu = (far.mtu != wanted).then_some(wanted);
        link::set(far.ifindex, &LinkChange { mac, mtu, up: Some(true), ..LinkChange::default() })?;
        for (address, prefix) in &self.addresses {
            link::add_address(far.ifindex, *address, *prefix)?;
        }
        link::by_index(far.ifindex)
    }
}

pub(crate) fn sysctl_error(device: &str, error: io::Error) -> LinkError {
    LinkError::new(device, "switching IPv6 off", NetlinkError::Socket(error))
}
