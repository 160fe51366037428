//! Scenarios of full and changing routing tables. The scenarios measure the load time and the
//! memory of a full table, and the slowdown of a forwarding worker while routes change.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::{QueueId, WorkerId};
use router::FibError;
use sync::cpu::{tsc, tsc_hz};

use crate::bench::flows::{A, B};
use crate::bench::generator::pair;
use crate::bench::routes::{self, NEXT_HOPS, Popularity, Random, Route, RoutesOf};
use crate::bench::scenario::{ROTATION, depot, forwarding, publish, warm_up};
use crate::bench::{BenchError, Options, Scenario};
use crate::engine::{Engine, EngineConfig, owned};
use crate::idle::PollMode;

/// Rate at which the writer thread tries to change routes, in changes per second. The rate is above the target of
/// 100,000, because the writer sleeps at the end of a slice and omits the changes that are due in this time.
const RATE: f64 = 102_000.0;
/// Length of a slice of the measurement. Slices with and without route changes alternate.
const SLICE: Duration = Duration::from_millis(40);
/// Duration of the part at the beginning of a slice that is not measured. The writer thread may
/// need this time to notice that the slice has begun.
const SETTLING: Duration = Duration::from_millis(4);
/// Sleep time of the writer thread between two groups of route changes.
const NAP: Duration = Duration::from_micros(200);
/// Number of additional routes. The writer thread adds each of these routes as a longer prefix within a prefix of the
/// routing table and removes the route later.
const GUESTS: usize = 10_000;
/// Maximum number of round durations that are recorded for slices with route changes. The same maximum applies
/// separately to slices without route changes.
const BURSTS: usize = 4 << 20;

/// Time and memory for loading a full routing table.
#[derive(Clone, Debug)]
pub struct Load {
    /// Number of loaded IPv4 routes and number of loaded IPv6 routes.
    pub routes: [usize; 2],
    /// Time to load the IPv4 routes and time to load the IPv6 routes, in seconds. The routes are
    /// added one by one, like routes that the kernel announces.
    pub seconds: [f64; 2],
    /// Memory of the IPv4 lookup trie and memory of the IPv6 lookup trie, in bytes.
    pub tries: [usize; 2],
    /// Growth of the process's resident memory while the routes were loaded, in bytes. The growth includes the
    /// lookup tries, the next-hop sets and the stored prefixes.
    pub resident: u64,
}

/// Results of a measurement of route changes while a worker forwards packets.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Number of route changes applied.
    pub changes: u64,
    /// Number of route changes applied per second, counting only the slices with changes.
    pub changes_per_second: f64,
    /// Number of route changes refused because the routing table was full.
    pub refused: u64,
    /// Number of packets forwarded during the measurement.
    pub packets: u64,
    /// Number of packets dropped during the measurement.
    pub loss: u64,
    /// Median and 99th percentile of the duration of a worker's round, in nanoseconds, over the parts of the
    /// measurement in which no route changed. A round processes one burst of each of the two ports.
    pub quiet: [f64; 2],
    /// Median and 99th percentile of the duration of a worker's round in slices with route changes,
    /// in nanoseconds.
    pub churning: [f64; 2],
}

/// Loads all routes in `options` into the IPv4 and IPv6 tables and measures the cost.
///
/// # Errors
/// - [`BenchError::NoTable`] if `options` contains no routes.
/// - [`BenchError::Full`] if the tables have no space for the routes.
pub fn load(options: &Options) -> Result<Load, BenchError> {
    let domain = EngineConfig::default().domain;
    let families = [false, true].map(|six| routes::family(&options.routes, six));
    if families.iter().all(Vec::is_empty) {
        return Err(BenchError::NoTable("fib-load"));
    }
    let before = resident();
    let mut tables = RoutesOf::none(&domain, 1, NEXT_HOPS);
    let mut random = Random::default();
    let mut seconds = [0.0; 2];
    for (family, seconds) in families.iter().zip(&mut seconds) {
        let begin = Instant::now();
        for route in family {
            tables.set(*route, random.next_hop())?;
        }
        *seconds = begin.elapsed().as_secs_f64();
    }
    let resident = resident().saturating_sub(before);
    let tries = tables.fib.usage().map(|usage| usage.bytes);
    Ok(Load { routes: [families[0].len(), families[1].len()], seconds, tries, resident })
}

