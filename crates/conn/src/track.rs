//! Tracker of one address family: the state bits of packets, and the commit of new connections.
//!
//! The state bits have the meaning and the numbers of Open vSwitch's `ct_state` (ovs-fields(7)). A packet is `new`
//! until the other end has replied, and `established` from the reply on. [`Tracker::track`] corresponds to the action
//! `ct` without `commit`. It changes only connections that are committed. [`Tracker::commit`] corresponds to
//! `ct(commit)` after `ct`: it enters a new connection into the table.
//!
//! [`Tracker::translate`] corresponds to `ct(nat)`, and to the translation after `ct(commit,nat(...))`: it returns the
//! new values of the fields of a packet. A translated connection has two tuples. The originator sends packets with the
//! tuple of the connection, and the other end sends packets with the tuple of the replies. A packet with one of these
//! tuples from the other side is invalid ([`Invalid::NotTranslated`]).
//!
//! The helper of a connection ([`Commit::helper`]) reads the payloads that the caller passes to [`Tracker::help`]. The
//! connections that a payload announces have the bit [`CtState::RELATED`], and inherit the mark, the label and the
//! translation of their parent (see [`crate::helper`]).
//!
//! A connection stays embryonic (see [`crate::table`]) until its handshake is complete. A connection without a
//! handshake, or one that was picked up in the middle, stays embryonic until the other end has replied.

mod help;

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::Direction;
use crate::entry::Entry;
use crate::extension::{Extension, NoExtension};
use crate::headers::{Content, Packet};
use crate::helper::expectation::Expectation;
use crate::helper::{Helper, Helpers};
use crate::nat::spec::{Nat, Target};
use crate::nat::translate::Rewrite;
use crate::table::{EntryId, NewConnection, Refused, Sizes, Table};
use crate::timeout::Timeout;
use crate::tuple::{Address, Tuple, TupleHash};
use crate::zone::Zones;
use crate::{sctp, tcp};

/// State bits of a tracked packet, as in Open vSwitch's field `ct_state`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct CtState(pub u8);

impl CtState {
    /// The packet belongs to a connection whose other end has not replied.
    pub const NEW: CtState = CtState(0x01);
    /// The packet belongs to a connection whose other end has replied.
    pub const ESTABLISHED: CtState = CtState(0x02);
    /// The packet is an ICMP error about a packet of a connection, or belongs to a connection that another connection
    /// has announced (see [`crate::helper`]). All packets of such a connection have the bit.
    pub const RELATED: CtState = CtState(0x04);
    /// The packet comes from the end that did not open the connection, or is an ICMP error about a packet of the other
    /// end.
    pub const REPLY: CtState = CtState(0x08);
    /// The packet belongs to no connection, and cannot open one.
    pub const INVALID: CtState = CtState(0x10);
    /// The packet went through the tracker.
    pub const TRACKED: CtState = CtState(0x20);
    /// The source of the packet was translated.
    pub const SNAT: CtState = CtState(0x40);
    /// The destination of the packet was translated.
    pub const DNAT: CtState = CtState(0x80);

    const NAMES: [&'static str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

    /// Returns whether all the given bits are set.
    #[must_use]
    pub const fn has(self, bits: CtState) -> bool {
        self.0 & bits.0 == bits.0
    }
}

impl BitOr for CtState {
    type Output = CtState;

    fn bitor(self, other: CtState) -> CtState {
        CtState(self.0 | other.0)
    }
}

impl BitOrAssign for CtState {
    fn bitor_assign(&mut self, other: CtState) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for CtState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CtState::NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0);
        let mut names = names.map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("0"))?;
        names.try_for_each(|name| write!(f, "|{name}"))
    }
}

/// Reason for which a packet is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// The segment does not belong to its TCP connection, or cannot open one.
    Tcp(tcp::Invalid),
    /// The packet does not belong to its SCTP association, or cannot open one.
    Sctp(sctp::Invalid),
    /// The packet is an ICMP error or the reply to a query, and there is no connection that it could belong to.
    NoConnection,
    /// The packet has a tuple of a translated connection, but NAT uses the other tuple for packets from this side.
    NotTranslated,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Tcp(why) => why.fmt(f),
            Invalid::Sctp(why) => why.fmt(f),
            Invalid::NoConnection => f.write_str("it belongs to no connection"),
            Invalid::NotTranslated => f.write_str("its addresses are those of the other side of NAT"),
        }
    }
}

