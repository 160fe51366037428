//! Finds the output devices of routes in the kernel (rtnetlink(7), RTM_GETROUTE).

use std::net::IpAddr;

use crate::netlink::{Netlink, NetlinkError, Request, attributes, u16_at, u32_at};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_ACK: u16 = 4;
/// Request flag that asks for the matching route of the routing table with all its next hops, instead of the
/// result of a lookup for one packet.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
/// Length of `struct rtmsg` in bytes. `NEXT_HOP` is the length of `struct rtnexthop` in bytes.
const RTMSG: usize = 12;
const NEXT_HOP: usize = 8;

/// Returns the interface indices of the output devices of the route to an address, in the calling
/// thread's network namespace. If the route has several next hops, the result contains the devices
/// of all next hops.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses the request, for example because there is no route to the address.
pub fn ways_to(address: IpAddr) -> Result<Vec<u32>, NetlinkError> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut body = [0; RTMSG];
    body[0] = family.to_ne_bytes()[0];
    body[1] = u8::try_from(octets.len() * 8).unwrap_or(128);
    body[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let mut request = Request::new(RTM_GETROUTE, NLM_F_ACK, &body);
    request.attribute(RTA_DST, &octets);
    let mut devices = Vec::new();
    for answer in Netlink::open()?.transact(request)? {
        if answer.kind != RTM_NEWROUTE {
            continue;
        }
        for (kind, value) in attributes(answer.payload.get(RTMSG..).unwrap_or(&[])) {
            match kind {
                RTA_OIF => devices.extend(u32_at(value, 0)),
                RTA_MULTIPATH => devices.extend(next_hops(value)),
                _ => {}
            }
        }
    }
    devices.sort_unstable();
    devices.dedup();
    Ok(devices)
}

fn next_hops(mut rest: &[u8]) -> Vec<u32> {
    let mut devices = Vec::new();
    while let (Some(length), Some(device)) = (u16_at(rest, 0), u32_at(rest, 4)) {
        devices.push(device);
        let length = usize::from(length).max(NEXT_HOP).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or(&[]);
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_reached_by_the_loopback_device() {
        let loopback = crate::link::find("lo").unwrap().ifindex;
        for address in ["127.0.0.1", "::1"] {
            assert_eq!(ways_to(address.parse().unwrap()).unwrap(), [loopback], "{address}");
        }
    }

    #[test]
    fn every_next_hop_counts() {
        let hop = |device: u32, more: &[u8]| {
            let length = u16::try_from(NEXT_HOP + more.len()).unwrap();
            [&length.to_ne_bytes()[..], &[0, 0], &device.to_ne_bytes(), more].concat()
        };
        let two = [hop(3, &[8, 0, 5, 0, 10, 0, 0, 1]), hop(7, &[])].concat();
        assert_eq!(next_hops(&two), [3, 7]);
        assert_eq!(next_hops(&two[..10]), [3]);
    }
}
