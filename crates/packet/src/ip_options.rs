//! Option lists of IPv4 and TCP headers. An option consists of kind, length and data. The kinds 0 (end of
//! list) and 1 (padding) consist of one byte only.

use crate::{DropReason, HeaderError};

/// One option that has a length octet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOption<'a> {
    /// Kind octet of the option. For IPv4, the octet includes the copied flag and the class bits.
    pub kind: u8,
    /// Data of the option: the octets after the length octet.
    pub data: &'a [u8],
}

/// Iterator over an option list, which skips padding. The end-of-list option ends the iteration. An option
/// with a bad length yields one error and ends the iteration.
#[derive(Clone, Debug)]
pub struct RawOptions<'a> {
    rest: &'a [u8],
}

impl<'a> RawOptions<'a> {
    /// Returns an iterator over the options in `bytes`. `bytes` are the octets between the fixed header and
    /// the payload.
    pub fn new(bytes: &'a [u8]) -> RawOptions<'a> {
        RawOptions { rest: bytes }
    }
}

impl<'a> Iterator for RawOptions<'a> {
    type Item = Result<RawOption<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [1, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let (kind, len) = match *self.rest {
            [] | [0, ..] => return None,
            [kind] => (kind, 0),
            [kind, len, ..] => (kind, len),
        };
        let option = self.rest.get(2..usize::from(len));
        self.rest = self.rest.get(usize::from(len)..).unwrap_or_default();
        match option {
            Some(data) => Some(Ok(RawOption { kind, data })),
            None => {
                self.rest = &[];
                Some(Err(HeaderError::bad(DropReason::IpOptionBad, "length", len.into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_end_and_bad_lengths() {
        let read = |bytes: &[u8]| RawOptions::new(bytes).map(|o| o.map(|o| o.kind).ok()).collect::<Vec<_>>();
        assert_eq!(read(&[1, 1, 2, 4, 5, 6, 1, 4, 2, 0, 9]), [Some(2), Some(4)]);
        assert_eq!(read(&[1, 8]), [None]);
        assert_eq!(read(&[8, 0, 3, 3, 0]), [None]);
        assert_eq!(read(&[8, 1, 3, 3, 0]), [None]);
        assert_eq!(read(&[3, 3, 7, 8, 4, 0]), [Some(3), None]);
        assert!(read(&[]).is_empty());
    }
}
