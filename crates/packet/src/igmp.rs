//! IGMP versions 1 to 3 (RFC 1112 appendix I, RFC 2236, RFC 3376). IGMP snooping learns the listeners of IPv4
//! groups from these messages.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the shortest IGMP message, in bytes.
pub const MIN_LEN: usize = size_of::<Header>();
/// Offset of the checksum in the IGMP header, in bytes.
pub const CHECKSUM_AT: usize = 2;

/// IGMP message types.
pub mod kind {
    /// IGMP type of a membership query (all versions).
    pub const QUERY: u8 = 0x11;
    /// IGMP type of a version 1 membership report.
    pub const REPORT_V1: u8 = 0x12;
    /// IGMP type of a version 2 membership report.
    pub const REPORT_V2: u8 = 0x16;
    /// IGMP type of a version 2 leave group message.
    pub const LEAVE: u8 = 0x17;
    /// IGMP type of a version 3 membership report.
    pub const REPORT_V3: u8 = 0x22;
}

/// First eight bytes of every IGMP message. In a version 3 report, the group field holds the number of group
/// records.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// IGMP message type. See [`kind`].
    pub kind: u8,
    /// Code of the maximum response time of a query. For version 3, [`decode_time`] decodes this code.
    pub max_resp: u8,
    /// Checksum over the whole IGMP message.
    pub checksum: U16,
    /// Multicast group address of the IGMP message.
    pub group: [u8; 4],
}

/// A parsed IGMP message.
#[derive(Clone, Debug)]
pub enum Igmp<'a> {
    /// Membership query that a router sent.
    Query(Query<'a>),
    /// Membership report that a host sent (version 1 or 2).
    Report {
        /// IGMP version of the report, 1 or 2.
        version: u8,
        /// Address of the multicast group.
        group: Ipv4Addr,
    },
    /// Leave group message that a host sent (version 2).
    Leave {
        /// Address of the multicast group.
        group: Ipv4Addr,
    },
    /// Membership report with source filters that a host sent (version 3).
    ReportV3(Records<'a>),
    /// Message of another type. The field is the type number.
    Other(u8),
}

/// An IGMP membership query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// IGMP version of the query (1, 2 or 3), derived from the length of the message and the response code
    /// (RFC 3376 section 7.1).
    pub version: u8,
    /// Maximum time before a host reports its memberships, in tenths of a second. The value is 100
    /// for a version 1 query.
    pub max_resp: u32,
    /// Group that the router queries. 0.0.0.0 in a general query.
    pub group: Ipv4Addr,
    /// Value of the flag "Suppress Router-Side Processing" (version 3). If set, routers must not update their
    /// timers.
    pub suppress: bool,
    /// Interval at which the router sends general queries, in seconds (version 3).
    pub interval: u32,
    /// Addresses of the sources that the router queries (version 3).
    pub sources: &'a [[u8; 4]],
}

impl<'a> Igmp<'a> {
    /// Checks the lengths and counts of an IGMP message. `message` is the payload of the IP packet. The
    /// checksum is not verified. See [`checksum_ok`].
    ///
    /// # Errors
    /// Returns an error with [`DropReason::IgmpTruncated`] if the message is incomplete, or with
    /// [`DropReason::MulticastControlBad`] if its content is invalid.
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

/// Returns whether the checksum of an IGMP message is correct.
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

/// Decodes a response time code (to tenths of a second) or a query interval code (to seconds). A code below 128 is
/// the value itself. A greater code consists of mantissa and exponent (RFC 3376 section 4.1.1).
pub fn decode_time(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 128 { code } else { (code & 0x0f | 0x10) << ((code >> 4 & 7) + 3) }
}

/// Type of a group record in an IGMP version 3 report (RFC 3376 section 4.2.12). MLDv2 uses identical numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// MODE_IS_INCLUDE: the host receives only the listed sources.
    IsInclude = 1,
    /// MODE_IS_EXCLUDE: the host receives all sources except the listed ones.
    IsExclude = 2,
    /// CHANGE_TO_INCLUDE_MODE: the host changed to receive only the listed sources. An empty list means that
    /// the host left the group.
    ToInclude = 3,
    /// CHANGE_TO_EXCLUDE_MODE: the host changed to receive all sources except the listed ones.
    ToExclude = 4,
    /// ALLOW_NEW_SOURCES: the host additionally receives the listed sources.
    Allow = 5,
    /// BLOCK_OLD_SOURCES: the host no longer receives the listed sources.
    Block = 6,
}

impl RecordKind {
    /// Returns the record type with this number. Returns `None` for other numbers. Receivers ignore records
    /// of unknown types.
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

/// One group record of an IGMP version 3 report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Type of the group record. `None` if the type number is not assigned.
    pub kind: Option<RecordKind>,
    /// Address of the multicast group.
    pub group: Ipv4Addr,
    /// Source addresses of the IGMP record.
    pub sources: &'a [[u8; 4]],
}

/// Iterator over the group records of an IGMP version 3 report. A malformed record yields one error and ends the
/// iteration.
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

/// First eight bytes of an IGMP message to be written. [`IgmpRepr::emit`] writes zero as the checksum, and
/// [`checksum::fill`] then stores the correct value.
///
/// In a version 3 report, the group records follow as payload, and the group field holds the number of
/// records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IgmpRepr {
    /// IGMP message type. See [`kind`].
    pub kind: u8,
    /// Code of the maximum response time of a query. A code below 128 is in tenths of a second.
    pub max_resp: u8,
    /// Address of the multicast group.
    pub group: Ipv4Addr,
}

impl IgmpRepr {
    /// Number of bytes that [`IgmpRepr::emit`] writes.
    pub const LEN: usize = MIN_LEN;

    /// Returns the first bytes of an IGMP version 3 report that contains `records` group records.
    pub fn report_v3(records: u16) -> IgmpRepr {
        let [high, low] = records.to_be_bytes();
        IgmpRepr { kind: kind::REPORT_V3, max_resp: 0, group: Ipv4Addr::new(0, 0, high, low) }
    }

    /// Writes the first eight bytes of the IGMP message at the start of `bytes` and returns the bytes after them.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let group = self.group.octets();
        write_header(bytes, &Header { kind: self.kind, max_resp: self.max_resp, checksum: U16::ZERO, group })
    }
}
