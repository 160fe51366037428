//! Tests of the filter on a port: replacement of the rules under load, pins and replacements of the port's program,
//! samples, and rate limits.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use packet::net::{Pattern, RateUnit, SourceBits, Span, TcpFlags, VlanMatch};
use support::{Namespace, config, frame4};
use xdp::StageChange;
use xdp::filter::{
    Action, Blocklist, Compiled, Filter, FilterError, FilterSizes, Match, Rate, Rule, RuleCounters, RuleSet,
};
use xdp::live::{Generator, Traffic};
use xdp::{
    AttachMode, Attached, Counter, Error, Loaded, Owner, PinPath, PortProgram, Verdict, WhenDown, adopt,
};

fn rule(name: &str, matches: Match, action: Action) -> Rule {
    Rule { name: name.to_owned(), priority: 0, matches, action, dry_run: false, expires: None }
}

fn compiled(rules: impl IntoIterator<Item = Rule>) -> Compiled {
    Compiled::new(&RuleSet { rules: rules.into_iter().collect(), ..RuleSet::default() }).unwrap()
}

fn drop_all(name: &str) -> Compiled {
    compiled([rule(name, Match::default(), Action::Drop)])
}

fn attach(ifindex: u32, pin: Option<PinPath>) -> Attached {
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Pass)).unwrap();
    loaded.attach(ifindex, AttachMode::Native, pin).unwrap()
}

fn counted(filter: &Filter, name: &str) -> RuleCounters {
    filter.counters().unwrap().into_iter().find(|rule| rule.name == name).unwrap()
}

#[test]
fn rules_are_replaced_under_load_without_a_gap() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut filter = Filter::new(&drop_all("kept"), FilterSizes::default(), None).unwrap();
    let mut port = attach(near, None);
    port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    let dropped = |port: &Attached| port.counters().unwrap().get(Counter::FilterDropped);
    let by_both = |all: u64, filter: &Filter| (1..all).contains(&counted(filter, "kept").packets);
    let sent = namespace.under_load(&Traffic::to(far), || {
        let (mut round, begin) = (0, std::time::Instant::now());
        // On a busy machine all 60 changes may be over between two bursts of frames.
        while round < 60 || !by_both(dropped(&port), &filter) {
            // The second rule is added and removed. Each set drops all frames, by one rule or the other.
            let first = rule("comes", Match { lengths: vec![60..=60], ..Match::default() }, Action::Drop);
            let second = rule("kept", Match::default(), Action::Drop);
            let set = if round % 2 == 0 { compiled([first, second]) } else { compiled([second]) };
            filter.replace_on(&set, &mut [&mut port]).unwrap();
            round += 1;
            assert!(begin.elapsed() < Duration::from_secs(60), "frames have not met both rules");
        }
    });
    support::eventually("all frames have arrived", || dropped(&port) >= sent);
    assert_eq!(port.counters().unwrap().seen(), dropped(&port), "nothing passed, whatever rules stood");
    assert!(by_both(sent, &filter), "its counter lives on while the other comes and goes");
}

