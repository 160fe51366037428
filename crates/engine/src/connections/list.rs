//! Lists of tracked connections.

use std::net::IpAddr;

use conn::entry::{Entry, EntryId};
use conn::table::Table;
use conn::tcp::State;
use conn::tuple::{End, QueryClass};
use packet::ip_proto;
use switch::Now;

use super::{Connections, Family, Tables, milliseconds};

/// A tracked connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionView {
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Source and destination, as address and port, of packets in the direction of the first packet. The ports are 0
    /// for protocols without ports.
    pub original: [(IpAddr, u16); 2],
    /// Source and destination of packets in the opposite direction.
    pub reply: [(IpAddr, u16); 2],
    /// ICMP query. `None` for other protocols.
    pub query: Option<QueryView>,
    /// State of a TCP connection, in the words of Open vSwitch. For other protocols: `REPLIED` or `UNREPLIED`.
    pub state: &'static str,
    /// Mark of the connection.
    pub mark: u32,
    /// Label of the connection.
    pub label: u128,
    /// Milliseconds until the connection expires if no packet arrives.
    pub timeout_ms: u32,
}

/// ICMP query of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryView {
    /// Type of the request.
    pub request: u8,
    /// Type of the reply.
    pub reply: u8,
    /// Identifiers in packets of the original direction and of the reply direction.
    pub identifiers: [u16; 2],
}

impl Connections {
    /// Returns the connections of a zone, or of all zones if `zone` is `None`, at most `limit` of them. Workers may
    /// track packets meanwhile. `now_ns` is the time of the monotonic clock in nanoseconds.
    #[must_use]
    pub fn list(&self, zone: Option<u16>, limit: usize, now_ns: u64) -> Vec<ConnectionView> {
        let mut views = Vec::new();
        if let Some(tables) = self.tables.get() {
            let now = milliseconds(Now::from_ns(now_ns));
            add::<u32>(tables, zone, limit, now, &mut views);
            add::<u128>(tables, zone, limit, now, &mut views);
        }
        views
    }
}

/// Adds the connections of one address family to a list.
fn add<A: Family>(
    tables: &Tables,
    zone: Option<u16>,
    limit: usize,
    now: u32,
    views: &mut Vec<ConnectionView>,
) {
    /// Number of entries that are visited under one lock.
    const SLICE: u32 = 1024;
    let mut from = 0;
    while from < A::ENTRIES && views.len() < limit {
        let mut trackers = tables.lock();
        let table = &A::tracker(&mut trackers).table;
        let wanted = table
            .connections(from, SLICE, now)
            .filter(|(_, entry)| zone.is_none_or(|zone| zone == entry.zone()))
            .take(limit - views.len());
        views.extend(wanted.map(|(id, entry)| view(table, id, entry, now)));
        from += SLICE;
    }
}

fn view<A: Family>(table: &Table<A>, id: EntryId, entry: &Entry<A>, now: u32) -> ConnectionView {
    let tuple = entry.tuple();
    let original = tuple.ends(entry.originator());
    let translated = table.mapping(id).map_or(original, |(mapping, _)| mapping.translated);
    let is_ipv6 = tuple.protocol == ip_proto::ICMPV6;
    let query = tuple.query().map(|class| {
        let (request, reply) = match class {
            QueryClass::Echo if is_ipv6 => (128, 129),
            QueryClass::Echo => (8, 0),
            QueryClass::Timestamp => (13, 14),
            QueryClass::Information => (15, 16),
            QueryClass::AddressMask => (17, 18),
        };
        QueryView { request, reply, identifiers: [original[0].port, translated[0].port] }
    });
    let end = |end: End<A>| (end.address.ip(), if query.is_some() { 0 } else { end.port });
    let extension = table.extension(id);
    ConnectionView {
        zone: tuple.zone,
        protocol: tuple.protocol,
        original: original.map(end),
        reply: [end(translated[1]), end(translated[0])],
        query,
        state: state_of(entry),
        mark: extension.mark,
        label: extension.label,
        timeout_ms: table.expires(id).map_or(0, |expires| expires.wrapping_sub(now)),
    }
}

fn state_of<A: Family>(entry: &Entry<A>) -> &'static str {
    if entry.protocol() != ip_proto::TCP {
        return if entry.has_replied() { "REPLIED" } else { "UNREPLIED" };
    }
    match entry.tcp().state() {
        State::SynSent => "SYN_SENT",
        State::SynReceived => "SYN_RECV",
        State::Established => "ESTABLISHED",
        State::FinWait => "FIN_WAIT_1",
        State::CloseWait => "CLOSE_WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST_ACK",
        State::TimeWait => "TIME_WAIT",
        State::Closed => "CLOSED",
    }
}
