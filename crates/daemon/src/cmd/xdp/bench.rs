//! `trivium xdp bench`: what the hook carries between veth pairs of its own making, beside the barest program that does the
//! same. The generator has one core; the receiving device, its NAPI in a thread, has another.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use port::{link, netns};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Place, StationTable};
use xdp::filter::{Action, Compiled, Filter, FilterSizes, Match, Rule, RuleSet};
use xdp::live::{Generator, Redirect, Reflect, Sink, Traffic, Vary};
use xdp::{AttachMode, Attached, Counter, LocalAddresses, Owner, PortProgram, ProgramConfig, WhenDown};

use crate::cli::{XdpBench, XdpScenario};
use crate::failure::Failure;
use crate::table::Table;

/// How long traffic flows before it is measured.
const WARM: Duration = Duration::from_millis(200);
/// How long the kernel may take to start a thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Flows of the generator.
const FLOWS: u32 = 64;
/// The bridge's numbers of its two ports, and its VLAN.
const DEVICE_PORT: u16 = 1;
const OUTPUT_PORT: u16 = 2;
const VLAN: u16 = 10;
/// Stations that its table has room for.
const STATIONS: usize = 4096;
/// Bytes of the longest frame that the output takes.
const LONGEST_FRAME: u32 = 1514;

/// What is measured, and beside what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plane {
    BareDrop,
    ReadingDrop,
    PortDrop,
    FilterDrop,
    BareTransmit,
    BareRedirect,
    BridgeRedirect,
}

impl Plane {
    fn of(scenario: XdpScenario) -> &'static [Plane] {
        match scenario {
            XdpScenario::Drop => &[Plane::BareDrop, Plane::ReadingDrop, Plane::PortDrop, Plane::FilterDrop],
            XdpScenario::Tx => &[Plane::BareTransmit],
            XdpScenario::Redirect => &[Plane::BareRedirect, Plane::BridgeRedirect],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Plane::BareDrop => "bare drop",
            Plane::ReadingDrop => "bare drop that looks at the frame",
            Plane::PortDrop => "port's program, no socket, when_down drop",
            Plane::FilterDrop => "port's program, filter with one rule, drop",
            Plane::BareTransmit => "bare swap of addresses and transmit",
            Plane::BareRedirect => "bare devmap redirect",
            Plane::BridgeRedirect => "port's program, bridge stage, known stations",
        }
    }

    const fn is_bare(self) -> bool {
        matches!(self, Plane::BareDrop | Plane::BareTransmit | Plane::BareRedirect)
    }
}

/// Measures one scenario.
///
/// # Errors
/// Without privilege, or where the kernel refuses a device or a program.
pub fn run(args: &XdpBench) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("bench", "namespaces and BPF need root", "run it with sudo"));
    }
    let measured =
        netns::within_new(|| measure(args)).map_err(|error| Failure::new("bench", error, ""))??;
    match args.json {
        true => println!("{}", value(args, &measured)),
        false => print!("{}", text(args, &measured)),
    }
    Ok(())
}

/// A plane and its rates in the rounds, in frames per second.
struct Measured {
    plane: Plane,
    rates: Vec<f64>,
}

impl Measured {
    fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        (at(low) + at(high)) / 2.0
    }

    fn least(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }
}

/// The cores of the generator and of the device; one and the same where there is only one.
fn cores() -> (usize, usize) {
    let allowed = sync::cpu::allowed_cores().unwrap_or_default();
    let first = allowed.first().copied().unwrap_or(0);
    (first, allowed.last().copied().unwrap_or(first))
}

/// In a namespace of its own, which goes with this thread.
fn measure(args: &XdpBench) -> Result<Vec<Measured>, Failure> {
    let lab = Lab::new()?;
    let planes = Plane::of(args.scenario);
    let mut measured: Vec<Measured> =
        planes.iter().map(|plane| Measured { plane: *plane, rates: Vec::new() }).collect();
    for round in 0..args.rounds {
        // What drifts over the run favours none of them.
        let turn: Vec<usize> = match round % 2 {
            0 => (0..planes.len()).collect(),
            _ => (0..planes.len()).rev().collect(),
        };
        for at in turn {
            if let Some(one) = measured.get_mut(at) {
                one.rates.push(lab.rate(one.plane, Duration::from_secs_f64(args.seconds))?);
            }
        }
    }
    Ok(measured)
}

/// Three veth pairs: g to d, where frames come in; o to s, where redirected ones go; and one for the generator to stand on.
struct Lab {
    names: Names,
    generator: u32,
    device: u32,
    output: u32,
    sink: u32,
    idle: u32,
    cores: (usize, usize),
}

/// The kernel's thread of a device bears the device's name: that of no other bench.
struct Names {
    device: String,
    sink: String,
}

