//! Kernel maps of a filter. Some maps are created for each rule set. The others are kept when the rule set is
//! replaced.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use packet::net::Prefix;

use super::compiled::{Conf, SCRATCH, USES, USES_COOKIES, rule_bytes};
use super::cookie::{CookieCounters, CookieMaps, check_kernel};
use super::table_maps::{CLASSES, PROBES, ROWS, TRIES, TableMaps, create, filled};
use super::{Action, Blocklist, Compiled, FilterSizes, blocklist};
use crate::Error;
use crate::map_copy::{copy_array, duplicate};
use crate::sys::{self, MapKind};

const RULES: &str = "filter_rules";
/// Names of the filter's maps that are created for each rule set, in the order of `FilterMaps::set`.
const SET_MAPS: [&str; 5] = [CLASSES, TRIES, ROWS, RULES, PROBES];
/// Names of the filter's maps that are kept when the rule set is replaced.
const SHARED_MAPS: [&str; 6] =
    ["filter_counts", "filter_buckets", "filter_sources", "filter_samples", MISSED, blocklist::OUTER];
/// Name of the map that counts the samples lost because the ring buffer was full.
pub(super) const MISSED: &str = "filter_missed";

/// Constants and kernel maps of a filter.
#[derive(Debug)]
pub(crate) struct FilterMaps {
    pub conf: Conf,
    set: [OwnedFd; 5],
    shared: Arc<Shared>,
    /// Maps of the rules with SYN cookies. `None` if no rule has SYN cookies.
    cookies: Option<Arc<CookieMaps>>,
}

/// Maps that are kept when the rule set is replaced, in the order of [`SHARED_MAPS`].
pub(super) type Shared = [OwnedFd; 6];

impl FilterMaps {
    /// Returns the names of all maps that only a program with a filter has.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SET_MAPS.into_iter().chain(SHARED_MAPS)
    }

    /// Returns whether a rule of the filter has SYN cookies. A program with SYN cookies is loaded from
    /// another BPF object.
    pub fn has_services(&self) -> bool {
        self.cookies.is_some()
    }

    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let set = SET_MAPS.into_iter().zip(&self.set);
        let shared = SHARED_MAPS.into_iter().zip(self.shared.iter());
        let cookies = self.cookies.iter().flat_map(|cookies| cookies.list());
        set.chain(shared).map(|(name, map)| (name, map.as_fd())).chain(cookies)
    }

    /// Returns the kernel's id of the counters map, which identifies the filter. The map is kept when the
    /// rule set is replaced.
    pub fn id(&self) -> Result<u32, Error> {
        let [counts, ..] = self.shared.as_ref();
        let failed = |source| Error::Map { map: SHARED_MAPS[0], operation: "query", source };
        sys::map_info(counts.as_fd()).map(|info| info.id).map_err(failed)
    }

    /// Returns a copy with new counters, buckets and samples. A test run with the copy therefore changes no state of
    /// the filter. In the copy, the buckets of rules have their current fill level, and the per-source buckets are
    /// full. The entries of clients of SYN cookies are shared.
    pub fn scratch(&self) -> Result<FilterMaps, Error> {
        let [a, b, c, d, e] = &self.set;
        let [f, g, h, i, j] = SET_MAPS;
        let set = [duplicate(f, a)?, duplicate(g, b)?, duplicate(h, c)?, duplicate(i, d)?, duplicate(j, e)?];
        let [counts, buckets, .., list] = self.shared.as_ref();
        let info = sys::map_info(counts.as_fd());
        let slots = info
            .map_err(|source| Error::Map { map: SHARED_MAPS[0], operation: "query", source })?
            .max_entries;
        let shared = [
            create(SHARED_MAPS[0], MapKind::PerCpuArray, 4, 32, slots)?,
            create(SHARED_MAPS[1], MapKind::Array, 4, 8, slots)?,
            create(SHARED_MAPS[2], MapKind::LruHash, 24, 8, 64)?,
            create(SHARED_MAPS[3], MapKind::Ring, 0, 0, 1 << 16)?,
            create_missed()?,
            duplicate(blocklist::OUTER, list)?,
        ];
        copy_array::<8>(SHARED_MAPS[1], buckets.as_fd(), shared[1].as_fd())?;
        let cookies = self.cookies.as_ref().map(|cookies| cookies.scratch().map(Arc::new)).transpose()?;
        let mut conf = self.conf;
        conf[SCRATCH] = 1;
        Ok(FilterMaps { conf, set, shared: Arc::new(shared), cookies })
    }

    /// Returns the names of the rules whose counters show a matched frame, in the order in which the filter tries the
    /// rules. The Boolean states whether the rule has acted on the frame.
    pub fn matched(&self) -> Result<Vec<(String, bool)>, Error> {
        let failed = |map| move |source| Error::Map { map, operation: "read", source };
        let mut matched = Vec::new();
        for index in 0..self.conf[0] {
            let (name, slot) = self.rule(index)?;
            let words = sys::map_lookup_per_cpu(self.shared[0].as_fd(), slot, 4);
            let words = words.map_err(failed(SHARED_MAPS[0]))?;
            let any = |at: usize| words.iter().skip(at).step_by(4).any(|count| *count > 0);
            if any(0) {
                matched.push((name, any(2)));
            }
        }
        Ok(matched)
    }

    /// Returns the name of the rule at an index, and the index of its counters.
    fn rule(&self, index: u32) -> Result<(String, u32), Error> {
        let [.., rules, _] = &self.set;
        let bytes = sys::map_lookup::<128>(rules.as_fd(), index).map_err(|source| Error::Map {
            map: SET_MAPS[3],
            operation: "read",
            source,
        })?;
        let slot = bytes[8..12].try_into().map_or(u32::MAX, u32::from_ne_bytes);
        let name = bytes[64..].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok((String::from_utf8_lossy(name).into_owned(), slot))
    }

    /// Restores the filter maps of a program that is already in the kernel. `take` returns a map of the
    /// program by its name.
    pub fn adopt(
        conf: Conf,
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<FilterMaps, Error> {
        let [a, b, c, d, e] = SET_MAPS;
        let set = [take(a)?, take(b)?, take(c)?, take(d)?, take(e)?];
        let [a, b, c, d, missed, e] = SHARED_MAPS;
        // An older program does not count lost samples.
        let missed = take(missed).or_else(|_| create_missed());
        let shared = [take(a)?, take(b)?, take(c)?, take(d)?, missed?, take(e)?];
        let has_cookies = conf[USES] & USES_COOKIES != 0;
        let cookies = has_cookies.then(|| CookieMaps::adopt(take).map(Arc::new)).transpose()?;
        Ok(FilterMaps { conf, set, shared: Arc::new(shared), cookies })
    }
}

