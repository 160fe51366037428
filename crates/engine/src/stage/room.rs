//! Asks the room that owns the port what is to become of the packets.

use packet::DropReason;
use packet::record::{Recorder, Step, TagChange};
use switch::{Decision, Now};
use sync::qsbr::Reader;

use crate::burst::Burst;
use crate::stage::Tools;
use crate::state::Room;

/// Fills the decisions of `burst`. `reader` is the worker's.
pub fn run<R: Recorder>(
    room: &Room,
    burst: &mut Burst,
    now: Now,
    reader: &Reader,
    tools: &mut Tools,
    recorder: &mut R,
) {
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
        Room::Route(router, interface) => router.decide(
            *interface,
            reader,
            &burst.keys[..n],
            &burst.layers[..n],
            &mut tools.routing,
            &mut burst.routes[..n],
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
