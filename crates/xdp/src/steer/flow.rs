//! Exact flows of a steering policy, and the targets of these flows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::VlanId;
use packet::net::FiveTuple;

use crate::filter::Moment;

pub(super) const KEY_SIZE: usize = 40;
pub(super) const VALUE_SIZE: usize = 24;

/// `STEER_NO_VLAN`: VLAN value of an encoded flow whose frames are untagged or carry a priority tag
/// (VLAN 0).
const NO_VLAN: u16 = 0xffff;
/// Value of `enum steer_kind` for an encoded IPv4 flow. The next two constants are the value for an encoded IPv6 flow,
/// and the flag for a flow with ports.
const IPV4: u8 = 4;
const IPV6: u8 = 6;
const PORTS: u8 = 16;
/// `STEER_CPU`: flag of a target that is a CPU. The lower bits are the CPU number.
const CPU: u32 = 1 << 16;

/// Reason why an exact flow is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// The source address and the destination address of the exact flow are of different families.
    #[error("its addresses are of different families; give two of one family")]
    Families,
    /// An exact flow of TCP, UDP or SCTP has no ports.
    #[error("flows of its protocol have ports; give both")]
    NoPorts,
    /// An exact flow of a protocol other than TCP, UDP and SCTP has ports.
    #[error("flows of its protocol have no ports; leave them out")]
    Ports,
    /// The VLAN identifier of the exact flow is not in the range 1 to 4095.
    #[error("its VLAN is none; use 1 to 4095, or leave it out for untagged frames")]
    Vlan,
}

/// Target to which flow steering sends frames, as the hook represents it (`enum steer_to`). The corresponding type of
/// the configuration and of the API is `model::SteeringTarget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SteerTo {
    /// The worker, through the AF_XDP socket of the receive queue. If the queue has no socket, `when_down` of the
    /// port's configuration applies.
    Worker,
    /// The kernel's stack on the CPU that received the frame.
    Kernel,
    /// The kernel's stack on the CPU with this number.
    Cpu(u32),
}

/// Target, mark and expiry of an exact flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEntry {
    /// Target to which the flow's frames are sent.
    pub to: SteerTo,
    /// Mark that is written to the metadata of the flow's frames ([`super::SteerMeta`]).
    pub mark: u32,
    /// Time (CLOCK_MONOTONIC) from which the program ignores the entry. `None` if the entry does not expire.
    pub expires: Option<Moment>,
    /// Whether the entry was added at run time through the API. If not, it comes from the configuration.
    pub live: bool,
}

impl SteerTo {
    /// Returns the number of the CPU. Returns `None` if the target is not a CPU.
    #[must_use]
    pub const fn cpu(self) -> Option<u32> {
        match self {
            SteerTo::Cpu(cpu) => Some(cpu),
            SteerTo::Worker | SteerTo::Kernel => None,
        }
    }

    /// Encodes the steering target as `enum steer_to`.
    pub(super) const fn code(self) -> u32 {
        match self {
            SteerTo::Worker => 1,
            SteerTo::Kernel => 2,
            SteerTo::Cpu(cpu) => CPU | cpu & (CPU - 1),
        }
    }

    pub(super) const fn from_code(code: u32) -> SteerTo {
        match code {
            2 => SteerTo::Kernel,
            code if code & CPU != 0 => SteerTo::Cpu(code & (CPU - 1)),
            _ => SteerTo::Worker,
        }
    }
}

impl fmt::Display for SteerTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteerTo::Worker => f.write_str("worker"),
            SteerTo::Kernel => f.write_str("kernel"),
            SteerTo::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

// An exact flow is a five-tuple. Fragments of TCP, UDP and SCTP packets match no exact flow, because only the first
// fragment has ports.

/// Encodes the exact flow as `struct steer_key`, the key of the map of exact flows.
pub(super) fn encode(flow: &FiveTuple) -> Result<[u8; KEY_SIZE], FlowError> {
    let mut key = [0; KEY_SIZE];
    let kind = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            key[..4].copy_from_slice(&source.octets());
            key[16..20].copy_from_slice(&destination.octets());
            IPV4
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            key[..16].copy_from_slice(&source.octets());
            key[16..32].copy_from_slice(&destination.octets());
            IPV6
        }
        _ => return Err(FlowError::Families),
    };
    let with_ports = match (flow.ports, FiveTuple::has_ports(flow.protocol)) {
        (Some((source, destination)), true) => {
            key[32..34].copy_from_slice(&source.to_be_bytes());
            key[34..36].copy_from_slice(&destination.to_be_bytes());
            PORTS
        }
        (None, false) => 0,
        (None, true) => return Err(FlowError::NoPorts),
        (Some(_), false) => return Err(FlowError::Ports),
    };
    if flow.vlan.is_some_and(VlanId::is_none) {
        return Err(FlowError::Vlan);
    }
    key[36..38].copy_from_slice(&flow.vlan.map_or(NO_VLAN, VlanId::get).to_ne_bytes());
    (key[38], key[39]) = (flow.protocol, kind | with_ports);
    Ok(key)
}

