//! VLAN tags: 802.1Q customer tags and 802.1ad service tags (IEEE 802.1Q clause 9).
//!
//! In this module, a tag consists of the four bytes after a tag protocol identifier (TPID): tag control
//! information and the next type field. The TPID itself is the `ethertype` of the preceding header.

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::eth::Eth;
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError};

/// VLAN tag without its tag protocol identifier, 4 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Tag control information: priority (3 bits), drop eligible indicator (1 bit), VLAN identifier (12
    /// bits).
    pub tci: U16,
    /// Type field after the tag: EtherType of the payload, protocol identifier of another tag, or a payload
    /// length.
    pub ethertype: U16,
}

/// Returns whether the value of a type field is the protocol identifier of a VLAN tag.
pub const fn is_tag(type_field: u16) -> bool {
    type_field == ethertype::VLAN || type_field == ethertype::SERVICE_VLAN
}

/// A VLAN tag whose four bytes are complete.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Vlan<'a> {
    /// Checks that the VLAN tag is complete. `bytes` begins after the tag protocol identifier.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::VlanTruncated`] if the tag is incomplete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, payload) = split_header(bytes, DropReason::VlanTruncated)?;
        Ok(Vlan { header, payload })
    }

    /// Returns the tag control information, 16 bits.
    pub fn tci(&self) -> u16 {
        self.header.tci.get()
    }

    /// Returns the VLAN identifier, 0 (priority tag) to 4095 (reserved).
    pub fn vid(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// Returns the priority code point (PCP) of the tag, 0..=7.
    pub fn pcp(&self) -> u8 {
        self.header.tci.as_bytes()[0] >> 5
    }

    /// Returns the drop eligible indicator (DEI) of the tag.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// Returns the type field after the tag.
    pub fn ethertype(&self) -> u16 {
        self.header.ethertype.get()
    }

    /// Returns the bytes after the tag.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Iterator over the VLAN tags of a frame, from the outermost to the innermost. The iteration ends at the
/// first type field that does not belong to a tag, or after one error.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    type_field: u16,
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    /// Returns an iterator over the VLAN tags of a frame.
    pub fn of(frame: &Eth<'a>) -> Tags<'a> {
        Tags { type_field: frame.ethertype(), rest: frame.payload() }
    }

    /// Returns the type field after the tags that the iterator has returned so far.
    pub fn ethertype(&self) -> u16 {
        self.type_field
    }

    /// Returns the bytes after the tags that the iterator has returned so far.
    pub fn payload(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tags<'a> {
    /// Tag protocol identifier and tag, or the error that ends the iteration.
    type Item = Result<(u16, Vlan<'a>), HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !is_tag(self.type_field) {
            return None;
        }
        let tpid = self.type_field;
        match Vlan::parse(self.rest) {
            Ok(tag) => {
                (self.type_field, self.rest) = (tag.ethertype(), tag.payload());
                Some(Ok((tpid, tag)))
            }
            Err(error) => {
                self.type_field = 0;
                Some(Err(error))
            }
        }
    }
}

/// A VLAN tag to be written after its tag protocol identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VlanRepr {
    /// VLAN identifier of the tag, 12 bits.
    pub vid: u16,
    /// Priority code point (PCP) of the tag, 3 bits.
    pub pcp: u8,
    /// Drop eligible indicator (DEI) of the tag.
    pub dei: bool,
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl VlanRepr {
    /// Number of bytes that [`VlanRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// Converts a parsed VLAN tag to a tag to be written.
    pub fn parse(view: &Vlan<'_>) -> VlanRepr {
        VlanRepr { vid: view.vid(), pcp: view.pcp(), dei: view.dei(), ethertype: view.ethertype() }
    }

    /// Returns the tag control information, 16 bits.
    pub fn tci(&self) -> u16 {
        u16::from(self.pcp & 7) << 13 | u16::from(self.dei) << 12 | (self.vid & 0x0fff)
    }

    /// Writes the VLAN tag at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { tci: self.tci().into(), ethertype: self.ethertype.into() })
    }
}
