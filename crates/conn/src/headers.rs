//! Fields that the tracker reads from the headers of a packet, and from the packet that an ICMP error quotes.
//!
//! All functions are total.

use packet::icmp::Icmp;
use packet::icmpv6::Icmpv6;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::ipv6_ext::Upper;
use packet::sctp::Sctp;
use packet::tcp::Tcp;
use packet::udp::{self, Udp};
use packet::{DropReason, HeaderError, ip_proto};
use zerocopy::FromBytes;

use crate::layout::Layout;
use crate::sctp;
use crate::tcp::Segment;
use crate::tuple::{Address, End, Query, Side, Tuple};

/// Fields of a packet that the tracker reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<A> {
    /// Tuple of the packet's connection. For an ICMP error: tuple of the quoted packet's connection.
    pub tuple: Tuple<A>,
    /// Side of the packet's source. An ICMP error comes from the side of the quoted packet's destination, or from a
    /// router on the way to that side.
    pub source: Side,
    /// Fields of the protocol above IP.
    pub content: Content,
}

/// Fields of the protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// The packet is a TCP segment.
    Tcp(Segment),
    /// The packet is a UDP datagram.
    Udp,
    /// The packet is an SCTP packet.
    Sctp(sctp::Packet),
    /// The packet is an ICMP or ICMPv6 query.
    Query {
        /// Whether the message is the reply.
        is_reply: bool,
    },
    /// The packet is an ICMP or ICMPv6 error that quotes a packet.
    Error,
    /// The packet has another IP protocol.
    Other,
}

/// Reason for which a packet has no tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoTuple {
    /// The packet is a fragment. Only the reassembled packet has a tuple.
    Fragment,
    /// A header is incomplete, or has a field with an invalid value.
    Header(DropReason),
    /// The packet is an ICMP or ICMPv6 message that is neither a query nor an error, for example neighbour discovery.
    Message,
    /// The packet is an ICMP or ICMPv6 error, and the quoted packet has no tuple, or was not sent by the receiver of
    /// the error.
    Quote,
}

/// Part of a packet whose bytes are present.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All bytes are present.
    Whole,
    /// The bytes of the first fragment are present. The payload of a TCP segment is the part in this fragment, the
    /// length field of UDP is not checked, and an SCTP chunk may be incomplete.
    FirstFragment,
}

impl From<HeaderError> for NoTuple {
    fn from(error: HeaderError) -> NoTuple {
        NoTuple::Header(error.reason())
    }
}

impl Packet<u32> {
    /// Reads the headers of an IPv4 packet. The caller has checked the checksums.
    ///
    /// # Errors
    /// Returns the reason for which the packet has no tuple.
    pub fn of_ipv4(packet: &Ipv4<'_>, zone: u16) -> Result<Packet<u32>, NoTuple> {
        if packet.is_fragment() {
            return Err(NoTuple::Fragment);
        }
        Packet::of_ipv4_part(packet, zone, Part::Whole)
    }

    /// Reads the headers of an IPv4 packet or of its first fragment.
    pub(crate) fn of_ipv4_part(packet: &Ipv4<'_>, zone: u16, part: Part) -> Result<Packet<u32>, NoTuple> {
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        let bytes = packet.payload();
        if packet.proto() != ip_proto::ICMP {
            return of_transport(zone, packet.proto(), [source, destination], bytes, part);
        }
        let message = Icmp::parse(bytes)?;
        if message.is_error() {
            let quote = message.payload();
            return of_error(zone, destination, quote, Layout::of_ipv4(quote), Query::of_icmp);
        }
        of_query(zone, ip_proto::ICMP, source, destination, Query::of_icmp(bytes))
    }
}

impl Packet<u128> {
    /// Reads the headers of an IPv6 packet. The caller has checked the checksums.
    ///
    /// # Errors
    /// Returns the reason for which the packet has no tuple.
    pub fn of_ipv6(packet: &Ipv6<'_>, zone: u16) -> Result<Packet<u128>, NoTuple> {
        let upper = packet.upper()?;
        if upper.fragment.is_some() {
            return Err(NoTuple::Fragment);
        }
        Packet::of_ipv6_part(packet, &upper, zone, Part::Whole)
    }

