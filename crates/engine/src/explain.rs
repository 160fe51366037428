//! Explains how a packet would be processed. The module runs the worker's stages over a burst of one packet
//! in a dry run, with a recorder. No packet is sent, no address is learned, no counter changes and no token
//! bucket is charged.

use std::sync::Arc;

use packet::record::{Recorder, Step, Steps};
use packet::{DropReason, FlowKey, PortId, QueueId, WorkerId};
use port::{Depot, FrameMemory, HugePages, MemoryConfig};

use crate::burst::Burst;
use crate::clock::monotonic;
use crate::counters::WorkerCounters;
use crate::handover::mesh;
use crate::idle::Waker;
use crate::stage::path::Source;
use crate::stage::transmit::Egress;
use crate::stage::{WorkerContext, software_rss};
use crate::state::{Forwarding, RSS_BUCKETS};
use crate::worker::forward;
use sync::qsbr::Reader;

/// Explanation of how a packet would be processed.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// Steps of the packet's processing by the stages, in order.
    pub steps: Vec<Step>,
    /// Frames that would be transmitted, in order, each with its output port.
    pub outputs: Vec<(PortId, Vec<u8>)>,
    /// Flow key of the packet, or `None` if the Ethernet header could not be parsed.
    pub key: Option<FlowKey>,
    /// OpenFlow trace reports. Each report lists the rules that the packet matches, and for each
    /// field in the megaflow's mask the reason why the megaflow matches the field. There is one
    /// report for each uninterrupted sequence of [`Step::Rule`] and [`Step::NoRule`].
    pub trace_reports: Vec<switch::flow::TraceReport>,
}

/// Explains how `frame` would be processed if it arrived on `port`. `reader` must belong to the QSBR domain
/// of the tables.
#[must_use]
pub fn explain(forwarding: &Forwarding, reader: &Reader, port: PortId, frame: &[u8]) -> Explained {
    let mut recorder = Steps::<true>::default();
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    recorder.step(0, Step::Received { port, queue: QueueId(0), len });
    let mut explained = Explained::default();
    let mut refused = None;
    match (forwarding.port(port), Waker::new()) {
        (None, _) => refused = Some(DropReason::NoFunction),
        (Some(view), _) if !view.up => refused = Some(DropReason::PortDown),
        (_, Err(_)) => refused = Some(DropReason::NoFrame),
        (Some(view), Ok(waker)) => {
            // The explanation uses a separate frame memory, so that it takes no frames away from traffic.
            let frames = u32::try_from(forwarding.ports.len() * (frame.len() / 1024 + 2)).unwrap_or(u32::MAX);
            let config = MemoryConfig {
                frames: frames.clamp(64, 65_536),
                frame_size: 2048,
                huge_pages: HugePages::Off,
            };
            let Ok(memory) = FrameMemory::new(config) else {
                recorder.step(0, Step::Dropped(DropReason::NoFrame));
                explained.steps = recorder.0;
                return explained;
            };
            let depot = Depot::new(Arc::new(memory));
            let mut context =
                WorkerContext::new(WorkerId(0), depot.pool(), Arc::new(WorkerCounters::default()));
            context.outbox.fit(forwarding);
            let mut burst = Burst::default();
            match context.pool.alloc_copy(frame) {
                Err(reason) => refused = Some(reason),
                Ok(packet) => {
                    burst.packets.push(packet);
                    let mut links = mesh(&[Arc::new(waker)]);
                    let mut egress = Egress {
                        queues: &mut [],
                        local: &[],
                        links: &mut links[0],
                        collected: Some(&mut explained.outputs),
                    };
                    explained.key = key_of(frame, port);
                    let begin = recorder.0.len();
                    let source =
                        Source { forwarding, port, view, queue: None, seen: false, origin: None, reader };
                    forward(&source, &mut burst, monotonic(), &mut egress, &mut context, &mut recorder);
                    explained.trace_reports = std::mem::take(&mut context.trace_reports);
                    let own =
                        [DropReason::IngressStage, DropReason::FilterDropped, DropReason::FilterLimited];
                    let is_refused = own.iter().any(|reason| recorder.0.contains(&Step::Dropped(*reason)));
                    // A packet that the ingress stage drops is not handed to another worker.
                    if let (Some(table), Some(key), false) = (&view.rss_table, &explained.key, is_refused) {
                        let worker = table[key.hash_symmetric() as usize % RSS_BUCKETS];
                        recorder.0.insert(begin, software_rss::step(key, worker));
                    }
                }
            }
        }
    }
    if let Some(reason) = refused {
        recorder.step(0, Step::Dropped(reason));
    }
    explained.steps = recorder.0;
    explained
}

impl Explained {
    /// Returns an explanation that consists only of a drop with `reason`, for a packet that could not be passed to the
    /// stages.
    pub(crate) fn refused(reason: DropReason) -> Explained {
        Explained { steps: vec![Step::Dropped(reason)], ..Explained::default() }
    }
}

fn key_of(frame: &[u8], port: PortId) -> Option<FlowKey> {
    let mut key = FlowKey::default();
    FlowKey::extract(frame, frame.len(), port, &mut key).ok().map(|_| key)
}
