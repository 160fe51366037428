//! Tests the features in `docs/switch-matrix.md` with real packets. The stock `ovs-ofctl` adds the rules of each case
//! to the real binary. The test sends frames to the ports, and compares each frame that leaves octet by octet. The
//! cases are [`testbed::packet_cases`], which `openflow/tests/matrix.rs` uses, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::Rig;
use rig::cables::{self, Cables, Output};
use testbed::packet_cases::{self, MARK, PORTS, PacketCase, Step};
use testbed::{Namespace, Process, eventually, require};

/// Maximum time until an expected frame or message arrives on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to wait for frames that must not arrive.
const QUIET: Duration = Duration::from_millis(8);

/// The bridge under test. Cables connect its ports to the namespace from which the test sends and receives frames.
struct Bench {
    rig: Rig,
    cables: Cables,
    /// Namespace that contains the test's ends of the cables.
    _wire: Namespace,
    socket: PathBuf,
    /// Process of `ovs-ofctl monitor`, which prints packet-ins.
    monitor: Process,
}

fn configuration(rig: &Rig) -> String {
    let mut text = format!(
        "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 32768\nhuge_pages = \"off\"\n\
         [bridge.br0]\nsnooping = false\n[bridge.br0.openflow]\nfail_mode = \"secure\"\n",
        rig.socket(),
        rig.path("state")
    );
    for port in 1..=PORTS {
        let _ = write!(
            text,
            "[port.h{port}]\nkind = \"af_xdp\"\ndevice = \"h{port}\"\n\
             [bridge.br0.port.h{port}]\nnumber = {port}\ntrunk = \"all\"\nnative = 4094\n"
        );
    }
    text
}

impl Bench {
    fn new() -> Bench {
        let mut rig = Rig::new(0);
        let wire = cables::lay(&rig, PORTS);
        let text = configuration(&rig);
        rig.start(&text);
        let cables = Cables::open(&wire, PORTS);
        let socket = rig.path("br0.mgmt");
        let mut command = Command::new("ovs-ofctl");
        // The directory of the client's control socket.
        command.env("OVS_RUNDIR", socket.parent().unwrap());
        command.args(["-O", "OpenFlow13", "monitor", &format!("unix:{}", socket.display()), "65535"]);
        let monitor = Process::start(command).unwrap();
        Bench { rig, cables, _wire: wire, socket, monitor }
    }

    fn ofctl(&self, version: &str, command: &str, arguments: &[&str]) -> Result<String, String> {
        let bridge = format!("unix:{}", self.socket.display());
        let mut client = Command::new("ovs-ofctl");
        client.args(["-O", version, "--timeout=20", command, &bridge]).args(arguments);
        let output = client.output().unwrap();
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("{command} {arguments:?}: {}", text(&output.stderr)))
    }

    fn run(&mut self, case: &PacketCase) -> Result<(), String> {
        self.ofctl("OpenFlow13", "del-flows", &[])?;
        for (command, argument) in &case.setup {
            self.ofctl("OpenFlow13", command, &[argument])?;
        }
        let file = self.rig.write("flows", &(case.flows.join("\n") + "\n"));
        self.ofctl(case.version, "add-flows", &[file.to_str().unwrap()])?;
        for (number, step) in (1..).zip(&case.steps) {
            self.step(case, step).map_err(|error| format!("frame {number}: {error}"))?;
        }
        Ok(())
    }

    fn step(&mut self, case: &PacketCase, step: &Step) -> Result<(), String> {
        for _ in 0..step.times {
            self.cables.senders[usize::from(step.port) - 1].send(&step.frame).unwrap();
        }
        if let Some(line) = &step.packet_in {
            self.monitor.wait_for_line(line, PATIENCE).map_err(|error| error.to_string())?;
        }
        let (mut left, mut wanted) = (self.collect(step.leaves.len()), step.leaves.clone());
        left.sort();
        wanted.sort();
        if left != wanted {
            return Err(format!("wanted {}\n  left {}", told(&wanted), told(&left)));
        }
        let Some((matching, part)) = step.shown else { return Ok(()) };
        let shown = || {
            let flows = self.ofctl(case.version, "dump-flows", &[matching])?;
            if flows.lines().any(|line| line.contains(part)) { Ok(()) } else { Err(flows) }
        };
        eventually(part, PATIENCE, shown).map_err(|error| error.to_string())
    }

    /// Returns the frames that have left the bridge. Waits until `count` frames have left, and then a short time for
    /// additional frames.
    fn collect(&self, count: usize) -> Vec<Output> {
        let (mut left, mut deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            if left.len() >= count {
                deadline = deadline.min(Instant::now() + QUIET);
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            let Ok(output) = self.cables.outputs.recv_timeout(wait) else { return left };
            // The kernel sends frames of its own, which are skipped.
            if output.1.windows(MARK.len()).any(|part| part == MARK) {
                left.push(output);
            }
        }
    }
}

fn told(outputs: &[Output]) -> String {
    outputs.iter().fold(String::new(), |mut text, (port, frame)| {
        let _ = write!(text, "\n    {port}> ");
        frame.iter().for_each(|octet| {
            let _ = write!(text, "{octet:02x}");
        });
        text
    })
}

#[test]
fn real_packets_meet_every_feature_of_the_matrix_that_has_a_case() {
    require!("ip", "ethtool", "tcpdump", "ovs-ofctl");
    let mut bench = Bench::new();
    for [command, argument] in packet_cases::PREPARATION {
        bench.ofctl("OpenFlow13", command, &[argument]).unwrap();
    }
    let cases = packet_cases::all();
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(error) = bench.run(case) {
            wrong.push(format!("{:?} by {:#?}: {error}", case.proves, case.flows));
        }
    }
    println!("{} cases, {} features", cases.len(), packet_cases::features().len());
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
