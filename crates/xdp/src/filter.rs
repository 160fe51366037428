//! Packet filter of a port's XDP program. Rules are compiled to tables that the program reads. The rules have
//! counters, and can be replaced while frames are processed.
//!
//! ```text
//!  RuleSet --check, compile--> Compiled --maps--> Filter --Attached::set_stage--> the port's program
//!                                                   |  \
//!                                    counters, samples  Blocklist (millions of source prefixes)
//! ```
//!
//! The maps of a rule set are written once. A change creates new maps and a new program, which a link update
//! puts in place. A frame is therefore processed with either the old rules or the new ones. Counters, rate
//! limit buckets and the block list are kept when the rule set is replaced. Rule matching is described in
//! `bpf/README.md`.
//!
//! For ports without an XDP program, the workers apply the rules in user space. [`WorkerFilter`] reads the
//! same tables in plain Rust, with counters and buckets of its own ([`Tally`]).

mod bits;
mod blocklist;
mod check;
mod compiled;
mod cookie;
mod error;
mod key;
mod limits;
mod maps;
mod rule;
mod sample;
mod table;
mod table_maps;
mod tally;
mod trie;
mod worker;

pub use blocklist::{Blocklist, FormerList, ListView, list_of, read_list};
pub use compiled::Compiled;
pub use cookie::CookieCounters;
pub use error::FilterError;
pub use key::Frame;
pub use limits::{FilterSizes, PATTERN_MAX, PROBES_MAX, RULES_MAX, SERVICES_MAX};
pub use maps::{Filter, RuleCounters};
pub use rule::{Action, CookieScheme, Match, Moment, Rate, Rule, RuleSet, SynCookie, Unreadable};
pub use sample::{Sample, Samples};
pub use tally::Tally;
pub use worker::{Judged, Look, WorkerFilter};

pub(crate) use compiled::CONF_WORDS;
#[cfg(test)]
pub(crate) use cookie::{ANSWER_WORDS, CLIENT_SIZE, SERVICES_CAPACITY};
pub(crate) use maps::FilterMaps;