#[test]
fn pinned_filter_outlives_its_owner_and_is_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let pin = PinPath::new(&format!("xdp-t{}-filter", std::process::id())).unwrap();
    let list = Blocklist::new(["10.0.1.2/32".parse().unwrap()]).unwrap();
    let listed = Match { listed: true, ..Match::default() };
    let set = || compiled([rule("listed", listed.clone(), Action::Drop)]);
    let filter = Filter::new(&set(), FilterSizes::default(), Some(&list)).unwrap();
    let mut port = attach(near, Some(pin.clone()));
    port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    // The filter stays when the program is replaced by a program for another port type.
    port.swap(port.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    drop((port, filter, list));
    let mut generator = Generator::new(&Traffic::to(far)).unwrap();
    generator.send(100).unwrap();
    let mut port = adopt(&pin).unwrap().unwrap();
    support::eventually("frames", || port.counters().unwrap().get(Counter::FilterDropped) == 100);
    let mut filter = Filter::of(&port).unwrap().unwrap();
    assert_eq!(port.filter_id().unwrap(), Some(filter.id().unwrap()));
    assert_eq!(counted(&filter, "listed").packets, 100, "filtered and counted while nobody was there");
    // The block list and the rules can be changed, and the counters are kept.
    let list = Blocklist::of(&filter, []).unwrap();
    generator.send(10).unwrap();
    support::eventually("frames", || port.counters().unwrap().seen() >= 110);
    assert_eq!(counted(&filter, "listed").packets, 100);
    let others = rule("others", Match::default(), Action::Drop);
    filter.replace_on(&compiled([set().rules()[0].clone(), others]), &mut [&mut port]).unwrap();
    generator.send(10).unwrap();
    support::eventually("frames", || counted(&filter, "others").packets == 10);
    assert_eq!((counted(&filter, "listed").packets, list.len()), (100, 0));
    port.set_stage(StageChange::Filter(None)).unwrap();
    assert!(Filter::of(&port).unwrap().is_none());
    port.detach().unwrap();
}

