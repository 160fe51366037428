//! Compares the number of instructions of every program variant with `budget.txt`: those that the verifier processes,
//! and those that remain in the program. The test fails if a number grows by more than a quarter. After an intended
//! change, `XDP_BUDGET=write cargo test -p xdp --test budget` updates the file.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use packet::net::{Pattern, PatternBase, RateUnit, SourceBits, TcpFlags, VlanMatch};
use support::{Namespace, config};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, StationTable};
use xdp::dump::{Dump, DumpConfig};
use xdp::fib::{FibPort, FibStage};
use xdp::filter::{
    Action, Compiled, CookieScheme, Filter, FilterSizes, Match, Moment, Rate, Rule, RuleSet, SynCookie,
};
use xdp::flows::{FlowPort, FlowStage, FlowTable};
use xdp::live::{Bench, Generator, Order, Replay, Traffic};
use xdp::route::{AnswerPort, AnswerSizes, Answers, Own, PuntLimits, RoutePort, RouteStage, Sources};
use xdp::steer::{SteerConfig, Steering};
use xdp::{AttachMode, Attached, Owner, PortProgram, ProgramInfo, StageChange, WhenDown};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/budget.txt");
const HEAD: &str = "# variant | instructions that the verifier walks | instructions that stay\n";

/// For each variant, the number of instructions that the verifier processed, and the number of instructions that remain
/// in the program.
type Costs = BTreeMap<String, (u32, u32)>;

fn measured() -> Costs {
    let mut costs = Costs::new();
    let mut add = |name: String, info: ProgramInfo| {
        assert!(info.verified_instructions > 0, "{name}: the kernel does not tell");
        costs.insert(name, (info.verified_instructions, info.instructions));
    };
    for (owner, owner_name) in [(Owner::Bridged, "bridged"), (Owner::Routed, "routed")] {
        for (when_down, down_name) in [(WhenDown::Pass, "pass"), (WhenDown::Drop, "drop")] {
            let config = config(owner, when_down);
            let frags = PortProgram::load(&config).unwrap();
            add(format!("port-{owner_name}-{down_name}-frags"), frags.info().unwrap());
            let linear = PortProgram::load_linear(&config).unwrap();
            add(format!("port-{owner_name}-{down_name}-linear"), linear.info().unwrap());
        }
    }
    for (name, rules) in filters().into_iter().chain(services()) {
        let compiled = Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap();
        let filter = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
        let config = config(Owner::Bridged, WhenDown::Drop);
        add(
            format!("port-bridged-drop-filter-{name}"),
            PortProgram::load_filtered(&config, &filter).unwrap().info().unwrap(),
        );
    }
    for (name, tagged, partial_checksums) in [("access", false, false), ("trunk-completing", true, true)] {
        add(format!("port-bridge-{name}"), with_bridge(tagged, partial_checksums));
    }
    let rules = [("plain", false, false), ("completing", true, false), ("completing-normal", true, true)];
    for (name, partial_checksums, asks_stations) in rules {
        add(format!("port-rules-{name}"), with_flows(partial_checksums, asks_stations));
    }
    let [.., (_, everything)] = filters();
    add("port-routed-drop-filter-everything-dump".to_owned(), with_dump(everything));
    let [.., (_, everything)] = services();
    add("port-routed-drop-filter-syncookie-everything-dump".to_owned(), with_dump(everything));
    for (name, check_sources, partial_checksums) in [("plain", false, false), ("checking", true, true)] {
        add(format!("port-fib-{name}"), with_fib(check_sources, partial_checksums));
    }
    for (name, vrrp) in [("plain", false), ("vrrp", true)] {
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &route_stage(vrrp));
        add(format!("port-route-{name}"), loaded.unwrap().info().unwrap());
    }
    for (name, partial_checksums) in [("answers", false), ("answers-completing", true)] {
        let stage = answers_stage(partial_checksums, Sources::Any);
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage);
        add(format!("port-route-{name}"), loaded.unwrap().info().unwrap());
    }
    let tagged = |stage: RouteStage| stage.with_vlans([(100, Some(1)), (200, None)]);
    for (name, stage) in [
        ("vlans", tagged(answers_stage(false, Sources::Any))),
        ("sources", answers_stage(false, Sources::Strict)),
        ("everything", tagged(answers_stage(true, Sources::Strict))),
    ] {
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage);
        add(format!("port-route-answers-{name}"), loaded.unwrap().info().unwrap());
    }
    let limits = PuntLimits::new().unwrap();
    for (name, stage) in [
        ("port-route-limited", route_stage(false).limited(&limits, 0)),
        ("port-route-answers-limited", tagged(answers_stage(true, Sources::Strict)).limited(&limits, 0)),
    ] {
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage);
        add(name.to_owned(), loaded.unwrap().info().unwrap());
    }
    add("port-route-answers-ordered".to_owned(), with_order());
    add("port-route-steer-everything".to_owned(), with_route());
    for (name, flows, table, metadata) in
        [("flows", 16, false, false), ("table", 0, true, false), ("everything", 16, true, true)]
    {
        let steering = SteerConfig { capacity: flows, table, metadata, cpu_queue: 64 };
        let steering = Steering::new(&steering).unwrap();
        for (owner, owner_name) in [(Owner::Bridged, "bridged"), (Owner::Routed, "routed")] {
            let loaded = PortProgram::load_steered(&config(owner, WhenDown::Drop), &steering).unwrap();
            add(format!("port-{owner_name}-steer-{name}"), loaded.info().unwrap());
        }
    }
    let generator = Generator::new(&Traffic { park: false, ..Traffic::to(1) }).unwrap();
    add("livegen".to_owned(), generator.info().unwrap());
    let frames = [vec![0; 60]];
    let replay = Replay { ifindex: 1, frames: &frames, order: Order::InTurn, rate: None, park: false };
    add("replay".to_owned(), Generator::replay(&replay).unwrap().info().unwrap());
    for program in Bench::ALL {
        add(program.name().to_owned(), program.load_info().unwrap());
    }
    costs
}

