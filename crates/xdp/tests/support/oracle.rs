//! Reference implementation of the filter as a list of rules. The rules are compared with a frame one after the other.
//! The code shares nothing with the compiler of filter rules and with the hook (XDP program).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::net::Prefix;
use packet::net::{Family, FragmentState, Pattern, PatternBase, RateUnit, VlanMatch};
use xdp::filter::{Action, Match, Moment, Rule, RuleSet, Unreadable};

/// Outcome of the filter for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Continue,
    Drop,
    Limit,
}

/// Counts of a rule: packets, bytes, and packets on which it acted.
pub type Counts = (u64, u64, u64);

/// Rules with their counters and token buckets. Rates must be so low that no bucket gets a new token during a test.
pub struct Oracle {
    rules: Vec<Rule>,
    asked: Asked,
    drops_unreadable: bool,
    pub counts: HashMap<String, Counts>,
    spent: HashMap<(String, Option<IpAddr>), u64>,
    pub listed: Vec<Prefix>,
}

/// Parts of a frame that at least one rule matches. A frame in which these parts cannot be reached is unreadable.
#[derive(Debug, Clone, Copy)]
struct Asked {
    headers: bool,
    transport: bool,
    ports: bool,
    tcp: bool,
}

impl Asked {
    fn by(rules: &[Rule]) -> Asked {
        let any = |of: fn(&Match) -> bool| rules.iter().any(|rule| of(&rule.matches));
        let tcp = any(|m| m.tcp_flags.is_some() || !m.patterns.is_empty());
        let ports = tcp || any(|m| !m.source_ports.is_empty() || !m.destination_ports.is_empty());
        let behind = |p: &Pattern| matches!(p.base, PatternBase::Transport | PatternBase::Payload);
        let transport = any(|m| !m.protocols.is_empty() || !m.fragments.is_empty() || m.tcp_flags.is_some())
            || any(|m| !m.source_ports.is_empty() || !m.destination_ports.is_empty())
            || rules.iter().any(|rule| rule.matches.patterns.iter().any(behind));
        Asked { headers: rules.iter().any(|rule| of_headers(&rule.matches)), transport, ports, tcp }
    }
}

fn of_headers(m: &Match) -> bool {
    let plain = Match {
        lengths: m.lengths.clone(),
        patterns: m.patterns.iter().filter(|pattern| pattern.base == PatternBase::Frame).cloned().collect(),
        ..Match::default()
    };
    *m != plain
}

/// The fields of a parsed frame.
#[derive(Debug, Clone)]
pub struct Facts {
    family: Family,
    fragment: FragmentState,
    protocol: Option<u8>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    ports: Option<(u16, u16)>,
    flags: Option<u8>,
    vlan: Option<u16>,
    network: Option<usize>,
    transport: Option<usize>,
    payload: Option<usize>,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn is_tag(ethertype: u16) -> bool {
    ethertype == 0x8100 || ethertype == 0x88a8
}

impl Facts {
    fn of(frame: &[u8], asked: Asked) -> Facts {
        let mut facts = Facts {
            family: Family::Other,
            fragment: FragmentState::Whole,
            protocol: None,
            source: None,
            destination: None,
            ports: None,
            flags: None,
            vlan: None,
            network: None,
            transport: None,
            payload: None,
        };
        // Tags are read two words at a time.
        let tags = (0..17).map_while(|at| {
            let tag = word(frame, 12 + 4 * at).filter(|ethertype| is_tag(*ethertype));
            tag.map(|_| word(frame, 16 + 4 * at).and(word(frame, 14 + 4 * at)))
        });
        let tags: Vec<Option<u16>> = tags.collect();
        let vids = tags.iter().flatten().map(|control| control % 4096);
        let behind = word(frame, 12 + 4 * tags.len());
        if tags.len() > 16 || tags.contains(&None) || behind.is_none() {
            facts.fragment = FragmentState::Unreadable;
            facts.vlan = vids.take(16).find(|vid| *vid != 0);
            return facts;
        }
        facts.vlan = vids.clone().find(|vid| *vid != 0);
        let at = 14 + 4 * tags.len();
        match behind {
            Some(0x0800) => facts.ipv4(frame, at, asked),
            Some(0x86dd) => facts.ipv6(frame, at, asked),
            _ => {}
        }
        if facts.family == Family::Malformed {
            facts.fragment = FragmentState::Unreadable;
        }
        facts
    }

