//! Queries and changes of the network devices in the calling thread's namespace. Use [`crate::netns::within`]
//! for devices in other namespaces, and [`crate::ethtool`] for driver properties and offloads.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use packet::MacAddr;
use packet::net::InterfaceAddress;

pub use crate::ethtool::{Channels, DriverInfo, Feature, channels, driver, features, set_features};
pub use crate::link_error::LinkError;
use crate::netlink::{self, Message, Netlink, NetlinkError, Request};

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_GROUP: u16 = 27;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const XDP_ATTACHED_NONE: u8 = 0;
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NTF_USE: u8 = 1;

const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 0x80;
const IFF_PROMISC: u32 = 0x100;
const IFF_LOWER_UP: u32 = 0x1_0000;

/// Mode in which an XDP program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttached {
    /// The program is attached in driver mode.
    Native,
    /// The program is attached in generic mode and runs in the network stack, after the allocation
    /// of an skb.
    Generic,
    /// The program is attached in hardware mode, or several programs are attached in different modes.
    Other,
}

/// Properties and state of one network device, as the kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Interface index of the device in its namespace.
    pub ifindex: u32,
    /// Name of the device.
    pub name: String,
    /// MTU of the device: the maximum length of an L3 packet in bytes.
    pub mtu: u32,
    /// MAC address of the device, or `None` if the device has none.
    pub mac: Option<MacAddr>,
    /// Whether the device is administratively up.
    pub up: bool,
    /// Whether the device has a carrier (link). The operational state of the device follows the carrier with a
    /// delay.
    pub running: bool,
    /// Whether the kernel uses ARP on the device.
    pub arp: bool,
    /// Whether the device is in promiscuous mode.
    pub promiscuous: bool,
    /// Alias of the device, in which Trivium records that it created the device.
    pub alias: Option<String>,
    /// Group number of the device (`ip link set group`). The default is 0.
    pub group: u32,
    /// Kind of a virtual device, for example `veth`, `tun` or `bridge`. `None` for a hardware device.
    pub kind: Option<String>,
    /// Interface index of the peer of a veth device, in the peer's namespace. `None` for other devices.
    pub peer: Option<u32>,
    /// Whether the peer of a veth device is in another network namespace.
    pub peer_elsewhere: bool,
    /// Number of receive queues that the device was created with.
    pub rx_queues: u32,
    /// Number of transmit queues that the device was created with.
    pub tx_queues: u32,
    /// Mode of the attached XDP program, or `None` if no program is attached.
    pub xdp: Option<XdpAttached>,
}

/// A change of a device's settings. A setting with the value `None` is not changed.
#[derive(Clone, Debug, Default)]
pub struct LinkChange<'a> {
    /// Whether to set the device administratively up (true) or down (false).
    pub up: Option<bool>,
    /// Whether the kernel shall use ARP on the device.
    pub arp: Option<bool>,
    /// Whether the device shall be in promiscuous mode.
    pub promiscuous: Option<bool>,
    /// New MTU of the device in bytes.
    pub mtu: Option<u32>,
    /// New MAC address of the device.
    pub mac: Option<MacAddr>,
    /// New name of the device.
    pub name: Option<&'a str>,
    /// New alias of the device.
    pub alias: Option<&'a str>,
    /// New group number of the device.
    pub group: Option<u32>,
}

/// Builds the bytes of a `struct ifinfomsg`.
pub(crate) fn header(ifindex: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&change.to_ne_bytes());
    body
}

/// Returns the device with the given name in the calling thread's namespace.
///
/// # Errors
/// [`LinkError`]. The error number is `ENODEV` if there is no such device.
pub fn find(name: &str) -> Result<LinkInfo, LinkError> {
    let mut request = Request::new(libc::RTM_GETLINK, netlink::NLM_F_ACK, &header(0, 0, 0));
    request.text(IFLA_IFNAME, name);
    get(request).map_err(|e| LinkError::new(name, "look-up", e))
}

/// Returns the device with the given interface index in the calling thread's namespace.
///
/// # Errors
/// The errors of [`find`].
pub fn by_index(ifindex: u32) -> Result<LinkInfo, LinkError> {
    get(Request::new(libc::RTM_GETLINK, netlink::NLM_F_ACK, &header(ifindex, 0, 0)))
        .map_err(|e| LinkError::new(ifindex, "look-up", e))
}

