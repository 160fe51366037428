//! Sends datagrams from a host through a port's device to a socket of the hub's kernel. The tests use this to detect
//! packets that pass the device although a filter should drop them.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use testbed::{Host, wait_until};

use super::{PATIENCE, Rig};

/// IP address of the hub's socket, which is assigned to the device of a port.
const HUB: &str = "10.8.0.101";

/// A thread that sends datagrams from a host, and the hub's socket that receives them. Both end when this value is
/// dropped.
pub struct Leak {
    sent: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    socket: UdpSocket,
}

impl Leak {
    /// Starts to send datagrams from the host to an address on the host's device in the hub.
    pub fn start(rig: &Rig, host: &Host) -> Leak {
        let (hub, device) = (rig.lab.hub(), host.device());
        hub.run(["ip", "address", "add", &format!("{HUB}/24"), "dev", device]).unwrap();
        let shown: serde_json::Value =
            serde_json::from_str(&hub.run(["ip", "-j", "link", "show", "dev", device]).unwrap()).unwrap();
        let mac = shown[0]["address"].as_str().unwrap();
        host.run(["ip", "neigh", "replace", HUB, "lladdr", mac, "dev", "eth0"]).unwrap();
        let socket = hub.inside(|| Ok(UdpSocket::bind((HUB, 7)).unwrap())).unwrap();
        socket.set_nonblocking(true).unwrap();
        let out = host.inside(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
        out.connect((HUB, 7)).unwrap();
        let (sent, has_ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let sender = std::thread::spawn({
            let (sent, has_ended) = (Arc::clone(&sent), Arc::clone(&has_ended));
            move || {
                while !has_ended.load(Ordering::Relaxed) {
                    // The device is down for a moment when its settings change.
                    if out.send(b"leak").is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        });
        Leak { sent, has_ended, sender: Some(sender), socket }
    }

    /// Waits until at least 100 more datagrams were sent, and returns the number of datagrams that arrived since the
    /// last call.
    pub fn arrived(&self) -> usize {
        let before = self.sent.load(Ordering::Relaxed);
        wait_until("datagrams", PATIENCE, || self.sent.load(Ordering::Relaxed) > before + 100).unwrap();
        let mut octets = [0; 8];
        std::iter::from_fn(|| self.socket.recv(&mut octets).ok()).count()
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}
