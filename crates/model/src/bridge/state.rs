//! State of bridges as plain values: bridges with their members, and the entries of MAC tables.
//!
//! The API sends these values in this form, and the command line reads them. Counters start when the object
//! is created, and only increase.

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};

use crate::table::{Listed, Table};
use crate::{Owner, text};

/// State of a bridge.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeState {
    /// Name of the bridge.
    pub name: String,
    /// Index of the bridge in the data plane.
    pub id: u16,
    /// Owner of the bridge: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Number of entries in the MAC table of the bridge.
    pub macs: u32,
    /// Maximum number of entries in the MAC table of the bridge.
    pub mac_limit: u32,
    /// Ageing time of learned MAC table entries in seconds.
    pub ageing: u32,
    /// Whether IGMP and MLD snooping is enabled on the bridge.
    pub snooping: bool,
    /// Number of multicast groups in the snooping table.
    #[serde(default)]
    pub groups: u32,
    /// Number of MAC table entries that are installed in the hooks (XDP programs) of the members. Absent if the hooks
    /// do not forward for the bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<u32>,
    /// Number of OpenFlow megaflows that are installed in the hooks (XDP programs) of the members. Absent if the hooks
    /// do not forward for the bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_flows: Option<u32>,
    /// MAC table counters since the creation of the bridge.
    #[serde(default)]
    pub counts: BridgeCounts,
    /// Ports that are members of the bridge, with their settings and counters.
    pub members: Vec<MemberState>,
}

impl Listed for BridgeState {
    fn text(bridges: &[BridgeState]) -> String {
        let mut text = String::new();
        for bridge in bridges {
            let snooping =
                if bridge.snooping { format!("{} groups", bridge.groups) } else { "off".to_owned() };
            let hook = bridge.hook.map_or_else(String::new, |stations| format!(", {stations} in the hook"));
            let flows =
                bridge.hook_flows.map(|flows| format!(", {flows} flows in the hook")).unwrap_or_default();
            text.push_str(&format!(
                "{}: {} of {} addresses{hook}{flows}, ageing {} s, snooping {snooping}, owner {}\n",
                bridge.name, bridge.macs, bridge.mac_limit, bridge.ageing, bridge.owner
            ));
            text.push_str(&MemberState::text(&bridge.members));
        }
        text
    }
}

/// MAC table counters of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BridgeCounts {
    /// Number of MAC addresses that were learned.
    pub learned: u64,
    /// Number of MAC table entries that expired.
    pub expired: u64,
    /// Number of MAC table entries that were evicted because the table was full.
    pub evicted: u64,
    /// Number of times that a MAC address moved to another port.
    pub moved: u64,
}

impl BridgeCounts {
    /// Returns by how much these counters exceed the earlier values `before`.
    #[must_use]
    pub fn since(self, before: BridgeCounts) -> BridgeCounts {
        BridgeCounts {
            learned: self.learned.saturating_sub(before.learned),
            expired: self.expired.saturating_sub(before.expired),
            evicted: self.evicted.saturating_sub(before.evicted),
            moved: self.moved.saturating_sub(before.moved),
        }
    }
}

/// A port with a multicast group membership, or a port through which a multicast router is reachable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MulticastMember {
    /// VLAN of the group membership or of the multicast router.
    pub vlan: VlanId,
    /// IP address of the multicast group. `None`: a multicast router is reachable through the port.
    pub group: Option<std::net::IpAddr>,
    /// Name of the port on which the group member or the multicast router is.
    pub port: String,
    /// Seconds since the last membership report (for a multicast router, the last query or PIM hello) on the port.
    pub age_s: u32,
}

/// State of a member of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberState {
    /// Name of the port that is a member of the bridge.
    pub port: String,
    /// Owner of the membership: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// VLANs of the member, such as `access 10` or `trunk 10, 20-29, native 1`.
    pub vlans: String,
    /// Whether the member is protected: it exchanges no frames with the other protected members.
    pub protected: bool,
    /// Number of MAC addresses that the bridge has learned on the member.
    pub macs: u32,
    /// Number of times that a MAC address moved from another member to this member.
    #[serde(default)]
    pub moves: u64,
}

impl Listed for MemberState {
    fn text(members: &[MemberState]) -> String {
        Table::of(members)
            .text("  PORT", |member| format!("  {}", member.port))
            .text("VLANS", |member| member.vlans.clone())
            .number("ADDRESSES", |member| member.macs.to_string())
            .count("MOVES", |member| member.moves)
            .text("PROTECTED", |member| if member.protected { "yes" } else { "-" }.to_owned())
            .text("OWNER", |member| member.owner.to_string())
            .render()
    }
}

/// An entry of a bridge's MAC table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FdbEntry {
    /// Name of the bridge.
    pub bridge: String,
    /// VLAN of the entry. 0 if the bridge has no VLANs.
    #[serde(with = "text::vlan")]
    #[cfg_attr(feature = "schema", schema(value_type = u16))]
    pub vlan: VlanId,
    /// MAC address of the entry.
    #[serde(with = "text::mac")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub mac: MacAddr,
    /// Name of the port on which the MAC address was learned or configured.
    pub port: String,
    /// Seconds since the last frame from the MAC address arrived.
    pub age_s: u32,
    /// Whether the entry is static. A static entry was configured, and neither expires nor moves to another port.
    #[serde(rename = "static")]
    pub is_static: bool,
}

impl Listed for FdbEntry {
    fn text(entries: &[FdbEntry]) -> String {
        let age = |entry: &FdbEntry| match entry.is_static {
            true => "static".to_owned(),
            false => format!("{} s", entry.age_s),
        };
        Table::of(entries)
            .text("BRIDGE", |entry| entry.bridge.clone())
            .number("VLAN", |entry| entry.vlan.to_string())
            .text("ADDRESS", |entry| entry.mac.to_string())
            .text("PORT", |entry| entry.port.clone())
            .number("AGE", age)
            .render()
    }
}

/// Query for MAC table entries. Absent criteria match all entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FdbFilter {
    /// Name of the bridge whose entries are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Name of the port of the selected entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// VLAN of the selected entries.
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// Selects only entries with this MAC address. `None` selects entries with any address.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Maximum number of entries in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl FdbFilter {
    /// Returns whether an entry matches all criteria of the filter. The maximum number of results is not
    /// considered.
    pub fn matches(&self, entry: &FdbEntry) -> bool {
        self.bridge.as_ref().is_none_or(|bridge| *bridge == entry.bridge)
            && self.port.as_ref().is_none_or(|port| *port == entry.port)
            && self.vlan.is_none_or(|vlan| vlan == entry.vlan)
            && self.mac.is_none_or(|mac| mac == entry.mac)
    }
}
