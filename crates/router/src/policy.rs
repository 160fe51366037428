//! Policy routing rules, which select the routing tables for a packet (RFC 1812, 5.2.4.3, Linux `ip rule`).

use std::net::IpAddr;

use packet::{FlowKey, L3Kind};

use crate::address_bits::{bits_of, mapped};
use crate::fib::View;
use crate::paths::Verdict;

/// The conditions of a policy rule, which determine the packets that the rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    source: Block,
    destination: Block,
    tos: u8,
    interface: Option<u16>,
    invert: bool,
}

/// A prefix of IP addresses, which a policy rule compares with the source or destination address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    bits: u128,
    mask: u128,
}

impl Block {
    const ALL: Block = Block { bits: 0, mask: 0 };

    fn new(address: IpAddr, length: u8) -> Block {
        let common = if address.is_ipv4() { 96 } else { 0 };
        let mask = u128::MAX.checked_shl(128 - (common + u32::from(length)).min(128)).unwrap_or(0);
        Block { bits: bits_of(address) & mask, mask }
    }

    fn contains(self, address: u128) -> bool {
        address & self.mask == self.bits
    }
}

impl Selector {
    /// The selector that selects all packets.
    pub const ALL: Selector =
        Selector { source: Block::ALL, destination: Block::ALL, tos: 0, interface: None, invert: false };

    /// Restricts the selector to packets with a source address in a prefix.
    #[must_use]
    pub fn from(self, address: IpAddr, length: u8) -> Selector {
        Selector { source: Block::new(address, length), ..self }
    }

    /// Restricts the selector to packets with a destination address in a prefix.
    #[must_use]
    pub fn to(self, address: IpAddr, length: u8) -> Selector {
        Selector { destination: Block::new(address, length), ..self }
    }

    /// Restricts the selector to packets with this type of service (TOS). The two lowest bits are ignored. A `tos` of 0
    /// selects any type of service.
    #[must_use]
    pub fn tos(self, tos: u8) -> Selector {
        Selector { tos, ..self }
    }

    /// Restricts the selector to packets that arrived on the interface with this number.
    #[must_use]
    pub fn interface(self, interface: u16) -> Selector {
        Selector { interface: Some(interface), ..self }
    }

    /// Inverts the selector, which then selects the packets that it did not select.
    #[must_use]
    pub fn invert(self) -> Selector {
        Selector { invert: !self.invert, ..self }
    }

    /// Returns whether the selector selects a packet that arrived on an interface.
    #[must_use]
    pub fn selects(&self, key: &FlowKey, interface: u16) -> bool {
        let Some((from, to)) = addresses(key) else { return false };
        self.fits(key, from, to, Some(interface))
    }

    /// Returns whether the selector selects a packet in the reverse direction, with source and destination exchanged
    /// (Linux `fib_validate_source`). Such a packet has no ingress interface that a rule could match.
    #[must_use]
    pub fn selects_back(&self, key: &FlowKey) -> bool {
        let Some((from, to)) = addresses(key) else { return false };
        self.fits(key, to, from, None)
    }

    fn fits(&self, key: &FlowKey, from: u128, to: u128, interface: Option<u16>) -> bool {
        let selected = self.source.contains(from)
            && self.destination.contains(to)
            && (self.tos == 0 || self.tos == key.tos() & 0xfc)
            && self.interface.is_none_or(|own| Some(own) == interface);
        selected != self.invert
    }
}

/// Returns the source and destination addresses of an IP packet. Returns `None` for packets other than IP packets.
fn addresses(key: &FlowKey) -> Option<(u128, u128)> {
    match key.l3_kind() {
        L3Kind::Ipv4 => Some((mapped(key.ipv4_src().to_bits()), mapped(key.ipv4_dst().to_bits()))),
        L3Kind::Ipv6 => Some((key.ipv6_src().to_bits(), key.ipv6_dst().to_bits())),
        L3Kind::None | L3Kind::Arp => None,
    }
}

/// A policy rule: a selector, and the routing table or the fixed result for the packets selected.
#[derive(Clone, Debug)]
pub struct Lookup {
    selector: Option<Selector>,
    ask: Ask,
}

#[derive(Clone, Debug)]
enum Ask {
    Table(View),
    Say(Verdict),
}

impl Lookup {
    /// Returns a policy rule that looks the selected packets up in a table.
    #[must_use]
    pub fn table_for(selector: Selector, table: View) -> Lookup {
        Lookup {
            selector: Some(selector).filter(|selector| *selector != Selector::ALL),
            ask: Ask::Table(table),
        }
    }

    /// Returns a policy rule that assigns a fixed result (`verdict`) to the selected packets, without a route look-up.
    #[must_use]
    pub fn say(selector: Selector, verdict: Verdict) -> Lookup {
        Lookup {
            selector: Some(selector).filter(|selector| *selector != Selector::ALL),
            ask: Ask::Say(verdict),
        }
    }

    /// Returns whether the rule has exactly this fixed result for the packets that it selects.
    #[must_use]
    pub fn has_verdict(&self, verdict: Verdict) -> bool {
        matches!(&self.ask, Ask::Say(own) if *own == verdict)
    }

    /// Returns whether the rule selects all packets and looks them up in this table.
    #[must_use]
    pub fn is_all_of(&self, table: &View) -> bool {
        self.selector.is_none() && matches!(&self.ask, Ask::Table(own) if own.is(table))
    }

    /// Returns the selector of the rule. Returns `None` if the rule selects all packets.
    #[inline]
    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// Returns the table in which the rule looks packets up. If the rule has a fixed result instead, returns this
    /// result as the error.
    #[inline]
    pub(crate) fn ask(&self) -> Result<&View, Verdict> {
        match &self.ask {
            Ask::Table(view) => Ok(view),
            Ask::Say(verdict) => Err(*verdict),
        }
    }
}
