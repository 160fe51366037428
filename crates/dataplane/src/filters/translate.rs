//! Converts the filter rules of the configuration into the rules that hooks and workers apply.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::{FilterAction, FilterMatch, FilterRule, Timestamp};
use packet::net::Span;
use xdp::filter::{Action, CookieScheme, Match, Moment, Rate, Rule, RuleSet, SynCookie, Unreadable};

const TCP: u8 = model::Protocol::TCP.0;

/// Returns the rules of a filter that have not expired.
pub fn current_rules(wanted: &model::Filter) -> RuleSet {
    let rules = self::rules(wanted);
    rules.without_expired(Moment::now()).unwrap_or(rules)
}

/// Converts a filter's rules into the rules that the hook applies. Wall-clock times are converted to the clock
/// that the hook reads.
pub fn rules(filter: &model::Filter) -> RuleSet {
    let clocks = Clocks::read();
    RuleSet {
        rules: filter.rules.iter().map(|rule| self::rule(rule, clocks)).collect(),
        unreadable: match filter.unreadable {
            model::Unreadable::Drop => Unreadable::Drop,
            model::Unreadable::Pass => Unreadable::Pass,
        },
    }
}

/// Times of the wall clock and of the hook's clock that were read at the same moment, for the conversion of times.
#[derive(Clone, Copy)]
struct Clocks {
    since_1970: Duration,
    monotonic: Moment,
}

impl Clocks {
    fn read() -> Clocks {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clocks { since_1970, monotonic: Moment::now() }
    }

    fn moment(self, time: Timestamp) -> Moment {
        let left = Duration::from_secs(time.0).checked_sub(self.since_1970);
        // A time in the past is converted to the start of the hook's clock.
        left.map_or(Moment(0), |left| self.monotonic.after(left))
    }
}

fn rule(rule: &FilterRule, clocks: Clocks) -> Rule {
    Rule {
        name: rule.name.to_string(),
        priority: rule.priority,
        matches: match rule.action {
            // SYN cookies imply TCP.
            FilterAction::SynCookie(_) => Match { protocols: vec![TCP], ..matches(&rule.matches) },
            _ => matches(&rule.matches),
        },
        action: action(&rule.action),
        dry_run: rule.dry_run,
        expires: rule.expires.map(|time| clocks.moment(time)),
    }
}

fn action(action: &FilterAction) -> Action {
    match action {
        FilterAction::Drop => Action::Drop,
        FilterAction::Pass => Action::Pass,
        FilterAction::Count => Action::Count,
        FilterAction::Sample(sampling) => Action::Sample { one_in: sampling.one_in },
        FilterAction::Limit(limit) => Action::RateLimit {
            rate: Rate {
                unit: limit.unit,
                amount: limit.rate,
                per: Duration::from_secs(u64::from(limit.per)),
                burst: limit.burst,
            },
            per_source: limit.per_source,
        },
        FilterAction::SynCookie(cookie) => Action::SynCookie(SynCookie {
            scheme: match cookie.scheme {
                model::CookieScheme::Cookie => {
                    CookieScheme::Cookie { mss: cookie.mss, window_scale: cookie.wscale }
                }
                model::CookieScheme::Retry => CookieScheme::Retry {
                    remember: Duration::from_secs(u64::from(cookie.remember.unwrap_or_default())),
                },
            },
            above: cookie.above,
            ttl: cookie.ttl,
        }),
    }
}

fn matches(wanted: &FilterMatch) -> Match {
    let spans = |list: &[Span]| list.iter().map(|span| span.range()).collect();
    let flags = wanted.tcp_flags;
    Match {
        families: wanted.families.clone(),
        fragments: wanted.fragments.clone(),
        protocols: wanted.protocols.iter().map(|protocol| protocol.0).collect(),
        sources: wanted.sources.clone(),
        destinations: wanted.destinations.clone(),
        source_ports: spans(&wanted.source_ports),
        destination_ports: spans(&wanted.destination_ports),
        lengths: spans(&wanted.lengths),
        vlans: wanted.vlans.clone(),
        tcp_flags: (!flags.is_any()).then_some(flags),
        patterns: wanted.patterns.clone(),
        listed: wanted.listed,
    }
}

