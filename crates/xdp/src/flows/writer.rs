//! Insertion of flows into the table of cached flows, and removal of flows from it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::action::{ENTRY_BYTES, FlowAction, entry};
use super::masks::{Index, Masks};
use super::slot_shares::SlotShares;
use super::table::{FlowCounts, FlowTable, MASKS, PLACES};

/// Reason why a flow was not inserted into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The table is full, or both buckets of the hash table that could hold the flow are full.
    Full,
    /// The flow has a new mask, and the table has no free index for another mask.
    Masks,
    /// The mask of the flow is new, and XDP program runs in progress may have read only a part of it. The caller must
    /// call [`crate::wait_for_programs`] and [`FlowWriter::settle`], and insert the flow again.
    Soon,
}

/// Slot of the table. The slot holds a flow, or a removed flow whose slot cannot be reused yet.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Index of the flow's mask.
    mask: usize,
    /// Ingress port of the flow.
    port: u16,
    /// Index of the flow's entry in the hash table. `None` after the removal of the flow.
    place: Option<usize>,
}

/// The only writer of a table of cached flows.
#[derive(Debug)]
pub struct FlowWriter {
    table: FlowTable,
    masks: Masks<{ MASKS as usize }>,
    shares: SlotShares,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

/// Returns the ingress port in a flow key.
fn in_port(key: &[u64; 8]) -> u16 {
    let [low, high, ..] = key[0].to_ne_bytes();
    u16::from_le_bytes([low, high])
}

impl FlowWriter {
    /// Creates the writer of a table and removes all flows from it. No program may be using the former contents: either
    /// the table is new, or its last writer has waited for running programs.
    #[must_use]
    pub fn new(table: &FlowTable) -> FlowWriter {
        table.maps.places.words().iter().for_each(|word| word.store(0, Ordering::Release));
        let flows = table.capacity();
        FlowWriter {
            table: table.clone(),
            masks: Masks::new(),
            shares: SlotShares::default(),
            slots: vec![None; flows],
            free: (0..u32::try_from(flows).unwrap_or(u32::MAX)).rev().collect(),
        }
    }

    /// Returns the flow table that this value writes.
    #[must_use]
    pub fn table(&self) -> &FlowTable {
        &self.table
    }

    /// Returns the number of flows in the table.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.slots.iter().flatten().filter(|slot| slot.place.is_some()).count()
    }

    /// Inserts a flow for packets whose key equals `key` in the bits of `mask`, and returns the slot of the
    /// flow. The packet counts of the slot start at 0.
    ///
    /// Two flows of the table that match the same packet must not have different actions. `mask` must contain the
    /// ingress port.
    ///
    /// A flow that is refused as [`Refused::Full`] or [`Refused::Masks`] may displace flows of ports that use more of
    /// the table than the ingress port of the flow. The caller removes the displaced flows
    /// ([`FlowWriter::is_displaced`]), and inserts the refused flow again within two seconds.
    ///
    /// # Errors
    /// Returns [`Refused`] if the flow was not inserted. The packets of the flow then go to the worker.
    pub fn insert(&mut self, key: &[u64; 8], mask: &[u64; 8], action: &FlowAction) -> Result<u32, Refused> {
        let (port, now) = (in_port(key), Instant::now());
        let index = self.index(mask, port, now)?;
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let masked: [u64; 8] = std::array::from_fn(|word| key[word] & mask[word]);
        let hash = self.table.maps.hash(number, &masked);
        if !self.shares.request(port, self.free.len(), now) {
            return Err(Refused::Full);
        }
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
            *known = Some(Slot { mask: index, port, place: Some(place) });
        }
        self.masks.add(index, port, now);
        self.shares.add(port, now);
        Ok(slot)
    }

    /// Returns the index of a mask in the table of masks. Returns an error if the table has no free index for a new
    /// mask, or if XDP programs may still run that started before the mask was written. Such programs could have read
    /// only a part of the mask.
    fn index(&mut self, mask: &[u64; 8], port: u16, now: Instant) -> Result<usize, Refused> {
        match self.masks.request(mask, port, now) {
            Index::Ready(at) => Ok(at),
            Index::Written => Err(Refused::Soon),
            Index::New(at) => {
                for (to, word) in self.table.maps.masked.words().iter().skip(at * 8).zip(mask) {
                    to.store(*word, Ordering::Release);
                }
                Err(Refused::Soon)
            }
            Index::Refused => Err(Refused::Masks),
        }
    }

    /// Returns the number of flow masks that were written so far. A caller that begins to wait for running programs
    /// passes this number to [`FlowWriter::settle`] after the wait.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.masks.written()
    }

    /// Reports that a wait for running programs ([`crate::wait_for_programs`]) has ended. `written` is the number of
    /// flow masks that had been written when the wait began. Flows with these masks can be inserted from now on.
    pub fn settle(&mut self, written: u64) {
        self.masks.settle(written);
    }

    /// Returns whether the flow in a slot must leave the table, because a port that uses less of the table needs the
    /// slot or the mask of the flow. The caller then removes the flow like any other flow. The removal of a flow can
    /// have the effect that other displaced flows may stay. The caller must therefore call this function for each flow
    /// immediately before it removes the flow.
    #[must_use]
    pub fn is_displaced(&self, slot: u32) -> bool {
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(own) = self.slots.get(at).copied().flatten().filter(|own| own.place.is_some()) else {
            return false;
        };
        self.shares.owes(own.port) || self.masks.is_displaced(own.mask, Instant::now())
    }

    /// Removes a flow from the table. Program runs that start later do not find the flow. The slot stays
    /// reserved for the counts of running programs until [`FlowWriter::release`].
    pub fn remove(&mut self, slot: u32) {
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(Some(known)) = self.slots.get_mut(at) else { return };
        let Some(place) = known.place.take() else { return };
        if let Some(word) = self.table.maps.places.words().get(place) {
            word.store(0, Ordering::Release);
        }
        self.masks.remove(known.mask, known.port);
        self.shares.remove(known.port);
    }

    /// Returns the packet counts of the flow in a slot since the flow was inserted. The counts are final
    /// after the flow was removed and a wait for running programs has ended.
    #[must_use]
    pub fn counts(&self, slot: u32) -> FlowCounts {
        self.table.counts(slot)
    }

    /// Releases the slot of a removed flow for reuse. The caller must have waited for running programs since
    /// the removal.
    pub fn release(&mut self, slot: u32) {
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(known) = self.slots.get_mut(at).and_then(|known| known.take_if(|own| own.place.is_none()))
        else {
            return;
        };
        self.free.push(slot);
        self.masks.release(known.mask);
        self.shares.release();
    }
}
