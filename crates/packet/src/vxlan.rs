//! VXLAN headers (RFC 7348). VXLAN carries an Ethernet frame in a UDP datagram.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::{BuildError, DropReason, HeaderError};

/// UDP destination port that IANA has assigned to VXLAN.
pub const PORT: u16 = 4789;
/// Length of the VXLAN header, in bytes.
pub const LEN: usize = size_of::<Header>();

const HAS_VNI: u8 = 0x08;

/// VXLAN header as laid out in the packet, 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Flags of the VXLAN header. 0x08 means that the network identifier is valid.
    pub flags: u8,
    /// Reserved octets of the VXLAN header.
    pub reserved: [u8; 3],
    /// VXLAN network identifier (24 bits) and 8 reserved bits.
    pub vni: U32,
}

/// A VXLAN packet with a valid network identifier.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan<'a> {
    header: &'a Header,
    frame: &'a [u8],
}

impl<'a> Vxlan<'a> {
    /// Checks the VXLAN header. `bytes` is the payload of the UDP datagram. Reserved bits are ignored, as RFC
    /// 7348 requires.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::VxlanTruncated`] if the header is incomplete, or with
    /// [`DropReason::VxlanBadHeader`] if the network identifier is not valid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, frame): (&Header, _) = split_header(bytes, DropReason::VxlanTruncated)?;
        if header.flags & HAS_VNI == 0 {
            return Err(HeaderError::bad(DropReason::VxlanBadHeader, "flags", header.flags.into()));
        }
        Ok(Vxlan { header, frame })
    }

    /// Returns the VXLAN network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        self.header.vni.get() >> 8
    }

    /// Returns the encapsulated Ethernet frame.
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
    /// Number of bytes that [`VxlanRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// Converts a parsed VXLAN header to a header to be written.
    pub fn parse(view: &Vxlan<'_>) -> VxlanRepr {
        VxlanRepr { vni: view.vni() }
    }

    /// Writes the VXLAN header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        write_header(bytes, &Header { flags: HAS_VNI, reserved: [0; 3], vni: (self.vni << 8).into() })
    }
}
