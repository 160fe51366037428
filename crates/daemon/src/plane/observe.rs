//! Captures, traces and explanations: what the engine's recorders saw, as the API sends it. Each capture and trace has a
//! thread that empties the workers' rings; what a reader cannot take is lost and counted, and no worker ever waits.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
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
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use xdp::{Counter, HookSays};

use super::ids::Names;
use super::{DataPlane, locked};
use super::{rules, words};
use crate::filter;

/// How often the workers' rings are emptied.
const PERIOD: Duration = Duration::from_millis(2);

/// The engine's clock in nanoseconds since 1970.
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

/// What a failure of the engine means for whoever watches.
fn occupied(what: &str, error: &EngineError) -> PlaneError {
    let kind =
        if matches!(error, EngineError::Occupied(_)) { FailureKind::Busy } else { FailureKind::Failed };
    PlaneError { kind, object: what.to_owned(), cause: error.to_string(), fix: "then try again".to_owned() }
}

/// Lets every packet pass the workers, who alone see them, as long as it lives.
struct Watching(Weak<DataPlane>);

impl Watching {
    fn begin(plane: &Arc<DataPlane>) -> Watching {
        let mut site = locked(&plane.site);
        site.shortcuts.watch(true);
        site.routers.watch(true);
        drop(site);
        Watching(Arc::downgrade(plane))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(plane) = self.0.upgrade() {
            let mut site = locked(&plane.site);
            site.shortcuts.watch(false);
            site.routers.watch(false);
        }
    }
}

/// Starts a capture of one port, or of all, that lasts until `to` is closed.
pub fn capture(
    plane: &Arc<DataPlane>,
    engine: &Engine,
    request: &CaptureRequest,
    port: Option<PortId>,
    to: Sender<CapturedFrame>,
) -> Result<(), PlaneError> {
    let object = format!("capture of port.{}", request.port);
    let wanted = Wanted { port, only_drops: request.drops_only, filter: request.filter };
    let mut reader = engine.capture(&wanted).map_err(|error| occupied(&object, &error))?;
    let mut pool = engine.pool();
    let watching = Watching::begin(plane);
    let (weak, names, snap) = (Arc::downgrade(plane), plane.names(), request.snap_length);
    let thread = std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
        let mut delivery = Delivery { names, snap, clock: WallClock::now(), to, lost: 0, told: 0 };
        while delivery.empty(&mut reader, &mut pool) && weak.strong_count() > 0 {
            std::thread::sleep(PERIOD);
        }
        drop((pool, watching));
        if let Some(plane) = weak.upgrade() {
            plane.with_engine(|engine| engine.end_capture(reader));
        }
    });
    thread.map(drop).map_err(|error| PlaneError::failed(object, &error, "raise the limit of tasks"))
}

/// The way from the workers' rings to whoever captures.
struct Delivery {
    names: Names,
    snap: u32,
    clock: WallClock,
    to: Sender<CapturedFrame>,
    /// Frames that did not fit into the client's queue so far.
    lost: u64,
    /// Frames of whose loss, there or before the rings, the client knows.
    told: u64,
}

impl Delivery {
    /// Empties the workers' rings once; false when nobody listens any more.
    fn empty(&mut self, reader: &mut CaptureReader, pool: &mut FramePool) -> bool {
        for ring in &mut reader.rings {
            while let Some(captured) = ring.pop() {
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
        !self.to.is_closed()
    }

    fn frame(&self, captured: &Captured, pool: &FramePool, missed: u64) -> CapturedFrame {
        let length = captured.packet.len();
        let mut bytes = vec![0; length.min(usize::try_from(self.snap).unwrap_or(usize::MAX))];
        let copied = captured.packet.copy_to(pool.memory(), &mut bytes);
        bytes.truncate(copied);
        CapturedFrame {
            at_ns: self.clock.at(captured.ns),
            port: self.names.port(captured.port),
            received: !matches!(captured.direction, Direction::Sent),
            bytes,
            original_length: u32::try_from(length).unwrap_or(u32::MAX),
            missed,
            drop: match captured.direction {
                Direction::Dropped(reason) => Some(reason.name().to_owned()),
                _ => None,
            },
            verdict: None,
            way: None,
            rule: None,
        }
    }
}

/// Starts a trace of the next `count` packets that match.
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
    let filter = TraceFilter::new(filter::compile(wanted, port), limit).and(also);
    let mut rings = engine.trace(filter).map_err(|error| occupied(&object, &error))?;
    let (weak, watching): (Weak<DataPlane>, _) = (Arc::downgrade(plane), Watching::begin(plane));
    let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
        let clock = WallClock::now();
        let mut sent = 0;
        'listen: while sent < count && !to.is_closed() {
            let Some(plane) = weak.upgrade() else { break };
            let names = plane.names();
            drop(plane);
            for traced in rings.iter_mut().filter_map(|ring| ring.pop()) {
                sent += 1;
                let event = trace_event(sent, &traced, &names, clock);
                if to.blocking_send(event).is_err() || sent == count {
                    break 'listen;
                }
            }
            std::thread::sleep(PERIOD);
        }
        drop(watching);
        if let Some(plane) = weak.upgrade() {
            plane.with_engine(Engine::end_trace);
        }
    });
    thread.map(drop).map_err(|error| PlaneError::failed(object, &error, "raise the limit of tasks"))
}

fn trace_event(number: u64, traced: &Traced, names: &Names, clock: WallClock) -> TraceEvent {
    let (steps, verdict) = words::tell(&traced.steps, names);
    TraceEvent {
        number,
        // A trace's rings are emptied at once; the packet's own burst was a moment ago.
        at_ns: clock.at(monotonic().ns),
        worker: traced.worker.0,
        in_port: names.port(traced.port),
        packet: traced
            .key
            .as_ref()
            .map_or_else(|| unreadable(traced.len), |key| filter::describe(key, traced.len)),
        steps,
        verdict,
    }
}

/// What would happen to this frame, first in the port's hook (which the kernel's routes may have sent it on by a named device) and
/// then, if that lets it up, in a worker. `rule` is the one of the port's filter at which it ends there, if it does.
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
        // The filter has the last word.
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
        if hook.way == Counter::RouteReversePath {
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
            .map_or_else(|| unreadable(length), |key| filter::describe(key, length)),
        steps,
        tier: Tier::Tables,
        outputs: outputs.collect(),
        to_kernel: explained.steps.iter().any(|step| matches!(step, Step::ToKernel { .. })),
        drop: words::dropped(&explained.steps).map(str::to_owned),
        verdict,
    }
}

/// In place of a frame's description.
fn unreadable(length: u32) -> String {
    format!("{length} bytes that are no Ethernet frame")
}

fn summary(frame: &[u8]) -> String {
    let mut key = FlowKey::default();
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    match FlowKey::extract(frame, frame.len(), PortId(0), &mut key) {
        Ok(_) => filter::describe(&key, length),
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
