//! Rewriting of the addresses, ports and checksums of packets for network address translation.
//!
//! | protocol | fields that change | checksum |
//! |---|---|---|
//! | IPv4 | addresses | of the header |
//! | TCP, UDP | ports | incremental (RFC 1624). A UDP checksum of 0 stays 0. |
//! | DCCP, UDP-Lite | none | incremental, for the addresses of the pseudo-header |
//! | SCTP | ports | CRC32c of the difference, as a CRC is linear. A wrong CRC stays wrong. |
//! | ICMP, ICMPv6 query | identifier | incremental |
//! | ICMP, ICMPv6 error | the fields of the quoted packet, with the ends exchanged | incremental |
//! | ICMP, ICMPv6 redirect | refused: the message names a router for addresses that its receiver does not know | |
//! | other | none | none |
//!
//! An ICMP error goes in the direction opposite to the packet that it quotes. The destination of the error is
//! therefore the source of the quoted packet, and both are rewritten (RFC 5508 section 4). The source of the error is
//! rewritten as if the error came from the end of the connection, so the address of the end stays hidden. The quoted
//! packet may be truncated, and its protocol may be unknown. The checksums in the quoted headers change likewise,
//! apart from the CRC of SCTP, which covers bytes that the quote does not contain.
//!
//! All functions are total. An error leaves the packet unchanged.

use packet::checksum::{crc32c_continue, finish, finish_udp, fold, sum};
use packet::icmp::Icmp;
use packet::icmpv6::Icmpv6;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::{DropReason, HeaderError, ip_proto, ipv6};

use crate::layout::Layout;
use crate::tuple::{Address, Query};

/// Protocol number of DCCP (RFC 4340).
const DCCP: u8 = 33;
/// Protocol number of UDP-Lite (RFC 3828).
const UDP_LITE: u8 = 136;
/// Length in bytes of the header of ICMP and ICMPv6 errors before the quoted packet.
const ERROR_HEADER: usize = 8;
/// Bytes above IP in which all rewritten fields lie: the header of TCP without options.
const REWRITTEN: usize = 20;

/// New values of the fields of a packet. `None`: the field stays unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rewrite<A> {
    /// Source address.
    pub source: Option<A>,
    /// Destination address.
    pub destination: Option<A>,
    /// Source port of TCP, UDP or SCTP.
    pub source_port: Option<u16>,
    /// Destination port of TCP, UDP or SCTP.
    pub destination_port: Option<u16>,
    /// Identifier of an ICMP or ICMPv6 query.
    pub identifier: Option<u16>,
}

impl<A> Rewrite<A> {
    /// Returns the new values with source and destination exchanged, for a packet in the opposite direction.
    #[must_use]
    pub fn exchanged(self) -> Rewrite<A> {
        let Rewrite { source, destination, source_port, destination_port, identifier } = self;
        Rewrite {
            source: destination,
            destination: source,
            source_port: destination_port,
            destination_port: source_port,
            identifier,
        }
    }
}

/// State of the checksum of a TCP or UDP packet. The checksums of other protocols are always complete, because ports
/// complete them before the packet is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// The checksum covers the packet.
    Complete,
    /// The checksum field holds the sum of the pseudo-header, not complemented, and the port completes the checksum.
    Partial,
}

/// Reason for which a packet is not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTranslated {
    /// A header is incomplete, or has a field with an invalid value.
    Header(DropReason),
    /// The packet is a redirect of ICMP or ICMPv6. After a translated redirect, the receiver would send packets past
    /// the translation.
    Redirect,
    /// The packet is the first fragment of an SCTP packet. The change of the CRC depends on the length of the whole
    /// packet.
    SctpFragment,
}

impl From<HeaderError> for NotTranslated {
    fn from(error: HeaderError) -> NotTranslated {
        NotTranslated::Header(error.reason())
    }
}

/// Rewrites an IPv4 packet. Bytes after the packet stay unchanged. `checksum` is the state of the checksum of TCP or
/// UDP.
///
/// # Errors
/// Returns the reason for which the packet is not translated. The packet is unchanged then.
pub fn translate_ipv4(
    packet: &mut [u8],
    rewrite: &Rewrite<u32>,
    checksum: Checksum,
) -> Result<(), NotTranslated> {
    let end = usize::from(Ipv4::parse(packet)?.total_len());
    let bytes = packet.get_mut(..end).unwrap_or_default();
    let layout = Layout::of_ipv4(bytes).ok_or(NotTranslated::Header(DropReason::Ipv4Truncated))?;
    translate(bytes, layout, rewrite, checksum)
}

