//! Network namespaces of the demo. The daemon creates veth pairs between the namespaces, so all devices are
//! removed together with the namespaces.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::reaper::Reaper;
use cli::failure::Failure;

/// Number of the host that sends the UDP flood. The filter of the host's port drops the flood.
pub const FLOODER: u8 = 3;
/// Number of the host to which the UDP flood is sent.
pub const FLOODED: u8 = 4;
/// Destination UDP port of the flood ("discard", RFC 863).
pub const FLOOD_PORT: u16 = 9;

/// Number of hosts in the lab: two in VLAN 10, two in VLAN 20, and two on the OpenFlow bridge.
pub const HOSTS: u8 = 6;
/// Number of the first host on the OpenFlow bridge. The last host, which is also on this bridge, sends echo requests to
/// the first host continuously.
pub const RULED: u8 = 5;
/// Name of the OpenFlow bridge of the demo.
pub const RULES: &str = "of0";
/// Name of the router's neighbour that runs BGP.
pub const WEST: &str = "west";
/// Name of the router's neighbour that runs OSPF.
pub const EAST: &str = "east";
const PREFIX: &str = "trivium-demo-";
const COMMANDS: [(&str, &str); 4] =
    [("ip", "iproute2"), ("nsenter", "util-linux"), ("ping", "iputils-ping"), ("iperf3", "iperf3")];

/// The network namespaces of one demo, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    directory: PathBuf,
    /// Whether the lab has a router in addition to the bridges.
    routed: bool,
    // The field is dropped after the namespaces are removed.
    _reaper: Reaper,
}

/// Checks the requirements of the demo.
///
/// # Errors
/// A requirement is missing. The failure names the missing requirement.
pub fn check() -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let cause = "network namespaces and AF_XDP need root";
        return Err(Failure::new("demo", cause, "run it with sudo (`make run` does)"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there =
        |command: &str| std::env::split_paths(&path).any(|directory| directory.join(command).is_file());
    match COMMANDS.iter().find(|(command, _)| !there(command)) {
        None => Ok(()),
        Some((command, package)) => {
            let fix = format!("run `make setup`, or `apt-get install {package}`");
            Err(Failure::new("demo", format!("the command {command} is missing"), fix))
        }
    }
}

/// Removes the namespaces and files that killed demos have left.
pub fn sweep() {
    for place in ["/run/netns", "/run"] {
        let Ok(entries) = fs::read_dir(place) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(PREFIX).map(|rest| rest.split('-').next().unwrap_or(rest));
            let dead = |pid: &str| !pid.is_empty() && !Path::new("/proc").join(pid).exists();
            if let Some(pid) = pid.filter(|pid| dead(pid)) {
                remove_all(&format!("{PREFIX}{pid}"));
            }
        }
    }
}

