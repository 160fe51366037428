//! Configuration of filters. The rules of a filter are applied to received packets before any other processing. The
//! hook (XDP program) of a port applies them, or a worker if the port has no hook. A rule drops, passes, counts,
//! samples or limits packets.
//!
//! The types are plain values in the grammar of docs/config.md. The daemon converts them to the format of the
//! hook. A match condition that is an empty list matches every packet. A packet must match every list that is
//! not empty.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod load;
pub(crate) mod state;

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    Family, FragmentState, Pattern, Prefix, Protocol, RateUnit, RuleName, SourceBits, Span, TcpFlags,
    Timestamp, VlanMatch,
};

/// A filter: its rules and the file of its block list. Any number of ports may share one filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Filter {
    /// Path of the block list file, with one source prefix per line. Rules with `listed` match sources in
    /// this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocklist: Option<PathBuf>,
    /// Handling of packets whose headers cannot be parsed up to the fields that rules match. Applies if no
    /// rule decides on the packet.
    #[serde(skip_serializing_if = "Unreadable::is_usual")]
    pub unreadable: Unreadable,
    /// Rules of the filter. The rule with the highest priority is evaluated first. Rules of equal priority
    /// are evaluated in the order of the list.
    #[serde(rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// Handling of packets whose headers cannot be parsed up to the fields that rules match. Applies if no rule
/// decides on the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unreadable {
    /// Drops the packets if a rule of the filter that matches header fields drops or limits packets.
    #[default]
    Drop,
    /// Passes the packets. A sender can then evade all rules that match header fields.
    Pass,
}

impl Unreadable {
    /// Words that name the values in the configuration file, in the order of [`Unreadable::ALL`].
    pub const WORDS: &'static [&'static str] = &["drop", "pass"];
    /// All ways to handle packets whose headers cannot be parsed.
    pub const ALL: [Unreadable; 2] = [Unreadable::Drop, Unreadable::Pass];

    /// Returns whether the value is the default. A default value need not be written to a configuration file.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub fn is_usual(&self) -> bool {
        *self == Unreadable::Drop
    }

    /// Returns the word for the value in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            Unreadable::Drop => "drop",
            Unreadable::Pass => "pass",
        }
    }
}

/// A rule of a filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FilterRule {
    /// Name of the rule. A rule that replaces a rule with an equal name keeps the counters of the replaced
    /// rule.
    pub name: RuleName,
    /// Priority of the rule. Rules with a higher priority are evaluated first.
    pub priority: u32,
    /// Action of the rule.
    #[serde(flatten)]
    pub action: FilterAction,
    /// Whether the rule only counts the packets that its action would affect, without applying the action.
    pub dry_run: bool,
    /// Time from which the rule matches no packets. `None`: the rule does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Match conditions of the rule.
    #[serde(flatten)]
    pub matches: FilterMatch,
}

/// Action of a rule on a matching packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum FilterAction {
    /// Drops the packet.
    Drop,
    /// Passes the packet. Later rules are not evaluated.
    Pass,
    /// Counts the packet. Later rules are evaluated.
    Count,
    /// Copies the head of randomly sampled packets to user space. Later rules are evaluated.
    Sample(Sampling),
    /// Drops packets that exceed a rate. Later rules are evaluated for the other packets.
    Limit(RateLimit),
    /// Requires a SYN cookie from the clients of a TCP service before the service receives their connections.
    SynCookie(SynCookie),
}

impl FilterAction {
    /// Returns the word for the action in the configuration file.
    pub fn name(&self) -> &'static str {
        match self {
            FilterAction::Drop => "drop",
            FilterAction::Pass => "pass",
            FilterAction::Count => "count",
            FilterAction::Sample(_) => "sample",
            FilterAction::Limit(_) => "limit",
            FilterAction::SynCookie(_) => "syncookie",
        }
    }

    /// Returns whether only a hook (XDP program), and not a worker, can perform the action.
    pub fn needs_hook(&self) -> bool {
        matches!(self, FilterAction::Sample(_) | FilterAction::SynCookie(_))
    }
}

/// Parameters of a rule that samples packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sampling {
    /// Average number of packets per sample, at least 1.
    pub one_in: u32,
}

/// Rate limit of a rule: the parameters of its token buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RateLimit {
    /// Number of units that are permitted in each period.
    pub rate: u64,
    /// Unit of the rate and the burst.
    pub unit: RateUnit,
    /// Length of the period for which `rate` is permitted, in seconds.
    pub per: u32,
    /// Size of the token bucket: number of units that are permitted in one burst.
    pub burst: u64,
    /// Prefix lengths that group the source addresses. Each group has its own token bucket. `None`: the rule
    /// has one bucket for all sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_source: Option<SourceBits>,
}

/// Parameters of SYN cookies for a TCP service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SynCookie {
    /// SYN cookie scheme, which determines the endpoint that accepts a connection.
    pub scheme: CookieScheme,
    /// Condition under which SYNs are answered with cookies.
    pub mode: CookieMode,
    /// Number of SYNs per second that are passed to the service without a cookie in the mode "auto".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u32>,
    /// Time to live (for IPv6, hop limit) of the packets that answer SYNs.
    pub ttl: u8,
    /// Largest segment size that the service accepts, for the scheme "cookie". `None`: 1460 bytes for IPv4,
    /// 1440 bytes for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// TCP window scale of the kernel of the service, for the scheme "cookie". `None`: the answers offer no
    /// window scale, SACK or timestamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wscale: Option<u8>,
    /// Seconds for which SYNs from the address of a verified client pass without a cookie, for the scheme
    /// "retry".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<u32>,
}

