//! Reads `[filter.NAME]` with its rules.

use std::collections::BTreeSet;

use crate::load::fields::{Fields, Findings, table_of};
use crate::load::tree::Value;
use crate::spelling::nearest;
use crate::vlan::RawRange;
use crate::{
    Cause, CookieMode, CookieScheme, Family, Filter, FilterAction, FilterMatch, FilterRule, FragmentState,
    Pattern, PatternBase, Prefix, Protocol, RateLimit, RateUnit, RuleName, Sampling, SourceBits, Span,
    SynCookie, TcpFlags, Timestamp, Unreadable, VlanMatch,
};

/// Maximum number of rules in a filter. The sizes of the hook's tables impose this limit.
const RULE_LIMIT: usize = 4096;
/// Maximum number of values in one list of a rule.
const VALUE_LIMIT: usize = 4096;
/// Maximum number of byte patterns in one rule. The hook reads at most eight positions of a packet for all rules
/// together.
const PATTERN_LIMIT: usize = 32;
const ACTIONS: &[&str] = &["drop", "pass", "count", "sample", "limit", "syncookie"];
/// Default number of SYNs per second that are passed to a service without a cookie in the mode "auto".
const USUAL_SYNS: u32 = 1000;
/// Default number of seconds for which SYNs of a verified client are passed without a cookie.
const USUAL_MEMORY: u32 = 300;
/// Fields of a rule that require `action = "syncookie"`. The second value is the mode or scheme
/// that the field also requires. `None`: the field is valid with every mode and scheme.
const COOKIE_KEYS: [(&str, Option<&str>); 7] = [
    ("scheme", None),
    ("mode", None),
    ("ttl", None),
    ("above", Some("mode = \"auto\"")),
    ("mss", Some("scheme = \"cookie\"")),
    ("wscale", Some("scheme = \"cookie\"")),
    ("remember", Some("scheme = \"retry\"")),
];
/// Bounds of a rate per second or a burst, in packets or bytes.
const RATE_BOUNDS: (i64, i64) = (1, 1_000_000_000_000);
/// Size of the largest frame in bytes. The default burst of a rate in bytes per second is at least this size.
const LARGEST_FRAME: u64 = 9018;

pub(crate) fn read_filter(mut fields: Fields<'_>, findings: &mut Findings) -> Filter {
    let blocklist = fields.file("blocklist", findings);
    let unreadable =
        fields.word("unreadable", Unreadable::WORDS, &Unreadable::ALL, findings).unwrap_or_default();
    let items = fields.items("rule", findings).unwrap_or_default();
    fields.limit("rule", "rules", items.len(), RULE_LIMIT, findings);
    let mut names = BTreeSet::new();
    let mut rules = Vec::with_capacity(items.len().min(RULE_LIMIT));
    for (object, item) in items.into_iter().take(RULE_LIMIT) {
        let Some(rule) = table_of(&object, item, findings) else { continue };
        let place = rule.place_of("name");
        let Some(rule) = read_rule(rule, findings) else { continue };
        if names.insert(rule.name.clone()) {
            rules.push(rule);
        } else {
            findings.add(place, object, Cause::Repeated { what: "rule", value: rule.name.to_string() });
        }
    }
    fields.finish(findings);
    Filter { blocklist, unreadable, rules }
}

fn read_rule(mut rule: Fields<'_>, findings: &mut Findings) -> Option<FilterRule> {
    for (key, example) in [("name", "name = \"no-ntp\""), ("action", "action = \"drop\"")] {
        if !rule.has(key) {
            rule.missing(key, example, findings);
        }
    }
    let bad = |text, source| Cause::BadName { text, what: "rule", source };
    let name: Option<RuleName> = rule.parsed("name", bad, findings);
    let priority = rule.number("priority", (0, u32::MAX.into()), "", findings).unwrap_or(0);
    let action = read_action(&mut rule, findings);
    let dry_run = rule.flag("dry_run", findings).unwrap_or(false);
    let expires = read_expiry(&mut rule, findings);
    let matches = read_match(&mut rule, findings);
    let (object, place) = (rule.object.clone(), rule.place);
    if action.is_none() {
        // The keys of an unknown action are not known, so the keys of all actions are accepted.
        for key in ["one_in", "rate", "unit", "per", "burst", "per_source"] {
            rule.get(key, findings);
        }
        for (key, _) in COOKIE_KEYS {
            rule.get(key, findings);
        }
    }
    rule.finish_with(findings, |key| {
        let (key, needs) = match key {
            "one_in" => ("one_in", "action = \"sample\""),
            "rate" => ("rate", "action = \"limit\""),
            "unit" => ("unit", "action = \"limit\""),
            "per" => ("per", "action = \"limit\""),
            "burst" => ("burst", "action = \"limit\""),
            "per_source" => ("per_source", "action = \"limit\""),
            other => {
                let (key, _) = COOKIE_KEYS.into_iter().find(|(key, _)| *key == other)?;
                (key, "action = \"syncookie\"")
            }
        };
        Some(Cause::NeedsOther { key, needs })
    });
    if let Some(why) = matches.contradiction() {
        findings.add(place, object, Cause::NeverMatches { why });
    } else if let Some(FilterAction::SynCookie(_)) = action
        && let Some((cause, fix)) = matches.no_service()
    {
        let cause = Cause::NotInHook { cause: cause.to_owned(), fix: fix.to_owned() };
        findings.add(place, object, cause);
    }
    Some(FilterRule { name: name?, priority, action: action?, dry_run, expires, matches })
}

