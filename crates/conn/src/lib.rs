//! Connection tracking: state that the switch, the router and the balancer keep for each connection.
//!
//! This crate contains the protocol state of TCP ([`tcp`]). The state is a plain value of fixed size: no function
//! allocates, locks, reads a clock or panics on any input.
//!
//! ```
//! use conn::{Direction, tcp::{Connection, Segment, State, Verdict}};
//! use packet::tcp::flags;
//!
//! let syn = Segment { seq: 100, flags: flags::SYN, window: 1000, ..Segment::default() };
//! let mut connection = Connection::open(&syn, false)?;
//! let syn_ack = Segment { seq: 500, ack: 101, flags: flags::SYN | flags::ACK, window: 1000, ..Segment::default() };
//! assert_eq!(connection.track(Direction::Reply, &syn_ack, true), Verdict::Accepted);
//! assert_eq!(connection.state(), State::SynReceived);
//! # Ok::<(), conn::tcp::Invalid>(())
//! ```

mod embryonic;
pub mod entry;
pub mod extension;
pub mod headers;
mod index;
pub mod sctp;
pub mod table;
pub mod tcp;
pub mod timeout;
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
