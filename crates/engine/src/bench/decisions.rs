//! Benchmark scenarios of the slow path and the flow tables. The scenarios measure how long it takes to determine the
//! actions for packets, and not the forwarding speed.

use crate::bench::figures::Figures;
use crate::bench::{BenchError, Options, attack, changes, classify, paper, tenants, upcalls};

/// A benchmark scenario of the slow path or the flow tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Measures lookups in a classifier of half a million rules with ten masks and five priorities, without
    /// caches.
    Classifier,
    /// Measures upcalls. Every packet misses the flow caches. The worker and the slow path run on separate
    /// cores.
    Upcall,
    /// Measures upcalls like `Upcall`, with rules that lead each packet through fifteen tables.
    Upcall15,
    /// Measures the revalidation of 200,000 megaflows after a rule change, and the latency of the first
    /// packets of new flows during the revalidation.
    Revalidate,
    /// Measures the hit rates of the flow caches for a traffic mix of many tenants.
    Production,
    /// Measures how much one more rule slows down packets that do not match the rule.
    OneRule,
    /// Measures the rate of rule changes that are sent in bundles.
    FlowMods,
    /// Reproduces table 1 of the NSDI 2015 paper "The Design and Implementation of Open vSwitch".
    PaperTable1,
    /// Reproduces table 2 of the NSDI 2015 paper "The Design and Implementation of Open vSwitch".
    PaperTable2,
    /// Measures forwarding according to the rules of the NSDI 2015 paper, with frames whose headers are never written
    /// (like the frames of DPDK's `net_null`).
    PaperNull,
    /// Measures the memory that 100,000 megaflows use.
    FlowMemory,
    /// Measures the packet rate that other senders achieve during a tuple space explosion attack.
    TupleExplosion,
}

impl Decision {
    /// All scenarios of the slow path and the flow tables.
    pub const ALL: [Self; 12] = [
        Self::Classifier,
        Self::Upcall,
        Self::Upcall15,
        Self::Revalidate,
        Self::Production,
        Self::OneRule,
        Self::FlowMods,
        Self::PaperTable1,
        Self::PaperTable2,
        Self::PaperNull,
        Self::FlowMemory,
        Self::TupleExplosion,
    ];

    /// Returns the name that selects the scenario on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier-500k",
            Self::Upcall => "upcall",
            Self::Upcall15 => "upcall-15",
            Self::Revalidate => "revalidate-200k",
            Self::Production => "production",
            Self::OneRule => "one-rule",
            Self::FlowMods => "flow-mods",
            Self::PaperTable1 => "paper-table1",
            Self::PaperTable2 => "paper-table2",
            Self::PaperNull => "paper-null",
            Self::FlowMemory => "flow-memory-100k",
            Self::TupleExplosion => "tuple-explosion",
        }
    }

    /// Returns the scenario with the given command-line name, or `None` if no scenario has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }
}

/// Runs one scenario and returns its results.
///
/// # Errors
/// [`BenchError`] if memory or threads cannot be allocated, or if no packet is forwarded.
pub fn decide(decision: Decision, options: &Options) -> Result<Figures, BenchError> {
    let name = decision.name();
    if options.workers > 1 {
        return Err(BenchError::OneWorker(name));
    }
    // Scenarios whose slow path has a core of its own pin their threads themselves.
    if !matches!(decision, Decision::Upcall | Decision::Upcall15 | Decision::Revalidate) {
        let _ = sync::cpu::pin_current_thread(options.first_core);
    }
    match decision {
        Decision::Classifier => classify::classifier(name, options),
        Decision::Upcall => upcalls::upcall(name, 1, options),
        Decision::Upcall15 => upcalls::upcall(name, 15, options),
        Decision::Revalidate => upcalls::revalidate(name, options),
        Decision::Production => tenants::production(name, options),
        Decision::OneRule => changes::one_rule(name, options),
        Decision::FlowMods => changes::flow_mods(name, options),
        Decision::PaperTable1 => paper::table1(name, options),
        Decision::PaperTable2 => paper::table2(name, options),
        Decision::PaperNull => paper::null(name, options),
        Decision::FlowMemory => changes::flow_memory(name, options),
        Decision::TupleExplosion => attack::tuple_explosion(name, options),
    }
}
