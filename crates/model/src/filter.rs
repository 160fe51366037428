//! Filters: rules by which a port's driver hook (or, where there is none, a worker) drops, passes, counts, samples or limits
//! packets before anything else sees them.
//!
//! Plain values in the grammar of docs/config.md; the hook's own form of them is made by the daemon. Every list that is
//! empty matches anything, and a packet must match every list that is not.

use std::path::PathBuf;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::{Prefix, RuleName, Timestamp};

/// The rules of a filter and the file of its block list. Any number of ports may have the same filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Filter {
    /// Source prefixes, one per line, that `listed` rules ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocklist: Option<PathBuf>,
    /// What becomes of packets in which the fields that rules ask for cannot be reached, if no rule decides on them.
    #[serde(skip_serializing_if = "Unreadable::is_usual")]
    pub unreadable: Unreadable,
    /// The rule with the highest priority is asked first, and among equals the one that stands first.
    #[serde(rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// What becomes of packets in which the fields that rules ask for cannot be reached, if no rule decides on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unreadable {
    /// They are dropped, where a rule drops or limits by what stands in headers.
    #[default]
    Drop,
    /// They pass, so that a sender can evade any such rule.
    Pass,
}

impl Unreadable {
    /// In the order of [`Unreadable::ALL`].
    pub const WORDS: &'static [&'static str] = &["drop", "pass"];
    /// All of them.
    pub const ALL: [Unreadable; 2] = [Unreadable::Drop, Unreadable::Pass];

    /// Whether it is what a file need not say.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub fn is_usual(&self) -> bool {
        *self == Unreadable::Drop
    }

    /// The word that a file has for it.
    pub fn name(self) -> &'static str {
        match self {
            Unreadable::Drop => "drop",
            Unreadable::Pass => "pass",
        }
    }
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FilterRule {
    /// Counters belong to the name: a rule that is replaced by one of the same name keeps them.
    pub name: RuleName,
    /// Higher comes first.
    pub priority: u32,
    /// What it does.
    #[serde(flatten)]
    pub action: FilterAction,
    /// It counts what it would do, and does nothing.
    pub dry_run: bool,
    /// From then on it matches nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// What it is for.
    #[serde(flatten)]
    pub matches: FilterMatch,
}

/// What a rule does with a packet that matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum FilterAction {
    /// Drops it.
    Drop,
    /// Lets it through; later rules are not asked.
    Pass,
    /// Counts it; later rules are asked.
    Count,
    /// Copies the head of one in so many at random to user space; later rules are asked.
    Sample(Sampling),
    /// Drops what exceeds a rate; the rest goes on to later rules.
    Limit(RateLimit),
    /// Asks the clients of a TCP service for a cookie before the service hears of their connections.
    SynCookie(SynCookie),
}

impl FilterAction {
    /// The word that names it in a file.
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

    /// Whether a driver hook alone can do it.
    pub fn needs_hook(&self) -> bool {
        matches!(self, FilterAction::Sample(_) | FilterAction::SynCookie(_))
    }
}

/// How often a packet is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sampling {
    /// One in so many, at least 1.
    pub one_in: u32,
}

/// A token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RateLimit {
    /// So many packets or bytes ...
    pub rate: u64,
    /// ... of which ...
    pub unit: RateUnit,
    /// ... in so many seconds.
    pub per: u32,
    /// So many at once.
    pub burst: u64,
    /// A bucket for each source prefix of this length; `None`: one for the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_source: Option<SourceBits>,
}

/// How clients of a TCP service are asked for a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SynCookie {
    /// Who accepts a connection whose client has brought its cookie.
    pub scheme: CookieScheme,
    /// When SYNs are answered.
    pub mode: CookieMode,
    /// With the mode "auto": so many SYNs a second go on to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u32>,
    /// Time to live of answers.
    pub ttl: u8,
    /// With the scheme "cookie": the longest segment that the service takes; absent: 1460 of IPv4, 1440 of IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// With the scheme "cookie": the window scale of the service's kernel; absent: no window scale, SACK and timestamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wscale: Option<u8>,
    /// With the scheme "retry": seconds for which a client's address is not asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<u32>,
}

/// Who accepts a connection whose client has brought its cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CookieScheme {
    /// The service, whoever it is, when the client tries again by itself.
    Retry,
    /// The service's kernel, which is this machine's, from the cookie.
    Cookie,
}

impl CookieScheme {
    /// In the order of [`CookieScheme::ALL`].
    pub const WORDS: &'static [&'static str] = &["retry", "cookie"];
    /// All of them.
    pub const ALL: [CookieScheme; 2] = [CookieScheme::Retry, CookieScheme::Cookie];
}

/// When SYNs are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CookieMode {
    /// While more come than go on to the service.
    Auto,
    /// Always.
    Always,
}

