//! Shared parts of the tests of the real binary: a lab with hosts that are connected to a hub namespace, and the daemon
//! in the hub.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testbed::{Host, Lab, Process, eventually};

pub mod cables;
pub mod filters;
pub mod frr;
pub mod leak;

/// Maximum time for an operation on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Bearer token for the API over TCP.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Path of the binary under test.
pub const TRIVIUM: &str = env!("CARGO_BIN_EXE_trivium");

/// A lab with the hosts h1, h2 and so on, a directory for files, and an optional daemon.
pub struct Rig {
    pub hosts: Vec<Host>,
    pub lab: Lab,
    pub directory: PathBuf,
    pub daemon: Option<Process>,
    /// Lock of tests that count every packet. These tests run one at a time, because they share queues of the kernel.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Rig {
    /// Creates hosts with the addresses 10.8.0.1, 10.8.0.2 and so on, whose devices in the hub are h1, h2 and
    /// so on.
    pub fn new(hosts: u8) -> Rig {
        Rig::with_queues(hosts, 1)
    }

    /// Like [`Rig::new`], with `queues` queues on both ends of each host's cable.
    pub fn with_queues(hosts: u8, queues: u32) -> Rig {
        let addresses: Vec<String> = (1..=hosts).map(|number| format!("10.8.0.{number}/24")).collect();
        Rig::with_addresses(&addresses, queues)
    }

