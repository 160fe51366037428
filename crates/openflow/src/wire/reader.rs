//! Decodes a received message from front to back: numbers, port numbers and lists of properties. Truncated data
//! causes the error that the specification defines for the structure being decoded.

use super::error::Error;
use super::{Version, port_from_16};

/// Reader that decodes a received message from front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Octets of the message that have not been decoded yet.
    pub data: &'a [u8],
    /// Error to return if the data ends too early.
    pub short: Error,
}

impl<'a> Reader<'a> {
    /// Creates a reader for `data`. `short` is the error to return if the data ends too early.
    #[must_use]
    pub fn new(data: &'a [u8], short: Error) -> Reader<'a> {
        Reader { data, short }
    }

    /// Takes the given number of octets from the front and returns them.
    ///
    /// # Errors
    /// Returns the error `short` if too few octets remain, like all other methods that take octets.
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

    /// Skips the given number of octets.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::take`].
    pub fn skip(&mut self, octets: usize) -> Result<(), Error> {
        self.take(octets).map(|_| ())
    }

    /// Takes the given number of octets and returns a separate reader for them.
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

/// Decodes a port number, which has 16 bits in OpenFlow 1.0 and 32 bits in later versions.
pub(crate) fn get_port(from: &mut Reader<'_>, version: Version) -> Result<u32, Error> {
    if version == Version::V10 { from.u16().map(port_from_16) } else { from.u32() }
}

/// Decodes a list of properties and calls `each` with the type and the value of each property. A property
/// consists of its type, its length including the header, its value, and padding to eight octets.
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
