//! State of the data path as plain values: workers, processing stages, drops, and all counters at one moment.
//!
//! The API sends these values in this form, and the command line reads them. Counters start when the object
//! is created, and only increase.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PortCounters;
use crate::table::{Listed, Table, folded, ratio};

/// State of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerState {
    /// Identifier of the worker.
    pub id: u16,
    /// Index of the CPU core that the worker is pinned to.
    pub core: u16,
    /// Fraction of the last second in which the worker processed packets, 0..=1.
    pub busy: f64,
    /// Whether the worker currently sleeps.
    pub sleeping: bool,
    /// Number of packet bursts that the worker processed.
    pub bursts: u64,
    /// Number of packets that the worker processed.
    pub packets: u64,
    /// Number of times that the worker went to sleep.
    pub sleeps: u64,
    /// Number of packets that other workers handed to this worker.
    #[serde(default)]
    pub handed_over: u64,
    /// Port queues that the worker serves, as `port/queue`.
    #[serde(default)]
    pub queues: Vec<String>,
}

impl Listed for WorkerState {
    fn text(workers: &[WorkerState]) -> String {
        Table::of(workers)
            .number("WORKER", |worker| worker.id.to_string())
            .number("CORE", WorkerState::core_text)
            .number("BUSY", |worker| format!("{:.1} %", worker.busy * 100.0))
            .text("STATE", |worker| if worker.sleeping { "asleep" } else { "awake" }.to_owned())
            .count("PACKETS", |worker| worker.packets)
            .number("PER BURST", |worker| format!("{:.1}", ratio(worker.packets, worker.bursts)))
            .count("SLEEPS", |worker| worker.sleeps)
            .text("QUEUES", |worker| folded(&worker.queues))
            .render()
    }
}

impl WorkerState {
    /// Returns the number of the core, or `any` if the worker is not pinned to a core.
    pub fn core_text(&self) -> String {
        if self.core == u16::MAX { "any".to_owned() } else { self.core.to_string() }
    }
}

/// Processing cost of one stage of the packet path, summed over all workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageState {
    /// Name of the stage of the packet path.
    pub name: String,
    /// Number of packets that the stage processed.
    pub packets: u64,
    /// Time that the workers spent in the stage, in nanoseconds.
    pub ns: u64,
}

impl Listed for StageState {
    fn text(stages: &[StageState]) -> String {
        Table::of(stages)
            .text("STAGE", |stage| stage.name.clone())
            .count("PACKETS", |stage| stage.packets)
            .number("NS PER PACKET", |stage| format!("{:.1}", stage.ns_per_packet()))
            .render()
    }
}

impl StageState {
    /// Returns the mean processing time per packet in nanoseconds, or 0 if there were no packets.
    #[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
    pub fn ns_per_packet(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.ns as f64 / self.packets as f64 }
    }
}

/// Counter of the packets that were dropped at one port for one drop reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DropState {
    /// Name of the port at which the packets arrived. For the reasons `tx-failed` and `device-gone`, the port that
    /// should have transmitted the packets.
    pub port: String,
    /// Name of the drop reason, as in metrics and captures.
    pub reason: String,
    /// Meaning of the drop reason, and the next step for the operator.
    pub explanation: String,
    /// Number of packets that were dropped on the port for this reason.
    pub packets: u64,
}

impl Listed for DropState {
    fn text(drops: &[DropState]) -> String {
        if drops.is_empty() {
            return "nothing was dropped\n".to_owned();
        }
        Table::of(drops)
            .text("PORT", |drop| drop.port.clone())
            .text("REASON", |drop| drop.reason.clone())
            .number("PACKETS", |drop| drop.packets.to_string())
            .text("WHAT IT MEANS", |drop| drop.explanation.clone())
            .render()
    }
}

/// All counters of the daemon at one point in time, for displays that are updated continuously.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// Traffic counters of each port, by the name of the port.
    pub ports: BTreeMap<String, PortCounters>,
    /// State of each worker.
    pub workers: Vec<WorkerState>,
    /// Number of dropped packets for each drop reason, over all ports.
    pub drops: BTreeMap<String, u64>,
}