/// A filter in the kernel. The XDP programs of any number of ports can share a filter, and its counters are
/// sums over these ports. The filter exists as long as a program uses it.
#[derive(Debug)]
pub struct Filter {
    maps: Arc<FilterMaps>,
    slots: Slots,
    /// Maximum number of clients of rules with SYN cookies, see [`FilterSizes::clients`].
    clients: u32,
}

/// Saved rules of a filter, with their maps and counter indices. [`Filter::restore`] puts the rules back into the
/// filter.
pub(crate) struct FilterRules(Arc<FilterMaps>, Slots);

/// Counters of a filter rule since the rule was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCounters {
    /// Name of the rule.
    pub name: String,
    /// Number of frames that the rule matched.
    pub packets: u64,
    /// Number of bytes of the matched frames, without frame check sequences.
    pub bytes: u64,
    /// Number of matched frames on which the rule acted: the frame was dropped, passed, sampled, or over the
    /// rate limit. A rule with `dry_run` counts the frames on which it would have acted. A rule with
    /// `Action::Count` never acts.
    pub acted: u64,
    /// Number of bytes of the frames on which the rule acted.
    pub acted_bytes: u64,
}

impl Filter {
    /// Creates the maps of a filter. If `list` is `None`, no source is in the block list.
    ///
    /// # Errors
    /// Returns [`Error::FilterFull`], [`Error::NoCookies`] or [`Error::Map`].
    pub fn new(compiled: &Compiled, sizes: FilterSizes, list: Option<&Blocklist>) -> Result<Filter, Error> {
        let list = match list {
            None => blocklist::no_list()?,
            Some(list) => duplicate(blocklist::OUTER, &list.fd())?,
        };
        // Twice the capacity lets a set be replaced by entirely different rules while both are in use.
        let capacity = 2 * sizes.rules.clamp(1, super::RULES_MAX);
        let mut slots = Slots::new(capacity);
        let create =
            |at: usize, kind, key, value, entries| create(SHARED_MAPS[at], kind, key, value, entries);
        let entries = u32::try_from(capacity).unwrap_or(u32::MAX);
        let shared = Arc::new([
            create(0, MapKind::PerCpuArray, 4, 32, entries)?,
            create(1, MapKind::Array, 4, 8, entries)?,
            create(2, MapKind::LruHash, 24, 8, sizes.sources.max(1))?,
            create(3, MapKind::Ring, 0, 0, sizes.samples)?,
            create_missed()?,
            list,
        ]);
        let numbers = slots.assign(compiled)?;
        let cookies = cookies(compiled, &numbers, None, &[], sizes.clients)?;
        let maps = Arc::new(set_maps(compiled, &numbers, shared, cookies)?);
        Ok(Filter { maps, slots, clients: sizes.clients })
    }

