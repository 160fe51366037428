//! Filter rules as plain data: conditions on a frame, and an action. This module depends on neither the
//! kernel nor a configuration format.

use std::ops::RangeInclusive;
use std::time::Duration;

use packet::net::{Family, FragmentState, Pattern, Prefix, RateUnit, SourceBits, TcpFlags, VlanMatch};

/// The rules of a filter. Rules are tried in the order of descending priority, and rules of equal priority in list
/// order. The matching rules are applied to a frame one after another until a rule makes the decision: the rule drops,
/// passes or answers the frame. A frame for which no rule made the decision passes.
///
/// A frame is *unreadable* ([`FragmentState::Unreadable`]) if the fields that rules match cannot be reached in it.
/// A sender can make any packet unreadable, and the receiver may still be able to read the packet. Unreadable
/// frames are therefore treated as follows:
///
/// - A rule that passes frames or requires SYN cookies matches an unreadable frame only if its condition on
///   fragments contains [`FragmentState::Unreadable`].
/// - Other rules match the fields that could be parsed.
/// - Unreadable frames for which no rule made the decision are dropped after all rules, unless [`RuleSet::unreadable`]
///   states otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Rules of the filter. The list need not be ordered by priority.
    pub rules: Vec<Rule>,
    /// Treatment of unreadable frames for which no rule made the decision.
    pub unreadable: Unreadable,
}

/// Treatment of unreadable frames ([`FragmentState::Unreadable`]) for which no rule made the decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// Drops the frames if any rule that matches header fields drops or limits frames. The dropped frames are counted
    /// under the rule name [`Unreadable::RULE`].
    #[default]
    Drop,
    /// Passes unreadable frames for which no rule made the decision.
    Pass,
}

impl Unreadable {
    /// Name of the additional rule that drops unreadable frames. No rule of a configuration can have this
    /// name.
    pub const RULE: &str = "(unreadable)";
}

/// A filter rule: conditions on a frame, and an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the rule: 1 to 63 letters, digits, `-`, `_` and `.`. Counters and buckets belong to the name.
    /// A rule that replaces another rule of equal name keeps its counters and buckets.
    pub name: String,
    /// Priority of the rule. Rules of higher priority are tried first.
    pub priority: u32,
    /// Conditions that a frame must fulfil to match the rule.
    pub matches: Match,
    /// Action on frames that match the rule.
    pub action: Action,
    /// Whether the rule only counts the frames on which it would act. The frame then continues with the next
    /// rule.
    pub dry_run: bool,
    /// Time (CLOCK_MONOTONIC) at which the rule expires. From this time on, the rule matches no frames. `None` if the
    /// rule does not expire.
    pub expires: Option<Moment>,
}

/// Action of a rule on a matching frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Drops the frame.
    Drop,
    /// Passes the frame to the following stages of the port's program. Later rules are not tried.
    Pass,
    /// Counts the frame. Later rules are tried.
    Count,
    /// Copies the first bytes of a random sample of frames to user space. Later rules are tried.
    Sample {
        /// Sampling interval: on average one of this many frames is sampled. At least 1.
        one_in: u32,
    },
    /// Drops frames that exceed a rate. Later rules are tried for frames within the rate.
    RateLimit {
        /// Maximum rate, in packets or bytes, at which frames pass.
        rate: Rate,
        /// Prefix lengths of the source addresses that share a rate limit bucket. With `None` all frames
        /// share one bucket of the rule.
        per_source: Option<SourceBits>,
    },
    /// Requires a SYN cookie from the clients of a TCP service before their connections reach the service.
    /// For frames that pass, later rules are tried, except rules with SYN cookies.
    SynCookie(SynCookie),
}

/// Parameters of a rule with SYN cookies. `bpf/include/stage_syncookie.h` describes the schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynCookie {
    /// Scheme by which the service accepts a connection after the client has returned its cookie.
    pub scheme: CookieScheme,
    /// Rate of SYNs per second above which the filter requires cookies. With `None` the filter always requires cookies.
    pub above: Option<u32>,
    /// IPv4 TTL or IPv6 hop limit of the filter's SYN-ACK segments, 1 to 255.
    pub ttl: u8,
}

