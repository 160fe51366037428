//! What a checked view says when bytes are not the header that they should be.

use crate::DropReason;

/// Why bytes are not a sound header. [`HeaderError::reason`] is the drop reason that a stage counts for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end inside the header, or inside what the header promises.
    #[error("{reason}: {need} bytes are needed and {have} are there")]
    Truncated {
        /// What to count.
        reason: DropReason,
        /// Bytes needed, as far as was known when parsing stopped.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A field has a value that the protocol forbids.
    #[error("{reason}: field `{field}` is {value}")]
    BadField {
        /// What to count.
        reason: DropReason,
        /// The field, as its RFC calls it.
        field: &'static str,
        /// The value found.
        value: u32,
    },
}

impl HeaderError {
    /// The drop reason of a stage that cannot go on for this error.
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

/// The header at the start of `bytes` and what follows it.
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

/// The first `len` bytes, which a header promises to be there.
#[inline]
pub(crate) fn promised(bytes: &[u8], len: usize, reason: DropReason) -> Result<&[u8], HeaderError> {
    bytes.get(..len).ok_or(HeaderError::Truncated { reason, need: len, have: bytes.len() })
}

/// Why a header or packet could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The buffer is shorter than what is to be written.
    #[error("the buffer has {have} bytes and {need} are needed; pass a larger one")]
    BufferTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
}

/// Writes `header` at the start of `bytes` and gives what follows it.
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
