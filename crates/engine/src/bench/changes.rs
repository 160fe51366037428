//! Scenarios of rule changes in OpenFlow tables. The scenarios measure the rate of rule changes, the cost that
//! one more rule adds to packets that do not match the rule, and the memory that megaflows use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use switch::flow::{Field, FlowCommand, FlowMod, Match, Mod, port};

use crate::bench::circuit::{Headers, circuit, scattered};
use crate::bench::figures::Figures;
use crate::bench::rules::{Switch, chain, drops, sends, to_prefix};
use crate::bench::{BenchError, Options};

/// Number of rule changes in one bundle.
const BUNDLE: u32 = 1000;
/// Number of rules in the flow table during the measurement.
const RULES: u32 = 100_000;

/// Returns rule number `number` of the test table. The rules have five different masks.
fn numbered(number: u32) -> Mod {
    let octets = number.to_be_bytes();
    let address = [10, octets[1], octets[2], octets[3]];
    let mut matching = to_prefix(address, 32);
    if !number.is_multiple_of(5) {
        matching = matching.with(Field::IpProto, 6);
    }
    if number % 5 > 1 {
        matching.put(Field::TcpDst, u128::from(number % 1000), 0xffff);
    }
    if number % 5 > 2 {
        matching = matching.with(Field::InPort, 1);
    }
    if number % 5 > 3 {
        matching.put(Field::Ipv4Src, 0xc0a8_0000, 0xffff_0000);
    }
    sends(0, 10, matching, 2)
}

fn removed(change: &Mod) -> Mod {
    match change {
        Mod::Flow(own) => {
            let own = FlowMod { command: FlowCommand::Delete { strict: true }, ..FlowMod::clone(own) };
            Mod::Flow(Box::new(own))
        }
        other => other.clone(),
    }
}

/// Measures bundles of 1,000 changes to a table of 100,000 rules. Half of the changes add rules, and half
/// remove rules. A barrier ends each bundle.
pub(super) fn flow_mods(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let mut switch = Switch::new(name, 2, 200_000)?;
    let (mut first, mut next) = (0_u32, 0_u32);
    let begin = Instant::now();
    while next < RULES {
        let bundle: Vec<Mod> = (next..next + BUNDLE).map(numbered).collect();
        switch.modify(&bundle);
        next += BUNDLE;
    }
    let loaded = begin.elapsed().as_secs_f64();
    let (mut spent, mut slowest, mut bundles) = (Duration::ZERO, Duration::ZERO, 0_u32);
    while spent.as_secs_f64() < options.seconds || bundles < 3 {
        let half = BUNDLE / 2;
        let mut bundle: Vec<Mod> = (next..next + half).map(numbered).collect();
        bundle.extend((first..first + half).map(|number| removed(&numbered(number))));
        (first, next) = (first + half, next + half);
        // The measured time does not include the construction of the bundle, which is a controller's work.
        let begin = Instant::now();
        switch.modify(&bundle);
        let done = Arc::new(AtomicBool::new(false));
        let tells = Arc::clone(&done);
        switch.tables.barrier(move || tells.store(true, Ordering::Release));
        while !done.load(Ordering::Acquire) {
            switch.turn();
        }
        let took = begin.elapsed();
        (spent, slowest, bundles) = (spent + took, slowest.max(took), bundles + 1);
    }
    let rules = switch.tables.lock().rule_count();
    if rules != RULES as usize {
        return Err(BenchError::Nothing(name));
    }
    let changes = f64::from(bundles) * f64::from(BUNDLE);
    Ok(Figures::one(
        name,
        vec![
            ("flow_mods_per_second", changes / spent.as_secs_f64()),
            ("ns_per_flow_mod", spent.as_secs_f64() * 1e9 / changes),
            ("slowest_bundle_ms", slowest.as_secs_f64() * 1e3),
            ("adds_per_second_into_empty", f64::from(RULES) / loaded),
            ("rules", rules as f64),
            ("bytes_per_rule", switch.tables.lock().memory() as f64 / rules as f64),
            ("flow_mods", changes),
        ],
    ))
}

/// Number of measurements that `one_rule` makes of each of its two cases.
const ROUNDS: u32 = 30;

