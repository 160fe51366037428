//! Custom XDP programs of users, which run in front of the ports' own XDP programs (hooks). When a hook of a port is
//! replaced, the custom program is moved to the new hook. Custom programs are loaded and unloaded through the API
//! (`program_requests.rs`).

use model::{DoctorFinding, Finding, PortName};
use xdp::Attached;
use xdp::user::UserProgram;

use super::device::object;

/// Moves a custom program from a port's former hook to its new hook. Returns a diagnostic that reports success or
/// failure.
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

/// Returns a diagnostic which reports that a changed port still has its custom program. Returns `None` if the port has
/// no custom program.
pub fn stays(name: &PortName, hook: &Attached) -> Option<DoctorFinding> {
    let finding = format!("the user's program {} stays in front of its hook", hook.user()?.name());
    Some(DoctorFinding { object: object(name), severity: Finding::Ok, finding, fix: String::new() })
}

/// Returns a diagnostic which reports that a custom program was removed together with its port.
pub fn went(name: &PortName, user: &UserProgram) -> DoctorFinding {
    let finding = format!("the user's program {} went with the port", user.name());
    DoctorFinding { object: object(name), severity: Finding::Advice, finding, fix: String::new() }
}
