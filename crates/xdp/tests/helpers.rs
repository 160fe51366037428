//! Tests of every code that the kernel's helpers may return. The codes are forced, because most cannot be produced with
//! a real kernel on demand. The port's program is compiled again with a replacement for one helper, which returns the
//! code that the test chooses ([`forced.h`](support/forced.h)).

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;
#[path = "support/tables.rs"]
mod tables;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, ProgramInput};
use packet::{FlowKey, PortId};
use support::compile::compiled_file;
use support::router::{FAR, NEAR, Router, ipv4};
use support::{Namespace, config, ethernet, frame4, to_us};
use tables::{ANSWER, MAC, Rig, TAG, VLANS, sent, tagged};
use xdp::bridge::{BridgeDevices, Mark};
use xdp::filter::{Action, Compiled, CookieScheme, Filter, FilterSizes, Match, Rule, RuleSet, SynCookie};
use xdp::flows::{FlowAction, FlowPort, FlowStage, FlowTable, FlowWriter};
use xdp::{AttachMode, Counter, Loaded, Owner, PortProgram, StageChange, WhenDown};

const BPF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");
const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// Code that a helper returns for an invalid argument.
const EINVAL: i32 = -22;

/// Helper whose code the test chooses: the values of `enum forced_helper`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Helper {
    None,
    FibLookup,
    FibBack,
    CheckMtu,
    AdjustHead,
    AdjustMeta,
    AdjustTail,
    RedirectMap,
    LoadBytes,
    StoreBytes,
    MakeCookie,
    CheckCookie,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A port's program, with its maps, in which one helper returns a code that the test chooses.
struct Forced {
    object: libbpf_rs::Object,
}

impl Forced {
    /// Loads the program. `constants` holds the contents of read-only data sections. A section is identified by the end
    /// of its name, for example by `conf` for `.rodata.conf`.
    fn new(helper: Helper, code: i32, constants: &[(&str, Vec<u8>)]) -> Forced {
        static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
        let object = OBJECT.get_or_init(|| {
            let forced = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/forced.h");
            let arguments = [format!("-I{BPF}/include"), "-include".to_owned(), forced.to_owned()];
            compiled_file(&Path::new(BPF).join("trivium.bpf.c"), &arguments)
        });
        let mut open = ObjectBuilder::default().open_memory(object).unwrap();
        for mut program in open.progs_mut() {
            let chosen = program.name() == "trivium_port";
            program.set_autoload(chosen);
        }
        let code = u32::from_ne_bytes(code.to_ne_bytes());
        let mut constants = constants.to_vec();
        constants.push(("forced", words(&[helper as u32, code])));
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some((_, bytes)) =
                constants.iter().find(|(section, _)| name == format!(".rodata.{section}"))
            {
                map.set_initial_value(bytes).unwrap();
            } else if name.starts_with("filter_") {
                map.set_autocreate(false).unwrap();
            }
        }
        Forced { object: open.load().unwrap() }
    }

    /// Loads the program compiled from `source`, with the maps and constants of a program that was loaded normally.
    /// Both programs share all tables, and differ only in the code that one helper returns.
    fn twin(loaded: &Loaded, source: &str, helper: Helper, code: i32) -> Forced {
        static OBJECTS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
        const SOURCES: [&str; 2] = ["trivium.bpf.c", "services.bpf.c"];
        let objects = OBJECTS.get_or_init(|| {
            let forced = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/forced.h");
            let arguments = [format!("-I{BPF}/include"), "-include".to_owned(), forced.to_owned()];
            SOURCES.map(|source| compiled_file(&Path::new(BPF).join(source), &arguments))
        });
        let object = &objects[SOURCES.iter().position(|known| *known == source).unwrap()];
        let id = loaded.info().unwrap().id;
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let info = ProgInfoIter::with_query_opts(options).find(|info| info.id == id).unwrap();
        let maps = info.map_ids.into_iter().map(|id| MapHandle::from_map_id(id).unwrap());
        let maps: BTreeMap<String, MapHandle> =
            maps.map(|map| (map.name().to_string_lossy().into_owned(), map)).collect();
        let mut open =
            ObjectBuilder::default().debug(std::env::var_os("DBG").is_some()).open_memory(object).unwrap();
        for mut program in open.progs_mut() {
            let chosen = program.name() == "trivium_port";
            program.set_autoload(chosen);
        }
        let code = u32::from_ne_bytes(code.to_ne_bytes());
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            // The kernel truncates names to 15 characters.
            let short: String = name.chars().take(15).collect();
            if name == ".rodata.forced" {
                map.set_initial_value(&words(&[helper as u32, code])).unwrap();
            } else if let Some(theirs) = maps.get(&short) {
                map.reuse_fd(theirs.as_fd()).unwrap();
            } else if !name.ends_with(".rodata") {
                // The map belongs to a stage that the program does not have. Unnamed constants belong to the
                // object.
                map.set_autocreate(false).unwrap();
            }
        }
        Forced { object: open.load().unwrap() }
    }

    fn map(&self, name: &str) -> MapHandle {
        let map = self.object.maps().find(|map| map.name() == name).unwrap();
        MapHandle::try_from(&map).unwrap()
    }

    fn put(&self, map: &str, key: u32, value: &[u8]) {
        self.map(map).update(&key.to_ne_bytes(), value, MapFlags::ANY).unwrap();
    }

    fn sum(&self, map: &str, key: u32) -> u64 {
        let values = self.map(map).lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        values.iter().map(|value| u64::from_ne_bytes(value[..8].try_into().unwrap())).sum()
    }

    /// Runs the program on a frame. Returns the verdict, the only counter that changed, and the frame after the run.
    fn run(&self, ingress: u32, frame: &[u8]) -> (u32, Counter, Vec<u8>) {
        let count = || Counter::ALL.map(|counter| self.sum("counters", counter as u32));
        let before = count();
        let length = u32::try_from(frame.len()).unwrap();
        let mut context = words(&[0, length, 0, ingress, 0, 0]);
        let mut after = vec![0; frame.len() + 256];
        let program = self.object.progs_mut().find(|program| program.name() == "trivium_port").unwrap();
        let output = program
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                data_in: Some(frame),
                data_out: Some(&mut after),
                ..ProgramInput::default()
            })
            .unwrap();
        let (verdict, after) = (output.return_value, output.data.unwrap().to_vec());
        let now = count();
        let moved: Vec<Counter> =
            (0..).zip(Counter::ALL).filter(|(at, _)| now[*at] != before[*at]).map(|(_, c)| c).collect();
        assert_eq!(moved.len(), 1, "{moved:?}");
        (verdict, moved[0], after)
    }
}

