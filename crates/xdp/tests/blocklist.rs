//! Compares the lookups of the hook (a port's XDP program) in its block list with a search in the list of prefixes.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::net::Prefix;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::{config, frame4, frame6};
use xdp::filter::{
    Action, Blocklist, Compiled, Filter, FilterError, FilterSizes, Match, Moment, Rule, RuleSet, read_list,
};
use xdp::{Error, Loaded, Owner, PortProgram, Verdict, WhenDown};

/// A port that drops listed sources and passes the rest.
struct Port {
    list: Blocklist,
    filter: Filter,
    loaded: Loaded,
}

fn listed() -> Compiled {
    let rule = Rule {
        name: "listed".to_owned(),
        priority: 0,
        matches: Match { listed: true, ..Match::default() },
        action: Action::Drop,
        dry_run: false,
        expires: None,
    };
    Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap()
}

impl Port {
    fn new(prefixes: impl IntoIterator<Item = Prefix>) -> Port {
        let list = Blocklist::new(prefixes).unwrap();
        let filter = Filter::new(&listed(), FilterSizes::default(), Some(&list)).unwrap();
        let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
        Port { list, filter, loaded }
    }

    fn drops(&self, source: IpAddr) -> bool {
        drops(&self.loaded, source)
    }
}

fn drops(loaded: &Loaded, source: IpAddr) -> bool {
    let frame = match source {
        IpAddr::V4(v4) => frame4(Ipv4Addr::LOCALHOST, |ip| ip[12..16].copy_from_slice(&v4.octets())),
        IpAddr::V6(v6) => {
            let mut frame = frame6(Ipv6Addr::LOCALHOST, 17, &[0; 8]);
            frame[22..38].copy_from_slice(&v6.octets());
            frame
        }
    };
    loaded.test_run(&frame).unwrap().verdict == Verdict::Drop
}

/// Returns addresses at which the look-up result may change: the first and the last address of a prefix, and the
/// addresses before and after the prefix.
fn edges(prefix: Prefix) -> [IpAddr; 4] {
    match prefix.address() {
        IpAddr::V4(v4) => {
            let first = v4.to_bits();
            let last = first | u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)].map(|a| Ipv4Addr::from_bits(a).into())
        }
        IpAddr::V6(v6) => {
            let first = v6.to_bits();
            let last = first | u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)].map(|a| Ipv6Addr::from_bits(a).into())
        }
    }
}

fn covered(prefixes: &BTreeSet<Prefix>, address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(address))
}

/// Generates prefixes from a few address ranges, so that many prefixes are nested or adjacent.
fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (select(vec![0x0a00_0000_u32, 0x0a00_0100, 0xffff_ff00]), 0..512_u32, 0..=32_u8)
        .prop_map(|(base, host, length)| (Ipv4Addr::from_bits(base ^ host).into(), length));
    let high = select(vec![0_u64, 1, 0x2001_0db8_0000_0000, 0x2001_0db8_0000_0001, u64::MAX >> 1]);
    let low = select(vec![0_u64, 1, 2, 1 << 63, u64::MAX]);
    let v6 = (high, low, 0..=128_u8).prop_map(|(high, low, length)| {
        (Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(), length)
    });
    let long4 = v4.clone().prop_map(|(address, length): (IpAddr, u8)| (address, 24 + length % 9));
    prop_oneof![2 => v4, 4 => long4, 3 => v6]
        .prop_map(|(address, length)| Prefix::new(address, length).unwrap())
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Prefix),
    InsertAll(Vec<Prefix>),
    Remove(prop::sample::Index),
    Replace(Vec<Prefix>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prefix().prop_map(Step::Insert),
        2 => proptest::collection::vec(prefix(), 0..20).prop_map(Step::InsertAll),
        5 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => prop::collection::vec(prefix(), 0..40).prop_map(Step::Replace),
    ]
}

