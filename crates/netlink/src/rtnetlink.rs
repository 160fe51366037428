//! Constants of the kernel's rtnetlink interface, with the kernel's names. Each module holds the constants of
//! one kind of object, and names the kernel header that defines them.

/// Address families (`linux/socket.h`), which the first byte of each message contains.
pub(crate) mod family {
    pub(crate) const AF_UNSPEC: u8 = 0;
    pub(crate) const AF_INET: u8 = 2;
    pub(crate) const AF_INET6: u8 = 10;
}

/// Types of rtnetlink messages (`linux/rtnetlink.h`).
pub(crate) mod message {
    pub(crate) const RTM_NEWLINK: u16 = 16;
    pub(crate) const RTM_DELLINK: u16 = 17;
    pub(crate) const RTM_GETLINK: u16 = 18;
    pub(crate) const RTM_NEWADDR: u16 = 20;
    pub(crate) const RTM_DELADDR: u16 = 21;
    pub(crate) const RTM_GETADDR: u16 = 22;
    pub(crate) const RTM_NEWROUTE: u16 = 24;
    pub(crate) const RTM_DELROUTE: u16 = 25;
    pub(crate) const RTM_GETROUTE: u16 = 26;
    pub(crate) const RTM_NEWNEIGH: u16 = 28;
    pub(crate) const RTM_DELNEIGH: u16 = 29;
    pub(crate) const RTM_GETNEIGH: u16 = 30;
    pub(crate) const RTM_NEWRULE: u16 = 32;
    pub(crate) const RTM_DELRULE: u16 = 33;
    pub(crate) const RTM_GETRULE: u16 = 34;
    pub(crate) const RTM_NEWNETCONF: u16 = 80;
    pub(crate) const RTM_DELNETCONF: u16 = 81;
    pub(crate) const RTM_GETNETCONF: u16 = 82;
    pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
    pub(crate) const RTM_DELNEXTHOP: u16 = 105;
    pub(crate) const RTM_GETNEXTHOP: u16 = 106;
}

/// Netlink multicast groups of notifications (`linux/rtnetlink.h`).
pub(crate) mod group {
    pub(crate) const RTNLGRP_LINK: u32 = 1;
    pub(crate) const RTNLGRP_NEIGH: u32 = 3;
    pub(crate) const RTNLGRP_IPV4_IFADDR: u32 = 5;
    pub(crate) const RTNLGRP_IPV4_ROUTE: u32 = 7;
    pub(crate) const RTNLGRP_IPV4_RULE: u32 = 8;
    pub(crate) const RTNLGRP_IPV6_IFADDR: u32 = 9;
    pub(crate) const RTNLGRP_IPV6_ROUTE: u32 = 11;
    pub(crate) const RTNLGRP_IPV6_RULE: u32 = 19;
    pub(crate) const RTNLGRP_IPV4_NETCONF: u32 = 24;
    pub(crate) const RTNLGRP_IPV6_NETCONF: u32 = 25;
    pub(crate) const RTNLGRP_NEXTHOP: u32 = 32;
}

/// Lengths in bytes of the structures at the start of messages and in attributes. Each constant bears the
/// name of its structure.
pub(crate) mod length {
    /// Length of `struct ifinfomsg` in bytes (`linux/rtnetlink.h`).
    pub(crate) const IFINFOMSG: usize = 16;
    /// Length of `struct ifaddrmsg` in bytes (`linux/if_addr.h`).
    pub(crate) const IFADDRMSG: usize = 8;
    /// Length of `struct ndmsg` in bytes (`linux/neighbour.h`).
    pub(crate) const NDMSG: usize = 12;
    /// Length of `struct rtmsg` in bytes (`linux/rtnetlink.h`).
    pub(crate) const RTMSG: usize = 12;
    /// Length of `struct rtnexthop` in bytes (`linux/rtnetlink.h`).
    pub(crate) const RTNEXTHOP: usize = 8;
    /// Length of `struct nhmsg` in bytes (`linux/nexthop.h`).
    pub(crate) const NHMSG: usize = 8;
    /// Length of `struct nexthop_grp` in bytes (`linux/nexthop.h`).
    pub(crate) const NEXTHOP_GRP: usize = 8;
    /// Length of `struct fib_rule_hdr` in bytes (`linux/fib_rules.h`).
    pub(crate) const FIB_RULE_HDR: usize = 12;
    /// Length of `struct netconfmsg` in bytes (`linux/netconf.h`).
    pub(crate) const NETCONFMSG: usize = 4;
}

