//! A host in a lab: a namespace with one Ethernet device.

use std::ops::Deref;

use crate::{LabError, Namespace, PingReport, ping};

/// A namespace with a device `eth0`. The other end of the device's veth pair is in the lab's hub namespace.
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
    /// Creates a host from a namespace, and connects the host to the hub namespace by a veth pair.
    pub(crate) fn create(
        namespace: Namespace,
        hub: &Namespace,
        name: &str,
        address: &str,
        queues: u32,
    ) -> Result<Self, LabError> {
        let host = Host { namespace, name: name.to_owned(), address: address.to_owned() };
        host.plug(hub, queues, None, &[])?;
        Ok(host)
    }

    /// Connects the host to the hub namespace by a new veth pair, after a test has deleted the old one. Neighbour
    /// entries for `neighbours` are added before the device is up. Otherwise address resolution would delay the first
    /// packets, and later packets would overtake them.
    ///
    /// # Errors
    /// Returns an error if the host still has a device `eth0`, or the hub has a device with the host's name.
    pub fn plug_again(&self, hub: &Namespace, mac: &str, neighbours: &[&Host]) -> Result<(), LabError> {
        self.plug(hub, 1, Some(mac), neighbours)
    }

    /// Creates the veth pair with `queues` receive and transmit queues on both devices.
    fn plug(
        &self,
        hub: &Namespace,
        queues: u32,
        mac: Option<&str>,
        neighbours: &[&Host],
    ) -> Result<(), LabError> {
        let count = queues.to_string();
        // Without the parameters one queue is in use, and `ethtool -L` can add more.
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

    /// Sets checksum and segmentation offload of the host's device to `state` ("on" or "off"). Disables
    /// receive offload (GRO) in both cases.
    ///
    /// # Errors
    /// Returns the error of ethtool.
    pub fn offloads(&self, state: &str) -> Result<(), LabError> {
        self.run(["ethtool", "-K", "eth0", "tx", state, "tso", state, "gso", state, "gro", "off"]).map(drop)
    }

    /// Adds an IPv6 address with its prefix length, for example `fd00::1/64`, to the host's device. The address is
    /// usable immediately.
    ///
    /// # Errors
    /// Returns the error of `sysctl` or `ip`.
    pub fn add_ipv6(&self, address: &str) -> Result<(), LabError> {
        self.run(["sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0", "net.ipv6.conf.eth0.disable_ipv6=0"])?;
        self.run(["ip", "address", "add", address, "dev", "eth0", "nodad"]).map(drop)
    }

    /// Returns the name of the veth device in the hub to which the host is connected.
    pub fn device(&self) -> &str {
        &self.name
    }

    /// Returns the IPv4 address of the host without the prefix length.
    pub fn ip(&self) -> &str {
        self.address.split('/').next().unwrap_or(&self.address)
    }

    /// Returns the Ethernet address of the host's device.
    ///
    /// # Errors
    /// Returns an error if the device does not exist.
    pub fn mac(&self) -> Result<String, LabError> {
        // /sys is not used, because it shows the namespace in which it was mounted.
        let line = self.run(["ip", "-o", "link", "show", "eth0"])?;
        let mut words = line.split_whitespace().skip_while(|word| *word != "link/ether");
        words
            .nth(1)
            .map(str::to_owned)
            .ok_or(LabError::Output { command: "ip -o link show eth0".into(), output: line })
    }

    /// Adds a permanent neighbour entry for the host `other`. This host then needs no ARP to reach `other`.
    ///
    /// # Errors
    /// Returns an error if either device does not exist.
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

    /// Sends `count` echo requests at intervals of 10 ms to the address `to`.
    ///
    /// # Errors
    /// Returns an error if the host received no reply.
    pub fn ping(&self, to: &str, count: u32) -> Result<PingReport, LabError> {
        ping::ping(self, to, count)
    }

    /// Returns whether the host `to` answers one of three echo requests.
    pub fn reaches(&self, to: &Host) -> bool {
        self.ping(to.ip(), 3).is_ok_and(|report| report.received > 0)
    }
}
