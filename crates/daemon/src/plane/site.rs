//! What runs: configuration, names, ports and bridges, changed only as a whole.
//!
//! What can fail comes first: new ports are opened while everything else goes on. Then ports that go are drained and
//! closed, and ports whose device is needed anew are opened; if one of these fails, what went is opened again from the old
//! configuration. Bridges and memberships cannot fail: they are one snapshot, published at the end. Ports that stay as
//! they are are not touched.

use std::collections::BTreeSet;

use control::{FailureKind, PlaneError};
use engine::Engine;
use model::{Config, DoctorFinding, Operation, Plan, PortName};
use packet::PortId;
use port::link::{self, LinkChange};

use super::af_xdp::{self, Request};
use super::bridges::{self, Bridges};
use super::device::{failed, inside, object, place};
use super::ids::Names;
use super::open::{self, Opened, Wanted};
use super::ports::{Ports, Running, engine_failed, publish};

/// See the module documentation.
pub struct Site {
    /// The configuration that runs.
    pub config: Config,
    /// Names and numbers.
    pub names: Names,
    /// The ports.
    pub ports: Ports,
    /// The bridges.
    pub bridges: Bridges,
}

/// Which ports a plan concerns.
#[derive(Debug, Default)]
struct Steps {
    remove: Vec<PortName>,
    add: Vec<PortName>,
    change: Vec<PortName>,
}

impl Site {
    /// Nothing runs.
    pub fn empty() -> Self {
        Site { config: Config::default(), names: Names::new(), ports: Ports::new(), bridges: Bridges::new() }
    }

    /// Does what leads from what runs to `new`.
    ///
    /// # Errors
    /// The first port that could not be opened or changed; everything is as before then.
    pub fn apply(&mut self, engine: &Engine, new: &Config) -> Result<Vec<DoctorFinding>, PlaneError> {
        // What runs is the truth: after a hand-over it is more than the control plane knows of.
        let plan = &model::diff(&self.config, new);
        let steps = self.steps(plan, new);
        let mut notes = Vec::new();
        let early = self.open_early(engine, &steps, new)?;
        let gone = self.drain(engine, &steps.remove);
        for (name, opened) in early {
            notes.extend(self.install(engine, &name, new, opened)?);
        }
        let late: Vec<PortName> =
            steps.add.iter().filter(|name| !self.ports.contains_key(*name)).cloned().collect();
        for name in &late {
            match self.open_late(engine, name, new) {
                Ok(found) => notes.extend(found),
                Err(error) => {
                    self.roll_back(engine, &steps);
                    return Err(error);
                }
            }
        }
        for name in &steps.change {
            if let Err(error) = self.change(engine, name, new) {
                self.roll_back(engine, &steps);
                return Err(error);
            }
        }
        for (name, wanted) in &gone {
            if device_of(new, name) != device_of(&self.config, name) {
                open::unmake(name, wanted);
            }
        }
        self.bridges = bridges::build(new, &self.bridges, &mut self.names);
        self.config = new.clone();
        self.publish(engine);
        for name in plan_removed(plan).filter(|name| !new.ports.contains_key(*name)) {
            if let Some(number) = self.names.ports.find(name.as_str()) {
                self.names.ports.release(number);
            }
        }
        // Entries that were learned between the new view's making and its publication.
        for bridge in self.bridges.values() {
            bridge.prune();
        }
        Ok(notes)
    }

    /// Publishes what runs.
    pub fn publish(&self, engine: &Engine) {
        publish(engine, &self.config, &self.ports, &self.bridges);
    }

    /// The plan's ports, and those whose hook must be told otherwise because a bridge takes or leaves them.
    fn steps(&self, plan: &Plan, new: &Config) -> Steps {
        let mut steps = Steps::default();
        for operation in &plan.operations {
            match operation {
                Operation::RemovePort { name } => steps.remove.push(name.clone()),
                Operation::AddPort { name, .. } => steps.add.push(name.clone()),
                _ => {}
            }
        }
        for (name, running) in &self.ports {
            let Some(wanted) = Wanted::of(new, name) else { continue };
            let stays = !steps.remove.contains(name);
            if stays && running.hook.is_some() && running.wanted.policy.persist != wanted.policy.persist {
                // A link is pinned when it is made: such a port is opened anew.
                steps.remove.push(name.clone());
                steps.add.push(name.clone());
            } else if stays && running.wanted != wanted {
                steps.change.push(name.clone());
            }
        }
        steps
    }

