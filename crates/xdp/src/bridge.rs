//! Bridge stage of a port's XDP program. The stage forwards unicast frames between kernel devices if the port
//! of the destination MAC address is known.
//!
//! ```text
//!  frame --> [filter] --> source known on this port? destination known on another? --yes--> device of that port
//!                            |  [`StationTable`], shared by the bridge's ports                [`BridgeDevices`]
//!                            no: gets a sequence number ([`Orders`]) --> [steer] --> worker
//! ```
//!
//! The stage reads a station table (MAC table) that user space fills. The stage removes a station (MAC address) from
//! the table when it receives a frame with this source address on another port. Frames that the stage cannot forward go
//! to the worker, a thread in user space. The frames of a flow keep their order when some of them go through the worker
//! and others do not (see `bpf/include/stage_bridge.h`).

mod devices;
mod orders;
mod stage;
mod table;

pub use devices::{BridgeCounts, BridgeDevices};
pub use orders::{Mark, Orders};
pub use stage::{BridgePort, BridgeStage};
pub use table::{Place, StationTable};

pub(crate) use devices::{COUNTS, DEVICES, new_counts, sent_to};
pub(crate) use orders::{BUCKETS, ORDERS};
pub(crate) use stage::{BRIDGE_WORDS, BridgeMaps, FOR_FLOWS, KnownStations};

#[cfg(test)]
pub(crate) use stage::STAGE;
#[cfg(test)]
pub(crate) use table::{LENGTH_HIGH, LENGTH_LOW, PORT, PROTECTED, REACHED, STATIC, TAGGED};

/// Maximum number of bridge ports in one process: `BRIDGE_PORTS` of the BPF programs.
pub const BRIDGE_PORTS: u32 = 1024;
