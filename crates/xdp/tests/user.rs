//! Tests of custom programs in front of a port's program: verdicts, refused programs, replacement of either program,
//! pins, and the state after a removal.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::compile::{EXAMPLES, compiled, compiled_file, one};
use support::{LOCAL4, Namespace, config, ethernet, eventually, frame4, ipv4, sh, to_us};
use xdp::dump::{Dump, DumpConfig};
use xdp::live::{Generator, Order, Replay, Traffic};
use xdp::user::{UserError, UserProgram};
use xdp::{
    AttachMode, Attached, Counter, Error, Owner, PinPath, PortProgram, StageChange, Verdict, WhenDown, adopt,
};

fn reflector() -> Vec<u8> {
    compiled_file(&Path::new(EXAMPLES).join("reflector.bpf.c"), &[])
}

/// A program that counts frames. The byte after the Ethernet header is the program's verdict. For values that are not a
/// verdict, the program continues with the port's program.
const CHOOSER: &str = r#"
#include "trivium.h"
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} frames_that_were_seen SEC(".maps");
SEC("xdp.frags") int chooser(struct xdp_md *ctx)
{
	unsigned char *bytes = (void *)(long)ctx->data;
	__u32 key = 0;
	__u64 *seen = bpf_map_lookup_elem(&frames_that_were_seen, &key);
	if (seen)
		__sync_fetch_and_add(seen, 1);
	if (bytes + 15 > (unsigned char *)(long)ctx->data_end)
		return XDP_DROP;
	if (bytes[14] <= XDP_REDIRECT)
		return bytes[14];
	trivium_continue(ctx);
	return XDP_TX;
}
char _license[] SEC("license") = "GPL";
"#;

const GO_ON: &str = "trivium_continue(ctx); return XDP_ABORTED;";

fn load(object: &[u8]) -> UserProgram {
    UserProgram::load(object, None, true).unwrap()
}

fn attach(ifindex: u32, pin: Option<&Pin>) -> Attached {
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    loaded.attach(ifindex, AttachMode::Native, pin.map(|pin| pin.0.clone())).unwrap()
}

/// Returns a frame with this byte after the Ethernet header.
fn numbered(number: u8) -> Vec<u8> {
    ethernet(to_us(), &[], 0x88b5, &[number; 50])
}

fn generator(ifindex: u32, frames: &[Vec<u8>]) -> Generator {
    Generator::replay(&Replay { ifindex, frames, order: Order::InTurn, rate: None, park: true }).unwrap()
}

/// A pin directory of one test, which is removed when the value is dropped.
struct Pin(PinPath);

impl Pin {
    fn new(test: &str) -> Pin {
        Pin(PinPath::new(&format!("xdp-u{}-{test}", std::process::id())).unwrap())
    }

    fn there(&self, name: &str) -> bool {
        self.0.directory().join(name).exists()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.directory().join("link"));
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

/// Returns the first value of a map. `map` identifies the map in the syntax of `bpftool`.
fn value(map: &str) -> u64 {
    let text = sh(&format!("bpftool -j map lookup {map} key 0 0 0 0"));
    let (_, value) = text.split_once("\"value\":[").unwrap();
    let bytes = value.split(']').next().unwrap().split(',');
    let parsed =
        bytes.map(|byte| u8::from_str_radix(byte.trim_matches(['"', ' ']).trim_start_matches("0x"), 16));
    let bytes: Vec<u8> = parsed.map(Result::unwrap).collect();
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

/// Returns the name of the device's program.
fn on_device(ifindex: u32) -> String {
    xdp::inspect(ifindex).unwrap().map(|program| program.name).unwrap_or_default()
}

/// Every verdict of the custom program is final. If the custom program continues, the frame gets the verdict of the
/// port's program. Without a port's program, the statement after the tail call runs.
#[test]
fn every_verdict_is_final_but_going_on() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let chooser = load(&compiled(CHOOSER));
    assert!(chooser.goes_on());
    for (number, verdict) in (0..).zip(Verdict::ALL) {
        assert_eq!(chooser.test_run(&numbered(number)).unwrap().verdict, verdict);
    }
    let absent = chooser.test_run(&numbered(9)).unwrap();
    assert_eq!(absent.verdict, Verdict::Transmit, "the slot is empty: as the program says after the call");
    let mut port = attach(near, None);
    port.set_user(chooser).unwrap();
    let chooser = port.user().unwrap();
    for (number, verdict) in (0..).zip(Verdict::ALL) {
        assert_eq!(chooser.test_run(&numbered(number)).unwrap().verdict, verdict);
    }
    assert_eq!(port.counters().unwrap().seen(), 0, "the port has not seen one of them");
    assert_eq!(chooser.test_run(&numbered(9)).unwrap().verdict, Verdict::Drop);
    let counters = port.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.seen()), (1, 1));
}

