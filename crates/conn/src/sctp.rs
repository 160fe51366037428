//! State of tracked SCTP associations (RFC 9260), with checks of the verification tags.
//!
//! Each packet of an association carries the tag that its receiver has chosen, in its INIT or INIT ACK chunk. A tracker
//! between both ends learns the tags from these chunks. The tags of a handshake that is under way are apart from the
//! tags of the association, because an INIT chunk alone changes nothing (RFC 9260 section 5.2.2): only an end that has
//! received the cookie of the other end can answer with a COOKIE ECHO chunk, which begins or restarts the association.
//!
//! ```text
//!  INIT            INIT ACK        COOKIE ECHO       COOKIE ACK      SHUTDOWN      SHUTDOWN ACK    SHUTDOWN COMPLETE
//!   -> CookieWait   -> CookieWait   -> CookieEchoed   -> Established  -> Shutdown   -> ShutdownAck  -> Closed
//!  any state, ABORT -> Closed
//! ```

use packet::sctp::{Chunk, Sctp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Direction;

/// Largest number of chunks that are read from a packet. Control chunks come before data (RFC 9260 section 6.10), and
/// few are bundled.
const MOST_CHUNKS: usize = 16;

/// Chunks of a packet, as bits. The numbers of the bits are the types of the chunks (RFC 9260 section 3.2).
mod chunk {
    pub(super) const INIT: u16 = 1 << 1;
    pub(super) const INIT_ACK: u16 = 1 << 2;
    pub(super) const ABORT: u16 = 1 << 6;
    pub(super) const SHUTDOWN: u16 = 1 << 7;
    pub(super) const SHUTDOWN_ACK: u16 = 1 << 8;
    pub(super) const COOKIE_ECHO: u16 = 1 << 10;
    pub(super) const COOKIE_ACK: u16 = 1 << 11;
    pub(super) const SHUTDOWN_COMPLETE: u16 = 1 << 14;
    /// Chunks that are alone in their packet (RFC 9260 section 6.10).
    pub(super) const ALONE: u16 = INIT | INIT_ACK | SHUTDOWN_COMPLETE;
}

/// Fields of an SCTP packet that the tracker reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Verification tag of the common header.
    pub tag: u32,
    /// Types of the chunks below 16, as bits. Other chunks have bit 15.
    pub chunks: u16,
    /// Initiate tag of an INIT or INIT ACK chunk.
    pub initiate_tag: u32,
    /// T flag of an ABORT or SHUTDOWN COMPLETE chunk: the tag is the tag of the opposite direction.
    pub is_reflected: bool,
}

impl Packet {
    /// Reads the fields of a packet. Returns `None` if a chunk is incomplete, or if chunks occur together that do not.
    #[must_use]
    pub fn of(sctp: &Sctp<'_>) -> Option<Packet> {
        Packet::of_chunks(sctp, |_| None)
    }

    /// Reads the fields of a packet from its first fragment. The last chunk may continue in a later fragment, and the
    /// chunks of later fragments are not read.
    pub(crate) fn of_first_fragment(sctp: &Sctp<'_>) -> Option<Packet> {
        Packet::of_chunks(sctp, |bytes| {
            let (&[kind, flags, _, _], value) = bytes.split_first_chunk()?;
            Some(Chunk { kind, flags, value })
        })
    }

    /// Reads the fields of the chunks. `incomplete` gets the bytes of an incomplete chunk, and returns the chunk or
    /// `None`. The packet has no fields then.
    fn of_chunks<'a>(sctp: &Sctp<'a>, incomplete: impl Fn(&'a [u8]) -> Option<Chunk<'a>>) -> Option<Packet> {
        let mut packet = Packet { tag: sctp.tag(), ..Packet::default() };
        let (mut count, mut at) = (0, 0);
        for chunk in sctp.chunks().take(MOST_CHUNKS) {
            let chunk = chunk.ok().or_else(|| incomplete(sctp.payload().get(at..)?))?;
            at += (4 + chunk.value.len()).next_multiple_of(4);
            count += 1;
            let bit = 1_u16 << chunk.kind.min(15);
            packet.chunks |= bit;
            if bit & (chunk::INIT | chunk::INIT_ACK) != 0 {
                packet.initiate_tag = u32::from_be_bytes(*chunk.value.first_chunk()?);
            }
            packet.is_reflected |=
                bit & (chunk::ABORT | chunk::SHUTDOWN_COMPLETE) != 0 && chunk.flags & 1 != 0;
        }
        let is_alone = !packet.has(chunk::ALONE) || count == 1;
        (count > 0 && is_alone).then_some(packet)
    }

