//! Translation of one connection: its ends before and behind NAT, the tuple of its replies, and the rewriting of the
//! packets of both directions.
//!
//! The originator sends packets between the ends before NAT. The other end receives packets between the ends behind
//! NAT, and its replies go between these ends, too. The tuple of the replies is therefore a second key of the
//! connection.

use crate::Direction;
use crate::nat::translate::Rewrite;
use crate::tuple::{Address, End, Query, QueryClass, Side, Tuple};

/// Translation of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Mapping<A> {
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number of the connection.
    pub protocol: u8,
    /// Class of the ICMP or ICMPv6 query. `None` for other protocols.
    pub query: Option<QueryClass>,
    /// Source and destination of the packets of the original direction before NAT. For a query, the port of the source
    /// is the identifier, and the port of the destination has no meaning.
    pub before: [End<A>; 2],
    /// Source and destination of the packets of the original direction behind NAT.
    pub behind: [End<A>; 2],
}

impl<A: Address> Mapping<A> {
    /// Returns whether the source changes (SNAT).
    #[must_use]
    pub fn has_new_source(&self) -> bool {
        self.before[0] != self.behind[0]
    }

    /// Returns whether the destination changes (DNAT).
    #[must_use]
    pub fn has_new_destination(&self) -> bool {
        let [before, behind] = [self.before[1], self.behind[1]];
        before.address != behind.address || self.query.is_none() && before.port != behind.port
    }

    /// Returns the tuple of the packets before NAT, and the side of the originator.
    #[must_use]
    pub fn tuple(&self) -> (Tuple<A>, Side) {
        self.tuple_of(self.before)
    }

    /// Returns the tuple of the packets behind NAT, and the side of the originator. The replies have this tuple.
    #[must_use]
    pub fn reply_tuple(&self) -> (Tuple<A>, Side) {
        self.tuple_of(self.behind)
    }

    /// Returns the new values of the fields of a packet in a direction. ICMP errors in the direction have the same new
    /// values as other packets.
    #[must_use]
    pub fn rewrite(&self, direction: Direction) -> Rewrite<A> {
        let changed = |old: End<A>, new: End<A>| {
            let port = (self.query.is_none() && old.port != new.port).then_some(new.port);
            ((old.address != new.address).then_some(new.address), port)
        };
        // A reply goes from the destination to the source.
        let (old, new) = match direction {
            Direction::Original => (self.before, self.behind),
            Direction::Reply => ([self.behind[1], self.behind[0]], [self.before[1], self.before[0]]),
        };
        let ((source, source_port), (destination, destination_port)) =
            (changed(old[0], new[0]), changed(old[1], new[1]));
        let identifiers = match direction {
            Direction::Original => [self.before[0].port, self.behind[0].port],
            Direction::Reply => [self.behind[0].port, self.before[0].port],
        };
        let is_changed = self.query.is_some() && identifiers[0] != identifiers[1];
        let identifier = is_changed.then_some(identifiers[1]);
        Rewrite { source, destination, source_port, destination_port, identifier }
    }

    fn tuple_of(&self, [source, destination]: [End<A>; 2]) -> (Tuple<A>, Side) {
        match self.query {
            Some(class) => {
                let query = Query { class, identifier: source.port, is_reply: false };
                Tuple::of_query(self.zone, self.protocol, source.address, destination.address, query)
            }
            None => Tuple::of_ends(self.zone, self.protocol, source, destination),
        }
    }
}