/// Returns the instruction counts of a program with a bridge stage. The stage requires that the port is attached.
fn with_bridge(tagged: bool, partial_checksums: bool) -> ProgramInfo {
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    let stage = bridge_stage(&attached, tagged, partial_checksums);
    attached.prepare_stage(StageChange::Bridge(Some(&stage))).unwrap().info().unwrap()
}

fn bridge_stage(attached: &Attached, tagged: bool, partial_checksums: bool) -> BridgeStage {
    let (table, devices) = (StationTable::new(1024, 1).unwrap(), BridgeDevices::new().unwrap());
    BridgeStage::new(&bridge_port(tagged, partial_checksums), attached, &table, &devices).unwrap()
}

fn bridge_port(tagged: bool, partial_checksums: bool) -> BridgePort {
    BridgePort {
        port: 1,
        untagged: Some(1),
        tagged,
        untagged_only: tagged,
        protected: false,
        learning: true,
        partial_checksums,
    }
}

/// Returns the instruction counts of a program with a stage of cached OpenFlow flows.
fn with_flows(partial_checksums: bool, asks_stations: bool) -> ProgramInfo {
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    attached
        .prepare_stage(StageChange::Flows(Some(&flow_stage(&attached, partial_checksums, asks_stations))))
        .unwrap()
        .info()
        .unwrap()
}

fn flow_stage(attached: &Attached, partial_checksums: bool, asks_stations: bool) -> FlowStage {
    let (table, devices) = (FlowTable::new(1024, 1).unwrap(), BridgeDevices::new().unwrap());
    let stations = StationTable::new(1024, 1).unwrap();
    let known = (&bridge_port(true, partial_checksums), &stations);
    let port = FlowPort { port: 1, partial_checksums };
    FlowStage::new(&port, attached, &table, &devices, asks_stations.then_some(known)).unwrap()
}

/// Returns the instruction counts of a program with a packet capture and with the filter rules `rules`.
fn with_dump(rules: Vec<Rule>) -> ProgramInfo {
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let filter = Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&filter, FilterSizes::default(), None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Routed, WhenDown::Drop), &filter).unwrap();
    let mut attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    attached.set_stage(StageChange::Dump(Some(&Dump::new(&DumpConfig::default()).unwrap()))).unwrap();
    attached.info().unwrap()
}

/// Returns the instruction counts of a program with a kernel routing stage.
fn with_fib(check_sources: bool, partial_checksums: bool) -> ProgramInfo {
    let namespace = support::Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Pass)).unwrap();
    let attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    let stage = fib_stage(&attached, check_sources, partial_checksums);
    attached.prepare_stage(StageChange::Fib(Some(&stage))).unwrap().info().unwrap()
}

fn fib_stage(attached: &Attached, check_sources: bool, partial_checksums: bool) -> FibStage {
    let port = FibPort { mac: [2, 0, 0, 0, 0, 1], check_sources, partial_checksums };
    FibStage::new(&port, attached).unwrap()
}

fn route_stage(vrrp: bool) -> RouteStage {
    RouteStage::new(&RoutePort { mac: [2, 0, 0, 0, 0, 1], vrrp }, &Own::new("budget").unwrap())
}

fn answers_stage(partial_checksums: bool, sources: Sources) -> RouteStage {
    let sizes = AnswerSizes { words4: 1 << 19, words6: 1 << 18, paths: 100, groups: 4, neighbours: 100 };
    let (answers, own) = (Answers::new(&sizes).unwrap(), Own::new("budget").unwrap());
    let port = RoutePort { mac: [2, 0, 0, 0, 0, 1], vrrp: true };
    let answer = AnswerPort { number: 1, interface: 0, sources, partial_checksums, seed: 7 };
    RouteStage::answering(&port, &own, &answers, &answer)
}