fn read_action(rule: &mut Fields<'_>, findings: &mut Findings) -> Option<FilterAction> {
    match rule.word("action", ACTIONS, &[0, 1, 2, 3, 4, 5], findings)? {
        0 => Some(FilterAction::Drop),
        1 => Some(FilterAction::Pass),
        2 => Some(FilterAction::Count),
        3 => {
            if !rule.has("one_in") {
                rule.missing("one_in", "one_in = 1000", findings);
            }
            let one_in = rule.number("one_in", (1, u32::MAX.into()), "", findings)?;
            Some(FilterAction::Sample(Sampling { one_in }))
        }
        4 => read_limit(rule, findings).map(FilterAction::Limit),
        _ => Some(FilterAction::SynCookie(read_cookie(rule, findings))),
    }
}

fn read_cookie(rule: &mut Fields<'_>, findings: &mut Findings) -> SynCookie {
    let scheme = rule.word("scheme", CookieScheme::WORDS, &CookieScheme::ALL, findings);
    let scheme = scheme.unwrap_or(CookieScheme::Retry);
    let mode = rule.word("mode", CookieMode::WORDS, &CookieMode::ALL, findings).unwrap_or(CookieMode::Auto);
    let above = rule.number("above", (1, 1_000_000_000), " SYNs a second", findings);
    let mss = rule.number("mss", (536, 65_495), " bytes", findings);
    let wscale = rule.number("wscale", (0, 14), "", findings);
    let remember = rule.number("remember", (1, 86_400), " seconds", findings);
    let ttl = rule.number("ttl", (1, 255), "", findings).unwrap_or(64);
    let (auto, retry) = (mode == CookieMode::Auto, scheme == CookieScheme::Retry);
    for (key, needs) in COOKIE_KEYS {
        let fits = match key {
            "above" => auto,
            "remember" => retry,
            "mss" | "wscale" => !retry,
            _ => true,
        };
        if let (false, true, Some(needs)) = (fits, rule.has(key), needs) {
            findings.add(rule.place_of(key), rule.object.clone(), Cause::NeedsOther { key, needs });
        }
    }
    SynCookie {
        scheme,
        mode,
        above: auto.then(|| above.unwrap_or(USUAL_SYNS)),
        ttl,
        mss: mss.filter(|_| !retry),
        wscale: wscale.filter(|_| !retry),
        remember: retry.then(|| remember.unwrap_or(USUAL_MEMORY)),
    }
}

fn read_limit(rule: &mut Fields<'_>, findings: &mut Findings) -> Option<RateLimit> {
    if !rule.has("rate") {
        rule.missing("rate", "rate = 1000", findings);
    }
    let rate: Option<u64> = rule.number("rate", RATE_BOUNDS, "", findings);
    let units = [RateUnit::Packets, RateUnit::Bytes];
    let unit = rule.word("unit", &["packets", "bytes"], &units, findings).unwrap_or(RateUnit::Packets);
    let per = rule.number("per", (1, 86_400), " seconds", findings).unwrap_or(1);
    let burst = rule.number("burst", RATE_BOUNDS, "", findings);
    let per_source = read_source_bits(rule, findings);
    let rate = rate?;
    let usual = match unit {
        RateUnit::Packets => rate,
        RateUnit::Bytes => rate.max(LARGEST_FRAME),
    };
    Some(RateLimit { rate, unit, per, burst: burst.unwrap_or(usual), per_source })
}

