//! Configuration of ports: the kinds of ports, and the settings of each kind.

use std::path::PathBuf;

use packet::{MacAddr, QueueId, WorkerId};
use serde::Serialize;

use crate::text;
use crate::{DeviceName, FilterName, InterfaceAddress, Namespace, PortName, SteeringName};

/// Configuration of a port, through which the data plane receives and transmits packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Port {
    /// MTU of the port: maximum size of an L3 packet in bytes. `None`: the MTU of the device, or 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Workers to which the queues of the port are assigned in turn. Empty: all workers.
    #[serde(serialize_with = "text::ids::serialize")]
    pub workers: Vec<WorkerId>,
    /// Whether received packets are distributed over all workers by a symmetric hash (software RSS).
    pub software_rss: bool,
    /// Whether the port is administratively up (`admin = "up"`). A port that is down carries no packets.
    #[serde(serialize_with = "up_or_down")]
    pub admin: bool,
    /// Name of the filter for received packets. The hook of the port applies the filter, or the workers if
    /// the kind of the port has no hook. Ports of kind `null` have no filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterName>,
    /// Kind of the port, with the settings of this kind.
    #[serde(flatten)]
    pub kind: PortKind,
}

/// Kind of a port, with the settings of this kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortKind {
    /// A kernel device, accessed through AF_XDP.
    AfXdp(AfXdp),
    /// A pair of veth devices that the daemon creates. The daemon uses the near device through AF_XDP. The
    /// far device is for a container or another namespace.
    Veth(Veth),
    /// A TAP device.
    Tap(Tap),
    /// A TAP device by which the host itself is connected to a bridge.
    Internal(Tap),
    /// A capture file that packets are read from, or to which packets are written.
    Pcap(Pcap),
    /// One of two patch ports of the daemon that a virtual wire connects.
    Patch(Patch),
    /// A packet ring in memory.
    Ring(Ring),
    /// A port that receives no packets and discards all packets that are sent to it.
    Null,
}

impl PortKind {
    /// Returns the configuration word of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            PortKind::AfXdp(_) => "af_xdp",
            PortKind::Veth(_) => "veth",
            PortKind::Tap(_) => "tap",
            PortKind::Internal(_) => "internal",
            PortKind::Pcap(_) => "pcap",
            PortKind::Patch(_) => "patch",
            PortKind::Ring(_) => "ring",
            PortKind::Null => "null",
        }
    }

    /// Returns the kernel device of a port of this kind, and the device's namespace. The namespace is `None` for the
    /// daemon's own namespace. Returns `None` for kinds that have no device.
    pub fn device(&self) -> Option<(&DeviceName, Option<&Namespace>)> {
        match self {
            PortKind::AfXdp(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Veth(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Tap(port) | PortKind::Internal(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Pcap(_) | PortKind::Patch(_) | PortKind::Ring(_) | PortKind::Null => None,
        }
    }

    /// Returns the AF_XDP settings of the port. Returns `None` for kinds that do not use AF_XDP.
    pub fn xdp(&self) -> Option<&XdpOptions> {
        match self {
            PortKind::AfXdp(port) => Some(&port.xdp),
            PortKind::Veth(port) => Some(&port.xdp),
            _ => None,
        }
    }
}

/// Settings of a kernel device that is used through AF_XDP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AfXdp {
    /// Name of the device.
    pub device: DeviceName,
    /// Namespace of the device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// AF_XDP settings of the device.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// Settings of a pair of veth devices that the daemon creates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Veth {
    /// Name of the near device of the pair, which the daemon uses.
    pub device: DeviceName,
    /// Namespace of the near device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Settings of the far device of the pair.
    pub peer: Peer,
    /// AF_XDP settings of the near device.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// Settings of the far device of a veth pair, which the daemon does not use itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    /// Name of the far device.
    pub name: DeviceName,
    /// Namespace into which the far device is moved. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the far device.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the far device. `None`: the kernel chooses an address.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MTU of the far device. `None`: the MTU of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
}

/// AF_XDP settings of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct XdpOptions {
    /// Queues of the device that the daemon serves.
    pub queues: Queues,
    /// Attachment mode of the hook's program.
    pub mode: XdpMode,
    /// Whether the driver receives directly into the frame memory.
    pub zero_copy: ZeroCopy,
    /// Number of entries in each of the four AF_XDP rings: a power of two, 64..=32768.
    pub ring_size: u32,
    /// Value of the socket option SO_BUSY_POLL in microseconds. 0: no busy polling.
    pub busy_poll: u32,
    /// Whether the hook's program stays attached when the daemon ends. `None`: the program of a bridged port
    /// stays, the program of any other port does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
    /// Handling of packets by a persistent hook while no daemon runs. `None`: the hook of a bridged port drops packets,
    /// the hook of any other port passes packets to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_down: Option<WhenDown>,
    /// Whether the daemon completes checksums of received packets that the sender left to its network device.
    pub complete_checksums: Checksums,
    /// Source of the routes by which the hook forwards packets. `None`: the hook does not route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Name of the steering policy. Packets are steered before they reach the bridge or router of the port.
    /// `None`: no steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steering: Option<SteeringName>,
}

