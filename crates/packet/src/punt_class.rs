//! Classes of packets that a router punts to the kernel. Each class has its own rate limit. Therefore a flood
//! of packets of one class does not starve another class.
//!
//! Each protocol that the kernel or one of its routing daemons handles has a class. Other packets are classified by
//! the reason why the router does not forward them itself.

use crate::{FlowKey, L3Kind, PortId, ethertype, ip_proto};

macro_rules! classes {
    ($($variant:ident = $name:literal, $explain:literal;)+) => {
        /// Class of packets that a router punts to the kernel or answers with an ICMP error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PuntClass {
            $(#[doc = $explain] $variant,)+
        }

        impl PuntClass {
            /// All classes in the order of their indexes.
            pub const ALL: [PuntClass; PuntClass::COUNT] = [$(PuntClass::$variant,)+];
            /// Number of punt classes.
            pub const COUNT: usize = [$($name,)+].len();

            /// Returns the stable name of the class in kebab case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(PuntClass::$variant => $name,)+
                }
            }
        }
    };
}

classes! {
    Session = "session", "Segments of BGP's established sessions.";
    Peer = "peer", "Known peers on a link: OSPF and BFD of one hop from gateways that routes use, and from ends of BGP's sessions.";
    PeerMultihop = "peer-multihop", "BFD of several hops (RFC 5883) from ends of BGP's sessions, and DHCP from servers of the relay.";
    Neighbour = "neighbour", "ARP, neighbour discovery and DHCP of neighbours that are known, or that are asked for.";
    Arp = "arp", "ARP (RFC 826).";
    Nd = "nd", "Neighbour discovery (RFC 4861) without routers' part.";
    Ra = "ra", "Router solicitations and advertisements (RFC 4861).";
    Ospf = "ospf", "OSPF of either version (RFC 2328, RFC 5340).";
    Isis = "isis", "IS-IS (ISO 10589).";
    Rip = "rip", "RIP (RFC 2453).";
    Ripng = "ripng", "RIPng (RFC 2080).";
    Bfd = "bfd", "BFD: of one hop and its echo, of several hops, of links in a bundle (RFC 5881, RFC 5883, RFC 7130).";
    Bgp = "bgp", "BGP (RFC 4271).";
    Vrrp = "vrrp", "VRRP (RFC 9568).";
    Lacp = "lacp", "LACP and its kin, the slow protocols (IEEE 802.3 annex 57A).";
    Lldp = "lldp", "LLDP (IEEE 802.1AB).";
    Dhcp = "dhcp", "DHCP of either version (RFC 2131, RFC 8415).";
    Igmp = "igmp", "IGMP (RFC 3376).";
    Mld = "mld", "MLD (RFC 3810).";
    NotIp = "not-ip", "Other protocols that are no IP, and tags of VLANs that are no interfaces.";
    Group = "group", "For other groups, or for all hosts of the link.";
    Own = "own", "For this host.";
    Expired = "expired", "Hops used up.";
    NoRoute = "no-route", "No route, or one that refuses.";
    Unresolved = "unresolved", "The next hop's link-layer address is not known.";
    TooLong = "too-long", "Longer than the way out allows.";
    Options = "options", "Options that every router reads.";
    Scope = "scope", "An address that counts on its link only.";
    Elsewhere = "elsewhere", "The way out is a device that is none of the router's ports.";
    NotRouted = "not-routed", "Its family is not routed where it came in.";
    Errors = "errors", "Not given to the kernel: ICMP errors that workers make themselves.";
}

/// First three octets of the LLC header of IS-IS: destination SAP, source SAP, and "unnumbered information"
/// (ISO 10589 section 9.1, IEEE 802.2).
const LLC_ISIS: [u8; 3] = [0xfe, 0xfe, 0x03];

