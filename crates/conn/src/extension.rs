//! Extension records of a table: the marks and labels of connections that have them, and the translations of NAT.
//!
//! Most connections of a router have neither a mark nor a label nor a translation. Therefore an entry holds only the
//! index of a record. A connection with a translation has one record for the translation, the mark and the label.

use sync::memory::vec_on_huge_pages;

use crate::nat::ports::Lease;
use crate::nat::spec::Translation;
use crate::tuple::{Address, Tuple};

/// End of the list of unused records.
const NONE: u32 = u32::MAX;

/// Mark and label of a connection, 32 bytes. Open vSwitch calls these fields `ct_mark` and `ct_label`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extension {
    /// Label, 128 bits.
    pub label: u128,
    /// Mark, 32 bits.
    pub mark: u32,
}

/// Error: all extension records are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoExtension;

/// Record of a connection with a translation: 48 bytes for IPv4, 80 bytes for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Translated<A> {
    label: u128,
    lease: Lease,
    mark: u32,
    /// Tuple of the replies without the zone and the protocol, which are those of the entry.
    low: A,
    high: A,
    low_port: u16,
    high_port: u16,
}

const _: () = assert!(size_of::<Translated<u32>>() == 48 && size_of::<Translated<u128>>() == 80);

impl<A: Address> Translated<A> {
    /// Returns the record of a translation.
    pub(crate) fn of(translation: &Translation<A>, extension: Extension) -> Translated<A> {
        let Tuple { low, high, low_port, high_port, .. } = translation.reply_tuple;
        let Extension { label, mark } = extension;
        Translated { label, lease: translation.lease, mark, low, high, low_port, high_port }
    }

    /// Returns the tuple of the replies in a zone and of a protocol.
    #[inline]
    pub(crate) fn reply_tuple(&self, zone: u16, protocol: u8) -> Tuple<A> {
        let Translated { low, high, low_port, high_port, .. } = *self;
        Tuple { low, high, low_port, high_port, zone, protocol }
    }

    /// Returns the lease of the source port.
    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns the mark and the label.
    pub(crate) fn extension(&self) -> Extension {
        Extension { label: self.label, mark: self.mark }
    }

    /// Sets the mark and the label.
    pub(crate) fn set_extension(&mut self, Extension { label, mark }: Extension) {
        (self.label, self.mark) = (label, mark);
    }
}

/// A record that can hold the number of the next unused record.
pub(crate) trait Record: Copy {
    /// Returns an unused record before the unused record `next`.
    fn unused(next: u32) -> Self;

    /// Returns the number of the unused record after an unused record.
    fn next(&self) -> u32;
}

impl Record for Extension {
    fn unused(next: u32) -> Extension {
        Extension { label: 0, mark: next }
    }

    fn next(&self) -> u32 {
        self.mark
    }
}

impl<A: Address> Record for Translated<A> {
    fn unused(next: u32) -> Translated<A> {
        let (low, high) = (A::default(), A::default());
        Translated { label: 0, lease: Lease::NONE, mark: next, low, high, low_port: 0, high_port: 0 }
    }

    fn next(&self) -> u32 {
        self.mark
    }
}

/// Array of records. The indexes of records begin with 1. Index 0 means no record.
#[derive(Debug)]
pub(crate) struct Records<R> {
    records: Vec<R>,
    unused: u32,
    limit: usize,
}

impl<R: Record> Records<R> {
    /// Returns an empty array for at most `limit` records. The kernel provides the pages of the memory on first use.
    pub(crate) fn new(limit: u32) -> Records<R> {
        let limit = limit as usize;
        Records { records: vec_on_huge_pages(limit), unused: NONE, limit }
    }

    /// Returns the memory in bytes when all records are in use.
    pub(crate) fn memory(&self) -> usize {
        self.limit * size_of::<R>()
    }

    /// Returns whether there is an unused record.
    pub(crate) fn has_unused(&self) -> bool {
        self.unused != NONE || self.records.len() < self.limit
    }

    /// Returns the record with an index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&R> {
        self.records.get((index as usize).checked_sub(1)?)
    }

    /// Returns the record with an index for a change.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut R> {
        self.records.get_mut((index as usize).checked_sub(1)?)
    }

    /// Adds a record, and returns its index.
    ///
    /// # Errors
    /// Returns an error if all records are in use.
    pub(crate) fn insert(&mut self, record: R) -> Result<u32, NoExtension> {
        if let Some(place) = self.records.get_mut(self.unused as usize) {
            let at = std::mem::replace(&mut self.unused, place.next());
            *place = record;
            return Ok(at + 1);
        }
        if self.records.len() >= self.limit {
            return Err(NoExtension);
        }
        self.records.push(record);
        u32::try_from(self.records.len()).map_err(|_| NoExtension)
    }

    /// Makes the record with an index unused. Does nothing for index 0.
    pub(crate) fn remove(&mut self, index: u32) {
        let next = self.unused;
        if let Some(record) = self.get_mut(index) {
            *record = R::unused(next);
            self.unused = index - 1;
        }
    }
}

impl Records<Extension> {
    /// Replaces the record with an index, and returns its new index. Index 0 is the record of a mark and a label of 0.
    ///
    /// # Errors
    /// Returns an error if a new record is needed, and all are in use. Nothing is changed then.
    pub(crate) fn set(&mut self, index: u32, record: Extension) -> Result<u32, NoExtension> {
        if record == Extension::default() {
            self.remove(index);
            return Ok(0);
        }
        match self.get_mut(index) {
            Some(place) => {
                *place = record;
                Ok(index)
            }
            None => self.insert(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_used_again() {
        let mut extensions = Records::<Extension>::new(2);
        let of = |mark| Extension { mark, label: 7 };
        let (a, b) = (extensions.set(0, of(1)).unwrap(), extensions.set(0, of(2)).unwrap());
        assert_eq!(
            (extensions.get(a), extensions.get(b), extensions.get(0)),
            (Some(&of(1)), Some(&of(2)), None)
        );
        assert_eq!(extensions.set(0, of(3)), Err(NoExtension));
        assert_eq!(extensions.set(a, of(4)), Ok(a));
        // A record of zeros is no record.
        assert_eq!(extensions.set(a, Extension::default()), Ok(0));
        assert_eq!(extensions.set(0, of(5)), Ok(a));
        extensions.remove(b);
        extensions.remove(a);
        assert_eq!((extensions.set(0, of(6)), extensions.set(0, of(7))), (Ok(a), Ok(b)));
        assert_eq!(extensions.set(0, of(8)), Err(NoExtension));
    }
}