/// Flags of devices (`linux/if.h`), and attributes of device messages (`linux/if_link.h`).
pub(crate) mod link {
    pub(crate) const IFF_UP: u32 = 1;
    pub(crate) const IFF_RUNNING: u32 = 1 << 6;
    pub(crate) const IFF_LOWER_UP: u32 = 1 << 16;

    pub(crate) const IFLA_ADDRESS: u16 = 1;
    pub(crate) const IFLA_IFNAME: u16 = 3;
    pub(crate) const IFLA_MTU: u16 = 4;
    pub(crate) const IFLA_LINK: u16 = 5;
    pub(crate) const IFLA_MASTER: u16 = 10;
    pub(crate) const IFLA_LINKINFO: u16 = 18;
    /// Attribute in `IFLA_LINKINFO`: kind of the device as text.
    pub(crate) const IFLA_INFO_KIND: u16 = 1;
}

/// Attributes and flags of addresses (`linux/if_addr.h`).
pub(crate) mod address {
    pub(crate) const IFA_ADDRESS: u16 = 1;
    pub(crate) const IFA_LOCAL: u16 = 2;
    pub(crate) const IFA_FLAGS: u16 = 8;
    pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;
}

/// Attributes, states and flags of neighbours (`linux/neighbour.h`).
pub(crate) mod neighbour {
    pub(crate) const NDA_DST: u16 = 1;
    pub(crate) const NDA_LLADDR: u16 = 2;
    pub(crate) const NTF_PROXY: u8 = 1 << 3;
    pub(crate) const NUD_REACHABLE: u16 = 0x02;
    pub(crate) const NUD_STALE: u16 = 0x04;
    pub(crate) const NUD_DELAY: u16 = 0x08;
    pub(crate) const NUD_PROBE: u16 = 0x10;
    pub(crate) const NUD_PERMANENT: u16 = 0x80;
}

/// Attributes of next-hop objects (`linux/nexthop.h`).
pub(crate) mod nexthop {
    pub(crate) const NHA_ID: u16 = 1;
    pub(crate) const NHA_GROUP: u16 = 2;
    pub(crate) const NHA_BLACKHOLE: u16 = 4;
    pub(crate) const NHA_OIF: u16 = 5;
    pub(crate) const NHA_GATEWAY: u16 = 6;
    pub(crate) const NHA_ENCAP_TYPE: u16 = 7;
    /// Marks a next-hop object that is used by bridge forwarding tables and not by routes.
    pub(crate) const NHA_FDB: u16 = 11;
    pub(crate) const NHA_RES_GROUP: u16 = 12;
    /// Attribute in `NHA_RES_GROUP`: number of buckets of a resilient next-hop group.
    pub(crate) const NHA_RES_GROUP_BUCKETS: u16 = 1;
}

/// Types, tables, scopes, flags and attributes of routes (`linux/rtnetlink.h`).
pub(crate) mod route {
    pub(crate) const RTN_UNSPEC: u8 = 0;
    pub(crate) const RTN_UNICAST: u8 = 1;
    pub(crate) const RTN_LOCAL: u8 = 2;
    pub(crate) const RTN_BROADCAST: u8 = 3;
    pub(crate) const RTN_ANYCAST: u8 = 4;
    pub(crate) const RTN_MULTICAST: u8 = 5;
    pub(crate) const RTN_BLACKHOLE: u8 = 6;
    pub(crate) const RTN_UNREACHABLE: u8 = 7;
    pub(crate) const RTN_PROHIBIT: u8 = 8;
    pub(crate) const RTN_THROW: u8 = 9;