#[test]
fn the_kernels_routing() {
    need_root!();
    let router = Router::new();
    let [a, b, c, d, e, f] = NEAR[0];
    let mac = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]).to_ne_bytes();
    let forced = |helper, code| {
        let conf = [&words(&[1, 1, 0, 0])[..], &mac].concat();
        let forced = Forced::new(helper, code, &[("conf", conf_of(1, PASS)), ("fib", conf)]);
        forced.put("fib_devices", router.near[1], &router.near[1].to_ne_bytes());
        forced
    };
    // The frame is longer than the packet, so it is trimmed. The packet is longer than the MTU that every
    // device has.
    let mut frame = ipv4(Ipv4Addr::new(198, 51, 100, 7), 100, |_| ());
    frame.extend([9; 10]);
    let forwarded = forced(Helper::None, 0).run(router.near[0], &frame);
    assert_eq!((forwarded.0, forwarded.1), (REDIRECT, Counter::FibForwarded));
    assert_eq!((&forwarded.2[..6], forwarded.2.len()), (&FAR[1][..], 114));
    let answers = (1..=8).map(|code| {
        let counter = Counter::ALL[Counter::FibBlackhole as usize + usize::try_from(code).unwrap() - 1];
        (Helper::FibLookup, code, counter)
    });
    let unknown = [EINVAL, -1, i32::MIN, 9, 10, i32::MAX];
    let unknown = unknown.map(|code| (Helper::FibLookup, code, Counter::FibFailed));
    let others = [
        (Helper::FibBack, EINVAL, Counter::FibAddress),
        (Helper::FibBack, 4, Counter::FibAddress),
        // Fragmentation needed, segments too long, and no result because the device is gone.
        (Helper::CheckMtu, 1, Counter::FibTooLong),
        (Helper::CheckMtu, 2, Counter::FibTooLong),
        (Helper::CheckMtu, EINVAL, Counter::FibFailed),
        (Helper::CheckMtu, -19, Counter::FibFailed),
        (Helper::RedirectMap, 0, Counter::FibNoDevice),
        (Helper::RedirectMap, 1, Counter::FibNoDevice),
        (Helper::RedirectMap, 2, Counter::FibNoDevice),
        (Helper::AdjustTail, EINVAL, Counter::FibFailed),
    ];
    for (helper, code, counter) in answers.chain(unknown).chain(others) {
        let (verdict, moved, after) = forced(helper, code).run(router.near[0], &frame);
        assert_eq!((verdict, moved), (PASS, counter), "{helper:?} says {code}");
        assert_eq!(after, frame, "{helper:?} says {code}: the stack gets it as it came");
    }
}

