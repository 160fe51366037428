//! Client side of an FPM session (zebra's side), for tests and benchmarks. The module encodes frames as zebra sends
//! them, and decodes answers.

use std::net::{IpAddr, Ipv6Addr};

use port::netlink::{
    HEADER as NLMSG_HEADER, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, attributes, messages, u32_at,
};

use super::wire::{FPM_MSG_TYPE_NETLINK, FPM_PROTO_VERSION, HEADER};
use crate::rtnetlink::family::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::rtnetlink::length::{NHMSG, RTMSG};
use crate::rtnetlink::message::{RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_NEWROUTE};
use crate::rtnetlink::nexthop::{NHA_GATEWAY, NHA_GROUP, NHA_ID, NHA_OIF};
use crate::rtnetlink::protocol::{RTPROT_BGP, RTPROT_ZEBRA};
use crate::rtnetlink::route::{
    RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PRIORITY,
    RTA_TABLE, RTA_VIA, RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED, RTN_UNICAST,
};
use crate::state::Prefix;

/// Metric of all routes that the functions of this module announce.
const METRIC: u32 = 20;

/// Next hops of an announced route. If the route has no next hops, its route type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A single next hop: the address of a gateway, and the index of the device.
    Via(IpAddr, u32),
    /// Several next hops: gateway address, device index and weight of each.
    Several(Vec<(IpAddr, u32, u8)>),
    /// The next-hop object with this ID.
    Object(u32),
    /// No next hop. The value is the route type: `RTN_BLACKHOLE` (6), `RTN_UNREACHABLE` (7) or `RTN_PROHIBIT`
    /// (8).
    Nowhere(u8),
}

/// An rtnetlink message under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Vec<u8>);

