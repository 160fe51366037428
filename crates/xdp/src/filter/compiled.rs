//! Compilation of filter rules to the tables that the XDP program reads: classes of field values, address
//! prefix tries, bit rows, and the constants of the program.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use packet::net::Prefix;
use packet::net::{Family, FragmentState, PatternBase, RateUnit, VlanMatch};

use super::bits::{Bits, Classes, Table, table};
use super::table_maps::TableMaps;
use super::trie::address_field;
use super::{
    Action, CookieScheme, FilterError, Match, PROBES_MAX, RULES_MAX, Rule, RuleSet, SynCookie, Unreadable,
    check,
};
use crate::Error;

/// Number of frame fields that rules match. The following constants are the field numbers of `enum
/// filter_field`.
pub(super) const FIELDS: usize = 9;
pub(super) const KIND: usize = 0;
pub(super) const SOURCE_PORT: usize = 1;
pub(super) const DESTINATION_PORT: usize = 2;
pub(super) const LENGTH: usize = 3;
pub(super) const VLAN: usize = 4;
pub(super) const FLAGS: usize = 5;
pub(super) const LISTED: usize = 6;
pub(super) const SOURCE: usize = 7;
pub(super) const DESTINATION: usize = 8;

/// Number of entries of a class table (from field value to class) in one cache line.
pub(super) const LINE: usize = 32;
/// Maximum number of 64-bit words of all bit rows together. This many words take 512 MiB.
const ROW_WORDS_MAX: usize = 1 << 26;

/// Number of 32-bit words of `struct filter_conf` (the constants of the filter stage) that precede the words of the
/// frame fields.
pub(super) const HEAD_WORDS: usize = 6;
pub(crate) const CONF_WORDS: usize = 90;
/// Index in `struct filter_conf` of the word with the features that the rules use (`enum filter_uses`).
/// `SCRATCH` is the index of the flag for a test run that must not change any state.
pub(super) const USES: usize = 4;
pub(super) const SCRATCH: usize = 5;
/// Bit in the word `USES` (`FILTER_USES_COOKIES`): at least one rule of the filter has SYN cookies.
pub(super) const USES_COOKIES: u32 = 16;

/// Contents of `struct filter_conf` (the constants of the filter stage) as 32-bit words.
pub(super) type Conf = [u32; CONF_WORDS];

/// Place in a frame that byte patterns of rules examine: base, offset, length in bytes, and mask of the examined bits.
/// Each distinct place is stored once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    base: PatternBase,
    offset: u32,
    length: usize,
    mask: [u8; 8],
}

/// Filter rules that are checked and compiled to the tables of the XDP program. Any number of ports can use the
/// compiled rules.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Rules in the order in which they are tried.
    pub(super) rules: Vec<Rule>,
    pub(super) conf: Conf,
    pub(super) classes: Vec<u16>,
    pub(super) tries: Vec<u32>,
    pub(super) rows: Vec<u64>,
    /// Classes of the values that byte patterns require. The key consists of the index of a place in the frame and the
    /// value that a pattern requires at this place.
    pub(super) probes: BTreeMap<(u32, u64), u32>,
    /// Kernel maps with the tables. The list of rules is in another map, which belongs to one filter. Set by
    /// [`Compiled::create_maps`].
    pub(super) maps: OnceLock<Arc<TableMaps>>,
}

impl Compiled {
    /// Checks filter rules and compiles them to tables.
    ///
    /// # Errors
    /// Returns the error of the first invalid rule, or the error for the limit that the rules exceed.
    pub fn new(set: &RuleSet) -> Result<Compiled, FilterError> {
        let rules = ordered(set)?;
        let mut compiler = Compiler::new(rules.len());
        compiler.tables(&rules)?;
        compiler.addresses(&rules)?;
        compiler.patterns(&rules)?;
        compiler.conf[USES] = rules.iter().fold(0, |all, rule| all | uses(rule));
        // The rule for unreadable frames needs no header fields of its own.
        compiler.conf[3] = u32::from(set.rules.iter().any(|rule| looks_beyond_ip(&rule.matches)));
        let Compiler { conf, classes, tries, rows, probes, .. } = compiler;
        Ok(Compiled { rules, conf, classes, tries, rows, probes, maps: OnceLock::new() })
    }

