//! Configuration of filters. The rules of a filter are applied to received packets before any other
//! processing. The driver hook of a port applies them, or a worker if the port has no hook. A rule drops,
//! passes, counts, samples or limits packets.
//!
//! The types are plain values in the grammar of docs/config.md. The daemon converts them to the format of the
//! hook. A match condition that is an empty list matches every packet. A packet must match every list that is
//! not empty.

use std::path::PathBuf;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::{Prefix, RuleName, Timestamp};

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
    /// Drops the packets if a rule of the filter drops or limits packets by header fields.
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

    /// Returns the configuration word of the value.
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
    /// Returns the configuration word of the action.
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

    /// Returns whether only a driver hook can perform the action.
    pub fn needs_hook(&self) -> bool {
        matches!(self, FilterAction::Sample(_) | FilterAction::SynCookie(_))
    }
}

/// Parameters of the sampling of packets.
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
    /// The kernel of this machine, on which the service runs, accepts the connection from the returned
    /// cookie.
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

/// Unit in which a rate limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RateUnit {
    /// The rate limit counts packets.
    Packets,
    /// The rate limit counts bytes of frames, without the frame check sequence.
    Bytes,
}

/// Prefix lengths that group source addresses. The sources of one prefix share a token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SourceBits {
    /// Prefix length for IPv4 source addresses, 0 to 32.
    pub ipv4: u8,
    /// Prefix length for IPv6 source addresses, 0 to 128.
    pub ipv6: u8,
}

/// Match conditions of a rule. A packet must meet all conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FilterMatch {
    /// Protocol families, one of which the frame must carry behind up to 16 VLAN tags.
    #[serde(rename = "family", skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// Fragment states, one of which the packet must have.
    #[serde(rename = "fragment", skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<FragmentState>,
    /// IP protocols, one of which the packet must have. For IPv6, the protocol is that of the header behind
    /// the extension headers.
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

/// Protocol family of a frame behind its VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// The frame carries an IPv4 packet.
    Ipv4,
    /// The frame carries an IPv6 packet.
    Ipv6,
    /// A protocol other than IPv4 and IPv6, or a frame with too many VLAN tags to reach the protocol.
    Other,
    /// An IP header that is truncated or of an unknown version.
    Malformed,
}

impl Family {
    /// Words that name the families in the configuration file, in the order of [`Family::ALL`].
    pub const WORDS: &'static [&'static str] = &["ipv4", "ipv6", "other", "malformed"];
    /// All protocol families.
    pub const ALL: [Family; 4] = [Family::Ipv4, Family::Ipv6, Family::Other, Family::Malformed];
}

/// Fragment state of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentState {
    /// The packet is not a fragment, or is the only fragment.
    Whole,
    /// The packet is the first of several fragments, which contains the transport header.
    First,
    /// The packet is a later fragment, which contains no ports.
    Later,
    /// The headers cannot be parsed up to the fields that the rules of the filter match. This applies to
    /// packets of any family. VLAN tags, options, extension headers or the transport header are truncated or
    /// too many, or a fragment can overlap the transport header of the first fragment.
    Unreadable,
}

impl FragmentState {
    /// Words that name the fragment states in the configuration file, in the order of [`FragmentState::ALL`].
    pub const WORDS: &'static [&'static str] = &["whole", "first", "later", "unreadable"];
    /// All fragment states.
    pub const ALL: [FragmentState; 4] =
        [FragmentState::Whole, FragmentState::First, FragmentState::Later, FragmentState::Unreadable];
}

/// An IP protocol number (IANA protocol-numbers). The configuration file uses words for common protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Protocol number of TCP.
    pub const TCP: Protocol = Protocol(6);
    /// Words that name common protocols in the configuration file, with their protocol numbers.
    pub const WORDS: [(&'static str, u8); 10] = [
        ("icmp", 1),
        ("igmp", 2),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("gre", 47),
        ("esp", 50),
        ("icmpv6", 58),
        ("sctp", 132),
        ("udplite", 136),
    ];

    /// Returns whether the header of the protocol begins with a source port and a destination port.
    pub fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match Protocol::WORDS.iter().find(|(_, number)| *number == self.0) {
            Some((word, _)) => to.serialize_str(word),
            None => to.serialize_u8(self.0),
        }
    }
}

