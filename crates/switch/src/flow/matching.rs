//! Matches of flow entries: a value and a mask over a [`Flow`], and their validation.

use packet::icmpv6::kind;
use packet::{ethertype, ip_proto};

use super::{Field, Flow, Prerequisite};

/// Bits of `ct_state` of a packet that the connection tracker has seen, and of an invalid packet.
const TRACKED: u128 = 0x20;
const INVALID: u128 = 0x10;
/// Bits of `ct_state` that only packets of a valid connection have.
const OF_CONNECTION: u128 = 0xcf;
/// Bits of `ct_state` of which each packet of a valid connection has one: new, established, reply.
const OF_PACKET: u128 = 0x0b;

/// The match of a flow entry: a value and a mask. Bits of the value outside the mask are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Match {
    /// Values that a packet's flow must have in the bits of the mask.
    pub value: Flow,
    /// Bits of a packet's flow that are compared with the value.
    pub mask: Flow,
}

/// The reason why a match is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MatchError {
    /// OFPBMC_BAD_PREREQ: the match lacks a prerequisite of the field.
    #[error("{}: what it needs of the packet is not matched too; add its prerequisite (as `tcp` before tcp_dst)", .0.name())]
    Prerequisite(Field),
    /// OFPBMC_BAD_MASK: the field does not allow a partial mask.
    #[error("{}: it is matched whole or not at all; leave its mask out", .0.name())]
    Mask(Field),
    /// OFPBMC_BAD_WILDCARDS: the value has bits outside the mask.
    #[error("{}: its value has bits that its mask has not; clear them", .0.name())]
    OutsideMask(Field),
    /// OFPBMC_DUP_FIELD: the field occurs twice.
    #[error("{}: it is there twice; leave one out", .0.name())]
    Twice(Field),
    /// OFPBMC_BAD_VALUE: the field cannot have the value.
    #[error("{}: no packet has such a value", .0.name())]
    Value(Field),
}

impl Match {
    /// The match that matches all packets.
    pub const ANY: Match = Match { value: Flow::ZERO, mask: Flow::ZERO };

    /// Adds a field to the match after validation. A `mask` of `None` means an exact match.
    ///
    /// # Errors
    /// Returns [`MatchError`] if the field is refused. In this case, the match is unchanged.
    pub fn add(&mut self, field: Field, value: u128, mask: Option<u128>) -> Result<(), MatchError> {
        let all = field.all_ones();
        let mask = mask.unwrap_or(all);
        if mask != all && mask != 0 && !field.is_maskable() {
            return Err(MatchError::Mask(field));
        }
        if value & !field.defined_bits() != 0 {
            return Err(MatchError::Value(field));
        }
        if value & !mask != 0 {
            return Err(MatchError::OutsideMask(field));
        }
        if mask != 0 && !self.meets(field.prerequisite()) {
            return Err(MatchError::Prerequisite(field));
        }
        if self.mask.get(field) & mask != 0 {
            return Err(MatchError::Twice(field));
        }
        self.put(field, value, mask);
        Ok(())
    }

    /// Adds a condition on a field to the match without validation. Bits of the mask that no packet can have are left
    /// out, as in Open vSwitch, so that two equal conditions have equal masks.
    pub fn put(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.defined_bits();
        self.value.set(field, self.value.get(field) & !mask | value & mask);
        self.mask.set(field, self.mask.get(field) | mask);
    }

