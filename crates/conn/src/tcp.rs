//! State of tracked TCP connections (RFC 9293), with checks of sequence numbers, acknowledgements and windows.
//!
//! A tracker between both ends sees their segments, but does not know which segments arrive. For each end, it stores
//! the highest sequence number that the end has sent, the highest one that the end may send, the highest
//! acknowledgement number that the end has received, and the largest window that the end has offered. The bounds on a
//! segment are those of Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2001). Only the bound on
//! old acknowledgements is derived from RFC 5961. The state of the connection is not stored. It is derived from which
//! ends have sent SYN and FIN, and which of these were acknowledged. A state that TCP does not have therefore cannot
//! occur.
//!
//! Resets follow RFC 5961. A reset ends the tracked connection only if its sequence number is exactly the number that
//! the other end expects. Other resets within the window and SYN segments pass without a change of state, because the
//! end that receives them answers with a challenge ACK. A sender that guesses numbers could send such segments, so they
//! do not prolong the connection ([`Verdict::Unconfirmed`]).

use packet::tcp::{Tcp, TcpOption, flags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Direction;

/// Largest shift of the window scale option (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;
/// Value of [`End::scale`] for an end that has not sent the window scale option.
const NO_SCALE: u8 = 15;
/// Distance in bytes by which an acknowledgement may always be lower than the highest acknowledgement of its end. For
/// an end that has offered a window of more than half of this distance, the distance is twice its largest window.
const OLD_ACK: u32 = 66_000;

/// Flags of a segment that decide on its state. The others (PSH, URG, ECE, CWR) may be combined with all of them.
const DECISIVE: u16 = flags::SYN | flags::ACK | flags::FIN | flags::RST;

/// Fields of a TCP segment that the tracker reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgement number. It is valid only with the ACK flag.
    pub ack: u32,
    /// TCP flags ([`packet::tcp::flags`]).
    pub flags: u16,
    /// Receive window before scaling.
    pub window: u16,
    /// Length of the payload in bytes.
    pub payload: u32,
    /// Shift of the window scale option. `None` if the segment has no such option.
    pub scale: Option<u8>,
}

impl Segment {
    /// Reads the fields of a segment. `payload` is the length of its payload in bytes, according to the length in the
    /// IP header.
    #[must_use]
    pub fn of(tcp: &Tcp<'_>, payload: u32) -> Segment {
        // The option has a meaning in SYN segments only, so others need not be searched.
        let scale = if tcp.flags() & flags::SYN == 0 {
            None
        } else {
            tcp.options().find_map(|option| match option {
                Ok(TcpOption::WindowScale(shift)) => Some(shift),
                _ => None,
            })
        };
        let (seq, ack, flags, window) = (tcp.seq(), tcp.ack(), tcp.flags(), tcp.window());
        Segment { seq, ack, flags, window, payload, scale }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns the sequence number after the segment. SYN and FIN count as one byte each.
    fn end(&self) -> u32 {
        let flags = u32::from(self.has(flags::SYN)) + u32::from(self.has(flags::FIN));
        self.seq.wrapping_add(self.payload).wrapping_add(flags)
    }

    /// Returns whether a TCP sends segments with these flags.
    fn has_valid_flags(&self) -> bool {
        const VALID: [u16; 6] = [
            flags::SYN,
            flags::SYN | flags::ACK,
            flags::ACK,
            flags::FIN | flags::ACK,
            flags::RST,
            flags::RST | flags::ACK,
        ];
        VALID.contains(&(self.flags & DECISIVE))
    }
}

/// State of a TCP connection between both ends. The names are those of RFC 9293, as Open vSwitch prints them for a
/// connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// One end has sent a SYN.
    SynSent,
    /// Both ends have sent a SYN, and at least one SYN is not acknowledged.
    SynReceived,
    /// Both SYN segments are acknowledged, and no end has sent a FIN.
    Established,
    /// One end has sent a FIN that is not acknowledged.
    FinWait,
    /// One end has sent a FIN that is acknowledged. The other end may still send data.
    CloseWait,
    /// Both ends have sent a FIN, and none is acknowledged.
    Closing,
    /// Both ends have sent a FIN, and one is acknowledged.
    LastAck,
    /// Both ends have sent a FIN, and both are acknowledged.
    TimeWait,
    /// An end has reset the connection.
    Closed,
}

