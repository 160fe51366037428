//! Forwarding scenarios of the benchmark, the code that measures them, and the report of the results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use packet::record::NoRecord;
use packet::{QueueId, WorkerId};
use port::{BURST, Batch, Depot, FrameMemory, HugePages, MemoryConfig};
use switch::{Bridge, BridgeConfig, BridgePortConfig, VlanMode};
use sync::cpu::{tsc, tsc_hz};
use sync::qsbr::Domain;

use crate::bench::BenchError;
use crate::bench::flows::{A, B, FlowLoad};
use crate::bench::generator::{Flows, Writer, fill, pair};
use crate::bench::routes::{self, OWN, Popularity, Route, Tables};
use crate::burst::Burst;
use crate::engine::{Engine, EngineConfig, owned};
use crate::idle::PollMode;
use crate::stage::{WorkerContext, parse};
use crate::state::{Forwarding, Function, PortView};
use crate::worker::Worker;

/// Number of frames that circulate between the two ports, in both directions together.
pub(super) const ROTATION: usize = 8192;
/// Duration of one measured slice. The measurement alternates between slices of the scenario and slices of the packet
/// generator alone.
const SLICE: Duration = Duration::from_millis(4);
/// Maximum time that the benchmark waits for the workers to warm up.
const WARM_UP: Duration = Duration::from_secs(20);

/// A scenario that measures the forwarding of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Measures reception and transmission. Packets are not parsed.
    PortToPort,
    /// Measures the parse stage, without reception, lookup and transmission.
    Parse,
    /// Measures the learning bridge with 64 MAC addresses.
    Bridge,
    /// Measures the learning bridge with 100,000 MAC addresses, used in random order.
    Bridge100k,
    /// Measures the router with a single route. Packets have a million destinations within the route.
    Route1,
    /// Measures the router with all IPv4 routes of a table. Packets have a million destinations within the
    /// routes.
    RouteFull4,
    /// Measures the router with all IPv6 routes of a table. Packets have a million destinations within the
    /// routes.
    RouteFull6,
    /// Measures an OpenFlow bridge with 4,096 flows, all of which hit the exact-match cache.
    Emc,
    /// Measures an OpenFlow bridge with 100,000 megaflows. The field is the number of distinct masks. The
    /// exact-match cache is disabled.
    Megaflow(u8),
    /// Measures an OpenFlow bridge like `Megaflow`, with the exact-match cache enabled. The cache has entries for one
    /// in twelve flows.
    MegaflowExact(u8),
}

impl Scenario {
    /// All forwarding scenarios.
    pub const ALL: [Self; 18] = [
        Self::PortToPort,
        Self::Parse,
        Self::Bridge,
        Self::Bridge100k,
        Self::Route1,
        Self::RouteFull4,
        Self::RouteFull6,
        Self::Emc,
        Self::Megaflow(1),
        Self::Megaflow(5),
        Self::Megaflow(10),
        Self::Megaflow(20),
        Self::Megaflow(30),
        Self::MegaflowExact(1),
        Self::MegaflowExact(5),
        Self::MegaflowExact(10),
        Self::MegaflowExact(20),
        Self::MegaflowExact(30),
    ];

