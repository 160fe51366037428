//! State of the ports' hooks (XDP programs) for the API. The state combines the daemon's data about
//! a hook with the kernel's data about the hook's program.

use std::os::linux::fs::MetadataExt;
use std::sync::Mutex;

use control::PlaneError;
use model::{HookMap, HookProgram, HookState, Namespace, UserProgram};
use port::link;
use xdp::{Attached, MapInfo, Owner, ProgramInfo, RunStatistics, WhenDown};

use super::device::{inside, xdp_features_of};
use super::lock::locked;
use super::ports::{Running, no_such_port};
use super::running_state::RunningState;

/// Returns the hook of the port named `port`.
///
/// # Errors
/// Returns an error if the port does not exist or has no hook.
pub fn hook_of<'s>(
    running_state: &'s mut RunningState,
    port: &str,
) -> Result<&'s mut xdp::Attached, PlaneError> {
    let running = running_state.ports.get_mut(port).ok_or_else(|| no_such_port(port))?;
    running.hook.as_mut().ok_or_else(|| {
        let fix = "look at `trivium xdp status` for ports that have one";
        PlaneError::not_found(format!("port.{port}"), "it has no hook", fix)
    })
}

/// Returns the state of the hooks of all ports. The running configuration is locked only while the daemon's
/// own data are read.
///
/// # Errors
/// Returns an error if the kernel does not report a hook's state.
pub fn read(running_state: &Mutex<RunningState>) -> Result<Vec<HookState>, PlaneError> {
    Ok(complete(known(running_state)?))
}

/// Enables the kernel's statistics about BPF programs (number of runs and total run time). The statistics are
/// enabled until the returned value is dropped.
///
/// # Errors
/// Returns an error if the kernel does not support these statistics.
pub fn count_runs() -> Result<RunStatistics, PlaneError> {
    let failed = |error: xdp::Error| PlaneError::failed("hooks", &error, "ask without a measurement");
    RunStatistics::enable().map_err(failed)
}

/// Returns the states of all hooks, with the daemon's own data and the program that each hook runs now. The function
/// `complete` adds the other data of the kernel.
fn known(running_state: &Mutex<RunningState>) -> Result<Vec<HookState>, PlaneError> {
    let running_state = locked(running_state);
    let with_hook = running_state
        .ports
        .iter()
        .filter_map(|(name, running)| Some((name, running, running.hook.as_ref()?)));
    with_hook
        .map(|(name, running, hook)| {
            state(name.as_str(), running, hook).map_err(|error| super::device::failed(name, &error))
        })
        .collect()
}

fn state(name: &str, running: &Running, hook: &Attached) -> Result<HookState, xdp::Error> {
    let device = running.device.as_ref();
    let (filtered, steered) = (hook.filter_id()?.is_some(), hook.steering_id()?.is_some());
    Ok(HookState {
        port: name.to_owned(),
        device: device.map_or(hook.device(), |device| &device.name).to_owned(),
        namespace: device.and_then(|device| device.namespace.as_ref()).map(ToString::to_string),
        ifindex: hook.ifindex(),
        netns: inode(device.and_then(|device| device.namespace.as_ref())),
        driver: device.and_then(|device| device.driver.clone()),
        features: None,
        mode: hook.mode().to_string(),
        fallbacks: hook.fallbacks().iter().map(ToString::to_string).collect(),
        multi_buffer: hook.multi_buffer(),
        owner: match hook.constants().owner {
            Owner::Bridged => "bridged",
            Owner::Routed => "routed",
            Owner::Closed => "closed",
        }
        .to_owned(),
        stages: stages(hook, filtered).into_iter().map(str::to_owned).collect(),
        filter: running.wanted.filter().filter(|_| filtered).map(ToString::to_string),
        steering: running.wanted.steering().filter(|_| steered).map(ToString::to_string),
        when_down: match hook.constants().when_down {
            WhenDown::Pass => "pass",
            WhenDown::Drop => "drop",
        }
        .to_owned(),
        pins: hook.pin().map(|pin| pin.directory().display().to_string()),
        link: hook.link_id(),
        user_program: user_program(hook)?,
        // If the device no longer exists, no program is attached.
        program: hook.info().ok().map(program),
        maps: Vec::new(),
        counters: hook
            .counters()?
            .iter()
            .map(|(counter, packets)| (counter.name().to_owned(), packets))
            .collect(),
        measured: None,
    })
}

