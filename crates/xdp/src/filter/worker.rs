//! Filter for ports without an XDP program. Workers match frames as `bpf/include/filter_rules.h` does, in
//! plain Rust over the same tables. Several worker threads use a filter at the same time, without locks,
//! allocations or system calls.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use packet::net::{RateUnit, SourceBits};

use super::compiled::{
    DESTINATION, DESTINATION_PORT, FIELDS, FLAGS, HEAD_WORDS, KIND, LENGTH, LINE, LISTED, SOURCE,
    SOURCE_PORT, VLAN, bucket,
};
use super::key::{Frame, IPV4, IPV6, Key};
use super::tally::{Charge, RuleTally, Sources};
use super::{Action, Compiled, FilterError, ListView, Moment, PROBES_MAX, Rule, Tally, trie};

const ROWS: usize = FIELDS + PROBES_MAX;
/// Maximum frame length in bytes that filter rules can match. A longer frame is treated as a frame of this length.
const LENGTH_MAX: u32 = 65_535;

/// Rules of a filter in the form that workers apply. The value is immutable. When the rule set or the table of
/// the block list changes, a new value is created that uses the same [`Tally`].
#[derive(Debug)]
pub struct WorkerFilter {
    compiled: Arc<Compiled>,
    rules: Vec<WorkerRule>,
    /// Frame fields that at least one rule matches, in the order of lookup. Fields with cheap lookups come
    /// first.
    fields: Vec<Field>,
    probes: Vec<Probe>,
    list: Option<ListView>,
    /// Per-source rate limit buckets. `None` if no rule has a rate limit per source.
    sources: Option<Arc<Sources>>,
}

/// Decision of the filter on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The frame passes the filter and continues with the next stage.
    On,
    /// The rule at this index of [`WorkerFilter::rules`] drops the frame.
    Drop(usize),
    /// The frame is dropped, because the frame exceeds the rate of the rule at this index of [`WorkerFilter::rules`].
    Limit(usize),
}

/// Parameters with which the filter is applied to a frame: time, worker, and whether this is a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Time at which rules expire and buckets refill.
    pub now: Moment,
    /// Index of the worker, which selects the row in which the worker counts.
    pub worker: usize,
    /// Whether the run leaves counters and rate limit buckets unchanged.
    pub dry: bool,
}

/// Parameters of a rule that workers need for each frame.
#[derive(Debug)]
struct WorkerRule {
    deed: Deed,
    dry_run: bool,
    expires: Option<Moment>,
    tally: Arc<RuleTally>,
}

/// Action of a rule on a matching frame, in the form that workers apply.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Drop,
    Pass,
    Count,
    Limit {
        cost: u64,
        burst: u64,
        by_bytes: bool,
        /// Masks of the IPv4 and IPv6 source bits that share a bucket. `None` if all frames share one bucket
        /// of the rule.
        per_source: Option<(u32, u128)>,
    },
}

/// Tables of a frame field that rules match: `struct filter_field_conf`.
#[derive(Debug)]
struct Field {
    which: usize,
    /// Index of the bit row of the field's class 0.
    rows: usize,
    /// Index of the line at which the field's class table or its IPv4 trie begins.
    table: usize,
    /// Index of the line at which the field's IPv6 trie begins.
    table6: usize,
}

/// Order in which the frame fields are looked up, by their number in `enum filter_field`.
const ORDER: [usize; FIELDS] =
    [KIND, SOURCE_PORT, DESTINATION_PORT, VLAN, FLAGS, LENGTH, LISTED, SOURCE, DESTINATION];

/// A piece of a frame that byte patterns of rules examine: `struct filter_probe`.
#[derive(Debug)]
struct Probe {
    base: usize,
    offset: usize,
    length: usize,
    mask: u64,
    rows: usize,
}

/// Bit rows selected by the field values of a frame, one row for each field that rules match.
struct Rows {
    row: [usize; ROWS],
    count: usize,
    /// Bitwise AND of the first words of the selected rows.
    common: u64,
}

