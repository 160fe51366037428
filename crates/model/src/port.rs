//! Ports: what kind each is, and everything that its kind can be told.

use std::path::PathBuf;

use packet::{MacAddr, QueueId, WorkerId};
use serde::Serialize;

use crate::text;
use crate::{DeviceName, FilterName, InterfaceAddress, Namespace, PortName, SteerName};

/// A port: memory plus queues of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Port {
    /// Largest packet (L3, in bytes) that it carries; `None`: what its device says, or 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Workers that serve its queues, in turn; empty: all workers.
    #[serde(serialize_with = "text::ids::serialize")]
    pub workers: Vec<WorkerId>,
    /// Whether received packets are spread over all workers by a symmetric hash (software RSS).
    pub spread: bool,
    /// Whether it carries packets at all (`admin = "up"`).
    #[serde(serialize_with = "up_or_down")]
    pub admin: bool,
    /// The filter that its hook or, for kinds without a hook, its workers apply to what it receives. None for `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterName>,
    /// Its kind with what only this kind has.
    #[serde(flatten)]
    pub kind: PortKind,
}

/// The kinds of ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortKind {
    /// Any device of the kernel, over AF_XDP.
    AfXdp(AfXdp),
    /// A pair of veth devices of our making: our end over AF_XDP, the other for a container or a namespace.
    Veth(Veth),
    /// A TAP device.
    Tap(Tap),
    /// A TAP that is the host's own interface in a bridge.
    Internal(Tap),
    /// Packets from a capture file, or to one.
    Pcap(Pcap),
    /// One end of a wire between two ports of ours.
    Patch(Patch),
    /// A ring in memory.
    Ring(Ring),
    /// Receives nothing and swallows what is sent.
    Null,
}

impl PortKind {
    /// The word that names the kind in a file.
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

    /// Our device in the kernel and its namespace (`None`: ours), for the kinds that have one.
    pub fn device(&self) -> Option<(&DeviceName, Option<&Namespace>)> {
        match self {
            PortKind::AfXdp(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Veth(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Tap(port) | PortKind::Internal(port) => Some((&port.device, port.namespace.as_ref())),
            PortKind::Pcap(_) | PortKind::Patch(_) | PortKind::Ring(_) | PortKind::Null => None,
        }
    }

    /// The AF_XDP settings, for the kinds that use it.
    pub fn xdp(&self) -> Option<&XdpOptions> {
        match self {
            PortKind::AfXdp(port) => Some(&port.xdp),
            PortKind::Veth(port) => Some(&port.xdp),
            _ => None,
        }
    }
}

/// A device of the kernel over AF_XDP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AfXdp {
    /// The device.
    pub device: DeviceName,
    /// Its namespace; `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// How AF_XDP is used on it.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// A pair of veth devices that the daemon makes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Veth {
    /// Our end.
    pub device: DeviceName,
    /// Namespace of our end; `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The far end.
    pub peer: Peer,
    /// How AF_XDP is used on our end.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// The far end of a veth pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    /// Its name.
    pub name: DeviceName,
    /// The namespace that it is moved into; `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses that it gets.
    pub address: Vec<InterfaceAddress>,
    /// Its Ethernet address; `None`: the kernel chooses.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Its MTU; `None`: the port's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
}

/// How AF_XDP is used on a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct XdpOptions {
    /// Queues of the device that are served.
    pub queues: Queues,
    /// Where the hook's program runs.
    pub mode: XdpMode,
    /// Whether the driver receives into our memory itself.
    pub zero_copy: ZeroCopy,
    /// Entries of each of the four rings: a power of two, 64..=32768.
    pub ring_size: u32,
    /// SO_BUSY_POLL time in microseconds; 0: off.
    pub busy_poll: u32,
    /// Whether the hook's program outlives the daemon; `None`: if the port is bridged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
    /// What a persistent hook does with packets while the daemon is away; `None`: drop if bridged, else pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_down: Option<WhenDown>,
    /// Whether checksums that a sender left to its device are completed.
    pub complete_checksums: Checksums,
    /// Whose routes its hook forwards by; `None`: nobody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// What says where its packets go besides its room.
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

/// Whose routes a port's hook forwards by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// The kernel's: what it would forward without further ado leaves in the hook.
    Kernel,
}

/// Queues of a device that are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Queues {
    /// All that the device has.
    All,
    /// The first so many.
    First(u16),
    /// These.
    List(Vec<QueueId>),
}

impl Queues {
    /// How many queues this asks for, where the configuration alone says it.
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

/// Where the hook's program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver if it can, else generic; which one is reported.
    Auto,
    /// In the driver or not at all.
    Native,
    /// In the kernel's generic hook.
    Generic,
}

/// Whether the driver receives into our memory itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeroCopy {
    /// If the driver can; what came of it is reported.
    Auto,
    /// Or the port is not opened.
    Require,
    /// Never.
    Off,
}

/// What a persistent hook does with packets while the daemon is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// It drops them: nothing leaks into the host.
    Drop,
    /// It gives them to the kernel.
    Pass,
}

/// Whether checksums that a sender left to its device are completed on receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Where a checksum equals the bare pseudo-header sum, on devices that are not of our making.
    Auto,
    /// Always looked at.
    On,
    /// Never.
    Off,
}

/// A TAP device, or the host's own interface in a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tap {
    /// The device.
    pub device: DeviceName,
    /// Its namespace; `None`: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses that it gets.
    pub address: Vec<InterfaceAddress>,
    /// Its Ethernet address; `None`: the kernel chooses.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Its queues, 1..=256.
    pub queues: u16,
}

/// Packets from a capture file, or to one; at least one of the two is given.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pcap {
    /// File that is received from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// File that transmitted packets are written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// Whether reading begins anew at the file's end (`loop`).
    // Without a file to read, `loop` and `timing` must not be written: they would be refused when read back.
    #[serde(rename = "loop", skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
    /// When packets are received.
    #[serde(skip_serializing_if = "PcapTiming::is_default")]
    pub timing: PcapTiming,
}

/// When a capture file's packets are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PcapTiming {
    /// With the distances that the file's time stamps give.
    File,
    /// As fast as they are taken.
    FlatOut,
}

impl PcapTiming {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == PcapTiming::File
    }
}

/// One end of a wire between two ports of ours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Patch {
    /// The other end: a patch port whose peer is this one. While it is not there, the port is down.
    pub peer: PortName,
}

/// A ring in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ring {
    /// Entries: a power of two, 64..=32768.
    pub size: u32,
}

/// Bytes of the largest L3 packet: 68..=9000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Mtu(u16);

impl Mtu {
    /// The smallest that IPv4 allows (RFC 791).
    pub const MIN: Mtu = Mtu(68);
    /// The largest that ports carry.
    pub const MAX: Mtu = Mtu(9000);
    /// Ethernet's.
    pub const ETHERNET: Mtu = Mtu(1500);

    /// The MTU of so many bytes, if it is within [`Mtu::MIN`] and [`Mtu::MAX`].
    pub const fn new(bytes: u16) -> Option<Mtu> {
        if bytes >= Self::MIN.0 && bytes <= Self::MAX.0 { Some(Mtu(bytes)) } else { None }
    }

    /// Bytes.
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
