//! Lookup stage. For each packet of a burst, it gets the decision of the port's function (for example the
//! bridge).

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, PortId};
use switch::{Decision, Now};
use sync::qsbr::Reader;

use crate::burst::Burst;
use crate::stage::{WorkerContext, route, tag};
use crate::state::Function;

/// Fills the decisions for `burst`, whose packets arrived on `port`. `reader` is the QSBR reader of the
/// worker.
pub fn run<R: Recorder>(
    port: PortId,
    function: &Function,
    burst: &mut Burst,
    now: Now,
    reader: &Reader,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let n = burst.packets.len();
    match function {
        Function::Bridge(bridge) => bridge.forward(
            &burst.keys[..n],
            &burst.layers[..n],
            now,
            &mut context.scratch,
            &mut burst.decisions[..n],
            recorder,
        ),
        Function::Router(router, interface) => {
            let vlans = router.mirrored.has_vlans();
            if vlans || burst.keys[..n].iter().any(FlowKey::is_tagged) {
                route::untag(port, router, *interface, burst, true, context);
            }
            let Burst { keys, layers, routes, arrivals, .. } = burst;
            let (keys, layers, routes) = (&keys[..n], &layers[..n], &mut routes[..n]);
            let arrival = |place: usize| if vlans { arrivals[place] } else { *interface };
            router.decide_each(arrival, reader, keys, layers, &mut context.routing, routes);
            if R::ACTIVE {
                route::record_refused(port, router, arrival, reader, keys, routes, recorder);
            }
        }
        // OpenFlow bridges look packets up in the execute stage, because most cached actions are operations
        // and not decisions.
        Function::OpenFlow(_) => {}
        Function::CrossConnect(port) => {
            burst.decisions[..n].fill(Decision::Forward { port: *port, tag: TagChange::Keep })
        }
        Function::TaggedCrossConnect(port, tags) => {
            let memory = context.pool.memory();
            for (packet, decision) in burst.packets.iter_mut().zip(&mut burst.decisions[..]) {
                *decision = match tag::begin(packet, memory, *tags) {
                    Ok(tag) => Decision::Forward { port: *port, tag },
                    Err(reason) => Decision::Drop(reason),
                };
            }
        }
        Function::None => {
            for i in 0..n {
                burst.decisions[i] = Decision::Drop(DropReason::NoFunction);
                recorder.step(i, Step::Dropped(DropReason::NoFunction));
            }
        }
    }
}
