//! Router of the demo. FRR (a suite of routing daemons) runs for Trivium's router and on two
//! neighbouring routers, one with BGP (west) and one with OSPF (east). FRR is configured from the
//! files of `examples/frr`. If FRR is not installed, the demo prints a message and runs without the
//! router.
//!
//! ```text
//!   10.50.0.0/24 ... ── west 10.98.1.2 ──BGP── 10.98.1.1 edge 10.98.2.1 ──OSPF── 10.98.2.2 east ── 10.60.0.1
//! ```

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::RouteEntry;

use crate::lab::{self, Lab};
use crate::traffic::answered;
use cli::client::Client;
use cli::failure::Failure;

/// Directory of FRR's daemons in the Debian package.
const FRR: &str = "/usr/lib/frr";
/// Maximum time to wait for the routes of BGP and OSPF. OSPF needs several of its timer intervals.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of echo requests from the network behind west to the network behind east.
const PINGS: u64 = 50;
/// IPv4 address in the network behind the neighbour west, announced by BGP.
const FROM: &str = "10.50.7.1";
/// IPv4 address in the network behind the neighbour east, announced by OSPF.
pub const TO: &str = "10.60.0.1";
/// Number of prefixes that the neighbour west announces by BGP.
const ANNOUNCED: usize = 100;

/// Daemons of FRR: for each daemon its namespace, its program, and its configuration.
const DAEMONS: [(&str, &str, &str); 7] = [
    ("hub", "zebra", ""),
    (lab::WEST, "zebra", ""),
    (lab::EAST, "zebra", ""),
    ("hub", "bgpd", include_str!("../../../examples/frr/edge-bgpd.conf")),
    ("hub", "ospfd", include_str!("../../../examples/frr/edge-ospfd.conf")),
    (lab::WEST, "bgpd", include_str!("../../../examples/frr/west-bgpd.conf")),
    (lab::EAST, "ospfd", include_str!("../../../examples/frr/east-ospfd.conf")),
];

/// Measured results of the routing part of the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Routed {
    /// Number of routes that the router learned by BGP.
    pub bgp: usize,
    /// Number of routes that the router learned by OSPF.
    pub ospf: usize,
    /// Number of echo requests that were sent through the router.
    pub sent: u64,
    /// Number of echo requests through the router that were answered.
    pub received: u64,
    /// Number of packets in the router's namespace that were forwarded by the kernel and not by Trivium.
    pub by_kernel: u64,
}

impl Routed {
    /// Returns whether BGP and OSPF delivered their routes, all echo requests were answered, and Trivium forwarded the
    /// traffic.
    pub fn ok(&self) -> bool {
        self.bgp >= ANNOUNCED && self.ospf > 0 && self.received == self.sent && self.by_kernel < self.sent
    }
}

/// Returns whether FRR is installed.
pub fn is_available() -> bool {
    DAEMONS.iter().all(|(_, daemon, _)| Path::new(FRR).join(daemon).is_file())
}

/// The running daemons of FRR in all namespaces of the lab.
pub struct Frr {
    daemons: Vec<(&'static str, Child)>,
}

impl Frr {
    /// Sets the addresses of the router and the addresses in the networks behind its neighbours, and starts all FRR
    /// daemons.
    ///
    /// # Errors
    /// An address cannot be set, or an FRR daemon cannot be started.
    pub fn start(lab: &Lab) -> Result<Frr, Failure> {
        for (name, address, device) in [
            ("hub", "10.98.1.1/24", "west"),
            ("hub", "10.98.2.1/24", "east"),
            (lab::WEST, "10.50.7.1/24", "lo"),
            (lab::EAST, "10.60.0.1/24", "lo"),
        ] {
            lab::ip(&["-n", &lab.named(name), "address", "add", address, "dev", device])?;
        }
        let forwarding = Path::new("/proc/sys/net/ipv4/ip_forward");
        let hub = PathBuf::from("/run/netns").join(lab.hub());
        port::netns::within(hub.display().to_string(), || fs::write(forwarding, "1"))
            .map_err(|error| Failure::new("the demo's router", error, ""))?
            .map_err(|error| Failure::new(forwarding.display().to_string(), error, ""))?;
        let mut frr = Frr { daemons: Vec::new() };
        for (name, daemon, configuration) in DAEMONS {
            frr.daemons.push((daemon, run(lab, name, daemon, configuration)?));
            if daemon == "zebra" {
                await_file(&directory(lab, name).join("zserv.api"))?;
            }
        }
        Ok(frr)
    }

