//! Settings from the configuration with which a port is opened.

use model::{Config, FilterName, HookPolicy, Port, PortName, SteeringName, WhenDown};

/// Default MTU in bytes of devices that the daemon creates.
pub const ETHERNET_MTU: u32 = 1500;

/// Settings from the configuration with which a port is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Configured settings of the port.
    pub port: Port,
    /// Policy of the port's hook (XDP program) for received packets while the daemon does not run.
    pub policy: HookPolicy,
    /// Whether the port belongs to a bridge.
    pub bridged: bool,
    /// Whether the port is a router's interface.
    pub routed: bool,
}

impl PortSpec {
    /// Returns the settings of port `name` in `config`. Returns `None` if there is no such port.
    pub fn of(config: &Config, name: &PortName) -> Option<Self> {
        let port = config.ports.get(name)?.clone();
        let bridged = config.bridge_of(name.as_str()).is_some();
        let routed = config.router_of(name.as_str()).is_some();
        let none = HookPolicy { persist: false, when_down: WhenDown::Pass };
        Some(PortSpec { port, policy: config.hook_policy(name.as_str()).unwrap_or(none), bridged, routed })
    }

    /// Returns whether workers process the port's packets, because the port belongs to a bridge or router.
    pub fn has_function(&self) -> bool {
        self.bridged || self.routed
    }

    /// Returns whether the kernel also transmits packets on the port's device. This is the case on a router interface,
    /// and on a port whose hook forwards packets according to the kernel's routes.
    pub fn speaks(&self) -> bool {
        let routing = self.port.kind.xdp().is_some_and(|options| options.routing.is_some());
        !self.bridged && (self.routed || routing)
    }

    /// Returns the filter that the configuration assigns to the port. The port's hook applies the
    /// filter. If the port's kind has no hook, the workers apply the filter.
    pub fn filter(&self) -> Option<&FilterName> {
        self.port.filter.as_ref()
    }

    /// Returns the filter that workers apply. Returns `None` if the port's kind has a hook or the port has no
    /// filter.
    pub fn workers_filter(&self) -> Option<&FilterName> {
        self.filter().filter(|_| self.port.kind.xdp().is_none())
    }

    /// Returns the flow steering that the configuration assigns to the port's hook.
    pub fn steering(&self) -> Option<&SteeringName> {
        self.port.kind.xdp()?.steering.as_ref()
    }

    /// Returns the MTU in bytes that the configuration sets for the port.
    pub fn mtu(&self) -> Option<u32> {
        self.port.mtu.map(|mtu| u32::from(mtu.get()))
    }
}
