//! Measures by how many nanoseconds the filter increases the processing time of a frame. Every frame has a different
//! source address. Run it as root: `cargo run --release -p xdp --example filter_cost`. Each output line shows the time
//! of the fastest of 25 short runs, minus the time to build the frame. The fastest run is used because other load on
//! the core only makes runs slower. The filter is measured both in the XDP program and in a worker, which filters for
//! ports without an XDP program. The block list is compared with the kernel's longest-prefix-match map (LPM trie).

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet::net::{Prefix, PrefixLengthError};
use packet::net::{RateUnit, SourceBits};
use xdp::Error;
use xdp::filter::{
    Action, Blocklist, Compiled, Filter, FilterSizes, Frame, Look, Match, Moment, Rate, Rule, RuleSet, Tally,
    WorkerFilter,
};
use xdp::live::{FilterBench, KernelsMap, LookUp, scattered};

const LISTED: u32 = 1 << 20;
const FRAMES: u32 = 20_000;
const RUNS: usize = 25;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = fastest(&FilterBench::new(LookUp::Nothing, 0, 2 * LISTED)?)?;
    println!("making the frame: {base} ns");
    rules(base)?;
    Ok(block_list(base)?)
}

fn fastest(bench: &FilterBench) -> Result<u32, Error> {
    (0..RUNS).try_fold(u32::MAX, |least, _| Ok(least.min(bench.nanoseconds(FRAMES)?)))
}

fn show(what: &str, base: u32, bench: &FilterBench) -> Result<(), Error> {
    println!("{what}: {} ns", fastest(bench)?.saturating_sub(base));
    Ok(())
}

/// Runs a worker's filter several times on the frames that are also used to measure the XDP program, and returns the
/// time of the fastest run. If `filter` is `None`, the runs are without a filter.
fn in_worker(filter: Option<&WorkerFilter>, first: u32, count: u32) -> u128 {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17]);
    frame[30..38].copy_from_slice(&[198, 51, 100, 1, 0x30, 0x39, 0, 9]);
    let mut position = 1_u32;
    let mut run = || {
        let start = Instant::now();
        // A worker reads the clock once per round.
        let look = Look { now: Moment::now(), worker: 0, dry: false };
        for _ in 0..FRAMES {
            position ^= position << 13;
            position ^= position >> 17;
            position ^= position << 5;
            let source = scattered(first + (position & (count - 1)));
            frame[26..30].copy_from_slice(&source.octets());
            let frame = Frame::whole(black_box(&frame));
            if let Some(filter) = filter {
                black_box(filter.judge(&frame, look));
            }
        }
        start.elapsed().as_nanos() / u128::from(FRAMES)
    };
    (0..RUNS).map(|_| run()).min().unwrap_or(0)
}

fn show_in_worker(
    what: &str,
    set: &RuleSet,
    list: Option<&Blocklist>,
    first: u32,
    count: u32,
) -> Result<(), Error> {
    let compiled = Arc::new(Compiled::new(set)?);
    let filter = WorkerFilter::new(&compiled, &mut Tally::default(), list.map(Blocklist::view))?;
    let judged = in_worker(Some(&filter), first, count);
    println!("{what}, in a worker: {} ns", judged.saturating_sub(in_worker(None, first, count)));
    Ok(())
}

fn rule(name: String, matches: Match, action: Action) -> Rule {
    Rule { name, priority: 0, matches, action, dry_run: false, expires: None }
}

/// Returns `count` rules that compare five fields each. No rule matches a frame, because the rules match TCP and the
/// frames are UDP.
fn misses(count: u32) -> Result<RuleSet, PrefixLengthError> {
    let rules = (0..count).map(|at| {
        let low = u16::try_from(at).unwrap_or(u16::MAX);
        let prefix = |number| Prefix::new(scattered(number).into(), 16 + u8::try_from(at % 9).unwrap_or(0));
        let matches = Match {
            protocols: vec![6],
            sources: vec![prefix(at)?],
            destinations: vec![prefix(at + count)?],
            source_ports: vec![low..=low + 5000],
            destination_ports: vec![low..=low + 10],
            ..Match::default()
        };
        Ok(rule(format!("r{at}"), matches, Action::Drop))
    });
    Ok(RuleSet { rules: rules.collect::<Result<_, _>>()?, ..RuleSet::default() })
}

