//! Every code that the kernel's helpers may give, forced: most cannot be had from the kernel on demand. The port's program is
//! compiled once more, with one helper that says what the test wants ([`forced.h`](support/forced.h)).

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::OnceLock;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, ProgramInput};
use support::compile::compiled_file;
use support::router::{FAR, NEAR, Router, ipv4};
use support::{Namespace, ethernet, to_us};
use xdp::Counter;
use xdp::bridge::Mark;

const BPF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");
const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// What a helper says that was asked for too much.
const EINVAL: i32 = -22;

/// `enum forced_helper`
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
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The program with constants of its own, and its maps.
struct Forced {
    object: libbpf_rs::Object,
}

impl Forced {
    /// `constants` are sections by the ends of their names.
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

    /// Verdict, the only counter that moved, and the frame afterwards.
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
    // Longer than the packet, so that it is trimmed, and longer than the MTU that every device has.
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
        // Fragmentation needed, segments too long, and no answer (the device went).
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

/// `struct trivium_conf`: the counters' number is the object's own.
fn conf_of(owner: u32, when_down: u32) -> Vec<u8> {
    words(&[owner, when_down, 1, u32::try_from(Counter::ALL.len()).unwrap()])
}

/// A bridged port 1 with the sender behind it, the receiver with a tag behind port 2.
fn bridging(helper: Helper, code: i32, device: u32) -> Forced {
    // The factor 0 leads to the first line.
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
    // An unknown receiver goes up, with its number if there is room for it.
    let unknown = [&[2, 0, 0, 0, 0, 9], &frame()[6..]].concat();
    let (_, counter, after) = bridging(Helper::None, 0, near).run(near, &unknown);
    assert_eq!(counter, Counter::DownDropped);
    assert_eq!(Mark::read(after[..8].try_into().unwrap()), Some(Mark(1)));
    // No room, and a driver that takes no metadata.
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
    // Slots of `steer_counts`: without metadata, to the kernel.
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
    // A CPU that is not there leaves it with the kernel.
    for helper in [Helper::None, Helper::RedirectMap] {
        let forced = steering(helper, i32::try_from(PASS).unwrap(), CPU);
        let (verdict, counter, _) = forced.run(near, &frame());
        assert_eq!((verdict, counter), (PASS, Counter::SteerKernel));
        assert_eq!(forced.sum("steer_counts", KERNEL), 1);
    }
}
