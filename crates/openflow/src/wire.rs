//! Wire format: converts OpenFlow messages of the versions 1.0 to 1.5, with the extensions of Nicira and the
//! ONF, from and to the types of [`switch::flow`].
//!
//! Lengths in messages are not trusted. A [`Reader`] is a slice that shrinks as octets are decoded. Truncated data
//! causes the error that the specification defines for the structure being decoded. Allocations do not exceed the
//! size of the received data.

pub mod action;
pub(crate) mod change;
pub(crate) mod connections;
pub mod error;
pub mod flow;
pub(crate) mod forward;
pub mod group;
pub mod matching;
pub mod meter;
pub mod ofp;
pub mod options;
pub mod oxm;
pub mod packet;
pub mod port;
mod reader;
pub mod table;

pub use reader::Reader;
pub(crate) use reader::{get_port, properties};

/// Experimenter ID of Nicira.
pub const NICIRA: u32 = 0x2320;
/// Experimenter ID of the ONF.
pub const ONF: u32 = 0x4f4e_4600;
/// Buffer ID that means no buffer (OFP_NO_BUFFER).
pub const NO_BUFFER: u32 = u32::MAX;
/// Length of an OpenFlow message header in octets.
pub const HEADER: usize = 8;
/// Maximum length of an OpenFlow message in octets, including the header.
pub const MAX_LENGTH: usize = 0xffff;

/// Error for a message that is longer than [`MAX_LENGTH`]. The value is the length in octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of {0} octets exceeds the {MAX_LENGTH} octets of an OpenFlow message")]
pub struct TooLong(pub usize);

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
    /// All supported versions, in ascending order.
    pub const ALL: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// Returns the OpenFlow version that has this number in messages. Returns `None` if the version is not supported.
    #[must_use]
    pub fn from_wire(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Returns the number that identifies the OpenFlow version in messages.
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

    /// Returns whether packets that match no flow entry are sent to controllers that use this version, unless the table
    /// is configured otherwise (OFPTC_TABLE_MISS_DEFAULT of Open vSwitch). Since OpenFlow 1.3, such packets are dropped
    /// by default.
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

/// Header of an OpenFlow message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// OpenFlow version number in the header.
    pub version: u8,
    /// OpenFlow message type (OFPT_*).
    pub kind: u8,
    /// Length of the message in octets, including the header.
    pub length: u16,
    /// Transaction ID. A reply has the transaction ID of its request.
    pub xid: u32,
}

impl Header {
    /// Decodes the header at the front of `data`. Returns `None` if there are too few octets.
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

/// Functions that append values to an encoded message in network byte order.
pub trait Put {
    #[expect(missing_docs, reason = "by name")]
    fn u8(&mut self, value: u8);
    #[expect(missing_docs, reason = "by name")]
    fn u16(&mut self, value: u16);
    #[expect(missing_docs, reason = "by name")]
    fn u32(&mut self, value: u32);
    #[expect(missing_docs, reason = "by name")]
    fn u64(&mut self, value: u64);
    /// Appends `octets` octets with the value 0.
    fn zeros(&mut self, octets: usize);
    /// Appends zeros until the number of octets since the offset `start` is a multiple of eight.
    fn align(&mut self, start: usize);
    /// Appends a text as a field of `octets` octets. The field is padded with zeros and ends with
    /// at least one zero. A text that is too long is truncated.
    fn text(&mut self, text: &str, octets: usize);
    /// Stores the number of octets since the offset `start` in the 16-bit length field at the offset `start + at`.
    fn set_length(&mut self, start: usize, at: usize);
    /// Overwrites the 16-bit number at the offset `at` of the message.
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

/// Converts a number to 16 bits. A larger number becomes the maximum, 65,535.
#[must_use]
pub(crate) fn low16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Converts a duration in nanoseconds into seconds and nanoseconds. The result is rounded down to
/// milliseconds, like in Open vSwitch.
#[must_use]
pub(crate) fn seconds(ns: u64) -> (u32, u32) {
    let rest = u32::try_from(ns % 1_000_000_000 / 1_000_000 * 1_000_000).unwrap_or(0);
    (u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX), rest)
}

/// Begins an OpenFlow message and returns its start offset for [`finish`], which completes the message.
pub fn begin(out: &mut Vec<u8>, version: Version, kind: u8, xid: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&[version.number(), kind, 0, 0]);
    out.u32(xid);
    start
}

/// Begins an experimenter message and returns its start offset for `finish`.
pub fn begin_experimenter(out: &mut Vec<u8>, version: Version, vendor: u32, subtype: u32, xid: u32) -> usize {
    let start = begin(out, version, ofp::msg::OFPT_EXPERIMENTER, xid);
    out.u32(vendor);
    out.u32(subtype);
    start
}

/// Completes the message that begins at `start`, by writing its length.
///
/// # Errors
/// Returns [`TooLong`] and removes the message from `out`, if the message is longer than [`MAX_LENGTH`].
pub fn finish(out: &mut Vec<u8>, start: usize) -> Result<(), TooLong> {
    let octets = out.len() - start;
    if octets > MAX_LENGTH {
        // With another length, the peer would read the rest of the message as further messages.
        out.truncate(start);
        return Err(TooLong(octets));
    }
    out.set_length(start, 2);
    Ok(())
}

/// Appends entries to the message that begins at `start`, and completes the message. Entries that do
/// not fit into the message are left out.
///
/// # Errors
/// Returns [`TooLong`] if the message was too long without entries.
pub(crate) fn finish_with<T>(
    out: &mut Vec<u8>,
    start: usize,
    entries: &[T],
    put: impl Fn(&mut Vec<u8>, &T),
) -> Result<(), TooLong> {
    for (written, entry) in entries.iter().enumerate() {
        let at = out.len();
        put(out, entry);
        if out.len() - start > MAX_LENGTH {
            out.truncate(at);
            tracing::debug!("{} of {} entries fit into no message", entries.len() - written, entries.len());
            break;
        }
    }
    finish(out, start)
}

/// Converts a 16-bit port number of OpenFlow 1.0 into a 32-bit port number.
#[must_use]
pub fn port_from_16(port: u16) -> u32 {
    if port >= 0xff00 { 0xffff_0000 | u32::from(port) } else { u32::from(port) }
}

/// Converts a 32-bit port number into a port number of OpenFlow 1.0. The port numbers from 0xff00 to
/// 0xfffffeff have no equivalent in OpenFlow 1.0, and are converted to OFPP_NONE.
#[must_use]
pub fn port_to_16(port: u32) -> u16 {
    match u16::try_from(port) {
        Ok(port) if port < 0xff00 => port,
        _ if port >= 0xffff_ff00 => u16::try_from(port & 0xffff).unwrap_or(u16::MAX),
        _ => u16::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a message of the maximum length can be finished. A message that is longer is removed from the output
    /// buffer, and the messages before it stay in the buffer.
    #[test]
    fn a_message_that_is_too_long_is_removed() {
        let mut out = Vec::new();
        for octets in [MAX_LENGTH, MAX_LENGTH + 1] {
            let earlier = out.len();
            let start = begin(&mut out, Version::V13, 2, 7);
            out.zeros(octets - HEADER);
            let done = finish(&mut out, start);
            if octets == MAX_LENGTH {
                assert_eq!((done, out.len()), (Ok(()), earlier + octets));
                assert_eq!(Header::read(&out).map(|head| head.length), Some(0xffff));
            } else {
                assert_eq!((done, out.len()), (Err(TooLong(octets)), earlier));
            }
        }
    }
}