    /// Checks filter rules without compiling them. The check takes little time and memory, and returns each error of
    /// [`Compiled::new`] except [`FilterError::Tables`], which is known only after compilation.
    ///
    /// # Errors
    /// Returns the error of the first invalid rule, or the error for the limit that the rules exceed.
    pub fn check(set: &RuleSet) -> Result<(), FilterError> {
        let rules = ordered(set)?;
        Compiler::new(rules.len()).patterns(&rules)
    }

    /// Returns the rules in the order in which the XDP program tries them. If unreadable frames are
    /// dropped, the last rule drops them.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the first rule with SYN cookies. Returns `None` if no rule has SYN cookies.
    pub(super) fn cookies(&self) -> Option<&Rule> {
        self.rules.iter().find(|rule| matches!(rule.action, Action::SynCookie(_)))
    }

    /// Creates the kernel maps of the tables. [`super::Filter`] then uses these maps. Writing large tables takes long,
    /// so a caller that must lock the filter calls this function before it takes the lock. If the maps are not created
    /// in advance, the filter creates them.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn create_maps(&self) -> Result<(), Error> {
        self.table_maps().map(drop)
    }

    /// Returns whether the kernel maps of the tables exist ([`Compiled::create_maps`]).
    #[must_use]
    pub fn has_maps(&self) -> bool {
        self.maps.get().is_some()
    }

    /// Returns the kernel maps of the tables, and creates them if they do not exist.
    pub(super) fn table_maps(&self) -> Result<Arc<TableMaps>, Error> {
        if let Some(maps) = self.maps.get() {
            return Ok(Arc::clone(maps));
        }
        let maps = Arc::new(TableMaps::new(&self.classes, &self.tries, &self.rows, &self.probes)?);
        Ok(Arc::clone(self.maps.get_or_init(|| maps)))
    }

    /// Returns the size in bytes that the tables of the compiled rules have in the kernel.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        let probes = self.probes.len() * 24;
        self.classes.len() * 2 + self.tries.len() * 4 + self.rows.len() * 8 + self.rules.len() * 128 + probes
    }
}

/// Checks each rule, and returns the rules in the order in which the XDP program tries them.
fn ordered(set: &RuleSet) -> Result<Vec<Rule>, FilterError> {
    check::rules(&set.rules)?;
    let mut rules = set.rules.clone();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    // The rule for unreadable frames comes last, whatever the priorities are.
    rules.extend(unreadable_rule(set));
    if rules.len() > RULES_MAX {
        return Err(FilterError::TooManyRules { count: rules.len() });
    }
    Ok(rules)
}

/// Returns the program features that a rule uses, as bits of `enum filter_uses`.
fn uses(rule: &Rule) -> u32 {
    let action = match rule.action {
        Action::Sample { .. } => 2,
        Action::RateLimit { per_source: None, .. } => 4,
        Action::RateLimit { per_source: Some(_), .. } => 4 | 8,
        Action::SynCookie(SynCookie {
            scheme: CookieScheme::Cookie { window_scale: Some(_), .. }, ..
        }) => USES_COOKIES | 32,
        Action::SynCookie(_) => USES_COOKIES,
        Action::Drop | Action::Pass | Action::Count => 0,
    };
    action | u32::from(rule.expires.is_some())
}

fn looks_beyond_ip(matches: &Match) -> bool {
    let beyond = |base| matches!(base, PatternBase::Transport | PatternBase::Payload);
    !matches.protocols.is_empty()
        || !matches.fragments.is_empty()
        || !matches.source_ports.is_empty()
        || !matches.destination_ports.is_empty()
        || matches.tcp_flags.is_some()
        || matches.patterns.iter().any(|pattern| beyond(pattern.base))
}

/// Returns whether a rule examines header fields. The result is `false` for a rule that examines only the frame
/// length and bytes at offsets from the beginning of the frame.
fn looks_at_headers(matches: &Match) -> bool {
    looks_beyond_ip(matches)
        || !matches.families.is_empty()
        || !matches.sources.is_empty()
        || !matches.destinations.is_empty()
        || !matches.vlans.is_empty()
        || matches.listed
        || matches.patterns.iter().any(|pattern| pattern.base == PatternBase::Network)
}

