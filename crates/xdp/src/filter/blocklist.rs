//! Block lists of up to millions of source prefixes, to which rules refer by [`super::Match::listed`]. User space keeps
//! the prefixes, and the XDP program reads a lookup table. Small changes are written into the current table. A new
//! list, or a list that has outgrown its table, gets a new table that replaces the old one atomically.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet::net::Prefix;

use super::table::{Full, LINE, Layout, State, Words};
use super::{FilterError, Moment};
use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub(super) const OUTER: &str = "filter_lists";
const INNER: &str = "filter_list";
/// Maximum number of attempts to build a lookup table. Each attempt uses twice the space of the previous one.
const ATTEMPTS: usize = 6;
/// Maximum time that a call of [`Blocklist::expire`] spends on removing prefixes. The next call continues with the
/// other expired prefixes.
const EXPIRY_TIME: Duration = Duration::from_millis(5);

/// A block list in the kernel. Any number of filters may use the list.
#[derive(Debug)]
pub struct Blocklist {
    outer: OwnedFd,
    /// Kernel map that holds the lookup table. The only slot of the map `outer` refers to this map.
    table: OwnedFd,
    prefixes: Prefixes,
    /// Prefixes of the list that do not fit into the lookup table.
    unlisted: BTreeSet<Prefix>,
    layout: Layout,
    memory: Arc<Mapped>,
    deadlines: HashMap<Prefix, Moment>,
    expiring: BTreeMap<Moment, BTreeSet<Prefix>>,
}

/// Contents of a block list that another list has replaced ([`Blocklist::take_over`]). The time to drop the contents
/// depends on the number of prefixes.
#[derive(Debug)]
pub struct FormerList(Blocklist);

/// View of a block list's lookup table for workers. The view shows later additions and removals in this table. When the
/// list gets a new table ([`ListView::is_of`] then returns false), the view keeps showing the old table, which no
/// longer changes.
#[derive(Debug, Clone)]
pub struct ListView(Arc<Mapped>);

impl ListView {
    /// Returns whether this view shows the current lookup table of `list`.
    #[must_use]
    pub fn is_of(&self, list: &Blocklist) -> bool {
        Arc::ptr_eq(&self.0, &list.memory)
    }

    /// Returns whether an address is in a prefix of the list.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let words = Words(self.0.words());
        match address {
            IpAddr::V4(v4) => words.lists4(v4.to_bits()),
            IpAddr::V6(v6) => words.lists6(v6.to_bits()),
        }
    }
}

/// Prefixes of a block list by address family. A prefix comes before the prefixes that it covers.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    v4: BTreeSet<(u32, u8)>,
    v6: BTreeSet<(u128, u8)>,
}

/// Reads the prefixes of a block list file, in the format of [`list_of`].
///
/// # Errors
/// Returns [`FilterError::File`] or [`FilterError::Line`].
pub fn read_list(path: &Path) -> Result<Vec<Prefix>, FilterError> {
    let failed = |source| FilterError::File { path: path.to_owned(), source };
    list_of(path, &std::fs::read_to_string(path).map_err(failed)?)
}

/// Parses the text of a block list file. Each line begins with a prefix or an address. The rest of the line,
/// empty lines, and comments after `#` or `;` are ignored. Errors name the file by `path` and contain no text
/// of the file.
///
/// # Errors
/// Returns [`FilterError::Line`].
pub fn list_of(path: &Path, text: &str) -> Result<Vec<Prefix>, FilterError> {
    let mut prefixes = Vec::with_capacity(text.len() / 16);
    for (line, number) in text.lines().zip(1..) {
        let content = line.split(['#', ';']).next().unwrap_or_default();
        let Some(word) = content.split_whitespace().next() else { continue };
        let bad = |_| FilterError::Line { path: path.to_owned(), line: number };
        prefixes.push(word.parse().map_err(bad)?);
    }
    Ok(prefixes)
}

