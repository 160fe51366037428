//! Reassembly of fragments for tracking: the fragments of a datagram are held until the datagram is complete.
//!
//! Only the first fragment has the ports, so the tracker cannot track fragments one by one. A [`Reassembler`] belongs
//! to one worker and one address family, as a tracker does, and a fragment passes through it before the tracker. When
//! the datagram is complete, the caller gets the original packets in the order of their arrival, and one [`Packet`] for
//! the whole datagram. The caller tracks this packet, and applies its state to all fragments. The fragments are
//! forwarded as they are, as with Open vSwitch's `ipf`. The reassembler does not read the data above the headers, so
//! the caller checks the checksum of the datagram.
//!
//! ```text
//!  fields::Fragment      key, offset, length; headers of the first fragment; checks of a fragment alone
//!       |
//!  Reassembler           datagrams that are not complete; records of refused datagrams
//!       |--- pool        packets that are held, as a chain for each datagram
//!       |--- share       what each share key occupies
//!       '--- list        datagrams from the oldest to the newest
//! ```
//!
//! **Workers.** All fragments of a datagram must reach one worker. Later fragments have no ports, so a caller that
//! selects workers by a hash uses the addresses and the identification ([`Key`]), not the tuple of the connection.
//!
//! **Packets.** The caller gets each packet back exactly once, through the function `returned`, with the reason
//! ([`Reason`]). The counts obey the equation `accepted = completed + expired + purged + discarded + held`.
//!
//! **Refusals.** [`Refused`] lists the reasons. A refused datagram can never be complete. The caller gets its packets
//! back at once, and the reassembler refuses later fragments of the datagram for one time-out. The number of the
//! records of refused datagrams is fixed ([`Sizes::refused`]). If all are in use, the oldest record gives way. An exact
//! duplicate is refused alone (RFC 8200 section 4.5). The packet that arrived first is forwarded, so a duplicate with
//! other data has no effect.
//!
//! **Shares.** Each fragment comes with a share key, for example the number of its port. A datagram counts for the key
//! of its fragment that arrived first. A key gets another fragment only while it holds fewer fragments than are free,
//! and another datagram likewise. Beyond this limit, the oldest datagram of the key that holds most gives way. A single
//! key therefore holds at most half, `n` busy keys hold equal shares and leave one share free, and a key that holds
//! little always finds a place. The search for the key that holds most reads the table of all keys
//! ([`Sizes::datagrams`]). It takes place only beyond the limit.
//!
//! **Times** are in milliseconds of 32 bits and wrap, as in [`crate::table`]. The time-out begins with the fragment
//! that arrives first. [`Reassembler::expire`] returns the packets of expired datagrams in slices.
//!
//! After construction, no function allocates, locks, reads a clock or panics on any input. The hash of the keys is
//! secret. A fragment is compared with all fragments of its datagram, of which [`Sizes::fragments_per_datagram`] limits
//! the number.
//!
//! ```
//! use conn::fragment::{Fragment, Options, Outcome, Reassembler, Sizes};
//! use conn::tuple::TupleHash;
//! use packet::BuildError;
//! use packet::ipv4::{Ipv4, Ipv4Repr};
//!
//! let fragment = |more_fragments: bool, fragment_offset: u16| {
//!     let [src, dst] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
//!     let payload_len = 1400;
//!     let repr = Ipv4Repr { src, dst, more_fragments, fragment_offset, payload_len, ..Ipv4Repr::default() };
//!     let mut bytes = vec![0; 1420];
//!     repr.emit(&mut bytes)?;
//!     Ok::<_, BuildError>(bytes)
//! };
//! let packets = [fragment(false, 1400)?, fragment(true, 0)?];
//! let [last, first] = [Ipv4::parse(&packets[0])?, Ipv4::parse(&packets[1])?].map(|packet| {
//!     Fragment::of_ipv4(&packet, 0).expect("the packet is a fragment")
//! });
//!
//! let mut reassembler = Reassembler::new(Sizes::default(), Options::ipv4(), TupleHash::new());
//! let outcome = reassembler.receive(&last, "last", 1, 0, |_| unreachable!("no packet returns yet"));
//! assert!(matches!(outcome, Outcome::Held));
//! let mut released = Vec::new();
//! let outcome = reassembler.receive(&first, "first", 1, 5, |returned| released.push(returned.packet));
//! assert!(matches!(outcome, Outcome::Complete(Ok(_))));
//! assert_eq!(released, ["last", "first"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fields;
mod list;
mod pool;
mod share;

