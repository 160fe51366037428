//! The action `ct` (NXAST_CT, NXAST_NAT in Open vSwitch's `ofp-actions.c`; ovs-actions(7)), which sends a packet to the
//! connection tracker.

use std::net::IpAddr;

use super::SubField;

/// Source of the zone of a `ct` action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneSource {
    /// The zone is this number.
    Number(u16),
    /// The zone is in these bits of the packet.
    Field(SubField),
}

/// The end of a connection that NAT translates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatEnd {
    /// The source of the first packet.
    Source,
    /// The destination of the first packet.
    Destination,
}

/// Choice of a port from the range of a translation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NatSelection {
    /// The tracker chooses.
    #[default]
    Any,
    /// By a hash of the connection's addresses and ports.
    Hash,
    /// At random.
    Random,
}

/// Translation of new connections (`nat(src=...)` or `nat(dst=...)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRange {
    /// End that is translated.
    pub end: NatEnd,
    /// First and last address of the range. Both have the same family. `None` keeps the address.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// First and last port of the range. `None` keeps the port if it is free.
    pub ports: Option<(u16, u16)>,
    /// Whether a client always gets the same address.
    pub persistent: bool,
    /// How a port of the range is chosen.
    pub selection: NatSelection,
}

/// The action `nat` inside of a `ct` action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CtNat {
    /// Translates packets of connections that have a translation (`nat` without arguments).
    Existing,
    /// Also translates new connections.
    New(NatRange),
}

/// The action `ct`. `A` is the type of the actions in `exec`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CtAction<A> {
    /// Whether the connection is entered into the table.
    pub commit: bool,
    /// Whether a packet of the reply direction opens a new connection in place of the existing one.
    pub force: bool,
    /// Zone in which the packet is tracked.
    pub zone: ZoneSource,
    /// Table in which a copy of the packet, with its connection fields, is processed further. If the table is `None`,
    /// the packet is only processed by the next action.
    pub table: Option<u8>,
    /// Well-known port of the helper of a new connection: 21 for FTP, 69 for TFTP, 0 for none.
    pub alg: u16,
    /// Translation of the connection.
    pub nat: Option<CtNat>,
    /// Actions that set the mark and the label of the connection.
    pub exec: Vec<A>,
}

/// Returns the action `ct()`, which sends the packet to the tracker in zone 0.
impl<A> Default for CtAction<A> {
    fn default() -> CtAction<A> {
        CtAction {
            commit: false,
            force: false,
            zone: ZoneSource::Number(0),
            table: None,
            alg: 0,
            nat: None,
            exec: Vec::new(),
        }
    }
}

/// Well-known port of FTP, which selects the helper for FTP.
pub const FTP: u16 = 21;
/// Well-known port of TFTP, which selects the helper for TFTP.
pub const TFTP: u16 = 69;

impl NatRange {
    /// Returns whether the ranges of addresses and ports are valid. The bounds are in ascending order, and ports are
    /// only given with addresses of one family (as in Open vSwitch). The address 0 alone stands for the source's own
    /// address: only the port changes, and only if another connection has the tuple of the replies.
    fn is_sound(&self) -> bool {
        let is_range = |(first, last): (IpAddr, IpAddr)| {
            let is_bad_zero = first.is_unspecified() && (first != last || self.end == NatEnd::Destination);
            first.is_ipv4() == last.is_ipv4() && !is_bad_zero && first <= last
        };
        self.addresses.is_none_or(is_range)
            && self.ports.is_none_or(|(first, last)| first != 0 && first <= last)
            && (self.ports.is_none() || self.addresses.is_some())
    }
}

impl<A> CtAction<A> {
    /// Returns whether the arguments of the action are valid and may be combined. Only an action that commits the
    /// connection can set its mark and label, replace the connection, or translate a new connection. `may_be_in_exec`
    /// returns whether an action may be in `exec`.
    pub(super) fn is_sound(&self, may_be_in_exec: impl FnMut(&A) -> bool) -> bool {
        let needs_commit = self.force || !self.exec.is_empty() || matches!(self.nat, Some(CtNat::New(_)));
        let has_zone = match &self.zone {
            ZoneSource::Number(_) => true,
            ZoneSource::Field(part) => part.bits == 16,
        };
        let translates = match &self.nat {
            Some(CtNat::New(range)) => range.is_sound(),
            Some(CtNat::Existing) | None => true,
        };
        (self.commit || !needs_commit)
            && has_zone
            && translates
            && matches!(self.alg, 0 | FTP | TFTP)
            && self.exec.iter().all(may_be_in_exec)
    }
}
