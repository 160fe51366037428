//! Constants for fields and actions of flow entries: EtherTypes and IP protocols in the width of a field's value,
//! and the reasons of packet-ins.

/// EtherTypes as values of the match field `eth_type`. See [`packet::ethertype`].
pub(crate) mod eth_type {
    use packet::ethertype;

    pub const IPV4: u128 = ethertype::IPV4 as u128;
    pub const IPV6: u128 = ethertype::IPV6 as u128;
    pub const ARP: u128 = ethertype::ARP as u128;
    pub const RARP: u128 = ethertype::RARP as u128;
    pub const MPLS: u128 = ethertype::MPLS as u128;
    pub const MPLS_MULTICAST: u128 = ethertype::MPLS_MULTICAST as u128;
    pub const PBB: u128 = ethertype::PBB as u128;
}

/// IP protocol numbers as values of the match field `ip_proto`. See [`packet::ip_proto`].
pub(crate) mod proto {
    use packet::ip_proto;

    pub const ICMP: u128 = ip_proto::ICMP as u128;
    pub const IGMP: u128 = ip_proto::IGMP as u128;
    pub const TCP: u128 = ip_proto::TCP as u128;
    pub const UDP: u128 = ip_proto::UDP as u128;
    pub const ICMPV6: u128 = ip_proto::ICMPV6 as u128;
    pub const SCTP: u128 = ip_proto::SCTP as u128;
}

/// Numbers of the reasons for packet-ins (OFPR_*), as the controller action states them.
pub(crate) mod reason {
    use crate::flow::Reason;

    pub const NO_MATCH: u8 = Reason::NoMatch.asked_as();
    pub const ACTION: u8 = Reason::Action.asked_as();
    pub const INVALID_TTL: u8 = Reason::InvalidTtl.asked_as();
    pub const ACTION_SET: u8 = Reason::ActionSet.asked_as();
    pub const GROUP: u8 = Reason::Group.asked_as();
    pub const PACKET_OUT: u8 = Reason::PacketOut.asked_as();
}