fn read_source_bits(rule: &mut Fields<'_>, findings: &mut Findings) -> Option<SourceBits> {
    let entry = rule.get("per_source", findings)?;
    let mut bits = table_of(&rule.path("per_source"), &entry.node, findings)?;
    let read = SourceBits {
        ipv4: bits.number("ipv4", (0, 32), " bits", findings).unwrap_or(32),
        ipv6: bits.number("ipv6", (0, 128), " bits", findings).unwrap_or(64),
    };
    bits.finish(findings);
    Some(read)
}

/// Reads the time at which a rule expires: a TOML date, or a date in quotes.
fn read_expiry(rule: &mut Fields<'_>, findings: &mut Findings) -> Option<Timestamp> {
    let entry = rule.get("expires", findings)?;
    let cause = match &entry.node.value {
        Value::Text(text) | Value::Date(text) => match text.parse() {
            Ok(time) => return Some(time),
            Err(_) => {
                let (what, example) = ("a time of day in UTC", "2030-01-31T23:59:59Z");
                Cause::BadText { text: text.clone(), what, example }
            }
        },
        other => Cause::WrongType { expected: "a date with a time", found: other.found() },
    };
    findings.add(entry.node.place, rule.path("expires"), cause);
    None
}

fn read_match(rule: &mut Fields<'_>, findings: &mut Findings) -> FilterMatch {
    FilterMatch {
        families: each(rule, "family", findings, |item| word(item, Family::WORDS, &Family::ALL)),
        fragments: each(rule, "fragment", findings, |item| {
            word(item, FragmentState::WORDS, &FragmentState::ALL)
        }),
        protocols: each(rule, "protocol", findings, protocol),
        sources: each(rule, "source", findings, prefix),
        destinations: each(rule, "destination", findings, prefix),
        source_ports: each(rule, "source_port", findings, |item| span(item, u16::MAX)),
        destination_ports: each(rule, "destination_port", findings, |item| span(item, u16::MAX)),
        lengths: each(rule, "length", findings, |item| span(item, u16::MAX)),
        vlans: each(rule, "vlan", findings, |item| match item {
            Value::Text(text) if text == "untagged" => Ok(VlanMatch::Untagged),
            other => span(other, 4095).map(VlanMatch::Tagged),
        }),
        tcp_flags: read_flags(rule, findings),
        patterns: read_patterns(rule, findings),
        listed: rule.flag("listed", findings).unwrap_or(false),
    }
}

/// Reads and parses the values of a list. A single value counts as a list of one value.
fn each<T>(
    rule: &mut Fields<'_>,
    key: &'static str,
    findings: &mut Findings,
    read: impl Fn(&Value) -> Result<T, Cause>,
) -> Vec<T> {
    let items = rule.items(key, findings).unwrap_or_default();
    rule.limit(key, "values", items.len(), VALUE_LIMIT, findings);
    let mut values = Vec::with_capacity(items.len().min(VALUE_LIMIT));
    if items.is_empty() && rule.has(key) {
        findings.add(rule.place_of(key), rule.path(key), Cause::EmptyList);
    }
    for (object, item) in items.into_iter().take(VALUE_LIMIT) {
        match read(&item.value) {
            Ok(value) => values.push(value),
            Err(cause) => findings.add(item.place, object, cause),
        }
    }
    values
}

fn word<T: Copy>(item: &Value, choices: &'static [&'static str], values: &[T]) -> Result<T, Cause> {
    let Value::Text(text) = item else {
        return Err(Cause::NotAWord { found: item.found(), choices });
    };
    let found = choices.iter().position(|choice| choice == text).and_then(|at| values.get(at).copied());
    let near = || nearest(text, choices.iter().copied());
    found.ok_or_else(|| Cause::NotOneOf { value: text.clone(), near: near(), choices })
}

pub(crate) fn protocol(item: &Value) -> Result<Protocol, Cause> {
    let known = |text: &str| Protocol::WORDS.iter().find(|(word, _)| *word == text);
    let (what, example) = ("a protocol", "\"tcp\", \"udp\", \"icmp\" or a number from 0 to 255");
    match item {
        Value::Text(text) => known(text).map(|(_, number)| Protocol(*number)).ok_or_else(|| Cause::BadText {
            text: text.clone(),
            what,
            example,
        }),
        Value::Integer(value) => u8::try_from(*value).map(Protocol).map_err(|_| Cause::OutOfRange {
            value: *value,
            min: 0,
            max: 255,
            unit: "",
        }),
        other => Err(Cause::WrongType { expected: "a protocol's word or number", found: other.found() }),
    }
}

