//! Limits of a filter, as `bpf/include/filter_layout.h` has them.

/// Maximum number of rules in one set: `FILTER_RULES_MAX`.
pub const RULES_MAX: usize = 4096;
/// Maximum number of rules with cookies in one set: half of `FILTER_SERVICES_MAX`.
pub const SERVICES_MAX: usize = 64;
/// Maximum number of distinct places (base, offset, mask) of eight bytes each that the patterns of a set may
/// examine: `FILTER_PROBES_MAX`.
pub const PROBES_MAX: usize = 8;
/// Maximum length of a pattern in bytes.
pub const PATTERN_MAX: usize = 32;
