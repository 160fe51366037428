//! Runner of golden tests. A golden test runs the daemon with a configuration and input packets. The runner returns the
//! output packets and all drops as text, and the test compares the text with the expected output of the case. The real
//! binary runs with `pcap` ports, without privileges.
//!
//! A case is a directory with these files:
//! - `config.toml`, whose ports are of kind `pcap`. `@DIR@` represents the directory of the run. The port `x` reads
//!   `@DIR@/x.in.pcap` with `timing = "file"` and writes `@DIR@/x.out.pcapng`.
//! - `traffic.txt` with lines `PORT PACKET` in order of arrival. PACKET has the syntax of `trivium explain`.
//! - `expected.txt` with lines `PORT > PACKET` in hexadecimal digits, by port, then lines `PORT ! REASON
//!   COUNT`.
//!
//! With `TRIVIUM_BLESS=1` in the environment, a test writes `expected.txt` instead of comparing. The file must be
//! reviewed before it is committed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use packet::spec;
use port::pcap::{Reader, Writer};
use rustix::process::Signal;

use crate::{LabError, Process, eventually};

/// Interval between two input packets. The interval is long enough for the daemon to process a packet before the next
/// packet arrives on another port.
const STEP: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between the frame [`CLOCK`] of a port and the first input packet. All ports open within this time.
const LEAD: Duration = Duration::from_secs(1);
/// First frame that each port receives, in the syntax of `trivium explain`. The receive times of the port's input
/// packets are relative to this frame. A bridge never forwards the frame.
const CLOCK: &str = "eth_src=02:00:00:00:ff:ff,eth_dst=01:80:c2:00:00:0e,eth_type=0x88cc";
/// Reasons for which a bridge port drops the frame [`CLOCK`]. The second reason applies if the frame arrives
/// before the port is a member of the bridge.
const CLOCK_REASONS: [&str; 2] = ["reserved-multicast", "no-function"];

/// One golden test case: a configuration, input packets and the expected output.
#[derive(Clone, Debug)]
pub struct Case {
    directory: PathBuf,
    config: String,
    traffic: Vec<(String, Vec<u8>)>,
}

/// Returns all cases in a directory, sorted by path.
///
/// # Errors
/// Returns an error if a case cannot be read or contains an invalid packet.
pub fn cases(root: &Path) -> Result<Vec<Case>, LabError> {
    let system = |error: std::io::Error| LabError::system(root.display().to_string(), error);
    let mut directories: Vec<PathBuf> = fs::read_dir(root)
        .map_err(system)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    directories.sort();
    directories.into_iter().map(Case::read).collect()
}

