//! The array of words that holds a trie, and the allocator of parts of the array. One writer changes the array. Readers
//! read single words atomically.
//!
//! Free parts are kept in a list for each length. A part that readers may still use is reused only after a grace
//! period. Adjacent free parts are joined occasionally. Space that was freed in parts of one length can then serve
//! parts of another length. All words are initially zero, and the kernel allocates a page of memory when the page is
//! first written. A large array therefore costs only the memory that is used.
//!
//! A mirror is externally owned memory (a mapped BPF array) that holds a copy of the words at the same
//! offsets. BPF programs read it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::qsbr::Domain;
use sync::readers::{GracePeriods, Memory, Readers};
use zerocopy::FromZeros;

/// Maximum number of words in a part: 64 nodes of three words each.
const LONGEST: usize = 192;
/// Number of words that are reserved for removals of prefixes. The reserve suffices for the new nodes of many removals.
pub const RESERVE: usize = 8192;
/// Number of words by which the array grows before adjacent free parts are joined. If one sixteenth of the used words
/// is more, the array grows by that number before the parts are joined.
const JOIN: usize = 1 << 13;
/// Number of parts in a batch of parts that were unlinked from the trie. A grace period begins when a batch is full.
const BATCH: usize = 1024;

/// Error for a change that needs more words than the table has free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table's {words} words are full; remove prefixes, or make the table with more words")]
pub struct TableFull {
    /// Number of words with which the table was created.
    pub words: usize,
}

/// State that the readers and the writer of an array share.
#[derive(Debug)]
pub struct Shared {
    pub words: Box<[AtomicU64]>,
    pub domain: Arc<Domain>,
}

/// A part of the array: index of its first word and number of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub at: u32,
    pub length: usize,
}

/// Allocator of parts of the array, which only the writer uses.
pub struct Parts {
    shared: Arc<Shared>,
    readers: Readers,
    mirror: Option<Memory>,
    /// Index of the first word that has never been allocated.
    top: usize,
    /// Free parts by length: the index of each list is the length of its parts.
    free: Vec<Vec<u32>>,
    /// Free parts longer than [`LONGEST`].
    stretches: Vec<Part>,
    /// Value of `top` when free parts were last joined.
    joined_at: usize,
    /// Parts of the array that were unlinked from the trie since the last grace period began.
    fresh: Vec<Part>,
    waiting: VecDeque<(GracePeriods, Vec<Part>)>,
    /// Number of words that are in use. Words that were unlinked from the trie count as in use until the end of a grace
    /// period.
    used: usize,
    /// Whether allocations may use the [`RESERVE`] words.
    reserve: bool,
}

impl Parts {
    /// Creates an array of `words` words, at most 2^32 - 1. The first `fixed` words, which hold the default next hop
    /// and the root table, are never allocated as parts.
    pub fn new(domain: &Arc<Domain>, words: usize, fixed: usize) -> Parts {
        let words = words.max(fixed + 2 * RESERVE).min(usize::try_from(u32::MAX).unwrap_or(usize::MAX));
        Parts::made(&Readers::of(domain), words, fixed, None)
    }

    /// Creates an array with a mirror (external memory that holds a copy of the array). The memory of the mirror must
    /// be zero. The array gets the length of the mirror.
    pub fn mirrored(readers: &Readers, mirror: Memory, fixed: usize) -> Result<Parts, TableFull> {
        let words = mirror.as_ref().as_ref().len();
        if words < fixed + 2 * RESERVE || u32::try_from(words).is_err() {
            return Err(TableFull { words });
        }
        Ok(Parts::made(readers, words, fixed, Some(mirror)))
    }

    fn made(readers: &Readers, words: usize, fixed: usize, mirror: Option<Memory>) -> Parts {
        // If memory allocation fails, the array is empty and every change is refused.
        let mut words = <[AtomicU64]>::new_box_zeroed_with_elems(words).unwrap_or_default();
        // The array is read at random, so huge pages avoid TLB misses.
        sync::memory::advise_huge_pages(&mut words);
        Parts {
            shared: Arc::new(Shared { words, domain: Arc::clone(readers.workers()) }),
            readers: readers.clone(),
            mirror,
            top: fixed,
            free: vec![Vec::new(); LONGEST + 1],
            stretches: Vec::new(),
            joined_at: fixed,
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            used: fixed,
            reserve: false,
        }
    }