/// Encodes `struct trivium_conf` for a port with one receive queue.
fn conf_of(owner: u32, when_down: u32) -> Vec<u8> {
    words(&[owner, when_down, 1, u32::try_from(Counter::ALL.len()).unwrap()])
}

/// Loads the program of bridge port 1. The MAC table contains the sender on port 1, and the receiver on port 2, which
/// is a tagged member of the VLAN.
fn bridging(helper: Helper, code: i32, device: u32) -> Forced {
    // The factor 0 selects the first line.
    let conf = words(&[1, 1, 10, 0, 0, 1, 0, 0, 0, 0]);
    let forced = Forced::new(helper, code, &[("conf", conf_of(0, DROP)), ("bridge", conf)]);
    let frame = frame();
    let station = |mac: &[u8], place: u32| {
        let key = [mac, &[0; 2]].concat();
        let key = u64::from_le_bytes(key.try_into().unwrap()) | 10 << 48;
        [&key.to_ne_bytes()[..], &place.to_ne_bytes(), &[0; 4]].concat()
    };
    let there = 2 | 1 << 16 | 1 << 19 | 1512 >> 2 << 20;
    let line = [station(&frame[6..12], 1), station(&frame[..6], there), vec![0; 32]].concat();
    forced.put("bridge_table", 0, &line);
    forced.put("bridge_devices", 2, &device.to_ne_bytes());
    forced
}

fn frame() -> Vec<u8> {
    ethernet(to_us(), &[], 0x88b5, &[7; 50])
}

#[test]
fn the_bridge() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let run = |helper, code| bridging(helper, code, near).run(near, &frame());
    let (verdict, counter, after) = run(Helper::None, 0);
    assert_eq!((verdict, counter, after.len()), (REDIRECT, Counter::Bridged, frame().len() + 4));
    let (verdict, counter, after) = run(Helper::AdjustHead, EINVAL);
    assert_eq!((verdict, counter, after), (DROP, Counter::BridgeLost, frame()));
    for code in [ABORTED, DROP, PASS] {
        let (verdict, counter, _) = run(Helper::RedirectMap, i32::try_from(code).unwrap());
        assert_eq!((verdict, counter), (code, Counter::BridgeLost));
    }
    // A frame to an unknown receiver goes to the worker, with its number if there is space for it.
    let unknown = [&[2, 0, 0, 0, 0, 9], &frame()[6..]].concat();
    let (_, counter, after) = bridging(Helper::None, 0, near).run(near, &unknown);
    assert_eq!(counter, Counter::DownDropped);
    assert_eq!(Mark::read(after[..8].try_into().unwrap()), Some(Mark(1)));
    // The codes mean that there is no headroom, and that the driver does not support metadata.
    for code in [EINVAL, -95] {
        let (verdict, counter, after) = bridging(Helper::AdjustMeta, code, near).run(near, &unknown);
        assert_eq!((verdict, counter, after), (DROP, Counter::DownDropped, unknown.clone()));
    }
}

#[test]
fn steering() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let steering = |helper, code, to: u32| {
        let conf = [("conf", conf_of(0, DROP)), ("steer", words(&[1, 0, 1, 1]))];
        let forced = Forced::new(helper, code, &conf);
        let mut table = vec![to; 256];
        table.extend([0, 0]);
        forced.put("steer_table", 0, &words(&table));
        forced
    };
    const WORKER: u32 = 1;
    const CPU: u32 = 1 << 16;
    // Indices of `steer_counts`: without metadata, and to the kernel.
    const UNMARKED: u32 = 0;
    const KERNEL: u32 = 2;
    let marked = steering(Helper::None, 0, WORKER);
    let (verdict, counter, after) = marked.run(near, &frame());
    assert_eq!((verdict, counter, after.len()), (DROP, Counter::DownDropped, frame().len() + 16));
    assert_eq!(marked.sum("steer_counts", UNMARKED), 0);
    for code in [EINVAL, -95] {
        let bare = steering(Helper::AdjustMeta, code, WORKER);
        let (verdict, counter, after) = bare.run(near, &frame());
        assert_eq!((verdict, counter, after), (DROP, Counter::DownDropped, frame()));
        assert_eq!(bare.sum("steer_counts", UNMARKED), 1);
    }
    for (code, expected) in [
        (REDIRECT, Counter::Steered),
        (PASS, Counter::DownPassed),
        (DROP, Counter::DownDropped),
        (ABORTED, Counter::Aborted),
        (77, Counter::Aborted),
    ] {
        let forced = steering(Helper::RedirectMap, i32::try_from(code).unwrap(), WORKER);
        let (verdict, counter, _) = forced.run(near, &frame());
        assert_eq!((verdict, counter), (code, expected));
    }
    // If the CPU is not in the map, the receiving CPU passes the frame to the kernel.
    for helper in [Helper::None, Helper::RedirectMap] {
        let forced = steering(helper, i32::try_from(PASS).unwrap(), CPU);
        let (verdict, counter, _) = forced.run(near, &frame());
        assert_eq!((verdict, counter), (PASS, Counter::SteeringKernel));
        assert_eq!(forced.sum("steer_counts", KERNEL), 1);
    }
}

