//! The filter stage of the hook: rules compiled to tables, put under a port's program, counted,
//! and replaced while frames flow.
//!
//! ```text
//!  RuleSet --check, compile--> Compiled --maps--> Filter --Attached::set_filter--> the port's program
//!                                                   |  \
//!                                    counters, samples  Blocklist (million of source prefixes)
//! ```
//!
//! A set of rules is a set of maps that is never written again: a change makes new maps and a
//! new program, which a link update puts in place, so a frame meets the old rules or the new
//! ones and never a mixture. Counters, buckets and the block list outlive the set. How rules are
//! matched stands in `bpf/README.md`.
//!
//! Ports that have no hook have the same rules in their workers: [`WorkerFilter`] reads the same tables in plain Rust, over
//! counters and buckets of its own ([`Tally`]).

mod bits;
mod blocklist;
mod check;
mod compiled;
mod cookie;
mod error;
mod key;
mod maps;
mod rule;
mod sample;
mod table;
mod tally;
mod trie;
mod worker;

pub use blocklist::{Blocklist, ListView, list_of, read_list};
pub use compiled::Compiled;
pub use cookie::CookieCounters;
pub use error::FilterError;
pub use key::Frame;
pub use maps::{Filter, FilterSizes, RuleCounters};
pub use rule::{
    Action, Base, CookieScheme, Family, Fragment, Match, Moment, PATTERN_MAX, PROBES_MAX, Pattern, Prefix,
    RULES_MAX, Rate, Rule, RuleSet, SERVICES_MAX, SourceBits, SynCookie, TcpFlags, Unit, Unreadable,
    VlanMatch,
};
pub use sample::{Sample, Samples};
pub use tally::Tally;
pub use worker::{Judged, Look, WorkerFilter};

pub(crate) use compiled::CONF_WORDS;
#[cfg(test)]
pub(crate) use cookie::{ANSWER_WORDS, CLIENT_SIZE, SERVICES_CAPACITY};
pub(crate) use maps::FilterMaps;
