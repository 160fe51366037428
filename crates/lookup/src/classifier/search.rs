//! Look-up of one key. The search visits the subtables in order, until no remaining subtable can have a rule with a
//! higher priority.
//!
//! With tracking, the search records the key bits that the result depends on. For a subtable without a match, the
//! search records the smallest set of bits that proves this. The [`Options`](super::Options) can exclude some of these
//! sets:
//! - The words of the partition, if the subtable has no rule for the partition of the key.
//! - The first bits of a field, if no rule has a prefix of the subtable's length that matches the key.
//! - The bits of the mask up to the stage in which no rule matches.
//! - The first bits of the ports, if no rule of the subtable has the key's ports.
//! - All bits of the mask, in all other cases.

use sync::hash::short;

use super::layout::{MOST_PREFIXES, Octets, field, or_field};
use super::partitions;
use super::subtable::{NONE, Subtable, Word, ports_of};
use super::trie::{Reach, leading};
use super::{Classifier, Ranked};

/// Number of subtables whose memory is prefetched before the first of these subtables is searched.
const AHEAD: usize = 8;

/// Method of searching one subtable: with or without tracking of the key bits that the result depends on.
trait Finder<const W: usize> {
    /// Prefetches the memory that the search of a subtable reads first. `at` is the index of the subtable among the
    /// [`AHEAD`] subtables that are prefetched together.
    fn prepare<T>(&mut self, at: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>);

    /// Searches a subtable for rules whose value matches the key. Returns the slot of the rule with the highest
    /// priority among them, or `None` if no rule matches.
    fn find<T>(&mut self, at: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>)
    -> Option<u32>;

    /// Records that a subtable was skipped, because the subtable has no rules with the key's value in the partition
    /// words.
    fn passed_over<T>(&mut self, classifier: &Classifier<W, T>);
}

/// Search of a subtable that does not record key bits.
struct Plain<'a, const W: usize> {
    key: &'a [u64; W],
    sums: [u64; AHEAD],
}

impl<const W: usize> Finder<W> for Plain<'_, W> {
    #[inline(always)]
    fn prepare<T>(&mut self, at: usize, _: &Classifier<W, T>, subtable: &Subtable<W, T>) {
        self.sums[at % AHEAD] = subtable.prefetch(self.key);
    }

    #[inline(always)]
    fn find<T>(&mut self, at: usize, _: &Classifier<W, T>, subtable: &Subtable<W, T>) -> Option<u32> {
        subtable.find_hashed(self.sums[at % AHEAD], self.key)
    }

    fn passed_over<T>(&mut self, _: &Classifier<W, T>) {}
}

/// Search of a subtable that records the key bits that the result depends on.
struct Tracking<'a, const W: usize> {
    key: &'a [u64; W],
    wild: &'a mut [u64; W],
    /// For each tracked prefix field, lengths of the prefixes that match the key. `None` if not yet computed.
    reaches: [Option<Reach>; MOST_PREFIXES],
}

/// Adds the mask bits of the given words to `wild`, the record of the key bits that the result depends on.
#[inline(always)]
fn depend<const W: usize>(wild: &mut [u64; W], words: &[Word]) {
    for word in words {
        wild[word.at] |= word.mask;
    }
}

/// Records the key bits that prove that no rule of a subtable matches the key: the leading bits of the port numbers if
/// no rule has the key's port numbers, and otherwise all bits of the mask.
pub(super) fn missed<const W: usize, T>(
    classifier: &Classifier<W, T>,
    subtable: &Subtable<W, T>,
    key: &[u64; W],
    wild: &mut [u64; W],
) {
    if classifier.options.ports && subtable.ports_mask != 0 {
        let ports = ports_of(&classifier.layout, key) & subtable.ports_mask;
        let bits = 16 * u32::try_from(classifier.layout.ports.len()).unwrap_or(0);
        let reach = subtable.ports.walk(ports);
        if !reach.has(bits) {
            let mut needed = subtable.ports_mask & leading(reach.bits);
            for from in classifier.layout.ports {
                or_field(wild, Octets { from: *from, count: 2 }, needed & leading(16));
                needed <<= 16;
            }
            return;
        }
    }
    depend(wild, &subtable.words);
}

impl<const W: usize> Tracking<'_, W> {
    /// Returns whether a tracked prefix field in this stage proves that the subtable has no match. If so, records the
    /// leading bits of the field that prove this.
    #[inline(always)]
    fn is_ruled_out<T>(
        &mut self,
        classifier: &Classifier<W, T>,
        subtable: &Subtable<W, T>,
        stage: usize,
    ) -> bool {
        for (at, tracked) in classifier.tries.iter().enumerate() {
            let length = u32::from(subtable.lengths[at]);
            if length == 0 || tracked.stage != stage || !classifier.options.tracks(at) {
                continue;
            }
            let value = field(self.key, tracked.octets);
            if let Some(bits) = tracked.prefixes.bits_without(value, length, &mut self.reaches[at]) {
                or_field(self.wild, tracked.octets, leading(bits));
                return true;
            }
        }
        false
    }
}

