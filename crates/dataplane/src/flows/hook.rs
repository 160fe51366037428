//! Offload of OpenFlow flows to the hooks (XDP programs of the ports). The slow path selects the megaflows, and the
//! crate [`offload`] writes them into the flow table of the hooks.

use std::sync::Arc;

use engine::idle::Waker;
use engine::{HookCounts, HookFlows};
use offload::FlowOffload;
use packet::FlowKey;
use switch::flow::Program;
use xdp::flows::FlowTable;

use crate::bridges;

/// Maximum number of flows that are offloaded for all bridges together. The table for these flows uses a
/// megabyte of kernel memory.
const FLOWS: u32 = 4096;

/// Offload of the slow path's megaflows to the ports' hooks (XDP programs).
pub(super) struct Hook(FlowOffload);

/// Creates the offload of OpenFlow flows, with no flow offloaded yet. If `table` is `None`, the function creates the
/// hooks' flow table and stores it in `table`. Otherwise, the offload uses the existing flow table. `waker` wakes the
/// slow path at the end of a grace period, when the entries of removed flows can be reused.
///
/// # Errors
/// Returns an error if the kernel refuses the table, or if no thread can be created.
pub(super) fn of(
    table: &mut Option<FlowTable>,
    waker: &Arc<Waker>,
) -> Result<Hook, Box<dyn std::error::Error>> {
    let table = match table {
        Some(table) => table,
        none => none.insert(FlowTable::new(FLOWS, bridges::seed())?),
    };
    let waker = Arc::clone(waker);
    Ok(Hook(FlowOffload::new(table, move || waker.notify())?))
}

impl HookFlows for Hook {
    fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32> {
        self.0.install(key, mask, program)
    }

    fn is_displaced(&self, slot: u32) -> bool {
        self.0.is_displaced(slot)
    }

    fn remove(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    fn counts(&self, slot: u32) -> HookCounts {
        let counts = self.0.counts(slot);
        HookCounts { packets: counts.packets, bytes: counts.bytes, used_ns: counts.used_ns }
    }

    fn release(&mut self, slot: u32) {
        self.0.release(slot);
    }

    fn begin_grace(&mut self) -> u64 {
        self.0.begin_grace()
    }

    fn has_passed(&self, number: u64) -> bool {
        self.0.has_passed(number)
    }
}
