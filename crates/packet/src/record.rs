//! Records the steps in which the data path processes a packet. `trivium explain` and `trivium trace` run the code
//! of the data path with a [`Recorder`]. Without recording ([`NoRecord`]), the calls compile to nothing.
//!
//! The functions of the data path process bursts of packets. Therefore they pass the position of a packet in the
//! burst to the recorder. In a dry run ([`Recorder::DRY`]), the functions make decisions but change no state: no
//! address is learned, no token is taken from a rate limiter, and nothing is counted.

use std::net::IpAddr;

use crate::{BridgeId, DropReason, MacAddr, PortId, QueueId, WorkerId};

/// Origin of the VLAN that a frame is assigned to on ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanSource {
    /// The port is an access port, and its configured VLAN applies.
    Access,
    /// The VLAN tag of the frame determines the VLAN.
    Tag,
    /// The frame is untagged or priority-tagged, and belongs to the native VLAN of the trunk port.
    Native,
    /// The frame has no VLAN, because the bridge does not separate VLANs on this port.
    None,
}

/// Change to the outer VLAN tag of a frame on egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagChange {
    /// Leaves the VLAN tags as they are.
    #[default]
    Keep,
    /// Removes the outer VLAN tag.
    Pop,
    /// Adds an 802.1Q tag with this VLAN identifier as the outer tag.
    Push(u16),
    /// Adds a service tag (802.1ad) with this VLAN identifier as the outer tag.
    PushService(u16),
    /// Replaces the VLAN identifier of the outer tag. Assigns a VLAN to a priority-tagged frame.
    Set(u16),
}

/// Class of a frame that is flooded to several ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodClass {
    /// The destination address is ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// The destination address is a group address other than ff:ff:ff:ff:ff:ff.
    Multicast,
    /// The destination address is a unicast address that is not in the MAC table.
    Unknown,
}

/// Result of the route look-up for the source address of a packet, as the reverse path check (RFC 3704) needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReverseRoute {
    /// No route leads to the source address.
    None,
    /// The route to the source address uses this port as output.
    Port(PortId),
    /// The route to the source address uses a device that is not a port of the router as output.
    Elsewhere,
}