/// Returns a UDP datagram to a port, with a payload and the changes of `edit`.
fn datagram(from: u16, to: u16, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = ipv4(LOCAL4, |ip| ip[9] = 17);
    packet[20..22].copy_from_slice(&from.to_be_bytes());
    packet[22..24].copy_from_slice(&to.to_be_bytes());
    packet[24..26].copy_from_slice(&20_u16.to_be_bytes());
    packet[26..28].copy_from_slice(&[0xab, 0xcd]);
    let mut frame = ethernet(to_us(), &[], 0x0800, &packet);
    edit(&mut frame);
    frame
}

#[test]
fn the_reflector_answers_echo_alone() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    port.set_user(load(&reflector())).unwrap();
    let user = port.user().unwrap();
    assert_eq!(user.name(), "reflector");
    let sent = datagram(4000, 7, |_| {});
    let back = user.test_run(&sent).unwrap();
    assert_eq!(back.verdict, Verdict::Transmit);
    let wanted = datagram(7, 4000, |frame| {
        frame[..12].copy_from_slice(&[&sent[6..12], &sent[..6]].concat());
        frame[26..34].copy_from_slice(&[&sent[30..34], &sent[26..30]].concat());
        frame[40..42].copy_from_slice(&[0, 0]);
    });
    assert_eq!(back.frame, wanted);
    let others = [
        ("another port", datagram(4000, 8, |_| {})),
        ("two echo services", datagram(7, 7, |_| {})),
        ("a group", datagram(4000, 7, |frame| frame[0] |= 1)),
        ("a first fragment", datagram(4000, 7, |frame| frame[20] = 0x20)),
        ("a later fragment", datagram(4000, 7, |frame| frame[21] = 1)),
        ("options", datagram(4000, 7, |frame| frame[14] = 0x46)),
        ("another version", datagram(4000, 7, |frame| frame[14] = 0x65)),
        ("TCP", datagram(4000, 7, |frame| frame[23] = 6)),
        ("another ethertype", datagram(4000, 7, |frame| frame[12] = 0x88)),
        ("cut off", datagram(4000, 7, |_| {})[..41].to_vec()),
        ("a header alone", numbered(0)[..14].to_vec()),
    ];
    for (at, (what, frame)) in (1..).zip(others) {
        let run = user.test_run(&frame).unwrap();
        assert_eq!((run.verdict, &run.frame), (Verdict::Drop, &frame), "{what}");
        assert_eq!(port.counters().unwrap().get(Counter::DownDropped), at, "{what}");
    }
}

