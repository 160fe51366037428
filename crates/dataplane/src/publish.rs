//! Publication of ports, bridges and routers to the workers, as one immutable snapshot.

use std::sync::Arc;

use engine::{Engine, Forwarding, Function};
use model::Config;

use super::bridges::Bridges;
use super::flows::Flows;
use super::ports::{Ports, peer_of};
use super::routers::Routers;

/// Builds a snapshot of ports, bridges and routers for the workers. `captured` contains, for each port number, whether
/// a packet capture reads the port's packets.
pub fn compose(
    config: &Config,
    ports: &Ports,
    bridges: &Bridges,
    routers: &Routers,
    flows: &Flows,
    captured: &[bool],
) -> Forwarding {
    let mut forwarding = Forwarding::default();
    let mut routed = routers.functions(config, ports);
    for (id, view) in routers.punt_taps(ports) {
        forwarding.set_port(id, Some(view));
    }
    for (name, running) in ports {
        let home = config.bridge_of(name.as_str()).map(|(bridge, _)| bridge);
        let bridge = home.and_then(|home| {
            flows
                .function(home)
                .or_else(|| bridges.get(home).map(|bridge| Function::Bridge(Arc::clone(bridge))))
        });
        let function = match (bridge, routed.remove(name)) {
            (Some(function), _) => function,
            (None, Some(function)) => function,
            (None, None) => Function::None,
        };
        let mut view = running.view(function);
        view.patch = peer_of(running).and_then(|peer| ports.get(peer)).map(|peer| peer.id);
        view.capture = captured.get(running.id.index()).copied().unwrap_or(false);
        forwarding.set_port(running.id, Some(view));
    }
    forwarding
}

/// Publishes a snapshot of ports, bridges and routers. When the function returns, no worker uses the previous
/// snapshot.
pub fn publish(
    engine: &Engine,
    config: &Config,
    ports: &Ports,
    bridges: &Bridges,
    routers: &Routers,
    flows: &Flows,
) {
    engine.update(|forwarding: &mut Forwarding| {
        let captured: Vec<bool> =
            forwarding.ports.iter().map(|view| view.as_ref().is_some_and(|view| view.capture)).collect();
        forwarding.ports = compose(config, ports, bridges, routers, flows, &captured).ports;
    });
}
