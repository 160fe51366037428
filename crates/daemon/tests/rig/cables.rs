//! Cables that connect the ports of a bridge to one namespace. The test sends frames into its ends of the cables, and
//! receives each frame that leaves the bridge, including its VLAN tags.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use testbed::{Namespace, RawSender};

use super::Rig;

/// Port number and content of a frame that leaves a bridge.
pub type Output = (u8, Vec<u8>);

/// The ends of the cables in the test's namespace.
pub struct Cables {
    /// Senders of frames into the ports of the bridge, one per port, beginning with port 1.
    pub senders: Vec<RawSender>,
    pub outputs: Receiver<Output>,
    pub readers: Readers,
}

/// Processes that read the output. They are ended when this value is dropped.
pub struct Readers(Vec<Child>);

impl Drop for Readers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Creates cables without offloads between the devices h1, h2 and so on in the hub and the devices w1, w2 and so on in
/// a new namespace.
pub fn lay(rig: &Rig, ports: u8) -> Namespace {
    let wire = rig.lab.namespace("wire").unwrap();
    let hub = rig.lab.hub();
    for port in 1..=ports {
        let line = format!("ip link add h{port} type veth peer w{port} netns {}", wire.name());
        hub.run(line.split(' ')).unwrap();
        hub.run(["ip", "link", "set", &format!("h{port}"), "up"]).unwrap();
        wire.run(["ip", "link", "set", &format!("w{port}"), "arp", "off", "up"]).unwrap();
        for (place, device) in [(hub, format!("h{port}")), (&wire, format!("w{port}"))] {
            let offloads = ["tx", "rx", "tso", "gso", "gro"].map(|name| [name, "off"]);
            place.run(["ethtool", "-K", &device].into_iter().chain(offloads.concat())).unwrap();
        }
    }
    wire
}

impl Cables {
    /// Opens the ends of the cables. Each frame that arrives later is added to the outputs.
    pub fn open(wire: &Namespace, ports: u8) -> Cables {
        let (sender, outputs) = channel();
        let (mut senders, mut children) = (Vec::new(), Vec::new());
        for port in 1..=ports {
            let end = format!("w{port}");
            senders.push(RawSender::open(wire, &end).unwrap());
            // tcpdump restores tags that the kernel has removed from a frame.
            let line = format!("tcpdump -i {end} -Q in --immediate-mode -B 16384 -U -n -s 0 -w -");
            let mut command = wire.command(line.split(' '));
            let mut child =
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut stream = child.stdout.take().unwrap();
            children.push(child);
            // The file header arrives once tcpdump listens.
            let mut head = [0; 24];
            stream.read_exact(&mut head).unwrap();
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut head = [0; 16];
                while stream.read_exact(&mut head).is_ok() {
                    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
                    deliver(port, length as usize, &mut stream, &sender);
                }
            });
        }
        Cables { senders, outputs, readers: Readers(children) }
    }
}

/// Reads a frame of `length` octets from `stream`, and sends it with the port number to the channel `to`.
pub fn deliver(port: u8, length: usize, stream: &mut impl Read, to: &Sender<Output>) {
    let mut frame = vec![0; length];
    if stream.read_exact(&mut frame).is_ok() {
        let _ = to.send((port, frame));
    }
}
