//! The two switches under comparison. The test sends frames to their ports and records the output of each port.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;
use testbed::{Namespace, OvsdbServer, Process, RawSender, eventually};

use super::frames::{Frame, PORTS};
use super::rig::cables::{Cables, Output, Readers, deliver};
use super::rig::{PATIENCE, Rig};

/// Inputs through which the test sends frames to the ports of a switch.
enum Ways {
    /// Streams of OVS's dummy devices. A length of two octets precedes each frame.
    Streams(Vec<UnixStream>),
    /// The test's ends of the cables to Trivium's ports.
    Cables(Vec<RawSender>),
}

pub struct Switch {
    pub name: &'static str,
    pub socket: PathBuf,
    ways: Ways,
    outputs: Receiver<Output>,
    _readers: Option<Readers>,
}

impl Switch {
    pub fn send(&mut self, frame: &Frame) {
        let at = usize::from(frame.port) - 1;
        match &mut self.ways {
            Ways::Streams(streams) => {
                let length = (frame.bytes.len() as u16).to_be_bytes();
                streams[at].write_all(&[&length, frame.bytes.as_slice()].concat()).unwrap();
            }
            Ways::Cables(cables) => cables[at].send(&frame.bytes).unwrap(),
        }
    }

    /// Collects output until `is_last` accepts a frame, or until no frame has left for `quiet`.
    pub fn collect(&self, quiet: Duration, mut is_last: impl FnMut(&Output) -> bool) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            match self.outputs.recv_timeout(quiet) {
                Ok(output) => {
                    let last = is_last(&output);
                    outputs.push(output);
                    if last {
                        return outputs;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return outputs,
                Err(RecvTimeoutError::Disconnected) => panic!("{}: its ports are gone", self.name),
            }
        }
    }

    /// Runs `ovs-ofctl COMMAND ARGUMENTS`, and returns its standard output. If the command fails, the error contains
    /// its standard error output.
    pub fn ofctl(&self, version: &str, command: &[&str], arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("ovs-ofctl")
            .args(["-O", version, "--timeout=20"])
            .args(command)
            .arg(format!("unix:{}", self.socket.display()))
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Returns Trivium as a [`Switch`]. The switch's ports are the hub's ends of the cables.
    pub fn ours(rig: &Rig, wire: &Namespace) -> Switch {
        let Cables { senders, outputs, readers } = Cables::open(wire, PORTS);
        let ways = Ways::Cables(senders);
        Switch { name: "ours", socket: rig.path("br0.mgmt"), ways, outputs, _readers: Some(readers) }
    }
}

/// A real `ovs-vswitchd` with a bridge on its userspace datapath. The ports are dummy devices whose frames are
/// exchanged over stream sockets.
pub struct Ovs {
    directory: PathBuf,
    server: OvsdbServer,
    daemon: Option<Process>,
}

impl Ovs {
    pub fn start(rig: &Rig) -> Ovs {
        let directory = rig.path("ovs");
        let server = OvsdbServer::start(&directory).unwrap();
        // Rules of Trivium match two tags, too.
        server.vsctl(["--no-wait", "set", "open_vswitch", ".", "other_config:vlan-limit=2"]).unwrap();
        let mut command = Command::new("ovs-vswitchd");
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &directory);
        }
        command.arg(server.target()).args(["--enable-dummy", "-vconsole:off"]);
        command.arg(format!("--unixctl={}", directory.join("vswitchd.ctl").display()));
        let daemon = Process::start(command).unwrap();
        let ovs = Ovs { directory, server, daemon: Some(daemon) };
        let mut line = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
                        protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
            .to_owned();
        for port in 1..=PORTS {
            line += &format!(
                " -- add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port} options:pstream=punix:{}",
                ovs.path(port).display()
            );
        }
        ovs.vsctl(&line);
        ovs
    }

    fn path(&self, port: u8) -> PathBuf {
        self.directory.join(format!("p{port}.sock"))
    }

    pub fn switch(&self) -> Switch {
        let (sender, outputs) = channel();
        let mut streams = Vec::new();
        for port in 1..=PORTS {
            let stream = eventually("a device's stream", PATIENCE, || {
                UnixStream::connect(self.path(port)).map_err(|error| error.to_string())
            })
            .unwrap();
            let mut reader = stream.try_clone().unwrap();
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while reader.read_exact(&mut length).is_ok() {
                    deliver(port, u16::from_be_bytes(length).into(), &mut reader, &sender);
                }
            });
            streams.push(stream);
        }
        let socket = self.directory.join("br0.mgmt");
        Switch { name: "OVS", socket, ways: Ways::Streams(streams), outputs, _readers: None }
    }

    /// Removes all flows from OVS's caches, so that the caches cannot contradict the flow tables. An OpenFlow barrier
    /// does not guarantee this.
    pub fn settle(&self) {
        self.appctl(&["revalidator/purge"]);
    }

    /// Returns the path of the `ovs-appctl` socket.
    pub fn control(&self) -> PathBuf {
        self.directory.join("vswitchd.ctl")
    }

    /// Runs `ovs-vsctl`, which waits until the switch has applied the change.
    pub fn vsctl(&self, line: &str) {
        self.server.vsctl(line.split_whitespace()).unwrap();
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.stop(Signal::TERM, PATIENCE);
        }
    }
}
