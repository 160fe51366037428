//! Devices and XDP programs for the measurements of `trivium xdp bench`.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use packet::MacAddr;
use packet::net::Prefix;
use port::link;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, Place, StationTable};
use xdp::fib::{FibPort, FibStage, Takes};
use xdp::filter::{Action, Blocklist, Compiled, Filter, FilterSizes, Match, Rule, RuleSet};
use xdp::live::{Bench, Generator, Redirect, Reflect, Sink, Traffic, scattered};
use xdp::{
    AttachMode, Attached, Counter, LocalAddresses, Owner, PortProgram, ProgramConfig, StageChange, WhenDown,
};

use super::plane::{LISTED, Plane, traffic};
use cli::args::XdpScenario;
use cli::failure::Failure;

/// Time for which traffic flows before each measurement begins (warm-up).
const WARM: Duration = Duration::from_millis(200);
/// Maximum time to wait until the kernel starts the receiving device's NAPI thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Port number of the receiving device in the bridge stage of the XDP program.
const DEVICE_PORT: u16 = 1;
/// Port number of the output device in the bridge stage of the XDP program.
const OUTPUT_PORT: u16 = 2;
/// VLAN of both ports in the bridge stage of the XDP program.
const VLAN: u16 = 10;
/// Capacity of the bridge stage's MAC table in entries.
const STATIONS: usize = 4096;
/// Length in bytes of the longest Ethernet frame that the output device accepts, without the check sequence.
const LONGEST_FRAME: u32 = 1514;
/// IPv4 addresses of the receiving device and of the output device in the routed scenario. The generated packets are
/// sent from 10.0.1.2 to 10.0.2.2.
const OWN: [[u8; 4]; 2] = [[10, 0, 1, 1], [10, 0, 3, 1]];

/// Returns the CPU cores for the generator and for the receiving device. They are equal if the process may use only one
/// core.
pub fn cores() -> (usize, usize) {
    let allowed = sync::cpu::allowed_cores().unwrap_or_default();
    let first = allowed.first().copied().unwrap_or(0);
    (first, allowed.last().copied().unwrap_or(first))
}

/// Three veth pairs with which the programs are measured:
///
/// - The generator sends on the first pair. The other end of this pair is the receiving device.
/// - Redirected frames leave through the output device, which is one end of the second pair. The other end is the sink.
/// - The third pair is unused. The generator's program is attached to one of its ends.
pub struct Lab {
    scenario: XdpScenario,
    names: Names,
    generator: u32,
    device: u32,
    output: u32,
    sink: u32,
    idle: u32,
    cores: (usize, usize),
    listed: Option<Blocklist>,
}

/// Names of the receiving device and of the sink. The names are unique on the machine, so that the kernel's NAPI
/// threads, which are named after their devices, can be found by name.
struct Names {
    device: String,
    sink: String,
}

impl Lab {
    /// Creates the devices in the network namespace of this thread. The devices are removed with the
    /// namespace.
    ///
    /// # Errors
    /// A device cannot be created.
    pub fn new(scenario: XdpScenario) -> Result<Lab, Failure> {
        let number = std::process::id() % 1_000_000;
        let names = Names { device: format!("xd{number}"), sink: format!("xs{number}") };
        for (one, other) in [("xgen", names.device.as_str()), ("xout", &names.sink), ("xidle", "xidle2")] {
            command("ip", &["link", "add", one, "type", "veth", "peer", "name", other])?;
            for device in [one, other] {
                // IPv6 would add frames of its own to the counters.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
                command("ip", &["link", "set", device, "up"])?;
            }
        }
        let index = |name: &str| {
            link::find(name).map(|info| info.ifindex).map_err(|error| Failure::new("bench", error, ""))
        };
        let failed = |error: xdp::Error| Failure::new("bench", error, "");
        let lab = Lab {
            scenario,
            generator: index("xgen")?,
            device: index(&names.device)?,
            output: index("xout")?,
            sink: index(&names.sink)?,
            idle: index("xidle")?,
            cores: cores(),
            names,
            listed: (scenario == XdpScenario::Block).then(million).transpose().map_err(failed)?,
        };
        if scenario == XdpScenario::Route {
            lab.route()?;
        }
        Ok(lab)
    }