/// One step in the processing of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// The packet was received on a queue of a port.
    Received {
        /// Port that received the packet.
        port: PortId,
        /// Receive queue of the port, on which the packet arrived.
        queue: QueueId,
        /// Length of the frame in bytes.
        len: u32,
    },
    /// The headers of the packet were parsed. The recorder keeps its own copy of the flow key.
    Parsed {
        /// Offset of the network header in the frame in bytes. 0 if the frame has no network
        /// header.
        l3: u16,
        /// Offset of the transport header in the frame in bytes. 0 if the frame has no transport
        /// header.
        l4: u16,
        /// Reason why a header after the Ethernet header is malformed. `None` if no header is
        /// malformed. A bridge forwards frames with such headers.
        malformed: Option<DropReason>,
    },
    /// The receiving port is a member of this bridge.
    Bridge(BridgeId),
    /// The packet was assigned to a VLAN of the bridge.
    Vlan {
        /// VLAN identifier of the packet, or 0 if the bridge port is not VLAN-aware.
        vid: u16,
        /// Origin of the VLAN identifier: the VLAN tag of the frame, or the configuration of the port.
        source: VlanSource,
    },
    /// The source address was learned on the receiving port. In a dry run, the address would be
    /// learned.
    Learned {
        /// Source address that was learned.
        mac: MacAddr,
        /// Previous port of the address in the MAC table. `None` if the address was not in the table.
        from: Option<PortId>,
    },
    /// The source address was already in the MAC table, with this port.
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
        /// Reason why the address was not learned, as text for the user.
        why: &'static str,
    },
    /// The destination address was found in the MAC table.
    Found {
        /// Destination address of the packet.
        mac: MacAddr,
        /// Port of the MAC table entry.
        port: PortId,
        /// Time since the address was last seen as a source, in seconds.
        age: u16,
        /// Whether the MAC table entry is static.
        is_static: bool,
    },
    /// The packet is flooded to several ports.
    Flood {
        /// Class of the frame, which determines the storm control limit.
        class: FloodClass,
    },
    /// Multicast snooping restricts the packet to the group's listeners and the multicast routers.
    Snooped {
        /// Number of ports to which the packet is output.
        ports: u16,
    },
    /// A copy of the packet (IGMP or MLD) was sent to multicast snooping.
    Punted,
    /// A copy of the packet is output on a port.
    Output {
        /// Port on which the copy is output.
        port: PortId,
        /// Change to the outer VLAN tag of the copy.
        tag: TagChange,
    },
    /// A flooded packet is not output on one of the ports.
    NotTo {
        /// Port on which the packet is not output.
        port: PortId,
        /// Reason why the packet is not output on the port.
        reason: DropReason,
    },
    /// The software RSS table of the receiving port selected this worker.
    SoftwareRss {
        /// Bucket of the RSS table that the symmetric flow hash selected.
        bucket: u16,
        /// Worker that processes the packet.
        worker: WorkerId,
    },
    /// The packet matched an OpenFlow flow entry.
    Rule {
        /// Identifier of the flow table that contains the flow entry.
        table: u8,
        /// Priority of the flow entry.
        priority: u16,
        /// Cookie of the flow entry.
        cookie: u64,
    },
    /// The packet matched no flow entry of an OpenFlow flow table.
    NoRule {
        /// Identifier of the flow table that was searched.
        table: u8,
    },
    /// A flow cache contained the actions for the packet.
    FlowHit,
    /// No cached flow matched the packet. The slow path looks up the packet in the flow tables.
    Upcall,
    /// A copy of the packet was sent to the OpenFlow controllers. In a dry run, a copy would be sent.
    ToController,
    /// A route was found, and the MAC address of the next hop is known. MAC addresses, TTL (or hop limit) and IPv4
    /// header checksum were rewritten. In a dry run, they would be rewritten.
    Routed {
        /// Output port of the route.
        port: PortId,
        /// MAC address of the next hop.
        to: MacAddr,
    },
    /// The reverse path check of the packet failed: no route to the source address exists or, in strict mode, no such
    /// route leads to the interface that received the packet.
    ReversePath {
        /// Port that received the packet.
        from: PortId,
        /// Source address of the packet.
        source: IpAddr,
        /// Result of the route look-up for the source address.
        back: ReverseRoute,
    },
    /// The packet was punted to the kernel. In a dry run, the packet would be punted.
    ToKernel {
        /// Reason for the punt, in words.
        why: &'static str,
    },
    /// The packet was replaced by an ICMP error message, which is sent to the packet's sender. In a dry run, the
    /// message would be sent.
    Told {
        /// Reason for the ICMP error message, in words and without a full stop.
        why: &'static str,
        /// Source address of the ICMP error message.
        from: IpAddr,
    },
    /// The L4 checksum, which the sender had left to checksum offload, was computed. In a dry run, the checksum
    /// would be computed.
    ChecksumCompleted,
    /// The packet was cut into segments that fit the MTU of the port. In a dry run, the packet would be cut.
    Segmented {
        /// Number of segments that the packet was cut into.
        segments: u16,
    },
    /// The packet was put on a transmit queue. In a dry run, the packet would be put on the queue.
    Transmitted {
        /// Port that transmits the packet.
        port: PortId,
        /// Transmit queue of the port.
        queue: QueueId,
    },
    /// The packet was dropped for this reason.
    Dropped(DropReason),
}

/// Receiver of the processing steps of packets. The `engine` crate implements the trait for `trivium explain` and
/// `trivium trace`.
pub trait Recorder {
    /// Whether the recorder records steps. If `false`, the data path does not prepare steps for the
    /// recorder.
    const ACTIVE: bool;
    /// Whether the recorder is for a dry run, in which the data path makes decisions without changing shared
    /// state.
    const DRY: bool;
    /// Records a step in the processing of the packet at position `index` of the burst.
    fn step(&mut self, index: usize, step: Step);
}

/// A recorder that ignores all steps, for packets that are neither explained nor traced.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecord;

impl Recorder for NoRecord {
    const ACTIVE: bool = false;
    const DRY: bool = false;
    #[inline(always)]
    fn step(&mut self, _index: usize, _step: Step) {}
}

/// A recorder that collects every step of a one-packet burst. `explain` and tests use this recorder.
#[derive(Clone, Debug, Default)]
pub struct Steps<const DRY: bool>(pub Vec<Step>);

impl<const DRY: bool> Recorder for Steps<DRY> {
    const ACTIVE: bool = true;
    const DRY: bool = DRY;
    fn step(&mut self, _index: usize, step: Step) {
        self.0.push(step);
    }
}
