//! The snooped multicast groups of a bridge, as an immutable table that workers read.
//!
//! The [`crate::Snooper`] makes the table on a control thread, and [`crate::Bridge::with_groups`] publishes it to
//! workers. The key of the table is the VLAN and the IP address, not the MAC address (RFC 4541 section 2.1.2, item 5),
//! because 32 IPv4 groups share one MAC address.

use std::net::IpAddr;

use packet::{PortId, VlanId};

/// Index of the empty port list. As the index of a VLAN's router ports, it states that there are no multicast routers.
pub(crate) const NOBODY: u16 = 0;

/// The address family of a multicast group, with its membership protocol (IGMP or MLD). The ports of multicast routers
/// are known separately for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, with IGMP as the membership protocol.
    V4,
    /// IPv6, with MLD as the membership protocol.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// A known multicast group and the ports of its listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPorts {
    /// VLAN of the group. The value is [`VlanId::NONE`] for transparent ports.
    pub vid: VlanId,
    /// IP address of the group.
    pub group: IpAddr,
    /// Ports with listeners.
    pub members: Vec<PortId>,
}

/// The ports of a VLAN that lead to multicast routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPorts {
    /// VLAN of the routers. The value is [`VlanId::NONE`] for transparent ports.
    pub vid: VlanId,
    /// Address family in which the routers are known: IPv4 (IGMP) or IPv6 (MLD).
    pub family: Family,
    /// Ports with multicast routers.
    pub ports: Vec<PortId>,
}

/// The snooped groups and multicast routers of a bridge: an immutable table that workers read.
#[derive(Clone, Debug)]
pub struct Groups {
    seed: u64,
    /// Hash table of the known groups, with linear probing. The length of the table is a power of
    /// two, and at most half of its slots are in use. The table is empty if no group is known.
    places: Box<[Place]>,
    /// For each VLAN and address family with multicast routers, the index (in `lists`) of the list of router ports.
    /// The elements are sorted.
    routers: Box<[(u16, Family, u16)]>,
    /// Lists of output ports, each sorted. The first list is empty.
    lists: Box<[Box<[PortId]>]>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    address: u128,
    vid: u16,
    /// Index of the group's port list. [`NOBODY`] marks an empty slot of the hash table, because a known group has at
    /// least one listener port.
    list: u16,
}

const EMPTY: Place = Place { address: 0, vid: 0, list: NOBODY };

impl Groups {
    /// Returns a table without groups. A bridge with this table floods all multicast frames.
    pub fn none() -> Groups {
        Groups::new(&[], &[], 0)
    }

    /// Builds the table from groups and routers. A group's frames are also forwarded to the routers
    /// of its VLAN and address family. Groups without listeners, and groups beyond the first
    /// 60,000, are left out, and their frames are flooded. `seed` is the key of the hash function.
    /// The seed must be secret, because a sender that knows the seed can choose groups whose hashes
    /// collide, which slows lookups down.
    pub fn new(groups: &[GroupPorts], routers: &[RouterPorts], seed: u64) -> Groups {
        let mut lists: Vec<Box<[PortId]>> = vec![Box::default()];
        let mut router_lists = Vec::new();
        for router in routers.iter().filter(|router| !router.ports.is_empty()) {
            if let Some(list) = add_list(&mut lists, router.ports.iter().copied()) {
                router_lists.push((router.vid.get(), router.family, list));
            }
        }
        router_lists.sort_unstable();
        let places = (groups.len() * 2).next_power_of_two();
        let mut table = Groups {
            seed,
            places: vec![EMPTY; if groups.is_empty() { 0 } else { places }].into(),
            routers: router_lists.into(),
            lists: Box::default(),
        };
        for group in groups.iter().filter(|group| !group.members.is_empty()) {
            let routers = &lists[usize::from(table.routers(group.vid.get(), Family::of(group.group)))];
            let ports: Vec<_> = routers.iter().chain(&group.members).copied().collect();
            if let Some(list) = add_list(&mut lists, ports.into_iter()) {
                table.put(Place { address: wide(group.group), vid: group.vid.get(), list });
            }
        }
        table.lists = lists.into();
        table
    }

