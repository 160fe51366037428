//! Packet classifier: finds the matching rule of the highest priority among rules with masks (tuple space search). A
//! look-up also reports the key bits that its result depends on.
//!
//! The slow path looks up a packet here if no [`FlowCache`](crate::FlowCache) entry matches the packet. A change
//! needs exclusive access to the classifier. Look-ups do not modify the classifier, so several threads may share
//! it.
//!
//! ```text
//!  by highest priority      a subtable: all rules of one mask
//!  +----------------+      +---------+---------+---------+   hashes of the rules' words up to the end of each stage
//!  | 900  subtable -+----> |metadata |  + L2   |  + L3   |   (one set a stage; a hash continues the previous one)
//!  | 500  subtable  |      +---------+---------+---------+---------+
//!  | 500  subtable  |      |    whole hash -> rule -> rule of lower priority   |   masked words, priority, payload
//!  |   0  subtable  |      +-------------------------------------------+-------+
//!  +----------------+        prefixes of the rules in tracked fields       ports: one trie for each subtable
//! ```
//!
//! The algorithms are those of "The Design and Implementation of Open vSwitch" (NSDI 2015), section 5. The
//! [`Options`] can disable each of them. The algorithms affect only the cost of a look-up and how many key bits a
//! result depends on, never the priority of the result. Several keys can be looked up together
//! ([`Classifier::lookup_burst_tracked`]). All of them are then compared with one subtable before the next.
//!
//! Invariants: no subtable is empty. `order` contains each subtable once. The prefix sets, stage sets and the
//! partition index count exactly the existing rules, as far as the options enable them.
//!
//! ```
//! use lookup::{Classifier, Layout, Octets, Options, Rule};
//!
//! // Two words: metadata, and an IPv4 address with four octets to spare.
//! const LAYOUT: Layout<2> = Layout::new([1, 1, 2, 2], &[Octets { from: 8, count: 4 }], &[], (0, 1));
//! let address = |octets: [u8; 4]| u64::from_ne_bytes([octets[0], octets[1], octets[2], octets[3], 0, 0, 0, 0]);
//!
//! let mut rules = Classifier::new(LAYOUT, Options::default());
//! let ten = Rule { value: [0, address([10, 0, 0, 0])], mask: [0, address([255, 0, 0, 0])], priority: 1, payload: "10/8" };
//! let host = Rule { value: [0, address([10, 1, 2, 3])], mask: [0, address([255; 4])], priority: 2, payload: "host" };
//! rules.insert(ten).unwrap();
//! rules.insert(host).unwrap();
//!
//! let mut wild = [0; 2];
//! assert_eq!(rules.lookup_tracked(&[7, address([10, 5, 6, 7])], &mut wild), Some((&"10/8", 1)));
//! assert_eq!(wild, [0, address([255, 255, 0, 0])]);
//! ```

mod burst;
mod layout;
mod long_lists;
mod octet_sets;
mod partitions;
mod search;
mod subtable;
mod terms;
mod trie;

use sync::hash::{Secret, Secrets, fold, short};

use crate::buckets::Buckets;
use crate::rule::{Entry, Rule, matches};
pub use burst::BURST;
use layout::field;
pub use layout::{Layout, Octets};
use octet_sets::OctetSets;
use partitions::Partitions;
use subtable::{Change, NONE, Subtable, ports_of};
use terms::Terms;
use trie::{Reach, Trie};

/// Granularity in which look-ups record the bits of an address or another prefix field that a result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixStep {
    /// Bit granularity: a look-up records the minimum number of leading bits of the field.
    Bit,
    /// Octet granularity: a look-up records up to seven more leading bits than necessary. The look-ups of many keys
    /// then record only about an eighth as many different masks.
    Octet,
}