    pub(crate) const RT_TABLE_UNSPEC: u32 = 0;
    pub(crate) const RT_TABLE_MAIN: u32 = 254;
    /// Number of the local table, which contains the addresses of this host.
    pub const RT_TABLE_LOCAL: u32 = 255;

    pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
    pub(crate) const RT_SCOPE_HOST: u8 = 254;

    pub(crate) const RTM_F_CLONED: u32 = 0x200;
    pub(crate) const RTM_F_OFFLOAD: u32 = 0x4000;
    pub(crate) const RTM_F_OFFLOAD_FAILED: u32 = 0x2000_0000;

    pub(crate) const RTNH_F_DEAD: u32 = 1;
    pub(crate) const RTNH_F_ONLINK: u32 = 4;

    pub(crate) const RTA_DST: u16 = 1;
    pub(crate) const RTA_SRC: u16 = 2;
    pub(crate) const RTA_OIF: u16 = 4;
    pub(crate) const RTA_GATEWAY: u16 = 5;
    pub(crate) const RTA_PRIORITY: u16 = 6;
    pub(crate) const RTA_PREFSRC: u16 = 7;
    pub(crate) const RTA_METRICS: u16 = 8;
    /// Attribute in `RTA_METRICS`: MTU of the route in bytes.
    pub(crate) const RTAX_MTU: u16 = 2;
    pub(crate) const RTA_MULTIPATH: u16 = 9;
    pub(crate) const RTA_TABLE: u16 = 15;
    pub(crate) const RTA_VIA: u16 = 18;
    pub(crate) const RTA_ENCAP_TYPE: u16 = 21;
    pub(crate) const RTA_NH_ID: u16 = 30;
}

/// Origins of routes (`linux/rtnetlink.h`). `zebra/rt_netlink.h` of FRR defines `RTPROT_SRTE`.
pub(crate) mod protocol {
    pub(crate) const RTPROT_RA: u8 = 9;
    pub(crate) const RTPROT_ZEBRA: u8 = 11;
    pub(crate) const RTPROT_BABEL: u8 = 42;
    pub(crate) const RTPROT_BGP: u8 = 186;
    pub(crate) const RTPROT_SRTE: u8 = 198;
}

/// Actions, flags and attributes of policy rules (`linux/fib_rules.h`).
pub(crate) mod rule {
    pub(crate) const FR_ACT_TO_TBL: u8 = 1;
    pub(crate) const FR_ACT_NOP: u8 = 3;
    pub(crate) const FR_ACT_BLACKHOLE: u8 = 6;
    pub(crate) const FR_ACT_UNREACHABLE: u8 = 7;
    pub(crate) const FR_ACT_PROHIBIT: u8 = 8;

    pub(crate) const FIB_RULE_PERMANENT: u32 = 1;
    /// Flag of a rule that selects the packets that do not fulfil its conditions.
    pub(crate) const FIB_RULE_INVERT: u32 = 2;

    pub(crate) const FRA_DST: u16 = 1;
    pub(crate) const FRA_SRC: u16 = 2;
    pub(crate) const FRA_IIFNAME: u16 = 3;
    pub(crate) const FRA_PRIORITY: u16 = 6;
    pub(crate) const FRA_FWMARK: u16 = 10;
    pub(crate) const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
    pub(crate) const FRA_TABLE: u16 = 15;
    pub(crate) const FRA_FWMASK: u16 = 16;
    pub(crate) const FRA_OIFNAME: u16 = 17;
    pub(crate) const FRA_PAD: u16 = 18;
    pub(crate) const FRA_PROTOCOL: u16 = 21;
}

/// Attributes and device indices of forwarding settings (`linux/netconf.h`).
pub(crate) mod netconf {
    pub(crate) const NETCONFA_IFINDEX: u16 = 1;
    pub(crate) const NETCONFA_FORWARDING: u16 = 2;
    pub(crate) const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
    /// Device index for the settings of all devices (-1).
    pub(crate) const NETCONFA_IFINDEX_ALL: u32 = u32::MAX;
    /// Device index for the default settings of new devices (-2).
    pub(crate) const NETCONFA_IFINDEX_DEFAULT: u32 = u32::MAX - 1;
}