/// Returns the error message and the advice with which the loader refuses an object.
fn refusal(object: &[u8], wanted: Option<&str>, multi_buffer: bool) -> (String, String) {
    match UserProgram::load(object, wanted, multi_buffer) {
        Err(Error::User(error)) => (error.to_string(), error.advice()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_stand_there_is_refused_with_the_reason() {
    need_root!();
    let (said, advice) = refusal(b"not an object", None, true);
    assert!(
        said.starts_with("the file is no BPF object") && advice.contains("-target bpf"),
        "{said}; {advice}"
    );
    refusal(b"", None, true);
    let host = std::fs::read("/proc/self/exe").unwrap();
    refusal(&host[..host.len().min(1 << 20)], None, true);

    let (linear, frags) = (one("xdp", "alone", GO_ON), one("xdp.frags", "several", GO_ON));
    let (said, advice) = refusal(&linear, None, true);
    assert!(said.contains("alone") && said.contains("in one buffer only"), "{said}");
    assert_eq!(advice, "build it with SEC(\"xdp.frags\")");
    let (said, advice) = refusal(&frags, None, false);
    assert!(said.contains("in several buffers") && advice.contains("SEC(\"xdp\")"), "{said}; {advice}");
    assert!(UserProgram::load(&linear, None, false).is_ok());

    let (said, advice) = refusal(&one("tc", "elsewhere", "return 0;"), None, true);
    assert!(said.contains("no XDP program; it has elsewhere in section \"tc\""), "{said}");
    assert!(advice.contains("SEC(\"xdp.frags\")"), "{advice}");
    for section in ["tc", "xdp.frags/devmap", "xdp/cpumap", "something"] {
        let (said, _) = refusal(&one(section, "elsewhere", "return 0;"), Some("elsewhere"), true);
        assert!(said.contains(&format!("section \"{section}\"")), "{said}");
    }

    let two = compiled(
        "#include \"trivium.h\"\nSEC(\"xdp.frags\") int one(struct xdp_md *ctx) { (void)ctx; return XDP_DROP; }\n\
         SEC(\"xdp.frags\") int two(struct xdp_md *ctx) { trivium_continue(ctx); return XDP_DROP; }\n\
         char _license[] SEC(\"license\") = \"GPL\";\n",
    );
    let (said, advice) = refusal(&two, None, true);
    assert!(said.contains("one, two") && advice.contains("--program"), "{said}; {advice}");
    let (said, _) = refusal(&two, Some("three"), true);
    assert!(said.contains("no program \"three\"") && said.contains("one in section"), "{said}");
    let chosen = UserProgram::load(&two, Some("two"), true).unwrap();
    assert_eq!((chosen.name(), chosen.goes_on()), ("two", true));
    assert!(!UserProgram::load(&two, Some("one"), true).unwrap().goes_on());
}

#[test]
fn what_the_kernel_refuses_is_shown_with_its_log() {
    need_root!();
    let (said, advice) = refusal(&one("xdp.frags", "wild", "return *(int *)(long)ctx->data;"), None, true);
    assert!(
        said.starts_with("the kernel refused program wild: ") && said.contains("Permission denied"),
        "{said}"
    );
    assert!(said.contains("invalid access to packet") && said.lines().count() < 50, "{said}");
    assert!(advice.contains("log"), "{advice}");
    // A kernel type that this kernel does not have.
    let core = compiled(
        "#include \"trivium.h\"\nstruct nobody { int member; } __attribute__((preserve_access_index));\n\
         SEC(\"xdp.frags\") int core(struct xdp_md *ctx) {\n\
         struct nobody *it = (void *)(long)ctx->data; int value = 0;\n\
         if ((void *)(it + 1) <= (void *)(long)ctx->data_end) value = it->member;\n\
         return value; }\nchar _license[] SEC(\"license\") = \"GPL\";\n",
    );
    let (said, _) = refusal(&core, None, true);
    assert!(said.contains("nobody") && said.contains("CO-RE"), "{said}");
    let other = compiled(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
         struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); }\n\
         trivium_next SEC(\".maps\");\n\
         SEC(\"xdp.frags\") int hash(struct xdp_md *ctx) { __u32 key = 0; (void)ctx; return !bpf_map_lookup_elem(&trivium_next, &key); }\n\
         char _license[] SEC(\"license\") = \"GPL\";\n",
    );
    let (said, advice) = refusal(&other, None, true);
    assert!(said.contains("trivium_next") && advice.contains("trivium.h"), "{said}; {advice}");
}

/// Loading a BPF object with random defects either succeeds or returns an error. The process must not crash.
#[test]
fn broken_objects_do_no_harm() {
    need_root!();
    let whole = reflector();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % u64::try_from(below).unwrap()).unwrap()
    };
    for length in (0..whole.len()).step_by(whole.len() / 40) {
        let _ = UserProgram::load(&whole[..length], None, true);
    }
    let mut refused = 0;
    for _ in 0..300 {
        let mut broken = whole.clone();
        for _ in 0..=next(4) {
            let at = next(broken.len());
            broken[at] = u8::try_from(next(256)).unwrap();
        }
        refused += u32::from(UserProgram::load(&broken, None, true).is_err());
    }
    assert!(refused > 0, "nothing was broken");
}

