//! Connection table of one address family.
//!
//! A table has a fixed number of entries. [`Table::find_burst`] hashes all tuples of a burst, prefetches their buckets,
//! then their entries, and compares the tuples last. A worker therefore waits for two cache misses of a whole burst,
//! not of each packet.
//!
//! **Full tables.** A new connection never replaces an established one. A new connection is embryonic until the other
//! end has answered ([`Table::establish`]). At most [`Sizes::embryonic`] entries are embryonic. If there is no unused
//! entry, or if this share is used up, the oldest embryonic entry gives way. A flood of opening packets therefore
//! replaces only connections that are not established, and a new connection has time to be established while the
//! flood replaces the other embryonic entries. If all entries are established, the table refuses new connections.
//!
//! A table counts the connections of each zone. The limits of [`Zones`] therefore apply to each worker and each address
//! family. In a zone that has reached its limit, the oldest embryonic entry of the zone gives way.
//!
//! **NAT.** A translated connection has two keys: its tuple, and the tuple of its replies. Both are in the index, and
//! lead to one entry. A record has the tuple of the replies and the lease of the source port. The table releases the
//! port when the connection ends for any reason.
//!
//! **Expiry.** Each entry has a time in milliseconds of 32 bits at which the entry expires. The times wrap after 49
//! days. Time-outs are at most [`LONGEST_TIMEOUT`](crate::timeout::LONGEST_TIMEOUT), and a worker sweeps the whole
//! table more often than that. Look-ups do not find expired entries. [`Table::sweep`] removes the expired entries of a
//! slice of the table.
//!
//! **Memory.** An IPv4 connection takes 64.5 bytes in a full table: 56 of the entry, and 8.5 of the index. An IPv6
//! connection takes 88.5 bytes. The lists of embryonic entries take 24 bytes for each of [`Sizes::embryonic`], and a
//! mark with a label takes 32 bytes. A translation, with its mark and label, takes 56.5 bytes for IPv4 and 88.5 bytes
//! for IPv6: 48 or 80 of the record, and 8.5 of the index.

mod helpers;

use sync::cpu::prefetch_read;
use sync::memory::vec_on_huge_pages;

use crate::embryonic::Embryonic;
pub use crate::entry::EntryId;
use crate::entry::{Entry, RECORDS};
use crate::extension::{Extension, NoExtension, Records, Translated};
use crate::helper::Helpers;
use crate::index::{Index, Place};
use crate::nat::mapping::Mapping;
use crate::nat::ports::{Lease, NotAllocated, Ports};
use crate::nat::spec::{Nat, Target, Translation};
use crate::tuple::{Address, Side, Tuple, TupleHash, worker_of};
use crate::zone::{ZONES, Zones};

/// End of the list of unused entries, and the number of no entry.
const NONE: u32 = u32::MAX;
/// Bit of an entry's number in the index: the key is the tuple of the replies of a translated connection.
const REPLY: u32 = 1 << 31;

/// Largest number of tuples that are looked up together. The buckets and entries of 32 tuples take 96 cache lines, and
/// remain in the first-level cache until they are compared.
const TOGETHER: usize = 32;

/// Sizes of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Largest number of connections, at least 1 and less than 2^31.
    pub entries: u32,
    /// Largest number of embryonic connections, at least 1.
    pub embryonic: u32,
    /// Largest number of connections with a mark or a label other than 0, less than 2^30.
    pub extensions: u32,
    /// Largest number of connections with a translation, less than 2^30.
    pub translations: u32,
}

impl Sizes {
    /// Returns the sizes of a table for this number of connections, of which at most an eighth may be embryonic, all
    /// may have marks and labels, and none has a translation.
    #[must_use]
    pub const fn of_entries(entries: u32) -> Sizes {
        Sizes { entries, embryonic: entries.div_ceil(8), extensions: entries, translations: 0 }
    }
}