impl CookieMode {
    /// In the order of [`CookieMode::ALL`].
    pub const WORDS: &'static [&'static str] = &["auto", "always"];
    /// All of them.
    pub const ALL: [CookieMode; 2] = [CookieMode::Auto, CookieMode::Always];
}

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RateUnit {
    /// Packets.
    Packets,
    /// Bytes of frames, without their check sequence.
    Bytes,
}

/// Bits of a source address that share a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SourceBits {
    /// 0 to 32.
    pub ipv4: u8,
    /// 0 to 128.
    pub ipv6: u8,
}

/// What a packet must have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FilterMatch {
    /// What it carries behind up to 16 VLAN tags.
    #[serde(rename = "family", skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// Whether it is a fragment.
    #[serde(rename = "fragment", skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<FragmentState>,
    /// IP protocols; of IPv6 the header behind the extension headers.
    #[serde(rename = "protocol", skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
    /// Source prefixes.
    #[serde(rename = "source", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Prefix>,
    /// Destination prefixes.
    #[serde(rename = "destination", skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Prefix>,
    /// Source ports.
    #[serde(rename = "source_port", skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<Span>,
    /// Destination ports.
    #[serde(rename = "destination_port", skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<Span>,
    /// Bytes of the frame without its check sequence.
    #[serde(rename = "length", skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<Span>,
    /// The VLAN: the identifier of the outermost tag whose identifier is not 0.
    #[serde(rename = "vlan", skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<VlanMatch>,
    /// TCP flags.
    #[serde(skip_serializing_if = "TcpFlags::is_any")]
    pub tcp_flags: TcpFlags,
    /// Bytes at offsets: all of these.
    #[serde(rename = "pattern", skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
    /// Whether the source must be in the filter's block list.
    pub listed: bool,
}

/// What a frame carries behind its tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Neither, or so many tags that it cannot be reached.
    Other,
    /// An IP header that is cut short or of another version.
    Malformed,
}

impl Family {
    /// In the order of [`Family::ALL`].
    pub const WORDS: &'static [&'static str] = &["ipv4", "ipv6", "other", "malformed"];
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Ipv4, Family::Ipv6, Family::Other, Family::Malformed];
}

/// Whether an IP packet is a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentState {
    /// No fragment, or the only one.
    Whole,
    /// The first of several: it has the transport header.
    First,
    /// A later one, without ports.
    Later,
    /// What the filter's rules ask for cannot be reached, in a packet of any family: tags, options, extension headers or the
    /// transport header are cut short or too many, or a fragment can overlap the transport header of the first.
    Unreadable,
}

impl FragmentState {
    /// In the order of [`FragmentState::ALL`].
    pub const WORDS: &'static [&'static str] = &["whole", "first", "later", "unreadable"];
    /// All of them.
    pub const ALL: [FragmentState; 4] =
        [FragmentState::Whole, FragmentState::First, FragmentState::Later, FragmentState::Unreadable];
}

/// An IP protocol's number (IANA protocol-numbers); the usual ones are written as words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// The words and their numbers.
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

    /// Whether its header begins with two ports.
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

/// Numbers from one to another, both included; written as `7` or `"7-9"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The lowest.
    pub first: u16,
    /// The highest.
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

/// The VLAN of a frame: the identifier of its outermost tag whose identifier is not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VlanMatch {
    /// No such tag.
    Untagged,
    /// One of these identifiers, 0 to 4095; 0 is the same as untagged: such tags carry a priority alone.
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

/// TCP flags (RFC 9293, 3.1): `["syn", "!ack"]` are packets with SYN and without ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFlags {
    /// Flags that are looked at; none: the packet need not even be TCP.
    pub mask: u8,
    /// Those of them that must be set.
    pub value: u8,
}

impl TcpFlags {
    /// The flags, from the lowest bit.
    pub const WORDS: [&'static str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

    /// Whether no flag is looked at.
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

/// Bytes at an offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Where the offset counts from.
    pub base: PatternBase,
    /// Bytes from there.
    pub offset: u16,
    /// 1 to 32 bytes.
    pub bytes: Vec<u8>,
    /// Bits that are compared, as many bytes; empty: all.
    pub mask: Vec<u8>,
}

impl Pattern {
    /// Most bytes of one.
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

/// Where an offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatternBase {
    /// The first byte of the destination's Ethernet address.
    Frame,
    /// The first byte of the IP header.
    Network,
    /// The first byte behind IP header and extension headers.
    Transport,
    /// The first byte behind the header of TCP, UDP or UDP-Lite.
    Payload,
}

impl PatternBase {
    /// In the order of [`PatternBase::ALL`].
    pub const WORDS: &'static [&'static str] = &["frame", "network", "transport", "payload"];
    /// All of them.
    pub const ALL: [PatternBase; 4] =
        [PatternBase::Frame, PatternBase::Network, PatternBase::Transport, PatternBase::Payload];
}

impl FilterMatch {
    /// Why it is not a service of which every segment matches, and what would be one.
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

    /// Why nothing can match, if conditions exclude each other.
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
