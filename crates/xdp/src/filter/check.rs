//! Checks filter rules before they are compiled. Values must be valid, and the conditions of a rule must not
//! exclude each other.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use packet::net::Prefix;
use packet::net::{Family, FragmentState, Pattern, RateUnit, VlanMatch};

use super::{Action, CookieScheme, FilterError, Match, PATTERN_MAX, Rate, Rule, SERVICES_MAX, SynCookie};

const NAME_MAX: usize = 63;
const TCP: u8 = 6;
/// IP protocols whose header begins with source port and destination port. The XDP program has an equal list in
/// `has_ports()`.
const WITH_PORTS: [u8; 5] = [TCP, 17, 33, 132, 136];

pub(super) fn rules(rules: &[Rule]) -> Result<(), FilterError> {
    let mut names = BTreeSet::new();
    for rule in rules {
        name(&rule.name)?;
        if !names.insert(rule.name.as_str()) {
            return Err(FilterError::Duplicate { rule: rule.name.clone() });
        }
        ranges(rule)?;
        for pattern in &rule.matches.patterns {
            self::pattern(rule, pattern)?;
        }
        if let Some(cause) = contradiction(&rule.matches) {
            return Err(FilterError::NeverMatches { rule: rule.name.clone(), cause });
        }
        action(rule)?;
    }
    let services = rules.iter().filter(|rule| matches!(rule.action, Action::SynCookie(_))).count();
    if services > SERVICES_MAX {
        return Err(FilterError::TooManyServices { count: services });
    }
    Ok(())
}

fn name(name: &str) -> Result<(), FilterError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(FilterError::Name { rule: name.chars().take(80).collect() });
    }
    Ok(())
}

fn ranges(rule: &Rule) -> Result<(), FilterError> {
    let check = |field, range: &RangeInclusive<u16>, most| {
        let (first, last) = (*range.start(), *range.end());
        if first <= last && last <= most {
            return Ok(());
        }
        Err(FilterError::Range { rule: rule.name.clone(), field, first, last, most })
    };
    let matches = &rule.matches;
    for range in &matches.source_ports {
        check("source port", range, u16::MAX)?;
    }
    for range in &matches.destination_ports {
        check("destination port", range, u16::MAX)?;
    }
    for range in &matches.lengths {
        check("length", range, u16::MAX)?;
    }
    for vlan in &matches.vlans {
        if let VlanMatch::Tagged(ids) = vlan {
            check("VLAN", &ids.range(), 4095)?;
        }
    }
    match matches.tcp_flags {
        Some(flags) if flags.value & !flags.mask != 0 => {
            Err(FilterError::Flags { rule: rule.name.clone(), mask: flags.mask, value: flags.value })
        }
        _ => Ok(()),
    }
}

fn pattern(rule: &Rule, pattern: &Pattern) -> Result<(), FilterError> {
    let (bytes, mask) = (pattern.bytes.len(), pattern.mask.len());
    if bytes == 0 || bytes > PATTERN_MAX || (mask != 0 && mask != bytes) {
        return Err(FilterError::Pattern { rule: rule.name.clone(), bytes, mask });
    }
    let hidden = pattern.bytes.iter().zip(&pattern.mask).position(|(byte, mask)| byte & !mask != 0);
    hidden.map_or(Ok(()), |at| Err(FilterError::PatternMask { rule: rule.name.clone(), at }))
}

fn contradiction(matches: &Match) -> Option<&'static str> {
    let of = |family| matches.families.is_empty() || matches.families.contains(&family);
    let (v4, v6) = (of(Family::Ipv4), of(Family::Ipv6));
    let has = |list: &[Prefix], v6: bool| {
        list.is_empty() || list.iter().any(|prefix| prefix.address().is_ipv6() == v6)
    };
    let needs_ip = !matches.sources.is_empty()
        || !matches.destinations.is_empty()
        || !matches.protocols.is_empty()
        || !(matches.fragments.is_empty() || matches.fragments.contains(&FragmentState::Unreadable))
        || matches.listed;
    let possible = |family: bool, is_v6: bool| {
        family && has(&matches.sources, is_v6) && has(&matches.destinations, is_v6)
    };
    if needs_ip && !possible(v4, false) && !possible(v6, true) {
        return Some("no IP family has all the prefixes and protocols that it asks for");
    }
    let protocol = |wanted: &[u8]| {
        matches.protocols.is_empty() || matches.protocols.iter().any(|protocol| wanted.contains(protocol))
    };
    let ports = !matches.source_ports.is_empty() || !matches.destination_ports.is_empty();
    if ports && !protocol(&WITH_PORTS) {
        return Some("it asks for ports of protocols that have none");
    }
    if matches.tcp_flags.is_some() && !protocol(&[TCP]) {
        return Some("it asks for TCP flags of other protocols");
    }
    None
}