/// Returns whether a rule can match unreadable frames (`FragmentState::Unreadable`) of an address family. A rule that
/// passes frames or requires SYN cookies matches unreadable frames only if the rule's condition on fragments contains
/// this state.
fn takes_unreadable(rule: &Rule, family: Family) -> bool {
    let Match { families, fragments, .. } = &rule.matches;
    !matches!(rule.action, Action::Pass | Action::SynCookie(_))
        || fragments.contains(&FragmentState::Unreadable)
        || (family == Family::Malformed && families.contains(&family))
}

impl RuleSet {
    /// Returns whether the filter drops unreadable frames (frames whose headers the filter cannot read) for which no
    /// rule made the decision. The filter does so if a rule that matches header fields drops or limits frames, unless
    /// the rule set states that unreadable frames pass.
    #[must_use]
    pub fn drops_unreadable(&self) -> bool {
        self.unreadable == Unreadable::Drop && self.rules.iter().any(stops_by_headers)
    }
}

/// Returns whether a rule that matches header fields drops or limits frames.
fn stops_by_headers(rule: &Rule) -> bool {
    let by_source = matches!(rule.action, Action::RateLimit { per_source: Some(_), .. });
    let stops = matches!(rule.action, Action::Drop | Action::RateLimit { .. } | Action::SynCookie(_));
    stops && !rule.dry_run && (by_source || looks_at_headers(&rule.matches))
}

/// Returns the additional last rule, which drops unreadable frames for which no other rule made the decision. Returns
/// `None` if such frames pass.
fn unreadable_rule(set: &RuleSet) -> Option<Rule> {
    set.drops_unreadable().then(|| Rule {
        name: Unreadable::RULE.to_owned(),
        priority: 0,
        matches: Match { fragments: vec![FragmentState::Unreadable], ..Match::default() },
        action: Action::Drop,
        dry_run: false,
        expires: None,
    })
}

struct Compiler {
    conf: Conf,
    classes: Vec<u16>,
    tries: Vec<u32>,
    rows: Vec<u64>,
    probes: BTreeMap<(u32, u64), u32>,
    count: usize,
    stride: usize,
}

impl Compiler {
    fn new(count: usize) -> Compiler {
        let words = count.div_ceil(64);
        let stride = if words > 1 { words + 1 } else { words };
        let mut conf = [0; CONF_WORDS];
        conf[0] = small(count);
        conf[1] = small(words);
        conf[2] = small(stride);
        Compiler {
            conf,
            classes: Vec::new(),
            tries: Vec::new(),
            rows: Vec::new(),
            probes: BTreeMap::new(),
            count,
            stride,
        }
    }

    /// Adds the bit rows of a frame field to the rows of all fields. Returns the index of the first added
    /// row.
    fn add_rows(&mut self, rows: &[Bits]) -> Result<u32, FilterError> {
        let first = self.rows.len().checked_div(self.stride).unwrap_or(0);
        if self.rows.len() + rows.len() * self.stride > ROW_WORDS_MAX {
            return Err(FilterError::Tables { table: "rows", limit: "512 MiB" });
        }
        for row in rows {
            row.write(&mut self.rows);
        }
        Ok(small(first))
    }

    fn set_field(&mut self, field: usize, values: [u32; 3]) {
        let at = HEAD_WORDS + 4 * field;
        self.conf[at] = 1;
        self.conf[at + 1..at + 4].copy_from_slice(&values);
    }

    fn tables(&mut self, rules: &[Rule]) -> Result<(), FilterError> {
        let reads = rules.iter().any(|rule| looks_at_headers(&rule.matches));
        self.table(KIND, 1 << 12, rules, |rule| kinds(rule, reads))?;
        self.table(SOURCE_PORT, (1 << 16) + 1, rules, |r| ranges(&r.matches.source_ports))?;
        self.table(DESTINATION_PORT, (1 << 16) + 1, rules, |r| ranges(&r.matches.destination_ports))?;
        self.table(LENGTH, 1 << 16, rules, |r| ranges(&r.matches.lengths))?;
        self.table(VLAN, (1 << 12) + 1, rules, |r| vlans(&r.matches))?;
        self.table(FLAGS, (1 << 8) + 1, rules, |r| flags(&r.matches))?;
        self.table(LISTED, 2, rules, |r| r.matches.listed.then(|| vec![(1, 1)]))
    }

