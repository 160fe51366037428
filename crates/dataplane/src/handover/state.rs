//! Hand-over state as plain values, without file descriptors.
//!
//! The state is a JSON text of version [`VERSION`](super::VERSION). Small, frequent records are encoded as lists of
//! values without field names. A release may add a field to the other records without a new version number. Releases
//! that do not have the field ignore a received field and do not send the field. An earlier release refuses a list with
//! an added value. A receiver refuses the whole text if one value has an unknown kind.

use std::collections::BTreeMap;
use std::time::Duration;

use model::FilterName;
use packet::MacAddr;
use port::af_xdp::BusyPoll;
use port::veth::EndAddresses;
use serde::{Deserialize, Serialize};
use xdp::filter::RuleCounters;

use super::counters::CountersState;
use crate::filters::{Blocks, Expiring};
use crate::flows::{MegaflowRecord, RulesRecord};
use crate::foreign::Former;
use crate::record_list::serialize_as_list;

/// Base of the time limit for a hand-over, from the first message to the last. The limit grows with the
/// number of ports and table entries.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that each port adds to the time limit for a hand-over.
const PER_PORT: Duration = Duration::from_millis(100);
/// Time that each MAC table entry, cached megaflow or blocked prefix adds to the time limit for a hand-over.
const PER_ENTRY: Duration = Duration::from_micros(20);
/// Time that each flow entry, group or meter adds to the time limit for a hand-over. A flow entry took 33 µs on
/// an overloaded machine with two cores (`rate_tests`).
pub const PER_RULE: Duration = Duration::from_micros(50);

/// Hand-over state of the whole data plane. The module `descriptors` states which file descriptors are sent together
/// with this message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HandoverState {
    /// State of each running port, by port name.
    pub ports: BTreeMap<String, PortRecord>,
    /// Number that identifies each bridge in the data path, by bridge name.
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
    /// Megaflows of OpenFlow bridges that workers have cached. Earlier releases send the megaflows in a field with
    /// another name and format.
    #[serde(default, rename = "known_flows")]
    pub known: Vec<MegaflowRecord>,
    /// Mirror devices (TAPs that represent router interfaces). The key is the name for which the device's port number
    /// is allocated.
    #[serde(default)]
    pub vlans: BTreeMap<String, VlanRecord>,
    /// Frames of closed zero-copy sockets, which the kernel may still use.
    #[serde(default)]
    pub quarantine: Vec<QuarantineRecord>,
    /// For each record of `quarantine`, in order, the device queue that may still use the frames of the record. `None`
    /// for an unknown queue.
    #[serde(default)]
    pub places: Vec<Option<PlaceRecord>>,
    /// Number of seconds since the first predecessor started, which is the period that the port counters
    /// cover.
    #[serde(default)]
    pub counting_secs: u64,
}

impl HandoverState {
    /// Returns the time limit from the first message until the successor's workers must run. The limit grows
    /// with the number of ports and table entries.
    pub fn patience(&self) -> Duration {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let learned = self.stations.values().map(Vec::len).sum::<usize>() + self.known.len();
        let rules = self.rules.values().map(RulesRecord::count).sum::<usize>();
        let blocks = self.blocks.values().map(Vec::len).sum::<usize>();
        let entries = PER_ENTRY * count(learned + blocks) + PER_RULE * count(rules);
        PATIENCE + PER_PORT * count(self.ports.len()) + entries
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

/// Frames of a closed zero-copy AF_XDP socket, which the kernel may still use.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct QuarantineRecord {
    /// Numbers of the frames in the frame memory.
    pub frames: Vec<u32>,
    /// Number of milliseconds until the quarantine of the frames ends. The frames are free after that.
    pub left_ms: u64,
}

serialize_as_list!(QuarantineRecord { frames, left_ms });

/// Worker counters of a filter rule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct RuleRecord {
    /// Name of the rule.
    pub name: String,
    /// Number of packets that matched the rule.
    pub packets: u64,
    /// Number of bytes of the packets that matched the rule.
    pub bytes: u64,
    /// Number of packets to which the rule's action was applied.
    pub acted: u64,
    /// Number of bytes of the packets to which the rule's action was applied.
    pub acted_bytes: u64,
}

serialize_as_list!(RuleRecord { name, packets, bytes, acted, acted_bytes });

impl From<RuleCounters> for RuleRecord {
    fn from(rule: RuleCounters) -> Self {
        let RuleCounters { name, packets, bytes, acted, acted_bytes } = rule;
        RuleRecord { name, packets, bytes, acted, acted_bytes }
    }
}

