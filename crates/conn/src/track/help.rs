//! Helpers of a tracker: payloads of connections with a helper, and connections that helpers expect.
//!
//! The caller of a tracker that has helpers calls these functions for each packet of a connection with a helper
//! ([`Tracker::has_helper`]), after [`Tracker::track`] and [`Tracker::commit`]:
//!
//! 1. [`Tracker::correction`] returns the corrections of the TCP sequence numbers of the packet.
//! 2. [`Tracker::help`] reads the payload, and may return a replacement of a part of the payload.
//! 3. After the caller has applied the replacement, [`Tracker::change_length`] records the change of the length.

use crate::Direction;
use crate::entry::EntryId;
use crate::headers::{Content, Packet};
use crate::helper::expectation::Expectation;
use crate::helper::sequence::Correction;
use crate::helper::{Help, Helper, Refusal};
use crate::track::{CtState, Tracked, Tracker};
use crate::tuple::{Address, Tuple};

impl<A: Address> Tracker<A> {
    /// Returns whether the connection of a packet has a helper.
    #[inline]
    #[must_use]
    pub fn has_helper(&self, tracked: &Tracked) -> bool {
        tracked.id.and_then(|id| self.table.get(id)).is_some_and(|entry| entry.has_helper())
    }

    /// Returns the expectation of the connection that a packet opens. A connection that is committed is no longer
    /// expected. `now` is the time in milliseconds.
    #[must_use]
    pub fn expectation(&self, packet: &Packet<A>, now: u32) -> Option<&Expectation<A>> {
        match packet.content {
            Content::Tcp(_) | Content::Udp => self.table.expectation(&packet.tuple, packet.source, now),
            _ => None,
        }
    }

    /// Reads the payload of a packet if the connection of the packet has a helper. The caller passes the packet as it
    /// was tracked, and the payload of TCP or UDP before a replacement. The function is total. `now` is the time in
    /// milliseconds.
    ///
    /// # Errors
    /// Returns the reason for which a connection that the payload announces is not expected. The connection of the
    /// packet is unchanged, and the caller decides whether the packet passes.
    pub fn help(
        &mut self,
        packet: &Packet<A>,
        tracked: &Tracked,
        payload: &[u8],
        now: u32,
    ) -> Result<Help<A>, Refusal> {
        let Some((id, direction)) = self.helped(packet, tracked) else { return Ok(Help::default()) };
        let Some(connection) = self.table.parent_connection(id) else { return Ok(Help::default()) };
        // The helpers are apart from the table while the table is searched.
        let Some(mut helpers) = self.table.take_helpers() else { return Ok(Help::default()) };
        let help = match (helpers.helper(id), &packet.content) {
            (Some(Helper::Ftp), Content::Tcp(segment)) => {
                let is_free = |tuple: &Tuple<A>| self.table.find(tuple, now).is_none();
                helpers.read_ftp(&connection, direction, segment, payload, is_free, now)
            }
            (Some(Helper::Tftp), Content::Udp) => helpers.read_tftp(&connection, direction, payload, now),
            _ => Ok(Help::default()),
        };
        self.table.restore_helpers(helpers);
        help
    }

    /// Returns the corrections of the sequence numbers of a TCP segment. Returns `None` if the numbers stay unchanged.
    /// The caller passes the packet as it was tracked.
    #[must_use]
    pub fn correction(&self, packet: &Packet<A>, tracked: &Tracked) -> Option<Correction> {
        let (id, direction) = self.helped(packet, tracked)?;
        self.table.helpers()?.correction(id, direction)
    }

    /// Records that the payload of a TCP segment has become longer by this number of octets. The caller passes the
    /// packet as it was tracked.
    pub fn change_length(&mut self, packet: &Packet<A>, tracked: &Tracked, difference: i32) {
        if let (Some((id, direction)), Content::Tcp(segment)) =
            (self.helped(packet, tracked), &packet.content)
            && let Some(helpers) = self.table.helpers_mut()
        {
            helpers.change_length(id, direction, segment.seq, difference);
        }
    }

    /// Returns the connection of a valid packet, if the connection has a helper, and the direction of the packet.
    fn helped(&self, packet: &Packet<A>, tracked: &Tracked) -> Option<(EntryId, Direction)> {
        let id = tracked.id.filter(|_| tracked.invalid.is_none() && packet.content != Content::Error)?;
        let entry = self.table.get(id).filter(|entry| entry.has_helper())?;
        self.table.holds(id, &packet.tuple).then_some(())?;
        Some((id, entry.direction(&packet.tuple, packet.source)?))
    }

    /// Returns the packet with the acknowledgement number of the sender that the number of the receiver means. The
    /// packet of a connection without a helper is unchanged.
    pub(super) fn with_number_of_sender(&self, id: EntryId, packet: &Packet<A>) -> Packet<A> {
        let mut corrected = *packet;
        let entry = self.table.get(id).filter(|entry| entry.has_helper());
        if let Content::Tcp(segment) = &mut corrected.content
            && let Some(direction) = entry.and_then(|entry| entry.direction(&packet.tuple, packet.source))
            && let Some(helpers) = self.table.helpers()
            && let Some(correction) = helpers.correction(id, direction)
        {
            segment.ack = correction.ack(segment.ack);
        }
        corrected
    }

    /// Returns the state bits of a packet that opens a connection.
    #[inline]
    pub(super) fn state_of_new(&self, packet: &Packet<A>, now: u32) -> CtState {
        if self.table.has_expectations() && self.expectation(packet, now).is_some() {
            return CtState::NEW | CtState::RELATED;
        }
        CtState::NEW
    }
}
