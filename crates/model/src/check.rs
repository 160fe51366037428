//! Checks of the relations between the objects of a configuration.
//!
//! The checks work on plain values. Therefore the same rules apply to a configuration file, to an object from the API,
//! and to the merged configuration of both. The problems have no position in a text. [`mod@crate::load`] finds the
//! position by the name of the object.

pub(crate) mod references;

use std::collections::{BTreeMap, BTreeSet};

use references::{Function, Functions};

use crate::{Cause, Config, Problem, XdpOptions, bridge, filter, port, router, steering};

/// Properties of the machine that a configuration is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Number of CPU cores of the machine.
    pub cores: usize,
    /// Number of frames in the frame memory of the running daemon, which may differ from the number in the
    /// configuration. `None`: no daemon runs.
    pub frames: Option<u32>,
}

/// Returns all problems in the relations between the objects of a configuration. The list is empty, or
/// contains only warnings, if the configuration is valid.
pub fn validate(config: &Config, machine: Option<&Machine>) -> Vec<Problem> {
    check(config, machine, &BTreeSet::new())
}

/// Checks a configuration like [`validate`], but treats the ports in `declared` as existing even if
/// their configuration could not be read.
pub(crate) fn check(config: &Config, machine: Option<&Machine>, declared: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_counts(config, &mut problems);
    check_memory(config, machine.and_then(|machine| machine.frames), &mut problems);
    check_cores(config, machine, &mut problems);
    port::check::devices(config, &mut problems);
    for (name, own) in &config.ports {
        port::check::port(config, name, own, &mut problems);
    }
    filter::check::filters(config, &mut problems);
    steering::check::policies(config, &mut problems);
    let mut homes = BTreeMap::new();
    for (name, own) in &config.bridges {
        bridge::check::members(config, name, own, declared, &mut homes, &mut problems);
        bridge::check::static_entries(config, name, own, declared, &mut problems);
        bridge::check::listeners(config, name, own, &mut problems);
    }
    router::check::namespaces(config, &mut problems);
    let mut functions: Functions<'_> =
        homes.into_iter().map(|(port, bridge)| (port, Function::Bridge(bridge))).collect();
    for (name, own) in &config.routers {
        router::check::interfaces(config, name, own, declared, &mut functions, &mut problems);
    }
    problems
}

/// Maximum number of ports in a configuration.
const PORT_LIMIT: usize = 4096;
/// Maximum number of bridges in a configuration.
const BRIDGE_LIMIT: usize = 1024;
/// Maximum number of virtual routers in a configuration.
const ROUTER_LIMIT: usize = 256;
/// Maximum number of filters in a configuration.
const FILTER_LIMIT: usize = 256;
/// Maximum number of steering policies in a configuration.
const STEERING_LIMIT: usize = 256;

/// Number of existing objects of one type, and maximum number of such objects. The objects of all
/// owners are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectCount {
    /// First part of the objects' keys, for example `filter`.
    pub table: &'static str,
    /// Name of the object type in the plural, for messages.
    pub what: &'static str,
    /// Current number of objects of this type, of all owners together.
    pub count: usize,
    /// Maximum number of objects of this type.
    pub limit: usize,
}

/// Returns the counts of filters, steering policies, ports, bridges and routers with their maximums, in this order.
pub(crate) fn object_counts(counts: [usize; 5]) -> [ObjectCount; 5] {
    let [filters, policies, ports, bridges, routers] = counts;
    let of = |table, what, count, limit| ObjectCount { table, what, count, limit };
    [
        of("filter", "filters", filters, FILTER_LIMIT),
        of("steering", "steerings", policies, STEERING_LIMIT),
        of("port", "ports", ports, PORT_LIMIT),
        of("bridge", "bridges", bridges, BRIDGE_LIMIT),
        of("router", "routers", routers, ROUTER_LIMIT),
    ]
}

fn check_counts(config: &Config, problems: &mut Vec<Problem>) {
    let (filters, policies, ports) = (config.filters.len(), config.steering.len(), config.ports.len());
    let counts = object_counts([filters, policies, ports, config.bridges.len(), config.routers.len()]);
    for ObjectCount { table, what, count, limit } in counts {
        if count > limit {
            problems.push(Problem::new(table, Cause::TooManyObjects { what, count, limit }));
        }
    }
}

/// Maximum number of packets that a worker processes together in one burst.
const BURST: u64 = 256;
/// Minimum number of frames for the fill ring of each AF_XDP queue, regardless of the number of
/// queues that share the frame memory. An equal number of frames is reserved for transmission.
pub const LEAST_FILL: u32 = 64;

fn check_memory(config: &Config, runs: Option<u32>, problems: &mut Vec<Problem>) {
    // The number of queues of an existing device is known only when the device is opened. The minimum is one.
    let queues = |options: &XdpOptions| options.queues.count().unwrap_or(1) as u64;
    let options = || config.ports.values().filter_map(|port| port.kind.xdp());
    let queues_of_all: u64 = options().map(queues).sum();
    let full: u64 = options().map(|options| 2 * queues(options) * u64::from(options.ring_size)).sum();
    let workers = config.engine.worker_count() as u64;
    let needed = 2 * u64::from(LEAST_FILL) * queues_of_all + workers * BURST;
    let frames = u64::from(config.memory.frames);
    let mut add = |cause| problems.push(Problem::new("memory.frames", cause));
    match runs.map(u64::from) {
        _ if frames < needed => add(Cause::FramesTooFew { frames, queues: queues_of_all, needed }),
        Some(runs) if runs < needed => {
            add(Cause::FramesRunning { runs, frames, queues: queues_of_all, needed })
        }
        _ if frames < full => {
            problems.push(Problem::new("memory.frames", Cause::FramesScarce { frames, full }).warning());
        }
        _ => {}
    }
}

fn check_cores(config: &Config, machine: Option<&Machine>, problems: &mut Vec<Problem>) {
    let Some(&Machine { cores, .. }) = machine else { return };
    for &core in &config.engine.workers {
        if usize::from(core) >= cores {
            problems.push(Problem::new("engine.workers", Cause::NoSuchCore { core, cores }).warning());
        }
    }
}
