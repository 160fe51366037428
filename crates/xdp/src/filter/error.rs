//! What can be wrong with rules and block lists. Every message names the rule or the line, the
//! cause and the next step.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use super::{PATTERN_MAX, PROBES_MAX, RULES_MAX, SERVICES_MAX};

/// Why rules cannot become a filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// More rules than bits in a row.
    #[error(
        "filter: {count} rules, with the one for unreadable frames, are too many; one filter holds {RULES_MAX}: join prefixes and ports of alike rules, or use the block list"
    )]
    TooManyRules {
        /// Rules given.
        count: usize,
    },
    /// A name that no rule may have.
    #[error("filter rule \"{rule}\": not a name; use 1 to 63 letters, digits, '-', '_' and '.'")]
    Name {
        /// What was given.
        rule: String,
    },
    /// Counters would be ambiguous.
    #[error("filter rule \"{rule}\": two rules have this name; rename one")]
    Duplicate {
        /// The name.
        rule: String,
    },
    /// A range that holds nothing, or goes beyond what the field can be.
    #[error(
        "filter rule \"{rule}\": {field} {first}-{last} is no range; give the lower end first, and at most {most}"
    )]
    Range {
        /// Name of the rule.
        rule: String,
        /// The field.
        field: &'static str,
        /// As given.
        first: u16,
        /// As given.
        last: u16,
        /// The field's highest value.
        most: u16,
    },
    /// Flags outside the mask can never be seen.
    #[error(
        "filter rule \"{rule}\": TCP flags {value:#04x} are not all in the mask {mask:#04x}; add them to the mask"
    )]
    Flags {
        /// Name of the rule.
        rule: String,
        /// As given.
        mask: u8,
        /// As given.
        value: u8,
    },
    /// A pattern without bytes, with too many, or with a mask of another length.
    #[error(
        "filter rule \"{rule}\": a pattern of {bytes} bytes with a mask of {mask}; give 1 to {PATTERN_MAX} bytes, and a mask of as many or none"
    )]
    Pattern {
        /// Name of the rule.
        rule: String,
        /// Bytes given.
        bytes: usize,
        /// Bytes of its mask.
        mask: usize,
    },
    /// A byte of the pattern has bits that the mask hides.
    #[error(
        "filter rule \"{rule}\": byte {at} of a pattern has bits outside its mask; clear them, or widen the mask"
    )]
    PatternMask {
        /// Name of the rule.
        rule: String,
        /// The byte's place in the pattern.
        at: usize,
    },
    /// The hook looks at a limited number of places.
    #[error(
        "filter rule \"{rule}\": its pattern would be the {count}th place that this filter looks at, counted in pieces of eight bytes with the same mask; {PROBES_MAX} are possible: shorten patterns, or let rules look at the same places"
    )]
    TooManyPlaces {
        /// The rule that goes beyond.
        rule: String,
        /// Places so far.
        count: usize,
    },
    /// Conditions that exclude each other.
    #[error("filter rule \"{rule}\": it never matches: {cause}; change one, or remove the rule")]
    NeverMatches {
        /// Name of the rule.
        rule: String,
        /// What contradicts what.
        cause: &'static str,
    },
    /// A rate that cannot be kept.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Rate {
        /// Name of the rule.
        rule: String,
        /// What is wrong.
        cause: &'static str,
        /// What is possible.
        advice: &'static str,
    },
    /// One in none.
    #[error("filter rule \"{rule}\": one sample in 0 frames is not possible; give at least 1")]
    Sample {
        /// Name of the rule.
        rule: String,
    },
    /// More rules with cookies than one filter has.
    #[error(
        "filter: {count} rules with cookies are too many; one filter holds {SERVICES_MAX}: give several addresses and ports to one"
    )]
    TooManyServices {
        /// Rules given.
        count: usize,
    },
    /// Cookies that cannot be asked for.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Cookie {
        /// Name of the rule.
        rule: String,
        /// What is wrong.
        cause: &'static str,
        /// What is possible.
        advice: &'static str,
    },
    /// What only a hook does, on a port without one.
    #[error(
        "filter rule \"{rule}\": action \"{action}\" needs a driver hook, and the port has none; take the rule out of this filter, or give the port another filter"
    )]
    NeedsHook {
        /// Name of the rule.
        rule: String,
        /// Its action, as files call it.
        action: &'static str,
    },
    /// A prefix length beyond the address.
    #[error("prefix {address}/{length}: too long; IPv4 has 32 bits and IPv6 128")]
    PrefixLength {
        /// The address.
        address: IpAddr,
        /// The length.
        length: u8,
    },
    /// Text that is no prefix.
    #[error("prefix \"{0}\": not an address with a length, such as 192.0.2.0/24 or 2001:db8::/32")]
    PrefixText(String),
    /// The tables of a set would be out of proportion.
    #[error(
        "filter: its {table} would take more than {limit}; join prefixes and ports of alike rules, or use the block list"
    )]
    Tables {
        /// Which.
        table: &'static str,
        /// What is allowed.
        limit: &'static str,
    },
    /// A line of a block list that is no prefix.
    #[error("block list {}, line {line}: the line does not begin with an address or a prefix; correct it, or begin the line with #", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A file that cannot be read.
    #[error("block list {}: {source}; check the path and its permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
}
