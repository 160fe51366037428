//! Selection of connections, for the requests that remove connections (NXT_CT_FLUSH_ZONE and NXT_CT_FLUSH).

use std::net::IpAddr;

/// Selection of connections. A connection is selected if it has all values that are not `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFilter {
    /// Zone of the connection.
    pub zone: Option<u16>,
    /// IP protocol of the connection.
    pub protocol: Option<u8>,
    /// Packets in the direction of the first packet.
    pub original: TupleFilter,
    /// Packets in the opposite direction.
    pub reply: TupleFilter,
}

/// Selection of connections by their packets in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TupleFilter {
    /// Source address of the packets.
    pub source: Option<IpAddr>,
    /// Destination address of the packets.
    pub destination: Option<IpAddr>,
    /// Source port of the packets.
    pub source_port: Option<u16>,
    /// Destination port of the packets.
    pub destination_port: Option<u16>,
    /// Identifier of ICMP queries.
    pub identifier: Option<u16>,
}
