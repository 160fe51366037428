//! ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861). Multicast listener discovery is in [`crate::mld`].

use std::net::Ipv6Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, MacAddr, checksum};

/// Length of the fixed ICMPv6 header, in bytes.
pub const LEN: usize = size_of::<Header>();
/// Offset of the checksum in the ICMPv6 header, in bytes.
pub const CHECKSUM_AT: usize = 2;

/// ICMPv6 message types.
pub mod kind {
    /// ICMPv6 type of a destination unreachable message.
    pub const UNREACHABLE: u8 = 1;
    /// ICMPv6 type of a packet too big message.
    pub const TOO_BIG: u8 = 2;
    /// ICMPv6 type of a time exceeded message.
    pub const TIME_EXCEEDED: u8 = 3;
    /// ICMPv6 type of a parameter problem message.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// ICMPv6 type of an echo request.
    pub const ECHO: u8 = 128;
    /// ICMPv6 type of an echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// ICMPv6 type of a router solicitation.
    pub const ROUTER_SOLICIT: u8 = 133;
    /// ICMPv6 type of a router advertisement.
    pub const ROUTER_ADVERT: u8 = 134;
    /// ICMPv6 type of a neighbour solicitation.
    pub const NEIGHBOUR_SOLICIT: u8 = 135;
    /// ICMPv6 type of a neighbour advertisement.
    pub const NEIGHBOUR_ADVERT: u8 = 136;
    /// ICMPv6 type of a redirect.
    pub const REDIRECT: u8 = 137;
}

/// Fixed ICMPv6 header as laid out in the packet, 4 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// ICMPv6 message type. See [`kind`].
    pub kind: u8,
    /// ICMPv6 code, whose meaning depends on the type.
    pub code: u8,
    /// Checksum over the pseudo-header and the ICMPv6 message.
    pub checksum: U16,
}

/// An ICMPv6 message whose fixed header is complete.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6<'a> {
    header: &'a Header,
    message: &'a [u8],
}

impl<'a> Icmpv6<'a> {
    /// Checks that the fixed ICMPv6 header is complete. `message` is the data after the IPv6 headers.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Icmpv6Truncated`] if the header is incomplete.
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _) = split_header(message, DropReason::Icmpv6Truncated)?;
        Ok(Icmpv6 { header, message })
    }

    /// Returns the ICMPv6 message type. See [`kind`].
    pub fn kind(&self) -> u8 {
        self.header.kind
    }

    /// Returns the ICMPv6 code, whose meaning depends on the type.
    pub fn code(&self) -> u8 {
        self.header.code
    }

    /// Returns whether the ICMPv6 checksum is correct. `pseudo_sum` is the partial checksum of the IPv6
    /// pseudo-header (see [`crate::checksum`]).
    pub fn checksum_ok(&self, pseudo_sum: u32) -> bool {
        checksum::finish(pseudo_sum + checksum::sum(self.message)) == 0
    }

    /// Returns the bytes after the fixed ICMPv6 header.
    pub fn body(&self) -> &'a [u8] {
        self.message.get(LEN..).unwrap_or_default()
    }

    /// Returns whether the ICMPv6 message is an error message. An error message contains the start of the
    /// packet that caused it, and must not be answered with another error.
    pub fn is_error(&self) -> bool {
        self.kind() < 128
    }

    /// Returns the identifier and sequence number if the message is an echo request or reply. Returns `None`
    /// for other messages.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let (&[a, b, c, d], _) = self.body().split_first_chunk()?;
        matches!(self.kind(), kind::ECHO | kind::ECHO_REPLY)
            .then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Returns the MTU of the link in bytes if the message is "packet too big". Returns `None` for other
    /// messages.
    pub fn mtu(&self) -> Option<u32> {
        let mtu = self.body().first_chunk()?;
        (self.kind() == kind::TOO_BIG).then_some(u32::from_be_bytes(*mtu))
    }

    /// Returns the neighbour discovery message. Returns `None` if the ICMPv6 type does not belong
    /// to neighbour discovery.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Icmpv6Truncated`] if the message ends before its fixed part is
    /// complete.
    pub fn neighbour_discovery(&self) -> Option<Result<Nd<'a>, HeaderError>> {
        let fixed = match self.kind() {
            kind::ROUTER_SOLICIT => 4,
            kind::ROUTER_ADVERT => 12,
            kind::NEIGHBOUR_SOLICIT | kind::NEIGHBOUR_ADVERT => 20,
            kind::REDIRECT => 36,
            _ => return None,
        };
        let fixed = promised(self.body(), fixed, DropReason::Icmpv6Truncated);
        Some(fixed.map(|fixed| Nd {
            kind: self.kind(),
            fixed,
            options: self.body().get(fixed.len()..).unwrap_or_default(),
        }))
    }
}

