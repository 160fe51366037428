//! IGMP and MLD snooping: reads the copies of IGMP and MLD packets that the workers make, and publishes the resulting
//! multicast groups to the workers.
//!
//! Each worker has one ring for the copies. When the ring is full, the worker drops additional copies. The port of a
//! dropped copy then receives all groups until its hosts have repeated their reports.

use std::collections::BTreeMap;

use engine::Engine;
use engine::stage::Punt;
use engine::worker::monotonic;
use model::{BridgeName, PortName};
use packet::PortId;
use port::FramePool;
use switch::{SnoopedMessage, Snooper, SnooperConfig};
use sync::spsc::Consumer;

use super::bridges::seed;
use super::ports::Running;
use super::running_state::RunningState;

/// Maximum number of packet copies that one poll reads from one worker's ring. This limits the CPU time that
/// many IGMP or MLD reports can use.
const BUDGET: usize = 4096;
/// Maximum number of reports, leaves, queries and PIM hellos that one poll reads from all rings. The maximum limits the
/// memory for parsed packets. The maximum is divided equally among the rings. A poll stops reading a ring whose part is
/// used up. The packets of one worker therefore do not delay the packets of other workers.
const EVENTS: usize = 65_536;

/// A member of a multicast group, or a port that leads to a multicast router. The fields are the VLAN
/// identifier, the group address (`None` if the port leads to a multicast router), the port, and the seconds
/// since the last report.
pub type ListedMember = (u16, Option<std::net::IpAddr>, PortId, u32);

/// IGMP and MLD snoopers of all bridges.
#[derive(Default)]
pub struct Snooping {
    snoopers: BTreeMap<BridgeName, Snooper>,
}

/// Reader of the packet copies. The reader reads and parses packets without a lock on the snoopers
/// or on the running configuration.
#[derive(Default)]
pub struct SnoopReader {
    /// The workers' rings with copies of IGMP and MLD packets. `None` while there are no workers.
    source: Option<Source>,
}

/// The workers' rings from which copies of IGMP and MLD packets are read.
struct Source {
    rings: Vec<Consumer<Punt>>,
    pool: FramePool,
    /// Generation number of the engine whose workers write to the rings. The number changes with
    /// each start of the workers.
    generation: u64,
}

impl SnoopReader {
    /// Returns unread packet copies to the frame pool and drops the rings. The engine must have stopped.
    pub fn detach(&mut self) {
        let Some(Source { rings, mut pool, .. }) = self.source.take() else { return };
        for mut ring in rings {
            while let Some(punt) = ring.pop() {
                pool.free(punt.packet);
            }
        }
    }

    /// Opens the rings of `engine`'s workers for packet copies. Returns false if these rings are
    /// open already, otherwise true. If a worker does not answer, the next poll tries again.
    pub fn attach(&mut self, engine: &Engine) -> bool {
        if self.source.as_ref().is_some_and(|source| source.generation == engine.generation()) {
            return false;
        }
        self.source = engine.punts().ok().map(|rings| Source {
            rings,
            pool: engine.pool(),
            generation: engine.generation(),
        });
        true
    }

    /// Reads and parses the packet copies of the workers. Returns each message with the port on which its packet has
    /// arrived. Packets above the limits of one poll stay in the rings.
    pub fn read(&mut self) -> Vec<(PortId, SnoopedMessage)> {
        let Some(Source { rings, pool, .. }) = &mut self.source else { return Vec::new() };
        read(rings, pool, EVENTS)
    }
}

/// Reads and parses the packet copies in the rings. Stops after about `events_max` events from all
/// rings together.
fn read(
    rings: &mut [Consumer<Punt>],
    pool: &mut FramePool,
    events_max: usize,
) -> Vec<(PortId, SnoopedMessage)> {
    let (mut messages, mut bytes) = (Vec::new(), [0; SnoopedMessage::MAX_FRAME]);
    let share = events_max.div_ceil(rings.len().max(1));
    for ring in rings {
        let mut events = 0;
        for _ in 0..BUDGET {
            if events >= share {
                break;
            }
            let Some(punt) = ring.pop() else { break };
            let length = punt.packet.copy_to(pool.memory(), &mut bytes);
            let message = SnoopedMessage::read(&bytes[..length], punt.packet.len(), punt.vid);
            events += message.len();
            messages.push((punt.port, message));
            pool.free(punt.packet);
        }
    }
    // Returns the freed frames to the shared pool. This pool would otherwise keep them, although it never allocates
    // frames.
    pool.flush();
    messages
}

