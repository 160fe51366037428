//! Queues and rings through which a worker transmits packets.

use packet::{PortId, QueueId};
use port::{Capabilities, Queue};

use super::software_rss::Applied;
use crate::handover::WorkerRings;
use crate::ordering::{Finish, Parked, Unsent};

/// Value of `Egress::local` for a port for which this worker has no queue.
pub const NOT_MINE: u16 = u16::MAX;

/// A queue that a worker owns, with the state that the worker keeps for the queue.
pub struct OwnedQueue {
    /// Port to which the queue belongs.
    pub port: PortId,
    /// Identifier of the queue within its port.
    pub id: QueueId,
    /// Queue through which packets are received and transmitted.
    pub queue: Box<dyn Queue>,
    /// Offloads and frame lengths that the queue supports.
    pub capabilities: Capabilities,
    /// Whether packets were put into the queue since the last kick (system call that makes the
    /// kernel process the queue).
    pub touched: bool,
    /// State of software RSS for packets that are received from the queue.
    pub rss: Applied,
    /// State of the queue's progress reports, or `None` if the queue has no receiver of reports.
    pub finish: Option<Finish>,
    /// Packets that were received from the queue and now wait in the worker or at the slow path.
    pub parked: Parked,
    /// State of a wait until the kernel has taken the packets in the queue's transmit ring. A progress report is sent
    /// only after this wait ([`crate::ordering`]).
    pub unsent: Unsent,
}

/// Destinations to which a worker sends packets: its own queues, other workers, or the output list of a dry run.
pub struct Egress<'w> {
    /// Queues that the worker owns, for reception and transmission.
    pub queues: &'w mut [OwnedQueue],
    /// For each port, the index in `queues` of the queue that transmits the port's packets, or [`NOT_MINE`] if this
    /// worker has no queue of the port.
    pub local: &'w [u16],
    /// Rings to and from the other workers.
    pub links: &'w mut WorkerRings,
    /// List to which a dry run appends its output frames. With `None`, packets are transmitted.
    pub collected: Option<&'w mut Vec<(PortId, Vec<u8>)>>,
}
