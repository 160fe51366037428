//! Scenarios of upcalls and of revalidation. The worker and the slow path run on separate cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use switch::flow::{Field, Match, port};
use sync::cpu::tsc_hz;
use sync::spsc::{Consumer, channel};

use crate::bench::circuit::{Headers, Probe, circuit};
use crate::bench::figures::{Figures, Row};
use crate::bench::rules::{Switch, chain, sends};
use crate::bench::{BenchError, Options};

/// Number of frames in each direction. The number is less than the maximum number of packets of one port that may wait
/// for the slow path.
const FRAMES: usize = 256;
/// Number of megaflows in the scenarios that fill the caches.
const FLOWS: usize = 200_000;
/// Maximum time that a scenario waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a function that writes packets, each with a new destination address.
fn fresh(side: u32) -> impl FnMut(&mut [u8]) + Send + 'static {
    let mut number: u32 = 0;
    move |frame| {
        number = (number + 1) & 0x00ff_ffff;
        let addresses = [0x0a00_0001 + side, 0x0a00_0000 | number.max(1)];
        Headers { hosts: [side, 1 - side.min(1)], addresses, protocol: 17, ports: [1024, 9] }.write(frame);
    }
}

/// Measures the rate of upcalls. Every packet misses the flow caches. The slow path translates the packet,
/// installs a megaflow, and returns the packet to the worker.
pub(super) fn upcall(name: &'static str, tables: u8, options: &Options) -> Result<Figures, BenchError> {
    let flows = u32::try_from(FLOWS).unwrap_or(u32::MAX);
    let mut switch = Switch::new(name, 2, flows)?;
    switch.modify(&chain(tables));
    let open = Arc::new(AtomicBool::new(true));
    let [a, b] = circuit(&mut switch.pool, FRAMES, [fresh(0), fresh(1)], &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let (asked, seconds) = switch.beside(options, |switch| {
        // The warm-up fills the caches. From then on, megaflows are installed and evicted.
        let warm = Duration::from_secs_f64((options.seconds / 4.0).min(1.0));
        rounds(switch, warm);
        let (before, begin) = (switch.tables.upcalls(), Instant::now());
        rounds(switch, Duration::from_secs_f64(options.seconds));
        (switch.tables.upcalls() - before, begin.elapsed().as_secs_f64())
    })?;
    if asked == 0 {
        return Err(BenchError::Nothing(name));
    }
    let view = switch.worker.flows_view();
    let hits = view.counters.exact + view.counters.wildcard;
    Ok(Figures::one(
        name,
        vec![
            ("upcalls_per_second", asked as f64 / seconds),
            ("ns_per_upcall", seconds * 1e9 / asked as f64),
            ("tables", f64::from(tables)),
            ("upcalls", asked as f64),
            ("hits", hits as f64),
            ("flows", view.flows as f64),
            ("loss", switch.lost() as f64),
        ],
    ))
}

/// Runs the worker for the duration `time`.
fn rounds(switch: &mut Switch, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        for _ in 0..64 {
            switch.worker.round();
        }
    }
}

/// Measures the time to revalidate all megaflows after a rule change that affects every megaflow. Also
/// measures the latency of the first packets of new flows during the revalidation.
pub(super) fn revalidate(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let rows = [("1 table", 1), ("15 tables", 15)];
    let rows = rows.map(|(row, tables)| revalidated(name, row, tables, options));
    Ok(Figures { scenario: name, rows: rows.into_iter().collect::<Result<_, _>>()? })
}

fn revalidated(
    name: &'static str,
    row: &'static str,
    tables: u8,
    options: &Options,
) -> Result<Row, BenchError> {
    // The limit leaves space for the probe's megaflows, so that the short idle timeout of a full cache does
    // not apply.
    let mut switch = Switch::new(name, 3, 2 * u32::try_from(FLOWS).unwrap_or(u32::MAX / 2))?;
    switch.modify(&chain(tables));
    let open = Arc::new(AtomicBool::new(true));
    let [a, b] = circuit(&mut switch.pool, FRAMES, [fresh(0), fresh(1)], &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let begin = Instant::now();
    while switch.worker.flows_view().flows < FLOWS && begin.elapsed() < PATIENCE {
        switch.turn();
    }
    open.store(false, Ordering::Relaxed);
    for _ in 0..1000 {
        switch.turn();
    }
    let (told, mut times) = channel(1 << 20);
    let probe = Probe::new(&mut switch.pool, fresh(2), told);
    switch.plug(2, Box::new(probe));
    let measured = switch.beside(options, |switch| {
        rounds(switch, Duration::from_millis(100));
        while times.pop().is_some() {}
        rounds(switch, Duration::from_secs_f64((options.seconds / 5.0).min(1.0)));
        let quiet = microseconds(&mut times);
        let flows = switch.worker.flows_view().flows;
        let (mut all, mut during) = (Vec::new(), Vec::new());
        for turn in 0..3_u16 {
            // The change redirects the packets of every megaflow: back to the port of arrival, and in the
            // next turn to the other port again.
            let from = |port: u32| Match::ANY.with(Field::InPort, u128::from(port));
            let to = |other: u32| if turn % 2 == 0 { port::IN_PORT } else { other };
            let changes = [sends(tables - 1, 1, from(1), to(2)), sends(tables - 1, 1, from(2), to(1))];
            let begin = Instant::now();
            switch.modify(&changes);
            let done = Arc::new(AtomicBool::new(false));
            let tells = Arc::clone(&done);
            switch.tables.barrier(move || tells.store(true, Ordering::Release));
            while !done.load(Ordering::Acquire) && begin.elapsed() < PATIENCE {
                switch.worker.round();
            }
            all.push(begin.elapsed().as_secs_f64());
            during.extend(microseconds(&mut times));
        }
        (quiet, during, all, flows)
    })?;
    let (quiet, during, mut seconds, flows) = measured;
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let (quiet99, during99) = (percentile(quiet.clone(), 99), percentile(during.clone(), 99));
    if flows < FLOWS || quiet.is_empty() {
        return Err(BenchError::Nothing(name));
    }
    let figures = vec![
        ("seconds_of_a_round", median),
        ("ns_per_flow", median * 1e9 / flows as f64),
        ("flows", flows as f64),
        ("quiet_p50_us", percentile(quiet, 50)),
        ("quiet_p99_us", quiet99),
        ("round_p50_us", percentile(during, 50)),
        ("round_p99_us", during99),
        ("p99_ratio", during99 / quiet99),
        ("loss", switch.lost() as f64),
    ];
    Ok(Row { name: row, figures })
}

/// Returns the round-trip times that a probe port has reported, in microseconds.
fn microseconds(times: &mut Consumer<u64>) -> Vec<f64> {
    let mut all = Vec::new();
    while let Some(cycles) = times.pop() {
        all.push(cycles as f64 * 1e6 / tsc_hz() as f64);
    }
    all
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * percent / 100).copied().unwrap_or(0.0)
}
