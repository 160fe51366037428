//! Packet captures and packet traces that the engine records for API clients, and `explain`. Each capture and each
//! trace has a thread that reads the workers' rings. If a client is too slow, frames are dropped and counted. Workers
//! never wait for a client.
//!
//! The thread is created before the capture or trace begins in the engine. If the thread cannot be created, nothing has
//! to be undone. A capture or trace without a thread would block all later captures and traces in the engine.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{CaptureRequest, FailureKind, PlaneError};
use engine::capture::{CaptureReader, Captured, Direction, Wanted};
use engine::trace::{TraceFilter, Traced};
use engine::worker::monotonic;
use engine::{Engine, EngineError, Explained};
use model::{CapturedFrame, Explanation, Output, PacketFilter, Step as Told, Tier, TraceEvent};
use packet::filter::Filter;
use packet::record::Step;
use packet::{DropReason, FlowKey, PortId};
use port::FramePool;
use sync::spsc::Consumer;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use xdp::{Counter, HookSays};

use super::data_plane::DataPlane;
use super::ids::Names;
use super::lock::locked;
use super::watches::Watched;
use super::{rules, words};
use crate::packet_filter;

/// Interval at which a capture or trace thread reads the workers' rings.
const PERIOD: Duration = Duration::from_millis(2);

/// Converts readings of the engine's clock into nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct WallClock {
    offset: i128,
}

impl WallClock {
    fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX);
        WallClock { offset: wall - i128::from(monotonic().ns) }
    }

    fn at(self, ns: u64) -> u64 {
        u64::try_from(i128::from(ns) + self.offset).unwrap_or(0)
    }
}

/// Converts an error of the engine, which has refused a capture or trace, into the API error for
/// the client.
fn occupied(what: &str, error: &EngineError) -> PlaneError {
    let kind =
        if matches!(error, EngineError::Occupied(_)) { FailureKind::Busy } else { FailureKind::Failed };
    PlaneError { kind, object: what.to_owned(), cause: error.to_string(), fix: "then try again".to_owned() }
}

/// Guard that exists as long as a capture or trace runs. While any such guard exists, hooks (XDP programs) send every
/// packet to the workers, because only workers record packets.
struct Watching {
    plane: Weak<DataPlane>,
    generation: u64,
}

impl Watching {
    fn begin(plane: &Arc<DataPlane>, engine: &Engine) -> Watching {
        let mut running_state = locked(&plane.running_state);
        running_state.hook_offload.watch(true);
        running_state.routers.watch(true);
        drop(running_state);
        Watching { plane: Arc::downgrade(plane), generation: engine.generation() }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(plane) = self.plane.upgrade() else { return };
        plane.with_engine(|engine| {
            // After a failed hand-over, hooks and routers have reset their watch counts.
            if engine.generation() == self.generation {
                let mut running_state = locked(&plane.running_state);
                running_state.hook_offload.watch(false);
                running_state.routers.watch(false);
            }
        });
    }
}

/// Creates a thread that waits for a value on the returned channel and calls `run` with it. If the channel is dropped
/// without a value, the thread ends.
fn thread_for<T: Send + 'static>(
    thread: Builder,
    run: impl FnOnce(T) + Send + 'static,
) -> io::Result<mpsc::Sender<T>> {
    let (start, started) = mpsc::channel();
    let wait = move || {
        if let Ok(work) = started.recv() {
            run(work);
        }
    };
    thread.spawn(wait).map(|_| start)
}

/// Returns the API error for a capture or trace whose thread could not be created.
fn no_thread(object: &str, error: &io::Error) -> PlaneError {
    PlaneError::failed(object, error, "raise the limit of tasks")
}

/// Starts a packet capture of one port or of all ports. The capture lasts until the client closes the channel
/// `to`.
pub fn capture(
    plane: &Arc<DataPlane>,
    engine: &Engine,
    request: &CaptureRequest,
    port: Option<PortId>,
    to: Sender<CapturedFrame>,
) -> Result<(), PlaneError> {
    let object = format!("capture of port.{}", request.port);
    let wanted = Wanted { port, only_drops: request.drops_only, filter: request.filter };
    let mut pool = engine.pool();
    let (weak, names, snap) = (Arc::downgrade(plane), plane.names(), request.snap_length);
    let run = move |(mut reader, watching, watched): (CaptureReader, Watching, Watched)| {
        let mut delivery = Delivery { names, snap, clock: WallClock::now(), to, lost: 0, told: 0 };
        while delivery.empty(&mut reader, &mut pool, &watched) && weak.strong_count() > 0 {
            std::thread::sleep(PERIOD);
        }
        drop(pool);
        drop(watched);
        drop(watching);
        if let Some(plane) = weak.upgrade() {
            plane.with_engine(|engine| engine.end_capture(reader));
        }
    };
    let thread = Builder::new().name("capture".to_owned());
    let start = thread_for(thread, run).map_err(|error| no_thread(&object, &error))?;
    let reader = engine.capture(&wanted).map_err(|error| occupied(&object, &error))?;
    // The thread waits for the channel, so the value cannot be refused.
    let _ = start.send((reader, Watching::begin(plane, engine), plane.watches.begin(object)));
    Ok(())
}

