//! Compares a Trivium router with the kernel. Two namespaces have equal devices, addresses, routes and neighbours. One
//! namespace has a Trivium router. In the other, only the kernel routes. Both receive equal frames, some valid and some
//! malformed, and the test compares the output byte by byte. A [`Rule`] names each permitted difference, and any other
//! difference fails the test.
//!
//! ```text
//!   wire:  kl ── left ┌ kernel ┐ right ── kr
//!          tl ── left └ ours   ┘ right ── tr
//! ```
//!
//! The payload of every frame is filled with marks that contain the frame's number. An output frame is therefore
//! attributed to its input frame, even if the output is a fragment or an ICMP error.
//!
//! Frames are sent in batches. Each batch ends with three marker frames (fences) on each side, one for each possible
//! path (worker, TAP, kernel). Once these frames have arrived, all earlier frames have arrived. The seed of each run is
//! printed. `ORACLE_SEED` repeats a run, and `ORACLE_FRAMES` sets the number of frames.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "bytes of a generated frame")]

#[path = "oracle/frames.rs"]
mod frames;
mod rig;
#[path = "oracle/rules.rs"]
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use frames::{Generator, Side, mark_of};
use rig::{PATIENCE, Rig};
use rules::{Errors, Rule};
use testbed::{Namespace, RawReceiver, RawSender, require};

/// Number of frames that are compared in CI.
const FRAMES: usize = 24_000;
/// Number of frames that a batch sends on each side. Every ring on the path has space for this number.
const BATCH: usize = 64;
/// Configuration of both namespaces, apart from their devices. The MTU on the right side is smaller.
const SET_UP: &str = "
    address add 10.1.1.1/29 dev left
    address add 10.1.2.1/29 dev right
    address add 10.9.9.9/32 dev lo
    -6 address add fd00:1::1/125 dev left nodad
    -6 address add fd00:2::1/125 dev right nodad
    -6 address add fe80::1/64 dev left nodad
    -6 address add fe80::1/64 dev right nodad
    -6 address add 2001:db8:99::99/128 dev lo nodad
    route add 10.2.0.0/16 via 10.1.2.2
    route add 10.2.3.0/24 via 10.1.1.2
    route add 10.2.3.4/32 via 10.1.2.3
    route add 10.2.128.0/17 via 10.1.2.4 mtu 1000
    route add blackhole 10.3.0.0/16
    route add unreachable 10.4.0.0/16
    route add prohibit 10.5.0.0/16
    route add 10.5.5.0/24 via 10.1.2.5
    route add 10.6.0.0/15 via 10.1.1.3
    route add 10.8.0.0/16 via 10.1.1.4
    route add 10.8.1.0/24 via 10.1.2.3 table 100
    route add throw 10.8.2.0/24 table 100
    route add blackhole 10.8.3.0/24 table 100
    rule add to 10.8.0.0/16 lookup 100 priority 50
    rule add from 10.7.0.0/16 to 10.6.0.0/16 prohibit priority 60
    -6 route add 2001:db8:2::/48 via fd00:2::2
    -6 route add 2001:db8:2:3::/64 via fe80::2 dev left
    -6 route add 2001:db8:2:3::4/128 via fd00:2::3
    -6 route add 2001:db8:2:8000::/49 via fd00:2::4 mtu lock 1280
    -6 route add blackhole 2001:db8:3::/48
    -6 route add unreachable 2001:db8:4::/48
    -6 route add prohibit 2001:db8:5::/48
    -6 route add 2001:db8:5:5::/64 via fd00:2::5
    -6 route add 2001:db8:6::/47 via fe80::3 dev left
    -6 route add 2001:db8:8::/48 via fd00:1::4
    -6 route add 2001:db8:8:1::/64 via fd00:2::3 table 100
    -6 route add throw 2001:db8:8:2::/64 table 100
    -6 rule add to 2001:db8:8::/48 lookup 100 priority 50
";

/// A frame that leaves a namespace, and the side (left or right) on which it leaves.
type Output = (Side, Vec<u8>);