/// Optimisations of a classifier's look-ups, which can be enabled separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a look-up searches subtables in descending order of their highest priority, and ends when no
    /// remaining subtable can have a better rule.
    pub sorted: bool,
    /// Whether tracked look-ups match a subtable stage by stage (metadata, L2, L3, L4). The result then does not
    /// depend on key bits in the stages after the first stage without a match.
    pub staged: bool,
    /// Whether tracked look-ups skip a subtable if no rule in the classifier has a prefix of the subtable's prefix
    /// length that matches the key.
    pub prefixes: bool,
    /// Prefix fields of the layout to which `prefixes` applies. Bit `n` represents the field with index `n` in the
    /// layout.
    pub prefix_fields: u8,
    /// Granularity in which look-ups record the prefix bits that a result depends on.
    pub prefix_step: PrefixStep,
    /// Whether a tracked look-up records only port bits for a subtable in which no rule has the port numbers of the
    /// key. The recorded bits are the leading port bits that prove this. Without this option, the look-up records all
    /// bits of the mask.
    pub ports: bool,
    /// Whether look-ups skip a subtable if none of its rules has the key's value in the partition words (the words of a
    /// key that the argument `partition` of [`Layout::new`] selects).
    pub partitions: bool,
    /// Maximum number of rules in the classifier.
    pub most_rules: u32,
}

impl Options {
    /// Returns whether look-ups track the prefixes of the field with the index `field` in the layout.
    #[inline(always)]
    fn tracks(&self, field: usize) -> bool {
        self.prefix_fields >> field & 1 == 1
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sorted: true,
            staged: true,
            prefixes: true,
            prefix_fields: u8::MAX,
            prefix_step: PrefixStep::Octet,
            ports: true,
            partitions: true,
            most_rules: u32::MAX - 1,
        }
    }
}

/// Error of [`Classifier::insert`]: the classifier already holds as many rules as its [`Options`] allow. The classifier
/// has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {most} rules already, which is the limit")]
pub struct RulesFull {
    /// Maximum number of rules that the classifier may hold.
    pub most: u32,
}

/// Set of the prefixes that all rules of a classifier have in one prefix field of the layout.
#[derive(Debug)]
struct Tracked {
    octets: Octets,
    stage: usize,
    prefixes: Prefixes,
}

/// Set of prefixes, in the data structure for bit or octet granularity ([`PrefixStep`]).
#[derive(Debug)]
enum Prefixes {
    Bits(Trie),
    Octets(OctetSets),
}

impl Prefixes {
    fn new(step: PrefixStep, secrets: &Secrets) -> Prefixes {
        match step {
            PrefixStep::Bit => Prefixes::Bits(Trie::new()),
            PrefixStep::Octet => Prefixes::Octets(OctetSets::new(secrets)),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Prefixes::Bits(trie) => trie.memory(),
            Prefixes::Octets(sets) => sets.memory(),
        }
    }

    fn count(&mut self, bits: u128, length: u32, change: Change) {
        match (self, change) {
            (Prefixes::Bits(trie), Change::Comes) => trie.insert(bits, length),
            (Prefixes::Bits(trie), Change::Goes) => trie.remove(bits, length),
            (Prefixes::Octets(sets), Change::Comes) => sets.insert(bits, length),
            (Prefixes::Octets(sets), Change::Goes) => sets.remove(bits, length),
        }
    }

    /// Prefetches the memory that a query with this field value reads first.
    #[inline(always)]
    fn prefetch(&self, value: u128) {
        match self {
            Prefixes::Bits(_) => {}
            Prefixes::Octets(sets) => sets.prefetch(value),
        }
    }