/// The port's program and the custom program are both replaced under traffic. Every frame reaches the port's program,
/// and no frame is lost.
#[test]
fn both_are_replaced_under_traffic() {
    need_root!();
    let rounds: u32 = std::env::var("XDP_SWAPS").ok().map_or(60, |n| n.parse().unwrap());
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    let objects = [one("xdp.frags", "first", GO_ON), one("xdp.frags", "second", GO_ON)];
    let sent = namespace.under_load(&Traffic { rate: Some(5_000), ..Traffic::to(far) }, || {
        for (round, object) in (0..rounds).zip(objects.iter().cycle()) {
            port.set_user(load(object)).unwrap();
            let owner = if round % 2 == 0 { Owner::Routed } else { Owner::Bridged };
            port.swap(port.prepare(&config(owner, WhenDown::Drop)).unwrap()).unwrap();
            assert_eq!(on_device(near), if round % 2 == 0 { "first" } else { "second" });
            assert_eq!(port.info().unwrap().name, "trivium_port");
            if round % 8 == 7 {
                assert!(port.take_user().unwrap().is_some());
                assert_eq!(on_device(near), "trivium_port");
            }
        }
    });
    assert!(sent > 0);
    let counters = port.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.seen()), (sent, sent));
}

#[test]
fn a_refused_replacement_changes_nothing() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("refused");
    let mut port = attach(near, Some(&pin));
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    let id = port.user().unwrap().info().unwrap().id;
    let linear = UserProgram::load(&one("xdp", "alone", GO_ON), None, false).unwrap();
    let error = port.set_user(linear).unwrap_err();
    assert!(matches!(error, Error::User(UserError::Buffers { multi_buffer: false, .. })), "{error}");
    assert_eq!(port.user().unwrap().info().unwrap().id, id);
    assert_eq!((on_device(near).as_str(), pin.there("user-new")), ("chooser", false));
    // A directory blocks the path of its pins.
    std::fs::create_dir_all(pin.0.directory().join("user-old/program")).unwrap();
    port.set_user(load(&reflector())).unwrap();
    assert_eq!((on_device(near).as_str(), pin.there("user-old")), ("reflector", false));
}

/// A packet capture records the frames that enter and leave the port's program. It therefore shows only frames with
/// which the custom program continues, as the custom program left them.
#[test]
fn a_dump_shows_what_goes_on() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    let dump = Dump::new(&DumpConfig::default()).unwrap();
    let reader = dump.reader().unwrap();
    port.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    assert_eq!((on_device(near).as_str(), port.dumps().unwrap()), ("chooser", true));
    let frames = [numbered(1), numbered(9), numbered(1), numbered(8)];
    generator(far, &frames).send(4).unwrap();
    let mut all = Vec::new();
    eventually("two frames are captured", || {
        all.extend(reader.poll(Duration::from_millis(10)).unwrap());
        all.len() == 2
    });
    assert_eq!([&all[0].entry, &all[1].entry], [&frames[1], &frames[3]]);
    // The capture continues when another custom program is set.
    port.set_user(load(&reflector())).unwrap();
    assert!(port.dumps().unwrap());
    port.set_stage(StageChange::Dump(None)).unwrap();
    assert_eq!((on_device(near).as_str(), port.info().unwrap().name.as_str()), ("reflector", "trivium_port"));
}

