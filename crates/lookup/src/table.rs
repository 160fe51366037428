//! The writer side of a trie: the map of prefixes, and the construction of the words that look-ups read.

use std::array;
use std::fmt;
use std::sync::Arc;

use sync::qsbr::Domain;
use sync::readers::{Memory, Readers};

use crate::prefix::{Address, Prefix};
use crate::routes::Routes;
use crate::trie::{DEFAULT, Hop, IS_NODE, NODE, ROOT, STRIDE, Trie, low, place};
use crate::words::{Part, Parts, TableFull};

/// Number of slots in a node.
const SLOTS: usize = 64;

/// A table of prefixes and next hops. Only one thread, which owns the table, changes it. See the crate's documentation.
pub struct Table<A: Address> {
    routes: Routes<A>,
    /// For each prefix length, number of prefixes with this length.
    lengths: Vec<usize>,
    parts: Parts,
    /// Parts of the word array that the current change has written. Readers cannot reach these
    /// parts yet.
    made: Vec<Part>,
    /// Parts of the word array that readers can no longer reach after the current change is published.
    left: Vec<Part>,
}

/// Memory use of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Number of prefixes in the table.
    pub prefixes: usize,
    /// Number of bytes of the trie that are in use.
    pub bytes: usize,
    /// Number of bytes of the trie that have been in use at least once. Only these bytes occupy memory.
    pub touched: usize,
    /// Maximum size of the trie, in bytes.
    pub capacity: usize,
}

/// Content of a slot of a node, or of an entry of the root table: a next hop or a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Hop(u32),
    Node([u64; NODE]),
}

impl<A: Address> Table<A> {
    /// Returns a table without prefixes. The trie has `words` words of eight bytes. Readers of the trie
    /// register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, words: usize) -> Table<A> {
        Table {
            routes: Routes::new(),
            lengths: vec![0; place(A::BITS) + 1],
            parts: Parts::new(domain, words, ROOT + (1 << A::ROOT_BITS)),
            made: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Returns a table whose trie is also written to external memory (a mapped BPF array) at the same offsets, for
    /// readers that are not workers. The memory must be zero and must have no other writer. The length of the memory
    /// determines the length of the trie.
    ///
    /// External readers start at the root entry of an address: the word whose index is 1 plus the first
    /// [`Address::ROOT_BITS`] bits of the address. See the crate's documentation. If this word is 0, word 0 applies,
    /// which holds the default route. Memory that external readers may still use is not rewritten until `readers`
    /// reports that the use has ended. If no other memory is free, a change waits for this report, which takes a few
    /// milliseconds.
    ///
    /// # Errors
    /// Returns [`TableFull`] if the memory is too small for a root table.
    pub fn mirrored(readers: &Readers, memory: Memory) -> Result<Table<A>, TableFull> {
        Ok(Table {
            routes: Routes::new(),
            lengths: vec![0; place(A::BITS) + 1],
            parts: Parts::mirrored(readers, memory, ROOT + (1 << A::ROOT_BITS))?,
            made: Vec::new(),
            left: Vec::new(),
        })
    }

    /// Returns a handle with which readers look up next hops in the table.
    #[must_use]
    pub fn trie(&self) -> Trie<A> {
        Trie::new(self.parts.shared())
    }

    /// Sets the next hop of a prefix and returns the previous next hop, or `None` if the prefix is new.
    /// Setting [`Hop::NONE`] is equivalent to [`Table::remove`].
    ///
    /// # Errors
    /// Returns [`TableFull`] if the trie has no space for the change. The table has not changed then.
    pub fn insert(&mut self, prefix: Prefix<A>, hop: Hop) -> Result<Option<Hop>, TableFull> {
        let before = self.set(prefix, hop);
        if before.unwrap_or_default() != hop {
            self.rewritten(prefix).inspect_err(|_| {
                self.set(prefix, before.unwrap_or_default());
            })?;
        }
        Ok(before)
    }

    /// Removes a prefix and returns its next hop. Returns `None` if the table does not contain the prefix.
    ///
    /// # Errors
    /// Returns [`TableFull`] if the trie has no space for the change. The table has not changed then. Some
    /// words of the trie are reserved for removals. The reserve runs out only if a prefix shorter than
    /// [`Address::ROOT_BITS`] is removed, or after thousands of removals during which no reader passes a
    /// quiescent point.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<Hop>, TableFull> {
        self.insert(prefix, Hop::NONE)
    }

