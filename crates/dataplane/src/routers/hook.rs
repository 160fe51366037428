//! Offload of routes to the hooks (XDP programs) of a router's ports. The programs read a copy of the router's main
//! table, of its neighbours and of its interfaces in shared memory.
//!
//! If the offload cannot be installed, the failure is logged and workers route all packets, which is slower. The thread
//! that tracks the namespace writes the tables. It also records in [`Answers`] for which address families the tables
//! are complete. The periodic update of the hooks writes all other state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control::PlaneError;
use model::{Namespace, PortName, RouterName, RouterSettings};
use netlink::Programs;
use router::{NeighbourMirror, TableMirror};
use sync::qsbr::Domain;
use sync::readers::{ExternalReaders, Memory, Readers};
use xdp::StageChange;
use xdp::fib::Takes;
use xdp::route::{
    AnswerInterface, AnswerPort, AnswerSizes, Answers, Own, ROUTE_INTERFACES, RouteCounts, RoutePort,
    RouteStage, Sources, Words,
};

use super::super::device::{inside, object, xdp_features_among};
use super::super::ports::Running as Port;
use super::hook_limits::HookLimits;
use super::observed::Netdev;

/// Maximum number of different sets of next hops in one routing table.
pub const PATHS: u32 = 65_536;
/// Maximum number of next-hop groups (paths with several next hops) in the hooks' tables. If there are more groups, the
/// packets of the additional groups are routed by workers.
const GROUPS: u32 = 512;
/// Minimum size of the hooks' IPv4 route trie, in 64-bit words. This minimum leaves space for routes that are
/// added later.
const WORDS4: u32 = 1 << 19;
const WORDS6: u32 = 1 << 18;

/// Offload of a router's routes to hooks: the routing tables for the hooks, and the router's interfaces.
pub struct Hook {
    answers: Arc<Answers>,
    /// Router interfaces to which hooks may send packets, by interface number.
    outputs: BTreeMap<u16, (PortName, AnswerInterface)>,
    /// Counts of packets that hooks have routed at interfaces that were removed. The counts are kept so that a port's
    /// total counts never decrease.
    past: BTreeMap<PortName, RouteCounts>,
    /// Ports for which the kernel has refused the hook program with offloaded routes.
    refused: BTreeSet<PortName>,
}

/// A router interface to which hooks may send packets, as observed in the router's namespace.
pub struct ObservedNamespace<'a> {
    pub number: u16,
    pub name: &'a PortName,
    pub port: &'a Port,
    pub netdev: Netdev,
    /// VLAN ID of the interface, if the interface is a VLAN of its port.
    pub vlan: Option<u16>,
}

/// Settings that are compiled into the routing stage of a port's hook program.
pub struct Wanted<'a> {
    pub of: RoutePort,
    pub own: &'a Own,
    /// Number of the router interface that is the port itself. Each VLAN of the port is a separate
    /// router interface.
    pub interface: u16,
    pub sources: Sources,
    pub seed: u32,
    /// Outer VLAN IDs of the port's VLANs, each with the number of the VLAN's router interface if hooks route the
    /// packets of the VLAN, or `None` if workers route these packets.
    pub vlans: Vec<(u16, Option<u16>)>,
    /// Whether the outer tag of some VLANs of the port is a service tag (802.1ad).
    pub service: bool,
    /// Limits of the control traffic that the hook passes to the kernel.
    pub limits: &'a HookLimits,
}

impl Wanted<'_> {
    /// Returns the virtual router stage without offloaded routes. The hook then hands all packets
    /// that must be routed over to the workers.
    fn plain(&self) -> RouteStage {
        self.tagged(RouteStage::new(&self.of, self.own))
    }

    fn tagged(&self, stage: RouteStage) -> RouteStage {
        let stage = stage.with_vlans(self.vlans.iter().copied()).with_source_check(self.sources);
        let stage = self.limits.limit(stage, self.interface);
        if self.service { stage.with_service_tags() } else { stage }
    }
}

fn memory(words: Words) -> Memory {
    Box::new(words)
}

