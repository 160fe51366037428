//! Limits of a flow table: the maximum number of flow entries, the choice of the entries that a
//! full table evicts, and the thresholds of vacancy events.
//!
//! The configuration ([`TableBounds`]) and the controllers ([`TableWishes`]) both set limits. After a hand-over to a
//! successor process, the settings of controllers are restored together with the flow entries, and the configured
//! settings are applied again from the configuration.

use std::collections::BTreeMap;

use super::SubField;
use super::message::Miss;
use super::rule::Rule;

/// Settings of a flow table that come from the configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct TableBounds {
    /// Name of the table, which takes precedence over the name that controllers set.
    pub name: Option<String>,
    /// Maximum number of flow entries in the table. `None` means [`MAX_RULES`](super::MAX_RULES).
    pub limit: Option<u32>,
    /// Whether the table evicts flow entries when it is full.
    pub evicts: bool,
    /// Fields that group flow entries for eviction. Flow entries with equal values in these fields form a
    /// group. Entries of the largest group are evicted first.
    pub groups: Vec<SubField>,
    /// Whether lookups use tries of address prefixes to skip masks of the table: tries of source addresses (first
    /// value) and of destination addresses (second value), for IPv4, IPv6 and ARP.
    pub prefixes: [bool; 2],
}

impl Default for TableBounds {
    fn default() -> Self {
        TableBounds { name: None, limit: None, evicts: false, groups: Vec::new(), prefixes: [true; 2] }
    }
}

/// Settings of a flow table that controllers set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableWishes {
    /// Name of the table. The text is empty if the table has no name.
    pub name: String,
    /// Treatment of packets that no flow entry of the table matches (OFPTC_TABLE_MISS_*).
    pub miss: Miss,
    /// Whether the table evicts flow entries when it is full (OFPTC_EVICTION).
    pub evicts: bool,
    /// Thresholds of vacancy events (OFPTC_VACANCY_EVENTS), in percent of the limit. Controllers are notified when the
    /// free space falls below the first value or rises above the second. `None` means no events.
    pub vacancy: Option<(u8, u8)>,
}

/// Settings of a flow table from the configuration and from controllers, with the state of its vacancy events.
#[derive(Default)]
pub(crate) struct Bounds {
    pub configured: TableBounds,
    pub wished: TableWishes,
    /// Whether the next vacancy event is "vacancy up" (enough free space again). If not, the next event is "vacancy
    /// down".
    pub roomy_next: bool,
}

/// Number of the table's rules that may be evicted, for each importance.
#[derive(Default)]
pub(crate) struct Evictable(BTreeMap<u16, usize>);

impl Evictable {
    /// Counts a new rule if the rule may be evicted.
    pub fn linked(&mut self, rule: &Rule) {
        if is_evictable(rule) {
            *self.0.entry(rule.importance).or_default() += 1;
        }
    }

    /// Subtracts a rule from the counts. The rule was removed, or its time-outs are about to change.
    pub fn unlinked(&mut self, rule: &Rule) {
        if is_evictable(rule)
            && let Some(count) = self.0.get_mut(&rule.importance)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&rule.importance);
            }
        }
    }

    /// Returns whether the table has a rule that may be evicted in favour of a rule of this importance.
    pub fn has_victim(&self, importance: u16) -> bool {
        self.0.range(..=importance).next().is_some()
    }
}

/// Returns whether a rule may be evicted (OpenFlow 1.5.1, 6.5).
pub(super) fn is_evictable(rule: &Rule) -> bool {
    rule.idle_timeout != 0 || rule.hard_timeout != 0 || rule.importance != 0
}
