//! Recording of packet processing. `explain` and `trace` run the data path's code with a [`Recorder`].
//! Without recording ([`NoRecord`]) the calls compile to nothing.
//!
//! Stages pass the packet's position in the burst to the recorder, so that stages remain functions over
//! bursts. With [`Recorder::DRY`] a stage decides but changes no state: it learns nothing, takes no token and
//! counts nothing.

use std::net::IpAddr;

use crate::{BridgeId, DropReason, MacAddr, PortId, QueueId, WorkerId};

/// Origin of a frame's VLAN on ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanSource {
    /// The VLAN is the access VLAN of the bridge port.
    Access,
    /// The VLAN is that of the frame's tag.
    Tag,
    /// The VLAN is the native VLAN of a trunk. The frame is untagged or priority-tagged.
    Native,
    /// The frame has no VLAN, because the bridge does not separate VLANs on this port.
    None,
}

/// Change of the outer VLAN tag on egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagChange {
    /// Leaves the tags as they are.
    #[default]
    Keep,
    /// Removes the outer tag.
    Pop,
    /// Adds an 802.1Q tag with this VLAN identifier.
    Push(u16),
    /// Adds a service tag (802.1ad) with this VLAN identifier.
    PushService(u16),
    /// Replaces the VLAN identifier of the outer tag. Used to assign a VLAN to a priority-tagged frame.
    Set(u16),
}

/// Class of a frame that goes to more than one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodClass {
    /// The destination is ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// The destination is another group address.
    Multicast,
    /// The destination is a unicast address that is not in the MAC table.
    Unknown,
}

/// Result of a route look-up for the source address of a packet (reverse path check).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WayBack {
    /// No route leads to the source.
    None,
    /// The route leaves by this port.
    Port(PortId),
    /// The route leaves by a device that is not a port of the router.
    Elsewhere,
}

