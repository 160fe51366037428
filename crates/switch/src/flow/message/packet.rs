//! Packet-in and packet-out messages, and the saved state of packets whose processing is paused.

use crate::flow::action::memory_of;
use crate::flow::{Action, Flow, Instructions, Match, Reason};

/// A packet-in: a packet sent to controllers.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketIn {
    /// Reason of the packet-in.
    pub reason: Reason,
    /// Table of the flow entry that sent the packet.
    pub table: u8,
    /// Cookie of the flow entry that sent the packet.
    pub cookie: u64,
    /// Metadata fields of the packet: ingress port, registers and tunnel fields.
    pub flow: Flow,
    /// Whole frame of the packet.
    pub frame: Vec<u8>,
    /// Maximum number of octets of the frame in the message, as the action specifies.
    pub max_len: u16,
    /// Identifier of the controller connection to which the packet is sent (NXAST_CONTROLLER).
    pub controller: u16,
    /// User data of the controller action, which the controller receives unchanged.
    pub userdata: Vec<u8>,
    /// State from which the processing of the packet continues, if the packet is paused until its controller resumes
    /// it.
    pub continuation: Option<Box<Continuation>>,
}

/// A packet-out: a packet that a controller sends.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketOut {
    /// Ingress port of the packet, as specified by the controller.
    pub in_port: u32,
    /// Other metadata fields of the packet (OpenFlow 1.5).
    pub metadata: Match,
    /// Actions that are executed on the packet.
    pub actions: Vec<Action>,
    /// Frame that the controller sends.
    pub frame: Vec<u8>,
    /// State from which the processing continues after the actions, if this packet was paused and sent to the
    /// controller before.
    pub resumes: Option<Box<Continuation>>,
}

impl PacketOut {
    /// Returns the approximate size of the packet with its actions in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let left = self.resumes.as_ref().map_or(0, |left| left.memory());
        size_of::<PacketOut>() + self.frame.len() + memory_of(&self.actions) + left
    }
}

/// The state of a paused packet (`controller(pause)`). Processing continues from this state when a controller resumes
/// the packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Continuation {
    /// Remaining instructions of each flow entry that the packet was executing, innermost first.
    pub rest: Vec<Rest>,
    /// Action set of the packet at the time of the pause.
    pub action_set: Vec<Action>,
    /// Values that the action `push` saved and `pop` has not restored at the time of the pause, each with its width in
    /// bits.
    pub stack: Vec<(u128, u16)>,
    /// Queue that actions have selected for subsequent outputs. `None` means the default queue.
    pub queue: Option<u32>,
    /// Whether the state is too long for an OpenFlow message. If so, the other fields are empty,
    /// and the packet cannot be resumed.
    pub is_too_long: bool,
}

impl Continuation {
    /// Returns the approximate size of the remaining processing in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let rest = self.rest.iter().map(|rest| size_of::<Rest>() + rest.instructions.memory());
        size_of::<Continuation>()
            + rest.sum::<usize>()
            + memory_of(&self.action_set)
            + size_of_val(&self.stack[..])
    }
}

/// The remaining instructions of one flow entry that a paused packet was executing.
#[derive(Clone, PartialEq, Debug)]
pub struct Rest {
    /// Table of the flow entry.
    pub table: u8,
    /// Cookie of the flow entry.
    pub cookie: u64,
    /// Match of the flow entry. The match determines on which header fields the remaining actions may operate.
    pub matching: Match,
    /// Remaining instructions of the flow entry.
    pub instructions: Instructions,
}
