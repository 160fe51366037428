//! Ethernet II and 802.3 headers (IEEE 802.3 clause 3): the outermost view of every frame.
//!
//! A frame here is what the driver gives: from the destination address to the last payload byte, without preamble
//! and frame check sequence.

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError, MacAddr};

/// The shortest frame on the wire, without frame check sequence; shorter ones are padded.
pub const MIN_FRAME: usize = 60;

/// The header as it lies in the frame: 14 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// EtherType, or a length if below 0x0600.
    pub ethertype: U16,
}

/// A frame whose Ethernet header is whole.
#[derive(Clone, Copy, Debug)]
pub struct Eth<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Eth<'a> {
    /// Checks that the header is there.
    ///
    /// # Errors
    /// [`DropReason::EthTruncated`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, payload) = split_header(frame, DropReason::EthTruncated)?;
        Ok(Eth { header, payload })
    }

    /// Destination address.
    pub fn dst(&self) -> MacAddr {
        self.header.dst
    }

    /// Source address.
    pub fn src(&self) -> MacAddr {
        self.header.src
    }

    /// The field after the addresses: an EtherType (a VLAN tag's included), or a length below 0x0600.
    pub fn ethertype(&self) -> u16 {
        self.header.ethertype.get()
    }

    /// Whether the frame has a length instead of an EtherType, and an LLC header behind it (STP, IS-IS).
    pub fn is_llc(&self) -> bool {
        self.ethertype() < ethertype::MIN
    }

    /// What follows the header, padding included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An Ethernet header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthRepr {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// EtherType of what follows.
    pub ethertype: u16,
}

impl EthRepr {
    /// Bytes that [`EthRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// The representation of a parsed header.
    pub fn parse(view: &Eth<'_>) -> EthRepr {
        EthRepr { dst: view.dst(), src: view.src(), ethertype: view.ethertype() }
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { dst: self.dst, src: self.src, ethertype: self.ethertype.into() })
    }
}