    /// Returns the name that selects the scenario on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PortToPort => "port-to-port",
            Self::Parse => "parse",
            Self::Bridge => "bridge",
            Self::Bridge100k => "bridge-100k",
            Self::Route1 => "route-1",
            Self::RouteFull4 => "route-full4",
            Self::RouteFull6 => "route-full6",
            Self::Emc => "emc",
            Self::Megaflow(1) => "megaflow-1",
            Self::Megaflow(5) => "megaflow-5",
            Self::Megaflow(10) => "megaflow-10",
            Self::Megaflow(20) => "megaflow-20",
            Self::Megaflow(_) => "megaflow-30",
            Self::MegaflowExact(1) => "megaflow-1-exact",
            Self::MegaflowExact(5) => "megaflow-5-exact",
            Self::MegaflowExact(10) => "megaflow-10-exact",
            Self::MegaflowExact(20) => "megaflow-20-exact",
            Self::MegaflowExact(_) => "megaflow-30-exact",
        }
    }

    /// Returns the scenario with the given command-line name, or `None` if no scenario has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Returns the number of simulated hosts on both sides together.
    fn hosts(self) -> u32 {
        if self == Self::Bridge100k { 100_000 } else { 64 }
    }

    /// Returns the writer that generates the headers of the packets of side `side` (0 or 1).
    pub(super) fn writer(self, side: u32, tables: Option<&Tables>) -> Writer {
        let half = self.hosts() / 2;
        if let Some(load) = self.flows() {
            return Writer::routed(OWN, &load.destinations(), side as usize * load.flows() / 2).steady();
        }
        match tables {
            // The sides use destinations at different positions, so that neither warms the caches for the
            // other.
            Some(tables) => Writer::routed(OWN, &tables.destinations, side as usize * tables.len() / 2),
            None => Writer::new(Flows { first: side * half, hosts: half, peer_first: (1 - side) * half }),
        }
    }

    /// Returns the number and kind of the megaflows to install, or `None` if the scenario does not use an
    /// OpenFlow bridge.
    fn flows(self) -> Option<FlowLoad> {
        match self {
            Self::Emc => Some(FlowLoad { each: 2048, masks: 1, exact: true }),
            Self::Megaflow(masks) => Some(FlowLoad { each: 50_000, masks: u32::from(masks), exact: false }),
            Self::MegaflowExact(masks) => {
                Some(FlowLoad { each: 50_000, masks: u32::from(masks), exact: true })
            }
            _ => None,
        }
    }

    /// Returns the address family of the routes in [`Options`] that the scenario needs: `Some(true)` for IPv6,
    /// `Some(false)` for IPv4, and `None` if the scenario does not use these routes.
    #[must_use]
    pub fn table(self) -> Option<bool> {
        match self {
            Self::RouteFull4 => Some(false),
            Self::RouteFull6 => Some(true),
            _ => None,
        }
    }

    /// Creates the routing table of the scenario. Returns `Ok(None)` if the scenario does not route packets.
    fn tables(self, domain: &Arc<Domain>, options: &Options) -> Result<Option<Tables>, BenchError> {
        let routes = match self.table() {
            Some(six) => routes::family(&options.routes, six),
            None if self == Self::Route1 => routes::one(),
            None => return Ok(None),
        };
        if routes.is_empty() {
            return Err(BenchError::NoTable(self.name()));
        }
        Ok(Some(routes::tables(domain, &routes, options.popularity, options.workers)?))
    }
}

/// Options of a benchmark run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Number of workers. Each worker has one queue of each of the two ports.
    pub workers: usize,
    /// Number of the CPU core that the first worker uses. Additional workers use the following cores.
    pub first_core: usize,
    /// Function that returns the number of heap allocations that the process has made so far. The program's counting
    /// allocator provides the function.
    pub allocations: fn() -> u64,
    /// Prefixes of the routing table, for the scenarios that use a full table.
    pub routes: Vec<Route>,
    /// Popularity of the routes: how the packets are distributed over the prefixes of the table.
    pub popularity: Popularity,
}

/// Results of one forwarding scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// Command-line name of the scenario.
    pub scenario: &'static str,
    /// Packet rate of all workers together, in million packets per second. The time to generate the packets is
    /// included.
    pub mpps: f64,
    /// Time per packet on one worker in nanoseconds, without the time to generate the packet. The value is the median
    /// of all slices.
    pub ns_per_packet: f64,
    /// Time per packet on one worker in TSC cycles, without the time to generate the packet.
    pub tsc_cycles_per_packet: f64,
    /// Time to generate a packet, in nanoseconds. The value is the median of all slices.
    pub source_ns: f64,
    /// Time per packet in the fastest slice of the scenario minus the time per packet in the fastest slice of the
    /// packet generator, in nanoseconds. The value estimates the median on an otherwise idle core. With several
    /// workers, no slices are measured, and the value equals [`Self::ns_per_packet`].
    pub best_ns: f64,
    /// Number of heap allocations that the process made during the measurement.
    pub allocations: u64,
    /// Number of packets dropped during the measurement.
    pub loss: u64,
    /// Number of packets forwarded during the measurement.
    pub packets: u64,
    /// Number of workers that took part in the measurement.
    pub workers: usize,
    /// Whether the memory of the packet frames consists of huge pages.
    pub huge_pages: bool,
}

impl Report {
    /// Duration of one measured slice in milliseconds.
    pub const SLICE_MS: u128 = SLICE.as_millis();
}

