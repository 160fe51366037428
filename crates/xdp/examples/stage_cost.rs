//! Measures the nanoseconds per frame that each stage of a port's program takes, with `BPF_PROG_TEST_RUN`. Each result
//! is the time of the fastest of many short runs, minus the time of the program without a stage. The fastest run is
//! used because other load on the core only makes runs slower. Run it as root, in a network namespace of its own:
//! `cargo build --release -p xdp --example stage_cost && unshare --net taskset -c 1 target/release/examples/stage_cost`

use std::process::Command;

use lookup::Prefix;
use packet::MacAddr;
use packet::net::FiveTuple;
use router::{Adjacencies, Fib, NeighbourMirror, NextHop, Path, TableMirror};
use sync::qsbr::Domain;
use sync::readers::{ExternalReaders, Readers};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Place, StationTable};
use xdp::fib::{FibPort, FibStage, Takes};
use xdp::filter::{Action, Compiled, Filter, FilterSizes, Match, Rule, RuleSet};
use xdp::flows::{FlowAction, FlowPort, FlowStage, FlowTable, FlowWriter};
use xdp::route::{AnswerInterface, AnswerPort, AnswerSizes, Answers, Own, RoutePort, RouteStage, Sources};
use xdp::steer::{FlowEntry, STEER_BUCKETS, SteerConfig, SteerTo, Steering};
use xdp::{
    AttachMode, Attached, Error, Loaded, LocalAddresses, Owner, PortProgram, ProgramConfig, StageChange,
    WhenDown,
};

/// Number of repetitions per run, less than the TTL of the frame. A routing stage decrements the TTL in each
/// repetition.
const REPEAT: u32 = 200;
/// Number of runs. Each run takes about 25 ms longer at its beginning, because the kernel waits for all CPUs.
const RUNS: usize = 50;
const OUTPUT: u16 = 2;
const VLAN: u16 = 10;

