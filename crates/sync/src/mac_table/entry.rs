//! Entry of the MAC table, in the form in which callers read an entry.

/// An entry of the MAC table: its key, its value and the time of its last refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Key under which the caller inserted the entry.
    pub key: u64,
    /// Value that the caller stored with the key.
    pub value: u32,
    /// Time of the last refresh, in seconds modulo 2^16.
    pub age: u16,
}