    /// Creates the maps of another rule set for this filter. The XDP programs of ports use the old rule set until
    /// [`crate::Attached::set_stage`] is called for these ports. [`Filter::replace_on`] creates the maps and also calls
    /// this function.
    ///
    /// # Errors
    /// Returns [`Error::FilterFull`], [`Error::NoCookies`] or [`Error::Map`]. The filter is unchanged on
    /// failure.
    pub fn replace(&mut self, compiled: &Compiled) -> Result<(), Error> {
        let mut slots = self.slots.clone();
        let before: Vec<u32> = slots.by_name.values().copied().collect();
        let numbers = slots.assign(compiled)?;
        for slot in numbers.iter().filter(|slot| !before.contains(slot)) {
            self.clear(*slot)?;
        }
        let present = self.maps.cookies.as_ref();
        let cookies = cookies(compiled, &numbers, present, &before, self.clients)?;
        self.maps = Arc::new(set_maps(compiled, &numbers, Arc::clone(&self.maps.shared), cookies)?);
        self.slots = slots;
        Ok(())
    }

    /// Returns the current rules, for a later [`Filter::restore`].
    pub(crate) fn rules(&self) -> FilterRules {
        FilterRules(Arc::clone(&self.maps), self.slots.clone())
    }

    /// Restores earlier rules, after the rules that replaced them were refused.
    pub(crate) fn restore(&mut self, rules: FilterRules) {
        (self.maps, self.slots) = (rules.0, rules.1);
    }

    /// Restores the filter from the maps of a program that is already in the kernel. The filter keeps its counters and
    /// buckets.
    pub(crate) fn over(maps: &Arc<FilterMaps>) -> Result<Filter, Error> {
        let failed = |map| move |source| Error::Map { map, operation: "read", source };
        let capacity = sys::map_info(maps.shared[0].as_fd()).map_err(failed(SHARED_MAPS[0]))?.max_entries;
        let mut slots = Slots::new(usize::try_from(capacity).unwrap_or(0));
        for index in 0..maps.conf[0] {
            let (name, slot) = maps.rule(index)?;
            slots.take(name, slot);
        }
        Ok(Filter { maps: Arc::clone(maps), slots, clients: FilterSizes::default().clients })
    }