/// An inclusive range of numbers, written as `7` or `"7-9"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Lowest number of the range.
    pub first: u16,
    /// Highest number of the range.
    pub last: u16,
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => to.serialize_u16(self.first),
            false => to.collect_str(&format_args!("{}-{}", self.first, self.last)),
        }
    }
}

/// VLAN condition of a rule. The VLAN of a frame is the identifier of its outermost tag with a nonzero
/// identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VlanMatch {
    /// Matches frames without a nonzero VLAN identifier.
    Untagged,
    /// Matches frames with a VLAN identifier in this range, 0 to 4095. The value 0 matches untagged frames,
    /// because a tag with identifier 0 carries only a priority.
    Tagged(Span),
}

impl Serialize for VlanMatch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            VlanMatch::Untagged => to.serialize_str("untagged"),
            VlanMatch::Tagged(ids) => ids.serialize(to),
        }
    }
}

/// TCP flag condition (RFC 9293 section 3.1). For example, `["syn", "!ack"]` matches packets with SYN and
/// without ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFlags {
    /// TCP flags that are compared. If 0, the packet need not be TCP.
    pub mask: u8,
    /// TCP flags of `mask` that must be set. The other flags of `mask` must be cleared.
    pub value: u8,
}

impl TcpFlags {
    /// Names of the TCP flags, starting at the lowest bit.
    pub const WORDS: [&'static str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

    /// Returns whether the condition compares no flag and therefore matches every packet.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub fn is_any(&self) -> bool {
        self.mask == 0
    }
}

impl Serialize for TcpFlags {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let looked_at = TcpFlags::WORDS.iter().zip(0..8_u8).filter(|(_, bit)| self.mask >> bit & 1 != 0);
        to.collect_seq(looked_at.map(|(word, bit)| match self.value >> bit & 1 {
            0 => format!("!{word}"),
            _ => (*word).to_owned(),
        }))
    }
}

/// A byte pattern at an offset in a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Position in the packet from which the offset is counted.
    pub base: PatternBase,
    /// Offset of the pattern in bytes, counted from `base`.
    pub offset: u16,
    /// Bytes of the pattern, 1 to 32.
    pub bytes: Vec<u8>,
    /// Mask of the bits that are compared. The mask has as many bytes as the pattern. Empty: all bits are
    /// compared.
    pub mask: Vec<u8>,
}

impl Pattern {
    /// Maximum number of bytes in a pattern.
    pub const LIMIT: usize = 32;
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("at", &self.base)?;
        map.serialize_entry("offset", &self.offset)?;
        map.serialize_entry("bytes", &hex(&self.bytes))?;
        if !self.mask.is_empty() {
            map.serialize_entry("mask", &hex(&self.mask))?;
        }
        map.end()
    }
}

/// Position in a packet from which the offset of a pattern is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatternBase {
    /// First byte of the destination Ethernet address.
    Frame,
    /// First byte of the IP header.
    Network,
    /// First byte behind the IP header and its extension headers.
    Transport,
    /// First byte behind the TCP, UDP or UDP-Lite header.
    Payload,
}

impl PatternBase {
    /// Keywords of the configuration file for the positions in the packet, in the order of [`PatternBase::ALL`].
    pub const WORDS: &'static [&'static str] = &["frame", "network", "transport", "payload"];
    /// All positions from which the offset of a pattern can be counted.
    pub const ALL: [PatternBase; 4] =
        [PatternBase::Frame, PatternBase::Network, PatternBase::Transport, PatternBase::Payload];
}

impl FilterMatch {
    /// Returns the reason why the conditions do not match all segments of a TCP service, and the remedy. SYN cookies
    /// require that the conditions match all segments. Returns `None` if the conditions do so.
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

    /// Returns the reason why no packet can meet all conditions. Returns `None` if the conditions do not
    /// exclude each other.
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
