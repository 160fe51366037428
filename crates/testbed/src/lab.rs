//! A lab: a hub namespace in which the system under test runs, and hosts that are connected to the hub. All namespaces
//! are removed at the end of the test, whether or not it passes.

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Host, LabError, Namespace, namespace};

const PREFIX: &str = "tv-";

/// A set of network namespaces for a test. The names begin with a prefix that no other lab uses.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    hub: Namespace,
}

impl Lab {
    /// Creates an empty lab. The first lab in a process removes namespaces that killed processes have left.
    ///
    /// # Errors
    /// Returns an error if namespaces cannot be created, usually because the process is not root.
    pub fn new() -> Result<Self, LabError> {
        static SWEEP: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        SWEEP.call_once(sweep);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}{}-{number}-", std::process::id());
        let hub = Namespace::create(&format!("{prefix}hub"))?;
        Ok(Lab { prefix, hub })
    }

    /// Returns the namespace in which the system under test runs and has its devices.
    pub fn hub(&self) -> &Namespace {
        &self.hub
    }

    /// Returns the full name of the namespace `name` of this lab.
    pub fn namespace_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Creates a namespace without devices, for example for the peer device of a `veth` port.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be created.
    pub fn namespace(&self, name: &str) -> Result<Namespace, LabError> {
        Namespace::create(&self.namespace_name(name))
    }

    /// Creates a host with the address `address` (for example `10.0.0.1/24`) on its device `eth0`. A veth pair connects
    /// `eth0` to a device called `name` in the hub. Checksum and segmentation offload are off, so that hosts compute
    /// all checksums and segment their packets themselves.
    ///
    /// # Errors
    /// Returns an error if a step fails. A name must have at most 15 characters.
    pub fn host(&self, name: &str, address: &str) -> Result<Host, LabError> {
        self.host_with_queues(name, address, 1)
    }

    /// Like [`Lab::host`], with `queues` receive and transmit queues on both devices of the veth pair.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`Lab::host`].
    pub fn host_with_queues(&self, name: &str, address: &str, queues: u32) -> Result<Host, LabError> {
        Host::create(self.namespace(name)?, &self.hub, name, address, queues)
    }
}

/// Removes the namespaces of labs whose process has ended.
fn sweep() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            namespace::remove(&name);
        }
    }
}

/// Returns the process ID in the name of a lab's namespace. Returns `None` if the name does not belong to a lab.
fn owner(name: &str) -> Option<&str> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn only_namespaces_of_labs_have_an_owner() {
        assert_eq!(owner("tv-123-0-hub"), Some("123"));
        for foreign in ["tv-", "tv-x-hub", "tv--hub", "web", "tv-12", "xtv-12-0-a"] {
            assert_eq!(owner(foreign), None, "{foreign}");
        }
    }
}