#[cfg(test)]
mod tests {
    use packet::net::{
        Family, FragmentState, Pattern, PatternBase, RateUnit, SourceBits, TcpFlags, VlanMatch,
    };

    use super::*;

    #[test]
    fn each_condition_arrives() {
        let text = r#"
[filter.f]
unreadable = "pass"
[[filter.f.rule]]
name = "all"
priority = 7
action = "limit"
rate = 10
unit = "bytes"
per = 2
burst = 3000
per_source = { ipv4 = 24, ipv6 = 48 }
dry_run = true
expires = "1990-01-01T00:00:00Z"
family = ["ipv4", "malformed"]
fragment = "first"
protocol = "tcp"
source = "10.0.0.0/8"
destination = "192.0.2.1"
source_port = "1-2"
destination_port = 3
length = [64, "100-200"]
vlan = ["untagged", "5-6"]
tcp_flags = ["syn", "!ack"]
pattern = { at = "network", offset = 9, bytes = "0102", mask = "0f0f" }
listed = true
"#;
        let config = model::load(text, "t").unwrap();
        let filter = config.filters.values().next().unwrap();
        let expected = Rule {
            name: "all".to_owned(),
            priority: 7,
            matches: Match {
                families: vec![Family::Ipv4, Family::Malformed],
                fragments: vec![FragmentState::First],
                protocols: vec![6],
                sources: vec!["10.0.0.0/8".parse().unwrap()],
                destinations: vec!["192.0.2.1/32".parse().unwrap()],
                source_ports: vec![1..=2],
                destination_ports: vec![3..=3],
                lengths: vec![64..=64, 100..=200],
                vlans: vec![VlanMatch::Untagged, VlanMatch::Tagged(Span { first: 5, last: 6 })],
                tcp_flags: Some(TcpFlags { mask: 0x12, value: 0x02 }),
                patterns: vec![Pattern {
                    base: PatternBase::Network,
                    offset: 9,
                    bytes: vec![1, 2],
                    mask: vec![15, 15],
                }],
                listed: true,
            },
            action: Action::RateLimit {
                rate: Rate { unit: RateUnit::Bytes, amount: 10, per: Duration::from_secs(2), burst: 3000 },
                per_source: Some(SourceBits { ipv4: 24, ipv6: 48 }),
            },
            dry_run: true,
            expires: Some(Moment(0)),
        };
        assert_eq!(rules(filter), RuleSet { rules: vec![expected], unreadable: Unreadable::Pass });
    }

    #[test]
    fn services_arrive() {
        let rule = |text: &str| {
            let text = format!(
                "[[filter.f.rule]]\nname = 'web'\naction = 'syncookie'\ndestination = '10.0.0.1'\n\
                 destination_port = [80, 443]\n{text}"
            );
            let config = model::load(&text, "t").unwrap();
            rules(config.filters.values().next().unwrap()).rules.remove(0)
        };
        let usual = rule("");
        assert_eq!(usual.matches.protocols, [6]);
        let retry = |seconds| CookieScheme::Retry { remember: Duration::from_secs(seconds) };
        let expected = SynCookie { scheme: retry(300), above: Some(1000), ttl: 64 };
        assert_eq!(usual.action, Action::SynCookie(expected));
        let other =
            rule("scheme = 'cookie'\nmode = 'always'\nmss = 1400\nwscale = 7\nttl = 3\nprotocol = 'tcp'");
        let scheme = CookieScheme::Cookie { mss: Some(1400), window_scale: Some(7) };
        assert_eq!(other.action, Action::SynCookie(SynCookie { scheme, above: None, ttl: 3 }));
        let short = rule("mode = 'auto'\nabove = 5\nremember = 60");
        assert_eq!(short.action, Action::SynCookie(SynCookie { scheme: retry(60), above: Some(5), ttl: 64 }));
    }

    #[test]
    fn a_time_of_day_is_as_far_away_on_both_clocks() {
        let clocks = Clocks { since_1970: Duration::from_secs(1000), monotonic: Moment(5) };
        assert_eq!(clocks.moment(Timestamp(1002)), Moment(2_000_000_005));
        assert_eq!(clocks.moment(Timestamp(999)), Moment(0));
    }
}
