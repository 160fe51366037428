//! Opening of the ports of a configuration, several in parallel while the daemon starts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use engine::Engine;
use model::{Config, PortName};
use port::af_xdp::BUSY_WAIT;

use crate::af_xdp::Start;
use crate::device::object;
use crate::foreign::Former;
use crate::open::{self, Footprint, Opened, PortSpec};
use crate::parallel;

/// Returns the settings of a port in a configuration.
///
/// # Errors
/// Returns an error if the configuration has no such port.
pub(super) fn wanted_of(name: &PortName, config: &Config) -> Result<PortSpec, PlaneError> {
    let cause = "the configuration has no such port";
    PortSpec::of(config, name).ok_or_else(|| PlaneError::not_found(object(name), cause, "apply again"))
}

/// Opens a port as a configuration describes it. Returns the settings and the open port. `former` holds the settings
/// that the device had before it became a port.
///
/// # Errors
/// Returns an error if the configuration has no such port, or if the port cannot be opened.
pub(super) fn open_one(
    engine: &Engine,
    name: &PortName,
    config: &Config,
    former: Option<Former>,
    busy_wait: Duration,
    start: Option<&Start>,
) -> Result<(PortSpec, Opened), PlaneError> {
    let wanted = wanted_of(name, config)?;
    let known = Footprint { former, ..Footprint::default() };
    let opened = open::open(name, &wanted, &known, busy_wait, start, &mut engine.pool())?;
    Ok((wanted, opened))
}

/// The settings and the queues of an opened port, or the reason why a port waits for its device.
pub(super) type OpenedOrWaits = Result<(PortSpec, Opened), String>;

/// Opens ports. While the daemon is `starting`, several ports are opened in parallel, and a port waits for its device
/// if the device is missing. After an error, no other port is opened. The results are in the order of the ports. A port
/// that was not tried has no result.
pub(super) fn open_all(
    engine: &Engine,
    names: Vec<PortName>,
    new: &Config,
    starting: bool,
) -> Vec<(PortName, Result<OpenedOrWaits, PlaneError>)> {
    // The ports share one deadline for busy queues.
    let deadline = Instant::now() + BUSY_WAIT;
    let has_failed = AtomicBool::new(false);
    let start = starting.then(Start::default);
    let open = |name: PortName| {
        if has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let absent = |port: &model::Port| open::absent(&port.kind).filter(|_| starting);
        // The owner of another namespace can make any device with the name of the port's device.
        let is_elsewhere = || {
            let device = new.ports.get(&name).and_then(|port| port.kind.device());
            device.is_some_and(|(_, namespace)| namespace.is_some())
        };
        let result = match new.ports.get(&name).and_then(absent) {
            Some(why) => Ok(Err(why)),
            None => {
                let busy_wait = deadline.saturating_duration_since(Instant::now());
                match open_one(engine, &name, new, None, busy_wait, start.as_ref()) {
                    // One port that cannot be opened, which a tenant can cause, does not prevent the start of
                    // the others.
                    Err(error) if starting && (error.kind == FailureKind::Unready || is_elsewhere()) => {
                        Ok(Err(error.cause))
                    }
                    other => other.map(Ok),
                }
            }
        };
        if result.is_err() {
            has_failed.store(true, Ordering::Relaxed);
        }
        Some((name, result))
    };
    parallel::each(starting, names, open).into_iter().flatten().collect()
}
