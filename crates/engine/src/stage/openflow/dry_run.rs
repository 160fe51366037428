//! Dry runs (explain): packets are translated with the flow tables instead of the flow cache.

use std::sync::Arc;

use packet::record::{Recorder, Step};
use packet::{FlowKey, Layers};
use switch::flow::{ConnectionFields, ExtendedKey, Flow, Recirculation, Translated, TranslationInput};

use super::execute::act;
use crate::burst::Burst;
use crate::flows::{Compiled, FlowBridge};
use crate::stage::flow_cache::Recirculated;
use crate::stage::path_context::Context;

/// Processes packets in a dry run: translates the packets with the flow tables and executes the resulting actions,
/// without caching and counting.
#[cold]
pub(super) fn run<R: Recorder>(
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