pub use fields::{Fragment, Key, Refused};

use crate::fragment::fields::First;
use crate::fragment::list::{Links, List, NONE};
use crate::fragment::pool::{Chain, Pool};
use crate::fragment::share::{Resource, Shares};
use crate::headers::{NoTuple, Packet};
use crate::index::{Index, Place};
use crate::timeout::LONGEST_TIMEOUT;
use crate::tuple::{Address, TupleHash};

/// Least value of [`Options::min_fragment`], as in Open vSwitch.
pub const LEAST_MIN_FRAGMENT: u32 = 400;

/// Sizes of a reassembler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Largest number of datagrams that are not complete, from 1 to 2^24.
    pub datagrams: u32,
    /// Largest number of fragments that are held, and upper bound of [`Options::max_fragments`], from 1 to 2^24.
    pub fragments: u32,
    /// Largest number of fragments of a datagram, at least 2. The default is 64: 65,535 octets in fragments of 1,200.
    pub fragments_per_datagram: u32,
    /// Largest number of records of refused datagrams, from 1 to 2^24.
    pub refused: u32,
}

impl Sizes {
    const LARGEST: u32 = 1 << 24;

    /// Returns the sizes within their bounds.
    fn clamped(self) -> Sizes {
        Sizes {
            datagrams: self.datagrams.clamp(1, Sizes::LARGEST),
            fragments: self.fragments.clamp(1, Sizes::LARGEST),
            fragments_per_datagram: self.fragments_per_datagram.max(2),
            refused: self.refused.clamp(1, Sizes::LARGEST),
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { datagrams: 500, fragments: 1000, fragments_per_datagram: 64, refused: 500 }
    }
}

/// Settings of a reassembler, with the defaults of Open vSwitch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether fragments are reassembled (`ipf-set-enabled`). If not, all fragments are refused.
    pub enabled: bool,
    /// Least length of a packet that is not the last fragment, with its IP headers, in octets (`ipf-set-min-frag`). The
    /// value is at least [`LEAST_MIN_FRAGMENT`].
    pub min_fragment: u32,
    /// Largest number of fragments that are held (`ipf-set-max-nfrags`), at least 1 and at most [`Sizes::fragments`].
    /// Open vSwitch has one limit for both address families.
    pub max_fragments: u32,
    /// Time-out of a datagram in milliseconds, at least 1 and at most [`LONGEST_TIMEOUT`].
    pub timeout: u32,
}

impl Options {
    /// Returns the default settings for IPv4.
    #[must_use]
    pub const fn ipv4() -> Options {
        Options { enabled: true, min_fragment: 1200, max_fragments: 1000, timeout: 15_000 }
    }

    /// Returns the default settings for IPv6.
    #[must_use]
    pub const fn ipv6() -> Options {
        Options { min_fragment: 1280, ..Options::ipv4() }
    }

    /// Returns the settings within their bounds.
    fn clamped(self, sizes: &Sizes) -> Options {
        Options {
            enabled: self.enabled,
            min_fragment: self.min_fragment.max(LEAST_MIN_FRAGMENT),
            max_fragments: self.max_fragments.clamp(1, sizes.fragments),
            timeout: self.timeout.clamp(1, LONGEST_TIMEOUT),
        }
    }
}

/// Numbers of fragments since the creation of the reassembler. The first six have the meanings of Open vSwitch's
/// `ipf-get-status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Fragments that were accepted.
    pub accepted: u64,
    /// Fragments of complete datagrams.
    pub completed: u64,
    /// Accepted fragments whose datagram expired.
    pub expired: u64,
    /// Fragments that were refused because they were smaller than the minimum, or than the headers of the datagram.
    pub too_small: u64,
    /// Fragments that were refused because they overlapped or duplicated another fragment.
    pub overlapped: u64,
    /// Accepted fragments whose datagram gave way to another one, or was flushed.
    pub purged: u64,
    /// Accepted fragments whose datagram was refused.
    pub discarded: u64,
    /// Fragments that were refused for another reason.
    pub refused: u64,
}

/// Reason for which a packet returns to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reason {
    /// The datagram is complete.
    Complete,
    /// The fragment or its datagram is refused.
    Refused(Refused),
    /// The datagram has expired.
    Expired,
    /// The datagram gave way to another one, or was flushed.
    Purged,
}

/// A packet that returns to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returned<P> {
    /// Packet of the fragment.
    pub packet: P,
    /// Offset of the fragment's data in the datagram, in octets. 0: the fragment has the headers.
    pub offset: u16,
    /// Reason for which the packet returns.
    pub reason: Reason,
}

