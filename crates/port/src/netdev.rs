//! What the kernel's `netdev` generic netlink family tells of devices (`Documentation/netlink/specs/netdev.yaml`): one dump for all
//! devices of a namespace, or one of them.

use std::collections::BTreeMap;

use rustix::net::netlink::GENERIC;

use crate::netlink::{self, Message, NLM_F_ACK, NLM_F_DUMP, Netlink, NetlinkError, Request};

/// GENL_ID_CTRL
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// `struct genlmsghdr`.
fn header(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

fn attribute(message: &Message, wanted: u16) -> Option<&[u8]> {
    netlink::attributes(message.payload.get(4..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`: the driver has AF_XDP sockets without a copy.
pub const XSK_ZERO_COPY: u64 = 1 << 3;

/// A socket for requests, and the number of the family; `None` on kernels before 6.3.
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

/// The number of the device that a message tells of, and its XDP features.
fn features(device: &Message) -> Option<(u32, u64)> {
    let ifindex = netlink::u32_at(attribute(device, NETDEV_A_DEV_IFINDEX)?, 0)?;
    let bits = attribute(device, NETDEV_A_DEV_XDP_FEATURES)?.try_into().ok().map(u64::from_ne_bytes)?;
    Some((ifindex, bits))
}

/// Returns the XDP features (`enum netdev_xdp_act`) of the devices in the calling thread's namespace by ifindex; none on kernels before 6.3,
/// which do not tell.
///
/// # Errors
/// [`NetlinkError`] when the kernel refuses.
pub fn xdp_features() -> Result<BTreeMap<u32, u64>, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(BTreeMap::new()) };
    let devices = socket.transact(Request::new(family, NLM_F_DUMP, &header(NETDEV_CMD_DEV_GET)))?;
    Ok(devices.iter().filter_map(features).collect())
}

/// Returns the XDP features (`enum netdev_xdp_act`) of a device in the calling thread's namespace; `None` on kernels before 6.3, which do
/// not tell.
///
/// # Errors
/// [`NetlinkError`] when the kernel refuses, or has no such device.
pub fn xdp_features_of(ifindex: u32) -> Result<Option<u64>, NetlinkError> {
    let Some((mut socket, family)) = open()? else { return Ok(None) };
    let mut request = Request::new(family, NLM_F_ACK, &header(NETDEV_CMD_DEV_GET));
    request.number(NETDEV_A_DEV_IFINDEX, ifindex);
    let answer = socket.transact(request)?;
    Ok(answer.iter().filter_map(features).find(|device| device.0 == ifindex).map(|device| device.1))
}