impl From<RuleRecord> for RuleCounters {
    fn from(record: RuleRecord) -> Self {
        let RuleRecord { name, packets, bytes, acted, acted_bytes } = record;
        RuleCounters { name, packets, bytes, acted, acted_bytes }
    }
}

/// Hand-over state of a mirror device: the TAP that represents a router interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VlanRecord {
    /// Port number of the mirror device in the data path.
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
    /// Interface index of the device that has a guard (a program that drops all frames that the device passes to the
    /// kernel), if the port has no hook and waits to be opened. `None` if there is no guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarded: Option<u32>,
    /// Queues of the port.
    pub queues: Vec<QueueRecord>,
    /// Whether the port completes partial checksums, which the sender of a packet left to checksum
    /// offload.
    pub complete_checksums: bool,
    /// MTU of the port: size in bytes of the largest layer-3 packet.
    pub mtu: u32,
    /// Saved settings of the port's device, if the daemon did not create the device.
    #[serde(default)]
    pub former: Option<Former>,
    /// Ethernet addresses of the port's device, if the daemon created it.
    #[serde(default)]
    pub ends: EndsRecord,
    /// Software RSS table of the port: the worker number for each hash bucket. `None` if the port does not
    /// use software RSS.
    #[serde(rename = "spread")]
    pub rss_table: Option<Vec<u16>>,
    /// Packet counters of the port, which the successor continues.
    #[serde(default)]
    pub counters: CountersState,
}

/// Ethernet addresses of a device that the daemon created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct EndsRecord {
    /// MAC address of the device itself. `None` if it is not known.
    pub near: Option<u64>,
    /// MAC address of the device's peer, if the device belongs to a veth pair. `None` if there is no peer, or if the
    /// address is not known.
    pub far: Option<u64>,
}

serialize_as_list!(EndsRecord { near, far });

impl From<EndAddresses> for EndsRecord {
    fn from(EndAddresses { near, far }: EndAddresses) -> Self {
        EndsRecord { near: near.map(MacAddr::as_u64), far: far.map(MacAddr::as_u64) }
    }
}

impl From<EndsRecord> for EndAddresses {
    fn from(EndsRecord { near, far }: EndsRecord) -> Self {
        EndAddresses { near: near.map(MacAddr::from_u64), far: far.map(MacAddr::from_u64) }
    }
}

/// A queue of a device. The descriptor of the device's network namespace is sent together with the message.
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
    /// An AF_XDP socket. Its descriptor is sent together with the message.
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
        /// Busy polling settings of the socket. `None` if busy polling is off.
        busy_poll: Option<BusyPollRecord>,
        /// Whether received packets are checked for partial checksums, which the sender left to
        /// checksum offload.
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
    /// A TAP. Its descriptor is sent together with the message.
    Tap {
        /// Whether the TAP is the internal port of a bridge.
        internal: bool,
        /// MTU of the TAP's interface in bytes.
        mtu: u32,
        /// Whether UDP segmentation offload is enabled on the TAP.
        uso: bool,
    },
    /// A queue that cannot be handed over, for example a queue in memory or a queue that reads a file. The successor
    /// opens the port again.
    #[serde(rename = "Anew")]
    OpenAgain,
}

impl QueueKind {
    /// Returns whether a file descriptor of the queue is sent together with the message.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self, QueueKind::OpenAgain)
    }
}

/// Settings for busy polling of an AF_XDP socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct BusyPollRecord {
    /// Maximum duration of one busy poll in microseconds.
    pub microseconds: u32,
    /// Maximum number of packets that one busy poll processes.
    pub budget: u32,
}

serialize_as_list!(BusyPollRecord { microseconds, budget });

impl From<BusyPoll> for BusyPollRecord {
    fn from(BusyPoll { microseconds, budget }: BusyPoll) -> Self {
        BusyPollRecord { microseconds, budget }
    }
}

impl From<BusyPollRecord> for BusyPoll {
    fn from(BusyPollRecord { microseconds, budget }: BusyPollRecord) -> Self {
        BusyPoll { microseconds, budget }
    }
}

/// A learned MAC table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct StationRecord {
    /// VLAN ID, or 0 for no VLAN.
    pub vid: u16,
    /// MAC address that the bridge has learned.
    pub mac: u64,
    /// Number of the port on which the MAC address was learned.
    pub port: u16,
    /// Number of seconds since the MAC address was last seen.
    pub age_secs: u16,
}