impl Hook {
    /// Creates empty routing tables for the hooks of a router's ports. Returns the state of the offload, and the
    /// writers of the tables for the thread that tracks the namespace. `domain` is the domain of memory reclamation in
    /// which the workers are readers.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory for the tables, or if this process lacks the privilege.
    pub fn new(
        router: &RouterName,
        settings: &RouterSettings,
        domain: &Arc<Domain>,
    ) -> Result<(Hook, Programs), PlaneError> {
        let failed = |error: &dyn std::error::Error| {
            PlaneError::failed(super::object(router), error, "lower `routes`, or say `hook = false`")
        };
        let sizes = AnswerSizes {
            words4: settings.routes.max(WORDS4),
            words6: settings.routes.max(WORDS6),
            paths: PATHS + 1,
            groups: GROUPS,
            neighbours: settings.neighbours.saturating_add(1),
        };
        let answers = Answers::new(&sizes).map_err(|error| failed(&error))?;
        let external_readers =
            ExternalReaders::start(xdp::wait_for_programs).map_err(|error| failed(&error))?;
        let programs = Programs {
            readers: Readers::with(domain, &external_readers),
            table: TableMirror {
                four: memory(answers.four()),
                six: memory(answers.six()),
                paths: memory(answers.paths()),
                groups: memory(answers.groups()),
            },
            neighbours: NeighbourMirror {
                neighbours: memory(answers.neighbours()),
                links: memory(answers.links()),
                secrets: answers.link_secrets(),
                counts: memory(answers.sent()),
            },
        };
        let answers = Arc::new(answers);
        let hook =
            Hook { answers, outputs: BTreeMap::new(), past: BTreeMap::new(), refused: BTreeSet::new() };
        Ok((hook, programs))
    }

    /// Returns the routing tables that the hook programs read. They also contain a flag that enables routing in the
    /// programs.
    pub fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    /// Returns the virtual router stage for a port's hook.
    pub fn stage(&self, name: &PortName, port: &Port, wanted: &Wanted<'_>) -> RouteStage {
        if self.refused.contains(name) {
            return wanted.plain();
        }
        let answer = AnswerPort {
            number: port.id.0,
            interface: wanted.interface,
            sources: wanted.sources,
            partial_checksums: port.complete_checksums,
            seed: wanted.seed,
        };
        let stage = wanted.tagged(RouteStage::answering(&wanted.of, wanted.own, self.answers(), &answer));
        // Frame order is tracked for each queue. This works only in native mode, in which one CPU at a time receives
        // the frames of a queue. It also requires that the port does not use software RSS, because packets that one
        // worker passes to another are not tracked.
        let attached = port.hook.as_ref().filter(|hook| hook.mode() == xdp::Mode::Native);
        let Some(attached) = attached.filter(|_| port.rss_table.is_none()) else { return stage };
        stage.clone().in_order(attached).unwrap_or_else(|error| {
            tracing::warn!(port = %name, %error, "frames of a flow that changes to its hook may overtake others");
            stage
        })
    }

    /// Records that the kernel refused a port's hook program with offloaded routes. The port's hook then does not route
    /// packets itself.
    pub fn refuse(&mut self, name: &PortName) {
        self.refused.insert(name.clone());
    }

