//! The array of words that a trie lies in, and who of its parts is in use. One writer; readers see single words.
//!
//! Parts are handed out by their size. One that readers may still be in waits for a grace period before it is handed out again. Free ones
//! that lie side by side are joined now and then, so that what a table was full of once fits what it is full of now.
//! Words are zero until they are first written, and their pages not there: a large array costs what is used of it.
//!
//! A mirror is memory of somebody else's, in which the same words stand at the same places, for strangers to read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::qsbr::Domain;
use sync::readers::{Memory, Readers, Ticket};
use zerocopy::FromZeros;

/// Words of the longest part: 64 nodes of three.
const LONGEST: usize = 192;
/// Words that only removals use: some levels of nodes, many times.
pub const RESERVE: usize = 8192;
/// The array grows by so many words, or by a sixteenth of what is in use, before free parts are joined.
const JOIN: usize = 1 << 13;
/// Parts that wait before a grace period is begun for them.
const BATCH: usize = 1024;

/// The table's words are all in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table's {words} words are full; remove prefixes, or make the table with more words")]
pub struct TableFull {
    /// Words that it was made with.
    pub words: usize,
}

/// What readers and the writer share.
#[derive(Debug)]
pub struct Shared {
    pub words: Box<[AtomicU64]>,
    pub domain: Arc<Domain>,
}

/// A part of the array: its first word, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub at: u32,
    pub length: usize,
}

/// What the writer knows of the array.
pub struct Parts {
    shared: Arc<Shared>,
    readers: Readers,
    mirror: Option<Memory>,
    /// The first word that was never handed out.
    top: usize,
    /// By length.
    free: Vec<Vec<u32>>,
    /// Longer than [`LONGEST`].
    stretches: Vec<Part>,
    /// The first word that had not been handed out when free parts were last joined.
    joined_at: usize,
    /// Unlinked since the last grace period began.
    fresh: Vec<Part>,
    waiting: VecDeque<(Ticket, Vec<Part>)>,
    /// Words that are handed out, or wait.
    used: usize,
    /// Whether [`RESERVE`] may be used now.
    reserve: bool,
}

impl Parts {
    /// An array of so many words, at most 2^32 - 1, of which the first `fixed` are not handed out.
    pub fn new(domain: &Arc<Domain>, words: usize, fixed: usize) -> Parts {
        let words = words.max(fixed + 2 * RESERVE).min(usize::try_from(u32::MAX).unwrap_or(usize::MAX));
        Parts::made(&Readers::of(domain), words, fixed, None)
    }

    /// The same with a mirror, whose words are zero and as many as there are.
    pub fn mirrored(readers: &Readers, mirror: Memory, fixed: usize) -> Result<Parts, TableFull> {
        let words = mirror.as_ref().as_ref().len();
        if words < fixed + 2 * RESERVE || u32::try_from(words).is_err() {
            return Err(TableFull { words });
        }
        Ok(Parts::made(readers, words, fixed, Some(mirror)))
    }

    fn made(readers: &Readers, words: usize, fixed: usize, mirror: Option<Memory>) -> Parts {
        // Without memory for it the array is empty, and everything is refused.
        let mut words = <[AtomicU64]>::new_box_zeroed_with_elems(words).unwrap_or_default();
        // Read at random, it should not also miss the TLB.
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

    /// Lets what comes take from the reserve, or not.
    pub fn use_reserve(&mut self, may: bool) {
        self.reserve = may;
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Words in use, words that have ever been, and words that there are.
    pub fn usage(&self) -> (usize, usize, usize) {
        (self.used, self.top, self.shared.words.len())
    }

    pub fn read(&self, at: usize) -> u64 {
        self.shared.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word that readers may reach; they see what was written before.
    pub fn publish(&self, at: usize, word: u64) {
        if let Some(place) = self.shared.words.get(at) {
            place.store(word, Ordering::Release);
        }
        if let Some(place) = self.mirror_from(at).first() {
            place.store(word, Ordering::Release);
        }
    }

    /// The mirror's words from a place on; none without one.
    fn mirror_from(&self, at: usize) -> &[AtomicU64] {
        let words = self.mirror.as_ref().map_or(&[][..], |mirror| mirror.as_ref().as_ref());
        words.get(at..).unwrap_or(&[])
    }

    /// A new part with these words, at most [`LONGEST`].
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
            // What waits may be what is lacking.
            self.collect(true);
            while self.used + length + kept > full.words {
                if !self.wait_for_strangers() {
                    return Err(full);
                }
            }
        }
        // What is free is used before more of the array is, whose pages may not be there yet.
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

    /// A free part of this length, or the beginning of a longer one.
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

    /// Makes free parts that lie side by side one: those of lengths that nobody wants any more become something that is wanted.
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

    /// Among what is free.
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

    /// Takes back a part that no reader has ever seen.
    pub fn give_back(&mut self, part: Part) {
        self.used -= part.length;
        self.put(part);
    }

    /// Takes back a part that was unlinked, once no reader can be in it.
    pub fn retire(&mut self, part: Part) {
        self.fresh.push(part);
        if self.fresh.len() >= BATCH {
            self.collect(false);
        }
    }

    /// Waits until strangers are past what was unlinked longest ago, some milliseconds, and takes it back; false if there is nothing
    /// that waits for them alone.
    fn wait_for_strangers(&mut self) -> bool {
        let Some((ticket, _)) = self.waiting.front() else { return false };
        let waiting = self.waiting.len();
        self.readers.wait_for_strangers(*ticket);
        self.collect(false);
        self.waiting.len() < waiting
    }

    /// Begins a grace period for what was unlinked, and takes back what no reader can be in any more. Never waits.
    pub fn collect(&mut self, all: bool) {
        if !self.fresh.is_empty() && (all || self.fresh.len() >= BATCH) {
            self.waiting.push_back((self.readers.begin(), std::mem::take(&mut self.fresh)));
        }
        while let Some((_, parts)) = self.waiting.pop_front_if(|(ticket, _)| self.readers.are_past(*ticket)) {
            parts.into_iter().for_each(|part| self.give_back(part));
        }
    }
}