    fn ipv4(&mut self, frame: &[u8], at: usize, asked: Asked) {
        self.network = Some(at);
        let ip = &frame[at..];
        if ip.len() < 20 || ip[0] >> 4 != 4 || ip[0] & 15 < 5 {
            self.family = Family::Malformed;
            return;
        }
        self.family = Family::Ipv4;
        let address = |at: usize| IpAddr::from(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
        (self.source, self.destination) = (Some(address(12)), Some(address(16)));
        if !asked.transport {
            return;
        }
        let header = usize::from(ip[0] & 15) * 4;
        self.protocol = Some(ip[9]);
        let (more, offset) = (ip[6] & 0x20 != 0, usize::from(u16::from_be_bytes([ip[6] & 0x1f, ip[7]])) * 8);
        self.fragment = match (offset, more) {
            (8 | 16, _) if ip[9] == 6 => FragmentState::Unreadable,
            (0, true) => FragmentState::First,
            (0, false) => FragmentState::Whole,
            _ => FragmentState::Later,
        };
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let packet = match total {
            // The packet will be segmented later.
            0 if self.fragment == FragmentState::Whole => frame,
            0 => return self.fragment = FragmentState::Unreadable,
            _ => frame.get(..at + total).unwrap_or(frame),
        };
        if packet.len() < at + header || total != 0 && total < header {
            self.fragment = FragmentState::Unreadable;
        } else if matches!(self.fragment, FragmentState::Whole | FragmentState::First) {
            self.transport(packet, at + header, asked);
        }
    }

    fn ipv6(&mut self, frame: &[u8], at: usize, asked: Asked) {
        self.network = Some(at);
        let ip = &frame[at..];
        if ip.len() < 40 || ip[0] >> 4 != 6 {
            self.family = Family::Malformed;
            return;
        }
        self.family = Family::Ipv6;
        let address =
            |at: usize| IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()));
        (self.source, self.destination) = (Some(address(8)), Some(address(24)));
        if !asked.transport {
            return;
        }
        let total = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        let end = if total == 0 { usize::MAX } else { at + 40 + total };
        let (mut next, mut at) = (ip[6], at + 40);
        for _ in 0..=6 {
            let length = match next {
                0 | 43 | 60 => frame.get(at + 1).map(|n| (usize::from(*n) + 1) * 8),
                51 => frame.get(at + 1).map(|n| (usize::from(*n) + 2) * 4),
                44 => (frame.len() >= at + 8).then_some(8),
                _ => {
                    self.protocol = Some(next);
                    if at > end {
                        self.fragment = FragmentState::Unreadable;
                    } else {
                        self.transport(frame.get(..end).unwrap_or(frame), at, asked);
                    }
                    return;
                }
            };
            let Some(length) = length else { break };
            if next == 44 {
                let field = word(frame, at + 2).unwrap();
                let offset = field / 8 * 8;
                if (offset != 0 || field % 2 == 1) && (total == 0 || at + 8 > end) {
                    break;
                }
                if offset != 0 {
                    self.fragment =
                        if offset < 64 { FragmentState::Unreadable } else { FragmentState::Later };
                    self.protocol = Some(frame[at]);
                    return;
                }
                if field % 2 == 1 {
                    self.fragment = FragmentState::First;
                }
            }
            next = frame[at];
            at += length;
        }
        self.fragment = FragmentState::Unreadable;
    }

    /// Reads the transport header. `packet` ends where the packet or the frame ends, which may be before the transport
    /// header.
    fn transport(&mut self, packet: &[u8], at: usize, asked: Asked) {
        if !asked.ports {
            return;
        }
        self.transport = Some(at);
        if !matches!(self.protocol, Some(6 | 17 | 33 | 132 | 136)) {
            return;
        }
        let (Some(source), Some(destination)) = (word(packet, at), word(packet, at + 2)) else {
            return self.fragment = FragmentState::Unreadable;
        };
        self.ports = Some((source, destination));
        match self.protocol {
            Some(17 | 136) => self.payload = Some(at + 8),
            Some(6) if !asked.tcp => {}
            Some(6) if packet.len() >= at + 20 => {
                self.flags = Some(packet[at + 13]);
                let words = usize::from(packet[at + 12] >> 4);
                self.payload = (words >= 5).then_some(at + words * 4);
            }
            Some(6) => self.fragment = FragmentState::Unreadable,
            _ => {}
        }
    }

    fn has(&self, frame: &[u8], pattern: &Pattern) -> bool {
        let base = match pattern.base {
            PatternBase::Frame => Some(0),
            PatternBase::Network => self.network,
            PatternBase::Transport => self.transport,
            PatternBase::Payload => self.payload,
        };
        let Some(base) = base else { return false };
        let at = base + usize::from(pattern.offset);
        let Some(bytes) = frame.get(at..at + pattern.bytes.len()) else { return false };
        bytes
            .iter()
            .zip(&pattern.bytes)
            .enumerate()
            .all(|(at, (have, want))| have & pattern.mask.get(at).copied().unwrap_or(0xff) == *want)
    }

