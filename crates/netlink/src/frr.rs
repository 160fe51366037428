//! Route protocols of FRR's daemons.

pub(crate) const RTPROT_ZEBRA: u8 = 11;
const RTPROT_BABEL: u8 = 42;
/// Range of FRR protocols from `RTPROT_BGP` to the last one (`zebra/rt_netlink.h`), such as OSPF, RIP and
/// FRR's static routes.
const FRRS: std::ops::RangeInclusive<u8> = 186..=198;

/// Returns whether FRR's daemons create routes of this protocol. Routes that zebra only learned from the
/// kernel have other protocols.
pub(crate) fn is_frrs(protocol: u8) -> bool {
    protocol == RTPROT_ZEBRA || protocol == RTPROT_BABEL || FRRS.contains(&protocol)
}
