//! Serialized forms (JSON and TOML) of values of the `packet` crate. Addresses are serialized as text, numeric
//! identifiers as numbers.
//!
//! The types of these values have no serialized form of their own. Each field therefore selects its serialized form
//! with `#[serde(with = "...")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Ethernet addresses in the form `02:00:00:00:00:01`.
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

/// Optional Ethernet addresses in the form `02:00:00:00:00:01`.
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

/// VLAN identifiers as numbers 0..=4094, where 0 means no VLAN.
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

/// Optional VLAN identifiers as numbers.
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

/// Lists of numeric identifiers (workers, queues) as numbers.
pub mod ids {
    use super::*;

    pub fn serialize<T: Copy + Into<u16>, S: Serializer>(ids: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|&id| -> u16 { id.into() }))
    }
}
