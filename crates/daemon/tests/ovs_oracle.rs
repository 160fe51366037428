//! Compares the daemon with a real `ovs-vswitchd`. Both receive equal rules from `ovs-ofctl` and equal frames, some
//! valid and some malformed. The test compares the frames that leave through each port octet by octet. [`differences`]
//! names each permitted difference, and any other difference fails the test.
//!
//! ```text
//!                    ┌ OVS: datapath in user space, dummy devices on streams ┐
//!   rules, frames ── ┤                                                      ├── by port and frame number, in order
//!                    └ ours: af_xdp ports, cables into a namespace          ┘
//! ```
//!
//! `OVS_ORACLE_ROUNDS` sets the number of rule sets, and `OVS_ORACLE_SEED` the seed. Some seeds find
//! differences that have no name yet. Differences permitted by [`differences`] are counted by name and
//! limited to [`EXCUSED`] percent of the frames, because a definition that is too wide would hide defects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "octets of a generated frame")]

#[path = "ovs_oracle/choices.rs"]
mod choices;
#[path = "ovs_oracle/differences.rs"]
mod differences;
#[path = "ovs_oracle/frames.rs"]
mod frames;
mod rig;
#[path = "ovs_oracle/rules.rs"]
mod rules;
#[path = "ovs_oracle/stations.rs"]
mod stations;
#[path = "ovs_oracle/switches.rs"]
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use differences::{Difference, Features};
use frames::{FENCE, Frame, Generator, PORTS, mark_of};
use rig::cables::{self, Output};
use rig::{PATIENCE, Rig};
use rules::Rules;
use stations::Member;
use switches::{Ovs, Switch};
use testbed::{Namespace, require};

/// Number of rule sets that are compared in CI.
const ROUNDS: usize = 16;
/// Number of frames for each rule set.
const FRAMES: usize = 192;
/// Maximum number of frames that are in flight at the same time. Even if each frame is copied to all ports, the copies
/// fit into the queues of OVS's dummy devices.
const WINDOW: usize = 8;
/// Default seed.
const SEED: usize = 804_274_634;
/// Maximum percentage of frames in one run that may have a permitted difference.
const EXCUSED: usize = 10;
/// Time without a frame after which a batch counts as complete.
const QUIET: Duration = Duration::from_millis(300);

/// Output frames that carry the number of one input frame, by output port. The frames of a port are in the order in
/// which they left.
type ByPort = BTreeMap<u8, Vec<Vec<u8>>>;

fn by_mark(outputs: Vec<Output>) -> BTreeMap<u32, ByPort> {
    let mut sorted: BTreeMap<u32, ByPort> = BTreeMap::new();
    for (port, frame) in outputs {
        // The kernel's own frames have no number.
        if let Some(mark) = mark_of(&frame) {
            sorted.entry(mark).or_default().entry(port).or_default().push(frame);
        }
    }
    sorted
}

