//! What two processes tell each other when one takes over. Plain values; descriptors travel beside them, in the order in
//! which the letters name them.

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

/// How long a successor may take over nothing, from the first message to the last.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer it may take for a port.
const PER_PORT: Duration = Duration::from_millis(100);
/// How much longer it may take for a rule, a learned address or a cached flow.
const PER_ENTRY: Duration = Duration::from_micros(20);

/// What the successor needs to get ready. Descriptors: the frame memory, the API's unix socket, its TCP socket if any,
/// and the other unix sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Version of the letters.
    pub version: u32,
    /// The file's part of the configuration, as TOML.
    pub file: String,
    /// The API's objects, as they are stored.
    pub api: String,
    /// The objects of an OVSDB server, likewise.
    #[serde(default)]
    pub ovsdb: String,
    /// The frame memory.
    pub memory: MemoryLetter,
    /// Whether a TCP socket is among the descriptors.
    pub tcp: bool,
    /// Names of the other unix sockets among them.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// The settings of `[memory]` that the predecessor's frame memory was made by, as a file would say them: what the configuration says
    /// beside them waits for a restart.
    #[serde(default)]
    pub made_by: String,
    /// Whether the predecessor sends [`Order`]s behind the hand-over state. A predecessor that does not expects the workers to run when
    /// [`Reply::Ready`] answers the hand-over state.
    #[serde(default)]
    pub commit: bool,
}

/// The frame memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryLetter {
    /// Number of frames.
    pub frames: u32,
    /// Bytes of one.
    pub frame_size: u32,
    /// Whether reserved huge pages back it.
    pub huge: bool,
    /// Whether transparent huge pages back it.
    #[serde(default)]
    pub transparent: bool,
}

impl MemoryLetter {
    /// What backs it.
    pub fn backing(&self) -> port::Backing {
        match (self.huge, self.transparent) {
            (true, _) => port::Backing::Reserved,
            (false, true) => port::Backing::Transparent,
            (false, false) => port::Backing::Normal,
        }
    }
}

/// What the successor says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The offer can be taken; or, behind the hand-over state, the workers run.
    Ready,
    /// The successor cannot go on, and why.
    Refused(String),
    /// These ports cannot be resumed. The predecessor closes its descriptors of them, so that the successor can open them anew, and
    /// answers with [`Order::Released`].
    Release(Vec<String>),
    /// Everything is ready for the workers, which do not run yet. The predecessor answers with [`Order::Commit`].
    Resumed,
    /// [`Order::Commit`] has come: from now on everything is the successor's.
    Committed,
}

/// What the predecessor says behind the hand-over state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The predecessor has closed its descriptors of the ports that [`Reply::Release`] named.
    Released,
    /// The successor may start its workers, and confirms with [`Reply::Committed`] before it does.
    Commit,
}

/// Everything that runs. Descriptors: for each port its hook's five, then one for each queue that has one;
/// behind them those of VLANs' devices, and a network namespace for each place in `places`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Estate {
    /// The ports by name.
    pub ports: BTreeMap<String, PortLetter>,
    /// The bridges' numbers by name.
    pub bridges: BTreeMap<String, u16>,
    /// What each bridge has learned, by name.
    pub stations: BTreeMap<String, Vec<StationLetter>>,
    /// What was blocked in each filter while the daemon ran, by name. Rules and hooks' counters stay in the hooks.
    #[serde(default)]
    pub blocks: BTreeMap<String, Vec<Expiring>>,
    /// What workers have counted of each filter's rules, by name.
    #[serde(default)]
    pub filters: BTreeMap<String, Vec<RuleLetter>>,
    /// The rules of each bridge that goes by OpenFlow's, by name.
    #[serde(default)]
    pub rules: BTreeMap<String, RulesLetter>,
    /// What workers have cached of flows of bridges with rules. (Under another name releases before this one had other words.)
    #[serde(default, rename = "known_flows")]
    pub known: Vec<KnownLetter>,
    /// The devices of routers' VLANs, by their names among the ports.
    #[serde(default)]
    pub vlans: BTreeMap<String, VlanLetter>,
    /// Frames of closed zero-copy sockets that the kernel may still have, and the milliseconds after which it does not.
    #[serde(default)]
    pub quarantine: Vec<(Vec<u32>, u64)>,
    /// The queues that the kernel has the frames of `quarantine` for, in its order, where they are known.
    #[serde(default)]
    pub places: Vec<Option<PlaceLetter>>,
    /// Seconds since the first of all predecessors started: how long the counters of ports have been counting.
    #[serde(default)]
    pub counting_secs: u64,
}