/// A connection to be inserted into a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewConnection<A> {
    /// Tuple of the connection.
    pub tuple: Tuple<A>,
    /// Side of the end that sent the first packet.
    pub originator: Side,
    /// Time in milliseconds at which the connection expires. The time is at most
    /// [`LONGEST_TIMEOUT`](crate::timeout::LONGEST_TIMEOUT) after the present time.
    pub expires: u32,
    /// Mark and label.
    pub extension: Extension,
    /// Translation of the connection. `None`: the connection is not translated.
    pub nat: Option<Nat<A>>,
}

impl<A> NewConnection<A> {
    /// Returns a connection without a translation, with a mark and a label of 0.
    #[must_use]
    pub fn of(tuple: Tuple<A>, originator: Side, expires: u32) -> NewConnection<A> {
        NewConnection { tuple, originator, expires, extension: Extension::default(), nat: None }
    }
}

/// Reason for which a table refuses a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The table has a connection with the tuple.
    Exists(EntryId),
    /// The zone has as many connections in this table as its limit allows, and none of them is embryonic.
    ZoneFull,
    /// The table is full of established connections.
    TableFull,
    /// The buckets of the tuple are full. In a table with random tuples, the probability is negligible.
    Crowded,
    /// The table has no free record for a mark and label, or for a translation.
    NoExtension,
    /// The connection cannot be translated.
    Nat(NotAllocated),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Nat(why) => return why.fmt(f),
            Refused::Exists(_) => "the table has a connection with the same tuple",
            Refused::ZoneFull => "the zone has reached its limit of connections",
            Refused::TableFull => "the table is full of established connections",
            Refused::Crowded => "the buckets of the connection are full",
            Refused::NoExtension => "the table has no more records for marks, labels and translations",
        })
    }
}

impl std::error::Error for Refused {}

/// Number of changes of a table since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that were inserted.
    pub inserted: u64,
    /// Embryonic connections that gave way to new connections.
    pub displaced: u64,
    /// Connections that a sweep or a new connection with the same tuple removed after their expiry.
    pub expired: u64,
    /// New connections that were refused because their zone was full.
    pub zone_full: u64,
    /// New connections that were refused because the table was full.
    pub table_full: u64,
    /// New connections that were refused because their buckets were full.
    pub crowded: u64,
}

/// Connection table for IPv4 (`u32`) or IPv6 (`u128`).
#[derive(Debug)]
pub struct Table<A> {
    hash: TupleHash,
    index: Index,
    /// Entries that have been in use so far. The vector never exceeds its first allocation.
    entries: Vec<Entry<A>>,
    sizes: Sizes,
    unused: u32,
    count: u32,
    embryonic: Embryonic,
    extensions: Records<Extension>,
    translations: Records<Translated<A>>,
    /// Used ports. `None` if the table has no translations.
    ports: Option<Box<Ports<A>>>,
    /// Helpers of connections. `None` if the table has no helpers.
    helpers: Option<Box<Helpers<A>>>,
    /// Number of this worker, and number of workers.
    worker: (u32, u32),
    /// Number of connections in each zone. The kernel provides a page when a zone of the page is used.
    zone_counts: Vec<u32>,
    /// First entry that the next sweep visits.
    sweep_at: u32,
    counts: Counts,
}