impl std::error::Error for Invalid {}

/// Result of tracking a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tracked {
    /// State bits of the packet.
    pub state: CtState,
    /// Connection of the packet. `None` if the connection is not committed.
    pub id: Option<EntryId>,
    /// Reason for which the packet is invalid. `None` if the packet is valid.
    pub invalid: Option<Invalid>,
}

impl Tracked {
    fn of(state: CtState, id: Option<EntryId>) -> Tracked {
        Tracked { state: state | CtState::TRACKED, id, invalid: None }
    }

    fn of_invalid(why: Invalid, id: Option<EntryId>) -> Tracked {
        Tracked { state: CtState::INVALID | CtState::TRACKED, id, invalid: Some(why) }
    }
}

/// Options of `ct(commit)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Commit<A> {
    /// Whether the packet opens a new connection if the connection of the packet was opened by the other end.
    pub force: bool,
    /// Value and mask of the mark. Bits outside the mask stay unchanged.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label. Bits outside the mask stay unchanged.
    pub label: Option<(u128, u128)>,
    /// Translation of a new connection. An existing connection keeps its translation.
    pub nat: Option<Nat<A>>,
    /// Helper of a new connection, as `alg=` of Open vSwitch. An existing connection keeps its helper. A helper of
    /// another protocol than the connection is ignored.
    pub helper: Option<Helper>,
}

impl<A> Commit<A> {
    /// Returns the mark and the label after the commit.
    fn extension(&self, Extension { label, mark }: Extension) -> Extension {
        let mark = self.mark.map_or(mark, |(value, mask)| mark & !mask | value & mask);
        let label = self.label.map_or(label, |(value, mask)| label & !mask | value & mask);
        Extension { label, mark }
    }
}

/// Reason for which a packet's connection is not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotCommitted {
    /// The packet is invalid.
    Invalid,
    /// The table refuses the connection.
    Refused(Refused),
    /// The table has no free record for a mark and label, or for a translation. A new connection is not entered.
    NoExtension,
    /// The table has no state for a further connection with a helper. A new connection is not entered.
    NoHelper,
}

impl From<NoExtension> for NotCommitted {
    fn from(_: NoExtension) -> NotCommitted {
        NotCommitted::NoExtension
    }
}

/// Settings of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether a packet from the middle of a TCP connection or an SCTP association opens it, for example after a
    /// restart.
    pub pick_up: bool,
    /// Whether the sequence and acknowledgement numbers of TCP segments must be within the windows.
    pub check_windows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { pick_up: true, check_windows: true }
    }
}

/// Connections for IPv4 (`u32`) or IPv6 (`u128`).
#[derive(Debug)]
pub struct Tracker<A> {
    /// Connections that are committed.
    pub table: Table<A>,
    /// Settings.
    pub options: Options,
}

/// Protocol state of a new connection.
enum Opening {
    Tcp(tcp::Connection),
    Sctp(sctp::Association),
    Other,
}

impl<A: Address> Tracker<A> {
    /// Returns a tracker without connections.
    #[must_use]
    pub fn new(sizes: Sizes, hash: TupleHash) -> Tracker<A> {
        Tracker { table: Table::new(sizes, hash), options: Options::default() }
    }

    /// Tracks a packet, as a burst of one packet: returns its state, and updates its connection. `now` is the time in
    /// milliseconds.
    pub fn track(&mut self, zones: &Zones, packet: &Packet<A>, now: u32) -> Tracked {
        self.table.begin_burst();
        let id = self.table.find(&packet.tuple, now);
        self.track_found(zones, packet, id, now)
    }

    /// Returns what [`Tracker::track`] would return, and changes nothing. `now` is the time in milliseconds.
    #[must_use]
    pub fn peek(&self, packet: &Packet<A>, now: u32) -> Tracked {
        let id = self.table.find(&packet.tuple, now);
        if let Some(id) = id
            && let Some(entry) = self.table.get(id)
        {
            let is_related = entry.has_flags() && entry.is_related();
            let related = if is_related { CtState::RELATED } else { CtState::default() };
            match update(&mut entry.clone(), &self.with_number_of_sender(id, packet), self.options) {
                Update::Tracked { state, .. } | Update::Unchanged(state) => {
                    return Tracked::of(state | related, Some(id));
                }
                Update::Invalid(why) => return Tracked::of_invalid(why, Some(id)),
                Update::Replaced => {}
            }
        }
        match self.opening(packet) {
            Ok(_) => Tracked::of(self.state_of_new(packet, now), None),
            Err(why) => Tracked::of_invalid(why, None),
        }
    }