/// Reason for which a segment does not belong to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Invalid {
    /// No TCP implementation sends this combination of flags.
    Flags,
    /// The segment would begin a connection, but has no SYN, or has an ACK with it.
    NotOpening,
    /// The segment does not belong to the handshake that is under way.
    Handshake,
    /// The segment begins after the end of the window that the other end has offered.
    BeyondWindow,
    /// The segment ends before the data that the other end may still expect.
    BeforeWindow,
    /// The segment acknowledges data that the other end has not sent.
    AckOfUnsent,
    /// The segment acknowledges data that lies too far in the past.
    OldAck,
    /// The segment has data or a FIN after the FIN of its sender.
    AfterFin,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Invalid::Flags => "its TCP flags cannot occur together",
            Invalid::NotOpening => "it begins no TCP connection",
            Invalid::Handshake => "it does not belong to the TCP handshake",
            Invalid::BeyondWindow => "it begins behind the TCP window",
            Invalid::BeforeWindow => "it ends before the TCP window",
            Invalid::AckOfUnsent => "it acknowledges data that was not sent",
            Invalid::OldAck => "it acknowledges data that is too old",
            Invalid::AfterFin => "it has data behind the FIN of its sender",
        })
    }
}

impl std::error::Error for Invalid {}

/// Result of tracking a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The segment belongs to the connection.
    Accepted,
    /// The segment is a SYN of an established connection, or a reset whose sequence number is not the expected one. The
    /// segment passes, because the end that receives it answers with a challenge ACK. The state is unchanged, and the
    /// segment does not prolong the connection.
    Unconfirmed,
    /// The segment is a SYN that opens another connection with the same addresses and ports, after the end of the
    /// present one. The caller removes this connection and opens the new one.
    NewConnection,
    /// The segment does not belong to the connection. The state is unchanged.
    Invalid(Invalid),
}

/// State of one end of a connection, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct End {
    /// Sequence number after the last byte that the end has sent.
    end: u32,
    /// Sequence number after the last byte that the end may send. Until both SYN segments are acknowledged, this is the
    /// sequence number after the SYN of the end.
    limit: u32,
    /// Highest acknowledgement number that the other end has sent.
    acked: u32,
    /// Largest window that the end has offered, shifted right by `scale` and rounded up.
    window: u16,
    /// Shift of the windows that the end offers. [`NO_SCALE`] if its SYN had no such option.
    scale: u8,
    /// Bits [`End::SEEN`] to [`End::PICKED_UP`].
    bits: u8,
}

impl End {
    /// The tracker has seen a segment of the end.
    const SEEN: u8 = 1;
    /// The end has sent a SYN.
    const SYN: u8 = 2;
    /// The SYN of the end is acknowledged.
    const SYN_ACKED: u8 = 4;
    /// The end has sent a FIN.
    const FIN: u8 = 8;
    /// The FIN of the end is acknowledged.
    const FIN_ACKED: u8 = 16;
    /// An end has reset the connection. Only the first end has this bit.
    const RESET: u8 = 32;
    /// The connection was picked up without its handshake. Scales are then unknown, so windows are not checked. Only
    /// the first end has this bit.
    const PICKED_UP: u8 = 64;

    const fn has(&self, bits: u8) -> bool {
        self.bits & bits == bits
    }

    /// Returns the state of an end that has sent this SYN.
    fn of_syn(segment: &Segment) -> End {
        let scale = segment.scale.map_or(NO_SCALE, |shift| shift.min(SCALE_MAX));
        let after_syn = segment.seq.wrapping_add(1);
        let (end, limit, acked) = (segment.end(), after_syn, segment.seq);
        let mut this = End { end, limit, acked, window: 0, scale, bits: End::SEEN | End::SYN };
        // The window of a SYN is not scaled.
        this.offer(u32::from(segment.window));
        this
    }

    /// State after the first seen segment of an end whose SYN was not seen.
    fn of_middle(segment: &Segment) -> End {
        let end = segment.end();
        let bits = End::SEEN | End::SYN | End::SYN_ACKED;
        let mut this = End { end, limit: end, acked: segment.seq, window: 0, scale: 0, bits };
        this.offer(u32::from(segment.window));
        this
    }

