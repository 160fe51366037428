//! Multicast listener discovery (RFC 2710, version 2 RFC 3810). MLD snooping learns the listeners of IPv6
//! groups from these messages.
//!
//! An MLD message is an ICMPv6 message after a hop-by-hop header, with hop limit 1 and a link-local source
//! address. The caller has to check these conditions on the IPv6 header. This module checks the lengths and
//! counts of the message.

use std::net::Ipv6Addr;

pub use crate::igmp::RecordKind;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError};

/// MLD message types, which are ICMPv6 types.
pub mod kind {
    /// MLD type of a listener query (both versions).
    pub const QUERY: u8 = 130;
    /// MLD type of a version 1 listener report.
    pub const REPORT: u8 = 131;
    /// MLD type of a version 1 listener done message.
    pub const DONE: u8 = 132;
    /// MLD type of a version 2 listener report.
    pub const REPORT_V2: u8 = 143;
}

/// Header of an MLD version 1 message, 24 bytes. An MLD version 2 query begins with an equal header.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// MLD message type. See [`kind`].
    pub kind: u8,
    /// ICMPv6 code of the message, which is zero.
    pub code: u8,
    /// Checksum over the pseudo-header and the MLD message.
    pub checksum: U16,
    /// Maximum response delay in milliseconds. In version 2, a code for the delay, which [`decode_delay`] decodes.
    pub max_resp: U16,
    /// Reserved field of the MLD message.
    pub reserved: U16,
    /// Multicast group address of the MLD message.
    pub group: [u8; 16],
}

/// A parsed MLD message.
#[derive(Clone, Debug)]
pub enum Mld<'a> {
    /// Listener query that a router sent.
    Query(Query<'a>),
    /// Listener report that a host sent (version 1).
    Report {
        /// Address of the multicast group.
        group: Ipv6Addr,
    },
    /// Listener done message that a host sent (version 1).
    Done {
        /// Address of the multicast group.
        group: Ipv6Addr,
    },
    /// Listener report with source filters that a host sent (version 2).
    ReportV2(Records<'a>),
    /// Message of another ICMPv6 type. The field is the type number.
    Other(u8),
}

/// An MLD listener query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// MLD version of the query (1 or 2), derived from the length of the message (RFC 3810 section 8.1).
    pub version: u8,
    /// Maximum time before a listener reports its memberships, in milliseconds.
    pub max_resp: u32,
    /// Group that the router queries. `::` in a general query.
    pub group: Ipv6Addr,
    /// Value of the flag "Suppress Router-Side Processing" (version 2). If set, routers must not update their
    /// timers.
    pub suppress: bool,
    /// Interval at which the router sends general queries, in seconds (version 2).
    pub interval: u32,
    /// Addresses of the sources that the router queries (version 2).
    pub sources: &'a [[u8; 16]],
}

impl<'a> Mld<'a> {
    /// Checks the lengths and counts of an MLD message. `message` is the complete ICMPv6 message. The
    /// checksum is not verified, because [`crate::icmpv6`] verifies it.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Icmpv6Truncated`] if the message is incomplete, or with
    /// [`DropReason::MulticastControlBad`] if its content is invalid.
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        let first = promised(message, 8, DropReason::Icmpv6Truncated)?;
        if first[0] == kind::REPORT_V2 {
            let rest = message.get(8..).unwrap_or_default();
            return Ok(Mld::ReportV2(Records { left: u16::from_be_bytes([first[6], first[7]]), rest }));
        }
        if !matches!(first[0], kind::QUERY | kind::REPORT | kind::DONE) {
            return Ok(Mld::Other(first[0]));
        }
        let (header, rest): (&Header, _) = split_header(message, DropReason::Icmpv6Truncated)?;
        let group = header.group.into();
        Ok(match header.kind {
            kind::REPORT => Mld::Report { group },
            kind::DONE => Mld::Done { group },
            _ => Mld::Query(Query::parse(header, rest)?),
        })
    }
}

impl<'a> Query<'a> {
    fn parse(header: &Header, rest: &'a [u8]) -> Result<Query<'a>, HeaderError> {
        let (group, code) = (header.group.into(), header.max_resp.get());
        if rest.is_empty() {
            let max_resp = code.into();
            return Ok(Query { version: 1, max_resp, group, suppress: false, interval: 0, sources: &[] });
        }
        let fixed = promised(rest, 4, DropReason::Icmpv6Truncated)?;
        let count = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let sources = rest.get(4..4 + count * 16).ok_or(too_many(count))?;
        Ok(Query {
            version: 2,
            max_resp: decode_delay(code),
            group,
            suppress: fixed[0] & 8 != 0,
            interval: crate::igmp::decode_time(fixed[1]),
            sources: sources.as_chunks().0,
        })
    }
}

fn too_many(count: usize) -> HeaderError {
    HeaderError::bad(
        DropReason::MulticastControlBad,
        "number of sources",
        u32::try_from(count).unwrap_or(u32::MAX),
    )
}

/// Decodes a response delay code to milliseconds. A code below 32,768 is the delay itself. A greater code
/// consists of mantissa and exponent (RFC 3810 section 5.1.3).
pub fn decode_delay(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 0x8000 { code } else { (code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// One address record of an MLD version 2 report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Type of the address record. `None` if the type number is not assigned.
    pub kind: Option<RecordKind>,
    /// Address of the multicast group.
    pub group: Ipv6Addr,
    /// Source addresses of the MLD record.
    pub sources: &'a [[u8; 16]],
}

/// Iterator over the address records of an MLD version 2 report. A malformed record yields one error and ends the
/// iteration.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    fn step(&mut self) -> Result<Record<'a>, HeaderError> {
        let head = promised(self.rest, 20, DropReason::MulticastControlBad)?;
        let group: [u8; 16] = head.last_chunk().copied().unwrap_or_default();
        let count = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let sources = self.rest.get(20..20 + count * 16).ok_or(too_many(count))?;
        let after = 20 + sources.len() + usize::from(head[1]) * 4;
        self.rest = self.rest.get(after..).ok_or(HeaderError::Truncated {
            reason: DropReason::MulticastControlBad,
            need: after,
            have: self.rest.len(),
        })?;
        Ok(Record { kind: RecordKind::from_u8(head[0]), group: group.into(), sources: sources.as_chunks().0 })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let step = self.step();
        if step.is_err() {
            self.left = 0;
        }
        Some(step)
    }
}

/// An MLDv1 message to be written. [`MldRepr::emit`] writes zero as the checksum, and
/// [`crate::checksum::fill`] then stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MldRepr {
    /// Message type: [`kind::QUERY`], [`kind::REPORT`] or [`kind::DONE`].
    pub kind: u8,
    /// Maximum response delay of a query in milliseconds.
    pub max_resp: u16,
    /// Address of the multicast group.
    pub group: Ipv6Addr,
}

impl MldRepr {
    /// Number of bytes that [`MldRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// Writes the MLD message at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let header = Header {
            kind: self.kind,
            code: 0,
            checksum: U16::ZERO,
            max_resp: self.max_resp.into(),
            reserved: U16::ZERO,
            group: self.group.octets(),
        };
        write_header(bytes, &header)
    }
}
