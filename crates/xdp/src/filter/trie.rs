//! Tries that map IP address prefixes to classes of filter rules. The stride of the first level is 16 bits, that of the
//! following levels 8 bits. The class of each prefix is written over the classes of the shorter prefixes that cover it.
//! A lookup therefore ends at the first entry that does not refer to another node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use packet::net::Prefix;

use super::FilterError;
use super::bits::{Bits, Classes};

/// Number of trie entries in a cache line. A node is identified by the index of its first line.
pub(super) const LINE: usize = 16;
const ROOT: usize = 1 << 16;
const NODE: usize = 1 << 8;
/// Flag of a trie entry that refers to a node. An entry without the flag holds a class.
pub(super) const IS_NODE: u32 = 1 << 31;
/// Maximum number of trie entries of a filter. This many entries take 128 MiB.
const ENTRIES_MAX: usize = 1 << 25;

/// Compiled form of the source or destination address field: the bit rows of its classes, and the indices of the root
/// nodes of the IPv4 trie and the IPv6 trie.
#[derive(Debug)]
pub(super) struct AddressField {
    pub rows: Classes,
    pub root4: u32,
    pub root6: u32,
}

/// Adds the tries of the source or destination address field to `entries`. `wanted` holds the prefixes that each rule
/// matches. An empty list matches any address. Returns `None` if every rule matches any address.
pub(super) fn address_field(
    entries: &mut Vec<u32>,
    wanted: &[&[Prefix]],
) -> Result<Option<AddressField>, FilterError> {
    if wanted.iter().all(|prefixes| prefixes.is_empty()) {
        return Ok(None);
    }
    let mut any = Bits::none(wanted.len());
    // In this order a prefix comes after the prefixes that cover it.
    let mut by_prefix: [BTreeMap<Prefix, Bits>; 2] = [BTreeMap::new(), BTreeMap::new()];
    for (rule, prefixes) in wanted.iter().enumerate() {
        any.set(rule, prefixes.is_empty());
        for prefix in *prefixes {
            let family = &mut by_prefix[usize::from(prefix.address().is_ipv6())];
            family.entry(*prefix).or_insert_with(|| Bits::none(wanted.len())).set(rule, true);
        }
    }
    let mut rows = Classes::default();
    // Class 0 belongs to frames without addresses.
    let default = rows.of(&any)?;
    let [v4, v6] = by_prefix;
    let root4 = family(entries, &mut rows, &any, default, v4)?;
    let root6 = family(entries, &mut rows, &any, default, v6)?;
    Ok(Some(AddressField { rows, root4, root6 }))
}

fn family(
    entries: &mut Vec<u32>,
    rows: &mut Classes,
    any: &Bits,
    default: u32,
    prefixes: BTreeMap<Prefix, Bits>,
) -> Result<u32, FilterError> {
    let root = add_node(entries, ROOT, default)?;
    let mut covering: Vec<(Prefix, Bits)> = Vec::new();
    for (prefix, mut bits) in prefixes {
        while covering.last().is_some_and(|(outer, _)| !outer.contains(prefix.address())) {
            covering.pop();
        }
        bits.add(covering.last().map_or(any, |(_, bits)| bits));
        let class = rows.of(&bits)?;
        paint(entries, root, prefix, class)?;
        covering.push((prefix, bits));
    }
    Ok(root)
}

/// Adds a trie node of `size` entries, each with the value `content`. Returns the index of the node's first
/// line.
fn add_node(entries: &mut Vec<u32>, size: usize, content: u32) -> Result<u32, FilterError> {
    let at = entries.len();
    if at + size > ENTRIES_MAX {
        return Err(FilterError::Tables { table: "address tables", limit: "128 MiB" });
    }
    entries.resize(at + size, content);
    Ok(u32::try_from(at / LINE).unwrap_or(u32::MAX))
}

fn paint(entries: &mut Vec<u32>, root: u32, prefix: Prefix, class: u32) -> Result<(), FilterError> {
    let bytes: Vec<u8> = match prefix.address() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let length = usize::from(prefix.length());
    let mut index = usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    let mut node = root;
    let mut depth = 16;
    loop {
        let at = usize::try_from(node).unwrap_or(0) * LINE + index;
        if length <= depth {
            entries[at..at + (1 << (depth - length))].fill(class);
            return Ok(());
        }
        let entry = entries[at];
        node = if entry & IS_NODE == 0 { add_node(entries, NODE, entry)? } else { entry & !IS_NODE };
        entries[at] = node | IS_NODE;
        index = usize::from(bytes[depth / 8]);
        depth += 8;
    }
}
