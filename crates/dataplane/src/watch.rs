//! Housekeeping of devices and workers, which runs a few times a second. It adapts ports to devices that disappear,
//! appear again, are renamed, are set down or change their MTU. It also ages MAC tables and measures the load of the
//! workers.

use std::time::{Duration, Instant};

use control::PlaneError;
use engine::Engine;
use engine::engine::WorkerView;
use engine::worker::monotonic;
use model::{PortKind, PortName};
use port::link::LinkInfo;

use super::custom_program;
use super::devices::{DeviceWatches, Devices};
use super::guards::{guard, renew};
use super::open;
use super::ports::{Running, resize_queues};
use super::running_state::RunningState;

/// Pause after the first failed attempt to open a port again. The pause doubles with each failure, up to
/// [`RETRY_MOST`].
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_millis(1_600);
/// Minimum time for which a reopened port must stay open to count as stable. If the device disappears earlier, the next
/// attempt is made no sooner than [`RESTLESS`] after the port was last opened. This delay doubles each time, up to
/// [`RESTLESS_MOST`].
const SETTLED: Duration = Duration::from_secs(10);
const RESTLESS: Duration = Duration::from_secs(1);
const RESTLESS_MOST: Duration = Duration::from_secs(8);

/// Minimum load of a worker that counts as fully loaded. The load is the share of the time, from 0
/// to 1, that the worker spends on packets.
const FULL: f64 = 0.98;

/// Load of a worker during the last second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Share of its time that the worker spent on packets, from 0 to 1.
    pub busy: f64,
    /// Number of consecutive seconds for which the worker has been fully loaded.
    pub full_secs: u32,
    cycles: [u64; 3],
}