    /// Opens the new ports whose devices nobody holds yet.
    fn open_early(
        &self,
        engine: &Engine,
        steps: &Steps,
        new: &Config,
    ) -> Result<Vec<(PortName, Opened)>, PlaneError> {
        let held: BTreeSet<_> =
            steps.remove.iter().filter_map(|name| device_of(&self.config, name)).collect();
        let mut opened = Vec::new();
        for name in steps.add.iter().filter(|name| !steps.remove.contains(*name)) {
            if device_of(new, name).is_some_and(|device| held.contains(&device)) {
                continue;
            }
            match open_one(engine, name, new) {
                Ok(port) => opened.push((name.clone(), port)),
                Err(error) => {
                    for (_, port) in opened {
                        discard(engine, port);
                    }
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    fn open_late(
        &mut self,
        engine: &Engine,
        name: &PortName,
        new: &Config,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        let opened = open_one(engine, name, new)?;
        self.install(engine, name, new, opened)
    }

    fn install(
        &mut self,
        engine: &Engine,
        name: &PortName,
        config: &Config,
        opened: Opened,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        let Some(wanted) = Wanted::of(config, name) else { return Ok(Vec::new()) };
        let known = self.names.ports.find(name.as_str());
        let Some(number) = known.or_else(|| self.names.ports.take(name.as_str())) else {
            discard(engine, opened);
            return Err(PlaneError {
                kind: FailureKind::Invalid,
                object: object(name),
                cause: format!("{} ports are as many as one process can have", engine::counters::MAX_PORTS),
                fix: "remove ports that are not used".to_owned(),
            });
        };
        let notes = opened.notes.clone();
        let running = Running::install(engine, name, PortId(number), wanted, opened)?;
        self.ports.insert(name.clone(), running);
        Ok(notes)
    }

    /// Takes ports out: first no worker sends to them any more, then they are closed.
    fn drain(&mut self, engine: &Engine, names: &[PortName]) -> Vec<(PortName, Wanted)> {
        if names.is_empty() {
            return Vec::new();
        }
        // The number stays with the name until the end of the change: a port that comes again keeps it.
        let mut gone: Vec<(PortName, Running)> =
            names.iter().filter_map(|name| self.ports.remove_entry(name)).collect();
        self.publish(engine);
        for (_, running) in &mut gone {
            running.close(engine);
        }
        gone.into_iter().map(|(name, running)| (name, running.wanted)).collect()
    }

    /// Brings back what ran before a change that failed half-way.
    fn roll_back(&mut self, engine: &Engine, steps: &Steps) {
        let added: Vec<PortName> =
            steps.add.iter().filter(|name| self.ports.contains_key(*name)).cloned().collect();
        self.drain(engine, &added);
        let old = self.config.clone();
        for name in &steps.remove {
            if let Err(error) = self.open_late(engine, name, &old) {
                tracing::error!(port = %name, %error, "could not be brought back after a change that failed");
            }
        }
        for name in &steps.change {
            if let Err(error) = self.change(engine, name, &old) {
                tracing::error!(port = %name, %error, "could not be changed back after a change that failed");
            }
        }
        self.publish(engine);
    }

    /// Changes a port while it runs.
    fn change(&mut self, engine: &Engine, name: &PortName, new: &Config) -> Result<(), PlaneError> {
        let (Some(wanted), Some(running)) = (Wanted::of(new, name), self.ports.get_mut(name)) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut running.wanted, wanted);
        let wanted = running.wanted.clone();
        if before.port.workers != wanted.port.workers {
            running.rehome(engine).map_err(|error| engine_failed(name, &error))?;
        }
        if before.port.spread != wanted.port.spread {
            running.spread = wanted.port.spread.then(|| super::ports::even_spread(engine.workers()));
        }
        set_mtu(name, running, &before, &wanted)?;
        let policy = (before.policy, before.bridged) != (wanted.policy, wanted.bridged);
        if let (true, Some(hook), Some(options)) = (policy, &mut running.hook, wanted.port.kind.xdp()) {
            let request = Request {
                name,
                options,
                policy: wanted.policy,
                bridged: wanted.bridged,
                own: false,
                mtu: None,
            };
            let config = af_xdp::program(&request, hook.constants().queues);
            let swapped = hook.prepare(&config).and_then(|loaded| hook.swap(loaded));
            swapped.map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }
}

fn plan_removed(plan: &Plan) -> impl Iterator<Item = &PortName> {
    plan.operations.iter().filter_map(|operation| match operation {
        Operation::RemovePort { name } => Some(name),
        _ => None,
    })
}

/// Gives the device the MTU that is wanted now.
fn set_mtu(
    name: &PortName,
    running: &mut Running,
    before: &Wanted,
    wanted: &Wanted,
) -> Result<(), PlaneError> {
    let Some(mtu) = wanted.port.mtu.filter(|_| before.port.mtu != wanted.port.mtu) else { return Ok(()) };
    let mtu = u32::from(mtu.get());
    if let Some(device) = &mut running.device {
        let (ifindex, namespace) = (device.ifindex, device.namespace.clone());
        inside(&object(name), namespace.as_ref(), || {
            link::set(ifindex, &LinkChange { mtu: Some(mtu), ..LinkChange::default() })
                .map_err(|error| failed(name, &error))
        })?;
        device.mtu = mtu;
    }
    running.mtu = mtu;
    Ok(())
}

fn open_one(engine: &Engine, name: &PortName, config: &Config) -> Result<Opened, PlaneError> {
    let wanted = Wanted::of(config, name).ok_or_else(|| {
        PlaneError::not_found(
            object(name),
            "the plan names a port that the configuration does not have",
            "apply again",
        )
    })?;
    open::open(name, &wanted, &mut engine.pool())
}

/// Closes what was opened and not installed.
fn discard(engine: &Engine, opened: Opened) {
    let mut pool = engine.pool();
    for (_, queue) in opened.queues {
        queue.close(&mut pool);
    }
    if let Some(hook) = opened.hook {
        // There is an error to be told already.
        let _ = hook.detach();
    }
}

/// The device that a port holds, as far as the configuration tells.
fn device_of(config: &Config, name: &PortName) -> Option<(std::path::PathBuf, String)> {
    let (device, namespace) = config.ports.get(name)?.kind.device()?;
    Some((place(namespace), device.as_str().to_owned()))
}
