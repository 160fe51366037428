//! The running configuration: names, ports and bridges. A change is applied completely or not at all.
//!
//! A change first performs the steps that can fail:
//!
//! 1. Hooks of filtered ports that get another function are closed. They are opened after the snapshot is published.
//! 2. New ports are opened while all other ports run.
//! 3. Ports to be removed are taken out of the workers' snapshot and closed.
//! 4. Ports whose device was in use by a removed port are opened.
//!
//! If a step fails, the earlier steps are undone: new ports are removed, devices get their former settings,
//! and removed ports are opened again with the old configuration. Changes of bridges and their members cannot
//! fail, because they are part of one snapshot that is published at the end. Ports that the change does not
//! affect are not touched.

mod closed_hooks;
mod opening;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use engine::Engine;
use model::{
    Config, DoctorFinding, FilterName, Finding, Namespace, PortKind, PortName, RouterName, SteeringName,
    SteeringPolicy,
};
use packet::PortId;
use port::af_xdp::BUSY_WAIT;
use xdp::IngressGuard;
use xdp::user::UserProgram;

use super::af_xdp;
use super::bridges::{self, Bridges};
use super::change;
use super::custom_program;
use super::device::{Device, object, place};
use super::fault;
use super::filters::{BlocklistFiles, BuiltLists, Changed, Definition, Filters, Remaining, Tables};
use super::flows::Flows;
use super::foreign::Former;
use super::guards::{guard, guard_port, has_filter};
use super::handover::HandoverError;
use super::hook_offload::{HookOffload, Occasion};
use super::hook_test::HookTest;
use super::ids::Names;
use super::moves::Moves;
use super::open::{self, Footprint, Opened, PortSpec};
use super::ports::{self, Ports, Running};
use super::publish::publish;
use super::routers::{self, AllSessions, Routers};
use super::routing::KernelRouting;
use super::steering::{self, SteeringPolicies};
use opening::{open_all, open_one, wanted_of};

/// State of the running data plane. One lock protects the whole state.
pub struct RunningState {
    /// Configuration that is currently applied.
    pub config: Config,
    /// Assignment of numbers to the names of ports and bridges.
    pub names: Names,
    /// Running ports, indexed by name.
    pub ports: Ports,
    /// Running bridges, indexed by name.
    pub bridges: Bridges,
    /// Running virtual routers.
    pub routers: Routers,
    /// Running packet filters, which the ports' hooks or the workers apply.
    pub filters: Filters,
    /// Running flow steering policies, which the ports' hooks apply.
    pub steering: SteeringPolicies,
    /// OpenFlow datapaths of the bridges, and their slow path.
    pub flows: Flows,
    /// Forwarding of bridged frames in the ports' hooks (XDP programs), without the workers.
    pub hook_offload: HookOffload,
    /// Forwarding according to the kernel's routes in the ports' hooks.
    pub kernel_routing: KernelRouting,
    /// Detected MAC address moves between the ports of each bridge.
    pub moves: Moves,
    /// Number of polls of the routers since the start of the daemon. The routers are polled once a second.
    pub seconds: u64,
    /// Whether the ports come from a hand-over. If so, this process continues with the ports even if a configuration
    /// cannot be applied, and does not leave the ports' hooks to the next start of the daemon.
    pub is_handed_over: bool,
}

/// Names of the ports that a configuration change removes, adds and modifies.
#[derive(Debug, Default)]
struct Steps {
    remove: Vec<PortName>,
    add: Vec<PortName>,
    change: Vec<PortName>,
}

/// A port that a configuration change has removed, with the data for opening the port again.
struct Gone {
    name: PortName,
    wanted: PortSpec,
    footprint: Footprint,
    /// Custom program that ran in front of the hook's own program.
    user: Option<UserProgram>,
    /// Guard of the device: a program that drops all frames that the device passes to the kernel. If a filter is
    /// assigned to the hook, the guard is attached until the configuration change has ended.
    guard: Option<IngressGuard>,
    /// Guard of the device that the port has in the new configuration, if the filter is assigned only there. If the
    /// change fails, this guard is removed before the port is opened again.
    new_guard: Option<IngressGuard>,
}

