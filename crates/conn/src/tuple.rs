//! Canonical tuples: the keys of connections, equal for both directions.
//!
//! A tuple consists of the zone, the IP protocol, and both ends. An end is an address and a port. The smaller end comes
//! first, so the packets of both directions have one key. The [`Side`] of a packet's source tells the direction.
//!
//! | protocol | ports of the tuple |
//! |---|---|
//! | TCP, UDP, SCTP | the ports of the ends |
//! | ICMP and ICMPv6 queries | the identifier, and the class of the query with the side of the querier |
//! | other IP protocols | 0 |
//!
//! Two ends may send queries to each other with equal identifiers. The side of the querier keeps these queries apart.

use std::fmt::Debug;
use std::hash::Hash;

use packet::ip_proto;
use sync::hash::{Secret, Secrets, fold};

use crate::Direction;

/// An IP address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + Debug + Default + Into<u128> + TryFrom<u128> + 'static {
    /// Protocol number of ICMP in the address family. All tuples with this number are tuples of queries.
    const ICMP: u8;

    /// Returns the sum of products of both addresses with the secret numbers (see [`sync::hash`]).
    fn hash_pair(low: Self, high: Self, secrets: &[Secret; 4]) -> u64;
}

impl Address for u32 {
    const ICMP: u8 = ip_proto::ICMP;

    #[inline(always)]
    fn hash_pair(low: u32, high: u32, secrets: &[Secret; 4]) -> u64 {
        product(u64::from(low) << 32 | u64::from(high), secrets[0])
    }
}

impl Address for u128 {
    const ICMP: u8 = ip_proto::ICMPV6;

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of the addresses apart")]
    fn hash_pair(low: u128, high: u128, secrets: &[Secret; 4]) -> u64 {
        let words = [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64];
        words.iter().zip(secrets).fold(0, |sum, (&word, &secret)| sum.wrapping_add(product(word, secret)))
    }
}

#[inline(always)]
fn product(word: u64, secret: Secret) -> u64 {
    fold(word ^ secret.add, secret.multiply)
}

/// Side of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// The end with the smaller address, or with the smaller port of equal addresses.
    Low,
    /// The other end.
    High,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub const fn opposite(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
        }
    }

    /// Returns the direction of a packet from this side, in a connection that `originator` has opened.
    #[must_use]
    pub fn direction(self, originator: Side) -> Direction {
        if self == originator { Direction::Original } else { Direction::Reply }
    }
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct End<A> {
    /// IP address of the end.
    pub address: A,
    /// Port of the end. 0 for protocols without ports.
    pub port: u16,
}

/// Class of ICMP queries: a kind of request and its reply (RFC 5508 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum QueryClass {
    /// Echo of ICMP (RFC 792) and of ICMPv6 (RFC 4443).
    Echo = 1,
    /// Timestamp (RFC 792).
    Timestamp = 2,
    /// Information (RFC 792, deprecated by RFC 6918).
    Information = 3,
    /// Address mask (RFC 950, deprecated by RFC 6918).
    AddressMask = 4,
}

/// An ICMP or ICMPv6 message that is a request or its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Class of the query.
    pub class: QueryClass,
    /// Identifier of the query.
    pub identifier: u16,
    /// Whether the message is the reply.
    pub is_reply: bool,
}

impl Query {
    /// Returns the query of an ICMP message, from its first 6 bytes. Returns `None` for other messages.
    #[must_use]
    pub fn of_icmp(message: &[u8]) -> Option<Query> {
        let (&[kind, _, _, _, a, b], _) = message.split_first_chunk()?;
        let (class, is_reply) = match kind {
            8 => (QueryClass::Echo, false),
            0 => (QueryClass::Echo, true),
            13 => (QueryClass::Timestamp, false),
            14 => (QueryClass::Timestamp, true),
            15 => (QueryClass::Information, false),
            16 => (QueryClass::Information, true),
            17 => (QueryClass::AddressMask, false),
            18 => (QueryClass::AddressMask, true),
            _ => return None,
        };
        Some(Query { class, identifier: u16::from_be_bytes([a, b]), is_reply })
    }

    /// Returns the query of an ICMPv6 message, from its first 6 bytes. Returns `None` for other messages. Neighbour
    /// discovery, multicast listener discovery and node information are not tracked.
    #[must_use]
    pub fn of_icmpv6(message: &[u8]) -> Option<Query> {
        let (&[kind, _, _, _, a, b], _) = message.split_first_chunk()?;
        let is_reply = match kind {
            128 => false,
            129 => true,
            _ => return None,
        };
        Some(Query { class: QueryClass::Echo, identifier: u16::from_be_bytes([a, b]), is_reply })
    }
}

