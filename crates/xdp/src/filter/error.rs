//! Errors in rules and block lists. Every message names the rule or the line, the cause and the next step.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use super::limits::{PATTERN_MAX, PROBES_MAX, RULES_MAX, SERVICES_MAX};

/// Reason why rules cannot become a filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The number of rules exceeds the number of bits in a row.
    #[error(
        "filter: {count} rules, with the one for unreadable frames, are too many; one filter holds {RULES_MAX}: join prefixes and ports of alike rules, or use the block list"
    )]
    TooManyRules {
        /// Number of rules given.
        count: usize,
    },
    /// The rule's name contains characters that are not allowed, or has an invalid length.
    #[error("filter rule \"{rule}\": not a name; use 1 to 63 letters, digits, '-', '_' and '.'")]
    Name {
        /// Name given.
        rule: String,
    },
    /// Two rules have the same name, so their counters would be ambiguous.
    #[error("filter rule \"{rule}\": two rules have this name; rename one")]
    Duplicate {
        /// Name of the rules.
        rule: String,
    },
    /// A range is empty or exceeds the maximum of its field.
    #[error(
        "filter rule \"{rule}\": {field} {first}-{last} is no range; give the lower end first, and at most {most}"
    )]
    Range {
        /// Name of the rule.
        rule: String,
        /// Name of the field.
        field: &'static str,
        /// Lower end given.
        first: u16,
        /// Upper end given.
        last: u16,
        /// Maximum value of the field.
        most: u16,
    },
    /// The value has TCP flags outside the mask, so the rule can never match.
    #[error(
        "filter rule \"{rule}\": TCP flags {value:#04x} are not all in the mask {mask:#04x}; add them to the mask"
    )]
    Flags {
        /// Name of the rule.
        rule: String,
        /// Mask given.
        mask: u8,
        /// Value given.
        value: u8,
    },
    /// A pattern has no bytes, too many bytes, or a mask of another length.
    #[error(
        "filter rule \"{rule}\": a pattern of {bytes} bytes with a mask of {mask}; give 1 to {PATTERN_MAX} bytes, and a mask of as many or none"
    )]
    Pattern {
        /// Name of the rule.
        rule: String,
        /// Number of pattern bytes.
        bytes: usize,
        /// Number of mask bytes.
        mask: usize,
    },
    /// A byte of the pattern has bits outside the mask.
    #[error(
        "filter rule \"{rule}\": byte {at} of a pattern has bits outside its mask; clear them, or widen the mask"
    )]
    PatternMask {
        /// Name of the rule.
        rule: String,
        /// Index of the byte in the pattern.
        at: usize,
    },
    /// The patterns examine more distinct places than the hook supports.
    #[error(
        "filter rule \"{rule}\": its pattern would be the {count}th place that this filter looks at, counted in pieces of eight bytes with the same mask; {PROBES_MAX} are possible: shorten patterns, or let rules look at the same places"
    )]
    TooManyPlaces {
        /// Name of the rule that exceeds the limit.
        rule: String,
        /// Number of places so far.
        count: usize,
    },
    /// The rule has conditions that exclude each other.
    #[error("filter rule \"{rule}\": it never matches: {cause}; change one, or remove the rule")]
    NeverMatches {
        /// Name of the rule.
        rule: String,
        /// Description of the contradiction.
        cause: &'static str,
    },
    /// The rate limit is outside the supported range.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Rate {
        /// Name of the rule.
        rule: String,
        /// Description of the error.
        cause: &'static str,
        /// Advice on valid values.
        advice: &'static str,
    },
    /// The sampling interval is 0.
    #[error("filter rule \"{rule}\": one sample in 0 frames is not possible; give at least 1")]
    Sample {
        /// Name of the rule.
        rule: String,
    },
    /// The number of rules with cookies exceeds the limit of a filter.
    #[error(
        "filter: {count} rules with cookies are too many; one filter holds {SERVICES_MAX}: give several addresses and ports to one"
    )]
    TooManyServices {
        /// Number of rules given.
        count: usize,
    },
    /// The SYN cookie parameters of the rule are invalid.
    #[error("filter rule \"{rule}\": {cause}; {advice}")]
    Cookie {
        /// Name of the rule.
        rule: String,
        /// Description of the error.
        cause: &'static str,
        /// Advice on valid values.
        advice: &'static str,
    },
    /// The action is supported only by a hook, and the port has none.
    #[error(
        "filter rule \"{rule}\": action \"{action}\" needs a driver hook, and the port has none; take the rule out of this filter, or give the port another filter"
    )]
    NeedsHook {
        /// Name of the rule.
        rule: String,
        /// Name of the action in configuration files.
        action: &'static str,
    },
    /// The prefix length exceeds the length of the address.
    #[error("prefix {address}/{length}: too long; IPv4 has 32 bits and IPv6 128")]
    PrefixLength {
        /// Address of the prefix.
        address: IpAddr,
        /// Length given.
        length: u8,
    },
    /// The text is not a prefix.
    #[error("prefix \"{0}\": not an address with a length, such as 192.0.2.0/24 or 2001:db8::/32")]
    PrefixText(String),
    /// The tables of the rule set would exceed a limit.
    #[error(
        "filter: its {table} would take more than {limit}; join prefixes and ports of alike rules, or use the block list"
    )]
    Tables {
        /// Name of the table.
        table: &'static str,
        /// Limit of the table.
        limit: &'static str,
    },
    /// A line of a block list does not begin with an address or a prefix.
    #[error("block list {}, line {line}: the line does not begin with an address or a prefix; correct it, or begin the line with #", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
    },
    /// A block list file cannot be read.
    #[error("block list {}: {source}; check the path and its permissions", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error that the kernel returned.
        source: io::Error,
    },
}
