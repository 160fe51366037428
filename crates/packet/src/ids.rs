//! The small identities that every floor speaks: ports, queues, workers, bridges and VLANs.
//!
//! They are plain numbers wrapped so that a queue cannot be passed where a port is meant. Numbers are handed out by
//! the control plane; `model` maps them to names. VLAN identifiers follow IEEE 802.1Q clause 9.6.

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
            /// The number as an index into a table with one place per identity.
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
    /// A port of the data plane, whatever its kind. Numbers are dense, so that they can index tables.
    PortId
}
id! {
    /// A receive and transmit queue of one port.
    QueueId
}
id! {
    /// A data-path thread.
    WorkerId
}
id! {
    /// A bridge (switch instance).
    BridgeId
}

/// A VLAN identifier: 1..=4094, or [`VlanId::NONE`] (0) where no VLAN domain is meant.
///
/// On the wire VID 0 is a priority tag (it names no VLAN) and 4095 is reserved, so neither can be configured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct VlanId(u16);

impl VlanId {
    /// No VLAN domain: untagged and priority-tagged traffic, and bridges that do not look at VLANs.
    pub const NONE: VlanId = VlanId(0);
    /// The smallest identifier that can be configured.
    pub const MIN: VlanId = VlanId(1);
    /// The largest identifier that can be configured.
    pub const MAX: VlanId = VlanId(4094);

    /// The VLAN with this identifier; `None` unless it is 1..=4094.
    #[inline]
    pub const fn new(vid: u16) -> Option<VlanId> {
        if vid >= 1 && vid <= 4094 { Some(VlanId(vid)) } else { None }
    }

    /// The VLAN that the twelve VID bits of a tag name: [`VlanId::NONE`] for a priority tag, `None` for 4095.
    #[inline]
    pub const fn from_tag(tci: u16) -> Option<VlanId> {
        let vid = tci & 0x0fff;
        if vid == 0x0fff { None } else { Some(VlanId(vid)) }
    }

    /// The identifier, 0..=4094.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The identifier as an index into a table of 4,096 places.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this names no VLAN domain.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The tags of the frames of one VLAN on a port: one (IEEE 802.1Q), or a customer's behind a provider's ("QinQ", IEEE 802.1ad).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VlanTags {
    /// The only one, or the provider's.
    pub outer: VlanId,
    /// The customer's, of IEEE 802.1Q.
    pub inner: Option<VlanId>,
    /// Whether the outer one is a service tag (EtherType 0x88a8).
    pub service: bool,
}

impl VlanTags {
    /// One tag of IEEE 802.1Q.
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
