//! Running configuration of the workers. The configuration is one immutable snapshot of all ports and their
//! functions. A control thread replaces the snapshot as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{PortId, VlanTags, WorkerId};
use router::Router;
use switch::Bridge;

use crate::flows::FlowBridge;
use crate::stage::ingress_stage::IngressStage;

/// Number of hash buckets of software RSS. The hash of a flow, which is equal for both directions, selects the bucket.
pub const RSS_BUCKETS: usize = 256;

/// Function of a port, which determines how received packets are forwarded.
#[derive(Clone)]
pub enum Function {
    /// The port has no function. Received packets are dropped with the reason `no-function`.
    None,
    /// The port is a member of a learning bridge.
    Bridge(Arc<Bridge>),
    /// The port belongs to an OpenFlow bridge.
    OpenFlow(Arc<FlowBridge>),
    /// The port is an interface of a router. The second field is the index of the interface in the router.
    Router(Arc<Router>, u16),
    /// The port is one end of a cross-connect, which connects two ports. Received packets are transmitted through the
    /// given port without being parsed.
    CrossConnect(PortId),
    /// The port is one end of a cross-connect that adds VLAN tags. Received packets get the given tags and are
    /// transmitted through the given port.
    TaggedCrossConnect(PortId, VlanTags),
}

/// State of a port that a worker needs to receive, forward and transmit packets.
#[derive(Clone)]
pub struct PortView {
    /// Function of the port, which forwards received packets.
    pub function: Function,
    /// Worker that transmits the port's packets on behalf of all workers that have no queue of this port.
    pub tx_owner: WorkerId,
    /// Whether the port is administratively and operationally up. Packets for a port that is down are dropped
    /// with the reason `port-down`.
    pub up: bool,
    /// Maximum frame length in bytes, without VLAN tags (MTU + 14). Longer frames are dropped with the reason
    /// `mtu-exceeded`.
    pub max_frame: u32,
    /// Software RSS table of the port, which maps each hash bucket to a worker. With `None`, each packet is
    /// processed by the worker that receives it.
    pub rss_table: Option<Arc<[WorkerId; RSS_BUCKETS]>>,
    /// Whether the worker completes TCP and UDP checksums of received packets that contain only the pseudo-header sum.
    /// This is needed for veth devices whose peer is in another namespace.
    pub complete_checksums: bool,
    /// Whether a running capture copies packets of this port.
    pub capture: bool,
    /// Peer port of a patch port. The peer receives all packets that this port transmits. `None` if this port
    /// is not a patch port.
    pub patch: Option<PortId>,
    /// Flag that a worker sets when a frame arrives on a port that is down only because its link is
    /// down. The frame shows that the link is up again, even if the kernel's notification is read
    /// later. The port then counts as up until the next snapshot is published. `None` if the port
    /// is up, or is down for another reason.
    pub carrier: Option<Arc<AtomicBool>>,
    /// Ingress stage of the port: its packet filter, or code of a program that embeds the engine. The stage
    /// processes received packets before the port's function.
    pub own: Option<Arc<dyn IngressStage>>,
}

impl PortView {
    /// Creates the state of a port that is up, for an MTU of 1500 bytes and without optional features.
    #[must_use]
    pub fn new(function: Function, tx_owner: WorkerId) -> Self {
        Self {
            function,
            tx_owner,
            up: true,
            max_frame: 1514,
            rss_table: None,
            complete_checksums: false,
            capture: false,
            patch: None,
            carrier: None,
            own: None,
        }
    }

    /// Returns whether packets that arrive on the port are processed. This is the case if the port
    /// is up or only its link is down. If only the link is down, the function sets
    /// [`Self::carrier`].
    #[inline]
    #[must_use]
    pub fn accepts(&self) -> bool {
        self.up
            || self.carrier.as_ref().is_some_and(|seen| {
                seen.store(true, Ordering::Relaxed);
                true
            })
    }

    /// Returns whether packets may be transmitted through the port. This is the case if the port is up or its carrier
    /// flag is set.
    #[inline]
    #[must_use]
    pub fn transmits(&self) -> bool {
        self.up || self.carrier.as_ref().is_some_and(|seen| seen.load(Ordering::Relaxed))
    }
}

/// Snapshot of all ports. See the module documentation.
#[derive(Clone, Default)]
pub struct Forwarding {
    /// Version number of the snapshot. Each publication increases the number, so that workers
    /// detect that ports have changed.
    pub version: u64,
    /// State of each port, indexed by the port's index. `None` if the port does not exist.
    pub ports: Vec<Option<PortView>>,
    /// Whether a running capture copies the dropped packets of all ports.
    pub capture_drops: bool,
    /// Filter of the running trace, or `None` if no trace runs. During a trace, workers process the packets of a burst
    /// one by one and record the processing steps.
    pub trace: Option<Arc<crate::trace::TraceFilter>>,
}

impl Forwarding {
    /// Returns the state of `port`, or `None` if the port does not exist.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&PortView> {
        self.ports.get(port.index()).and_then(Option::as_ref)
    }

    /// Sets the state of `port`. Enlarges the table of ports if necessary.
    pub fn set_port(&mut self, port: PortId, view: Option<PortView>) {
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, None);
        }
        self.ports[port.index()] = view;
    }
}
