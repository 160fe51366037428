//! Wire format: encoding and decoding of OpenFlow 1.0 to 1.5 messages, with the extensions of Nicira and the
//! ONF, from and to [`switch::flow`].
//!
//! Lengths are not trusted. Readers are shrinking slices, truncated data is an error of its context, and
//! allocations do not exceed the received data.

pub mod action;
pub mod error;
pub mod flow;
pub(crate) mod forward;
pub mod group;
pub mod matching;
pub mod meter;
pub mod options;
pub mod oxm;
pub mod packet;
pub mod port;
pub mod table;

use self::error::Error;

/// Experimenter ID of Nicira.
pub const NICIRA: u32 = 0x2320;
/// Experimenter ID of the ONF.
pub const ONF: u32 = 0x4f4e_4600;
/// Buffer ID that stands for no buffer.
pub const NO_BUFFER: u32 = u32::MAX;
/// Length of a message header in octets.
pub const HEADER: usize = 8;

/// A supported OpenFlow version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions.
    pub const ALL: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// Returns the version with this number in messages.
    #[must_use]
    pub fn from_wire(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Returns the number of the version in messages.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Version::V10 => 1,
            Version::V11 => 2,
            Version::V12 => 3,
            Version::V13 => 4,
            Version::V14 => 5,
            Version::V15 => 6,
        }
    }

    /// Returns whether packets that match no flow entry are sent to controllers of this version, unless the
    /// table is configured otherwise (OFPTC_TABLE_MISS_DEFAULT of Open vSwitch). Since OpenFlow 1.3, such
    /// packets are dropped.
    #[must_use]
    pub const fn sends_table_miss_to_controller(self) -> bool {
        self.number() < Version::V13.number()
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.number() - 1)
    }
}

/// Header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Version number in the header.
    pub version: u8,
    /// Message type (OFPT_*).
    pub kind: u8,
    /// Length of the message in octets, including the header.
    pub length: u16,
    /// Transaction ID, which replies repeat.
    pub xid: u32,
}

impl Header {
    /// Reads a header.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<Header> {
        let head = data.get(..HEADER)?;
        Some(Header {
            version: head[0],
            kind: head[1],
            length: u16::from_be_bytes([head[2], head[3]]),
            xid: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        })
    }
}

/// Reader that takes octets from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Remaining octets.
    pub data: &'a [u8],
    /// Error that is returned if there are too few octets.
    pub short: Error,
}

impl<'a> Reader<'a> {
    /// Creates a reader of these octets. `short` is the error for too few octets.
    #[must_use]
    pub fn new(data: &'a [u8], short: Error) -> Reader<'a> {
        Reader { data, short }
    }

    /// Returns the next octets.
    ///
    /// # Errors
    /// Returns `short`, like all other methods.
    pub fn take(&mut self, octets: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.data.split_at_checked(octets).ok_or(self.short)?;
        self.data = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.data.split_first_chunk().ok_or(self.short)?;
        self.data = rest;
        Ok(*head)
    }

    #[expect(missing_docs, clippy::missing_errors_doc, reason = "see `take`")]
    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    #[expect(missing_docs, clippy::missing_errors_doc, reason = "see `take`")]
    pub fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    #[expect(missing_docs, clippy::missing_errors_doc, reason = "see `take`")]
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    #[expect(missing_docs, clippy::missing_errors_doc, reason = "see `take`")]
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    #[expect(missing_docs, clippy::missing_errors_doc, reason = "see `take`")]
    pub fn mac(&mut self) -> Result<::packet::MacAddr, Error> {
        self.array().map(::packet::MacAddr)
    }

    /// Skips octets.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::take`].
    pub fn skip(&mut self, octets: usize) -> Result<(), Error> {
        self.take(octets).map(|_| ())
    }

    /// Returns a separate reader for the next octets.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::take`].
    pub fn part(&mut self, octets: usize) -> Result<Reader<'a>, Error> {
        Ok(Reader { data: self.take(octets)?, short: self.short })
    }

