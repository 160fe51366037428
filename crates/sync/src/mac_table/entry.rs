//! An entry of the MAC table as its callers see it.

/// An entry as returned by sweeps and listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Key of the caller.
    pub key: u64,
    /// Value that the caller stored with the key.
    pub value: u32,
    /// Time of the last refresh in seconds (16 bits, wrapping).
    pub age: u16,
}