impl Case {
    fn read(directory: PathBuf) -> Result<Case, LabError> {
        let text = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|error| LabError::system(path.display().to_string(), error))
        };
        let mut traffic = Vec::new();
        let lines = text("traffic.txt")?;
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = |what: String| LabError::Output { command: line.to_owned(), output: what };
            let (port, packet) =
                line.split_once(' ').ok_or_else(|| wrong("PORT PACKET is expected".to_owned()))?;
            let frame = spec::parse(packet.trim()).map_err(|error| wrong(error.to_string()))?;
            traffic.push((port.to_owned(), frame));
        }
        Ok(Case { config: text("config.toml")?, directory, traffic })
    }

    /// Returns the name of the case, which is the name of its directory.
    pub fn name(&self) -> String {
        self.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the expected output of the case.
    ///
    /// # Errors
    /// Returns an error if `expected.txt` does not exist. The file must first be written with
    /// [`Case::bless`].
    pub fn expected(&self) -> Result<String, LabError> {
        let path = self.directory.join("expected.txt");
        fs::read_to_string(&path).map_err(|error| LabError::system(path.display().to_string(), error))
    }

    /// Writes `result` as the expected output.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn bless(&self, result: &str) -> Result<(), LabError> {
        let path = self.directory.join("expected.txt");
        fs::write(&path, result).map_err(|error| LabError::system(path.display().to_string(), error))
    }

    /// Returns the names of the ports in the configuration, in the order of the file.
    fn ports(&self) -> Vec<String> {
        let names =
            self.config.lines().filter_map(|line| line.trim().strip_prefix("[port.")?.strip_suffix(']'));
        names.map(str::to_owned).collect()
    }

    /// Runs the daemon `binary` with the configuration and the packets of the case. `directory` is created
    /// for the files of the run. Returns the output packets and drops as text.
    ///
    /// # Errors
    /// Returns an error if the daemon does not start, or does not receive all packets.
    pub fn run(&self, binary: &str, directory: &Path) -> Result<String, LabError> {
        let system = |error: std::io::Error| LabError::system(directory.display().to_string(), error);
        fs::create_dir_all(directory).map_err(system)?;
        for port in self.ports() {
            self.write_input(&port, directory).map_err(system)?;
        }
        let socket = directory.join("api.sock");
        let head = format!(
            "[daemon]\napi = {socket:?}\nstate_dir = {:?}\n[memory]\nframes = 8192\nhuge_pages = \"off\"\n",
            directory.join("state")
        );
        let file = directory.join("trivium.toml");
        let config = self.config.replace("@DIR@", &directory.display().to_string());
        fs::write(&file, head + &config).map_err(system)?;
        let mut command = Command::new(binary);
        command.args(["run", "-c"]).arg(&file);
        let mut daemon = Process::start(command)?;
        daemon.wait_for_line("ready:", PATIENCE)?;
        let ask = |arguments: &[&str]| ask(binary, &socket, arguments);
        let wanted = self.traffic.len() + self.ports().len();
        eventually("all packets to be received", PATIENCE, || {
            let ports = ask(&["show", "ports", "--json"]).map_err(|error| error.to_string())?;
            let received: u64 =
                list(&ports).iter().filter_map(|port| port["counters"]["rx_packets"].as_u64()).sum();
            if received >= u64::try_from(wanted).unwrap_or(u64::MAX) {
                Ok(())
            } else {
                Err(format!("{received}"))
            }
        })?;
        let drops = ask(&["show", "drops", "--json"])?;
        let (status, output) = daemon.stop(Signal::TERM, PATIENCE)?;
        if !status.success() {
            return Err(LabError::Failed { command: binary.to_owned(), status: status.to_string(), output });
        }
        self.tell(directory, &list(&drops))
    }

    fn write_input(&self, port: &str, directory: &Path) -> std::io::Result<()> {
        let file = BufWriter::new(File::create(directory.join(format!("{port}.in.pcap")))?);
        let mut writer = Writer::classic(file)?;
        let interface = writer.interface(port)?;
        let mut write = |at: Duration, frame: &[u8]| {
            let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            // The absolute time is arbitrary, because only intervals matter.
            let at = 1_000_000_000_000_000_000 + u64::try_from(at.as_nanos()).unwrap_or(0);
            writer.packet(interface, at, length, [frame], None)
        };
        write(Duration::ZERO, &spec::parse(CLOCK).unwrap_or_default())?;
        for (number, (to, frame)) in (0_u32..).zip(&self.traffic) {
            if to == port {
                write(LEAD + STEP * number, frame)?;
            }
        }
        writer.flush()
    }

    fn tell(&self, directory: &Path, drops: &[serde_json::Value]) -> Result<String, LabError> {
        let mut text = String::new();
        for port in self.ports() {
            let path = directory.join(format!("{port}.out.pcapng"));
            let broken =
                |error: String| LabError::Output { command: path.display().to_string(), output: error };
            let Ok(file) = File::open(&path) else { continue };
            let mut reader = Reader::new(BufReader::new(file)).map_err(|error| broken(error.to_string()))?;
            while let Some(record) = reader.next_record().map_err(|error| broken(error.to_string()))? {
                let digits: String = record.data.iter().map(|byte| format!("{byte:02x}")).collect();
                text.push_str(&format!("{port} > {digits}\n"));
            }
        }
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for drop in drops {
            let word = |key: &str| drop[key].as_str().unwrap_or_default().to_owned();
            *counts.entry((word("port"), word("reason"))).or_default() +=
                drop["packets"].as_u64().unwrap_or(0);
        }
        for port in self.ports() {
            // The clock frame of each port is not part of the case.
            let key = |reason: &str| (port.clone(), reason.to_owned());
            let early =
                CLOCK_REASONS.iter().rev().map(|reason| key(reason)).find(|key| counts.contains_key(key));
            if let Some(count) = early.and_then(|key| counts.get_mut(&key)) {
                *count -= 1;
            }
        }
        for ((port, reason), count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            text.push_str(&format!("{port} ! {reason} {count}\n"));
        }
        Ok(text)
    }
}

fn ask(binary: &str, socket: &Path, arguments: &[&str]) -> Result<String, LabError> {
    let mut command = Command::new(binary);
    command.arg("--socket").arg(socket).args(arguments);
    let output = crate::namespace::run_command(&mut command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn list(text: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(text).unwrap_or_default()
}
