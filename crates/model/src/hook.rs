//! Behaviour of a port's hook (XDP program) while no daemon runs, derived from the configuration of the port and from
//! its bridge membership.
//!
//! Traffic of bridged ports must never reach the network stack of the host. By default, hooks of bridged ports
//! therefore stay attached when the daemon ends, and then drop packets.

use crate::{Config, WhenDown};

/// Behaviour of a port's hook while no daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookPolicy {
    /// Whether the program of the hook stays attached when the daemon ends.
    pub persist: bool,
    /// Handling of packets that the hook cannot forward itself while no daemon runs.
    pub when_down: WhenDown,
}

impl Config {
    /// Returns the hook policy of a port, with default values for absent fields. Returns `None` if the port has no hook
    /// or does not exist.
    pub fn hook_policy(&self, port: &str) -> Option<HookPolicy> {
        let xdp = self.ports.get(port)?.kind.xdp()?;
        let bridged = self.bridge_of(port).is_some();
        let when_down = if bridged { WhenDown::Drop } else { WhenDown::Pass };
        Some(HookPolicy {
            persist: xdp.persist.unwrap_or(bridged),
            when_down: xdp.when_down.unwrap_or(when_down),
        })
    }
}