/// Returns the instruction counts of the program of a virtual router's port that keeps the frames of a flow in order.
fn with_order() -> ProgramInfo {
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded =
        PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &route_stage(true)).unwrap();
    let mut attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    let stage = answers_stage(false, Sources::Any).in_order(&attached).unwrap();
    attached.set_stage(StageChange::Route(Some(&stage))).unwrap();
    attached.info().unwrap()
}

/// Returns the instruction counts of the program of a virtual router's port with flow steering.
fn with_route() -> ProgramInfo {
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let loaded =
        PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &route_stage(true)).unwrap();
    let attached = loaded.attach(near, AttachMode::Native, None).unwrap();
    let steering = SteerConfig { capacity: 16, table: true, metadata: true, cpu_queue: 64 };
    let steering = Steering::new(&steering).unwrap();
    attached.prepare_stage(StageChange::Steering(Some(&steering))).unwrap().info().unwrap()
}

/// Returns named lists of filter rules: three lists with one rule for one or two fields, and one list of 65 rules for
/// every field, with several actions.
fn filters() -> [(&'static str, Vec<Rule>); 4] {
    let rule = |name: &str, matches: Match| Rule {
        name: name.to_owned(),
        priority: 0,
        matches,
        action: Action::Drop,
        dry_run: false,
        expires: None,
    };
    let source = Match { sources: vec!["192.0.2.0/24".parse().unwrap()], ..Match::default() };
    let service = Match { protocols: vec![17], destination_ports: vec![53..=53], ..Match::default() };
    let pattern =
        |at: u16| Pattern { base: PatternBase::Payload, offset: at * 9, bytes: vec![1; 8], mask: vec![] };
    let every = Match {
        destinations: source.sources.clone(),
        source_ports: vec![1..=2],
        lengths: vec![60..=60],
        vlans: vec![VlanMatch::Untagged],
        tcp_flags: Some(TcpFlags { mask: 2, value: 2 }),
        listed: true,
        patterns: (0..8).map(pattern).collect(),
        ..Match { protocols: vec![6], destination_ports: vec![80..=80], ..source.clone() }
    };
    let mut all: Vec<Rule> = (0..65).map(|at| rule(&format!("rule-{at}"), every.clone())).collect();
    all[0].action = Action::Sample { one_in: 10 };
    all[1].expires = Some(Moment(u64::MAX));
    let rate = Rate { unit: RateUnit::Packets, amount: 1, per: Duration::from_secs(1), burst: 1 };
    all[2].action = Action::RateLimit { rate, per_source: Some(SourceBits { ipv4: 32, ipv6: 64 }) };
    [
        ("source", vec![rule("source", source)]),
        ("service", vec![rule("service", service)]),
        ("listed", vec![rule("listed", Match { listed: true, ..Match::default() })]),
        ("everything", all),
    ]
}

/// Returns named lists of filter rules with SYN cookies: one list for each scheme, and one list in which the rules use
/// all options and all fields.
fn services() -> [(&'static str, Vec<Rule>); 3] {
    let service = |name: &str, scheme| Rule {
        name: name.to_owned(),
        priority: 9,
        matches: Match {
            protocols: vec![6],
            destinations: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            destination_ports: vec![80..=80],
            ..Match::default()
        },
        action: Action::SynCookie(SynCookie { scheme, above: Some(1000), ttl: 64 }),
        dry_run: false,
        expires: None,
    };
    let retry = CookieScheme::Retry { remember: Duration::from_secs(300) };
    let cookie = |window_scale| CookieScheme::Cookie { mss: None, window_scale };
    let [.., (_, mut all)] = filters();
    all.extend([service("retry", retry), service("cookie", cookie(Some(7)))]);
    [
        ("syncookie-retry", vec![service("retry", retry)]),
        ("syncookie-cookie", vec![service("cookie", cookie(None))]),
        ("syncookie-everything", all),
    ]
}

fn recorded() -> Costs {
    let text = fs::read_to_string(FILE).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split(" | ");
            let mut next = || fields.next().unwrap().trim().to_owned();
            (next(), (next().parse().unwrap(), next().parse().unwrap()))
        })
        .collect()
}

/// Returns descriptions of the differences between measured and recorded instruction counts.
fn complaints(measured: &Costs, recorded: &Costs) -> Vec<String> {
    let mut list = Vec::new();
    for (name, (walked, remaining)) in measured {
        let Some((walked_then, remaining_then)) = recorded.get(name) else {
            list.push(format!("{name} is not recorded"));
            continue;
        };
        for (what, now, then) in [("walked", walked, walked_then), ("remaining", remaining, remaining_then)] {
            if now * 4 > then * 5 {
                list.push(format!("{name}: {now} instructions {what}, more than 5/4 of {then}"));
            }
        }
    }
    list.extend(recorded.keys().filter(|n| !measured.contains_key(*n)).map(|n| format!("{n} is no more")));
    list
}