    const fn has(&self, chunks: u16) -> bool {
        self.chunks & chunks != 0
    }
}

/// Returns the length of a packet up to the end of the last chunk in its first fragment. The chunk may continue in a
/// later fragment.
pub(crate) fn first_chunks_len(sctp: &Sctp<'_>) -> u32 {
    let mut at = 0;
    for chunk in sctp.chunks().take(MOST_CHUNKS) {
        match (chunk, sctp.payload().get(at..)) {
            (Ok(chunk), _) => at += (4 + chunk.value.len()).next_multiple_of(4),
            (Err(_), Some([_, _, a, b, ..])) => at += usize::from(u16::from_be_bytes([*a, *b])),
            (Err(_), _) => {}
        }
    }
    u32::try_from(packet::sctp::LEN + at).unwrap_or(u32::MAX)
}

/// State of an association between both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// One end has sent an INIT chunk.
    CookieWait,
    /// One end has sent a COOKIE ECHO chunk.
    CookieEchoed,
    /// The handshake is complete.
    Established,
    /// One end has sent a SHUTDOWN chunk.
    Shutdown,
    /// One end has sent a SHUTDOWN ACK chunk.
    ShutdownAck,
    /// The association is shut down or aborted.
    Closed,
}

/// Reason for which a packet does not belong to its association.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Invalid {
    /// The packet would begin an association, but does not contain an INIT chunk alone.
    NotOpening,
    /// The verification tag or the initiate tag is wrong.
    Tag,
    /// The chunk does not belong to the handshake that is under way.
    Handshake,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Invalid::NotOpening => "it begins no SCTP association",
            Invalid::Tag => "its SCTP tag is wrong",
            Invalid::Handshake => "it does not belong to the SCTP handshake",
        })
    }
}

impl std::error::Error for Invalid {}

/// Result of tracking a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet belongs to the association.
    Accepted,
    /// The packet opens another association with the same addresses and ports, after the end of the present one.
    NewAssociation,
    /// The packet does not belong to the association. The state is unchanged.
    Invalid(Invalid),
}

/// Protocol state of a tracked association, 32 bytes. All functions are total on any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Association {
    /// Tags that the packets of the original and the reply direction carry. 0: the tag is not known.
    tags: [u32; 2],
    /// Tags of the handshake that is under way.
    pending: [u32; 2],
    /// Tags of the last but one INIT ACK chunk of each direction. 0: there was one INIT ACK chunk at most.
    earlier: [u32; 2],
    /// Number of the state.
    state: u32,
    unused: u32,
}

impl Association {
    /// Opens an association with its first packet. With `pick_up`, a packet from the middle of an association opens it,
    /// too, for example after a restart of the tracker, or on another path of ends with several addresses.
    ///
    /// # Errors
    /// Returns why the packet cannot be the first one.
    pub fn open(packet: &Packet, pick_up: bool) -> Result<Association, Invalid> {
        let mut this = Association { tags: [0; 2], pending: [0; 2], earlier: [0; 2], state: 0, unused: 0 };
        if packet.has(chunk::INIT) {
            if packet.tag != 0 || packet.initiate_tag == 0 {
                return Err(Invalid::Tag);
            }
            this.pending[1] = packet.initiate_tag;
            return Ok(this);
        }
        let opening = chunk::INIT_ACK | chunk::COOKIE_ECHO | chunk::COOKIE_ACK;
        let closing = chunk::ABORT | chunk::SHUTDOWN_ACK | chunk::SHUTDOWN_COMPLETE;
        if !pick_up || packet.has(opening | closing) {
            return Err(Invalid::NotOpening);
        }
        if packet.tag == 0 {
            return Err(Invalid::Tag);
        }
        this.tags[0] = packet.tag;
        this.set(State::Established);
        Ok(this)
    }

