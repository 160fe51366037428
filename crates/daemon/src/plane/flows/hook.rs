//! The driver hook as the decider sees it: cached flows in the kernel, by way of [`offload`].

use std::sync::Arc;

use engine::rest::Waker;
use engine::{HookCounts, HookFlows};
use offload::FlowOffload;
use packet::FlowKey;
use switch::flow::Program;
use xdp::flows::FlowTable;

use crate::plane::bridges;

/// Flows of all bridges that are in the hook at most: a megabyte of the kernel's memory.
const FLOWS: u32 = 4096;

/// See the [module](self).
pub(super) struct Hook(FlowOffload);

/// Over a table that is made if there is none; empty. The decider is woken when what it waits for is over.
///
/// # Errors
/// If the kernel refuses the table, or there is no thread left.
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