    /// Updates the router's interfaces in the hooks' tables, including the kinds of frames that can be redirected to
    /// their devices. All interfaces are in `namespace`.
    pub fn tell(
        &mut self,
        router: &RouterName,
        namespace: Option<&Namespace>,
        seen: &[ObservedNamespace<'_>],
    ) {
        let wanted = self.look(router, namespace, seen);
        let gone: Vec<u16> = self
            .outputs
            .iter()
            .filter(|(number, (name, old))| {
                wanted.get(number).is_none_or(|(new_name, new)| new_name != name || new.port != old.port)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.leave(number);
        }
        let mut fresh = Vec::new();
        for (number, (name, interface)) in wanted {
            let before = self.outputs.get(&number).map(|(_, before)| *before);
            if before == Some(interface) {
                continue;
            }
            // Counters and devices belong to ports, so VLANs share them.
            let is_port = interface.vlan == 0;
            if is_port && before.is_none_or(|before| before.device != interface.device) {
                fresh.push(interface);
            }
            if is_port
                && before.is_none()
                && let Err(error) = self.answers().clear_counts(interface.port)
            {
                tracing::warn!(port = %name, %error, "what its hook has routed does not begin at zero");
            }
            self.outputs.insert(number, (name, interface));
        }
        if !fresh.is_empty() {
            let set = inside(&super::object(router), namespace, || {
                Ok(fresh.iter().try_for_each(|it| self.answers().set_device(it.port, it.device)))
            });
            if !matches!(set, Ok(Ok(()))) {
                // If a device cannot be set, the hook passes frames for this device to a worker instead of redirecting
                // them.
                tracing::warn!(%router, "frames cannot be redirected to some of its devices");
            }
        }
        for (number, (_, interface)) in &self.outputs {
            self.answers().set_interface(*number, Some(interface));
        }
    }

    /// Returns the router interfaces to which hooks may send packets, by interface number.
    fn look(
        &self,
        router: &RouterName,
        namespace: Option<&Namespace>,
        seen: &[ObservedNamespace<'_>],
    ) -> BTreeMap<u16, (PortName, AnswerInterface)> {
        let there = |seen: &&ObservedNamespace<'_>| {
            u32::from(seen.number) < ROUTE_INTERFACES && seen.port.hook.is_some()
        };
        let seen: Vec<_> = seen.iter().filter(there).collect();
        // Interfaces of one port share its device. Thousands of other devices may be in the namespace, so only
        // the ports' devices are queried.
        let devices = seen.iter().filter_map(|seen| seen.port.device.as_ref()).map(|device| device.ifindex);
        let devices: BTreeSet<u32> = devices.collect();
        if devices.is_empty() {
            return BTreeMap::new();
        }
        let features = inside(&super::object(router), namespace, || Ok(xdp_features_among(&devices)));
        let features = match features {
            Ok(features) => features,
            Err(error) => {
                tracing::warn!(%error, "its devices cannot be looked at; workers route");
                return BTreeMap::new();
            }
        };
        let takes = |seen: &ObservedNamespace<'_>| {
            let device = seen.port.device.as_ref()?;
            let features = features.get(&device.ifindex).copied().unwrap_or_default();
            let takes = match (seen.port.is_up() && features.transmit, features.transmit_multi_buffer) {
                (false, _) => Takes::Nothing,
                (true, false) => Takes::Frames,
                (true, true) => Takes::MultiBuffer,
            };
            let interface = AnswerInterface {
                port: seen.port.id.0,
                device: if seen.vlan.is_some() { seen.netdev.index } else { device.ifindex },
                mac: seen.netdev.mac.0,
                mtu: seen.netdev.mtu,
                takes,
                vlan: seen.vlan.unwrap_or_default(),
            };
            Some((seen.number, (seen.name.clone(), interface)))
        };
        seen.into_iter().filter_map(takes).collect()
    }

    /// Removes a router interface from the hooks' tables. The interface's counts are kept.
    fn leave(&mut self, number: u16) {
        let Some((name, gone)) = self.outputs.remove(&number) else { return };
        self.answers().set_interface(number, None);
        if gone.vlan != 0 {
            return;
        }
        let counted = self.answers().counts(gone.port).unwrap_or_default();
        add(self.past.entry(name.clone()).or_default(), counted);
        if let Err(error) = self.answers().clear_device(gone.port) {
            tracing::warn!(port = %name, %error, "its device could not be taken from the hooks");
        }
    }

    /// Returns the counts of the packets that hooks have routed from and to a port.
    pub fn counts(&self, name: &PortName) -> RouteCounts {
        let mut sum = self.past.get(name).copied().unwrap_or_default();
        for (_, interface) in self.outputs.values().filter(|(own, it)| own == name && it.vlan == 0) {
            add(&mut sum, self.answers().counts(interface.port).unwrap_or_default());
        }
        sum
    }

    /// Returns the ports that have counts of packets routed by hooks.
    pub fn counted(&self) -> BTreeSet<PortName> {
        self.past.keys().chain(self.outputs.values().map(|(name, _)| name)).cloned().collect()
    }
}

/// Adds the packet and byte counts in `more` to those in `sum`.
pub fn add(sum: &mut RouteCounts, more: RouteCounts) {
    sum.rx_packets += more.rx_packets;
    sum.rx_bytes += more.rx_bytes;
    sum.tx_packets += more.tx_packets;
    sum.tx_bytes += more.tx_bytes;
}

/// Creates the routing tables for the hooks of a router's ports. Returns `None` if the settings do not enable
/// the offload. If the tables cannot be created, logs the failure and returns `None`.
pub fn wanted(
    router: &RouterName,
    settings: &RouterSettings,
    domain: &Arc<Domain>,
) -> Option<(Hook, Programs)> {
    if !settings.hook {
        return None;
    }
    let made = Hook::new(router, settings, domain);
    made.inspect_err(|error| tracing::warn!(%error, "its routes are not answered in the driver hook")).ok()
}

/// Installs the virtual router stage in a port's hook. If the kernel refuses the stage with offloaded routes, installs
/// the stage without them.
pub fn put(
    hook: &mut Option<Hook>,
    name: &PortName,
    port: &mut Port,
    wanted: &Wanted<'_>,
) -> Result<(), xdp::Error> {
    let stage = hook.as_ref().map_or_else(|| wanted.plain(), |hook| hook.stage(name, port, wanted));
    let Some(attached) = port.hook.as_mut() else { return Ok(()) };
    if attached.route().is_some_and(|stands| stands.is_same(&stage).unwrap_or(false)) {
        return Ok(());
    }
    let done = attached.set_stage(StageChange::Route(Some(&stage)));
    match (done, hook) {
        (Err(error), Some(hook)) if stage.is_answering() => {
            tracing::warn!(port = %object(name), %error, "its routes are not answered in the driver hook");
            hook.refuse(name);
            attached.set_stage(StageChange::Route(Some(&wanted.plain())))
        }
        (done, _) => done,
    }
}
