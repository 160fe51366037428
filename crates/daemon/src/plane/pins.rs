//! Pins of hooks that outlive the daemon: which process uses them, and what becomes of those that none does.
//!
//! A process that uses a pin holds a shared lock on the pin's directory, which ends with the process however it ends. A pin
//! without a lock that no port of the configuration stands behind is an orphan: its hook would act for ever.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use control::PlaneError;
use model::{Namespace, PortName};
use port::link;
use xdp::{Attached, Owner, PinPath};

use super::device::{inside, object, plain};
use super::foreign::Former;
use super::site::Site;

/// Says that this process uses a pin.
#[derive(Debug)]
pub struct Claim {
    /// Its lock says so.
    _directory: File,
}

impl Claim {
    /// A claim on the pin of a hook, if it has one.
    pub fn on(hook: &Attached) -> Option<Self> {
        let directory = File::open(hook.pin()?.directory()).ok()?;
        Self::shared(hook, directory)
    }

    /// Turns the reservation of a device into the claim on the hook that was found or made there.
    pub fn after(reserved: Reserved, hook: &Attached) -> Option<Self> {
        let own = hook.pin()?.directory();
        // An adopted hook keeps its pin's directory: its lock becomes a shared one in one step. Another hook has another directory.
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

/// The pins of one device that no process used; while this lives, no other Trivium opens the device.
pub struct Reserved(Vec<File>);

/// Reserves a device of the calling thread's network namespace before anything of it is changed.
///
/// # Errors
/// Where another process uses the device's hook: the device is that process's, whatever name its port has there.
pub fn reserve(name: &PortName, device: &str, ifindex: u32) -> Result<Reserved, PlaneError> {
    let namespace = inode(Path::new("/proc/thread-self/ns/net"));
    let mut reserved = Vec::new();
    for pinned in all() {
        if pinned.ifindex != ifindex || Some(pinned.namespace) != namespace {
            continue;
        }
        // A directory that goes away meanwhile is nobody's.
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

/// A pin's name taken apart; see [`super::device::pin_name`].
struct Pinned {
    path: PinPath,
    port: String,
    namespace: u64,
    ifindex: u32,
}

/// All pins that a Trivium made.
fn all() -> Vec<Pinned> {
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

/// Whether no process uses a pin; until the answer is dropped none can.
fn unused(pin: &PinPath) -> Option<File> {
    let directory = File::open(pin.directory()).ok()?;
    directory.try_lock().ok()?;
    Some(directory)
}

fn inode(namespace: &Path) -> Option<u64> {
    fs::metadata(namespace).ok().map(|file| file.st_ino())
}

/// Takes hooks off that no port stands behind: those of this daemon's namespaces, and the remains of devices that are gone.
pub fn sweep(site: &Site) {
    let mut places: BTreeMap<u64, Option<Namespace>> = BTreeMap::new();
    for running in site.ports.values() {
        if let Some(namespace) = running.wanted.port.kind.device().and_then(|(_, namespace)| namespace) {
            places.extend(inode(&namespace.path()).map(|inode| (inode, Some(namespace.clone()))));
        }
    }
    places.extend(inode(Path::new("/proc/self/ns/net")).map(|inode| (inode, None)));
    for pinned in all().into_iter().filter(|pinned| !is_claimed(site, pinned)) {
        let Some(_locked) = unused(&pinned.path) else { continue };
        match places.get(&pinned.namespace) {
            Some(namespace) => match take_off(&pinned, namespace.as_ref()) {
                Ok(Some(device)) => tracing::info!(
                    port = pinned.port,
                    device,
                    "no port stands behind this hook of an earlier process; it was taken off"
                ),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a hook of an earlier process was not taken off"),
            },
            // Elsewhere only what is certainly dead goes: a look at a pin whose device is gone removes it.
            None => drop(xdp::adopt(&pinned.path)),
        }
    }
}

/// Whether a port runs with this pin, or waits for the device behind it.
fn is_claimed(site: &Site, pinned: &Pinned) -> bool {
    site.ports.iter().any(|(name, running)| match &running.hook {
        Some(hook) => hook.pin().is_some_and(|pin| pin.name() == pinned.path.name()),
        None => running.wanted.policy.persist && plain(name) == pinned.port,
    })
}

/// Takes a hook off its device and gives that back to the kernel; the device, if there was one still.
fn take_off(pinned: &Pinned, namespace: Option<&Namespace>) -> Result<Option<String>, PlaneError> {
    let object = format!("hook {}", pinned.path.name());
    let failed = |error: &dyn std::error::Error| {
        PlaneError::failed(&object, error, "take it off with `ip link set dev DEVICE xdp off`")
    };
    inside(&object, namespace, || {
        let Some(hook) = xdp::adopt(&pinned.path).map_err(|error| failed(&error))? else {
            // Without a link it is the rubbish of a process that died while it made it.
            clear(pinned.path.directory());
            return Ok(None);
        };
        let (device, ifindex) = (hook.device().to_owned(), hook.ifindex());
        let bridged = hook.constants().owner == Owner::Bridged;
        hook.detach().map_err(|error| failed(&error))?;
        let info = link::by_index(ifindex).map_err(|error| failed(&error))?;
        // Devices of our making never were the kernel's.
        if bridged && !info.alias.as_deref().is_some_and(|alias| alias.starts_with("trivium:")) {
            Former::usual(&info).listen_again().map_err(|error| failed(&error))?;
        }
        Ok(Some(device))
    })
}

fn clear(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

/// What became of one hook in [`release`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Released {
    /// The port that it served.
    pub port: String,
    /// The device that it was taken off, or why it was not.
    pub outcome: Result<String, PlaneError>,
}

/// Takes hooks off that ended daemons have left: those of one port or device, or all. Hooks in use are refused.
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

/// Of a namespace that has no name here only what is certainly dead can go.
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

/// The namespace with this number: ours, or one that `ip netns` knows.
fn namespace_of(number: u64) -> Option<Option<Namespace>> {
    if inode(Path::new("/proc/self/ns/net")) == Some(number) {
        return Some(None);
    }
    let entries = fs::read_dir("/run/netns").ok()?;
    let found = entries.flatten().find(|entry| inode(&entry.path()) == Some(number))?;
    Some(Some(found.file_name().to_str()?.parse().ok()?))
}

/// The name of the device behind a pin.
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
