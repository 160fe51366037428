//! Random rules and random frames. Rules and frames are built from a small set of values, so that frames often match
//! rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use packet::net::Prefix;
use packet::net::{
    Family, FragmentState, Pattern, PatternBase, RateUnit, SourceBits, Span, TcpFlags, VlanMatch,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use xdp::filter::{Action, Match, Moment, Rate, Rule, RuleSet, Unreadable};

/// Generates addresses whose octets have only a few different values, so that many prefixes are nested and many rules
/// match.
pub fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = vec(select(vec![0_u8, 1, 2, 128, 255]), 4);
    let v6 = vec(select(vec![0_u8, 1, 128]), 16);
    prop_oneof![
        v4.prop_map(|b| IpAddr::from(Ipv4Addr::new(b[0], b[1], b[2], b[3]))),
        v6.prop_map(|b| IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(b).unwrap()))),
    ]
}

pub fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0..=128_u8).prop_map(|(address, length)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        Prefix::new(address, length % (most + 1)).unwrap()
    })
}

const PORTS: [u16; 7] = [0, 1, 53, 80, 443, 1024, 65535];
const PROTOCOLS: [u8; 9] = [1, 6, 17, 33, 47, 58, 132, 136, 59];
const BYTES: [u8; 4] = [0, 1, 0x45, 0xff];

fn ranges(of: &'static [u16]) -> impl Strategy<Value = Vec<RangeInclusive<u16>>> {
    vec((select(of), select(of)).prop_map(|(a, b)| a.min(b)..=a.max(b)), 1..3)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let base =
        select(vec![PatternBase::Frame, PatternBase::Network, PatternBase::Transport, PatternBase::Payload]);
    let mask = select(vec![vec![], vec![0xff, 0xff], vec![0xf0, 0x0f], vec![0, 0xff]]);
    (base, select(vec![0_u16, 1, 7, 200]), select(BYTES.to_vec()), 1..12_usize, mask).prop_map(
        |(base, offset, byte, count, mask)| {
            let bytes =
                if mask.is_empty() { vec![byte; count] } else { vec![byte & mask[0], byte & mask[1]] };
            Pattern { base, offset, bytes, mask }
        },
    )
}

fn tcp_flags() -> impl Strategy<Value = TcpFlags> {
    (select(vec![0x02_u8, 0x12, 0x17, 0xff]), any::<u8>())
        .prop_map(|(mask, value)| TcpFlags { mask, value: value & mask })
}

fn vlan() -> impl Strategy<Value = VlanMatch> {
    prop_oneof![
        Just(VlanMatch::Untagged),
        select(vec![(0, 0), (1, 5), (7, 4095), (0, 4095)])
            .prop_map(|(first, last)| VlanMatch::Tagged(Span { first, last }))
    ]
}

fn listing<T: Clone + std::fmt::Debug + 'static>(
    chance: f64,
    list: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = Vec<T>> {
    weighted(chance, list).prop_map(Option::unwrap_or_default)
}

fn matches() -> impl Strategy<Value = Match> {
    let families = vec![Family::Other, Family::Ipv4, Family::Ipv6, Family::Malformed];
    let fragments =
        vec![FragmentState::Whole, FragmentState::First, FragmentState::Later, FragmentState::Unreadable];
    let first = (
        listing(0.2, subsequence(families, 1..4)),
        listing(0.2, subsequence(fragments, 1..4)),
        listing(0.3, subsequence(PROTOCOLS.to_vec(), 1..4)),
        listing(0.4, vec(prefix(), 1..4)),
        listing(0.4, vec(prefix(), 1..4)),
        listing(0.2, ranges(&PORTS)),
        listing(0.2, ranges(&PORTS)),
    );
    let second = (
        listing(0.1, ranges(&[14, 60, 61, 74, 100, 65535])),
        listing(0.2, vec(vlan(), 1..3)),
        weighted(0.1, tcp_flags()),
        listing(0.05, vec(pattern(), 1..3)),
        proptest::bool::weighted(0.1),
    );
    (first, second).prop_map(|(a, b)| Match {
        families: a.0,
        fragments: a.1,
        protocols: a.2,
        sources: a.3,
        destinations: a.4,
        source_ports: a.5,
        destination_ports: a.6,
        lengths: b.0,
        vlans: b.1,
        tcp_flags: b.2,
        patterns: b.3,
        listed: b.4,
    })
}

