//! How values of other floors are written in JSON and TOML: addresses as text, numbered identities as numbers.
//!
//! `packet` stays free of serde, so the forms are given here field by field (`#[serde(with = "...")]`).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Ethernet addresses as `02:00:00:00:00:01`.
pub mod mac {
    use super::*;
    use packet::MacAddr;

    pub fn serialize<S: Serializer>(mac: &MacAddr, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mac)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MacAddr, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Ethernet addresses that may be absent.
pub mod mac_option {
    use super::*;
    use packet::MacAddr;

    pub fn serialize<S: Serializer>(mac: &Option<MacAddr>, to: S) -> Result<S::Ok, S::Error> {
        mac.map(|mac| mac.to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MacAddr>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// VLAN identifiers as numbers 0..=4094, where 0 is "no VLAN domain".
pub mod vlan {
    use super::*;
    use packet::VlanId;

    pub fn serialize<S: Serializer>(vlan: &VlanId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u16(vlan.get())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<VlanId, D::Error> {
        match u16::deserialize(from)? {
            0 => Ok(VlanId::NONE),
            vid => VlanId::new(vid).ok_or_else(|| D::Error::custom("a VLAN identifier is 1..=4094")),
        }
    }
}

/// VLAN identifiers that may be absent.
pub mod vlan_option {
    use super::*;
    use packet::VlanId;

    pub fn serialize<S: Serializer>(vlan: &Option<VlanId>, to: S) -> Result<S::Ok, S::Error> {
        vlan.map(VlanId::get).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<VlanId>, D::Error> {
        let vid = Option::<u16>::deserialize(from)?;
        vid.map(|vid| VlanId::new(vid).ok_or_else(|| D::Error::custom("a VLAN identifier is 1..=4094")))
            .transpose()
    }
}

/// Numbered identities (workers, queues) as plain numbers in a list.
pub mod ids {
    use super::*;

    pub fn serialize<T: Copy + Into<u16>, S: Serializer>(ids: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|&id| -> u16 { id.into() }))
    }
}
