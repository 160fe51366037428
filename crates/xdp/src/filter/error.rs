//! Errors in filter rules and block lists. Every message names the rule or the line, the cause and the next
//! step.

use std::io;
use std::path::PathBuf;

use super::limits::{PATTERN_MAX, PROBES_MAX, RULES_MAX, SERVICES_MAX};

/// Reason why rules cannot be compiled to a filter, or why a block list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The number of filter rules exceeds the number that one filter can have.
    #[error(
        "filter: {count} rules, with the one for unreadable frames, are too many; one filter holds {RULES_MAX}: join prefixes and ports of alike rules, or use the block list"
    )]
    TooManyRules {
        /// Number of filter rules, including the additional rule for unreadable frames.
        count: usize,
    },
    /// The rule's name contains characters that are not allowed, or has an invalid length.
    #[error("filter rule \"{rule}\": not a name; use 1 to 63 letters, digits, '-', '_' and '.'")]
    Name {
        /// Name of the rule as it was given.
        rule: String,
    },
    /// Two rules have the same name, so their counters would be ambiguous.
    #[error("filter rule \"{rule}\": two rules have this name; rename one")]
    Duplicate {
        /// Name that two rules have.
        rule: String,
    },
    /// A range of values in a rule is empty, or exceeds the maximum of its field.
    #[error(
        "filter rule \"{rule}\": {field} {first}-{last} is no range; give the lower end first, and at most {most}"
    )]
    Range {
        /// Name of the rule with the invalid range.
        rule: String,
        /// Name of the field to which the range applies.
        field: &'static str,
        /// Lower end of the range that was given.
        first: u16,
        /// Upper end of the range that was given.
        last: u16,
        /// Maximum value that the field can have.
        most: u16,
    },
    /// The rule requires a TCP flag that its mask does not select, so the rule can never match.
    #[error(
        "filter rule \"{rule}\": TCP flags {value:#04x} are not all in the mask {mask:#04x}; add them to the mask"
    )]
    Flags {
        /// Name of the rule with the TCP flags.
        rule: String,
        /// Mask of TCP flags that was given.
        mask: u8,
        /// Value of TCP flags that was given.
        value: u8,
    },
    /// A byte pattern is empty or too long, or its mask has a different length.
    #[error(
        "filter rule \"{rule}\": a pattern of {bytes} bytes with a mask of {mask}; give 1 to {PATTERN_MAX} bytes, and a mask of as many or none"
    )]
    Pattern {
        /// Name of the rule with the byte pattern.
        rule: String,
        /// Number of bytes in the pattern.
        bytes: usize,
        /// Number of bytes in the pattern's mask.
        mask: usize,
    },
    /// A byte of the pattern's value has bits that the pattern's mask does not select.
    #[error(
        "filter rule \"{rule}\": byte {at} of a pattern has bits outside its mask; clear them, or widen the mask"
    )]
    PatternMask {
        /// Name of the rule with the byte pattern.
        rule: String,
        /// Index of the byte in the pattern, counted from 0.
        at: usize,
    },
    /// The byte patterns of the rules examine more distinct places than the XDP program supports.
    #[error(
        "filter rule \"{rule}\": its pattern would be the {count}th place that this filter looks at, counted in pieces of eight bytes with the same mask; {PROBES_MAX} are possible: shorten patterns, or let rules look at the same places"
    )]
    TooManyPlaces {
        /// Name of the rule that exceeds the limit.
        rule: String,
        /// Number of distinct places in a frame, including the place that exceeds the limit.
        count: usize,
    },
    /// The rule has conditions that exclude each other.
    #[error("filter rule \"{rule}\": it never matches: {cause}; change one, or remove the rule")]
    NeverMatches {
        /// Name of the rule that can never match.
        rule: String,
        /// Description of the conditions that exclude each other.
        cause: &'static str,
    },
    /// The rate limit is outside the supported range.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Rate {
        /// Name of the rule with the rate limit.
        rule: String,
        /// Description of what is wrong with the rate limit.
        cause: &'static str,
        /// Advice on valid values of the rate limit.
        advice: &'static str,
    },
    /// The sampling interval of the rule is 0.
    #[error("filter rule \"{rule}\": one sample in 0 frames is not possible; give at least 1")]
    Sample {
        /// Name of the rule that samples frames.
        rule: String,
    },
    /// The number of rules with SYN cookies exceeds the limit of one filter.
    #[error(
        "filter: {count} rules with cookies are too many; one filter holds {SERVICES_MAX}: give several addresses and ports to one"
    )]
    TooManyServices {
        /// Number of rules with SYN cookies that were given.
        count: usize,
    },
    /// The SYN cookie parameters of the rule are invalid.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Cookie {
        /// Name of the rule with SYN cookies.
        rule: String,
        /// Description of what is wrong with the SYN cookie parameters.
        cause: &'static str,
        /// Advice on valid values of the SYN cookie parameters.
        advice: &'static str,
    },
    /// The action of the rule is supported only by an XDP program, and the port has none.
    #[error(
        "filter rule \"{rule}\": action \"{action}\" needs a driver hook, and the port has none; take the rule out of this filter, or give the port another filter"
    )]
    NeedsHook {
        /// Name of the rule with the unsupported action.
        rule: String,
        /// Name of the action in configuration files.
        action: &'static str,
    },
    /// A table of the compiled rule set would exceed its limit.
    #[error(
        "filter: its {table} would take more than {limit}; join prefixes and ports of alike rules, or use the block list"
    )]
    Tables {
        /// Name of the table that would exceed its limit.
        table: &'static str,
        /// Maximum size of the table, as text for the error message.
        limit: &'static str,
    },
    /// A line of a block list does not begin with an address or a prefix.
    #[error("block list {}, line {line}: the line does not begin with an address or a prefix; correct it, or begin the line with #", path.display())]
    Line {
        /// Path of the block list file.
        path: PathBuf,
        /// Number of the line in the file, counted from 1.
        line: usize,
    },
    /// A block list file cannot be read.
    #[error("block list {}: {source}; check the path and its permissions", path.display())]
    File {
        /// Path of the block list file.
        path: PathBuf,
        /// Error that the kernel returned for the file.
        source: io::Error,
    },
}