    /// Tracks the packets of a burst in their order. The function writes the result for each packet to the element of
    /// `tracked` at the same index, and ignores packets beyond the length of `tracked`. `now` is the time in
    /// milliseconds.
    pub fn track_burst(&mut self, zones: &Zones, packets: &[Packet<A>], now: u32, tracked: &mut [Tracked]) {
        const TOGETHER: usize = 32;
        self.table.begin_burst();
        for (packets, tracked) in packets.chunks(TOGETHER).zip(tracked.chunks_mut(TOGETHER)) {
            let mut tuples = [Tuple::default(); TOGETHER];
            tuples.iter_mut().zip(packets).for_each(|(tuple, packet)| *tuple = packet.tuple);
            let mut found = [None; TOGETHER];
            self.table.find_burst(&tuples[..packets.len()], now, &mut found);
            for ((packet, found), tracked) in packets.iter().zip(found).zip(tracked) {
                // An earlier packet of the burst may have removed the connection.
                let id = found.filter(|id| self.table.holds(*id, &packet.tuple));
                *tracked = self.track_found(zones, packet, id, now);
            }
        }
    }

    /// Commits the connection of a packet that [`Tracker::track`] has returned as `tracked`. Enters a new connection
    /// into the table, with its translation, and sets the mark and the label. Changes `tracked` to the state of the
    /// packet after the commit. `now` is the time in milliseconds.
    ///
    /// # Errors
    /// Returns the reason for which the connection is not committed. An existing connection, its mark and its label are
    /// unchanged then.
    pub fn commit(
        &mut self,
        zones: &Zones,
        packet: &Packet<A>,
        tracked: &mut Tracked,
        commit: &Commit<A>,
        now: u32,
    ) -> Result<EntryId, NotCommitted> {
        if tracked.invalid.is_some() {
            return Err(NotCommitted::Invalid);
        }
        let known = tracked.id.filter(|id| self.table.holds(*id, &packet.tuple));
        let is_forced = commit.force && tracked.state.has(CtState::REPLY) && packet.content != Content::Error;
        if let Some(id) = known.filter(|_| !is_forced) {
            self.change_extension(id, commit)?;
            return Ok(id);
        }
        let opening = self.opening(packet).map_err(|_| NotCommitted::Invalid)?;
        let expires = now.wrapping_add(zones.timeouts(packet.tuple.zone).get(first_timeout(packet)));
        let (tuple, originator) = (packet.tuple, packet.source);
        let helper = commit.helper.filter(|helper| helper.protocol() == tuple.protocol);
        if helper.is_some() && !self.table.helpers().is_some_and(Helpers::has_unused) {
            return Err(NotCommitted::NoHelper);
        }
        let expected = tracked.state.has(CtState::RELATED).then(|| self.expectation(packet, now).copied());
        let expected = expected.flatten();
        let inherited = expected.map_or_else(Extension::default, |expected| expected.extension);
        let nat = expected.and_then(|expected| expected.nat).or(commit.nat);
        let extension = commit.extension(inherited);
        let new = NewConnection { tuple, originator, expires, extension, nat };
        let opened = match known {
            Some(id) => self.table.replace(id, &new, now).map(|()| id),
            None => self.table.insert(zones, &new, now),
        };
        match opened {
            Ok(id) => {
                if let Some(entry) = self.table.get_mut(id) {
                    match opening {
                        Opening::Tcp(connection) => entry.set_tcp(connection),
                        Opening::Sctp(association) => entry.set_sctp(association),
                        Opening::Other => {}
                    }
                }
                *tracked = Tracked::of(CtState::NEW, Some(id));
                if let Some(helper) = helper {
                    self.table.assign_helper(id, helper);
                }
                if let Some(expected) = &expected {
                    tracked.state |= CtState::RELATED;
                    self.relate(id, expected);
                }
                Ok(id)
            }
            // An earlier packet of the burst has committed the connection, and this packet is its next one.
            Err(Refused::Exists(id)) => {
                *tracked = self.track_found(zones, packet, Some(id), now);
                let is_unchanged = tracked.invalid.is_none() && tracked.id == Some(id);
                if !is_unchanged {
                    return Err(NotCommitted::Invalid);
                }
                self.change_extension(id, commit)?;
                Ok(id)
            }
            Err(Refused::NoExtension) => Err(NotCommitted::NoExtension),
            Err(refused) => Err(NotCommitted::Refused(refused)),
        }
    }

