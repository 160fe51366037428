//! Kinds of ports. Each kind has a file with the properties that the configuration uses: the
//! settings and keys of the kind, the checks of the settings, the changes that are possible without
//! a new port, and the files and devices that the settings name. This file lists each kind in the
//! module declarations, in [`PortKind`], in [`KINDS`] and in [`PortKind::name`].

mod af_xdp;
mod null;
mod patch;
mod pcap;
mod ring;
pub(crate) mod settings;
mod tap;
mod veth;

pub use af_xdp::AfXdp;
pub use patch::Patch;
pub use pcap::{Pcap, PcapTiming};
pub use ring::Ring;
pub use tap::Tap;
pub use veth::{Peer, Veth};

use null::Null;
use serde::Serialize;
use settings::{DeviceInNamespace, KindSettings};

use super::xdp_options::XdpOptions;
use crate::PortName;
use crate::load::fields::{Fields, Findings};

/// Kind of a port, with the settings of this kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortKind {
    /// A kernel device, accessed through AF_XDP.
    AfXdp(AfXdp),
    /// A pair of veth devices that the daemon creates. The daemon uses the near device through AF_XDP. The peer device
    /// is for a container or another namespace.
    Veth(Veth),
    /// A TAP device.
    Tap(Tap),
    /// A TAP device through which the host itself is connected to a bridge.
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

/// Describes how the ports of one kind are read from a configuration.
pub(crate) struct KindEntry {
    /// Configuration keyword of the port kind.
    pub name: &'static str,
    /// Keys of `[port.NAME]` that are valid for this kind, but not for all kinds.
    pub keys: &'static [&'static [&'static str]],
    /// Whether the ports receive packets, and can therefore have a filter.
    pub receives: bool,
    /// Function that reads the settings of a port of this kind.
    pub read: fn(&PortName, &mut Fields<'_>, &mut Findings) -> Option<PortKind>,
}

/// All kinds of ports, in the order in which messages list them.
pub(crate) const KINDS: [KindEntry; 8] = [
    KindEntry {
        name: "af_xdp",
        keys: &[AfXdp::KEYS, &XdpOptions::KEYS],
        receives: true,
        read: |name, fields, findings| AfXdp::read(name, fields, findings).map(PortKind::AfXdp),
    },
    KindEntry {
        name: "veth",
        keys: &[Veth::KEYS, &XdpOptions::KEYS],
        receives: true,
        read: |name, fields, findings| Veth::read(name, fields, findings).map(PortKind::Veth),
    },
    KindEntry {
        name: "tap",
        keys: &[Tap::KEYS],
        receives: true,
        read: |name, fields, findings| Tap::read(name, fields, findings).map(PortKind::Tap),
    },
    KindEntry {
        name: "internal",
        keys: &[Tap::KEYS],
        receives: true,
        read: |name, fields, findings| Tap::read(name, fields, findings).map(PortKind::Internal),
    },
    KindEntry {
        name: "pcap",
        keys: &[Pcap::KEYS],
        receives: true,
        read: |_, fields, findings| Some(PortKind::Pcap(Pcap::read(fields, findings))),
    },
    KindEntry {
        name: "patch",
        keys: &[Patch::KEYS],
        receives: true,
        read: |_, fields, findings| Patch::read(fields, findings).map(PortKind::Patch),
    },
    KindEntry {
        name: "ring",
        keys: &[Ring::KEYS],
        receives: true,
        read: |_, fields, findings| Some(PortKind::Ring(Ring::read(fields, findings))),
    },
    KindEntry { name: "null", keys: &[], receives: false, read: |_, _, _| Some(PortKind::Null) },
];

/// Configuration keywords of the port kinds, in the order of [`KINDS`].
pub(crate) const KIND_NAMES: &[&str] = &{
    let mut names = [""; KINDS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = KINDS[at].name;
        at += 1;
    }
    names
};

impl PortKind {
    fn name_and_settings(&self) -> (&'static str, &dyn KindSettings) {
        match self {
            PortKind::AfXdp(settings) => ("af_xdp", settings),
            PortKind::Veth(settings) => ("veth", settings),
            PortKind::Tap(settings) => ("tap", settings),
            PortKind::Internal(settings) => ("internal", settings),
            PortKind::Pcap(settings) => ("pcap", settings),
            PortKind::Patch(settings) => ("patch", settings),
            PortKind::Ring(settings) => ("ring", settings),
            PortKind::Null => ("null", &Null),
        }
    }

    /// Returns the settings of the kind through the interface that checks and comparisons of
    /// configurations use.
    pub(crate) fn settings(&self) -> &dyn KindSettings {
        self.name_and_settings().1
    }

    /// Returns the configuration keyword of the port kind.
    pub fn name(&self) -> &'static str {
        self.name_and_settings().0
    }

    /// Returns the kernel device of a port of this kind, and the device's namespace. The namespace is `None` for the
    /// daemon's own namespace. Returns `None` for kinds that have no device.
    pub fn device(&self) -> Option<DeviceInNamespace<'_>> {
        self.settings().device()
    }

    /// Returns the peer device of a veth pair, and the device's namespace. Returns `None` for kinds of ports without a
    /// pair of devices.
    pub fn far_device(&self) -> Option<DeviceInNamespace<'_>> {
        self.settings().far_device()
    }

    /// Returns the AF_XDP settings of the port. Returns `None` for kinds that do not use AF_XDP.
    pub fn xdp(&self) -> Option<&XdpOptions> {
        self.settings().xdp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_one_name_in_its_entry_its_port_and_its_serialized_form() {
        for kind in KINDS {
            let keys = match kind.name {
                "veth" => "peer = { name = 'far' }",
                "pcap" => "read = '/file.pcap'",
                "patch" => "peer = 'other'",
                _ => "",
            };
            let text = format!("[port.p]\nkind = '{}'\n{keys}", kind.name);
            let config = crate::load(&text, "t").unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
            let read = &config.ports["p"].kind;
            let written = serde_json::to_value(read).unwrap();
            assert_eq!((read.name(), written["kind"].as_str()), (kind.name, Some(kind.name)));
        }
        assert_eq!(KIND_NAMES, KINDS.map(|kind| kind.name));
    }
}