impl<A: Address> Table<A> {
    /// Returns an empty table. The memory for all entries is allocated now. The kernel provides the pages of the index
    /// now, and the pages of the entries when the entries are used for the first time.
    #[must_use]
    pub fn new(sizes: Sizes, hash: TupleHash) -> Table<A> {
        let entries = sizes.entries.clamp(1, REPLY - 1);
        let records = entries.min(RECORDS);
        let (embryonic, extensions) = (sizes.embryonic.clamp(1, entries), sizes.extensions.min(records));
        let translations = sizes.translations.min(records);
        let sizes = Sizes { entries, embryonic, extensions, translations };
        Table {
            hash,
            index: Index::new(entries + translations),
            entries: vec_on_huge_pages(entries as usize),
            sizes,
            unused: NONE,
            count: 0,
            embryonic: Embryonic::new(sizes.embryonic),
            extensions: Records::new(sizes.extensions),
            translations: Records::new(sizes.translations),
            // A new connection has its port before it displaces another one.
            ports: (translations > 0).then(|| Box::new(Ports::new(translations + 1))),
            helpers: None,
            worker: (0, 1),
            zone_counts: vec![0; ZONES],
            sweep_at: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the sizes of the table.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns the number of connections, including expired connections that no sweep has removed yet.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of connections in a zone, including expired connections that no sweep has removed yet.
    #[must_use]
    pub fn zone_count(&self, zone: u16) -> u32 {
        self.zone_counts.get(usize::from(zone)).copied().unwrap_or_default()
    }

    /// Returns the number of embryonic connections.
    #[must_use]
    pub fn embryonic_count(&self) -> u32 {
        self.embryonic.count()
    }

    /// Returns the number of embryonic connections of a zone.
    #[must_use]
    pub fn zone_embryonic_count(&self, zone: u16) -> u32 {
        self.embryonic.zone_count(zone)
    }

    /// Removes the oldest embryonic connection of a zone. Does nothing if the zone has none.
    pub fn displace_embryonic(&mut self, zone: u16) {
        if let Some(oldest) = self.embryonic.oldest_of_zone(zone) {
            self.counts.displaced += 1;
            self.remove(EntryId(oldest));
        }
    }

    /// Begins a burst of packets. Failed searches for free ports are limited in each burst
    /// ([`Ports::begin_burst`]).
    pub fn begin_burst(&mut self) {
        if let Some(ports) = &mut self.ports {
            ports.begin_burst();
        }
    }

    /// Returns the used ports. Returns `None` if the table has no translations.
    #[must_use]
    pub fn ports(&self) -> Option<&Ports<A>> {
        self.ports.as_deref()
    }

    /// Sets the largest number of free ports that an allocation offers (see [`Ports::set_offers`]).
    pub fn set_offers(&mut self, offers: u32) {
        if let Some(ports) = &mut self.ports {
            ports.set_offers(offers);
        }
    }

    /// Sets the largest number of ports of a subscriber in a zone (see [`Ports::set_subscriber_limit`]).
    pub fn set_subscriber_limit(&mut self, limit: Option<u32>) {
        if let Some(ports) = &mut self.ports {
            ports.set_subscriber_limit(limit);
        }
    }

    /// Sets the number of this worker, and the number of workers, at least 1. The tuples of the replies of new
    /// connections belong to this worker (see [`TupleHash::worker`]).
    pub fn set_worker(&mut self, worker: u32, workers: u32) {
        self.worker = (worker, workers.max(1));
    }

    /// Returns the numbers of changes since the creation of the table.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the memory that the table takes in bytes when all entries and all translations are in use, without
    /// marks, without used ports and without the arrays of the zones.
    #[must_use]
    pub fn memory(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<Entry<A>>();
        self.index.memory() + self.embryonic.memory() + entries + self.translations.memory()
    }

    /// Returns the connection with a tuple. `now` is the time in milliseconds.
    #[must_use]
    pub fn find(&self, tuple: &Tuple<A>, now: u32) -> Option<EntryId> {
        self.search(self.place(tuple), tuple).filter(|number| self.is_live(*number, now)).map(EntryId)
    }

    /// Looks up the connections of a burst. The function writes the result for each tuple to the element of `found` at
    /// the same index, and ignores tuples beyond the length of `found`. `now` is the time in milliseconds.
    pub fn find_burst(&self, tuples: &[Tuple<A>], now: u32, found: &mut [Option<EntryId>]) {
        for (tuples, found) in tuples.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            let mut places = [Place::default(); TOGETHER];
            for (place, tuple) in places.iter_mut().zip(tuples) {
                *place = self.place(tuple);
                self.index.prefetch(*place);
            }
            let mut candidates = [NONE; TOGETHER];
            let mut replies = 0;
            for ((candidate, place), _) in candidates.iter_mut().zip(&places).zip(tuples) {
                *candidate = self.index.find(*place, |_| true).unwrap_or(NONE);
                // The sum with `NONE` is 0.
                replies |= candidate.wrapping_add(1);
                if let Some(entry) = self.entries.get(*candidate as usize) {
                    // Most entries lie on two cache lines.
                    prefetch_read(entry);
                    prefetch_read(&entry.extension);
                }
            }
            if replies & REPLY != 0 {
                self.prefetch_translations(&candidates);
            }
            for (((tuple, candidate), place), found) in tuples.iter().zip(candidates).zip(places).zip(found) {
                let is_found = self.entries.get(candidate as usize).is_some_and(|entry| entry.is(tuple));
                let number = match (is_found, candidate) {
                    (true, number) => Some(number),
                    (false, NONE) => None,
                    // The tuple is one of replies, or another entry has the tag of the tuple.
                    (false, _) => self.search(place, tuple),
                };
                *found = number.filter(|number| self.is_live(*number, now)).map(EntryId);
            }
        }
    }

    /// Inserts a connection. The connection is embryonic. `now` is the time in milliseconds.
    ///
    /// # Errors
    /// Returns the reason for which the table refuses the connection. No connection that is live gives way then.
    pub fn insert(
        &mut self,
        zones: &Zones,
        connection: &NewConnection<A>,
        now: u32,
    ) -> Result<EntryId, Refused> {
        let tuple = &connection.tuple;
        if let Some(number) = self.search(self.place(tuple), tuple) {
            if self.is_live(number, now) {
                return Err(Refused::Exists(EntryId(number)));
            }
            self.counts.expired += 1;
            self.remove(EntryId(number));
        }
        let limit = zones.limit(tuple.zone);
        let translation = match &connection.nat {
            Some(nat) => {
                // A connection that the table refuses costs no search for a port.
                self.find_place(connection, limit)?;
                Some(self.choose(connection, nat, NONE, now)?)
            }
            None => None,
        };
        let displaced = self.find_place(connection, limit);
        let inserted =
            displaced.and_then(|displaced| self.insert_chosen(connection, translation.as_ref(), displaced));
        if let (Err(_), Some(translation)) = (&inserted, &translation) {
            self.end_lease(translation.lease, tuple, connection.originator);
        }
        inserted
    }

    /// Returns the embryonic entry that must give way to a connection. Returns `None` if the table has a free entry.
    /// `limit` is the limit of the connection's zone.
    ///
    /// # Errors
    /// Returns an error if the table has no place for the connection, or no record for its extension.
    fn find_place(&mut self, connection: &NewConnection<A>, limit: u32) -> Result<Option<u32>, Refused> {
        let displaced = self.displaced_by(limit, connection.tuple.zone)?;
        let freed = displaced.and_then(|number| self.get(EntryId(number)));
        let has_record = self.has_record(connection.extension, connection.nat.is_some(), freed);
        if has_record { Ok(displaced) } else { Err(Refused::NoExtension) }
    }

    /// Inserts a connection whose translation is chosen, in the place of an embryonic entry if there is one.
    #[inline]
    fn insert_chosen(
        &mut self,
        connection: &NewConnection<A>,
        translation: Option<&Translation<A>>,
        displaced: Option<u32>,
    ) -> Result<EntryId, Refused> {
        let number = match displaced {
            Some(number) => number,
            None if self.unused != NONE => self.unused,
            None => u32::try_from(self.entries.len()).unwrap_or(NONE),
        };
        self.insert_keys(number, &connection.tuple, translation)?;
        if let Some(displaced) = displaced {
            self.counts.displaced += 1;
            self.remove(EntryId(displaced));
        }
        let new = self.new_entry(number, connection, translation);
        match self.entries.get_mut(number as usize) {
            Some(entry) => {
                self.unused = entry.timer;
                *entry = new;
            }
            None => self.entries.push(new),
        }
        self.count += 1;
        if let Some(count) = self.zone_counts.get_mut(usize::from(connection.tuple.zone)) {
            *count += 1;
        }
        Ok(EntryId(number))
    }

    /// Replaces a connection by a new one in the place of its entry. The tuple of the new connection is one of the keys
    /// of the old one. The new connection is embryonic. The zone may exceed its limit, because its number of
    /// connections is unchanged. Does nothing if the old connection has another tuple. `now` is the time in
    /// milliseconds.
    ///
    /// # Errors
    /// Returns the reason for which the table refuses the new connection. The old connection is unchanged then.
    pub fn replace(&mut self, id: EntryId, connection: &NewConnection<A>, now: u32) -> Result<(), Refused> {
        if !self.holds(id, &connection.tuple) {
            return Ok(());
        }
        let translation = match &connection.nat {
            Some(nat) => Some(self.choose(connection, nat, id.0, now)?),
            None => None,
        };
        let replaced = self.replace_chosen(id, connection, translation.as_ref());
        if let (Err(_), Some(translation)) = (&replaced, &translation) {
            self.end_lease(translation.lease, &connection.tuple, connection.originator);
        }
        replaced
    }

    /// Replaces a connection by one whose translation is chosen.
    fn replace_chosen(
        &mut self,
        id: EntryId,
        connection: &NewConnection<A>,
        translation: Option<&Translation<A>>,
    ) -> Result<(), Refused> {
        let Some(old) = self.get(id).copied() else { return Ok(()) };
        if !self.has_record(connection.extension, translation.is_some(), Some(&old)) {
            return Err(Refused::NoExtension);
        }
        self.insert_keys(id.0, &connection.tuple, translation)?;
        self.release(id.0, &old);
        if !old.is_embryonic()
            && self.embryonic.count() >= self.embryonic.limit()
            && let Some(oldest) = self.embryonic.oldest()
        {
            self.counts.displaced += 1;
            self.remove(EntryId(oldest));
        }
        let new = self.new_entry(id.0, connection, translation);
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            *entry = new;
        }
        Ok(())
    }