impl Lab {
    fn new() -> Result<Lab, Failure> {
        let number = std::process::id() % 1_000_000;
        let names = Names { device: format!("xd{number}"), sink: format!("xs{number}") };
        for (one, other) in [("xgen", names.device.as_str()), ("xout", &names.sink), ("xidle", "xidle2")] {
            command("ip", &["link", "add", one, "type", "veth", "peer", "name", other])?;
            for device in [one, other] {
                // Nothing but ours is to be counted.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
                command("ip", &["link", "set", device, "up"])?;
            }
        }
        let index = |name: &str| {
            link::find(name).map(|info| info.ifindex).map_err(|error| Failure::new("bench", error, ""))
        };
        let lab = Lab {
            generator: index("xgen")?,
            device: index(&names.device)?,
            output: index("xout")?,
            sink: index(&names.sink)?,
            idle: index("xidle")?,
            cores: cores(),
            names,
        };
        Ok(lab)
    }

    /// Frames per second that a plane takes.
    fn rate(&self, plane: Plane, time: Duration) -> Result<f64, Failure> {
        let failed = |error: xdp::Error| Failure::new(plane.name(), error, "");
        let running = self.start(plane).map_err(failed)?;
        // A device has its NAPI only while it has a program.
        self.pin(&self.names.device)?;
        let vary = Vary { ports: true, ..Vary::default() };
        let traffic = Traffic { flows: FLOWS, vary, park_on: Some(self.idle), ..Traffic::to(self.generator) };
        let mut generator = Generator::new(&traffic).map_err(failed)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                // Anywhere, where it is not allowed.
                let _ = sync::cpu::pin_current_thread(self.cores.0);
                generator.run_until(&stop, time + 10 * WARM)
            });
            thread::sleep(WARM);
            let counted = window(&running, time);
            stop.store(true, Ordering::Relaxed);
            let sent = sending.join().map_err(|_| Failure::new(plane.name(), "the generator failed", ""))?;
            sent.and(counted).map_err(failed)
        })
    }

    fn start(&self, plane: Plane) -> Result<Running, xdp::Error> {
        let native = AttachMode::Native;
        Ok(match plane {
            Plane::BareDrop => Running::Sink(Sink::attach(self.device, native)?),
            Plane::ReadingDrop => Running::Sink(Sink::attach_reading(self.device, native)?),
            Plane::PortDrop => {
                let loaded = PortProgram::load(&port())?;
                Running::Port(Box::new(loaded.attach(self.device, native, None)?), Counter::DownDropped)
            }
            Plane::FilterDrop => {
                let filter = Filter::new(&Compiled::new(&one_rule())?, FilterSizes::default(), None)?;
                let loaded = PortProgram::load_filtered(&port(), &filter)?;
                Running::Port(Box::new(loaded.attach(self.device, native, None)?), Counter::FilterDropped)
            }
            Plane::BareTransmit => Running::Reflected(
                Sink::attach(self.generator, native)?,
                Reflect::attach(self.device, native)?,
            ),
            Plane::BareRedirect => Running::Redirected(
                Sink::attach(self.sink, native)?,
                Redirect::attach(self.device, self.output, native)?,
            ),
            Plane::BridgeRedirect => {
                let sink = Sink::attach(self.sink, native)?;
                let mut port = PortProgram::load(&port())?.attach(self.device, native, None)?;
                port.set_bridge(Some(&self.bridge(&port)?))?;
                Running::Bridged(sink, Box::new(port))
            }
        })
    }

    /// A bridge that knows the generator's stations: it is behind the device, whom it sends to behind the output.
    fn bridge(&self, port: &Attached) -> Result<BridgeStage, xdp::Error> {
        let traffic = Traffic::to(self.generator);
        let (table, devices) = (StationTable::new(STATIONS, 1)?, BridgeDevices::new()?);
        devices.set(OUTPUT_PORT, self.output)?;
        for (mac, port) in [(traffic.source_mac, DEVICE_PORT), (traffic.destination_mac, OUTPUT_PORT)] {
            let [a, b, c, d, e, f] = mac;
            let key = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | u64::from(VLAN) << 48;
            let place = Place {
                port,
                tagged: false,
                protected: false,
                is_static: true,
                reached: Some(LONGEST_FRAME),
            };
            table.insert(key, place, 0);
        }
        let member = BridgePort {
            port: DEVICE_PORT,
            untagged: Some(VLAN),
            tagged: false,
            protected: false,
            learning: true,
            partial_checksums: false,
        };
        BridgeStage::new(&member, port, &table, &devices)
    }

    /// Receives in a thread of the kernel's on the device's core.
    fn pin(&self, device: &str) -> Result<(), Failure> {
        let file = format!("/sys/class/net/{device}/threaded");
        // /sys shows the namespace in which it was mounted.
        let script = format!("mount -t sysfs sysfs /sys && echo 0 > {file} && echo 1 > {file}");
        command("unshare", &["-m", "sh", "-c", &script])?;
        let start = Instant::now();
        loop {
            if let Some(pid) = napi_thread(device) {
                let mut set = CpuSet::new();
                set.set(self.cores.1);
                let pinned = sched_setaffinity(Some(pid), &set);
                return pinned.map_err(|error| Failure::new(device, error, "run it as root"));
            }
            if start.elapsed() > PATIENCE {
                let cause = "the kernel has started no thread for its NAPI";
                return Err(Failure::new(device, cause, "use a kernel with threaded NAPI (5.12 or newer)"));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The kernel's thread that receives for a device.
fn napi_thread(device: &str) -> Option<Pid> {
    let wanted = format!("napi/{device}-");
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(&wanted).then(|| Pid::from_raw(pid))?
    })
}

/// What stands on the devices, and where frames are counted.
enum Running {
    Sink(Sink),
    Port(Box<Attached>, Counter),
    Reflected(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Reflect),
    Redirected(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Redirect),
    Bridged(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Box<Attached>),
}

impl Running {
    fn frames(&self) -> Result<u64, xdp::Error> {
        match self {
            Running::Sink(sink)
            | Running::Reflected(sink, _)
            | Running::Redirected(sink, _)
            | Running::Bridged(sink, _) => Ok(sink.sunk()?.packets),
            Running::Port(port, counter) => Ok(port.counters()?.get(*counter)),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53 frames")]
fn window(running: &Running, time: Duration) -> Result<f64, xdp::Error> {
    let (start, before) = (Instant::now(), running.frames()?);
    thread::sleep(time);
    let (elapsed, after) = (start.elapsed(), running.frames()?);
    Ok((after - before) as f64 / elapsed.as_secs_f64())
}

fn port() -> ProgramConfig {
    let locals = LocalAddresses::default();
    ProgramConfig { owner: Owner::Bridged, when_down: WhenDown::Drop, queues: 1, locals }
}

/// Drops all that is UDP.
fn one_rule() -> RuleSet {
    let matches = Match { protocols: vec![17], ..Match::default() };
    let rule = Rule {
        name: "udp".to_owned(),
        priority: 0,
        matches,
        action: Action::Drop,
        dry_run: false,
        expires: None,
    };
    RuleSet { rules: vec![rule] }
}

fn command(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let line = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| Failure::new(line(), error, "run `make setup`"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::new(line(), String::from_utf8_lossy(&output.stderr).trim(), "run it as root")),
    }
}

/// The figure of the bare plane, which the others are compared with.
fn bare(measured: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    measured.iter().find(|one| one.plane.is_bare()).map_or(0.0, of)
}

fn text(args: &XdpBench, measured: &[Measured]) -> String {
    let (generator, device) = cores();
    let mut table = Table::new(&["PLANE", ">MPPS", ">LEAST", ">MOST", ">OF BARE", ">BEST OF BEST"]);
    for one in measured {
        let ratio = |of: fn(&Measured) -> f64| match one.plane.is_bare() {
            true => String::new(),
            false => format!("{:.2}", of(one) / bare(measured, of).max(1.0)),
        };
        let mpps = |rate: f64| format!("{:.2}", rate / 1e6);
        table.row([
            one.plane.name().to_owned(),
            mpps(one.median()),
            mpps(one.least()),
            mpps(one.most()),
            ratio(Measured::median),
            ratio(Measured::most),
        ]);
    }
    format!(
        "{}generator on core {generator}, device on core {device}; veth, 60 bytes, {FLOWS} flows; median of {} rounds of {} s\n",
        table.render(),
        args.rounds,
        args.seconds
    )
}

fn value(args: &XdpBench, measured: &[Measured]) -> serde_json::Value {
    let (generator, device) = cores();
    let plane = |one: &Measured| {
        json!({
            "plane": one.plane.name(),
            "bare": one.plane.is_bare(),
            "pps": one.median(),
            "least_pps": one.least(),
            "most_pps": one.most(),
            "of_bare": one.median() / bare(measured, Measured::median).max(1.0),
            "best_of_best": one.most() / bare(measured, Measured::most).max(1.0),
        })
    };
    json!({
        "scenario": args.scenario.to_string(),
        "generator_core": generator,
        "device_core": device,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "planes": measured.iter().map(plane).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_rounds() {
        let of = |rates: &[f64]| Measured { plane: Plane::BareDrop, rates: rates.to_vec() }.median();
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0, 2.0, 3.0]), of(&[])), (2.0, 2.5, 0.0));
    }
}