impl Blocklist {
    /// Creates a new block list of these prefixes.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(prefixes: impl IntoIterator<Item = Prefix>) -> Result<Blocklist, Error> {
        Blocklist::with(Prefixes::of(prefixes), secret)
    }

    fn with(prefixes: Prefixes, random: impl FnMut() -> u64) -> Result<Blocklist, Error> {
        let Table { map, memory, layout, unlisted } = build(&prefixes, random)?;
        let spec = MapSpec { name: OUTER, kind: MapKind::Outer, key: 4, value: 4, entries: 1 };
        let outer = sys::map_create(spec, Some(map.as_fd())).map_err(|source| Error::Map {
            map: OUTER,
            operation: "create",
            source,
        })?;
        put(outer.as_fd(), map.as_fd())?;
        let (deadlines, expiring) = Default::default();
        Ok(Blocklist { outer, table: map, prefixes, unlisted, layout, memory, deadlines, expiring })
    }

    /// Creates a new block list from a file in the format of [`read_list`].
    ///
    /// # Errors
    /// Returns [`Error::Filter`] or [`Error::Map`].
    pub fn load(path: &Path) -> Result<Blocklist, Error> {
        Blocklist::new(read_list(path)?)
    }

    /// Creates a block list in `outer`, a filter's map whose only slot holds the lookup table.
    pub(super) fn in_slot(
        outer: BorrowedFd<'_>,
        prefixes: impl IntoIterator<Item = Prefix>,
    ) -> Result<Blocklist, Error> {
        let outer = duplicate(OUTER, &outer)?;
        let prefixes = Prefixes::of(prefixes);
        let Table { map, memory, layout, unlisted } = build(&prefixes, secret)?;
        put(outer.as_fd(), map.as_fd())?;
        let (deadlines, expiring) = Default::default();
        Ok(Blocklist { outer, table: map, prefixes, unlisted, layout, memory, deadlines, expiring })
    }

    /// Replaces all prefixes of the list. Each frame is processed with either the old list or the new one.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails. The list is unchanged on failure.
    pub fn replace(&mut self, prefixes: impl IntoIterator<Item = Prefix>) -> Result<(), Error> {
        self.rebuild(Prefixes::of(prefixes))?;
        self.deadlines.clear();
        self.expiring.clear();
        Ok(())
    }

    /// Replaces the list with `built`: its prefixes, expiry times and lookup table. Each frame is processed with either
    /// the old list or the new one. The duration of the call does not depend on the number of prefixes, so a caller can
    /// build a long list while the current one is in use. Returns the old contents. Dropping the old contents takes
    /// long if there are many prefixes.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails. The list is unchanged on failure.
    pub fn take_over(&mut self, built: Blocklist) -> Result<FormerList, Error> {
        put(self.outer.as_fd(), built.table.as_fd())?;
        let mut former = std::mem::replace(self, built);
        // Filters refer to the list by the outer map.
        std::mem::swap(&mut self.outer, &mut former.outer);
        Ok(FormerList(former))
    }

    /// Restores former contents of this list, as [`Blocklist::take_over`] does with a new list.
    /// Returns the contents that were replaced.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails. The list is unchanged on failure.
    pub fn put_back(&mut self, former: FormerList) -> Result<FormerList, Error> {
        self.take_over(former.0)
    }

    /// Adds a prefix that expires at the time `expires`. If `expires` is `None`, the prefix never expires. If the
    /// prefix is present already, only its expiry is changed.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if a larger table could not be created, or if no table has space for the
    /// prefix. The list is unchanged on failure.
    pub fn insert(&mut self, prefix: Prefix, expires: Option<Moment>) -> Result<(), Error> {
        let (_, error) = self.insert_all(&[prefix], expires);
        error.map_or(Ok(()), Err)
    }

    /// Adds prefixes as [`Blocklist::insert`] does, but builds a larger lookup table at most once. Returns the
    /// prefixes that could not be added, with the error of the first one.
    pub fn insert_all(
        &mut self,
        prefixes: &[Prefix],
        expires: Option<Moment>,
    ) -> (BTreeSet<Prefix>, Option<Error>) {
        let (mut refused, mut first) = (BTreeSet::new(), None);
        let mut waiting = Vec::new();
        for prefix in prefixes {
            if self.prefixes.insert(*prefix) && (!waiting.is_empty() || self.write(*prefix).is_err()) {
                waiting.push(*prefix);
            }
        }
        if !waiting.is_empty() {
            match self.rebuild(self.prefixes.clone()) {
                Ok(()) => waiting.retain(|prefix| self.unlisted.remove(prefix)),
                Err(error) => first = Some(error),
            }
            for prefix in waiting {
                self.prefixes.remove(prefix);
                refused.insert(prefix);
                first.get_or_insert_with(no_place);
            }
        }
        for prefix in prefixes.iter().filter(|prefix| !refused.contains(prefix)) {
            self.set_deadline(*prefix, expires);
        }
        (refused, first)
    }

    /// Removes a prefix from the list. Addresses that other prefixes of the list cover stay listed. Returns
    /// `false` if the prefix was not present.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if another lookup table was needed and could not be created.
    pub fn remove(&mut self, prefix: Prefix) -> Result<bool, Error> {
        if !self.prefixes.remove(prefix) {
            return Ok(false);
        }
        self.set_deadline(prefix, None);
        self.unlisted.remove(&prefix);
        if self.erase(prefix).is_err() {
            self.rebuild(self.prefixes.clone())?;
        }
        Ok(true)
    }

    /// Removes prefixes that have expired at the time `now`, for at most about 5 ms, and returns their
    /// number. An expired prefix stays in the list until this function has removed it.
    ///
    /// # Errors
    /// Returns the errors of [`Blocklist::remove`].
    pub fn expire(&mut self, now: Moment) -> Result<usize, Error> {
        let (mut count, started) = (0, Instant::now());
        while started.elapsed() < EXPIRY_TIME
            && let Some(prefix) =
                self.expiring.first_key_value().filter(|(at, _)| **at <= now).and_then(|(_, set)| set.first())
        {
            self.remove(*prefix)?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the time at which the next prefix expires. Returns `None` if no prefix expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Moment> {
        self.expiring.first_key_value().map(|(at, _)| *at)
    }

    /// Returns the number of prefixes in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prefixes.v4.len() + self.prefixes.v6.len()
    }

    /// Returns whether the block list has no prefixes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the list contains exactly this prefix.
    #[must_use]
    pub fn has(&self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(v4) => self.prefixes.v4.contains(&(v4.to_bits(), prefix.length())),
            IpAddr::V6(v6) => self.prefixes.v6.contains(&(v6.to_bits(), prefix.length())),
        }
    }

    /// Returns whether the list contains exactly this prefix, and the prefix has an expiry time.
    #[must_use]
    pub fn expires(&self, prefix: Prefix) -> bool {
        self.deadlines.contains_key(&prefix)
    }

    /// Returns the prefixes of the list that do not fit into its lookup table. Packets from these prefixes do
    /// not match [`super::Match::listed`].
    #[must_use]
    pub fn unlisted(&self) -> &BTreeSet<Prefix> {
        &self.unlisted
    }

    /// Returns a view of the lookup table, for lookups outside of an XDP program.
    #[must_use]
    pub fn view(&self) -> ListView {
        ListView(Arc::clone(&self.memory))
    }

    /// Returns the size of the lookup table in the kernel in bytes.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.layout.lines() * LINE * 8
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }

    fn set_deadline(&mut self, prefix: Prefix, expires: Option<Moment>) {
        let before = match expires {
            Some(at) => self.deadlines.insert(prefix, at),
            None => self.deadlines.remove(&prefix),
        };
        if let Some(before) = before
            && let Some(set) = self.expiring.get_mut(&before)
        {
            set.remove(&prefix);
            if set.is_empty() {
                self.expiring.remove(&before);
            }
        }
        if let Some(at) = expires {
            self.expiring.entry(at).or_default().insert(prefix);
        }
    }

    fn rebuild(&mut self, prefixes: Prefixes) -> Result<(), Error> {
        let Table { map, memory, layout, unlisted } = build(&prefixes, secret)?;
        put(self.outer.as_fd(), map.as_fd())?;
        (self.table, self.prefixes, self.memory, self.layout) = (map, prefixes, memory, layout);
        self.unlisted = unlisted;
        Ok(())
    }

    /// Adds a prefix to the lookup table that the XDP program reads. Returns `Full` if the table has no space for the
    /// prefix.
    fn write(&self, prefix: Prefix) -> Result<(), Full> {
        let words = Words(self.memory.words());
        match prefix.address() {
            IpAddr::V4(v4) => write4(words, &self.layout, v4.to_bits(), prefix.length()),
            IpAddr::V6(_) if prefix.length() == 0 => {
                words.set_all6(true);
                Ok(())
            }
            IpAddr::V6(v6) => words.add6(&self.layout, v6.to_bits(), prefix.length()),
        }
    }

    /// Removes a prefix from the lookup table. Addresses that other prefixes of the list cover stay in the
    /// table.
    fn erase(&self, prefix: Prefix) -> Result<(), Full> {
        let words = Words(self.memory.words());
        let length = prefix.length();
        match prefix.address() {
            IpAddr::V4(v4) if length <= 24 => self.prefixes.erase_wide4(words, v4.to_bits(), length),
            IpAddr::V4(v4) => return self.prefixes.erase_narrow4(words, &self.layout, v4.to_bits(), length),
            IpAddr::V6(_) if length == 0 => words.set_all6(false),
            IpAddr::V6(v6) => words.remove6(&self.layout, v6.to_bits(), length),
        }
        Ok(())
    }
}

