//! Detects changed Ethernet addresses of a router's IP addresses, and records which announcements must still be sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use packet::MacAddr;

/// Number of announcements for each IP address whose Ethernet address has changed. The announcements are sent one
/// second apart. A single one could get lost, because the link may not be up yet at the device's peer.
pub const TIMES: u8 = 3;

/// Maximum number of announcements in one second. Additional announcements are sent one second later.
pub const AT_ONCE: usize = 64;

/// Number of recorded IP addresses above which addresses that no longer exist are removed from the record.
const KNOWN: usize = 4096;

/// Ethernet addresses that a router's own IP addresses had at the last check, and the number of announcements that
/// must still be sent for each address.
#[derive(Default)]
pub struct Announcer {
    known: BTreeMap<Place, MacAddr>,
    due: BTreeMap<Place, u8>,
}

/// An IP address and the name of its device. Several devices may have the same link-local or anycast address.
pub type Place = (IpAddr, String);

/// An IP address of a router, with the interface index and the Ethernet address of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub place: Place,
    pub index: u32,
    pub mac: MacAddr,
}

impl Announcer {
    /// Compares the Ethernet addresses of the router's IP addresses with those of the last check. Returns the IP
    /// addresses to announce now. This function is called once a second.
    pub fn look(&mut self, own: &[Own]) -> Vec<Own> {
        for it in own {
            if self.known.insert(it.place.clone(), it.mac).is_some_and(|before| before != it.mac) {
                self.due.insert(it.place.clone(), TIMES);
            }
        }
        if self.known.len() > KNOWN {
            let seen: BTreeSet<&Place> = own.iter().map(|it| &it.place).collect();
            self.known.retain(|place, _| seen.contains(place));
        }
        let left = |it: &&Own| self.due.get(&it.place).copied();
        let mut now: Vec<&Own> = own.iter().filter(|it| left(it).is_some()).collect();
        let there: BTreeSet<&Place> = now.iter().map(|it| &it.place).collect();
        let gone: Vec<Place> = self.due.keys().filter(|place| !there.contains(place)).cloned().collect();
        // Addresses with the smallest number of announcements so far come first.
        now.sort_by_key(|it| Reverse(left(it)));
        let mut now: Vec<Own> = now.into_iter().take(AT_ONCE).cloned().collect();
        for place in now.iter().map(|it| &it.place).chain(&gone) {
            let Some(left) = self.due.get_mut(place) else { continue };
            *left -= 1;
            if *left == 0 {
                self.due.remove(place);
            }
        }
        now.sort_by(|one, other| (one.index, &one.place).cmp(&(other.index, &other.place)));
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_announced_where_its_ethernet_address_changes() {
        let (one, two) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let at = |address: &str, device: &str, index, mac| Own {
            place: (address.parse().unwrap(), device.to_owned()),
            index,
            mac,
        };
        let four = |index, mac| at("10.8.1.1", "h1", index, mac);
        let six = |index, mac| at("fd00:8:1::1", "h1", index, mac);
        let mut announcer = Announcer::default();
        assert_eq!(announcer.look(&[four(3, one), six(3, one)]), []);
        // The device and its addresses disappear. A new device gets the addresses, one after the other.
        assert_eq!(announcer.look(&[]), []);
        assert_eq!(announcer.look(&[four(4, two)]), [four(4, two)]);
        let both = [four(4, two), six(4, two)];
        assert_eq!(announcer.look(&both), both);
        assert_eq!(announcer.look(&both), both);
        assert_eq!(announcer.look(&both), [six(4, two)]);
        assert_eq!(announcer.look(&both), []);
        // An unchanged Ethernet address causes no announcement.
        assert_eq!(announcer.look(&[four(5, two)]), []);
    }

    #[test]
    fn an_address_of_several_devices_is_announced_at_none() {
        let own = [("left", 3), ("right", 4)].map(|(device, index)| Own {
            place: ("fe80::1".parse().unwrap(), device.to_owned()),
            index: u32::from(index),
            mac: MacAddr([2, 0, 0, 0, 0, index]),
        });
        let mut announcer = Announcer::default();
        for _ in 0..3 {
            assert_eq!(announcer.look(&own), []);
        }
    }
}