    /// Returns the state of the association.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.state {
            0 => State::CookieWait,
            1 => State::CookieEchoed,
            2 => State::Established,
            3 => State::Shutdown,
            4 => State::ShutdownAck,
            _ => State::Closed,
        }
    }

    /// Tracks a packet.
    pub fn track(&mut self, direction: Direction, packet: &Packet) -> Verdict {
        let (from, to) = match direction {
            Direction::Original => (0, 1),
            Direction::Reply => (1, 0),
        };
        if packet.has(chunk::INIT) && self.state() == State::Closed {
            return Verdict::NewAssociation;
        }
        let tracked = if packet.has(chunk::INIT | chunk::INIT_ACK) {
            self.initiate(from, to, packet)
        } else if packet.has(chunk::COOKIE_ECHO) {
            self.echo_cookie(from, to, packet)
        } else if packet.has(chunk::ABORT) && self.state() == State::CookieWait {
            // The end refuses the association, or gives the handshake up.
            let is_expected = [self.pending[from], self.pending[to]].contains(&packet.tag) && packet.tag != 0;
            self.state = if is_expected { State::Closed as u32 } else { self.state };
            if is_expected { Ok(()) } else { Err(Invalid::Tag) }
        } else {
            self.advance(from, to, packet)
        };
        tracked.map_or_else(Verdict::Invalid, |()| Verdict::Accepted)
    }

    fn set(&mut self, state: State) {
        self.state = state as u32;
    }

    /// Tracks a packet with an INIT or INIT ACK chunk.
    fn initiate(&mut self, from: usize, to: usize, packet: &Packet) -> Result<(), Invalid> {
        // An INIT chunk has no tag. An INIT ACK chunk has the tag of the INIT chunk (RFC 9260 section 8.5.1).
        let expected = if packet.has(chunk::INIT) { 0 } else { self.pending[from] };
        let has_init = packet.has(chunk::INIT) || expected != 0;
        if packet.tag != expected || !has_init || packet.initiate_tag == 0 {
            return Err(Invalid::Tag);
        }
        let last = std::mem::replace(&mut self.pending[to], packet.initiate_tag);
        if packet.has(chunk::INIT_ACK) && last != packet.initiate_tag {
            self.earlier[to] = last;
        }
        Ok(())
    }

    /// Tracks a packet with a COOKIE ECHO chunk.
    fn echo_cookie(&mut self, from: usize, to: usize, packet: &Packet) -> Result<(), Invalid> {
        let is_complete = self.pending[from] != 0 && self.pending[to] != 0;
        // An INIT chunk that was repeated leads to two INIT ACK chunks, whose tags may differ. The end answers one of
        // them, because the other one is lost or comes too late.
        let is_answer = packet.tag != 0 && [self.pending[from], self.earlier[from]].contains(&packet.tag);
        if is_complete && is_answer {
            (self.tags[from], self.tags[to]) = (packet.tag, self.pending[to]);
            (self.pending, self.earlier) = ([0; 2], [0; 2]);
            self.set(State::CookieEchoed);
            return Ok(());
        }
        // The chunk is repeated if the COOKIE ACK chunk was lost.
        if self.tags[from] != 0 && packet.tag == self.tags[from] { Ok(()) } else { Err(Invalid::Handshake) }
    }

    /// Tracks a packet of an association whose handshake is complete.
    fn advance(&mut self, from: usize, to: usize, packet: &Packet) -> Result<(), Invalid> {
        let state = self.state();
        if state == State::CookieWait {
            return Err(Invalid::Handshake);
        }
        let may_reflect = packet.is_reflected && packet.has(chunk::ABORT | chunk::SHUTDOWN_COMPLETE);
        let is_learned = self.tags[from] == 0 && packet.tag != 0 && !may_reflect;
        if is_learned {
            self.tags[from] = packet.tag;
        }
        let expected = if may_reflect { self.tags[to] } else { self.tags[from] };
        if packet.tag != expected || packet.tag == 0 {
            return Err(Invalid::Tag);
        }
        if packet.has(chunk::ABORT) || packet.has(chunk::SHUTDOWN_COMPLETE) && state == State::ShutdownAck {
            self.set(State::Closed);
            return Ok(());
        }
        match state {
            State::CookieEchoed if packet.has(chunk::COOKIE_ACK) => self.set(State::Established),
            // The SHUTDOWN chunk may be lost behind the tracker and repeated, so the later state remains.
            State::CookieEchoed | State::Established if packet.has(chunk::SHUTDOWN) => {
                self.set(State::Shutdown)
            }
            State::Established | State::Shutdown if packet.has(chunk::SHUTDOWN_ACK) => {
                self.set(State::ShutdownAck)
            }
            _ => {}
        }
        Ok(())
    }
}

