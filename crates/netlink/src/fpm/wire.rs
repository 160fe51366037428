//! Wire format of FPM. A session consists of frames (`fpm/fpm.h` of FRR), which contain rtnetlink messages.
//!
//! A frame has a header of four bytes: version 1, type 1 (netlink), and the length of the frame in network
//! byte order, including the header. One or more messages in host byte order follow. In contrast to the
//! kernel, the sender is not trusted. Any inconsistency is an error, and no part of the affected message is
//! used.

use port::netlink::{HEADER as NLMSG_HEADER, NLA_TYPE_MASK, u16_at, u32_at};

use crate::decode::{Event, decode};
use crate::rtnetlink::family::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::rtnetlink::length::{NEXTHOP_GRP, NHMSG, RTMSG};
use crate::rtnetlink::message::{RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_NEWROUTE};
use crate::rtnetlink::nexthop::{NHA_FDB, NHA_GATEWAY, NHA_GROUP};
use crate::rtnetlink::route::{RTA_GATEWAY, RTA_MULTIPATH, RTM_F_CLONED};

/// Length of an FPM frame header in bytes (`FPM_MSG_HDR_LEN`).
pub(super) const HEADER: usize = 4;
pub(super) const FPM_PROTO_VERSION: u8 = 1;
pub(super) const FPM_MSG_TYPE_NETLINK: u8 = 1;
/// Maximum number of members of a next-hop group, and of next hops of a multipath route.
const WAYS: usize = 1024;
/// Maximum length, in bytes, of one next hop of a multipath route in a message: `struct rtnexthop` and a gateway
/// address.
const WAY: usize = 28;

/// Reason why received data of an FPM session cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The data does not begin with a valid frame header.
    #[error("a frame of version {version} and type {kind} where version 1 and type 1 (netlink) are expected")]
    Frame {
        /// FPM version in the invalid frame header.
        version: u8,
        /// FPM message type in the invalid frame header.
        kind: u8,
    },
    /// The frame is too short for a message. The value is the length of the frame in bytes.
    #[error("a frame of {0} bytes, which hold no message")]
    Short(u16),
    /// The length field in the header of an rtnetlink message is invalid.
    #[error("a message of {length} bytes where {room} are left in its frame")]
    Message {
        /// Value of the length field of the rtnetlink message, in bytes.
        length: u32,
        /// Number of bytes from the start of the message to the end of the frame.
        room: usize,
    },
    /// The attributes of a message are inconsistent or invalid. The value is the rtnetlink message type.
    #[error("a message of type {0} that cannot be read")]
    Unreadable(u16),
}

/// Error in the received data of an FPM session, with the position of the data in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {cause}")]
pub struct BadMessage {
    /// Number of bytes in the FPM session before the invalid data.
    pub offset: u64,
    /// Reason why the data cannot be decoded.
    pub cause: Cause,
}

/// Decoder for the bytes of an FPM session. The bytes may arrive in pieces of any length.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Received bytes of a frame that is not complete yet.
    rest: Vec<u8>,
    /// Number of bytes of the FPM session that precede `rest`.
    offset: u64,
    counts: Counts,
}

/// Message counters of an FPM session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of all messages in the FPM session.
    pub messages: u64,
    /// Number of messages that are ignored, because they are not about unicast routes or next-hop objects.
    /// Examples are messages about labels, rules, neighbours and multicast groups.
    pub left: u64,
}

impl Decoder {
    /// Creates a decoder at the start of an FPM session.
    #[must_use]
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Returns the message counters since the start of the FPM session.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Decodes the next bytes of the FPM session, and appends the events of complete frames to `events`. An incomplete
    /// frame of at most 64 KiB is kept until the next call.
    ///
    /// # Errors
    /// Returns [`BadMessage`] if the data is invalid. The rest of the session can then not be decoded. Events
    /// before the invalid data have been appended.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), BadMessage> {
        let mut bytes = bytes;
        // Only the incomplete frame is copied. The data after it is decoded in place.
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

    /// Returns the length of the frame at the start of `bytes`, in bytes. Returns an error if the frame
    /// header is invalid.
    fn length(&self, bytes: &[u8]) -> Result<usize, BadMessage> {
        let bad = |cause| BadMessage { offset: self.offset, cause };
        match *bytes {
            [FPM_PROTO_VERSION, FPM_MSG_TYPE_NETLINK, high, low, ..] => {
                let length = u16::from_be_bytes([high, low]);
                let holds = usize::from(length) >= HEADER + NLMSG_HEADER;
                if holds { Ok(length.into()) } else { Err(bad(Cause::Short(length))) }
            }
            [version, kind, ..] => Err(bad(Cause::Frame { version, kind })),
            _ => Ok(HEADER),
        }
    }

    /// Decodes all messages of a complete frame, and appends their events to `events`.
    fn frame(&mut self, frame: &[u8], events: &mut Vec<Event>) -> Result<(), BadMessage> {
        let mut at = HEADER;
        while at < frame.len() {
            let rest = &frame[at..];
            let bad = |cause| BadMessage { offset: self.offset + at as u64, cause };
            let length = u32_at(rest, 0).unwrap_or(0);
            let whole = usize::try_from(length).ok().and_then(|length| rest.get(..length));
            let whole = whole.filter(|message| message.len() >= NLMSG_HEADER);
            let message = whole.ok_or_else(|| bad(Cause::Message { length, room: rest.len() }))?;
            let kind = u16_at(message, 4).unwrap_or(0);
            let flags = u16_at(message, 6).unwrap_or(0);
            let event = read(kind, flags, &message[NLMSG_HEADER..]).map_err(bad)?;
            self.counts.messages += 1;
            self.counts.left += u64::from(event.is_none());
            events.extend(event);
            at += message.len().next_multiple_of(4);
        }
        self.offset += frame.len() as u64;
        Ok(())
    }
}

/// Decodes a message. Returns `None` for a message that is not about unicast routes or next-hop objects.
fn read(kind: u16, flags: u16, payload: &[u8]) -> Result<Option<Event>, Cause> {
    let (header, gateway, several, most) = match kind {
        RTM_NEWROUTE | RTM_DELROUTE => (RTMSG, RTA_GATEWAY, RTA_MULTIPATH, WAYS * WAY),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => (NHMSG, NHA_GATEWAY, NHA_GROUP, WAYS * NEXTHOP_GRP),
        _ => return Ok(None),
    };
    let bad = || Cause::Unreadable(kind);
    let family = *payload.first().ok_or_else(bad)?;
    let known = matches!(family, AF_INET | AF_INET6) || family == AF_UNSPEC && header == NHMSG;
    let mut other = !known || header == RTMSG && u32_at(payload, 8).is_some_and(|it| it & RTM_F_CLONED != 0);
    let mut rest = payload.get(header..).ok_or_else(bad)?;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0).ok_or_else(bad)?);
        let attribute = u16_at(rest, 2).ok_or_else(bad)? & NLA_TYPE_MASK;
        let value = rest.get(4..length).ok_or_else(bad)?;
        let holds = if attribute == gateway {
            matches!(value.len(), 4 | 16)
        } else if attribute == several {
            !value.is_empty() && value.len() <= most && (header == RTMSG || value.len() % NEXTHOP_GRP == 0)
        } else {
            true
        };
        if known && !holds {
            return Err(bad());
        }
        other |= header == NHMSG && attribute == NHA_FDB;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    if other {
        return Ok(None);
    }
    decode(kind, flags, payload).map(Some).ok_or_else(bad)
}