/// Maximum number of attempts to list the devices. An attempt fails if devices change during the listing.
const LISTINGS: usize = 32;
/// Minimum number of attempts to list the devices, which are made even if [`LISTING_TIME`] has passed.
const LEAST_LISTINGS: usize = 3;
/// Maximum time for all attempts to list the devices. In a namespace with thousands of devices that change
/// continuously, no attempt succeeds.
const LISTING_TIME: Duration = Duration::from_millis(300);

/// Returns all devices of the calling thread's namespace.
///
/// # Errors
/// [`LinkError`] if the kernel refuses the request. The error number is `EAGAIN` if changes
/// interrupted every attempt.
#[allow(clippy::disallowed_methods, reason = "for control threads")]
pub fn list() -> Result<Vec<LinkInfo>, LinkError> {
    let list = || {
        let mut netlink = Netlink::open()?;
        let begin = Instant::now();
        for attempt in 0..LISTINGS {
            if attempt >= LEAST_LISTINGS && begin.elapsed() > LISTING_TIME {
                break;
            }
            let mut found = Vec::new();
            let request = Request::new(libc::RTM_GETLINK, netlink::NLM_F_DUMP, &header(0, 0, 0));
            let whole =
                netlink.dump(request, |message| found.extend(parse(message.kind, message.payload)))?;
            // A listing that was interrupted by changes may lack existing devices.
            if whole {
                return Ok(found);
            }
        }
        Err(NetlinkError::Socket(std::io::Error::from_raw_os_error(libc::EAGAIN)))
    };
    list().map_err(|e| LinkError::new("list", "listing", e))
}

fn get(request: Request) -> Result<LinkInfo, NetlinkError> {
    let messages = Netlink::open()?.transact(request)?;
    let missing = || NetlinkError::Socket(std::io::Error::from_raw_os_error(libc::ENODEV));
    messages.iter().find_map(|message| parse(message.kind, &message.payload)).ok_or_else(missing)
}

/// Parses an RTM_NEWLINK or RTM_DELLINK message. Returns `None` for messages of family AF_BRIDGE, which describe bridge
/// ports. In this family, RTM_DELLINK means only that a device has left a bridge, and the device still exists.
pub(crate) fn parse(kind: u16, payload: &[u8]) -> Option<LinkInfo> {
    if kind != libc::RTM_NEWLINK && kind != libc::RTM_DELLINK || *payload.first()? != 0 {
        return None;
    }
    let flags = netlink::u32_at(payload, 8)?;
    let mut info = LinkInfo {
        ifindex: netlink::u32_at(payload, 4)?,
        name: String::new(),
        mtu: 0,
        mac: None,
        up: flags & IFF_UP != 0,
        running: flags & IFF_LOWER_UP != 0,
        arp: flags & IFF_NOARP == 0,
        promiscuous: flags & IFF_PROMISC != 0,
        alias: None,
        group: 0,
        kind: None,
        peer: None,
        peer_elsewhere: false,
        rx_queues: 1,
        tx_queues: 1,
        xdp: None,
    };
    for (kind, value) in netlink::attributes(payload.get(16..)?) {
        match kind {
            IFLA_ADDRESS => info.mac = <[u8; 6]>::try_from(value).ok().map(MacAddr::from),
            IFLA_IFNAME => info.name = netlink::text(value),
            IFLA_MTU => info.mtu = netlink::u32_at(value, 0)?,
            IFLA_LINK => info.peer = netlink::u32_at(value, 0),
            IFLA_LINK_NETNSID => info.peer_elsewhere = true,
            IFLA_IFALIAS => info.alias = Some(netlink::text(value)),
            IFLA_GROUP => info.group = netlink::u32_at(value, 0)?,
            IFLA_NUM_TX_QUEUES => info.tx_queues = netlink::u32_at(value, 0)?,
            IFLA_NUM_RX_QUEUES => info.rx_queues = netlink::u32_at(value, 0)?,
            IFLA_LINKINFO => {
                let found = netlink::attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                info.kind = found.map(|(_, value)| netlink::text(value));
            }
            IFLA_XDP => {
                let found = netlink::attributes(value).find(|(kind, _)| *kind == IFLA_XDP_ATTACHED);
                info.xdp = match found.and_then(|(_, value)| value.first()) {
                    None | Some(&XDP_ATTACHED_NONE) => None,
                    Some(&XDP_ATTACHED_DRV) => Some(XdpAttached::Native),
                    Some(&XDP_ATTACHED_SKB) => Some(XdpAttached::Generic),
                    Some(_) => Some(XdpAttached::Other),
                };
            }
            _ => {}
        }
    }
    Some(info)
}

