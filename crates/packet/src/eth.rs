//! Ethernet II and IEEE 802.3 headers (IEEE 802.3 clause 3), the outermost header of every frame.
//!
//! In this module, a frame extends from the destination address to the last payload byte, as drivers deliver
//! it. Preamble and frame check sequence are not part of a frame.

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError, MacAddr};

/// Minimum length of a frame on the wire in bytes, not including the frame check sequence. Shorter frames are
/// padded.
pub const MIN_FRAME: usize = 60;

/// Ethernet header as laid out in the frame, 14 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Destination MAC address.
    pub dst: MacAddr,
    /// Source MAC address.
    pub src: MacAddr,
    /// EtherType, or a payload length if the value is below 0x0600.
    pub ethertype: U16,
}

/// A frame whose Ethernet header is complete.
#[derive(Clone, Copy, Debug)]
pub struct Eth<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Eth<'a> {
    /// Checks that the Ethernet header is complete.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::EthTruncated`] if the header is incomplete.
    pub fn parse(frame: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, payload) = split_header(frame, DropReason::EthTruncated)?;
        Ok(Eth { header, payload })
    }

    /// Returns the destination MAC address.
    pub fn dst(&self) -> MacAddr {
        self.header.dst
    }

    /// Returns the source MAC address.
    pub fn src(&self) -> MacAddr {
        self.header.src
    }

    /// Returns the type field after the addresses. The value is an EtherType, a VLAN tag protocol identifier,
    /// or a payload length below 0x0600.
    pub fn ethertype(&self) -> u16 {
        self.header.ethertype.get()
    }

    /// Returns whether the type field is a payload length. An LLC header then follows (STP, IS-IS).
    pub fn is_llc(&self) -> bool {
        self.ethertype() < ethertype::MIN
    }

    /// Returns the bytes after the Ethernet header, including padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An Ethernet header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthRepr {
    /// Destination MAC address.
    pub dst: MacAddr,
    /// Source MAC address.
    pub src: MacAddr,
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl EthRepr {
    /// Number of bytes that [`EthRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// Converts a parsed Ethernet header to a header to be written.
    pub fn parse(view: &Eth<'_>) -> EthRepr {
        EthRepr { dst: view.dst(), src: view.src(), ethertype: view.ethertype() }
    }

    /// Writes the Ethernet header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { dst: self.dst, src: self.src, ethertype: self.ethertype.into() })
    }
}