    /// Chooses the translation of a new connection. The connection may take the place of the entry `replaced`.
    #[inline(never)]
    fn choose(
        &mut self,
        connection: &NewConnection<A>,
        nat: &Nat<A>,
        replaced: u32,
        now: u32,
    ) -> Result<Translation<A>, Refused> {
        let NewConnection { tuple, originator, .. } = connection;
        // The ports are apart from the table while the table is searched.
        let Some(mut ports) = self.ports.take() else { return Err(Refused::NoExtension) };
        let is_unique = |tuple: &Tuple<A>| {
            let ((worker, workers), hash) = (self.worker, self.hash.of(tuple));
            let is_free = |number| number == replaced || !self.is_live(number, now);
            worker_of(hash, workers) == worker
                && self.search(self.index.place(hash), tuple).is_none_or(is_free)
        };
        let chosen = nat.choose(&mut ports, tuple, *originator, is_unique);
        self.ports = Some(ports);
        let chosen = chosen.map_err(Refused::Nat)?;
        let reply_tuple = &chosen.reply_tuple;
        let expired = self.search(self.place(reply_tuple), reply_tuple).filter(|number| *number != replaced);
        if let Some(number) = expired {
            self.counts.expired += 1;
            self.remove(EntryId(number));
        }
        Ok(chosen)
    }