/// Tests the virtual router stage: the frame goes to the next hop in the route table. If any helper returns an error,
/// the frame goes to the worker.
#[test]
fn routes() {
    need_root!();
    let rig = Rig::with_vlans(&ANSWER, &VLANS);
    let near = rig.router.near[0];
    // The frame is longer than the packet, so it is trimmed.
    let frame = [ipv4([198, 51, 100, 7].into(), 100, |_| ()), vec![9; 10]].concat();
    let run = |helper, code, frame: &[u8]| {
        Forced::twin(&rig.loaded, "trivium.bpf.c", helper, code).run(near, frame)
    };
    let expected = (REDIRECT, Counter::RouteForwarded, sent(&frame, FAR[1], NEAR[1], 0));
    assert_eq!(run(Helper::None, 0, &frame), expected);
    // A tag is added, removed, and replaced. Only the first two move the beginning of the frame.
    let towards = |number: usize, frame: &[u8]| [&MAC[number][..], &frame[6..]].concat();
    let plain = ipv4([198, 18, 0, 1].into(), 100, |_| ());
    let push = towards(0, &plain);
    let pop = tagged(&towards(3, &frame), 0x6000 | TAG[3]);
    let expected = (REDIRECT, Counter::RouteForwarded, sent(&push, FAR[1], MAC[5], TAG[5]));
    assert_eq!(run(Helper::None, 0, &push), expected);
    let expected = (REDIRECT, Counter::RouteForwarded, sent(&towards(3, &frame), FAR[1], MAC[1], 0));
    assert_eq!(run(Helper::None, 0, &pop), expected);
    // The redirect to the worker gets the forced code too.
    for (code, counter) in [
        (PASS, Counter::DownPassed),
        (DROP, Counter::DownDropped),
        (ABORTED, Counter::Aborted),
        (77, Counter::Aborted),
    ] {
        for frame in [&frame, &push, &pop] {
            let (verdict, counted, after) = run(Helper::RedirectMap, i32::try_from(code).unwrap(), frame);
            assert_eq!((verdict, counted), (code, counter));
            assert_eq!(&after, frame, "{code}: the frame goes on as it came");
        }
    }
    for code in [EINVAL, -1, -95] {
        for (helper, frame) in
            [(Helper::AdjustTail, &frame), (Helper::AdjustTail, &pop), (Helper::AdjustHead, &push)]
        {
            let (verdict, counter, after) = run(helper, code, frame);
            assert_eq!((verdict, counter), (PASS, Counter::DownPassed), "{helper:?} says {code}");
            assert_eq!(&after, frame, "{helper:?} says {code}: the worker gets the frame as it came");
        }
    }
    // If the beginning of the frame cannot be moved, the frame has already been trimmed, and is otherwise unchanged.
    let (verdict, counter, after) = run(Helper::AdjustHead, EINVAL, &pop);
    assert_eq!((verdict, counter), (PASS, Counter::DownPassed));
    assert_eq!(after, pop[..after.len()], "nothing but what stood behind the packet is missing");
    assert!(after.len() >= pop.len() - 10);
}