/// Result of receiving a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<A> {
    /// The packet is held.
    Held,
    /// The datagram is complete, and its packets have been returned. The value is the packet for the tracker, or the
    /// reason for which the datagram has no tuple.
    Complete(Result<Packet<A>, NoTuple>),
    /// The packet has been returned. If the datagram is refused, its other packets have been returned, too.
    Refused(Refused),
}

/// A datagram that is not complete, or the record of a refused one.
#[derive(Clone, Copy, Debug)]
struct Datagram<A> {
    key: Key<A>,
    /// Time in milliseconds at which the first fragment arrived, or at which the datagram was refused.
    since: u32,
    /// Number of the datagram in the order of arrival.
    serial: u64,
    /// Number of the share.
    share: u32,
    chain: Chain,
    /// Number of octets that are held.
    octets: u32,
    /// Offset of the first octet after the data that are held.
    reach: u32,
    /// Length of the datagram. `None` if the last fragment has not arrived.
    end: Option<u32>,
    /// Headers of the first fragment. `None` if this fragment has not arrived.
    first: Option<First<A>>,
    is_refused: bool,
}

impl<A: Address> Datagram<A> {
    fn new(key: Key<A>, since: u32) -> Datagram<A> {
        let (serial, share, octets, reach) = (0, NONE, 0, 0);
        let (chain, end, first, is_refused) = (Chain::EMPTY, None, None, false);
        Datagram { key, since, serial, share, chain, octets, reach, end, first, is_refused }
    }

    /// Returns whether the datagram is complete with a fragment that overlaps no other one.
    fn is_completed_by(&self, fragment: &Fragment<A>) -> bool {
        let end = if fragment.is_last() { Some(fragment.end()) } else { self.end };
        end == Some(self.octets + fragment.len())
    }

    /// Compares a fragment with the fragments of the datagram. `octets` are the offsets of the first and the last octet
    /// of each of them.
    fn compare(&self, fragment: &Fragment<A>, octets: impl Iterator<Item = [u16; 2]>) -> Result<(), Refused> {
        let (start, end) = (u32::from(fragment.offset()), fragment.end());
        let mut is_overlap = false;
        for [first, last] in octets.map(|octets| octets.map(u32::from)) {
            let is_last = self.end == Some(last + 1);
            if (first, last + 1, is_last) == (start, end, fragment.is_last()) {
                return Err(Refused::Duplicate);
            }
            is_overlap |= first < end && start <= last;
        }
        if is_overlap {
            return Err(Refused::Overlap);
        }
        let is_end_wrong = match self.end {
            Some(known) => fragment.is_last() || end >= known,
            None => fragment.is_last() && end < self.reach,
        };
        if is_end_wrong { Err(Refused::End) } else { Ok(()) }
    }
}

/// Place of an accepted fragment.
enum Accepted {
    /// The fragment is to be held, and a packet is free.
    Held(u32),
    /// The fragment completes its datagram.
    Completing(u32),
}

/// Fragments of one worker, for IPv4 (`u32`) or IPv6 (`u128`). `P` is the caller's packet.
#[derive(Debug)]
pub struct Reassembler<A, P> {
    hash: TupleHash,
    index: Index,
    datagrams: Vec<Datagram<A>>,
    /// Numbers of the unused datagrams. The vector never exceeds its first allocation.
    unused: Vec<u32>,
    /// Datagrams that are not complete, in the order of their arrival.
    incomplete: List,
    incomplete_count: u32,
    /// Records of refused datagrams, in the order of their refusal.
    refused: List,
    refused_count: u32,
    /// Links of the two lists. Each datagram is in one of them.
    links: Vec<Links>,
    /// For each share key, its datagrams are a list from the oldest to the newest. This field holds the links of these
    /// lists, by number of the datagram.
    share_links: Vec<Links>,
    shares: Shares,
    pool: Pool<P>,
    next_serial: u64,
    sizes: Sizes,
    options: Options,
    counts: Counts,
}