const _: () = assert!(size_of::<Association>() == 32);

#[cfg(test)]
mod tests {
    use Direction::{Original, Reply};
    use proptest::prelude::*;

    use super::*;

    fn packet(tag: u32, chunks: u16) -> Packet {
        Packet { tag, chunks, ..Packet::default() }
    }

    fn init(tag: u32, chunks: u16, initiate_tag: u32) -> Packet {
        Packet { initiate_tag, ..packet(tag, chunks) }
    }

    /// DATA chunk.
    const DATA: u16 = 1;
    /// HEARTBEAT chunk.
    const HEARTBEAT: u16 = 1 << 4;

    /// An association whose original direction has tag 20, and the reply direction tag 10.
    fn established() -> Association {
        let mut this = Association::open(&init(0, chunk::INIT, 10), false).unwrap();
        accepts(&mut this, Reply, init(10, chunk::INIT_ACK, 20), State::CookieWait);
        accepts(&mut this, Original, packet(20, chunk::COOKIE_ECHO | DATA), State::CookieEchoed);
        accepts(&mut this, Reply, packet(10, chunk::COOKIE_ACK), State::Established);
        this
    }

    fn accepts(this: &mut Association, direction: Direction, packet: Packet, state: State) {
        assert_eq!(this.track(direction, &packet), Verdict::Accepted, "{packet:?}");
        assert_eq!(this.state(), state, "after {packet:?}");
    }

    fn refuses(this: &mut Association, direction: Direction, packet: Packet, why: Invalid) {
        let before = *this;
        assert_eq!(this.track(direction, &packet), Verdict::Invalid(why), "{packet:?}");
        assert_eq!(*this, before);
    }

    #[test]
    fn an_association_passes_through_the_states_of_the_rfc() {
        let mut this = established();
        accepts(&mut this, Original, packet(20, DATA), State::Established);
        accepts(&mut this, Original, packet(20, chunk::SHUTDOWN), State::Shutdown);
        accepts(&mut this, Reply, packet(10, DATA), State::Shutdown);
        accepts(&mut this, Reply, packet(10, chunk::SHUTDOWN_ACK), State::ShutdownAck);
        accepts(&mut this, Original, packet(20, chunk::SHUTDOWN_COMPLETE), State::Closed);
        assert_eq!(this.track(Reply, &init(0, chunk::INIT, 5)), Verdict::NewAssociation);
    }

    #[test]
    fn packets_with_wrong_tags_change_nothing() {
        let mut this = established();
        refuses(&mut this, Original, packet(10, chunk::ABORT), Invalid::Tag);
        refuses(&mut this, Reply, packet(20, chunk::SHUTDOWN), Invalid::Tag);
        refuses(&mut this, Reply, packet(0, DATA), Invalid::Tag);
        refuses(&mut this, Reply, init(7, chunk::INIT, 5), Invalid::Tag);
        refuses(&mut this, Reply, init(7, chunk::INIT_ACK, 5), Invalid::Tag);
        refuses(&mut this, Reply, packet(7, chunk::COOKIE_ECHO), Invalid::Handshake);
        // A reflected tag ends the association.
        let reflected = Packet { is_reflected: true, ..packet(20, chunk::ABORT) };
        accepts(&mut this, Reply, reflected, State::Closed);
    }

    /// An INIT chunk from elsewhere changes nothing, and a restarted end gets its association back.
    #[test]
    fn an_association_restarts_with_the_cookie_only() {
        let mut this = established();
        accepts(&mut this, Original, init(0, chunk::INIT, 11), State::Established);
        accepts(&mut this, Reply, init(11, chunk::INIT_ACK, 21), State::Established);
        accepts(&mut this, Reply, packet(10, DATA), State::Established);
        accepts(&mut this, Original, packet(21, chunk::COOKIE_ECHO), State::CookieEchoed);
        accepts(&mut this, Reply, packet(11, chunk::COOKIE_ACK), State::Established);
        refuses(&mut this, Reply, packet(10, DATA), Invalid::Tag);
    }