/// A neighbour discovery message whose fixed part is complete.
#[derive(Clone, Copy, Debug)]
pub struct Nd<'a> {
    kind: u8,
    fixed: &'a [u8],
    options: &'a [u8],
}

impl<'a> Nd<'a> {
    /// Returns the ICMPv6 message type. See [`kind`].
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Returns the target address of a neighbour solicitation, neighbour advertisement or redirect. Returns
    /// `None` for router messages.
    pub fn target(&self) -> Option<Ipv6Addr> {
        self.fixed.get(4..)?.first_chunk().filter(|_| self.kind >= kind::NEIGHBOUR_SOLICIT).map(address)
    }

    /// Returns the destination address of a redirect. Returns `None` for other messages.
    pub fn destination(&self) -> Option<Ipv6Addr> {
        self.fixed.get(20..)?.first_chunk().map(address)
    }

    /// Returns the router, solicited and override flags of a neighbour advertisement, in this order.
    pub fn advert_flags(&self) -> (bool, bool, bool) {
        let flags = if self.kind == kind::NEIGHBOUR_ADVERT { self.fixed[0] } else { 0 };
        (flags & 0x80 != 0, flags & 0x40 != 0, flags & 0x20 != 0)
    }

    /// Returns an iterator over the options of the message.
    pub fn options(&self) -> NdOptions<'a> {
        NdOptions { rest: self.options }
    }
}

fn address(octets: &[u8; 16]) -> Ipv6Addr {
    Ipv6Addr::from(*octets)
}

/// One neighbour discovery option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdOption<'a> {
    /// Link-layer address of the sender of the message.
    SourceLink(MacAddr),
    /// Link-layer address of the target of the message.
    TargetLink(MacAddr),
    /// Prefix information: prefix, prefix length in bits, and flags (0x80 on-link, 0x40 autonomous).
    Prefix(Ipv6Addr, u8, u8),
    /// MTU of the link, in bytes.
    Mtu(u32),
    /// Option of another type. The fields are the type and the bytes after the length.
    Other(u8, &'a [u8]),
}

/// Iterator over the options of a neighbour discovery message. An option with a bad length yields one error
/// and ends the iteration.
#[derive(Clone, Debug)]
pub struct NdOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = Result<NdOption<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let &[kind, units, ..] = self.rest else {
            let left = std::mem::take(&mut self.rest).len();
            return (left != 0).then_some(Err(HeaderError::bad(DropReason::NdBadOption, "length", 0)));
        };
        let len = usize::from(units) * 8;
        let data = self.rest.get(2..len);
        self.rest = self.rest.get(len..).unwrap_or_default();
        let Some(data) = data else {
            self.rest = &[];
            return Some(Err(HeaderError::bad(DropReason::NdBadOption, "length", units.into())));
        };
        Some(Ok(match (kind, data) {
            (1, &[a, b, c, d, e, f]) => NdOption::SourceLink(MacAddr([a, b, c, d, e, f])),
            (2, &[a, b, c, d, e, f]) => NdOption::TargetLink(MacAddr([a, b, c, d, e, f])),
            (3, &[len, flags, ref rest @ ..]) if rest.len() == 28 => {
                NdOption::Prefix(rest.last_chunk().map_or(Ipv6Addr::UNSPECIFIED, address), len, flags)
            }
            (5, &[_, _, a, b, c, d]) => NdOption::Mtu(u32::from_be_bytes([a, b, c, d])),
            (kind, data) => NdOption::Other(kind, data),
        }))
    }
}