    /// Returns whether there is a record for a new connection, after the end of the connection `freed`.
    fn has_record(&self, extension: Extension, is_translated: bool, freed: Option<&Entry<A>>) -> bool {
        let is_freed =
            freed.is_some_and(|entry| entry.record() != 0 && entry.is_translated() == is_translated);
        if is_translated {
            return is_freed || self.translations.has_unused();
        }
        is_freed || extension == Extension::default() || self.extensions.has_unused()
    }

    /// Inserts the keys of a new connection into the index.
    #[inline]
    fn insert_keys(
        &mut self,
        number: u32,
        tuple: &Tuple<A>,
        translation: Option<&Translation<A>>,
    ) -> Result<(), Refused> {
        let (place, second) = (self.place(tuple), translation.map(|translation| &translation.reply_tuple));
        let mut inserted = self.index.insert(place, number);
        if let (Ok(()), Some(reply_tuple)) = (inserted, second.filter(|reply_tuple| *reply_tuple != tuple)) {
            inserted = self.index.insert(self.place(reply_tuple), number | REPLY);
            if inserted.is_err() {
                self.index.remove(place, number);
            }
        }
        self.counts.crowded += u64::from(inserted.is_err());
        inserted.map_err(|_| Refused::Crowded)
    }

    /// Returns the entry of a new connection for which there are a record and a node.
    #[inline]
    fn new_entry(
        &mut self,
        number: u32,
        connection: &NewConnection<A>,
        translation: Option<&Translation<A>>,
    ) -> Entry<A> {
        let NewConnection { tuple, originator, expires, extension, .. } = connection;
        let node = self.embryonic.push(number, tuple.zone, *expires).unwrap_or_default();
        let record = match translation {
            Some(translation) => self.translations.insert(Translated::of(translation, *extension)),
            None => self.extensions.set(0, *extension),
        };
        let mut entry = Entry::new(tuple, *originator, node, record.unwrap_or_default());
        if let Some(translation) = translation {
            entry.set_translation(translation);
        }
        self.counts.inserted += 1;
        entry
    }

