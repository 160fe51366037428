//! Translation that a commit asks for, as the action `nat` of Open vSwitch's `ct(commit)` (ovs-actions(7)), and the
//! choice of the translated ends.
//!
//! The replies of a translated connection must have a tuple of their own, because the tuple is the second key of the
//! connection. A source port is therefore changed if necessary:
//!
//! - Source NAT changes the port if another connection has the tuple of the replies.
//! - Destination NAT tries the other destinations of its range first, and then changes the source port.
//!
//! Without a range of ports, the source port stays in its class, as in Open vSwitch and Linux: below 512, from 600 to
//! 1,023, or from 1,024 on. A server that trusts ports below 1,024 thus keeps its meaning. An identifier of ICMP has no
//! class.

use packet::ip_proto;

use crate::nat::mapping::Mapping;
use crate::nat::ports::{Choice, Flow, Lease, NotAllocated, Ports, Range, Selection};
use crate::tuple::{Address, End, Side, Tuple};

/// End of a connection that NAT translates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Target {
    /// Source of the first packet (SNAT).
    #[default]
    Source,
    /// Destination of the first packet (DNAT).
    Destination,
}

/// Translation of a new connection: `nat(src=...)` or `nat(dst=...)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Nat<A> {
    /// End that is translated.
    pub target: Target,
    /// First address of the range. If the first and the last address of a source are 0, the source keeps its address,
    /// and its port changes only if another connection has the tuple of the replies.
    pub first_address: A,
    /// Last address of the range.
    pub last_address: A,
    /// First and last port, or identifier of ICMP queries. `None`: a destination keeps its port, and a source keeps its
    /// port if possible.
    pub ports: Option<[u16; 2]>,
    /// Options of the choice within the range. [`Choice::Hashed`] has no effect on a source without a range of ports.
    pub selection: Selection,
}

/// Chosen translation of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation<A> {
    /// Tuple of the replies. The tuple is equal to the tuple of the connection if nothing changes.
    pub reply_tuple: Tuple<A>,
    /// Side of the originator in the tuple of the replies.
    pub originator: Side,
    /// End that is translated.
    pub target: Target,
    /// Lease of the source port, or [`Lease::NONE`]. The subscriber is the address of the original source.
    pub lease: Lease,
}

impl<A: Address> Nat<A> {
    /// Chooses the translated ends of a connection. `is_unique` returns whether the table accepts a tuple of replies,
    /// and whether the tuple belongs to this worker. The function does not ask for the tuple of the connection itself.
    ///
    /// # Errors
    /// Returns the reason for which the connection cannot be translated. Nothing is allocated then.
    pub fn choose(
        &self,
        ports: &mut Ports<A>,
        tuple: &Tuple<A>,
        originator: Side,
        mut is_unique: impl FnMut(&Tuple<A>) -> bool,
    ) -> Result<Translation<A>, NotAllocated> {
        let original = tuple.ends(originator);
        let Tuple { zone, protocol, .. } = *tuple;
        let (query, [source, destination]) = (tuple.query(), original);
        let mapping = |translated| Mapping { zone, protocol, query, original, translated };
        let mut is_accepted = |translated: [End<A>; 2]| {
            // The replies of exchanged ends, or of equal ends, cannot be told from the packets of the other direction.
            let reply_tuple = mapping(translated).reply_tuple().0;
            let is_ambiguous = reply_tuple == *tuple || query.is_none() && translated[0] == translated[1];
            translated == original || !is_ambiguous && is_unique(&reply_tuple)
        };
        let mut flow = Flow { zone, protocol, query, source, remote: destination };
        let (destination, source, lease) = match self.target {
            Target::Source => {
                let (range, selection) = self.source_range(tuple, source);
                let accepts = |end| is_accepted([end, destination]);
                let source = ports.allocate(&range, &flow, selection, accepts)?;
                (destination, source, ports.lease(&range, &flow, source))
            }
            Target::Destination => {
                let (range, selection) = (self.destination_range(tuple, destination), self.selection);
                let accepts = |end| is_accepted([source, end]);
                match ports.choose_destination(&range, &flow, selection, accepts) {
                    Ok(destination) => (destination, source, Lease::NONE),
                    Err(NotAllocated::Clash) if has_source_port(tuple) => {
                        flow.remote = ports.choose_destination(&range, &flow, selection, |_| true)?;
                        let (range, selection) = Nat::default().source_range(tuple, source);
                        let accepts = |end| is_accepted([end, flow.remote]);
                        let source = ports.allocate(&range, &flow, selection, accepts)?;
                        (flow.remote, source, ports.lease(&range, &flow, source))
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let (reply_tuple, originator) = mapping([source, destination]).reply_tuple();
        Ok(Translation { reply_tuple, originator, target: self.target, lease })
    }

    /// Returns the range of translated sources, and the choice within the range.
    fn source_range(&self, tuple: &Tuple<A>, source: End<A>) -> (Range<A>, Selection) {
        let class = match (tuple.query(), source.port) {
            _ if !has_source_port(tuple) => [0, 0],
            (Some(_), _) => [0, u16::MAX],
            (None, ..512) => [1, 511],
            (None, 512..1024) => [600, 1023],
            (None, 1024..) => [1024, u16::MAX],
        };
        let mut selection = self.selection;
        if self.ports.is_none() && selection.choice == Choice::Hashed {
            selection.choice = Choice::Keep;
        }
        let [first_port, last_port] = self.ports.filter(|_| has_source_port(tuple)).unwrap_or(class);
        let is_kept = (self.first_address, self.last_address) == (A::default(), A::default());
        let (first_address, last_address) = match is_kept {
            true => (source.address, source.address),
            false => (self.first_address, self.last_address),
        };
        (Range { first_address, last_address, first_port, last_port }, selection)
    }

    /// Returns the range of translated destinations.
    fn destination_range(&self, tuple: &Tuple<A>, destination: End<A>) -> Range<A> {
        let ports = self.ports.filter(|_| has_ports(tuple.protocol));
        let [first_port, last_port] = ports.unwrap_or([destination.port; 2]);
        let (first_address, last_address) = (self.first_address, self.last_address);
        Range { first_address, last_address, first_port, last_port }
    }
}

/// Returns whether the source of a connection has a port or an identifier.
fn has_source_port<A: Address>(tuple: &Tuple<A>) -> bool {
    has_ports(tuple.protocol) || tuple.query().is_some()
}

const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
}
