//! Forwarding according to the kernel's routes in ports' hooks (XDP programs). Once a second, the routing stage of each
//! hook is updated with the device's address, the kernel's addresses, and the devices to which frames can be
//! redirected.
//!
//! If the stage cannot be installed, the failure is logged and the kernel's network stack forwards the packets, which
//! is slower. This module keeps only the times of its next updates and the failures that it has logged. All other state
//! is read from the hooks. A hand-over therefore transfers no state of this module.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::PlaneError;
use model::{Namespace, PortName, Routing};
use port::{link, netfilter};
use xdp::fib::{FibCount, FibPort, FibStage, Takes};
use xdp::{LocalAddresses, StageChange};

use super::device::{failed, inside, object, place, xdp_features};
use super::devices::LISTING_SHARE;
use super::open::PortSpec;
use super::ports::{Ports, Running};

/// Returns whether the configuration enables forwarding according to the kernel's routes in a port's hook.
pub fn is_wanted(wanted: &PortSpec) -> bool {
    let routing = wanted.port.kind.xdp().and_then(|options| options.routing);
    routing == Some(Routing::Kernel) && !wanted.bridged && wanted.port.admin
}

/// State of a network namespace that the routing stages of the hooks in it need: its addresses, and the devices to
/// which frames can be redirected.
struct Place {
    takes: BTreeMap<u32, Takes>,
    locals: LocalAddresses,
}

/// State of the periodic updates of hooks that forward packets according to the kernel's routes: the times of the next
/// updates, and the failures that have been logged.
#[derive(Default)]
pub struct KernelRouting {
    /// Earliest time at which the devices of a namespace are read again, by the path of the namespace's file.
    not_before: BTreeMap<PathBuf, Instant>,
    /// Cause of the last failure to update the hook of each port.
    ports: Failures<PortName>,
    /// Cause of the last failure to read the state of each namespace.
    places: Failures<PathBuf>,
}

impl KernelRouting {
    /// Installs or updates the routing stage in the hooks of ports that enable forwarding according to the kernel's
    /// routes. Removes the stage from other hooks. The updates in one namespace may take at most a tenth of the time,
    /// because the data plane is locked during an update, and because a tenant can create many devices in a namespace.
    /// If `now` is true, all namespaces are updated. This is necessary after a configuration change.
    pub fn ensure(&mut self, ports: &mut Ports, now: bool) {
        self.ports.retain(|name| ports.contains_key(name));
        let begin = Instant::now();
        let is_due = |at: &Instant| now || begin >= *at;
        let mut seen: BTreeMap<PathBuf, Option<Place>> = BTreeMap::new();
        let mut took: BTreeMap<PathBuf, Duration> = BTreeMap::new();
        for (name, running) in ports {
            let wanted = is_wanted(&running.wanted);
            let has = running.hook.as_ref().is_some_and(|hook| hook.fib().is_some());
            let done = if wanted {
                let namespace = running.device.as_ref().and_then(|device| device.namespace.clone());
                let path = place(namespace.as_ref());
                if !self.not_before.get(&path).is_none_or(is_due) {
                    seen.insert(path, None);
                    continue;
                }
                let begin = Instant::now();
                let places = &mut self.places;
                let place = seen.entry(path.clone()).or_insert_with(|| {
                    let looked = look(&object(name), namespace.as_ref());
                    places.record(&path, looked, |error| {
                        tracing::warn!(%error, "its devices cannot be listed");
                    })
                });
                let done = place.as_ref().map_or(Ok(()), |place| equip(name, running, place, has));
                *took.entry(path).or_default() += begin.elapsed();
                done
            } else if has {
                remove(running).map_err(|error| failed(name, &error))
            } else {
                Ok(())
            };
            self.ports.record(name, done, |error| {
                tracing::warn!(port = %name, %error, "it is not routed in the driver hook");
            });
        }
        self.places.retain(|path| seen.contains_key(path));
        self.not_before.retain(|path, _| seen.contains_key(path));
        let now = Instant::now();
        self.not_before.extend(took.into_iter().map(|(path, took)| (path, now + LISTING_SHARE * took)));
    }
}

