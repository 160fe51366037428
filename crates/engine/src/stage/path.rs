//! Path of a burst through the stages of one port, from parsing to transmission.

use packet::PortId;
use packet::record::Recorder;
use switch::Now;
use sync::cpu::tsc;
use sync::qsbr::Reader;

use crate::burst::Burst;
use crate::counters::Stage;
use crate::stage::transmit::Egress;
use crate::stage::{WorkerContext, execute, flows, function, ingress, parse, route, software_rss, transmit};
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
    /// Index of the queue from which the packets of the burst were originally received. Unlike `queue`, the
    /// index is also present for packets that have passed a patch port.
    pub(crate) origin: Option<usize>,
    /// QSBR reader of the worker, which is needed for table lookups.
    pub(crate) reader: &'w Reader,
}

/// Processes a burst by the stages of one port, from parsing to transmission. Packets that are sent to patch
/// ports are not processed further.
pub(crate) fn run<R: Recorder>(
    source: &Source<'_>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let Source { forwarding, port, view, queue, seen, origin, reader } = *source;
    let n = burst.len();
    let mut begin = tsc();
    context.queue = origin;
    let spreads = queue.filter(|at| view.spread.is_some() || egress.queues[*at].spread.is_away());
    if let Function::Router(router, interface) = &view.function
        && !R::ACTIVE
        && spreads.is_none()
        && !view.complete_checksums
        && view.own.is_none()
    {
        // Plain routed packets need no flow key.
        if router.mirrored.has_vlans() {
            route::untag(port, router, *interface, burst, false, context);
        }
        route::read(port, router, *interface, burst, context);
        begin = count(context, Stage::Parse, n, begin);
        route::look_up(port, router, *interface, reader, burst, context);
        begin = count(context, Stage::Function, n, begin);
        route::run::<R, true>(
            forwarding, port, router, *interface, burst, now, reader, egress, context, recorder,
        );
        begin = count(context, Stage::Execute, n, begin);
        transmit::run(forwarding, egress, context, recorder);
        count(context, Stage::Transmit, n, begin);
        return;
    }
    if !matches!(view.function, Function::CrossConnect(_) | Function::TaggedCrossConnect(..))
        || view.own.is_some()
    {
        parse::run(port, view, spreads.is_some(), burst, context, recorder);
        begin = count(context, Stage::Parse, n, begin);
        // The ingress stage runs first, so that packets that it drops take no space in the rings between
        // workers.
        if let Some(stage) = view.own.as_ref().filter(|_| !seen) {
            let n = burst.len();
            ingress::run(port, stage.as_ref(), burst, now, context, recorder);
            begin = count(context, Stage::Own, n, begin);
        }
        if let Some(index) = spreads {
            let applied = &mut egress.queues[index].spread;
            let (seen, table) = (view.own.is_some(), view.spread.as_ref());
            software_rss::run(port, seen, table, applied, burst, egress.links, context, recorder);
            begin = count(context, Stage::Spread, n, begin);
        }
    }
    function::run(port, &view.function, burst, now, reader, context, recorder);
    begin = count(context, Stage::Function, burst.len(), begin);
    let n = burst.len();
    execute(forwarding, port, &view.function, burst, now, reader, egress, context, recorder);
    begin = count(context, Stage::Execute, n, begin);
    transmit::run(forwarding, egress, context, recorder);
    count(context, Stage::Transmit, n, begin);
}

/// Executes the decisions for `burst`, whose packets arrived on `port`, and moves the packets into the
/// outbox. If the batch of an output port becomes full, the batch is transmitted immediately. `burst` is
/// empty afterwards.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
fn execute<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    function: &Function,
    burst: &mut Burst,
    now: Now,
    reader: &Reader,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    if let Function::Router(router, interface) = function {
        return route::run::<R, false>(
            forwarding, port, router, *interface, burst, now, reader, egress, context, recorder,
        );
    }
    if let Function::OpenFlow(bridge) = function {
        return flows::run(forwarding, port, bridge, burst, now, egress, context, recorder);
    }
    let bridge = if let Function::Bridge(bridge) = function { Some(&**bridge) } else { None };
    execute::decided(forwarding, port, bridge, burst, now, egress, context, recorder);
}

/// Adds the packets and the time since `begin` to the counters of a stage. Returns the current time in TSC
/// cycles, which is the begin of the next stage.
#[inline]
pub(crate) fn count(context: &WorkerContext, stage: Stage, packets: usize, begin: u64) -> u64 {
    let now = tsc();
    let counters = &context.counters.stages[stage as usize];
    counters.packets.add(packets as u64);
    counters.cycles.add(now.wrapping_sub(begin));
    now
}