/// Returns the custom program that runs before the port's own program. The function does not read the BPF maps of the
/// custom program, so the returned list of maps is empty.
pub fn user_program(hook: &Attached) -> Result<Option<UserProgram>, xdp::Error> {
    let state = |user: &xdp::user::UserProgram| {
        Ok(UserProgram {
            program: program(user.info()?),
            goes_on: user.goes_on(),
            pins: hook.pin().map(|pin| pin.user_directory().display().to_string()),
            maps: Vec::new(),
        })
    };
    hook.user().map(state).transpose()
}

/// Returns the names of the XDP program stages that the hook's program executes, in the order of
/// `bpf/trivium.bpf.c`.
fn stages(hook: &Attached, filtered: bool) -> Vec<&'static str> {
    let room = match hook.constants().owner {
        Owner::Closed => return Vec::new(),
        Owner::Bridged => None,
        Owner::Routed if hook.route().is_some() => Some("route"),
        Owner::Routed => Some("kernel"),
    };
    let filter = filtered.then_some("filter");
    let (flows, table) = hook.steers().unwrap_or_default();
    let before = filter.into_iter().chain(flows.then_some("flows"));
    // A hook that forwards according to the kernel's routes has no stage that sends frames to workers.
    if hook.fib().is_some() {
        return before.chain(["fib"]).chain(table.then_some("steering")).collect();
    }
    let bridge = hook.has_bridge().then_some("bridge").or(hook.has_flows().then_some("rules"));
    before.chain(room).chain(bridge).chain(["steering"]).collect()
}

fn program(info: ProgramInfo) -> HookProgram {
    HookProgram {
        id: info.id,
        tag: info.tag_text(),
        name: info.name,
        instructions: info.instructions,
        verified_instructions: info.verified_instructions,
        jited_bytes: info.jited_bytes,
        runs: info.runs,
        run_time_ns: info.run_time_ns,
    }
}

/// Adds the kernel's data to the states of hooks: the BPF maps of the programs, and the XDP
/// features of the devices. The caller need not lock the running state.
fn complete(mut hooks: Vec<HookState>) -> Vec<HookState> {
    for hook in &mut hooks {
        hook.maps = hook.program.as_ref().map_or_else(Vec::new, maps);
        if let Some(user) = &mut hook.user_program {
            user.maps = maps(&user.program);
        }
        let namespace = hook.namespace.as_deref().and_then(|name| name.parse::<Namespace>().ok());
        let object = format!("port.{}", hook.port);
        let device = hook.device.clone();
        // Features that cannot be read, for example in a namespace that no longer exists, are omitted.
        let features = inside(&object, namespace.as_ref(), move || {
            Ok(link::find(&device).ok().map(|info| xdp_features_of(info.ifindex)))
        });
        hook.features = features.ok().flatten().map(|it| it.words().into_iter().map(str::to_owned).collect());
    }
    hooks
}

/// Returns the BPF maps that a hook program uses. The list is empty if the program no longer exists.
pub fn maps(program: &HookProgram) -> Vec<HookMap> {
    let found = xdp::program_by_id(program.id);
    found.map_or_else(|_| Vec::new(), |(_, maps)| maps.into_iter().map(map).collect())
}

fn map(info: MapInfo) -> HookMap {
    HookMap {
        id: info.id,
        name: info.name,
        kind: info.kind,
        max_entries: info.max_entries,
        key_size: info.key_size,
        value_size: info.value_size,
        bytes: info.bytes,
    }
}

/// Returns the inode of a network namespace. `None` is the daemon's own namespace.
fn inode(namespace: Option<&Namespace>) -> u64 {
    let path = namespace.map_or_else(|| "/proc/self/ns/net".into(), Namespace::path);
    std::fs::metadata(path).map_or(0, |file| file.st_ino())
}