#[test]
fn no_variant_grows_by_a_quarter() {
    need_root!();
    let measured = measured();
    if std::env::var("XDP_BUDGET").as_deref() == Ok("write") {
        let lines = measured.iter().map(|(name, (walked, left))| format!("{name} | {walked} | {left}\n"));
        fs::write(FILE, HEAD.to_owned() + &lines.collect::<String>()).unwrap();
    }
    let complaints = complaints(&measured, &recorded());
    assert!(complaints.is_empty(), "{}\nif wanted: XDP_BUDGET=write", complaints.join("\n"));
}

/// The verifier accepts every combination of stages, in both builds, with the largest variant of each stage. A
/// combination must not exceed the stack size of a BPF program either.
#[test]
fn every_combination_of_stages_loads() {
    need_root!();
    let ([.., (_, every_field)], [.., (_, with_cookies)]) = (filters(), services());
    let filter = |rules| {
        Filter::new(
            &Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap(),
            FilterSizes::default(),
            None,
        )
        .unwrap()
    };
    let filters = [None, Some(filter(every_field)), Some(filter(with_cookies))];
    let steering = SteerConfig { capacity: 16, table: true, metadata: true, cpu_queue: 64 };
    let steering = Steering::new(&steering).unwrap();
    let dump = Dump::new(&DumpConfig::default()).unwrap();
    let mut loaded = 0;
    let builds = [("frags", PortProgram::load as fn(&_) -> _), ("linear", PortProgram::load_linear)];
    for (room, (build, load)) in ["kernel", "bridge", "rules", "fib", "route", "answers"]
        .into_iter()
        .flat_map(|room| builds.map(|build| (room, build)))
    {
        let namespace = Namespace::enter_new();
        let (_, near) = namespace.veth("va", "vb", "");
        let owner = if ["bridge", "rules"].contains(&room) { Owner::Bridged } else { Owner::Routed };
        let program = load(&config(owner, WhenDown::Drop)).unwrap();
        let mut port = program.attach(near, AttachMode::Native, None).unwrap();
        match room {
            "bridge" => port.set_stage(StageChange::Bridge(Some(&bridge_stage(&port, true, true)))).unwrap(),
            "rules" => port.set_stage(StageChange::Flows(Some(&flow_stage(&port, true, true)))).unwrap(),
            "fib" => port.set_stage(StageChange::Fib(Some(&fib_stage(&port, true, true)))).unwrap(),
            "route" => port.set_stage(StageChange::Route(Some(&route_stage(true)))).unwrap(),
            "answers" => {
                let stage = answers_stage(true, Sources::Strict).in_order(&port).unwrap();
                port.set_stage(StageChange::Route(Some(&stage))).unwrap();
            }
            _ => {}
        }
        for filter in &filters {
            port.set_stage(StageChange::Filter(filter.as_ref())).unwrap();
            for steering in [None, Some(&steering)] {
                port.set_stage(StageChange::Steering(steering)).unwrap();
                for dump in [Some(&dump), None] {
                    port.set_stage(StageChange::Dump(dump)).unwrap_or_else(|error| {
                        panic!(
                            "{build}, {room}, filter {}, steering {}: {error}",
                            filter.is_some(),
                            steering.is_some()
                        )
                    });
                    loaded += 1;
                }
            }
        }
    }
    assert_eq!(loaded, 144);
}

#[test]
fn budget_notices_growth_and_strangers() {
    let costs = |list: &[(&str, u32, u32)]| -> Costs {
        list.iter().map(|(name, walked, left)| ((*name).to_owned(), (*walked, *left))).collect()
    };
    let then = costs(&[("a", 100, 40)]);
    assert!(complaints(&costs(&[("a", 125, 50)]), &then).is_empty());
    assert_eq!(complaints(&costs(&[("a", 126, 50)]), &then).len(), 1);
    assert_eq!(complaints(&costs(&[("a", 100, 51)]), &then).len(), 1);
    assert_eq!(complaints(&costs(&[("b", 1, 1)]), &then).len(), 2);
}

/// Stages that are not present add no instructions to a program, because the verifier removes their code.
#[test]
fn absent_stages_leave_no_instructions() {
    need_root!();
    let instructions =
        |owner| PortProgram::load(&config(owner, WhenDown::Drop)).unwrap().info().unwrap().instructions;
    let (bridged, routed) = (instructions(Owner::Bridged), instructions(Owner::Routed));
    assert!(bridged * 3 < routed, "{bridged} of {routed}");
}