    /// Returns the new values of the fields of a packet, and adds the bit of the translated end to the state in
    /// `tracked`. Returns `None` if the packet is invalid, or if its connection is not committed or not translated. The
    /// caller passes the packet as it was tracked.
    pub fn translate(&self, packet: &Packet<A>, tracked: &mut Tracked) -> Option<Rewrite<A>> {
        let id = tracked.id.filter(|_| tracked.invalid.is_none())?;
        let (mapping, target) = self.table.mapping(id).filter(|_| self.table.holds(id, &packet.tuple))?;
        let direction = self.table.get(id)?.direction(&packet.tuple, packet.source)?;
        tracked.state |= match (target, direction) {
            (Target::Source, Direction::Original) | (Target::Destination, Direction::Reply) => CtState::SNAT,
            (Target::Source, Direction::Reply) | (Target::Destination, Direction::Original) => CtState::DNAT,
        };
        Some(mapping.rewrite(direction))
    }

    /// Tracks a packet whose connection was looked up.
    #[inline]
    fn track_found(&mut self, zones: &Zones, packet: &Packet<A>, id: Option<EntryId>, now: u32) -> Tracked {
        if let Some(id) = id
            && let Some(entry) = self.table.get_mut(id)
        {
            let updated = if entry.has_flags() {
                self.update_flagged(id, packet)
            } else {
                update(entry, packet, self.options)
            };
            match updated {
                Update::Tracked { state, timeout, is_established } => {
                    if is_established {
                        self.table.establish(id);
                    }
                    let expires = now.wrapping_add(zones.timeouts(packet.tuple.zone).get(timeout));
                    self.table.set_expires(id, expires);
                    return Tracked::of(state, Some(id));
                }
                Update::Unchanged(state) => return Tracked::of(state, Some(id)),
                Update::Invalid(why) => return Tracked::of_invalid(why, Some(id)),
                Update::Replaced => self.table.remove(id),
            }
        }
        match self.opening(packet) {
            Ok(_) => Tracked::of(self.state_of_new(packet, now), None),
            Err(why) => Tracked::of_invalid(why, None),
        }
    }

    /// Returns the protocol state of the connection that a packet opens.
    fn opening(&self, packet: &Packet<A>) -> Result<Opening, Invalid> {
        match &packet.content {
            Content::Tcp(segment) => {
                let opened = tcp::Connection::open(segment, self.options.pick_up);
                opened.map(Opening::Tcp).map_err(Invalid::Tcp)
            }
            Content::Sctp(sctp) => {
                let opened = sctp::Association::open(sctp, self.options.pick_up);
                opened.map(Opening::Sctp).map_err(Invalid::Sctp)
            }
            Content::Error | Content::Query { is_reply: true } => Err(Invalid::NoConnection),
            Content::Query { is_reply: false } | Content::Udp | Content::Other => Ok(Opening::Other),
        }
    }

    /// Updates the entry of a connection with a helper, or of a connection that another connection has announced.
    #[inline(never)]
    fn update_flagged(&mut self, id: EntryId, packet: &Packet<A>) -> Update {
        let packet = self.with_number_of_sender(id, packet);
        let Some(entry) = self.table.get_mut(id) else { return Update::Invalid(Invalid::NoConnection) };
        let related = if entry.is_related() { CtState::RELATED } else { CtState::default() };
        match update(entry, &packet, self.options) {
            Update::Tracked { state, timeout, is_established } => {
                Update::Tracked { state: state | related, timeout, is_established }
            }
            Update::Unchanged(state) => Update::Unchanged(state | related),
            other => other,
        }
    }

    /// Records that a new connection was expected.
    fn relate(&mut self, id: EntryId, expected: &Expectation<A>) {
        if let Some(entry) = self.table.get_mut(id) {
            entry.set_related();
        }
        if let Some(helpers) = self.table.helpers_mut().filter(|_| expected.is_single_use) {
            helpers.expectations.remove(expected);
        }
    }

    fn change_extension(&mut self, id: EntryId, commit: &Commit<A>) -> Result<(), NoExtension> {
        if commit.mark.is_none() && commit.label.is_none() {
            return Ok(());
        }
        self.table.set_extension(id, commit.extension(self.table.extension(id)))
    }
}