    /// Configures the kernel to forward all generated packets by one route to a permanent neighbour.
    fn route(&self) -> Result<(), Failure> {
        let (device, sink) = (self.names.device.as_str(), self.names.sink.as_str());
        let [own, other] = OWN.map(|address| format!("{}/24", Ipv4Addr::from(address)));
        let mac = MacAddr(Traffic::to(self.generator).destination_mac).to_string();
        for line in [
            &["address", "add", &own, "dev", device][..],
            &["address", "add", &other, "dev", "xout"],
            &["link", "set", "dev", device, "address", &mac],
            &["link", "set", "dev", "xgen", "arp", "off"],
            &["link", "set", "dev", sink, "arp", "off"],
            &["neighbor", "add", "10.0.3.2", "lladdr", "02:00:00:00:00:09", "dev", "xout"],
            &["route", "add", "10.0.2.0/24", "via", "10.0.3.2"],
        ] {
            command("ip", line)?;
        }
        // Without an XDP program, veth uses NAPI only with GRO enabled.
        command("ethtool", &["-K", device, "gro", "on"])?;
        for (file, value) in [
            ("ip_forward".to_owned(), "1"),
            ("conf/all/rp_filter".to_owned(), "0"),
            (format!("conf/{device}/rp_filter"), "0"),
        ] {
            let path = format!("/proc/sys/net/ipv4/{file}");
            std::fs::write(&path, value).map_err(|error| Failure::new(path, error, "run it as root"))?;
        }
        Ok(())
    }

