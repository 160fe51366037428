//! Errors in parsing headers and in writing packets.

use crate::DropReason;

/// Error for a header that is not valid. [`HeaderError::reason`] returns the drop reason to count for the
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end inside the header, or before the end of the packet that a length field of the header
    /// specifies.
    #[error("{reason}: {need} bytes are needed and {have} are there")]
    Truncated {
        /// Drop reason to count for the error.
        reason: DropReason,
        /// Minimum number of bytes that must be present from the start of the header. Fields that the parser has not
        /// read may require more bytes.
        need: usize,
        /// Number of bytes that are present from the start of the header.
        have: usize,
    },
    /// A header field has a value that the protocol forbids.
    #[error("{reason}: field `{field}` is {value}")]
    BadField {
        /// Drop reason to count for the error.
        reason: DropReason,
        /// Name of the field, as in the RFC of the protocol.
        field: &'static str,
        /// Invalid value of the field.
        value: u32,
    },
}

impl HeaderError {
    /// Returns the drop reason to count if a packet is dropped because of this error.
    #[inline]
    pub const fn reason(self) -> DropReason {
        match self {
            HeaderError::Truncated { reason, .. } | HeaderError::BadField { reason, .. } => reason,
        }
    }

    #[inline]
    pub(crate) const fn bad(reason: DropReason, field: &'static str, value: u32) -> HeaderError {
        HeaderError::BadField { reason, field, value }
    }
}

/// Returns the header at the start of `bytes`, and the bytes after the header. If `bytes` is too short, returns an
/// error with the drop reason `reason`.
#[inline]
pub(crate) fn split_header<H>(bytes: &[u8], reason: DropReason) -> Result<(&H, &[u8]), HeaderError>
where
    H: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    H::ref_from_prefix(bytes).map_err(|_| HeaderError::Truncated {
        reason,
        need: size_of::<H>(),
        have: bytes.len(),
    })
}

/// Returns the first `len` bytes of `bytes`, where `len` is the length that a header field specifies. If `bytes` is
/// shorter, returns an error with the drop reason `reason`.
#[inline]
pub(crate) fn promised(bytes: &[u8], len: usize, reason: DropReason) -> Result<&[u8], HeaderError> {
    bytes.get(..len).ok_or(HeaderError::Truncated { reason, need: len, have: bytes.len() })
}

/// Error in writing a header or packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The buffer is shorter than the header or packet.
    #[error("the buffer has {have} bytes and {need} are needed; pass a larger one")]
    BufferTooSmall {
        /// Number of bytes that the header or packet needs.
        need: usize,
        /// Number of bytes that the buffer has.
        have: usize,
    },
}

/// Writes `header` at the start of `bytes` and returns the bytes after it.
#[inline]
pub(crate) fn write_header<'b, H>(bytes: &'b mut [u8], header: &H) -> Result<&'b mut [u8], BuildError>
where
    H: zerocopy::IntoBytes + zerocopy::Immutable,
{
    let (need, have) = (size_of::<H>(), bytes.len());
    let Some((place, rest)) = bytes.split_at_mut_checked(need) else {
        return Err(BuildError::BufferTooSmall { need, have });
    };
    place.copy_from_slice(header.as_bytes());
    Ok(rest)
}
