//! Reasons for which packets are lost, in workers and before a worker receives them. The hooks and the kernel count the
//! packets that no worker received.

use packet::DropReason;

/// Reason for which packets are lost. A packet is lost either in a worker, for a [`DropReason`], or
/// before a worker receives the packet. Reasons of the second kind have a stable name but no
/// [`DropReason`] number, because captures and traces of workers do not contain such packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossReason {
    /// Name of the reason in lists and metrics.
    pub name: &'static str,
    /// Cause of the drop and the next step for an operator.
    pub explain: &'static str,
}

impl LossReason {
    /// Returns the reason for packets that a worker drops.
    pub const fn of(reason: DropReason) -> LossReason {
        LossReason { name: reason.name(), explain: reason.explain() }
    }

    /// The hook of a bridge dropped a frame, because the frame's output device no longer existed or the frame buffer
    /// had no space for a VLAN tag.
    pub const DEVICE_GONE: LossReason = LossReason {
        name: "hook-device-gone",
        explain: "The hook knew the frame's station, whose device went a moment ago, or the frame had no place for a tag; see `trivium doctor` if it goes on.",
    };
    /// The hook dropped a frame while it took over the frame's flow from a worker, to keep the order of frames.
    pub const HELD: LossReason = LossReason {
        name: "hook-held",
        explain: "The queue overflowed, and the frame's flow was held back for the moment that it took to move the flow into the hook; nothing to do.",
    };
    /// The hook of a router dropped a packet because the packet matched a blackhole route.
    pub const ROUTE_BLACKHOLE: LossReason = LossReason {
        name: "hook-route-blackhole",
        explain: "The route to the destination, which the hook knows, is a blackhole; see it with `trivium show why ADDRESS`.",
    };
    /// A frame was lost before a worker received it, such as at a full receive ring.
    pub const MISSED: LossReason = LossReason {
        name: "rx-missed",
        explain: "The frame was lost before a worker received it: its socket was not open yet (a few frames at a start), its receive ring was \
                  full, or no frame of the frame memory was free; if it goes on, see `trivium show workers` for a worker that is busy, and \
                  enlarge `ring_size` or `memory.frames`.",
    };

    /// All reasons for the loss of packets before a worker receives them, in the order of the
    /// reference page.
    pub const BEFORE_WORKERS: [LossReason; 4] =
        [LossReason::DEVICE_GONE, LossReason::HELD, LossReason::ROUTE_BLACKHOLE, LossReason::MISSED];
}
