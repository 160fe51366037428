//! ICMP for IPv4 (RFC 792; path MTU RFC 1191).

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the header.
pub const LEN: usize = size_of::<Header>();
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 2;

/// Message types.
pub mod kind {
    /// Answer to an echo.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo.
    pub const ECHO: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Code of [`kind::UNREACHABLE`]: the packet is too long and must not be fragmented.
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// The header as it lies in the packet: 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Message type, see [`kind`].
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum over the whole message.
    pub checksum: U16,
    /// Four bytes whose meaning depends on the type.
    pub rest: [u8; 4],
}

/// An ICMP message whose header is whole.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    header: &'a Header,
    message: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Checks that the header is there; `message` is the IP packet's payload.
    ///
    /// # Errors
    /// [`DropReason::IcmpTruncated`].
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _) = split_header(message, DropReason::IcmpTruncated)?;
        Ok(Icmp { header, message })
    }

    /// Message type, see [`kind`].
    pub fn kind(&self) -> u8 {
        self.header.kind
    }

    /// Code within the type.
    pub fn code(&self) -> u8 {
        self.header.code
    }

    /// Whether the checksum is right.
    pub fn checksum_ok(&self) -> bool {
        checksum::finish(checksum::sum(self.message)) == 0
    }

    /// Identifier and sequence number of an echo or its reply.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = self.header.rest;
        matches!(self.kind(), kind::ECHO | kind::ECHO_REPLY)
            .then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// The next hop's MTU in bytes, if the message says "fragmentation needed"; 0 from very old routers.
    pub fn next_hop_mtu(&self) -> Option<u16> {
        let [_, _, high, low] = self.header.rest;
        (self.kind() == kind::UNREACHABLE && self.code() == FRAGMENTATION_NEEDED)
            .then_some(u16::from_be_bytes([high, low]))
    }

    /// The better gateway, if the message is a redirect.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        (self.kind() == kind::REDIRECT).then_some(self.header.rest.into())
    }

    /// Whether the message is an error, which carries the start of the packet that caused it and is never answered.
    pub fn is_error(&self) -> bool {
        use kind::{PARAMETER_PROBLEM, REDIRECT, TIME_EXCEEDED, UNREACHABLE};
        matches!(self.kind(), UNREACHABLE | 4 | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }

    /// What follows the header: echo data, or the start of the packet that caused an error.
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(LEN..).unwrap_or_default()
    }
}

/// An ICMP header to be written. The checksum is left zero; [`checksum::fill`] completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcmpRepr {
    /// Message type, see [`kind`].
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Four bytes whose meaning depends on the type.
    pub rest: [u8; 4],
}

impl IcmpRepr {
    /// Bytes that [`IcmpRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// An echo.
    pub fn echo(id: u16, seq: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::ECHO, code: 0, rest: echo_rest(id, seq) }
    }

    /// The answer to an echo.
    pub fn echo_reply(id: u16, seq: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::ECHO_REPLY, code: 0, rest: echo_rest(id, seq) }
    }

    /// The packet cannot be forwarded without fragmentation over a link of this MTU.
    pub fn fragmentation_needed(mtu: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::UNREACHABLE, code: FRAGMENTATION_NEEDED, rest: echo_rest(0, mtu) }
    }

    /// The representation of a parsed header.
    pub fn parse(view: &Icmp<'_>) -> IcmpRepr {
        IcmpRepr { kind: view.kind(), code: view.code(), rest: view.header.rest }
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(
            bytes,
            &Header { kind: self.kind, code: self.code, checksum: U16::ZERO, rest: self.rest },
        )
    }
}

fn echo_rest(id: u16, seq: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
    [a, b, c, d]
}
