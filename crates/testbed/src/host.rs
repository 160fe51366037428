//! A host of a lab: a namespace with one Ethernet device, as real as a Linux host can be.

use std::ops::Deref;

use crate::{Lab, LabError, Namespace, PingReport, ping};

/// A namespace with a device `eth0` whose other end is in the lab's hub.
#[derive(Clone, Debug)]
pub struct Host {
    namespace: Namespace,
    name: String,
    address: String,
}

impl Deref for Host {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Host {
    pub(crate) fn create(lab: &Lab, name: &str, address: &str, queues: u32) -> Result<Self, LabError> {
        let namespace = lab.namespace(name)?;
        let host = Host { namespace, name: name.to_owned(), address: address.to_owned() };
        host.plug(lab.hub(), queues, None, &[])?;
        Ok(host)
    }

    /// Joins it to the hub by a new cable, as at first: for a test that has deleted the old one. The addresses of `neighbours` are known
    /// before the device is up: packets that wait for a neighbour's address leave behind later ones, which do not wait.
    ///
    /// # Errors
    /// If one of the names is taken.
    pub fn plug_again(&self, hub: &Namespace, mac: &str, neighbours: &[&Host]) -> Result<(), LabError> {
        self.plug(hub, 1, Some(mac), neighbours)
    }

    /// A pair of devices with so many queues each way.
    fn plug(
        &self,
        hub: &Namespace,
        queues: u32,
        mac: Option<&str>,
        neighbours: &[&Host],
    ) -> Result<(), LabError> {
        let count = queues.to_string();
        // Without a number one is in use, and `ethtool -L` can have more.
        let many = || ["numtxqueues", &count, "numrxqueues", &count].into_iter().filter(|_| queues > 1);
        let mut line = vec!["ip", "link", "add", "name", self.name.as_str()];
        line.extend(many());
        line.extend(["type", "veth", "peer", "name", "eth0"]);
        line.extend(mac.iter().flat_map(|mac| ["address", mac]));
        line.extend(many());
        line.extend(["netns", self.namespace.name()]);
        hub.run(line)?;
        hub.run(["ip", "link", "set", "dev", &self.name, "up"])?;
        self.offloads("off")?;
        self.run(["ip", "address", "add", &self.address, "dev", "eth0"])?;
        neighbours.iter().try_for_each(|other| self.pin_neighbour(other))?;
        self.run(["ip", "link", "set", "eth0", "up"])?;
        Ok(())
    }

    /// Switches checksum and segmentation offload of its device ("on", "off").
    ///
    /// # Errors
    /// Whatever ethtool says.
    pub fn offloads(&self, state: &str) -> Result<(), LabError> {
        self.run(["ethtool", "-K", "eth0", "tx", state, "tso", state, "gso", state, "gro", "off"]).map(drop)
    }

    /// Gives its device an IPv6 address as well ("fd00::1/64"), which is usable at once.
    ///
    /// # Errors
    /// Whatever `sysctl` or `ip` says.
    pub fn add_ipv6(&self, address: &str) -> Result<(), LabError> {
        self.run(["sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0", "net.ipv6.conf.eth0.disable_ipv6=0"])?;
        self.run(["ip", "address", "add", address, "dev", "eth0", "nodad"]).map(drop)
    }

    /// Its device in the hub has this name.
    pub fn device(&self) -> &str {
        &self.name
    }

    /// Its address without the prefix length.
    pub fn ip(&self) -> &str {
        self.address.split('/').next().unwrap_or(&self.address)
    }

    /// The Ethernet address of its device.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn mac(&self) -> Result<String, LabError> {
        // Not from /sys: it shows the namespace in which it was mounted.
        let line = self.run(["ip", "-o", "link", "show", "eth0"])?;
        let mut words = line.split_whitespace().skip_while(|word| *word != "link/ether");
        words
            .nth(1)
            .map(str::to_owned)
            .ok_or(LabError::Output { command: "ip -o link show eth0".into(), output: line })
    }

    /// Writes the neighbour's address down, so that no ARP is needed.
    ///
    /// # Errors
    /// If either device is gone.
    pub fn pin_neighbour(&self, other: &Host) -> Result<(), LabError> {
        let mac = other.mac()?;
        self.run([
            "ip",
            "neighbour",
            "replace",
            other.ip(),
            "lladdr",
            &mac,
            "nud",
            "permanent",
            "dev",
            "eth0",
        ])
        .map(drop)
    }

    /// Sends `count` echo requests 10 ms apart.
    ///
    /// # Errors
    /// If not a single reply came.
    pub fn ping(&self, to: &str, count: u32) -> Result<PingReport, LabError> {
        ping::ping(self, to, count)
    }

    /// Whether one of `tries` echo requests is answered.
    pub fn reaches(&self, to: &Host) -> bool {
        self.ping(to.ip(), 3).is_ok_and(|report| report.received > 0)
    }
}