/// SYN cookie scheme of a rule. The scheme determines how the service accepts a connection after the client has
/// returned its cookie: by means of the cookie, or by a second SYN of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieScheme {
    /// The kernel of this host accepts the connection by means of the cookie, so the service must run on this
    /// host. All sockets of the service must create SYN cookies themselves (`net.ipv4.tcp_syncookies = 2` in
    /// their namespace).
    Cookie {
        /// Maximum segment size (MSS option) in the filter's SYN-ACK segments, in bytes. `None` means 1460 for IPv4 and
        /// 1440 for IPv6.
        mss: Option<u16>,
        /// Window scale that the service's kernel uses, 0 to 14. If the window scale is set, the filter's SYN-ACK
        /// segments carry the options SACK, timestamps and window scale, and the service's timestamps must not have a
        /// random offset (`net.ipv4.tcp_timestamps = 2`). With `None` the segments carry none of the three options.
        window_scale: Option<u8>,
    },
    /// The client returns the cookie in a RST and sends its SYN again, as TCP clients do by themselves. The
    /// filter passes this SYN to the service, which may run on any host.
    Retry {
        /// Time for which connections from the client's address need no new cookie, in whole seconds, up to one day.
        remember: Duration,
    },
}

/// A rate limit with a token bucket: `amount` units for each period `per`, and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Unit (packets or bytes) in which `amount` and `burst` are counted.
    pub unit: RateUnit,
    /// Number of packets or bytes for each period.
    pub amount: u64,
    /// Period in which `amount` packets or bytes are allowed.
    pub per: Duration,
    /// Maximum number of packets or bytes that may pass in one burst after an idle period (depth of the token bucket).
    pub burst: u64,
}

/// A point in time of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the current time of CLOCK_MONOTONIC.
    #[must_use]
    pub fn now() -> Moment {
        Moment(crate::sys::monotonic_ns())
    }

    /// Returns the point in time that is `time` later than `self`.
    #[must_use]
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Conditions of a filter rule. A frame must match one value of every list that is not empty, and every other
/// condition that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Protocol families that a frame may have to match the rule. The family is given by the EtherType after all VLAN
    /// tags.
    pub families: Vec<Family>,
    /// Fragment states that the IP packet may have to match the rule.
    pub fragments: Vec<FragmentState>,
    /// IP protocol numbers that match the rule. For IPv6, the number is that of the header that follows the extension
    /// headers.
    pub protocols: Vec<u8>,
    /// Prefixes of source addresses, one of which must contain the frame's source.
    pub sources: Vec<Prefix>,
    /// Prefixes of destination addresses, one of which must contain the frame's destination.
    pub destinations: Vec<Prefix>,
    /// Ranges of source ports that match the rule, for TCP, UDP, DCCP, SCTP and UDP-Lite.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Ranges of destination ports that match the rule, for TCP, UDP, DCCP, SCTP and UDP-Lite.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Ranges of frame lengths that match the rule, in bytes without frame check sequence. Longer frames count as
    /// 65535.
    pub lengths: Vec<RangeInclusive<u16>>,
    /// VLANs that match the rule. The VLAN of a frame is the identifier of the outermost tag whose
    /// identifier is not 0.
    pub vlans: Vec<VlanMatch>,
    /// TCP flags that must be set or not set. `None` matches any flags.
    pub tcp_flags: Option<TcpFlags>,
    /// Byte patterns at offsets in the frame. A frame must match all patterns.
    pub patterns: Vec<Pattern>,
    /// Whether the source IP address must be in the filter's block list.
    pub listed: bool,
}

impl RuleSet {
    /// Returns a copy of the rule set without the filter rules that have expired at the time `now`. Returns `None` if
    /// no rule has expired.
    #[must_use]
    pub fn without_expired(&self, now: Moment) -> Option<RuleSet> {
        let alive = |rule: &&Rule| rule.expires.is_none_or(|at| at > now);
        let rules: Vec<Rule> = self.rules.iter().filter(alive).cloned().collect();
        (rules.len() < self.rules.len()).then_some(RuleSet { rules, unreadable: self.unreadable })
    }

    /// Returns the time at which the next rule of the set expires. Returns `None` if no rule expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Moment> {
        self.rules.iter().filter_map(|rule| rule.expires).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
