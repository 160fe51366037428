//! `trivium xdp bench`: measures the frame rate of a port's XDP program (hook) between temporary veth pairs, and
//! compares it with the rate of a minimal XDP program with an equal effect. The generator runs on one core. The
//! receiving device's NAPI runs in a thread on another core.

mod lab;
mod plane;

use std::time::Duration;

use port::netns;
use serde_json::json;

use self::lab::{Lab, cores};
use self::plane::Plane;
use cli::args::XdpBench;
use cli::failure::Failure;
use cli::table::Table;

/// Measures one scenario and prints the result.
///
/// # Errors
/// The process lacks privilege, or the kernel refuses a device or a program.
pub fn run(args: &XdpBench) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("bench", "namespaces and BPF need root", "run it with sudo"));
    }
    let measured =
        netns::within_new(|| measure(args)).map_err(|error| Failure::new("bench", error, ""))??;
    match args.json {
        true => println!("{}", value(args, &measured)),
        false => print!("{}", text(args, &measured)),
    }
    Ok(())
}

/// A measured variant (an XDP program, or the kernel without one), with its rate in frames per second in each round.
struct Measured {
    plane: Plane,
    rates: Vec<f64>,
}

impl Measured {
    fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        (at(low) + at(high)) / 2.0
    }

    fn least(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }
}

/// Measures all variants of the scenario in all rounds. The thread must be in a new network namespace, which the kernel
/// removes when the thread ends.
fn measure(args: &XdpBench) -> Result<Vec<Measured>, Failure> {
    let lab = Lab::new(args.scenario)?;
    let planes = Plane::of(args.scenario);
    let mut measured: Vec<Measured> =
        planes.iter().map(|plane| Measured { plane: *plane, rates: Vec::new() }).collect();
    for round in 0..args.rounds {
        // The order of the variants is reversed in every other round, so that a drift of the machine's speed favours no
        // variant.
        let turn: Vec<usize> = match round % 2 {
            0 => (0..planes.len()).collect(),
            _ => (0..planes.len()).rev().collect(),
        };
        for at in turn {
            if let Some(one) = measured.get_mut(at) {
                one.rates.push(lab.rate(one.plane, Duration::from_secs_f64(args.seconds))?);
            }
        }
    }
    Ok(measured)
}

/// Returns a statistic (for example the median) of the rate of the minimal program, with which the other variants are
/// compared.
fn bare(measured: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    measured.iter().find(|one| one.plane.is_bare()).map_or(0.0, of)
}

fn text(args: &XdpBench, measured: &[Measured]) -> String {
    let (generator, device) = cores();
    let mut table = Table::new(&["PLANE", ">MPPS", ">LEAST", ">MOST", ">OF BARE", ">BEST OF BEST"]);
    for one in measured {
        let ratio = |of: fn(&Measured) -> f64| match one.plane.is_bare() {
            true => String::new(),
            false => format!("{:.2}", of(one) / bare(measured, of).max(1.0)),
        };
        let mpps = |rate: f64| format!("{:.2}", rate / 1e6);
        table.row([
            one.plane.name().to_owned(),
            mpps(one.median()),
            mpps(one.least()),
            mpps(one.most()),
            ratio(Measured::median),
            ratio(Measured::most),
        ]);
    }
    format!(
        "{}generator on core {generator}, device on core {device}; veth, 60 bytes, {} flows; median of {} rounds of {} s\n",
        table.render(),
        plane::traffic(args.scenario, 0).flows,
        args.rounds,
        args.seconds
    )
}

fn value(args: &XdpBench, measured: &[Measured]) -> serde_json::Value {
    let (generator, device) = cores();
    let plane = |one: &Measured| {
        json!({
            "plane": one.plane.name(),
            "bare": one.plane.is_bare(),
            "pps": one.median(),
            "least_pps": one.least(),
            "most_pps": one.most(),
            "of_bare": one.median() / bare(measured, Measured::median).max(1.0),
            "best_of_best": one.most() / bare(measured, Measured::most).max(1.0),
        })
    };
    json!({
        "scenario": args.scenario.to_string(),
        "generator_core": generator,
        "device_core": device,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "planes": measured.iter().map(plane).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_rounds() {
        let of = |rates: &[f64]| Measured { plane: Plane::BareDrop, rates: rates.to_vec() }.median();
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0, 2.0, 3.0]), of(&[])), (2.0, 2.5, 0.0));
    }
}
