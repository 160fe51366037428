//! VXLAN headers (RFC 7348): an Ethernet frame inside UDP.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::{BuildError, DropReason, HeaderError};

/// The UDP port that IANA assigned.
pub const PORT: u16 = 4789;
/// Length of the header.
pub const LEN: usize = size_of::<Header>();

const HAS_VNI: u8 = 0x08;

/// The header as it lies in the packet: 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// 0x08: the network identifier is valid.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Network identifier (24 bits) and 8 reserved bits.
    pub vni: U32,
}

/// A VXLAN packet with a valid network identifier.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan<'a> {
    header: &'a Header,
    frame: &'a [u8],
}

impl<'a> Vxlan<'a> {
    /// Checks the header; `bytes` is the UDP datagram's payload. Reserved bits are ignored, as the RFC asks.
    ///
    /// # Errors
    /// [`DropReason::VxlanTruncated`], [`DropReason::VxlanBadHeader`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, frame): (&Header, _) = split_header(bytes, DropReason::VxlanTruncated)?;
        if header.flags & HAS_VNI == 0 {
            return Err(HeaderError::bad(DropReason::VxlanBadHeader, "flags", header.flags.into()));
        }
        Ok(Vxlan { header, frame })
    }

    /// VXLAN network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        self.header.vni.get() >> 8
    }

    /// The Ethernet frame inside.
    pub fn payload(&self) -> &'a [u8] {
        self.frame
    }
}

/// A VXLAN header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VxlanRepr {
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
}

impl VxlanRepr {
    /// Bytes that [`VxlanRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// The representation of a parsed header.
    pub fn parse(view: &Vxlan<'_>) -> VxlanRepr {
        VxlanRepr { vni: view.vni() }
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { flags: HAS_VNI, reserved: [0; 3], vni: (self.vni << 8).into() })
    }
}