impl PuntClass {
    /// Returns the class of a frame's protocol, even if the frame is malformed. Returns `None` if
    /// no class exists for the protocol.
    ///
    /// `head` holds the first octets of the frame, and `len` is the length of the whole frame in octets. The
    /// function returns `None` for later fragments of protocols that are recognised by their port.
    #[must_use]
    pub fn of_protocol(head: &[u8], len: usize) -> Option<PuntClass> {
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(head, len, PortId(0), &mut key).ok()?;
        match key.eth_type() {
            ethertype::ARP => return Some(PuntClass::Arp),
            ethertype::SLOW => return Some(PuntClass::Lacp),
            ethertype::LLDP => return Some(PuntClass::Lldp),
            ethertype::LLC => {
                let llc = head.get(layers.l2_len()..)?.first_chunk::<3>()?;
                return (*llc == LLC_ISIS).then_some(PuntClass::Isis);
            }
            _ => {}
        }
        let six = match key.l3_kind() {
            L3Kind::Ipv4 => false,
            L3Kind::Ipv6 => true,
            L3Kind::None | L3Kind::Arp => return None,
        };
        match (key.proto(), six) {
            (ip_proto::OSPF, _) => Some(PuntClass::Ospf),
            (ip_proto::VRRP, _) => Some(PuntClass::Vrrp),
            (ip_proto::IGMP, false) => Some(PuntClass::Igmp),
            _ if layers.l4().is_none() || key.is_later_fragment() => None,
            (ip_proto::ICMPV6, true) => match key.src_port() {
                133 | 134 => Some(PuntClass::Ra),
                135..=137 => Some(PuntClass::Nd),
                130..=132 | 143 => Some(PuntClass::Mld),
                _ => None,
            },
            (ip_proto::TCP, _) => (key.src_port() == 179 || key.dst_port() == 179).then_some(PuntClass::Bgp),
            (ip_proto::UDP, _) => match key.dst_port() {
                67 | 68 | 546 | 547 => Some(PuntClass::Dhcp),
                520 => Some(PuntClass::Rip),
                521 => Some(PuntClass::Ripng),
                3784 | 3785 | 4784 | 6784 => Some(PuntClass::Bfd),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PuntClass::{self, *};
    use crate::spec;

    fn class(text: &str) -> Option<PuntClass> {
        let frame = spec::parse(text).unwrap();
        PuntClass::of_protocol(&frame, frame.len())
    }

    #[test]
    fn protocols_have_their_classes() {
        for (text, expected) in [
            ("arp", Some(Arp)),
            ("vlan=7,arp", Some(Arp)),
            ("ip_dst=224.0.0.5,ip_proto=89", Some(Ospf)),
            ("ip_src=fe80::1,ip_dst=ff02::5,ip_proto=89", Some(Ospf)),
            ("ip_dst=224.0.0.18,ip_proto=112", Some(Vrrp)),
            ("ip_dst=224.0.0.9,udp,dst_port=520", Some(Rip)),
            ("ip_src=fe80::1,ip_dst=ff02::9,udp,dst_port=521", Some(Ripng)),
            ("ip_dst=10.0.0.1,udp,dst_port=3784", Some(Bfd)),
            ("ip_dst=10.0.0.1,udp,src_port=3784,dst_port=9", None),
            ("ip_dst=10.0.0.1,tcp,dst_port=179", Some(Bgp)),
            ("ip_src=2001:db8::1,ip_dst=2001:db8::2,tcp,src_port=179", Some(Bgp)),
            ("ip_dst=10.0.0.1,tcp,dst_port=22", None),
            ("ip_dst=255.255.255.255,udp,dst_port=67", Some(Dhcp)),
            ("ip_src=fe80::1,ip_dst=ff02::1:2,udp,dst_port=547", Some(Dhcp)),
            ("ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=134", Some(Ra)),
            ("ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=135", Some(Nd)),
            ("ip_src=fe80::1,ip_dst=ff02::16,icmpv6,icmp_type=143", Some(Mld)),
            ("ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=128", None),
            ("ip_dst=224.0.0.22,ip_proto=2", Some(Igmp)),
            ("ip_dst=224.0.0.251,udp,dst_port=5353", None),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
        let link = |kind: [u8; 2], rest: [u8; 3]| {
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x0e]);
            frame[12..14].copy_from_slice(&kind);
            frame[14..17].copy_from_slice(&rest);
            PuntClass::of_protocol(&frame, 60)
        };
        assert_eq!(link([0x88, 0xcc], [0; 3]), Some(Lldp));
        assert_eq!(link([0x88, 0x09], [1, 1, 0]), Some(Lacp));
        assert_eq!(link([0, 46], [0xfe, 0xfe, 3]), Some(Isis));
        assert_eq!(link([0, 46], [0x42, 0x42, 3]), None);
        assert_eq!(link([0x88, 0xb5], [0; 3]), None);
        assert_eq!(PuntClass::of_protocol(&[], 0), None);
    }

    /// Checks that a later fragment is not classified by port, because a later fragment has payload
    /// octets at the position of the ports.
    #[test]
    fn a_later_fragment_is_of_no_port() {
        let mut frame = spec::parse("ip_dst=10.0.0.1,udp,dst_port=3784").unwrap();
        frame[21] = 1;
        assert_eq!(PuntClass::of_protocol(&frame, frame.len()), None);
        frame[23] = 89;
        assert_eq!(PuntClass::of_protocol(&frame, frame.len()), Some(Ospf));
    }
}