/// Measures an OpenFlow bridge of 64 hosts in two cases, which alternate. In the first case, the bridge has
/// only a rule with the `NORMAL` action. In the second case, the bridge has an additional rule, which drops
/// frames that are addressed to bridges (IEEE 802.1D).
pub(super) fn one_rule(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let mut switch = Switch::new(name, 2, 200_000)?;
    switch.modify(&[sends(0, 0, Match::ANY, port::NORMAL)]);
    let mut bpdu = Match::ANY;
    bpdu.put(Field::EthDst, 0x0180_c200_0000, 0xffff_ffff_fff0);
    let rule = drops(0, 100, bpdu);
    let open = Arc::new(AtomicBool::new(true));
    let writer = |side: u32| {
        let mut number = u64::from(side) << 32;
        move |frame: &mut [u8]| {
            number += 1;
            let random = scattered(number).to_le_bytes();
            let hosts = [side * 32 + u32::from(random[0] % 32), (1 - side) * 32 + u32::from(random[1] % 32)];
            let addresses = hosts.map(|host| 0x0a00_0001 + host);
            let ports = [1024 + u16::from_le_bytes([random[2], random[3] & 3]), 80];
            Headers { hosts, addresses, protocol: 6, ports }.write(frame);
        }
    };
    let [a, b] = circuit(&mut switch.pool, 4096, [writer(0), writer(1)], &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let round = Duration::from_secs_f64(options.seconds / f64::from(2 * ROUNDS));
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..2 * ROUNDS {
        let is_there = turn % 2 == 1;
        let change = if is_there { rule.clone() } else { removed(&rule) };
        switch.modify(&[change]);
        warm(&mut switch);
        let (begin, mut packets) = (Instant::now(), 0_usize);
        while begin.elapsed() < round {
            for _ in 0..16 {
                packets += switch.worker.round();
            }
        }
        rates[usize::from(is_there)].push(packets as f64 / begin.elapsed().as_secs_f64());
    }
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(without, with)| with / without).collect();
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [without, with] = rates.map(median);
    let ratio = median(ratios);
    Ok(Figures::one(
        name,
        vec![
            ("change_percent", (ratio - 1.0) * 100.0),
            ("mpps_without", without / 1e6),
            ("mpps_with", with / 1e6),
            ("rounds_each", f64::from(ROUNDS)),
            ("loss", switch.lost() as f64),
        ],
    ))
}

/// Runs the switch until the flow caches reflect the last rule change, the bridge has learned the MAC addresses of all
/// hosts, and all megaflows are installed again.
fn warm(switch: &mut Switch) {
    let done = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&done);
    switch.tables.barrier(move || tells.store(true, Ordering::Release));
    let mut packets = 0;
    while !done.load(Ordering::Acquire) || packets < 65_536 {
        packets += switch.turn();
    }
}

/// Number of megaflows that are installed to measure their memory.
const WEIGHED: usize = 100_000;

/// Measures the memory that 100,000 megaflows use in the worker and in the slow path.
pub(super) fn flow_memory(name: &'static str, _: &Options) -> Result<Figures, BenchError> {
    let mut switch = Switch::new(name, 2, 200_000)?;
    switch.modify(&chain(1));
    let open = Arc::new(AtomicBool::new(true));
    let writer = |side: u32| {
        let mut number = 0_u32;
        move |frame: &mut [u8]| {
            number += 1;
            let (hosts, addresses) = ([side, 1 - side], [0x0a00_0001 + side, 0x0a00_0000 + number]);
            Headers { hosts, addresses, protocol: 17, ports: [1024, 9] }.write(frame);
        }
    };
    let [a, b] = circuit(&mut switch.pool, 256, [writer(0), writer(1)], &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let mut few = 0;
    while few < 1000 {
        switch.turn();
        few = switch.worker.flows_view().flows;
    }
    let before = super::churn::resident();
    while switch.worker.flows_view().flows < WEIGHED {
        switch.turn();
    }
    open.store(false, Ordering::Relaxed);
    for _ in 0..1000 {
        switch.turn();
    }
    let after = super::churn::resident();
    let view = switch.worker.flows_view();
    let flows = (view.flows - few) as f64;
    Ok(Figures::one(
        name,
        vec![
            ("bytes_per_flow", after.saturating_sub(before) as f64 / flows),
            ("megabytes", after.saturating_sub(before) as f64 / 1e6),
            ("worker_bytes_per_flow", view.memory as f64 / view.flows as f64),
            ("resident_megabytes", after as f64 / 1e6),
            ("flows", view.flows as f64),
        ],
    ))
}
