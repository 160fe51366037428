//! Limits of a filter and the sizes of its maps. The limits are equal to those in
//! `bpf/include/filter_layout.h`.

/// Maximum number of rules in one rule set (`FILTER_RULES_MAX`).
pub const RULES_MAX: usize = 4096;
/// Maximum number of rules with SYN cookies in one rule set: half of `FILTER_SERVICES_MAX`.
pub const SERVICES_MAX: usize = 64;
/// Maximum number of distinct places (base, offset, mask) of eight bytes each that the byte patterns of a rule set may
/// examine (`FILTER_PROBES_MAX`).
pub const PROBES_MAX: usize = 8;
/// Maximum length of a byte pattern in bytes.
pub const PATTERN_MAX: usize = 32;

/// Sizes of the maps that a filter keeps when its rule set is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSizes {
    /// Maximum number of filter rules in each rule set that the filter gets, including the rule for unreadable frames.
    /// 1 to 4096.
    pub rules: usize,
    /// Maximum number of source prefixes with a rate limit bucket at a time. When there are more, the bucket
    /// of the least recently seen source is evicted. The evicted source starts with a full bucket when it is
    /// seen again.
    pub sources: u32,
    /// Size of the ring buffer for sampled frames in bytes. A power of two and a multiple of the page size.
    pub samples: u32,
    /// Maximum number of clients, or connections of clients, that are stored for rules with SYN cookies. When there are
    /// more, the least recently seen client or connection is evicted.
    pub clients: u32,
}

impl Default for FilterSizes {
    fn default() -> FilterSizes {
        FilterSizes { rules: 1024, sources: 65_536, samples: 1 << 20, clients: 131_072 }
    }
}