    const fn shift(&self) -> u8 {
        if self.scale > SCALE_MAX { 0 } else { self.scale }
    }

    /// Records a window of this number of bytes that the end has offered.
    fn offer(&mut self, bytes: u32) {
        let units = bytes.div_ceil(1 << self.shift());
        self.window = self.window.max(u16::try_from(units).unwrap_or(u16::MAX));
    }

    /// Returns the largest window that the end has offered in bytes, at least 1: an end may probe a closed window with
    /// one byte (RFC 9293 section 3.8.6.1).
    fn max_window(&self) -> u32 {
        (u32::from(self.window) << self.shift()).max(1)
    }

    /// Turns the window scale off, because only one end has sent the option (RFC 7323 section 2.2).
    fn unscaled(&mut self) {
        let bytes = u32::from(self.window) << self.shift();
        self.window = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.scale = NO_SCALE;
    }
}

/// Protocol state of a tracked TCP connection, 32 bytes. All functions are total on any bytes, because a table may
/// contain bytes that another process has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Connection {
    /// Ends of the connection: the end that sent the first packet, and the other end.
    ends: [End; 2],
}

const _: () = assert!(size_of::<Connection>() == 32);

impl Connection {
    /// Opens a connection with its first segment. With `pick_up`, a segment from the middle of a connection opens it,
    /// too, for example after a restart of the tracker.
    ///
    /// # Errors
    /// Returns why the segment cannot be the first one.
    pub fn open(segment: &Segment, pick_up: bool) -> Result<Connection, Invalid> {
        if !segment.has_valid_flags() {
            return Err(Invalid::Flags);
        }
        let is_syn = segment.flags & DECISIVE == flags::SYN;
        let is_middle = segment.has(flags::ACK) && !segment.has(flags::SYN | flags::RST);
        let is_first = is_syn || pick_up && is_middle;
        if !is_first {
            return Err(Invalid::NotOpening);
        }
        let mut connection = Connection { ends: [End::default(); 2] };
        if is_syn {
            connection.ends[0] = End::of_syn(segment);
        } else {
            connection.ends[0] = End::of_middle(segment);
            connection.ends[0].bits |= End::PICKED_UP;
            connection.ends[0].bits |= if segment.has(flags::FIN) { End::FIN } else { 0 };
            // The other end has sent everything before the acknowledgement.
            let bits = End::SYN | End::SYN_ACKED;
            let (end, limit, acked) = (segment.ack, segment.ack, segment.ack);
            connection.ends[1] = End { end, limit, acked, window: 0, scale: 0, bits };
        }
        Ok(connection)
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        let [a, b] = &self.ends;
        if a.has(End::RESET) {
            return State::Closed;
        }
        if !(a.has(End::SYN_ACKED) && b.has(End::SYN_ACKED)) {
            return if a.has(End::SYN) && b.has(End::SYN) { State::SynReceived } else { State::SynSent };
        }
        let acked = u8::from(a.has(End::FIN_ACKED)) + u8::from(b.has(End::FIN_ACKED));
        match (u8::from(a.has(End::FIN)) + u8::from(b.has(End::FIN)), acked) {
            (0, _) => State::Established,
            (1, 0) => State::FinWait,
            (1, _) => State::CloseWait,
            (_, 0) => State::Closing,
            (_, 1) => State::LastAck,
            _ => State::TimeWait,
        }
    }

