//! The bridge stage of a port's program: known unicast between kernel devices is answered in the hook.
//!
//! ```text
//!  frame --> [filter] --> source known here? destination known elsewhere? --yes--> that one's device
//!                            |  [`StationTable`], shared by the bridge's ports      [`BridgeDevices`]
//!                            no: numbered ([`Orders`]) --> [steer] --> worker
//! ```
//!
//! The hook holds what user space has put into the table, and takes a station out by itself when its address is seen on
//! another port. Whatever it cannot decide goes up. Frames of a flow keep their order when the flow moves between the two
//! ways: see `bpf/include/stage_bridge.h`.

mod devices;
mod orders;
mod stage;
mod table;

pub use devices::{BridgeCounts, BridgeDevices};
pub use orders::{Mark, Orders};
pub use stage::{BridgePort, BridgeStage};
pub use table::{Place, StationTable};

pub(crate) use devices::{COUNTS, DEVICES, new_counts, sent_to};
pub(crate) use orders::{BUCKETS, ORDERS, orders_of};
pub(crate) use stage::{BRIDGE_WORDS, BridgeMaps, FOR_FLOWS, KnownStations};

#[cfg(test)]
pub(crate) use stage::STAGE;
#[cfg(test)]
pub(crate) use table::{LENGTH_HIGH, LENGTH_LOW, PORT, PROTECTED, REACHED, STATIC, TAGGED};

/// Ports that one process can have: `BRIDGE_PORTS`.
pub const BRIDGE_PORTS: u32 = 1024;