/// Returns whether the text has the form of a prefix of a demo's namespace names.
pub fn is_prefix(text: &str) -> bool {
    text.strip_prefix(PREFIX)
        .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Removes a demo: kills the processes in the namespaces whose names begin with this prefix, and removes these
/// namespaces and the demo's directory.
pub fn remove_all(prefix: &str) {
    for name in names(prefix) {
        for pid in processes(&name) {
            // The processes are children of this demo or of a killed one.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _ = ip(&["netns", "del", &name]);
    }
    let _ = fs::remove_dir_all(Path::new("/run").join(prefix));
}

fn names(prefix: &str) -> Vec<String> {
    let hosts = (1..=HOSTS).map(|number| format!("h{number}"));
    let own = ["hub", WEST, EAST].map(str::to_owned).into_iter().chain(hosts);
    own.map(|name| format!("{prefix}-{name}"))
        .filter(|name| Path::new("/run/netns").join(name).exists())
        .collect()
}

fn processes(namespace: &str) -> Vec<Pid> {
    let Ok(output) = Command::new("ip").args(["netns", "pids", namespace]).stderr(Stdio::null()).output()
    else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = rustix::process::getpid();
    text.split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .filter(|pid| *pid != own)
        .collect()
}

/// Runs the command `ip` with these arguments.
///
/// # Errors
/// `ip` cannot be started or fails. The failure contains the error output of `ip`.
pub fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let line = format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(line.clone(), error, "run `make setup`"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(line, said, "run it as root, with a kernel that has network namespaces"))
}

impl Lab {
    /// Creates the namespaces, and starts the process that cleans up if this process is killed.
    ///
    /// # Errors
    /// A step fails. Everything created so far is removed.
    pub fn build(routed: bool) -> Result<Lab, Failure> {
        let prefix = format!("{PREFIX}{}", std::process::id());
        let directory = Path::new("/run").join(&prefix);
        let lab = Lab { _reaper: Reaper::start(&prefix)?, prefix, directory, routed };
        fs::create_dir_all(&lab.directory)
            .map_err(|error| Failure::new(lab.directory.display().to_string(), error, "make room in /run"))?;
        let neighbours = [WEST, EAST].into_iter().filter(|_| routed).map(|name| lab.named(name));
        let hosts = (1..=HOSTS).map(|number| lab.namespace(number));
        for name in std::iter::once(lab.hub()).chain(hosts).chain(neighbours) {
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "dev", "lo", "up"])?;
        }
        Ok(lab)
    }

    /// Returns the name of the network namespace in which the daemon runs.
    pub fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    /// Returns the full name of the lab's network namespace with the short name `name` (such as `west`).
    pub fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Returns the name of a host's network namespace. Hosts are numbered from 1.
    pub fn namespace(&self, host: u8) -> String {
        format!("{}-h{host}", self.prefix)
    }

    /// Returns the IPv4 address of a host in text form.
    pub fn address(host: u8) -> String {
        format!("10.99.0.{host}")
    }

    /// Returns the VLAN id of a host's port.
    pub fn vlan(host: u8) -> u16 {
        match host {
            ..=2 => 10,
            3..RULED => 20,
            RULED.. => 30,
        }
    }

    /// Returns the name of the bridge to which a host is connected.
    fn bridge(host: u8) -> &'static str {
        if host < RULED { "br0" } else { RULES }
    }

    /// Returns the connection target of the OpenFlow bridge for `ovs-ofctl`.
    pub fn rules(&self) -> String {
        format!("unix:{}/{RULES}.mgmt", self.directory.display())
    }

    /// Returns whether the lab has a router in addition to the bridges.
    pub fn is_routed(&self) -> bool {
        self.routed
    }

    /// Returns the directory that contains the daemon's socket, configuration and log.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a command that will run a program in a network namespace. The command is not started.
    pub fn command(namespace: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Returns the end points of the TCP traffic: the client's namespace, the server's namespace, and the server's
    /// address.
    pub fn tcp_ends(&self) -> (String, String, String) {
        (self.namespace(1), self.namespace(2), Self::address(2))
    }

    /// Returns the text of the daemon's configuration file.
    pub fn configuration(&self) -> String {
        let directory = self.directory.display();
        let mut text = format!(
            "# Written by `trivium demo`.\n[daemon]\napi = \"{directory}/trivium.sock\"\n\
             state_dir = \"{directory}\"\n\n[memory]\nframes = 32768\n\n[bridge.br0]\nsnooping = true\n\n\
             [bridge.{RULES}.openflow]\nfail_mode = \"standalone\"\n"
        );
        for host in 1..=HOSTS {
            let (namespace, address, vlan) = (self.namespace(host), Self::address(host), Self::vlan(host));
            let bridge = Self::bridge(host);
            text.push_str(&format!(
                "\n[port.h{host}]\nkind = \"veth\"\ndevice = \"h{host}\"\npersist = false\n\
                 peer = {{ name = \"eth0\", namespace = \"{namespace}\", address = [\"{address}/24\"] }}\n\
                 [bridge.{bridge}.port.h{host}]\naccess = {vlan}\n"
            ));
        }
        text = text.replace(
            &format!("device = \"h{FLOODER}\"\n"),
            &format!("device = \"h{FLOODER}\"\nfilter = \"flood\"\n"),
        );
        text.push_str(&format!(
            "\n[[filter.flood.rule]]\nname = \"discard\"\naction = \"drop\"\nprotocol = \"udp\"\n\
             destination_port = {FLOOD_PORT}\n"
        ));
        if self.routed {
            let mut routed = include_str!("../../../examples/frr/trivium.toml").to_owned();
            for name in [WEST, EAST] {
                let namespace = self.named(name);
                routed = routed
                    .replace(&format!("namespace = \"{name}\""), &format!("namespace = \"{namespace}\""))
                    .replace(
                        &format!("device = \"{name}\"\n"),
                        &format!("device = \"{name}\"\npersist = false\n"),
                    );
            }
            text.push('\n');
            text.push_str(&routed);
        }
        text
    }

    /// Returns a drawing of the lab in text form.
    pub fn picture(&self) -> String {
        let bridge = "\n  h1 10.99.0.1 --veth--+                          +--veth-- h3 10.99.0.3\n\
                      \x20                      |  br0: VLAN 10 | VLAN 20  |\n\
                      \x20 h2 10.99.0.2 --veth--+   (trivium, AF_XDP)      +--veth-- h4 10.99.0.4\n\
                      \n  h5 10.99.0.5 --veth---- of0: OpenFlow's rules ------veth-- h6 10.99.0.6\n";
        let router = "\n  100 prefixes             +--------- edge ---------+\n\
                      \x20 west 10.98.1.2 --BGP--+  FRR, Trivium's router  +--OSPF-- east 10.98.2.2 -- 10.60.0.1\n";
        if self.routed { format!("{bridge}{router}") } else { bridge.to_owned() }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove_all(&self.prefix);
    }
}

/// Runs the clean-up process of [`Reaper`], which waits for the end of the demo and removes the lab.
pub fn reap(prefix: &str) {
    let mut nothing = [0];
    while matches!(std::io::stdin().read(&mut nothing), Ok(read) if read > 0) {}
    if is_prefix(prefix) {
        remove_all(prefix);
    }
}
