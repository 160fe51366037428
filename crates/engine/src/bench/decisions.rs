//! Scenarios of the slow path and the tables. The scenarios measure how the actions for a packet are
//! determined, not the forwarding speed.

use crate::bench::figures::Figures;
use crate::bench::{BenchError, Options, attack, changes, classify, paper, tenants, upcalls};

/// A scenario of the slow path or the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Measures lookups among half a million rules of ten masks and five priorities, without caches.
    Classifier,
    /// Measures upcalls: every packet misses the cache. Worker and slow path have a core each.
    Upcall,
    /// Like `Upcall`, through fifteen tables.
    Upcall15,
    /// Measures the revalidation of 200,000 megaflows after a change of the rules, and the latency of new
    /// flows meanwhile.
    Revalidate,
    /// Measures cache hit rates for the traffic of many tenants.
    Production,
    /// Measures the cost of one more rule for packets that do not match it.
    OneRule,
    /// Measures rule changes in bundles.
    FlowMods,
    /// Reproduces table 1 of the NSDI 2015 paper about Open vSwitch.
    PaperTable1,
    /// Reproduces table 2 of the NSDI 2015 paper about Open vSwitch.
    PaperTable2,
    /// Measures the paper's rules with frames whose headers are never written.
    PaperNull,
    /// Measures the memory of 100,000 megaflows.
    FlowMemory,
    /// Measures the remaining rate of other senders during a tuple space explosion attack.
    TupleExplosion,
}

impl Decision {
    /// All scenarios.
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

    /// Returns the scenario's name on the command line.
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

    /// Returns the scenario with this name, or `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }
}

/// Runs a scenario.
///
/// # Errors
/// [`BenchError`] when memory or threads cannot be allocated, or no packet is forwarded.
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