#[test]
fn changes_agree_with_the_prefixes() {
    need_root!();
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let cases = (prop::collection::vec(prefix(), 0..30), prop::collection::vec(step(), 0..60));
    let check = |(start, steps): (Vec<Prefix>, Vec<Step>)| {
        let mut port = Port::new(start.clone());
        let mut truth: BTreeSet<Prefix> = start.iter().copied().collect();
        let mut seen: BTreeSet<IpAddr> = start.into_iter().flat_map(edges).collect();
        for step in steps {
            let touched: Vec<Prefix> = match step {
                Step::Insert(prefix) => {
                    truth.insert(prefix);
                    port.list.insert(prefix, None).unwrap();
                    vec![prefix]
                }
                Step::InsertAll(list) => {
                    truth.extend(&list);
                    let (refused, error) = port.list.insert_all(&list, None);
                    prop_assert!(refused.is_empty() && error.is_none(), "{:?}", error);
                    list
                }
                Step::Remove(_) if truth.is_empty() => vec![],
                Step::Remove(at) => {
                    let prefix = *truth.iter().nth(at.index(truth.len())).unwrap();
                    truth.remove(&prefix);
                    prop_assert!(port.list.remove(prefix).unwrap());
                    prop_assert!(!port.list.remove(prefix).unwrap());
                    vec![prefix]
                }
                Step::Replace(list) => {
                    truth = list.iter().copied().collect();
                    port.list.replace(list.clone()).unwrap();
                    list
                }
            };
            for address in touched.iter().copied().flat_map(edges) {
                prop_assert_eq!(port.drops(address), covered(&truth, address), "{}", address);
                seen.insert(address);
            }
            prop_assert_eq!(port.list.len(), truth.len());
        }
        for address in seen {
            prop_assert_eq!(port.drops(address), covered(&truth, address), "{}", address);
        }
        Ok(())
    };
    runner.run(&cases, check).unwrap();
}

/// Returns a generator of pseudo-random numbers. The sequence of numbers is the same in every run.
fn noise(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn address4(bits: u64) -> IpAddr {
    Ipv4Addr::from_bits(u32::try_from(bits >> 32).unwrap()).into()
}

fn address6(high: u64, low: u64) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high >> 3 | 1 << 61) << 64 | u128::from(low)).into()
}

#[test]
fn large_lists_hold_every_prefix_and_no_more() {
    need_root!();
    let mut random = noise(7);
    let mut prefixes = BTreeSet::new();
    for round in 0..120_000_u64 {
        let (a, b) = (random(), random());
        prefixes.insert(match round % 4 {
            0 | 1 => Prefix::new(address4(a), 32).unwrap(),
            2 => Prefix::new(address4(a), 20 + (b.to_le_bytes()[0] % 13)).unwrap(),
            _ => Prefix::new(address6(a, b), [48, 64, 64, 128][usize::try_from(b % 4).unwrap()]).unwrap(),
        });
    }
    let mut port = Port::new(prefixes.iter().copied());
    // Only the prefix lengths that occur are tried, because a linear search of the list would take too long.
    let lengths = |address: IpAddr| if address.is_ipv4() { 20..=32 } else { 48..=128_u8 };
    let truth = |all: &BTreeSet<Prefix>, address| {
        lengths(address).any(|length| all.contains(&Prefix::new(address, length).unwrap()))
    };
    for prefix in prefixes.iter().step_by(30) {
        for address in edges(*prefix) {
            assert_eq!(port.drops(address), truth(&prefixes, address), "{address}");
        }
    }
    for _ in 0..4000 {
        for address in [address4(random()), address6(random(), random())] {
            assert_eq!(port.drops(address), truth(&prefixes, address), "{address}");
        }
    }
    // There are enough new prefixes for the table to grow.
    let before = port.list.table_bytes();
    for _ in 0..300_000 {
        let prefix = Prefix::new(address4(random()), 32).unwrap();
        prefixes.insert(prefix);
        port.list.insert(prefix, None).unwrap();
    }
    assert!(port.list.table_bytes() > before);
    for prefix in prefixes.iter().step_by(100) {
        for address in edges(*prefix) {
            assert_eq!(port.drops(address), truth(&prefixes, address), "{address}");
        }
    }
}

/// If a block list that was built separately replaces the list of a filter, the XDP program must use the new list,
/// including later changes of the list.
#[test]
fn a_filter_continues_with_a_list_that_was_built_apart() {
    need_root!();
    let prefix = |text: &str| -> Prefix { text.parse().unwrap() };
    let mut port = Port::new([prefix("10.0.0.0/8")]);
    let view = port.list.view();
    let mut built = Blocklist::new([prefix("192.0.2.0/24")]).unwrap();
    built.insert(prefix("198.51.100.1/32"), Some(Moment(1))).unwrap();
    let (before, after, ending) = ("10.1.1.1", "192.0.2.1", "198.51.100.1");
    let drops = |port: &Port| [before, after, ending].map(|text| port.drops(text.parse().unwrap()));
    assert_eq!(drops(&port), [true, false, false], "the list is not in use yet");
    let former = port.list.take_over(built).unwrap();
    assert_eq!(drops(&port), [false, true, true]);
    assert!(!view.is_of(&port.list) && view.has(before.parse().unwrap()), "the former table does not change");
    drop(former);
    assert_eq!((port.list.expire(Moment(1)).unwrap(), port.list.len()), (1, 1));
    port.list.insert(prefix("10.1.0.0/16"), None).unwrap();
    assert_eq!(drops(&port), [true, true, false]);
    // A second list, and a list whose table grows, put their table into the same slot.
    drop(port.list.take_over(Blocklist::new([]).unwrap()).unwrap());
    assert_eq!(drops(&port), [false; 3]);
    let many: Vec<Prefix> = (0..2000_u32)
        .map(|at| Prefix::new(Ipv4Addr::from_bits(0x0a01_0101 + at * 16).into(), 32).unwrap())
        .collect();
    assert!(port.list.insert_all(&many, None).0.is_empty());
    assert_eq!(drops(&port), [true, false, false]);
}