/// One step in the processing of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// The packet was received on this queue.
    Received {
        /// Receiving port.
        port: PortId,
        /// Receive queue of the port.
        queue: QueueId,
        /// Length of the frame in bytes.
        len: u32,
    },
    /// The headers of the packet were parsed. The recorder keeps its own copy of the flow key.
    Parsed {
        /// Offset of the network header in bytes, 0 if there is none.
        l3: u16,
        /// Offset of the transport header in bytes, 0 if there is none.
        l4: u16,
        /// Reason why a header after the Ethernet header is malformed, if one is. A bridge forwards such
        /// frames.
        malformed: Option<DropReason>,
    },
    /// The receiving port is a member of this bridge.
    Bridge(BridgeId),
    /// The packet was assigned to a VLAN of the bridge.
    Vlan {
        /// VLAN identifier, 0 when the bridge port does not separate VLANs.
        vid: u16,
        /// Origin of the VLAN identifier.
        source: VlanSource,
    },
    /// The source address was learned on this port, or would be in a dry run.
    Learned {
        /// Source address that was learned.
        mac: MacAddr,
        /// Previous port of the address, if the address moved.
        from: Option<PortId>,
    },
    /// The source address was already known on this port.
    SourceKnown {
        /// Source address of the packet.
        mac: MacAddr,
        /// Whether the MAC table entry is static.
        is_static: bool,
    },
    /// The source address was not learned.
    NotLearned {
        /// Source address of the packet.
        mac: MacAddr,
        /// Reason in words.
        why: &'static str,
    },
    /// The destination address was found in the MAC table.
    Found {
        /// Destination address of the packet.
        mac: MacAddr,
        /// Port of the MAC table entry.
        port: PortId,
        /// Age of the MAC table entry in seconds since the address was last seen.
        age: u16,
        /// Whether the MAC table entry is static.
        is_static: bool,
    },
    /// The packet is flooded to several ports.
    Flood {
        /// Class of the flooded frame.
        class: FloodClass,
    },
    /// Multicast snooping restricts the packet to the group's listeners and the multicast routers.
    Snooped {
        /// Number of output ports.
        ports: u16,
    },
    /// A copy of the packet was sent to multicast snooping (IGMP, MLD).
    Punted,
    /// The packet is output on this port.
    Output {
        /// Output port.
        port: PortId,
        /// Change of the outer VLAN tag.
        tag: TagChange,
    },
    /// A flood leaves out this port.
    NotTo {
        /// Port that is left out.
        port: PortId,
        /// Reason why the port is left out.
        reason: DropReason,
    },
    /// The software RSS table of the receiving port selected this worker.
    Spread {
        /// Bucket of the symmetric hash.
        bucket: u16,
        /// Worker that processes the packet.
        worker: WorkerId,
    },
    /// The packet matched an OpenFlow rule.
    Rule {
        /// Table of the rule.
        table: u8,
        /// Priority of the rule.
        priority: u16,
        /// Cookie of the rule.
        cookie: u64,
    },
    /// The packet matched no rule of this OpenFlow table.
    NoRule {
        /// Table that was searched.
        table: u8,
    },
    /// A cached flow supplied the actions of the packet.
    FlowHit,
    /// No cached flow matched the packet. The slow path looks it up in the tables.
    Upcall,
    /// A copy of the packet was sent to the controllers, or would be in a dry run.
    ToController,
    /// A route was found and the MAC address of the next hop is known. Addresses, hop count and checksum were
    /// rewritten, or would be in a dry run.
    Routed {
        /// Output port of the route.
        port: PortId,
        /// MAC address of the next hop.
        to: MacAddr,
    },
    /// The reverse path check failed: no route to the source leads to an interface that accepts packets from
    /// it.
    ReversePath {
        /// Port that received the packet.
        from: PortId,
        /// Source address of the packet.
        source: IpAddr,
        /// Result of the route look-up for the source.
        back: WayBack,
    },
    /// The packet was punted to the kernel, or would be in a dry run.
    ToKernel {
        /// Reason in words.
        why: &'static str,
    },
    /// The packet was consumed, and an ICMP error to its sender continues in its place. In a dry run the
    /// error would be sent.
    Told {
        /// Reason in words, without a full stop.
        why: &'static str,
        /// Source address of the ICMP error.
        from: IpAddr,
    },
    /// The L4 checksum that the sender left incomplete was completed, or would be in a dry run.
    ChecksumCompleted,
    /// The packet was cut into segments of the port's size, or would be in a dry run.
    Segmented {
        /// Number of segments.
        segments: u16,
    },
    /// The packet was handed to this transmit queue, or would be in a dry run.
    Transmitted {
        /// Transmitting port.
        port: PortId,
        /// Transmit queue of the port.
        queue: QueueId,
    },
    /// The packet was dropped for this reason.
    Dropped(DropReason),
}

/// Receiver of processing steps. `engine` implements it for explain and trace, besides [`NoRecord`] here.
pub trait Recorder {
    /// Whether the recorder uses the steps. Stages skip the preparation of steps otherwise.
    const ACTIVE: bool;
    /// Whether this is a dry run, in which stages decide without changing shared state.
    const DRY: bool;
    /// Records a step of the packet at position `index` of the burst.
    fn step(&mut self, index: usize, step: Step);
}

/// A recorder that ignores all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecord;

impl Recorder for NoRecord {
    const ACTIVE: bool = false;
    const DRY: bool = false;
    #[inline(always)]
    fn step(&mut self, _index: usize, _step: Step) {}
}

/// A recorder that collects every step of a one-packet burst. `explain` and tests use it.
#[derive(Clone, Debug, Default)]
pub struct Steps<const DRY: bool>(pub Vec<Step>);

impl<const DRY: bool> Recorder for Steps<DRY> {
    const ACTIVE: bool = true;
    const DRY: bool = DRY;
    fn step(&mut self, _index: usize, step: Step) {
        self.0.push(step);
    }
}
