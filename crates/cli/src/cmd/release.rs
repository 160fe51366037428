//! `trivium release`: removes the XDP programs (hooks) that a daemon left on devices when it ended.

use crate::args::Release;
use crate::failure::{Failure, Kind};

/// Removes the XDP programs (hook) that an ended daemon left on a device, or on all devices.
///
/// # Errors
/// Returns an error if a hook is in use or cannot be removed, or if `args` names a device or port that has no hook.
pub fn run(args: &Release) -> Result<(), Failure> {
    let released = dataplane::release_hooks(args.device.as_deref());
    if let (Some(device), true) = (&args.device, released.is_empty()) {
        let cause = "no daemon has left a hook on a device or for a port of this name";
        return Err(Failure::new(device, cause, "see what is attached with `ip link show`"));
    }
    if args.json {
        let told: Vec<_> = released
            .iter()
            .map(|one| {
                let (device, error) = match &one.outcome {
                    Ok(device) => (Some(device.clone()).filter(|device| !device.is_empty()), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                serde_json::json!({ "port": one.port.to_string(), "device": device, "error": error })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&told).unwrap_or_default());
        let failed = released.iter().any(|one| one.outcome.is_err());
        return if failed { Err(Failure::told(Kind::Failed)) } else { Ok(()) };
    }
    let mut failed = false;
    for one in &released {
        match &one.outcome {
            Ok(device) if device.is_empty() => println!("port.{}: its device was gone already", one.port),
            Ok(device) => println!("port.{}: released {device}", one.port),
            Err(error) => {
                failed = true;
                eprintln!("trivium: {error}");
            }
        }
    }
    if released.is_empty() {
        println!("no hooks are left");
    }
    if failed { Err(Failure::told(Kind::Failed)) } else { Ok(()) }
}
