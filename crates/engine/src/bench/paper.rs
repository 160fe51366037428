//! Scenarios of the paper "The Design and Implementation of Open vSwitch" (NSDI 2015), section 7.2. Packets of short
//! connections match the four rules of the paper, while different optimizations of the classifier are enabled.
//!
//! Worker and slow path run alternately on one core. A connection has ten packets, five in each direction, as in the
//! benchmark TCP_CRR of netperf. 400 connections are open at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lookup::Options as Uses;
use switch::flow::{Field, Match, Mod, port};

use crate::bench::circuit::{Headers, Writes, circuit, scattered};
use crate::bench::figures::{Figures, Row};
use crate::bench::rules::{Switch, ip, sends, to_prefix};
use crate::bench::{BenchError, Options};

const SESSIONS: u64 = 400;
/// Number of packets that a connection sends in each direction.
const EACH_WAY: u8 = 5;
/// Number of connections to run for each second of the requested measurement time.
const CONNECTIONS: f64 = 40_000.0;
/// Flow limit of the slow path, in megaflows. The limit is so high that the scenarios never reach it.
const FLOWS: u32 = 2_000_000;

/// Classifier options with all optimizations disabled.
const NONE: Uses = Uses {
    sorted: false,
    staged: false,
    prefixes: false,
    prefix_fields: u8::MAX,
    prefix_step: lookup::PrefixStep::Octet,
    ports: false,
    partitions: false,
    most_rules: u32::MAX - 1,
};

fn all() -> Uses {
    Uses::default()
}

/// Returns the four rules of the NSDI 2015 paper, in descending priority.
fn rules() -> Vec<Mod> {
    let mut service = to_prefix([9, 1, 1, 1], 32).with(Field::IpProto, 6);
    service.put(Field::TcpSrc, 10, 0xffff);
    service.put(Field::TcpDst, 10, 0xffff);
    vec![
        sends(0, 40, Match::ANY.with(Field::EthType, 0x0806), port::NORMAL),
        sends(0, 30, to_prefix([11, 1, 1, 1], 16), port::NORMAL),
        sends(0, 20, service, port::NORMAL),
        sends(0, 10, to_prefix([9, 1, 1, 1], 24), port::NORMAL),
        sends(0, 0, ip(), port::NORMAL),
    ]
}

/// Generator of the packets that one side (client or server) of the connections sends.
struct Side {
    is_server: bool,
    next: usize,
    /// State of each session. A session opens one connection after the other. The state is the index of the current
    /// connection, and the number of packets that this side has sent in the connection.
    sessions: Vec<(u64, u8)>,
    done: Arc<AtomicU64>,
}

impl Side {
    fn new(is_server: bool, done: &Arc<AtomicU64>) -> Side {
        let sessions = (0..SESSIONS).map(|session| (session, 0)).collect();
        Side { is_server, next: 0, sessions, done: Arc::clone(done) }
    }

