//! Custom programs that run before ports' own programs. They are loaded and unloaded through the API. When a
//! port gets another hook, its custom program is moved to it.

use std::sync::Mutex;

use control::{FailureKind, PlaneError};
use model::{DoctorFinding, Finding, PortName, ProgramChange};
use xdp::user::UserProgram;
use xdp::{Attached, Error};

use super::device::object;
use super::dump::hook_of;
use super::running_state::RunningState;
use super::{hooks, locked};

/// Converts an error about a custom program into the failure that the client receives.
fn refused(port: &str, error: &Error) -> PlaneError {
    let object = format!("program for port.{port}");
    match error {
        Error::User(user) => {
            PlaneError { kind: FailureKind::Invalid, object, cause: user.to_string(), fix: user.advice() }
        }
        other => PlaneError::failed(object, other, "`trivium doctor` may tell more"),
    }
}

/// Verifies and loads the custom program in an object file for a port. The running configuration is locked
/// only to read whether the port's hook supports multi-buffer frames.
///
/// # Errors
/// Returns an error if there is no such port or hook, or if the program is refused.
pub fn load(
    running_state: &Mutex<RunningState>,
    port: &str,
    bytes: &[u8],
    wanted: Option<&str>,
) -> Result<UserProgram, PlaneError> {
    let multi_buffer = hook_of(&mut locked(running_state), port)?.multi_buffer();
    UserProgram::load(bytes, wanted, multi_buffer).map_err(|error| refused(port, &error))
}

/// Installs a custom program before a port's own program.
///
/// # Errors
/// Returns an error if the port or its hook no longer exists, or if the kernel refuses. The hook is then
/// unchanged.
pub fn put(
    running_state: &Mutex<RunningState>,
    port: &str,
    user: UserProgram,
) -> Result<ProgramChange, PlaneError> {
    let mut running_state = locked(running_state);
    let hook = hook_of(&mut running_state, port)?;
    let before = hook.user().map(|user| user.name().to_owned());
    hook.set_user(user).map_err(|error| refused(port, &error))?;
    let mut now = hooks::user_program(hook).map_err(|error| refused(port, &error))?;
    if let Some(now) = &mut now {
        now.maps = hooks::maps(&now.program);
        tracing::info!(port, program = now.program.name, "a user's program stands in front of its hook");
    }
    Ok(ProgramChange { port: port.to_owned(), now, before })
}

/// Removes the custom program that runs before a port's own program.
///
/// # Errors
/// Returns an error if there is no such port or hook, if the port has no custom program, or if the kernel
/// refuses.
pub fn take(running_state: &Mutex<RunningState>, port: &str) -> Result<ProgramChange, PlaneError> {
    let mut running_state = locked(running_state);
    let hook = hook_of(&mut running_state, port)?;
    let taken = hook.take_user().map_err(|error| refused(port, &error))?.ok_or_else(|| {
        let fix = "look at `trivium xdp status` for what stands where";
        PlaneError::not_found(format!("port.{port}"), "no user's program stands in front of its hook", fix)
    })?;
    tracing::info!(port, program = taken.name(), "the user's program in front of its hook was taken away");
    Ok(ProgramChange { port: port.to_owned(), now: None, before: Some(taken.name().to_owned()) })
}

/// Moves a custom program from a port's former hook to its next hook. Returns a diagnostic about the result.
pub fn give(name: &PortName, hook: Option<&mut Attached>, user: UserProgram) -> DoctorFinding {
    let program = user.name().to_owned();
    let given = hook.map(|hook| hook.set_user(user));
    let (severity, finding) = match given {
        Some(Ok(())) => (
            Finding::Ok,
            format!("the user's program {program} stands in front of its new hook, with its maps"),
        ),
        Some(Err(error)) => (
            Finding::Warning,
            format!("the user's program {program} does not stand in front of its new hook: {error}"),
        ),
        None => {
            (Finding::Warning, format!("it has no hook any more, and the user's program {program} is gone"))
        }
    };
    if severity == Finding::Ok {
        tracing::info!(port = %name, "{finding}");
    } else {
        tracing::warn!(port = %name, "{finding}");
    }
    let fix = if severity == Finding::Ok { "" } else { "load it again with `trivium xdp load`" };
    DoctorFinding { object: object(name), severity, finding, fix: fix.to_owned() }
}

/// Returns a diagnostic which states that a changed port keeps its custom program. Returns `None` if the port
/// has none.
pub fn stays(name: &PortName, hook: &Attached) -> Option<DoctorFinding> {
    let finding = format!("the user's program {} stays in front of its hook", hook.user()?.name());
    Some(DoctorFinding { object: object(name), severity: Finding::Ok, finding, fix: String::new() })
}

/// Returns a diagnostic which states that the custom program of a removed port was removed, too.
pub fn went(name: &PortName, user: &UserProgram) -> DoctorFinding {
    let finding = format!("the user's program {} went with the port", user.name());
    DoctorFinding { object: object(name), severity: Finding::Advice, finding, fix: String::new() }
}