/// Rewrites an IPv6 packet. Bytes after the packet stay unchanged. `checksum` is the state of the checksum of TCP or
/// UDP.
///
/// # Errors
/// Returns the reason for which the packet is not translated. The packet is unchanged then.
pub fn translate_ipv6(
    packet: &mut [u8],
    rewrite: &Rewrite<u128>,
    checksum: Checksum,
) -> Result<(), NotTranslated> {
    let view = Ipv6::parse(packet)?;
    view.upper()?;
    let end = size_of::<ipv6::Header>() + view.payload().len();
    let bytes = packet.get_mut(..end).unwrap_or_default();
    let layout = Layout::of_ipv6(bytes).ok_or(NotTranslated::Header(DropReason::Ipv6Truncated))?;
    translate(bytes, layout, rewrite, checksum)
}

/// Change of a partial sum (see [`packet::checksum`]), reduced to 16 bits.
#[derive(Clone, Copy, Default)]
struct Change(u16);

impl Change {
    /// Returns the change of bytes at an even offset.
    fn of(old: &[u8], new: &[u8]) -> Change {
        Change::of_sums(sum(old), sum(new))
    }

    fn of_sums(old: u32, new: u32) -> Change {
        Change(fold(u32::from(!fold(old)) + u32::from(fold(new))))
    }

    fn and(self, other: Change) -> Change {
        Change(fold(u32::from(self.0) + u32::from(other.0)))
    }
}

/// Rewrites a packet whose lengths are valid.
fn translate<A: Address>(
    bytes: &mut [u8],
    layout: Layout,
    rewrite: &Rewrite<A>,
    checksum: Checksum,
) -> Result<(), NotTranslated> {
    if let Some(upper) = layout.upper.and_then(|upper| bytes.get(upper..)) {
        let (need, reason) = match layout.protocol {
            ip_proto::TCP => (20, DropReason::TcpTruncated),
            ip_proto::UDP => (8, DropReason::UdpTruncated),
            ip_proto::SCTP => (12, DropReason::SctpTruncated),
            _ if layout.is_icmp() && layout.is_ipv6() => (8, DropReason::Icmpv6Truncated),
            _ if layout.is_icmp() => (8, DropReason::IcmpTruncated),
            _ => (0, DropReason::Ipv4Truncated),
        };
        if upper.len() < need {
            return Err(NotTranslated::Header(reason));
        }
        if layout.is_redirect(upper) {
            return Err(NotTranslated::Redirect);
        }
        let has_ports = rewrite.source_port.is_some() || rewrite.destination_port.is_some();
        let needs_crc = layout.protocol == ip_proto::SCTP && has_ports;
        if needs_crc && layout.is_fragment {
            return Err(NotTranslated::SctpFragment);
        }
    }
    let addresses = set_addresses(bytes, &layout, rewrite);
    let Some(upper) = layout.upper.and_then(|upper| bytes.get_mut(upper..)) else { return Ok(()) };
    if layout.protocol == ip_proto::SCTP {
        set_sctp_ports(upper, rewrite);
    } else if layout.is_icmp() && is_error(&layout, upper) {
        let quote = upper.get_mut(ERROR_HEADER..).unwrap_or_default();
        let inner = translate_quote(quote, &layout, &rewrite.exchanged());
        let pseudo = if layout.is_ipv6() { addresses } else { Change::default() };
        update(upper, 2, pseudo.and(inner));
    } else {
        set_upper(upper, &layout, rewrite, addresses, checksum);
    }
    Ok(())
}

/// Rewrites the packet that an ICMP error quotes, and returns the change of its sum.
fn translate_quote<A: Address>(quote: &mut [u8], error: &Layout, rewrite: &Rewrite<A>) -> Change {
    let Some(layout) = error.of_quote(quote) else { return Change::default() };
    // All rewritten fields are in this part. Its length is even unless the message ends there.
    let end = layout.upper.unwrap_or(layout.source + 2 * size_of::<A>()).saturating_add(REWRITTEN);
    let end = end.min(quote.len());
    let part = quote.get_mut(..end).unwrap_or_default();
    let before = sum(part);
    let addresses = set_addresses(part, &layout, rewrite);
    if let Some(upper) = layout.upper.and_then(|upper| part.get_mut(upper..)) {
        if layout.protocol == ip_proto::SCTP {
            set_ports(upper, rewrite);
        } else {
            set_upper(upper, &layout, rewrite, addresses, Checksum::Complete);
        }
    }
    Change::of_sums(before, sum(part))
}

/// Returns whether an ICMP or ICMPv6 message is an error.
fn is_error(layout: &Layout, message: &[u8]) -> bool {
    if layout.is_ipv6() {
        Icmpv6::parse(message).is_ok_and(|message| message.is_error())
    } else {
        Icmp::parse(message).is_ok_and(|message| message.is_error())
    }
}

/// Rewrites the addresses of a packet and the checksum of its IPv4 header. Returns the change of the pseudo-header.
fn set_addresses<A: Address>(bytes: &mut [u8], layout: &Layout, rewrite: &Rewrite<A>) -> Change {
    let len = size_of::<A>();
    let mut change = Change::default();
    for (at, new) in [(layout.source, rewrite.source), (layout.source + len, rewrite.destination)] {
        let Some(new) = new else { continue };
        let new: u128 = new.into();
        let new = &new.to_be_bytes()[16 - len..];
        change = change.and(set(bytes, at, new));
    }
    if let Some(at) = layout.header_checksum {
        update(bytes, at, change);
    }
    change
}

