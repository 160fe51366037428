//! Hand-over state as plain values. File descriptors are sent beside the state, in the order in which the state
//! refers to them.

use std::collections::BTreeMap;
use std::time::Duration;

use model::FilterName;
use serde::{Deserialize, Serialize};
use xdp::HookDescriptors;
use xdp::filter::RuleCounters;

use super::counters::CountersState;
use crate::filters::{Blocks, Expiring};
use crate::flows::{MegaflowRecord, RulesRecord};
use crate::foreign::Former;

/// Base of the time limit for a hand-over, from the first message to the last. The limit grows with the
/// number of ports and table entries.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that each port adds to the time limit for a hand-over.
const PER_PORT: Duration = Duration::from_millis(100);
/// Time that each flow entry, MAC table entry or cached megaflow adds to the time limit for a hand-over.
const PER_ENTRY: Duration = Duration::from_micros(20);

/// Hand-over state of the whole data plane. The file descriptors beside this message are, for each port, five
/// for its hook (if any) and one for each queue that has a descriptor. The descriptors of mirror devices (see
/// `vlans`) follow. The last descriptors are the network namespaces of the entries in `places`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HandoverState {
    /// State of each running port, by port name.
    pub ports: BTreeMap<String, PortRecord>,
    /// Number by which the data path identifies a bridge, for each bridge name.
    pub bridges: BTreeMap<String, u16>,
    /// Learned MAC table entries of each bridge, by bridge name.
    pub stations: BTreeMap<String, Vec<StationRecord>>,
    /// Prefixes that an operator has blocked while the daemon ran, by filter name. Rules and hook counters
    /// are not sent, because they stay in the hooks.
    #[serde(default)]
    pub blocks: BTreeMap<String, Vec<Expiring>>,
    /// Worker counters of each filter's rules, by filter name.
    #[serde(default)]
    pub filters: BTreeMap<String, Vec<RuleRecord>>,
    /// Flow entries of each OpenFlow bridge, by bridge name.
    #[serde(default)]
    pub rules: BTreeMap<String, RulesRecord>,
    /// Megaflows of OpenFlow bridges that workers have cached. Earlier releases sent other values in a field
    /// with another name.
    #[serde(default, rename = "known_flows")]
    pub known: Vec<MegaflowRecord>,
    /// Mirror devices (TAPs that represent router interfaces), by the names under which the devices have port
    /// numbers.
    #[serde(default)]
    pub vlans: BTreeMap<String, VlanRecord>,
    /// Numbers of the frames of closed zero-copy sockets, which the kernel may still use. Each group of frame
    /// numbers has the number of milliseconds until the frames are free.
    #[serde(default)]
    pub quarantine: Vec<(Vec<u32>, u64)>,
    /// Device queues that may still use the frames in `quarantine`, in the order of `quarantine`. `None`
    /// means that the queue is not known.
    #[serde(default)]
    pub places: Vec<Option<PlaceRecord>>,
    /// Number of seconds since the first predecessor started, which is the period that the port counters
    /// cover.
    #[serde(default)]
    pub counting_secs: u64,
}

impl HandoverState {
    /// Returns the number of file descriptors that are sent for a port (for its hook and its queues).
    pub fn share(port: &PortRecord) -> usize {
        usize::from(port.hook.is_some()) * HookDescriptors::COUNT
            + port.queues.iter().filter(|queue| queue.kind.has_descriptor()).count()
    }

    /// Returns the time limit from the first message until the successor's workers must run. The limit grows
    /// with the number of ports and table entries.
    pub fn patience(&self) -> Duration {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let learned = self.stations.values().map(Vec::len).sum::<usize>() + self.known.len();
        let rules = self.rules.values().map(RulesRecord::count).sum::<usize>();
        let blocks = self.blocks.values().map(Vec::len).sum::<usize>();
        PATIENCE + PER_PORT * count(self.ports.len()) + PER_ENTRY * count(learned + rules + blocks)
    }

    /// Returns the prefixes that an operator has blocked, by filter name.
    pub fn blocks(&self) -> BTreeMap<FilterName, Blocks> {
        let blocks = |(name, all): (&String, &Vec<Expiring>)| {
            Some((name.parse().ok()?, Expiring::blocks(all.clone())))
        };
        self.blocks.iter().filter_map(blocks).collect()
    }

    /// Returns the worker counters of the filters' rules, by filter name.
    pub fn counted(&self) -> BTreeMap<FilterName, Vec<RuleCounters>> {
        let counted = |(name, rules): (&String, &Vec<RuleRecord>)| {
            Some((name.parse().ok()?, rules.iter().cloned().map(RuleCounters::from).collect()))
        };
        self.filters.iter().filter_map(counted).collect()
    }
}

/// Worker counters of a filter rule. The fields are the rule's name, the packets and bytes that matched the
/// rule, and the packets and bytes to which the rule's action was applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleRecord(pub String, pub u64, pub u64, pub u64, pub u64);

impl From<RuleCounters> for RuleRecord {
    fn from(rule: RuleCounters) -> Self {
        RuleRecord(rule.name, rule.packets, rule.bytes, rule.acted, rule.acted_bytes)
    }
}

impl From<RuleRecord> for RuleCounters {
    fn from(RuleRecord(name, packets, bytes, acted, acted_bytes): RuleRecord) -> Self {
        RuleCounters { name, packets, bytes, acted, acted_bytes }
    }
}