#[test]
fn a_pinned_program_outlives_its_owner_with_its_maps() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("outlives");
    let mut port = attach(near, Some(&pin));
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    let id = port.user().unwrap().info().unwrap().id;
    drop(port);
    let mut generator = generator(far, &[numbered(9), numbered(1)]);
    generator.send(10).unwrap();
    let map = pin.0.user_directory().join("frames_that_were_seen");
    assert_eq!(value(&format!("pinned {}", map.display())), 10);
    let mut port = adopt(&pin.0).unwrap().unwrap();
    assert_eq!(port.counters().unwrap().get(Counter::DownDropped), 5, "half of them went on meanwhile");
    assert_eq!(
        (port.user().unwrap().info().unwrap().id, port.info().unwrap().name.as_str()),
        (id, "trivium_port")
    );
    // Both programs can still be replaced: the port's program, which follows the custom program, and the custom program
    // itself.
    port.swap(port.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    generator.send(2).unwrap();
    assert_eq!(port.counters().unwrap().get(Counter::PassedControl), 1);
    port.set_user(load(&reflector())).unwrap();
    assert!(!map.exists() && pin.there("user/maps/reflected") && !pin.there("user-old"));
    drop(port);
    let mut port = adopt(&pin.0).unwrap().unwrap();
    assert_eq!((port.user().unwrap().name(), on_device(near).as_str()), ("reflector", "reflector"));
    assert!(port.take_user().unwrap().is_some());
    assert_eq!((on_device(near).as_str(), pin.there("user")), ("trivium_port", false));
    assert!(port.take_user().unwrap().is_none());
    port.set_user(load(&reflector())).unwrap();
    port.detach().unwrap();
    assert!(!pin.there(""));
    assert_eq!(xdp::inspect(near).unwrap(), None);
}

/// If a process died while it replaced the custom program, the adopting process repairs the pin directory. The
/// directory then belongs to the program that the link runs.
#[test]
fn half_made_pins_are_put_right() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("half");
    let directory = pin.0.directory().display().to_string();
    let mut port = attach(near, Some(&pin));
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    drop(port);
    // The process died before the link update, so the new pins are removed.
    sh(&format!("mkdir -p {directory}/user-new/maps; bpftool link show pinned {directory}/link"));
    drop(adopt(&pin.0).unwrap().unwrap());
    assert!(pin.there("user/program") && !pin.there("user-new"));
    // The process died after the link update, before the new pins were renamed.
    sh(&format!("mv {directory}/user {directory}/user-new; mkdir -p {directory}/user/maps"));
    let port = adopt(&pin.0).unwrap().unwrap();
    assert_eq!(port.user().unwrap().name(), "chooser");
    assert!(pin.there("user/maps/frames_that_were_seen") && !pin.there("user-new"));
    drop(port);
    // The process died between both renames.
    sh(&format!("mv {directory}/user {directory}/user-new"));
    drop(adopt(&pin.0).unwrap().unwrap());
    assert!(pin.there("user/maps/frames_that_were_seen") && pin.there("user/next") && !pin.there("user-new"));
    // The process died after an unload, before the pins were removed.
    let mut port = adopt(&pin.0).unwrap().unwrap();
    sh(&format!("mkdir -p {directory}/user-old"));
    port.take_user().unwrap();
    drop(port);
    sh(&format!("mkdir -p {directory}/user/maps"));
    let port = adopt(&pin.0).unwrap().unwrap();
    assert!(port.user().is_none() && !pin.there("user") && !pin.there("user-old"));
}

/// If the pin of the custom program's tail call array is removed by hand, the custom program can no longer continue
/// with the port's program. The adopting process then detaches the custom program.
#[test]
fn a_program_without_its_port_is_taken_off() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("alone");
    let mut port = attach(near, Some(&pin));
    port.set_user(load(&reflector())).unwrap();
    drop(port);
    std::fs::remove_file(pin.0.directory().join("user/next")).unwrap();
    eventually("it is taken off", || adopt(&pin.0).unwrap().is_none());
    assert_eq!(xdp::inspect(near).unwrap(), None);
    assert!(!pin.there(""));
}

