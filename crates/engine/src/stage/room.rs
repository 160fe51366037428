//! Asks the room that owns the port what is to become of the packets.

use packet::DropReason;
use packet::record::{Recorder, Step, TagChange};
use switch::{Decision, Now};

use crate::burst::Burst;
use crate::stage::Tools;
use crate::state::Room;

/// Fills the decisions of `burst`.
pub fn run<R: Recorder>(room: &Room, burst: &mut Burst, now: Now, tools: &mut Tools, recorder: &mut R) {
    let n = burst.packets.len();
    match room {
        Room::Switch(bridge) => bridge.forward(
            &burst.keys[..n],
            &burst.layers[..n],
            now,
            &mut tools.scratch,
            &mut burst.decisions[..n],
            recorder,
        ),
        Room::Wire(port) => {
            burst.decisions[..n].fill(Decision::Forward { port: *port, tag: TagChange::Keep })
        }
        Room::None => {
            for i in 0..n {
                burst.decisions[i] = Decision::Drop(DropReason::NoRoom);
                recorder.step(i, Step::Dropped(DropReason::NoRoom));
            }
        }
    }
}