/// Setup of the devices. Frames arrive on `d` and leave through `o`.
const SET_UP: &str = "
    ip link add g type veth peer name d; ip link add o type veth peer name s
    for x in g d o s; do echo 1 > /proc/sys/net/ipv6/conf/$x/disable_ipv6; ip link set dev $x up; done
    ip link set dev d address 02:00:00:00:00:02
    ip address add 10.0.1.1/24 dev d; ip address add 10.0.3.1/24 dev o
    ip neighbor add 10.0.3.2 lladdr 02:00:00:00:00:09 dev o
    ip route add 10.0.2.0/24 via 10.0.3.2
    echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
    echo 0 > /proc/sys/net/ipv4/conf/d/rp_filter";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let made = Command::new("sh").args(["-ec", SET_UP]).status()?;
    if !made.success() {
        return Err("the devices could not be made: run it in a network namespace of its own, as root".into());
    }
    let (device, output) = (index("d")?, index("o")?);
    let bench = Bench { device };
    let alone = bench.least(&PortProgram::load(&config(Owner::Bridged))?)?;
    println!("the port's program alone, no socket: {alone} ns");
    let show = |stage: &str, loaded: &Loaded| -> Result<(), Error> {
        println!("{stage}: {:+} ns", i64::from(bench.least(loaded)?) - i64::from(alone));
        Ok(())
    };
    for (stage, protocol) in
        [("filter, one rule that drops", 17), ("filter, one rule that does not match", 6)]
    {
        let filter = Filter::new(&one_rule(protocol)?, FilterSizes::default(), None)?;
        show(stage, &PortProgram::load_filtered(&config(Owner::Bridged), &filter)?)?;
    }
    show("kernel: a routed port, not for this machine", &PortProgram::load(&config(Owner::Routed))?)?;
    let mut own = Own::new("cost")?;
    own.replace_all(&[[10, 0, 1, 1].into(), [10, 0, 3, 1].into()].into())?;
    let route = RouteStage::new(&RoutePort { mac: [2, 0, 0, 0, 0, 2], vrrp: false }, &own);
    show("route: a router's port, to be routed", &PortProgram::load_routed(&config(Owner::Routed), &route)?)?;
    for (stage, beside) in [("one route", 0), ("a route of 32 bits among 200,000", 200_000)] {
        let answers = answers(output, beside)?;
        let answer =
            AnswerPort { number: 1, interface: 1, sources: Sources::Any, partial_checksums: false, seed: 7 };
        let port = RoutePort { mac: [2, 0, 0, 0, 0, 2], vrrp: false };
        let stage_of = RouteStage::answering(&port, &own, &answers, &answer);
        let loaded = PortProgram::load_routed(&config(Owner::Routed), &stage_of)?;
        show(&format!("route, answered: {stage}"), &loaded)?;
    }
    for (stage, flow, table, metadata) in [
        ("exact flows, not among them", false, false, false),
        ("exact flows, to the kernel", true, false, false),
        ("steering's table, to the worker", false, true, false),
        ("the same with hash and mark in front", false, true, true),
    ] {
        let capacity = if table { 0 } else { 64 };
        let mut steering = Steering::new(&SteerConfig { capacity, table, metadata, cpu_queue: 64 })?;
        steering.set_table(&[SteerTo::Worker; STEER_BUCKETS], false)?;
        if flow {
            let entry = FlowEntry { to: SteerTo::Kernel, mark: 0, expires: None, live: false };
            steering.insert(flow_of_frame(), entry)?;
        }
        show(stage, &PortProgram::load_steered(&config(Owner::Bridged), &steering)?)?;
    }
    let attach = |owner| -> Result<Attached, Error> {
        PortProgram::load(&config(owner))?.attach(device, AttachMode::Native, None)
    };
    let port = attach(Owner::Bridged)?;
    let (stations, devices) = bridge(output)?;
    let stage = BridgeStage::new(&MEMBER, &port, &stations, &devices)?;
    show("bridge, both stations known", &port.prepare_stage(StageChange::Bridge(Some(&stage)))?)?;
    for (stage, normal) in [("a cached flow, by one port", false), ("a cached flow by NORMAL", true)] {
        let stage_of = flow(&port, &stations, &devices, normal)?;
        show(stage, &port.prepare_stage(StageChange::Flows(Some(&stage_of)))?)?;
    }
    drop(port);
    let port = attach(Owner::Routed)?;
    let own = FibPort { mac: [2, 0, 0, 0, 0, 2], check_sources: false, partial_checksums: false };
    let stage = FibStage::new(&own, &port)?;
    stage.set_devices(&[(output, Takes::MultiBuffer)].into())?;
    show("the kernel's routing, one route", &port.prepare_stage(StageChange::Fib(Some(&stage)))?)?;
    Ok(())
}

/// Returns the tables of a router with `beside` + 1 routes. One route leads to the frame's destination through the
/// output device.
fn answers(output: u32, beside: u32) -> Result<Answers, Box<dyn std::error::Error>> {
    let sizes = AnswerSizes { words4: 1 << 21, words6: 1 << 18, paths: 17, groups: 1, neighbours: 17 };
    let answers = Answers::new(&sizes)?;
    let readers = Readers::with(&Domain::new(), &ExternalReaders::start(xdp::wait_for_programs)?);
    let mirror = TableMirror {
        four: Box::new(answers.four()),
        six: Box::new(answers.six()),
        paths: Box::new(answers.paths()),
        groups: Box::new(answers.groups()),
    };
    let mut fib = Fib::mirrored(&readers, mirror, 16)?;
    let mirror = NeighbourMirror {
        neighbours: Box::new(answers.neighbours()),
        links: Box::new(answers.links()),
        secrets: answers.link_secrets(),
        counts: Box::new(answers.sent()),
    };
    let mut all = Adjacencies::mirrored(&readers, 16, 1, mirror);
    let interface = AnswerInterface {
        port: 2,
        device: output,
        mac: [2, 0, 0, 0, 0, 3],
        mtu: 1500,
        takes: Takes::MultiBuffer,
        vlan: 0,
    };
    answers.set_interface(0, Some(&interface));
    answers.set_device(2, output)?;
    all.bind(output, Some(0));
    all.resolve(output, [10, 0, 3, 2].into(), Some(MacAddr([2, 0, 0, 0, 0, 9])));
    let gateway = Some([10, 0, 3, 2].into());
    let path = Path::NextHops(vec![NextHop { interface: output, gateway, weight: 1 }]);
    let length = if beside > 0 { 32 } else { 0 };
    fib.set4(Prefix::new(u32::from_be_bytes([10, 0, 2, 2]), length), &path, &mut all)?;
    for number in 0..beside {
        fib.set4(Prefix::new(number.wrapping_mul(0x9e37_79b1), 24), &Path::Unreachable, &mut all)?;
    }
    answers.answer(true, true);
    Ok(answers)
}