impl<A: Address, P> Reassembler<A, P> {
    /// Returns a reassembler without fragments. All memory is allocated now.
    #[must_use]
    pub fn new(sizes: Sizes, options: Options, hash: TupleHash) -> Reassembler<A, P> {
        let sizes = sizes.clamped();
        let slots = sizes.datagrams + sizes.refused;
        Reassembler {
            hash,
            index: Index::new(slots),
            datagrams: vec![Datagram::new(Key::default(), 0); slots as usize],
            unused: (0..slots).rev().collect(),
            incomplete: List::EMPTY,
            incomplete_count: 0,
            refused: List::EMPTY,
            refused_count: 0,
            links: vec![Links::UNUSED; slots as usize],
            share_links: vec![Links::UNUSED; slots as usize],
            shares: Shares::new(sizes.datagrams),
            pool: Pool::new(sizes.fragments),
            next_serial: 0,
            sizes,
            options: options.clamped(&sizes),
            counts: Counts::default(),
        }
    }

    /// Returns the sizes.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns the settings.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Sets the settings. Values outside their bounds become the nearest bound. Packets that are held stay, and expire
    /// by the new time-out.
    pub fn set_options(&mut self, options: Options) {
        self.options = options.clamped(&self.sizes);
    }

    /// Returns the numbers of fragments since the creation of the reassembler.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of fragments that are held.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.pool.held()
    }

    /// Returns the number of datagrams that are not complete.
    #[must_use]
    pub fn incomplete(&self) -> u32 {
        self.incomplete_count
    }

    /// Returns the number of records of refused datagrams.
    #[must_use]
    pub fn refused_datagrams(&self) -> u32 {
        self.refused_count
    }

    /// Receives a fragment with its packet. `share` is the share key, and `now` is the time in milliseconds. The
    /// function `returned` gets all packets that return to the caller: the given packet if the fragment is refused or
    /// completes its datagram, the other packets of the datagram in these cases, and the packets of datagrams that have
    /// expired or give way.
    pub fn receive(
        &mut self,
        fragment: &Fragment<A>,
        packet: P,
        share: u32,
        now: u32,
        mut returned: impl FnMut(Returned<P>),
    ) -> Outcome<A> {
        let offset = fragment.offset();
        let (packet, refused) = match self.accept(fragment, share, now, &mut returned) {
            Ok(Accepted::Completing(number)) => {
                let outcome = self.complete(number, fragment, &mut returned);
                returned(Returned { packet, offset, reason: Reason::Complete });
                return outcome;
            }
            Ok(Accepted::Held(number)) => match self.hold(number, fragment, packet) {
                Ok(()) => return Outcome::Held,
                Err(packet) => (packet, Refused::Share),
            },
            Err(refused) => (packet, refused),
        };
        *match refused {
            Refused::TooSmall | Refused::ShortHeader => &mut self.counts.too_small,
            Refused::Duplicate | Refused::Overlap => &mut self.counts.overlapped,
            _ => &mut self.counts.refused,
        } += 1;
        returned(Returned { packet, offset, reason: Reason::Refused(refused) });
        Outcome::Refused(refused)
    }

    /// Removes at most `slice` datagrams that have expired, and at most `slice` records of refused datagrams. Returns
    /// the number of datagrams. The function `returned` gets their packets. `now` is the time in milliseconds.
    pub fn expire(&mut self, now: u32, slice: u32, mut returned: impl FnMut(Returned<P>)) -> u32 {
        let mut expired = 0;
        while expired < slice
            && let Some(number) = self.incomplete.oldest()
            && self.is_expired(number, now)
        {
            self.expire_one(number, &mut returned);
            expired += 1;
        }
        for _ in 0..slice {
            let Some(number) = self.refused.oldest().filter(|number| self.is_expired(*number, now)) else {
                break;
            };
            self.remove_record(number);
        }
        expired
    }

    /// Removes at most `slice` datagrams, the oldest first, whether or not they have expired. Returns the number of
    /// datagrams. The function `returned` gets their packets.
    pub fn flush(&mut self, slice: u32, mut returned: impl FnMut(Returned<P>)) -> u32 {
        let mut flushed = 0;
        while flushed < slice
            && let Some(number) = self.incomplete.oldest()
        {
            self.purge(number, &mut returned);
            flushed += 1;
        }
        flushed
    }

    /// Checks a fragment, and finds its datagram. Returns the place of the fragment.
    fn accept(
        &mut self,
        fragment: &Fragment<A>,
        share: u32,
        now: u32,
        returned: &mut dyn FnMut(Returned<P>),
    ) -> Result<Accepted, Refused> {
        if !self.options.enabled {
            return Err(Refused::Disabled);
        }
        fragment.check_length()?;
        let found = self.find_live(fragment.key(), now, returned);
        let datagram = found.and_then(|number| self.datagrams.get(number as usize));
        if datagram.is_some_and(|datagram| datagram.is_refused) {
            return Err(Refused::RefusedBefore);
        }
        if let Err(refused) = fragment.check_headers() {
            self.refuse(found, fragment.key(), now, refused, returned);
            return Err(refused);
        }
        if fragment.is_too_small(self.options.min_fragment) {
            return Err(Refused::TooSmall);
        }
        let Some((number, datagram)) = found.zip(datagram) else {
            self.make_room(Resource::Datagrams, share, None, returned)?;
            self.make_room(Resource::Fragments, share, None, returned)?;
            return self.insert(fragment.key(), share, now).map(Accepted::Held);
        };
        let accepted = match datagram.compare(fragment, self.pool.octets(&datagram.chain)) {
            Ok(()) if datagram.chain.count() >= self.sizes.fragments_per_datagram => Err(Refused::TooMany),
            Ok(()) if datagram.is_completed_by(fragment) => Ok(Accepted::Completing(number)),
            Ok(()) => {
                let key = self.shares.key(datagram.share);
                let room = self.make_room(Resource::Fragments, key, Some(number), returned);
                room.map(|()| Accepted::Held(number))
            }
            Err(refused) => Err(refused),
        };
        if let Err(refused) = accepted
            && refused != Refused::Duplicate
        {
            self.refuse(found, fragment.key(), now, refused, returned);
        }
        accepted
    }

    /// Adds a fragment to a datagram. Returns the packet if there is no free one.
    fn hold(&mut self, number: u32, fragment: &Fragment<A>, packet: P) -> Result<(), P> {
        let Some(datagram) = self.datagrams.get_mut(number as usize) else { return Err(packet) };
        let last = u16::try_from(fragment.end().saturating_sub(1)).unwrap_or(u16::MAX);
        self.pool.push(&mut datagram.chain, packet, [fragment.offset(), last])?;
        datagram.octets += fragment.len();
        datagram.reach = datagram.reach.max(fragment.end());
        datagram.end = if fragment.is_last() { Some(fragment.end()) } else { datagram.end };
        datagram.first = datagram.first.or(fragment.first());
        if let Some(share) = self.shares.get_mut(datagram.share) {
            share.fragments += 1;
        }
        self.counts.accepted += 1;
        Ok(())
    }

    /// Returns the packets of a datagram that a fragment completes, and removes the datagram.
    fn complete(
        &mut self,
        number: u32,
        fragment: &Fragment<A>,
        returned: &mut dyn FnMut(Returned<P>),
    ) -> Outcome<A> {
        let datagram = self.datagrams.get(number as usize);
        let first = datagram.and_then(|datagram| datagram.first).or(fragment.first());
        let end = datagram.and_then(|datagram| datagram.end).unwrap_or(fragment.end());
        self.counts.accepted += 1;
        self.counts.completed += 1 + self.release(number, Reason::Complete, returned);
        self.remove(number);
        Outcome::Complete(first.map_or(Err(NoTuple::Fragment), |first| first.complete(end)))
    }

    /// Adds a datagram. There is an unused one.
    fn insert(&mut self, key: &Key<A>, share: u32, now: u32) -> Result<u32, Refused> {
        let share = self.shares.add(share).map_err(|_| Refused::Crowded)?;
        let serial = self.next_serial;
        let number = self.use_slot(Datagram { serial, share, ..Datagram::new(*key, now) });
        if let (Some(number), Some(share)) = (number, self.shares.get_mut(share)) {
            share.datagrams += 1;
            share.list.push(&mut self.share_links, number);
            self.incomplete.push(&mut self.links, number);
            self.incomplete_count += 1;
            self.next_serial += 1;
        } else {
            self.shares.remove_empty(share);
        }
        number.ok_or(Refused::Crowded)
    }

    /// Makes sure that a key holds less of a resource than is free. Datagrams of the key that holds most give way, but
    /// not the datagram `current`.
    fn make_room(
        &mut self,
        resource: Resource,
        key: u32,
        current: Option<u32>,
        returned: &mut dyn FnMut(Returned<P>),
    ) -> Result<(), Refused> {
        loop {
            let (used, most) = match resource {
                Resource::Datagrams => (self.incomplete_count, self.sizes.datagrams),
                Resource::Fragments => (self.pool.held(), self.options.max_fragments),
            };
            if self.shares.held(key, resource) < most.saturating_sub(used) {
                return Ok(());
            }
            let serial = |number: u32| self.datagrams.get(number as usize).map(|datagram| datagram.serial);
            let oldest = self.shares.largest(resource, key, serial).and_then(|list| list.oldest());
            let oldest = match oldest {
                Some(number) if oldest == current => List::after(&self.share_links, number),
                other => other,
            };
            self.purge(oldest.ok_or(Refused::Share)?, returned);
        }
    }

    /// Refuses a datagram: returns its packets, and keeps a record. `found` is its number, if it has one.
    fn refuse(
        &mut self,
        found: Option<u32>,
        key: &Key<A>,
        now: u32,
        refused: Refused,
        returned: &mut dyn FnMut(Returned<P>),
    ) {
        if let Some(number) = found {
            self.counts.discarded += self.release(number, Reason::Refused(refused), returned);
            self.remove(number);
        }
        if self.refused_count >= self.sizes.refused
            && let Some(oldest) = self.refused.oldest()
        {
            self.remove_record(oldest);
        }
        // Without a slot of the index, the datagram has no record.
        if let Some(number) = self.use_slot(Datagram { is_refused: true, ..Datagram::new(*key, now) }) {
            self.refused.push(&mut self.links, number);
            self.refused_count += 1;
        }
    }

    /// Returns the datagram or the record of a key. Removes it if it has expired.
    fn find_live(&mut self, key: &Key<A>, now: u32, returned: &mut dyn FnMut(Returned<P>)) -> Option<u32> {
        let is_key = |number: u32| self.datagrams.get(number as usize).is_some_and(|other| other.key == *key);
        let number = self.index.find(self.place(key), is_key)?;
        if !self.is_expired(number, now) {
            return Some(number);
        }
        if self.datagrams.get(number as usize).is_some_and(|datagram| datagram.is_refused) {
            self.remove_record(number);
        } else {
            self.expire_one(number, returned);
        }
        None
    }

    /// Returns whether the time-out of a datagram or a record has passed. The datagram expires exactly at its time-out.
    fn is_expired(&self, number: u32, now: u32) -> bool {
        let since = self.datagrams.get(number as usize).map_or(now, |datagram| datagram.since);
        let age = now.wrapping_sub(since);
        // A greater age is negative as a signed number.
        age <= LONGEST_TIMEOUT && age >= self.options.timeout
    }

    fn expire_one(&mut self, number: u32, returned: &mut dyn FnMut(Returned<P>)) {
        self.counts.expired += self.release(number, Reason::Expired, returned);
        self.remove(number);
    }

    fn purge(&mut self, number: u32, returned: &mut dyn FnMut(Returned<P>)) {
        self.counts.purged += self.release(number, Reason::Purged, returned);
        self.remove(number);
    }

    fn remove_record(&mut self, number: u32) {
        self.refused.remove(&mut self.links, number);
        self.refused_count -= 1;
        self.remove(number);
    }

    /// Returns the packets of a datagram, and takes the datagram out of its lists. Returns the number of packets.
    fn release(&mut self, number: u32, reason: Reason, returned: &mut dyn FnMut(Returned<P>)) -> u64 {
        let Some(datagram) = self.datagrams.get_mut(number as usize) else { return 0 };
        let (mut chain, share) = (std::mem::replace(&mut datagram.chain, Chain::EMPTY), datagram.share);
        let count = chain.count();
        self.incomplete.remove(&mut self.links, number);
        self.incomplete_count -= 1;
        if let Some(share) = self.shares.get_mut(share) {
            share.fragments -= count;
            share.datagrams -= 1;
            share.list.remove(&mut self.share_links, number);
        }
        self.shares.remove_empty(share);
        while let Some((packet, offset)) = self.pool.pop(&mut chain) {
            returned(Returned { packet, offset, reason });
        }
        count.into()
    }

    /// Stores a datagram in an unused slot, and enters it into the index. Returns `None` if there is no slot.
    fn use_slot(&mut self, datagram: Datagram<A>) -> Option<u32> {
        let number = *self.unused.last()?;
        self.index.insert(self.place(&datagram.key), number).ok()?;
        self.unused.pop();
        *self.datagrams.get_mut(number as usize)? = datagram;
        Some(number)
    }

    /// Removes a datagram, which is in no list, from the index.
    fn remove(&mut self, number: u32) {
        let Some(datagram) = self.datagrams.get(number as usize) else { return };
        self.index.remove(self.place(&datagram.key), number);
        self.unused.push(number);
    }

    fn place(&self, key: &Key<A>) -> Place {
        self.index.place(self.hash.of(&key.hashed()))
    }
}