    fn table(
        &mut self,
        field: usize,
        domain: usize,
        rules: &[Rule],
        of: impl Fn(&Rule) -> Option<Vec<(usize, usize)>>,
    ) -> Result<(), FilterError> {
        let allowed: Vec<_> = rules.iter().map(of).collect();
        let Some(Table { classes, rows }) = table(domain, &allowed)? else { return Ok(()) };
        let first_row = self.add_rows(rows.rows())?;
        let first_line = small(self.classes.len() / LINE);
        if field != LISTED {
            self.classes.extend(classes);
            self.classes.resize(self.classes.len().next_multiple_of(LINE), 0);
        }
        self.set_field(field, [first_row, first_line, 0]);
        Ok(())
    }

    fn addresses(&mut self, rules: &[Rule]) -> Result<(), FilterError> {
        let sources: fn(&Match) -> &[Prefix] = |matches| &matches.sources;
        let destinations: fn(&Match) -> &[Prefix] = |matches| &matches.destinations;
        for (field, of) in [(SOURCE, sources), (DESTINATION, destinations)] {
            let wanted: Vec<&[Prefix]> = rules.iter().map(|rule| of(&rule.matches)).collect();
            if let Some(found) = address_field(&mut self.tries, &wanted)? {
                let first_row = self.add_rows(found.rows.rows())?;
                self.set_field(field, [first_row, found.root4, found.root6]);
            }
        }
        Ok(())
    }

    /// Compiles the byte patterns of the rules. Each distinct place in the frame (base, offset and mask) that patterns
    /// examine becomes a field. In the bit row of a value, the bits are set for the rules that require this value at
    /// the place, and for the rules without a pattern for the place. In the row of class 0, for all other values, only
    /// the bits of the rules without a pattern for the place are set.
    fn patterns(&mut self, rules: &[Rule]) -> Result<(), FilterError> {
        let mut places: Vec<(Place, BTreeMap<u64, Bits>)> = Vec::new();
        let mut others: Vec<Bits> = Vec::new();
        let mut all = Bits::none(self.count);
        (0..self.count).for_each(|rule| all.set(rule, true));
        for (index, rule) in rules.iter().enumerate() {
            for (place, value) in pieces(&rule.matches) {
                let at = match places.iter().position(|(known, _)| *known == place) {
                    Some(at) => at,
                    None if places.len() < PROBES_MAX => {
                        places.push((place, BTreeMap::new()));
                        others.push(all.clone());
                        places.len() - 1
                    }
                    None => {
                        let count = places.len() + 1;
                        return Err(FilterError::TooManyPlaces { rule: rule.name.clone(), count });
                    }
                };
                let values = &mut places[at].1;
                let elsewhere = values.iter().any(|(v, bits)| *v != value && bits.has(index));
                if elsewhere {
                    let cause = "two of its patterns want different bytes at one place";
                    return Err(FilterError::NeverMatches { rule: rule.name.clone(), cause });
                }
                values.entry(value).or_insert_with(|| Bits::none(self.count)).set(index, true);
                others[at].set(index, false);
            }
        }
        for (probe, ((place, values), others)) in places.into_iter().zip(others).enumerate() {
            self.add_probe(probe, place, values, &others)?;
        }
        Ok(())
    }

    fn add_probe(
        &mut self,
        probe: usize,
        place: Place,
        values: BTreeMap<u64, Bits>,
        others: &Bits,
    ) -> Result<(), FilterError> {
        let mut rows = Classes::default();
        rows.of(others)?;
        for (value, mut bits) in values {
            bits.add(others);
            let class = rows.of(&bits)?;
            self.probes.insert((small(probe), value), class);
        }
        let first_row = self.add_rows(rows.rows())?;
        let at = HEAD_WORDS + 4 * FIELDS + 6 * probe;
        let mask = u64::from_ne_bytes(place.mask).to_ne_bytes();
        for (to, half) in self.conf[at..at + 2].iter_mut().zip(mask.chunks_exact(4)) {
            *to = u32::from_ne_bytes(half.try_into().unwrap_or_default());
        }
        let base = match place.base {
            PatternBase::Frame => 0,
            PatternBase::Network => 1,
            PatternBase::Transport => 2,
            PatternBase::Payload => 3,
        };
        self.conf[at + 2..at + 6].copy_from_slice(&[small(place.length), base, place.offset, first_row]);
        Ok(())
    }
}

