//! The stage of the kernel's routing beside the least program that asks `bpf_fib_lookup`, and beside the kernel's forwarding: frames
//! per second that arrive, and nanoseconds that a program runs, one route, 60-byte UDP, generator and forwarding on one core.
//! As root, in a network namespace of its own: `unshare --net taskset -c 1 target/release/examples/fib_cost`
//! after `cargo build --release -p xdp --example fib_cost`.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use xdp::fib::{FibPort, FibStage, Takes};
use xdp::live::{Generator, Redirect, Sink, Traffic, Vary};
use xdp::{
    AttachMode, Attached, Error, LocalAddresses, Owner, PortProgram, ProgramConfig, ProgramInfo,
    RunStatistics, WhenDown,
};

const ROUNDS: usize = 7;
const WINDOW: Duration = Duration::from_secs(1);
const PLANES: [Plane; 4] = [Plane::Kernel, Plane::Least, Plane::Stage, Plane::Checking];

/// Frames come in at `d` from `g` and leave at `o` for `s`.
const SET_UP: &str = "
    ip link add g type veth peer name d; ip link add o type veth peer name s; ip link add i type veth peer name j
    for x in g d o s i j; do echo 1 > /proc/sys/net/ipv6/conf/$x/disable_ipv6; ip link set dev $x up; done
    ethtool -K d gro on
    ip link set dev g arp off; ip link set dev s arp off
    ip address add 10.0.1.1/24 dev d; ip address add 10.0.3.1/24 dev o
    ip neighbor add 10.0.3.2 lladdr 02:00:00:00:00:09 dev o
    ip route add 10.0.2.0/24 via 10.0.3.2
    echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
    echo 0 > /proc/sys/net/ipv4/conf/d/rp_filter
    ip link set dev d address 02:00:00:00:00:02";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Plane {
    Kernel,
    Least,
    Stage,
    Checking,
}

impl Plane {
    const fn name(self) -> &'static str {
        match self {
            Plane::Kernel => "kernel forwarding",
            Plane::Least => "least bpf_fib_lookup program",
            Plane::Stage => "the port's stage",
            Plane::Checking => "the same, open checksums looked for",
        }
    }
}

/// What stands on `d`.
enum Standing {
    Nothing,
    Least(Redirect),
    Port(Attached),
}

impl Standing {
    fn info(&self) -> Result<Option<ProgramInfo>, Error> {
        match self {
            Standing::Nothing => Ok(None),
            Standing::Least(redirect) => redirect.info().map(Some),
            Standing::Port(port) => port.info().map(Some),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let made = Command::new("sh").args(["-ec", SET_UP]).status()?;
    if !made.success() {
        return Err("the devices could not be made: run it in a network namespace of its own, as root".into());
    }
    let [g, d, o, s, i] = ["g", "d", "o", "s", "i"].map(index);
    let (g, d, o, s, i) = (g?, d?, o?, s?, i?);
    let sink = Sink::attach(s, AttachMode::Native)?;
    let vary = Vary { ports: true, ..Vary::default() };
    let mut rates: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut costs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for at in 0..PLANES.len() {
            let plane = PLANES[(at + round) % PLANES.len()];
            let standing = stand(plane, d, o)?;
            let traffic = Traffic { flows: 64, vary, park_on: Some(i), ..Traffic::to(g) };
            let mut generator = Generator::new(&traffic)?;
            generator.run_for(WINDOW / 5)?;
            let (start, before) = (Instant::now(), sink.sunk()?.packets);
            generator.run_for(WINDOW)?;
            let rate = (sink.sunk()?.packets - before) as f64 / start.elapsed().as_secs_f64();
            rates.entry(plane.name()).or_default().push(rate / 1e6);
            // Counting the runs costs time itself: not while frames are counted.
            let _counted = RunStatistics::enable()?;
            let Some(before) = standing.info()? else { continue };
            generator.run_for(WINDOW / 5)?;
            let after = standing.info()?.unwrap_or_else(|| before.clone());
            let cost =
                (after.run_time_ns - before.run_time_ns) as f64 / (after.runs - before.runs).max(1) as f64;
            costs.entry(plane.name()).or_default().push(cost);
            // What goes is not taken off at once.
            drop(standing);
            thread::sleep(Duration::from_millis(50));
        }
    }
    for plane in PLANES {
        let name = plane.name();
        let shown = |of: Option<&Vec<f64>>, unit: &str| match of {
            Some(of) => format!("{:.2} {unit} (of {})", median(of), list(of)),
            None => String::new(),
        };
        println!("{name}: {} {}", shown(rates.get(name), "Mpps"), shown(costs.get(name), "ns a run"));
    }
    let quickest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    for (what, of) in [("median", &median as &dyn Fn(&[f64]) -> f64), ("quickest slice", &quickest)] {
        let of = |plane: Plane| of(&rates[plane.name()]);
        let (kernel, least, stage) = (of(Plane::Kernel), of(Plane::Least), of(Plane::Stage));
        println!("by {what}: {:.2} x the least program, {:.2} x the kernel", stage / least, stage / kernel);
    }
    Ok(())
}

fn index(name: &str) -> Result<u32, Box<dyn std::error::Error>> {
    let output = Command::new("ip").args(["-o", "link", "show", "dev", name]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split(':').next().unwrap_or_default().parse()?)
}

fn stand(plane: Plane, device: u32, output: u32) -> Result<Standing, Error> {
    let partial_checksums = match plane {
        Plane::Kernel => return Ok(Standing::Nothing),
        Plane::Least => {
            return Redirect::attach_routing(device, output, AttachMode::Native).map(Standing::Least);
        }
        Plane::Stage => false,
        Plane::Checking => true,
    };
    let config = ProgramConfig {
        owner: Owner::Routed,
        when_down: WhenDown::Pass,
        queues: 1,
        locals: LocalAddresses {
            v4: [[10, 0, 1, 1].into(), [10, 0, 3, 1].into()].into(),
            ..Default::default()
        },
    };
    let mut port = PortProgram::load(&config)?.attach(device, AttachMode::Native, None)?;
    let own = FibPort { mac: [2, 0, 0, 0, 0, 2], check_sources: false, partial_checksums };
    let stage = FibStage::new(&own, &port)?;
    stage.set_devices(&[(output, Takes::MultiBuffer)].into())?;
    port.set_fib(Some(&stage))?;
    Ok(Standing::Port(port))
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn list(of: &[f64]) -> String {
    of.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" ")
}
