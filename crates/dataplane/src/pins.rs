//! Pins (in the BPF file system) of hooks that outlive the daemon. The module records which process uses a pin,
//! and removes pins that no process uses.
//!
//! A process that uses a pin holds a shared lock on the pin's directory. The kernel releases the lock when the
//! process ends for any reason. A pin that is not locked and has no port in the configuration is an orphan,
//! whose hook would stay active forever.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use control::PlaneError;
use model::{Namespace, PortName};
use port::link;
use xdp::{Attached, Owner, PinPath};

use super::device::{inside, object};
use super::foreign::Former;

/// A lock on a pin's directory, which shows other processes that this process uses the pinned hook.
#[derive(Debug)]
pub struct Claim {
    /// Open directory of the pin, which holds the shared lock.
    _directory: File,
}

impl Claim {
    /// Locks the pin of a hook. Returns `None` if the hook has no pin.
    pub fn on(hook: &Attached) -> Option<Self> {
        let directory = File::open(hook.pin()?.directory()).ok()?;
        Self::shared(hook, directory)
    }

    /// Converts the reservation of a device into a lock on the pin of the hook that was found on the device or
    /// attached to it. Returns `None` if the hook has no pin.
    pub fn after(reserved: Reserved, hook: &Attached) -> Option<Self> {
        let own = hook.pin()?.directory();
        // An adopted hook keeps its pin's directory, and the directory's lock becomes a shared one in one
        // step. A new hook has another directory.
        let there = fs::metadata(own).ok()?;
        let same = |file: &File| {
            file.metadata()
                .is_ok_and(|held| held.st_ino() == there.st_ino() && held.st_dev() == there.st_dev())
        };
        match reserved.0.into_iter().find(same) {
            Some(directory) => Self::shared(hook, directory),
            None => Self::on(hook),
        }
    }

    fn shared(hook: &Attached, directory: File) -> Option<Self> {
        match directory.lock_shared() {
            Ok(()) => Some(Claim { _directory: directory }),
            Err(error) => {
                tracing::warn!(device = hook.device(), %error, "its pin cannot be locked");
                None
            }
        }
    }
}

/// A reservation of one device: exclusive locks on the device's pins. While the reservation exists, no other
/// Trivium process opens the device.
pub struct Reserved(Vec<File>);

/// Reserves a device of the calling thread's network namespace. A device must be reserved before any of its
/// settings is changed.
///
/// # Errors
/// Returns an error if another process uses the device's hook, under any port name.
pub fn reserve(name: &PortName, device: &str, ifindex: u32) -> Result<Reserved, PlaneError> {
    let namespace = inode(Path::new("/proc/thread-self/ns/net"));
    protect();
    let mut reserved = Vec::new();
    for pinned in all() {
        if pinned.ifindex != ifindex || Some(pinned.namespace) != namespace {
            continue;
        }
        // A directory that disappears meanwhile has no user.
        let Ok(directory) = File::open(pinned.path.directory()) else { continue };
        match directory.try_lock() {
            Ok(()) => reserved.push(directory),
            Err(fs::TryLockError::WouldBlock) => return Err(served(name, device, &pinned.port)),
            Err(fs::TryLockError::Error(error)) => {
                tracing::warn!(port = %name, %error, "the pin of its device cannot be locked");
            }
        }
    }
    Ok(Reserved(reserved))
}

/// Makes the pins inaccessible to other users. A user with access to a pin could lock the pin, and no daemon
/// could then reserve the pin's device.
fn protect() {
    match PinPath::protect() {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(
                "the directory of the pins in /sys/fs/bpf was another user's; it is this process's user's now"
            );
        }
        Err(error) => tracing::warn!(%error, "other users may lock the pins"),
    }
}

fn served(name: &PortName, device: &str, port: &str) -> PlaneError {
    PlaneError {
        kind: control::FailureKind::Busy,
        object: object(name),
        cause: format!(
            "another Trivium process serves device {device}, as its port {port}; nothing was changed"
        ),
        fix: "stop that process or take the port out of its configuration, or name another device here"
            .to_owned(),
    }
}

/// A pinned hook, with the parts of which the pin's name consists. See [`super::device::pin_name`].
pub(super) struct Pinned {
    pub(super) path: PinPath,
    pub(super) port: String,
    pub(super) namespace: u64,
    pub(super) ifindex: u32,
}

/// Returns the pins of all hooks that Trivium processes have pinned on this machine.
pub(super) fn all() -> Vec<Pinned> {
    let names = PinPath::existing().unwrap_or_else(|error| {
        tracing::warn!(%error, "pins cannot be listed");
        Vec::new()
    });
    names.iter().filter_map(|name| taken_apart(name)).collect()
}

fn taken_apart(name: &str) -> Option<Pinned> {
    let (rest, ifindex) = name.rsplit_once('-')?;
    let (port, namespace) = rest.rsplit_once('-')?;
    Some(Pinned {
        path: PinPath::new(name).ok()?,
        port: port.to_owned(),
        namespace: namespace.parse().ok()?,
        ifindex: ifindex.parse().ok()?,
    })
}