/// Result of a packet for the entry of its connection.
enum Update {
    /// The packet belongs to the connection.
    Tracked { state: CtState, timeout: Timeout, is_established: bool },
    /// The packet is an ICMP error about a packet of the connection, or may not come from an end of the connection. The
    /// connection is unchanged, and the packet does not prolong it.
    Unchanged(CtState),
    /// The packet does not belong to the connection, which is unchanged.
    Invalid(Invalid),
    /// The packet opens another connection, which replaces the present one.
    Replaced,
}

/// Updates the entry of a packet's connection.
#[inline(always)]
fn update<A: Address>(entry: &mut Entry<A>, packet: &Packet<A>, options: Options) -> Update {
    let Some(direction) = entry.direction(&packet.tuple, packet.source) else {
        return Update::Invalid(Invalid::NotTranslated);
    };
    let is_reply = direction == Direction::Reply;
    let reply = if is_reply { CtState::REPLY } else { CtState::default() };
    let (timeout, is_open) = match &packet.content {
        Content::Error => return Update::Unchanged(CtState::RELATED | reply),
        Content::Tcp(segment) => {
            let mut connection = entry.tcp();
            match connection.track(direction, segment, options.check_windows) {
                tcp::Verdict::Accepted => {}
                tcp::Verdict::Unconfirmed => {
                    let is_answered = is_reply || entry.has_replied();
                    return Update::Unchanged(reply | state_of(is_answered));
                }
                tcp::Verdict::NewConnection => return Update::Replaced,
                tcp::Verdict::Invalid(why) => return Update::Invalid(Invalid::Tcp(why)),
            }
            entry.set_tcp(connection);
            entry.set_seen(is_reply);
            let state = connection.state();
            let is_opening = matches!(state, tcp::State::SynSent | tcp::State::SynReceived);
            // A connection that was picked up is not established before the reply.
            let is_picked_up = !entry.has_replied() && state == tcp::State::Established;
            let timeout = if is_picked_up { Timeout::TcpSynSent } else { Timeout::of_tcp(state) };
            (timeout, !is_opening && state != tcp::State::Closed)
        }
        Content::Sctp(sctp) => {
            let mut association = entry.sctp();
            match association.track(direction, sctp) {
                sctp::Verdict::Accepted => {}
                sctp::Verdict::NewAssociation => return Update::Replaced,
                sctp::Verdict::Invalid(why) => return Update::Invalid(Invalid::Sctp(why)),
            }
            entry.set_sctp(association);
            entry.set_seen(is_reply);
            let timeout = match association.state() {
                sctp::State::CookieWait | sctp::State::CookieEchoed => Timeout::SctpOpening,
                sctp::State::Established if entry.has_replied() => Timeout::SctpEstablished,
                sctp::State::Established => Timeout::SctpOpening,
                sctp::State::Shutdown | sctp::State::ShutdownAck => Timeout::SctpClosing,
                sctp::State::Closed => Timeout::SctpClosed,
            };
            (timeout, !matches!(timeout, Timeout::SctpOpening | Timeout::SctpClosed))
        }
        Content::Udp => {
            entry.set_seen(is_reply);
            let timeout = if entry.has_replied() { Timeout::UdpMultiple } else { Timeout::UdpSingle };
            (timeout, true)
        }
        Content::Query { .. } => {
            entry.set_seen(is_reply);
            (if entry.has_replied() { Timeout::IcmpReply } else { Timeout::IcmpFirst }, true)
        }
        Content::Other => {
            entry.set_seen(is_reply);
            (if entry.has_replied() { Timeout::OtherMultiple } else { Timeout::OtherFirst }, true)
        }
    };
    let has_replied = entry.has_replied();
    let state = reply | state_of(has_replied);
    Update::Tracked { state, timeout, is_established: is_open && has_replied }
}

/// Returns the state of a connection that a packet opens, for its time-out.
const fn first_timeout<A>(packet: &Packet<A>) -> Timeout {
    match packet.content {
        Content::Tcp(_) => Timeout::TcpSynSent,
        Content::Sctp(_) => Timeout::SctpOpening,
        Content::Udp => Timeout::UdpFirst,
        Content::Query { .. } => Timeout::IcmpFirst,
        Content::Error | Content::Other => Timeout::OtherFirst,
    }
}

/// Returns the state bit of a connection by whether the other end has replied.
const fn state_of(has_replied: bool) -> CtState {
    if has_replied { CtState::ESTABLISHED } else { CtState::NEW }
}
