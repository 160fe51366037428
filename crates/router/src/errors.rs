//! ICMP and ICMPv6 error messages that the router sends to the sender of a packet without a route, or with a route that
//! refuses packets (RFC 792 and RFC 1812, 4.3; RFC 4443). The messages equal those of Linux octet by octet (`ip_error`
//! and `icmp_send`, `ip6_pkt_drop` and `icmp6_send`).
//!
//! This module builds an error message only if its contents are unambiguous. In other cases the kernel gets the packet:
//! if the route back to the sender does not lead to one resolved neighbour, or if several addresses could be the source
//! of the error message.

use std::net::IpAddr;

use packet::{DropReason, FlowKey, PortId, checksum, ethertype, ip_proto};
use sync::qsbr::Reader;

use crate::address_bits::bits_of;
use crate::adjacency::FOREIGN;
use crate::decision::{Admitted, Decision, Refusal, Router, Scratch};
use crate::fast_path;
use crate::punt::Punt;

/// Length of the Ethernet header in octets.
const ETHERNET: usize = 14;
/// Length of the ICMP and ICMPv6 header in octets.
const ICMP: usize = 8;
/// Maximum length, in octets, of an IPv4 packet with an ICMP error message (RFC 1812, 4.3.2.3).
const MOST_4: usize = 576;
/// Maximum length, in octets, of an IPv6 packet with an ICMPv6 error message (RFC 4443, 2.4).
const MOST_6: usize = 1280;
/// TTL or hop limit of a new ICMP error message. The router decrements the value to 64 when it sends the message.
const HOPS: u8 = 64 + 1;

/// An ICMP error message. The worker sets its Ethernet addresses and its final TTL when it sends the message, as for
/// every forwarded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Ethernet, IP and ICMP headers of the error message.
    header: [u8; ETHERNET + 40 + ICMP],
    is_four: bool,
    /// Number of octets of the original packet, from its IP header on, that the error message quotes after its headers.
    quoted: usize,
    /// Source IP address of the ICMP error message.
    pub source: IpAddr,
    /// Number of the adjacency through which the error message is sent, as in [`Decision::Forward`].
    pub adjacency: u32,
    /// Number of the interface through which the error message is sent.
    pub interface: u16,
}

impl IcmpError {
    /// Returns the headers that precede the quoted packet, including the Ethernet header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        let end = ETHERNET + self.ip() + ICMP;
        self.header.get(..end).unwrap_or_default()
    }

    /// Returns the length, in octets, of the whole frame: headers and quoted packet.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it has its headers")]
    pub fn len(&self) -> usize {
        ETHERNET + self.ip() + ICMP + self.quoted
    }

    /// Returns whether the error message is an IPv4 packet. If not, it is an IPv6 packet.
    #[must_use]
    pub fn is_four(&self) -> bool {
        self.is_four
    }

    fn ip(&self) -> usize {
        if self.is_four { 20 } else { 40 }
    }
}

/// The result of the check whether an ICMP error may be sent for a packet (RFC 1812, 4.3.2.7 and RFC 4443, 2.4 (e)).
enum Asked {
    /// An error may be sent. `length` is the length of the original IP packet in octets.
    Told {
        length: usize,
    },
    Never,
    /// The kernel must decide whether an error is sent.
    Kernels,
}

