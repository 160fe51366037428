//! Further look-ups of packets that the connection tracker has seen.

use lookup::MISS;
use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey};
use switch::flow::{ExtendedKey, one_tag};

use super::execute::{act, count};
use super::waiting::{identity, miss};
use crate::stage::flow_cache::{Flows, Recirculated, Ticket, Waiting};
use crate::stage::path_context::Context;

/// Looks the packets up that the connection tracker has seen, and executes their actions, until no packet is left.
/// Packets that match no megaflow are sent to the slow path.
#[inline]
pub(super) fn run<R: Recorder>(flows: &mut Flows, context: &mut Context<'_, '_, R>) {
    while let Some(next) = context.worker.recirculated.pop_front() {
        one(next, flows, context);
    }
}

fn one<R: Recorder>(next: Recirculated, flows: &mut Flows, context: &mut Context<'_, '_, R>) {
    let Recirculated { bridge, to, packet, connection } = next;
    let Some(number) = to.number else {
        return context.worker.drop(packet, context.port, DropReason::UpcallLimit);
    };
    let head = packet.head(context.worker.pool.memory());
    let mut key = FlowKey::ZERO;
    let layers = match FlowKey::extract(head, packet.len(), number, &mut key) {
        Ok(layers) => layers,
        Err(reason) => return context.worker.drop(packet, context.port, reason),
    };
    if bridge.tables.sees_one_tag() {
        key = one_tag(&key).unwrap_or(key);
    }
    let extended = ExtendedKey::extract(head, &key, &layers).with_connection(&connection);
    let waits = !flows.pending.is_empty() && flows.pending.contains_key(&identity(&key));
    let mut found = [MISS];
    flows.cache.find_burst(number.0, |_| key.words(), |_| extended.0, &mut found);
    match flows.cache.get_at(found[0]).filter(|_| !waits) {
        Some(flow) => {
            count(flow, 1, packet.len() as u64, context.now);
            context.recorder.step(0, Step::FlowHit);
            act(&bridge, context, packet, &flow.compiled, connection);
        }
        None => {
            context.recorder.step(0, Step::Upcall);
            let ticket = Ticket::take(context.egress, context.worker);
            let (port, recirculation) = (context.port, Some(to));
            let asks = Waiting { bridge, port, packet, key, extended, ticket, recirculation };
            miss(asks, flows, context.egress, context.worker);
        }
    }
}
