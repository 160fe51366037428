//! Flow cache of one worker, and the packets that wait in the worker while the slow path processes an earlier packet of
//! their flow. The stage `openflow` looks up packets in the cache.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use lookup::{FlowCache, FlowCounters, FlowLimits, MISS};
use packet::{DropReason, FlowKey, PortId, QueueId};
use port::{BURST, Packet};
use switch::flow::{ConnectionFields, EXTENDED_WORDS, ExtendedKey, Recirculation};

use crate::flows::{CacheCommand, CachedFlow, FlowBridge, WorkerFlows};

/// Flow cache of one worker, and the packets that wait in the worker while the slow path processes an earlier packet of
/// their flow.
pub struct Flows {
    pub(super) cache: FlowCache<EXTENDED_WORDS, CachedFlow>,
    pub(super) rings: WorkerFlows,
    /// Flows of which one packet is at the slow path. The key contains the fields that identify a
    /// flow. The value contains the later packets of the flow, which wait until the slow path
    /// returns the first packet.
    pub(super) pending: HashMap<FlowKey, Pending>,
    /// Number of frames of the packets that wait because an earlier packet of their flow is at the slow path.
    pub(super) waiting: usize,
    /// For each port ([`Waiting::ingress`]), the number of frames of the packets that wait because an earlier packet
    /// of their flow is at the slow path.
    pub(super) waiting_by_port: Vec<usize>,
    /// For each port ([`Waiting::ingress`]), the number of frames of the packets that were sent to the slow path and
    /// have not been returned.
    pub(super) asked: Vec<u16>,
    /// Flow of which the slow path has returned the first packet, but of which later packets still wait because
    /// [`super::openflow::answers`] was interrupted.
    pub(super) following: Option<FlowKey>,
    pub(super) found: Box<[u32; BURST]>,
    pub(super) rounds: u32,
    /// Whether messages were sent to the slow path since its thread was last woken.
    pub(super) rings_bell: bool,
}

/// State of a flow of which one packet is at the slow path. `behind` contains the later packets of the flow.
pub(super) struct Pending {
    pub(super) ticket: Option<Ticket>,
    /// Port ([`Waiting::ingress`]) and number of frames of the packet that is at the slow path. `None` after the slow
    /// path has returned the packet.
    pub(super) asked: Option<(PortId, u16)>,
    pub(super) behind: VecDeque<Waiting>,
}

pub(super) struct Waiting {
    pub(super) bridge: Arc<FlowBridge>,
    pub(super) port: PortId,
    pub(super) packet: Packet,
    pub(super) key: FlowKey,
    pub(super) extended: ExtendedKey,
    pub(super) ticket: Option<Ticket>,
    pub(super) recirculation: Option<Arc<Recirculation>>,
}

impl Waiting {
    /// Returns the port whose share of the slow path the packet uses: the port on which the packet was received, even
    /// if the packet has passed patch ports.
    pub(super) fn ingress(&self) -> PortId {
        self.packet.arrival_or(self.port)
    }

    /// Returns whether the packet passed a patch port. Such packets may use only half of the share of their port, so
    /// that packets can miss in the first bridge while the tables of the second bridge are locked.
    pub(super) fn is_patched(&self) -> bool {
        self.ingress() != self.port
    }
}

/// A packet that the connection tracker has seen, and that is looked up in the flow cache again.
pub(crate) struct Recirculated {
    pub bridge: Arc<FlowBridge>,
    pub to: Arc<Recirculation>,
    pub packet: Packet,
    pub connection: ConnectionFields,
}

/// Receive queue and burst in which a waiting packet arrived. The reordering guard ([`crate::ordering`]) needs
/// both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(super) port: PortId,
    pub(super) queue: QueueId,
    pub(super) burst: u64,
}

/// Size and statistics of one worker's flow cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowsView {
    /// Number of installed megaflows.
    pub flows: usize,
    /// Number of distinct masks of the installed megaflows.
    pub masks: usize,
    /// Number of hits of each tier of the cache, number of packets that matched no megaflow, and number of lookups of a
    /// packet under one megaflow mask (probes).
    pub counters: FlowCounters,
    /// Size of the cache in bytes.
    pub memory: usize,
}

impl Flows {
    /// Creates a flow cache without megaflows.
    #[must_use]
    pub fn new(rings: WorkerFlows, limits: FlowLimits) -> Flows {
        Flows {
            cache: FlowCache::new(limits),
            rings,
            pending: HashMap::new(),
            waiting: 0,
            waiting_by_port: Vec::new(),
            asked: Vec::new(),
            following: None,
            found: Box::new([MISS; BURST]),
            rounds: 0,
            rings_bell: false,
        }
    }

    /// Returns whether the ring from the slow path contains messages.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.rings.answers.is_empty()
    }

    /// Configures the exact-match cache. With `Some(n)`, one of `n` packets that miss the cache inserts an
    /// entry. `None` disables the exact-match cache.
    pub fn set_exact(&mut self, one_in: Option<NonZeroU32>) {
        self.cache.set_exact(one_in);
    }

    /// Returns the size and statistics of the flow cache.
    #[must_use]
    pub fn view(&self) -> FlowsView {
        FlowsView {
            flows: self.cache.len(),
            masks: self.cache.masks(),
            counters: self.cache.counters(),
            memory: self.cache.memory(),
        }
    }

    /// Returns whether no packet waits for the slow path and the ring from the slow path contains no messages.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.rings.answers.is_empty()
    }

    /// Counts as dropped all packets that wait in this worker or at the slow path.
    pub(crate) fn abandon(&mut self, counters: &crate::counters::WorkerCounters) {
        for waiting in self.pending.values().flat_map(|pending| &pending.behind) {
            counters.port(waiting.ingress()).drop_n(DropReason::UpcallLimit, 1);
        }
        for (port, _) in self.pending.values_mut().filter_map(|pending| pending.asked.take()) {
            counters.port(port).drop_n(DropReason::UpcallLimit, 1);
        }
        self.asked.clear();
    }

    /// Installs a megaflow directly, for benchmarks without a slow path.
    pub(crate) fn put(&mut self, key: &FlowKey, mask: &FlowKey, flow: CachedFlow) {
        let nothing = ExtendedKey::ZERO.0;
        // A bench with more megaflows than fit measures misses, and reports them as losses.
        let _ = self.cache.insert(key.in_port().0, key.words(), &nothing, mask.words(), &nothing, flow);
    }

    /// Frees the packets that wait in this flow cache and the packets in unread messages of the slow path. The slow
    /// path frees the packets that it holds.
    pub fn close(&mut self, tools_free: &mut impl FnMut(Packet)) {
        for waiting in self.pending.drain().flat_map(|(_, pending)| pending.behind) {
            tools_free(waiting.packet);
        }
        while let Some(answer) = self.rings.answers.pop() {
            if let CacheCommand::Release { packet, .. } = answer {
                tools_free(packet);
            }
        }
    }
}
