//! What a port's hook does when the daemon is away: derived from the port and from whether it is bridged.
//!
//! Traffic of bridged ports must never leak into the host, so those persist and drop unless told otherwise.

use crate::{Config, WhenDown};

/// What becomes of a port's hook and its packets when the daemon goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookPolicy {
    /// Whether the hook's program outlives the daemon.
    pub persist: bool,
    /// What it then does with packets that it cannot decide.
    pub when_down: WhenDown,
}

impl Config {
    /// The policy of this port, defaults resolved; `None` for a port that has no hook or does not exist.
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