#[test]
fn rates_are_kept() {
    need_root!();
    let rate = Rate { unit: RateUnit::Packets, amount: 1000, per: Duration::from_secs(1), burst: 50 };
    let limit = rule("limit", Match::default(), Action::RateLimit { rate, per_source: None });
    let filter = Filter::new(&compiled([limit]), FilterSizes::default(), None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    let frame = frame4(std::net::Ipv4Addr::LOCALHOST, |_| {});
    let start = std::time::Instant::now();
    let mut passed = 0.0;
    while start.elapsed() < Duration::from_millis(300) {
        passed += if loaded.test_run(&frame).unwrap().verdict == Verdict::Pass { 1.0 } else { 0.0 };
    }
    let allowed = 50.0 + start.elapsed().as_secs_f64() * 1000.0;
    assert!(passed <= allowed + 1.0 && passed >= allowed * 0.9, "{passed} of {allowed}");
}

/// Returns a filter that passes two frames of each source, and a port's program with this filter. The filter has rate
/// limit buckets for `sources` sources at a time.
fn limiting_sources(sources: u32) -> (Filter, Loaded) {
    // The rate is one frame per hour, so that no token is added during the test.
    let rate = Rate { unit: RateUnit::Packets, amount: 1, per: Duration::from_secs(3600), burst: 2 };
    let per_source = Some(SourceBits { ipv4: 32, ipv6: 64 });
    let limit = rule("limit", Match::default(), Action::RateLimit { rate, per_source });
    let sizes = FilterSizes { sources, ..FilterSizes::default() };
    let filter = Filter::new(&compiled([limit]), sizes, None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    (filter, loaded)
}

/// Returns whether a frame of this source passes. Checks that a dropped frame is counted as exceeding a rate limit.
fn passes(loaded: &Loaded, source: u32) -> bool {
    let limited = || loaded.counters().unwrap().get(Counter::FilterLimited);
    let frame = frame4(std::net::Ipv4Addr::LOCALHOST, |ip| ip[12..16].copy_from_slice(&source.to_be_bytes()));
    let before = limited();
    let verdict = loaded.test_run(&frame).unwrap().verdict;
    let over = limited() - before;
    assert_eq!(verdict, if over == 0 { Verdict::Pass } else { Verdict::Drop });
    over == 0
}

#[test]
fn each_of_more_sources_than_there_are_buckets_is_limited() {
    need_root!();
    let (filter, loaded) = limiting_sources(64);
    let first = 0x0a00_0001_u32;
    // The first source is repeated at the end. Its bucket was evicted, so it starts with a full one.
    for source in (first..first + 5_000).chain([first]) {
        let passed: Vec<bool> = (0..5).map(|_| passes(&loaded, source)).collect();
        assert_eq!(passed, [true, true, false, false, false], "{source:#x}");
    }
    let limit = counted(&filter, "limit");
    assert_eq!((limit.packets, limit.acted), (5 * 5_001, 3 * 5_001));
}

#[test]
fn a_source_that_goes_on_keeps_its_bucket_among_many_that_come_once() {
    need_root!();
    let (_filter, loaded) = limiting_sources(1024);
    let (mut passed, mut sent) = (0, 0);
    for other in 0..20_000_u32 {
        assert!(passes(&loaded, 0x0b00_0000 + other), "the first frame of {other}");
        if other % 16 == 0 {
            passed += u32::from(passes(&loaded, 0x0a00_0001));
            sent += 1;
        }
    }
    // The kernel evicts approximately the least recently used source. If it evicted sources at random, this source
    // would lose its bucket twenty times, and two frames would pass each time.
    assert!(passed < 10 && sent == 1_250, "{passed} of {sent}");
}

#[test]
fn samples_reach_user_space() {
    need_root!();
    let all = rule("all", Match::default(), Action::Sample { one_in: 1 });
    let some = rule("some", Match::default(), Action::Sample { one_in: 10 });
    let filter = Filter::new(&compiled([all, some]), FilterSizes::default(), None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    let mut frame = frame4(std::net::Ipv4Addr::LOCALHOST, |_| {});
    frame.resize(300, 0xa5);
    let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    let reader = filter.samples().reader().unwrap();
    let before = now();
    for _ in 0..1000 {
        loaded.test_run(&frame).unwrap();
    }
    let (mut of_all, mut of_some) = (0, 0);
    let polls =
        std::iter::from_fn(|| Some(reader.poll(Duration::ZERO).unwrap()).filter(|all| !all.is_empty()));
    for sample in polls.flatten() {
        assert_eq!((sample.length, &sample.head[..]), (300, &frame[..128]));
        // Both clocks are read when the reader is created, one after the other.
        let slack = 100_000_000;
        assert!(sample.at_ns + slack >= before && sample.at_ns <= now() + slack);
        match filter.rule_at(sample.slot) {
            Some("all") => of_all += 1,
            Some("some") => of_some += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(of_all, 1000);
    // A binomial variable with a standard deviation of 9.5. The range is six deviations to either side.
    assert!((43..=157).contains(&of_some), "{of_some}");
    assert_eq!(counted(&filter, "some").acted, of_some);
    assert_eq!(filter.samples().missed().unwrap(), 0);
}

#[test]
fn samples_that_find_no_room_are_counted() {
    need_root!();
    let all = rule("all", Match::default(), Action::Sample { one_in: 1 });
    let sizes = FilterSizes { samples: 4096, ..FilterSizes::default() };
    let filter = Filter::new(&compiled([all]), sizes, None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    let frame = frame4(std::net::Ipv4Addr::LOCALHOST, |_| {});
    for _ in 0..100 {
        loaded.test_run(&frame).unwrap();
    }
    let (samples, reader) = (filter.samples(), filter.samples().reader().unwrap());
    let taken = reader.poll(Duration::ZERO).unwrap().len();
    assert!((10..100).contains(&taken), "{taken}");
    assert_eq!(samples.missed().unwrap(), 100 - u64::try_from(taken).unwrap());
    assert_eq!(counted(&filter, "all").acted, 100, "whether or not anybody reads");
    // The ring has space again.
    loaded.test_run(&frame).unwrap();
    assert_eq!(reader.poll(Duration::ZERO).unwrap().len(), 1);
}

#[test]
fn rules_of_a_pinned_size_are_refused_when_too_many() {
    need_root!();
    let names = |count: usize| {
        compiled((0..count).map(|at| rule(&format!("r{at}"), Match::default(), Action::Count)))
    };
    let sizes = FilterSizes { rules: 4, ..FilterSizes::default() };
    let mut filter = Filter::new(&names(4), sizes, None).unwrap();
    let error = filter.replace(&names(5)).unwrap_err();
    assert!(matches!(error, Error::FilterFull { count: 5, capacity: 4 }), "{error}");
    assert_eq!(filter.len(), 4);
}

#[test]
fn a_rule_of_a_new_name_begins_at_zero() {
    need_root!();
    let sizes = FilterSizes { rules: 1, ..FilterSizes::default() };
    let mut filter = Filter::new(&drop_all("r0"), sizes, None).unwrap();
    // A released slot is reused after two changes of the rules.
    for round in 1..6 {
        let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
        loaded.test_run(&[0; 60]).unwrap();
        assert_eq!(filter.counters().unwrap()[0].packets, 1);
        filter.replace(&drop_all(&format!("r{round}"))).unwrap();
        assert_eq!(filter.counters().unwrap()[0].packets, 0, "round {round}");
    }
}

/// The error of every refused rule names the rule and suggests a fix.
#[test]
fn impossible_rules_are_refused_by_name() {
    let none = Match::default;
    let prefix = |text: &str| vec![text.parse().unwrap()];
    let pattern =
        |bytes: Vec<u8>, mask| Pattern { base: packet::net::PatternBase::Frame, offset: 0, bytes, mask };
    let rate = |amount, burst| Action::RateLimit {
        rate: Rate { unit: RateUnit::Packets, amount, per: Duration::from_secs(1), burst },
        per_source: None,
    };
    let flags = Some(TcpFlags { mask: 2, value: 3 });
    #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
    let backwards = vec![9..=8];
    let cases = [
        (Match { source_ports: backwards, ..none() }, Action::Drop, "9-8 is no range"),
        (
            Match { vlans: vec![VlanMatch::Tagged(Span { first: 0, last: 4096 })], ..none() },
            Action::Drop,
            "at most 4095",
        ),
        (Match { tcp_flags: flags, ..none() }, Action::Drop, "not all in the mask"),
        (Match { patterns: vec![pattern(vec![], vec![])], ..none() }, Action::Drop, "give 1 to 32 bytes"),
        (Match { patterns: vec![pattern(vec![3], vec![1])], ..none() }, Action::Drop, "byte 0"),
        (
            Match { sources: prefix("10.0.0.0/8"), destinations: prefix("::/0"), ..none() },
            Action::Drop,
            "never matches",
        ),
        (Match { protocols: vec![1], source_ports: vec![1..=1], ..none() }, Action::Drop, "ports"),
        (none(), Action::Sample { one_in: 0 }, "at least 1"),
        (none(), rate(0, 1), "use the action drop"),
        (none(), rate(1, 0), "use the action drop"),
    ];
    for (matches, action, text) in cases {
        let error =
            Compiled::new(&RuleSet { rules: vec![rule("web-1", matches, action)], ..RuleSet::default() })
                .unwrap_err();
        let said = error.to_string();
        assert!(said.contains("web-1") && said.contains(text), "{text} in: {said}");
    }
    let twice = [rule("a", none(), Action::Drop), rule("a", none(), Action::Pass)];
    assert!(matches!(
        Compiled::new(&RuleSet { rules: twice.into(), ..RuleSet::default() }),
        Err(FilterError::Duplicate { .. })
    ));
    let many = (0..4097).map(|at| rule(&format!("r{at}"), none(), Action::Drop)).collect();
    assert!(matches!(
        Compiled::new(&RuleSet { rules: many, ..RuleSet::default() }),
        Err(FilterError::TooManyRules { count: 4097 })
    ));
    let places = (0..9).map(|at| Pattern { offset: at * 8, ..pattern(vec![1], vec![]) }).collect();
    let error = Compiled::new(&RuleSet {
        rules: vec![rule("p", Match { patterns: places, ..none() }, Action::Drop)],
        ..RuleSet::default()
    });
    assert!(matches!(error, Err(FilterError::TooManyPlaces { count: 9, .. })));
}