/// Hand-over state of a mirror device: the TAP that represents a router interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VlanRecord {
    /// Number of the device among the data path's ports.
    pub id: u16,
    /// Queue of the mirror device.
    pub queue: QueueRecord,
}

/// Hand-over state of a running port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortRecord {
    /// Number of the port in the data path.
    pub id: u16,
    /// Interface index of the port's device in its namespace. `None` if the port has no device now.
    pub ifindex: Option<u32>,
    /// Hook of the port, if it has one.
    pub hook: Option<HookRecord>,
    /// Queues of the port.
    pub queues: Vec<QueueRecord>,
    /// Whether the port completes checksums that the sender of a packet left to offloading.
    pub complete_checksums: bool,
    /// MTU of the port: size in bytes of the largest layer-3 packet.
    pub mtu: u32,
    /// Saved settings of the port's device, if the daemon did not create the device.
    #[serde(default)]
    pub former: Option<Former>,
    /// Ethernet addresses of the port's device, if the daemon created it: the device's own address and, for a
    /// veth pair, the address of the far end.
    #[serde(default)]
    pub ends: (Option<u64>, Option<u64>),
    /// Software RSS table of the port: the worker of each bucket. `None` if the port does not use software
    /// RSS.
    #[serde(rename = "spread")]
    pub rss_table: Option<Vec<u16>>,
    /// Packet counters of the port, which the successor continues.
    #[serde(default)]
    pub counters: CountersState,
}

/// A device queue. The descriptor of the device's network namespace is sent beside the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceRecord {
    /// Inode of the device's network namespace.
    pub namespace: u64,
    /// Interface index of the device in the namespace.
    pub ifindex: u32,
    /// Index of the queue on the device.
    pub queue: u32,
}

/// Hand-over state of a port's hook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HookRecord {
    /// Name under which the hook is pinned in the BPF file system. `None` if the hook does not outlive the
    /// process.
    pub pin: Option<String>,
}

/// Hand-over state of a port's queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueRecord {
    /// Index of the queue within its port.
    pub id: u16,
    /// Number of the worker that owned the queue.
    pub worker: u16,
    /// Kind of the queue, with the state that the successor needs for this kind.
    pub kind: QueueKind,
}

/// Kind of a port's queue, with the state that a queue of this kind hands over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueueKind {
    /// An AF_XDP socket. Its descriptor is sent beside the message.
    AfXdp {
        /// Name of the device at the time when the socket was opened.
        ifname: String,
        /// Interface index of the device at the time when the socket was opened. 0 if unknown.
        #[serde(default)]
        ifindex: u32,
        /// Index of the device queue to which the socket is bound.
        queue: u32,
        /// Number of entries of each of the socket's rings.
        ring_size: u32,
        /// Number of frames that the worker keeps in the socket's fill ring.
        fill_level: u32,
        /// Busy polling settings of the socket: time in microseconds and number of packets. `None` if busy
        /// polling is off.
        busy_poll: Option<(u32, u32)>,
        /// Whether received packets are checked for checksums that the sender left to offloading.
        complete_checksums: bool,
        /// Whether the socket is bound in zero-copy mode.
        zero_copy: bool,
        /// Whether one packet may consist of several frames (AF_XDP multi-buffer).
        multi_buffer: bool,
        /// MTU of the device in bytes.
        mtu: u32,
        /// Reasons why the kernel or driver refused faster modes for the socket.
        reasons: Vec<String>,
        /// Numbers of the frames in the frame memory that the kernel holds for the socket.
        frames: Vec<u32>,
    },
    /// A TAP. Its descriptor is sent beside the message.
    Tap {
        /// Whether the TAP is the internal port of a bridge.
        internal: bool,
        /// MTU of the TAP's interface in bytes.
        mtu: u32,
        /// Whether UDP segmentation offload is enabled on the TAP.
        uso: bool,
    },
    /// A queue in memory or in a file. The successor creates such a queue again.
    Anew,
}

impl QueueKind {
    /// Returns whether a file descriptor of the queue is sent beside the message.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self, QueueKind::Anew)
    }
}

/// A learned MAC table entry. The fields are the VLAN ID, the MAC address, the port number, and the number of
/// seconds since the address was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StationRecord(pub u16, pub u64, pub u16, pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_has_more_time_if_an_operator_has_blocked_many_prefixes() {
        let blocks = r#"{ "edge": [["10.0.0.0/8", null], ["192.0.2.0/24", 5]], "core": [["::/0", null]] }"#;
        let blocks = serde_json::from_str(blocks).unwrap();
        let state = HandoverState { blocks, ..HandoverState::default() };
        assert_eq!(state.patience(), PATIENCE + PER_ENTRY * 3);
    }

    #[test]
    fn a_hook_without_a_pin_is_still_a_hook() {
        let port = PortRecord {
            id: 3,
            ifindex: Some(7),
            hook: Some(HookRecord { pin: None }),
            queues: vec![QueueRecord { id: 0, worker: 1, kind: QueueKind::Anew }],
            complete_checksums: true,
            mtu: 1500,
            former: None,
            ends: (Some(0x02_00_00_00_00_01), None),
            rss_table: None,
            counters: CountersState::default(),
        };
        let text = serde_json::to_string(&port).unwrap();
        let back: PortRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(back.hook, port.hook);
        assert_eq!((back.id, back.ifindex, back.queues.len()), (3, Some(7), 1));
    }
}