/// Returns the resident memory of the process in bytes (`VmRSS`), or 0 if the kernel does not report it.
pub(super) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kib.unwrap_or(0)
}

/// Measures forwarding with a table of all IPv4 routes in `options`. A second thread changes routes in every
/// other slice.
///
/// # Errors
/// [`BenchError`] if memory or threads cannot be allocated, if `options` contains no IPv4 routes, if more
/// than one worker is requested, or if no packet is forwarded.
pub fn churn(options: &Options) -> Result<Churn, BenchError> {
    const NAME: &str = "route-churn";
    let scenario = Scenario::RouteFull4;
    if options.workers > 1 {
        return Err(BenchError::OneWorker(NAME));
    }
    let mut table = routes::family(&options.routes, false);
    table.sort_unstable();
    if table.is_empty() {
        return Err(BenchError::NoTable(NAME));
    }
    let depot = depot(2)?;
    let config = EngineConfig { cores: vec![None], mode: PollMode::Busy, ..EngineConfig::default() };
    let tables = routes::tables(&config.domain, &table, Popularity::Even, 1)?;
    let (engine, mut workers) = Engine::prepare(&config, depot.clone())?;
    let Some(worker) = workers.first_mut() else { return Err(BenchError::Nothing(NAME)) };
    let mut pool = depot.pool();
    let writer = |side| scenario.writer(side, Some(&tables));
    let (a, b) = pair(&mut pool, ROTATION / 2, writer(0), writer(1));
    worker.add(owned(WorkerId(0), A, QueueId(0), Box::new(a)));
    worker.add(owned(WorkerId(0), B, QueueId(0), Box::new(b)));
    publish(&engine, worker, &forwarding(scenario, Some(&tables)));
    warm_up(scenario, worker);
    let lost = || engine.port_totals(A).dropped() + engine.port_totals(B).dropped();
    let before = lost();
    let (orders, routes) = (Orders::default(), tables.routes);
    let others = sync::cpu::allowed_cores().unwrap_or_default();
    let (bursts, written) = std::thread::scope(|scope| {
        let (orders, table, others) = (&orders, &table, &others);
        let writer = scope.spawn(move || {
            // The worker has its core for itself, if there is another core.
            if let Some(core) = others.iter().find(|core| **core != options.first_core) {
                let _ = sync::cpu::pin_current_thread(*core);
            }
            change(routes, table, orders)
        });
        let _ = sync::cpu::pin_current_thread(options.first_core);
        let bursts = measure(options, orders, || worker.round());
        orders.done.store(true, Ordering::Release);
        (bursts, writer.join())
    });
    let written = written.map_err(|_| BenchError::Nothing(NAME))?;
    if bursts.packets == 0 {
        return Err(BenchError::Nothing(NAME));
    }
    let [quiet, churning] = bursts.cycles.map(percentiles);
    Ok(Churn {
        changes: written.changes,
        changes_per_second: written.changes as f64 / written.seconds.max(f64::MIN_POSITIVE),
        refused: written.refused,
        packets: bursts.packets,
        loss: lost() - before,
        quiet,
        churning,
    })
}

/// Flags with which the measuring thread starts and stops the route changes of the writer thread.
#[derive(Default)]
struct Orders {
    churning: AtomicBool,
    done: AtomicBool,
}

/// Durations of the worker's rounds in TSC cycles. The first list is for slices without route changes, and
/// the second for slices with route changes.
struct Bursts {
    cycles: [Vec<u64>; 2],
    packets: u64,
}