    /// Returns the index of the group's port list. Returns `None` if the group is not known.
    #[inline]
    pub(crate) fn find(&self, vid: u16, group: IpAddr) -> Option<u16> {
        if self.places.is_empty() {
            return None;
        }
        let address = wide(group);
        let mut at = self.home(vid, address);
        loop {
            let place = self.places[at];
            if place.list == NOBODY {
                return None;
            }
            if place.vid == vid && place.address == address {
                return Some(place.list);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// Returns the index of the list of a VLAN's router ports for an address family. Returns
    /// [`NOBODY`] if there are no router ports.
    #[inline]
    pub(crate) fn routers(&self, vid: u16, family: Family) -> u16 {
        let at = self.routers.binary_search_by(|(v, f, _)| (*v, *f).cmp(&(vid, family)));
        at.map_or(NOBODY, |at| self.routers[at].2)
    }

    /// Returns the ports of the list with the index `list`, in ascending order.
    pub(crate) fn ports(&self, list: u16) -> &[PortId] {
        self.lists.get(usize::from(list)).map_or(&[], |ports| ports)
    }

    /// Returns the number of known groups.
    pub fn len(&self) -> usize {
        self.places.iter().filter(|place| place.list != NOBODY).count()
    }

    /// Returns whether no group is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn put(&mut self, place: Place) {
        let mut at = self.home(place.vid, place.address);
        while self.places[at].list != NOBODY
            && (self.places[at].vid, self.places[at].address) != (place.vid, place.address)
        {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = place;
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of a product apart, then masks")]
    fn home(&self, vid: u16, address: u128) -> usize {
        let mixed =
            fold(address as u64 ^ self.seed, (address >> 64) as u64 ^ u64::from(vid) ^ 0x9e37_79b9_7f4a_7c15);
        fold(mixed ^ self.seed.rotate_left(32), 0xd6e8_feb8_6659_fd93) as usize & (self.places.len() - 1)
    }
}

impl Default for Groups {
    fn default() -> Self {
        Groups::none()
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes the halves of a product apart")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Appends a list of ports to `lists`, sorted and without duplicates. Returns the index of the new list, or `None`
/// if all indices are in use.
fn add_list(lists: &mut Vec<Box<[PortId]>>, ports: impl Iterator<Item = PortId>) -> Option<u16> {
    let number = u16::try_from(lists.len()).ok().filter(|&number| number < 60_001)?;
    let mut ports: Vec<PortId> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    lists.push(ports.into());
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn vlan(vid: u16) -> VlanId {
        VlanId::new(vid).unwrap_or(VlanId::NONE)
    }

    #[test]
    fn ipv4_and_ipv6_groups_with_equal_low_bits_differ() {
        let v4: IpAddr = "239.1.2.3".parse().unwrap();
        let v6 = IpAddr::V6(std::net::Ipv6Addr::from(u128::from(u32::from_be_bytes([239, 1, 2, 3]))));
        // `::239.1.2.3` is not a multicast address, so that a table never holds both.
        assert_eq!(wide(v4), wide(v6));
        assert!(!v6.is_multicast());
    }

    proptest! {
        #[test]
        fn a_table_finds_what_a_map_finds(
            groups in prop::collection::vec((0u16..4, 0u8..40, prop::collection::btree_set(0u16..9, 1..5)), 0..60),
            routers in prop::collection::btree_map((0u16..4, any::<bool>()), prop::collection::vec(0u16..9, 0..4), 0..6),
            seed: u64,
        ) {
            let address = |low: u8| -> IpAddr {
                if low.is_multiple_of(2) { [239, 0, 0, low].into() } else { [0xff05, 0, 0, 0, 0, 0, 0, u16::from(low)].into() }
            };
            let groups: BTreeMap<_, _> =
                groups.into_iter().map(|(vid, low, members)| ((vid, address(low)), members)).collect();
            let given: Vec<_> = groups.iter().map(|((vid, group), members)| GroupPorts {
                vid: vlan(*vid), group: *group, members: members.iter().map(|&port| PortId(port)).collect(),
            }).collect();
            let family = |v6| if v6 { Family::V6 } else { Family::V4 };
            let given_routers: Vec<_> = routers.iter().map(|((vid, v6), ports)| RouterPorts {
                vid: vlan(*vid), family: family(*v6), ports: ports.iter().map(|&port| PortId(port)).collect(),
            }).collect();
            let table = Groups::new(&given, &given_routers, seed);
            prop_assert_eq!(table.len(), groups.len());
            for vid in 0..4 {
                for low in 0..40 {
                    let group = address(low);
                    let router_ports = routers.get(&(vid, group.is_ipv6())).cloned().unwrap_or_default();
                    let mut expected: Vec<u16> = router_ports.clone();
                    let members = groups.get(&(vid, group));
                    members.iter().for_each(|members| expected.extend(members.iter()));
                    expected.sort_unstable();
                    expected.dedup();
                    let found = table.find(vid, group);
                    prop_assert_eq!(found.is_some(), members.is_some());
                    if let Some(list) = found {
                        prop_assert_eq!(table.ports(list).iter().map(|port| port.0).collect::<Vec<_>>(), expected);
                    }
                    let mut expected = router_ports;
                    expected.sort_unstable();
                    expected.dedup();
                    let found = table.routers(vid, Family::of(group));
                    prop_assert_eq!(table.ports(found).iter().map(|port| port.0).collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