/// Rewrites the header above IP, apart from SCTP and ICMP errors. Fields beyond a truncated header are ignored.
/// `addresses` is the change of the pseudo-header.
fn set_upper<A: Address>(
    upper: &mut [u8],
    layout: &Layout,
    rewrite: &Rewrite<A>,
    addresses: Change,
    checksum: Checksum,
) {
    match layout.protocol {
        ip_proto::TCP => {
            let ports = set_ports(upper, rewrite);
            update_tcp(upper, addresses, ports, checksum);
        }
        ip_proto::UDP => {
            let ports = set_ports(upper, rewrite);
            update_udp(upper, addresses, ports, checksum);
        }
        DCCP | UDP_LITE => update(upper, 6, addresses),
        _ if layout.is_icmp() => {
            let is_ipv6 = layout.is_ipv6();
            let query = if is_ipv6 { Query::of_icmpv6(upper) } else { Query::of_icmp(upper) };
            let identifier = rewrite.identifier.filter(|_| query.is_some());
            let inner = identifier.map_or_else(Change::default, |new| set(upper, 4, &new.to_be_bytes()));
            update(upper, 2, if is_ipv6 { addresses.and(inner) } else { inner });
        }
        _ => {}
    }
}

/// Rewrites the ports at the start of a header, and returns the change of the header.
fn set_ports<A>(upper: &mut [u8], rewrite: &Rewrite<A>) -> Change {
    let mut change = Change::default();
    for (at, new) in [(0, rewrite.source_port), (2, rewrite.destination_port)] {
        change = change.and(new.map_or_else(Change::default, |new| set(upper, at, &new.to_be_bytes())));
    }
    change
}

/// Rewrites the ports of a complete SCTP packet and its CRC32c (RFC 9260 appendix A).
fn set_sctp_ports<A>(packet: &mut [u8], rewrite: &Rewrite<A>) {
    const ZEROS: [u8; 256] = [0; 256];
    let before = packet.first_chunk::<4>().copied().unwrap_or_default();
    set_ports(packet, rewrite);
    let after = packet.first_chunk::<4>().copied().unwrap_or_default();
    if before == after {
        return;
    }
    // The CRC register is linear without its initial state: the difference of two CRCs is the CRC of the difference.
    let difference: [u8; 4] = std::array::from_fn(|at| before[at] ^ after[at]);
    let mut state = crc32c_continue(0, &difference);
    let mut rest = packet.len() - difference.len();
    while rest > 0 {
        let len = rest.min(ZEROS.len());
        state = crc32c_continue(state, &ZEROS[..len]);
        rest -= len;
    }
    if let Some(field) = packet.get_mut(8..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *field = (u32::from_le_bytes(*field) ^ state).to_le_bytes();
    }
}

/// Writes bytes at an even offset, and returns their change. Does nothing if the field is not complete.
fn set(bytes: &mut [u8], at: usize, new: &[u8]) -> Change {
    let Some(field) = bytes.get_mut(at..at + new.len()) else { return Change::default() };
    let change = Change::of(field, new);
    field.copy_from_slice(new);
    change
}

/// Updates the Internet checksum at an offset by the change of the bytes that it covers. Does nothing if the field is
/// not complete.
fn update(bytes: &mut [u8], at: usize, change: Change) {
    let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_be_bytes(*field);
    *field = finish(u32::from(!old) + u32::from(change.0)).to_be_bytes();
}

/// Updates a partial checksum at an offset by the change of the pseudo-header.
fn update_partial(bytes: &mut [u8], at: usize, pseudo: Change) {
    let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_be_bytes(*field);
    *field = fold(u32::from(old) + u32::from(pseudo.0)).to_be_bytes();
}

/// Updates the checksum of a TCP header. `inner` is the change of the bytes that follow the pseudo-header.
fn update_tcp(tcp: &mut [u8], pseudo: Change, inner: Change, checksum: Checksum) {
    match checksum {
        Checksum::Complete => update(tcp, 16, pseudo.and(inner)),
        Checksum::Partial => update_partial(tcp, 16, pseudo),
    }
}

/// Updates the checksum of a UDP header. A complete checksum of 0 means that there is none (RFC 768), and stays 0.
fn update_udp(udp: &mut [u8], pseudo: Change, inner: Change, checksum: Checksum) {
    if checksum == Checksum::Partial {
        return update_partial(udp, 6, pseudo);
    }
    let Some(field) = udp.get_mut(6..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_be_bytes(*field);
    if old != 0 {
        *field = finish_udp(u32::from(!old) + u32::from(pseudo.and(inner).0)).to_be_bytes();
    }
}