    fn fits(&self, frame: &[u8], rule: &Rule, asked: Asked, listed: &[Prefix]) -> bool {
        let m = &rule.matches;
        let is_unreadable = asked.headers && self.fragment == FragmentState::Unreadable;
        let is_named = m.fragments.contains(&FragmentState::Unreadable)
            || (self.family == Family::Malformed && m.families.contains(&Family::Malformed));
        if is_unreadable && rule.action == Action::Pass && !is_named {
            return false;
        }
        let ip = matches!(self.family, Family::Ipv4 | Family::Ipv6);
        let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let within = |list: &[Prefix], address: Option<IpAddr>| {
            list.is_empty() || address.is_some_and(|address| list.iter().any(|p| p.contains(address)))
        };
        let vlan = |vlan: &VlanMatch| match vlan {
            VlanMatch::Untagged => self.vlan.is_none(),
            VlanMatch::Tagged(ids) => ids.range().contains(&self.vlan.unwrap_or(0)),
        };
        let (sport, dport) = (self.ports.map(|p| p.0), self.ports.map(|p| p.1));
        (m.families.is_empty() || m.families.contains(&self.family))
            && (m.fragments.is_empty() || ((ip || is_unreadable) && m.fragments.contains(&self.fragment)))
            && (m.protocols.is_empty() || self.protocol.is_some_and(|p| m.protocols.contains(&p)))
            && within(&m.sources, self.source)
            && within(&m.destinations, self.destination)
            && any_port(&m.source_ports, sport)
            && any_port(&m.destination_ports, dport)
            && (m.lengths.is_empty() || m.lengths.iter().any(|r| r.contains(&length)))
            && (m.vlans.is_empty() || m.vlans.iter().any(vlan))
            && m.tcp_flags.is_none_or(|f| self.flags.is_some_and(|flags| flags & f.mask == f.value))
            && m.patterns.iter().all(|pattern| self.has(frame, pattern))
            && (!m.listed || self.source.is_some_and(|source| listed.iter().any(|p| p.contains(source))))
    }
}

fn any_port(list: &[std::ops::RangeInclusive<u16>], port: Option<u16>) -> bool {
    list.is_empty() || port.is_some_and(|port| list.iter().any(|range| range.contains(&port)))
}

impl Oracle {
    pub fn new(set: &RuleSet) -> Oracle {
        let mut rules = set.rules.clone();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let names = rules.iter().map(|rule| rule.name.as_str()).chain([Unreadable::RULE]);
        let counts = names.map(|name| (name.to_owned(), (0, 0, 0))).collect();
        let stops = |rule: &Rule| match rule.action {
            Action::Drop => of_headers(&rule.matches),
            Action::RateLimit { per_source, .. } => per_source.is_some() || of_headers(&rule.matches),
            _ => false,
        };
        let drops_unreadable =
            set.unreadable == Unreadable::Drop && rules.iter().any(|rule| !rule.dry_run && stops(rule));
        let asked = Asked::by(&rules);
        Oracle { rules, asked, drops_unreadable, counts, spent: HashMap::new(), listed: Vec::new() }
    }

    pub fn see(&mut self, frame: &[u8]) -> Outcome {
        let (facts, now) = (Facts::of(frame, self.asked), Moment::now());
        let length = u64::try_from(frame.len()).unwrap();
        for rule in &self.rules {
            let expired = rule.expires.is_some_and(|at| at <= now);
            if expired || !facts.fits(frame, rule, self.asked, &self.listed) {
                continue;
            }
            let acted = match &rule.action {
                Action::Drop | Action::Pass => true,
                Action::Count => false,
                Action::Sample { one_in } => *one_in == 1,
                Action::RateLimit { rate, per_source } => {
                    let source = per_source.map(|bits| match facts.source {
                        Some(IpAddr::V4(v4)) => Prefix::new(v4.into(), bits.ipv4).unwrap().address(),
                        Some(IpAddr::V6(v6)) => Prefix::new(v6.into(), bits.ipv6).unwrap().address(),
                        // Frames without a source share a bucket, under an address that does not occur.
                        None => Ipv6Addr::from_bits(0xabcd).into(),
                    });
                    let spent = self.spent.entry((rule.name.clone(), source)).or_default();
                    let cost = if rate.unit == RateUnit::Bytes { length } else { 1 };
                    let over = *spent + cost > rate.burst;
                    *spent += if over { 0 } else { cost };
                    over
                }
                Action::SynCookie(_) => panic!("rules with cookies have tests of their own"),
            };
            let count = self.counts.get_mut(&rule.name).unwrap();
            *count = (count.0 + 1, count.1 + length, count.2 + u64::from(acted));
            if acted && !rule.dry_run {
                match rule.action {
                    Action::Drop => return Outcome::Drop,
                    Action::Pass => return Outcome::Continue,
                    Action::RateLimit { .. } => return Outcome::Limit,
                    _ => {}
                }
            }
        }
        if self.drops_unreadable && facts.fragment == FragmentState::Unreadable {
            let count = self.counts.get_mut(Unreadable::RULE).unwrap();
            *count = (count.0 + 1, count.1 + length, count.2 + 1);
            return Outcome::Drop;
        }
        Outcome::Continue
    }
}
