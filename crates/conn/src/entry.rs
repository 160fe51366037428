//! Entry of a connection table: 56 bytes for IPv4, 80 bytes for IPv6.

use zerocopy::transmute;

use crate::Direction;
use crate::nat::spec::{Target, Translation};
use crate::tuple::{Address, Side, Tuple};
use crate::{sctp, tcp};

/// Number of an entry in its table. The number is valid until the entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct EntryId(pub(crate) u32);

/// One connection of a table.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry<A> {
    low: A,
    high: A,
    low_port: u16,
    high_port: u16,
    zone: u16,
    protocol: u8,
    flags: u8,
    /// Protocol state: of TCP a [`tcp::Connection`], of SCTP a [`sctp::Association`], of other protocols zero.
    state: [u32; 8],
    /// Time in milliseconds at which the entry expires. For an embryonic entry: number of its node in the lists of
    /// embryonic entries. For an unused entry: number of the next unused entry.
    pub(crate) timer: u32,
    /// Index of the extension record, and the bits [`HELPER`] and [`RELATED`]. Index 0: the entry has no record. The
    /// record of a translated connection is in an array of its own.
    pub(crate) extension: u32,
}

const _: () = assert!(size_of::<Entry<u32>>() == 56 && size_of::<Entry<u128>>() == 80);

/// The entry holds a connection.
const USED: u8 = 1;
/// [`Side::High`] has sent the first packet.
const FROM_HIGH: u8 = 2;
/// The entry is in the lists of embryonic entries.
const EMBRYONIC: u8 = 4;
/// The end that did not send the first packet has sent a packet.
const REPLIED: u8 = 8;
/// The connection has a translation.
const TRANSLATED: u8 = 16;
/// The tuple of the replies differs from the tuple of the entry, and is a second key.
const SECOND_KEY: u8 = 32;
/// The originator is [`Side::High`] in the tuple of the replies.
const REPLIES_TO_HIGH: u8 = 64;
/// The translation is one of the destination. Otherwise, the translation is one of the source.
const DESTINATION: u8 = 128;

/// Largest index of an extension record. The bits above the index are flags.
pub(crate) const RECORDS: u32 = RELATED - 1;
/// Bit of [`Entry::extension`]: another connection has announced the connection (see [`crate::helper`]).
const RELATED: u32 = 1 << 30;
/// Bit of [`Entry::extension`]: the connection has a helper (see [`crate::helper`]).
const HELPER: u32 = 1 << 31;

impl<A: Address> Entry<A> {
    /// Returns a new entry of a connection, embryonic, without state.
    pub(crate) fn new(tuple: &Tuple<A>, originator: Side, node: u32, extension: u32) -> Entry<A> {
        let Tuple { low, high, low_port, high_port, zone, protocol } = *tuple;
        let flags = USED | EMBRYONIC | if originator == Side::High { FROM_HIGH } else { 0 };
        Entry { low, high, low_port, high_port, zone, protocol, flags, state: [0; 8], timer: node, extension }
    }

    /// Marks the entry as unused.
    pub(crate) fn clear(&mut self, next_unused: u32) {
        self.flags = 0;
        self.timer = next_unused;
        self.extension = 0;
    }

    /// Returns whether the entry holds the connection with this tuple.
    #[inline(always)]
    pub(crate) fn is(&self, tuple: &Tuple<A>) -> bool {
        let Tuple { low, high, low_port, high_port, zone, protocol } = *tuple;
        let is_equal = (self.low_port, self.high_port, self.zone, self.protocol)
            == (low_port, high_port, zone, protocol);
        self.low == low && self.high == high && is_equal && self.is_used()
    }

    /// Returns the tuple of the connection.
    #[must_use]
    pub fn tuple(&self) -> Tuple<A> {
        let Entry { low, high, low_port, high_port, zone, protocol, .. } = *self;
        Tuple { low, high, low_port, high_port, zone, protocol }
    }

    /// Returns the zone of the connection.
    #[must_use]
    pub fn zone(&self) -> u16 {
        self.zone
    }

    /// Returns the IP protocol number of the connection.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Returns the side of the end that sent the first packet.
    #[must_use]
    pub fn originator(&self) -> Side {
        if self.has(FROM_HIGH) { Side::High } else { Side::Low }
    }

    /// Returns the direction of a packet from a side of `tuple`, which is a key of the connection: the tuple of the
    /// connection, or the tuple of the replies. Returns `None` if NAT uses the other key for packets from this side.
    #[inline(always)]
    #[must_use]
    pub fn direction(&self, tuple: &Tuple<A>, source: Side) -> Option<Direction> {
        if self.has_second_key() {
            return self.translated_direction(tuple, source);
        }
        Some(source.direction(self.originator()))
    }

