//! State of tracked connections.

use std::net::{IpAddr, SocketAddr};

use packet::net::Protocol;
use serde::{Deserialize, Serialize};

use crate::table::{Listed, Table};

/// Selection of tracked connections. An absent criterion matches all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionQuery {
    /// Zone of the connections.
    pub zone: Option<u16>,
    /// Maximum number of connections in the answer.
    pub limit: usize,
}

/// Packets of a connection in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConnectionTuple {
    /// Source address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub source: IpAddr,
    /// Destination address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub destination: IpAddr,
    /// Source port of TCP, UDP or SCTP. 0 for other protocols.
    pub source_port: u16,
    /// Destination port of TCP, UDP or SCTP. 0 for other protocols.
    pub destination_port: u16,
}

/// ICMP query of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IcmpQueryState {
    /// Type of the request.
    pub request: u8,
    /// Type of the reply.
    pub reply: u8,
    /// Identifier in packets of the original direction.
    pub original_id: u16,
    /// Identifier in packets of the reply direction.
    pub reply_id: u16,
}

/// State of a tracked connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConnectionState {
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Packets in the direction of the first packet.
    pub original: ConnectionTuple,
    /// Packets in the opposite direction. Other than the exchanged original packets if NAT translates the connection.
    pub reply: ConnectionTuple,
    /// ICMP query. Absent for other protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpQueryState>,
    /// State of a TCP connection, as `ESTABLISHED`. For other protocols: `REPLIED` or `UNREPLIED`.
    pub state: String,
    /// Mark of the connection.
    pub mark: u32,
    /// Label of the connection, in hexadecimal.
    pub label: String,
    /// Seconds until the connection expires if no packet arrives.
    pub timeout_secs: u32,
}

impl ConnectionState {
    /// Returns the name of the IP protocol, or its number if it has no name here.
    pub fn protocol_name(&self) -> String {
        Protocol(self.protocol).word().map_or_else(|| self.protocol.to_string(), str::to_owned)
    }
}

/// Returns an address with its port, or the address alone if the port is 0.
fn end(address: IpAddr, port: u16) -> String {
    if port == 0 { address.to_string() } else { SocketAddr::new(address, port).to_string() }
}

impl Listed for ConnectionState {
    fn text(connections: &[ConnectionState]) -> String {
        if connections.is_empty() {
            return "no connection is tracked\n".to_owned();
        }
        let source = |tuple: &ConnectionTuple| end(tuple.source, tuple.source_port);
        let destination = |tuple: &ConnectionTuple| end(tuple.destination, tuple.destination_port);
        Table::of(connections)
            .number("ZONE", |own| own.zone.to_string())
            .text("PROTO", ConnectionState::protocol_name)
            .text("SOURCE", |own| source(&own.original))
            .text("DESTINATION", |own| destination(&own.original))
            .text("REPLY TO", |own| destination(&own.reply))
            .text("REPLY FROM", |own| source(&own.reply))
            .text("STATE", |own| own.state.clone())
            .number("MARK", |own| own.mark.to_string())
            .number("TIMEOUT", |own| format!("{} s", own.timeout_secs))
            .render()
    }
}