/// SYN cookie scheme: determines which endpoint (the service or the kernel of this machine) accepts the connection
/// after the client has returned the cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CookieScheme {
    /// The service accepts the connection when the client repeats its SYN. The service may run on any host.
    Retry,
    /// The kernel of this machine, on which the service runs, accepts the connection by means of the returned cookie.
    Cookie,
}

impl CookieScheme {
    /// Words that name the schemes in the configuration file, in the order of [`CookieScheme::ALL`].
    pub const WORDS: &'static [&'static str] = &["retry", "cookie"];
    /// All SYN cookie schemes.
    pub const ALL: [CookieScheme; 2] = [CookieScheme::Retry, CookieScheme::Cookie];
}

/// Condition under which SYNs are answered with cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CookieMode {
    /// Answers SYNs with cookies while SYNs arrive at a higher rate than may pass to the service.
    Auto,
    /// Answers all SYNs with cookies.
    Always,
}

impl CookieMode {
    /// Words that name the modes in the configuration file, in the order of [`CookieMode::ALL`].
    pub const WORDS: &'static [&'static str] = &["auto", "always"];
    /// All SYN cookie modes.
    pub const ALL: [CookieMode; 2] = [CookieMode::Auto, CookieMode::Always];
}

/// Match conditions of a rule. A packet must fulfil all conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FilterMatch {
    /// Protocol families. The frame must have one of these families, after up to 16 VLAN tags.
    #[serde(rename = "family", skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// Fragment states, one of which the packet must have.
    #[serde(rename = "fragment", skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<FragmentState>,
    /// IP protocols, one of which the packet must have. For IPv6, the protocol is that of the header after the
    /// extension headers.
    #[serde(rename = "protocol", skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
    /// Prefixes, one of which must contain the source address.
    #[serde(rename = "source", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Prefix>,
    /// Prefixes, one of which must contain the destination address.
    #[serde(rename = "destination", skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Prefix>,
    /// Ranges, one of which must contain the source port.
    #[serde(rename = "source_port", skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<Span>,
    /// Ranges, one of which must contain the destination port.
    #[serde(rename = "destination_port", skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<Span>,
    /// Ranges, one of which must contain the frame length in bytes, not including the frame check sequence.
    #[serde(rename = "length", skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<Span>,
    /// VLANs, one of which the frame must have. The VLAN of a frame is the identifier of its outermost tag
    /// with a nonzero identifier.
    #[serde(rename = "vlan", skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<VlanMatch>,
    /// TCP flags that the packet must have set or cleared.
    #[serde(skip_serializing_if = "TcpFlags::is_any")]
    pub tcp_flags: TcpFlags,
    /// Byte patterns, all of which the packet must contain.
    #[serde(rename = "pattern", skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
    /// Whether the source address must be in the block list of the filter.
    pub listed: bool,
}

impl FilterMatch {
    /// Returns the reason why the conditions do not match all segments of a TCP service, and the
    /// remedy. Returns `None` if the conditions match all segments, as SYN cookies require.
    pub fn no_service(&self) -> Option<(&'static str, &'static str)> {
        if self.protocols.iter().any(|protocol| *protocol != Protocol::TCP) {
            return Some(("cookies are TCP's alone", "leave `protocol` out"));
        }
        if self.destinations.is_empty() || self.destination_ports.is_empty() {
            return Some(("it names no service", "give it `destination` and `destination_port`"));
        }
        let parts = !self.tcp_flags.is_any()
            || !self.lengths.is_empty()
            || !self.patterns.is_empty()
            || !self.fragments.is_empty();
        parts.then_some((
            "only some segments of a connection would match",
            "leave `tcp_flags`, `length`, `pattern` and `fragment` out",
        ))
    }

    /// Returns the reason why no packet can fulfil all conditions. Returns `None` if the conditions do not exclude each
    /// other.
    pub fn contradiction(&self) -> Option<&'static str> {
        let of = |family| self.families.is_empty() || self.families.contains(&family);
        let has = |list: &[Prefix], v6| list.is_empty() || list.iter().any(|p| p.address().is_ipv6() == v6);
        let possible = |family, v6| of(family) && has(&self.sources, v6) && has(&self.destinations, v6);
        let ip = !self.sources.is_empty()
            || !self.destinations.is_empty()
            || !self.protocols.is_empty()
            || !(self.fragments.is_empty() || self.fragments.contains(&FragmentState::Unreadable))
            || self.listed;
        if ip && !possible(Family::Ipv4, false) && !possible(Family::Ipv6, true) {
            return Some("no IP family has all the prefixes and protocols that it asks for");
        }
        let any = |wanted: fn(Protocol) -> bool| {
            self.protocols.is_empty() || self.protocols.iter().any(|protocol| wanted(*protocol))
        };
        let ports = !self.source_ports.is_empty() || !self.destination_ports.is_empty();
        if ports && !any(Protocol::has_ports) {
            return Some("it asks for ports of protocols that have none");
        }
        if !self.tcp_flags.is_any() && !any(|protocol| protocol == Protocol::TCP) {
            return Some("it asks for TCP flags of other protocols");
        }
        None
    }
}
