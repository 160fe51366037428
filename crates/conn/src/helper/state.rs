//! State of the connections with a helper.

use packet::ip_proto;

use crate::Direction;
use crate::entry::EntryId;
use crate::helper::chains::Chains;
use crate::helper::sequence::{Correction, SequenceOffset};

/// Helper of a connection, which reads the payloads of the connection. Open vSwitch calls a helper an application layer
/// gateway (`alg`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Helper {
    /// File Transfer Protocol (RFC 959, RFC 2428) on TCP.
    Ftp,
    /// Trivial File Transfer Protocol (RFC 1350) on UDP.
    Tftp,
}

impl Helper {
    /// Returns the name of the helper in `ct(commit,alg=...)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
            Helper::Tftp => "tftp",
        }
    }

    /// Returns the helper with the name that Open vSwitch's `alg=` uses. Returns `None` if the name is unknown.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Helper> {
        [Helper::Ftp, Helper::Tftp].into_iter().find(|helper| helper.name() == name)
    }

    /// Returns the IP protocol number of the connections that the helper reads.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Helper::Ftp => ip_proto::TCP,
            Helper::Tftp => ip_proto::UDP,
        }
    }
}

/// Sequence numbers of one direction at which lines begin. A sender that controls the content of a file or a form, but
/// not the commands, could otherwise place a command at the start of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineStarts {
    numbers: [u32; 2],
    count: u8,
}

impl LineStarts {
    /// Returns whether a line begins at a sequence number. The two latest lines are known.
    pub(crate) fn has(&self, seq: u32) -> bool {
        self.numbers.iter().take(self.count.into()).any(|number| *number == seq)
    }

    /// Records that a line begins at a sequence number.
    pub(crate) fn add(&mut self, seq: u32) {
        if self.has(seq) {
            return;
        }
        let [a, b] = self.numbers;
        // The difference is negative as a signed number if `a` is before `b`.
        let oldest =
            usize::from(if self.count == 2 { a.wrapping_sub(b) >> 31 == 0 } else { self.count == 1 });
        if let Some(number) = self.numbers.get_mut(oldest) {
            *number = seq;
        }
        self.count = (self.count + 1).min(2);
    }
}

/// Last line of a connection that has announced another connection. A repetition of the segment announces nothing, but
/// needs the same replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastLine {
    /// Direction of the segment.
    pub(crate) direction: Direction,
    /// Sequence number of the segment.
    pub(crate) seq: u32,
    /// Port in the line.
    pub(crate) port: u16,
    /// Port in the replacement.
    pub(crate) new_port: u16,
}

/// State of a connection with a helper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    id: EntryId,
    pub(crate) helper: Helper,
    pub(crate) lines: [LineStarts; 2],
    pub(crate) last: Option<LastLine>,
    offsets: [SequenceOffset; 2],
}

impl State {
    /// Records that the payload of a segment has become longer by this number of octets.
    pub(crate) fn change_length(&mut self, direction: Direction, seq: u32, difference: i32) {
        self.offsets[direction as usize].change(seq, difference);
    }

    /// Returns the corrections of a segment.
    pub(crate) fn correction(&self, direction: Direction) -> Option<Correction> {
        let [own, other] = [direction, direction.opposite()].map(|way| self.offsets[way as usize]);
        (!own.is_zero() || !other.is_zero()).then(|| Correction::of(own, other))
    }
}

/// States of all connections with a helper. The memory is allocated once.
#[derive(Debug)]
pub(crate) struct States {
    states: Vec<State>,
    unused: Vec<u32>,
    by_id: Chains,
    limit: u32,
}

impl States {
    /// Returns no states, and memory for this number of states.
    pub(crate) fn new(limit: u32) -> States {
        let (states, unused) = (Vec::with_capacity(limit as usize), Vec::with_capacity(limit as usize));
        States { states, unused, by_id: Chains::new(limit), limit }
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.states.len() - self.unused.len()
    }

    /// Returns whether there is an unused state.
    pub(crate) fn has_unused(&self) -> bool {
        self.count() < self.limit as usize
    }

    /// Returns the state of a connection.
    pub(crate) fn get(&self, id: EntryId) -> Option<&State> {
        self.states.get(self.slot(id)? as usize)
    }

    /// Returns the state of a connection for a change.
    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut State> {
        let slot = self.slot(id)?;
        self.states.get_mut(slot as usize)
    }

    /// Adds the state of a connection that has none. Returns false if all states are in use.
    pub(crate) fn insert(&mut self, id: EntryId, helper: Helper) -> bool {
        if !self.has_unused() {
            return false;
        }
        let (lines, offsets) = (Default::default(), Default::default());
        let state = State { id, helper, lines, last: None, offsets };
        let slot = match self.unused.pop() {
            Some(slot) => slot,
            None => u32::try_from(self.states.len()).unwrap_or(self.limit),
        };
        match self.states.get_mut(slot as usize) {
            Some(place) => *place = state,
            None => self.states.push(state),
        }
        self.by_id.insert(id.0.into(), slot);
        true
    }

    /// Removes the state of a connection.
    pub(crate) fn remove(&mut self, id: EntryId) {
        if let Some(slot) = self.slot(id) {
            self.by_id.remove(id.0.into(), slot);
            self.unused.push(slot);
        }
    }

    fn slot(&self, id: EntryId) -> Option<u32> {
        let has_id = |slot: &u32| self.states.get(*slot as usize).is_some_and(|state| state.id == id);
        self.by_id.slots(id.0.into()).find(has_id)
    }
}
