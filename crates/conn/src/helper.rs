//! Connection tracking helpers, which Open vSwitch calls application layer gateways (ALG).
//!
//! A helper reads the payloads of a connection, its parent, and learns that the ends will open another connection: the
//! data connection of FTP or TFTP. The packets of the expected connection have the bit
//! [`CtState::RELATED`](crate::track::CtState::RELATED), and the connection inherits the mark, the label and the
//! translation of its parent.
//!
//! ```text
//!  Helpers            helpers of a table's connections
//!    |--- state         helper, starts of lines and sequence offsets of each connection with a helper
//!    |--- ftp, tftp     total functions over payloads; replacement of addresses and ports
//!    |--- expectation   expected connections
//!    |--- replace       replacement in a packet, with its lengths and checksums
//!    '--- sequence      correction of TCP sequence numbers after a replacement
//! ```
//!
//! # Rules
//!
//! - A connection has a helper only if its commit asks for one. No helper follows from a port number.
//! - An FTP line must begin where an earlier segment of the direction has ended with LF. A line that is split over
//!   segments is not recognised, and neither is a line after the first one of a segment.
//! - The address in an FTP line must be the address of the sender, or the address to which NAT translates this address.
//!   Other addresses would let a client connect a server to a third host (RFC 2577 section 3). [`Options::any_address`]
//!   permits other addresses.
//! - Ports of an FTP line below 1,024 are refused (RFC 2577 section 3). Linux and Open vSwitch accept these ports.
//!   [`Options::lowest_port`] permits other ports.
//! - The expectations of a parent end with the parent.
//!
//! # Translated parents
//!
//! The expected connection has the addresses of the parent on both sides. If the announced end has another address
//! behind NAT, the line is changed to the translated address, and the destination of the expected connection is
//! translated. If another connection uses or expects the translated port, one of the next ports is chosen. If the other
//! end is translated, the source of the expected connection is translated.

mod chains;
pub mod expectation;
pub mod ftp;
pub mod replace;
pub mod sequence;
mod state;
pub mod tftp;

use packet::tcp::flags;

use crate::Direction;
use crate::entry::EntryId;
use crate::extension::Extension;
use crate::nat::spec::{Nat, Target};
use crate::tcp::Segment;
use crate::tuple::{Address, End, Tuple, TupleHash};

use expectation::{Expectation, Expectations, Limits, NotExpected, Parent};
use sequence::Correction;
pub use state::Helper;
use state::{LastLine, States};

/// Largest number of translated ports that are tried for an expected connection.
const PORTS_TRIED: u16 = 64;

/// Sizes of the helpers of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Largest number of connections with a helper.
    pub connections: u32,
    /// Limits of the table of expected connections.
    pub limits: Limits,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { connections: 4096, limits: Limits::default() }
    }
}

/// Settings of the helpers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether an FTP line may announce an end with an address that is not the address of the sender.
    pub any_address: bool,
    /// Lowest port that an FTP line may announce.
    pub lowest_port: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options { any_address: false, lowest_port: 1024 }
    }
}

/// Result of a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Help<A> {
    /// New expectation, which the table of this worker has. The caller adds the expectation to the tables of the other
    /// workers.
    pub expectation: Option<Expectation<A>>,
    /// Replacement in the payload, which the caller applies before the packet is sent.
    pub replacement: Option<ftp::Replacement<A>>,
}

impl<A> Default for Help<A> {
    fn default() -> Help<A> {
        Help { expectation: None, replacement: None }
    }
}

/// Reason for which a helper does not expect the connection that a payload announces. The connection of the payload is
/// unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Refusal {
    /// The FTP line is not valid.
    Line(ftp::NotRead),
    /// The address in the FTP line is not the address of the sender.
    ForeignAddress,
    /// The port in the FTP line is below [`Options::lowest_port`].
    LowPort,
    /// The table of expected connections refuses the connection.
    NotExpected(NotExpected),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::NotExpected(why) => return why.fmt(f),
            Refusal::Line(ftp::NotRead::Other) => "the line announces no connection",
            Refusal::Line(ftp::NotRead::Incomplete) => "the line does not end in the packet",
            Refusal::Line(ftp::NotRead::Malformed) => "the address or the port of the line is malformed",
            Refusal::Line(ftp::NotRead::Family) => {
                "the address of the line belongs to another address family"
            }
            Refusal::ForeignAddress => "the address of the line is not the address of the sender",
            Refusal::LowPort => "the port of the line is lower than the permitted ports",
        })
    }
}

impl std::error::Error for Refusal {}

impl From<NotExpected> for Refusal {
    fn from(why: NotExpected) -> Refusal {
        Refusal::NotExpected(why)
    }
}