    /// Sets the block list for later rule sets ([`Filter::replace`]). Programs that run the current rule set continue
    /// to use the current block list.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn use_list(&mut self, list: &Blocklist) -> Result<(), Error> {
        let [counts, buckets, sources, samples, missed, _] = self.maps.shared.as_ref();
        let [a, b, c, d, e, f] = SHARED_MAPS;
        let shared = [
            duplicate(a, counts)?,
            duplicate(b, buckets)?,
            duplicate(c, sources)?,
            duplicate(d, samples)?,
            duplicate(e, missed)?,
            duplicate(f, &list.fd())?,
        ];
        let [classes, tries, rows, rules, probes] = &self.maps.set;
        let [a, b, c, d, e] = SET_MAPS;
        let set = [
            duplicate(a, classes)?,
            duplicate(b, tries)?,
            duplicate(c, rows)?,
            duplicate(d, rules)?,
            duplicate(e, probes)?,
        ];
        let cookies = self.maps.cookies.clone();
        self.maps = Arc::new(FilterMaps { conf: self.maps.conf, set, shared: Arc::new(shared), cookies });
        Ok(())
    }

    /// Returns the kernel's id of the filter's counters map. Programs with equal ids have the same filter.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn id(&self) -> Result<u32, Error> {
        self.maps.id()
    }

    /// Returns the counters of each rule of the filter, with the rule's name.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counters(&self) -> Result<Vec<RuleCounters>, Error> {
        let map = self.maps.shared[0].as_fd();
        let mut list = Vec::with_capacity(self.slots.by_name.len());
        for (name, slot) in &self.slots.by_name {
            let words = sys::map_lookup_per_cpu(map, *slot, 4).map_err(|source| Error::Map {
                map: SHARED_MAPS[0],
                operation: "read",
                source,
            })?;
            let sum = |at: usize| words.iter().skip(at).step_by(4).fold(0, |a: u64, b| a.wrapping_add(*b));
            list.push(RuleCounters {
                name: name.clone(),
                packets: sum(0),
                bytes: sum(1),
                acted: sum(2),
                acted_bytes: sum(3),
            });
        }
        Ok(list)
    }

    /// Returns the SYN cookie counters of each rule with SYN cookies, by the rule's name.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn cookie_counters(&self) -> Result<BTreeMap<String, CookieCounters>, Error> {
        let Some(cookies) = &self.maps.cookies else { return Ok(BTreeMap::new()) };
        let counters = cookies.counters()?;
        let named = |(slot, counters)| Some((self.rule_at(slot)?.to_owned(), counters));
        Ok(counters.into_iter().filter_map(named).collect())
    }

    /// Returns the number of rules in the current rule set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.by_name.len()
    }

    /// Returns whether the current rule set has no rules. A program with an empty filter has no filter stage.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.by_name.is_empty()
    }

    pub(super) fn list(&self) -> BorrowedFd<'_> {
        let [.., list] = self.maps.shared.as_ref();
        list.as_fd()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.maps.shared
    }

    /// Returns the name of the rule that has this counter index. Samples and captures contain the counter
    /// index of a rule. Returns `None` if the rule was removed.
    #[must_use]
    pub fn rule_at(&self, wanted: u32) -> Option<&str> {
        self.slots.by_name.iter().find_map(|(name, slot)| (*slot == wanted).then_some(name.as_str()))
    }

    pub(crate) fn maps(&self) -> &Arc<FilterMaps> {
        &self.maps
    }

    fn clear(&self, slot: u32) -> Result<(), Error> {
        let failed = |map| move |source| Error::Map { map, operation: "clear", source };
        let [counts, buckets, ..] = self.maps.shared.as_ref();
        self.maps.cookies.as_ref().map_or(Ok(()), |cookies| cookies.forget(slot))?;
        sys::map_fill_per_cpu(counts.as_fd(), slot, &[0; 4]).map_err(failed(SHARED_MAPS[0]))?;
        sys::map_update(buckets.as_fd(), &slot.to_ne_bytes(), &[0; 8]).map_err(failed(SHARED_MAPS[1]))
    }
}

impl Blocklist {
    /// Creates a block list for a filter that this process has created. For a filter that was taken over from another
    /// process, use [`Filter::use_list`], because the program of that filter may expect another format of the list.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn of(filter: &Filter, prefixes: impl IntoIterator<Item = Prefix>) -> Result<Blocklist, Error> {
        Blocklist::in_slot(filter.list(), prefixes)
    }
}

/// Returns the SYN cookie maps with entries for the rules that have SYN cookies. Returns `None` if no rule
/// has SYN cookies.
fn cookies(
    compiled: &Compiled,
    numbers: &[u32],
    present: Option<&Arc<CookieMaps>>,
    before: &[u32],
    clients: u32,
) -> Result<Option<Arc<CookieMaps>>, Error> {
    let Some(first) = compiled.cookies() else { return Ok(None) };
    let maps = match present {
        Some(maps) => Arc::clone(maps),
        None => {
            check_kernel(&first.name, sys::has_helper)?;
            Arc::new(CookieMaps::new(clients)?)
        }
    };
    let slots = compiled.rules.iter().zip(numbers);
    let slots = slots.filter(|(rule, _)| matches!(rule.action, Action::SynCookie(_))).map(|(_, slot)| *slot);
    maps.keep(&slots.collect::<Vec<_>>(), before)?;
    Ok(Some(maps))
}

fn create_missed() -> Result<OwnedFd, Error> {
    create(MISSED, MapKind::PerCpuArray, 4, 8, 1)
}

fn set_maps(
    compiled: &Compiled,
    slots: &[u32],
    shared: Arc<Shared>,
    cookies: Option<Arc<CookieMaps>>,
) -> Result<FilterMaps, Error> {
    let TableMaps { classes, tries, rows, probes } = &*compiled.table_maps()?;
    let rules_of = compiled.rules.iter().zip(slots).flat_map(|(rule, slot)| rule_bytes(rule, *slot));
    let set = [
        duplicate(CLASSES, classes)?,
        duplicate(TRIES, tries)?,
        duplicate(ROWS, rows)?,
        filled(RULES, 128, compiled.rules.len() * 128, rules_of)?,
        duplicate(PROBES, probes)?,
    ];
    Ok(FilterMaps { conf: compiled.conf, set, shared, cookies })
}