    /// Tracks a segment. `check_windows` is false if sequence and acknowledgement numbers need not be within the
    /// windows, for example on paths of which the tracker sees one direction only.
    pub fn track(&mut self, direction: Direction, segment: &Segment, check_windows: bool) -> Verdict {
        if !segment.has_valid_flags() {
            return Verdict::Invalid(Invalid::Flags);
        }
        let is_syn = segment.flags & DECISIVE == flags::SYN;
        let state = self.state();
        if is_syn && matches!(state, State::TimeWait | State::Closed) {
            return Verdict::NewConnection;
        }
        let (sender, receiver) = self.both(direction);
        let is_opening = matches!(state, State::SynSent | State::SynReceived);
        let handled = if is_opening && (segment.has(flags::SYN) || !sender.has(End::SEEN)) {
            self.handshake(direction, segment).map(|()| Verdict::Accepted)
        } else if segment.has(flags::SYN) {
            // The end that receives the SYN answers with a challenge ACK (RFC 5961 section 4).
            Ok(Verdict::Unconfirmed)
        } else if state == State::SynSent {
            // The end that has sent the SYN has no other segment to send, except a reset in answer to a challenge ACK.
            if segment.has(flags::RST) { Ok(Verdict::Accepted) } else { Err(Invalid::Handshake) }
        } else {
            let are_known = sender.has(End::SEEN) && receiver.has(End::SEEN);
            let is_checked = check_windows && are_known && !self.ends[0].has(End::PICKED_UP);
            let checked = if is_checked { within(&sender, &receiver, segment) } else { Ok(()) };
            match state {
                // The reset may have been lost, so the end that missed it hears it again in answer to its segments.
                State::Closed => checked.map(|()| Verdict::Accepted),
                _ => checked.and_then(|()| self.advance(direction, segment)),
            }
        };
        handled.unwrap_or_else(Verdict::Invalid)
    }

    /// Returns the ends that send and receive the packets of a direction.
    const fn both(&self, direction: Direction) -> (End, End) {
        let [a, b] = self.ends;
        match direction {
            Direction::Original => (a, b),
            Direction::Reply => (b, a),
        }
    }

    fn set(&mut self, direction: Direction, sender: End, receiver: End) {
        self.ends = match direction {
            Direction::Original => [sender, receiver],
            Direction::Reply => [receiver, sender],
        };
    }

    /// Tracks a SYN, or the answer to a SYN, of a connection that is not established.
    fn handshake(&mut self, direction: Direction, segment: &Segment) -> Result<(), Invalid> {
        let (mut sender, mut receiver) = self.both(direction);
        // The acknowledgement covers the SYN, and all, a part or none of the data in the SYN (RFC 7413).
        let acks_syn = segment.has(flags::ACK)
            && receiver.has(End::SYN)
            && !before(segment.ack, receiver.limit)
            && !before(receiver.end, segment.ack);
        if segment.has(flags::RST) {
            // A reset answers a SYN only if it acknowledges the SYN (RFC 9293 section 3.10.7.3).
            if !acks_syn {
                return Err(Invalid::Handshake);
            }
            self.ends[0].bits |= End::RESET;
            return Ok(());
        }
        if !segment.has(flags::SYN) {
            // An end with an old connection answers a SYN with a challenge ACK, and is reset then (RFC 9293 section
            // 3.5.1, half-open connections).
            let is_challenge = segment.payload == 0 && !segment.has(flags::FIN);
            return if is_challenge && !acks_syn { Ok(()) } else { Err(Invalid::Handshake) };
        }
        if segment.has(flags::ACK) && !acks_syn {
            return Err(Invalid::Handshake);
        }
        let is_repeated = sender.has(End::SYN) && sender.limit == segment.seq.wrapping_add(1);
        if sender.has(End::SYN) && !is_repeated {
            let is_alone = !receiver.has(End::SEEN) && !segment.has(flags::ACK);
            if is_alone {
                // The end has given its first attempt up and tries again.
                self.set(direction, End::of_syn(segment), receiver);
            }
            // Otherwise the other end answers with a challenge ACK.
            return if segment.has(flags::ACK) { Err(Invalid::Handshake) } else { Ok(()) };
        }
        if !sender.has(End::SYN) {
            sender = End::of_syn(segment);
        }
        if receiver.has(End::SYN) && (sender.scale == NO_SCALE || receiver.scale == NO_SCALE) {
            sender.unscaled();
            receiver.unscaled();
        }
        if acks_syn {
            acknowledge(&mut sender, &mut receiver, segment, u32::from(segment.window));
        }
        self.set(direction, sender, receiver);
        Ok(())
    }

