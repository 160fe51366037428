//! Identifiers of ports, queues, workers, bridges and VLANs, which all crates use.
//!
//! Each kind of identifier has a separate type. Therefore a queue cannot be passed where a port is
//! expected. The control plane assigns the identifiers, and the `model` crate maps them to names.
//! VLAN identifiers follow IEEE 802.1Q clause 9.6.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub u16);

        impl $name {
            /// Returns the identifier as an index into a table with one entry for each identifier.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u16> for $name {
            fn from(number: u16) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u16 {
            fn from(id: $name) -> u16 {
                id.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map(Self)
            }
        }
    };
}

id! {
    /// Identifier of a data plane port of any kind. The identifiers are consecutive, and can therefore index
    /// tables.
    PortId
}
id! {
    /// Identifier of a queue pair (receive queue and transmit queue) of one port.
    QueueId
}
id! {
    /// Identifier of a worker, which is a thread of the data path.
    WorkerId
}
id! {
    /// Identifier of a bridge.
    BridgeId
}

/// A VLAN identifier: 1..=4094, or [`VlanId::NONE`] (0) for traffic without a VLAN.
///
/// On the wire, identifier 0 marks a priority tag, which names no VLAN, and identifier 4095 is
/// reserved. Therefore neither identifier can be configured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct VlanId(u16);

impl VlanId {
    /// Value for traffic without a VLAN: untagged and priority-tagged traffic, and traffic of bridges that
    /// ignore VLANs.
    pub const NONE: VlanId = VlanId(0);
    /// Smallest VLAN identifier that can be configured.
    pub const MIN: VlanId = VlanId(1);
    /// Largest VLAN identifier that can be configured.
    pub const MAX: VlanId = VlanId(4094);

    /// Returns the VLAN with this identifier. Returns `None` if `vid` is not in 1..=4094.
    #[inline]
    pub const fn new(vid: u16) -> Option<VlanId> {
        if vid >= 1 && vid <= 4094 { Some(VlanId(vid)) } else { None }
    }

    /// Returns the VLAN for the twelve identifier bits of a tag. Returns [`VlanId::NONE`] for a priority tag,
    /// and `None` for the reserved identifier 4095.
    #[inline]
    pub const fn from_tag(tci: u16) -> Option<VlanId> {
        let vid = tci & 0x0fff;
        if vid == 0x0fff { None } else { Some(VlanId(vid)) }
    }

    /// Returns the VLAN identifier, 0..=4094.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the VLAN identifier as an index into a table of 4,096 entries.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns whether the value is [`VlanId::NONE`], which represents traffic without a VLAN.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// VLAN tags that the frames of one VLAN have on a port: one tag (IEEE 802.1Q), or a customer tag inside a
/// service tag ("QinQ", IEEE 802.1ad).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VlanTags {
    /// VLAN of the outer tag, or of the only tag.
    pub outer: VlanId,
    /// VLAN of the inner customer tag (IEEE 802.1Q). `None` if there is only one tag.
    pub inner: Option<VlanId>,
    /// Whether the outer tag is a service tag (TPID 0x88a8).
    pub service: bool,
}

impl VlanTags {
    /// Returns the tags of a frame with one IEEE 802.1Q tag.
    pub const fn one(vlan: VlanId) -> VlanTags {
        VlanTags { outer: vlan, inner: None, service: false }
    }
}

impl fmt::Display for VlanTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            None => self.outer.fmt(f),
            Some(inner) => write!(f, "{}.{inner}", self.outer),
        }
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_identifiers_are_checked() {
        assert_eq!(VlanId::new(0), None);
        assert_eq!(VlanId::new(1), Some(VlanId::MIN));
        assert_eq!(VlanId::new(4094), Some(VlanId::MAX));
        assert_eq!(VlanId::new(4095), None);
        assert_eq!(VlanId::from_tag(0xe000), Some(VlanId::NONE));
        assert_eq!(VlanId::from_tag(0xe00a).map(VlanId::get), Some(10));
        assert_eq!(VlanId::from_tag(0x1fff), None);
    }

    #[test]
    fn ids_print_and_read_as_plain_numbers() {
        assert_eq!(PortId(7).to_string(), "7");
        assert_eq!("65535".parse(), Ok(QueueId(65535)));
        assert!("65536".parse::<WorkerId>().is_err());
        assert_eq!(BridgeId(3).index(), 3);
    }
}