/// Canonical tuple of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Tuple<A> {
    /// Address of [`Side::Low`].
    pub low: A,
    /// Address of [`Side::High`].
    pub high: A,
    /// Port number of the end [`Side::Low`], or the identifier of an ICMP query.
    pub low_port: u16,
    /// Port number of the end [`Side::High`]. For an ICMP query: twice the number of the class, plus 1 if the end
    /// [`Side::High`] has sent the query.
    pub high_port: u16,
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl<A: Address> Tuple<A> {
    /// Returns the tuple of a packet, and the side of its source. A packet between two equal ends comes from
    /// [`Side::Low`] in both directions.
    #[inline]
    #[must_use]
    pub fn of_ends(zone: u16, protocol: u8, source: End<A>, destination: End<A>) -> (Tuple<A>, Side) {
        let side = if destination < source { Side::High } else { Side::Low };
        let (low, high) = if side == Side::Low { (source, destination) } else { (destination, source) };
        let (low_port, high_port) = (low.port, high.port);
        (Tuple { low: low.address, high: high.address, low_port, high_port, zone, protocol }, side)
    }

    /// Returns the tuple of an ICMP or ICMPv6 query, and the side of its source. Between equal addresses, requests come
    /// from [`Side::Low`] and replies from [`Side::High`].
    #[must_use]
    pub fn of_query(zone: u16, protocol: u8, source: A, destination: A, query: Query) -> (Tuple<A>, Side) {
        let end = |address| End { address, port: 0 };
        let (mut tuple, mut side) = Tuple::of_ends(zone, protocol, end(source), end(destination));
        if source == destination && query.is_reply {
            side = Side::High;
        }
        let querier = if query.is_reply { side.opposite() } else { side };
        tuple.low_port = query.identifier;
        tuple.high_port = (query.class as u16) << 1 | u16::from(querier == Side::High);
        (tuple, side)
    }

    /// Returns the end of a side. For ICMP queries, the ports have the meaning that [`Tuple::low_port`] and
    /// [`Tuple::high_port`] state.
    #[must_use]
    pub fn end(&self, side: Side) -> End<A> {
        match side {
            Side::Low => End { address: self.low, port: self.low_port },
            Side::High => End { address: self.high, port: self.high_port },
        }
    }

    /// Returns the class of an ICMP or ICMPv6 query. Returns `None` for other protocols.
    #[must_use]
    pub fn query(&self) -> Option<QueryClass> {
        let classes =
            [QueryClass::Echo, QueryClass::Timestamp, QueryClass::Information, QueryClass::AddressMask];
        let is_class = |class: &QueryClass| *class as u16 == self.high_port >> 1;
        classes.into_iter().find(is_class).filter(|_| self.protocol == A::ICMP)
    }

    /// Returns the ends of packets from the end of a side, the source first. For a query, the port of the source is the
    /// identifier, and the port of the destination is 0.
    #[must_use]
    pub fn ends(&self, source: Side) -> [End<A>; 2] {
        let [mut from, mut to] = [self.end(source), self.end(source.opposite())];
        if self.query().is_some() {
            (from.port, to.port) = (self.low_port, 0);
        }
        [from, to]
    }
}

/// Secret hash function of tuples. A sender that does not know the secret numbers cannot choose tuples that collide.
/// All tables and workers of a process share one function, so that the hash also selects the worker of a connection.
#[derive(Clone, Debug)]
pub struct TupleHash {
    addresses: [Secret; 4],
    rest: Secret,
    last: Secret,
}

impl TupleHash {
    /// Returns a hash function with new secret numbers.
    #[must_use]
    pub fn new() -> TupleHash {
        let secrets = Secrets::new();
        TupleHash {
            addresses: std::array::from_fn(|place| secrets.of(place)),
            rest: secrets.of(4),
            last: secrets.of(5),
        }
    }

    /// Returns the hash of a tuple, 64 bits.
    #[inline(always)]
    #[must_use]
    pub fn of<A: Address>(&self, tuple: &Tuple<A>) -> u64 {
        let rest = u64::from(tuple.low_port) << 48
            | u64::from(tuple.high_port) << 32
            | u64::from(tuple.zone) << 16
            | u64::from(tuple.protocol);
        let addresses = A::hash_pair(tuple.low, tuple.high, &self.addresses);
        // The second product spreads the sum over all bits. Without this product, consecutive tuples would cluster.
        product(addresses.wrapping_add(product(rest, self.rest)), self.last)
    }

