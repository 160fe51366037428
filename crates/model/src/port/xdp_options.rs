//! AF_XDP settings of ports whose queues are sockets of a kernel device.

use packet::QueueId;
use serde::Serialize;

use crate::load::fields::{Fields, Findings, RING_BOUNDS, number_in};
use crate::load::tree::Value;
use crate::{Cause, SteeringName, text};

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
    /// How a persistent hook handles packets while no daemon runs. `None`: the hook of a bridged port drops packets,
    /// the hook of any other port passes packets to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_down: Option<WhenDown>,
    /// Whether the daemon completes the checksums of received packets if the sender left this
    /// computation to its network device.
    pub complete_checksums: Checksums,
    /// Source of the routes according to which the hook forwards packets. `None`: the hook does not route.
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

/// Source of the routes according to which a port's hook forwards packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Routes of the kernel. The hook transmits packets that the kernel would forward without any other processing.
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

/// How a persistent hook handles packets while no daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// Drops the packets. No traffic reaches the network stack of the host.
    Drop,
    /// Passes the packets to the kernel.
    Pass,
}

/// Whether the daemon completes the checksums of received packets if the sender left this
/// computation to its network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Completes checksums that cover only the pseudo-header. Applies to devices that the daemon
    /// did not create.
    Auto,
    /// Checks and completes checksums on every device.
    On,
    /// Does not complete checksums.
    Off,
}

impl XdpOptions {
    /// Keys of `[port.NAME]` that are AF_XDP settings. The key `queues` is not included, because
    /// other kinds of ports also have this key.
    pub(crate) const KEYS: [&str; 9] = [
        "mode",
        "zero_copy",
        "ring_size",
        "busy_poll",
        "persist",
        "when_down",
        "complete_checksums",
        "routing",
        "steering",
    ];

    /// Returns whether a change of the setting with this key is possible without a new port.
    pub(crate) fn changes_live(key: &str) -> bool {
        matches!(key, "complete_checksums" | "when_down" | "steering" | "routing")
    }

    /// Reads the AF_XDP settings of a port.
    pub(crate) fn read(fields: &mut Fields<'_>, findings: &mut Findings) -> XdpOptions {
        let default = XdpOptions::default();
        let modes = [XdpMode::Auto, XdpMode::Native, XdpMode::Generic];
        let zero_copies = [ZeroCopy::Auto, ZeroCopy::Require, ZeroCopy::Off];
        let checksums = [Checksums::Auto, Checksums::On, Checksums::Off];
        XdpOptions {
            queues: read_queues(fields, findings).unwrap_or(default.queues),
            mode: fields
                .word("mode", &["auto", "native", "generic"], &modes, findings)
                .unwrap_or(default.mode),
            zero_copy: fields
                .word("zero_copy", &["auto", "require", "off"], &zero_copies, findings)
                .unwrap_or(default.zero_copy),
            ring_size: fields.power_of_two("ring_size", RING_BOUNDS, findings).unwrap_or(default.ring_size),
            busy_poll: fields.number("busy_poll", (0, 10_000), " us", findings).unwrap_or(default.busy_poll),
            persist: fields.flag("persist", findings),
            when_down: fields.word(
                "when_down",
                &["drop", "pass"],
                &[WhenDown::Drop, WhenDown::Pass],
                findings,
            ),
            complete_checksums: fields
                .word("complete_checksums", &["auto", "on", "off"], &checksums, findings)
                .unwrap_or(default.complete_checksums),
            routing: fields.word("routing", &["kernel"], &[Routing::Kernel], findings),
            steering: fields.parsed(
                "steering",
                |text, source| Cause::BadName { text, what: "steering", source },
                findings,
            ),
        }
    }
}

fn read_queues(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Queues> {
    let entry = fields.get("queues", findings)?;
    let object = fields.path("queues");
    match &entry.node.value {
        Value::Text(text) if text == "all" => Some(Queues::All),
        Value::Integer(_) => number_in(&object, &entry.node, (1, 256), "", findings).map(Queues::First),
        Value::List(items) if items.is_empty() => {
            findings.add(
                entry.node.place,
                object,
                Cause::Missing { key: "a queue", example: "queues = [0]" },
            );
            None
        }
        Value::List(_) => {
            let queues = fields.numbers("queues", (0, 255), "queue", findings)?;
            Some(Queues::List(queues.into_iter().map(QueueId).collect()))
        }
        other => {
            let expected = "a number of queues, a list of queues, or \"all\"";
            findings.add(entry.node.place, object, Cause::WrongType { expected, found: other.found() });
            None
        }
    }
}

impl std::fmt::Display for WhenDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WhenDown::Drop => "drop",
            WhenDown::Pass => "pass",
        })
    }
}