    /// Returns the embryonic entry that gives way to a new connection of a zone. Returns `None` if the zone and the
    /// table have an unused place.
    fn displaced_by(&mut self, limit: u32, zone: u16) -> Result<Option<u32>, Refused> {
        let count = self.zone_count(zone);
        if count >= limit {
            // In a zone with more connections than its limit, one removal makes no place.
            let oldest = self.embryonic.oldest_of_zone(zone).filter(|_| count == limit);
            self.counts.zone_full += u64::from(oldest.is_none());
            return oldest.map(Some).ok_or(Refused::ZoneFull);
        }
        if self.count < self.sizes.entries && self.embryonic.count() < self.embryonic.limit() {
            return Ok(None);
        }
        let oldest = self.embryonic.oldest();
        self.counts.table_full += u64::from(oldest.is_none());
        oldest.map(Some).ok_or(Refused::TableFull)
    }

    /// Returns the entry of a connection. Returns `None` if the entry is not in use.
    #[inline]
    #[must_use]
    pub fn get(&self, id: EntryId) -> Option<&Entry<A>> {
        self.entries.get(id.0 as usize).filter(|entry| entry.is_used())
    }

    /// Returns the entry of a connection for a change of its state. Returns `None` if the entry is not in use.
    #[inline]
    pub fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry<A>> {
        self.entries.get_mut(id.0 as usize).filter(|entry| entry.is_used())
    }

    /// Returns whether a tuple is a key of a connection: the tuple of the connection, or the tuple of the replies.
    #[inline]
    #[must_use]
    pub fn holds(&self, id: EntryId, tuple: &Tuple<A>) -> bool {
        self.get(id).is_some_and(|entry| entry.is(tuple) || self.is_reply_tuple(entry, tuple))
    }

    /// Returns the mapping of a translated connection, and the end that is translated.
    #[must_use]
    pub fn mapping(&self, id: EntryId) -> Option<(Mapping<A>, Target)> {
        let entry = self.get(id).filter(|entry| entry.is_translated())?;
        let (tuple, record) = (entry.tuple(), self.translations.get(entry.record())?);
        let reply_tuple = record.reply_tuple(tuple.zone, tuple.protocol);
        let (original, translated) = ((tuple, entry.originator()), (reply_tuple, entry.reply_originator()));
        Some((Mapping::of_tuples(original, translated), entry.target()))
    }

    /// Returns the mark and the label of a connection.
    #[must_use]
    pub fn extension(&self, id: EntryId) -> Extension {
        let Some(entry) = self.get(id) else { return Extension::default() };
        let extension = if entry.is_translated() {
            self.translations.get(entry.record()).map(Translated::extension)
        } else {
            self.extensions.get(entry.record()).copied()
        };
        extension.unwrap_or_default()
    }