    /// The other end answers an INIT chunk and its repetition with different tags, because it keeps no state.
    #[test]
    fn either_of_two_init_ack_chunks_may_be_answered() {
        for (tag, other) in [(20, 21), (21, 20)] {
            let mut this = Association::open(&init(0, chunk::INIT, 10), false).unwrap();
            accepts(&mut this, Original, init(0, chunk::INIT, 10), State::CookieWait);
            accepts(&mut this, Reply, init(10, chunk::INIT_ACK, 20), State::CookieWait);
            accepts(&mut this, Reply, init(10, chunk::INIT_ACK, 21), State::CookieWait);
            refuses(&mut this, Original, packet(22, chunk::COOKIE_ECHO), Invalid::Handshake);
            accepts(&mut this, Original, packet(tag, chunk::COOKIE_ECHO | DATA), State::CookieEchoed);
            accepts(&mut this, Reply, packet(10, chunk::COOKIE_ACK), State::Established);
            refuses(&mut this, Original, packet(other, DATA), Invalid::Tag);
        }
    }

    #[test]
    fn both_ends_may_initiate_at_once() {
        let mut this = Association::open(&init(0, chunk::INIT, 10), false).unwrap();
        accepts(&mut this, Reply, init(0, chunk::INIT, 20), State::CookieWait);
        accepts(&mut this, Reply, init(10, chunk::INIT_ACK, 20), State::CookieWait);
        accepts(&mut this, Original, init(20, chunk::INIT_ACK, 10), State::CookieWait);
        accepts(&mut this, Reply, packet(10, chunk::COOKIE_ECHO), State::CookieEchoed);
        accepts(&mut this, Original, packet(20, chunk::COOKIE_ACK), State::Established);
    }

    #[test]
    fn an_init_chunk_may_be_refused() {
        let mut this = Association::open(&init(0, chunk::INIT, 10), false).unwrap();
        refuses(&mut this, Reply, packet(11, chunk::ABORT), Invalid::Tag);
        accepts(&mut this, Reply, packet(10, chunk::ABORT), State::Closed);
    }

    #[test]
    fn only_some_packets_open_an_association() {
        let open = Association::open;
        assert_eq!(open(&init(1, chunk::INIT, 10), true), Err(Invalid::Tag));
        assert_eq!(open(&packet(1, DATA), false), Err(Invalid::NotOpening));
        assert_eq!(open(&packet(1, chunk::ABORT), true), Err(Invalid::NotOpening));
        let mut picked_up = open(&packet(20, HEARTBEAT), true).unwrap();
        accepts(&mut picked_up, Reply, packet(10, DATA), State::Established);
        refuses(&mut picked_up, Reply, packet(11, DATA), Invalid::Tag);
    }

    #[test]
    fn chunks_are_read_from_packets() {
        let of = |chunks: &[u8]| {
            let mut bytes = vec![0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0];
            bytes.extend(chunks);
            Packet::of(&Sctp::parse(&bytes).unwrap())
        };
        assert_eq!(of(&[1, 0, 0, 8, 0, 0, 0, 7]), Some(init(9, chunk::INIT, 7)));
        assert_eq!(of(&[1, 0, 0, 6, 0, 0, 0, 0]), None, "the chunk has no initiate tag");
        assert_eq!(of(&[1, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 4]), None, "another chunk follows the INIT chunk");
        assert_eq!(of(&[]), None);
        let aborted = Packet { is_reflected: true, ..packet(9, chunk::ABORT) };
        assert_eq!(of(&[6, 1, 0, 4]), Some(aborted));
        assert_eq!(of(&[10, 0, 0, 4, 0, 0, 0, 4]), Some(packet(9, chunk::COOKIE_ECHO | DATA)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state(
            bytes: [u8; 32],
            steps in prop::collection::vec((any::<bool>(), any::<[u8; 2]>(), 0..4_u32, 0..4_u32), 1..20),
        ) {
            let mut this: Association = zerocopy::transmute!(bytes);
            for (is_reply, chunks, tag, initiate_tag) in steps {
                let direction = if is_reply { Reply } else { Original };
                let _ = this.track(direction, &init(tag, u16::from_be_bytes(chunks), initiate_tag));
                let _ = this.state();
            }
        }
    }
}
