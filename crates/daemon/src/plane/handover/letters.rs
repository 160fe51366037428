//! Messages of the hand-over, as plain values. Descriptors travel beside a message, in the order in which the
//! message refers to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use model::FilterName;
use serde::{Deserialize, Serialize};
use xdp::filter::RuleCounters;

use super::counters::CountersState;
use crate::plane::filters::{Blocks, Expiring};
use crate::plane::flows::{KnownLetter, RulesLetter};
use crate::plane::foreign::Former;

/// Time limit of a hand-over without ports and entries, from the first message to the last.
const PATIENCE: Duration = Duration::from_secs(10);
/// Additional time for each port.
const PER_PORT: Duration = Duration::from_millis(100);
/// Additional time for each flow entry, learned address or cached flow.
const PER_ENTRY: Duration = Duration::from_micros(20);

/// Data for the successor's preparation. Descriptors: the frame memory, the API's unix socket, its TCP socket
/// if any, and the other unix sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Version of the messages.
    pub version: u32,
    /// File part of the configuration, as TOML.
    pub file: String,
    /// Objects of the API, in their stored form.
    pub api: String,
    /// Objects of an OVSDB server, in their stored form.
    #[serde(default)]
    pub ovsdb: String,
    /// Frame memory of the predecessor.
    pub memory: MemoryLetter,
    /// Whether a TCP socket is among the descriptors.
    pub tcp: bool,
    /// Paths of the other unix sockets among the descriptors.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// Settings of `[memory]` with which the predecessor's frame memory was created, as TOML. Other settings
    /// in the configuration take effect at a restart.
    #[serde(default)]
    pub made_by: String,
    /// Whether the predecessor sends [`Order`]s after the hand-over state. A predecessor that does not
    /// expects the workers to run when [`Reply::Ready`] answers the hand-over state.
    #[serde(default)]
    pub commit: bool,
}

/// Size and backing of the frame memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryLetter {
    /// Number of frames.
    pub frames: u32,
    /// Size of a frame in bytes.
    pub frame_size: u32,
    /// Whether reserved huge pages back the memory.
    pub huge: bool,
    /// Whether transparent huge pages back the memory.
    #[serde(default)]
    pub transparent: bool,
}

impl MemoryLetter {
    /// Returns the kind of pages that back the memory.
    pub fn backing(&self) -> port::Backing {
        match (self.huge, self.transparent) {
            (true, _) => port::Backing::Reserved,
            (false, true) => port::Backing::Transparent,
            (false, false) => port::Backing::Normal,
        }
    }
}

/// A message of the successor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The offer can be taken. As the answer to the hand-over state: the workers run.
    Ready,
    /// The successor cannot continue, for this reason.
    Refused(String),
    /// The named ports cannot be resumed. The predecessor closes its descriptors of them, so that the
    /// successor can open them again, and answers with [`Order::Released`].
    Release(Vec<String>),
    /// The workers are ready and do not run yet. The predecessor answers with [`Order::Commit`].
    Resumed,
    /// The successor has received [`Order::Commit`] and from now on owns everything.
    Committed,
}

/// A message of the predecessor after the hand-over state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The predecessor has closed its descriptors of the ports that [`Reply::Release`] named.
    Released,
    /// The successor may start its workers, after it has confirmed with [`Reply::Committed`].
    Commit,
}

/// Hand-over state of the whole data plane. Descriptors: for each port the five of its hook, then one for
/// each queue that has one. The descriptors of interface mirrors follow, and then a network namespace for
/// each place in `places`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Estate {
    /// State of the ports, by name.
    pub ports: BTreeMap<String, PortLetter>,
    /// Numbers of the bridges by name.
    pub bridges: BTreeMap<String, u16>,
    /// Learned MAC table entries of each bridge, by name.
    pub stations: BTreeMap<String, Vec<StationLetter>>,
    /// Blocks that were added to each filter while the daemon ran, by name. Rules and hook counters stay in
    /// the hooks.
    #[serde(default)]
    pub blocks: BTreeMap<String, Vec<Expiring>>,
    /// Worker counters of each filter's rules, by name.
    #[serde(default)]
    pub filters: BTreeMap<String, Vec<RuleLetter>>,
    /// Flow entries of each OpenFlow bridge, by name.
    #[serde(default)]
    pub rules: BTreeMap<String, RulesLetter>,
    /// Megaflows cached by workers of OpenFlow bridges. (Earlier releases used other values under another
    /// name.)
    #[serde(default, rename = "known_flows")]
    pub known: Vec<KnownLetter>,
    /// Devices of routers' mirrored interfaces, by their names as ports.
    #[serde(default)]
    pub vlans: BTreeMap<String, VlanLetter>,
    /// Frames of closed zero-copy sockets that the kernel may still use, with the milliseconds until they are
    /// free.
    #[serde(default)]
    pub quarantine: Vec<(Vec<u32>, u64)>,
    /// Queues for which the kernel uses the frames in `quarantine`, in the order of `quarantine`. `None` if a
    /// queue is not known.
    #[serde(default)]
    pub places: Vec<Option<PlaceLetter>>,
    /// Number of seconds since the first of all predecessors started: the time for which the port counters
    /// have been counting.
    #[serde(default)]
    pub counting_secs: u64,
}

impl Estate {
    /// Returns the number of descriptors that belong to a port.
    pub fn share(port: &PortLetter) -> usize {
        usize::from(port.hook.is_some()) * 5
            + port.queues.iter().filter(|queue| queue.kind.has_descriptor()).count()
    }