impl WorkerFilter {
    /// Creates the filter for ports without an XDP program. Frames that match rules are counted in `tally`. If `list`
    /// is `None`, no source is in the block list.
    ///
    /// # Errors
    /// Returns [`FilterError::NeedsHook`] if a rule samples frames or has SYN cookies.
    pub fn new(
        compiled: &Arc<Compiled>,
        tally: &mut Tally,
        list: Option<ListView>,
    ) -> Result<WorkerFilter, FilterError> {
        let deeds: Vec<Deed> = compiled.rules().iter().map(deed).collect::<Result<_, FilterError>>()?;
        let tallies = tally.assign(compiled);
        let rule = |((rule, deed), tally): ((&Rule, Deed), Arc<RuleTally>)| WorkerRule {
            deed,
            dry_run: rule.dry_run,
            expires: rule.expires,
            tally,
        };
        let rules: Vec<WorkerRule> = compiled.rules().iter().zip(deeds).zip(tallies).map(rule).collect();
        let per_source = |rule: &WorkerRule| matches!(rule.deed, Deed::Limit { per_source: Some(_), .. });
        let sources = rules.iter().any(per_source).then(|| tally.sources());
        let fields = ORDER.into_iter().filter_map(|which| Field::of(compiled, which)).collect();
        let probes = (0..PROBES_MAX).map_while(|index| Probe::of(compiled, index)).collect();
        Ok(WorkerFilter { compiled: Arc::clone(compiled), rules, fields, probes, list, sources })
    }

