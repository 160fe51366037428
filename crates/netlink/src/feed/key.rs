//! Keys that identify an IPv4 or IPv6 prefix in a routing table.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::state::{self, TablePrefix};

/// Number of a kernel routing table, and an IPv4 or IPv6 prefix in this table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    Four(u32, state::Prefix<Ipv4Addr>),
    Six(u32, state::Prefix<Ipv6Addr>),
}

impl Key {
    /// Returns the lowest possible key in the routing table after the table of this key. The first IPv6 table comes
    /// after the last IPv4 table. Returns `None` for a key in the last IPv6 table.
    pub(super) fn next_table(self) -> Option<Key> {
        let four = |table| Key::first_of(table, false);
        let six = |table| Key::first_of(table, true);
        match self {
            Key::Four(table, _) => Some(table.checked_add(1).map_or_else(|| six(0), four)),
            Key::Six(table, _) => table.checked_add(1).map(six),
        }
    }

    pub(super) fn first_of(table: u32, v6: bool) -> Key {
        if v6 {
            return Key::Six(table, state::Prefix { address: Ipv6Addr::UNSPECIFIED, length: 0 });
        }
        Key::Four(table, state::Prefix { address: Ipv4Addr::UNSPECIFIED, length: 0 })
    }
}

impl Key {
    pub(super) fn is_v6(self) -> bool {
        matches!(self, Key::Six(..))
    }

    pub(super) fn table(self) -> u32 {
        match self {
            Key::Four(table, _) | Key::Six(table, _) => table,
        }
    }

    pub(super) fn table_prefix(self) -> TablePrefix {
        match self {
            Key::Four(table, state::Prefix { address, length }) => {
                (table, state::Prefix { address: address.into(), length })
            }
            Key::Six(table, state::Prefix { address, length }) => {
                (table, state::Prefix { address: address.into(), length })
            }
        }
    }
}

pub(super) fn four(prefix: state::Prefix<Ipv4Addr>) -> lookup::Prefix<u32> {
    lookup::Prefix::new(prefix.address.to_bits(), prefix.length)
}

pub(super) fn six(prefix: state::Prefix<Ipv6Addr>) -> lookup::Prefix<u128> {
    lookup::Prefix::new(prefix.address.to_bits(), prefix.length)
}