impl Default for XdpOptions {
    fn default() -> Self {
        XdpOptions {
            queues: Queues::All,
            mode: XdpMode::Auto,
            zero_copy: ZeroCopy::Auto,
            ring_size: 2048,
            busy_poll: 0,
            persist: None,
            when_down: None,
            complete_checksums: Checksums::Auto,
            routing: None,
            steering: None,
        }
    }
}

/// Source of the routes that a port's hook forwards by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Routes of the kernel. The hook transmits packets that the kernel would forward without further
    /// processing.
    Kernel,
}

/// Queues of a device that the daemon serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Queues {
    /// All queues of the device.
    All,
    /// The first queues of the device. The value is the number of these queues.
    First(u16),
    /// The queues with these numbers.
    List(Vec<QueueId>),
}

impl Queues {
    /// Returns the number of queues that the daemon serves. Returns `None` if the number depends on the device.
    pub fn count(&self) -> Option<usize> {
        match self {
            Queues::All => None,
            Queues::First(count) => Some(usize::from(*count)),
            Queues::List(queues) => Some(queues.len()),
        }
    }
}

impl Serialize for Queues {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Queues::All => to.serialize_str("all"),
            Queues::First(count) => to.serialize_u16(*count),
            Queues::List(queues) => text::ids::serialize(queues, to),
        }
    }
}

/// Attachment mode of the hook's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// Attaches the program in the driver (native XDP) if possible. If not, attaches it in the kernel's generic
    /// XDP hook. The state of the port reports the mode.
    Auto,
    /// Attaches the program in the driver (native XDP). Opening the port fails if the driver does not support native
    /// XDP.
    Native,
    /// Attaches the program in the kernel's generic XDP hook.
    Generic,
}

/// Whether the driver receives directly into the frame memory (zero copy).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeroCopy {
    /// Uses zero copy if the driver supports zero copy. The state of the port reports the result.
    Auto,
    /// Uses zero copy. Opening the port fails if the driver does not support zero copy.
    Require,
    /// Does not use zero copy: the kernel copies each packet.
    Off,
}

/// Handling of packets by a persistent hook while no daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// Drops the packets. No traffic reaches the network stack of the host.
    Drop,
    /// Passes the packets to the kernel.
    Pass,
}

/// Whether the daemon completes checksums of received packets that the sender left to its network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Completes a checksum that covers only the pseudo-header, on devices that the daemon did not create.
    Auto,
    /// Checks and completes checksums on every device.
    On,
    /// Does not complete checksums.
    Off,
}

/// Settings of a TAP device, by which the host itself may be connected to a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tap {
    /// Name of the device.
    pub device: DeviceName,
    /// Namespace of the device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the device.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the device. `None`: the kernel chooses an address.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Number of queues of the device, 1..=256.
    pub queues: u16,
}

/// Settings of a port that reads or writes capture files. At least one of the fields `read` and `write` is
/// set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pcap {
    /// Path of the file from which packets are received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// Path of the file to which transmitted packets are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// Whether reading restarts at the end of the file (`loop`).
    // Without a file to read, `loop` and `timing` must not be written, because loading would reject them.
    #[serde(rename = "loop", skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
    /// Timing of the packets that are received from the file.
    #[serde(skip_serializing_if = "PcapTiming::is_default")]
    pub timing: PcapTiming,
}

/// Timing of packets that are received from a capture file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PcapTiming {
    /// Receives the packets at the intervals that the timestamps in the file specify.
    File,
    /// Receives the packets as fast as they are processed.
    FlatOut,
}

impl PcapTiming {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == PcapTiming::File
    }
}

/// Settings of a patch port: one of two ports of the daemon that a virtual wire connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Patch {
    /// Name of the patch port at the other side of the wire, whose peer is this port. While that port does
    /// not exist, this port is down.
    pub peer: PortName,
}

/// Settings of a packet ring in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ring {
    /// Number of entries in the ring: a power of two, 64..=32768.
    pub size: u32,
}

/// An MTU: size of the largest L3 packet in bytes, 68..=9000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Mtu(u16);

impl Mtu {
    /// Minimum MTU of IPv4 (RFC 791).
    pub const MIN: Mtu = Mtu(68);
    /// Maximum MTU that a port can have.
    pub const MAX: Mtu = Mtu(9000);
    /// Standard MTU of Ethernet.
    pub const ETHERNET: Mtu = Mtu(1500);

    /// Returns an MTU of `bytes` bytes. Returns `None` if the number is less than [`Mtu::MIN`] or greater
    /// than [`Mtu::MAX`].
    pub const fn new(bytes: u16) -> Option<Mtu> {
        if bytes >= Self::MIN.0 && bytes <= Self::MAX.0 { Some(Mtu(bytes)) } else { None }
    }

    /// Returns the MTU in bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for Mtu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn up_or_down<S: serde::Serializer>(up: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *up { "up" } else { "down" })
}
