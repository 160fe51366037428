//! IGMP, all three versions (RFC 1112 appendix I, RFC 2236, RFC 3376): what a snooping bridge learns from for IPv4.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the shortest message.
pub const MIN_LEN: usize = size_of::<Header>();
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 2;

/// Message types.
pub mod kind {
    /// Membership query, all versions.
    pub const QUERY: u8 = 0x11;
    /// Membership report of version 1.
    pub const REPORT_V1: u8 = 0x12;
    /// Membership report of version 2.
    pub const REPORT_V2: u8 = 0x16;
    /// Leave group, version 2.
    pub const LEAVE: u8 = 0x17;
    /// Membership report of version 3.
    pub const REPORT_V3: u8 = 0x22;
}

/// The first eight bytes of every message. In a version 3 report the group field holds the number of records.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Message type, see [`kind`].
    pub kind: u8,
    /// Maximum response time code of a query.
    pub max_resp: u8,
    /// Checksum over the whole message.
    pub checksum: U16,
    /// Group address.
    pub group: [u8; 4],
}

/// What an IGMP message says.
#[derive(Clone, Debug)]
pub enum Igmp<'a> {
    /// A router asks who listens.
    Query(Query<'a>),
    /// A host listens to the group (version 1 or 2).
    Report {
        /// 1 or 2.
        version: u8,
        /// The group.
        group: Ipv4Addr,
    },
    /// A host has left the group (version 2).
    Leave {
        /// The group.
        group: Ipv4Addr,
    },
    /// A host tells its filters (version 3).
    ReportV3(Records<'a>),
    /// A type that is none of these.
    Other(u8),
}

/// A membership query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// 1, 2 or 3, by length and response time (RFC 3376 section 7.1).
    pub version: u8,
    /// Longest time to wait with the answer, in tenths of a second; 100 for version 1.
    pub max_resp: u32,
    /// The group asked for; 0.0.0.0 in a general query.
    pub group: Ipv4Addr,
    /// Version 3: routers shall not refresh their timers.
    pub suppress: bool,
    /// Version 3: the querier's interval in seconds.
    pub interval: u32,
    /// Version 3: the sources asked for.
    pub sources: &'a [[u8; 4]],
}

impl<'a> Igmp<'a> {
    /// Checks lengths and counts; `message` is the IP packet's payload. The checksum is left to [`checksum_ok`].
    ///
    /// # Errors
    /// [`DropReason::IgmpTruncated`], [`DropReason::MulticastControlBad`].
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, rest): (&Header, _) = split_header(message, DropReason::IgmpTruncated)?;
        let group = header.group.into();
        Ok(match header.kind {
            kind::QUERY => Igmp::Query(Query::parse(header, rest)?),
            kind::REPORT_V1 => Igmp::Report { version: 1, group },
            kind::REPORT_V2 => Igmp::Report { version: 2, group },
            kind::LEAVE => Igmp::Leave { group },
            kind::REPORT_V3 => {
                let [_, _, high, low] = header.group;
                Igmp::ReportV3(Records { left: u16::from_be_bytes([high, low]), rest })
            }
            other => Igmp::Other(other),
        })
    }
}

/// Whether the message's checksum is right.
pub fn checksum_ok(message: &[u8]) -> bool {
    checksum::finish(checksum::sum(message)) == 0
}

impl<'a> Query<'a> {
    fn parse(header: &Header, rest: &'a [u8]) -> Result<Query<'a>, HeaderError> {
        let group = header.group.into();
        let plain = Query {
            version: 2,
            max_resp: header.max_resp.into(),
            group,
            suppress: false,
            interval: 0,
            sources: &[],
        };
        if rest.is_empty() {
            return Ok(if header.max_resp == 0 {
                Query { version: 1, max_resp: 100, ..plain }
            } else {
                plain
            });
        }
        let fixed = promised(rest, 4, DropReason::IgmpTruncated)?;
        let count = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let sources = rest.get(4..4 + count * 4).ok_or(too_many(count))?;
        Ok(Query {
            version: 3,
            max_resp: decode_time(header.max_resp),
            suppress: fixed[0] & 8 != 0,
            interval: decode_time(fixed[1]),
            sources: sources.as_chunks().0,
            ..plain
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

/// The value of a response time or interval code: linear below 128, else mantissa and exponent (RFC 3376 section 4.1.1).
pub fn decode_time(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 128 { code } else { (code & 0x0f | 0x10) << ((code >> 4 & 7) + 3) }
}

/// What a group record of a version 3 report does (RFC 3376 section 4.2.12); the same numbers in MLDv2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Listens to these sources.
    IsInclude = 1,
    /// Listens to all but these sources.
    IsExclude = 2,
    /// Changed to listening to these sources; with none, it has left.
    ToInclude = 3,
    /// Changed to listening to all but these sources.
    ToExclude = 4,
    /// Listens to these sources too.
    Allow = 5,
    /// Listens no longer to these sources.
    Block = 6,
}

impl RecordKind {
    /// The kind with this number; unknown ones are ignored by receivers.
    pub const fn from_u8(number: u8) -> Option<RecordKind> {
        Some(match number {
            1 => RecordKind::IsInclude,
            2 => RecordKind::IsExclude,
            3 => RecordKind::ToInclude,
            4 => RecordKind::ToExclude,
            5 => RecordKind::Allow,
            6 => RecordKind::Block,
            _ => return None,
        })
    }
}

/// One group record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// What it does; `None` for a number that is not assigned.
    pub kind: Option<RecordKind>,
    /// The group.
    pub group: Ipv4Addr,
    /// The sources.
    pub sources: &'a [[u8; 4]],
}

/// Iterates over the group records that a version 3 report announces; ends early with one error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    fn step(&mut self) -> Result<Record<'a>, HeaderError> {
        let head = promised(self.rest, 8, DropReason::MulticastControlBad)?;
        let count = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let sources = self.rest.get(8..8 + count * 4).ok_or(too_many(count))?;
        let after = 8 + sources.len() + usize::from(head[1]) * 4;
        self.rest = self.rest.get(after..).ok_or(HeaderError::Truncated {
            reason: DropReason::MulticastControlBad,
            need: after,
            have: self.rest.len(),
        })?;
        Ok(Record {
            kind: RecordKind::from_u8(head[0]),
            group: Ipv4Addr::new(head[4], head[5], head[6], head[7]),
            sources: sources.as_chunks().0,
        })
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

/// The first eight bytes of a message to be written. The checksum is left zero; [`checksum::fill`] completes it.
///
/// A version 3 report's records follow as payload; its group field is then the number of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IgmpRepr {
    /// Message type, see [`kind`].
    pub kind: u8,
    /// Maximum response time code of a query, in tenths of a second below 128.
    pub max_resp: u8,
    /// The group.
    pub group: Ipv4Addr,
}

impl IgmpRepr {
    /// Bytes that [`IgmpRepr::emit`] writes.
    pub const LEN: usize = MIN_LEN;

    /// The first bytes of a version 3 report of this many records.
    pub fn report_v3(records: u16) -> IgmpRepr {
        let [high, low] = records.to_be_bytes();
        IgmpRepr { kind: kind::REPORT_V3, max_resp: 0, group: Ipv4Addr::new(0, 0, high, low) }
    }

    /// Writes the message and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let group = self.group.octets();
        write_header(bytes, &Header { kind: self.kind, max_resp: self.max_resp, checksum: U16::ZERO, group })
    }
}
