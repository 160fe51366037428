//! Route protocols of FRR's daemons.

use crate::rtnetlink::protocol::{RTPROT_BABEL, RTPROT_BGP, RTPROT_SRTE, RTPROT_ZEBRA};

/// Returns whether FRR's daemons create routes of this protocol. Routes that zebra only learned from the
/// kernel have other protocols. FRR has protocols of its own from `RTPROT_BGP` to `RTPROT_SRTE`
/// (`zebra/rt_netlink.h`), such as OSPF, RIP and FRR's static routes.
pub(crate) fn is_frrs(protocol: u8) -> bool {
    matches!(protocol, RTPROT_ZEBRA | RTPROT_BABEL | RTPROT_BGP..=RTPROT_SRTE)
}
