//! Connection tracking: state that the switch, the router and the balancer keep for each connection.
//!
//! A [`track::Tracker`] has the connections of one address family. A worker reads the headers of a burst, tracks the
//! burst, and commits the new connections that its rules accept. Workers may have a tracker each, or share one under a
//! lock.
//!
//! ```text
//!  fragment::Reassembler    fragments of a datagram, until one Packet for all of them is known
//!       |
//!  headers::Packet      canonical tuple, direction, fields of the protocol
//!       |
//!  track::Tracker       state bits of the packet; commits new connections; new fields of translated packets
//!       |--- table::Table        entries and their index: look-up by both tuples, insertion, expiry
//!       |      |--- embryonic    the oldest embryonic entry gives way
//!       |      |--- extension    marks, labels, and tuples of the replies of translated connections
//!       |      |--- helper       FTP and TFTP: expected connections, and their announcements (see [`helper`])
//!       |      '--- nat::spec    choice of translated ends (see [`nat`])
//!       |--- tcp, sctp           protocol states
//!       '--- zone::Zones         limits and time-out policies of zones
//!
//!  nat::translate         rewriting of packets
//! ```
//!
//! No function of the data path allocates, locks, reads a clock or panics on any input. Times are arguments.
//!
//! ```
//! use conn::{headers::Packet, table::Sizes, track::{Commit, CtState, Tracker}, tuple::TupleHash, zone::Zones};
//! use packet::{ipv4::Ipv4, spec};
//!
//! let (mut tracker, zones) = (Tracker::new(Sizes::of_entries(1000), TupleHash::new()), Zones::new());
//! let frame = spec::parse("ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=1000,dst_port=53")?;
//! let packet = Packet::of_ipv4(&Ipv4::parse(&frame[14..])?, 0).expect("the headers are complete");
//! let mut tracked = tracker.track(&zones, &packet, 0);
//! assert_eq!(tracked.state, CtState::TRACKED | CtState::NEW);
//! tracker.commit(&zones, &packet, &mut tracked, &Commit::default(), 0).expect("the table has space");
//!
//! let frame = spec::parse("ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=53,dst_port=1000")?;
//! let answer = Packet::of_ipv4(&Ipv4::parse(&frame[14..])?, 0).expect("the headers are complete");
//! let tracked = tracker.track(&zones, &answer, 5);
//! assert_eq!(tracked.state, CtState::TRACKED | CtState::ESTABLISHED | CtState::REPLY);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod embryonic;
pub mod entry;
pub mod extension;
pub mod fragment;
pub mod headers;
pub mod helper;
mod index;
mod layout;
pub mod nat;
pub mod sctp;
pub mod table;
pub mod tcp;
pub mod timeout;
pub mod track;
pub mod tuple;
pub mod zone;

/// Direction of a packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// Direction of the first packet of the connection.
    Original,
    /// Direction opposite to the first packet of the connection.
    Reply,
}

impl Direction {
    /// Returns the opposite direction.
    #[must_use]
    pub const fn opposite(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}
