//! Fields that the tracker reads from the headers of a packet, and from the packet that an ICMP error quotes.
//!
//! All functions are total. Errors of ICMP (RFC 792) and ICMPv6 (RFC 4443) quote the start of the packet that caused
//! them. The lengths in the quoted headers therefore exceed the quoted bytes, and this module does not check them.

use packet::icmp::Icmp;
use packet::icmpv6::Icmpv6;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::ipv6_ext::Extensions;
use packet::sctp::Sctp;
use packet::tcp::Tcp;
use packet::udp::Udp;
use packet::{DropReason, HeaderError, ip_proto, ipv4, ipv6};
use zerocopy::FromBytes;

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
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        let bytes = packet.payload();
        if packet.proto() != ip_proto::ICMP {
            return of_transport(zone, packet.proto(), source, destination, bytes);
        }
        let message = Icmp::parse(bytes)?;
        if message.is_error() {
            let quote = quoted_ipv4(message.payload());
            return of_error(zone, destination, quote, ip_proto::ICMP, Query::of_icmp);
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
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        if upper.proto != ip_proto::ICMPV6 {
            return of_transport(zone, upper.proto, source, destination, upper.payload);
        }
        let message = Icmpv6::parse(upper.payload)?;
        if message.is_error() {
            // The quoted packet follows 4 bytes, for example the MTU of a packet too big message.
            let quote = message.body().get(4..).and_then(quoted_ipv6);
            return of_error(zone, destination, quote, ip_proto::ICMPV6, Query::of_icmpv6);
        }
        of_query(zone, ip_proto::ICMPV6, source, destination, Query::of_icmpv6(upper.payload))
    }
}

/// Reads the header of a protocol other than ICMP.
fn of_transport<A: Address>(
    zone: u16,
    protocol: u8,
    source: A,
    destination: A,
    bytes: &[u8],
) -> Result<Packet<A>, NoTuple> {
    let (ports, content) = match protocol {
        ip_proto::TCP => {
            let tcp = Tcp::parse(bytes)?;
            let payload = u32::try_from(tcp.payload().len()).unwrap_or(u32::MAX);
            ((tcp.src_port(), tcp.dst_port()), Content::Tcp(Segment::of(&tcp, payload)))
        }
        ip_proto::UDP => {
            let udp = Udp::parse(bytes)?;
            ((udp.src_port(), udp.dst_port()), Content::Udp)
        }
        ip_proto::SCTP => {
            let sctp = Sctp::parse(bytes)?;
            let packet = sctp::Packet::of(&sctp).ok_or(NoTuple::Header(DropReason::SctpTruncated))?;
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

/// Network-layer fields of a quoted packet, and its bytes above the network layer.
struct Quote<'a, A> {
    source: A,
    destination: A,
    protocol: u8,
    bytes: &'a [u8],
}

/// Returns the fields of a quoted IPv4 packet. Returns `None` if the header is incomplete or invalid, or if the packet
/// is a fragment without the header above IPv4.
fn quoted_ipv4(bytes: &[u8]) -> Option<Quote<'_, u32>> {
    let (header, _) = ipv4::Header::ref_from_prefix(bytes).ok()?;
    let (version, words) = (header.version_ihl >> 4, usize::from(header.version_ihl & 0x0f));
    let is_later_fragment = header.fragment.get() & 0x1fff != 0;
    if version != 4 || words < 5 || is_later_fragment {
        return None;
    }
    let (source, destination) = (u32::from_be_bytes(header.src), u32::from_be_bytes(header.dst));
    Some(Quote { source, destination, protocol: header.proto, bytes: bytes.get(words * 4..)? })
}

/// Returns the fields of a quoted IPv6 packet. Returns `None` if a header is incomplete or invalid, or if the packet is
/// a fragment without the header above IPv6.
fn quoted_ipv6(bytes: &[u8]) -> Option<Quote<'_, u128>> {
    let (header, rest) = ipv6::Header::ref_from_prefix(bytes).ok()?;
    if header.version_class_label.get() >> 28 != 6 {
        return None;
    }
    let upper = Extensions::new(header.next_header, rest).upper().ok()?;
    if upper.fragment.is_some_and(|fragment| fragment.offset() != 0) {
        return None;
    }
    let (source, destination) = (u128::from_be_bytes(header.src), u128::from_be_bytes(header.dst));
    Some(Quote { source, destination, protocol: upper.proto, bytes: upper.payload })
}

/// Returns the packet of an ICMP error that was sent to `receiver`. `icmp` is the protocol number of ICMP in the
/// address family.
fn of_error<A: Address>(
    zone: u16,
    receiver: A,
    quote: Option<Quote<'_, A>>,
    icmp: u8,
    query: fn(&[u8]) -> Option<Query>,
) -> Result<Packet<A>, NoTuple> {
    let Quote { source, destination, protocol, bytes } =
        quote.filter(|quote| quote.source == receiver).ok_or(NoTuple::Quote)?;
    let (tuple, side) = if protocol == icmp {
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
