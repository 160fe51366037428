//! Result of opening a port: its queues, its hook (XDP program), and the changes that were made on the machine.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use engine::IngressStage;
use model::{DoctorFinding, Finding, PortName};
use packet::QueueId;
use port::veth::EndAddresses;
use port::{Queue, QueueStatus};
use xdp::{Attached, Constants};

use super::device::{Device, object};
use super::foreign::Former;
use super::pins::Claim;

/// A port whose queues are open, but not assigned to workers yet.
pub struct Opened {
    /// Device of the port, if the port's kind has one.
    pub device: Option<Device>,
    /// Hook of the port, if the port's kind has one.
    pub hook: Option<Attached>,
    /// Queues of the port.
    pub queues: Vec<(QueueId, Box<dyn Queue>)>,
    /// Status of each queue, in the order of `queues`.
    pub statuses: Vec<QueueStatus>,
    /// Duplicated file descriptors of the port's AF_XDP sockets, with the queue indices of the
    /// sockets. They are needed to fill the hook's XSKMAP and to read the sockets' counters from
    /// the kernel.
    pub sockets: Vec<(QueueId, OwnedFd)>,
    /// Whether the port must complete the transport checksums of packets whose senders left them to checksum offload.
    pub complete_checksums: bool,
    /// Ingress stage with which workers apply the port's filter, if the port's kind has no hook.
    pub own: Option<Arc<dyn IngressStage>>,
    /// MTU of the port: size in bytes of the largest layer-3 packet.
    pub max_mtu: u32,
    /// Changes that opening the port has made on the machine (created device, changed settings).
    pub footprint: Footprint,
    /// Whether the hook was taken over from an earlier daemon process.
    pub adopted: bool,
    /// Constants that an adopted hook had before its adoption. `None` if no hook was adopted, or if the hook already
    /// has the filter of the configuration.
    pub former_constants: Option<Constants>,
    /// Lock on the hook's pin directory, if the hook outlives this process. The lock shows other
    /// processes that the hook is in use.
    pub claim: Option<Claim>,
    /// Diagnostics about the opening of the port, for the operator.
    pub notes: Vec<DoctorFinding>,
}

/// Changes that opening a port made on the machine other than its queues and its hook. See [`super::open::unmake`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Whether the daemon created the device.
    pub made: bool,
    /// Saved settings of a device that the daemon did not create.
    pub former: Option<Former>,
    /// Ethernet addresses of a device that the daemon created. A device that must be created again gets these
    /// addresses.
    pub ends: EndAddresses,
}

/// Diagnostics that the opening of a port has collected for the operator.
#[derive(Debug, Default)]
pub struct Diagnostics(pub Vec<DoctorFinding>);

impl Diagnostics {
    /// Adds a diagnostic about the opening of a port.
    pub fn say(&mut self, port: &PortName, severity: Finding, finding: String, fix: &str) {
        self.0.push(DoctorFinding { object: object(port), severity, finding, fix: fix.to_owned() });
    }

    /// Adds a diagnostic for each attach mode that the driver has refused.
    pub fn fallbacks(&mut self, port: &PortName, hook: &Attached) {
        for fallback in hook.fallbacks() {
            let finding = format!("runs {} XDP, because the driver refused {fallback}", hook.mode());
            self.say(port, Finding::Advice, finding, "");
        }
    }
}
