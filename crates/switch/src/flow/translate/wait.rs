//! Packets that are paused until their controller resumes them. `controller(pause)` ends the processing, and the
//! remaining instructions are sent with the packet. The controller returns the packet and the instructions, modified
//! or not (NXT_RESUME, ovs-actions(7)).

use super::{Continuation, Instructions, Match, Rest, Run};

/// Maximum memory, in octets, of the remaining processing that is recorded for all pauses of one packet. Longer
/// remaining processing does not fit into a message of 64 KiB, in which an action takes at least 8 octets.
const MAX_LEFT: usize = 1 << 20;

impl Run<'_> {
    /// Pauses the packet: stops its processing and starts to record the remaining instructions.
    pub(super) fn wait(&mut self) {
        let Some(place) = self.out.to_controller.len().checked_sub(1) else { return };
        // A bucket's copy does not use the action set.
        let action_set = if self.in_bucket { Vec::new() } else { self.action_set.clone() };
        let left = Continuation {
            action_set,
            stack: self.stack.clone(),
            queue: self.queue,
            ..Continuation::default()
        };
        let left = match self.left + left.memory() > MAX_LEFT {
            true => Continuation { is_too_long: true, ..Continuation::default() },
            false => left,
        };
        self.left += left.memory();
        if let Some(told) = self.out.to_controller.get_mut(place) {
            told.continuation = Some(Box::new(left));
        }
        (self.waits, self.exits) = (Some(place), true);
        self.note("it waits for the controller, which may resume it");
    }

    /// Returns whether the remaining instructions of the current lists and rules are recorded for a paused packet.
    pub(super) fn is_recording(&self) -> bool {
        let told = self.waits.and_then(|place| self.out.to_controller.get(place));
        told.and_then(|told| told.continuation.as_ref()).is_some_and(|left| !left.is_too_long)
    }

    /// Records the remaining instructions of an action list or rule of a paused packet.
    pub(super) fn leave(&mut self, instructions: Instructions) {
        if instructions == Instructions::default() {
            return;
        }
        let matching =
            self.rule.and_then(|rule| self.pipeline.rule(rule)).map_or(Match::ANY, |rule| rule.matching);
        let rest = Rest { table: self.table, cookie: self.cookie, matching, instructions };
        self.leave_rest(rest);
    }

    fn leave_rest(&mut self, rest: Rest) {
        let told = self.waits.and_then(|place| self.out.to_controller.get_mut(place));
        let Some(left) = told.and_then(|told| told.continuation.as_mut()) else { return };
        if left.is_too_long {
            return;
        }
        self.left += size_of::<Rest>() + rest.instructions.memory();
        if self.left > MAX_LEFT {
            **left = Continuation { is_too_long: true, ..Continuation::default() };
        } else {
            left.rest.push(rest);
        }
    }

    /// Executes the remaining instructions of a packet that its controller has resumed.
    pub(super) fn resume(&mut self, left: &Continuation) {
        self.action_set = left.action_set.clone();
        self.note_output();
        self.stack = left.stack.clone();
        self.queue = left.queue;
        for (place, rest) in left.rest.iter().enumerate() {
            (self.table, self.cookie, self.rule) = (rest.table, rest.cookie, None);
            self.instructions(&rest.instructions);
            if self.waits.is_some() {
                left.rest[place + 1..].iter().for_each(|rest| self.leave_rest(rest.clone()));
                return;
            }
            if self.stopped || self.exits {
                return;
            }
            self.ends = false;
        }
        self.finish_action_set();
    }
}
