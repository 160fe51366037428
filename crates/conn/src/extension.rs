//! Extension records of a table: the marks and labels of connections that have them.
//!
//! Most connections of a router have neither a mark nor a label. Therefore an entry holds only the index of a record.

/// End of the list of unused records.
const NONE: u32 = u32::MAX;

/// Mark and label of a connection, 32 bytes. Open vSwitch calls these fields `ct_mark` and `ct_label`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extension {
    /// Label, 128 bits.
    pub label: u128,
    /// Mark, 32 bits. In an unused record: number of the next unused record.
    pub mark: u32,
}

/// Error: all extension records are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoExtension;

#[derive(Debug)]
pub(crate) struct Extensions {
    records: Vec<Extension>,
    unused: u32,
    limit: usize,
}

impl Extensions {
    /// Returns an empty array for at most `limit` records. The kernel provides the pages of the memory on first use.
    pub(crate) fn new(limit: u32) -> Extensions {
        let limit = limit as usize;
        Extensions { records: sync::memory::vec_on_huge_pages(limit), unused: NONE, limit }
    }

    /// Returns the record with an index. Index 0 means a mark and a label of 0.
    pub(crate) fn get(&self, index: u32) -> Extension {
        let at = (index as usize).checked_sub(1);
        at.and_then(|at| self.records.get(at)).copied().unwrap_or_default()
    }

    /// Returns whether the record with an index can be replaced by this record.
    pub(crate) fn can_set(&self, index: u32, record: Extension) -> bool {
        let has_unused = self.unused != NONE || self.records.len() < self.limit;
        record == Extension::default() || index != 0 || has_unused
    }

    /// Replaces the record with an index, and returns its new index. Index 0 is the record of a mark and a label of 0.
    ///
    /// # Errors
    /// Returns an error if a new record is needed, and all are in use. Nothing is changed then.
    pub(crate) fn set(&mut self, index: u32, record: Extension) -> Result<u32, NoExtension> {
        if record == Extension::default() {
            self.remove(index);
            return Ok(0);
        }
        let at = match index.checked_sub(1) {
            Some(at) => at,
            None => self.unused()?,
        };
        if let Some(place) = self.records.get_mut(at as usize) {
            *place = record;
        }
        Ok(at + 1)
    }

    /// Makes the record with an index unused. Does nothing for index 0.
    pub(crate) fn remove(&mut self, index: u32) {
        let at = (index as usize).checked_sub(1);
        if let Some(record) = at.and_then(|at| self.records.get_mut(at)) {
            *record = Extension { label: 0, mark: self.unused };
            self.unused = index - 1;
        }
    }

    /// Returns the number of an unused record, and removes the record from the list of unused records.
    fn unused(&mut self) -> Result<u32, NoExtension> {
        if let Some(record) = self.records.get(self.unused as usize) {
            return Ok(std::mem::replace(&mut self.unused, record.mark));
        }
        if self.records.len() >= self.limit {
            return Err(NoExtension);
        }
        self.records.push(Extension::default());
        u32::try_from(self.records.len() - 1).map_err(|_| NoExtension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_used_again() {
        let mut extensions = Extensions::new(2);
        let of = |mark| Extension { mark, label: 7 };
        let (a, b) = (extensions.set(0, of(1)).unwrap(), extensions.set(0, of(2)).unwrap());
        assert_eq!(
            (extensions.get(a), extensions.get(b), extensions.get(0)),
            (of(1), of(2), Extension::default())
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
