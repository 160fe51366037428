//! Interface between the slow path and the XDP hook, and the state of the megaflows that are installed in
//! the hook or are being removed from it.

use std::collections::VecDeque;
use std::sync::Arc;

use packet::{FlowKey, PortId};
use switch::flow::Program;

use crate::flows::{CachedActions, FlowBridge};

/// Statistics of a megaflow that is installed in the XDP hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HookCounts {
    /// Number of packets that matched the megaflow in the hook.
    pub packets: u64,
    /// Number of bytes of the packets that matched the megaflow in the hook.
    pub bytes: u64,
    /// Time of the last matching packet, in nanoseconds of the workers' clock.
    pub used_ns: u64,
}

/// Interface through which the slow path manages megaflows in the XDP hook. No method blocks.
pub trait HookFlows: Send {
    /// Installs a megaflow that matches `key` under `mask`, including the port, and executes `program`. Returns
    /// the number of the slot that holds the megaflow's statistics. Returns `None` if the hook does not support
    /// the program, has no space, or is not ready.
    fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32>;

    /// Returns whether the megaflow in `slot` must be removed, because a megaflow of a port that uses less of the
    /// hook's flow table needs the space.
    fn is_displaced(&self, slot: u32) -> bool;

    /// Removes the megaflow in statistics slot `slot`. Hook programs that are already running may still match
    /// the megaflow.
    fn remove(&mut self, slot: u32);

    /// Returns the statistics of the megaflow in `slot`.
    fn counts(&self, slot: u32) -> HookCounts;

    /// Makes the statistics slot of a removed megaflow available for other megaflows.
    fn release(&mut self, slot: u32);

    /// Begins a grace period, which ends when all hook programs that are running at the time of the call have ended.
    /// Returns the number of the grace period. Grace periods end in the order in which they began. The slow path is
    /// woken when a grace period ends.
    fn begin_grace(&mut self) -> u64;

    /// Returns whether the grace period with this number has ended.
    fn has_passed(&self, number: u64) -> bool;
}

/// The slow path's handle to the XDP hook, with the megaflows that are being removed from the hook.
pub(super) struct Hook {
    pub flows: Box<dyn HookFlows>,
    pub leaving: VecDeque<Leaving>,
}

/// State of one megaflow in the XDP hook.
#[derive(Default)]
pub(super) struct Part {
    pub slot: Option<u32>,
    /// Statistics of the current slot that have already been added to `past`.
    pub seen: HookCounts,
    /// Time of the last measurement of the packet rate, in nanoseconds. `judged` is the packet count at that
    /// time.
    pub judged_ns: u64,
    pub judged: u64,
    /// Statistics of the megaflow in the hook, summed over all slots that the megaflow has used.
    /// Packets that matched after the megaflow was removed from the hook are not included.
    pub past: HookCounts,
}

impl Part {
    /// Returns the number of packets that have matched the megaflow in the XDP hook, up to the last read of the
    /// megaflow's statistics.
    pub fn packets(&self) -> u64 {
        self.past.packets
    }

    /// Returns the number of bytes that have matched the megaflow in the XDP hook, up to the last read of the
    /// megaflow's statistics.
    pub fn bytes(&self) -> u64 {
        self.past.bytes
    }

    /// Returns the time in nanoseconds of the last packet that matched the megaflow in the XDP
    /// hook. Packets after the last read of the megaflow's statistics are not considered.
    pub fn used_ns(&self) -> u64 {
        self.past.used_ns
    }
}

/// A megaflow that was removed from the XDP hook, with its cached actions. The megaflow's final statistics are added to
/// the rules from which these actions were translated.
pub(super) struct Leaving {
    pub slot: u32,
    /// Number of the grace period after which no program matches the megaflow any more. `None` if the grace
    /// period has not begun.
    pub number: Option<u64>,
    pub seen: HookCounts,
    pub bridge: Arc<FlowBridge>,
    pub port: PortId,
    pub actions: Arc<CachedActions>,
}
