//! API requests to load custom XDP programs of users in front of the ports' own programs (hooks), and to remove them.

use std::sync::Mutex;

use control::{FailureKind, PlaneError};
use model::ProgramChange;
use xdp::Error;
use xdp::user::UserProgram;

use super::hooks::{self, hook_of};
use super::lock::locked;
use super::running_state::RunningState;

/// Converts an error about a custom program into the API error for the client.
fn refused(port: &str, error: &Error) -> PlaneError {
    let object = format!("program for port.{port}");
    match error {
        Error::User(user) => {
            PlaneError { kind: FailureKind::Invalid, object, cause: user.to_string(), fix: user.advice() }
        }
        other => PlaneError::failed(object, other, "`trivium doctor` may tell more"),
    }
}

/// Loads the custom XDP program in an ELF object file into the kernel, for a port. The running configuration is
/// locked only to read whether the port's hook supports multi-buffer frames.
///
/// # Errors
/// Returns an error if there is no such port or hook, if the file contains no valid program, or if the kernel
/// refuses the program.
pub fn load(
    running_state: &Mutex<RunningState>,
    port: &str,
    bytes: &[u8],
    wanted: Option<&str>,
) -> Result<UserProgram, PlaneError> {
    let multi_buffer = hook_of(&mut locked(running_state), port)?.multi_buffer();
    UserProgram::load(bytes, wanted, multi_buffer).map_err(|error| refused(port, &error))
}

/// Installs a custom XDP program on a port. The custom program then runs in front of the port's own program.
///
/// # Errors
/// Returns an error if the port or its hook no longer exists, or if the kernel refuses the program. The hook is
/// then unchanged.
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
/// refuses the removal.
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
