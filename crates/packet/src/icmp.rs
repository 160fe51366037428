//! ICMP for IPv4 (RFC 792, path MTU discovery RFC 1191).

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the ICMP header, in bytes.
pub const LEN: usize = size_of::<Header>();
/// Offset of the checksum in the ICMP header, in bytes.
pub const CHECKSUM_AT: usize = 2;

/// ICMP message types.
pub mod kind {
    /// ICMP type of an echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// ICMP type of a destination unreachable message.
    pub const UNREACHABLE: u8 = 3;
    /// ICMP type of a redirect.
    pub const REDIRECT: u8 = 5;
    /// ICMP type of an echo request.
    pub const ECHO: u8 = 8;
    /// ICMP type of a time exceeded message.
    pub const TIME_EXCEEDED: u8 = 11;
    /// ICMP type of a parameter problem message.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Code of [`kind::UNREACHABLE`]: the packet exceeds the MTU and must not be fragmented.
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// ICMP header as laid out in the packet, 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// ICMP message type. See [`kind`].
    pub kind: u8,
    /// ICMP code, whose meaning depends on the type.
    pub code: u8,
    /// Checksum over the whole ICMP message.
    pub checksum: U16,
    /// Bytes 4 to 7 of the message, whose meaning depends on the type.
    pub rest: [u8; 4],
}

/// An ICMP message whose header is complete.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    header: &'a Header,
    message: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Checks that the ICMP header is complete. `message` is the payload of the IP packet.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::IcmpTruncated`] if the header is incomplete.
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _) = split_header(message, DropReason::IcmpTruncated)?;
        Ok(Icmp { header, message })
    }

    /// Returns the ICMP message type. See [`kind`].
    pub fn kind(&self) -> u8 {
        self.header.kind
    }

    /// Returns the ICMP code, whose meaning depends on the type.
    pub fn code(&self) -> u8 {
        self.header.code
    }

    /// Returns whether the ICMP checksum is correct.
    pub fn checksum_ok(&self) -> bool {
        checksum::finish(checksum::sum(self.message)) == 0
    }

    /// Returns the identifier and sequence number if the message is an echo request or reply. Returns `None`
    /// for other messages.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = self.header.rest;
        matches!(self.kind(), kind::ECHO | kind::ECHO_REPLY)
            .then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Returns the MTU of the next hop in bytes if the message is "fragmentation needed". Routers older than
    /// RFC 1191 set the MTU to 0. Returns `None` for other messages.
    pub fn next_hop_mtu(&self) -> Option<u16> {
        let [_, _, high, low] = self.header.rest;
        (self.kind() == kind::UNREACHABLE && self.code() == FRAGMENTATION_NEEDED)
            .then_some(u16::from_be_bytes([high, low]))
    }

    /// Returns the address of the better gateway if the message is a redirect. Returns `None` for other
    /// messages.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        (self.kind() == kind::REDIRECT).then_some(self.header.rest.into())
    }

    /// Returns whether the ICMP message is an error message. An error message contains the start of the
    /// packet that caused it, and must not be answered with another error.
    pub fn is_error(&self) -> bool {
        use kind::{PARAMETER_PROBLEM, REDIRECT, TIME_EXCEEDED, UNREACHABLE};
        matches!(self.kind(), UNREACHABLE | 4 | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }

    /// Returns the bytes after the ICMP header. An echo message contains the echo data there, and
    /// an error message contains the start of the packet that caused the error.
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(LEN..).unwrap_or_default()
    }
}

/// An ICMP header to be written. [`IcmpRepr::emit`] writes zero as the checksum, and [`checksum::fill`] then
/// stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcmpRepr {
    /// ICMP message type. See [`kind`].
    pub kind: u8,
    /// ICMP code, whose meaning depends on the type.
    pub code: u8,
    /// Bytes 4 to 7 of the message, whose meaning depends on the type.
    pub rest: [u8; 4],
}

impl IcmpRepr {
    /// Number of bytes that [`IcmpRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// Returns an ICMP echo request.
    pub fn echo(id: u16, seq: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::ECHO, code: 0, rest: echo_rest(id, seq) }
    }

    /// Returns an ICMP echo reply.
    pub fn echo_reply(id: u16, seq: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::ECHO_REPLY, code: 0, rest: echo_rest(id, seq) }
    }

    /// Returns a "fragmentation needed" error for a link with this MTU, in bytes.
    pub fn fragmentation_needed(mtu: u16) -> IcmpRepr {
        IcmpRepr { kind: kind::UNREACHABLE, code: FRAGMENTATION_NEEDED, rest: echo_rest(0, mtu) }
    }

    /// Converts a parsed ICMP header to a header to be written.
    pub fn parse(view: &Icmp<'_>) -> IcmpRepr {
        IcmpRepr { kind: view.kind(), code: view.code(), rest: view.header.rest }
    }

    /// Writes the ICMP header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
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