impl Router {
    /// Builds the ICMP error message to the sender of a packet that arrived on the interface `arrival` and is refused
    /// for the reason `why`. `head` contains the first octets of the frame, and `len` is the length of the whole frame.
    /// `id` becomes the IPv4 identification of the error message.
    ///
    /// # Errors
    /// If no error message is built, returns the decision to punt the packet to the kernel or to drop it.
    #[allow(clippy::too_many_arguments, reason = "the packet, and what is known of it")]
    pub fn error(
        &self,
        why: Refusal,
        arrival: u16,
        head: &[u8],
        len: usize,
        id: u16,
        reader: &Reader,
        scratch: &mut Scratch,
    ) -> Result<IcmpError, Decision> {
        const KERNELS: Decision = Decision::Punt(Punt::NoRoute);
        if !self.errors.sends_errors(arrival) {
            return Err(KERNELS);
        }
        let is_four = head.get(12..14) == Some(&[0x08, 0x00]);
        let length = match if is_four { asks_4(head, len)? } else { asks_6(head, len) } {
            Asked::Told { length } => length,
            Asked::Never => return Err(Decision::Drop(DropReason::NoRoute)),
            Asked::Kernels => return Err(KERNELS),
        };
        let sender = match is_four {
            true => head.get(26..30).and_then(<[u8]>::first_chunk::<4>).map(|it| IpAddr::from(*it)),
            false => head.get(22..38).and_then(<[u8]>::first_chunk::<16>).map(|it| IpAddr::from(*it)),
        };
        let sender = sender.ok_or(KERNELS)?;
        let mut error = IcmpError {
            header: [0; ETHERNET + 40 + ICMP],
            is_four,
            quoted: 0,
            source: sender,
            adjacency: 0,
            interface: 0,
        };
        // The look-up for an IPv6 error uses the source address of the ingress interface. The source of an
        // IPv4 error follows from the egress interface.
        let known = match is_four {
            true => None,
            false => Some(self.errors.from(arrival, bits_of(sender), false).ok_or(KERNELS)?),
        };
        error.begin(sender, known.unwrap_or(0), head.get(15).copied().unwrap_or(0), id);
        (error.adjacency, error.interface) = self.way_to(sender, &error, reader, scratch).ok_or(KERNELS)?;
        let out =
            self.interfaces.get(usize::from(error.interface)).and_then(Option::as_ref).ok_or(KERNELS)?;
        let from = known.or_else(|| self.errors.from(error.interface, bits_of(sender), true));
        let from = from.ok_or(KERNELS)?;
        let most = if is_four { MOST_4.min(out.mtu as usize) } else { MOST_6 };
        error.quoted = length.min(most.saturating_sub(error.ip() + ICMP));
        let quoted = head.get(ETHERNET..ETHERNET + error.quoted).ok_or(KERNELS)?;
        error.finish(why, from, quoted);
        Ok(error)
    }

    /// Returns the adjacency and the interface through which the error message is sent. `sender` is the sender of the
    /// refused packet. Returns `None` if the route to `sender` does not lead to exactly one resolved neighbour.
    fn way_to(
        &self,
        sender: IpAddr,
        error: &IcmpError,
        reader: &Reader,
        scratch: &mut Scratch,
    ) -> Option<(u32, u16)> {
        let mut key = FlowKey::ZERO;
        FlowKey::extract(error.header(), error.len(), PortId(0), &mut key).ok()?;
        let mut gathering = scratch.begin();
        let _ = gathering.admitted(Admitted::To { destination: sender, hops: HOPS }, 0);
        gathering.end();
        let mut out = [Decision::default()];
        // The error has no ingress interface that a rule could match.
        self.answer(|_| FOREIGN, reader, |_| key, scratch, &mut out);
        match out {
            [Decision::Forward { adjacency, interface }] => Some((adjacency, interface)),
            _ => None,
        }
    }
}

/// Returns whether an ICMP error may be sent for an IPv4 packet (Linux `__icmp_send`). If the header checksum of the
/// packet is wrong, returns the decision to drop the packet.
fn asks_4(head: &[u8], len: usize) -> Result<Asked, Decision> {
    let Some(ip) = head.first_chunk::<{ fast_path::HEAD_4 }>() else { return Ok(Asked::Kernels) };
    if !fast_path::is_sound(ip) {
        return Err(Decision::Drop(DropReason::Ipv4BadChecksum));
    }
    let length = usize::from(u16::from_be_bytes([ip[16], ip[17]]));
    if ip[14] != 0x45 || length < 20 || length + ETHERNET > len {
        return Ok(Asked::Kernels);
    }
    let is_later = u16::from_be_bytes([ip[20], ip[21]]) & 0x1fff != 0;
    let is_error = ip[23] == ip_proto::ICMP
        && match head.get(34).filter(|_| length > 20) {
            // Destination unreachable, source quench, redirect, time exceeded, parameter problem, and all
            // types unknown to RFC 1122.
            Some(kind) => matches!(kind, 3..=5 | 11 | 12 | 19..),
            None => true,
        };
    Ok(if is_later || is_error { Asked::Never } else { Asked::Told { length } })
}

