//! Rules that remain in a filter after other rules have expired. The remaining rules are compiled, and their tables are
//! written to the kernel, before the data plane is locked.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::FilterName;
use xdp::filter::{Compiled, Moment, RuleSet};

use super::rule_tables::compile;

/// Filters in which rules have expired, each with its remaining rules.
pub struct Remaining {
    /// Time for which the remaining rules were computed: all other rules had expired at this time.
    pub(super) at: Moment,
    pub(super) filters: BTreeMap<FilterName, RemainingRules>,
}

/// Rules of a filter that have not expired.
pub(super) struct RemainingRules {
    pub(super) rules: RuleSet,
    /// Whether the filter needs tables, because a port refers to it.
    pub(super) needs_tables: bool,
    /// Whether hooks apply the filter.
    pub(super) in_hooks: bool,
    /// Tables of the rules. `None` until [`Remaining::compiled`] has compiled the rules.
    pub(super) compiled: Option<Arc<Compiled>>,
}

impl Remaining {
    /// Returns an empty value: no rules have expired in any filter.
    #[must_use]
    pub fn none() -> Remaining {
        Remaining { at: Moment::now(), filters: BTreeMap::new() }
    }

    /// Returns whether no rules have expired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Compiles the remaining rules, and writes the tables for hooks to the kernel. The data plane need not be locked.
    #[must_use]
    pub fn compiled(mut self) -> Remaining {
        for (name, remaining) in self.filters.iter_mut().filter(|(_, remaining)| remaining.needs_tables) {
            match compile(name, &remaining.rules, remaining.in_hooks) {
                Ok(compiled) => remaining.compiled = Some(compiled),
                Err(error) => tracing::error!(filter = %name, %error, "its expired rules cannot be removed"),
            }
        }
        self
    }
}