/// Returns the upper 24 bits of the first address and of the last address of an IPv4 prefix.
fn blocks24(address: u32, length: u8) -> (u32, u32) {
    let host = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
    (address >> 8, (address | host) >> 8)
}

/// Returns the /28 blocks that an IPv4 prefix longer than /24 covers in whole or in part. A block is
/// identified by its upper 28 bits. The 16-bit value has a bit for each address of the block that the prefix
/// covers.
fn blocks28(address: u32, length: u8) -> impl Iterator<Item = (u32, u16)> {
    let first = address >> 4;
    let count = 1 << 28_u8.saturating_sub(length);
    let bits = if length > 28 {
        let some = u16::MAX >> (16 - (1 << (32 - length)));
        some << (address & 15)
    } else {
        u16::MAX
    };
    (first..first + count).map(move |block| (block, bits))
}

fn write4(words: Words<'_>, layout: &Layout, address: u32, length: u8) -> Result<(), Full> {
    let (first, last) = blocks24(address, length);
    if length <= 24 {
        words.set_states(first, last, |_| State::All);
        return Ok(());
    }
    for (block, bits) in blocks28(address, length) {
        words.set_block(layout, block, |before| before | bits)?;
    }
    // The state is written after the addresses, so it never refers to a missing block.
    if words.state(first) == State::None {
        words.set_states(first, first, |_| State::Some);
    }
    Ok(())
}

