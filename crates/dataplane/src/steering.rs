//! Running flow steering policies, which select the target (worker, kernel or CPU) for the frames of a flow. The kernel
//! objects (BPF maps) of a policy are created when the hook (XDP program) of a port first needs them. All ports that
//! refer to the policy share these objects, which can be changed while traffic flows.
//!
//! Changes that API clients make while the daemon runs (exact flows, or another table) are stored only in the kernel,
//! where a flag distinguishes them from the configuration. A successor process finds these changes in the hooks, after
//! a hand-over or after the daemon was killed. When the last hook with a policy is removed, the kernel objects are
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::{
    Config, PortName, SteeringDone, SteeringEntry, SteeringFlow, SteeringName, SteeringPolicy,
    SteeringRequest, SteeringSent, SteeringShare, SteeringState, SteeringTable, SteeringTarget,
};
use packet::VlanId;
use packet::net::FiveTuple;
use xdp::filter::Moment;
use xdp::steer::{self, FlowEntry, STEER_BUCKETS, SteerConfig, Steering, online_cpus};
use xdp::{Attached, StageChange};

use super::af_xdp;
use super::open::{Opened, PortSpec};
use super::ports::{Ports, Running};

/// Returns the number that identifies a steering policy in its kernel objects. The number is never
/// 0. The number is an FNV-1a hash of the name, because successors of other releases must compute
/// an equal number.
fn owner(name: &SteeringName) -> u32 {
    let hash = name
        .as_str()
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Maximum number of exact flows that are listed before the data plane is unlocked for other threads.
const SLICE: usize = 4096;

/// Position in the list of a policy's exact flows, directly after one of the flows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(Option<FiveTuple>);

impl Place {
    /// Position before the first flow of the list.
    pub const START: Place = Place(None);
}

/// Exact flows of a steering policy, and the position at which the list continues. `None` at the end of the list.
pub type FlowSlice = (Vec<SteeringEntry>, Option<Place>);

/// Calls `slice` repeatedly and returns at most `limit` exact flows. `slice` returns the flows from a position on, up
/// to a maximum number. Each call locks the data plane separately, so that other threads can lock it between two calls.
/// A flow that is added between two calls may be missing.
///
/// # Errors
/// Returns the error of `slice`.
pub fn list_flows(
    limit: usize,
    slice: impl Fn(Place, usize) -> Result<FlowSlice, PlaneError>,
) -> Result<Vec<SteeringEntry>, PlaneError> {
    let (mut all, mut from) = (Vec::new(), Some(Place::START));
    while let Some(start) = from.filter(|_| all.len() < limit) {
        let (found, next) = slice(start, limit - all.len())?;
        all.extend(found);
        from = next;
    }
    Ok(all)
}

/// Running flow steering policies of the daemon.
#[derive(Default)]
pub struct SteeringPolicies {
    running: BTreeMap<SteeringName, Steered>,
}

/// State of a running flow steering policy.
struct Steered {
    wanted: SteeringPolicy,
    kernel: Option<Steering>,
}

/// Changed policies, for undoing the changes. Each entry has the former configuration of the policy, or `None` if the
/// policy is new.
pub type Changed = Vec<(SteeringName, Option<SteeringPolicy>)>;

impl SteeringPolicies {
    /// Checks the steering policies of the new configuration. The running policies do not change.
    ///
    /// # Errors
    /// Returns an error if the CPU of a steering target is not online.
    pub fn prepare(&self, new: &Config) -> Result<Vec<(SteeringName, SteeringPolicy)>, PlaneError> {
        let differs = |name: &SteeringName, wanted: &SteeringPolicy| {
            self.running.get(name).is_none_or(|it| it.wanted != *wanted)
        };
        let changed = new.steering.iter().filter(|(name, wanted)| differs(name, wanted));
        changed
            .map(|(name, wanted)| {
                let targets = wanted.table.iter().copied().chain(wanted.flows.iter().map(|flow| flow.to));
                check_cpus(name, targets)?;
                Ok((name.clone(), wanted.clone()))
            })
            .collect()
    }

    /// Applies changed steering policies on all ports that use them. The changes are recorded in `changed` even if one
    /// of them fails.
    ///
    /// # Errors
    /// Returns an error if the table of exact flows is full, or if the kernel refuses a change.
    pub fn change(
        &mut self,
        prepared: Vec<(SteeringName, SteeringPolicy)>,
        ports: &mut Ports,
        changed: &mut Changed,
    ) -> Result<(), PlaneError> {
        for (name, wanted) in prepared {
            changed.push((name.clone(), self.running.get(&name).map(|running| running.wanted.clone())));
            self.define(&name, wanted, ports)?;
        }
        Ok(())
    }

    fn define(
        &mut self,
        name: &SteeringName,
        wanted: SteeringPolicy,
        ports: &mut Ports,
    ) -> Result<(), PlaneError> {
        let Some(running) = self.running.get_mut(name) else {
            self.running.insert(name.clone(), Steered { wanted, kernel: None });
            return Ok(());
        };
        let table_differs = running.wanted.table != wanted.table;
        running.wanted = wanted;
        running.rewrite(ports, table_differs).map_err(|error| failed(name, &error))
    }

    /// Undoes the changes of steering policies that `changed` records.
    pub fn restore(&mut self, changed: Changed, ports: &mut Ports) {
        for (name, before) in changed.into_iter().rev() {
            let Some(wanted) = before else {
                self.running.remove(&name);
                continue;
            };
            if let Err(error) = self.define(&name, wanted, ports) {
                tracing::error!(%error, "could not be changed back after a change that failed");
            }
        }
    }

    /// Removes steering policies that the new configuration does not contain.
    pub fn retain(&mut self, new: &Config) {
        self.running.retain(|name, _| new.steering.contains_key(name));
    }

    /// Installs in every port's hook the steering policy to which the port refers. Skips hooks that are detached.
    ///
    /// # Errors
    /// Returns an error for the first hook that refuses its policy.
    pub fn ensure(&mut self, ports: &mut Ports) -> Result<(), PlaneError> {
        for (port, running) in ports {
            let wanted = named(running).cloned();
            if let Some(hook) = &mut running.hook {
                let put = self.put(port, wanted.as_ref(), hook);
                af_xdp::unless_detached(port, hook, put)?;
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        port: &PortName,
        wanted: Option<&SteeringName>,
        hook: &mut Attached,
    ) -> Result<(), PlaneError> {
        let failed = |error: xdp::Error| super::device::failed(port, &error);
        let present = hook.steering_id().map_err(failed)?;
        let Some(name) = wanted else {
            return if present.is_some() {
                hook.set_stage(StageChange::Steering(None)).map_err(failed)
            } else {
                Ok(())
            };
        };
        let taken = self.ids();
        let running = self.running.get_mut(name).ok_or_else(|| {
            let cause = format!("its steering {name} does not run");
            PlaneError::not_found(super::device::object(port), cause, "see `trivium show steering`")
        })?;
        if let Some(kernel) = &running.kernel {
            return if kernel.is_on(hook) {
                Ok(())
            } else {
                hook.set_stage(StageChange::Steering(Some(kernel))).map_err(failed)
            };
        }
        let taken = taken.map_err(failed)?;
        let left = present.is_some_and(|id| !taken.contains(&id));
        let adopted = left.then(|| running.adopt(hook, owner(name))).transpose();
        let adopted = adopted.unwrap_or_else(|error| {
            tracing::warn!(steering = %name, %error, "what a predecessor has left is not adopted");
            None
        });
        let kernel = match adopted.flatten() {
            Some(kernel) => kernel,
            None => running.make(owner(name)).map_err(failed)?,
        };
        hook.set_stage(StageChange::Steering(Some(&kernel))).map_err(failed)?;
        running.kernel = Some(kernel);
        Ok(())
    }

    /// Installs the steering policy of a newly opened port that is not in the workers' snapshot yet.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the policy.
    pub fn equip(
        &mut self,
        port: &PortName,
        wanted: &PortSpec,
        opened: &mut Opened,
    ) -> Result<(), PlaneError> {
        opened.hook.as_mut().map_or(Ok(()), |hook| self.put(port, wanted.steering(), hook))
    }

    /// Returns the kernel IDs of the running policies' kernel objects.
    fn ids(&self) -> Result<Vec<u32>, xdp::Error> {
        self.running.values().filter_map(|running| running.kernel.as_ref()).map(Steering::id).collect()
    }

    /// Returns a text about the settings of a port's steering policy that the port's hook does not
    /// support. Returns `None` if the hook supports all settings.
    #[must_use]
    pub fn lacks(&self, running: &Running) -> Option<&'static str> {
        let kernel = self.running.get(named(running)?)?.kernel.as_ref()?;
        let hook = running.hook.as_ref()?;
        (kernel.is_on(hook) && kernel.names_cpus() && !hook.sends_to_cpus()).then_some(
            "in generic mode packets for a CPU stay with the kernel on the one that they came to, since it loses what goes to another",
        )
    }

    /// Removes exact flows that have expired. The housekeeping thread calls this function regularly.
    pub fn expire(&mut self) {
        let now = Moment::now();
        for (name, running) in &mut self.running {
            let expired = running.kernel.as_mut().map_or(Ok(0), |kernel| kernel.expire(now));
            if let Err(error) = expired {
                tracing::warn!(steering = %name, %error, "flows that have ended could not be taken out");
            }
        }
    }

    /// Returns the states of all steering policies for the API.
    pub fn states(&self, ports: &Ports) -> Vec<SteeringState> {
        self.running.iter().map(|(name, running)| running.state(name, ports)).collect()
    }

    /// Returns the next slice of the exact flows of a steering policy, at most `limit` flows.
    ///
    /// # Errors
    /// Returns an error if there is no such policy.
    pub fn flows(&self, name: &str, from: Place, limit: usize) -> Result<FlowSlice, PlaneError> {
        let running = self.running.get(name).ok_or_else(|| no_such(name))?;
        let now = Moment::now();
        let Some(kernel) = &running.kernel else {
            // The flows are not returned in slices here, because the size of the configuration limits their number.
            let flows = if from == Place::START { running.wanted.flows.as_slice() } else { &[] };
            return Ok((flows.iter().take(limit).map(shown).collect(), None));
        };
        let entry = |(flow, entry, count): (FiveTuple, FlowEntry, xdp::steer::SteerCount)| SteeringEntry {
            vlan: flow.vlan.map(VlanId::get),
            source: flow.source,
            destination: flow.destination,
            protocol: flow.protocol,
            source_port: flow.ports.map(|ports| ports.0),
            destination_port: flow.ports.map(|ports| ports.1),
            to: told(entry.to),
            mark: entry.mark,
            expires_s: entry.expires.map(|at| at.0.saturating_sub(now.0).div_ceil(1_000_000_000)),
            live: entry.live,
            packets: count.packets,
            bytes: count.bytes,
        };
        let found: Vec<_> = kernel.flows_after(from.0).take(limit.min(SLICE)).collect();
        let next = found.last().filter(|_| found.len() == SLICE).map(|(last, ..)| Place(Some(*last)));
        Ok((found.into_iter().map(entry).collect(), next))
    }

    /// Adds or removes exact flows of a steering policy. Either all flows of the request are changed, or none.
    ///
    /// # Errors
    /// Returns an error if there is no such policy, if no port uses it, if its table is full, or if a
    /// flow comes from the configuration.
    pub fn change_flows(
        &mut self,
        name: &str,
        request: &SteeringRequest,
    ) -> Result<SteeringDone, PlaneError> {
        let (name, running) = self.found(name)?;
        let (wanted, kernel) = (&running.wanted, running.kernel.as_mut());
        let kernel = kernel.ok_or_else(|| unused(&name))?;
        if !request.remove {
            check_cpus(&name, request.flows.iter().map(|flow| flow.to))?;
        }
        let now = Moment::now();
        let mut steps = Vec::with_capacity(request.flows.len());
        for asked in &request.flows {
            let key = asked.key().map_err(|(cause, fix)| invalid(&name, cause.to_owned(), fix))?;
            let flow = key;
            if kernel.get(&flow).is_some_and(|entry| !entry.live) {
                let fix = "change it there, and apply that";
                return Err(invalid(&name, format!("flow {key} is the configuration's"), fix));
            }
            if asked.mark != 0 && !wanted.metadata && !request.remove {
                let cause = "it hands no marks on".to_owned();
                return Err(invalid(&name, cause, "give it `metadata = true` and apply that"));
            }
            let expires = asked.expires_s.map(|seconds| now.after(Duration::from_secs(seconds)));
            let entry = FlowEntry { to: meant(asked.to), mark: asked.mark, expires, live: true };
            steps.push((flow, (!request.remove).then_some(entry)));
        }
        let mut done: Vec<(FiveTuple, Option<FlowEntry>)> = Vec::new();
        for (flow, entry) in steps {
            let before = kernel.get(&flow);
            let did = match entry {
                Some(entry) if before != Some(entry) => kernel.insert(flow, entry).map(|()| true),
                Some(_) => Ok(false),
                None => kernel.remove(&flow),
            };
            match did {
                Ok(true) => done.push((flow, before)),
                Ok(false) => {}
                Err(error) => {
                    undo(kernel, done);
                    return Err(match &error {
                        xdp::Error::SteerFull { .. } | xdp::Error::SteerFlow { .. } => refused(&name, &error),
                        _ => failed(&name, &error),
                    });
                }
            }
        }
        Ok(SteeringDone { changed: wide(done.len()), flows: wide(kernel.len()) })
    }

    /// Returns the table of a steering policy: the target for each bucket of the flow hash.
    ///
    /// # Errors
    /// Returns an error if there is no such policy, or if it has no table.
    pub fn table(&self, name: &str) -> Result<SteeringTable, PlaneError> {
        let (key, running) = self.running.get_key_value(name).ok_or_else(|| no_such(name))?;
        let table = running.table().ok_or_else(|| no_table(key))?;
        Ok(SteeringTable { buckets: table.iter().map(|to| told(*to)).collect() })
    }

    /// Replaces the table of a steering policy. The new table is used until the configuration changes the table.
    ///
    /// # Errors
    /// Returns an error if there is no such policy, if it has no table, if no port uses it, or if the new
    /// table is invalid.
    pub fn set_table(&mut self, name: &str, table: &SteeringTable) -> Result<(), PlaneError> {
        let (name, running) = self.found(name)?;
        if running.wanted.table.is_empty() {
            return Err(no_table(&name));
        }
        let length = table.buckets.len();
        if !length.is_power_of_two() || length > STEER_BUCKETS {
            let cause = format!("{length} buckets are not possible");
            return Err(invalid(&name, cause, "use a power of two up to 256"));
        }
        check_cpus(&name, table.buckets.iter().copied())?;
        let kernel = running.kernel.as_mut().ok_or_else(|| unused(&name))?;
        kernel.set_table(&repeated(&table.buckets), true).map_err(|error| failed(&name, &error))
    }

    fn found(&mut self, name: &str) -> Result<(SteeringName, &mut Steered), PlaneError> {
        let key = self.running.get_key_value(name).map(|(name, _)| name.clone());
        let key = key.ok_or_else(|| no_such(name))?;
        let running = self.running.get_mut(name).ok_or_else(|| no_such(name))?;
        Ok((key, running))
    }
}

/// Undoes the changes of steering flows in `done`, from the last change to the first.
fn undo(kernel: &mut Steering, done: Vec<(FiveTuple, Option<FlowEntry>)>) {
    for (flow, before) in done.into_iter().rev() {
        let undone = match before {
            Some(entry) => kernel.insert(flow, entry),
            None => kernel.remove(&flow).map(drop),
        };
        if let Err(error) = undone {
            tracing::error!(%error, "a flow could not be changed back after a change that failed");
        }
    }
}

impl Steered {
    fn config(&self) -> SteerConfig {
        SteerConfig {
            capacity: self.wanted.capacity,
            table: !self.wanted.table.is_empty(),
            metadata: self.wanted.metadata,
            cpu_queue: self.wanted.cpu_queue,
        }
    }

    fn make(&self, owner: u32) -> Result<Steering, xdp::Error> {
        let mut kernel = Steering::new(&self.config())?;
        kernel.set_owner(owner);
        write(&self.wanted, &mut kernel, true)?;
        Ok(kernel)
    }

    /// Takes over the flow steering that a predecessor process left in a hook, including the changes that API clients
    /// made. Flows and counts of a policy with another name are not taken over.
    fn adopt(&self, hook: &Attached, owner: u32) -> Result<Option<Steering>, xdp::Error> {
        let Some(left) = Steering::of(hook)? else { return Ok(None) };
        // Earlier releases did not set an owner.
        if ![0, owner].contains(&left.owner()) {
            return Ok(None);
        }
        left.set_owner(owner);
        let mut kernel = left.like(&self.config())?;
        kernel.expire(Moment::now())?;
        let (_, live) = kernel.table();
        write(&self.wanted, &mut kernel, !live)?;
        Ok(Some(kernel))
    }

    /// Changes the kernel objects of a steering policy to match its configuration, and installs them in the hook of
    /// every port that uses the policy.
    fn rewrite(&mut self, ports: &mut Ports, table: bool) -> Result<(), xdp::Error> {
        let config = self.config();
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        let before = kernel.id()?;
        if kernel.config() != config {
            *kernel = kernel.like(&config)?;
        }
        // After a failure from here on, the caller restores the former definition.
        write(&self.wanted, kernel, table)?;
        for hook in ports.values_mut().filter_map(|running| running.hook.as_mut()) {
            // The hook's steering is compared, because the port's steering name may be about to change.
            if hook.steering_id()? == Some(before) && !kernel.is_on(hook) {
                hook.set_stage(StageChange::Steering(Some(&*kernel)))?;
            }
        }
        Ok(())
    }

    fn table(&self) -> Option<[steer::SteerTo; STEER_BUCKETS]> {
        if self.wanted.table.is_empty() {
            return None;
        }
        let wanted = || repeated(&self.wanted.table);
        Some(self.kernel.as_ref().map_or_else(wanted, |kernel| kernel.table().0))
    }

    fn state(&self, name: &SteeringName, ports: &Ports) -> SteeringState {
        let having =
            ports.iter().filter(|(_, running)| running.hook.is_some() && named(running) == Some(name));
        let kernel = self.kernel.as_ref();
        let mut shares: BTreeMap<steer::SteerTo, u32> = BTreeMap::new();
        for to in self.table().into_iter().flatten() {
            *shares.entry(to).or_default() += 1;
        }
        let sent = kernel.and_then(|kernel| kernel.counts().ok()).unwrap_or_default();
        SteeringState {
            name: name.to_string(),
            owner: model::Owner::File,
            ports: having.map(|(port, _)| port.to_string()).collect(),
            flows: wide(kernel.map_or(self.wanted.flows.len(), Steering::len)),
            live_flows: wide(kernel.map_or(0, Steering::live)),
            capacity: self.wanted.capacity,
            cpu_queue: self.wanted.cpu_queue,
            metadata: self.wanted.metadata,
            unmarked: kernel.and_then(|kernel| kernel.unmarked().ok()).unwrap_or(0),
            buckets: shares
                .into_iter()
                .map(|(to, buckets)| SteeringShare { to: told(to), buckets })
                .collect(),
            live_table: kernel.is_some_and(|kernel| !self.wanted.table.is_empty() && kernel.table().1),
            sent: sent
                .into_iter()
                .map(|(to, count)| SteeringSent { to: told(to), packets: count.packets, bytes: count.bytes })
                .collect(),
        }
    }
}

/// Writes the configured exact flows of a steering policy to the kernel. If `table` is true, also writes the table.
fn write(wanted: &SteeringPolicy, kernel: &mut Steering, table: bool) -> Result<(), xdp::Error> {
    let flows: BTreeMap<FiveTuple, FlowEntry> = wanted.flows.iter().map(entry).collect();
    let gone: BTreeSet<FiveTuple> = kernel
        .flows()
        .filter(|(flow, entry, _)| !entry.live && !flows.contains_key(flow))
        .map(|(flow, ..)| flow)
        .collect();
    gone.iter().try_for_each(|flow| kernel.remove(flow).map(drop))?;
    for (flow, entry) in flows {
        if kernel.get(&flow) != Some(entry) {
            kernel.insert(flow, entry)?;
        }
    }
    if !table {
        return Ok(());
    }
    let buckets = match wanted.table.is_empty() {
        true => [steer::SteerTo::Worker; STEER_BUCKETS],
        false => repeated(&wanted.table),
    };
    kernel.set_table(&buckets, false)
}

fn entry(flow: &SteeringFlow) -> (FiveTuple, FlowEntry) {
    (flow.key, FlowEntry { to: meant(flow.to), mark: flow.mark, expires: None, live: false })
}

fn shown(flow: &SteeringFlow) -> SteeringEntry {
    SteeringEntry {
        vlan: flow.key.vlan.map(|vlan| vlan.get()),
        source: flow.key.source,
        destination: flow.key.destination,
        protocol: flow.key.protocol,
        source_port: flow.key.ports.map(|ports| ports.0),
        destination_port: flow.key.ports.map(|ports| ports.1),
        to: flow.to,
        mark: flow.mark,
        expires_s: None,
        live: false,
        packets: 0,
        bytes: 0,
    }
}

fn meant(to: SteeringTarget) -> steer::SteerTo {
    match to {
        SteeringTarget::Worker => steer::SteerTo::Worker,
        SteeringTarget::Kernel => steer::SteerTo::Kernel,
        SteeringTarget::Cpu(cpu) => steer::SteerTo::Cpu(u32::from(cpu)),
    }
}

fn told(to: steer::SteerTo) -> SteeringTarget {
    match to {
        steer::SteerTo::Worker => SteeringTarget::Worker,
        steer::SteerTo::Kernel => SteeringTarget::Kernel,
        steer::SteerTo::Cpu(cpu) => SteeringTarget::Cpu(u16::try_from(cpu).unwrap_or(u16::MAX)),
    }
}

/// Returns a table of 256 hash buckets that repeats the targets in `table`, which must have at least one
/// target.
fn repeated(table: &[SteeringTarget]) -> [steer::SteerTo; STEER_BUCKETS] {
    std::array::from_fn(|at| {
        table.get(at % table.len().max(1)).map_or(steer::SteerTo::Worker, |to| meant(*to))
    })
}

/// Returns the name of the steering policy that a port uses.
pub fn named(running: &Running) -> Option<&SteeringName> {
    running.wanted.steering()
}

/// Returns an error if the CPU of a steering target is not online.
fn check_cpus(name: &SteeringName, targets: impl Iterator<Item = SteeringTarget>) -> Result<(), PlaneError> {
    let cpus: BTreeSet<u32> = targets.filter_map(|to| meant(to).cpu()).collect();
    if cpus.is_empty() {
        return Ok(());
    }
    let online = online_cpus()
        .map_err(|error| PlaneError::failed(object(name), &error, "look at /sys/devices/system/cpu"))?;
    match cpus.difference(&online).next() {
        None => Ok(()),
        Some(cpu) => {
            let (first, last) = (online.first().copied().unwrap_or(0), online.last().copied().unwrap_or(0));
            let fix = match wide(online.len()) == u64::from(last - first) + 1 {
                true => format!("use {first} to {last}"),
                false => "use one of those in /sys/devices/system/cpu/online".to_owned(),
            };
            Err(invalid(name, format!("there is no CPU {cpu} that runs"), &fix))
        }
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn object(name: &SteeringName) -> String {
    format!("steering.{name}")
}

fn failed(name: &SteeringName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(name), error, "correct that, then apply again")
}

/// Converts an error of a kernel operation that a client has requested into an API error. The text of the error ends
/// with the next step for the operator.
fn refused(name: &SteeringName, error: &xdp::Error) -> PlaneError {
    let text = error.to_string();
    let text = text.strip_prefix("steering: ").unwrap_or(&text);
    let (cause, fix) = text.rsplit_once("; ").unwrap_or((text, "correct that"));
    invalid(name, cause.to_owned(), fix)
}

fn invalid(name: &SteeringName, cause: String, fix: &str) -> PlaneError {
    PlaneError { kind: FailureKind::Invalid, object: object(name), cause, fix: fix.to_owned() }
}

fn unused(name: &SteeringName) -> PlaneError {
    let fix = format!("name it at one: `steering = \"{name}\"`");
    invalid(name, "no port with a hook has it".to_owned(), &fix)
}

fn no_table(name: &SteeringName) -> PlaneError {
    invalid(name, "it has no table".to_owned(), "give it `table = [\"worker\"]` and apply that")
}

fn no_such(name: &str) -> PlaneError {
    let fix = "see the names with `trivium show steering`";
    PlaneError::not_found(format!("steering.{name}"), "there is no such steering", fix)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// Between the slices of a long list of flows, other threads can lock the data plane. The list contains each flow
    /// once, in order, up to the limit.
    #[test]
    fn flows_are_listed_in_slices() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let (count, capacity) = (2 * SLICE + 7, 1 << 14);
        let wanted = SteeringPolicy { capacity, ..SteeringPolicy::default() };
        let mut policy = Steered { wanted, kernel: None };
        let mut kernel = policy.make(1).unwrap();
        for number in 0..u32::try_from(count).unwrap() {
            let flow = FiveTuple {
                vlan: None,
                source: Ipv4Addr::from_bits(number).into(),
                destination: Ipv4Addr::LOCALHOST.into(),
                protocol: 17,
                ports: Some((7, 9)),
            };
            let entry =
                FlowEntry { to: steer::SteerTo::Kernel, mark: 0, expires: None, live: number % 2 == 0 };
            kernel.insert(flow, entry).unwrap();
        }
        policy.kernel = Some(kernel);
        let policies = SteeringPolicies { running: [("s".parse().unwrap(), policy)].into() };
        assert_eq!(policies.states(&Ports::default())[0].live_flows, wide(SLICE + 4));
        for (limit, slices) in [(1, 1), (SLICE, 1), (SLICE + 1, 2), (count, 3), (usize::MAX, 3)] {
            let calls = Cell::new(0);
            let all = list_flows(limit, |from, limit| {
                calls.set(calls.get() + 1);
                let (found, next) = policies.flows("s", from, limit)?;
                assert!(found.len() <= SLICE);
                Ok((found, next))
            });
            let sources: Vec<IpAddr> = all.unwrap().iter().map(|flow| flow.source).collect();
            let numbers = 0..u32::try_from(count.min(limit)).unwrap();
            let wanted: Vec<IpAddr> = numbers.map(|number| Ipv4Addr::from_bits(number).into()).collect();
            assert!(sources == wanted, "{limit}: {} flows", sources.len());
            assert_eq!(calls.get(), slices, "{limit}");
        }
    }

    #[test]
    fn short_tables_are_repeated() {
        let table = repeated(&[SteeringTarget::Kernel, SteeringTarget::Cpu(1)]);
        assert_eq!((table[0], table[255]), (steer::SteerTo::Kernel, steer::SteerTo::Cpu(1)));
        for to in [SteeringTarget::Worker, SteeringTarget::Kernel, SteeringTarget::Cpu(7)] {
            assert_eq!(told(meant(to)), to);
        }
    }
}
