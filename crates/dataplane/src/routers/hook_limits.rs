//! Rate limits of the control packets that the hooks (XDP programs) of a router's ports pass to the kernel. Hooks use
//! the same rates and known peers as workers, but have separate token buckets.

use std::collections::BTreeSet;

use model::{RouterName, RouterSettings};
use packet::PuntClass;
use router::Peer;
use xdp::route::{PUNT_CLASSES, PuntLimits, PuntPeer, PuntRate, RouteStage};

/// Rate limits of control packets to the kernel, which the hooks of one router's ports apply.
pub struct HookLimits {
    /// BPF maps with the token buckets and the known peers. `None` if the kernel has refused the maps. Hooks then do
    /// not limit the control packets.
    limits: Option<PuntLimits>,
    /// Whether a failure to write the known peers to the BPF maps was already logged.
    is_failure_logged: bool,
}

impl HookLimits {
    /// Creates limits with the rates in `settings`. Logs a warning if the kernel refuses the BPF maps.
    pub fn new(router: &RouterName, settings: &RouterSettings) -> HookLimits {
        let limits = PuntLimits::new().inspect_err(|error| {
            tracing::warn!(%router, %error, "hooks do not limit the control traffic to the kernel");
        });
        let limits = HookLimits { limits: limits.ok(), is_failure_logged: false };
        limits.set_rates(settings);
        limits
    }

    /// Returns whether hooks limit the rate of control packets to the kernel.
    pub fn is_active(&self) -> bool {
        self.limits.is_some()
    }

    /// Sets the rate of each class of control packets to the rate in `settings`.
    pub fn set_rates(&self, settings: &RouterSettings) {
        let Some(limits) = &self.limits else { return };
        for (index, class) in PuntClass::ALL.into_iter().take(PUNT_CLASSES).enumerate() {
            let packets = settings.punts_of(class);
            let (burst, reserve) = router::punt_burst(packets);
            limits.set_rate(index, PuntRate { packets, burst, reserve });
        }
    }

    /// Replaces the known peers of the host's routing daemons (such as BGP neighbours). The packets of known peers have
    /// separate rate limits.
    pub fn set_peers(&mut self, router: &RouterName, peers: &BTreeSet<Peer>) {
        let Some(limits) = &mut self.limits else { return };
        let peer = |peer: &Peer| match *peer {
            Peer::Session(here, far) => PuntPeer::Session(here, far),
            Peer::Neighbour(interface, far) => PuntPeer::Neighbour(interface, far),
            Peer::Far(far) => PuntPeer::Far(far),
        };
        match limits.set_peers(&peers.iter().map(peer).collect()) {
            Ok(()) => self.is_failure_logged = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_failure_logged, true) {
                    tracing::warn!(%router, %error, "hooks do not know all peers: a flood of forged packets may starve them");
                }
            }
        }
    }

    /// Returns the virtual router stage `stage` of a port with these limits added. `interface` is the number of the
    /// router interface of the port itself.
    pub fn limit(&self, stage: RouteStage, interface: u16) -> RouteStage {
        match &self.limits {
            Some(limits) => stage.limited(limits, interface),
            None => stage,
        }
    }

    /// Returns two numbers of control packets of a class: the packets that hooks passed to the kernel, and the packets
    /// that hooks dropped.
    pub fn counted(&self, class: PuntClass) -> (u64, u64) {
        let index = class as usize;
        let limits = self.limits.as_ref().filter(|_| index < PUNT_CLASSES);
        limits.and_then(|limits| limits.counted(index).ok()).unwrap_or_default()
    }
}