impl Prefixes {
    fn of(list: impl IntoIterator<Item = Prefix>) -> Prefixes {
        // Building a set from a vector is several times faster than single insertions.
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in list {
            match prefix.address() {
                IpAddr::V4(address) => v4.push((address.to_bits(), prefix.length())),
                IpAddr::V6(address) => v6.push((address.to_bits(), prefix.length())),
            }
        }
        Prefixes { v4: v4.into_iter().collect(), v6: v6.into_iter().collect() }
    }

    fn insert(&mut self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.insert((address.to_bits(), prefix.length())),
            IpAddr::V6(address) => self.v6.insert((address.to_bits(), prefix.length())),
        }
    }

    fn remove(&mut self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.remove(&(address.to_bits(), prefix.length())),
            IpAddr::V6(address) => self.v6.remove(&(address.to_bits(), prefix.length())),
        }
    }

    /// Returns whether the list contains a prefix with one of the given lengths that covers an IPv4 address.
    fn covers4(&self, address: u32, mut lengths: impl Iterator<Item = u8>) -> bool {
        let mask = |length: u8| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        lengths.any(|length| self.v4.contains(&(address & mask(length), length)))
    }

    fn erase_wide4(&self, words: Words<'_>, address: u32, length: u8) {
        if self.covers4(address, 0..length) {
            return;
        }
        let (first, last) = blocks24(address, length);
        let count = usize::try_from(last - first).unwrap_or(0) + 1;
        let mut left = vec![State::None; count];
        let inside = (address, 0)..=(last << 8 | 255, 32);
        // In this order, a prefix comes after the prefixes that contain it. Blocks before `covered` already have the
        // state of such a prefix and are skipped.
        let mut covered = first;
        for (address, length) in self.v4.range(inside) {
            let (from, to) = blocks24(*address, *length);
            let is_wide = *length <= 24;
            let state = if is_wide { State::All } else { State::Some };
            for block in from.max(covered)..=to {
                left[usize::try_from(block - first).unwrap_or(0)] = state;
            }
            if is_wide {
                covered = covered.max(to.saturating_add(1));
            }
        }
        words.set_states(first, last, |block| left[usize::try_from(block - first).unwrap_or(0)]);
    }

    fn erase_narrow4(&self, words: Words<'_>, layout: &Layout, address: u32, length: u8) -> Result<(), Full> {
        for (block, _) in blocks28(address, length) {
            let first = block << 4;
            let inside = self.v4.range((first, 29)..=(first | 15, 32)).filter(|(_, length)| *length > 28);
            let bits = if self.covers4(first, 25..29) {
                u16::MAX
            } else {
                inside
                    .flat_map(|(address, length)| blocks28(*address, *length))
                    .fold(0, |all, (_, b)| all | b)
            };
            words.set_block(layout, block, |_| bits)?;
        }
        let block = address >> 8;
        let narrow = |(_, length): &(u32, u8)| *length > 24;
        let any = self.v4.range((block << 8, 25)..=(block << 8 | 255, 32)).any(narrow);
        if !any && words.state(block) == State::Some {
            words.set_states(block, block, |_| State::None);
        }
        Ok(())
    }

    /// Writes all prefixes to a lookup table. Returns the prefixes that do not fit into the table.
    fn fill(&self, words: Words<'_>, layout: &Layout) -> BTreeSet<Prefix> {
        let mut unlisted = BTreeSet::new();
        for (address, length) in &self.v4 {
            if write4(words, layout, *address, *length).is_err() {
                unlisted.extend(Prefix::new(IpAddr::from(Ipv4Addr::from_bits(*address)), *length));
            }
        }
        for (address, length) in &self.v6 {
            let written = match length {
                0 => {
                    words.set_all6(true);
                    Ok(())
                }
                _ => words.add6(layout, *address, *length),
            };
            if written.is_err() {
                unlisted.extend(Prefix::new(IpAddr::from(Ipv6Addr::from_bits(*address)), *length));
            }
        }
        unlisted
    }
}

