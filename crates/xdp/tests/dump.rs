//! Tests of packet captures in a port's XDP program (hook): the frames before and after the program, and the verdicts.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::time::Duration;

use packet::net::RateUnit;
use support::xsk::Xsk;
use support::{Namespace, awaited, config, ethernet, to_us};
use xdp::dump::{Dump, DumpConfig, Dumped};
use xdp::filter::{Action, Compiled, Filter, FilterSizes, Match, Rate, Rule, RuleSet};
use xdp::live::{Generator, Order, Replay, Traffic};
use xdp::ring::{MOST, RingReader};
use xdp::{
    AttachMode, Attached, Counter, Owner, PinPath, PortProgram, StageChange, Verdict, WhenDown, adopt,
};

fn port(ifindex: u32, pin: Option<PinPath>) -> Attached {
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    loaded.attach(ifindex, AttachMode::Native, pin).unwrap()
}

/// Returns frames that differ in their payload.
fn numbered(count: u8, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| ethernet(to_us(), &[], 0x88b5, &vec![number; length - 14])).collect()
}

fn generator(ifindex: u32, frames: &[Vec<u8>]) -> Generator {
    Generator::replay(&Replay { ifindex, frames, order: Order::InTurn, rate: None, park: true }).unwrap()
}

/// Returns the next `count` frames of a capture, and checks that there are no more.
fn dumped(reader: &RingReader<Dumped>, count: usize) -> Vec<Dumped> {
    let mut all = Vec::new();
    awaited("captured frames", || {
        all.extend(reader.poll(Duration::from_millis(10)).unwrap());
        (all.len() >= count).then_some(())
    });
    assert_eq!(all.len(), count, "{all:?}");
    all
}

#[test]
fn frames_are_captured_at_entry_and_exit_with_their_verdict() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let frames = numbered(4, 100);
    let mut generator = generator(a, &frames);
    let mut hook = port(b, None);
    let plain = hook.info().unwrap().tag;
    let dump = Dump::new(&DumpConfig { snap: 64, ..DumpConfig::default() }).unwrap();
    let reader = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    assert!(hook.dumps().unwrap());
    generator.send(4).unwrap();
    let all = dumped(&reader, 4);
    for (dumped, frame) in all.iter().zip(&frames) {
        let told = (dumped.verdict, dumped.lengths, dumped.ifindex, dumped.queue);
        assert_eq!(told, (Verdict::Drop, [100; 2], b, 0));
        assert_eq!((dumped.counter, dumped.rule), (Some(Counter::DownDropped), None));
        assert_eq!((&dumped.entry[..], &dumped.exit[..]), (&frame[..64], &frame[..64]));
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.checked_sub(Duration::from_nanos(all[3].at_ns)).unwrap();
    assert!(age < Duration::from_secs(60), "{age:?}");

    // This capture records only frames for a socket, and only their bytes at exit. It replaces the first capture.
    let xsk = Xsk::bound(b, 0);
    let only = DumpConfig { verdicts: vec![Verdict::Redirect], entry: false, ..DumpConfig::default() };
    let dump = Dump::new(&only).unwrap();
    let second = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    generator.send(4).unwrap();
    hook.set_socket(0, xsk.fd()).unwrap();
    generator.send(2).unwrap();
    let all = dumped(&second, 2);
    let way = (Verdict::Redirect, Some(Counter::Steered));
    assert!(all.iter().all(|dumped| (dumped.verdict, dumped.counter) == way && dumped.entry.is_empty()));
    assert_eq!(all.iter().map(|dumped| &dumped.exit).collect::<Vec<_>>(), [&frames[0], &frames[1]]);
    assert_eq!((dump.missed().unwrap(), reader.poll(Duration::ZERO).unwrap().len()), (0, 0));

    // Afterwards the program is the original one, on the same maps.
    hook.set_stage(StageChange::Dump(None)).unwrap();
    assert_eq!(hook.info().unwrap().tag, plain);
    generator.send(2).unwrap();
    assert_eq!(second.poll(Duration::ZERO).unwrap(), []);
    let counters = hook.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.get(Counter::Steered)), (8, 4));
}

