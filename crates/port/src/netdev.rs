//! What the kernel's `netdev` generic netlink family tells of devices (`Documentation/netlink/specs/netdev.yaml`): one dump for all
//! devices of a namespace.

use std::collections::BTreeSet;

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
/// NETDEV_XDP_ACT_NDO_XMIT
const NDO_XMIT: u64 = 1 << 2;

/// `struct genlmsghdr`.
fn header(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

fn attribute(message: &Message, wanted: u16) -> Option<&[u8]> {
    netlink::attributes(message.payload.get(4..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Returns the numbers of the devices in the calling thread's namespace that take redirected frames (`ndo_xdp_xmit`); none on kernels before
/// 6.3, which do not tell. A veth is among them only while its peer runs XDP or GRO.
///
/// # Errors
/// [`NetlinkError`] when the kernel refuses.
pub fn redirect_targets() -> Result<BTreeSet<u32>, NetlinkError> {
    let mut socket = Netlink::open_for(Some(GENERIC))?;
    let mut request = Request::new(CONTROLLER, NLM_F_ACK, &header(CTRL_CMD_GETFAMILY));
    request.text(CTRL_ATTR_FAMILY_NAME, "netdev");
    let answer = match socket.transact(request) {
        Err(error) if error.errno() == libc::ENOENT => return Ok(BTreeSet::new()),
        answer => answer?,
    };
    let id = |message: &Message| netlink::u16_at(attribute(message, CTRL_ATTR_FAMILY_ID)?, 0);
    let Some(family) = answer.iter().find_map(id) else { return Ok(BTreeSet::new()) };
    let devices = socket.transact(Request::new(family, NLM_F_DUMP, &header(NETDEV_CMD_DEV_GET)))?;
    let target = |device: &Message| {
        let features =
            attribute(device, NETDEV_A_DEV_XDP_FEATURES)?.try_into().ok().map(u64::from_ne_bytes)?;
        let ifindex = netlink::u32_at(attribute(device, NETDEV_A_DEV_IFINDEX)?, 0)?;
        (features & NDO_XMIT != 0).then_some(ifindex)
    };
    Ok(devices.iter().filter_map(target).collect())
}