/// Sends a request and waits for the kernel's acknowledgement.
pub(crate) fn transact(request: Request) -> Result<(), NetlinkError> {
    Netlink::open()?.transact(request).map(drop)
}

/// Changes the settings of the device with interface index `ifindex`.
///
/// # Errors
/// [`LinkError`] if the kernel refuses the change.
pub fn set(ifindex: u32, change: &LinkChange<'_>) -> Result<(), LinkError> {
    let (mut flags, mut mask) = (0, 0);
    let flag_changes =
        [(change.up, IFF_UP), (change.arp.map(|arp| !arp), IFF_NOARP), (change.promiscuous, IFF_PROMISC)];
    for (wanted, bit) in flag_changes {
        if let Some(on) = wanted {
            mask |= bit;
            flags |= if on { bit } else { 0 };
        }
    }
    let mut request = Request::new(libc::RTM_NEWLINK, netlink::NLM_F_ACK, &header(ifindex, flags, mask));
    if let Some(mtu) = change.mtu {
        request.number(IFLA_MTU, mtu);
    }
    if let Some(mac) = change.mac {
        request.attribute(IFLA_ADDRESS, &mac.0);
    }
    if let Some(name) = change.name {
        request.text(IFLA_IFNAME, name);
    }
    if let Some(alias) = change.alias {
        request.attribute(IFLA_IFALIAS, alias.as_bytes());
    }
    if let Some(group) = change.group {
        request.number(IFLA_GROUP, group);
    }
    transact(request).map_err(|e| LinkError::new(ifindex, "change", e))
}

/// Deletes the device with the given name. If the device is a veth device, its peer is deleted as well.
///
/// # Errors
/// [`LinkError`]. The error number is `ENODEV` if there is no such device.
pub fn delete(name: &str) -> Result<(), LinkError> {
    let info = find(name)?;
    transact(Request::new(libc::RTM_DELLINK, netlink::NLM_F_ACK, &header(info.ifindex, 0, 0)))
        .map_err(|e| LinkError::new(name, "deletion", e))
}

/// Returns the IPv4 addresses of all devices in the calling thread's namespace, each with the interface index
/// of its device.
///
/// # Errors
/// [`LinkError`] when the kernel refuses the request.
pub fn addresses_v4() -> Result<Vec<(u32, Ipv4Addr)>, LinkError> {
    let any = InterfaceAddress { address: Ipv4Addr::UNSPECIFIED.into(), prefix: 0 };
    let body = address_header(0, any, 0);
    let request = Request::new(libc::RTM_GETADDR, netlink::NLM_F_DUMP, &body);
    let messages = Netlink::open()
        .and_then(|mut netlink| netlink.transact(request))
        .map_err(|e| LinkError::new("list", "listing addresses", e))?;
    let local = |message: &Message| {
        // struct ifaddrmsg: the interface index is the last field.
        let (head, attributes) = message.payload.split_first_chunk::<8>()?;
        let [_, _, _, _, index @ ..] = head;
        let found = netlink::attributes(attributes).find(|(kind, _)| *kind == IFA_LOCAL);
        let (_, value) = found.filter(|_| message.kind == libc::RTM_NEWADDR)?;
        Some((u32::from_ne_bytes(*index), <[u8; 4]>::try_from(value).ok()?.into()))
    };
    Ok(messages.iter().filter_map(local).collect())
}

/// Adds an address to a device. The call succeeds if the device already has the address.
///
/// # Errors
/// [`LinkError`] when the kernel refuses the change.
pub fn add_address(ifindex: u32, address: InterfaceAddress) -> Result<(), LinkError> {
    // IFA_F_NODAD for IPv6: the address must be usable at once, and duplicate addresses are the operator's
    // responsibility.
    let body = address_header(ifindex, address, if address.address.is_ipv6() { IFA_F_NODAD } else { 0 });
    let bytes = octets(address.address);
    let flags = netlink::NLM_F_ACK | netlink::NLM_F_CREATE | netlink::NLM_F_REPLACE;
    let mut request = Request::new(libc::RTM_NEWADDR, flags, &body);
    request.attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes);
    transact(request).map_err(|e| LinkError::new(ifindex, "setting an address", e))
}