    /// Sets whether the following allocations may use the reserve for removals.
    pub fn use_reserve(&mut self, may: bool) {
        self.reserve = may;
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the number of words in use, the number of words that have been in use at least once, and the total
    /// number of words.
    pub fn usage(&self) -> (usize, usize, usize) {
        (self.used, self.top, self.shared.words.len())
    }

    pub fn read(&self, at: usize) -> u64 {
        self.shared.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word that readers may reach, with release ordering. A reader that sees the word also sees all earlier
    /// writes.
    pub fn publish(&self, at: usize, word: u64) {
        if let Some(place) = self.shared.words.get(at) {
            place.store(word, Ordering::Release);
        }
        if let Some(place) = self.mirror_from(at).first() {
            place.store(word, Ordering::Release);
        }
    }

    /// Returns the words of the mirror (the external copy of the array) that begin at an index. Returns an empty slice
    /// if the array has no mirror.
    fn mirror_from(&self, at: usize) -> &[AtomicU64] {
        let words = self.mirror.as_ref().map_or(&[][..], |mirror| mirror.as_ref().as_ref());
        words.get(at..).unwrap_or(&[])
    }

    /// Allocates a part with the length of `content`, at most [`LONGEST`], and copies `content` into the
    /// part.
    pub fn place(&mut self, content: &[u64]) -> Result<Part, TableFull> {
        let length = content.len();
        let at = self.take(length)?;
        let first = usize::try_from(at).unwrap_or(usize::MAX);
        for (place, word) in self.shared.words.iter().skip(first).zip(content) {
            place.store(*word, Ordering::Relaxed);
        }
        for (place, word) in self.mirror_from(first).iter().zip(content) {
            place.store(*word, Ordering::Relaxed);
        }
        self.used += length;
        Ok(Part { at, length })
    }

    fn take(&mut self, length: usize) -> Result<u32, TableFull> {
        let full = TableFull { words: self.shared.words.len() };
        let kept = if self.reserve { 0 } else { RESERVE };
        if self.used + length + kept > full.words {
            // Parts whose grace period is over may suffice.
            self.collect(true);
            while self.used + length + kept > full.words {
                if !self.wait_for_strangers() {
                    return Err(full);
                }
            }
        }
        // Free parts are used before the array grows, because the pages of new words may not exist yet.
        if let Some(at) = self.found(length) {
            return Ok(at);
        }
        if self.top + length > self.joined_at + JOIN.max(self.used / 16) {
            self.join();
            if let Some(at) = self.found(length) {
                return Ok(at);
            }
        }
        if let Some(at) = self.extend(length) {
            return Ok(at);
        }
        self.collect(true);
        loop {
            self.join();
            if let Some(at) = self.found(length) {
                return Ok(at);
            }
            if !self.wait_for_strangers() {
                return Err(full);
            }
        }
    }

    /// Returns the index of a free part with this length, or of the beginning of a longer free part. Returns `None`
    /// if there is no such part.
    fn found(&mut self, length: usize) -> Option<u32> {
        let longer = (length..).zip(self.free.get_mut(length..)?).find(|(_, list)| !list.is_empty());
        if let Some((longer, list)) = longer {
            let at = list.pop()?;
            self.put(Part { at: at + u32::try_from(length).ok()?, length: longer - length });
            return Some(at);
        }
        let stretch = self.stretches.last_mut()?;
        let at = stretch.at;
        stretch.at += u32::try_from(length).ok()?;
        stretch.length -= length;
        if stretch.length <= LONGEST {
            let rest = self.stretches.pop()?;
            self.put(rest);
        }
        Some(at)
    }

    /// Joins adjacent free parts. Space in free parts whose length is not needed can then be used for parts of other
    /// lengths.
    fn join(&mut self) {
        self.joined_at = self.top;
        let lists = self.free.iter_mut().enumerate();
        let mut parts: Vec<Part> = lists
            .flat_map(|(length, list)| std::mem::take(list).into_iter().map(move |at| Part { at, length }))
            .chain(std::mem::take(&mut self.stretches))
            .collect();
        parts.sort_unstable_by_key(|part| part.at);
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else { return };
        for part in parts {
            if usize::try_from(part.at - whole.at) == Ok(whole.length) {
                whole.length += part.length;
            } else {
                self.put(std::mem::replace(&mut whole, part));
            }
        }
        self.put(whole);
    }

    /// Adds a part to the free parts.
    fn put(&mut self, part: Part) {
        match self.free.get_mut(part.length) {
            _ if part.length == 0 => {}
            Some(list) => list.push(part.at),
            None => self.stretches.push(part),
        }
    }

    fn extend(&mut self, length: usize) -> Option<u32> {
        let end = self.top.checked_add(length).filter(|end| *end <= self.shared.words.len())?;
        let at = u32::try_from(self.top).ok()?;
        self.top = end;
        Some(at)
    }

    /// Frees a part immediately. The caller must ensure that no reader can reach the part.
    pub fn give_back(&mut self, part: Part) {
        self.used -= part.length;
        self.put(part);
    }

    /// Frees a part that was unlinked from the trie, after a grace period.
    pub fn retire(&mut self, part: Part) {
        self.fresh.push(part);
        if self.fresh.len() >= BATCH {
            self.collect(false);
        }
    }

    /// Waits until external readers (BPF programs) no longer use the oldest batch of parts that were unlinked from the
    /// trie. The wait takes a few milliseconds. Then frees the batch and returns `true`. Returns `false` if no batch
    /// waits only for external readers.
    fn wait_for_strangers(&mut self) -> bool {
        let Some((ticket, _)) = self.waiting.front() else { return false };
        let waiting = self.waiting.len();
        self.readers.wait_for_strangers(*ticket);
        self.collect(false);
        self.waiting.len() < waiting
    }

    /// Returns whether parts that were unlinked from the trie wait for the end of a grace period.
    pub fn is_freeing(&self) -> bool {
        !self.fresh.is_empty() || !self.waiting.is_empty()
    }

    /// Begins a grace period for parts that were unlinked from the trie, and frees parts whose grace period is over. If
    /// `all` is `false`, a grace period begins only for a full batch of such parts. The method never waits.
    pub fn collect(&mut self, all: bool) {
        if !self.fresh.is_empty() && (all || self.fresh.len() >= BATCH) {
            self.waiting.push_back((self.readers.begin(), std::mem::take(&mut self.fresh)));
        }
        while let Some((_, parts)) = self.waiting.pop_front_if(|(ticket, _)| self.readers.are_past(*ticket)) {
            parts.into_iter().for_each(|part| self.give_back(part));
        }
    }
}