    fn write(&mut self, frame: &mut [u8]) {
        let at = self.next;
        self.next = (at + 1) % self.sessions.len();
        let (connection, packets) = &mut self.sessions[at];
        let client = 1024 + u16::try_from(scattered(*connection) % 64_000).unwrap_or(0);
        let server = 20_000 + u16::try_from(at).unwrap_or(0);
        *packets += 1;
        if *packets == EACH_WAY {
            (*connection, *packets) = (*connection + SESSIONS, 0);
            if self.is_server {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (hosts, addresses, ports) = ([1, 2], [0x0901_0102, 0x0901_0103], [client, server]);
        let turned = |pair: [u32; 2]| if self.is_server { [pair[1], pair[0]] } else { pair };
        let ports = if self.is_server { [ports[1], ports[0]] } else { ports };
        Headers { hosts: turned(hosts), addresses: turned(addresses), protocol: 6, ports }.write(frame);
    }
}

/// Measures connections that pass the rules of the NSDI 2015 paper, with the given classifier optimizations and caches.
fn connections(
    name: &'static str,
    row: &'static str,
    uses: Uses,
    exact: bool,
    megaflows: bool,
    options: &Options,
) -> Result<Row, BenchError> {
    let mut switch = Switch::new(name, 2, FLOWS)?;
    switch.modify(&rules());
    switch.tables.change(|pipeline| pipeline.set_options(uses));
    let Some(slow_path) = &switch.slow_path else { return Err(BenchError::Nothing(name)) };
    slow_path.knobs().megaflows.store(megaflows, Ordering::Relaxed);
    if let Some(flows) = &mut switch.worker.context.flows {
        flows.set_exact(if exact { std::num::NonZeroU32::new(1) } else { None });
    }
    let (open, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (mut client, mut server) = (Side::new(false, &done), Side::new(true, &done));
    let writers: [Writes; 2] =
        [Box::new(move |frame| client.write(frame)), Box::new(move |frame| server.write(frame))];
    let [a, b] = circuit(&mut switch.pool, 256, writers, &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of connections, which is positive and small"
    )]
    let wanted = (CONNECTIONS * options.seconds).max(1000.0) as u64;
    let begin = Instant::now();
    while done.load(Ordering::Relaxed) < wanted {
        if switch.turn() == 0 && begin.elapsed().as_secs() > 600 {
            return Err(BenchError::Nothing(name));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let connections = done.load(Ordering::Relaxed);
    let view = switch.worker.flows_view();
    let counters = view.counters;
    let packets = (counters.exact + counters.wildcard + counters.misses) as f64;
    let figures = vec![
        ("flows", view.flows as f64),
        ("masks", view.masks as f64),
        ("tuples_per_packet", counters.probes as f64 / packets),
        ("exact_hit_rate", counters.exact as f64 / packets),
        ("transactions_per_second", connections as f64 / seconds),
        ("ns_per_packet", seconds * 1e9 / packets),
        ("connections", connections as f64),
        ("upcalls", switch.tables.upcalls() as f64),
        ("loss", switch.lost() as f64),
    ];
    Ok(Row { name: row, figures })
}

/// Measures the classifier without optimizations, with each optimization alone, and with all
/// optimizations (table 1 of the paper).
pub(super) fn table1(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let rows = [
        ("megaflows off", all(), false),
        ("no optimisation", NONE, true),
        ("priority sorting", Uses { sorted: true, ..NONE }, true),
        ("prefix tracking", Uses { prefixes: true, ports: true, ..NONE }, true),
        ("staged look-up", Uses { staged: true, ..NONE }, true),
        ("all", all(), true),
    ];
    let rows = rows.map(|(row, uses, megaflows)| connections(name, row, uses, true, megaflows, options));
    Ok(Figures { scenario: name, rows: rows.into_iter().collect::<Result<_, _>>()? })
}

/// Measures the classifier optimizations with and without the exact-match cache (table 2 of the paper).
pub(super) fn table2(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let rows = [
        ("exact on, optimisations on", true, all()),
        ("exact off, optimisations on", false, all()),
        ("exact on, optimisations off", true, NONE),
        ("exact off, optimisations off", false, NONE),
    ];
    let rows = rows.map(|(row, exact, uses)| connections(name, row, uses, exact, true, options));
    Ok(Figures { scenario: name, rows: rows.into_iter().collect::<Result<_, _>>()? })
}

/// Measures frames whose headers are never written, like the frames of DPDK's `net_null`. All
/// frames of a port therefore belong to one flow. An additional rule with a lower priority than the
/// paper's rules sends this flow to the other port.
pub(super) fn null(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let mut switch = Switch::new(name, 2, FLOWS)?;
    switch.modify(&rules());
    let across = [(1, 2), (2, 1)].map(|(from, to)| sends(0, 0, Match::ANY.with(Field::InPort, from), to));
    switch.modify(&across);
    let open = Arc::new(AtomicBool::new(true));
    let writers: [Writes; 2] = [Box::new(|_| ()), Box::new(|_| ())];
    let [a, b] = circuit(&mut switch.pool, 256, writers, &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        switch.turn();
    }
    let (begin, mut packets) = (Instant::now(), 0);
    while begin.elapsed().as_secs_f64() < options.seconds {
        // The slow path revalidates its two megaflows twice a second. Without revalidation, they would
        // expire.
        switch.turn();
        for _ in 0..1000 {
            packets += switch.worker.round();
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let counters = switch.worker.flows_view().counters;
    let met = (counters.exact + counters.wildcard + counters.misses) as f64;
    let figures = vec![
        ("mpps", packets as f64 / seconds / 1e6),
        ("ns_per_packet", seconds * 1e9 / packets as f64),
        ("exact_hit_rate", counters.exact as f64 / met),
        ("loss", switch.lost() as f64),
    ];
    Ok(Figures::one(name, figures))
}