    /// Sets the mark and the label of a connection.
    ///
    /// # Errors
    /// Returns an error if the table has no more extension records. The connection is unchanged then.
    pub fn set_extension(&mut self, id: EntryId, extension: Extension) -> Result<(), NoExtension> {
        let Some(entry) = self.entries.get_mut(id.0 as usize).filter(|entry| entry.is_used()) else {
            return Ok(());
        };
        if !entry.is_translated() {
            entry.set_record(self.extensions.set(entry.record(), extension)?);
        } else if let Some(record) = self.translations.get_mut(entry.record()) {
            record.set_extension(extension);
        }
        Ok(())
    }

    /// Returns the time in milliseconds at which a connection expires. Returns `None` if the entry is not in use.
    #[must_use]
    pub fn expires(&self, id: EntryId) -> Option<u32> {
        self.get(id).map(|entry| self.expires_of(entry))
    }

    /// Sets the time in milliseconds at which a connection expires.
    pub fn set_expires(&mut self, id: EntryId, expires: u32) {
        match self.entries.get_mut(id.0 as usize).filter(|entry| entry.is_used()) {
            Some(entry) if entry.is_embryonic() => self.embryonic.set_expires(entry.timer, expires),
            Some(entry) => entry.timer = expires,
            None => {}
        }
    }

    /// Marks a connection as established. From now on, no other connection replaces this connection.
    pub fn establish(&mut self, id: EntryId) {
        let entry = self.entries.get_mut(id.0 as usize);
        if let Some(entry) = entry.filter(|entry| entry.is_used() && entry.is_embryonic()) {
            let (node, zone) = (entry.timer, entry.zone());
            entry.set_established(self.embryonic.expires(node));
            self.embryonic.remove(node, zone);
        }
    }