    /// Reads the headers of an IPv6 packet or of its first fragment. `upper` is the upper layer of the packet.
    pub(crate) fn of_ipv6_part(
        packet: &Ipv6<'_>,
        upper: &Upper<'_>,
        zone: u16,
        part: Part,
    ) -> Result<Packet<u128>, NoTuple> {
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        if upper.proto != ip_proto::ICMPV6 {
            return of_transport(zone, upper.proto, [source, destination], upper.payload, part);
        }
        let message = Icmpv6::parse(upper.payload)?;
        if message.is_error() {
            // The quoted packet follows 4 bytes, for example the MTU of a packet too big message.
            let quote = message.body().get(4..).unwrap_or_default();
            return of_error(zone, destination, quote, Layout::of_ipv6(quote), Query::of_icmpv6);
        }
        of_query(zone, ip_proto::ICMPV6, source, destination, Query::of_icmpv6(upper.payload))
    }
}

/// Reads the header of a protocol other than ICMP.
fn of_transport<A: Address>(
    zone: u16,
    protocol: u8,
    [source, destination]: [A; 2],
    bytes: &[u8],
    part: Part,
) -> Result<Packet<A>, NoTuple> {
    let (ports, content) = match protocol {
        ip_proto::TCP => {
            let tcp = Tcp::parse(bytes)?;
            let payload = u32::try_from(tcp.payload().len()).unwrap_or(u32::MAX);
            ((tcp.src_port(), tcp.dst_port()), Content::Tcp(Segment::of(&tcp, payload)))
        }
        ip_proto::UDP if part == Part::FirstFragment => {
            let header = udp::Header::ref_from_prefix(bytes);
            let (header, _) = header.map_err(|_| NoTuple::Header(DropReason::UdpTruncated))?;
            ((header.src_port.get(), header.dst_port.get()), Content::Udp)
        }
        ip_proto::UDP => {
            let udp = Udp::parse(bytes)?;
            ((udp.src_port(), udp.dst_port()), Content::Udp)
        }
        ip_proto::SCTP => {
            let sctp = Sctp::parse(bytes)?;
            let packet = match part {
                Part::Whole => sctp::Packet::of(&sctp),
                Part::FirstFragment => sctp::Packet::of_first_fragment(&sctp),
            };
            let packet = packet.ok_or(NoTuple::Header(DropReason::SctpTruncated))?;
            ((sctp.src_port(), sctp.dst_port()), Content::Sctp(packet))
        }
        _ => ((0, 0), Content::Other),
    };
    let (source, destination) =
        (End { address: source, port: ports.0 }, End { address: destination, port: ports.1 });
    let (tuple, source) = Tuple::of_ends(zone, protocol, source, destination);
    Ok(Packet { tuple, source, content })
}

/// Returns the packet of a query. `query` is `None` if the message is not a query.
fn of_query<A: Address>(
    zone: u16,
    protocol: u8,
    source: A,
    destination: A,
    query: Option<Query>,
) -> Result<Packet<A>, NoTuple> {
    let query = query.ok_or(NoTuple::Message)?;
    let (tuple, source) = Tuple::of_query(zone, protocol, source, destination, query);
    Ok(Packet { tuple, source, content: Content::Query { is_reply: query.is_reply } })
}

/// Returns the packet of an ICMP error that was sent to `receiver`, and quotes these bytes.
fn of_error<A: Address>(
    zone: u16,
    receiver: A,
    quote: &[u8],
    layout: Option<Layout>,
    query: fn(&[u8]) -> Option<Query>,
) -> Result<Packet<A>, NoTuple> {
    let layout = layout.ok_or(NoTuple::Quote)?;
    let protocol = layout.protocol;
    let [source, destination] = layout.addresses(quote).ok_or(NoTuple::Quote)?;
    let upper = layout.upper.filter(|_| source == receiver);
    let bytes = upper.and_then(|upper| quote.get(upper..)).ok_or(NoTuple::Quote)?;
    let (tuple, side) = if layout.is_icmp() {
        // An error never quotes another error (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
        let query = query(bytes).ok_or(NoTuple::Quote)?;
        Tuple::of_query(zone, protocol, source, destination, query)
    } else {
        let ports = if has_ports(protocol) { *bytes.first_chunk().ok_or(NoTuple::Quote)? } else { [0; 4] };
        let [a, b, c, d] = ports;
        let end = |address, port| End { address, port: u16::from_be_bytes(port) };
        Tuple::of_ends(zone, protocol, end(source, [a, b]), end(destination, [c, d]))
    };
    Ok(Packet { tuple, source: side.opposite(), content: Content::Error })
}

const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
}
