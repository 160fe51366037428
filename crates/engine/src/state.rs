//! What the workers are told: one immutable snapshot of ports and rooms, replaced whole by control.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{PortId, VlanTags, WorkerId};
use router::Router;
use switch::Bridge;

use crate::flows::FlowBridge;
use crate::stage::own::OwnStage;

/// Buckets of the symmetric hash over which software RSS spreads a port's flows.
pub const SPREAD_BUCKETS: usize = 256;

/// The room that owns a port.
#[derive(Clone)]
pub enum Room {
    /// None yet: what arrives is dropped as `no-room`.
    None,
    /// The switch: the port is a member of this bridge.
    Switch(Arc<Bridge>),
    /// The switch, by OpenFlow's rules: the port is a port of this bridge.
    Flows(Arc<FlowBridge>),
    /// The router: the port is its interface of this number.
    Route(Arc<Router>, u16),
    /// A cross-connect: whatever arrives leaves, unread, by that port.
    Wire(PortId),
    /// The same with these VLAN tags in front.
    Tagged(PortId, VlanTags),
}

/// What a worker has to know of a port.
#[derive(Clone)]
pub struct PortView {
    /// Who decides.
    pub room: Room,
    /// The worker that owns its transmit queue, for workers that own none of its queues.
    pub tx_owner: WorkerId,
    /// Administratively and operationally up; packets for a port that is down are dropped as `port-down`.
    pub up: bool,
    /// Most bytes of a frame without VLAN tags (MTU + 14); longer ones are dropped as `mtu-exceeded`.
    pub max_frame: u32,
    /// Software RSS: the worker of each bucket; `None` processes where the packet arrives.
    pub spread: Option<Arc<[WorkerId; SPREAD_BUCKETS]>>,
    /// Complete TCP and UDP checksums that are the bare pseudo-header sum (foreign veth devices).
    pub complete_checksums: bool,
    /// A capture listens to this port's packets.
    pub capture: bool,
    /// A patch port, and this is its peer: what is sent here arrives there.
    pub patch: Option<PortId>,
    /// Set where the port is down for its link's sake alone: a frame that arrives shows that the link is up again, before the kernel's
    /// notification of that is read. Until the next snapshot the port then counts as up.
    pub carrier: Option<Arc<AtomicBool>>,
    /// A stage of somebody's own, which sees what arrives before the room does.
    pub own: Option<Arc<dyn OwnStage>>,
}

impl PortView {
    /// A port that is up, with an Ethernet MTU and nothing special.
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

    /// Returns whether packets that have arrived at the port may pass.
    #[inline]
    #[must_use]
    pub fn accepts(&self) -> bool {
        self.up
            || self.carrier.as_ref().is_some_and(|seen| {
                seen.store(true, Ordering::Relaxed);
                true
            })
    }

    /// Returns whether packets may leave by the port.
    #[inline]
    #[must_use]
    pub fn transmits(&self) -> bool {
        self.up || self.carrier.as_ref().is_some_and(|seen| seen.load(Ordering::Relaxed))
    }
}

/// The snapshot. See the module documentation.
#[derive(Clone, Default)]
pub struct Forwarding {
    /// Raised with every publication, so that workers notice changes of ports.
    pub version: u64,
    /// By port id.
    pub ports: Vec<Option<PortView>>,
    /// A capture listens to drops of any port (those that carry no port's flag).
    pub capture_drops: bool,
    /// A trace is armed: bursts are taken one packet at a time, with a recorder.
    pub trace: Option<Arc<crate::trace::TraceFilter>>,
}

impl Forwarding {
    /// The view of a port.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&PortView> {
        self.ports.get(port.index()).and_then(Option::as_ref)
    }

    /// Puts a port's view in place, growing the table as needed.
    pub fn set_port(&mut self, port: PortId, view: Option<PortView>) {
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, None);
        }
        self.ports[port.index()] = view;
    }
}
