//! Kernel devices of ports: the namespace and the state of a device, and the name of the pin of its hook (XDP program)
//! in the BPF file system.
//!
//! A device is identified by namespace and ifindex. A device in another namespace is opened on a thread inside that
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use control::{FailureKind, PlaneError};
use model::{Namespace, PortName};
use packet::MacAddr;
use port::link::{self, LinkInfo};
use port::{netdev, netns};
use xdp::Features;

/// A kernel device in its network namespace, with the state that was last read from the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Namespace of the device. `None` is the daemon's own namespace.
    pub namespace: Option<Namespace>,
    /// Device number and inode of the namespace's file. They change if a new namespace is created under the old name.
    pub namespace_file: Option<(u64, u64)>,
    /// Interface index of the device in its namespace.
    pub ifindex: u32,
    /// Ethernet address of the device.
    pub mac: Option<MacAddr>,
    /// MTU of the device: size in bytes of the largest layer-3 packet.
    pub mtu: u32,
    /// Whether the device is administratively up and has a carrier.
    pub running: bool,
    /// Name of the device's driver.
    pub driver: Option<String>,
    /// Link speed in Mbit/s at the time when the device was opened. `None` if unknown.
    pub speed: Option<u32>,
}

impl Device {
    /// Creates a device from the link state `info`. `namespace` must be the calling thread's namespace.
    pub fn new(info: &LinkInfo, namespace: Option<&Namespace>) -> Self {
        Device {
            name: info.name.clone(),
            namespace: namespace.cloned(),
            namespace_file: own_namespace_file(),
            ifindex: info.ifindex,
            mac: info.mac,
            mtu: info.mtu,
            running: is_running(info),
            driver: link::driver(&info.name)
                .ok()
                .map(|driver| driver.driver)
                .filter(|driver| !driver.is_empty()),
            speed: port::ethtool::speed(&info.name).ok().flatten(),
        }
    }

    /// Returns whether the recorded device state (name, Ethernet address, MTU and running state) equals the state that
    /// the kernel reports in `info`.
    pub fn is_as(&self, info: &LinkInfo) -> bool {
        self.name == info.name
            && self.mac == info.mac
            && self.mtu == info.mtu
            && self.running == is_running(info)
    }

    /// Returns whether the name of the device's namespace now refers to another namespace. `file` identifies the
    /// namespace that has the name now. The daemon can then no longer enter the device's own namespace, because that
    /// namespace has no name.
    pub fn is_beside(&self, file: Option<(u64, u64)>) -> bool {
        self.namespace.is_some() && self.namespace_file.zip(file).is_some_and(|(own, named)| own != named)
    }

    /// Returns the name that the device has now, if it was renamed and no longer has the name `configured`.
    pub fn renamed(&self, configured: &str) -> Option<String> {
        let look = || {
            let is_named = link::find(configured).is_ok_and(|found| found.ifindex == self.ifindex);
            Ok(link::by_index(self.ifindex).ok().filter(|info| !is_named && info.mac == self.mac))
        };
        inside(configured, self.namespace.as_ref(), look).ok().flatten().map(|info| info.name)
    }

    /// Replaces the recorded name, Ethernet address, MTU and running state by those in `info`.
    pub fn refresh(&mut self, info: &LinkInfo) {
        self.name.clone_from(&info.name);
        self.mac = info.mac;
        self.mtu = info.mtu;
        self.running = is_running(info);
    }
}

/// Returns the device number and the inode of the calling thread's network namespace.
fn own_namespace_file() -> Option<(u64, u64)> {
    std::fs::metadata("/proc/thread-self/ns/net").ok().map(|file| (file.st_dev(), file.st_ino()))
}

/// Returns whether the link is administratively up and has a carrier.
fn is_running(info: &LinkInfo) -> bool {
    info.up && info.running
}

/// Runs `work` inside a network namespace. `None` is the daemon's own namespace.
///
/// # Errors
/// Returns the error of `work`, or an error if the namespace cannot be entered.
pub fn inside<T: Send>(
    object: &str,
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T, PlaneError> + Send,
) -> Result<T, PlaneError> {
    match namespace {
        None => work(),
        Some(namespace) => netns::within(namespace.path(), work).map_err(|error| {
            PlaneError::failed(object, &error, "make it with `ip netns add`, or correct the name")
        })?,
    }
}