fn hex(frame: &[u8]) -> String {
    frame.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn tell(frame: &Frame, ovs: &ByPort, ours: &ByPort) -> String {
    let mut text = format!(
        "frame {} into port {} ({}):\n    {}\n",
        frame.number,
        frame.port,
        frame.story,
        hex(&frame.bytes)
    );
    for (who, outputs) in [("OVS", ovs), ("ours", ours)] {
        let count: usize = outputs.values().map(Vec::len).sum();
        let _ = writeln!(text, "  {who}: {count} frames");
        for (port, frame) in outputs.iter().flat_map(|(port, all)| all.iter().map(move |frame| (port, frame)))
        {
            let _ = writeln!(text, "  {port}> {}", hex(frame));
        }
    }
    text
}

/// Differences between the output of both switches for some frames: the permitted differences, and descriptions of all
/// others.
struct Found {
    known: Vec<Difference>,
    wrong: Vec<String>,
}

fn compare(
    (rules, frames): (&Rules, &[Frame]),
    ovs: &BTreeMap<u32, ByPort>,
    ours: &BTreeMap<u32, ByPort>,
) -> Found {
    let none = ByPort::new();
    let features = Features::of(rules);
    let mut found = Found { known: Vec::new(), wrong: Vec::new() };
    for frame in frames {
        let [ovs, ours] = [ovs, ours].map(|outputs| outputs.get(&frame.number).unwrap_or(&none));
        let [(ovs, _), (ours, strange)] =
            [ovs, ours].map(|outputs| choices::without(outputs, &rules.buckets));
        if !strange.is_empty() {
            found.wrong.push(format!("{} chosen in vain: {strange:02x?}\n", tell(frame, &ovs, &ours)));
        }
        if ovs == ours {
            continue;
        }
        let (ovs, ours) = (&ovs, &ours);
        let members = rules.members.as_ref().map(|members| &members[..]);
        match Difference::that_explains(frame, members, features, ovs, ours) {
            Some(known) => found.known.push(known),
            None => found.wrong.push(tell(frame, ovs, ours)),
        }
    }
    found
}

/// Adds the rules of a set to both switches. A rule that OVS refuses is added to neither switch. Returns the rules that
/// only Trivium refuses, and the number of rules that both switches have.
fn teach(rig: &Rig, ovs: &Switch, ours: &Switch, rules: &Rules) -> (Vec<String>, usize) {
    let version = rules.version;
    let (mut refused, mut taught) = (Vec::new(), 0);
    for switch in [ovs, ours] {
        // In OpenFlow 1.1, `del-flows` of `ovs-ofctl` deletes only the rules of table 0.
        for command in ["del-flows", "del-groups"] {
            switch.ofctl("OpenFlow13", &[command], &[]).unwrap();
        }
    }
    for (command, lines) in [("add-group", &rules.groups), ("add-flow", &rules.flows)] {
        let mut accepted = Vec::new();
        let file = rig.write("lines", &(lines.join("\n") + "\n"));
        let all = &[file.to_str().unwrap()][..];
        let whole = format!("{command}s");
        if ovs.ofctl(version, &[&whole], all).is_ok() {
            accepted.clone_from(lines);
        } else {
            for line in lines {
                match ovs.ofctl(version, &[command], &[line]) {
                    Ok(_) => accepted.push(line.clone()),
                    Err(error) if std::env::var_os("OVS_ORACLE_SHOW").is_some() => {
                        println!("OVS refuses {version} {line}: {error}");
                    }
                    Err(_) => {}
                }
            }
        }
        taught += accepted.len();
        let file = rig.write("lines", &(accepted.join("\n") + "\n"));
        if let Err(error) = ours.ofctl(version, &[&whole], &[file.to_str().unwrap()]) {
            refused.push(format!("{version}: {error}"));
            for line in &accepted {
                if let Err(error) = ours.ofctl(version, &[command], &[line]) {
                    refused.push(format!("{version} {line}: {error}"));
                }
            }
        }
    }
    (refused, taught)
}

/// Sends frames through OVS and returns the output. OVS serves its devices one after the other. Therefore, all output
/// of a batch has arrived only when a second marker frame (fence) has left each port.
fn pass_ovs(ovs: &mut Switch, generator: &mut Generator, frames: &[Frame]) -> Vec<Output> {
    frames.iter().for_each(|frame| ovs.send(frame));
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let fences: Vec<Frame> = (1..=PORTS).map(|port| generator.fence(port)).collect();
        fences.iter().for_each(|fence| ovs.send(fence));
        let mut awaited: BTreeSet<u32> = fences.iter().map(|fence| fence.number).collect();
        let came = ovs.collect(PATIENCE, |output| {
            if let Some(mark) = mark_of(&output.1) {
                awaited.remove(&mark);
            }
            awaited.is_empty()
        });
        assert!(awaited.is_empty(), "OVS: fences {awaited:?} are not back");
        outputs.extend(came.into_iter().filter(|(_, frame)| !is_fence(frame)));
    }
    outputs
}

/// Sends frames through Trivium, and returns the output when `expected` frames (the number of frames that left OVS)
/// have left, or when no more frames arrive.
fn pass_ours(ours: &mut Switch, generator: &mut Generator, frames: &[Frame], expected: usize) -> Vec<Output> {
    frames.iter().for_each(|frame| ours.send(frame));
    let quiet = match (expected, frames) {
        (0, [frame]) => return settle_ours(ours, generator.fence(frame.port)),
        (0, _) => return Vec::new(),
        // The rules and addresses that this frame causes to be learned must take effect before the next frame is sent.
        (_, [_]) => Duration::from_secs(1),
        _ => QUIET,
    };
    let mut marked = 0;
    ours.collect(quiet, |output| {
        marked += usize::from(mark_of(&output.1).is_some());
        marked >= expected
    })
}

/// Waits until Trivium has processed a frame that causes no output, and returns the output of its effects. The marker
/// frame `fence` is processed after this frame. The reply to a rule change then shows that the slow path has decided
/// all earlier packets without a megaflow.
fn settle_ours(ours: &mut Switch, fence: Frame) -> Vec<Output> {
    ours.send(&fence);
    let mut outputs = ours.collect(PATIENCE, |output| mark_of(&output.1) == Some(fence.number));
    ours.ofctl("OpenFlow13", &["del-flows"], &["table=200"]).unwrap();
    outputs.extend(ours.collect(Duration::ZERO, |_| false));
    outputs.retain(|(_, frame)| !is_fence(frame));
    outputs
}