/// One of the two namespaces, with the sockets through which the test sends frames to it and receives frames from it.
struct Subject {
    name: &'static str,
    senders: BTreeMap<Side, RawSender>,
    receivers: BTreeMap<Side, RawReceiver>,
}

impl Subject {
    /// Configures the devices, addresses, routes and neighbours of a namespace. The names of the test's ends of the
    /// cables, which are in the namespace `wire`, begin with `prefix`.
    fn new(name: &'static str, prefix: &str, namespace: &Namespace, wire: &Namespace) -> Subject {
        for setting in [
            "net.ipv6.conf.all.disable_ipv6=0",
            "net.ipv6.conf.default.disable_ipv6=0",
            "net.ipv6.conf.default.addr_gen_mode=1",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv4.ip_forward=1",
            "net.ipv6.conf.all.forwarding=1",
            // Each frame is answered, without a rate limit.
            "net.ipv4.icmp_ratemask=0",
            "net.ipv4.icmp_ratelimit=0",
            "net.ipv6.icmp.ratelimit=0",
            // Reassembly ends when all fragments have arrived, and never by a time-out.
            "net.ipv4.ipfrag_time=600",
            "net.ipv6.ip6frag_time=600",
            // Messages of the kernel do not depend on chance.
            "net.ipv6.auto_flowlabels=0",
            "net.ipv4.conf.all.send_redirects=0",
            "net.ipv4.conf.default.send_redirects=0",
            "net.ipv4.conf.all.accept_redirects=0",
            "net.ipv4.conf.default.accept_redirects=0",
            "net.ipv6.conf.all.accept_redirects=0",
            "net.ipv6.conf.default.accept_redirects=0",
        ] {
            namespace.run(["sysctl", "-qw", setting]).unwrap();
        }
        let (mut senders, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        for side in Side::BOTH {
            let (device, end) = (side.device(), format!("{prefix}{}", side.letter()));
            let line = format!(
                "ip link add {device} address {} type veth peer {end} address {} netns {}",
                side.router(),
                side.neighbour(2),
                wire.name()
            );
            namespace.run(line.split(' ')).unwrap();
            let mtu = side.mtu().to_string();
            namespace.run(["ip", "link", "set", device, "mtu", &mtu, "up"]).unwrap();
            wire.run(["ip", "link", "set", &end, "arp", "off", "up"]).unwrap();
            for (place, device) in [(namespace, device), (wire, end.as_str())] {
                let offloads = ["tx", "rx", "tso", "gso", "gro"].map(|name| [name, "off"]);
                place.run(["ethtool", "-K", device].into_iter().chain(offloads.concat())).unwrap();
            }
        }
        for line in SET_UP.lines().map(str::trim).filter(|line| !line.is_empty()) {
            namespace.run(["ip"].into_iter().chain(line.split(' '))).unwrap();
        }
        // All neighbours are permanent, because the result of address resolution depends on time.
        for side in Side::BOTH {
            let four = [0, 2, 3, 4, 5, 6].map(|number| (number, format!("10.1.{}.{number}", side.number())));
            let six = (2..8).flat_map(|number| {
                [format!("fd00:{}::{number}", side.number()), format!("fe80::{number}")]
                    .map(|to| (number, to))
            });
            let stranger = (9, "fe80::9:9".to_owned());
            for (number, address) in four.into_iter().chain(six).chain([stranger]) {
                let line = format!(
                    "ip neighbour replace {address} lladdr {} nud permanent dev {}",
                    side.neighbour(number),
                    side.device()
                );
                namespace.run(line.split(' ')).unwrap();
            }
        }
        for side in Side::BOTH {
            let end = format!("{prefix}{}", side.letter());
            senders.insert(side, RawSender::open(wire, &end).unwrap());
            receivers.insert(side, RawReceiver::open(wire, &end).unwrap());
        }
        Subject { name, senders, receivers }
    }

    /// Collects the output until every marker frame in `fences` (given by its number) has left the namespace. Returns
    /// an error if one of these frames is still missing after `patience`.
    fn collect(&self, mut fences: BTreeSet<u32>, patience: Duration) -> Result<Vec<Output>, String> {
        let (mut outputs, started) = (Vec::new(), Instant::now());
        while !fences.is_empty() {
            let before = outputs.len();
            for (side, receiver) in &self.receivers {
                while let Some(frame) = receiver.arrived(Duration::ZERO).unwrap() {
                    if let Some(mark) = mark_of(&frame) {
                        fences.remove(&mark);
                    }
                    outputs.push((*side, frame));
                }
            }
            if started.elapsed() > patience {
                return Err(format!(
                    "{}: frames {fences:?} at the end of a batch did not come out",
                    self.name
                ));
            }
            if outputs.len() == before {
                std::thread::yield_now();
            }
        }
        Ok(outputs)
    }

    /// Collects output until no frame has left for `patience`.
    fn rest(&self, patience: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        for (side, receiver) in &self.receivers {
            while let Some(frame) = receiver.arrived(patience).unwrap() {
                outputs.push((*side, frame));
            }
        }
        outputs
    }

    /// Sends the frames of a batch, each on its side.
    fn send(&self, frames: &[frames::Frame]) {
        for frame in frames {
            self.senders[&frame.side].send(&frame.bytes).unwrap();
        }
    }
}

/// Groups the output by the number of the input frame from which it results. The number is in the mark of each frame.
fn by_mark(outputs: &[Output]) -> BTreeMap<Option<u32>, Vec<Output>> {
    let mut sorted: BTreeMap<Option<u32>, Vec<Output>> = BTreeMap::new();
    for (side, frame) in outputs.iter().filter(|(_, frame)| !rules::is_own_talk(frame)) {
        sorted.entry(mark_of(frame)).or_default().push((*side, rules::without_chance(frame)));
    }
    sorted.values_mut().for_each(|outputs| outputs.sort());
    sorted
}

/// Compares the output of both namespaces. Returns the differences that no rule permits, and counts the permitted
/// differences for each rule.
fn compare(
    frames: &[frames::Frame],
    [kernel, ours]: &[Vec<Output>; 2],
    accepted: &mut BTreeMap<Rule, usize>,
    errors: &mut Errors,
) -> Vec<String> {
    let (kernel, ours) = (by_mark(kernel), by_mark(ours));
    let marks: BTreeSet<Option<u32>> = kernel.keys().chain(ours.keys()).copied().collect();
    let mut wrong = Vec::new();
    for mark in marks {
        let none = Vec::new();
        let (kernel, ours) = (kernel.get(&mark).unwrap_or(&none), ours.get(&mark).unwrap_or(&none));
        errors.count(kernel);
        match Rule::that_explain(kernel.clone(), ours.clone()) {
            None if errors.explain(kernel, ours) => *accepted.entry(Rule::ErrorLimit).or_default() += 1,
            Some(rules) => rules.into_iter().for_each(|rule| *accepted.entry(rule).or_default() += 1),
            None => wrong.push(tell(frames.iter().find(|frame| Some(frame.number) == mark), kernel, ours)),
        }
    }
    wrong
}

fn tell(frame: Option<&frames::Frame>, kernel: &[Output], ours: &[Output]) -> String {
    let mut text = String::new();
    match frame {
        Some(frame) => {
            let _ = writeln!(
                text,
                "frame {} into {:?} ({}): {}",
                frame.number,
                frame.side,
                frame.story,
                hex(&frame.bytes)
            );
        }
        None => text.push_str("of a frame unknown\n"),
    }
    for (who, outputs) in [("kernel", kernel), ("ours", ours)] {
        if outputs.is_empty() {
            let _ = writeln!(text, "  {who}: nothing");
        }
        for (side, frame) in outputs {
            let _ = writeln!(text, "  {who}, out of {side:?}: {}", hex(frame));
        }
    }
    text
}

fn hex(frame: &[u8]) -> String {
    let mut text = String::new();
    for byte in frame.iter().take(110) {
        let _ = write!(text, "{byte:02x}");
    }
    let _ = write!(text, " ({} octets)", frame.len());
    text
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_leaves_is_what_the_kernel_would_send() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(0);
    let wire = rig.lab.namespace("wire").unwrap();
    let alone = rig.lab.namespace("kernel").unwrap();
    let kernel = Subject::new("kernel", "k", &alone, &wire);
    let ours = Subject::new("ours", "t", rig.lab.hub(), &wire);
    let mut text = format!(
        "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 32768\nhuge_pages = \"off\"\n[router.edge]\npunts = 10000000\n\
         punt_limits = {{ errors = 10000000 }}\n",
        rig.socket(),
        rig.path("state")
    );
    for side in Side::BOTH {
        let device = side.device();
        let _ = write!(
            text,
            "[port.{device}]\nkind = \"af_xdp\"\ndevice = \"{device}\"\n[router.edge.port.{device}]\n"
        );
    }
    rig.start(&text);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("ORACLE_SEED", now.subsec_nanos() as usize);
    println!("ORACLE_SEED={seed} repeats this run");
    let mut generator = Generator::new(seed as u64);
    for subject in [&kernel, &ours] {
        testbed::eventually(&format!("{} forwards", subject.name), PATIENCE, || {
            let fences = generator.fences();
            subject.send(&fences);
            subject.collect(fences.iter().map(|fence| fence.number).collect(), Duration::from_millis(500))
        })
        .unwrap();
        subject.rest(Duration::from_millis(20));
    }
    let worker =
        || Side::BOTH.map(|side| rig.port(side.device())["counters"]["tx_packets"].as_u64().unwrap());
    let before = worker();
    let (mut accepted, mut wrong, mut outputs, mut sent) = (BTreeMap::<Rule, usize>::new(), Vec::new(), 0, 0);
    let mut errors = Errors::default();
    let wanted = number("ORACLE_FRAMES", FRAMES);
    while sent < wanted && wrong.len() < 20 {
        let mut frames: Vec<frames::Frame> = (0..2 * BATCH).map(|_| generator.next()).collect();
        sent += frames.len();
        let fences = generator.fences();
        let awaited: BTreeSet<u32> = fences.iter().map(|fence| fence.number).collect();
        frames.extend(fences);
        kernel.send(&frames);
        ours.send(&frames);
        let mut came = [&kernel, &ours].map(|subject| match subject.collect(awaited.clone(), PATIENCE) {
            Ok(outputs) => outputs,
            Err(error) => {
                let story = |frame: &frames::Frame| error.contains(&frame.number.to_string());
                let lost: Vec<String> =
                    frames.iter().filter(|f| story(f)).map(|f| tell(Some(f), &[], &[])).collect();
                println!("{}", rig.lab.hub().run(["ip", "neighbour"]).unwrap_or_default());
                panic!("seed {seed}: {error}:\n{}\n{}", lost.concat(), wrong.join("\n"))
            }
        });
        let mut met = BTreeMap::<Rule, usize>::new();
        let mut errors_after = errors.clone();
        let mut differs = compare(&frames, &came, &mut met, &mut errors_after);
        if !differs.is_empty() {
            // Work of the kernel on another core may take a little longer.
            for (came, subject) in came.iter_mut().zip([&kernel, &ours]) {
                came.extend(subject.rest(Duration::from_millis(100)));
            }
            met.clear();
            errors_after = errors.clone();
            differs = compare(&frames, &came, &mut met, &mut errors_after);
        }
        errors = errors_after;
        outputs += came[0].len();
        wrong.extend(differs);
        met.into_iter().for_each(|(rule, count)| *accepted.entry(rule).or_default() += count);
    }
    for (rule, count) in &accepted {
        println!("{count} frames: {}: {}", rule.name(), rule.reason());
    }
    assert!(wrong.is_empty(), "seed {seed}, {sent} frames: {} differ:\n{}", wrong.len(), wrong.join("\n"));
    // Both routers forward frames, and workers handle a share of them.
    let by_worker: u64 = worker().iter().zip(before).map(|(after, before)| after - before).sum();
    println!("{sent} frames in, {outputs} out of the kernel, {by_worker} by our worker");
    assert!(
        outputs > sent / 2 && by_worker as usize > sent / 8,
        "{sent} in, {outputs} out, {by_worker} by the worker"
    );
}