/// Returns a random number for use as a hash factor. Senders of packets cannot know the number.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn no_place() -> Error {
    let source = std::io::Error::other("the table has no place for this prefix");
    Error::Map { map: INNER, operation: "add to", source }
}

/// A lookup table of prefixes that is not in use yet.
struct Table {
    map: OwnedFd,
    memory: Arc<Mapped>,
    layout: Layout,
    /// Prefixes that do not fit into the table.
    unlisted: BTreeSet<Prefix>,
}

/// Builds a lookup table of the prefixes, with space for twice their number. If no attempt results in a table
/// that holds all prefixes, returns the table that holds most of them.
///
/// # Errors
/// Returns an error if the kernel has no memory for any table.
fn build(prefixes: &Prefixes, mut random: impl FnMut() -> u64) -> Result<Table, Error> {
    let mut best: Option<Table> = None;
    for attempt in 0..ATTEMPTS {
        match build_once(prefixes, attempt, &mut random) {
            Ok(table) if table.unlisted.is_empty() => return Ok(table),
            Ok(table) => {
                if best.as_ref().is_none_or(|best| table.unlisted.len() < best.unlisted.len()) {
                    best = Some(table);
                }
            }
            Err(error) if best.is_none() => return Err(error),
            Err(_) => break,
        }
    }
    best.ok_or_else(no_place)
}

