//! The scenarios of the tables and of who keeps the caches in step with them: not how quick a packet is, but how a decision is come
//! by.

use crate::bench::figures::Figures;
use crate::bench::{BenchError, Options, attack, changes, classify, paper, tenants, upcalls};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look-ups among half a million rules of ten masks and five priorities, without caches.
    Classifier,
    /// Each packet a miss; worker and decider on a core each.
    Upcall,
    /// The same through fifteen tables.
    Upcall15,
    /// A change that concerns 200,000 cached flows; new flows meanwhile.
    Revalidate,
    /// What caches answer of many tenants' traffic.
    Production,
    /// What one more rule costs packets that do not meet it.
    OneRule,
    /// Changes of rules, by bundles.
    FlowMods,
    /// The paper's table 1.
    PaperTable1,
    /// The paper's table 2.
    PaperTable2,
    /// The paper's rules, and frames that nobody writes.
    PaperNull,
    /// What 100,000 flows take of memory.
    FlowMemory,
    /// What an attack on the tuple space leaves of another's rate.
    TupleExplosion,
}

impl Decision {
    /// All of them.
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

    /// Its name on the command line.
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

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }
}

/// Runs a scenario.
///
/// # Errors
/// [`BenchError`] when memory or threads cannot be had, or nothing comes through.
pub fn decide(decision: Decision, options: &Options) -> Result<Figures, BenchError> {
    let name = decision.name();
    if options.workers > 1 {
        return Err(BenchError::OneWorker(name));
    }
    // Those with a decider on a core of its own pin their threads themselves.
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