impl Snooping {
    /// Applies the messages that were read, and publishes groups that have changed. `is_other` is the result of
    /// [`SnoopReader::attach`], and states whether the workers are new. If `is_other` is true, publishes all groups,
    /// because new workers do not have them. If `second` is true, also removes expired groups.
    pub fn look(
        &mut self,
        running_state: &mut RunningState,
        engine: &Engine,
        messages: &[(PortId, SnoopedMessage)],
        is_other: bool,
        second: bool,
    ) {
        if is_other {
            self.publish_all(engine, running_state);
        }
        self.follow(running_state, second);
        self.apply(running_state, messages);
        let mut changed = false;
        for (name, snooper) in &mut self.snoopers {
            if let (true, Some(bridge)) = (second, running_state.bridges.get(name)) {
                snooper.tick(bridge, monotonic());
            }
            if let (Some(groups), Some(bridge)) = (snooper.take_groups(), running_state.bridges.get_mut(name))
            {
                *bridge = std::sync::Arc::new(bridge.with_groups(groups));
                changed = true;
            }
        }
        if changed {
            running_state.publish(engine);
        }
    }

    /// Publishes the groups of all snoopers, because the bridges of new workers do not have them.
    fn publish_all(&self, engine: &Engine, running_state: &mut RunningState) {
        for (name, snooper) in &self.snoopers {
            if let Some(bridge) = running_state.bridges.get_mut(name) {
                *bridge = std::sync::Arc::new(bridge.with_groups(snooper.table()));
            }
        }
        if !self.snoopers.is_empty() {
            running_state.publish(engine);
        }
    }

    /// Returns the group members and router ports that a bridge's snooper has learned. Returns `None` if the bridge has
    /// no snooper.
    pub fn listed(&self, bridge: &str) -> Option<Vec<ListedMember>> {
        self.snoopers.get(bridge).map(|snooper| snooper.listed(monotonic()))
    }

    /// Removes all multicast groups that a bridge's snooper has learned. The next poll publishes the change.
    /// Returns false if the bridge has no snooper.
    pub fn flush(&mut self, bridge: &str) -> bool {
        self.snoopers.get_mut(bridge).map(Snooper::flush).is_some()
    }

    /// Creates an IGMP and MLD snooper for each bridge that enables snooping. If `second` is true, also removes
    /// ports and VLANs that no longer exist from the snoopers.
    fn follow(&mut self, running_state: &RunningState, second: bool) {
        let snoops = |name: &BridgeName| {
            running_state.config.bridges.get(name).is_some_and(|bridge| bridge.settings.snooping)
        };
        self.snoopers.retain(|name, _| running_state.bridges.contains_key(name) && snoops(name));
        for (name, bridge) in running_state.bridges.iter().filter(|(name, _)| snoops(name)) {
            let fresh = || Snooper::new(SnooperConfig::default(), seed());
            let snooper = self.snoopers.entry(name.clone()).or_insert_with(fresh);
            if second {
                snooper.follow(bridge);
            }
        }
    }

    fn apply(&mut self, running_state: &RunningState, messages: &[(PortId, SnoopedMessage)]) {
        if messages.is_empty() {
            return;
        }
        let now = monotonic();
        let bridge_of = |(name, running): (&PortName, &Running)| {
            Some((running.id, running_state.config.bridge_of(name.as_str())?.0))
        };
        let names: BTreeMap<PortId, &BridgeName> = running_state.ports.iter().filter_map(bridge_of).collect();
        for (port, message) in messages {
            let Some(name) = names.get(port) else { continue };
            if let (Some(snooper), Some(bridge)) =
                (self.snoopers.get_mut(*name), running_state.bridges.get(*name))
            {
                snooper.apply(bridge, *port, message, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use port::{Depot, FrameMemory, HugePages, MemoryConfig};
    use sync::spsc::channel;

    use super::*;

    /// IGMPv2 report of 10.0.0.1 for 239.1.2.3.
    const REPORT: [u8; 42] = [
        1, 0, 0x5e, 1, 2, 3, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0xbe, 0xdb, 10, 0, 0, 1, 239, 1, 2, 3, // IPv4
        0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3, // IGMP
    ];

    #[test]
    fn a_busy_ring_leaves_the_other_rings_their_shares() {
        let config = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
        let mut pool = Depot::new(Arc::new(FrameMemory::new(config).unwrap())).pool();
        let (mut rings, mut sent) = (Vec::new(), Vec::new());
        for (port, count) in [(1, 10), (2, 2), (3, 1)] {
            let (mut producer, consumer) = channel(16);
            for _ in 0..count {
                let packet = pool.alloc_copy(&REPORT).unwrap();
                assert!(producer.push(Punt { port: PortId(port), vid: 0, packet }).is_ok());
            }
            rings.push(consumer);
            sent.push(producer);
        }
        let mut ports = || {
            let messages = read(&mut rings, &mut pool, 6);
            assert!(messages.iter().all(|(_, message)| message.len() == 1));
            messages.iter().map(|(port, _)| port.0).collect::<Vec<_>>()
        };
        assert_eq!(ports(), [1, 1, 2, 2, 3]);
        assert_eq!(ports(), [1, 1], "what is left stays in its ring");
    }
}