fn is_fence(frame: &[u8]) -> bool {
    frame[12..14] == FENCE.to_be_bytes()
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Returns the seed of this run and prints it.
fn seed() -> usize {
    let seed = number("OVS_ORACLE_SEED", SEED);
    println!("OVS_ORACLE_SEED={seed} repeats this run");
    seed
}

/// Both switches, and the frame generator.
struct Both<'r> {
    rig: &'r Rig,
    peer: &'r Ovs,
    ovs: Switch,
    ours: Switch,
    generator: Generator,
    refused: BTreeSet<String>,
    /// Number of rules that both switches have accepted, by OpenFlow version.
    taught: BTreeMap<&'static str, usize>,
}

impl<'r> Both<'r> {
    fn new(rig: &'r Rig, peer: &'r Ovs, wire: &Namespace, seed: usize) -> Both<'r> {
        Both {
            rig,
            peer,
            ovs: peer.switch(),
            ours: Switch::ours(rig, wire),
            generator: Generator::new(seed as u64),
            refused: BTreeSet::new(),
            taught: BTreeMap::new(),
        }
    }

    fn teach(&mut self, rules: &Rules) {
        let (refused, taught) = teach(self.rig, &self.ovs, &self.ours, rules);
        self.refused.extend(refused);
        *self.taught.entry(rules.version).or_default() += taught;
        self.peer.settle();
    }

    /// Sends frames through both switches, and returns the output of OVS and of Trivium.
    fn pass(&mut self, frames: &[Frame], window: usize) -> (Vec<Output>, Vec<Output>) {
        let (mut of_ovs, mut of_ours) = (Vec::new(), Vec::new());
        for window in frames.chunks(window) {
            let from_ovs = pass_ovs(&mut self.ovs, &mut self.generator, window);
            let expected = from_ovs.iter().filter(|(_, frame)| mark_of(frame).is_some()).count();
            of_ours.extend(pass_ours(&mut self.ours, &mut self.generator, window, expected));
            of_ovs.extend(from_ovs);
        }
        of_ours.extend(self.ours.collect(Duration::from_millis(20), |_| false));
        (of_ovs, of_ours)
    }

    /// Configures the VLANs of the ports, and makes both switches learn all MAC addresses, so that later frames do not
    /// change the MAC tables.
    fn introduce(&mut self, members: &[Member]) {
        stations::prepare(self.rig, self.peer, members);
        self.teach(&Rules::learning());
        let lessons = stations::lessons(&mut self.generator);
        self.pass(&lessons, WINDOW);
    }

    /// Returns a description of the MAC table entries that only one of the two switches has. Returns `None` if the
    /// tables are equal.
    fn strangers(&self) -> Option<String> {
        let (ovs, ours) = (stations::known_to_ovs(self.peer), stations::known_to_ours(self.rig));
        let (only_ovs, only_ours): (Vec<_>, Vec<_>) =
            (ovs.difference(&ours).collect(), ours.difference(&ovs).collect());
        (ovs != ours).then(|| format!("only OVS knows {only_ovs:?}, only ours {only_ours:?}\n"))
    }

    /// Returns copies of the frames with new numbers, which are sent to check that the switches process the flows in
    /// the same way again.
    fn again(&mut self, frames: &[Frame]) -> Vec<Frame> {
        frames.iter().map(|frame| frame.again(self.generator.number())).collect()
    }

    fn frames(&mut self, rules: &Rules) -> Vec<Frame> {
        let settled = rules.in_turn || rules.members.is_some();
        let frame = |_| {
            let mut frame = self.generator.frame(settled);
            // A frame that only one of the switches parses would teach only that switch.
            while rules.in_turn && !frame.is_regular() {
                frame = self.generator.frame(settled);
            }
            if rules.members.is_some() && self.generator.random.one_in(3) {
                frame.bytes[..6].copy_from_slice(&stations::address(&mut self.generator.random));
            }
            frame
        };
        (0..FRAMES).map(frame).collect()
    }
}

