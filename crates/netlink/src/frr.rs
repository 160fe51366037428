//! Protocol numbers of FRR's routes (`RTPROT_*`).

use crate::rtnetlink::protocol::{RTPROT_BABEL, RTPROT_BGP, RTPROT_SRTE, RTPROT_ZEBRA};

/// Returns whether routes with this protocol number (`RTPROT_*`) come from FRR's daemons. Routes that zebra only
/// learned from the kernel have other protocols. FRR uses the numbers from `RTPROT_BGP` to `RTPROT_SRTE`
/// (`zebra/rt_netlink.h`), for example for OSPF, RIP and FRR's static routes.
pub(crate) fn is_frrs(protocol: u8) -> bool {
    matches!(protocol, RTPROT_ZEBRA | RTPROT_BABEL | RTPROT_BGP..=RTPROT_SRTE)
}