    /// Returns the time limit until the successor's workers run, which grows with the number of ports and
    /// entries.
    pub fn patience(&self) -> Duration {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let learned = self.stations.values().map(Vec::len).sum::<usize>() + self.known.len();
        let rules = self.rules.values().map(RulesLetter::count).sum::<usize>();
        PATIENCE + PER_PORT * count(self.ports.len()) + PER_ENTRY * count(learned + rules)
    }

    /// Returns the blocks by filter.
    pub fn blocks(&self) -> BTreeMap<FilterName, Blocks> {
        let blocks = |(name, all): (&String, &Vec<Expiring>)| {
            Some((name.parse().ok()?, Expiring::blocks(all.clone())))
        };
        self.blocks.iter().filter_map(blocks).collect()
    }

    /// Returns the worker counters by filter.
    pub fn counted(&self) -> BTreeMap<FilterName, Vec<RuleCounters>> {
        let counted = |(name, rules): (&String, &Vec<RuleLetter>)| {
            Some((name.parse().ok()?, rules.iter().cloned().map(RuleCounters::from).collect()))
        };
        self.filters.iter().filter_map(counted).collect()
    }
}

/// Worker counters of a filter rule: name, packets, bytes, and the packets and bytes on which the rule acted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleLetter(pub String, pub u64, pub u64, pub u64, pub u64);

impl From<RuleCounters> for RuleLetter {
    fn from(rule: RuleCounters) -> Self {
        RuleLetter(rule.name, rule.packets, rule.bytes, rule.acted, rule.acted_bytes)
    }
}

impl From<RuleLetter> for RuleCounters {
    fn from(RuleLetter(name, packets, bytes, acted, acted_bytes): RuleLetter) -> Self {
        RuleCounters { name, packets, bytes, acted, acted_bytes }
    }
}

/// Device of a router's mirrored interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VlanLetter {
    /// Number of the device among the ports.
    pub id: u16,
    /// Queue of the device.
    pub queue: QueueLetter,
}

/// State of a running port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortLetter {
    /// Number of the port.
    pub id: u16,
    /// Index of the port's device in its namespace, if the port has one now.
    pub ifindex: Option<u32>,
    /// Hook of the port, if it has one.
    pub hook: Option<HookLetter>,
    /// Queues of the port.
    pub queues: Vec<QueueLetter>,
    /// Whether checksums that a sender left open are completed.
    pub complete_checksums: bool,
    /// MTU: bytes of the largest L3 packet.
    pub mtu: u32,
    /// Saved settings of a device that the daemon did not create.
    #[serde(default)]
    pub former: Option<Former>,
    /// Ethernet addresses of a device that the daemon created: its own and, for a pair, the far end's.
    #[serde(default)]
    pub ends: (Option<u64>, Option<u64>),
    /// Worker of each bucket of software RSS.
    pub spread: Option<Vec<u16>>,
    /// Counters of the port.
    #[serde(default)]
    pub counters: CountersState,
}

/// A queue of a device. The descriptor of its network namespace travels beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceLetter {
    /// Inode of the namespace.
    pub namespace: u64,
    /// Index of the device in the namespace.
    pub ifindex: u32,
    /// Number of the queue.
    pub queue: u32,
}

/// Hook of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HookLetter {
    /// Name of the hook's pin, if the hook outlives the process.
    pub pin: Option<String>,
}

/// State of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueLetter {
    /// Number of the queue.
    pub id: u16,
    /// Worker that owned the queue.
    pub worker: u16,
    /// Kind of the queue with its state.
    pub kind: QueueKind,
}

/// Kind of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueueKind {
    /// An AF_XDP socket, whose descriptor travels along.
    AfXdp {
        /// Name of the device when the socket was opened.
        ifname: String,
        /// Index of the device when the socket was opened. 0 if unknown.
        #[serde(default)]
        ifindex: u32,
        /// Number of the device's queue.
        queue: u32,
        /// Number of entries of each ring.
        ring_size: u32,
        /// Number of frames to keep in the fill ring.
        fill_level: u32,
        /// Busy polling: microseconds and packets.
        busy_poll: Option<(u32, u32)>,
        /// Whether received packets are checked for open checksums.
        complete_checksums: bool,
        /// Whether the socket is bound in zero-copy mode.
        zero_copy: bool,
        /// Whether packets may have several frames.
        multi_buffer: bool,
        /// MTU of the device in bytes.
        mtu: u32,
        /// Reasons why the socket does not have a better mode.
        reasons: Vec<String>,
        /// Frames that the kernel holds.
        frames: Vec<u32>,
    },
    /// A TAP, whose descriptor travels along.
    Tap {
        /// Whether the TAP is a bridge's internal port.
        internal: bool,
        /// MTU of the interface in bytes.
        mtu: u32,
        /// Whether UDP segmentation offload is negotiated.
        uso: bool,
    },
    /// A queue in memory or in a file, which the successor creates again.
    Anew,
}

impl QueueKind {
    /// Returns whether the queue has a descriptor.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self, QueueKind::Anew)
    }
}

/// A learned MAC table entry: VLAN, address, port number, and seconds since the address was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StationLetter(pub u16, pub u64, pub u16, pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_without_a_pin_is_still_a_hook() {
        let port = PortLetter {
            id: 3,
            ifindex: Some(7),
            hook: Some(HookLetter { pin: None }),
            queues: vec![QueueLetter { id: 0, worker: 1, kind: QueueKind::Anew }],
            complete_checksums: true,
            mtu: 1500,
            former: None,
            ends: (Some(0x02_00_00_00_00_01), None),
            spread: None,
            counters: CountersState::default(),
        };
        let text = serde_json::to_string(&port).unwrap();
        let back: PortLetter = serde_json::from_str(&text).unwrap();
        assert_eq!(back.hook, port.hook);
        assert_eq!((back.id, back.ifindex, back.queues.len()), (3, Some(7), 1));
    }
}