impl<const W: usize> Finder<W> for Tracking<'_, W> {
    #[inline(always)]
    fn prepare<T>(&mut self, _: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>) {
        // If the subtable has tracked prefixes, the prefix check usually decides, and the memory of the subtable is
        // rarely read. It is therefore not prefetched.
        if subtable.lengths == [0; MOST_PREFIXES] || !classifier.options.prefixes {
            subtable.prefetch(self.key);
        }
    }

    #[inline(always)]
    fn find<T>(&mut self, _: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>) -> Option<u32> {
        let (mut sum, mut done) = (0, 0);
        for (stage, cut) in subtable.cuts.into_iter().enumerate() {
            if cut == done {
                continue;
            }
            if classifier.options.prefixes && self.is_ruled_out(classifier, subtable, stage) {
                return None;
            }
            sum = Subtable::<W, T>::add_hash(sum, &subtable.words[done..cut], self.key);
            done = cut;
            if classifier.options.staged
                && stage < subtable.last_stage
                && !subtable.stages[stage].contains(short(sum))
            {
                depend(self.wild, &subtable.words[..cut]);
                return None;
            }
        }
        let found = subtable.find_hashed(sum, self.key);
        match found {
            Some(_) => depend(self.wild, &subtable.words),
            None => missed(classifier, subtable, self.key, self.wild),
        }
        found
    }

    fn passed_over<T>(&mut self, classifier: &Classifier<W, T>) {
        self.wild[classifier.layout.partition()].fill(u64::MAX);
    }
}

impl<const W: usize, T> Classifier<W, T> {
    /// Returns the payload and the priority of the matching rule with the highest priority. Returns `None` if
    /// no rule matches. If several matching rules have the highest priority, the choice is arbitrary. The
    /// choice does not change until rules or options change.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: &[u64; W]) -> Option<(&T, u16)> {
        self.search(key, &mut Plain { key, sums: [0; AHEAD] }, |_, _| true)
    }

    /// Looks up a key like [`Classifier::lookup`], and also sets those bits of `wild` that the result depends on. Until
    /// rules or options change, every key that equals this key in those bits has an equal result.
    #[must_use]
    pub fn lookup_tracked(&self, key: &[u64; W], wild: &mut [u64; W]) -> Option<(&T, u16)> {
        self.lookup_where(key, wild, |_, _| true)
    }

    /// Looks up a key like [`Classifier::lookup_tracked`], but considers only the rules for which `wanted` returns
    /// `true`. The arguments of `wanted` are the payload and the priority of a rule.
    ///
    /// If `wanted` rejects all rules, it is called for every matching rule in no particular order, and `wild`
    /// gets the bits that all these rules depend on. After `wanted` has accepted a rule, rules of the same or
    /// a lower priority may be skipped.
    pub fn lookup_where(
        &self,
        key: &[u64; W],
        wild: &mut [u64; W],
        wanted: impl FnMut(&T, u16) -> bool,
    ) -> Option<(&T, u16)> {
        if self.options.prefixes {
            for tracked in &self.tries {
                tracked.prefixes.prefetch(field(key, tracked.octets));
            }
        }
        self.search(key, &mut Tracking { key, wild, reaches: [None; MOST_PREFIXES] }, wanted)
    }

    #[inline(always)]
    fn search(
        &self,
        key: &[u64; W],
        finder: &mut impl Finder<W>,
        mut wanted: impl FnMut(&T, u16) -> bool,
    ) -> Option<(&T, u16)> {
        let here = if self.options.partitions { self.partitions.bits(key) } else { u64::MAX };
        let mut best: Option<(&T, u16)> = None;
        for some in self.order.chunks(AHEAD) {
            let done = |best: Option<(&T, u16)>, ranked: &Ranked| {
                self.options.sorted && best.is_some_and(|(_, priority)| ranked.highest <= priority)
            };
            if some.first().is_some_and(|ranked| done(best, ranked)) {
                break;
            }
            let subtable = |ranked: &Ranked| self.subtables[ranked.subtable as usize].as_ref();
            let has_none = |ranked: &Ranked, subtable: &Subtable<W, T>| {
                subtable.partitioned && here & partitions::bit(ranked.subtable) == 0
            };
            for (at, ranked) in some.iter().enumerate() {
                if let Some(subtable) = subtable(ranked).filter(|subtable| !has_none(ranked, subtable)) {
                    finder.prepare(at, self, subtable);
                }
            }
            for (at, ranked) in some.iter().enumerate() {
                if done(best, ranked) {
                    break;
                }
                let Some(subtable) = subtable(ranked) else { continue };
                if has_none(ranked, subtable) {
                    finder.passed_over(self);
                    continue;
                }
                let first = finder.find(at, self, subtable).unwrap_or(NONE);
                subtable.better(first, &mut best, &mut wanted);
            }
        }
        best
    }
}