/// Changed filters, steering policies and routers of the new configuration, after the checks and
/// before the change is applied.
struct Prepared<'a> {
    filters: Vec<(FilterName, Definition)>,
    lists: &'a mut BuiltLists,
    steering: Vec<(SteeringName, SteeringPolicy)>,
    routers: Vec<(RouterName, routers::Running)>,
}

/// Parts of filters, which are read and built before the data plane is locked. After the data plane
/// is unlocked, the caller drops the parts that the change has not used.
pub struct FilterParts<'a> {
    /// Prefixes in the files of block lists.
    pub blocklists: &'a BlocklistFiles,
    /// Block lists that were built from the files.
    pub lists: BuiltLists,
    /// Compiled tables of filter rules.
    pub tables: Tables,
}

/// Steps of a configuration change that are complete. If a later step fails, `undo` reverts them.
#[derive(Default)]
struct Done {
    /// Filters that the configuration change has added or modified, with their former definitions.
    filters: Changed,
    /// Steering policies that the configuration change has added or modified, with their former settings.
    steering: steering::Changed,
    /// New ports that the configuration change has opened and whose queues are not assigned to workers yet.
    early: Vec<(PortName, PortSpec, Opened)>,
    /// Names of the ports that the configuration change has added.
    came: Vec<PortName>,
    /// Ports that the configuration change has removed.
    gone: Vec<Gone>,
    /// Running ports whose settings the configuration change has modified, completely or partly.
    changed: Vec<PortName>,
}

/// Identity of a device: the path of its namespace's file, and its name.
type DeviceKey = (std::path::PathBuf, String);

impl RunningState {
    /// Creates a running configuration without ports and bridges. It contains only the given routers.
    pub fn with(routers: Routers) -> Self {
        RunningState {
            config: Config::default(),
            names: Names::new(),
            ports: Ports::new(),
            bridges: Bridges::new(),
            routers,
            filters: Filters::default(),
            steering: SteeringPolicies::default(),
            flows: Flows::default(),
            hook_offload: HookOffload::default(),
            kernel_routing: KernelRouting::default(),
            moves: Moves::default(),
            seconds: 0,
            is_handed_over: false,
        }
    }

    /// Changes the running configuration to `new`. While the daemon is `starting`, a port whose device is
    /// missing waits for the device.
    ///
    /// # Errors
    /// Returns the error of the first port that could not be opened or changed. The running configuration is
    /// then unchanged.
    pub fn apply(
        &mut self,
        engine: &Engine,
        new: &Config,
        parts: &mut FilterParts<'_>,
        starting: bool,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        let before = self.config.clone();
        let notes = self.change_to(engine, new, parts, starting)?;
        let hooks = self.ports.iter_mut().filter_map(|(name, port)| Some((name, port.hook.as_mut()?)));
        if let Err(error) = af_xdp::complete(hooks) {
            self.leave_adopted_hooks();
            let (blocklists, lists, tables) = Default::default();
            let mut none = FilterParts { blocklists: &blocklists, lists, tables };
            if let Err(error) = self.change_to(engine, &before, &mut none, false) {
                tracing::error!(%error, "could not be undone after a start that failed");
            }
            return Err(error);
        }
        Ok(notes)
    }