#[test]
fn what_leaves_is_what_open_vswitch_would_send() {
    require!("ip", "ethtool", "tcpdump", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let mut rig = Rig::new(0);
    let wire = cables::lay(&rig, PORTS);
    let text = stations::configuration(&rig, &[Member::All; PORTS as usize]);
    rig.start(&text);
    let peer = Ovs::start(&rig);
    let seed = seed();
    let mut both = Both::new(&rig, &peer, &wire, seed);
    let (mut wrong, mut accepted) = (Vec::new(), BTreeMap::<Difference, usize>::new());
    let (mut sent, mut left, mut by_stations, mut chosen) = (0, 0, 0, 0);
    for round in 0..number("OVS_ORACLE_ROUNDS", ROUNDS) {
        let version = rules::VERSIONS[round % rules::VERSIONS.len()];
        let rules = rules::generate(&mut both.generator.random, version);
        if let Some(members) = &rules.members {
            both.introduce(members);
            by_stations += FRAMES;
        }
        both.teach(&rules);
        let frames = both.frames(&rules);
        let (of_ovs, mut of_ours) = both.pass(&frames, if rules.in_turn { 1 } else { WINDOW });
        (sent, left) = (sent + frames.len(), left + of_ovs.len());
        let of_ovs = by_mark(of_ovs);
        let mut found = compare((&rules, &frames), &of_ovs, &by_mark(of_ours.clone()));
        if !found.wrong.is_empty() {
            // On a loaded machine frames may be late.
            of_ours.extend(both.ours.collect(Duration::from_secs(2), |_| false));
            found = compare((&rules, &frames), &of_ovs, &by_mark(of_ours.clone()));
        }
        if rules.members.is_some() {
            found.wrong.extend(both.strangers());
        }
        if !rules.in_turn {
            let regular: Vec<Frame> = frames.into_iter().filter(Frame::is_regular).collect();
            let again = both.again(&regular);
            let pairs: Vec<_> = regular.iter().zip(again.iter().map(|frame| frame.number)).collect();
            let (more_ovs, more_ours) = both.pass(&again, WINDOW);
            let mut all_ours = by_mark(of_ours);
            all_ours.extend(by_mark(more_ours));
            let all_ovs: BTreeMap<u32, ByPort> = of_ovs.into_iter().chain(by_mark(more_ovs)).collect();
            for outputs in [&all_ovs, &all_ours] {
                let (fickle, agree) = choices::fickle(&pairs, outputs);
                found.wrong.extend(fickle);
                chosen += agree;
            }
        }
        found.known.into_iter().for_each(|known| *accepted.entry(known).or_default() += 1);
        if !found.wrong.is_empty() {
            wrong.push(format!("{rules}\n"));
            wrong.extend(found.wrong);
        }
        if wrong.len() > 60 {
            break;
        }
    }
    println!(
        "seed {seed}: {sent} frames in, {left} left OVS, {by_stations} met NORMAL's rules; {chosen} choices were made again"
    );
    for (known, count) in &accepted {
        println!("{count} frames: {}: {}", known.name(), known.reason());
    }
    let excused: usize = accepted.values().sum();
    println!("{excused} of {sent} frames differ by name; rules by version: {:?}", both.taught);
    let refused: Vec<String> = both.refused.into_iter().collect();
    assert!(
        wrong.is_empty() && refused.is_empty(),
        "seed {seed}, {sent} frames differ:\n{}\nrefused by ours alone:\n{}",
        wrong.join(""),
        refused.join("\n")
    );
    assert!(left > sent, "most frames leave: {sent} in, {left} out");
    assert!(excused * 100 <= sent * EXCUSED, "{excused} of {sent} frames differ by name: {accepted:?}");
    assert!(by_stations > 0 && chosen > 0, "NORMAL and hashes are among the actions");
}

#[test]
fn both_directions_of_a_flow_are_chosen_the_same() {
    require!("ip", "ethtool", "tcpdump", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let mut rig = Rig::new(0);
    let wire = cables::lay(&rig, PORTS);
    let text = stations::configuration(&rig, &[Member::All; PORTS as usize]);
    rig.start(&text);
    let peer = Ovs::start(&rig);
    let mut both = Both::new(&rig, &peer, &wire, seed());
    let to = usize::from(PORTS);
    let random = &mut both.generator.random;
    let all: Vec<String> = (0..12)
        .map(|place| choices::multipath(random, choices::SYMMETRIC[place % choices::SYMMETRIC.len()], to))
        .collect();
    let rules = Rules::only(&all.join(","));
    both.teach(&rules);
    let mut frames = Vec::new();
    let mut pairs = Vec::new();
    while frames.len() < FRAMES {
        let frame = both.generator.frame(false);
        let number = both.generator.number();
        // Frames that would leave by their input port are skipped.
        let Some(back) = frame.back(number).filter(|_| usize::from(frame.port) != to && frame.is_regular())
        else {
            continue;
        };
        pairs.push(number);
        frames.extend([frame, back]);
    }
    let (of_ovs, of_ours) = both.pass(&frames, WINDOW / 4);
    let (of_ovs, of_ours) = (by_mark(of_ovs), by_mark(of_ours));
    let found = compare((&rules, &frames), &of_ovs, &of_ours);
    assert!(found.wrong.is_empty() && both.refused.is_empty(), "{}{:?}", found.wrong.join(""), both.refused);
    let pairs: Vec<_> = frames.iter().step_by(2).zip(pairs).collect();
    for outputs in [&of_ovs, &of_ours] {
        let (fickle, agree) = choices::fickle(&pairs, outputs);
        assert!(fickle.is_empty(), "{}", fickle.join(""));
        assert_eq!(agree, pairs.len() * all.len());
    }
}