/// Returns whether an ICMPv6 error may be sent for an IPv6 packet (Linux `icmp6_send`).
fn asks_6(head: &[u8], len: usize) -> Asked {
    let Some(ip) = head.first_chunk::<{ fast_path::HEAD_6 }>() else { return Asked::Kernels };
    let length = 40 + usize::from(u16::from_be_bytes([ip[18], ip[19]]));
    if length + ETHERNET > len {
        return Asked::Kernels;
    }
    match ip[20] {
        // An ICMPv6 error may follow these extension headers: hop-by-hop, routing, fragment, authentication,
        // destination options.
        0 | 43 | 44 | 51 | 60 => Asked::Kernels,
        ip_proto::ICMPV6 => match head.get(54).filter(|_| length > 40) {
            Some(128..) => Asked::Told { length },
            Some(_) | None => Asked::Never,
        },
        _ => Asked::Told { length },
    }
}

impl IcmpError {
    /// Writes the header fields of the error message that policy rules can match: addresses, protocol, and type of
    /// service (RFC 1812, 4.3.2.5: precedence "internetwork control").
    fn begin(&mut self, to: IpAddr, from: u128, tos: u8, id: u16) {
        match to {
            IpAddr::V4(to) => {
                put(&mut self.header, 12, &ethertype::IPV4.to_be_bytes());
                put(&mut self.header, 14, &[0x45, tos & 0x1e | 0xc0]);
                put(&mut self.header, 18, &id.to_be_bytes());
                put(&mut self.header, 22, &[HOPS, ip_proto::ICMP]);
                put(&mut self.header, 30, &to.octets());
            }
            IpAddr::V6(to) => {
                put(&mut self.header, 12, &ethertype::IPV6.to_be_bytes());
                put(&mut self.header, 14, &[0x60]);
                put(&mut self.header, 20, &[ip_proto::ICMPV6, HOPS]);
                put(&mut self.header, 22, &from.to_be_bytes());
                put(&mut self.header, 38, &to.octets());
            }
        }
        self.lengths();
    }

    #[allow(clippy::cast_possible_truncation, reason = "1,280 octets at most")]
    fn lengths(&mut self) {
        let behind = (ICMP + self.quoted) as u16;
        match self.is_four {
            true => put(&mut self.header, 16, &(20 + behind).to_be_bytes()),
            false => put(&mut self.header, 18, &behind.to_be_bytes()),
        }
    }

    /// Writes the remaining header fields of the error message, and its Internet checksums.
    #[allow(clippy::cast_possible_truncation, reason = "an IPv4 address is the lowest four octets")]
    fn finish(&mut self, why: Refusal, from: u128, quoted: &[u8]) {
        self.lengths();
        let at = ETHERNET + self.ip();
        if self.is_four {
            let from = from as u32;
            self.source = IpAddr::V4(from.into());
            put(&mut self.header, 26, &from.to_be_bytes());
            let code = match why {
                Refusal::NoRoute => 0,
                Refusal::Unreachable => 1,
                Refusal::Prohibit => 13,
            };
            put(&mut self.header, at, &[3, code]);
        } else {
            self.source = IpAddr::V6(from.into());
            let code = match why {
                Refusal::NoRoute | Refusal::Unreachable => 0,
                Refusal::Prohibit => 1,
            };
            put(&mut self.header, at, &[1, code]);
        }
        let (ip, icmp) = self.header.split_at_mut(at);
        let mut sum = checksum::sum(quoted) + checksum::sum(&icmp[..ICMP]);
        if self.is_four {
            let own = checksum::ipv4_header(&ip[ETHERNET..]);
            put(ip, 24, &own.to_be_bytes());
        } else {
            // The pseudo-header (RFC 8200, 8.1): both addresses, length and protocol.
            let length = u32::from(u16::from_be_bytes([ip[18], ip[19]]));
            sum += checksum::sum(&ip[22..]) + length + u32::from(ip_proto::ICMPV6);
        }
        put(icmp, 2, &checksum::finish(sum).to_be_bytes());
    }
}

fn put(header: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = header.get_mut(at..at + octets.len()) {
        place.copy_from_slice(octets);
    }
}