/// Converts a count to 32 bits. The limits of a filter keep all its counts far below 2^32.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn ranges(list: &[std::ops::RangeInclusive<u16>]) -> Option<Vec<(usize, usize)>> {
    let range = |r: &std::ops::RangeInclusive<u16>| (usize::from(*r.start()), usize::from(*r.end()));
    (!list.is_empty()).then(|| list.iter().map(range).collect())
}

/// Returns the ranges of values that a rule matches in the VLAN field. A range of VLAN identifiers that begins with 0
/// also matches untagged frames. Returns `None` if the rule matches any value.
fn vlans(matches: &Match) -> Option<Vec<(usize, usize)>> {
    const UNTAGGED: (usize, usize) = (1 << 12, 1 << 12);
    let range = |vlan: &VlanMatch| match vlan {
        VlanMatch::Untagged => (UNTAGGED, None),
        VlanMatch::Tagged(ids) => {
            let range = (usize::from(ids.first), usize::from(ids.last));
            (range, (range.0 == 0).then_some(UNTAGGED))
        }
    };
    let values = matches.vlans.iter().map(range);
    (!matches.vlans.is_empty())
        .then(|| values.flat_map(|(range, more)| [Some(range), more]).flatten().collect())
}

fn flags(matches: &Match) -> Option<Vec<(usize, usize)>> {
    let wanted = matches.tcp_flags?;
    let fits = (0..=u8::MAX).filter(|flags| flags & wanted.mask == wanted.value);
    Some(fits.map(|flags| (usize::from(flags), usize::from(flags))).collect())
}

/// Returns the ranges of values that a rule matches in the combined field of family, fragment state and protocol
/// (`struct filter_key`). Returns `None` if the rule matches any value. `reads` is whether any rule of the set examines
/// headers. If no rule examines headers, the program classifies no frame as unreadable.
fn kinds(rule: &Rule, reads: bool) -> Option<Vec<(usize, usize)>> {
    let Match { families, fragments, protocols, .. } = &rule.matches;
    let is_any = families.is_empty() && fragments.is_empty() && protocols.is_empty();
    let all = [Family::Other, Family::Ipv4, Family::Ipv6, Family::Malformed];
    if is_any && (!reads || all.iter().all(|family| takes_unreadable(rule, *family))) {
        return None;
    }
    let mut kinds = Vec::new();
    for (family, high) in all.into_iter().zip(0..) {
        if !(families.is_empty() || families.contains(&family)) {
            continue;
        }
        let is_ip = matches!(family, Family::Ipv4 | Family::Ipv6);
        let states =
            [FragmentState::Whole, FragmentState::First, FragmentState::Later, FragmentState::Unreadable];
        for (state, low) in states.into_iter().zip(0..) {
            let is_unreadable = state == FragmentState::Unreadable;
            let is_possible = match is_unreadable {
                // The protocol family of a frame with too many VLAN tags is unknown.
                true => takes_unreadable(rule, family) && (is_ip || protocols.is_empty()),
                false => is_ip || (fragments.is_empty() && protocols.is_empty()),
            };
            if !is_possible || !(fragments.is_empty() || fragments.contains(&state)) {
                continue;
            }
            let first: usize = high << 10 | low << 8;
            if protocols.is_empty() {
                kinds.push((first, first + 255));
            } else {
                // The protocol of an unreadable frame is 0 if it is unknown, so a condition on protocol 0 must not
                // match such a frame.
                let known = protocols.iter().filter(|protocol| !(is_unreadable && **protocol == 0));
                kinds.extend(known.map(|p| (first + usize::from(*p), first + usize::from(*p))));
            }
        }
    }
    Some(kinds)
}

/// Returns the byte patterns of a rule in pieces of up to eight bytes, the unit in which the XDP program compares them.
/// Each piece has its place in the frame and the value that the pattern requires.
fn pieces(matches: &Match) -> impl Iterator<Item = (Place, u64)> + '_ {
    matches.patterns.iter().flat_map(|pattern| {
        pattern.bytes.chunks(8).zip(0..).map(|(bytes, number)| {
            let mut place = Place { base: pattern.base, offset: 0, length: bytes.len(), mask: [0; 8] };
            place.offset = u32::from(pattern.offset) + 8 * number;
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            match pattern.mask.chunks(8).nth(usize::try_from(number).unwrap_or(0)) {
                Some(mask) => place.mask[..mask.len()].copy_from_slice(mask),
                None => place.mask[..bytes.len()].fill(0xff),
            }
            (place, u64::from_ne_bytes(value))
        })
    })
}