/// Assignment of slots to rules by name. A slot is an index in the maps of counters and of rate limit buckets.
/// A released slot is reused last, because running programs may still count in it for a moment.
#[derive(Debug, Clone)]
struct Slots {
    by_name: BTreeMap<String, u32>,
    free: VecDeque<u32>,
    capacity: usize,
}

impl Slots {
    fn new(capacity: usize) -> Slots {
        let free = (0..u32::try_from(capacity).unwrap_or(u32::MAX)).collect();
        Slots { by_name: BTreeMap::new(), free, capacity }
    }

    fn take(&mut self, name: String, slot: u32) {
        self.free.retain(|free| *free != slot);
        self.by_name.insert(name, slot);
    }

    /// Returns the slot of each rule, in the order of the rules. Releases the slots of rules that are not in
    /// the rule set.
    fn assign(&mut self, compiled: &Compiled) -> Result<Vec<u32>, Error> {
        let count = compiled.rules.len();
        if count * 2 > self.capacity {
            return Err(Error::FilterFull { count, capacity: self.capacity / 2 });
        }
        let mut old = std::mem::take(&mut self.by_name);
        let mut slots = Vec::with_capacity(count);
        for rule in &compiled.rules {
            let known = old.remove(&rule.name).or_else(|| self.free.pop_front());
            let slot = known.ok_or(Error::FilterFull { count, capacity: self.capacity / 2 })?;
            self.by_name.insert(rule.name.clone(), slot);
            slots.push(slot);
        }
        self.free.extend(old.into_values());
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::filter::{Match, Rate, Rule, RuleSet};
    use crate::{LocalAddresses, Owner, PortProgram, ProgramConfig, Verdict, WhenDown};
    use packet::net::{RateUnit, SourceBits};

    /// Returns a UDP packet without a payload from 10.0.0.`source`.
    fn frame(source: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 1, 1]);
        frame.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        frame
    }

    /// Checks that filters use the tables that a caller has created in advance ([`Compiled::create_maps`]), and that
    /// filters with the same compiled rules share these tables.
    #[test]
    fn filters_use_the_maps_that_were_created_in_advance() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let rule = Rule {
            name: "count".to_owned(),
            priority: 0,
            matches: Match::default(),
            action: Action::Count,
            dry_run: false,
            expires: None,
        };
        let compiled = Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap();
        assert!(!compiled.has_maps());
        compiled.create_maps().unwrap();
        let id = |fd: &OwnedFd| sys::map_info(fd.as_fd()).unwrap().id;
        let maps = compiled.maps.get().unwrap();
        let tables = [&maps.classes, &maps.tries, &maps.rows, &maps.probes].map(id);
        let used = |filter: &Filter| {
            let [classes, tries, rows, _, probes] = &filter.maps.set;
            [classes, tries, rows, probes].map(id)
        };
        let mut first = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
        let second = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
        assert_eq!((used(&first), used(&second)), (tables, tables));
        first.replace(&Compiled::new(&RuleSet::default()).unwrap()).unwrap();
        first.replace(&compiled).unwrap();
        assert_eq!(used(&first), tables);
    }

    #[test]
    fn sources_without_a_bucket_share_the_rules_own() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        // The rate is one packet per hour, so that no token is added during the test.
        let rate = Rate { unit: RateUnit::Packets, amount: 1, per: Duration::from_secs(3600), burst: 2 };
        let rule = Rule {
            name: "limit".to_owned(),
            priority: 0,
            matches: Match::default(),
            action: Action::RateLimit { rate, per_source: Some(SourceBits { ipv4: 32, ipv6: 64 }) },
            dry_run: false,
            expires: None,
        };
        let compiled = Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap();
        let mut filter = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
        // A hash table with space for one source replaces the table that evicts sources.
        let shared = Arc::get_mut(&mut Arc::get_mut(&mut filter.maps).unwrap().shared).unwrap();
        shared[2] = create(SHARED_MAPS[2], MapKind::Hash, 24, 8, 1).unwrap();
        let config = ProgramConfig {
            owner: Owner::Bridged,
            when_down: WhenDown::Pass,
            queues: 1,
            locals: LocalAddresses::default(),
        };
        let loaded = PortProgram::load_filtered(&config, &filter).unwrap();
        let passes = |source| loaded.test_run(&frame(source)).unwrap().verdict == Verdict::Pass;
        assert_eq!([1, 1, 1].map(passes), [true, true, false], "a bucket of its own");
        assert_eq!([2, 2, 2, 3].map(passes), [true, true, false, false], "the rule's, together");
    }
}
