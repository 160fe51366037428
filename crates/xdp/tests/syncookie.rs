//! Tests of SYN cookies with `BPF_PROG_TEST_RUN`: every branch of both schemes, with frames of every kind.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

#[path = "syncookie/segments.rs"]
mod segments;
#[path = "syncookie/sockets.rs"]
mod sockets;
mod support;

use std::time::Duration;

use packet::net::TcpFlags;
use segments::*;
use support::{Namespace, config, ethernet, to_us};
use xdp::filter::{
    Action, Compiled, CookieCounters, CookieScheme, Filter, FilterError, FilterSizes, Match, Rule, RuleSet,
    SynCookie,
};
use xdp::{AttachMode, Counter, Loaded, Owner, PinPath, PortProgram, StageChange, Verdict, WhenDown, adopt};

fn cookie() -> CookieScheme {
    CookieScheme::Cookie { mss: None, window_scale: None }
}

fn retry() -> CookieScheme {
    CookieScheme::Retry { remember: Duration::from_secs(300) }
}

fn service(name: &str, scheme: CookieScheme, above: Option<u32>) -> Rule {
    let matches = Match {
        protocols: vec![6],
        destinations: vec!["192.0.2.80/32".parse().unwrap(), "2001:db8::80/128".parse().unwrap()],
        destination_ports: vec![80..=80, 443..=443],
        ..Match::default()
    };
    let action = Action::SynCookie(SynCookie { scheme, above, ttl: 61 });
    Rule { name: name.to_owned(), priority: 10, matches, action, dry_run: false, expires: None }
}

fn other(name: &str, priority: u32, matches: Match, action: Action) -> Rule {
    Rule { name: name.to_owned(), priority, matches, action, dry_run: false, expires: None }
}

struct Hook {
    filter: Filter,
    loaded: Loaded,
}

fn hook_of(rules: Vec<Rule>, sizes: FilterSizes) -> Hook {
    let compiled = Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&compiled, sizes, None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    Hook { filter, loaded }
}