/// While other entries of the list change, a look-up must always find an address that stays in the list, and must never
/// find an address that is never in the list.
#[test]
fn look_ups_are_never_torn() {
    need_root!();
    let mut port = Port::new([]);
    let always: IpAddr = "10.9.8.7".parse().unwrap();
    let never: IpAddr = "10.9.8.8".parse().unwrap();
    let always6: IpAddr = "2001:db8::7".parse().unwrap();
    let never6: IpAddr = "2001:db8::8".parse().unwrap();
    let fixed: Vec<Prefix> = ["10.9.8.7/32", "2001:db8::7/128"].map(|t| t.parse().unwrap()).into();
    port.list.replace(fixed.clone()).unwrap();
    let Port { mut list, loaded, filter: _filter } = port;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = noise(99);
            for round in 0..3000_u64 {
                let bits = random();
                // Addresses whose entries are in the same words of the table, and a prefix that also covers the listed
                // address.
                let near4 = 0x0a09_0810 + u32::try_from(bits % 240).unwrap();
                let near6 = 0x2001_0db8 << 96 | u128::from(bits >> 8) << 8;
                let near = [
                    Prefix::new(Ipv4Addr::from_bits(near4).into(), 32).unwrap(),
                    Prefix::new(Ipv6Addr::from_bits(near6).into(), 128).unwrap(),
                    Prefix::new(always, 31).unwrap(),
                ];
                for prefix in near {
                    list.insert(prefix, None).unwrap();
                }
                for prefix in near.into_iter().filter(|_| round % 64 != 0) {
                    list.remove(prefix).unwrap();
                }
                if round % 100 == 0 {
                    list.replace(fixed.clone()).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert!(drops(&loaded, always) && drops(&loaded, always6));
            assert!(!drops(&loaded, never) && !drops(&loaded, never6));
        }
    });
}

#[test]
fn prefixes_expire() {
    need_root!();
    let mut port = Port::new([]);
    let [a, b]: [Prefix; 2] = ["192.0.2.1", "2001:db8::/32"].map(|text| text.parse().unwrap());
    let now = Moment::now();
    let later = now.after(Duration::from_secs(60));
    port.list.insert(a, Some(now)).unwrap();
    port.list.insert(b, Some(later)).unwrap();
    assert_eq!(port.list.next_expiry(), Some(now));
    assert_eq!(port.list.expire(now).unwrap(), 1);
    assert!(!port.drops(a.address()) && port.drops(b.address()));
    // A new expiry replaces the old one.
    port.list.insert(b, None).unwrap();
    assert_eq!((port.list.next_expiry(), port.list.expire(later).unwrap()), (None, 0));
    assert!(port.drops(b.address()) && port.list.has(b) && !port.list.has(a));
}

#[test]
fn lists_are_read_from_files() {
    let directory = std::env::temp_dir().join(format!("xdp-list-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("list");
    std::fs::write(&path, "# bad\n192.0.2.0/24 ; why\n\n  2001:db8::1\t2026-01-01\n10.1.1.1/8#x\n").unwrap();
    let texts: Vec<String> = read_list(&path).unwrap().iter().map(Prefix::to_string).collect();
    assert_eq!(texts, ["192.0.2.0/24", "2001:db8::1/128", "10.0.0.0/8"]);
    std::fs::write(&path, "192.0.2.0/24\nexample.net\n").unwrap();
    let error = Blocklist::load(&path).unwrap_err();
    assert!(matches!(&error, Error::Filter(FilterError::Line { line: 2, .. })), "{error}");
    assert!(!error.to_string().contains("example.net"), "what the file holds is not told: {error}");
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(matches!(read_list(&path), Err(FilterError::File { .. })));
}
