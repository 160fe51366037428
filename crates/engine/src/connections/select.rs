//! Lists and removal of tracked connections that a filter selects.

use std::net::IpAddr;

use conn::entry::{Entry, EntryId};
use conn::table::Table;
use conn::tcp::State;
use conn::tuple::End;
use packet::ip_proto;
use switch::Now;
use switch::flow::{ConnectionFilter, TupleFilter};

use super::{Connections, Family, Tables, Trackers, icmp_types, milliseconds};

/// Number of entries that are visited under one lock.
const SLICE: u32 = 1024;

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
    pub icmp: Option<IcmpView>,
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
pub struct IcmpView {
    /// Type of the request.
    pub request: u8,
    /// Type of the reply.
    pub reply: u8,
    /// Identifiers in packets of the original direction and of the reply direction.
    pub identifiers: [u16; 2],
}

impl Connections {
    /// Returns the connections that a filter selects, at most `limit` of them. Workers may track packets meanwhile.
    /// `now_ns` is the time of the monotonic clock in nanoseconds.
    #[must_use]
    pub fn list(&self, filter: &ConnectionFilter, limit: usize, now_ns: u64) -> Vec<ConnectionView> {
        let mut views = Vec::new();
        if let Some(tables) = self.tables.get() {
            let now = milliseconds(Now::from_ns(now_ns));
            add::<u32>(tables, filter, limit, now, &mut views);
            add::<u128>(tables, filter, limit, now, &mut views);
        }
        views
    }

    /// Removes the connections that a filter selects. Workers may track packets meanwhile. `now_ns` is the time of the
    /// monotonic clock in nanoseconds.
    pub fn flush(&self, filter: &ConnectionFilter, now_ns: u64) {
        let Some(tables) = self.tables.get() else { return };
        if *filter == ConnectionFilter::default() {
            // Memory is allocated and freed without the lock.
            let new = Trackers::new();
            let old = std::mem::replace(&mut *tables.lock(), new);
            return drop(old);
        }
        let now = milliseconds(Now::from_ns(now_ns));
        flush::<u32>(tables, filter, now);
        flush::<u128>(tables, filter, now);
    }
}

/// Adds the connections of one address family that a filter selects to a list.
fn add<A: Family>(
    tables: &Tables,
    filter: &ConnectionFilter,
    limit: usize,
    now: u32,
    views: &mut Vec<ConnectionView>,
) {
    let mut from = 0;
    while from < A::ENTRIES && views.len() < limit {
        let mut trackers = tables.lock();
        let table = &A::tracker(&mut trackers).0.table;
        let all = table.connections(from, SLICE, now);
        let wanted = all.filter(|(id, entry)| is_selected(table, filter, *id, entry));
        let left = limit - views.len();
        views.extend(wanted.take(left).map(|(id, entry)| view(table, id, entry, now)));
        from += SLICE;
    }
}

/// Removes the connections that a filter selects from one table.
fn flush<A: Family>(tables: &Tables, filter: &ConnectionFilter, now: u32) {
    let mut from = 0;
    while from < A::ENTRIES {
        let mut trackers = tables.lock();
        let table = &mut A::tracker(&mut trackers).0.table;
        let all = table.connections(from, SLICE, now);
        let selected: Vec<EntryId> =
            all.filter(|(id, entry)| is_selected(table, filter, *id, entry)).map(|(id, _)| id).collect();
        selected.into_iter().for_each(|id| table.remove(id));
        if table.count() == 0 {
            return;
        }
        from += SLICE;
    }
}

/// Returns whether a filter selects a connection.
fn is_selected<A: Family>(
    table: &Table<A>,
    filter: &ConnectionFilter,
    id: EntryId,
    entry: &Entry<A>,
) -> bool {
    let tuple = entry.tuple();
    let [source, destination] = tuple.ends(entry.originator());
    let translated = table.mapping(id).map(|(mapping, _)| mapping.translated);
    let [reply_destination, reply_source] = translated.unwrap_or([source, destination]);
    let is_own = |ends: [End<A>; 2], filter: &TupleFilter| {
        let is_address = |wanted: Option<IpAddr>, own: End<A>| {
            wanted.is_none_or(|wanted| A::of(wanted) == Some(own.address))
        };
        let is_port = |wanted: Option<u16>, own: End<A>| wanted.is_none_or(|wanted| wanted == own.port);
        is_address(filter.source, ends[0])
            && is_address(filter.destination, ends[1])
            && is_port(filter.source_port, ends[0])
            && is_port(filter.destination_port, ends[1])
            && (filter.identifier.is_none() || filter.identifier == Some(tuple.low_port))
    };
    filter.zone.is_none_or(|zone| zone == tuple.zone)
        && filter.protocol.is_none_or(|protocol| protocol == tuple.protocol)
        && is_own([source, destination], &filter.original)
        && is_own([reply_source, reply_destination], &filter.reply)
}

fn view<A: Family>(table: &Table<A>, id: EntryId, entry: &Entry<A>, now: u32) -> ConnectionView {
    let tuple = entry.tuple();
    let original = tuple.ends(entry.originator());
    let translated = table.mapping(id).map_or(original, |(mapping, _)| mapping.translated);
    let icmp = tuple.query().map(|class| {
        let [request, reply] = icmp_types(class, tuple.protocol);
        IcmpView { request, reply, identifiers: [original[0].port, translated[0].port] }
    });
    let end = |end: End<A>| (end.address.ip(), if icmp.is_some() { 0 } else { end.port });
    let extension = table.extension(id);
    ConnectionView {
        zone: tuple.zone,
        protocol: tuple.protocol,
        original: original.map(end),
        reply: [end(translated[1]), end(translated[0])],
        icmp,
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