/// Removes an address from a device. The call succeeds if the device does not have the address. If the
/// removed address is the device's primary IPv4 address of a network, the kernel may also remove the
/// secondary addresses of this network.
///
/// # Errors
/// [`LinkError`] when the kernel refuses the change.
pub fn remove_address(ifindex: u32, address: InterfaceAddress) -> Result<(), LinkError> {
    let mut request =
        Request::new(libc::RTM_DELADDR, netlink::NLM_F_ACK, &address_header(ifindex, address, 0));
    request.attribute(IFA_LOCAL, &octets(address.address));
    match transact(request) {
        Err(error) if error.errno() != libc::EADDRNOTAVAIL => {
            Err(LinkError::new(ifindex, "taking an address away", error))
        }
        _ => Ok(()),
    }
}

/// Informs the kernel that neighbours are in use (`NTF_USE`). The kernel then resolves neighbours that are not in its
/// neighbour table, and revalidates other neighbours before their entries expire. Each neighbour consists of an
/// interface index and an address. Returns the number of neighbours that the kernel refused, for example because the
/// device is down.
///
/// # Errors
/// [`LinkError`] if no netlink socket can be opened.
pub fn use_neighbours(neighbours: impl IntoIterator<Item = (u32, IpAddr)>) -> Result<usize, LinkError> {
    let mut socket = Netlink::open().map_err(|e| LinkError::new(0, "opening a socket", e))?;
    let mut refused = 0;
    for (ifindex, address) in neighbours {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // `struct ndmsg`: family, index, state, flags, kind.
        let mut body = [0; 12];
        body[0] = u8::try_from(family).unwrap_or(0);
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        body[10] = NTF_USE;
        let flags = netlink::NLM_F_ACK | netlink::NLM_F_CREATE;
        let mut request = Request::new(libc::RTM_NEWNEIGH, flags, &body);
        request.attribute(NDA_DST, &octets(address));
        refused += usize::from(socket.transact(request).is_err());
    }
    Ok(refused)
}

/// Builds the bytes of a `struct ifaddrmsg`.
fn address_header(ifindex: u32, address: InterfaceAddress, flags: u8) -> [u8; 8] {
    let family = if address.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = [u8::try_from(family).unwrap_or(0), address.prefix, flags, 0, 0, 0, 0, 0];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Disables the kernel's IPv6 on a device. The device then has no IPv6 link-local address, and performs no neighbour or
/// router discovery.
///
/// # Errors
/// The error of writing the sysctl. The call succeeds if the kernel does not support IPv6.
pub fn disable_ipv6(name: &str) -> std::io::Result<()> {
    crate::sys::set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")
}

/// Enables the kernel's IPv6 on a device. IPv6 addresses that the device had before are not restored.
///
/// # Errors
/// The errors of [`disable_ipv6`].
pub fn enable_ipv6(name: &str) -> std::io::Result<()> {
    crate::sys::set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")
}

/// Returns whether the kernel's IPv6 is enabled on a device. The name `default` refers to the setting for
/// devices that are created later.
#[must_use]
pub fn has_ipv6(name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"))
        .is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_name_index_and_in_the_list() {
        let lo = find("lo").unwrap();
        assert_eq!(lo.name, "lo");
        assert_eq!(by_index(lo.ifindex).unwrap(), lo);
        assert!(list().unwrap().contains(&lo));
    }

    #[test]
    fn loopbacks_address_is_among_all() {
        let lo = find("lo").unwrap();
        assert!(!lo.up || addresses_v4().unwrap().contains(&(lo.ifindex, Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn a_missing_device_is_named_with_cause_and_next_step() {
        let error = find("no-such-dev0").unwrap_err();
        assert_eq!(error.errno(), libc::ENODEV);
        let text = error.to_string();
        assert!(text.contains("no-such-dev0") && text.contains("ip link"), "{text}");
    }
}
