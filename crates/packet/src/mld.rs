//! Multicast listener discovery (RFC 2710, version 2 RFC 3810): what a snooping bridge learns from for IPv6.
//!
//! MLD is ICMPv6 behind a hop-by-hop header with hop limit 1 from a link-local source; those conditions are the
//! reader's to check on the IPv6 header, the message's own lengths and counts are checked here.

use std::net::Ipv6Addr;

pub use crate::igmp::RecordKind;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError};

/// Message types, as ICMPv6 types.
pub mod kind {
    /// Listener query, both versions.
    pub const QUERY: u8 = 130;
    /// Listener report of version 1.
    pub const REPORT: u8 = 131;
    /// Listener done, version 1.
    pub const DONE: u8 = 132;
    /// Listener report of version 2.
    pub const REPORT_V2: u8 = 143;
}

/// The message of version 1 and the start of a version 2 query: 24 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Message type, see [`kind`].
    pub kind: u8,
    /// Zero.
    pub code: u8,
    /// Checksum over pseudo-header and message.
    pub checksum: U16,
    /// Maximum response delay (milliseconds) or code.
    pub max_resp: U16,
    /// Reserved.
    pub reserved: U16,
    /// Group address.
    pub group: [u8; 16],
}

/// What an MLD message says.
#[derive(Clone, Debug)]
pub enum Mld<'a> {
    /// A router asks who listens.
    Query(Query<'a>),
    /// A host listens to the group (version 1).
    Report {
        /// The group.
        group: Ipv6Addr,
    },
    /// A host has left the group (version 1).
    Done {
        /// The group.
        group: Ipv6Addr,
    },
    /// A host tells its filters (version 2).
    ReportV2(Records<'a>),
    /// Another ICMPv6 type.
    Other(u8),
}

/// A listener query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// 1 or 2, by length (RFC 3810 section 8.1).
    pub version: u8,
    /// Longest time to wait with the answer, in milliseconds.
    pub max_resp: u32,
    /// The group asked for; `::` in a general query.
    pub group: Ipv6Addr,
    /// Version 2: routers shall not refresh their timers.
    pub suppress: bool,
    /// Version 2: the querier's interval in seconds.
    pub interval: u32,
    /// Version 2: the sources asked for.
    pub sources: &'a [[u8; 16]],
}

impl<'a> Mld<'a> {
    /// Checks lengths and counts; `message` is the whole ICMPv6 message, whose checksum [`crate::icmpv6`] verifies.
    ///
    /// # Errors
    /// [`DropReason::Icmpv6Truncated`], [`DropReason::MulticastControlBad`].
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

/// The value of a response delay code: linear below 32,768, else mantissa and exponent (RFC 3810 section 5.1.3).
pub fn decode_delay(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 0x8000 { code } else { (code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// One address record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// What it does; `None` for a number that is not assigned.
    pub kind: Option<RecordKind>,
    /// The group.
    pub group: Ipv6Addr,
    /// The sources.
    pub sources: &'a [[u8; 16]],
}

/// Iterates over the address records that a version 2 report announces; ends early with one error.
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

/// A message of version 1 to be written. The checksum is left zero; [`crate::checksum::fill`] completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MldRepr {
    /// [`kind::QUERY`], [`kind::REPORT`] or [`kind::DONE`].
    pub kind: u8,
    /// Maximum response delay in milliseconds, of a query.
    pub max_resp: u16,
    /// The group.
    pub group: Ipv6Addr,
}

impl MldRepr {
    /// Bytes that [`MldRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// Writes the message and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
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