    /// Changes the running configuration to `new`. While the daemon is `starting`, the hooks of some ports may still
    /// run placeholder programs when the function returns. These programs must then be replaced by the ports' own
    /// programs.
    fn change_to(
        &mut self,
        engine: &Engine,
        new: &Config,
        parts: &mut FilterParts<'_>,
        starting: bool,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        let steps = self.steps(new);
        // Routers learn their routes before their ports are added.
        let mut prepared = Prepared {
            filters: self.filters.prepare(new, parts.blocklists, &parts.tables)?,
            lists: &mut parts.lists,
            steering: self.steering.prepare(new)?,
            routers: self.routers.prepare(new, starting)?,
        };
        let routers = std::mem::take(&mut prepared.routers);
        let mut done = Done::default();
        // During the change, workers forward all packets and hooks offload none.
        self.hook_offload.forget();
        let mut carried_out = self.carry_out(engine, &steps, prepared, new, starting, &mut done);
        match &mut carried_out {
            Ok(notes) => {
                self.settle(engine, new, &done.gone, routers);
                // The workers now have the functions to which the filters of closed hooks belong.
                notes.extend(self.open_hooks());
                self.filters.forget(done.filters);
            }
            Err(_) => self.undo(engine, done, starting),
        }
        let table = self.flows.table();
        let occasion = if starting { Occasion::Start } else { Occasion::Change };
        self.hook_offload.ensure(engine, &self.config, &mut self.ports, &self.bridges, table, occasion);
        // The hooks are updated at once, so that they are complete if the daemon is killed now.
        self.hook_offload.look(engine, &self.config, &mut self.ports, &self.bridges, table, false);
        self.kernel_routing.ensure(&mut self.ports, true);
        carried_out
    }

