//! What a packet meets on its way, told to whoever asked: `explain` and `trace` run the data path's own code with a
//! [`Recorder`]; without one ([`NoRecord`]) the calls vanish at compile time.
//!
//! A recorder is told positions in the burst, so that stages stay functions over bursts. With [`Recorder::DRY`] a stage
//! decides but leaves no mark: nothing learned, no token taken, nothing counted.

use std::net::IpAddr;

use crate::{BridgeId, DropReason, MacAddr, PortId, QueueId, WorkerId};

/// How a frame's VLAN was found on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanSource {
    /// The bridge port is an access port.
    Access,
    /// The frame's own tag.
    Tag,
    /// Untagged (or priority-tagged) on a trunk with a native VLAN.
    Native,
    /// The bridge does not separate VLANs on this port.
    None,
}

/// What is done to the outer VLAN tag on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagChange {
    /// Nothing.
    #[default]
    Keep,
    /// The tag is removed.
    Pop,
    /// An 802.1Q tag with this VLAN id is added.
    Push(u16),
    /// A service tag (802.1ad) with this VLAN id is added.
    PushService(u16),
    /// The id of the tag is replaced (a priority tag gets its VLAN).
    Set(u16),
}

/// Class of a frame that goes to more than one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodClass {
    /// Destination ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// Another group address.
    Multicast,
    /// A unicast address that is not in the MAC table.
    Unknown,
}

/// Where a route leads to the source of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WayBack {
    /// Nowhere.
    None,
    /// Out of this port.
    Port(PortId),
    /// Out of a device that is no port of the router's.
    Elsewhere,
}

/// One thing that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// It came out of this queue.
    Received {
        /// Port.
        port: PortId,
        /// Queue of the port.
        queue: QueueId,
        /// Bytes.
        len: u32,
    },
    /// Its headers were read; the flow key follows in the recorder's own copy.
    Parsed {
        /// Offset of the network header, 0 if none.
        l3: u16,
        /// Offset of the transport header, 0 if none.
        l4: u16,
        /// What is wrong behind the Ethernet header, if anything (a bridge forwards such frames).
        malformed: Option<DropReason>,
    },
    /// The port is a member of this bridge.
    Bridge(BridgeId),
    /// Its VLAN on this bridge.
    Vlan {
        /// VLAN id, 0 when the bridge port separates none.
        vid: u16,
        /// Where the id comes from.
        source: VlanSource,
    },
    /// The source address was (or, in a dry run, would be) learned here.
    Learned {
        /// Source address.
        mac: MacAddr,
        /// The port it was on before, if it moved.
        from: Option<PortId>,
    },
    /// The source address was known here already.
    SourceKnown {
        /// Source address.
        mac: MacAddr,
        /// Whether the entry is static.
        is_static: bool,
    },
    /// The source address was not learned, and why.
    NotLearned {
        /// Source address.
        mac: MacAddr,
        /// Reason in words.
        why: &'static str,
    },
    /// The destination is in the MAC table.
    Found {
        /// Destination address.
        mac: MacAddr,
        /// Port it is on.
        port: PortId,
        /// Seconds since it was last seen.
        age: u16,
        /// Whether the entry is static.
        is_static: bool,
    },
    /// It goes to several ports.
    Flood {
        /// Why.
        class: FloodClass,
    },
    /// Snooping restricts the group to its listeners and the multicast routers.
    Snooped {
        /// Number of ports.
        ports: u16,
    },
    /// A copy goes to the snooper (IGMP, MLD).
    Punted,
    /// It leaves by this port.
    Output {
        /// Port.
        port: PortId,
        /// Change of the outer tag.
        tag: TagChange,
    },
    /// A port that a flood leaves out, and why.
    NotTo {
        /// Port.
        port: PortId,
        /// Reason.
        reason: DropReason,
    },
    /// The steering table of its port names this worker.
    Spread {
        /// Bucket of the symmetric hash.
        bucket: u16,
        /// Worker.
        worker: WorkerId,
    },
    /// An OpenFlow rule matches it.
    Rule {
        /// Table.
        table: u8,
        /// Priority.
        priority: u16,
        /// Cookie.
        cookie: u64,
    },
    /// No rule of this OpenFlow table matches it.
    NoRule {
        /// Table.
        table: u8,
    },
    /// A cached flow says what becomes of it.
    FlowHit,
    /// No cached flow matches it: the decider looks into the tables.
    Upcall,
    /// A copy goes (would go) to controllers.
    ToController,
    /// A route leads there, and the next hop's address is known: addresses, hop count and checksum are (would be) written anew.
    Routed {
        /// The port that it leaves by.
        port: PortId,
        /// The next hop's address.
        to: MacAddr,
    },
    /// The way back to its source is none that its interface accepts packets from.
    ReversePath {
        /// The port that it came in by.
        from: PortId,
        /// Its source.
        source: IpAddr,
        /// Where a route leads to the source.
        back: WayBack,
    },
    /// It is (would be) given to the kernel.
    ToKernel {
        /// Reason in words.
        why: &'static str,
    },
    /// It goes no further; its sender is (would be) told by an ICMP error, which goes on in its place.
    Told {
        /// Reason in words, without a full stop.
        why: &'static str,
        /// Whose the error is.
        from: IpAddr,
    },
    /// The L4 checksum that its sender had left open was (would be) completed.
    ChecksumCompleted,
    /// It was (would be) cut into this many segments of the port's size.
    Segmented {
        /// Segments.
        segments: u16,
    },
    /// It was (would be) given to this transmit queue.
    Transmitted {
        /// Port.
        port: PortId,
        /// Queue.
        queue: QueueId,
    },
    /// It ended here.
    Dropped(DropReason),
}

/// Listens to the stages. Two implementations besides [`NoRecord`] live in `engine`: explain's and trace's.
pub trait Recorder {
    /// Whether anybody listens; stages skip the preparation of steps otherwise.
    const ACTIVE: bool;
    /// Whether this is a dry run: decide, but leave no mark on shared state.
    const DRY: bool;
    /// Something happened to the packet at `index` of the burst.
    fn step(&mut self, index: usize, step: Step);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecord;

impl Recorder for NoRecord {
    const ACTIVE: bool = false;
    const DRY: bool = false;
    #[inline(always)]
    fn step(&mut self, _index: usize, _step: Step) {}
}

/// Collects every step of a one-packet burst: what `explain` uses and tests read.
#[derive(Clone, Debug, Default)]
pub struct Steps<const DRY: bool>(pub Vec<Step>);

impl<const DRY: bool> Recorder for Steps<DRY> {
    const ACTIVE: bool = true;
    const DRY: bool = DRY;
    fn step(&mut self, _index: usize, step: Step) {
        self.0.push(step);
    }
}