impl Message {
    /// Creates a message of the rtnetlink type `kind`, with netlink flags and the fixed header of this type.
    #[must_use]
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Message {
        let mut bytes = vec![0; NLMSG_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(header);
        Message(bytes)
    }

    /// Appends an attribute of the type `kind` to the message. A value that exceeds the maximum length is
    /// truncated.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Message {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(&value[..usize::from(length) - 4]);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends an attribute with an IP address to the message.
    #[must_use]
    pub fn with_address(self, kind: u16, address: IpAddr) -> Message {
        match address {
            IpAddr::V4(address) => self.with(kind, &address.octets()),
            IpAddr::V6(address) => self.with(kind, &address.octets()),
        }
    }

    fn done(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

fn route(kind: u16, flags: u16, prefix: Prefix<IpAddr>, protocol: u8, says: u8, marks: u32) -> Message {
    let family = if prefix.address.is_ipv4() { AF_INET } else { AF_INET6 };
    let table = RT_TABLE_MAIN.to_le_bytes()[0];
    let mut header = vec![family, prefix.length, 0, 0, table, protocol, RT_SCOPE_UNIVERSE, says];
    header.extend_from_slice(&marks.to_ne_bytes());
    Message::new(kind, flags, &header)
        .with_address(RTA_DST, prefix.address)
        .with(RTA_PRIORITY, &METRIC.to_ne_bytes())
}

/// Returns the message that announces a route in the main table. `protocol` is the protocol of the route (such as
/// `RTPROT_BGP`, 186).
#[must_use]
pub fn announce(prefix: Prefix<IpAddr>, protocol: u8, target: &Target) -> Message {
    let says = if let Target::Nowhere(says) = target { *says } else { RTN_UNICAST };
    let message = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, prefix, protocol, says, 0);
    let gateway = |message: Message, gateway: IpAddr| match (prefix.address, gateway) {
        // `RTA_VIA` contains a family followed by the address.
        (IpAddr::V4(_), IpAddr::V6(_)) => message.with(RTA_VIA, &via(gateway)),
        _ => message.with_address(RTA_GATEWAY, gateway),
    };
    match target {
        Target::Via(address, device) => gateway(message, *address).with(RTA_OIF, &device.to_ne_bytes()),
        Target::Object(id) => message.with(RTA_NH_ID, &id.to_ne_bytes()),
        Target::Nowhere(_) => message,
        Target::Several(ways) => {
            let mut list = Vec::new();
            for (address, device, weight) in ways {
                let start = list.len();
                list.extend_from_slice(&[0, 0, 0, weight.saturating_sub(1)]);
                list.extend_from_slice(&device.to_ne_bytes());
                let way = gateway(Message(Vec::new()), *address);
                list.extend_from_slice(&way.0);
                let length = u16::try_from(list.len() - start).unwrap_or(u16::MAX);
                list[start..start + 2].copy_from_slice(&length.to_ne_bytes());
            }
            message.with(RTA_MULTIPATH, &list)
        }
    }
}

fn via(gateway: IpAddr) -> Vec<u8> {
    let (family, octets) = match gateway {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    [vec![family, 0], octets].concat()
}

/// Returns the message that withdraws a route in the main table. The message has the fields that zebra sends.
#[must_use]
pub fn withdraw(prefix: Prefix<IpAddr>, protocol: u8) -> Message {
    route(RTM_DELROUTE, 0, prefix, protocol, RTN_UNICAST, 0)
}

/// Returns the message that announces a next-hop object: a gateway on a device. The object is new, or replaces the
/// object with this ID.
#[must_use]
pub fn next_hop(id: u32, gateway: IpAddr, device: u32) -> Message {
    let family = if gateway.is_ipv4() { AF_INET } else { AF_INET6 };
    Message::new(RTM_NEWNEXTHOP, NLM_F_CREATE, &[family, 0, RTPROT_ZEBRA, 0, 0, 0, 0, 0])
        .with(NHA_ID, &id.to_ne_bytes())
        .with_address(NHA_GATEWAY, gateway)
        .with(NHA_OIF, &device.to_ne_bytes())
}

/// Returns the message that announces a next-hop group. Each member is the ID of a next-hop object and its weight.
#[must_use]
pub fn group(id: u32, members: &[(u32, u8)]) -> Message {
    let member = |(id, weight): &(u32, u8)| {
        let share = [weight.saturating_sub(1), 0, 0, 0];
        id.to_ne_bytes().into_iter().chain(share).collect::<Vec<u8>>()
    };
    let list: Vec<u8> = members.iter().flat_map(member).collect();
    Message::new(RTM_NEWNEXTHOP, NLM_F_CREATE, &[AF_UNSPEC, 0, RTPROT_ZEBRA, 0, 0, 0, 0, 0])
        .with(NHA_ID, &id.to_ne_bytes())
        .with(NHA_GROUP, &list)
}

/// Returns the message that withdraws a next-hop object.
#[must_use]
pub fn next_hop_gone(id: u32) -> Message {
    Message::new(RTM_DELNEXTHOP, 0, &[0; NHMSG]).with(NHA_ID, &id.to_ne_bytes())
}

/// Returns one FPM frame that contains several messages. Messages beyond the maximum frame length of 64 KiB
/// are omitted.
#[must_use]
pub fn frame(all: impl IntoIterator<Item = Message>) -> Vec<u8> {
    let mut bytes = vec![FPM_PROTO_VERSION, FPM_MSG_TYPE_NETLINK, 0, 0];
    for message in all {
        let message = message.done();
        if bytes.len() + message.len() <= usize::from(u16::MAX) {
            bytes.extend_from_slice(&message);
        }
    }
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    bytes[2..HEADER].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Returns the bytes of an FPM session that announces a complete routing table, as zebra does after connecting. The
/// next-hop objects come first. A BGP route for each prefix follows, each in a separate frame. `target` returns the
/// next hops of the prefix at an index.
pub fn session(
    objects: impl IntoIterator<Item = Message>,
    prefixes: impl IntoIterator<Item = Prefix<IpAddr>>,
    target: impl Fn(usize) -> Target,
) -> Vec<u8> {
    let mut bytes: Vec<u8> = objects.into_iter().flat_map(|object| frame([object])).collect();
    for (place, prefix) in prefixes.into_iter().enumerate() {
        bytes.extend_from_slice(&frame([announce(prefix, RTPROT_BGP, &target(place))]));
    }
    bytes
}

/// A decoded answer of the FPM server to the announcement of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    /// Destination prefix of the route.
    pub prefix: Prefix<IpAddr>,
    /// Number of the routing table that contains the route.
    pub table: u32,
    /// Protocol of the route (`RTPROT_*`).
    pub protocol: u8,
    /// Whether the route was installed. If it was not, a table was full or the next hop of the route is
    /// unknown.
    pub offloaded: bool,
}

/// Decodes answers as zebra does. Each frame must contain one message, which announces a route with flags for the
/// result. The answers are appended to `answers`. Returns the total length in bytes of all complete frames.
///
/// # Errors
/// Returns the bytes of the first frame that is invalid.
pub fn answers(bytes: &[u8], answers: &mut Vec<Answer>) -> Result<usize, Vec<u8>> {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER) {
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[..2] != [FPM_PROTO_VERSION, FPM_MSG_TYPE_NETLINK] || length < HEADER + NLMSG_HEADER {
            return Err(header.to_vec());
        }
        let Some(frame) = bytes.get(at..at + length) else { break };
        answers.push(answer(&frame[HEADER..]).ok_or_else(|| frame.to_vec())?);
        at += length;
    }
    Ok(at)
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let message =
        messages(bytes).next().filter(|message| message.kind == RTM_NEWROUTE && length == bytes.len())?;
    let payload = message.payload;
    let &[family, length, _, _, table, protocol, ..] = payload else { return None };
    let marks = u32_at(payload, 8)?;
    let mut answer = Answer {
        prefix: Prefix { address: Ipv6Addr::UNSPECIFIED.into(), length },
        table: table.into(),
        protocol,
        offloaded: marks & RTM_F_OFFLOAD != 0,
    };
    if (marks & RTM_F_OFFLOAD_FAILED != 0) == answer.offloaded {
        return None;
    }
    for (kind, value) in attributes(payload.get(RTMSG..)?) {
        match (kind, family) {
            (RTA_DST, AF_INET) => answer.prefix.address = IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
            (RTA_DST, AF_INET6) => answer.prefix.address = IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
            (RTA_TABLE, _) => answer.table = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(answer)
}
