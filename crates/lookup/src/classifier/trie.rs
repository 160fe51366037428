//! The set of the prefixes that rules have in one field, with bit granularity. The set is a binary trie that
//! has nodes only where a prefix ends or the trie forks.
//!
//! One walk with the field value of a key returns the lengths of all matching prefixes, and the number of
//! bits that the result depends on.

/// Index value that denotes no node.
const NONE: u32 = u32::MAX;

/// Returns a number of 128 bits whose highest `length` bits are set. `length` is at most 128.
#[inline(always)]
pub fn leading(length: u32) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - length.min(128)) }
}

/// Result of searching the trie for the prefixes that match a field value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Lengths of the prefixes that match the value. Bit `n - 1` represents length `n`.
    pub lengths: u128,
    /// Number of leading bits of the value that the result depends on. A value with equal leading bits
    /// matches the same prefixes.
    pub bits: u32,
}

impl Reach {
    /// Returns the result for a value that matches no prefix. The result depends on `bits` leading bits of the
    /// value.
    pub fn of_bits(bits: u32) -> Reach {
        Reach { lengths: 0, bits }
    }

    /// Returns whether a prefix of this length, 1 to 128, matches the value.
    #[inline(always)]
    pub fn has(&self, length: u32) -> bool {
        self.lengths >> (length - 1) & 1 == 1
    }
}

#[derive(Clone, Debug)]
struct Node {
    /// Bits of the prefix, left-aligned. The bits after the length are zero.
    bits: u128,
    length: u32,
    /// Number of rules that have this prefix. 0 at a node that is only a fork.
    rules: u32,
    children: [u32; 2],
}

/// A set of prefixes that counts the rules of each prefix.
#[derive(Clone, Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

/// Position of the pointer to a node: the root pointer (`None`), or the parent node and the index of the node in the
/// parent's `children`.
type Link = Option<(u32, usize)>;

#[inline(always)]
fn place(node: u32) -> usize {
    node as usize
}

/// Returns the bit of `bits` after the first `length` bits, which selects the child of a node whose prefix has this
/// length.
#[inline(always)]
fn side(bits: u128, length: u32) -> usize {
    usize::from(bits << length >> 127 == 1)
}

impl Trie {
    pub fn new() -> Trie {
        Trie { nodes: Vec::new(), free: Vec::new(), root: NONE }
    }