    /// Measures how many frames per second a variant (an XDP program, or the kernel without one) processes.
    ///
    /// # Errors
    /// The kernel refuses a program or its counters.
    pub fn rate(&self, plane: Plane, time: Duration) -> Result<f64, Failure> {
        let failed = |error: xdp::Error| Failure::new(plane.name(), error, "");
        let running = self.start(plane).map_err(failed)?;
        // A device has NAPI only while a program is attached.
        self.pin(&self.names.device)?;
        let traffic = Traffic { park_on: Some(self.idle), ..traffic(self.scenario, self.generator) };
        let mut generator = Generator::new(&traffic).map_err(failed)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                // The generator runs on any core if pinning is not allowed.
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
                Running::Port(Box::new(loaded.attach(self.device, native, None)?))
            }
            Plane::FilterDrop => self.filtered(Match { protocols: vec![17], ..Match::default() }, None)?,
            Plane::BlockDrop => {
                self.filtered(Match { listed: true, ..Match::default() }, self.listed.as_ref())?
            }
            Plane::BareTransmit => Running::Reflected(
                Sink::attach(self.generator, native)?,
                Reflect::attach(self.device, native)?,
            ),
            Plane::UserTransmit => {
                let sink = Sink::attach(self.generator, native)?;
                let mut port = PortProgram::load(&port())?.attach(self.device, native, None)?;
                port.set_user(Bench::Reflect.in_front_of(&port)?)?;
                Running::Hooked(sink, Box::new(port))
            }
            Plane::LeastRoute => Running::Redirected(
                Sink::attach(self.sink, native)?,
                Redirect::attach_routing(self.device, self.output, native)?,
            ),
            Plane::PortRoute => Running::Hooked(Sink::attach(self.sink, native)?, Box::new(self.routing()?)),
            Plane::KernelRoute => Running::Sink(Sink::attach(self.sink, native)?),
            Plane::BareRedirect => Running::Redirected(
                Sink::attach(self.sink, native)?,
                Redirect::attach(self.device, self.output, native)?,
            ),
            Plane::BridgeRedirect => {
                let sink = Sink::attach(self.sink, native)?;
                let mut port = PortProgram::load(&port())?.attach(self.device, native, None)?;
                port.set_stage(StageChange::Bridge(Some(&self.bridge(&port)?)))?;
                Running::Hooked(sink, Box::new(port))
            }
        })
    }

    /// Loads the port's XDP program with a filter of one drop rule and without an AF_XDP socket, and attaches
    /// the program to the receiving device.
    fn filtered(&self, matches: Match, listed: Option<&Blocklist>) -> Result<Running, xdp::Error> {
        let rule = Rule {
            name: "drop".to_owned(),
            priority: 0,
            matches,
            action: Action::Drop,
            dry_run: false,
            expires: None,
        };
        let compiled = Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() })?;
        let filter = Filter::new(&compiled, FilterSizes::default(), listed)?;
        let loaded = PortProgram::load_filtered(&port(), &filter)?;
        Ok(Running::Port(Box::new(loaded.attach(self.device, AttachMode::Native, None)?)))
    }

    /// Loads the port's program with the XDP stage that forwards packets according to the kernel's routes to the output
    /// device, and attaches the program to the receiving device.
    fn routing(&self) -> Result<Attached, xdp::Error> {
        let locals = LocalAddresses { v4: OWN.map(Ipv4Addr::from).into(), ..LocalAddresses::default() };
        let config = ProgramConfig { owner: Owner::Routed, when_down: WhenDown::Pass, queues: 1, locals };
        let mut port = PortProgram::load(&config)?.attach(self.device, AttachMode::Native, None)?;
        let mac = Traffic::to(self.generator).destination_mac;
        let own = FibPort { mac, check_sources: false, partial_checksums: false };
        let stage = FibStage::new(&own, &port)?;
        stage.set_devices(&[(self.output, Takes::MultiBuffer)].into())?;
        port.set_stage(StageChange::Fib(Some(&stage)))?;
        Ok(port)
    }

    /// Creates the bridge stage of the XDP program. In the MAC table of the stage, the generated frames'
    /// source address is on the receiving device, and their destination address is on the output device.
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
            untagged_only: false,
            protected: false,
            learning: true,
            partial_checksums: false,
        };
        BridgeStage::new(&member, port, &table, &devices)
    }

    /// Makes the kernel receive a device's frames in a thread (threaded NAPI), and pins the thread to the
    /// receiving device's core.
    fn pin(&self, device: &str) -> Result<(), Failure> {
        let file = format!("/sys/class/net/{device}/threaded");
        // /sys shows the network namespace in which it was mounted, so a new mount is needed.
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

/// Returns the process id of the kernel's NAPI thread that receives for a device, or `None` if there is no
/// thread yet.
fn napi_thread(device: &str) -> Option<Pid> {
    let wanted = format!("napi/{device}-");
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(&wanted).then(|| Pid::from_raw(pid))?
    })
}

/// The attached programs of one measured variant. The counters of one of the programs contain the number of processed
/// frames.
enum Running {
    Sink(Sink),
    Port(Box<Attached>),
    Reflected(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Reflect),
    Redirected(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Redirect),
    Hooked(Sink, #[allow(dead_code, reason = "it stands on its device until it is dropped")] Box<Attached>),
}

impl Running {
    fn frames(&self) -> Result<u64, xdp::Error> {
        match self {
            Running::Sink(sink)
            | Running::Reflected(sink, _)
            | Running::Redirected(sink, _)
            | Running::Hooked(sink, _) => Ok(sink.sunk()?.packets),
            Running::Port(port) => {
                let counters = port.counters()?;
                Ok(counters.get(Counter::FilterDropped) + counters.get(Counter::DownDropped))
            }
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

/// Returns a block list with the first half of the source addresses in the traffic of [`XdpScenario::Block`].
fn million() -> Result<Blocklist, xdp::Error> {
    Blocklist::new((0..LISTED).map(|number| Prefix::from(IpAddr::from(scattered(number)))))
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