    /// Returns the match with an additional condition: the field has exactly this value.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Match {
        self.put(field, value, field.all_ones());
        self
    }

    /// Returns whether the flow fulfils all conditions of the match.
    #[must_use]
    pub fn matches(&self, flow: &Flow) -> bool {
        (0..super::FLOW_WORDS).all(|word| (flow.0[word] ^ self.value.0[word]) & self.mask.0[word] == 0)
    }

    /// Returns whether `other` matches every flow that this match matches (this match is equal or more specific).
    #[must_use]
    pub fn is_within(&self, other: &Match) -> bool {
        (0..super::FLOW_WORDS).all(|word| {
            other.mask.0[word] & !self.mask.0[word] == 0
                && (self.value.0[word] ^ other.value.0[word]) & other.mask.0[word] == 0
        })
    }

    /// Returns whether a flow exists that both this match and `other` match.
    #[must_use]
    pub fn overlaps(&self, other: &Match) -> bool {
        (0..super::FLOW_WORDS).all(|word| {
            (self.value.0[word] ^ other.value.0[word]) & self.mask.0[word] & other.mask.0[word] == 0
        })
    }

    /// Returns the value that the match requires for the whole field. Returns `None` if the field is not matched, or is
    /// matched with a partial mask.
    #[must_use]
    pub fn exact(&self, field: Field) -> Option<u128> {
        (self.mask.get(field) == field.all_ones()).then(|| self.value.get(field))
    }

    /// Returns whether the conditions of the match imply the prerequisite `need`.
    #[must_use]
    pub fn meets(&self, need: Prerequisite) -> bool {
        let number16 = |field| self.exact(field).map(|value| u16::try_from(value).unwrap_or(u16::MAX));
        let number8 = |field| self.exact(field).map(|value| u8::try_from(value).unwrap_or(u8::MAX));
        let eth = number16(Field::EthType);
        let ip = matches!(eth, Some(ethertype::IPV4 | ethertype::IPV6));
        let proto = number8(Field::IpProto).filter(|_| ip);
        let nd = |kinds: &[u8]| {
            eth == Some(ethertype::IPV6)
                && proto == Some(ip_proto::ICMPV6)
                && number8(Field::Icmpv6Type).is_some_and(|kind| kinds.contains(&kind))
        };
        match need {
            Prerequisite::None => true,
            Prerequisite::Vlan => {
                self.value.get(Field::VlanTci) & self.mask.get(Field::VlanTci) & 0x1000 != 0
            }
            Prerequisite::Ip => ip,
            Prerequisite::Ipv4 => eth == Some(ethertype::IPV4),
            Prerequisite::Ipv6 => eth == Some(ethertype::IPV6),
            Prerequisite::Arp => matches!(eth, Some(ethertype::ARP | ethertype::RARP)),
            Prerequisite::Mpls => matches!(eth, Some(ethertype::MPLS | ethertype::MPLS_MULTICAST)),
            Prerequisite::Pbb => eth == Some(ethertype::PBB),
            Prerequisite::Tcp => proto == Some(ip_proto::TCP),
            Prerequisite::Udp => proto == Some(ip_proto::UDP),
            Prerequisite::Sctp => proto == Some(ip_proto::SCTP),
            Prerequisite::Icmpv4 => eth == Some(ethertype::IPV4) && proto == Some(ip_proto::ICMP),
            Prerequisite::Icmpv6 => eth == Some(ethertype::IPV6) && proto == Some(ip_proto::ICMPV6),
            Prerequisite::Nd => nd(&[kind::NEIGHBOUR_SOLICIT, kind::NEIGHBOUR_ADVERT]),
            Prerequisite::NdSolicit => nd(&[kind::NEIGHBOUR_SOLICIT]),
            Prerequisite::NdAdvert => nd(&[kind::NEIGHBOUR_ADVERT]),
            Prerequisite::Connection => {
                let (value, mask) = (self.value.get(Field::CtState), self.mask.get(Field::CtState));
                let is_not_invalid = value & TRACKED != 0 && mask & INVALID != 0 && value & INVALID == 0;
                value & OF_CONNECTION != 0 || is_not_invalid
            }
        }
    }
}

/// Returns whether a packet with this flow fulfils the prerequisite of a field. Adds the bits on which the result
/// depends to the mask `wild`.
#[must_use]
pub fn packet_meets(flow: &Flow, need: Prerequisite, wild: &mut Flow) -> bool {
    let whole = Match { value: *flow, mask: Flow([u64::MAX; super::FLOW_WORDS]) };
    match need {
        Prerequisite::None => {}
        Prerequisite::Vlan => wild.set(Field::VlanTci, wild.get(Field::VlanTci) | 0x1000),
        Prerequisite::Ip
        | Prerequisite::Ipv4
        | Prerequisite::Ipv6
        | Prerequisite::Arp
        | Prerequisite::Mpls
        | Prerequisite::Pbb => wild.want(Field::EthType),
        Prerequisite::Connection => {
            wild.set(Field::CtState, wild.get(Field::CtState) | OF_PACKET);
            return flow.get(Field::CtState) & OF_PACKET != 0;
        }
        Prerequisite::Tcp
        | Prerequisite::Udp
        | Prerequisite::Sctp
        | Prerequisite::Icmpv4
        | Prerequisite::Icmpv6
        | Prerequisite::Nd
        | Prerequisite::NdSolicit
        | Prerequisite::NdAdvert => {
            wild.want(Field::EthType);
            wild.want(Field::IpProto);
            wild.want(Field::IpFrag);
            // A fragment other than the first has no L4 header. A match may still name its L4 ports, which count as 0.
            if flow.get(Field::IpFrag) & 2 != 0 {
                return false;
            }
            if matches!(need, Prerequisite::Nd | Prerequisite::NdSolicit | Prerequisite::NdAdvert) {
                wild.want(Field::Icmpv6Type);
            }
        }
    }
    whole.meets(need)
}