fn measure(options: &Options, orders: &Orders, mut round: impl FnMut() -> usize) -> Bursts {
    let cycles_of = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(0) * (tsc_hz() / 1_000_000);
    let total = Duration::from_secs_f64(options.seconds.clamp(0.0, 3600.0));
    let slices = usize::try_from(total.as_millis() / SLICE.as_millis()).unwrap_or(usize::MAX).max(4);
    let mut bursts = Bursts { cycles: [(); 2].map(|()| Vec::with_capacity(BURSTS)), packets: 0 };
    for slice in 0..slices {
        let churning = slice % 2 == 1;
        orders.churning.store(churning, Ordering::Release);
        let (begin, settling, end) = (tsc(), cycles_of(SETTLING), cycles_of(SLICE));
        let mut now = begin;
        while now.wrapping_sub(begin) < end {
            let packets = round();
            let after = tsc();
            let cycles = &mut bursts.cycles[usize::from(churning)];
            if packets > 0 && now.wrapping_sub(begin) > settling && cycles.len() < BURSTS {
                cycles.push(after.wrapping_sub(now));
            }
            bursts.packets += packets as u64;
            now = after;
        }
    }
    bursts
}

/// Converts durations in TSC cycles into nanoseconds, and returns their median and their 99th percentile.
fn percentiles(mut cycles: Vec<u64>) -> [f64; 2] {
    cycles.sort_unstable();
    let ns = 1e9 / tsc_hz() as f64;
    [50, 99].map(|percent| cycles.get(cycles.len() * percent / 100).map_or(0.0, |cycles| *cycles as f64 * ns))
}

/// Results of the writer thread, which changes routes.
#[derive(Default)]
struct Written {
    changes: u64,
    refused: u64,
    /// Total duration of the slices with route changes, in seconds.
    seconds: f64,
}

/// Changes routes while `orders` requests changes. Half of the changes replace the next hop of a
/// prefix of the table. The other half adds and removes longer prefixes within a prefix of the
/// table. Therefore every packet has a route at any time.
fn change(mut tables: RoutesOf, table: &[Route], orders: &Orders) -> Written {
    let mut written = Written::default();
    let mut random = Random::default();
    let mut guests: VecDeque<Route> = VecDeque::with_capacity(GUESTS + 1);
    while !orders.done.load(Ordering::Acquire) {
        if !orders.churning.load(Ordering::Acquire) {
            std::thread::sleep(NAP);
            continue;
        }
        // A change waits for a grace period, which ends only while the worker runs. After the worker has ended, no more
        // changes may therefore be made.
        let goes_on = || orders.churning.load(Ordering::Acquire) && !orders.done.load(Ordering::Acquire);
        let (begin, mut applied) = (Instant::now(), 0_u64);
        while goes_on() {
            while (applied as f64) < begin.elapsed().as_secs_f64() * RATE && goes_on() {
                let refused = change_one(&mut tables, table, &mut guests, &mut random).is_err();
                written.refused += u64::from(refused);
                applied += 1;
            }
            std::thread::sleep(NAP);
        }
        written.seconds += begin.elapsed().as_secs_f64();
        written.changes += applied;
    }
    written
}

fn change_one(
    tables: &mut RoutesOf,
    table: &[Route],
    guests: &mut VecDeque<Route>,
    random: &mut Random,
) -> Result<(), FibError> {
    let route = table[random.below(table.len())];
    if random.below(2) == 0 {
        return tables.set(route, random.next_hop());
    }
    if guests.len() >= GUESTS
        && random.below(2) == 0
        && let Some(guest) = guests.pop_front()
    {
        return tables.remove(guest);
    }
    let (IpAddr::V4(address), length @ ..29) = route else { return tables.set(route, random.next_hop()) };
    let guest = (IpAddr::V4(address), length + 1 + u8::try_from(random.below(4)).unwrap_or(0));
    if table.binary_search(&guest).is_ok() {
        return tables.set(guest, random.next_hop());
    }
    guests.push_back(guest);
    tables.set(guest, random.next_hop())
}
