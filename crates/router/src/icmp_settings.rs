//! Settings of the ICMP error messages that a router sends: the ingress interfaces for whose packets the router sends
//! errors, and the source addresses of the errors.

use std::net::IpAddr;

use packet::net::InterfaceAddress;

use crate::address_bits::bits_of;

/// Settings of the ICMP error messages that a router sends, by interface number.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    own: Vec<Own>,
}

/// Settings of the ICMP error messages for one interface.
#[derive(Clone, Debug, Default)]
struct Own {
    /// Whether ICMP errors are sent for packets that arrive on the interface.
    tells: bool,
    four: Vec<Address>,
    six: Vec<Address>,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    bits: u128,
    mask: u128,
}

impl Errors {
    /// Sets the IP addresses of an interface, each with its prefix length, and whether ICMP errors are sent for packets
    /// that arrive on the interface (`tells`). IPv6 link-local addresses are ignored, because they are never the source
    /// of an ICMP error.
    pub fn set(
        &mut self,
        interface: u16,
        tells: bool,
        addresses: impl IntoIterator<Item = InterfaceAddress>,
    ) {
        let at = usize::from(interface);
        if self.own.len() <= at {
            self.own.resize_with(at + 1, Own::default);
        }
        let mut own = Own { tells, ..Own::default() };
        for InterfaceAddress { address, prefix } in addresses {
            let (list, common) = match address {
                IpAddr::V4(_) => (&mut own.four, 96),
                IpAddr::V6(six) if six.is_unicast_link_local() => continue,
                IpAddr::V6(_) => (&mut own.six, 0),
            };
            let host = 128 - (common + u32::from(prefix)).min(128);
            list.push(Address { bits: bits_of(address), mask: u128::MAX.checked_shl(host).unwrap_or(0) });
        }
        if let Some(place) = self.own.get_mut(at) {
            *place = own;
        }
    }

    /// Returns whether ICMP errors are sent for packets that arrive on an interface.
    pub(crate) fn sends_errors(&self, interface: u16) -> bool {
        self.own.get(usize::from(interface)).is_some_and(|own| own.tells)
    }

    /// Returns the source address of an ICMP error message that is sent to the address `to` through an interface.
    /// Returns `None` if none or more than one of the interface's addresses is suitable.
    pub(crate) fn from(&self, interface: u16, to: u128, is_four: bool) -> Option<u128> {
        let own = self.own.get(usize::from(interface))?;
        let all = if is_four { &own.four } else { &own.six };
        let mut near = all.iter().filter(|own| (own.bits ^ to) & own.mask == 0);
        match (near.next(), near.next()) {
            (Some(own), None) => Some(own.bits),
            // The kernel selects one of several suitable addresses by its own order of preference.
            (Some(_), Some(_)) => None,
            (None, _) => match all.as_slice() {
                [only] => Some(only.bits),
                _ => None,
            },
        }
    }
}