/// Connection whose payloads a helper reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentConnection<A> {
    pub(crate) parent: Parent,
    pub(crate) zone: u16,
    /// Source and destination of the packets that the originator sends.
    pub(crate) original: [End<A>; 2],
    /// Source and destination of the packets that the other end receives from the originator.
    pub(crate) translated: [End<A>; 2],
    /// Mark and label.
    pub(crate) extension: Extension,
}

/// End of a connection, with its addresses on both sides of the tracker.
#[derive(Clone, Copy)]
struct Announced<A> {
    /// End as its own host knows the end.
    own: End<A>,
    /// End as the other host knows the end.
    outer: End<A>,
}

impl<A: Address> ParentConnection<A> {
    /// Returns the end that sends the packets of a direction.
    fn sender(&self, direction: Direction) -> Announced<A> {
        match direction {
            Direction::Original => Announced { own: self.original[0], outer: self.translated[0] },
            Direction::Reply => Announced { own: self.translated[1], outer: self.original[1] },
        }
    }

    /// Returns the connection that the receiver of the packets of a direction will open to the announced end.
    fn expectation(&self, direction: Direction, announced: &Announced<A>, protocol: u8) -> Expectation<A> {
        let Announced { own, outer } = *announced;
        let opener = self.sender(direction.opposite());
        let nat = |target, address: A, ports| Nat {
            target,
            first_address: address,
            last_address: address,
            ports,
            ..Nat::default()
        };
        let nat = if own != outer {
            Some(nat(Target::Destination, own.address, Some([own.port; 2])))
        } else if opener.own.address != opener.outer.address {
            Some(nat(Target::Source, opener.outer.address, None))
        } else {
            None
        };
        let (parent, zone, extension) = (self.parent, self.zone, self.extension);
        let (source, destination) = (opener.own.address, outer);
        Expectation { parent, zone, protocol, source, destination, extension, nat, is_single_use: true }
    }
}

/// Helpers of the connections of a table, and the connections that the table expects.
#[derive(Debug)]
pub struct Helpers<A> {
    /// Settings.
    pub options: Options,
    /// Expected connections.
    pub expectations: Expectations<A>,
    states: States,
}

impl<A: Address> Helpers<A> {
    /// Returns helpers without connections.
    #[must_use]
    pub fn new(sizes: Sizes, hash: TupleHash) -> Helpers<A> {
        let expectations = Expectations::new(sizes.limits, hash);
        Helpers { options: Options::default(), expectations, states: States::new(sizes.connections) }
    }