    /// Returns whether no octets remain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// Appends values in network byte order.
pub trait Put {
    #[expect(missing_docs, reason = "by name")]
    fn u8(&mut self, value: u8);
    #[expect(missing_docs, reason = "by name")]
    fn u16(&mut self, value: u16);
    #[expect(missing_docs, reason = "by name")]
    fn u32(&mut self, value: u32);
    #[expect(missing_docs, reason = "by name")]
    fn u64(&mut self, value: u64);
    /// Appends zeros.
    fn zeros(&mut self, octets: usize);
    /// Appends zeros up to the next multiple of eight octets, counted from `start`.
    fn align(&mut self, start: usize);
    /// Appends a text in a field of `octets` octets, terminated by at least one zero.
    fn text(&mut self, text: &str, octets: usize);
    /// Writes the number of octets since `start` into the length field at offset `at` from `start`.
    fn set_length(&mut self, start: usize, at: usize);
    /// Overwrites a number.
    fn patch16(&mut self, at: usize, value: usize);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn zeros(&mut self, octets: usize) {
        self.resize(self.len() + octets, 0);
    }

    fn align(&mut self, start: usize) {
        let octets = (self.len() - start).next_multiple_of(8);
        self.resize(start + octets, 0);
    }

    fn text(&mut self, text: &str, octets: usize) {
        let mut end = text.len().min(octets.saturating_sub(1));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.extend_from_slice(&text.as_bytes()[..end]);
        self.zeros(octets - end);
    }

    fn set_length(&mut self, start: usize, at: usize) {
        self.patch16(start + at, self.len() - start);
    }

    fn patch16(&mut self, at: usize, value: usize) {
        self[at..at + 2].copy_from_slice(&low16(value).to_be_bytes());
    }
}

/// Returns the value, limited to the maximum of 16 bits.
#[must_use]
pub(crate) fn low16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Returns the seconds and nanoseconds of a duration in nanoseconds, rounded down to milliseconds like in
/// Open vSwitch.
#[must_use]
pub(crate) fn seconds(ns: u64) -> (u32, u32) {
    let rest = u32::try_from(ns % 1_000_000_000 / 1_000_000 * 1_000_000).unwrap_or(0);
    (u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX), rest)
}

/// Begins a message, which [`finish`] completes.
pub fn begin(out: &mut Vec<u8>, version: Version, kind: u8, xid: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&[version.number(), kind, 0, 0]);
    out.u32(xid);
    start
}

/// Begins an experimenter message.
pub fn begin_experimenter(out: &mut Vec<u8>, version: Version, vendor: u32, subtype: u32, xid: u32) -> usize {
    let start = begin(out, version, 4, xid);
    out.u32(vendor);
    out.u32(subtype);
    start
}

/// Completes a message by writing its length.
pub fn finish(out: &mut Vec<u8>, start: usize) {
    out.set_length(start, 2);
}

/// Returns the 32-bit port number for a port number of OpenFlow 1.0.
#[must_use]
pub fn port_from_16(port: u16) -> u32 {
    if port >= 0xff00 { 0xffff_0000 | u32::from(port) } else { u32::from(port) }
}

/// Returns the port number of OpenFlow 1.0 for a 32-bit port number. Ports from 0xff00 to 0xfffffeff have no
/// number in OpenFlow 1.0, and become OFPP_NONE.
#[must_use]
pub fn port_to_16(port: u32) -> u16 {
    match u16::try_from(port) {
        Ok(port) if port < 0xff00 => port,
        _ if port >= 0xffff_ff00 => u16::try_from(port & 0xffff).unwrap_or(u16::MAX),
        _ => u16::MAX,
    }
}

/// Reads a port number in the format of the version.
pub(crate) fn get_port(from: &mut Reader<'_>, version: Version) -> Result<u32, Error> {
    if version == Version::V10 { from.u16().map(port_from_16) } else { from.u32() }
}

/// Reads a list of properties (type, length including the header, padding to eight octets), and calls `each`
/// with the type and value of each.
pub(crate) fn properties<'a>(
    mut from: Reader<'a>,
    mut each: impl FnMut(u16, Reader<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    while !from.is_empty() {
        let kind = from.u16()?;
        let length = usize::from(from.u16()?);
        let value = from.part(length.checked_sub(4).ok_or(from.short)?)?;
        let padding = length.next_multiple_of(8) - length;
        from.skip(padding.min(from.data.len()))?;
        each(kind, value)?;
    }
    Ok(())
}
