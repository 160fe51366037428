//! The running configuration of the workers: one immutable snapshot of ports and their functions, which
//! control replaces as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{PortId, VlanTags, WorkerId};
use router::Router;
use switch::Bridge;

use crate::flows::FlowBridge;
use crate::stage::own::OwnStage;

/// Number of buckets of the symmetric hash by which software RSS distributes a port's flows.
pub const SPREAD_BUCKETS: usize = 256;

/// Function of a port: bridge, OpenFlow bridge, router or cross-connect.
#[derive(Clone)]
pub enum Room {
    /// No function. Received packets are dropped as `no-room`.
    None,
    /// Member of a learning bridge.
    Switch(Arc<Bridge>),
    /// Port of an OpenFlow bridge.
    Flows(Arc<FlowBridge>),
    /// Interface of a router. The number is the interface's index in the router.
    Route(Arc<Router>, u16),
    /// Cross-connect: received packets leave by the given port, unparsed.
    Wire(PortId),
    /// Cross-connect that adds VLAN tags: received packets leave by the given port with the tags pushed.
    Tagged(PortId, VlanTags),
}

/// Per-port state that a worker needs to receive, forward and transmit.
#[derive(Clone)]
pub struct PortView {
    /// Function of the port.
    pub room: Room,
    /// Worker that owns the port's transmit queue, for workers that own no queue of the port.
    pub tx_owner: WorkerId,
    /// Whether the port is administratively and operationally up. Packets for a port that is down are dropped
    /// as `port-down`.
    pub up: bool,
    /// Maximum frame length in bytes without VLAN tags (MTU + 14). Longer frames are dropped as
    /// `mtu-exceeded`.
    pub max_frame: u32,
    /// Software RSS table, which maps each hash bucket to a worker. With `None`, packets are processed by the
    /// worker that receives them.
    pub spread: Option<Arc<[WorkerId; SPREAD_BUCKETS]>>,
    /// Whether the worker completes TCP and UDP checksums that are the bare pseudo-header sum (foreign veth
    /// devices).
    pub complete_checksums: bool,
    /// Whether a capture copies this port's packets.
    pub capture: bool,
    /// Peer of a patch port. Packets transmitted by this port are received by the peer. `None` for other
    /// ports.
    pub patch: Option<PortId>,
    /// Flag set by the worker when a frame arrives at a port that is down only because of its link state. The
    /// frame shows that the link is up again before the kernel's notification is read. The port then counts
    /// as up until the next snapshot. `None` for all other ports.
    pub carrier: Option<Arc<AtomicBool>>,
    /// Ingress stage of an embedding program, which sees received packets before the port's function.
    pub own: Option<Arc<dyn OwnStage>>,
}

impl PortView {
    /// Returns a port that is up, with an Ethernet MTU and default settings.
    #[must_use]
    pub fn new(room: Room, tx_owner: WorkerId) -> Self {
        Self {
            room,
            tx_owner,
            up: true,
            max_frame: 1514,
            spread: None,
            complete_checksums: false,
            capture: false,
            patch: None,
            carrier: None,
            own: None,
        }
    }

    /// Returns whether packets received on the port are accepted. Sets the carrier flag if the port is down
    /// only because of its link state.
    #[inline]
    #[must_use]
    pub fn accepts(&self) -> bool {
        self.up
            || self.carrier.as_ref().is_some_and(|seen| {
                seen.store(true, Ordering::Relaxed);
                true
            })
    }

    /// Returns whether packets may be transmitted by the port.
    #[inline]
    #[must_use]
    pub fn transmits(&self) -> bool {
        self.up || self.carrier.as_ref().is_some_and(|seen| seen.load(Ordering::Relaxed))
    }
}

/// The snapshot of all ports. See the module documentation.
#[derive(Clone, Default)]
pub struct Forwarding {
    /// Version number, increased by every publication, by which workers notice changes of ports.
    pub version: u64,
    /// State of each port, indexed by port number.
    pub ports: Vec<Option<PortView>>,
    /// Whether a capture copies dropped packets of any port.
    pub capture_drops: bool,
    /// Filter of the active trace. While a trace is active, workers process bursts one packet at a time with
    /// a recorder.
    pub trace: Option<Arc<crate::trace::TraceFilter>>,
}

impl Forwarding {
    /// Returns the state of a port, or `None` if the port does not exist.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&PortView> {
        self.ports.get(port.index()).and_then(Option::as_ref)
    }

    /// Sets the state of a port. The table grows if necessary.
    pub fn set_port(&mut self, port: PortId, view: Option<PortView>) {
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, None);
        }
        self.ports[port.index()] = view;
    }
}
