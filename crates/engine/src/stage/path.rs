//! Path of a burst through the stages of one port: *parse, the port's function, transmit*. Each kind of function
//! (bridge, OpenFlow, router, cross-connect) has one entry point `process` in a file of its own, which looks up and
//! executes the forwarding decisions for a burst.

use packet::record::{Recorder, Step};
use packet::{DropReason, PortId};
use switch::Now;
use sync::cpu::tsc;
use sync::qsbr::Reader;

use super::path_context::Context;
use super::transmit::Egress;
use super::{WorkerContext, bridge, cross_connect, ingress, openflow, parse, router, software_rss, transmit};
use crate::burst::Burst;
use crate::counters::Stage;
use crate::state::{Forwarding, Function, PortView};

/// Origin of a burst that a worker processes.
pub(crate) struct Source<'w> {
    pub(crate) forwarding: &'w Forwarding,
    pub(crate) port: PortId,
    pub(crate) view: &'w PortView,
    /// Index of the worker's queue from which the burst was received. `None` if the burst came from another
    /// worker or from a patch port.
    pub(crate) queue: Option<usize>,
    /// Whether another worker has already run the port's ingress stage on the burst.
    pub(crate) seen: bool,
    /// Index of the worker's queue from which the packets of the burst were originally received.
    /// Unlike `queue`, the index is also present if the packets arrived through a patch port.
    pub(crate) origin: Option<usize>,
    /// The worker's QSBR reader (quiescent-state-based reclamation), which is needed for table lookups.
    pub(crate) reader: &'w Reader,
}

/// Takes a burst through the stages of one port, from parsing to transmission. Packets that are sent to patch ports are
/// stored in [`WorkerContext`], and the caller continues to process them.
pub(crate) fn run<R: Recorder>(
    source: &Source<'_>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    worker: &mut WorkerContext,
    recorder: &mut R,
) {
    let Source { forwarding, port, view, queue, seen, origin, reader } = *source;
    worker.queue = origin;
    let context = &mut Context { forwarding, port, reader, now, egress, worker, recorder, begin: tsc() };
    let uses_rss = queue.filter(|at| view.rss_table.is_some() || context.egress.queues[*at].rss.is_away());
    let has_keys = needs_keys(view, uses_rss.is_some(), R::ACTIVE);
    if has_keys {
        let n = burst.len();
        parse::run(port, view, uses_rss.is_some(), burst, context.worker, context.recorder);
        context.count(Stage::Parse, n);
    }
    // The ingress stage runs before packets are handed to other workers, so that packets that it drops take no
    // space in the rings between workers.
    if let Some(stage) = view.own.as_ref().filter(|_| !seen) {
        let n = burst.len();
        ingress::run(port, stage.as_ref(), burst, now, context.worker, context.recorder);
        context.count(Stage::Own, n);
    }
    if let Some(index) = uses_rss.filter(|_| has_keys) {
        let n = burst.len();
        let Egress { queues, links, .. } = &mut *context.egress;
        let (seen, table) = (view.own.is_some(), view.rss_table.as_ref());
        let applied = &mut queues[index].rss;
        software_rss::run(port, seen, table, applied, burst, links, context.worker, context.recorder);
        context.count(Stage::SoftwareRss, n);
    }
    let n = burst.len();
    match &view.function {
        Function::Bridge(bridge) => bridge::process(bridge, context, burst),
        Function::OpenFlow(bridge) => openflow::process(bridge, context, burst),
        Function::Router(router, interface) => {
            router::process(router, *interface, has_keys, context, burst);
        }
        Function::CrossConnect(out) => cross_connect::process(*out, None, context, burst),
        Function::TaggedCrossConnect(out, tags) => {
            cross_connect::process(*out, Some(*tags), context, burst);
        }
        Function::None => drop_all(context, burst),
    }
    transmit::run(forwarding, context.egress, context.worker, context.recorder);
    context.count(Stage::Transmit, n);
}

/// Returns whether packets need complete flow keys before they reach the port's function. A cross-connect needs no flow
/// keys, and a router reads the headers of plain packets without flow keys. Software RSS, ingress stages, the
/// completion of checksums and recorders need flow keys at every port.
fn needs_keys(view: &PortView, uses_rss: bool, records: bool) -> bool {
    match view.function {
        Function::Bridge(_) | Function::OpenFlow(_) | Function::None => true,
        Function::Router(..) => records || uses_rss || view.complete_checksums || view.own.is_some(),
        Function::CrossConnect(_) | Function::TaggedCrossConnect(..) => view.own.is_some(),
    }
}

/// Drops the packets of a port without a function.
fn drop_all<R: Recorder>(context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    for (place, packet) in burst.packets.drain(..).enumerate() {
        context.recorder.step(place, Step::Dropped(DropReason::NoFunction));
        context.worker.drop(packet, context.port, DropReason::NoFunction);
    }
}
