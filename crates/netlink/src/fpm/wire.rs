//! The wire: frames of the forwarding plane manager's protocol (`fpm/fpm.h` of FRR) with messages of rtnetlink in them.
//!
//! A frame is a header of four bytes, {version 1, type 1 (netlink), length} with the length in network order and the header counted,
//! and one or more messages in the machine's order. Unlike the kernel, the sender is not trusted: whatever does not add up is an
//! error, and no part of the message it is in counts.

use port::netlink::{u16_at, u32_at};

use crate::decode::{self, Event, decode};

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 4;
pub(super) const VERSION: u8 = 1;
pub(super) const NETLINK: u8 = 1;
/// Bytes of a message's header.
pub(super) const MESSAGE: usize = 16;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTM_F_CLONED: u32 = 0x200;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const NHA_GROUP: u16 = 2;
const NHA_GATEWAY: u16 = 6;
/// A next hop of a bridge's table.
const NHA_FDB: u16 = 11;
/// Most members of a group of next hops, and most ways of a route; of these each takes up to 28 bytes.
const WAYS: usize = 1024;

/// Why what was sent cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Not a frame's header.
    #[error("a frame of version {version} and type {kind} where version 1 and type 1 (netlink) are expected")]
    Frame {
        /// The version that it says.
        version: u8,
        /// The type that it says.
        kind: u8,
    },
    /// A frame that cannot hold a message.
    #[error("a frame of {0} bytes, which hold no message")]
    Short(u16),
    /// A message whose length is wrong.
    #[error("a message of {length} bytes where {room} are left in its frame")]
    Message {
        /// The length that it says.
        length: u32,
        /// Bytes from its beginning to the end of the frame.
        room: usize,
    },
    /// A message whose attributes do not add up, or that says what cannot be.
    #[error("a message of type {0} that cannot be read")]
    Unreadable(u16),
}

/// What was sent, at the offset of the session at which it begins, cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {cause}")]
pub struct BadMessage {
    /// Bytes of the session before it.
    pub offset: u64,
    /// What is wrong with it.
    pub cause: Cause,
}

/// Takes a session apart, in whatever pieces it comes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What is not a whole frame yet.
    rest: Vec<u8>,
    /// Bytes of the session before `rest`.
    offset: u64,
    counts: Counts,
}

/// Messages of a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub messages: u64,
    /// Those about other things than unicast routes and next hops: labels, rules, stations, groups.
    pub left: u64,
}

impl Decoder {
    /// At the beginning of a session.
    #[must_use]
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// What was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Reads on; what the whole frames say is added to `events`. Half a frame waits for the rest of it: 64 KiB at most.
    ///
    /// # Errors
    /// [`BadMessage`]: nothing behind it can be read. Events before it have been added.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), BadMessage> {
        let mut bytes = bytes;
        // The frame that waits for its rest, alone: what is behind it is read where it lies.
        while !self.rest.is_empty() {
            let length = if self.rest.len() < HEADER { HEADER } else { self.length(&self.rest)? };
            if let Some(missing) = length.checked_sub(self.rest.len()).filter(|missing| *missing > 0) {
                let (now, later) = bytes.split_at(missing.min(bytes.len()));
                self.rest.extend_from_slice(now);
                bytes = later;
                if now.len() < missing {
                    return Ok(());
                }
                continue;
            }
            let frame = std::mem::take(&mut self.rest);
            self.frame(&frame, events)?;
            self.rest = frame;
            self.rest.clear();
        }
        while bytes.len() >= HEADER {
            let length = self.length(bytes)?;
            let Some(frame) = bytes.get(..length) else { break };
            self.frame(frame, events)?;
            bytes = &bytes[length..];
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    /// The length of the frame that begins here.
    fn length(&self, bytes: &[u8]) -> Result<usize, BadMessage> {
        let bad = |cause| BadMessage { offset: self.offset, cause };
        match *bytes {
            [VERSION, NETLINK, high, low, ..] => {
                let length = u16::from_be_bytes([high, low]);
                let holds = usize::from(length) >= HEADER + MESSAGE;
                if holds { Ok(length.into()) } else { Err(bad(Cause::Short(length))) }
            }
            [version, kind, ..] => Err(bad(Cause::Frame { version, kind })),
            _ => Ok(HEADER),
        }
    }

    /// A whole frame.
    fn frame(&mut self, frame: &[u8], events: &mut Vec<Event>) -> Result<(), BadMessage> {
        let mut at = HEADER;
        while at < frame.len() {
            let rest = &frame[at..];
            let bad = |cause| BadMessage { offset: self.offset + at as u64, cause };
            let length = u32_at(rest, 0).unwrap_or(0);
            let whole = usize::try_from(length).ok().and_then(|length| rest.get(..length));
            let whole = whole.filter(|message| message.len() >= MESSAGE);
            let message = whole.ok_or_else(|| bad(Cause::Message { length, room: rest.len() }))?;
            let kind = u16_at(message, 4).unwrap_or(0);
            let flags = u16_at(message, 6).unwrap_or(0);
            let event = read(kind, flags, &message[MESSAGE..]).map_err(bad)?;
            self.counts.messages += 1;
            self.counts.left += u64::from(event.is_none());
            events.extend(event);
            at += message.len().next_multiple_of(4);
        }
        self.offset += frame.len() as u64;
        Ok(())
    }
}

/// What a message says; `None` where it is about something else.
fn read(kind: u16, flags: u16, payload: &[u8]) -> Result<Option<Event>, Cause> {
    let (header, gateway, several, most) = match kind {
        decode::NEWROUTE | decode::DELROUTE => (12, RTA_GATEWAY, RTA_MULTIPATH, WAYS * 28),
        decode::NEWNEXTHOP | decode::DELNEXTHOP => (8, NHA_GATEWAY, NHA_GROUP, WAYS * 8),
        _ => return Ok(None),
    };
    let bad = || Cause::Unreadable(kind);
    let family = *payload.first().ok_or_else(bad)?;
    let known = matches!(family, AF_INET | AF_INET6) || family == AF_UNSPEC && header == 8;
    let mut other = !known || header == 12 && u32_at(payload, 8).is_some_and(|it| it & RTM_F_CLONED != 0);
    let mut rest = payload.get(header..).ok_or_else(bad)?;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0).ok_or_else(bad)?);
        let attribute = u16_at(rest, 2).ok_or_else(bad)? & 0x3fff;
        let value = rest.get(4..length).ok_or_else(bad)?;
        let holds = if attribute == gateway {
            matches!(value.len(), 4 | 16)
        } else if attribute == several {
            !value.is_empty() && value.len() <= most && (header == 12 || value.len() % 8 == 0)
        } else {
            true
        };
        if known && !holds {
            return Err(bad());
        }
        other |= header == 8 && attribute == NHA_FDB;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    if other {
        return Ok(None);
    }
    decode(kind, flags, payload).map(Some).ok_or_else(bad)
}