/// State of the delivery of captured frames from the workers' rings to the client.
struct Delivery {
    names: Names,
    snap: u32,
    clock: WallClock,
    to: Sender<CapturedFrame>,
    /// Total number of captured frames that did not fit into the client's queue.
    lost: u64,
    /// Number of dropped frames that were already reported to the client. Frames that were dropped
    /// at the rings or at the client's queue are included.
    told: u64,
}

impl Delivery {
    /// Sends all captured frames that are in the workers' rings. Returns false when the client has closed the queue or
    /// the capture has ended.
    fn empty(&mut self, reader: &mut CaptureReader, pool: &mut FramePool, watched: &Watched) -> bool {
        for ring in &mut reader.rings {
            while !watched.is_over()
                && let Some(captured) = ring.pop()
            {
                let missed = self.lost + reader.missed.load(Ordering::Relaxed);
                let frame = self.frame(&captured, pool, missed.saturating_sub(self.told));
                pool.free(captured.packet);
                match self.to.try_send(frame) {
                    Ok(()) => self.told = missed,
                    Err(TrySendError::Full(_)) => self.lost += 1,
                    Err(TrySendError::Closed(_)) => return false,
                }
            }
        }
        !self.to.is_closed() && !watched.is_over()
    }

    fn frame(&self, captured: &Captured, pool: &FramePool, missed: u64) -> CapturedFrame {
        let length = captured.packet.len();
        let mut bytes = vec![0; length.min(usize::try_from(self.snap).unwrap_or(usize::MAX))];
        let copied = captured.packet.copy_to(pool.memory(), &mut bytes);
        let (drop, output) = match captured.direction {
            Direction::Dropped { reason, output } => (Some(reason.name().to_owned()), output),
            Direction::Received | Direction::Sent => (None, None),
        };
        bytes.truncate(copied);
        CapturedFrame {
            at_ns: self.clock.at(captured.ns),
            port: self.names.port(captured.port),
            received: !matches!(captured.direction, Direction::Sent),
            bytes,
            original_length: u32::try_from(length).unwrap_or(u32::MAX),
            missed,
            drop,
            output: output.map(|port| self.names.port(port)),
            verdict: None,
            counter: None,
            rule: None,
        }
    }
}

/// Starts a packet trace of the next `count` packets that match the filter `wanted`.
pub fn trace(
    plane: &Arc<DataPlane>,
    engine: &Engine,
    count: u64,
    wanted: &PacketFilter,
    port: Option<PortId>,
    to: Sender<TraceEvent>,
) -> Result<(), PlaneError> {
    let object = "trace".to_owned();
    let limit = u32::try_from(count).unwrap_or(u32::MAX);
    let also = Filter::parse(wanted.filter.as_deref().unwrap_or_default()).map_err(|error| PlaneError {
        kind: FailureKind::Invalid,
        object: object.clone(),
        cause: error.to_string(),
        fix: "correct the filter".to_owned(),
    })?;
    let filter = TraceFilter::new(packet_filter::compile(wanted, port), limit).and(also);
    let (weak, generation) = (Arc::downgrade(plane), engine.generation());
    let run = move |(mut rings, watching, watched): (Vec<Consumer<Box<Traced>>>, Watching, Watched)| {
        let clock = WallClock::now();
        let mut sent = 0;
        let mut names = None;
        'listen: while sent < count && !to.is_closed() && !watched.is_over() {
            for traced in rings.iter_mut().filter_map(|ring| ring.pop()) {
                sent += 1;
                let names = names
                    .get_or_insert_with(|| weak.upgrade().map_or_else(Names::new, |plane| plane.names()));
                let event = trace_event(sent, &traced, names, clock);
                if !deliver(&to, event, &watched) || sent == count {
                    break 'listen;
                }
            }
            if weak.strong_count() == 0 {
                break;
            }
            names = None;
            std::thread::sleep(PERIOD);
        }
        drop(watched);
        drop(watching);
        if let Some(plane) = weak.upgrade() {
            plane.with_engine(|engine| engine.end_trace(generation));
        }
    };
    let thread = Builder::new().name("trace".to_owned());
    let start = thread_for(thread, run).map_err(|error| no_thread(&object, &error))?;
    let rings = engine.trace(filter).map_err(|error| occupied(&object, &error))?;
    // The thread waits for the channel, so the value cannot be refused.
    let _ = start.send((rings, Watching::begin(plane, engine), plane.watches.begin(object)));
    Ok(())
}

/// Sends a trace event to the client. If the client's queue is full, waits for space as long as the trace has
/// not ended. Returns false when the client has closed the queue or the trace has ended.
fn deliver(to: &Sender<TraceEvent>, mut event: TraceEvent, watched: &Watched) -> bool {
    loop {
        match to.try_send(event) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(back)) => event = back,
        }
        if watched.is_over() {
            return false;
        }
        std::thread::sleep(PERIOD);
    }
}