/// Generates rate limit actions whose buckets refill so slowly that no token is added during a test.
fn limit() -> impl Strategy<Value = Action> {
    let source =
        weighted(0.5, (0..=32_u8, 0..=128_u8).prop_map(|(v4, v6)| SourceBits { ipv4: v4, ipv6: v6 }));
    (any::<bool>(), 1..4_u64, source).prop_map(|(bytes, burst, per_source)| {
        let hour = Duration::from_secs(3600);
        let rate = if bytes {
            // 36,000 bytes an hour are one byte in 100 ms. The duration of a test must not add a frame.
            Rate { unit: RateUnit::Bytes, amount: 36_000, per: hour, burst: burst * 64 }
        } else {
            Rate { unit: RateUnit::Packets, amount: 1, per: hour, burst }
        };
        Action::RateLimit { rate, per_source }
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => Just(Action::Drop),
        2 => Just(Action::Pass),
        2 => Just(Action::Count),
        1 => Just(Action::Sample { one_in: 1 }),
        1 => limit(),
    ]
}

/// Generates rule sets in which the rules are named by their position. Rules that can never match do not occur, because
/// other tests cover them.
pub fn rule_set(count: RangeInclusive<usize>) -> impl Strategy<Value = RuleSet> {
    let long_ago = Just(Some(Moment(1)));
    let far = Just(Some(Moment(u64::MAX)));
    let expires = prop_oneof![8 => Just(None), 1 => long_ago, 1 => far];
    let rule = (0..4_u32, matches(), action(), proptest::bool::weighted(0.2), expires);
    let rules =
        vec(rule, count).prop_map(|rules| -> Vec<Rule> {
            let named =
                rules.into_iter().enumerate().map(|(at, (priority, matches, action, dry_run, expires))| {
                    Rule { name: format!("rule-{at}"), priority, matches, action, dry_run, expires }
                });
            named.collect()
        });
    let unreadable = select(vec![Unreadable::Drop, Unreadable::Pass]);
    (rules, unreadable).prop_map(|(rules, unreadable)| RuleSet { rules, unreadable })
}

fn addresses(v6: bool, from: &IpAddr, to: &IpAddr) -> Vec<u8> {
    let bytes = |address: &IpAddr| match (v6, address) {
        (false, IpAddr::V4(v4)) => v4.octets().to_vec(),
        (true, IpAddr::V6(v6)) => v6.octets().to_vec(),
        (false, IpAddr::V6(v6)) => v6.octets()[..4].to_vec(),
        (true, IpAddr::V4(v4)) => v4.octets().repeat(4),
    };
    [bytes(from), bytes(to)].concat()
}

fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ports = (select(PORTS.to_vec()), select(PORTS.to_vec()));
    let words = select(vec![0x50_u8, 0x60, 0x40, 0xf0]);
    let payload = vec(select(BYTES.to_vec()), 0..24);
    (select(PROTOCOLS.to_vec()), ports, words, any::<u8>(), payload).prop_map(
        |(protocol, (from, to), words, flags, payload)| {
            let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
            match protocol {
                6 => {
                    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, words, flags, 1, 0, 0, 0, 0, 0]);
                    bytes.extend([1; 4]);
                }
                _ => bytes.extend([0, 8, 0, 0]),
            }
            bytes.extend(payload);
            (protocol, bytes)
        },
    )
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let fragment = select(vec![0_u16, 0, 0, 0x2000, 0x2001, 1, 2, 3, 0x4000]);
    let length = select(vec![0_u16, 0, 16, 24, 28, 36, 60, 500]);
    (address(), address(), transport(), (fragment, length), 4..8_u8).prop_map(
        |(from, to, (protocol, payload), (fragment, length), words)| {
            let [high, low] = length.to_be_bytes();
            let mut packet = vec![0x40 | words, 0, high, low, 0, 1];
            packet.extend(fragment.to_be_bytes());
            packet.extend([64, protocol, 0, 0]);
            packet.extend(addresses(false, &from, &to));
            packet.resize(usize::from(words.max(5)) * 4, 1);
            packet.extend(payload);
            packet
        },
    )
}

/// Generates IPv6 packets with random extension headers. The fragment header (44) has a random offset. The
/// authentication header (51) has its length field in units of 4 bytes, and the other headers in units of 8 bytes.
fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let header = (select(vec![0_u8, 43, 60, 44, 51]), select(vec![0_u16, 1, 8, 9, 63, 64, 65, 128]));
    let length = select(vec![0_u16, 0, 4, 8, 12, 24, 60, 500]);
    let chain = prop_oneof![3 => Just(vec![]), 2 => vec(header.clone(), 1..4), 1 => vec(header, 5..9)];
    (address(), address(), transport(), (chain, length)).prop_map(
        |(from, to, (protocol, payload), (chain, length))| {
            let [high, low] = length.to_be_bytes();
            let next_of = |at: usize| chain.get(at).map_or(protocol, |(number, _)| *number);
            let mut packet = vec![0x60, 0, 0, 0, high, low, next_of(0), 64];
            packet.extend(addresses(true, &from, &to));
            for (at, (number, offset)) in chain.iter().enumerate() {
                packet.extend([next_of(at + 1), 0]);
                match number {
                    44 => packet.extend([offset.to_be_bytes(), [0; 2], [0; 2]].concat()),
                    51 => packet.extend([0; 6]),
                    _ => packet.extend([1, 4, 0, 0, 0, 0]),
                }
            }
            packet.extend(payload);
            packet
        },
    )
}

/// Generates frames with some VLAN tags, or with more tags than the filter reads. Some frames are truncated or changed
/// in one byte.
pub fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        4 => ipv4().prop_map(|p| (0x0800_u16, p)),
        4 => ipv6().prop_map(|p| (0x86dd, p)),
        1 => vec(any::<u8>(), 0..40).prop_map(|p| (0x0806, p)),
    ];
    let tags = vec((select(vec![0x8100_u16, 0x88a8]), select(vec![0_u16, 1, 5, 7, 0xe007, 4095])), 0..3);
    let stack = (15..18_usize, select(vec![0_u16, 0, 5])).prop_map(|(count, vid)| vec![(0x8100, vid); count]);
    let tags = prop_oneof![4 => Just(vec![]), 3 => tags, 1 => Just(vec![(0x8100, 1); 3]), 1 => stack];
    let cut = weighted(0.2, any::<prop::sample::Index>());
    let change = weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (payload, tags, cut, change).prop_map(|((ethertype, payload), tags, cut, change)| {
        let mut frame = super::ethernet(super::to_us(), &tags, ethertype, &payload);
        if let Some((at, byte)) = change {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(14 + cut.index(frame.len() - 13));
        }
        frame
    })
}
