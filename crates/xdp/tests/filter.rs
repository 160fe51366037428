//! Compares the filter of the hook (a port's XDP program) and the filter of the workers with a reference
//! implementation, which searches a linear list of rules.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use packet::net::Prefix;
use packet::net::{Pattern, PatternBase, Span, TcpFlags, VlanMatch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::oracle::{Oracle, Outcome};
use support::stacks::{self, FAR4, FAR6, NEAR4, NEAR6, Random, Segment};
use support::{Namespace, PacketSocket, config, packets};
use xdp::filter::{
    Action, Blocklist, Compiled, Filter, FilterError, FilterSizes, Frame, Judged, Look, Match, Moment, Rule,
    RuleCounters, RuleSet, Tally, Unreadable, WorkerFilter,
};
use xdp::{AttachMode, Counter, Loaded, Owner, PortProgram, StageChange, Verdict, WhenDown};

/// Compiles rules. Returns `None` for random rules that contradict themselves or exceed a limit.
fn compile(set: &RuleSet) -> Option<Compiled> {
    match Compiled::new(set) {
        Ok(compiled) => Some(compiled),
        Err(FilterError::NeverMatches { .. } | FilterError::TooManyPlaces { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Loads the program of a bridged port without a socket. The program passes the frames that the filter lets through to
/// the kernel.
fn load(set: &RuleSet) -> Option<(Filter, Loaded)> {
    let compiled = compile(set)?;
    let filter =
        Filter::new(&compiled, FilterSizes { samples: 1 << 22, ..FilterSizes::default() }, None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    Some((filter, loaded))
}

/// Runs the hook's filter on a frame and returns the outcome.
fn see(loaded: &Loaded, frame: &[u8]) -> Outcome {
    let before = loaded.counters().unwrap();
    let run = loaded.test_run(frame).unwrap();
    let after = loaded.counters().unwrap();
    assert_eq!(after.seen(), before.seen() + 1, "one count per frame");
    let moved = Counter::ALL.into_iter().find(|c| after.get(*c) != before.get(*c)).unwrap();
    match (run.verdict, moved) {
        (Verdict::Pass, Counter::DownPassed) => Outcome::Continue,
        (Verdict::Drop, Counter::FilterDropped) => Outcome::Drop,
        (Verdict::Drop, Counter::FilterLimited) => Outcome::Limit,
        other => panic!("{other:?}"),
    }
}

fn compare(set: &RuleSet, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let Some((filter, loaded)) = load(set) else { return Err(TestCaseError::reject("not possible")) };
    let mut oracle = Oracle::new(set);
    for frame in frames {
        prop_assert_eq!(see(&loaded, frame), oracle.see(frame), "frame {:02x?}", frame);
    }
    for rule in filter.counters().unwrap() {
        let counted = (rule.packets, rule.bytes, rule.acted);
        prop_assert_eq!(counted, oracle.counts[&rule.name], "counters of {}", rule.name);
    }
    Ok(())
}

/// Runs a worker's filter on a frame and returns the outcome. The first `head` bytes of the frame are in one slice, and
/// the filter must fetch later bytes.
fn judge(filter: &WorkerFilter, frame: &[u8], head: usize, look: Look) -> Outcome {
    let rest = |offset: usize, piece: &mut [u8]| {
        let found = frame.get(offset..offset + piece.len());
        found.is_some_and(|bytes| {
            piece.copy_from_slice(bytes);
            true
        })
    };
    let head = frame.get(..head).unwrap_or(frame);
    match filter.judge(&Frame { head, length: frame.len(), is_uncut: false, rest: &rest }, look) {
        Judged::On => Outcome::Continue,
        Judged::Drop(_) => Outcome::Drop,
        Judged::Limit(_) => Outcome::Limit,
    }
}

/// Checks that the workers' filter and the reference list of rules have equal outcomes and counters.
fn compare_worker(mut set: RuleSet, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for rule in &mut set.rules {
        if matches!(rule.action, Action::Sample { .. }) {
            rule.action = Action::Count;
        }
    }
    let Some(compiled) = compile(&set) else { return Err(TestCaseError::reject("not possible")) };
    let mut tally = Tally::default();
    let filter = WorkerFilter::new(&Arc::new(compiled), &mut tally, None).unwrap();
    let mut oracle = Oracle::new(&set);
    let now = Moment::now();
    for (frame, worker) in frames.iter().zip((0..5).cycle()) {
        let look = Look { now, worker, dry: false };
        let dry = judge(&filter, frame, frame.len(), Look { dry: true, ..look });
        let wet = judge(&filter, frame, frame.len(), look);
        prop_assert_eq!(wet, oracle.see(frame), "frame {:02x?}", frame);
        prop_assert_eq!(dry, wet, "asked before, it said something else of frame {:02x?}", frame);
    }
    for rule in tally.counters() {
        let counted = (rule.packets, rule.bytes, rule.acted);
        prop_assert_eq!(counted, oracle.counts[&rule.name], "counters of {}", rule.name);
    }
    Ok(())
}

#[test]
fn workers_agree_with_the_list() {
    let mut runner = TestRunner::new(Config { cases: 512, failure_persistence: None, ..Config::default() });
    let cases = (packets::rule_set(0..=12), prop::collection::vec(packets::frame(), 48));
    runner.run(&cases, |(set, frames)| compare_worker(set, &frames)).unwrap();
}

#[test]
fn workers_agree_with_a_long_list() {
    let mut runner = TestRunner::new(Config {
        cases: 24,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(65..=300), prop::collection::vec(packets::frame(), 200));
    let possible = |mut set: RuleSet| {
        set.rules.iter_mut().for_each(|rule| rule.matches.patterns.clear());
        set.rules.retain(|rule| {
            Compiled::new(&RuleSet { rules: vec![rule.clone()], ..RuleSet::default() }).is_ok()
        });
        set
    };
    runner.run(&cases, |(set, frames)| compare_worker(possible(set), &frames)).unwrap();
}

/// Returns a rule of this name that matches every frame.
fn rule(name: &str, action: Action) -> Rule {
    let matches = Match::default();
    Rule { name: name.to_owned(), priority: 0, matches, action, dry_run: false, expires: None }
}

/// A pattern matches even if its bytes are after the first slice of a packet, or begin in this slice and end after it.
#[test]
fn workers_look_behind_the_first_piece() {
    let pattern = Pattern { base: PatternBase::Frame, offset: 60, bytes: vec![7; 12], mask: Vec::new() };
    let mut drop = rule("sevens", Action::Drop);
    drop.matches.patterns = vec![pattern];
    let compiled = Arc::new(Compiled::new(&RuleSet { rules: vec![drop], ..RuleSet::default() }).unwrap());
    let filter = WorkerFilter::new(&compiled, &mut Tally::default(), None).unwrap();
    let look = Look { now: Moment(1), worker: 0, dry: false };
    let mut frame = vec![0_u8; 60];
    frame.resize(72, 7);
    for head in [14, 59, 60, 64, 71, 72] {
        assert_eq!(judge(&filter, &frame, head, look), Outcome::Drop, "{head}");
        assert_eq!(judge(&filter, &frame[..71], head, look), Outcome::Continue, "{head}");
    }
    frame[71] = 8;
    assert_eq!(judge(&filter, &frame, 64, look), Outcome::Continue);
}

#[test]
fn workers_refuse_what_needs_a_hook_by_name() {
    let set = RuleSet {
        rules: vec![rule("a", Action::Drop), rule("some", Action::Sample { one_in: 1 })],
        ..RuleSet::default()
    };
    let compiled = Arc::new(Compiled::new(&set).unwrap());
    let error = WorkerFilter::new(&compiled, &mut Tally::default(), None).unwrap_err().to_string();
    assert!(
        error.contains("\"some\"") && error.contains("\"sample\"") && error.contains("another filter"),
        "{error}"
    );
}

#[test]
fn counters_of_workers_belong_to_the_rules_name() {
    let set = |rules: Vec<Rule>| Arc::new(Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap());
    let mut tally = Tally::default();
    let look = Look { now: Moment(1), worker: 0, dry: false };
    let frame = [0_u8; 60];
    let first = WorkerFilter::new(&set(vec![rule("kept", Action::Drop)]), &mut tally, None).unwrap();
    assert_eq!(first.judge(&Frame::whole(&frame), look), Judged::Drop(0));
    let rules = vec![rule("new", Action::Count), rule("kept", Action::Drop)];
    let second = WorkerFilter::new(&set(rules), &mut tally, None).unwrap();
    assert_eq!(second.judge(&Frame::whole(&frame), look), Judged::Drop(1));
    // This worker still uses the previous rule set.
    assert_eq!(first.judge(&Frame::whole(&frame), look), Judged::Drop(0));
    let counters: Vec<RuleCounters> = tally.counters();
    let packets: Vec<(&str, u64)> = counters.iter().map(|rule| (rule.name.as_str(), rule.packets)).collect();
    assert_eq!(packets, [("kept", 3), ("new", 1)]);
    // An expired rule does not match.
    let mut ends = rule("ends", Action::Drop);
    ends.expires = Some(Moment(10));
    let third = WorkerFilter::new(&set(vec![ends]), &mut tally, None).unwrap();
    let at = |now| third.judge(&Frame::whole(&frame), Look { now: Moment(now), ..look });
    assert_eq!((at(9), at(10)), (Judged::Drop(0), Judged::On));
}

#[test]
fn workers_look_into_the_list_that_the_hook_has() {
    need_root!();
    let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
    let prefixes = || prop::collection::vec(packets::prefix(), 0..40);
    let cases = (prefixes(), prefixes(), prop::collection::vec(packets::address(), 100));
    let see = |(first, more, addresses): (Vec<Prefix>, Vec<Prefix>, Vec<std::net::IpAddr>)| {
        let mut list = Blocklist::new(first.iter().copied()).unwrap();
        let mut known = first;
        for prefix in more {
            if known.contains(&prefix) {
                list.remove(prefix).unwrap();
                known.retain(|other| *other != prefix);
            } else {
                list.insert(prefix, None).unwrap();
                known.push(prefix);
            }
            let view = list.view();
            prop_assert!(view.is_of(&list));
            for address in &addresses {
                let wanted = known.iter().any(|prefix| prefix.contains(*address));
                prop_assert_eq!(view.has(*address), wanted, "{} in {:?}", address, known);
            }
        }
        Ok(())
    };
    runner.run(&cases, see).unwrap();
}

#[test]
fn random_rules_agree_with_the_list() {
    need_root!();
    let mut runner = TestRunner::new(Config {
        cases: 48,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(0..=12), prop::collection::vec(packets::frame(), 48));
    runner.run(&cases, |(set, frames)| compare(&set, &frames)).unwrap();
}

/// The filter reads up to sixteen tags. The filter must not use the VLAN of a seventeenth tag, because a frame with
/// seventeen tags is unreadable.
#[test]
fn the_vlan_of_a_tag_beyond_the_last_that_is_read_is_not_known() {
    need_root!();
    let matches = Match { vlans: vec![VlanMatch::Tagged(Span { first: 1, last: 4094 })], ..Match::default() };
    let rule = Rule { matches, ..rule("tagged", Action::Count) };
    let set = RuleSet { rules: vec![rule], ..RuleSet::default() };
    for tags in 14..20 {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for _ in 1..tags {
            frame.extend([0x81, 0, 0, 0]);
        }
        frame.extend([0x81, 0, 0x05, 0, 8, 6, 0, 0]);
        compare(&set, &[frame]).unwrap();
    }
}

#[test]
fn many_random_rules_agree_with_the_list() {
    need_root!();
    let mut runner = TestRunner::new(Config {
        cases: 6,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(65..=300), prop::collection::vec(packets::frame(), 200));
    let without_patterns = |mut set: RuleSet| {
        set.rules.iter_mut().for_each(|rule| rule.matches.patterns.clear());
        set.rules.retain(|rule| {
            Compiled::new(&RuleSet { rules: vec![rule.clone()], ..RuleSet::default() }).is_ok()
        });
        set
    };
    runner.run(&cases, |(set, frames)| compare(&without_patterns(set), &frames)).unwrap();
}

/// UDP and TCP sockets in a namespace with a veth device. The test sends its frames from the peer device.
struct Services {
    namespace: Namespace,
    near: u32,
    mac: [u8; 6],
    from: PacketSocket,
    /// UDP sockets by port, for IPv4 and IPv6.
    udp: Vec<(u16, [UdpSocket; 2])>,
    _tcp: Vec<TcpListener>,
}

/// Transport port of the services that the rules protect. `OPEN` is the port of unprotected services, and `MARK` is the
/// destination port of the frame whose arrival shows that all earlier frames have arrived.
const CLOSED: u16 = 22;
const OPEN: u16 = 23;
const MARK: u16 = 24;

impl Services {
    fn start() -> Services {
        let namespace = Namespace::enter_new();
        // A SYN is answered once, so answers of one round are not counted in the next.
        std::fs::write("/proc/sys/net/ipv4/tcp_synack_retries", "0").unwrap();
        let (far, near) = namespace.veth("va", "vb", "mtu 9000");
        // The peer device has no IP addresses. With static neighbour entries, the answers of the services are sent to
        // the peer device.
        let far_mac = namespace.ip("-br link show dev va").split_whitespace().nth(2).unwrap().to_owned();
        let near_mac = namespace.ip("-br link show dev vb").split_whitespace().nth(2).unwrap().to_owned();
        for (address, near) in
            [(FAR4.to_string(), format!("{NEAR4}/24")), (FAR6.to_string(), format!("{NEAR6}/64 nodad"))]
        {
            namespace.ip(&format!("address add {near} dev vb"));
            namespace.ip(&format!("neighbour add {address} lladdr {far_mac} dev vb nud permanent"));
        }
        let octets: Vec<u8> =
            near_mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
        let sockets = |port| {
            let bind = |address: IpAddr| {
                let socket = UdpSocket::bind((address, port)).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            (port, [bind(NEAR4.into()), bind(NEAR6.into())])
        };
        let listen = |port| {
            [IpAddr::from(NEAR4), NEAR6.into()].map(|address| TcpListener::bind((address, port)).unwrap())
        };
        Services {
            near,
            mac: octets.try_into().unwrap(),
            from: PacketSocket::on(far),
            udp: [CLOSED, OPEN, MARK].map(sockets).into(),
            _tcp: [CLOSED, OPEN].into_iter().flat_map(listen).collect(),
            namespace,
        }
    }

    /// Sends these frames. Returns two numbers of datagrams and SYNs: those that the services on the port [`CLOSED`]
    /// have received, and those that the services on the port `OPEN` have received.
    fn deliver(&self, frames: &[Vec<u8>]) -> [usize; 2] {
        let mut counts = [0; 2];
        // Few frames at a time, so that no queue is full.
        for some in frames.chunks(64) {
            some.iter().for_each(|frame| self.from.send(frame));
            let mark = Segment { v6: false, tcp: false, port: MARK, number: 1 };
            self.from.send(&stacks::plain(self.mac, mark, 0, 0));
            let got = |socket: &UdpSocket| socket.recv(&mut [0; 256]).is_ok();
            support::eventually("the last frame", || got(&self.udp[2].1[0]));
            for (count, (_, sockets)) in counts.iter_mut().zip(&self.udp) {
                *count += sockets
                    .iter()
                    .map(|socket| std::iter::from_fn(|| got(socket).then_some(())).count())
                    .sum::<usize>();
            }
        }
        // A listener that has received a SYN answers it.
        for frame in self.from.waiting() {
            let at = match frame.get(12..14) {
                Some([0x08, 0x00]) if frame.get(23) == Some(&6) => 34,
                Some([0x86, 0xdd]) if frame.get(20) == Some(&6) => 54,
                _ => continue,
            };
            let is_answer = frame.get(at + 13).is_some_and(|flags| flags & 0x3f == 0x12);
            match frame.get(at..at + 2).map(|port| u16::from_be_bytes([port[0], port[1]])) {
                Some(CLOSED) if is_answer => counts[0] += 1,
                Some(OPEN) if is_answer => counts[1] += 1,
                _ => {}
            }
        }
        counts
    }
}

/// Returns named lists of rules. Each list keeps all packets away from the port [`CLOSED`], with rules of a different
/// kind.
fn closed() -> Vec<(&'static str, Vec<Rule>)> {
    let to = |name: &str, protocol, ports: std::ops::RangeInclusive<u16>, action| {
        let mut rule = rule(name, action);
        rule.matches =
            Match { protocols: vec![protocol], destination_ports: vec![ports], ..Match::default() };
        rule
    };
    let mut syn = to("syn", 6, CLOSED..=CLOSED, Action::Drop);
    syn.matches.tcp_flags = Some(TcpFlags { mask: 0x12, value: 0x02 });
    let mut untagged = to("untagged", 17, CLOSED..=CLOSED, Action::Drop);
    untagged.matches.vlans = vec![VlanMatch::Untagged];
    let drop_udp = || to("udp", 17, CLOSED..=CLOSED, Action::Drop);
    vec![
        ("drop by port", vec![drop_udp(), to("tcp", 6, CLOSED..=CLOSED, Action::Drop)]),
        ("drop by flags and VLAN", vec![syn, untagged]),
        (
            "pass what is wanted",
            vec![
                to("udp", 17, OPEN..=MARK, Action::Pass),
                to("tcp", 6, OPEN..=OPEN, Action::Pass),
                rule("rest", Action::Drop),
            ],
        ),
        ("pass everything behind", {
            let friends = Match { sources: vec!["10.9.0.0/16".parse().unwrap()], ..Match::default() };
            let mut pass = rule("friends", Action::Pass);
            pass.matches = friends;
            vec![pass, drop_udp(), to("tcp", 6, CLOSED..=CLOSED, Action::Drop), rule("others", Action::Pass)]
        }),
    ]
}

/// Returns the frame with a length field and a SNAP header (RFC 1042) before its EtherType. If `ethertype` is `Some`,
/// it replaces the EtherType.
fn behind_snap(frame: &[u8], tags: usize, ethertype: Option<u16>) -> Vec<u8> {
    let at = 12 + 4 * tags;
    let length = u16::try_from(frame.len() - at + 6).unwrap();
    let kept = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0][..], &ethertype.unwrap_or(kept).to_be_bytes()].concat();
    [&frame[..at], &length.to_be_bytes(), &snap, &frame[at + 2..]].concat()
}

/// Packets that rules drop do not reach the kernel's service, whatever headers precede the datagram or SYN. Without the
/// rules, most of the packets reach the service. Hook and workers agree on every frame.
#[test]
fn what_rules_drop_never_reaches_a_service() {
    need_root!();
    let services = Services::start();
    let seed = std::env::var("FILTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_124);
    let rounds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 100_000 } else { 800 };
    let mut random = Random(seed);
    let mut packets: Vec<(Segment, Vec<Vec<u8>>)> = Vec::new();
    for number in 0..rounds {
        let (v6, tcp) = (random.below(2) == 0, random.below(4) == 0);
        let port = if random.below(2) == 0 { CLOSED } else { OPEN };
        let segment = Segment { v6, tcp, port, number: u16::try_from(number % 60_000).unwrap() };
        packets.push((segment, stacks::hidden(services.mac, segment, &mut random)));
    }
    // Packets that earlier versions of the filter let pass by mistake.
    let found = |number, v6, tags, headers| {
        let segment = Segment { v6, tcp: false, port: CLOSED, number };
        (segment, vec![stacks::plain(services.mac, segment, tags, headers)])
    };
    let known = [found(1, false, 3, 0), found(2, false, 4, 0), found(3, true, 0, 7), found(4, true, 3, 0)];
    let of_known: Vec<Vec<u8>> = known.iter().flat_map(|(_, frames)| frames.clone()).collect();
    assert_eq!(services.deliver(&of_known), [4, 0], "the kernel takes them");
    let frames: Vec<Vec<u8>> = packets.iter().flat_map(|(_, frames)| frames.clone()).collect();
    let [closed_without, open_without] = services.deliver(&frames);
    assert!(
        closed_without > rounds / 6 && open_without > rounds / 6,
        "{closed_without}, {open_without} of {rounds}"
    );

    let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Pass)).unwrap();
    let mut port = loaded.attach(services.near, AttachMode::Native, None).unwrap();
    let mut told_apart = false;
    for (name, rules) in closed() {
        let set = |unreadable| Compiled::new(&RuleSet { rules: rules.clone(), unreadable }).unwrap();
        let filter = Filter::new(&set(Unreadable::Drop), FilterSizes::default(), None).unwrap();
        port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
        assert_eq!(services.deliver(&of_known), [0, 0], "{name}");
        let [closed, open] = services.deliver(&frames);
        assert_eq!(
            closed, 0,
            "{name}, FILTER_SEED={seed}: the rules let through {closed} of {closed_without}"
        );
        assert!(open > open_without / 4, "{name}: of the others {open} of {open_without} arrive");

        let worker =
            WorkerFilter::new(&Arc::new(set(Unreadable::Drop)), &mut Tally::default(), None).unwrap();
        let hook = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
        // In a hook, headers must be in the first buffer (page) of a frame. In a test run, frames of less than 3000
        // bytes are completely in the first buffer.
        for frame in frames.iter().chain(&of_known).filter(|frame| frame.len() < 3000) {
            let look = Look { now: Moment::now(), worker: 0, dry: false };
            assert_eq!(see(&hook, frame), judge(&worker, frame, frame.len(), look), "{name}: {frame:02x?}");
        }
        // IP after a length and a SNAP header is as unreadable as after too many tags. Other protocols are
        // read normally.
        for tags in [0, 1, 3] {
            let segment = Segment { v6: tags == 3, tcp: false, port: OPEN, number: 1 };
            let unreadable = stacks::plain(services.mac, segment, 17, 0);
            let snap =
                |ethertype| behind_snap(&stacks::plain(services.mac, segment, tags, 0), tags, ethertype);
            for (frame, like) in [(snap(None), &unreadable), (snap(Some(0x809b)), &snap(Some(0x8137)))] {
                let look = Look { now: Moment::now(), worker: 0, dry: false };
                let judged = judge(&worker, &frame, frame.len(), look);
                assert_eq!(judged, judge(&worker, like, like.len(), look), "{name}: {frame:02x?}");
                assert_eq!(see(&hook, &frame), judged, "{name}: {frame:02x?}");
            }
            told_apart |= see(&hook, &snap(None)) != see(&hook, &snap(Some(0x809b)));
        }
    }
    assert!(told_apart);
    // The rule set can let unreadable frames pass.
    let (_, rules) = closed().swap_remove(0);
    let lax = Compiled::new(&RuleSet { rules, unreadable: Unreadable::Pass }).unwrap();
    let filter = Filter::new(&lax, FilterSizes::default(), None).unwrap();
    port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    assert_eq!(services.deliver(&of_known), [1, 0], "headers beyond the sixth are not read, and tags are");
    drop((port, services.namespace));
}