fn trace_event(number: u64, traced: &Traced, names: &Names, clock: WallClock) -> TraceEvent {
    let (steps, verdict) = words::tell(&traced.steps, names);
    TraceEvent {
        number,
        // The rings of a trace are read every few milliseconds, so the packet was processed a moment ago.
        at_ns: clock.at(monotonic().ns),
        worker: traced.worker.0,
        in_port: names.port(traced.port),
        packet: traced
            .key
            .as_ref()
            .map_or_else(|| unreadable(traced.len), |key| packet_filter::describe(key, traced.len)),
        steps,
        verdict,
    }
}

/// Returns the steps in which a frame would be processed: first in the port's hook (XDP program), and then in a worker
/// if the hook sends the frame to it. `hook` is the result of the hook, and names the device through which the kernel's
/// routes send the frame. If a worker would drop the frame because of a filter rule, `rule` is the name of this rule.
pub fn explain(
    engine: &Engine,
    names: &Names,
    (port, name): (PortId, &str),
    frame: &[u8],
    hook: Option<(HookSays, Option<String>)>,
    rule: Option<String>,
) -> Explanation {
    let explained = engine.explain(port, frame);
    let mut story = worker_explains(&explained, names, name, frame);
    let by_filter = [DropReason::FilterDropped, DropReason::FilterLimited].map(|reason| Some(reason.name()));
    if let Some(rule) = rule.filter(|_| by_filter.contains(&story.drop.as_deref())) {
        let told =
            Told { stage: "filter".to_owned(), what: format!("rule {rule} of the port's filter ends it") };
        // The drop by the filter stays the last step.
        let last = story.steps.len().saturating_sub(1);
        story.steps.insert(last, told);
    }
    let Some((hook, routed)) = hook else { return story };
    let (mut steps, end) = words::hook(&hook, routed.as_deref(), names);
    if let Some(end) = end {
        story.tier = Tier::Hook;
        let to = hook.to.map(|to| names.port(PortId(to))).or(routed);
        story.outputs = to.map(|to| output(to, &hook.frame)).into_iter().collect();
        story.to_kernel = end.to_kernel;
        story.drop = end.drop.map(str::to_owned);
        story.verdict = end.verdict;
        story.steps = steps;
    } else {
        if hook.counter == Counter::RouteReversePath {
            story.tier = Tier::Hook;
        }
        steps.append(&mut story.steps);
        story.steps = steps;
    }
    story
}

fn output(port: String, bytes: &[u8]) -> Output {
    Output { port, frame: hex(bytes), summary: summary(bytes) }
}

fn worker_explains(explained: &Explained, names: &Names, name: &str, frame: &[u8]) -> Explanation {
    let (steps, verdict) = words::tell(&explained.steps, names);
    let steps = rules::tell(steps, explained);
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let outputs = explained.outputs.iter().map(|(port, bytes)| output(names.port(*port), bytes));
    Explanation {
        in_port: name.to_owned(),
        packet: explained
            .key
            .as_ref()
            .map_or_else(|| unreadable(length), |key| packet_filter::describe(key, length)),
        steps,
        tier: Tier::Tables,
        outputs: outputs.collect(),
        to_kernel: explained.steps.iter().any(|step| matches!(step, Step::ToKernel { .. })),
        drop: words::dropped(&explained.steps).map(str::to_owned),
        verdict,
    }
}

/// Returns the verdict text of `explain` for a frame of `length` bytes whose headers cannot be parsed.
fn unreadable(length: u32) -> String {
    format!("{length} bytes that are no Ethernet frame")
}

fn summary(frame: &[u8]) -> String {
    let mut key = FlowKey::default();
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    match FlowKey::extract(frame, frame.len(), PortId(0), &mut key) {
        Ok(_) => packet_filter::describe(&key, length),
        Err(reason) => reason.name().to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// If a thread cannot be created, the error is reported before a capture begins. A thread that receives no value
    /// through its channel ends.
    #[test]
    fn a_thread_that_cannot_be_created_is_an_error_before_a_capture_begins() {
        let (ran, runs) = mpsc::channel();
        let (other, others) = (ran.clone(), ran.clone());
        // No address space is large enough for this stack.
        let refused = thread_for(Builder::new().stack_size(1 << 60), move |()| ran.send(()).unwrap());
        let error = no_thread("trace", &refused.unwrap_err());
        assert_eq!((error.object.as_str(), error.fix.as_str()), ("trace", "raise the limit of tasks"));
        drop(thread_for(Builder::new(), move |()| other.send(()).unwrap()).unwrap());
        let start = thread_for(Builder::new(), move |()| others.send(()).unwrap()).unwrap();
        start.send(()).unwrap();
        assert_eq!(runs.iter().count(), 1, "one thread has run, and none is left");
    }
}