serialize_as_list!(StationRecord { vid, mac, port, age_secs });

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
    fn a_hand_over_has_more_time_if_there_are_many_rules() {
        let mut state: HandoverState = serde_json::from_str(TEXT).unwrap();
        state.blocks.clear();
        // A rule, a meter, a learned MAC address, a megaflow and a port.
        assert_eq!(state.patience(), PATIENCE + PER_PORT + PER_RULE * 2 + PER_ENTRY * 2);
    }

    /// Hand-over state with a record of each kind, as release 0.1.0 writes it.
    const TEXT: &str = r#"{
        "ports": {
            "h1": {
                "id": 3, "ifindex": 7, "hook": { "pin": "h1" },
                "queues": [
                    { "id": 0, "worker": 1, "kind": { "AfXdp": {
                        "ifname": "eth1", "ifindex": 7, "queue": 0, "ring_size": 2048, "fill_level": 1024,
                        "busy_poll": [20, 64], "complete_checksums": true, "zero_copy": false,
                        "multi_buffer": true, "mtu": 1500, "reasons": ["x"], "frames": [1, 2, 3]
                    } } },
                    { "id": 1, "worker": 0, "kind": "Anew" },
                    { "id": 2, "worker": 0, "kind": { "Tap": { "internal": true, "mtu": 1500, "uso": true } } }
                ],
                "complete_checksums": true, "mtu": 1500, "former": null, "ends": [2, null], "spread": [0, 1],
                "counters": {
                    "rx_packets": 1, "rx_bytes": 2, "tx_packets": 3, "tx_bytes": 4, "copies": 5, "punted": 6,
                    "drops": { "no-member": 7 },
                    "bridged": { "rx_packets": 1, "rx_bytes": 2, "tx_packets": 3, "tx_bytes": 4 },
                    "routed": { "rx_packets": 1, "rx_bytes": 2, "tx_packets": 3, "tx_bytes": 4 }
                }
            }
        },
        "bridges": { "br0": 1 },
        "stations": { "br0": [[10, 1234567, 3, 7]] },
        "blocks": { "edge": [["10.0.0.0/8", null], ["2001:db8::/32", 7]] },
        "filters": { "edge": [["a", 1, 2, 3, 4]] },
        "rules": {
            "br0": {
                "meters": ["061d"], "groups": [], "rules": [["060e0050", 5, 500, 1, 2, false, 1]],
                "numbers": { "h1": 1 }, "tables": [[9, "acl", true, [20, 80], 2]], "options": [[258, 128, 4, 3]],
                "of_datapath": { "configs": { "1": 1 }, "fragments": 0, "begun": true, "alone": false }
            }
        },
        "known_flows": [[0, 1, 3, 255, [1, 2, 3]]],
        "vlans": { "r/h1.10": { "id": 9, "queue": {
            "id": 0, "worker": 1, "kind": { "Tap": { "internal": false, "mtu": 1500, "uso": true } }
        } } },
        "quarantine": [[[4, 5], 600]],
        "places": [{ "namespace": 1, "ifindex": 2, "queue": 3 }],
        "counting_secs": 9
    }"#;

    #[test]
    fn the_text_of_the_state_is_that_of_the_present_release() {
        let state: HandoverState = serde_json::from_str(TEXT).unwrap();
        let station = StationRecord { vid: 10, mac: 1_234_567, port: 3, age_secs: 7 };
        assert_eq!(state.stations["br0"], [station]);
        assert_eq!(state.quarantine, [QuarantineRecord { frames: vec![4, 5], left_ms: 600 }]);
        assert_eq!(state.ports["h1"].ends, EndsRecord { near: Some(2), far: None });
        let text: serde_json::Value = serde_json::from_str(TEXT).unwrap();
        assert_eq!(serde_json::to_value(&state).unwrap(), text);
    }

    #[test]
    fn a_state_with_a_queue_of_an_unknown_kind_is_refused_as_a_whole() {
        let text = TEXT.replace("\"Anew\"", r#"{ "VhostUser": { "mtu": 1500 } }"#);
        let error = serde_json::from_str::<HandoverState>(&text).unwrap_err().to_string();
        assert!(error.contains("VhostUser"), "{error}");
    }

    #[test]
    fn a_hook_without_a_pin_is_still_a_hook() {
        let port = PortRecord {
            id: 3,
            ifindex: Some(7),
            hook: Some(HookRecord { pin: None }),
            guarded: None,
            queues: vec![QueueRecord { id: 0, worker: 1, kind: QueueKind::OpenAgain }],
            complete_checksums: true,
            mtu: 1500,
            former: None,
            ends: EndsRecord { near: Some(0x02_00_00_00_00_01), far: None },
            rss_table: None,
            counters: CountersState::default(),
        };
        let text = serde_json::to_string(&port).unwrap();
        let back: PortRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(back.hook, port.hook);
        assert_eq!((back.id, back.ifindex, back.queues.len()), (3, Some(7), 1));
    }
}