impl Estate {
    /// Returns the number of descriptors that belong to a port.
    pub fn share(port: &PortLetter) -> usize {
        usize::from(port.hook.is_some()) * 5
            + port.queues.iter().filter(|queue| queue.kind.has_descriptor()).count()
    }

    /// Returns how long a successor may take until its workers run: more, the more there is.
    pub fn patience(&self) -> Duration {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let learned = self.stations.values().map(Vec::len).sum::<usize>() + self.known.len();
        let rules = self.rules.values().map(RulesLetter::count).sum::<usize>();
        PATIENCE + PER_PORT * count(self.ports.len()) + PER_ENTRY * count(learned + rules)
    }

    /// What was blocked, by filter.
    pub fn blocks(&self) -> BTreeMap<FilterName, Blocks> {
        let blocks = |(name, all): (&String, &Vec<Expiring>)| {
            Some((name.parse().ok()?, Expiring::blocks(all.clone())))
        };
        self.blocks.iter().filter_map(blocks).collect()
    }

    /// What workers have counted, by filter.
    pub fn counted(&self) -> BTreeMap<FilterName, Vec<RuleCounters>> {
        let counted = |(name, rules): (&String, &Vec<RuleLetter>)| {
            Some((name.parse().ok()?, rules.iter().cloned().map(RuleCounters::from).collect()))
        };
        self.filters.iter().filter_map(counted).collect()
    }
}

/// What workers have counted of a filter's rule: packets, bytes, and those of both on which it acted.
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

/// The device of a VLAN that is a router's interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VlanLetter {
    /// Its number among the ports.
    pub id: u16,
    /// Its queue.
    pub queue: QueueLetter,
}

/// A port that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortLetter {
    /// Its number.
    pub id: u16,
    /// Its device's number in its namespace, if it has one now.
    pub ifindex: Option<u32>,
    /// Its hook, if it has one.
    pub hook: Option<HookLetter>,
    /// Its queues.
    pub queues: Vec<QueueLetter>,
    /// Whether open checksums are completed.
    pub complete_checksums: bool,
    /// Bytes of the largest L3 packet.
    pub mtu: u32,
    /// What its device was like before it was a port, if it is not of our making.
    #[serde(default)]
    pub former: Option<Former>,
    /// The Ethernet addresses of a device of our making: its own and, of a pair, the far end's.
    #[serde(default)]
    pub ends: (Option<u64>, Option<u64>),
    /// The worker of each bucket of software RSS.
    pub spread: Option<Vec<u16>>,
    /// What was counted of it.
    #[serde(default)]
    pub counters: CountersState,
}

/// A queue of a device, whose network namespace travels along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceLetter {
    /// The namespace's number.
    pub namespace: u64,
    /// The device's number there.
    pub ifindex: u32,
    /// Its queue.
    pub queue: u32,
}

/// A port's hook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HookLetter {
    /// The name of its pin, if it outlives the process.
    pub pin: Option<String>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueLetter {
    /// Its number.
    pub id: u16,
    /// The worker that had it.
    pub worker: u16,
    /// What it is.
    pub kind: QueueKind,
}

/// What a queue is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueueKind {
    /// An AF_XDP socket, which travels along.
    AfXdp {
        /// The device's name when it was opened.
        ifname: String,
        /// The device's number when it was opened, 0 if it is not known.
        #[serde(default)]
        ifindex: u32,
        /// Its queue.
        queue: u32,
        /// Entries of each ring.
        ring_size: u32,
        /// Frames to keep in the fill ring.
        fill_level: u32,
        /// Busy polling: microseconds and packets.
        busy_poll: Option<(u32, u32)>,
        /// Whether open checksums are looked for.
        complete_checksums: bool,
        /// Whether it was bound without copies.
        zero_copy: bool,
        /// Whether packets may have several frames.
        multi_buffer: bool,
        /// The device's MTU.
        mtu: u32,
        /// Why a better mode was not had.
        reasons: Vec<String>,
        /// The frames that the kernel has.
        frames: Vec<u32>,
    },
    /// A TAP, whose descriptor travels along.
    Tap {
        /// Whether it is a bridge's own interface.
        internal: bool,
        /// The interface's MTU.
        mtu: u32,
        /// Whether UDP segmentation is agreed upon.
        uso: bool,
    },
    /// In memory or in a file: made anew.
    Anew,
}

impl QueueKind {
    /// Whether a descriptor belongs to it.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self, QueueKind::Anew)
    }
}

/// A learned address: VLAN, address, port's number, seconds since it was seen.
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
