//! Drop reasons of packets that reached no worker. The hooks (XDP programs) and the kernel count these packets.

/// Drop reason of packets that reached no worker. The reason has a stable name, but no number of
/// [`packet::DropReason`], because captures and traces of workers do not contain such packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlyDrop {
    /// Name of the drop reason in lists and metrics.
    pub name: &'static str,
    /// Cause of the drop and the next step for an operator.
    pub explain: &'static str,
}

impl EarlyDrop {
    /// The hook of a bridge could not send a frame to the output device that the MAC table entry names.
    pub const DEVICE_GONE: EarlyDrop = EarlyDrop {
        name: "hook-device-gone",
        explain: "The hook knew the frame's station, whose device went a moment ago, or the frame had no place for a tag; see `trivium doctor` if it goes on.",
    };
    /// The hook dropped a frame of a flow that it was taking over from a worker, to keep the frames in order.
    pub const HELD: EarlyDrop = EarlyDrop {
        name: "hook-held",
        explain: "The queue overflowed, and the frame's flow was held back for the moment that it took to move the flow into the hook; nothing to do.",
    };
    /// The hook of a router dropped a packet by a blackhole route.
    pub const ROUTE_BLACKHOLE: EarlyDrop = EarlyDrop {
        name: "hook-route-blackhole",
        explain: "The route to the destination, which the hook knows, is a blackhole; see it with `trivium show why ADDRESS`.",
    };
    /// A frame was lost between the hook and the worker.
    pub const MISSED: EarlyDrop = EarlyDrop {
        name: "rx-missed",
        explain: "The frame was lost before a worker received it: its socket was not open yet (a few frames at a start), its receive ring was \
                  full, or no frame of the frame memory was free; if it goes on, see `trivium show workers` for a worker that is busy, and \
                  enlarge `ring_size` or `memory.frames`.",
    };

    /// All drop reasons of packets that reached no worker, in the order of the reference page.
    pub const ALL: [EarlyDrop; 4] =
        [EarlyDrop::DEVICE_GONE, EarlyDrop::HELD, EarlyDrop::ROUTE_BLACKHOLE, EarlyDrop::MISSED];
}