    /// Returns the rules in the order in which they are tried.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.compiled.rules()
    }

    /// Returns whether the filter was created from the value `compiled` itself, and not from an equal copy.
    #[must_use]
    pub fn is_of(&self, compiled: &Arc<Compiled>) -> bool {
        Arc::ptr_eq(&self.compiled, compiled)
    }

    /// Returns the block list table that the filter uses. Returns `None` if the filter has no block list.
    #[must_use]
    pub fn list(&self) -> Option<&ListView> {
        self.list.as_ref()
    }

    /// Returns the decision of the filter on a frame. Each rule that matches the frame counts the frame, up to the rule
    /// that decides.
    #[must_use]
    pub fn judge(&self, frame: &Frame<'_>, look: Look) -> Judged {
        if self.rules.is_empty() {
            return Judged::On;
        }
        let key = Key::of(frame.head, &self.compiled.conf);
        let Some(rows) = self.rows(&key, frame) else { return Judged::On };
        if self.rules.len() <= 64 {
            return self.walk(rows.common, 0, &key, frame, look).unwrap_or(Judged::On);
        }
        // Each set bit of the summary represents a word that can contain a matching rule.
        let mut words = rows.common;
        while words != 0 {
            let word = lowest(words);
            words &= words - 1;
            let bits = self.common(&rows, word + 1);
            if let Some(judged) = self.walk(bits, word * 64, &key, frame, look) {
                return judged;
            }
        }
        Judged::On
    }

    /// Applies the rules whose bits are set in `bits`, in the order of the rules. `first` is the index of the rule of
    /// bit 0. Returns `None` if none of these rules makes the decision on the frame.
    fn walk(&self, mut bits: u64, first: usize, key: &Key, frame: &Frame<'_>, look: Look) -> Option<Judged> {
        while bits != 0 {
            let index = first + lowest(bits);
            bits &= bits - 1;
            // If no rule has conditions, bits after the bit of the last rule are also set.
            let rule = self.rules.get(index)?;
            if rule.expires.is_some_and(|at| look.now >= at) {
                continue;
            }
            let length = u64::try_from(frame.length).unwrap_or(u64::MAX);
            let (acted, judged) = match rule.deed {
                Deed::Drop => (true, Some(Judged::Drop(index))),
                Deed::Pass => (true, Some(Judged::On)),
                Deed::Count => (false, None),
                Deed::Limit { cost, burst, by_bytes, per_source } => {
                    let units = if by_bytes { length } else { 1 };
                    let charge = Charge::new(cost, burst, units, look.now.0, look.dry);
                    // A frame that is segmented later represents many frames, and its cost may exceed the burst. A full
                    // bucket lets such a frame pass.
                    let charge = if frame.is_uncut { charge.on_debt() } else { charge };
                    let over = self.is_over(rule, key, per_source, charge);
                    (over, over.then_some(Judged::Limit(index)))
                }
            };
            if !look.dry {
                rule.tally.count(look.worker, length, acted);
            }
            if judged.is_some() && !rule.dry_run {
                return judged;
            }
        }
        None
    }

    /// Returns whether a frame exceeds the rate limit of a rule.
    fn is_over(&self, rule: &WorkerRule, key: &Key, per_source: Option<(u32, u128)>, charge: Charge) -> bool {
        let (Some((v4, v6)), Some(sources)) = (per_source, &self.sources) else {
            return rule.tally.bucket().exceeded(charge);
        };
        // Frames without a source address share a bucket.
        let (family, address) = match key.family {
            IPV4 => (IPV4, u128::from(source4(key).to_bits() & v4)),
            IPV6 => (IPV6, u128::from_be_bytes(key.source) & v6),
            _ => (0, 0),
        };
        sources.exceeded(rule.tally.number(), family, address, charge)
    }

    /// Returns the bit rows that the field values of a frame select. Returns `None` if no rule can match the
    /// frame.
    fn rows(&self, key: &Key, frame: &Frame<'_>) -> Option<Rows> {
        let mut rows = Rows { row: [0; ROWS], count: 0, common: u64::MAX };
        for field in &self.fields {
            let class = match field.which {
                KIND => self.class(field, key.kind()),
                SOURCE_PORT => self.class(field, key.source_port),
                DESTINATION_PORT => self.class(field, key.destination_port),
                VLAN => self.class(field, key.vlan),
                FLAGS => self.class(field, key.flags),
                LENGTH => self.class(field, u32::try_from(frame.length).unwrap_or(u32::MAX).min(LENGTH_MAX)),
                LISTED => usize::from(self.is_listed(key)),
                which => self.class_of_address(field, key, which == SOURCE),
            };
            self.ask(&mut rows, field.rows + class)?;
        }
        for (probe, index) in self.probes.iter().zip(0..) {
            self.ask(&mut rows, probe.rows + self.class_of_bytes(probe, index, key, frame))?;
        }
        Some(rows)
    }

    /// Adds the bit row of a field to the selected rows. Returns `None` if no rule can match the frame any more.
    fn ask(&self, rows: &mut Rows, row: usize) -> Option<()> {
        if let Some(place) = rows.row.get_mut(rows.count) {
            *place = row;
            rows.count += 1;
        }
        rows.common &= self.word(row, 0);
        (rows.common != 0).then_some(())
    }

    /// Returns the bitwise AND of the words at one index of all selected rows.
    fn common(&self, rows: &Rows, place: usize) -> u64 {
        rows.row.iter().take(rows.count).fold(u64::MAX, |bits, row| bits & self.word(*row, place))
    }

    fn word(&self, row: usize, place: usize) -> u64 {
        let stride = wide(self.compiled.conf[2]);
        self.compiled.rows.get(row * stride + place).copied().unwrap_or(0)
    }

    fn class(&self, field: &Field, value: u32) -> usize {
        self.compiled.classes.get(field.table * LINE + wide(value)).map_or(0, |class| usize::from(*class))
    }

    /// Returns the class of the longest prefix that covers the source or destination address of the frame.
    fn class_of_address(&self, field: &Field, key: &Key, is_source: bool) -> usize {
        let address = if is_source { &key.source } else { &key.destination };
        let (root, address) = match key.family {
            IPV4 => (field.table, &address[..4]),
            IPV6 => (field.table6, &address[..]),
            // Class 0 belongs to frames without addresses.
            _ => return 0,
        };
        let entry = |node: usize, index: usize| {
            self.compiled.tries.get(node * trie::LINE + index).copied().unwrap_or(0)
        };
        let [first, second, others @ ..] = address else { return 0 };
        let mut found = entry(root, usize::from(*first) << 8 | usize::from(*second));
        for octet in others {
            if found & trie::IS_NODE == 0 {
                break;
            }
            found = entry(wide(found & !trie::IS_NODE), usize::from(*octet));
        }
        wide(found)
    }

    /// Returns the class of the bytes of a frame that a probe examines. Returns class 0 if the
    /// frame ends before these bytes, or if no pattern requires their values.
    fn class_of_bytes(&self, probe: &Probe, index: u32, key: &Key, frame: &Frame<'_>) -> usize {
        let mut value = [0; 8];
        let place = key.base.get(probe.base).copied().flatten().zip(value.get_mut(..probe.length));
        let is_there = place.is_some_and(|(base, piece)| frame.load(base + probe.offset, piece));
        if !is_there {
            return 0;
        }
        let value = u64::from_ne_bytes(value) & probe.mask;
        self.compiled.probes.get(&(index, value)).map_or(0, |class| wide(*class))
    }

    fn is_listed(&self, key: &Key) -> bool {
        let Some(list) = &self.list else { return false };
        match key.family {
            IPV4 => list.has(source4(key).into()),
            IPV6 => list.has(Ipv6Addr::from(key.source).into()),
            _ => false,
        }
    }
}