/// Locks a pin that no process uses. Returns `None` if a process uses the pin. Other processes cannot use the
/// pin until the returned file is dropped.
pub(super) fn unused(pin: &PinPath) -> Option<File> {
    let directory = File::open(pin.directory()).ok()?;
    directory.try_lock().ok()?;
    Some(directory)
}

pub(super) fn inode(namespace: &Path) -> Option<u64> {
    fs::metadata(namespace).ok().map(|file| file.st_ino())
}

/// Detaches a hook, so that the kernel receives the packets of its device again. Returns the name of the
/// device, if the device still exists.
pub(super) fn take_off(pinned: &Pinned, namespace: Option<&Namespace>) -> Result<Option<String>, PlaneError> {
    let object = format!("hook {}", pinned.path.name());
    let failed = |error: &dyn std::error::Error| {
        PlaneError::failed(&object, error, "take it off with `ip link set dev DEVICE xdp off`")
    };
    inside(&object, namespace, || {
        let Some(hook) = xdp::adopt(&pinned.path).map_err(|error| failed(&error))? else {
            // A pin without a link is the remainder of a process that died while it created the pin.
            clear(pinned.path.directory());
            return Ok(None);
        };
        let (device, ifindex) = (hook.device().to_owned(), hook.ifindex());
        let bridged = hook.constants().owner == Owner::Bridged;
        hook.detach().map_err(|error| failed(&error))?;
        let info = link::by_index(ifindex).map_err(|error| failed(&error))?;
        // The kernel does not use devices that the daemon created.
        if bridged && !info.alias.as_deref().is_some_and(|alias| alias.starts_with("trivium:")) {
            Former::usual(&info).listen_again().map_err(|error| failed(&error))?;
        }
        Ok(Some(device))
    })
}

fn clear(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

/// Result of [`release`] for one pinned hook: the former port and the outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Released {
    /// Name of the port that the hook served.
    pub port: String,
    /// Name of the device from which the hook was detached, or the reason why the hook was not detached.
    pub outcome: Result<String, PlaneError>,
}

/// Detaches hooks that ended daemons have left. `wanted` names one port or device. Without `wanted`, all such
/// hooks are detached. The result for a hook that is in use is an error.
pub fn release(wanted: Option<&str>) -> Vec<Released> {
    let mut released = Vec::new();
    for pinned in all() {
        let namespace = namespace_of(pinned.namespace);
        let device = namespace.as_ref().and_then(|namespace| device_of(&pinned, namespace.as_ref()));
        if wanted.is_some_and(|wanted| wanted != pinned.port && Some(wanted) != device.as_deref()) {
            continue;
        }
        let port = pinned.port.clone();
        let outcome = match (unused(&pinned.path), namespace) {
            (None, _) => Err(in_use(&port)),
            (Some(_), None) => drop_remains(&pinned),
            (Some(_locked), Some(namespace)) => {
                take_off(&pinned, namespace.as_ref()).map(|device| device.unwrap_or_default())
            }
        };
        released.push(Released { port, outcome });
    }
    released
}

/// Removes the pin of a hook whose device is in a namespace without a name, if the device no longer exists.
fn drop_remains(pinned: &Pinned) -> Result<String, PlaneError> {
    match xdp::adopt(&pinned.path) {
        Ok(None) => Ok(String::new()),
        _ => Err(PlaneError::not_found(
            format!("port.{}", pinned.port),
            "its device is in a network namespace that has no name here",
            "run this command inside that namespace (`nsenter --net`)",
        )),
    }
}

fn in_use(port: &str) -> PlaneError {
    PlaneError {
        kind: control::FailureKind::Busy,
        object: format!("port.{port}"),
        cause: "a daemon that runs uses its hook".to_owned(),
        fix: "stop the daemon first, or remove the port from its configuration".to_owned(),
    }
}

/// Returns the network namespace with the inode `number`: the daemon's own namespace (`Some(None)`), or a
/// namespace in `/run/netns`.
fn namespace_of(number: u64) -> Option<Option<Namespace>> {
    if inode(Path::new("/proc/self/ns/net")) == Some(number) {
        return Some(None);
    }
    let entries = fs::read_dir("/run/netns").ok()?;
    let found = entries.flatten().find(|entry| inode(&entry.path()) == Some(number))?;
    Some(Some(found.file_name().to_str()?.parse().ok()?))
}

/// Returns the name of the device to which a pin belongs. Returns `None` if the device no longer exists.
fn device_of(pinned: &Pinned, namespace: Option<&Namespace>) -> Option<String> {
    let name = || Ok(xdp::adopt(&pinned.path).ok().flatten().map(|hook| hook.device().to_owned()));
    inside("hook", namespace, name).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_from_behind() {
        let pinned = taken_apart("web-1-4026531840-17").unwrap();
        assert_eq!((pinned.port.as_str(), pinned.namespace, pinned.ifindex), ("web-1", 4_026_531_840, 17));
        assert!(taken_apart("something").is_none());
        assert!(taken_apart("some-thing-else").is_none());
    }
}