    /// Removes a connection, and releases its port. Does nothing if the entry is not in use.
    pub fn remove(&mut self, id: EntryId) {
        let Some(entry) = self.get(id).copied() else { return };
        self.release(id.0, &entry);
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.clear(self.unused);
        }
        self.unused = id.0;
        self.count -= 1;
        if let Some(count) = self.zone_counts.get_mut(usize::from(entry.zone())) {
            *count = count.saturating_sub(1);
        }
    }

    /// Releases what an entry has outside the array of entries: its keys, its node, its record and its port.
    fn release(&mut self, number: u32, entry: &Entry<A>) {
        let tuple = entry.tuple();
        if entry.is_embryonic() {
            self.embryonic.remove(entry.timer, tuple.zone);
        }
        if entry.has_helper() {
            self.remove_helper(EntryId(number));
        }
        self.index.remove(self.place(&tuple), number);
        if !entry.is_translated() {
            self.extensions.remove(entry.record());
        } else if let Some(record) = self.translations.get(entry.record()).copied() {
            if entry.has_second_key() {
                let reply_tuple = record.reply_tuple(tuple.zone, tuple.protocol);
                self.index.remove(self.place(&reply_tuple), number | REPLY);
            }
            self.translations.remove(entry.record());
            self.end_lease(record.lease(), &tuple, entry.originator());
        }
    }

    /// Releases the source port of a translated connection.
    fn end_lease(&mut self, lease: Lease, tuple: &Tuple<A>, originator: Side) {
        if let Some(ports) = &mut self.ports {
            ports.end_lease(lease, tuple.zone, tuple.end(originator).address);
        }
    }

    /// Removes the expired connections among the next `slice` entries, and returns the number of removed connections.
    /// Removes at most `slice` expired expectations, too.
    /// Consecutive calls visit all entries in turn. `now` is the time in milliseconds.
    pub fn sweep(&mut self, now: u32, slice: u32) -> u32 {
        let used = u32::try_from(self.entries.len()).unwrap_or(NONE);
        let mut removed = 0;
        for _ in 0..slice.min(used) {
            if self.sweep_at >= used {
                self.sweep_at = 0;
            }
            let number = self.sweep_at;
            self.sweep_at += 1;
            let is_used = self.entries.get(number as usize).is_some_and(Entry::is_used);
            if is_used && !self.is_live(number, now) {
                self.remove(EntryId(number));
                removed += 1;
            }
        }
        self.counts.expired += u64::from(removed);
        if let Some(helpers) = &mut self.helpers {
            helpers.expectations.sweep(now, slice);
        }
        removed
    }

    /// Removes all connections of a zone among the entries from `from` on, at most `slice` of them. Returns the entry
    /// with which the next call begins, and `None` after the last entry. The first call begins with `None`.
    pub fn flush_zone(&mut self, zone: u16, from: Option<EntryId>, slice: u32) -> Option<EntryId> {
        let used = u32::try_from(self.entries.len()).unwrap_or(NONE);
        let first = from.map_or(0, |id| id.0);
        let end = first.saturating_add(slice.max(1)).min(used);
        for number in first..end {
            if self.entries.get(number as usize).is_some_and(|entry| entry.zone() == zone) {
                self.remove(EntryId(number));
            }
        }
        (end < used).then_some(EntryId(end))
    }

    /// Returns the connections that have not expired, among the entries from `from` on, at most `slice` of them.
    pub fn connections(&self, from: u32, slice: u32, now: u32) -> impl Iterator<Item = (EntryId, &Entry<A>)> {
        let numbers = from..from.saturating_add(slice);
        let entries = numbers.map_while(|number| Some((number, self.entries.get(number as usize)?)));
        let live = entries.filter(move |(number, entry)| entry.is_used() && self.is_live(*number, now));
        live.map(|(number, entry)| (EntryId(number), entry))
    }

    #[inline(always)]
    fn place(&self, tuple: &Tuple<A>) -> Place {
        self.index.place(self.hash.of(tuple))
    }

    /// Returns the number of the entry that has the tuple as one of its keys.
    #[inline(always)]
    fn search(&self, place: Place, tuple: &Tuple<A>) -> Option<u32> {
        let is_key = |number: u32| match self.entries.get((number & !REPLY) as usize) {
            Some(entry) if number & REPLY == 0 => entry.is(tuple),
            Some(entry) => self.is_reply_tuple(entry, tuple),
            None => false,
        };
        self.index.find(place, is_key).map(|number| number & !REPLY)
    }

    /// Returns whether the tuple is the second key of an entry.
    #[inline]
    fn is_reply_tuple(&self, entry: &Entry<A>, tuple: &Tuple<A>) -> bool {
        let record = if entry.has_second_key() { self.translations.get(entry.record()) } else { None };
        record.is_some_and(|record| record.reply_tuple(entry.zone(), entry.protocol()) == *tuple)
    }

    /// Prefetches the entries and the records of the candidates whose keys are tuples of replies.
    #[inline(never)]
    fn prefetch_translations(&self, candidates: &[u32]) {
        let replies = || candidates.iter().filter(|candidate| **candidate & REPLY != 0);
        let entries = || replies().filter_map(|candidate| self.entries.get((candidate & !REPLY) as usize));
        entries().for_each(prefetch_read);
        entries().filter_map(|entry| self.translations.get(entry.record())).for_each(prefetch_read);
    }

    #[inline(always)]
    fn expires_of(&self, entry: &Entry<A>) -> u32 {
        if entry.is_embryonic() { self.embryonic.expires(entry.timer) } else { entry.timer }
    }

    /// Returns whether an entry has not expired at the time `now`. An entry expires exactly at its time of expiry.
    #[inline(always)]
    fn is_live(&self, number: u32, now: u32) -> bool {
        self.entries.get(number as usize).is_some_and(|entry| is_before(now, self.expires_of(entry)))
    }
}

/// Returns whether the time `a` is before the time `b`, if both are within
/// [`LONGEST_TIMEOUT`](crate::timeout::LONGEST_TIMEOUT) of each other. The times are in milliseconds and wrap after
/// 2^32.
#[inline(always)]
const fn is_before(a: u32, b: u32) -> bool {
    // The difference is negative as a signed number.
    a.wrapping_sub(b) >> 31 != 0
}