fn prefix(item: &Value) -> Result<Prefix, Cause> {
    let (what, example) = ("an address or a prefix", "\"192.0.2.0/24\" or \"2001:db8::/32\"");
    match item {
        Value::Text(text) => text.parse().map_err(|_| Cause::BadText { text: text.clone(), what, example }),
        other => Err(Cause::WrongType { expected: "a prefix in quotes", found: other.found() }),
    }
}

fn span(item: &Value, most: u16) -> Result<Span, Cause> {
    let within = |value: i64| {
        let max = i64::from(most);
        let number = u16::try_from(value).ok().filter(|number| *number <= most);
        number.ok_or(Cause::OutOfRange { value, min: 0, max, unit: "" })
    };
    match item {
        Value::Integer(value) => within(*value).map(|only| Span { first: only, last: only }),
        Value::Text(text) => {
            let (what, example) = ("a number or a range", "1024 or \"1024-2047\"");
            let bad = || Cause::BadText { text: text.clone(), what, example };
            let RawRange(from, to) = text.parse().map_err(|()| bad())?;
            let (first, last) = (within(from)?, within(to)?);
            if first > last { Err(Cause::ReversedRange { from, to }) } else { Ok(Span { first, last }) }
        }
        other => Err(Cause::WrongType { expected: "a number or a range", found: other.found() }),
    }
}

fn read_flags(rule: &mut Fields<'_>, findings: &mut Findings) -> TcpFlags {
    let mut flags = TcpFlags::default();
    let one = |item: &Value| {
        let Value::Text(text) = item else {
            return Err(Cause::NotAWord { found: item.found(), choices: &TcpFlags::WORDS });
        };
        let (set, word) = text.strip_prefix('!').map_or((true, text.as_str()), |word| (false, word));
        let near = nearest(word, TcpFlags::WORDS);
        let bit = TcpFlags::WORDS.iter().position(|flag| *flag == word);
        let choices = &TcpFlags::WORDS;
        bit.map(|bit| (1_u8 << bit, set)).ok_or(Cause::NotOneOf { value: text.clone(), near, choices })
    };
    for (bit, set) in each(rule, "tcp_flags", findings, one) {
        if flags.mask & bit != 0 {
            let value = format!("{:?}", TcpFlags::WORDS[bit.trailing_zeros() as usize]);
            findings.add(
                rule.place_of("tcp_flags"),
                rule.path("tcp_flags"),
                Cause::Repeated { what: "flag", value },
            );
        }
        flags.mask |= bit;
        flags.value |= if set { bit } else { 0 };
    }
    flags.value &= flags.mask;
    flags
}

fn read_patterns(rule: &mut Fields<'_>, findings: &mut Findings) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    let items = rule.items("pattern", findings).unwrap_or_default();
    rule.limit("pattern", "patterns", items.len(), PATTERN_LIMIT, findings);
    for (object, item) in items.into_iter().take(PATTERN_LIMIT) {
        let Some(mut fields) = table_of(&object, item, findings) else { continue };
        if !fields.has("bytes") {
            fields.missing("bytes", "bytes = \"0a0b\"", findings);
        }
        let base = fields.word("at", PatternBase::WORDS, &PatternBase::ALL, findings);
        let offset = fields.number("offset", (0, u16::MAX.into()), " bytes", findings).unwrap_or(0);
        let bytes = read_hex(&mut fields, "bytes", findings);
        let mask = read_hex(&mut fields, "mask", findings).unwrap_or_default();
        let (place, object) = (fields.place, fields.object.clone());
        fields.finish(findings);
        let Some(bytes) = bytes else { continue };
        let hidden = bytes.iter().zip(&mask).any(|(byte, mask)| byte & !mask != 0);
        if !mask.is_empty() && (mask.len() != bytes.len() || hidden) {
            findings.add(place, object, Cause::BadMask);
            continue;
        }
        patterns.push(Pattern { base: base.unwrap_or(PatternBase::Payload), offset, bytes, mask });
    }
    patterns
}

fn read_hex(fields: &mut Fields<'_>, key: &'static str, findings: &mut Findings) -> Option<Vec<u8>> {
    let text = fields.text(key, findings)?;
    let whole = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let digits = (2..=2 * Pattern::LIMIT).contains(&text.len());
    if !whole || !digits {
        let (what, example) = ("1 to 32 bytes in hexadecimal digits", "\"0a0b\"");
        findings.add(
            fields.place_of(key),
            fields.path(key),
            Cause::BadText { text: text.chars().take(80).collect(), what, example },
        );
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
