//! Configuration of ports: the kinds of ports, and the settings of each kind.

use std::path::PathBuf;

use packet::{MacAddr, QueueId, WorkerId};
use serde::Serialize;

use crate::text;
use crate::{DeviceName, FilterName, InterfaceAddress, Namespace, PortName, SteerName};

/// A port: queues and memory of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Port {
    /// MTU of the port: maximum size of an L3 packet in bytes. `None`: the MTU of the device, or 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Workers that serve the queues in turn. Empty: all workers.
    #[serde(serialize_with = "text::ids::serialize")]
    pub workers: Vec<WorkerId>,
    /// Whether received packets are distributed over all workers by a symmetric hash (software RSS).
    pub spread: bool,
    /// Whether the port carries packets (`admin = "up"`).
    #[serde(serialize_with = "up_or_down")]
    pub admin: bool,
    /// Filter for received packets. The hook of the port applies it. For kinds without a hook, the workers
    /// apply it. Ports of kind `null` have none.
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
    /// A pair of veth devices that the daemon creates. The daemon uses its end through AF_XDP. The other end
    /// is for a container or a namespace.
    Veth(Veth),
    /// A TAP device.
    Tap(Tap),
    /// A TAP device that is the host's own interface in a bridge.
    Internal(Tap),
    /// Packets read from a capture file, or written to one.
    Pcap(Pcap),
    /// One end of a virtual wire between two ports of the daemon.
    Patch(Patch),
    /// A ring in memory.
    Ring(Ring),
    /// Receives no packets, and discards packets that are sent.
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

    /// Returns the daemon's device in the kernel and its namespace, for kinds that have a device. The
    /// namespace is `None` for the daemon's own.
    pub fn device(&self) -> Option<(&DeviceName, Option<&Namespace>)> {
        match self {
            PortKind::AfXdp(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Veth(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Tap(port) | PortKind::Internal(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Pcap(_) | PortKind::Patch(_) | PortKind::Ring(_) | PortKind::Null => None,
        }
    }

    /// Returns the AF_XDP settings, for kinds that use AF_XDP.
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
    /// Namespace of the device. `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// AF_XDP settings of the device.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// Settings of a pair of veth devices that the daemon creates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Veth {
    /// Name of the near end, which the daemon uses.
    pub device: DeviceName,
    /// Namespace of the near end. `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Settings of the far end.
    pub peer: Peer,
    /// AF_XDP settings of the near end.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// Settings of the far end of a veth pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    /// Name of the far end.
    pub name: DeviceName,
    /// Namespace into which the far end is moved. `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the far end.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the far end. `None`: the kernel chooses.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MTU of the far end. `None`: the MTU of the port.
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
    /// Number of entries of each of the four rings: a power of two, 64..=32768.
    pub ring_size: u32,
    /// Value of SO_BUSY_POLL in microseconds. 0: off.
    pub busy_poll: u32,
    /// Whether the hook's program stays attached when the daemon ends. `None`: yes for bridged ports, no for
    /// other ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
    /// Handling of packets by a persistent hook while no daemon runs. `None`: drop for bridged ports, pass
    /// for other ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_down: Option<WhenDown>,
    /// Whether checksums that a sender left to its device are completed.
    pub complete_checksums: Checksums,
    /// Routes that the hook forwards by. `None`: the hook does not route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Name of the steering policy, which takes precedence over the function of the port. `None`: no
    /// steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steer: Option<SteerName>,
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
            steer: None,
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
    /// The first queues of the device, up to this number.
    First(u16),
    /// The listed queues.
    List(Vec<QueueId>),
}

impl Queues {
    /// Returns the number of queues. `None` if the number depends on the device.
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
    /// Attaches in the driver if possible, and otherwise in the generic hook. The state of the port reports
    /// the mode.
    Auto,
    /// Attaches in the driver. Opening the port fails if the driver does not support it.
    Native,
    /// Attaches in the kernel's generic hook.
    Generic,
}

/// Whether the driver receives directly into the frame memory (zero copy).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeroCopy {
    /// Uses zero copy if the driver supports it. The state of the port reports the result.
    Auto,
    /// Uses zero copy. Opening the port fails if the driver does not support it.
    Require,
    /// Does not use zero copy.
    Off,
}

/// Handling of packets by a persistent hook while no daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// Drops the packets, so that no traffic leaks into the host.
    Drop,
    /// Passes the packets to the kernel.
    Pass,
}

/// Whether checksums that a sender left to its device are completed on receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Completes a checksum that equals the pseudo-header sum alone, on devices that the daemon did not
    /// create.
    Auto,
    /// Checks and completes checksums on every device.
    On,
    /// Does not complete checksums.
    Off,
}

/// Settings of a TAP device, which may be the host's own interface in a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tap {
    /// Name of the device.
    pub device: DeviceName,
    /// Namespace of the device. `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the device.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the device. `None`: the kernel chooses.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Number of queues, 1..=256.
    pub queues: u16,
}

/// Settings of a port that reads or writes capture files. At least one of `read` and `write` is set.
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
    /// Timing of received packets.
    #[serde(skip_serializing_if = "PcapTiming::is_default")]
    pub timing: PcapTiming,
}

/// Timing of packets that are received from a capture file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PcapTiming {
    /// Receives the packets at the intervals that the timestamps of the file specify.
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

/// Settings of one end of a virtual wire between two ports of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Patch {
    /// Name of the other end: a patch port whose peer is this port. While the other end does not exist, the
    /// port is down.
    pub peer: PortName,
}

/// Settings of a ring in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ring {
    /// Number of entries: a power of two, 64..=32768.
    pub size: u32,
}

/// An MTU: size of the largest L3 packet in bytes, 68..=9000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Mtu(u16);

impl Mtu {
    /// Minimum MTU of IPv4 (RFC 791).
    pub const MIN: Mtu = Mtu(68);
    /// Maximum MTU of ports.
    pub const MAX: Mtu = Mtu(9000);
    /// MTU of Ethernet.
    pub const ETHERNET: Mtu = Mtu(1500);

    /// Returns the MTU of this number of bytes. `None` if it is outside of [`Mtu::MIN`] and [`Mtu::MAX`].
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
