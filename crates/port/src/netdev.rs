//! Client of the kernel's generic netlink family `netdev` (`Documentation/netlink/specs/netdev.yaml`). A
//! request returns either all devices of a namespace or one device.

use std::collections::BTreeMap;

use rustix::net::netlink::GENERIC;

use crate::netlink::{self, Message, NLM_F_ACK, NLM_F_DUMP, Netlink, NetlinkError, Request};

/// `GENL_ID_CTRL`: message type of the generic netlink controller.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_QUEUE_GET: u8 = 10;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_QUEUE_ID: u16 = 1;
const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
const NETDEV_A_QUEUE_TYPE: u16 = 3;
const NETDEV_A_QUEUE_XSK: u16 = 7;
const NETDEV_QUEUE_TYPE_RX: u32 = 0;

/// Builds the bytes of a `struct genlmsghdr`.
fn header(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

fn attribute(message: &Message, wanted: u16) -> Option<&[u8]> {
    netlink::attributes(message.payload.get(4..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// XDP feature `NETDEV_XDP_ACT_XSK_ZEROCOPY`: the driver supports AF_XDP sockets in zero-copy mode.
pub const XSK_ZERO_COPY: u64 = 1 << 3;

/// Opens a netlink socket, and queries the message type that the kernel has assigned to the family `netdev`.
/// Returns `None` if the kernel does not have the family (before Linux 6.3).
fn open() -> Result<Option<(Netlink, u16)>, NetlinkError> {
    let mut socket = Netlink::open_for(Some(GENERIC))?;
    let mut request = Request::new(CONTROLLER, NLM_F_ACK, &header(CTRL_CMD_GETFAMILY));
    request.text(CTRL_ATTR_FAMILY_NAME, "netdev");
    let answer = match socket.transact(request) {
        Err(error) if error.errno() == libc::ENOENT => return Ok(None),
        answer => answer?,
    };
    let id = |message: &Message| netlink::u16_at(attribute(message, CTRL_ATTR_FAMILY_ID)?, 0);
    Ok(answer.iter().find_map(id).map(|family| (socket, family)))
}

/// Returns the interface index and the XDP features of the device that a message describes. Returns `None` if
/// an attribute is missing.
fn features(device: &Message) -> Option<(u32, u64)> {
    let ifindex = netlink::u32_at(attribute(device, NETDEV_A_DEV_IFINDEX)?, 0)?;
    let bits = attribute(device, NETDEV_A_DEV_XDP_FEATURES)?.try_into().ok().map(u64::from_ne_bytes)?;
    Some((ifindex, bits))
}

/// Returns the XDP features (`enum netdev_xdp_act`) of all devices in the calling thread's namespace, by
/// interface index. The result is empty before Linux 6.3, because the kernel does not report the features.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses the request.
pub fn xdp_features() -> Result<BTreeMap<u32, u64>, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(BTreeMap::new()) };
    let devices = socket.transact(Request::new(family, NLM_F_DUMP, &header(NETDEV_CMD_DEV_GET)))?;
    Ok(devices.iter().filter_map(features).collect())
}

/// Returns the XDP features (`enum netdev_xdp_act`) of one device in the calling thread's namespace. Returns
/// `None` before Linux 6.3, because the kernel does not report the features.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses the request or there is no such device.
pub fn xdp_features_of(ifindex: u32) -> Result<Option<u64>, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(None) };
    ask(&mut socket, family, ifindex)
}

/// Returns the XDP features (`enum netdev_xdp_act`) of the given devices in the calling thread's namespace, by
/// interface index. The cost does not depend on the number of other devices in the namespace. The result does not
/// contain devices that do not exist. The result is empty before Linux 6.3, because the kernel does not report the
/// features.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses a request.
pub fn xdp_features_among(
    devices: impl IntoIterator<Item = u32>,
) -> Result<BTreeMap<u32, u64>, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(BTreeMap::new()) };
    let mut found = BTreeMap::new();
    for ifindex in devices {
        match ask(&mut socket, family, ifindex) {
            Err(error) if error.errno() == libc::ENODEV => {}
            bits => found.extend(bits?.map(|bits| (ifindex, bits))),
        }
    }
    Ok(found)
}

/// Queries the XDP features of one device.
fn ask(socket: &mut Netlink, family: u16, ifindex: u32) -> Result<Option<u64>, NetlinkError> {
    let mut request = Request::new(family, NLM_F_ACK, &header(NETDEV_CMD_DEV_GET));
    request.number(NETDEV_A_DEV_IFINDEX, ifindex);
    let answer = socket.transact(request)?;
    Ok(answer.iter().filter_map(features).find(|device| device.0 == ifindex).map(|device| device.1))
}

/// Returns whether an AF_XDP socket is bound to a receive queue of a device in the calling thread's
/// namespace. The queue counts as bound until the kernel has released a closed socket. The result
/// is false before Linux 6.15, because the kernel does not report the sockets. The result is also
/// false for a device that is administratively down.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses the request or there is no such queue.
pub fn has_xsk(ifindex: u32, queue: u32) -> Result<bool, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(false) };
    let mut request = Request::new(family, NLM_F_ACK, &header(NETDEV_CMD_QUEUE_GET));
    request.number(NETDEV_A_QUEUE_IFINDEX, ifindex);
    request.number(NETDEV_A_QUEUE_TYPE, NETDEV_QUEUE_TYPE_RX);
    request.number(NETDEV_A_QUEUE_ID, queue);
    let answer = socket.transact(request)?;
    Ok(answer.iter().any(|queue| attribute(queue, NETDEV_A_QUEUE_XSK).is_some()))
}