    /// Returns the number of connections with a helper.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.states.count()
    }

    /// Returns the helper of a connection.
    #[must_use]
    pub fn helper(&self, id: EntryId) -> Option<Helper> {
        self.states.get(id).map(|state| state.helper)
    }

    /// Returns whether a further connection may have a helper.
    pub(crate) fn has_unused(&self) -> bool {
        self.states.has_unused()
    }

    /// Assigns a helper to a connection without one. Returns false if all states are in use.
    pub(crate) fn assign(&mut self, id: EntryId, helper: Helper) -> bool {
        self.states.insert(id, helper)
    }

    /// Removes the helper of a connection, and the expectations of the connection.
    pub(crate) fn remove(&mut self, parent: Parent) {
        self.states.remove(parent.id);
        self.expectations.remove_of(parent);
    }

    /// Returns the corrections of a segment of a connection. Returns `None` if the numbers are unchanged.
    pub(crate) fn correction(&self, id: EntryId, direction: Direction) -> Option<Correction> {
        self.states.get(id)?.correction(direction)
    }

    /// Records that the payload of a segment has become longer by this number of octets.
    pub(crate) fn change_length(&mut self, id: EntryId, direction: Direction, seq: u32, difference: i32) {
        if let Some(state) = self.states.get_mut(id) {
            state.change_length(direction, seq, difference);
        }
    }

    /// Reads the payload of a datagram of TFTP.
    ///
    /// # Errors
    /// Returns the reason for which the announced connection is not expected.
    pub(crate) fn read_tftp(
        &mut self,
        connection: &ParentConnection<A>,
        direction: Direction,
        payload: &[u8],
        now: u32,
    ) -> Result<Help<A>, Refusal> {
        if direction == Direction::Reply || tftp::read_request(payload).is_none() {
            return Ok(Help::default());
        }
        let announced = connection.sender(direction);
        let expectation = connection.expectation(direction, &announced, Helper::Tftp.protocol());
        self.expectations.expect(&expectation, now)?;
        Ok(Help { expectation: Some(expectation), replacement: None })
    }

    /// Reads the payload of a segment of FTP. `is_free` returns whether the table has no connection with a tuple.
    ///
    /// # Errors
    /// Returns the reason for which the announced connection is not expected.
    pub(crate) fn read_ftp(
        &mut self,
        connection: &ParentConnection<A>,
        direction: Direction,
        segment: &Segment,
        payload: &[u8],
        is_free: impl Fn(&Tuple<A>) -> bool,
        now: u32,
    ) -> Result<Help<A>, Refusal> {
        let (seq, id) = (segment.seq, connection.parent.id);
        let Some(state) = self.states.get_mut(id) else { return Ok(Help::default()) };
        if payload.is_empty() || segment.flags & flags::SYN != 0 {
            return Ok(Help::default());
        }
        let last = state.last.filter(|last| (last.direction, last.seq) == (direction, seq));
        let lines = &mut state.lines[direction as usize];
        let is_line = last.is_some() || lines.has(seq);
        if payload.ends_with(b"\n") {
            let len = u32::try_from(payload.len()).unwrap_or_default();
            lines.add(seq.wrapping_add(len));
        }
        if !is_line {
            return Ok(Help::default());
        }
        let read = match direction {
            Direction::Original => ftp::read_command(payload),
            Direction::Reply => ftp::read_reply(payload),
        };
        let line = match read {
            Ok(line) => line,
            Err(ftp::NotRead::Other) => return Ok(Help::default()),
            Err(why) => return Err(Refusal::Line(why)),
        };
        let mut announced = self.check(connection.sender(direction), &line)?;
        let repeated = last.filter(|last| last.port == line.port);
        let expectation = match repeated {
            Some(last) => {
                announced.outer.port = last.new_port;
                None
            }
            None => Some(self.expect(connection, direction, &mut announced, is_free, now)?),
        };
        let new = announced.outer;
        if let Some(state) = self.states.get_mut(id) {
            state.last = Some(LastLine { direction, seq, port: line.port, new_port: new.port });
        }
        let is_kept = new.port == line.port && line.address.is_none_or(|address| address == new.address);
        let replacement = (!is_kept).then_some(ftp::Replacement {
            kind: line.kind,
            range: line.range,
            address: new.address,
            port: new.port,
        });
        Ok(Help { expectation, replacement })
    }

    /// Returns the end that a line announces.
    fn check(&self, sender: Announced<A>, line: &ftp::Announcement<A>) -> Result<Announced<A>, Refusal> {
        if line.port < self.options.lowest_port {
            return Err(Refusal::LowPort);
        }
        let end = |address| End { address, port: line.port };
        let (own, outer) = (sender.own.address, sender.outer.address);
        match line.address {
            Some(address) if address != own && address != outer => {
                let end = end(address);
                let announced = Announced { own: end, outer: end };
                self.options.any_address.then_some(announced).ok_or(Refusal::ForeignAddress)
            }
            _ => Ok(Announced { own: end(own), outer: end(outer) }),
        }
    }

    /// Adds the expectation of a data connection of FTP to the announced end. Changes the port on the other side of NAT
    /// if another connection is expected there, or if another data connection of the server has the port. `is_free`
    /// returns whether the table has no connection with a tuple.
    fn expect(
        &mut self,
        connection: &ParentConnection<A>,
        direction: Direction,
        announced: &mut Announced<A>,
        is_free: impl Fn(&Tuple<A>) -> bool,
        now: u32,
    ) -> Result<Expectation<A>, NotExpected> {
        let first = announced.own.port;
        let is_translated = announced.own.address != announced.outer.address;
        let last = if is_translated { first.saturating_add(PORTS_TRIED) } else { first };
        // The server opens data connections from the port before its control port (RFC 959 section 3.2).
        let Announced { own: opener, .. } = connection.sender(direction.opposite());
        let opener = End { port: opener.port.saturating_sub(1), ..opener };
        let is_unused = |outer| {
            let tuple = Tuple::of_ends(connection.zone, Helper::Ftp.protocol(), opener, outer).0;
            !is_translated || direction == Direction::Reply || is_free(&tuple)
        };
        let mut refused = NotExpected::NoPort;
        for port in first..=last {
            announced.outer.port = port;
            if !is_unused(announced.outer) {
                continue;
            }
            let expectation = connection.expectation(direction, announced, Helper::Ftp.protocol());
            match self.expectations.expect(&expectation, now) {
                Ok(()) => return Ok(expectation),
                Err(NotExpected::Exists(_)) if is_translated => {}
                Err(why) => {
                    refused = why;
                    break;
                }
            }
        }
        Err(refused)
    }
}