struct Bench {
    device: u32,
}

impl Bench {
    fn least(&self, loaded: &Loaded) -> Result<u32, Error> {
        (0..RUNS).try_fold(u32::MAX, |least, _| {
            let run = loaded.test_run_from(&frame(), Some((self.device, 0)), REPEAT)?;
            Ok(least.min(run.nanoseconds))
        })
    }
}

fn config(owner: Owner) -> ProgramConfig {
    let v4 = [[10, 0, 1, 1].into(), [10, 0, 3, 1].into()].into();
    let locals = LocalAddresses { v4, ..LocalAddresses::default() };
    ProgramConfig { owner, when_down: WhenDown::Drop, queues: 1, locals }
}

/// Returns a UDP frame from 10.0.1.2:1024 to 10.0.2.2:9 with 60 bytes and a TTL of 255.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 255, 17, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!u16::try_from(folded).unwrap_or(0)).to_be_bytes());
    frame[34..42].copy_from_slice(&[4, 0, 0, 9, 0, 26, 0, 0]);
    frame
}

fn flow_of_frame() -> FiveTuple {
    FiveTuple {
        vlan: None,
        source: [10, 0, 1, 2].into(),
        destination: [10, 0, 2, 2].into(),
        protocol: 17,
        ports: Some((1024, 9)),
    }
}

fn one_rule(protocol: u8) -> Result<Compiled, Error> {
    let matches = Match { protocols: vec![protocol], ..Match::default() };
    let rule = Rule {
        name: "rule".into(),
        priority: 0,
        matches,
        action: Action::Drop,
        dry_run: false,
        expires: None,
    };
    Ok(Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() })?)
}

const MEMBER: BridgePort = BridgePort {
    port: 1,
    untagged: Some(VLAN),
    tagged: false,
    untagged_only: false,
    protected: false,
    learning: true,
    partial_checksums: false,
};

/// Returns a stage with one flow for all received frames. The mask of the flow contains the port, the
/// EtherType and the first octets of the destination.
fn flow(
    port: &Attached,
    stations: &StationTable,
    devices: &BridgeDevices,
    normal: bool,
) -> Result<FlowStage, Box<dyn std::error::Error>> {
    let table = FlowTable::new(4096, 0x1234_5678_9abc_def1)?;
    table.set_reached(OUTPUT, Some(1514));
    table.renew(u64::MAX);
    let mut writer = FlowWriter::new(&table);
    let key = [1, 0, 8 << 32, 0, 0, 10, 0, 0];
    let mask = [0xffff, 0, 0xffff << 32, 0, 0, 0xff, 0, 0];
    let action = FlowAction { port: (!normal).then_some(OUTPUT), normal, ..FlowAction::default() };
    if writer.insert(&key, &mask, &action).is_err() {
        writer.settle(writer.written());
        writer.insert(&key, &mask, &action).map_err(|refused| format!("the flow: {refused:?}"))?;
    }
    let own = FlowPort { port: 1, partial_checksums: false };
    Ok(FlowStage::new(&own, port, &table, devices, Some((&MEMBER, stations)))?)
}

/// Returns the station table with the frame's two stations: one on the receiving device, and the other on the output
/// device.
fn bridge(output: u32) -> Result<(StationTable, BridgeDevices), Error> {
    let (table, devices) = (StationTable::new(1024, 1)?, BridgeDevices::new()?);
    devices.set(OUTPUT, output)?;
    for (last, at) in [(1, 1), (2, OUTPUT)] {
        let key = u64::from_le_bytes([2, 0, 0, 0, 0, last, 0, 0]) | u64::from(VLAN) << 48;
        let place = Place { port: at, tagged: false, protected: false, is_static: true, reached: Some(1514) };
        table.insert(key, place, 0);
    }
    Ok((table, devices))
}

fn index(name: &str) -> Result<u32, Box<dyn std::error::Error>> {
    let output = Command::new("ip").args(["-o", "link", "show", "dev", name]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split(':').next().unwrap_or_default().parse()?)
}
