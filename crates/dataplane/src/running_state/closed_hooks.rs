//! Hooks (XDP programs) that drop all frames during a configuration change.
//!
//! A hook with a filter belongs to one function: a bridge, a router, or the kernel. A change that moves the port of the
//! hook to another function first closes the hook ([`RunningState::close_hooks`]). The hook is opened again after the
//! workers have the new configuration ([`RunningState::open_hooks`]). Otherwise, the workers would process frames that
//! only the new filter passes according to the former function, or the reverse.

use control::PlaneError;
use model::{BridgeName, Config, DoctorFinding, Finding, PortName, RouterName};

use super::{RunningState, Steps};
use crate::af_xdp;
use crate::device::object;
use crate::open::PortSpec;
use crate::ports::Running;

/// Bridge or router to which a configuration assigns a port.
type FunctionNames<'a> = (Option<&'a BridgeName>, Option<&'a RouterName>);

/// Returns the bridge or the router to which a configuration assigns a port.
fn function<'a>(config: &'a Config, name: &PortName) -> FunctionNames<'a> {
    let bridge = config.bridge_of(name.as_str()).map(|(bridge, _)| bridge);
    (bridge, config.router_of(name.as_str()).map(|(router, _)| router))
}

fn is_closed(running: &Running) -> bool {
    running.hook.as_ref().is_some_and(af_xdp::is_locked)
}

impl RunningState {
    /// Closes the hook of each port that gets another function in `new` (bridge, router or none), if the port has a
    /// filter before or after the change. A closed hook drops all frames. Ports that the change removes are not
    /// concerned, because the change detaches their hooks.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the program that drops all frames.
    pub(super) fn close_hooks(&mut self, steps: &Steps, new: &Config) -> Result<(), PlaneError> {
        let RunningState { config, ports, .. } = self;
        for (name, running) in ports.iter_mut().filter(|(name, _)| !steps.remove.contains(name)) {
            let Some(wanted) = PortSpec::of(new, name) else { continue };
            let has_filter = running.wanted.filter().is_some() || wanted.filter().is_some();
            if !has_filter || function(config, name) == function(new, name) {
                continue;
            }
            let Some(hook) = running.hook.as_mut().filter(|hook| !af_xdp::is_locked(hook)) else { continue };
            let locked = af_xdp::lock(name, &running.wanted, hook);
            af_xdp::unless_detached(name, hook, locked)?;
        }
        Ok(())
    }

    /// Checks that the kernel accepts the programs with which [`RunningState::open_hooks`] opens the closed hooks.
    ///
    /// # Errors
    /// Returns the error of the first program that the kernel refuses.
    pub(super) fn check_closed_hooks(&self) -> Result<(), PlaneError> {
        for (name, running) in self.ports.iter().filter(|(_, running)| is_closed(running)) {
            if let Some(hook) = &running.hook {
                let checked = af_xdp::check_unlock(name, &running.wanted, hook);
                af_xdp::unless_detached(name, hook, checked)?;
            }
        }
        Ok(())
    }

    /// Opens the hooks that a configuration change has closed. The workers must have the new configuration already.
    /// Returns a diagnostic for each hook that stays closed. The daemon tries each second to open such a hook.
    pub(super) fn open_hooks(&mut self) -> Vec<DoctorFinding> {
        let refused = self.try_to_open_hooks().into_iter().filter_map(|(name, opened)| {
            let error = opened.err()?;
            tracing::error!(port = %name, %error, "its hook drops all frames after a change of its function");
            Some(DoctorFinding {
                object: object(&name),
                severity: Finding::Error,
                finding: format!("its hook drops all frames: {}", error.cause),
                fix: "none: it is tried again each second".to_owned(),
            })
        });
        refused.collect()
    }

    /// Tries again to open the hooks that drop all frames because the kernel refused their programs or filters at the
    /// end of a configuration change.
    pub fn open_closed_hooks(&mut self) {
        for (name, opened) in self.try_to_open_hooks() {
            match opened {
                Ok(()) => tracing::info!(port = %name, "its hook passes frames again"),
                Err(error) => tracing::debug!(port = %name, %error, "its hook still drops all frames"),
            }
        }
    }

    fn try_to_open_hooks(&mut self) -> Vec<(PortName, Result<(), PlaneError>)> {
        let closed = self.ports.iter_mut().filter(|(_, running)| is_closed(running));
        closed.map(|(name, running)| (name.clone(), self.filters.ensure_hook(name, running))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_different_bridges_or_routers_have_different_functions() {
        let config = |bridge: &str, router: &str| {
            let ports = "[port.a]\nkind='null'\n[port.b]\nkind='null'\n";
            let text = format!("{ports}[bridge.{bridge}.port.a]\n[router.{router}.port.b]\n");
            model::load(&text, "test.toml").unwrap()
        };
        let is_same = |one: &Config, other: &Config, port: &str| {
            let name = port.parse().unwrap();
            function(one, &name) == function(other, &name)
        };
        let (before, other_bridge, other_router) = (config("x", "y"), config("z", "y"), config("x", "z"));
        assert!(is_same(&before, &before, "a") && is_same(&before, &before, "b"));
        assert!(!is_same(&before, &other_bridge, "a") && is_same(&before, &other_bridge, "b"));
        assert!(is_same(&before, &other_router, "a") && !is_same(&before, &other_router, "b"));
        assert!(!is_same(&before, &Config::default(), "a"));
    }
}