/// Decodes an exact flow from a key that [`encode`] has encoded. Returns `None` if the key is not
/// valid.
pub(super) fn decode(key: &[u8; KEY_SIZE]) -> Option<FiveTuple> {
    let two = |at: usize| key.get(at..at + 2)?.try_into().ok();
    let address = |at: usize| match key[39] & !PORTS {
        IPV4 => Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(key.get(at..at + 4)?).ok()?))),
        IPV6 => Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(key.get(at..at + 16)?).ok()?))),
        _ => None,
    };
    let ports = (u16::from_be_bytes(two(32)?), u16::from_be_bytes(two(34)?));
    let vlan = match u16::from_ne_bytes(two(36)?) {
        NO_VLAN => None,
        vlan => Some(VlanId::new(vlan)?),
    };
    Some(FiveTuple {
        vlan,
        source: address(0)?,
        destination: address(16)?,
        protocol: key[38],
        ports: (key[39] & PORTS != 0).then_some(ports),
    })
}

impl FlowEntry {
    /// Encodes the entry of an exact flow as `struct steer_flow`. `slot` is the index of the flow's packet counts.
    pub(super) fn value(&self, slot: u32) -> [u8; VALUE_SIZE] {
        let mut value = [0; VALUE_SIZE];
        let words = [self.to.code(), self.mark, slot, u32::from(self.live)];
        for (to, word) in value.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        value[16..].copy_from_slice(&self.expires.map_or(0, |at| at.0.max(1)).to_ne_bytes());
        value
    }

    /// Decodes the entry of an exact flow from `struct steer_flow`. The first value is the index of the flow's packet
    /// counts.
    pub(super) fn from_value(value: &[u8; VALUE_SIZE]) -> (u32, FlowEntry) {
        let word = |at: usize| {
            value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        let expires = value[16..].try_into().map_or(0, u64::from_ne_bytes);
        let expires = Some(Moment(expires)).filter(|at| at.0 != 0);
        let to = SteerTo::from_code(word(0));
        (word(8), FlowEntry { to, mark: word(4), expires, live: word(12) != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> FiveTuple {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        FiveTuple { vlan: None, source, destination, protocol, ports }
    }

    #[test]
    fn flows_survive_the_way_into_the_kernel_and_back() {
        let v4 = flow("192.0.2.1", "198.51.100.2", 17, Some((1, 0)));
        let v6 = flow("2001:db8::1", "2001:db8::2", 58, None);
        for flow in
            [v4, v6, FiveTuple { vlan: Some(VlanId::MAX), ..v4 }, FiveTuple { vlan: Some(VlanId::MIN), ..v6 }]
        {
            assert_eq!(decode(&encode(&flow).unwrap()), Some(flow));
        }
        for to in [SteerTo::Worker, SteerTo::Kernel, SteerTo::Cpu(0), SteerTo::Cpu(1023)] {
            for expires in [None, Some(Moment(7))] {
                for live in [false, true] {
                    let entry = FlowEntry { to, mark: 0xdead_beef, expires, live };
                    assert_eq!(FlowEntry::from_value(&entry.value(9)), (9, entry));
                }
            }
        }
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        let refused = |flow: FiveTuple| encode(&flow).unwrap_err();
        assert_eq!(refused(flow("192.0.2.1", "2001:db8::1", 17, Some((1, 2)))), FlowError::Families);
        assert_eq!(refused(flow("192.0.2.1", "192.0.2.2", 17, None)), FlowError::NoPorts);
        assert_eq!(refused(flow("192.0.2.1", "192.0.2.2", 1, Some((1, 2)))), FlowError::Ports);
        let udp = flow("192.0.2.1", "192.0.2.2", 17, Some((1, 2)));
        assert_eq!(refused(FiveTuple { vlan: Some(VlanId::NONE), ..udp }), FlowError::Vlan);
        let mut key = encode(&udp).unwrap();
        for vlan in [0_u16, 4096] {
            key[36..38].copy_from_slice(&vlan.to_ne_bytes());
            assert_eq!(decode(&key), None);
        }
    }
}