/// Returns the XDP features of all devices in the calling thread's namespace, indexed by ifindex. The map is
/// empty if the kernel does not report features.
pub fn xdp_features() -> BTreeMap<u32, Features> {
    let bits = netdev::xdp_features().unwrap_or_default();
    bits.into_iter().map(|(ifindex, bits)| (ifindex, Features::from_bits(bits, 0))).collect()
}

/// Returns the XDP features of some devices in the calling thread's namespace, indexed by ifindex. Devices that
/// do not exist are not in the map. The map is empty if the kernel does not report features.
pub fn xdp_features_among(devices: &BTreeSet<u32>) -> BTreeMap<u32, Features> {
    let bits = netdev::xdp_features_among(devices.iter().copied()).unwrap_or_default();
    bits.into_iter().map(|(ifindex, bits)| (ifindex, Features::from_bits(bits, 0))).collect()
}

/// Returns the XDP features of one device in the calling thread's namespace. All features are absent if the
/// kernel does not report them. In contrast to `xdp::features`, this function does not make the kernel list all
/// devices.
pub fn xdp_features_of(ifindex: u32) -> Features {
    Features::from_bits(netdev::xdp_features_of(ifindex).ok().flatten().unwrap_or_default(), 0)
}

/// Returns the name under which the hook of a device in the calling thread's namespace is pinned.
/// The name contains the namespace and the ifindex, so that the pins of several daemons differ. The
/// name stays the same when the daemon restarts.
pub fn pin_name(port: &PortName, ifindex: u32) -> String {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |file| file.st_ino());
    format!("{}-{namespace}-{ifindex}", plain(port))
}

/// Returns the name of a port with all characters replaced that are not allowed in the name of a pin.
pub fn plain(port: &PortName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    port.as_str().chars().map(plain).collect()
}

/// Returns the path of a namespace's file. The daemon groups ports by this path. The path is empty for the daemon's own
/// namespace.
pub fn place(namespace: Option<&Namespace>) -> PathBuf {
    namespace.map_or_else(|| Path::new("").to_owned(), Namespace::path)
}

/// Converts `error` into an API error about a port. If the message of the error already contains the messages
/// of its sources, these are not repeated.
pub fn failed(port: &PortName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(port), error, "correct that, then apply again; `trivium doctor` may tell more")
}

/// Converts a temporary error into an API error about a port, like [`failed`]. The daemon tries to open the
/// port again later.
pub fn unready(port: &PortName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError { kind: FailureKind::Unready, ..failed(port, error) }
}

/// Returns the name by which messages refer to a port (`port.NAME`).
pub fn object(port: &PortName) -> String {
    format!("port.{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump of all devices in a namespace reports the same XDP features as a query for each single device. A query
    /// for some devices reports no other devices.
    #[test]
    fn features_of_all_devices_are_those_of_each() {
        testbed::require!("ip", "ethtool");
        netns::within_new(|| {
            let run = |line: &str| {
                let mut words = line.split(' ');
                let status = std::process::Command::new(words.next().unwrap()).args(words).status().unwrap();
                assert!(status.success(), "{line}");
            };
            run("ip link add one type veth peer name two");
            run("ip link set one up");
            run("ip link set two up");
            run("ethtool -K two gro on");
            let all = xdp_features();
            #[expect(clippy::disallowed_methods, reason = "the query of libbpf is the reference")]
            let each = |name| (all[&link::find(name).unwrap().ifindex], xdp::features(name).unwrap());
            let ((one, asked_one), (two, asked_two)) = (each("one"), each("two"));
            assert_eq!(
                (one.transmit, two.transmit),
                (true, false),
                "a veth is a target where its peer runs GRO"
            );
            assert_eq!(one, Features { zero_copy_segments: one.zero_copy_segments, ..asked_one });
            assert_eq!(two, Features { zero_copy_segments: two.zero_copy_segments, ..asked_two });
            let two = link::find("two").unwrap().ifindex;
            assert_eq!(xdp_features_of(two), all[&two]);
            let absent = all.keys().max().unwrap() + 1;
            let some = xdp_features_among(&BTreeSet::from([two, absent]));
            assert_eq!(some, BTreeMap::from([(two, all[&two])]));
        })
        .unwrap();
    }

    #[test]
    fn pins_have_plain_names_that_differ_by_device() {
        let port: PortName = "web.1".parse().unwrap();
        let (one, two) = (pin_name(&port, 3), pin_name(&port, 4));
        assert!(one.starts_with("web-1-") && one.ends_with("-3"), "{one}");
        assert_ne!(one, two);
        assert!(xdp::PinPath::new(&one).is_ok());
    }
}
