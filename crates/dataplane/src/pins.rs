//! Pins, in the BPF file system, of hooks (XDP programs) that outlive the daemon. The module records which process uses
//! a pin, and removes pins that no process uses.
//!
//! A process that uses a pin holds a shared lock on the pin's directory. The kernel releases the lock when the process
//! ends for any reason. A pin that is not locked and that belongs to no configured port is an orphan, whose hook would
//! otherwise stay attached forever.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

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

    /// Converts the reservation of a device into a lock on the pin of the hook that has been attached to the device.
    /// Returns `None` if the hook has no pin.
    pub fn after(reserved: Reserved, hook: &Attached) -> Option<Self> {
        let own = hook.pin()?.directory();
        // An adopted hook keeps its pin's directory, and the directory's lock becomes a shared one in one
        // step. A new hook has another directory.
        let there = fs::metadata(own).ok()?;
        let same = |file: &File| {
            file.metadata()
                .is_ok_and(|held| held.st_ino() == there.st_ino() && held.st_dev() == there.st_dev())
        };
        match reserved.pins.into_iter().find(same) {
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

/// Directory of lock files. A locked file shows that a process opens the device. Only the user of the daemon can open
/// the files.
const OPENING: &str = "/run/trivium-devices";

/// A lock that a process holds while it opens a device. The device may have no pin yet.
struct OpeningLock {
    path: PathBuf,
    _file: File,
}

impl OpeningLock {
    /// Locks a device. The error is [`io::ErrorKind::WouldBlock`] if another process opens the device.
    fn take(directory: &Path, namespace: u64, ifindex: u32) -> io::Result<OpeningLock> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let path = directory.join(format!("{namespace}-{ifindex}"));
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
                TryLockError::Error(error) => error,
            })?;
            // The previous holder may have removed the file meanwhile. The lock is then useless.
            let (own, named) = (file.metadata()?, fs::metadata(&path));
            if named.is_ok_and(|named| (named.st_dev(), named.st_ino()) == (own.st_dev(), own.st_ino())) {
                return Ok(OpeningLock { path, _file: file });
            }
        }
    }
}

impl Drop for OpeningLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A reservation of one device: exclusive locks on the device's lock file and on the device's pins. While the
/// reservation exists, no other Trivium process opens the device.
pub struct Reserved {
    pins: Vec<File>,
    _opening: Option<OpeningLock>,
}

/// Reserves a device of the calling thread's network namespace. This must be done before any setting of the
/// device is changed, and before the settings that are to be restored are read.
///
/// # Errors
/// Returns an error if another process uses the device's hook, under any port name, or opens the device.
pub fn reserve(name: &PortName, device: &str, ifindex: u32) -> Result<Reserved, PlaneError> {
    static NO_LOCK: Once = Once::new();
    let namespace = inode(Path::new("/proc/thread-self/ns/net"));
    let opening = namespace.map(|namespace| OpeningLock::take(Path::new(OPENING), namespace, ifindex));
    let opening = opening.transpose().or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Err(opened_elsewhere(name, device)),
        _ => {
            NO_LOCK.call_once(|| tracing::warn!(%error, "{OPENING}: devices that are opened are not locked"));
            Ok(None)
        }
    })?;
    protect();
    let mut reserved = Vec::new();
    for pinned in all() {
        if pinned.ifindex != ifindex || Some(pinned.namespace) != namespace {
            continue;
        }
        // If a directory disappears in the meantime, no process uses it.
        let Ok(directory) = File::open(pinned.path.directory()) else { continue };
        match directory.try_lock() {
            Ok(()) => reserved.push(directory),
            Err(TryLockError::WouldBlock) => return Err(served(name, device, &pinned.port)),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(port = %name, %error, "the pin of its device cannot be locked");
            }
        }
    }
    Ok(Reserved { pins: reserved, _opening: opening })
}

/// Makes the pins inaccessible to other users. A user who could open a pin could lock it, and no daemon could then
/// reserve the pin's device.
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

fn opened_elsewhere(name: &PortName, device: &str) -> PlaneError {
    PlaneError {
        kind: control::FailureKind::Busy,
        object: object(name),
        cause: format!("another Trivium process opens device {device} at the moment; nothing was changed"),
        fix: "stop that process, or name another device here".to_owned(),
    }
}

/// A pinned hook, with the parts of its pin's name. See [`super::device::pin_name`].
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

/// Locks a pin, unless a process uses it. Returns `None` if a process uses the pin. Until the returned file is dropped,
/// no other process can use the pin.
pub(super) fn unused(pin: &PinPath) -> Option<File> {
    let directory = File::open(pin.directory()).ok()?;
    directory.try_lock().ok()?;
    Some(directory)
}

pub(super) fn inode(namespace: &Path) -> Option<u64> {
    fs::metadata(namespace).ok().map(|file| file.st_ino())
}

/// Detaches a hook, so that all packets of its device go to the kernel again. Returns the name of the device, if the
/// device still exists.
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
        // A closed hook may be the hook of a bridged port.
        let bridged = hook.constants().owner != Owner::Routed;
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

/// Detaches hooks that are still attached although their daemon has ended. If `wanted` names a port
/// or a device, detaches only the hooks of this port or device. The result for a hook that is in
/// use is an error.
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

/// Removes the pin of a hook whose device was in a namespace without a name, if the device no longer exists.
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

/// Returns the network namespace with the inode `number`. The result is `Some(None)` for the daemon's own namespace,
/// `Some` for a namespace in `/run/netns`, and `None` if there is no such namespace.
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

    /// Only one process at a time can open a device. This also holds for two processes that open a device for the first
    /// time, when the device has no pin yet.
    #[test]
    fn only_one_process_opens_a_device_at_a_time() {
        let directory = std::env::temp_dir().join(format!("trivium-devices-{}", std::process::id()));
        let held = OpeningLock::take(&directory, 7, 1).unwrap();
        let again = OpeningLock::take(&directory, 7, 1).err().map(|error| error.kind());
        assert_eq!(again, Some(io::ErrorKind::WouldBlock));
        for (namespace, ifindex) in [(7, 2), (8, 1)] {
            drop(OpeningLock::take(&directory, namespace, ifindex).unwrap());
        }
        drop(held);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "no file is left");
        drop(OpeningLock::take(&directory, 7, 1).unwrap());
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn names_are_taken_apart_from_behind() {
        let pinned = taken_apart("web-1-4026531840-17").unwrap();
        assert_eq!((pinned.port.as_str(), pinned.namespace, pinned.ifindex), ("web-1", 4_026_531_840, 17));
        assert!(taken_apart("something").is_none());
        assert!(taken_apart("some-thing-else").is_none());
    }
}