/// Runs one forwarding scenario and returns its results.
///
/// # Errors
/// [`BenchError`] if memory or threads cannot be allocated, if the scenario lacks routes or does not support
/// the number of workers, or if no packet is forwarded.
pub fn run(scenario: Scenario, options: &Options) -> Result<Report, BenchError> {
    let _ = sync::cpu::pin_current_thread(options.first_core);
    match scenario {
        _ if options.workers > 1 && (scenario == Scenario::Parse || scenario.flows().is_some()) => {
            Err(BenchError::OneWorker(scenario.name()))
        }
        Scenario::Parse => parse_alone(options),
        _ if options.workers > 1 => threaded(scenario, options),
        _ => inline(scenario, options),
    }
}

pub(super) fn depot(workers: usize) -> Result<Arc<Depot>, BenchError> {
    let frames = u32::try_from(workers * (2 * ROTATION + 2048)).unwrap_or(u32::MAX);
    let memory = FrameMemory::new(MemoryConfig { frames, frame_size: 2048, huge_pages: HugePages::Try })?;
    Ok(Depot::new(Arc::new(memory)))
}

pub(super) fn forwarding(scenario: Scenario, tables: Option<&Tables>) -> impl Fn(&mut Forwarding) {
    let capacity = if scenario == Scenario::Bridge100k { 262_144 } else { 16_384 };
    let config = BridgeConfig {
        name: "bench".to_owned(),
        ports: [A, B].map(|port| BridgePortConfig::new(port, VlanMode::Transparent)).into(),
        mac_limit: capacity,
        ..BridgeConfig::default()
    };
    let bridge = Arc::new(Bridge::new(&config, 0x5eed));
    let (a, b) = match (scenario, tables) {
        (_, Some(tables)) => {
            let function = |inside, outside| Function::Router(Arc::new(tables.router(inside, outside)), 0);
            (function(A, B), function(B, A))
        }
        (_, None) if scenario.flows().is_some() => {
            let function = super::flows::function(bridge);
            (function.clone(), function)
        }
        (Scenario::Bridge | Scenario::Bridge100k, None) => {
            (Function::Bridge(bridge.clone()), Function::Bridge(bridge))
        }
        (_, None) => (Function::CrossConnect(B), Function::CrossConnect(A)),
    };
    move |f| {
        f.set_port(A, Some(PortView::new(a.clone(), WorkerId(0))));
        f.set_port(B, Some(PortView::new(b.clone(), WorkerId(0))));
    }
}

/// Measures alternating slices of the functions `work` (the scenario) and `source` (the packet generator alone). Each
/// function processes one round per call and returns the number of its packets.
fn measure(
    options: &Options,
    mut work: impl FnMut() -> usize,
    mut source: impl FnMut() -> usize,
) -> (Vec<f64>, Vec<f64>, u64, u64, Duration) {
    let total = Duration::from_secs_f64(options.seconds.clamp(0.0, 3600.0));
    let slices = usize::try_from(total.as_millis() / SLICE.as_millis() / 2).unwrap_or(usize::MAX).max(3);
    let (mut with, mut alone) = (Vec::with_capacity(slices), Vec::with_capacity(slices));
    let slice_cycles = slice_cycles();
    let mut packets = 0;
    let mut cycles = 0;
    let before = (options.allocations)();
    for _ in 0..slices {
        let (n, spent) = slice(slice_cycles, &mut work);
        packets += n;
        cycles += spent;
        with.push(spent as f64 / n.max(1) as f64);
        let (n, spent) = slice(slice_cycles, &mut source);
        alone.push(spent as f64 / n.max(1) as f64);
    }
    let allocations = (options.allocations)() - before;
    let time = Duration::from_secs_f64(cycles as f64 / tsc_hz() as f64);
    (with, alone, packets, allocations, time)
}

fn slice_cycles() -> u64 {
    u64::try_from(SLICE.as_micros()).unwrap_or(0) * (tsc_hz() / 1_000_000)
}

