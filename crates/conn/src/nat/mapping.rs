//! Translation of one connection: its original and its translated ends, the tuple of its replies, and the rewriting of
//! the packets of both directions.
//!
//! The originator sends packets between the original ends. The other end receives packets between the translated ends,
//! and its replies go between the translated ends, too. The tuple of the replies is therefore a second key of the
//! connection.

use crate::Direction;
use crate::nat::ports::Flow;
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
    /// Source and destination of the packets that the originator sends. For a query, the port of the source is the
    /// identifier, and the port of the destination has no meaning.
    pub original: [End<A>; 2],
    /// Source and destination of the packets that the other end receives from the originator.
    pub translated: [End<A>; 2],
}

impl<A: Address> Mapping<A> {
    /// Returns the mapping of a connection with these tuples (see [`Mapping::tuple`] and [`Mapping::reply_tuple`]).
    #[must_use]
    pub fn of_tuples(original: (Tuple<A>, Side), translated: (Tuple<A>, Side)) -> Mapping<A> {
        let ((tuple, originator), (reply_tuple, reply_originator)) = (original, translated);
        Mapping {
            zone: tuple.zone,
            protocol: tuple.protocol,
            query: tuple.query(),
            original: tuple.ends(originator),
            translated: reply_tuple.ends(reply_originator),
        }
    }

    /// Returns whether the source changes (SNAT).
    #[must_use]
    pub fn has_new_source(&self) -> bool {
        self.original[0] != self.translated[0]
    }

    /// Returns whether the destination changes (DNAT).
    #[must_use]
    pub fn has_new_destination(&self) -> bool {
        let [original, translated] = [self.original[1], self.translated[1]];
        original.address != translated.address || self.query.is_none() && original.port != translated.port
    }

    /// Returns the tuple of the packets that the originator sends, and the side of the originator.
    #[must_use]
    pub fn tuple(&self) -> (Tuple<A>, Side) {
        self.tuple_of(self.original)
    }

    /// Returns the tuple of the packets that the other end receives, and the side of the originator. The replies have
    /// this tuple.
    #[must_use]
    pub fn reply_tuple(&self) -> (Tuple<A>, Side) {
        self.tuple_of(self.translated)
    }

    /// Returns the ends for the choice of the translated source. [`Ports::release`](crate::nat::ports::Ports::release)
    /// releases the translated source with these ends.
    #[must_use]
    pub fn flow(&self) -> Flow<A> {
        let Mapping { zone, protocol, query, original: [source, _], translated: [_, remote] } = *self;
        Flow { zone, protocol, query, source, remote }
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
            Direction::Original => (self.original, self.translated),
            Direction::Reply => {
                ([self.translated[1], self.translated[0]], [self.original[1], self.original[0]])
            }
        };
        let ((source, source_port), (destination, destination_port)) =
            (changed(old[0], new[0]), changed(old[1], new[1]));
        let identifiers = match direction {
            Direction::Original => [self.original[0].port, self.translated[0].port],
            Direction::Reply => [self.translated[0].port, self.original[0].port],
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