/// Builds a lookup table with 2^`attempt` times the space that the prefixes need.
fn build_once(prefixes: &Prefixes, attempt: usize, random: impl FnMut() -> u64) -> Result<Table, Error> {
    let narrow = prefixes.v4.iter().filter(|(_, length)| *length > 24);
    let blocks: usize = narrow.map(|(_, length)| 1 << 28_u8.saturating_sub(*length)).sum();
    let mut lengths: BTreeMap<u8, usize> = BTreeMap::new();
    for (_, length) in prefixes.v6.iter().filter(|(_, length)| *length > 0) {
        *lengths.entry(*length).or_default() += 1;
    }
    let failed = |operation| move |source| Error::Map { map: INNER, operation, source };
    let room = |count: usize| (count << attempt).max(64);
    let sizes = lengths.iter().map(|(length, count)| (*length, room(*count))).collect();
    let layout = Layout::new(room(blocks), &sizes, random);
    let entries = u32::try_from(layout.lines()).unwrap_or(u32::MAX);
    let spec = MapSpec { name: INNER, kind: MapKind::Inner, key: 4, value: 64, entries };
    let map = sys::map_create(spec, None).map_err(failed("create"))?;
    let memory = Mapped::new(map.as_fd()).map_err(failed("map"))?;
    let mut order: Vec<(u8, usize)> = lengths.iter().map(|(length, count)| (*length, *count)).collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    layout.describe(memory.words(), order.into_iter().map(|(length, _)| length));
    let unlisted = prefixes.fill(Words(memory.words()), &layout);
    Ok(Table { map, memory: Arc::new(memory), layout, unlisted })
}

/// Puts the lookup table `map` into the slot of an outer map, in place of the current table.
fn put(outer: BorrowedFd<'_>, map: BorrowedFd<'_>) -> Result<(), Error> {
    sys::map_update(outer, &0_u32.to_ne_bytes(), &map.as_raw_fd().to_ne_bytes())
        .map_err(|source| Error::Map { map: OUTER, operation: "replace the table of", source })
}

/// Creates an outer map with one slot, which is empty. A filter with this map has no block list.
pub(super) fn no_list() -> Result<OwnedFd, Error> {
    let failed = |source| Error::Map { map: OUTER, operation: "create", source };
    let spec = MapSpec { name: INNER, kind: MapKind::Inner, key: 4, value: 64, entries: 1 };
    let template = sys::map_create(spec, None).map_err(failed)?;
    let spec = MapSpec { name: OUTER, kind: MapKind::Outer, key: 4, value: 4, entries: 1 };
    sys::map_create(spec, Some(template.as_fd())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_without_a_place_keeps_no_other_out() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let prefix = |number: u32| {
            Prefix::new(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into(), 128)
        };
        let all: Vec<Prefix> = (0..40).map(|number| prefix(number).unwrap()).collect();
        // All prefixes hash to the first line.
        let mut list = Blocklist::with(Prefixes::of(all.clone()), || 0).unwrap();
        assert_eq!((list.len(), list.unlisted().len()), (40, 8));
        let view = list.view();
        for prefix in &all {
            assert_eq!(view.has(prefix.address()), !list.unlisted().contains(prefix), "{prefix}");
        }
        // A table with other secrets holds all prefixes.
        list.replace(all.iter().copied()).unwrap();
        assert!(list.unlisted().is_empty() && all.iter().all(|prefix| list.view().has(prefix.address())));
    }
}
