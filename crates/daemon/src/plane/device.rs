//! The kernel's devices behind ports: where they are, and under which name their hook is pinned.
//!
//! A device is known by (namespace, ifindex). What is opened elsewhere is opened on a thread inside that namespace.

use std::collections::BTreeMap;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use control::{FailureKind, PlaneError};
use model::{Namespace, PortName};
use packet::MacAddr;
use port::link::{self, LinkInfo};
use port::{netdev, netns};
use xdp::Features;

/// A device in its namespace, as it was when it was last looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its namespace; `None`: ours.
    pub namespace: Option<Namespace>,
    /// Device and inode of its namespace's file, which another namespace of the same name does not have.
    pub namespace_file: Option<(u64, u64)>,
    /// Its number there.
    pub ifindex: u32,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// Bytes of the largest L3 packet.
    pub mtu: u32,
    /// Set up, and the other side is there.
    pub running: bool,
    /// Its driver.
    pub driver: Option<String>,
    /// Megabits a second of its link when it was opened; `None`: not known.
    pub speed: Option<u32>,
}

impl Device {
    /// What is known of a link in `namespace`, which the calling thread is in.
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

    /// Returns whether everything that may change while the device lives is as here.
    pub fn is_as(&self, info: &LinkInfo) -> bool {
        self.name == info.name
            && self.mac == info.mac
            && self.mtu == info.mtu
            && self.running == is_running(info)
    }

    /// Returns whether the namespace whose file this is, and which has the name of the device's namespace, is another one. The device then lives
    /// on without a name by which anything could reach it.
    pub fn is_beside(&self, file: Option<(u64, u64)>) -> bool {
        self.namespace.is_some() && self.namespace_file.zip(file).is_some_and(|(own, named)| own != named)
    }

    /// Takes over what may change while the device lives.
    pub fn refresh(&mut self, info: &LinkInfo) {
        self.name.clone_from(&info.name);
        self.mac = info.mac;
        self.mtu = info.mtu;
        self.running = is_running(info);
    }
}

/// Returns device and inode of the file of the namespace that the calling thread is in.
fn own_namespace_file() -> Option<(u64, u64)> {
    std::fs::metadata("/proc/thread-self/ns/net").ok().map(|file| (file.st_dev(), file.st_ino()))
}

/// Whether frames can pass.
fn is_running(info: &LinkInfo) -> bool {
    info.up && info.running
}

/// Runs `work` inside the namespace (ours if none).
///
/// # Errors
/// What `work` returns, or that the namespace cannot be entered.
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

/// Returns the XDP features of all devices of the calling thread's namespace by ifindex; none where the kernel does not tell.
pub fn xdp_features() -> BTreeMap<u32, Features> {
    let bits = netdev::xdp_features().unwrap_or_default();
    bits.into_iter().map(|(ifindex, bits)| (ifindex, Features::from_bits(bits, 0))).collect()
}

/// The name under which the hook of a device of the calling thread's namespace is pinned. Unlike the port's name alone it
/// tells devices of several daemons apart, and it is the same for the daemon after a restart.
pub fn pin_name(port: &PortName, ifindex: u32) -> String {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |file| file.st_ino());
    format!("{}-{namespace}-{ifindex}", plain(port))
}

/// A port's name as pins have it.
pub fn plain(port: &PortName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    port.as_str().chars().map(plain).collect()
}

/// The file of a namespace, for grouping.
pub fn place(namespace: Option<&Namespace>) -> PathBuf {
    namespace.map_or_else(|| Path::new("").to_owned(), Namespace::path)
}

/// What `error` means for a port: its text, without doubling the sources.
pub fn failed(port: &PortName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(port), error, "correct that, then apply again; `trivium doctor` may tell more")
}

/// The same where what is in the way may go away by itself: the port is tried again.
pub fn unready(port: &PortName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError { kind: FailureKind::Unready, ..failed(port, error) }
}

/// How a port is named in messages.
pub fn object(port: &PortName) -> String {
    format!("port.{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dump of a namespace says of each device what the kernel says when it is asked for the device alone.
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
            let each = |name| (all[&link::find(name).unwrap().ifindex], xdp::features(name).unwrap());
            let ((one, asked_one), (two, asked_two)) = (each("one"), each("two"));
            assert_eq!(
                (one.transmit, two.transmit),
                (true, false),
                "a veth is a target where its peer runs GRO"
            );
            assert_eq!(one, Features { zero_copy_segments: one.zero_copy_segments, ..asked_one });
            assert_eq!(two, Features { zero_copy_segments: two.zero_copy_segments, ..asked_two });
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