/// Numeric parameters of a rule's action in `struct filter_rule`.
#[derive(Default)]
struct Numbers {
    action: u32,
    flags: u32,
    sample: u32,
    cost: u64,
    burst: u64,
    source4: u32,
    answer: u32,
    source6: u128,
}

impl Numbers {
    fn of(action: &Action) -> Numbers {
        let plain = |action| Numbers { action, ..Numbers::default() };
        match action {
            Action::Drop => plain(0),
            Action::Pass => plain(1),
            Action::Count => plain(2),
            // The hook samples when a 32-bit random number is at most this value.
            Action::Sample { one_in } => Numbers { sample: u32::MAX / (*one_in).max(1), ..plain(3) },
            Action::RateLimit { rate, per_source } => {
                let (cost, burst) = bucket(rate.amount, rate.per.as_nanos(), rate.burst);
                let mut numbers = Numbers { cost, burst, ..plain(4) };
                numbers.flags =
                    u32::from(per_source.is_some()) << 2 | u32::from(rate.unit == RateUnit::Bytes) << 3;
                if let Some(bits) = per_source {
                    numbers.source4 = u32::MAX.checked_shl(32 - u32::from(bits.ipv4.min(32))).unwrap_or(0);
                    numbers.source6 = u128::MAX.checked_shl(128 - u32::from(bits.ipv6.min(128))).unwrap_or(0);
                }
                numbers
            }
            Action::SynCookie(cookie) => Numbers::of_cookie(cookie),
        }
    }

    fn of_cookie(cookie: &SynCookie) -> Numbers {
        let above = u64::from(cookie.above.unwrap_or(1).max(1));
        // The burst is the amount of one second.
        let (cost, burst) = bucket(above, 1_000_000_000, above);
        let (retry, sample, mss, scale) = match cookie.scheme {
            CookieScheme::Cookie { mss, window_scale } => {
                (0, 0, u32::from(mss.unwrap_or(0)), u32::from(window_scale.unwrap_or(u8::MAX)))
            }
            CookieScheme::Retry { remember } => {
                (1, u32::try_from(remember.as_secs()).unwrap_or(u32::MAX), 0, u32::from(u8::MAX))
            }
        };
        let flags = u32::from(cookie.above.is_none()) << 4 | retry << 5;
        let answer = mss | u32::from(cookie.ttl) << 16 | scale << 24;
        Numbers { action: 5, flags, sample, cost, burst, answer, ..Numbers::default() }
    }
}

/// Returns two values of a rate limit bucket in ticks of a sixteenth of a nanosecond: the cost of one packet or
/// byte, as a fixed-point number with 16 binary fraction digits, and the depth of the bucket.
pub(super) fn bucket(amount: u64, nanoseconds: u128, burst: u64) -> (u64, u64) {
    let (amount, ticks) = (u128::from(amount), nanoseconds << 4);
    let small = |number| u64::try_from(number).unwrap_or(u64::MAX);
    (small((ticks << 16) / amount), small(ticks * u128::from(burst) / amount))
}

/// Encodes a rule as `struct filter_rule`. `slot` is the index of the rule's counters.
pub(super) fn rule_bytes(rule: &Rule, slot: u32) -> [u8; 128] {
    let mut bytes = [0; 128];
    let numbers = Numbers::of(&rule.action);
    let flags = numbers.flags | u32::from(rule.dry_run) | u32::from(rule.expires.is_some()) << 1;
    let words = [numbers.action, flags, slot, numbers.sample];
    let longs = [rule.expires.map_or(0, |at| at.0), numbers.cost, numbers.burst];
    let parts = words.iter().flat_map(|word| word.to_ne_bytes());
    let parts = parts.chain(longs.iter().flat_map(|long| long.to_ne_bytes()));
    let parts = parts.chain(numbers.source4.to_be_bytes()).chain(numbers.answer.to_ne_bytes());
    let parts = parts.chain(numbers.source6.to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(parts.chain(rule.name.bytes().take(63))) {
        *to = from;
    }
    bytes
}
