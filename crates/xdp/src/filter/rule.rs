//! Rules as plain data: what a frame must look like, and what becomes of it. Nothing here knows
//! the kernel or a configuration file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::FilterError;

/// Rules in one set: `FILTER_RULES_MAX`.
pub const RULES_MAX: usize = 4096;
/// Rules with cookies in one set: half of `FILTER_SERVICES_MAX`.
pub const SERVICES_MAX: usize = 64;
/// Distinct places (base, offset, mask) at which a set's patterns may look, eight bytes each:
/// `FILTER_PROBES_MAX`.
pub const PROBES_MAX: usize = 8;
/// Bytes of a pattern.
pub const PATTERN_MAX: usize = 32;

/// The rules of a filter. The one with the highest priority comes first, and among equals the
/// one that stands first here. A frame meets the rules that match it one after the other until
/// one of them decides; without a decision it passes.
///
/// A frame is *unreadable* ([`Fragment::Unreadable`]) if the fields that rules ask for cannot be reached in it. A sender can
/// make any packet unreadable, and its receiver may still read it. So no rule that passes matches such a frame, nor one with
/// cookies, unless it names the class; other rules match it by what is known of it; and what is left of them is dropped
/// behind all rules, unless [`RuleSet::unreadable`] says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// In any order of priorities.
    pub rules: Vec<Rule>,
    /// What becomes of unreadable frames that no rule has decided on.
    pub unreadable: Unreadable,
}

/// What becomes of unreadable frames that no rule has decided on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// They are dropped where a rule drops or limits by what stands in headers; the rule [`Unreadable::RULE`] counts them.
    #[default]
    Drop,
    /// They pass.
    Pass,
}

impl Unreadable {
    /// The name of the rule behind all others that drops unreadable frames. No rule of a configuration can have it.
    pub const RULE: &str = "(unreadable)";
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// 1 to 63 letters, digits, `-`, `_` and `.`. Counters and buckets belong to the name: a rule
    /// that is replaced by one of the same name keeps them.
    pub name: String,
    /// Higher comes first.
    pub priority: u32,
    /// What it is for.
    pub matches: Match,
    /// What it does.
    pub action: Action,
    /// Counts what it would do, does nothing, and lets the frame go on to the next rule.
    pub dry_run: bool,
    /// From then on it matches nothing.
    pub expires: Option<Moment>,
}

/// What a rule does with a frame that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Drops it.
    Drop,
    /// Lets it through to the port's other stages; later rules are not asked.
    Pass,
    /// Counts it; later rules are asked.
    Count,
    /// Copies the head of one in so many at random to user space; later rules are asked.
    Sample {
        /// At least 1.
        one_in: u32,
    },
    /// Drops what exceeds a rate; what does not goes on to later rules.
    RateLimit {
        /// What is let through.
        rate: Rate,
        /// One bucket for each source prefix of this length; `None`: one for the rule.
        per_source: Option<SourceBits>,
    },
    /// Asks clients of a TCP service for a cookie before the service hears of their connections; what it lets through
    /// goes on to later rules, but for others with cookies.
    SynCookie(SynCookie),
}

/// How clients are asked for a cookie: `bpf/include/stage_syncookie.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynCookie {
    /// Who accepts the connection.
    pub scheme: CookieScheme,
    /// Only while more SYNs come in a second; `None`: always.
    pub above: Option<u32>,
    /// Time to live of answers, 1 to 255.
    pub ttl: u8,
}

/// Who accepts a connection whose client has brought its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieScheme {
    /// The service's kernel, which is this one, from the cookie: all its sockets must make cookies themselves
    /// (`net.ipv4.tcp_syncookies = 2` in their namespace).
    Cookie {
        /// The longest segment that the service takes; `None`: 1460 of IPv4, 1440 of IPv6.
        mss: Option<u16>,
        /// Window scale of the service's kernel, 0 to 14: then answers have SACK, timestamps and this. The service's
        /// timestamps must begin at no random number (`net.ipv4.tcp_timestamps = 2`). `None`: none of the three.
        window_scale: Option<u8>,
    },
    /// The service, whoever it is, when the client tries again, which it does by itself.
    Retry {
        /// How long the client's address is not asked again: whole seconds, 1 to a day.
        remember: Duration,
    },
}

/// A token bucket: so many packets or bytes in that time, and a burst of them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// What is counted.
    pub unit: Unit,
    /// How many.
    pub amount: u64,
    /// In which time.
    pub per: Duration,
    /// How many at once.
    pub burst: u64,
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Frames.
    Packets,
    /// Bytes of frames, without their check sequence.
    Bytes,
}

/// Bits of a source address that share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceBits {
    /// 0 to 32.
    pub v4: u8,
    /// 0 to 128.
    pub v6: u8,
}

/// A time of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Moment {
        Moment(crate::sys::monotonic_ns())
    }

    /// So much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// What a frame must have: every field that is not empty, and of each one of its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Behind up to two VLAN tags.
    pub families: Vec<Family>,
    /// Fragment state, of IPv4 and IPv6 alone.
    pub fragments: Vec<Fragment>,
    /// IP protocol; of IPv6 the header behind the extension headers.
    pub protocols: Vec<u8>,
    /// Source prefixes.
    pub sources: Vec<Prefix>,
    /// Destination prefixes.
    pub destinations: Vec<Prefix>,
    /// Source ports of TCP, UDP, DCCP, SCTP and UDP-Lite.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Destination ports of these.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Bytes of the frame without its check sequence; longer ones count as 65535.
    pub lengths: Vec<RangeInclusive<u16>>,
    /// The outer VLAN tag.
    pub vlans: Vec<VlanMatch>,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlags>,
    /// Bytes at offsets: all of these.
    pub patterns: Vec<Pattern>,
    /// Whether the source must be in the filter's block list.
    pub listed: bool,
}