/// Causes of the last failures, by port or namespace. A failure is logged only if its cause differs from that of the
/// preceding failure of the port or namespace.
struct Failures<K>(BTreeMap<K, String>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Failures(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Failures<K> {
    /// Records the result of one attempt. Calls `log` if the attempt failed and the cause differs from that of
    /// the object's last failure.
    fn record<T, E: Display>(&mut self, object: &K, result: Result<T, E>, log: impl FnOnce(&E)) -> Option<T> {
        match result {
            Ok(done) => {
                self.0.remove(object);
                Some(done)
            }
            Err(error) => {
                let cause = error.to_string();
                if self.0.get(object) != Some(&cause) {
                    log(&error);
                    self.0.insert(object.clone(), cause);
                }
                None
            }
        }
    }

    /// Removes the recorded failures of ports or namespaces for which `is_present` is false.
    fn retain(&mut self, is_present: impl Fn(&K) -> bool) {
        self.0.retain(|object, _| is_present(object));
    }
}

/// Removes the routing stage from a port's hook. The kernel's network stack then forwards the packets of the port.
///
/// # Errors
/// Returns an error if the hook's program cannot be replaced.
pub fn remove(running: &mut Running) -> Result<(), xdp::Error> {
    match &mut running.hook {
        Some(hook) if hook.fib().is_some() => hook.set_stage(StageChange::Fib(None)),
        _ => Ok(()),
    }
}

/// Reads the state of a namespace for the routing stages of the hooks in it.
fn look(object: &str, namespace: Option<&Namespace>) -> Result<Place, PlaneError> {
    inside(object, namespace, || {
        let failed = |error: link::LinkError| PlaneError::failed(object, &error, "");
        // Kernels before 6.3 do not report features.
        let features = xdp_features();
        let takes = link::list().map_err(failed)?.into_iter().map(|info| {
            let can = features.get(&info.ifindex).copied().unwrap_or_default();
            let takes = match (info.up && can.transmit, can.transmit_multi_buffer) {
                (false, _) => Takes::Nothing,
                (true, false) => Takes::Frames,
                (true, true) => Takes::MultiBuffer,
            };
            (info.ifindex, takes)
        });
        let takes = takes.collect();
        let v4 = link::addresses_v4().map_err(failed)?.into_iter().map(|(_, address)| address).collect();
        Ok(Place { takes, locals: LocalAddresses { v4, v6: BTreeSet::new() } })
    })
}

fn equip(name: &PortName, running: &mut Running, seen: &Place, has: bool) -> Result<(), PlaneError> {
    let (Some(hook), Some(device)) = (&mut running.hook, &running.device) else { return Ok(()) };
    let Some(mac) = device.mac else { return Ok(()) };
    let (ifname, partial_checksums) = (device.name.clone(), running.complete_checksums);
    inside(&object(name), device.namespace.as_ref(), || {
        let port = FibPort { mac: mac.0, check_sources: checks_sources(&ifname), partial_checksums };
        let stage = hook.fib().filter(|stage| stage.is_for(&port));
        let fresh = stage.is_none();
        let set = || {
            let stage = match stage {
                Some(stage) => stage,
                None => FibStage::new(&port, hook)?,
            };
            hook.update_locals(&seen.locals)?;
            stage.set_devices(&seen.takes)?;
            if fresh { hook.set_stage(StageChange::Fib(Some(&stage))) } else { Ok(()) }
        };
        set().map_err(|error| failed(name, &error))?;
        if !has {
            tracing::info!(port = %name, "the driver hook forwards by the kernel's routes");
            for chain in bypassed() {
                tracing::warn!(port = %name, chain, "netfilter does not see what the driver hook forwards");
            }
        }
        Ok(())
    })
}

/// Returns whether the kernel's reverse-path filter is enabled on this device, in the calling thread's
/// namespace.
fn checks_sources(ifname: &str) -> bool {
    let on = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"))
            .is_ok_and(|text| text.trim() != "0")
    };
    on("all") || on(ifname)
}

/// Returns the netfilter chains of the calling thread's namespace that packets bypass if a hook forwards them.
pub fn bypassed() -> Vec<String> {
    netfilter::chains().unwrap_or_default()
}

/// Counts of the packets that hooks have forwarded according to the kernel's routes, for one port.
#[derive(Clone, Copy, Default, Debug)]
pub struct Forwarded {
    /// Packets and bytes that the port received and its hook forwarded.
    pub received: FibCount,
    /// Packets and bytes that hooks forwarded to the port's device.
    pub sent: FibCount,
}

/// Returns the counters of packets that hooks have forwarded from and to a port.
pub fn counts(ports: &Ports, running: &Running) -> Forwarded {
    let mut forwarded = Forwarded::default();
    let add = |to: &mut FibCount, more: FibCount| {
        to.packets += more.packets;
        to.bytes += more.bytes;
    };
    if let Some(stage) = running.hook.as_ref().and_then(xdp::Attached::fib) {
        stage.counts().unwrap_or_default().into_values().for_each(|more| add(&mut forwarded.received, more));
    }
    let Some(device) = &running.device else { return forwarded };
    let beside = ports.values().filter(|other| {
        let namespace = other.device.as_ref().map(|device| place(device.namespace.as_ref()));
        namespace == Some(place(device.namespace.as_ref()))
    });
    for stage in beside.filter_map(|other| other.hook.as_ref()?.fib()) {
        add(&mut forwarded.sent, stage.count(device.ifindex).unwrap_or_default());
    }
    forwarded
}

/// Returns the text about a hook's routing stage for `trivium show ports`. Returns `None` if the hook has no
/// routing stage.
pub fn state(running: &Running) -> Option<String> {
    running.hook.as_ref()?.fib()?;
    Some("forwards by the kernel's routes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_for_each_cause() {
        let mut failures = Failures::default();
        let mut logged = Vec::new();
        let results = [Err("full"), Err("full"), Err("gone"), Err("gone"), Ok(()), Err("gone")];
        for result in results {
            failures.record(&"port", result, |cause| logged.push(*cause));
        }
        assert_eq!(logged, ["full", "gone", "gone"]);
        failures.retain(|_| false);
        failures.record(&"port", Err::<(), _>("gone"), |cause| logged.push(*cause));
        assert_eq!(logged.len(), 4);
    }
}