fn hook(rules: Vec<Rule>) -> Hook {
    hook_of(rules, FilterSizes::default())
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Fate {
    On,
    Answered,
    Dropped,
}

impl Hook {
    /// Runs the program on a frame. Returns the outcome, and the frame after the run.
    fn run(&self, frame: &[u8]) -> (Fate, Vec<u8>) {
        let before = self.loaded.counters().unwrap();
        let run = self.loaded.test_run(frame).unwrap();
        let after = self.loaded.counters().unwrap();
        assert_eq!(after.seen(), before.seen() + 1, "one count per frame");
        let way = Counter::ALL.into_iter().find(|way| after.get(*way) != before.get(*way)).unwrap();
        let fate = match (run.verdict, way) {
            (Verdict::Pass, Counter::DownPassed) => Fate::On,
            (Verdict::Redirect, Counter::FilterAnswered) => Fate::Answered,
            (Verdict::Drop, Counter::FilterDropped) => Fate::Dropped,
            other => panic!("{other:?}"),
        };
        if fate == Fate::On {
            assert_eq!(run.frame, frame, "what goes on is as it came");
        }
        (fate, run.frame)
    }

    fn fate(&self, segment: &Segment) -> Fate {
        self.run(&segment.frame()).0
    }

    fn answer(&self, segment: &Segment) -> Answer {
        let (fate, frame) = self.run(&segment.frame());
        assert_eq!(fate, Fate::Answered);
        read(&frame, segment)
    }

    fn change(&mut self, rules: Vec<Rule>) {
        self.filter.replace(&Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap()).unwrap();
        let config = config(Owner::Bridged, WhenDown::Pass);
        self.loaded = PortProgram::load_filtered(&config, &self.filter).unwrap();
    }

    fn counted(&self, rule: &str) -> CookieCounters {
        self.filter.cookie_counters().unwrap()[rule]
    }

    /// Returns the counts of the rule `web` in this order: answered, valid, invalid, refused, through.
    fn figures(&self) -> [u64; 5] {
        let counted = self.counted("web");
        [counted.answered, counted.valid, counted.invalid, counted.refused, counted.through]
    }

    fn acted(&self, rule: &str) -> (u64, u64) {
        let counted = self.filter.counters().unwrap();
        let counted = counted.into_iter().find(|counted| counted.name == rule).unwrap();
        (counted.packets, counted.acted)
    }
}

/// Returns a hook that is under a flood, because it has received more than one SYN per second.
fn flooded(scheme: CookieScheme) -> Hook {
    let hook = hook(vec![service("web", scheme, Some(1))]);
    for _ in 0..3 {
        hook.fate(&Segment { client: 200, ..segment(SYN) });
    }
    assert!(hook.counted("web").flood);
    hook
}

/// Returns the segment that completes a connection, after an answer of the scheme "cookie".
fn completing(asked: &Segment, answer: &Answer) -> Segment {
    Segment {
        flags: ACK,
        seq: asked.seq + 1,
        ack: answer.seq.wrapping_add(1),
        options: vec![],
        ..asked.clone()
    }
}

#[test]
fn a_cookie_that_comes_back_opens_the_way() {
    need_root!();
    for v6 in [false, true] {
        let hook = flooded(cookie());
        let syn = Segment { v6, ..segment(SYN) };
        if v6 {
            assert_eq!(hook.fate(&syn), Fate::On, "the first one to a service");
        }
        let before = hook.figures();
        let answer = hook.answer(&syn);
        assert_eq!((answer.ack, answer.ttl), (syn.seq + 1, 61));
        let mss = if v6 { 1440_u16 } else { 1460 };
        assert_eq!(answer.options, [&[2, 4][..], &mss.to_be_bytes()].concat());
        assert_eq!(answer.window, 14_600);
        let ack = completing(&syn, &answer);
        let data = Segment { flags: ACK | PSH, payload: 100, ..ack.clone() };
        let later = Segment { seq: ack.seq + 5000, ack: ack.ack + 6000, ..data.clone() };
        // The kernel examines the difference of both numbers, whose lowest two bits encode the MSS.
        let wrong = Segment { ack: ack.ack + 100, ..ack.clone() };
        assert_eq!(hook.fate(&later), Fate::Dropped, "of no connection");
        assert_eq!(hook.fate(&wrong), Fate::Dropped);
        assert_eq!(hook.fate(&Segment { port: 40_001, ..ack.clone() }), Fate::Dropped, "another port");
        assert_eq!(hook.fate(&Segment { client: 2, ..ack.clone() }), Fate::Dropped, "another source");
        assert_eq!(hook.fate(&Segment { to: 443, ..ack.clone() }), Fate::Dropped, "another service");
        assert_eq!(
            hook.fate(&Segment { seq: ack.seq + 100, ..ack.clone() }),
            Fate::Dropped,
            "another number"
        );
        // If the ACK is lost, the first data segment opens the connection, because it has the same sequence numbers.
        let first = if v6 { &data } else { &ack };
        assert_eq!(hook.fate(first), Fate::On);
        for known in [&ack, &data, &later, &Segment { flags: FIN | ACK, ..later.clone() }] {
            assert_eq!(hook.fate(known), Fate::On);
        }
        assert_eq!(hook.fate(&Segment { flags: RST, ..later.clone() }), Fate::On);
        let after = hook.figures();
        let differ: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(differ, [1, 1, 6, 0, 0]);
    }
}

/// All programs on a machine share the kernel's secret for cookies, so that a cookie of one program is valid for
/// another program.
#[test]
fn any_program_knows_the_kernels_cookies() {
    need_root!();
    let (one, two) = (flooded(cookie()), flooded(cookie()));
    let syn = segment(SYN);
    let answer = one.answer(&syn);
    assert_eq!(two.fate(&completing(&syn, &answer)), Fate::On);
    assert_eq!(two.figures()[1], 1);
}

#[test]
fn now_and_then_a_syn_goes_through_to_each_service() {
    need_root!();
    let hook = hook(vec![service("web", cookie(), None)]);
    for (v6, to) in [(false, 80), (false, 443), (true, 80)] {
        let syn = Segment { v6, to, ..segment(SYN) };
        assert_eq!(hook.fate(&syn), Fate::On);
        for client in 2..20 {
            assert_eq!(hook.fate(&Segment { client, ..syn.clone() }), Fate::Answered);
        }
    }
    assert_eq!(hook.figures(), [54, 0, 0, 0, 3]);
    // A client that repeats its SYN gets the same answer.
    let syn = Segment { client: 30, ..segment(SYN) };
    assert_eq!(hook.answer(&syn).seq, hook.answer(&syn).seq);
    assert!(!hook.counted("web").flood, "it answers at any rate");
}

#[test]
fn connections_that_were_there_first_are_learned() {
    need_root!();
    // Without a threshold, connections are learned for a time after the rule was added. With a threshold,
    // they are learned while there is no flood.
    let always = hook(vec![service("web", cookie(), None)]);
    let data = Segment { flags: ACK, ack: 77, ..segment(ACK) };
    assert_eq!(always.fate(&data), Fate::On);
    assert_eq!(always.fate(&Segment { flags: RST, port: 7, ..data.clone() }), Fate::On);
    let calm = hook(vec![service("web", cookie(), Some(1))]);
    // A connection is learned by two segments, of which the second continues or repeats the first.
    assert_eq!(calm.fate(&data), Fate::On);
    assert_eq!(calm.fate(&Segment { seq: data.seq + 1448, ack: 300, ..data.clone() }), Fate::On);
    let again = Segment { port: 9, ..data.clone() };
    assert_eq!([calm.fate(&again), calm.fate(&again)], [Fate::On; 2]);
    // A connection is not learned by one segment, nor by two that do not belong together.
    let once = Segment { port: 10, ..data.clone() };
    let (forged, more) = (Segment { port: 11, ..data.clone() }, Segment { port: 11, seq: 5, ..data.clone() });
    for segment in [&once, &forged, &more] {
        assert_eq!(calm.fate(segment), Fate::On);
    }
    for _ in 0..3 {
        calm.fate(&Segment { client: 200, ..segment(SYN) });
    }
    assert!(calm.counted("web").flood);
    assert_eq!(calm.fate(&Segment { seq: 1, ..data.clone() }), Fate::On);
    assert_eq!(calm.fate(&again), Fate::On);
    assert_eq!([calm.fate(&once), calm.fate(&more)], [Fate::Dropped; 2]);
    let strange = Segment { port: 8, ..data };
    for flags in [ACK, RST, RST | ACK, FIN | ACK, 0, FIN, SYN | ACK, SYN | FIN, SYN | RST, PSH] {
        assert_eq!(calm.fate(&Segment { flags, ..strange.clone() }), Fate::Dropped, "{flags:#x}");
    }
    assert_eq!(calm.figures()[1..3], [0, 12]);
}

/// ACKs of forged connections, many more than the capacity, displace neither a connection that has returned
/// its cookie nor one that was open before.
#[test]
fn forged_acknowledgements_displace_no_connection() {
    need_root!();
    let sizes = FilterSizes { clients: 1024, ..FilterSizes::default() };
    let hook = hook_of(vec![service("web", cookie(), Some(1))], sizes);
    let open = Segment { flags: ACK, ack: 77, ..segment(ACK) };
    assert_eq!([hook.fate(&open), hook.fate(&open)], [Fate::On; 2]);
    let flood = |hook: &Hook| {
        for _ in 0..3 {
            hook.fate(&Segment { client: 200, ..segment(SYN) });
        }
        assert!(hook.counted("web").flood);
    };
    for number in 0..8000_u16 {
        let forged = Segment { client: 3, port: 1024 + number, seq: u32::from(number), ..open.clone() };
        assert_eq!(hook.fate(&forged), Fate::On);
    }
    flood(&hook);
    assert_eq!(hook.fate(&open), Fate::On, "the open one is known still");
    // While SYNs are answered with cookies, the hook does not remember segments without a cookie.
    let syn = Segment { port: 50_000, ..segment(SYN) };
    let ack = completing(&syn, &hook.answer(&syn));
    assert_eq!(hook.fate(&ack), Fate::On);
    for number in 0..8000_u16 {
        hook.fate(&Segment { client: 4, port: 1024 + number, ..open.clone() });
    }
    assert_eq!([hook.fate(&ack), hook.fate(&open)], [Fate::On; 2]);
}

#[test]
fn answers_carry_options_in_timestamps() {
    need_root!();
    let scheme = CookieScheme::Cookie { mss: Some(1300), window_scale: Some(9) };
    let hook = flooded(scheme);
    let time = [8, 10, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0];
    let with = |options: &[&[u8]]| hook.answer(&Segment { options: options.concat(), ..segment(SYN) });
    let mss = [2, 4, 5, 20];
    let usual = with(&[&[2, 4, 5, 0xb4, 4, 2], &time, &[1, 3, 3, 7]]);
    assert_eq!(usual.options.len(), 20);
    assert_eq!(usual.options[..8], [&mss[..], &[4, 2, 8, 10]].concat());
    assert_eq!(usual.options[12..], [0xde, 0xad, 0xbe, 0xef, 1, 3, 3, 9]);
    assert_eq!(usual.options[11] & 0x3f, 0x10 | 7, "SACK and the client's scale");
    assert_eq!(usual.window, 13_000);
    let plain = with(&[&time]);
    assert_eq!(plain.options[..8], [&mss[..], &[1, 1, 8, 10]].concat());
    assert_eq!((plain.options.len(), plain.options[11] & 0x3f), (16, 0xf));
    let large = with(&[&time, &[3, 3, 200]]);
    assert_eq!((large.options.len(), large.options[11] & 0x3f), (20, 14), "RFC 7323, 2.3");
    // Timestamps are milliseconds of the kernel's clock, at most 64 behind it.
    let stamp = u32::from_be_bytes(usual.options[8..12].try_into().unwrap());
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
    assert!((f64::from(stamp) / 1000.0 - uptime).abs() < 60.0, "{stamp} of {uptime}");
    // Without timestamps the options cannot be encoded.
    assert_eq!(with(&[&[4, 2, 3, 3, 7]]).options, mss);
    assert_eq!(with(&[]).options, mss);
    // Options that end early, have a wrong length, or are unknown.
    for bad in
        [&[8, 10, 1, 2][..], &[8, 200, 1, 2], &[8, 0, 1, 2], &[8, 1, 8, 10], &[0, 8, 10, 1], &[254, 4, 1, 2]]
    {
        assert_eq!(with(&[bad]).options, mss, "{bad:?}");
    }
    let full: Vec<u8> = [&[1; 30][..], &time].concat();
    assert_eq!(with(&[&full]).options.len(), 16);
}

#[test]
fn retries_are_asked_for_and_let_through() {
    need_root!();
    for v6 in [false, true] {
        let hook = flooded(retry());
        let syn = Segment { v6, ..segment(SYN) };
        let before = hook.figures();
        let answer = hook.answer(&syn);
        assert_ne!(answer.ack, syn.seq + 1, "it does not acknowledge the SYN");
        assert!(answer.options.is_empty() && answer.window == 0);
        // RFC 9293, 3.10.7.3: the reset has the number that was acknowledged.
        let reset = Segment { flags: RST, seq: answer.ack, options: vec![], ..syn.clone() };
        let wrong = [
            Segment { seq: answer.ack.wrapping_add(100), ..reset.clone() },
            Segment { port: 40_001, ..reset.clone() },
            Segment { client: 2, ..reset.clone() },
        ];
        for wrong in &wrong {
            assert_eq!(hook.fate(wrong), Fate::On, "perhaps of a connection that is there");
        }
        // A reset with an ACK has another meaning.
        assert_eq!(hook.fate(&Segment { flags: RST | ACK, ..reset.clone() }), Fate::On);
        assert_eq!(hook.fate(&syn), Fate::Answered);
        assert_eq!(hook.fate(&reset), Fate::Dropped, "the service has sent nothing");
        for port in [40_000, 40_001] {
            assert_eq!(hook.fate(&Segment { port, ..syn.clone() }), Fate::On);
        }
        assert_eq!(hook.fate(&reset), Fate::On, "what it resets now is its own");
        assert_eq!(hook.fate(&Segment { client: 2, ..syn.clone() }), Fate::Answered);
        for flags in [ACK, FIN | ACK, PSH | ACK, 0] {
            assert_eq!(hook.fate(&Segment { client: 3, flags, ..syn.clone() }), Fate::On);
        }
        let differ: Vec<u64> =
            hook.figures().iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(differ, [3, 1, 3, 0, 2]);
        for flags in [SYN | ACK, SYN | FIN, SYN | RST] {
            assert_eq!(hook.fate(&Segment { client: 3, flags, ..syn.clone() }), Fate::Dropped);
        }
        assert_eq!(hook.figures()[3], before[3] + 3);
    }
}

#[test]
fn a_client_is_forgotten_in_time() {
    need_root!();
    let scheme = CookieScheme::Retry { remember: Duration::from_secs(1) };
    let hook = hook(vec![service("web", scheme, None)]);
    let syn = segment(SYN);
    let answer = hook.answer(&syn);
    assert_eq!(hook.fate(&Segment { flags: RST, seq: answer.ack, ..syn.clone() }), Fate::Dropped);
    assert_eq!(hook.fate(&syn), Fate::On);
    support::eventually("it is asked again", || hook.fate(&syn) == Fate::Answered);
}

#[test]
fn frames_of_every_shape_are_answered() {
    need_root!();
    for scheme in [cookie(), retry()] {
        let hook = flooded(scheme);
        hook.fate(&Segment { v6: true, ..segment(SYN) });
        for v6 in [false, true] {
            for tags in [vec![], vec![(0x8100, 7)], vec![(0x88a8, 7), (0x8100, 9)]] {
                for (options, payload) in [(0, 0), (40, 0), (4, 100), (0, 1400), (8, 5000)] {
                    let asked = Segment {
                        v6,
                        tags: tags.clone(),
                        options: vec![1; options],
                        payload,
                        ..segment(SYN)
                    };
                    hook.answer(&asked);
                }
            }
        }
        // The answer has no options, tags or extension headers of the SYN.
        let asked = segment(SYN);
        let mut with_options = asked.packet();
        with_options[0] = 0x46;
        with_options[3] += 4;
        with_options.splice(20..20, [7, 3, 4, 0]);
        let (fate, frame) = hook.run(&ethernet(to_us(), &[], 0x0800, &with_options));
        assert_eq!(fate, Fate::Answered);
        read(&frame, &asked);
        let asked = Segment { v6: true, ..segment(SYN) };
        let mut extended = asked.packet();
        extended[5] += 8;
        extended[6] = 60;
        extended.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
        let (fate, frame) = hook.run(&ethernet(to_us(), &[], 0x86dd, &extended));
        assert_eq!(fate, Fate::Answered);
        read(&frame, &asked);
    }
}

#[test]
fn what_cannot_be_answered_is_dropped() {
    need_root!();
    for scheme in [cookie(), retry()] {
        let hook = flooded(scheme);
        let refused = || hook.figures()[3];
        let before = refused();
        let mut first = segment(SYN).packet();
        first[6] = 0x20;
        assert_eq!(hook.run(&ethernet(to_us(), &[], 0x0800, &first)).0, Fate::Dropped, "a first fragment");
        assert_eq!(refused(), before + 1);
        let mut later = segment(SYN).packet();
        later[7] = 3;
        assert_eq!(hook.run(&ethernet(to_us(), &[], 0x0800, &later)).0, Fate::On, "has no ports");
        later[7] = 1;
        assert_eq!(
            hook.run(&ethernet(to_us(), &[], 0x0800, &later)).0,
            Fate::Dropped,
            "may hold others' flags"
        );
        // To a multicast address, or from one.
        for at in [0, 6] {
            let mut group = segment(SYN).frame();
            group[at] |= 1;
            assert_eq!(hook.run(&group).0, Fate::Dropped);
        }
        assert_eq!(refused(), before + 3);
        // A TCP header length beyond the frame, or below the minimum.
        let mut long = segment(SYN).frame();
        long[14 + 20 + 12] = 0xf0;
        let mut short = segment(SYN).frame();
        short[14 + 20 + 12] = 0x40;
        let wanted =
            if matches!(scheme, CookieScheme::Retry { .. }) { Fate::Answered } else { Fate::Dropped };
        assert_eq!((hook.run(&long).0, hook.run(&short).0), (wanted, wanted), "retries ask for no options");
        // The flags are truncated.
        for length in [4, 13, 19] {
            assert_eq!(hook.run(&segment(SYN).frame()[..34 + length]).0, Fate::Dropped, "{length}");
        }
        assert_eq!(hook.run(&segment(SYN).frame()[..37]).0, Fate::Dropped, "not even ports");
    }
}

#[test]
fn a_calm_service_is_left_alone() {
    need_root!();
    for scheme in [cookie(), retry()] {
        let calm = hook(vec![service("web", scheme, Some(100_000))]);
        for port in 1..=500 {
            assert_eq!(calm.fate(&Segment { port, ..segment(SYN) }), Fate::On);
        }
        assert_eq!(calm.fate(&Segment { flags: SYN | FIN, ..segment(SYN) }), Fate::On);
        assert_eq!((calm.figures(), calm.counted("web").flood), ([0, 0, 0, 0, 500], false));
        let flood = hook(vec![service("web", scheme, Some(20))]);
        support::eventually("a flood is noticed", || {
            flood.fate(&segment(SYN));
            flood.counted("web").flood
        });
        let through = flood.figures()[4];
        assert!((20..200).contains(&through), "a second's worth goes on: {through}");
        assert_eq!(flood.fate(&segment(SYN)), Fate::Answered);
    }
}

#[test]
fn a_dry_run_only_counts() {
    need_root!();
    for scheme in [cookie(), retry()] {
        let hook = hook(vec![Rule { dry_run: true, ..service("web", scheme, None) }]);
        hook.fate(&segment(SYN));
        for flags in [SYN, SYN, ACK, RST, SYN | FIN] {
            assert_eq!(hook.fate(&Segment { flags, ..segment(SYN) }), Fate::On);
        }
        let [answered, valid, invalid, ..] = hook.figures();
        assert!(answered >= 2 && valid == 0 && invalid == 0);
        assert!(hook.acted("web").1 >= 2);
    }
}

/// Checks that a dry run of a rule does not prevent a later rule from protecting the service.
#[test]
fn a_dry_run_hides_no_rule() {
    need_root!();
    let trial = |name: &str| Rule { dry_run: true, priority: 20, ..service(name, cookie(), None) };
    let all = |action| other("all", 1, Match::default(), action);
    let guarded =
        hook(vec![trial("trial"), trial("second"), service("web", retry(), None), all(Action::Count)]);
    assert_eq!(guarded.fate(&segment(SYN)), Fate::Answered);
    assert_eq!(guarded.fate(&segment(ACK)), Fate::On);
    assert_eq!((guarded.acted("trial"), guarded.acted("second")), ((2, 0), (0, 0)));
    assert_eq!((guarded.acted("web").0, guarded.acted("all").0), (2, 1));
    // Later rules decide, and the dry run counts on which frames it would have acted.
    for (action, fate) in [(Action::Drop, Fate::Dropped), (Action::Pass, Fate::On), (Action::Count, Fate::On)]
    {
        let alone = hook(vec![trial("trial"), all(action)]);
        assert_eq!([0; 3].map(|_| alone.fate(&segment(SYN))), [fate; 3]);
        let (packets, acted) = alone.acted("trial");
        assert!(packets == 3 && acted >= 2, "{packets}, {acted}");
    }
}

#[test]
fn other_rules_come_before_and_after() {
    need_root!();
    let from = |address: &str| Match { sources: vec![address.parse().unwrap()], ..Match::default() };
    let hook = hook(vec![
        other("friend", 20, from("198.51.100.5/32"), Action::Pass),
        other("enemy", 20, from("198.51.100.6/32"), Action::Drop),
        service("web", retry(), None),
        service("second", cookie(), None),
        other(
            "pushy",
            5,
            Match { tcp_flags: Some(TcpFlags { mask: PSH, value: PSH }), ..Match::default() },
            Action::Drop,
        ),
        other("all", 1, Match::default(), Action::Count),
    ]);
    let from = |client: u8, flags: u8| hook.fate(&Segment { client, flags, ..segment(SYN) });
    assert_eq!((from(5, SYN), from(6, SYN), from(7, SYN)), (Fate::On, Fate::Dropped, Fate::Answered));
    // Segments that the service's rule passes continue with later rules, except those with cookies.
    assert_eq!((from(7, ACK), from(7, ACK | PSH)), (Fate::On, Fate::Dropped));
    assert_eq!((hook.acted("web").0, hook.acted("second").0), (3, 0));
    assert_eq!((hook.acted("pushy"), hook.acted("all").0), ((1, 1), 1));
    // Frames to other hosts are not affected.
    let stranger = Segment { to: 81, ..segment(SYN) };
    assert_eq!(hook.fate(&stranger), Fate::On);
    let mut udp = segment(SYN).frame();
    udp[23] = 17;
    assert_eq!(hook.run(&udp).0, Fate::On);
    assert_eq!(hook.acted("web").0, 3);
}

#[test]
fn one_of_many_rules_is_found() {
    need_root!();
    let mut rules: Vec<Rule> =
        (0..200).map(|at| other(&format!("r{at}"), 100 - at / 2, Match::default(), Action::Count)).collect();
    rules.push(Rule { priority: 50, ..service("web", retry(), None) });
    let hook = hook(rules);
    assert_eq!(hook.fate(&segment(SYN)), Fate::Answered);
    assert_eq!(hook.fate(&segment(ACK)), Fate::On);
    let counted: Vec<u64> = (0..200).map(|at| hook.acted(&format!("r{at}")).0).collect();
    assert!(counted[..99].iter().all(|packets| *packets == 2), "{counted:?}");
    assert!(counted[110..].iter().all(|packets| *packets == 1), "{counted:?}");
}

#[test]
fn a_full_memory_forgets_the_oldest() {
    need_root!();
    let sizes = FilterSizes { clients: 64, ..FilterSizes::default() };
    let hook = hook_of(vec![service("web", cookie(), Some(1))], sizes);
    for _ in 0..3 {
        hook.fate(&Segment { client: 200, ..segment(SYN) });
    }
    let mut all = Vec::new();
    for port in 1..=2000 {
        let syn = Segment { port, ..segment(SYN) };
        let (fate, frame) = hook.run(&syn.frame());
        if fate == Fate::Answered {
            let ack = completing(&syn, &read(&frame, &syn));
            assert_eq!(hook.fate(&ack), Fate::On);
            all.push(Segment { ack: 1, ..ack });
        }
    }
    assert!(all.len() > 1000, "{}", all.len());
    assert_eq!(hook.fate(&all[all.len() - 1]), Fate::On, "the newest is known");
    let known = all.iter().filter(|data| hook.fate(data) == Fate::On).count();
    assert!(known <= 200, "{known}");
}

/// At intervals, the hook passes a SYN to each address and port of a service, and stores the time of this SYN. Forged
/// SYNs to many ports do not displace the clients of the rule.
#[test]
fn syns_of_forged_sources_to_many_ports_displace_no_client() {
    need_root!();
    let sizes = FilterSizes { clients: 64, ..FilterSizes::default() };
    let mut rule = service("web", cookie(), Some(1));
    rule.matches.destination_ports = vec![1..=65535];
    let hook = hook_of(vec![rule], sizes);
    for _ in 0..3 {
        hook.fate(&Segment { client: 200, ..segment(SYN) });
    }
    let syn = segment(SYN);
    let ack = completing(&syn, &hook.answer(&syn));
    assert_eq!(hook.fate(&ack), Fate::On);
    let data = Segment { ack: 1, ..ack };
    for to in 1000..6000 {
        let fate = hook.fate(&Segment { to, client: 9, ..syn.clone() });
        assert!(fate == Fate::On || to >= 2000 && fate == Fate::Answered, "{to}: {fate:?}");
    }
    assert_eq!(hook.fate(&data), Fate::On, "the client is known");
    assert_eq!(hook.figures()[1..3], [1, 0], "without another cookie");
    assert_eq!(hook.fate(&Segment { client: 201, ..data }), Fate::Dropped, "another client is not");
}

/// A rule for many addresses and ports passes 1,000 SYNs at once and 1,000 a second, whatever their addresses and ports
/// are. The hook answers the other SYNs with cookies.
#[test]
fn a_rule_passes_only_a_limited_number_of_syns_to_its_services() {
    need_root!();
    let mut rule = service("web", cookie(), None);
    rule.matches.destination_ports = vec![1..=65535];
    let hook = hook(vec![rule]);
    let frames: Vec<_> = (1000..11_000).map(|to| Segment { to, ..segment(SYN) }.frame()).collect();
    let begin = std::time::Instant::now();
    for frame in &frames {
        hook.loaded.test_run(frame).unwrap();
    }
    let most = 1001 + u64::try_from(begin.elapsed().as_millis()).unwrap();
    let [answered, .., passed] = hook.figures();
    assert!((1000..=most).contains(&passed), "{passed} passed, at most {most}");
    assert_eq!(answered + passed, 10_000, "the others are answered");
}

/// Forged SYNs to very many ports of a rule use up the number of SYNs that the rule passes. If a segment with a valid
/// cookie is then for a service that has received no SYN, the hook turns the segment into the client's SYN, so that the
/// service begins to accept cookies.
#[test]
fn a_valid_cookie_reaches_a_service_whose_syns_are_used_up_by_a_flood() {
    need_root!();
    // A rule that always answers learns connections in its first minute, and a rule under a flood learns none.
    let forms = [(false, false), (false, true), (true, false), (true, true)];
    for ((v6, is_partial), above) in forms.into_iter().flat_map(|form| [(form, None), (form, Some(1))]) {
        let mut rule = service("web", cookie(), above);
        rule.matches.destination_ports = vec![1..=65535];
        let hook = hook(vec![rule]);
        let mut forged = (1000..60_000).map(|to| Segment { v6, to, client: 9, ..segment(SYN) });
        let mut used_up = || assert!(forged.any(|syn| hook.fate(&syn) == Fate::Answered));
        // After some time, the rule may pass a SYN to a service. Then the next service is tried, until a SYN is
        // answered and not passed.
        let mut quiet = |mut ports: std::ops::Range<u16>| {
            ports.find_map(|to| {
                used_up();
                let syn = Segment { v6, to, ..segment(SYN) };
                let (fate, frame) = hook.run(&syn.frame());
                (fate == Fate::Answered).then(|| completing(&syn, &read(&frame, &syn)))
            })
        };
        let (ack, lost) = (quiet(60_000..61_000).unwrap(), quiet(61_000..62_000).unwrap());
        let earlier = hook.figures();
        let frame = |segment: &Segment| with_checksum(segment.frame(), v6, is_partial);
        let passed = hook.loaded.test_run(&frame(&ack)).unwrap();
        assert_eq!(passed.verdict, Verdict::Pass);
        let syn = Segment { flags: SYN, seq: ack.seq - 1, ack: 0, ..ack.clone() };
        assert_eq!(passed.frame, frame(&syn), "the client's SYN, with a checksum of its kind");
        assert!(is_partial || segment_sum(&passed.frame, v6) == 0xffff);
        // The client acknowledges the answer of the service's kernel. All later segments pass unchanged.
        let data = Segment { flags: ACK | PSH, payload: 100, ..ack.clone() };
        assert_eq!([&ack, &data].map(|segment| hook.run(&frame(segment)).0), [Fate::On; 2]);
        // If the first segment has payload, the client's next ACK returns no cookie, and the kernel would refuse the
        // connection. The repeated segment opens it. While connections are learned, the ACK would pass.
        let first = Segment { flags: ACK | PSH, payload: 100, ..lost.clone() };
        let passed = hook.loaded.test_run(&frame(&first)).unwrap();
        let syn = Segment { flags: SYN, seq: lost.seq - 1, ack: 0, ..first.clone() };
        let learns = above.is_none();
        let arrives = frame(if learns { &first } else { &syn });
        assert_eq!((passed.verdict, passed.frame), (Verdict::Pass, arrives));
        let next = Segment { seq: lost.seq + 100, ..lost.clone() };
        let fates = [&next, &first, &next].map(|segment| hook.run(&frame(segment)).0);
        let refused = if learns { Fate::On } else { Fate::Dropped };
        assert_eq!(fates, [refused, Fate::On, Fate::On]);
        let before = hook.figures();
        // The service makes cookies now, and forged SYNs to other services do not change this.
        for _ in 0..3 {
            used_up();
        }
        let second = Segment { v6, client: 2, to: ack.to, ..segment(SYN) };
        let (fate, answer) = hook.run(&second.frame());
        if fate == Fate::Answered {
            let ack = completing(&second, &read(&answer, &second));
            assert_eq!(hook.run(&frame(&ack)).0, Fate::On, "without another SYN");
        }
        let after = hook.figures();
        assert_eq!(after[2..4], before[2..4], "no segment was refused");
        assert!(after[1] > earlier[1] && after[4] > earlier[4], "{earlier:?}, {after:?}");
        // A segment without a valid cookie to a service that has received no SYN is not turned into a SYN.
        assert_eq!(hook.fate(&Segment { client: 3, to: 65_535, ack: 5, ..ack }), refused);
    }
}

#[test]
fn changes_keep_what_belongs_to_the_name() {
    need_root!();
    let mut hook = flooded(cookie());
    let syn = segment(SYN);
    let ack = completing(&syn, &hook.answer(&syn));
    assert_eq!(hook.fate(&ack), Fate::On);
    let before = hook.figures();
    let count = || other("count", 99, Match::default(), Action::Count);
    hook.change(vec![count(), service("web", cookie(), Some(1))]);
    assert_eq!(hook.figures(), before);
    assert_eq!(hook.fate(&Segment { ack: 1, ..ack.clone() }), Fate::On, "its connections");
    assert!(hook.counted("web").flood);
    hook.change(vec![count(), service("www", cookie(), Some(1))]);
    assert_eq!(hook.counted("www"), CookieCounters::default());
    hook.change(vec![count()]);
    assert!(hook.filter.cookie_counters().unwrap().is_empty());
    assert_eq!(hook.fate(&segment(SYN)), Fate::On);
}

/// A hook on a device is explained without side effects, and adopted from pins.
#[test]
fn a_hook_is_explained_and_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = PinPath::new(&format!("xdp-t{}-cookies", std::process::id())).unwrap();
    let compiled =
        Compiled::new(&RuleSet { rules: vec![service("web", retry(), None)], ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
    let config = config(Owner::Bridged, WhenDown::Pass);
    let mut port =
        PortProgram::load(&config).unwrap().attach(near, AttachMode::Native, Some(pin.clone())).unwrap();
    port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    let syn = segment(SYN);
    let said = port.explainer().unwrap().explain(&syn.frame()).unwrap();
    assert_eq!((said.counter, said.verdict), (Counter::FilterAnswered, Verdict::Redirect));
    assert_eq!(said.rules, [("web".to_owned(), true)]);
    let answer = read(&said.frame, &syn);
    // A cookie in an explained RST does not register a client.
    let reset = Segment { flags: RST, seq: answer.ack, ..syn.clone() };
    assert_eq!(port.explainer().unwrap().explain(&reset.frame()).unwrap().counter, Counter::FilterDropped);
    assert_eq!(port.explainer().unwrap().explain(&syn.frame()).unwrap().counter, Counter::FilterAnswered);
    assert_eq!(filter.cookie_counters().unwrap()["web"], CookieCounters::default());

    // The running program remembers the client, and so does a successor.
    let run = |frame: &[u8], port: &xdp::Attached, filter: &Filter| {
        port.prepare_stage(StageChange::Filter(Some(filter))).unwrap().test_run(frame).unwrap().verdict
    };
    assert_eq!(run(&reset.frame(), &port, &filter), Verdict::Drop);
    drop((port, filter));
    let port = adopt(&pin).unwrap().unwrap();
    let filter = Filter::of(&port).unwrap().unwrap();
    assert_eq!(filter.cookie_counters().unwrap()["web"].valid, 1);
    assert_eq!(run(&syn.frame(), &port, &filter), Verdict::Pass);
    assert_eq!(run(&Segment { client: 9, ..syn.clone() }.frame(), &port, &filter), Verdict::Redirect);
    assert_eq!(
        port.explainer().unwrap().explain(&syn.frame()).unwrap().counter,
        Counter::DownPassed,
        "it knows the client"
    );
    port.detach().unwrap();
}

/// The error of every refused rule names the rule and suggests a fix.
#[test]
fn impossible_services_are_refused_by_name() {
    type Change = fn(&mut Rule);
    let with = |change: Change| {
        let mut rule = service("web-1", cookie(), None);
        change(&mut rule);
        Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 9] = [
        (|rule| rule.matches.protocols.clear(), "TCP alone"),
        (|rule| rule.matches.protocols = vec![6, 17], "TCP alone"),
        (|rule| rule.matches.destinations.clear(), "names no service"),
        (|rule| rule.matches.destination_ports.clear(), "names no service"),
        (|rule| rule.matches.lengths = vec![60..=90], "leave flags"),
        (|rule| rule.matches.tcp_flags = Some(TcpFlags { mask: 2, value: 2 }), "leave flags"),
        (
            |rule| rule.action = Action::SynCookie(SynCookie { scheme: retry(), above: Some(0), ttl: 1 }),
            "answer always",
        ),
        (
            |rule| rule.action = Action::SynCookie(SynCookie { scheme: retry(), above: None, ttl: 0 }),
            "TTL from 1",
        ),
        (
            |rule| {
                let scheme = CookieScheme::Cookie { mss: Some(100), window_scale: None };
                rule.action = Action::SynCookie(SynCookie { scheme, above: None, ttl: 1 });
            },
            "at least 536",
        ),
    ];
    for (change, text) in cases {
        let said = with(change);
        assert!(said.contains("web-1") && said.contains(text), "{text} in: {said}");
    }
    let many = (0..65).map(|at| service(&format!("s{at}"), retry(), None)).collect();
    let error = Compiled::new(&RuleSet { rules: many, ..RuleSet::default() });
    assert!(matches!(error, Err(FilterError::TooManyServices { count: 65 })));
}