    /// Waits until the router has the routes of its neighbours, then pings through the router and returns the
    /// results.
    ///
    /// # Errors
    /// `ping` cannot be started, the daemon does not answer, or the kernel's counters cannot be read.
    pub async fn show(&self, lab: &Lab, client: &Client) -> Result<Routed, Failure> {
        let begin = Instant::now();
        let mut routed = Routed::default();
        while (routed.bgp < ANNOUNCED || routed.ospf == 0) && begin.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let routes: Vec<RouteEntry> = client.get("/v1/routers/edge/routes?limit=1000&table=main").await?;
            let by =
                |protocol: &str| routes.iter().filter(|route| route.protocol.to_string() == protocol).count();
            (routed.bgp, routed.ospf) = (by("bgp"), by("ospf"));
        }
        // East learns the prefixes behind west a moment later.
        while begin.elapsed() < PATIENCE && ping(lab, 1).await? == 0 {}
        let before = forwarded_by_kernel(lab)?;
        routed.sent = PINGS;
        routed.received = ping(lab, PINGS).await?;
        routed.by_kernel = forwarded_by_kernel(lab)?.saturating_sub(before);
        Ok(routed)
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // A killed FRR daemon does not notify its neighbours, which does not matter here.
        for (daemon, child) in &mut self.daemons {
            let pid = child.id();
            let _ = child.kill();
            let _ = child.wait();
            // FRR keeps this directory for crash logs.
            let _ = fs::remove_dir_all(Path::new("/var/tmp/frr").join(format!("{daemon}.{pid}")));
        }
    }
}

/// Returns the directory for the files of the FRR daemons of one namespace.
pub fn directory(lab: &Lab, name: &str) -> PathBuf {
    lab.directory().join(format!("frr-{name}"))
}

fn run(lab: &Lab, name: &str, daemon: &str, configuration: &str) -> Result<Child, Failure> {
    let directory = directory(lab, name);
    let failed = |error: std::io::Error| Failure::new(format!("FRR's {daemon}"), error, "run `make setup`");
    // FRR's daemons run as the user that the package creates.
    let made = Command::new("install")
        .args(["-d", "-m", "755", "-o", "frr", "-g", "frr"])
        .arg(&directory)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(failed(std::io::Error::other(said)));
    }
    let file = directory.join(format!("{daemon}.conf"));
    fs::write(&file, configuration).map_err(failed)?;
    let log = fs::File::create(directory.join(format!("{daemon}.log"))).map_err(failed)?;
    let errors = log.try_clone().map_err(failed)?;
    Lab::command(&lab.named(name), &format!("{FRR}/{daemon}"))
        .arg("-f")
        .arg(&file)
        .arg("-i")
        .arg(directory.join(format!("{daemon}.pid")))
        .arg("-z")
        .arg(directory.join("zserv.api"))
        .arg("--vty_socket")
        .arg(&directory)
        // Telnet is disabled.
        .args(["-P", "0", "--log", "stdout"])
        .stdout(Stdio::from(log))
        .stderr(Stdio::from(errors))
        // Ctrl-C is delivered to the demo only, which ends the daemons in order.
        .process_group(0)
        .spawn()
        .map_err(failed)
}

fn await_file(path: &Path) -> Result<(), Failure> {
    let begin = Instant::now();
    while !path.exists() {
        if begin.elapsed() > PATIENCE {
            let log = path.with_file_name("zebra.log");
            return Err(Failure::new("FRR's zebra", "it does not come up", format!("see {}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

async fn ping(lab: &Lab, count: u64) -> Result<u64, Failure> {
    let mut command = Lab::command(&lab.named(lab::WEST), "ping");
    command.args(["-n", "-q", "-i", "0.02", "-W", "1", "-I", FROM, "-c", &count.to_string(), TO]);
    let missing = |error: &dyn std::fmt::Display| Failure::new("ping", error, "run `make setup`");
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.map_err(|error| missing(&error))?;
    Ok(answered(&String::from_utf8_lossy(&output.map_err(|error| missing(&error))?.stdout)))
}

/// Returns the number of IPv4 packets that the kernel has forwarded in the router's namespace (RFC 4293,
/// ipForwDatagrams).
fn forwarded_by_kernel(lab: &Lab) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::new("the demo's router", error, "");
    let output = Lab::command(&lab.hub(), "cat").arg("/proc/self/net/snmp").output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return Ok(0) };
    let at = names.split(' ').position(|name| name == "ForwDatagrams").unwrap_or(usize::MAX);
    Ok(values.split(' ').nth(at).and_then(|value| value.parse().ok()).unwrap_or(0))
}
