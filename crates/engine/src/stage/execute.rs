//! Does what the room decided: rewrites tags, copies floods, and sorts packets by output.

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, PortId};
use port::Packet;
use switch::Decision;

use crate::burst::Burst;
use crate::stage::outbox::Refused;
use crate::stage::transmit::{self, Exits};
use crate::stage::{Punt, Tools, tag};
use crate::state::{Forwarding, Room};

/// Empties `burst`, whose packets arrived on `port`, into the outbox; full batches are transmitted on the way.
pub fn run<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    room: &Room,
    burst: &mut Burst,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    for (i, packet) in burst.packets.drain(..).enumerate() {
        let decision = burst.decisions[i];
        match decision {
            Decision::Forward { port: out, tag } => {
                output(forwarding, port, packet, out, tag, exits, tools, recorder, i);
            }
            Decision::Drop(reason) => tools.drop(packet, port, reason),
            Decision::Flood { vid, .. } | Decision::Group { vid, .. } => {
                let Room::Switch(bridge) = room else {
                    tools.drop(packet, port, DropReason::NoRoom);
                    continue;
                };
                if decision.punts() {
                    punt(port, vid, &packet, tools);
                }
                let mut outputs = std::mem::take(&mut tools.outputs);
                outputs.clear();
                bridge.flood(port, &decision, |out, tag| {
                    let _ = outputs.try_push((out, tag));
                });
                flood(forwarding, port, packet, &outputs, exits, tools, recorder, i);
                tools.outputs = outputs;
            }
        }
    }
}

/// Sends `packet` to every output: a copy to each but the last, which gets the packet itself.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context, passed flat to keep it inlined")]
fn flood<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    packet: Packet,
    outputs: &[(PortId, TagChange)],
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
    index: usize,
) {
    let Some((&(last, last_tag), others)) = outputs.split_last() else {
        recorder.step(index, Step::Dropped(DropReason::NoMember));
        tools.drop(packet, port, DropReason::NoMember);
        return;
    };
    for &(out, tag) in others {
        let counters = tools.counters.clone();
        let counters = counters.port(port);
        if tools.clones_left == 0 {
            counters.copies.add(1);
            counters.drop_n(DropReason::CloneBudget, 1);
            continue;
        }
        counters.copies.add(1);
        match tools.pool.copy(&packet) {
            Ok(copy) => {
                tools.clones_left -= 1;
                output(forwarding, port, copy, out, tag, exits, tools, recorder, index);
            }
            Err(reason) => counters.drop_n(reason, 1),
        }
    }
    output(forwarding, port, packet, last, last_tag, exits, tools, recorder, index);
}

#[inline]
#[allow(clippy::too_many_arguments, reason = "the stage's whole context, passed flat to keep it inlined")]
fn output<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    mut packet: Packet,
    out: PortId,
    change: TagChange,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
    index: usize,
) {
    if change != TagChange::Keep {
        if let Err(reason) = tag::apply(&mut packet, tools.pool.memory(), change) {
            recorder.step(index, Step::Dropped(reason));
            return tools.drop(packet, port, reason);
        }
    }
    match tools.outbox.push(out, packet) {
        Ok(()) => {}
        Err(Refused::Full(packet)) => {
            transmit::port(forwarding, out, exits, tools, recorder);
            // The batch is empty now.
            if let Err(Refused::Full(packet) | Refused::NoPort(packet)) = tools.outbox.push(out, packet) {
                tools.drop(packet, port, DropReason::PortRemoved);
            }
        }
        Err(Refused::NoPort(packet)) => {
            recorder.step(index, Step::Dropped(DropReason::PortRemoved));
            tools.drop(packet, port, DropReason::PortRemoved);
        }
    }
}

/// Gives control a copy of an IGMP or MLD packet; when its ring is full the snooper learns from the next one.
#[cold]
fn punt(port: PortId, vid: u16, packet: &Packet, tools: &mut Tools) {
    let Some(ring) = &mut tools.punt else { return };
    if ring.free() == 0 {
        return;
    }
    if let Ok(copy) = tools.pool.copy(packet) {
        match ring.push(Punt { port, vid, packet: copy }) {
            Ok(()) => {
                let counters = tools.counters.port(port);
                counters.copies.add(1);
                counters.punted.add(1);
            }
            Err(punt) => tools.pool.free(punt.packet),
        }
    }
}
