//! Puts flows into a table and takes them out.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::action::{ENTRY_BYTES, FlowAction, entry};
use super::table::{FlowCounts, FlowTable, MASKS, PLACES};

/// Why a flow was not put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There are as many as it holds, or both lines of its hash are full.
    Full,
    /// There are as many masks as it holds.
    Masks,
    /// Its mask is new: programs that run now may not know all of it. Wait for them, tell [`FlowWriter::settle`], and try again.
    Soon,
}

/// How long a new mask is kept for the flow that it was written for, which asks again when programs know it: without that, flows that
/// each need a new one would take it from each other for ever.
const KEPT: Duration = Duration::from_secs(2);

/// A mask with a number.
#[derive(Debug, Clone, Copy, Default)]
struct Mask {
    words: [u64; 8],
    /// Flows that have it.
    users: usize,
    /// Every program that runs knows it.
    is_known: bool,
    /// Which of all that were written it is, from 1 on; 0: the number is free.
    nth: u64,
    /// Until then nobody else takes its number; `None`: it has had flows.
    kept: Option<Instant>,
}

/// A flow that is, or was, in the table.
#[derive(Debug, Clone, Copy)]
struct Slot {
    mask: u32,
    /// Where it stands among the table's words.
    place: Option<usize>,
}

/// The only one who says what is in a table.
#[derive(Debug)]
pub struct FlowWriter {
    table: FlowTable,
    masks: [Mask; MASKS as usize],
    /// Masks that were written so far.
    written: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl FlowWriter {
    /// Empties the table. No program may know what was in it: it is new, or its last writer has waited for them.
    #[must_use]
    pub fn new(table: &FlowTable) -> FlowWriter {
        table.maps.places.words().iter().for_each(|word| word.store(0, Ordering::Release));
        let flows = table.capacity();
        FlowWriter {
            table: table.clone(),
            masks: [Mask::default(); MASKS as usize],
            written: 0,
            slots: vec![None; flows],
            free: (0..u32::try_from(flows).unwrap_or(u32::MAX)).rev().collect(),
        }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &FlowTable {
        &self.table
    }

    /// Flows that are in the table.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.slots.iter().flatten().filter(|slot| slot.place.is_some()).count()
    }

    /// Lets the hook answer for packets whose key equals `key` in the bits of `mask`. Gives the slot, whose counts begin at 0.
    ///
    /// No two flows of the table may be met by the same packet with different actions.
    ///
    /// # Errors
    /// [`Refused`]: the packets go up, as before.
    pub fn insert(&mut self, key: &[u64; 8], mask: &[u64; 8], action: &FlowAction) -> Result<u32, Refused> {
        let number = self.number(mask)?;
        let masked: [u64; 8] = std::array::from_fn(|word| key[word] & mask[word]);
        let hash = self.table.maps.hash(number, &masked);
        let slot = *self.free.last().ok_or(Refused::Full)?;
        let line = (hash ^ hash >> 32) & u64::from(self.table.maps.lines);
        let lines = [line, line ^ 1].map(|line| usize::try_from(line).unwrap_or(0) * PLACES as usize);
        let words = self.table.maps.places.words();
        let is_free = |at: &usize| words.get(*at).is_some_and(|word| word.load(Ordering::Relaxed) == 0);
        let places = lines.into_iter().flat_map(|line| line..line + PLACES as usize);
        let place = places.into_iter().find(is_free).ok_or(Refused::Full)?;
        self.free.pop();
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        for word in self.table.maps.counted.words().iter().skip(at * 4).take(4) {
            word.store(0, Ordering::Relaxed);
        }
        let bytes = entry(&masked, number, action);
        let entry = self.table.maps.flows.words().iter().skip(at * (ENTRY_BYTES / 8));
        for (word, bytes) in entry.zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(word) = words.get(place) {
            word.store((hash >> 32 << 32) | (u64::from(slot) + 1), Ordering::Release);
        }
        if let Some(known) = self.slots.get_mut(at) {
            *known = Some(Slot { mask: number, place: Some(place) });
        }
        if let Some(mask) = self.mask(number) {
            mask.users += 1;
            mask.kept = None;
        }
        Ok(slot)
    }

    /// The number of a mask that all programs know.
    fn number(&mut self, mask: &[u64; 8]) -> Result<u32, Refused> {
        let known = self.masks.iter().position(|known| known.nth > 0 && known.words == *mask);
        if let Some(at) = known {
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            return if self.masks[at].is_known { Ok(number) } else { Err(Refused::Soon) };
        }
        let free = self.masks.iter().position(|own| own.nth == 0);
        let now = Instant::now();
        let is_left =
            |own: &Mask| own.users == 0 && own.is_known && own.kept.is_none_or(|until| until <= now);
        let free = free.or_else(|| self.masks.iter().position(is_left));
        let at = free.ok_or(Refused::Masks)?;
        for (to, word) in self.table.maps.masked.words().iter().skip(at * 8).zip(mask) {
            to.store(*word, Ordering::Release);
        }
        self.written += 1;
        let kept = Some(now + KEPT);
        self.masks[at] = Mask { words: *mask, users: 0, is_known: false, nth: self.written, kept };
        Err(Refused::Soon)
    }

    fn mask(&mut self, number: u32) -> Option<&mut Mask> {
        self.masks.get_mut(usize::try_from(number).ok()?)
    }

    /// Masks that were written so far: what [`FlowWriter::settle`] is told after a wait that begins now.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Programs have been waited for ([`crate::wait_for_programs`]) since so many masks were written: flows may have these.
    pub fn settle(&mut self, written: u64) {
        self.masks.iter_mut().filter(|mask| mask.nth <= written).for_each(|mask| mask.is_known = true);
    }

    /// Takes a flow out: frames that a program meets from now on do not find it. Its slot stays its own, for counts of those
    /// under way, until [`FlowWriter::release`].
    pub fn remove(&mut self, slot: u32) {
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(Some(known)) = self.slots.get_mut(at) else { return };
        if let Some(word) = known.place.take().and_then(|place| self.table.maps.places.words().get(place)) {
            word.store(0, Ordering::Release);
        }
    }

    /// What a flow has done since it was put in; final when programs have been waited for since it was taken out.
    #[must_use]
    pub fn counts(&self, slot: u32) -> FlowCounts {
        self.table.counts(slot)
    }

    /// Gives the slot of a flow that was taken out to others. Programs must have been waited for meanwhile.
    pub fn release(&mut self, slot: u32) {
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(known) = self.slots.get_mut(at).and_then(|known| known.take_if(|own| own.place.is_none()))
        else {
            return;
        };
        self.free.push(slot);
        if let Some(mask) = self.mask(known.mask) {
            mask.users = mask.users.saturating_sub(1);
        }
    }
}