fn slice(cycles: u64, turn: &mut impl FnMut() -> usize) -> (u64, u64) {
    let begin = tsc();
    let mut packets = 0;
    loop {
        for _ in 0..8 {
            packets += turn() as u64;
        }
        let spent = tsc().wrapping_sub(begin);
        if spent >= cycles {
            return (packets, spent);
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs the packet generator alone for one burst. The function does the work of the generator's `receive` function,
/// except for the access to the ring. Returns the number of packets.
fn source_turn(rotation: &mut Rotation, writer: &mut Writer, memory: &FrameMemory) -> usize {
    fill(writer, memory, rotation.next_burst());
    BURST
}

/// Bursts of packets for measurements without ports. The bursts are used in turn.
struct Rotation {
    bursts: Vec<Box<Batch>>,
    at: usize,
}

impl Rotation {
    fn next_burst(&mut self) -> &mut Box<Batch> {
        self.at = (self.at + 1) % self.bursts.len();
        &mut self.bursts[self.at]
    }
}

fn rotation(pool: &mut port::FramePool, frame: u16) -> Rotation {
    let burst = |_| {
        let mut batch = Box::<Batch>::default();
        while !batch.is_full() {
            let Some(mut packet) = pool.alloc() else { panic!("the bench's frame memory is too small") };
            let fits = packet.set_len(pool.memory(), frame);
            assert!(fits, "a frame holds a minimal packet");
            batch.push(packet);
        }
        batch
    };
    Rotation { bursts: (0..ROTATION / BURST).map(burst).collect(), at: 0 }
}

fn inline(scenario: Scenario, options: &Options) -> Result<Report, BenchError> {
    let depot = depot(2)?;
    let config = EngineConfig { cores: vec![None], mode: PollMode::Busy, ..EngineConfig::default() };
    // The tables are loaded before the worker's reader is registered, because a registered reader would delay the reuse
    // of table memory.
    let tables = scenario.tables(&config.domain, options)?;
    let (engine, mut workers) = Engine::prepare(&config, depot.clone())?;
    let Some(worker) = workers.first_mut() else { return Err(BenchError::Nothing(scenario.name())) };
    let mut pool = depot.pool();
    let writer = |side| scenario.writer(side, tables.as_ref());
    let (a, b) = pair(&mut pool, ROTATION / 2, writer(0), writer(1));
    worker.add(owned(WorkerId(0), A, QueueId(0), Box::new(a)));
    worker.add(owned(WorkerId(0), B, QueueId(0), Box::new(b)));
    if let Some(load) = scenario.flows() {
        load.put(worker);
    }
    publish(&engine, worker, &forwarding(scenario, tables.as_ref()));
    warm_up(scenario, worker);
    let mut writer = writer(0);
    let mut rotation = rotation(&mut pool, writer.frame());
    let memory = depot.memory().clone();
    let dropped = || engine.port_totals(A).dropped() + engine.port_totals(B).dropped();
    let lost = dropped();
    let (with, alone, packets, allocations, time) =
        measure(options, || worker.round(), || source_turn(&mut rotation, &mut writer, &memory));
    let loss = dropped() - lost;
    report(scenario, options, with, alone, packets, allocations, loss, time, &memory)
}

/// Publishes a changed snapshot from the thread that also runs the worker. The worker's QSBR reader is offline during
/// the call, because the call would otherwise wait forever for the worker to read the snapshot.
pub(super) fn publish(engine: &Engine, worker: &mut Worker, change: &impl Fn(&mut Forwarding)) {
    worker.reader.offline();
    engine.update(change);
    worker.reader.online();
}

/// Runs the worker until the bridge has learned the addresses of all hosts and no packet is flooded any more.
pub(super) fn warm_up(scenario: Scenario, worker: &mut Worker) {
    let packets = scenario.hosts() as usize * 40 + 4 * ROTATION;
    let mut seen = 0;
    while seen < packets {
        seen += worker.round().max(1);
    }
}

fn parse_alone(options: &Options) -> Result<Report, BenchError> {
    let depot = depot(2)?;
    let mut pool = depot.pool();
    let scenario = Scenario::Parse;
    let (mut writer, mut other) = (scenario.writer(0, None), scenario.writer(0, None));
    let mut one = rotation(&mut pool, writer.frame());
    let mut two = rotation(&mut pool, writer.frame());
    let mut context = WorkerContext::new(WorkerId(0), pool, Arc::default());
    let mut burst = Burst::default();
    let view = PortView::new(Function::None, WorkerId(0));
    let memory = depot.memory().clone();
    let work = || {
        let packets = one.next_burst();
        fill(&mut writer, &memory, packets);
        std::mem::swap(packets, &mut burst.packets);
        parse::run(A, &view, false, &mut burst, &mut context, &mut NoRecord);
        std::mem::swap(packets, &mut burst.packets);
        std::hint::black_box(&burst.keys);
        BURST
    };
    let (with, alone, packets, allocations, time) =
        measure(options, work, || source_turn(&mut two, &mut other, &memory));
    report(scenario, options, with, alone, packets, allocations, 0, time, &memory)
}

#[allow(clippy::too_many_arguments, reason = "what a measurement yields, once")]
fn report(
    scenario: Scenario,
    options: &Options,
    with: Vec<f64>,
    alone: Vec<f64>,
    packets: u64,
    allocations: u64,
    loss: u64,
    time: Duration,
    memory: &FrameMemory,
) -> Result<Report, BenchError> {
    if packets == 0 {
        return Err(BenchError::Nothing(scenario.name()));
    }
    let ns = 1e9 / tsc_hz() as f64;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let best = least(&with) - least(&alone);
    let (with, alone) = (median(with), median(alone));
    // The two minima are from different slices. The difference may exceed the difference of the medians if
    // the source had a faster slice alone.
    let best = best.min(with - alone);
    Ok(Report {
        scenario: scenario.name(),
        mpps: packets as f64 / time.as_secs_f64() / 1e6,
        ns_per_packet: (with - alone) * ns,
        tsc_cycles_per_packet: with - alone,
        source_ns: alone * ns,
        best_ns: best * ns,
        allocations,
        loss,
        packets,
        workers: options.workers,
        huge_pages: memory.backing() != port::Backing::Normal,
    })
}

/// Waits until every worker has processed as many packets as [`warm_up`] requires. At this point, the workers
/// have executed all commands and the bridge has learned the addresses of all hosts.
fn await_warm(scenario: Scenario, engine: &Engine) -> Result<(), BenchError> {
    let wanted = (scenario.hosts() as usize * 40 + 4 * ROTATION) as u64;
    let begin = Instant::now();
    while engine.worker_views().iter().any(|worker| worker.packets < wanted) {
        if begin.elapsed() > WARM_UP {
            return Err(BenchError::Nothing(scenario.name()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a scenario on several workers. Each worker runs on its own core and has one queue of each port.
fn threaded(scenario: Scenario, options: &Options) -> Result<Report, BenchError> {
    let n = options.workers;
    let depot = depot(n + 1)?;
    let cores = (0..n).map(|w| Some(options.first_core + w)).collect();
    let config = EngineConfig { cores, mode: PollMode::Busy, ..EngineConfig::default() };
    let mut pool = depot.pool();
    let tables = scenario.tables(&config.domain, options)?;
    let writer_of = |side| scenario.writer(side, tables.as_ref());
    let mut writer = writer_of(0);
    let mut rotation = rotation(&mut pool, writer.frame());
    let memory = depot.memory().clone();
    let slice_cycles = slice_cycles();
    let alone: Vec<f64> = (0..10)
        .map(|_| slice(slice_cycles, &mut || source_turn(&mut rotation, &mut writer, &memory)))
        .map(|(packets, cycles)| cycles as f64 / packets.max(1) as f64)
        .collect();
    let engine = Engine::start(&config, depot.clone())?;
    engine.update(forwarding(scenario, tables.as_ref()));
    for id in (0_u16..).take(n) {
        let (a, b) = pair(&mut pool, ROTATION / 2, writer_of(0), writer_of(1));
        engine.add_queue(WorkerId(id), A, QueueId(id), Box::new(a))?;
        engine.add_queue(WorkerId(id), B, QueueId(id), Box::new(b))?;
    }
    await_warm(scenario, &engine)?;
    let sum = || (engine.port_totals(A), engine.port_totals(B));
    let (before, allocated) = (sum(), (options.allocations)());
    let (begin, begin_tsc) = (Instant::now(), tsc());
    std::thread::sleep(Duration::from_secs_f64(options.seconds));
    let allocations = (options.allocations)() - allocated;
    let after = sum();
    let (time, cycles) = (begin.elapsed(), tsc().wrapping_sub(begin_tsc));
    let packets = after.0.rx_packets + after.1.rx_packets - before.0.rx_packets - before.1.rx_packets;
    let loss = after.0.dropped() + after.1.dropped() - before.0.dropped() - before.1.dropped();
    let with = cycles as f64 * n as f64 / packets.max(1) as f64;
    report(scenario, options, vec![with], alone, packets, allocations, loss, time, &memory)
}