    /// Returns the number of leading bits of a field value that prove that no prefix of `length` bits (not 0) in the
    /// set matches the value. Returns `None` if such a prefix matches. `known` caches the result of earlier queries for
    /// this value.
    #[inline(always)]
    fn bits_without(&self, value: u128, length: u32, known: &mut Option<Reach>) -> Option<u32> {
        match self {
            Prefixes::Bits(trie) => {
                let reach = known.get_or_insert_with(|| trie.walk(value));
                (!reach.has(length)).then_some(reach.bits.min(length))
            }
            Prefixes::Octets(sets) => {
                let Reach { bits, .. } = *known.get_or_insert_with(|| Reach::of_bits(sets.bits(value)));
                if length > bits { Some(bits) } else { (!sets.has(value, length)).then_some(length) }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ranked {
    highest: u16,
    subtable: u32,
}

/// A packet classifier. See the [module](self).
#[derive(Debug)]
pub struct Classifier<const W: usize, T> {
    layout: Layout<W>,
    options: Options,
    secrets: Secrets,
    mask_secret: Secret,
    /// Hash table that maps the hash of a mask to the index of the mask's subtable.
    masks: Buckets,
    /// Subtables by index. `None` at the index of a subtable that became empty and was removed.
    subtables: Vec<Option<Subtable<W, T>>>,
    /// Indexes in `subtables` that are free because the subtable became empty.
    vacant: Vec<u32>,
    /// Subtables in descending order of their highest priority. Subtables of equal priority are ordered by
    /// index.
    order: Vec<Ranked>,
    tries: Vec<Tracked>,
    terms: Terms,
    partitions: Partitions,
    len: usize,
}

impl<const W: usize, T> Classifier<W, T> {
    /// Returns a classifier without rules.
    #[must_use]
    pub fn new(layout: Layout<W>, options: Options) -> Self {
        let secrets = Secrets::new();
        let tracked = |octets: &Octets| Tracked {
            octets: *octets,
            stage: layout.stage_of(octets.from),
            prefixes: Prefixes::new(options.prefix_step, &secrets),
        };
        Classifier {
            options: in_effect(&layout, options),
            masks: Buckets::new(),
            subtables: Vec::new(),
            vacant: Vec::new(),
            order: Vec::new(),
            tries: layout.prefixes.iter().map(tracked).collect(),
            terms: Terms::default(),
            partitions: Partitions::new(layout.partition(), &secrets),
            len: 0,
            mask_secret: secrets.of(W),
            layout,
            secrets,
        }
    }

    /// Returns the options in effect. Options that have no effect with the layout of the classifier are disabled.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Changes the options. The change takes as long as inserting all rules again. If the new maximum number of rules
    /// is lower than the current number, no rule is removed.
    pub fn set_options(&mut self, options: Options) {
        self.options = in_effect(&self.layout, options);
        for tracked in &mut self.tries {
            tracked.prefixes = Prefixes::new(options.prefix_step, &self.secrets);
        }
        self.partitions.clear();
        for at in 0..self.subtables.len() {
            let Some(mut subtable) = self.subtables[at].take() else { continue };
            subtable.forget();
            for slot in 0..subtable.slots.len() {
                if subtable.slots[slot].payload.is_some() {
                    let value = subtable.value(slot);
                    self.count(&mut subtable, at, &value, Change::Comes);
                }
            }
            self.subtables[at] = Some(subtable);
        }
    }

    /// Returns the number of rules in the classifier.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the classifier has no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of different masks of the rules. The cost of a look-up is proportional to this number.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    /// Returns whether the classifier has a rule with this mask.
    #[must_use]
    pub fn has_mask(&self, mask: &[u64; W]) -> bool {
        self.subtable_of(mask).is_some()
    }

    /// Returns the memory use of the classifier in bytes, not including memory that payloads point to.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.masks.memory()
            + self.subtables.capacity() * size_of::<Option<Subtable<W, T>>>()
            + self.subtables.iter().flatten().map(Subtable::memory).sum::<usize>()
            + self.order.capacity() * size_of::<Ranked>()
            + self.tries.iter().map(|tracked| tracked.prefixes.memory()).sum::<usize>()
            + self.partitions.memory()
    }

    /// Inserts a rule. If a rule with equal value, mask and priority exists, replaces this rule and returns
    /// its payload.
    ///
    /// # Errors
    /// Returns [`RulesFull`] if the classifier already holds the maximum number of rules. The classifier has
    /// not changed then.
    pub fn insert(&mut self, rule: Rule<W, T>) -> Result<Option<T>, RulesFull> {
        let known = self.subtable_of(&rule.mask);
        if self.len >= self.options.most_rules as usize {
            let old = known.and_then(|at| self.subtables[at].as_mut()?.payload(&rule.value, rule.priority));
            let Some(old) = old else { return Err(RulesFull { most: self.options.most_rules }) };
            return Ok(Some(std::mem::replace(old, rule.payload)));
        }
        let at = known.unwrap_or_else(|| self.add_subtable(rule.mask));
        let Some(mut subtable) = self.subtables[at].take() else { return Ok(None) };
        let before = subtable.highest();
        let old = subtable.insert(&rule.value, rule.priority, rule.payload);
        if old.is_none() {
            self.len += 1;
            self.count(&mut subtable, at, &rule.value, Change::Comes);
        }
        if subtable.highest() != before {
            self.rank(at, before, subtable.highest());
        }
        self.subtables[at] = Some(subtable);
        Ok(old)
    }

    /// Removes a rule and returns its payload. Returns `None` if the rule does not exist.
    pub fn remove(&mut self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<T> {
        let at = self.subtable_of(mask)?;
        let mut subtable = self.subtables[at].take()?;
        let before = subtable.highest();
        let payload = subtable.remove(value, priority);
        if payload.is_some() {
            self.len -= 1;
            self.count(&mut subtable, at, value, Change::Goes);
        }
        if subtable.highest() != before {
            self.rank(at, before, subtable.highest());
        }
        if subtable.highest().is_some() {
            self.subtables[at] = Some(subtable);
        } else {
            self.masks.remove(self.mask_hash(mask), number(at));
            self.vacant.push(number(at));
            subtable.words.iter().for_each(|word| self.terms.release(word.term));
        }
        payload
    }

    /// Returns the payload of a rule. Returns `None` if the rule does not exist.
    #[must_use]
    pub fn get(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<&T> {
        let subtable = self.subtables[self.subtable_of(mask)?].as_ref()?;
        subtable.slots[subtable.find_rule(value, priority)? as usize].payload.as_ref()
    }

    /// Returns a mutable reference to the payload of a rule. Returns `None` if the rule does not exist.
    pub fn get_mut(&mut self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<&mut T> {
        let at = self.subtable_of(mask)?;
        self.subtables[at].as_mut()?.payload(value, priority)
    }

    /// Returns an iterator over all rules of the classifier, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_, W, T>> {
        self.subtables.iter().flatten().flat_map(Subtable::entries)
    }

    /// Returns the rules that an OpenFlow command with a non-strict match selects. The mask of a selected rule has all
    /// bits of `mask`, and the value of the rule equals `value` in those bits.
    pub fn within<'a>(
        &'a self,
        value: &'a [u64; W],
        mask: &'a [u64; W],
    ) -> impl Iterator<Item = Entry<'a, W, T>> {
        let narrower =
            move |subtable: &&Subtable<W, T>| (0..W).all(|at| subtable.mask[at] & mask[at] == mask[at]);
        let entries = self.subtables.iter().flatten().filter(narrower).flat_map(Subtable::entries);
        entries.filter(move |entry| matches(&entry.value, value, mask))
    }

    /// Returns whether a rule of equal priority in the classifier overlaps the rule with this value and mask. Two rules
    /// overlap if a key exists that matches both rules. A rule with exactly this value, mask and priority does not
    /// count.
    #[must_use]
    pub fn overlaps(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> bool {
        self.subtables.iter().flatten().any(|subtable| subtable.overlaps(value, mask, priority))
    }

    /// Returns an upper limit for the work of [`Classifier::overlaps`] with these arguments, as the number of masks and
    /// rules to examine.
    #[must_use]
    pub fn overlap_work(&self, mask: &[u64; W], priority: u16) -> usize {
        self.subtables.iter().flatten().map(|subtable| subtable.overlap_work(mask, priority)).sum()
    }

    fn mask_hash(&self, mask: &[u64; W]) -> u32 {
        let Secret { add, multiply } = self.mask_secret;
        short(mask.iter().fold(0, |hash, word| fold(hash ^ word ^ add, multiply)))
    }

    /// Returns the index of the subtable for a mask. Returns `None` if no rule has this mask.
    fn subtable_of(&self, mask: &[u64; W]) -> Option<usize> {
        let has =
            |at: u32| self.subtables[at as usize].as_ref().is_some_and(|subtable| subtable.mask == *mask);
        self.masks.find(self.mask_hash(mask), has).map(|at| at as usize)
    }

    fn add_subtable(&mut self, mask: [u64; W]) -> usize {
        let at = self.vacant.pop().map_or(self.subtables.len(), |at| at as usize);
        if at == self.subtables.len() {
            self.subtables.push(None);
        }
        let mut subtable = Subtable::new(&self.layout, &self.secrets, mask);
        for word in &mut subtable.words {
            word.term = self.terms.take(word.at, word.mask);
        }
        self.subtables[at] = Some(subtable);
        self.masks.insert(self.mask_hash(&mask), number(at));
        at
    }

    /// Moves a subtable to the position in `order` that its new highest priority `highest` requires. `before`
    /// is the old highest priority of the subtable.
    fn rank(&mut self, at: usize, before: Option<u16>, highest: Option<u16>) {
        let subtable = number(at);
        let place = |order: &[Ranked], highest: u16| {
            order.partition_point(|ranked| {
                (u16::MAX - ranked.highest, ranked.subtable) < (u16::MAX - highest, subtable)
            })
        };
        if let Some(before) = before {
            let old = place(&self.order, before);
            debug_assert_eq!(self.order.get(old).map(|ranked| ranked.subtable), Some(subtable));
            self.order.remove(old);
        }
        if let Some(highest) = highest {
            let new = place(&self.order, highest);
            self.order.insert(new, Ranked { highest, subtable });
        }
    }

    /// Updates the counts that the enabled options use (prefixes, stages, ports and partitions) for a rule that is
    /// added or removed, as `change` states.
    fn count(&mut self, subtable: &mut Subtable<W, T>, at: usize, value: &[u64; W], change: Change) {
        let options = &self.options;
        if options.prefixes {
            for ((at, tracked), length) in self.tries.iter_mut().enumerate().zip(subtable.lengths) {
                let length = if options.tracks(at) { u32::from(length) } else { 0 };
                let bits = field(value, tracked.octets) & trie::leading(length);
                if length != 0 {
                    tracked.prefixes.count(bits, length, change);
                }
            }
        }
        if options.staged {
            subtable.count_stages(value, change);
        }
        if options.ports && subtable.ports_mask != 0 {
            let bits = ports_of(&self.layout, value) & subtable.ports_mask;
            let length = 16 * u32::try_from(self.layout.ports.len()).unwrap_or(0);
            match change {
                Change::Comes => subtable.ports.insert(bits, length),
                Change::Goes => subtable.ports.remove(bits, length),
            }
        }
        if options.partitions && subtable.partitioned {
            match change {
                Change::Comes => self.partitions.add(value, number(at)),
                Change::Goes => self.partitions.remove(value, number(at)),
            }
        }
    }
}

/// Returns `options`, in which the options that have no effect in this layout are disabled.
fn in_effect<const W: usize>(layout: &Layout<W>, options: Options) -> Options {
    Options {
        partitions: options.partitions && !layout.partition().is_empty(),
        prefixes: options.prefixes && !layout.prefixes.is_empty(),
        ports: options.ports && !layout.ports.is_empty(),
        most_rules: options.most_rules.min(NONE - 1),
        ..options
    }
}

/// Converts a subtable index to `u32`. The conversion cannot fail, because there are at most 2^32 - 2 rules and no
/// subtable is empty.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}