/// Tests the stage of cached flows: if a helper fails after headers may have been written, the frame can no longer go
/// to the worker and is counted as lost.
#[test]
fn flows() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_far, near) = namespace.veth("va", "vb", "");
    let (_other, out) = namespace.veth("vc", "vd", "");
    let devices = BridgeDevices::new().unwrap();
    devices.set(2, out).unwrap();
    let table = FlowTable::new(64, 0x1234_5678_9abc_def1).unwrap();
    table.set_reached(2, Some(1514));
    table.renew(u64::MAX);
    let config = config(Owner::Bridged, WhenDown::Drop);
    let attached = PortProgram::load(&config).unwrap().attach(near, AttachMode::Native, None).unwrap();
    let port = FlowPort { port: 1, partial_checksums: false };
    let stage = FlowStage::new(&port, &attached, &table, &devices, None).unwrap();
    let loaded = attached.prepare_stage(StageChange::Flows(Some(&stage))).unwrap();
    let frame = frame4(Ipv4Addr::new(198, 51, 100, 7), |ip| {
        // UDP without a checksum, as long as the packet.
        ip[24..26].copy_from_slice(&20_u16.to_be_bytes());
        let sum = packet::checksum::ipv4_header(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    });
    let mut frame = frame;
    frame.resize(60, 0);
    let mut key = FlowKey::ZERO;
    FlowKey::extract(&frame, frame.len(), PortId(1), &mut key).unwrap();
    let mask = key.words().map(|word| if word == 0 { 0 } else { u64::MAX });
    let mut writer = FlowWriter::new(&table);
    let push = FlowAction { port: Some(2), push: Some((0x8100, 10)), ..FlowAction::default() };
    writer.insert(key.words(), &mask, &push).unwrap_or_else(|_| {
        writer.settle(writer.written());
        writer.insert(key.words(), &mask, &push).unwrap()
    });
    let run = |helper, code| Forced::twin(&loaded, "trivium.bpf.c", helper, code).run(near, &frame);
    let (verdict, counter, after) = run(Helper::None, 0);
    assert_eq!((verdict, counter, after.len()), (REDIRECT, Counter::FlowForwarded, frame.len() + 4));
    for code in [EINVAL, -1, -95] {
        let (verdict, counter, after) = run(Helper::AdjustHead, code);
        assert_eq!((verdict, counter, after), (DROP, Counter::BridgeLost, frame.clone()), "{code}");
    }
    for code in [ABORTED, DROP, PASS] {
        let (verdict, counter, _) = run(Helper::RedirectMap, i32::try_from(code).unwrap());
        assert_eq!((verdict, counter), (code, Counter::BridgeLost));
    }
}

/// A SYN in a flood is dropped if the answer cannot be completed. A segment with an invalid cookie is dropped
/// too.
#[test]
fn cookies() {
    need_root!();
    let matches = Match {
        protocols: vec![6],
        destinations: vec!["198.51.100.80/32".parse().unwrap()],
        destination_ports: vec![80..=80],
        ..Match::default()
    };
    let scheme = CookieScheme::Cookie { mss: None, window_scale: None };
    let action = Action::SynCookie(SynCookie { scheme, above: Some(1), ttl: 61 });
    let rule = Rule { name: "web".to_owned(), priority: 1, matches, action, dry_run: false, expires: None };
    let compiled = Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&compiled, FilterSizes::default(), None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let tcp = |flags: u8, ack: u32| {
        let mut frame = frame4(Ipv4Addr::new(198, 51, 100, 80), |ip| {
            ip[9] = 6;
            ip[20..40].copy_from_slice(&[
                0x9c, 0x40, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0,
            ]);
            ip[28..32].copy_from_slice(&ack.to_be_bytes());
            let sum = packet::checksum::ipv4_header(&ip[..20]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        });
        frame.resize(60, 0);
        frame
    };
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let syn = tcp(SYN, 0);
    let run = |helper, code, frame: &[u8]| {
        let twin = Forced::twin(&loaded, "services.bpf.c", helper, code);
        // More than one SYN in this second is a flood. The first SYN passes.
        for _ in 0..3 {
            loaded.test_run(&syn).unwrap();
        }
        twin.run(near, frame)
    };
    let (verdict, counter, _) = run(Helper::None, 0, &syn);
    assert_eq!((verdict, counter), (REDIRECT, Counter::FilterAnswered));
    for (helper, codes) in [
        (Helper::MakeCookie, &[EINVAL, -2, -93][..]),
        (Helper::AdjustTail, &[EINVAL, -1]),
        (Helper::LoadBytes, &[EINVAL, -14]),
        (Helper::StoreBytes, &[EINVAL, -14]),
    ] {
        for code in codes {
            let (verdict, counter, _) = run(helper, *code, &syn);
            assert_eq!((verdict, counter), (DROP, Counter::FilterDropped), "{helper:?} says {code}");
        }
    }
    // The kernel reports a valid cookie, an invalid cookie, or an error.
    let ack = tcp(ACK, 0x1234_5678);
    for (nth, (code, expected)) in (0..).zip([
        (0, (PASS, Counter::DownPassed)),
        (-13, (DROP, Counter::FilterDropped)),
        (EINVAL, (DROP, Counter::FilterDropped)),
    ]) {
        // Each segment has a different client, because connections are remembered.
        let mut ack = ack.clone();
        ack[35] += nth;
        let (verdict, counter, _) = run(Helper::CheckCookie, code, &ack);
        assert_eq!((verdict, counter), expected, "{code}");
    }
}