fn rules(base: u32) -> Result<(), Box<dyn std::error::Error>> {
    let sizes = FilterSizes { rules: 4096, ..FilterSizes::default() };
    let measure = |what: &str, set: &RuleSet| {
        let start = Instant::now();
        let filter = Filter::new(&Compiled::new(set)?, sizes, None)?;
        let made = start.elapsed();
        show(
            &format!("{what} (made in {made:.1?})"),
            base,
            &FilterBench::new(LookUp::Stage(&filter), 0, LISTED)?,
        )?;
        show_in_worker(what, set, None, 0, LISTED)
    };
    let udp = || Match { protocols: vec![17], ..Match::default() };
    measure(
        "1 rule, drops",
        &RuleSet { rules: vec![rule("a".into(), udp(), Action::Drop)], ..RuleSet::default() },
    )?;
    for count in [1, 16, 64, 1024, 4095] {
        let mut set = misses(count)?;
        measure(&format!("{count} rules of five fields, none matches"), &set)?;
        if let Some(last) = set.rules.last_mut() {
            last.matches = udp();
        }
        measure(&format!("{count} rules, the last one drops"), &set)?;
    }
    let rate = Rate { unit: RateUnit::Packets, amount: 1000, per: Duration::from_secs(1), burst: 1000 };
    let limit = |per_source| Action::RateLimit { rate, per_source };
    measure(
        "rate limit",
        &RuleSet { rules: vec![rule("a".into(), udp(), limit(None))], ..RuleSet::default() },
    )?;
    let each = Some(SourceBits { ipv4: 32, ipv6: 64 });
    measure(
        "rate limit, a bucket per /32, a million sources",
        &RuleSet { rules: vec![rule("a".into(), udp(), limit(each))], ..RuleSet::default() },
    )?;
    Ok(())
}

fn block_list(base: u32) -> Result<(), Error> {
    let start = Instant::now();
    let text: String = (0..LISTED).map(|number| format!("{}\n", scattered(number))).collect();
    let path = std::env::temp_dir().join(format!("filter-cost-{}", std::process::id()));
    let written = std::fs::write(&path, text);
    println!("{LISTED} addresses written to a file in {:.1?}", start.elapsed());
    let start = Instant::now();
    let list = Blocklist::load(&path);
    let _ = (written, std::fs::remove_file(&path));
    let list = list?;
    println!("block list of these: {:.1?} from the file, {} bytes", start.elapsed(), list.table_bytes());
    let listed = Match { listed: true, ..Match::default() };
    let set = RuleSet { rules: vec![rule("listed".into(), listed, Action::Drop)], ..RuleSet::default() };
    let filter = Filter::new(&Compiled::new(&set)?, FilterSizes::default(), Some(&list))?;
    let start = Instant::now();
    let kernels = KernelsMap::new(0..LISTED)?;
    println!("the kernel's map of these: {:.1?}", start.elapsed());
    for (what, first, count) in
        [("listed", 0, LISTED), ("not listed", LISTED, LISTED), ("half of them listed", 0, 2 * LISTED)]
    {
        show(&format!("block list, {what}"), base, &FilterBench::new(LookUp::Stage(&filter), first, count)?)?;
        show_in_worker(&format!("block list, {what}"), &set, Some(&list), first, count)?;
        let other = FilterBench::new(LookUp::KernelsMap(&kernels), first, count)?;
        show(&format!("kernel's map, {what}"), base, &other)?;
    }
    Ok(())
}