impl Field {
    /// Returns the tables of the frame field with the index `which`. Returns `None` if no rule matches this
    /// field.
    fn of(compiled: &Compiled, which: usize) -> Option<Field> {
        let at = HEAD_WORDS + 4 * which;
        match compiled.conf.get(at..at + 4) {
            Some([present, rows, table, table6]) if *present != 0 => {
                Some(Field { which, rows: wide(*rows), table: wide(*table), table6: wide(*table6) })
            }
            _ => None,
        }
    }
}

impl Probe {
    /// Returns the probe with this index. Returns `None` if the filter has fewer probes.
    fn of(compiled: &Compiled, index: usize) -> Option<Probe> {
        let at = HEAD_WORDS + 4 * FIELDS + 6 * index;
        let Some([low, high, length, base, offset, rows]) = compiled.conf.get(at..at + 6) else {
            return None;
        };
        if *length == 0 {
            return None;
        }
        // Both halves are in memory order.
        let mut mask = [0; 8];
        for (to, from) in mask.iter_mut().zip(low.to_ne_bytes().into_iter().chain(high.to_ne_bytes())) {
            *to = from;
        }
        Some(Probe {
            base: wide(*base),
            offset: wide(*offset),
            length: wide(*length),
            mask: u64::from_ne_bytes(mask),
            rows: wide(*rows),
        })
    }
}

/// Returns the action of a rule in the form that workers apply, with the parameters of its rate limit bucket.
fn deed(rule: &Rule) -> Result<Deed, FilterError> {
    let hook = |action| Err(FilterError::NeedsHook { rule: rule.name.clone(), action });
    match &rule.action {
        Action::Drop => Ok(Deed::Drop),
        Action::Pass => Ok(Deed::Pass),
        Action::Count => Ok(Deed::Count),
        Action::RateLimit { rate, per_source } => {
            let (cost, burst) = bucket(rate.amount, rate.per.as_nanos(), rate.burst);
            let by_bytes = rate.unit == RateUnit::Bytes;
            Ok(Deed::Limit { cost, burst, by_bytes, per_source: per_source.map(masks) })
        }
        Action::Sample { .. } => hook("sample"),
        Action::SynCookie(_) => hook("syncookie"),
    }
}

fn masks(bits: SourceBits) -> (u32, u128) {
    let v4 = u32::MAX.checked_shl(32 - u32::from(bits.ipv4.min(32))).unwrap_or(0);
    (v4, u128::MAX.checked_shl(128 - u32::from(bits.ipv6.min(128))).unwrap_or(0))
}

fn source4(key: &Key) -> Ipv4Addr {
    let [a, b, c, d, ..] = key.source;
    Ipv4Addr::new(a, b, c, d)
}

fn lowest(bits: u64) -> usize {
    wide(bits.trailing_zeros())
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
