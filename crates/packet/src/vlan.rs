//! VLAN tags: 802.1Q customer tags and 802.1ad service tags (IEEE 802.1Q clause 9).
//!
//! A tag is seen here as the four bytes behind a tag protocol identifier: control information and the next type.
//! The identifier itself is the `ethertype` of the header before it.

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::eth::Eth;
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError};

/// The tag behind its protocol identifier: 4 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Priority (3 bits), drop eligible (1), VLAN identifier (12).
    pub tci: U16,
    /// EtherType of what follows, another tag's identifier, or a length.
    pub ethertype: U16,
}

/// Whether this type field announces a VLAN tag.
pub const fn is_tag(type_field: u16) -> bool {
    type_field == ethertype::VLAN || type_field == ethertype::SERVICE_VLAN
}

/// One tag that is whole.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Vlan<'a> {
    /// Checks that the tag is there; `bytes` begin behind the tag protocol identifier.
    ///
    /// # Errors
    /// [`DropReason::VlanTruncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, payload) = split_header(bytes, DropReason::VlanTruncated)?;
        Ok(Vlan { header, payload })
    }

    /// All sixteen bits of control information.
    pub fn tci(&self) -> u16 {
        self.header.tci.get()
    }

    /// VLAN identifier, 0 (priority tag) to 4095 (reserved).
    pub fn vid(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// Priority code point, 0..=7.
    pub fn pcp(&self) -> u8 {
        self.header.tci.as_bytes()[0] >> 5
    }

    /// Drop eligible indicator.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// The next type field.
    pub fn ethertype(&self) -> u16 {
        self.header.ethertype.get()
    }

    /// What follows the tag.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The tags of a frame from the outside in; ends at the first type that is no tag, or with one error.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    type_field: u16,
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    /// The tags of this frame.
    pub fn of(frame: &Eth<'a>) -> Tags<'a> {
        Tags { type_field: frame.ethertype(), rest: frame.payload() }
    }

    /// The type field behind the tags taken so far.
    pub fn ethertype(&self) -> u16 {
        self.type_field
    }

    /// The bytes behind the tags taken so far.
    pub fn payload(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tags<'a> {
    /// The tag protocol identifier and the tag.
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

/// A tag to be written behind its protocol identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VlanRepr {
    /// VLAN identifier, 12 bits.
    pub vid: u16,
    /// Priority code point, 3 bits.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// EtherType of what follows.
    pub ethertype: u16,
}

impl VlanRepr {
    /// Bytes that [`VlanRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// The representation of a parsed tag.
    pub fn parse(view: &Vlan<'_>) -> VlanRepr {
        VlanRepr { vid: view.vid(), pcp: view.pcp(), dei: view.dei(), ethertype: view.ethertype() }
    }

    /// The control information.
    pub fn tci(&self) -> u16 {
        u16::from(self.pcp & 7) << 13 | u16::from(self.dei) << 12 | (self.vid & 0x0fff)
    }

    /// Writes the tag and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { tci: self.tci().into(), ethertype: self.ethertype.into() })
    }
}