    /// Sets the next hops of many prefixes. The result is that of calling [`Table::insert`] for each prefix
    /// in turn, but loading a whole table is faster. Readers see the changes in several steps.
    ///
    /// # Errors
    /// Returns [`TableFull`] if the trie has no space for the changes. The table has not changed then.
    pub fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, Hop)>) -> Result<(), TableFull> {
        let mut before: Vec<(Prefix<A>, Hop)> = Vec::new();
        for (prefix, hop) in routes {
            before.push((prefix, self.set(prefix, hop).unwrap_or_default()));
        }
        let everything = Prefix::new(A::FIRST, 0);
        self.rewritten(everything).inspect_err(|_| {
            for (prefix, hop) in before.into_iter().rev() {
                self.set(prefix, hop);
            }
        })
    }

    /// Returns the next hop of exactly this prefix. Returns `None` if the table does not contain the prefix.
    #[must_use]
    pub fn get(&self, prefix: &Prefix<A>) -> Option<Hop> {
        self.routes.get(prefix)
    }

    /// Returns the longest prefix that contains an address, and its next hop. Returns `None` if no prefix
    /// contains the address. [`Trie::look_up`] returns only the next hop.
    #[must_use]
    pub fn longest(&self, address: A) -> Option<(Prefix<A>, Hop)> {
        self.cover(address, 0, A::BITS)
    }

    /// Returns an iterator over all prefixes and their next hops, ordered by address and then by length.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, Hop)> + '_ {
        self.routes.iter()
    }

    /// Returns the number of prefixes in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether the table has no prefixes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory use of the table.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (used, touched, capacity) = self.parts.usage();
        Usage { prefixes: self.len(), bytes: 8 * used, touched: 8 * touched, capacity: 8 * capacity }
    }

    /// Returns whether words of the trie were unlinked, but cannot be reused before the end of a grace period.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        self.parts.is_freeing()
    }

    /// Frees unlinked words of the trie that no reader can reach any more. Each change does this implicitly. The method
    /// never waits.
    pub fn collect(&mut self) {
        self.parts.collect(true);
    }

    /// Calls a function with the words of the trie. Tests use this to compare implementations of the look-up.
    #[cfg(test)]
    pub(crate) fn read<R>(&self, by: impl FnOnce(&[std::sync::atomic::AtomicU64]) -> R) -> R {
        by(&self.parts.shared().words)
    }

    /// Changes only the map of prefixes, not the trie. Returns the previous next hop.
    fn set(&mut self, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        let before = match hop {
            Hop::NONE => self.routes.remove(&prefix),
            hop => self.routes.insert(prefix, hop),
        };
        if let Some(count) = self.lengths.get_mut(usize::from(prefix.length())) {
            *count = *count + usize::from(hop != Hop::NONE) - usize::from(before.is_some());
        }
        before
    }

    /// Returns the longest prefix with `least` to `most` bits that contains an address. Returns `None` if there is no
    /// such prefix.
    fn cover(&self, address: A, least: u32, most: u32) -> Option<(Prefix<A>, Hop)> {
        (least..=most.min(A::BITS))
            .rev()
            .filter(|length| self.lengths.get(place(*length)) != Some(&0))
            .find_map(|length| {
                let prefix = Prefix::new(address, u8::try_from(length).ok()?);
                self.routes.get(&prefix).map(|hop| (prefix, hop))
            })
    }

    /// Returns the next hop of the longest prefix with 1 to `most` bits that contains an address. Returns 0 if there is
    /// no such prefix. The default route does not count, because its next hop is stored in a separate word.
    fn inherited(&self, address: A, most: u32) -> u32 {
        self.cover(address, 1, most).map_or(0, |(_, hop)| hop.0)
    }

    /// Builds new versions of those parts of the trie that cover the addresses of a prefix. All new words are written
    /// before the first new word is published.
    fn rewritten(&mut self, prefix: Prefix<A>) -> Result<(), TableFull> {
        self.parts.use_reserve(self.get(&prefix).is_none());
        let entries = self.root_entries(prefix);
        let (made, left) = (std::mem::take(&mut self.made), std::mem::take(&mut self.left));
        let entries = match entries {
            Ok(entries) => entries,
            Err(full) => {
                made.into_iter().for_each(|part| self.parts.give_back(part));
                return Err(full);
            }
        };
        entries.into_iter().for_each(|(at, entry)| self.parts.publish(at, entry));
        if prefix.length() == 0 {
            let default = self.get(&prefix).unwrap_or_default();
            self.parts.publish(DEFAULT, u64::from(default.0));
        }
        left.into_iter().for_each(|part| self.parts.retire(part));
        Ok(())
    }

    /// Returns the entries of the root table that a change of a prefix affects, each with its index and new value.
    fn root_entries(&mut self, prefix: Prefix<A>) -> Result<Vec<(usize, u64)>, TableFull> {
        let length = u32::from(prefix.length());
        let first = ROOT + prefix.address().bits(0, A::ROOT_BITS);
        if length > A::ROOT_BITS {
            let old = self.parts.read(first);
            let held = self.held(old);
            let entry = self.changed(held, A::ROOT_BITS, prefix)?;
            return Ok(vec![(first, self.root_entry(old, entry)?)]);
        }
        let mut slots = vec![Entry::Hop(0); 1 << (A::ROOT_BITS - length)];
        self.fill(prefix, A::ROOT_BITS, &mut slots)?;
        let mut entries = Vec::new();
        for (at, entry) in (first..).zip(slots) {
            let old = self.parts.read(at);
            let held = self.held(old);
            self.leave_all(held);
            let new = self.root_entry(old, entry)?;
            if new != old {
                entries.push((at, new));
            }
        }
        Ok(entries)
    }

    /// Returns the new value of a root table entry. Marks as unreachable the node to which the old value points.
    fn root_entry(&mut self, old: u64, entry: Entry) -> Result<u64, TableFull> {
        if old & IS_NODE != 0 {
            self.left.push(Part { at: low(old), length: NODE });
        }
        Ok(match entry {
            Entry::Hop(hop) => u64::from(hop),
            Entry::Node(words) => IS_NODE | u64::from(self.placed(&words)?.at),
        })
    }

    /// Returns the content of a root table entry.
    fn held(&self, entry: u64) -> Entry {
        if entry & IS_NODE == 0 { Entry::Hop(low(entry)) } else { Entry::Node(self.node(place(low(entry)))) }
    }

    fn node(&self, at: usize) -> [u64; NODE] {
        array::from_fn(|word| self.parts.read(at + word))
    }

    fn placed(&mut self, content: &[u64]) -> Result<Part, TableFull> {
        let part = self.parts.place(content)?;
        self.made.push(part);
        Ok(part)
    }

    /// Returns the updated version of an entry that covers addresses whose first `from` bits are equal. Only `prefix`,
    /// which is longer than `from` bits, has changed since the entry was written.
    fn changed(&mut self, old: Entry, from: u32, prefix: Prefix<A>) -> Result<Entry, TableFull> {
        let mut slots = self.slots(&old);
        self.leave(&old);
        let below = from + STRIDE;
        let first = prefix.address().bits(from, STRIDE);
        let length = u32::from(prefix.length());
        let count = 1 << below.saturating_sub(length);
        let Some(under) = slots.get_mut(first..first + count) else { return Ok(old) };
        match under {
            [slot] if length > below => *slot = self.changed(*slot, below, prefix)?,
            under => {
                under.iter().for_each(|slot| self.leave_all(*slot));
                self.fill(prefix, below, under)?;
            }
        }
        self.joined(&slots)
    }

    /// Computes the entries of `slots` from the map of prefixes. Together the slots cover the addresses of `prefix`.
    /// Each slot covers addresses whose first `below` bits are equal.
    fn fill(&mut self, prefix: Prefix<A>, below: u32, slots: &mut [Entry]) -> Result<(), TableFull> {
        let (address, length) = (prefix.address(), u32::from(prefix.length()));
        slots.fill(Entry::Hop(self.inherited(address, length)));
        let Ok(longest) = u8::try_from(A::BITS) else { return Ok(()) };
        // The range begins with prefixes that are longer than `prefix`, so that `prefix` itself and shorter prefixes
        // with an equal address are excluded.
        let first = Prefix::new(address, prefix.length().saturating_add(1));
        if first.length() == prefix.length() {
            return Ok(());
        }
        let last = Prefix::new(address.last(length), longest);
        let inner: Vec<(Prefix<A>, Hop)> = self.routes.range(first, last).collect();
        self.spread(&inner, length, below, slots)
    }

    /// Applies the prefixes in `routes`, which are longer than `from` bits, to `slots` in order. Each slot covers
    /// addresses whose first `below` bits are equal.
    fn spread(
        &mut self,
        mut routes: &[(Prefix<A>, Hop)],
        from: u32,
        below: u32,
        slots: &mut [Entry],
    ) -> Result<(), TableFull> {
        while let Some(((prefix, hop), rest)) = routes.split_first() {
            let (number, length) = (prefix.address().bits(from, below - from), u32::from(prefix.length()));
            if length <= below {
                // Shorter prefixes that cover these slots have already been applied. Longer prefixes follow.
                let covered = slots.iter_mut().skip(number).take(1 << (below - length));
                covered.for_each(|slot| *slot = Entry::Hop(hop.0));
                routes = rest;
                continue;
            }
            let count =
                routes.partition_point(|(other, _)| other.address().bits(from, below - from) <= number);
            let (deeper, others) = routes.split_at(count.max(1));
            routes = others;
            if let Some(slot) = slots.get_mut(number) {
                let mut under = [*slot; SLOTS];
                self.spread(deeper, below, below + STRIDE, &mut under)?;
                *slot = self.joined(&under)?;
            }
        }
        Ok(())
    }

    /// Returns a new node with the given slots. If all slots have an equal next hop, returns the next hop
    /// instead.
    fn joined(&mut self, slots: &[Entry; SLOTS]) -> Result<Entry, TableFull> {
        if let Some(Entry::Hop(hop)) = slots.first().filter(|first| slots.iter().all(|slot| slot == *first)) {
            return Ok(Entry::Hop(*hop));
        }
        let (mut children, mut leaves) = (Vec::new(), Vec::new());
        let (mut is_node, mut is_new) = (0, 0);
        for (number, slot) in slots.iter().enumerate() {
            match slot {
                Entry::Node(words) => {
                    is_node |= 1 << number;
                    children.extend_from_slice(words);
                }
                Entry::Hop(hop) => {
                    if leaves.last() != Some(hop) {
                        is_new |= 1 << number;
                        leaves.push(*hop);
                    }
                }
            }
        }
        let pairs: Vec<u64> = leaves
            .chunks(2)
            .map(|pair| pair.iter().rev().fold(0, |word, hop| word << 32 | u64::from(*hop)))
            .collect();
        let children_at = if children.is_empty() { 0 } else { self.placed(&children)?.at };
        let leaves_at = if pairs.is_empty() { 0 } else { self.placed(&pairs)?.at };
        Ok(Entry::Node([is_node, is_new, u64::from(children_at) | u64::from(leaves_at) << 32]))
    }

    /// Returns the slots of an entry. If the entry is a next hop, returns slots that all have this next hop.
    fn slots(&self, entry: &Entry) -> [Entry; SLOTS] {
        let [is_node, is_new, bases] = match entry {
            Entry::Hop(_) => return [*entry; SLOTS],
            Entry::Node(words) => *words,
        };
        let (mut child, leaves) = (place(low(bases)), place(low(bases >> 32)));
        let (mut seen, mut hop) = (0, 0);
        array::from_fn(|number| {
            if is_node >> number & 1 == 1 {
                child += NODE;
                return Entry::Node(self.node(child - NODE));
            }
            if is_new >> number & 1 == 1 {
                hop = low(self.parts.read(leaves + seen / 2) >> (32 * (seen & 1)));
                seen += 1;
            }
            Entry::Hop(hop)
        })
    }

    /// Marks the arrays with the children and the leaves of an entry's node as unreachable. The arrays of the child
    /// nodes may remain reachable.
    fn leave(&mut self, entry: &Entry) {
        let Entry::Node([is_node, is_new, bases]) = entry else { return };
        let (children, leaves) = (NODE * place(is_node.count_ones()), place(is_new.count_ones()).div_ceil(2));
        for (at, length) in [(low(*bases), children), (low(bases >> 32), leaves)] {
            if length > 0 {
                self.left.push(Part { at, length });
            }
        }
    }

    /// Marks the arrays with the children and the leaves of an entry's node, and the arrays of all its descendants, as
    /// unreachable.
    fn leave_all(&mut self, entry: Entry) {
        if let Entry::Node([is_node, _, bases]) = entry {
            self.leave(&entry);
            for child in 0..place(is_node.count_ones()) {
                let child = self.node(place(low(bases)) + NODE * child);
                self.leave_all(Entry::Node(child));
            }
        }
    }
}

impl<A: Address> fmt::Debug for Table<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