/// A capture continues when the captured program is replaced, and then shows the verdicts of the new program.
#[test]
fn a_capture_stays_through_changes_of_the_program() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let mut hook = port(b, None);
    let dump = Dump::new(&DumpConfig::default()).unwrap();
    let reader = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    let frames = numbered(1, 60);
    let mut generator = generator(a, &frames);
    let passing = hook.prepare(&config(Owner::Bridged, WhenDown::Pass)).unwrap();
    hook.swap(passing).unwrap();
    generator.send(1).unwrap();
    assert_eq!(dumped(&reader, 1)[0].verdict, Verdict::Pass);
    let rule = |name: &str, priority, action, dry_run| Rule {
        name: name.to_owned(),
        priority,
        matches: Match::default(),
        action,
        dry_run,
        expires: None,
    };
    // The first frame is within the rate.
    let rate = Rate { unit: RateUnit::Packets, amount: 1, per: Duration::from_secs(60), burst: 1 };
    let list = vec![
        rule("only-looks", 3, Action::Drop, true),
        rule("counts", 2, Action::Count, false),
        rule("slow", 1, Action::RateLimit { rate, per_source: None }, false),
        rule("all", 0, Action::Drop, false),
    ];
    let rules = Compiled::new(&RuleSet { rules: list, ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&rules, FilterSizes::default(), None).unwrap();
    hook.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    generator.send(2).unwrap();
    let told: Vec<_> = dumped(&reader, 2)
        .iter()
        .map(|dumped| {
            (dumped.verdict, dumped.counter.unwrap(), filter.rule_at(dumped.rule.unwrap()).unwrap())
        })
        .collect();
    let (dropped, limited) = ((Counter::FilterDropped, "all"), (Counter::FilterLimited, "slow"));
    let ways = [dropped, limited];
    assert_eq!(told, ways.map(|(way, rule)| (Verdict::Drop, way, rule)));
    hook.set_stage(StageChange::Dump(None)).unwrap();
    generator.send(1).unwrap();
    let counters = hook.counters().unwrap();
    assert_eq!(
        counters.get(Counter::FilterDropped) + counters.get(Counter::FilterLimited),
        3,
        "the filter stays"
    );
    assert_eq!(reader.poll(Duration::ZERO).unwrap(), []);
}

/// While the ring buffer is full, frames pass as before, and the copies that do not fit are counted.
#[test]
fn a_full_ring_costs_copies_and_no_frames() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let mut hook = port(b, None);
    let dump = Dump::new(&DumpConfig { ring_bytes: 4096, ..DumpConfig::default() }).unwrap();
    let reader = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    let mut generator = Generator::new(&Traffic::to(a)).unwrap();
    generator.send(10_000).unwrap();
    awaited("all of them", || (hook.counters().unwrap().seen() == 10_000).then_some(()));
    let got = reader.poll(Duration::ZERO).unwrap().len();
    assert!((10..100).contains(&got), "{got}");
    assert_eq!(u64::try_from(got).unwrap() + dump.missed().unwrap(), 10_000);
}

/// A call of `poll` returns even if frames arrive faster than they are read. The next calls return the remaining
/// records.
#[test]
fn one_call_reads_a_bounded_number_of_records() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let mut hook = port(b, None);
    let dump = Dump::new(&DumpConfig { snap: 64, ..DumpConfig::default() }).unwrap();
    let reader = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    let sent = MOST * 2 + 100;
    Generator::new(&Traffic::to(a)).unwrap().send(sent as u64).unwrap();
    awaited("all of them", || (hook.counters().unwrap().seen() == sent as u64).then_some(()));
    let read = || reader.poll(Duration::ZERO).unwrap().len();
    assert_eq!([read(), read(), read(), read()], [MOST, MOST, 100, 0]);
    assert_eq!(dump.missed().unwrap(), 0);
}

/// Frames in several buffers are captured beyond the first buffer.
#[test]
fn jumbo_frames_are_captured() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_a, b) = namespace.veth("va", "vb", "");
    for device in ["va", "vb"] {
        namespace.ip(&format!("link set dev {device} mtu 9000"));
    }
    let mut hook = port(b, None);
    let dump = Dump::new(&DumpConfig { snap: 2048, ..DumpConfig::default() }).unwrap();
    let reader = dump.reader().unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    let frame: Vec<u8> =
        ethernet(to_us(), &[], 0x88b5, &(0..8000).map(|at: u32| at.to_le_bytes()[0]).collect::<Vec<_>>());
    support::PacketSocket::on(namespace.index("va")).send(&frame);
    let all = dumped(&reader, 1);
    assert_eq!(all[0].lengths, [8014; 2]);
    assert_eq!((&all[0].entry[..], &all[0].exit[..]), (&frame[..2048], &frame[..2048]));
}

/// A successor process recognises and adopts the program of a process that was killed during a capture.
#[test]
fn a_pinned_hook_is_adopted_with_a_capture_around_it() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let pin = PinPath::new(&format!("dump-test-{}", std::process::id())).unwrap();
    let mut hook = port(b, Some(pin.clone()));
    let dump = Dump::new(&DumpConfig::default()).unwrap();
    hook.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    drop((hook, dump));
    let mut hook = adopt(&pin).unwrap().unwrap();
    assert!(hook.dumps().unwrap());
    hook.set_stage(StageChange::Dump(None)).unwrap();
    assert!(!hook.dumps().unwrap());
    generator(a, &numbered(1, 60)).send(3).unwrap();
    assert_eq!(hook.counters().unwrap().get(Counter::DownDropped), 3);
    assert_eq!(hook.info().unwrap().name, "trivium_port");
    hook.detach().unwrap();
}