    #[inline(never)]
    fn translated_direction(&self, tuple: &Tuple<A>, source: Side) -> Option<Direction> {
        let is_original = self.is(tuple);
        let originator = if is_original { self.originator() } else { self.reply_originator() };
        let is_from_originator = source == originator;
        (is_original == is_from_originator).then(|| source.direction(originator))
    }

    /// Returns whether the connection is embryonic: its handshake is not complete, or the other end has not replied.
    #[inline(always)]
    #[must_use]
    pub fn is_embryonic(&self) -> bool {
        self.has(EMBRYONIC)
    }

    /// Returns whether the end that did not send the first packet has sent a packet.
    #[must_use]
    pub fn has_replied(&self) -> bool {
        self.has(REPLIED)
    }

    /// Returns whether the connection has a translation.
    #[inline(always)]
    #[must_use]
    pub fn is_translated(&self) -> bool {
        self.has(TRANSLATED)
    }

    /// Returns whether the tuple of the replies is a second key of the connection.
    #[inline(always)]
    pub(crate) fn has_second_key(&self) -> bool {
        self.has(SECOND_KEY)
    }

    /// Returns the end that is translated. For a connection without a translation, the value has no meaning.
    pub(crate) fn target(&self) -> Target {
        if self.has(DESTINATION) { Target::Destination } else { Target::Source }
    }

    /// Returns the side of the originator in the tuple of the replies of a translated connection.
    #[inline]
    pub(crate) fn reply_originator(&self) -> Side {
        if self.has(REPLIES_TO_HIGH) { Side::High } else { Side::Low }
    }

    /// Records that the connection has a translation.
    pub(crate) fn set_translation(&mut self, translation: &Translation<A>) {
        self.flags |= TRANSLATED;
        for (flag, is_set) in [
            (SECOND_KEY, translation.reply_tuple != self.tuple()),
            (REPLIES_TO_HIGH, translation.originator == Side::High),
            (DESTINATION, translation.target == Target::Destination),
        ] {
            self.flags |= if is_set { flag } else { 0 };
        }
    }

    /// Returns the index of the extension record.
    #[inline(always)]
    pub(crate) fn record(&self) -> u32 {
        self.extension & RECORDS
    }

    /// Sets the index of the extension record, at most [`RECORDS`].
    pub(crate) fn set_record(&mut self, record: u32) {
        self.extension = self.extension & !RECORDS | record & RECORDS;
    }

    /// Returns whether the connection has a helper, or was announced by another connection.
    #[inline(always)]
    pub(crate) fn has_flags(&self) -> bool {
        self.extension > RECORDS
    }

    /// Returns whether the connection has a helper, which reads the payloads of its packets.
    #[inline(always)]
    #[must_use]
    pub fn has_helper(&self) -> bool {
        self.extension & HELPER != 0
    }

    /// Records that the connection has a helper.
    pub(crate) fn set_helper(&mut self) {
        self.extension |= HELPER;
    }

    /// Returns whether another connection has announced the connection, for example the data connection of FTP.
    #[inline(always)]
    #[must_use]
    pub fn is_related(&self) -> bool {
        self.extension & RELATED != 0
    }

    /// Records that another connection has announced the connection.
    pub(crate) fn set_related(&mut self) {
        self.extension |= RELATED;
    }

    /// Returns the state of a TCP connection. For other protocols, the value has no meaning.
    #[must_use]
    pub fn tcp(&self) -> tcp::Connection {
        transmute!(self.state)
    }

    /// Sets the state of a TCP connection.
    pub fn set_tcp(&mut self, connection: tcp::Connection) {
        self.state = transmute!(connection);
    }

    /// Returns the state of an SCTP association. For other protocols, the value has no meaning.
    #[must_use]
    pub fn sctp(&self) -> sctp::Association {
        transmute!(self.state)
    }

    /// Sets the state of an SCTP association.
    pub fn set_sctp(&mut self, association: sctp::Association) {
        self.state = transmute!(association);
    }

    /// Records that a packet of one direction was seen. `is_reply` states that the packet was sent by the end that did
    /// not send the first packet of the connection.
    pub fn set_seen(&mut self, is_reply: bool) {
        self.flags |= if is_reply { REPLIED } else { 0 };
    }

    pub(crate) fn set_established(&mut self, expires: u32) {
        self.flags &= !EMBRYONIC;
        self.timer = expires;
    }

    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.has(USED)
    }

    #[inline(always)]
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