    /// Creates hosts in separate networks (10.8.N.2 and fd00:8:N::2), between which the hub routes. The
    /// hosts' devices accept frames that the hub's hooks redirect.
    pub fn routed(hosts: u8) -> Rig {
        let addresses: Vec<String> = (1..=hosts).map(|number| format!("10.8.{number}.2/24")).collect();
        let rig = Rig::with_addresses(&addresses, 1);
        let hub = rig.lab.hub();
        hub.run(["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).unwrap();
        for (host, number) in rig.hosts.iter().zip(1..) {
            rig.join(host, number);
        }
        rig
    }

    /// Adds the addresses of the hub in the network of a host, and routes from the host through the hub.
    pub fn join(&self, host: &Host, number: u8) {
        let (hub, device) = (self.lab.hub(), host.device());
        hub.run(["ip", "address", "add", &format!("10.8.{number}.1/24"), "dev", device]).unwrap();
        hub.run(["sysctl", "-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]).unwrap();
        hub.run(["ip", "address", "add", &format!("fd00:8:{number}::1/64"), "dev", device, "nodad"]).unwrap();
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
        // On a veth device, frames of workers and frames of the hook stay in order only without TSO.
        hub.run(["ethtool", "-K", device, "tso", "off"]).unwrap();
        host.add_ipv6(&format!("fd00:8:{number}::2/64")).unwrap();
        host.run(["ip", "route", "add", "default", "via", &format!("10.8.{number}.1")]).unwrap();
        host.run(["ip", "-6", "route", "add", "default", "via", &format!("fd00:8:{number}::1")]).unwrap();
    }

    fn with_addresses(addresses: &[String], queues: u32) -> Rig {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::new().unwrap();
        let hosts: Vec<Host> = (1..)
            .zip(addresses)
            .map(|(number, address)| lab.host_with_queues(&format!("h{number}"), address, queues).unwrap())
            .collect();
        let directory = std::env::temp_dir().join(lab.namespace_name("files"));
        std::fs::create_dir_all(&directory).unwrap();
        Rig { hosts, lab, directory, daemon: None, _alone: alone }
    }

    /// Returns the path of a file in this rig's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of the API socket.
    pub fn socket(&self) -> PathBuf {
        self.path("api.sock")
    }

    /// Returns a configuration with one af_xdp port for each host, all in VLAN 10 of one bridge. `extra` is
    /// added to every port.
    pub fn configuration(&self, extra: &str) -> String {
        let vlans: Vec<u16> = self.hosts.iter().map(|_| 10).collect();
        self.configuration_with(extra, &vlans)
    }

    /// Like [`Rig::configuration`], with a given access VLAN for each host. A host with VLAN 0 is not a member of the
    /// bridge.
    pub fn configuration_with(&self, extra: &str, vlans: &[u16]) -> String {
        let mut text = format!(
            "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 32768\nhuge_pages = \"off\"\n[bridge.br0]\n",
            self.socket(),
            self.path("state")
        );
        for (host, vlan) in self.hosts.iter().zip(vlans).filter(|(_, vlan)| **vlan != 0) {
            let name = host.device();
            let _ = write!(
                text,
                "[port.{name}]\nkind = \"af_xdp\"\ndevice = \"{name}\"\n{extra}\n[bridge.br0.port.{name}]\naccess = {vlan}\n"
            );
        }
        text
    }

    /// Writes a file into the rig's directory and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Starts the daemon in the hub and waits until it is ready.
    pub fn start(&mut self, configuration: &str) {
        self.start_with(configuration, &[]);
    }

    /// Like [`Rig::start`], with environment variables.
    pub fn start_with(&mut self, configuration: &str, variables: &[(&str, &str)]) {
        self.launch(configuration, variables);
        self.daemon().wait_for_line("ready:", PATIENCE).unwrap();
    }

    /// Like [`Rig::start_with`], without waiting.
    pub fn launch(&mut self, configuration: &str, variables: &[(&str, &str)]) {
        let file = self.write("trivium.toml", configuration);
        let mut command = self.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
        command.envs(variables.iter().copied());
        self.daemon = Some(Process::start(command).unwrap());
    }

    /// Returns the running daemon.
    pub fn daemon(&mut self) -> &mut Process {
        self.daemon.as_mut().unwrap()
    }

    /// Runs a client command.
    pub fn trivium(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(TRIVIUM);
        command.env("TRIVIUM_SOCKET", self.socket()).args(arguments).output().unwrap()
    }

    /// Runs a client command that must succeed, and returns its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.trivium(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Sends a PUT request to the API, and returns the answer with its head.
    pub fn put(&self, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nhost: trivium\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the state of a port from `show ports NAME --json`.
    pub fn port(&self, name: &str) -> serde_json::Value {
        let all: serde_json::Value =
            serde_json::from_str(&self.ok(&["show", "ports", name, "--json"])).unwrap();
        all[0].clone()
    }

    /// Returns a counter of a port's hook.
    pub fn hook_counter(&self, port: &str, counter: &str) -> u64 {
        let hooks: serde_json::Value =
            serde_json::from_str(&self.ok(&["xdp", "status", port, "--seconds", "0", "--json"])).unwrap();
        let counters = hooks[0]["counters"].clone();
        let found = counters.as_array().and_then(|list| list.iter().find(|pair| pair[0] == counter));
        found.map_or_else(|| counters[counter].as_u64(), |pair| pair[1].as_u64()).unwrap()
    }

    /// Waits until the state of a port satisfies the condition.
    pub fn port_until(&self, name: &str, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        eventually(&format!("{name}: {what}"), PATIENCE, || {
            let port = self.port(name);
            if condition(&port) { Ok(()) } else { Err(port.to_string()) }
        })
        .unwrap();
    }

    /// Returns the MAC tables: address, VLAN and port of every entry.
    pub fn stations(&self) -> BTreeSet<(String, u64, String)> {
        let all: Vec<serde_json::Value> = serde_json::from_str(&self.ok(&["show", "fdb", "--json"])).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        all.iter()
            .map(|entry| (text(&entry["mac"]), entry["vlan"].as_u64().unwrap(), text(&entry["port"])))
            .collect()
    }

    /// Returns the number of packets received on a port that were dropped for this reason.
    pub fn dropped(&self, port: &str, reason: &str) -> u64 {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(&self.ok(&["show", "drops", port, "--json"])).unwrap();
        let counted = all.iter().find(|drop| drop["reason"] == reason);
        counted.map_or(0, |drop| drop["packets"].as_u64().unwrap())
    }

    /// Returns the configuration of the API over TCP on an address of the hub, with a certificate, a key and [`TOKEN`]
    /// in files.
    pub fn tcp_api(&self, listen: &str) -> String {
        let (cert, key, token) = (self.path("cert.pem"), self.path("key.pem"), self.path("token"));
        let ip = listen.split(':').next().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-addext", &format!("subjectAltName=IP:{ip}")])
            .args(["-keyout", key.to_str().unwrap(), "-out", cert.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        format!("[daemon.tcp]\nlisten = {listen:?}\ncert = {cert:?}\nkey = {key:?}\ntoken_file = {token:?}\n")
    }

    /// Waits until one host reaches another.
    pub fn until_reachable(&self, from: usize, to: usize) {
        let (from, to) = (&self.hosts[from - 1], &self.hosts[to - 1]);
        let what = format!("{} reaching {}", from.ip(), to.ip());
        eventually(&what, PATIENCE, || if from.reaches(to) { Ok(()) } else { Err(String::new()) }).unwrap();
    }

    /// Adds permanent neighbour entries, so that each host knows the MAC addresses of all other hosts.
    pub fn pin_neighbours(&self) {
        for one in &self.hosts {
            for other in self.hosts.iter().filter(|other| other.ip() != one.ip()) {
                one.pin_neighbour(other).unwrap();
            }
        }
    }

    /// Returns the names of the pins in the BPF file system that belong to devices in this rig's hub, in alphabetical
    /// order.
    pub fn pins(&self) -> Vec<String> {
        let inode = self.lab.hub().run(["stat", "-Lc", "%i", "/proc/self/ns/net"]).unwrap();
        let part = format!("-{}-", inode.trim());
        let Ok(entries) = std::fs::read_dir("/sys/fs/bpf/trivium") else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.contains(&part)).collect();
        names.sort();
        names
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.daemon = None;
        for pin in self.pins() {
            let directory = Path::new("/sys/fs/bpf/trivium").join(pin);
            // The link is removed first, so that nothing refers to the maps.
            let _ = std::fs::remove_file(directory.join("link"));
            let _ = std::fs::remove_dir_all(&directory);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
