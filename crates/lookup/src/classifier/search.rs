//! The look-up: subtable by subtable, as long as a better rule is possible.
//!
//! With tracking, what is asked of the key is written down as it is asked. A subtable without a match costs the bits of the cheapest proof
//! of that which the [`Options`](super::Options) allow: the partition's words; a field's first bits, where no rule has a prefix of the
//! subtable's length; the mask's bits of the stages up to the one without such a rule; the first bits of the ports; else the whole mask.

use super::layout::{MOST_PREFIXES, Octets, field, or_field};
use super::partitions;
use super::subtable::{NONE, Subtable, Word, ports_of};
use super::trie::{Reach, leading};
use super::{Classifier, Ranked};
use crate::hash::short;

/// Subtables whose first place in memory is asked for before the first of them is searched.
const AHEAD: usize = 8;

/// How a subtable is searched.
trait Finder<const W: usize> {
    /// A subtable will be searched, as the one at this place among [`AHEAD`].
    fn prepare<T>(&mut self, at: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>);

    /// The first rule of the key's value in a subtable.
    fn find<T>(&mut self, at: usize, classifier: &Classifier<W, T>, subtable: &Subtable<W, T>)
    -> Option<u32>;

    /// A subtable was passed over because of the partition.
    fn passed_over<T>(&mut self, classifier: &Classifier<W, T>);
}

/// Nothing is written down, so the shortest way is taken.
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

/// Writes down what the answer depends on.
struct Tracking<'a, const W: usize> {
    key: &'a [u64; W],
    wild: &'a mut [u64; W],
    /// What is known about prefixes of the key, once it was asked.
    reaches: [Option<Reach>; MOST_PREFIXES],
}

/// Words of a key count.
#[inline(always)]
fn depend<const W: usize>(wild: &mut [u64; W], words: &[Word]) {
    for word in words {
        wild[word.at] |= word.mask;
    }
}

/// No rule of a subtable has all of the key's words: the ports that no rule has suffice to know it, or else all words together.
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
    /// Whether a tracked field of this stage tells that the subtable has no match, and the bits that tell it.
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
        // Where prefixes count, they are asked first, and rarely anything after them.
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
    /// The rule of the highest priority that a key matches, and that priority. Among rules of the same priority that match, any may
    /// be it, but always the same one until rules or options change.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: &[u64; W]) -> Option<(&T, u16)> {
        self.search(key, &mut Plain { key, sums: [0; AHEAD] }, |_, _| true)
    }

    /// As [`Classifier::lookup`]. Sets the bits of `wild` that the answer depends on: every key that agrees with this one in the bits
    /// set here gets the same answer, until rules or options change.
    #[must_use]
    pub fn lookup_tracked(&self, key: &[u64; W], wild: &mut [u64; W]) -> Option<(&T, u16)> {
        self.lookup_where(key, wild, |_, _| true)
    }

    /// As [`Classifier::lookup_tracked`], among the rules that are wanted, given payload and priority.
    ///
    /// What is not wanted is shown, too: who wants nothing sees every rule that matches, in no certain order, and the bits set in
    /// `wild` are then those that all of them depend on. Rules that could not be the answer any more, because a wanted one of at least
    /// their priority has been found, may not be shown.
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