/// What a frame carries behind its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Neither IPv4 nor IPv6, or more than two tags.
    Other,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6 by its ethertype, with a fixed header that is cut short or of another version.
    Malformed,
}

/// Fragment state of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// No fragment, or the only one.
    Whole,
    /// The first of several: it has the transport header.
    First,
    /// A later one, without ports.
    Later,
    /// What rules ask for cannot be reached, in a frame of any [`Family`]: more than 16 VLAN tags, or tags or an IP header
    /// that are cut short; IPv4 options that are cut short; more than six IPv6 extension headers, or such as lead beyond
    /// the packet's end; a transport header that ends before the ports or TCP flags that rules ask for; later fragments
    /// that can overlap the first one's transport header. In a hook all of it must lie in the frame's first buffer.
    Unreadable,
}

/// The VLAN of a frame: the identifier of its outermost tag whose identifier is not 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VlanMatch {
    /// No such tag. Tags with the identifier 0 carry a priority alone (IEEE 802.1Q, 6.9.1).
    Untagged,
    /// One of these identifiers, 0 to 4095; 0 is the same as [`VlanMatch::Untagged`].
    Tagged(RangeInclusive<u16>),
}

/// TCP flags as they stand in byte 13 of the header: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags {
    /// Flags that are looked at.
    pub mask: u8,
    /// Those of them that must be set, and no others.
    pub value: u8,
}

/// Where an offset counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Base {
    /// The first byte of the destination's MAC address.
    Frame,
    /// The first byte of the IP header.
    Network,
    /// The first byte behind IP header and extension headers.
    Transport,
    /// The first byte behind the header of TCP, UDP or UDP-Lite.
    Payload,
}

/// Bytes at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Where the offset counts from.
    pub base: Base,
    /// Bytes from there.
    pub offset: u16,
    /// 1 to 32 bytes.
    pub bytes: Vec<u8>,
    /// Bits that are compared, as many bytes; empty: all.
    pub mask: Vec<u8>,
}

/// An address prefix. Bits beyond its length are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Clears what lies beyond `length` bits.
    ///
    /// # Errors
    /// [`FilterError::PrefixLength`].
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, FilterError> {
        let too_long = FilterError::PrefixLength { address, length };
        let address = match address {
            IpAddr::V4(v4) => {
                let host = 32_u32.checked_sub(u32::from(length)).ok_or(too_long)?;
                let mask = u32::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let host = 128_u32.checked_sub(u32::from(length)).ok_or(too_long)?;
                let mask = u128::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Ok(Prefix { address, length })
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether an address of the same family lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Prefix::new(address, self.length).is_ok_and(|other| other == *self)
            && address.is_ipv4() == self.address.is_ipv4()
    }
}

impl std::str::FromStr for Prefix {
    type Err = FilterError;

    /// `ADDRESS/LENGTH`, or an address alone.
    fn from_str(text: &str) -> Result<Prefix, FilterError> {
        let bad = || FilterError::PrefixText(text.chars().take(80).collect());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(whole), |length| length.parse().map_err(|_| bad()))?;
        Prefix::new(address, length)
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl RuleSet {
    /// The set without what has expired; `None` when nothing has.
    #[must_use]
    pub fn without_expired(&self, now: Moment) -> Option<RuleSet> {
        let alive = |rule: &&Rule| rule.expires.is_none_or(|at| at > now);
        let rules: Vec<Rule> = self.rules.iter().filter(alive).cloned().collect();
        (rules.len() < self.rules.len()).then_some(RuleSet { rules, unreadable: self.unreadable })
    }

    /// When the next rule expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Moment> {
        self.rules.iter().filter_map(|rule| rule.expires).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_cleared() {
        let prefix: Prefix = "10.1.2.3/8".parse().unwrap();
        assert_eq!(prefix.to_string(), "10.0.0.0/8");
        assert!(prefix.contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix.contains("11.0.0.1".parse().unwrap()));
        assert_eq!("::1".parse::<Prefix>().unwrap().length(), 128);
        assert_eq!("2001:db8::1/0".parse::<Prefix>().unwrap().to_string(), "::/0");
        assert!(!"::/0".parse::<Prefix>().unwrap().contains("1.2.3.4".parse().unwrap()));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "x/1", "1.2.3.4/-1"] {
            let error = bad.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(bad.split('/').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn expired_rules_go() {
        let rule = |name: &str, at: Option<u64>| Rule {
            name: name.to_owned(),
            priority: 0,
            matches: Match::default(),
            action: Action::Drop,
            dry_run: false,
            expires: at.map(Moment),
        };
        let rules = vec![rule("a", Some(10)), rule("b", None), rule("c", Some(11))];
        let set = RuleSet { rules, unreadable: Unreadable::Pass };
        assert_eq!(set.next_expiry(), Some(Moment(10)));
        assert_eq!(set.without_expired(Moment(9)), None);
        let left = set.without_expired(Moment(10)).unwrap();
        assert_eq!(left.rules.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(left.unreadable, Unreadable::Pass);
    }
}