/// Reads the workers' cycle counters and computes each worker's load. This function is called once a second.
pub fn sample(loads: &mut Vec<Load>, views: &[WorkerView]) {
    loads.resize(views.len(), Load::default());
    for (load, view) in loads.iter_mut().zip(views) {
        let spent: Vec<u64> =
            view.cycles.iter().zip(&load.cycles).map(|(now, before)| now.saturating_sub(*before)).collect();
        let all: u64 = spent.iter().sum();
        load.busy = if all == 0 { 0.0 } else { ratio(spent[0], all) };
        load.full_secs = if load.busy >= FULL { load.full_secs.saturating_add(1) } else { 0 };
        load.cycles = view.cycles;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share for people to read")]
fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

/// Removes expired MAC table entries, and checks how many MAC addresses move between ports. This
/// function is called once a second.
pub fn age(running_state: &mut RunningState) {
    let now = monotonic().secs;
    for bridge in running_state.bridges.values() {
        bridge.age(now);
    }
    running_state.moves.look(&running_state.bridges, &running_state.ports);
}

/// Result of the comparison of a port's recorded device with the kernel's device.
enum Seen {
    /// The device is in the state that the daemon has recorded.
    Same,
    /// The device exists, and its state differs from the recorded state.
    Differs(LinkInfo),
    /// The device or its namespace no longer exists. The text is the reason, for messages.
    Gone(String),
    /// The device does not exist, and the daemon can create it again.
    Missing,
    /// The device has not changed, but another program has detached the port's hook from it.
    Unhooked,
}

/// Compares all ports with their devices, and updates the ports whose devices differ. Returns whether anything changed.
/// If `second` is true, also creates the daemon's own devices again if they are missing, and attaches hooks (XDP
/// programs) again if another program has detached them.
pub fn look(
    running_state: &mut RunningState,
    engine: &Engine,
    watches: &mut DeviceWatches,
    second: bool,
) -> bool {
    let kinds = running_state.ports.values().map(|running| &running.wanted.port.kind);
    watches.read(kinds.filter_map(PortKind::device).map(|(_, namespace)| namespace));
    let mut seen = Vec::new();
    for (name, running) in &running_state.ports {
        let Some((_, namespace)) = running.wanted.port.kind.device() else { continue };
        match compare(running, &watches.of(namespace)) {
            Seen::Same if second && lacks_hook(running) => seen.push((name.clone(), Seen::Unhooked)),
            Seen::Same => {}
            other => seen.push((name.clone(), other)),
        }
    }
    let mut changed = false;
    for (name, seen) in seen {
        let done = match seen {
            Seen::Same => false,
            Seen::Differs(info) => differs(running_state, engine, &name, &info),
            Seen::Gone(why) => gone(running_state, engine, &name, &why),
            Seen::Missing => {
                second && may_be_tried(running_state, &name) && come_back(running_state, engine, &name)
            }
            Seen::Unhooked => put_back(running_state, engine, &name),
        };
        changed |= done;
    }
    if changed {
        // The members of the bridges do not change, because ports that are down are members too. Only the ports'
        // entries in the snapshot change.
        running_state.publish(engine);
    }
    forget_stations(running_state);
    changed
}

/// Removes the MAC table entries that were learned on ports whose link is down, as Linux's bridge does
/// (`br_stp_disable_port` in `net/bridge/br_stp_if.c`). A worker may learn an entry later from a frame that was
/// received before the link went down. Therefore, every poll calls this function.
fn forget_stations(running_state: &RunningState) {
    for (name, running) in running_state.ports.iter().filter(|(_, running)| running.lacks_link()) {
        let home = running_state
            .config
            .bridge_of(name.as_str())
            .and_then(|(home, _)| running_state.bridges.get(home));
        let Some(bridge) = home.filter(|bridge| bridge.tables().learned_on(running.id) > 0) else { continue };
        let stations = bridge.tables().flush_port(running.id);
        tracing::info!(port = %name, stations, "its link is down: the stations that were learned there are forgotten");
    }
}

/// Returns whether another attempt to open the port `name` is allowed now.
fn may_be_tried(running_state: &RunningState, name: &PortName) -> bool {
    running_state.ports.get(name).is_some_and(Running::may_be_tried)
}

/// Returns whether another program has detached the hook of a port whose device exists.
fn lacks_hook(running: &Running) -> bool {
    running.hook.as_ref().is_some_and(|hook| hook.is_alive().is_ok_and(|alive| !alive))
}

/// Opens a port again, because another program has detached the port's hook from the device. If the port has a filter,
/// a guard is attached meanwhile, which drops all frames that the device passes to the kernel.
fn put_back(running_state: &mut RunningState, engine: &Engine, name: &PortName) -> bool {
    let Some(running) = running_state.ports.get_mut(name) else { return false };
    // If the port cannot be opened now, the guard stays until it can.
    running.guard = guard(name, running);
    running.hooks_lost += 1;
    let (times, device) = (running.hooks_lost, running.device.as_ref().map(|device| device.name.clone()));
    let why = "its XDP program was taken off the device by another program";
    tracing::warn!(port = %name, device, times, "{why}; it is put back");
    shut(running_state, engine, name, why);
    come_back(running_state, engine, name);
    true
}

fn compare(running: &Running, devices: &Devices<'_>) -> Seen {
    let (watch, namespace_file) = match devices {
        Devices::Known(watch, file) => (watch, *file),
        Devices::Missing(why) => return Seen::Gone((*why).to_owned()),
        Devices::Unknown => return Seen::Same,
    };
    let wanted = running.wanted.port.kind.device().map(|(device, _)| device.as_str());
    match &running.device {
        Some(device) if device.is_beside(namespace_file) => {
            Seen::Gone(format!("the network namespace of device {} was made anew", device.name))
        }
        Some(device) => match watch.device(device.ifindex) {
            None => Seen::Gone(format!("device {} was deleted", device.name)),
            Some(info) if device.is_as(info) && running.trouble.is_none() => Seen::Same,
            Some(info) => Seen::Differs(info.clone()),
        },
        // The device disappeared earlier, so it is searched for by name.
        None => match watch.known().find(|info| Some(info.name.as_str()) == wanted) {
            Some(info) => Seen::Differs(info.clone()),
            None if matches!(running.wanted.port.kind, PortKind::AfXdp(_)) => Seen::Same,
            None if open::absent(&running.wanted.port.kind).is_some() => Seen::Same,
            None => Seen::Missing,
        },
    }
}

/// Updates a port whose device exists again or whose device has changed (carrier, MTU, name or other state). Returns
/// whether the port changed.
fn differs(running_state: &mut RunningState, engine: &Engine, name: &PortName, info: &LinkInfo) -> bool {
    let Some(running) = running_state.ports.get_mut(name) else { return false };
    if running.device.is_none() || running.trouble.is_some() {
        // A failed attempt changes the device and changes it back. The resulting notifications must not cause
        // the next attempt.
        return running.may_be_tried() && come_back(running_state, engine, name);
    }
    let Some(device) = &mut running.device else { return false };
    if device.name != info.name {
        tracing::info!(port = %name, from = %device.name, to = %info.name, "the device was renamed; the port goes on");
    }
    if device.running != (info.up && info.running) {
        tracing::info!(port = %name, up = info.up, running = info.running, "the device's state changed");
    }
    let resized = device.mtu != info.mtu;
    device.refresh(info);
    if resized {
        tracing::info!(port = %name, mtu = info.mtu, "the device's MTU changed");
        running.mtu = info.mtu;
        resize_queues(running, engine, info.mtu);
    }
    true
}

/// Closes the queues of a port whose device no longer exists. The port then waits for the device.
fn gone(running_state: &mut RunningState, engine: &Engine, name: &PortName, why: &str) -> bool {
    let Some(running) = running_state.ports.get_mut(name) else { return false };
    if running.device.is_none() && running.trouble.as_deref() == Some(why) {
        return false;
    }
    tracing::warn!(port = %name, why, "the port's device is gone; it is opened again when it comes back");
    shut(running_state, engine, name, why);
    true
}

/// Removes a port from the workers' snapshot and closes its queues. `why` is the reason, for messages.
fn shut(running_state: &mut RunningState, engine: &Engine, name: &PortName, why: &str) {
    let Some(running) = running_state.ports.get_mut(name) else { return };
    running.trouble = Some(why.to_owned());
    running.footprint.ends = running.ends();
    running.device = None;
    running_state.publish(engine);
    if let Some(running) = running_state.ports.get_mut(name) {
        running.close(engine);
    }
}

/// Opens a port again after its device or its hook was removed.
fn come_back(running_state: &mut RunningState, engine: &Engine, name: &PortName) -> bool {
    if let Some(running) = running_state.ports.get_mut(name) {
        renew(name, running);
    }
    let opened = reopen(running_state, engine, name);
    let Some(running) = running_state.ports.get_mut(name) else { return false };
    match opened {
        Ok(fresh) => {
            tracing::info!(port = %name, "the port is open again");
            let is_restless = running.reopened.is_some_and(|at| at.elapsed() < SETTLED);
            let refusals = if is_restless { running.refusals } else { 0 };
            let reopened = Some(Instant::now());
            *running = Running { hooks_lost: running.hooks_lost, reopened, refusals, ..fresh };
            if is_restless {
                // A program that deletes and creates the device in a loop would otherwise keep the daemon
                // busy.
                running.refused(RESTLESS, RESTLESS_MOST);
            }
            true
        }
        Err(error) => {
            running.refused(RETRY, RETRY_MOST);
            let text = error.cause.clone();
            if running.trouble.as_deref() != Some(&text) {
                tracing::warn!(port = %name, %error, "the port cannot be opened again");
                running.trouble = Some(text);
                return true;
            }
            false
        }
    }
}

fn reopen(running_state: &mut RunningState, engine: &Engine, name: &PortName) -> Result<Running, PlaneError> {
    let Some(running) = running_state.ports.get_mut(name) else {
        return Err(PlaneError::not_found(super::device::object(name), "there is no such port", ""));
    };
    running.close(engine);
    let (id, wanted, rss_table) = (running.id, running.wanted.clone(), running.rss_table.clone());
    let footprint = &running.footprint;
    let mut opened = open::open(name, &wanted, footprint, Duration::ZERO, None, &mut engine.pool())?;
    if let Err(error) = running_state.equip(name, &wanted, &mut opened) {
        open::abandon(name, &wanted, opened, &mut engine.pool());
        return Err(error);
    }
    let mut user = running_state.ports.get_mut(name).and_then(|running| running.user.take());
    if let Some(user) = user.take() {
        opened.notes.push(custom_program::give(name, opened.hook.as_mut(), user));
    }
    let installed = Running::install(engine, name, id, wanted, opened, &mut user);
    if let Some(running) = running_state.ports.get_mut(name) {
        running.user = user;
    }
    let mut fresh = installed?;
    // A port that has waited for its device since the start distributes packets as its configuration states.
    fresh.rss_table = rss_table.or(fresh.rss_table);
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use packet::WorkerId;

    use super::*;

    #[test]
    fn load_is_a_share_of_the_time_between_two_samples() {
        let view = |cycles| WorkerView {
            id: WorkerId(0),
            core: None,
            asleep: false,
            bursts: 0,
            packets: 0,
            cycles,
            sleeps: 0,
            taken_over: 0,
        };
        let mut loads = Vec::new();
        sample(&mut loads, &[view([100, 100, 0])]);
        assert!((loads[0].busy - 0.5).abs() < 1e-9);
        sample(&mut loads, &[view([100, 100, 800])]);
        assert!(loads[0].busy.abs() < 1e-9);
        sample(&mut loads, &[view([175, 125, 800])]);
        assert!((loads[0].busy - 0.75).abs() < 1e-9);
        for seconds in 1..4 {
            let busy = 175 + 1000 * u64::from(seconds);
            sample(&mut loads, &[view([busy, 125, 800])]);
            assert_eq!(loads[0].full_secs, seconds);
        }
        sample(&mut loads, &[view([3200, 225, 800])]);
        assert_eq!(loads[0].full_secs, 0);
    }
}