    /// Returns the memory use of the trie in bytes.
    pub fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.free.capacity() * size_of::<u32>()
    }

    /// Finds all prefixes that match `value`, whose first bit is the highest bit.
    pub fn walk(&self, value: u128) -> Reach {
        let (mut lengths, mut known, mut at) = (0, 0, self.root);
        while at != NONE {
            let node = &self.nodes[place(at)];
            let common = (node.bits ^ value).leading_zeros();
            if common < node.length {
                return Reach { lengths, bits: common + 1 };
            }
            if node.rules != 0 && node.length != 0 {
                lengths |= 1 << (node.length - 1);
            }
            known = node.length;
            if node.children == [NONE; 2] {
                break;
            }
            // The result also depends on the next bit, which selects the child node, even if this child node does not
            // exist.
            known += 1;
            at = node.children[side(value, node.length)];
        }
        Reach { lengths, bits: known }
    }

    fn node(&mut self, node: Node) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[place(at)] = node;
            return at;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
    }

    fn link(&mut self, link: Link, to: u32) {
        match link {
            None => self.root = to,
            Some((node, side)) => self.nodes[place(node)].children[side] = to,
        }
    }

    /// Adds a prefix. `bits` is left-aligned, and its bits after the length are zero.
    pub fn insert(&mut self, bits: u128, length: u32) {
        let leaf = Node { bits, length, rules: 1, children: [NONE; 2] };
        let (mut link, mut at) = (None, self.root);
        while at != NONE {
            let node = &mut self.nodes[place(at)];
            let common = (node.bits ^ bits).leading_zeros().min(length);
            if common < node.length {
                let (old, old_side) = (at, side(node.bits, common));
                let new = self.node(leaf);
                let top = if common == length {
                    new
                } else {
                    let fork =
                        Node { bits: bits & leading(common), length: common, rules: 0, children: [NONE; 2] };
                    let fork = self.node(fork);
                    self.link(Some((fork, 1 - old_side)), new);
                    fork
                };
                self.link(Some((top, old_side)), old);
                self.link(link, top);
                return;
            }
            if node.length == length {
                node.rules += 1;
                return;
            }
            let side = side(bits, node.length);
            link = Some((at, side));
            at = node.children[side];
        }
        let new = self.node(leaf);
        self.link(link, new);
    }

    /// Removes one occurrence of a prefix that [`Trie::insert`] added.
    pub fn remove(&mut self, bits: u128, length: u32) {
        let (mut above, mut link, mut at) = (None, None, self.root);
        while at != NONE {
            let node = &mut self.nodes[place(at)];
            if node.length == length && node.bits == bits {
                node.rules = node.rules.saturating_sub(1);
                self.tidy(link, at);
                // Removing a leaf may leave a fork with one side.
                if let Some((parent, _)) = link {
                    self.tidy(above, parent);
                }
                return;
            }
            if node.length >= length {
                return;
            }
            let side = side(bits, node.length);
            above = link;
            link = Some((at, side));
            at = node.children[side];
        }
    }

    /// Removes a node if no prefix ends at the node and the trie does not fork there.
    fn tidy(&mut self, link: Link, at: u32) {
        let node = &self.nodes[place(at)];
        let only = match node.children {
            [NONE, other] | [other, NONE] if node.rules == 0 => other,
            _ => return,
        };
        self.link(link, only);
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(octets: [u8; 4]) -> u128 {
        u128::from(u32::from_be_bytes(octets)) << 96
    }

    #[test]
    fn a_walk_tells_lengths_and_the_bits_that_it_took() {
        let mut trie = Trie::new();
        assert_eq!(trie.walk(address([10, 5, 6, 7])), Reach { lengths: 0, bits: 0 });
        trie.insert(address([10, 0, 0, 0]), 8);
        assert_eq!(trie.walk(address([10, 5, 6, 7])), Reach { lengths: 1 << 7, bits: 8 });
        trie.insert(address([10, 1, 2, 3]), 32);
        // 00000001 and 00000101 differ in the 14th bit.
        assert_eq!(trie.walk(address([10, 5, 6, 7])), Reach { lengths: 1 << 7, bits: 14 });
        assert_eq!(trie.walk(address([10, 1, 2, 3])), Reach { lengths: 1 << 7 | 1 << 31, bits: 32 });
        assert_eq!(trie.walk(address([138, 1, 2, 3])), Reach { lengths: 0, bits: 1 });
    }

    proptest! {
        #[test]
        fn walks_equal_a_search_and_the_bits_suffice(
            prefixes in prop::collection::vec((0_u8..4, 0_u8..4, 0_u32..=16), 0..30),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
            asked in prop::collection::vec((0_u8..4, 0_u8..4, any::<u128>()), 1..20),
        ) {
            let bits = |high: u8, low: u8| u128::from(u16::from_be_bytes([high << 6 | high, low << 6 | low])) << 112;
            let mut all: Vec<(u128, u32)> =
                prefixes.iter().map(|(high, low, length)| (bits(*high, *low) & leading(*length), *length)).collect();
            let mut trie = Trie::new();
            for (bits, length) in &all {
                trie.insert(*bits, *length);
            }
            for index in removed {
                if !all.is_empty() {
                    let (bits, length) = all.swap_remove(index.index(all.len()));
                    trie.remove(bits, length);
                }
            }
            for (high, low, noise) in asked {
                let value = bits(high, low);
                let reach = trie.walk(value);
                for length in 1..=128 {
                    let there = all.iter().any(|(bits, own)| *own == length && value & leading(length) == *bits);
                    prop_assert_eq!(reach.has(length), there);
                }
                let other = value ^ (noise & !leading(reach.bits));
                prop_assert_eq!(trie.walk(other), reach);
            }
            for (bits, length) in all {
                trie.remove(bits, length);
            }
            prop_assert!(trie.root == NONE && trie.free.len() == trie.nodes.len());
        }
    }
}
