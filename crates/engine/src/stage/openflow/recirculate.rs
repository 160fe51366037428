//! Further look-ups of packets that the connection tracker has seen, and dry runs (explain).

use std::sync::Arc;

use lookup::MISS;
use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, Layers};
use switch::flow::{
    ConnectionFields, ExtendedKey, Flow, Recirculation, Translated, TranslationInput, one_tag,
};

use super::execute::{act, count};
use super::waiting::{identity, miss};
use crate::burst::Burst;
use crate::flows::{Compiled, FlowBridge};
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

/// Processes packets in a dry run: translates the packets with the flow tables and executes the resulting actions,
/// without caching and counting.
#[cold]
pub(super) fn dry_burst<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    let Burst { packets, keys, layers, .. } = burst;
    for (i, packet) in packets.drain(..).enumerate() {
        let connection = ConnectionFields::default();
        let compiled = translated(bridge, context, (&packet, &keys[i], &layers[i]), i, &connection, None);
        act(bridge, context, packet, &compiled, connection);
    }
    while let Some(next) = context.worker.recirculated.pop_front() {
        let Recirculated { bridge, to, packet, connection } = next;
        let head = packet.head(context.worker.pool.memory());
        let mut key = FlowKey::ZERO;
        match FlowKey::extract(head, packet.len(), context.port, &mut key) {
            Ok(layers) => {
                let read = (&packet, &key, &layers);
                let compiled = translated(&bridge, context, read, 0, &connection, Some(&to));
                act(&bridge, context, packet, &compiled, connection);
            }
            Err(reason) => context.worker.drop(packet, context.port, reason),
        }
    }
}

/// Translates a packet of a dry run, and records the rules that it matches.
fn translated<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    (packet, key, layers): (&port::Packet, &FlowKey, &Layers),
    index: usize,
    connection: &ConnectionFields,
    recirculation: Option<&Recirculation>,
) -> Compiled {
    let mut frame = vec![0; packet.len()];
    packet.copy_to(context.worker.pool.memory(), &mut frame);
    let pipeline = bridge.tables.lock();
    let in_port = pipeline.number_of(context.port).unwrap_or(switch::flow::port::ANY);
    let extended = ExtendedKey::extract(&frame, key, layers).with_connection(connection);
    let flow = Flow::new(key, &extended, in_port);
    let asked = TranslationInput { flow: &flow, frame: Some(&frame), trace: true };
    let fate: Translated = match recirculation {
        Some(to) => pipeline.recirculate(asked, &to.state),
        None => pipeline.translate(asked),
    };
    // A bridge without rules has an empty report.
    let trace_report = pipeline.trace_report(&flow, &fate);
    if !trace_report.lines.is_empty() {
        context.worker.trace_reports.push(trace_report);
    }
    for rule in fate.rules.iter().filter_map(|rule| pipeline.rule(*rule)) {
        let (table, priority, cookie) = (rule.table, rule.priority, rule.cookie);
        context.recorder.step(index, Step::Rule { table, priority, cookie });
    }
    for table in &fate.missed {
        context.recorder.step(index, Step::NoRule { table: *table });
    }
    if !fate.to_controller.is_empty() {
        context.recorder.step(index, Step::ToController);
    }
    Compiled::new(fate.program, fate.dropped, Vec::new())
}