#[test]
fn a_hand_over_takes_the_program_along() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    for object in [compiled(CHOOSER), one("xdp.frags", "ends", "return XDP_DROP;")] {
        let mut port = attach(near, None);
        port.set_user(load(&object)).unwrap();
        let (id, name) = (port.user().unwrap().info().unwrap().id, on_device(near));
        let mut hand_over = port.export();
        let kept = hand_over.user.take();
        let mut taken = Attached::import(hand_over).unwrap();
        drop(kept);
        assert_eq!((taken.user().unwrap().info().unwrap().id, on_device(near)), (id, name));
        assert_eq!(taken.info().unwrap().name, "trivium_port");
        let before = taken.counters().unwrap().seen();
        generator(far, &[numbered(9)]).send(3).unwrap();
        let goes_on = taken.user().unwrap().goes_on();
        assert_eq!(taken.counters().unwrap().seen() - before, if goes_on { 3 } else { 0 });
        taken.take_user().unwrap().unwrap();
        generator(far, &[numbered(9)]).send(3).unwrap();
        assert_eq!(taken.counters().unwrap().seen() - before, if goes_on { 6 } else { 3 });
        taken.detach().unwrap();
    }
}

/// When the device is deleted, the process that holds the port keeps the custom program. The process can put the
/// program in front of another port, and the program's counts are kept.
#[test]
fn a_program_outlives_its_device() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let (one, other) = (Pin::new("gone"), Pin::new("back"));
    let mut port = attach(near, Some(&one));
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    port.user().unwrap().test_run(&numbered(9)).unwrap();
    namespace.ip("link del va");
    assert!(!port.is_alive().unwrap());
    let error = port.set_user(load(&reflector())).unwrap_err();
    assert!(matches!(error, Error::Swap { .. }), "{error}");
    let (user, detached) = port.detach_from_user();
    detached.unwrap();
    assert!(!one.there(""));
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, Some(&other));
    port.set_user(user.unwrap()).unwrap();
    generator(far, &[numbered(9)]).send(3).unwrap();
    let map = other.0.user_directory().join("frames_that_were_seen");
    assert_eq!(value(&format!("pinned {}", map.display())), 4);
    assert_eq!(port.counters().unwrap().get(Counter::DownDropped), 3);
}

/// Pin paths that an object declares are ignored. The maps of the object are pinned in the port's pin directory, and
/// the pins are removed with the program.
#[test]
fn maps_are_pinned_by_the_port_alone() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let name = format!("xdp_user_{}", std::process::id());
    let object = compiled(&format!(
        "#include \"trivium.h\"\nstatic volatile __u32 calls;\n\
         struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64);\n\
         __uint(pinning, LIBBPF_PIN_BY_NAME); }} {name} SEC(\".maps\");\n\
         SEC(\"xdp.frags\") int pinning(struct xdp_md *ctx) {{ __u32 key = 0; (void)ctx; calls++;\n\
         if (!bpf_map_lookup_elem(&{name}, &key)) return XDP_DROP; {GO_ON} }}\n\
         char _license[] SEC(\"license\") = \"GPL\";\n"
    ));
    let pin = Pin::new("maps");
    let mut port = attach(near, Some(&pin));
    port.set_user(load(&object)).unwrap();
    assert!(!Path::new("/sys/fs/bpf").join(&name).exists());
    assert!(pin.there(&format!("user/maps/{name}")) && pin.there("user/maps/user_bss"));
    port.take_user().unwrap();
    assert!(!pin.there("user"));
    drop(port);
}

/// Explaining a frame runs only the port's own program. The result contains the name of the custom program, which is
/// not run.
#[test]
fn explain_names_it_and_leaves_its_maps_alone() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("explain");
    let mut port = attach(near, Some(&pin));
    assert_eq!(port.explainer().unwrap().explain(&frame4(LOCAL4, |_| {})).unwrap().user, None);
    port.set_user(load(&compiled(CHOOSER))).unwrap();
    let says = port.explainer().unwrap().explain(&numbered(1)).unwrap();
    assert_eq!((says.counter, says.user), (Counter::DownDropped, Some(("chooser".to_owned(), true))));
    let map = pin.0.user_directory().join("frames_that_were_seen");
    assert_eq!(value(&format!("pinned {}", map.display())), 0);
}