/// First eight bytes of an ICMPv6 message to be written. [`Icmpv6Repr::emit`] writes zero as the checksum,
/// and [`checksum::fill`] then stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Icmpv6Repr {
    /// ICMPv6 message type. See [`kind`].
    pub kind: u8,
    /// ICMPv6 code, whose meaning depends on the type.
    pub code: u8,
    /// First four bytes of the ICMPv6 message body.
    pub rest: [u8; 4],
}

impl Icmpv6Repr {
    /// Number of bytes that [`Icmpv6Repr::emit`] writes.
    pub const LEN: usize = 8;

    /// Returns an ICMPv6 echo request.
    pub fn echo(id: u16, seq: u16) -> Icmpv6Repr {
        Icmpv6Repr { kind: kind::ECHO, ..Icmpv6Repr::echo_reply(id, seq) }
    }

    /// Returns an ICMPv6 echo reply.
    pub fn echo_reply(id: u16, seq: u16) -> Icmpv6Repr {
        let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
        Icmpv6Repr { kind: kind::ECHO_REPLY, code: 0, rest: [a, b, c, d] }
    }

    /// Returns a "packet too big" message for a link with this MTU, in bytes.
    pub fn too_big(mtu: u32) -> Icmpv6Repr {
        Icmpv6Repr { kind: kind::TOO_BIG, code: 0, rest: mtu.to_be_bytes() }
    }

    /// Converts the first eight bytes of a parsed ICMPv6 message to a message to be written.
    pub fn parse(view: &Icmpv6<'_>) -> Icmpv6Repr {
        let rest = view.body().first_chunk().copied().unwrap_or_default();
        Icmpv6Repr { kind: view.kind(), code: view.code(), rest }
    }

    /// Writes the first eight bytes of the message at the start of `bytes` and returns the bytes after them.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        if bytes.len() < Self::LEN {
            return Err(BuildError::BufferTooSmall { need: Self::LEN, have: bytes.len() });
        }
        let header = Header { kind: self.kind, code: self.code, checksum: U16::ZERO };
        write_header(write_header(bytes, &header)?, &self.rest)
    }
}

/// A neighbour solicitation or advertisement to be written with its link-layer address option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourRepr {
    /// Message type: [`kind::NEIGHBOUR_SOLICIT`] or [`kind::NEIGHBOUR_ADVERT`].
    pub kind: u8,
    /// Flags of an advertisement: 0x80 router, 0x40 solicited, 0x20 override.
    pub flags: u8,
    /// Target address: the address that the message solicits or advertises.
    pub target: Ipv6Addr,
    /// Source link-layer address of a solicitation, or target link-layer address of an advertisement.
    pub link: MacAddr,
}

impl NeighbourRepr {
    /// Number of bytes that [`NeighbourRepr::emit`] writes.
    pub const LEN: usize = 32;

    /// Writes the message, with zero as the checksum, at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        if bytes.len() < Self::LEN {
            return Err(BuildError::BufferTooSmall { need: Self::LEN, have: bytes.len() });
        }
        let advert = self.kind == kind::NEIGHBOUR_ADVERT;
        let start =
            Icmpv6Repr { kind: self.kind, code: 0, rest: [if advert { self.flags } else { 0 }, 0, 0, 0] };
        let rest = write_header(start.emit(bytes)?, &self.target.octets())?;
        let rest = write_header(rest, &[if advert { 2u8 } else { 1 }, 1])?;
        write_header(rest, &self.link)
    }
}