    /// Performs the steps of a configuration change that can fail.
    fn carry_out(
        &mut self,
        engine: &Engine,
        steps: &Steps,
        prepared: Prepared<'_>,
        new: &Config,
        starting: bool,
        done: &mut Done,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        let mut notes = Vec::new();
        steps.add.iter().try_for_each(|name| self.check_renamed(name, new))?;
        self.close_hooks(steps, new)?;
        self.filters.change(prepared.filters, prepared.lists, &mut self.ports, &mut done.filters)?;
        self.steering.change(prepared.steering, &mut self.ports, &mut done.steering)?;
        let names = self.early(steps, new).into_iter().cloned().collect();
        let mut failed = None;
        for (name, result) in open_all(engine, names, new, starting) {
            match result {
                Ok(Ok((wanted, opened))) => done.early.push((name, wanted, opened)),
                Ok(Err(why)) => {
                    notes.push(self.wait_for_device(&name, new, why)?);
                    done.came.push(name);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.drain(engine, &steps.remove, Some(new), &mut done.gone);
        for gone in done.gone.iter().filter(|gone| is_made_anew(gone, new)) {
            open::unmake(&gone.name, &gone.wanted, &Footprint { made: true, ..gone.footprint });
        }
        while let Some((name, wanted, opened)) = done.early.pop() {
            done.came.push(name.clone());
            notes.extend(self.install(engine, &name, wanted, opened, &mut None)?);
        }
        let deadline = Instant::now() + BUSY_WAIT;
        for name in steps.add.iter().filter(|name| !done.came.contains(name)).cloned().collect::<Vec<_>>() {
            let busy_wait = deadline.saturating_duration_since(Instant::now());
            let (wanted, opened) =
                open_one(engine, &name, new, former_of(&done.gone, &name, new), busy_wait, None)?;
            done.came.push(name.clone());
            let mut none = None;
            let user = of_name(&mut done.gone, &name).map_or(&mut none, |gone| &mut gone.user);
            notes.extend(self.install(engine, &name, wanted, opened, user)?);
        }
        for name in &steps.change {
            done.changed.push(name.clone());
            self.change(engine, name, new)?;
            let hook = self.ports.get(name).and_then(|running| running.hook.as_ref());
            notes.extend(hook.and_then(|hook| custom_program::stays(name, hook)));
        }
        self.filters.ensure(&mut self.ports)?;
        fault::step("filters")
            .map_err(|cause| PlaneError::failed("config", &HandoverError::Own(cause), ""))?;
        self.steering.ensure(&mut self.ports)?;
        self.check_closed_hooks()?;
        self.filters.ensure_workers(&mut self.ports)?;
        notes.extend(
            done.gone.iter().filter_map(|gone| Some(custom_program::went(&gone.name, gone.user.as_ref()?))),
        );
        Ok(notes)
    }

    /// Performs the steps of a configuration change that cannot fail: releases devices that are no longer
    /// ports, updates the bridges and the routers, publishes a snapshot, and releases the numbers of removed
    /// ports.
    fn settle(
        &mut self,
        engine: &Engine,
        new: &Config,
        gone: &[Gone],
        routers: Vec<(RouterName, routers::Running)>,
    ) {
        let held: BTreeSet<DeviceKey> = new.ports.keys().filter_map(|name| device_of(new, name)).collect();
        let is_held = |gone: &Gone| key_of(&gone.wanted).is_some_and(|key| held.contains(&key));
        for gone in gone.iter().filter(|gone| !is_held(gone)) {
            open::unmake(&gone.name, &gone.wanted, &Footprint { made: true, ..gone.footprint });
        }
        self.bridges = bridges::build(new, &self.bridges, &mut self.names);
        self.routers.commit(engine, new, &self.ports, routers, &mut self.names);
        self.routers.tell_hooks(new, &mut self.ports);
        self.config = new.clone();
        for running in self.ports.values_mut().filter(|running| !has_filter(&running.wanted)) {
            running.guard = None;
        }
        self.filters.retain(new);
        self.steering.retain(new);
        self.publish(engine);
        self.flows.settle();
        self.forget_numbers();
        // Remove entries that workers learned between the creation of the new view and its publication.
        for bridge in self.bridges.values() {
            bridge.prune();
        }
    }

    /// Undoes a configuration change that failed. Pinned hooks that a starting daemon has adopted stay attached to
    /// their devices, and continue to forward as they did before. The ports of a hand-over keep their hooks.
    fn undo(&mut self, engine: &Engine, done: Done, starting: bool) {
        let Done { filters, steering, early, came, mut gone, changed } = done;
        if starting {
            self.leave_adopted_hooks();
        }
        for (name, wanted, mut opened) in early {
            if starting && opened.adopted {
                af_xdp::leave(&name, &wanted, opened.hook.take(), opened.former_constants);
            }
            open::abandon(&name, &wanted, opened, &mut engine.pool());
        }
        let mut left = Vec::new();
        self.drain(engine, &came, None, &mut left);
        let held: BTreeSet<DeviceKey> = gone.iter().filter_map(|gone| key_of(&gone.wanted)).collect();
        for gone in &left {
            // A foreign device that its old port opens again keeps its settings. The old port records the
            // former settings.
            let former =
                gone.footprint.former.filter(|_| key_of(&gone.wanted).is_none_or(|key| !held.contains(&key)));
            open::unmake(&gone.name, &gone.wanted, &Footprint { former, ..gone.footprint });
        }
        for back in left {
            if let (Some(user), Some(gone)) = (back.user, of_name(&mut gone, &back.name)) {
                gone.user = Some(user);
            }
        }
        let old = self.config.clone();
        // A hook that the change has closed stays closed until its former filter is in place.
        self.filters.restore(filters, &mut self.ports);
        self.steering.restore(steering, &mut self.ports);
        let deadline = Instant::now() + BUSY_WAIT;
        gone.iter_mut().for_each(|gone| gone.new_guard = None);
        for gone in gone {
            self.bring_back(engine, gone, deadline.saturating_duration_since(Instant::now()));
        }
        for name in &changed {
            if let Err(error) = self.change(engine, name, &old) {
                tracing::error!(port = %name, %error, "could not be changed back after a change that failed");
            }
        }
        for error in self.filters.ensure_each(&mut self.ports) {
            tracing::error!(%error, "its filter could not be changed back after a change that failed");
        }
        if let Err(error) = self.steering.ensure(&mut self.ports) {
            tracing::error!(%error, "its steering could not be changed back after a change that failed");
        }
        if let Err(error) = self.filters.ensure_workers(&mut self.ports) {
            tracing::error!(%error, "workers' filters could not be changed back after a change that failed");
        }
        if !starting {
            // Free the tables of filters that only ports of the failed change named.
            self.filters.retain(&self.config);
        }
        self.publish(engine);
        self.forget_numbers();
    }

    /// Stops using the pinned hooks that a starting daemon has adopted, and leaves them attached to their devices for
    /// the next start. Does nothing after a hand-over, because the daemon then continues with its ports although the
    /// configuration failed.
    fn leave_adopted_hooks(&mut self) {
        if self.is_handed_over {
            return;
        }
        for (name, running) in self.ports.iter_mut().filter(|(_, running)| running.adopted) {
            af_xdp::leave(name, &running.wanted, running.hook.take(), None);
        }
    }

    /// Opens a port again that a failed configuration change had removed. If the port cannot be opened, it waits for
    /// its device.
    fn bring_back(&mut self, engine: &Engine, gone: Gone, busy_wait: Duration) {
        let Gone { name, wanted, footprint, mut user, guard, .. } = gone;
        let opened = open::open(&name, &wanted, &footprint, busy_wait, None, &mut engine.pool());
        let installed =
            opened.and_then(|opened| self.install(engine, &name, wanted.clone(), opened, &mut user));
        let Err(error) = installed else { return };
        tracing::error!(port = %name, %error, "could not be brought back after a change that failed; it is tried again");
        if guard.is_some() {
            tracing::warn!(port = %name, "a guard drops its device's frames to the kernel until it is open with its filter");
        }
        if let Some(number) = self.names.ports.find(name.as_str()) {
            let running = Running::waiting(PortId(number), wanted, error.cause);
            self.ports.insert(name, Running { footprint, user, guard, ..running });
        }
    }

    /// Removes filter rules, blocked prefixes and exact flows of steering policies that have expired.
    pub fn expire(&mut self, engine: &Engine, remaining: Remaining) {
        self.filters.expire(&mut self.ports, remaining);
        self.filters_have_changed(engine);
        self.steering.expire();
    }

    /// Publishes changed filters to the workers that apply them. The hooks already have the changes.
    pub fn filters_have_changed(&mut self, engine: &Engine) {
        if self.filters.renewed(&mut self.ports) {
            self.publish(engine);
        }
    }

    /// Returns the name of the filter rule by which a worker would drop `frame` on the port `name`. Returns `None` if
    /// no rule would drop the frame.
    pub fn worker_drops(&self, name: &str, frame: &[u8]) -> Option<String> {
        self.filters.ends_at(&self.ports.get(name)?.wanted, frame)
    }

    /// Publishes to workers and hooks the changes that the virtual routers have read from the kernel.
    pub fn routing_has_changed(&mut self, engine: &Engine) {
        self.routers.tell_hooks(&self.config, &mut self.ports);
        self.hook_offload.follow_routers(engine, &self.ports, false);
        self.publish(engine);
    }

    /// Returns the routers whose BGP sessions must be read for the next
    /// [`RunningState::look_at_routers`], each with its namespace. Returns `None` if the sessions
    /// are not due. The sessions are due every other second.
    pub fn routers_with_due_sessions(&self) -> Option<Vec<(RouterName, Option<Namespace>)>> {
        self.seconds.is_multiple_of(2).then(|| self.routers.namespaces())
    }

    /// Polls the routers. This is called once a second. A router whose namespace no longer exists
    /// is closed. A router whose namespace exists again is opened. `sessions` contains the BGP
    /// sessions if they are due in this call.
    pub fn look_at_routers(&mut self, engine: &Engine, sessions: Option<AllSessions>) {
        if self.routers.close_gone(engine) {
            self.routing_has_changed(engine);
        }
        let prepared = self.routers.retry(&self.config, Instant::now());
        if !prepared.is_empty() {
            let config = self.config.clone();
            self.routers.commit(engine, &config, &self.ports, prepared, &mut self.names);
            self.routing_has_changed(engine);
        }
        self.seconds = self.seconds.wrapping_add(1);
        let RunningState { routers, config, ports, names, hook_offload, .. } = self;
        routers.look(engine, config, ports, names, sessions);
        hook_offload.follow_routers(engine, ports, false);
    }

    /// Updates the hooks that forward packets according to the kernel's routes. This function is called once a second.
    pub fn look_at_kernel_routing(&mut self) {
        self.kernel_routing.ensure(&mut self.ports, false);
    }

    /// Updates the offload of bridged frames to the hooks. This function is called a few times a second.
    pub fn look_at_shortcuts(&mut self, engine: &Engine, second: bool) {
        let table = self.flows.table();
        self.hook_offload.look(engine, &self.config, &mut self.ports, &self.bridges, table, second);
    }

    /// Returns a port's hook program for a test run that explains a frame. Returns `None` if the port has no hook or is
    /// down.
    pub fn hook_test(&self, name: &str) -> Option<HookTest> {
        let (name, running) = self.ports.get_key_value(name)?;
        let (hook, device) = (running.hook.as_ref()?, running.device.as_ref()?);
        if running.is_up() { HookTest::new(name, hook, device.namespace.as_ref()) } else { None }
    }

    /// Returns the port whose device has this interface index in a network namespace.
    pub fn port_of_device(&self, namespace: Option<&Namespace>, ifindex: u32) -> Option<&PortName> {
        let is_meant = |device: &Device| {
            device.ifindex == ifindex && place(device.namespace.as_ref()) == place(namespace)
        };
        let port = self.ports.iter().find(|(_, port)| port.device.as_ref().is_some_and(is_meant));
        port.map(|(name, _)| name)
    }

    /// Publishes a snapshot of the running configuration to the workers.
    pub fn publish(&mut self, engine: &Engine) {
        ports::join(&mut self.ports);
        self.flows.follow(&self.config, &self.ports, &self.bridges);
        self.flows.forget(engine);
        self.routers.tell_carriers(&self.ports);
        publish(engine, &self.config, &self.ports, &self.bridges, &self.routers, &self.flows);
        self.flows.ensure(engine);
    }

    /// Compares the running ports with the configuration `new`. Returns the ports to add and to remove, and the
    /// running ports whose settings differ. A port that needs a new device is removed and added.
    fn steps(&self, new: &Config) -> Steps {
        let mut steps = Steps::default();
        // After a hand-over, the running configuration may have ports that the control plane does not know.
        let old = &self.config.ports;
        let stays =
            |name: &PortName, port| old.get(name).is_some_and(|before| !model::is_recreated(before, port));
        let left = old.keys().filter(|name| !new.ports.get(*name).is_some_and(|port| stays(name, port)));
        steps.remove.extend(left.cloned());
        let came = new.ports.iter().filter(|(name, port)| !stays(name, port));
        steps.add.extend(came.map(|(name, _)| name.clone()));
        for (name, running) in &self.ports {
            let Some(wanted) = PortSpec::of(new, name) else { continue };
            let stays = !steps.remove.contains(name);
            if stays && running.hook.is_some() && running.wanted.policy.persist != wanted.policy.persist {
                // A link is pinned when it is created, so this port is opened again.
                steps.remove.push(name.clone());
                steps.add.push(name.clone());
            } else if stays && running.wanted != wanted {
                steps.change.push(name.clone());
            }
        }
        steps
    }

    /// Returns the new ports that can be opened first, because no port that the change removes uses their devices.
    fn early<'s>(&self, steps: &'s Steps, new: &Config) -> Vec<&'s PortName> {
        let held: BTreeSet<DeviceKey> =
            steps.remove.iter().filter_map(|name| device_of(&self.config, name)).collect();
        let free = |name: &&PortName| device_of(new, name).is_none_or(|device| !held.contains(&device));
        steps.add.iter().filter(|name| !steps.remove.contains(*name)).filter(free).collect()
    }

    /// Returns the number by which the data path identifies a port. Allocates a number if the port does not
    /// have one.
    fn number(&mut self, name: &PortName) -> Result<PortId, PlaneError> {
        let known = self.names.ports.find(name.as_str());
        known.or_else(|| self.names.ports.take(name.as_str())).map(PortId).ok_or_else(|| PlaneError {
            kind: FailureKind::Invalid,
            object: object(name),
            cause: format!("{} ports are as many as one process can have", engine::counters::MAX_PORTS),
            fix: "remove ports that are not used".to_owned(),
        })
    }

    /// Installs the filter and the steering of a newly opened port that is not in the workers' snapshot yet. Then makes
    /// the port's hook pass frames.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the filter, the steering or the hook's program. The hook then
    /// passes no frame.
    pub fn equip(
        &mut self,
        name: &PortName,
        wanted: &PortSpec,
        opened: &mut Opened,
    ) -> Result<(), PlaneError> {
        self.filters.equip(name, wanted, opened)?;
        opened.former_constants = None;
        self.steering.equip(name, wanted, opened)?;
        opened.unlock(name, wanted)
    }

    /// Installs an open port: its filter and steering, the custom program `user` in front of its hook, and its queues.
    /// After an error, the port is closed, and `user` still holds the custom program. An adopted hook stays attached.
    fn install(
        &mut self,
        engine: &Engine,
        name: &PortName,
        wanted: PortSpec,
        mut opened: Opened,
        user: &mut Option<UserProgram>,
    ) -> Result<Vec<DoctorFinding>, PlaneError> {
        // Filter and steering are in place before the first packet can pass.
        let number = self.number(name);
        let equipped = number.and_then(|id| self.equip(name, &wanted, &mut opened).map(|()| id));
        let id = match equipped {
            Ok(id) => id,
            Err(error) => {
                if opened.adopted {
                    af_xdp::leave(name, &wanted, opened.hook.take(), opened.former_constants);
                }
                open::abandon(name, &wanted, opened, &mut engine.pool());
                return Err(error);
            }
        };
        if let Some(user) = user.take() {
            opened.notes.push(custom_program::give(name, opened.hook.as_mut(), user));
        }
        let (notes, footprint) = (opened.notes.clone(), opened.footprint);
        match Running::install(engine, name, id, wanted.clone(), opened, user) {
            Ok(running) => {
                self.ports.insert(name.clone(), running);
                Ok(notes)
            }
            Err(error) => {
                open::unmake(name, &wanted, &footprint);
                Err(error)
            }
        }
    }

    /// Adds a port whose device is missing. Returns the diagnostic about the missing device.
    fn wait_for_device(
        &mut self,
        name: &PortName,
        config: &Config,
        why: String,
    ) -> Result<DoctorFinding, PlaneError> {
        let id = self.number(name)?;
        let wanted = wanted_of(name, config)?;
        tracing::warn!(port = %name, why, "the port waits for its device");
        let note = DoctorFinding {
            object: object(name),
            severity: Finding::Warning,
            finding: format!("it waits for its device: {why}"),
            fix: "make the device, or correct its name or namespace in the configuration".to_owned(),
        };
        self.ports.insert(name.clone(), Running::waiting(id, wanted, why));
        Ok(note)
    }

    /// Removes running ports. First publishes a snapshot without the ports, so that no worker sends to them, and then
    /// closes them. `new` is the configuration that the change establishes. If a port has a filter now or in `new`, its
    /// device gets a guard, which drops all frames that the device passes to the kernel.
    fn drain(&mut self, engine: &Engine, names: &[PortName], new: Option<&Config>, gone: &mut Vec<Gone>) {
        // The name keeps its number until the end of the change, so a port that is added again has the same
        // number.
        let out: Vec<(PortName, Running)> =
            names.iter().filter_map(|name| self.ports.remove_entry(name)).collect();
        if out.is_empty() {
            return;
        }
        self.publish(engine);
        gone.extend(out.into_iter().map(|(name, mut running)| {
            let guard = running.guard.take().or_else(|| guard(&name, &running));
            let wanted = new.filter(|_| guard.is_none()).and_then(|new| PortSpec::of(new, &name));
            let new_guard = wanted.and_then(|wanted| guard_port(&name, &wanted, None));
            running.close(engine);
            let Running { wanted, footprint, user, .. } = running;
            Gone { name, wanted, footprint, user, guard, new_guard }
        }));
    }

    /// Releases the numbers of ports that no longer exist.
    fn forget_numbers(&mut self) {
        let (ports, routers) = (&self.ports, &self.routers);
        self.names.ports.retain(|name| ports.contains_key(name) || routers.has_port(name));
    }

    /// Checks that a running port can be opened again under the name that its device has in the configuration `new`.
    ///
    /// # Errors
    /// Returns an error if the device was renamed, and `new` still has its former name.
    fn check_renamed(&self, name: &PortName, new: &Config) -> Result<(), PlaneError> {
        let Some(running) = self.ports.get(name) else { return Ok(()) };
        let (PortKind::AfXdp(own), Some(device)) = (&running.wanted.port.kind, &running.device) else {
            return Ok(());
        };
        let configured = own.device.as_str();
        let is_same =
            new.ports.get(name).and_then(|port| port.kind.device()) == running.wanted.port.kind.device();
        match device.renamed(configured).filter(|_| is_same) {
            Some(now) => Err(PlaneError {
                kind: FailureKind::Invalid,
                object: object(name),
                cause: format!("its device {configured} was renamed to {now}, and the change opens it again"),
                fix: "set its device to the new name in the same change, or rename the device back"
                    .to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Changes the settings of a running port to those in `new`.
    fn change(&mut self, engine: &Engine, name: &PortName, new: &Config) -> Result<(), PlaneError> {
        match (PortSpec::of(new, name), self.ports.get_mut(name)) {
            (Some(wanted), Some(running)) => change::change(engine, name, running, wanted),
            _ => Ok(()),
        }
    }
}

fn of_name<'g>(gone: &'g mut [Gone], name: &PortName) -> Option<&'g mut Gone> {
    gone.iter_mut().find(|gone| gone.name == *name)
}

/// Returns the settings that the device of port `name` had originally, if one of the removed ports used this
/// device.
fn former_of(gone: &[Gone], name: &PortName, new: &Config) -> Option<Former> {
    let device = device_of(new, name)?;
    gone.iter().find(|gone| key_of(&gone.wanted).as_ref() == Some(&device))?.footprint.former
}

/// Returns whether the veth pair of a removed port must be created again, because the new port on
/// the pair needs other settings of the pair.
fn is_made_anew(gone: &Gone, new: &Config) -> bool {
    let PortKind::Veth(old) = &gone.wanted.port.kind else { return false };
    let key = key_of(&gone.wanted);
    let holder = new.ports.keys().find(|name| key.is_some() && device_of(new, name) == key);
    match holder.and_then(|name| new.ports.get(name)).map(|port| &port.kind) {
        Some(PortKind::Veth(new)) => {
            let ends = |pair: &model::Veth| (pair.peer.name.clone(), place(pair.peer.namespace.as_ref()));
            let chosen = old.peer.mac.is_some() && new.peer.mac.is_none();
            ends(old) != ends(new) || old.xdp.queues.count() != new.xdp.queues.count() || chosen
        }
        _ => false,
    }
}

/// Returns the identity of the device that the configuration assigns to a port.
fn device_of(config: &Config, name: &PortName) -> Option<DeviceKey> {
    device_key(&config.ports.get(name)?.kind)
}

fn key_of(wanted: &PortSpec) -> Option<DeviceKey> {
    device_key(&wanted.port.kind)
}

fn device_key(kind: &PortKind) -> Option<DeviceKey> {
    let (device, namespace) = kind.device()?;
    Some((place(namespace), device.as_str().to_owned()))
}