    /// Returns the number of the worker to which a tuple belongs, less than the number of workers. The bits of the hash
    /// that select the worker select neither a bucket nor a tag of a table.
    #[inline]
    #[must_use]
    pub fn worker<A: Address>(&self, tuple: &Tuple<A>, workers: u32) -> u32 {
        worker_of(self.of(tuple), workers)
    }
}

/// Returns the number of the worker to which a hash belongs, less than the number of workers.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the result is less than the number of workers")]
pub(crate) const fn worker_of(hash: u64, workers: u32) -> u32 {
    (((hash & 0xffff_ffff) * workers as u64) >> 32) as u32
}

impl Default for TupleHash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(address: u32, port: u16) -> End<u32> {
        End { address, port }
    }

    proptest! {
        #[test]
        fn both_directions_have_one_tuple_and_opposite_sides(
            a in (0..3_u32, 0..3_u16), b in (0..3_u32, 0..3_u16), zone: u16, protocol: u8,
        ) {
            let (a, b) = (end(a.0, a.1), end(b.0, b.1));
            let (there, from) = Tuple::of_ends(zone, protocol, a, b);
            let (back, from_back) = Tuple::of_ends(zone, protocol, b, a);
            prop_assert_eq!(there, back);
            prop_assert_eq!(there.end(from), a);
            prop_assert!(there.query().is_some() || there.ends(from) == [a, b]);
            prop_assert_eq!(there.end(from.opposite()), b);
            prop_assert_eq!(from_back, if a == b { from } else { from.opposite() });
        }

        #[test]
        fn a_query_and_its_reply_have_one_tuple_of_their_own(a in 0..3_u128, b in 0..3_u128, identifier: u16) {
            let of = |from, to, is_reply| {
                Tuple::of_query(0, 58, from, to, Query { class: QueryClass::Echo, identifier, is_reply })
            };
            let (request, from) = of(a, b, false);
            prop_assert_eq!(of(b, a, true), (request, from.opposite()));
            prop_assert_eq!(request.query(), Some(QueryClass::Echo));
            prop_assert_eq!(request.ends(from), [End { address: a, port: identifier }, End { address: b, port: 0 }]);
            // The queries of the other end are another connection.
            prop_assert_eq!(of(b, a, false).0 == request, a == b);
        }
    }

    #[test]
    fn requests_and_replies_of_all_classes_are_found() {
        let of = |kind: u8| Query::of_icmp(&[kind, 0, 0, 0, 1, 2, 0, 0]);
        let found: Vec<u8> = (0..=255).filter(|kind| of(*kind).is_some()).collect();
        assert_eq!(found, [0, 8, 13, 14, 15, 16, 17, 18]);
        let reply = Query { class: QueryClass::Timestamp, identifier: 0x102, is_reply: true };
        assert_eq!(of(14), Some(reply));
        assert_eq!(Query::of_icmp(&[8, 0, 0, 0, 1]), None);
        let found: Vec<u8> =
            (0..=255).filter(|kind| Query::of_icmpv6(&[*kind, 0, 0, 0, 1, 2]).is_some()).collect();
        assert_eq!(found, [128, 129]);
    }

    #[test]
    fn tuples_spread_over_the_workers() {
        let hash = TupleHash::new();
        let mut counts = [0_u32; 7];
        for port in 0..=u16::MAX {
            let (tuple, _) = Tuple::of_ends(0, 17, end(1, port), end(2, 53));
            counts[hash.worker(&tuple, 7) as usize] += 1;
        }
        // 9,362 on average, with a standard deviation of 90.
        assert!(counts.iter().all(|count| (8_700..10_000).contains(count)), "{counts:?}");
    }

    /// Consecutive addresses and ports spread over the buckets and the tags of a table as random numbers do.
    #[test]
    fn consecutive_tuples_spread_evenly() {
        for shift in [0, 8, 32, 54] {
            let hash = TupleHash::new();
            let mut cells = [0_f64; 1024];
            for n in 0..65_536_u32 {
                let source = end(0x0a00_0000 + (n >> 8), 1024 + u16::try_from(n & 0xff).unwrap());
                let (tuple, _) = Tuple::of_ends(0, 6, source, end(0x0b00_0001, 80));
                cells[usize::try_from(hash.of(&tuple) >> shift & 1023).unwrap()] += 1.0;
            }
            // The statistic has 1,023 degrees of freedom: 1,023 on average, with a standard deviation of 45.
            let chi_squared: f64 = cells.iter().map(|count| (count - 64.0_f64).powi(2) / 64.0).sum();
            assert!(chi_squared < 1_400.0, "shifted by {shift}: {chi_squared}");
        }
    }
}