    /// Tracks a segment without SYN that is within the windows.
    fn advance(&mut self, direction: Direction, segment: &Segment) -> Result<Verdict, Invalid> {
        let (mut sender, mut receiver) = self.both(direction);
        let end = segment.end();
        if segment.has(flags::RST) {
            // The reset of an end that has lost its state carries the number that the other end has acknowledged.
            let is_expected = segment.seq == sender.end || segment.seq == sender.acked;
            if !is_expected {
                return Ok(Verdict::Unconfirmed);
            }
            self.ends[0].bits |= End::RESET;
            return Ok(Verdict::Accepted);
        }
        if sender.has(End::FIN) && before(sender.end, end) {
            return Err(Invalid::AfterFin);
        }
        sender.bits |= End::SEEN;
        let window = u32::from(segment.window) << sender.shift();
        sender.offer(window);
        if before(sender.end, end) {
            sender.end = end;
        }
        // The number of a FIN is behind all data, and cannot be one that is acknowledged already.
        if segment.has(flags::FIN) && end == sender.end && before(sender.acked, end) {
            sender.bits |= End::FIN;
        }
        acknowledge(&mut sender, &mut receiver, segment, window);
        self.set(direction, sender, receiver);
        Ok(Verdict::Accepted)
    }
}

/// Returns whether sequence number `a` lies before `b`, in the arithmetic modulo 2^32 of RFC 9293 section 3.4.
const fn before(a: u32, b: u32) -> bool {
    // The difference is negative as a signed number.
    a.wrapping_sub(b) >> 31 != 0
}

/// Checks the four bounds on a segment of an end.
fn within(sender: &End, receiver: &End, segment: &Segment) -> Result<(), Invalid> {
    let limit = match (sender.has(End::SYN_ACKED), receiver.has(End::SYN_ACKED)) {
        (true, true) => sender.limit,
        // The answer to the SYN of the sender has offered a window.
        (true, false) => sender.acked.wrapping_add(receiver.max_window()),
        (false, _) => sender.end,
    };
    if before(limit, segment.seq) {
        return Err(Invalid::BeyondWindow);
    }
    // The other end has acknowledged less than a window of the data before.
    if before(segment.end(), sender.end.wrapping_sub(receiver.max_window())) {
        return Err(Invalid::BeforeWindow);
    }
    // Some stacks set the flag in resets without a number.
    if !segment.has(flags::ACK) || (segment.has(flags::RST) && segment.ack == 0) {
        return Ok(());
    }
    if !receiver.has(End::SYN_ACKED) && before(segment.ack, receiver.limit) {
        return Err(Invalid::Handshake);
    }
    if before(receiver.end, segment.ack) {
        return Err(Invalid::AckOfUnsent);
    }
    // The receiver accepts acknowledgements of up to one window before its SND.UNA (RFC 5961 section 5.2). Its SND.UNA
    // may be another window behind `acked`, because acknowledgements get lost behind the tracker.
    let age = receiver.acked.wrapping_sub(segment.ack);
    if before(segment.ack, receiver.acked) && age > (2 * sender.max_window()).max(OLD_ACK) {
        return Err(Invalid::OldAck);
    }
    Ok(())
}

/// Records the acknowledgement in a segment of `sender`, which offers a window of `window` bytes.
fn acknowledge(sender: &mut End, receiver: &mut End, segment: &Segment, window: u32) {
    if !segment.has(flags::ACK) {
        return;
    }
    let was_complete = sender.has(End::SYN_ACKED) && receiver.has(End::SYN_ACKED);
    if !receiver.has(End::SYN_ACKED) && !before(segment.ack, receiver.limit) {
        receiver.bits |= End::SYN_ACKED;
        receiver.acked = segment.ack;
    }
    if before(receiver.acked, segment.ack) {
        receiver.acked = segment.ack;
    }
    if receiver.has(End::FIN) && !before(segment.ack, receiver.end) {
        receiver.bits |= End::FIN_ACKED;
    }
    if was_complete {
        let limit = segment.ack.wrapping_add(window.max(1));
        if before(receiver.limit, limit) {
            receiver.limit = limit;
        }
    } else if sender.has(End::SYN_ACKED) && receiver.has(End::SYN_ACKED) {
        // The handshake is complete. Until now, the limits were the numbers after the SYN segments.
        receiver.limit = receiver.acked.wrapping_add(sender.max_window());
        sender.limit = sender.acked.wrapping_add(receiver.max_window());
    }
}