fn action(rule: &Rule) -> Result<(), FilterError> {
    match &rule.action {
        Action::Sample { one_in: 0 } => Err(FilterError::Sample { rule: rule.name.clone() }),
        Action::RateLimit { rate, per_source } => {
            let bits = per_source.is_some_and(|bits| bits.ipv4 > 32 || bits.ipv6 > 128);
            let found = if bits {
                Some(("its source prefixes are too long", "IPv4 has 32 bits and IPv6 128"))
            } else {
                self::rate(rate)
            };
            found.map_or(Ok(()), |(cause, advice)| {
                Err(FilterError::Rate { rule: rule.name.clone(), cause, advice })
            })
        }
        Action::SynCookie(cookie) => {
            let found = service(&rule.matches).or_else(|| self::cookie(cookie));
            found.map_or(Ok(()), |(cause, advice)| {
                Err(FilterError::Cookie { rule: rule.name.clone(), cause, advice })
            })
        }
        _ => Ok(()),
    }
}

/// Checks that a rate limit is within the bounds for which the 64-bit arithmetic of the XDP program cannot overflow.
/// The cost of a packet is less than 2^47 ticks, the cost of a byte less than 2^31 ticks, and the cost of a burst less
/// than 2^60 ticks. A tick is a sixteenth of a nanosecond. If the rate is out of bounds, returns the cause and advice
/// for the error message.
fn rate(rate: &Rate) -> Option<(&'static str, &'static str)> {
    if rate.amount == 0 || rate.burst == 0 || rate.per.is_zero() {
        return Some(("a rate or a burst of zero lets nothing through", "use the action drop"));
    }
    if rate.per > Duration::from_secs(86_400) {
        return Some(("its rate counts over more than a day", "give a shorter time"));
    }
    let one = rate.per.as_nanos() / u128::from(rate.amount);
    if rate.per.as_nanos() * 16 < u128::from(rate.amount) {
        return Some(("its rate is above 16 per nanosecond", "leave the rule out"));
    }
    if rate.unit == RateUnit::Packets && one > 3_600_000_000_000 {
        return Some(("its rate is below one packet an hour", "use the action drop"));
    }
    if rate.unit == RateUnit::Bytes && one > 100_000_000 {
        return Some(("its rate is below 10 bytes a second", "count packets"));
    }
    if rate.unit == RateUnit::Bytes && rate.burst < 64 {
        return Some(("no frame fits into its burst", "give at least 64 bytes, better the MTU and more"));
    }
    let total = rate.per.as_nanos() * u128::from(rate.burst) / u128::from(rate.amount);
    if total > u128::from(u64::MAX >> 8) {
        return Some(("its burst lasts for more than two years", "give a smaller burst"));
    }
    None
}

/// Checks that a rule with SYN cookies matches either all segments of a connection or none. If not, returns the cause
/// and advice for the error message.
fn service(matches: &Match) -> Option<(&'static str, &'static str)> {
    if matches.protocols != [TCP] {
        return Some(("cookies are TCP's", "let it match TCP alone"));
    }
    if matches.destinations.is_empty() || matches.destination_ports.is_empty() {
        return Some((
            "it names no service",
            "give it the service's addresses as destinations, and its ports",
        ));
    }
    let parts = matches.tcp_flags.is_some()
        || !matches.lengths.is_empty()
        || !matches.patterns.is_empty()
        || !matches.fragments.is_empty();
    parts.then_some((
        "only some segments of a connection match it",
        "leave flags, lengths, patterns and fragments out",
    ))
}

fn cookie(cookie: &SynCookie) -> Option<(&'static str, &'static str)> {
    if cookie.ttl == 0 {
        return Some(("its answers would live for no hop", "give a TTL from 1 on"));
    }
    if cookie.above == Some(0) {
        return Some(("it would answer above no SYN a second", "let it answer always"));
    }
    match cookie.scheme {
        CookieScheme::Cookie { mss: Some(mss), .. } if mss < 536 => {
            Some(("its segments are shorter than every host takes", "give an MSS of at least 536"))
        }
        CookieScheme::Cookie { window_scale: Some(scale), .. } if scale > 14 => {
            Some(("its window scale is above 14", "give what the service's kernel has, mostly 7"))
        }
        CookieScheme::Retry { remember } if !(1..=86_400).contains(&remember.as_secs()) => {
            Some(("clients are remembered for no second or for more than a day", "give 1 to 86400 seconds"))
        }
        _ => None,
    }
}
