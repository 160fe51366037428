//! Writes the OpenFlow rules of bridges to files ([`super::kept`]), for a start with `--restore` after a
//! kill.
//!
//! A bridge's file is written when its rules have changed, at most twice a second, and for at most a fifth of
//! the time if there are very many rules. Rules are copied in parts, between which the slow path and
//! controllers can lock the tables. Rules that changed meanwhile are copied last, so that the file holds a
//! consistent state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::FlowTables;
use switch::flow::FlowStats;

use super::kept::{self, KeptError, Moment};
use super::letter::{OptionLetter, RuleLetter, TableLetter, meters_and_groups};

/// Interval of the check for changed rules, and so the least time between two files of a bridge.
pub const LOOK: Duration = Duration::from_millis(500);
/// Inverse of the largest share of the time that writing a file may take.
const SHARE: u32 = 5;
/// Maximum age of a file with rules that have timeouts. The file contains the times of their last use and
/// change.
const AGED: Duration = Duration::from_secs(10);
/// Time after which a failed write is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// Number of rules that are copied while the tables are locked.
const PART: usize = 256;
/// Time for which the tables are unlocked between two parts.
const LET_GO: Duration = Duration::from_micros(100);

/// Rules of a bridge, and the numbers of its ports.
pub struct Kept {
    /// Flow tables of the bridge.
    pub tables: Arc<FlowTables>,
    /// Port numbers by port name.
    pub numbers: BTreeMap<String, u32>,
}

/// Content of a bridge's file.
struct Written {
    tables: Arc<FlowTables>,
    /// Version of the written tables. `None` if the write failed.
    version: Option<u64>,
    /// Whether some rule has a timeout.
    ages: bool,
    at: Instant,
    /// Earliest time of the next write.
    next: Instant,
}

/// Writer of the bridges' rule files.
pub struct Keeper {
    directory: PathBuf,
    written: BTreeMap<String, Written>,
    swept: bool,
}

impl Keeper {
    /// Creates a keeper of the files in `directory`.
    pub fn new(directory: PathBuf) -> Keeper {
        Keeper { directory, written: BTreeMap::new(), swept: false }
    }

    /// Updates the files that are due, or all if this call is the `last`. `waiting` are the bridges that may
    /// still need their restored rules.
    pub fn round(&mut self, bridges: BTreeMap<String, Kept>, waiting: &BTreeSet<String>, last: bool) {
        let now = Instant::now();
        let gone: Vec<String> =
            self.written.keys().filter(|name| !bridges.contains_key(*name)).cloned().collect();
        for name in gone {
            self.written.remove(&name);
            self.forget(&name);
        }
        if !self.swept && !last && waiting.is_empty() {
            self.swept = true;
            let left = kept::bridges(&self.directory);
            left.iter().filter(|name| !bridges.contains_key(*name)).for_each(|name| self.forget(name));
        }
        for (name, bridge) in bridges {
            let before = self.written.get(&name).filter(|own| Arc::ptr_eq(&own.tables, &bridge.tables));
            let is_due = before.is_none_or(|own| {
                let is_old = own.ages && now.duration_since(own.at) >= AGED;
                (last || own.next <= now) && (is_old || own.version != Some(bridge.tables.lock().version()))
            });
            if is_due {
                let could = before.is_none_or(|own| own.version.is_some());
                let written = self.keep(&name, bridge, could);
                self.written.insert(name, written);
            }
        }
    }

    /// Writes a bridge's file. Only the first of consecutive failures and the recovery are logged.
    fn keep(&self, name: &str, bridge: Kept, could: bool) -> Written {
        let at = Instant::now();
        let Kept { tables, numbers } = bridge;
        let snapshot = Snapshot::of(&tables);
        let outcome = snapshot.write(&self.directory, name, &numbers);
        let took = at.elapsed();
        match &outcome {
            Ok(()) if !could => tracing::info!(bridge = %name, "its rules are kept again"),
            Err(error) if could => tracing::error!(bridge = %name, "its rules are not kept: {error}"),
            _ => {}
        }
        let pause = if outcome.is_ok() { LOOK } else { RETRY };
        Written {
            tables,
            version: outcome.is_ok().then_some(snapshot.version),
            ages: snapshot.ages,
            at,
            next: at + pause.max(took * SHARE),
        }
    }

    /// Removes the file of a bridge that is gone.
    fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(kept::path_of(&self.directory, name));
    }
}

/// Consistent copy of a bridge's rules for a file.
struct Snapshot {
    version: u64,
    moment: Moment,
    meters_and_groups: (Vec<super::letter::Message>, Vec<super::letter::Message>),
    settings: (Vec<TableLetter>, Vec<OptionLetter>),
    /// Rules in the file's format, one after the other.
    rules: Vec<u8>,
    ages: bool,
}

impl Snapshot {
    fn of(tables: &FlowTables) -> Snapshot {
        let mut rules = Vec::new();
        // Place in the tables and offset in `rules` of each rule.
        let mut starts: Vec<(usize, usize)> = Vec::new();
        let mut ages = false;
        let mut see = |place: usize, stats: FlowStats, now: u64| {
            ages |= stats.idle_timeout != 0 || stats.hard_timeout != 0;
            starts.push((place, rules.len()));
            kept::put_rule(&mut rules, &RuleLetter::of(stats, now));
        };
        let began = tables.lock().version();
        let mut from = 0;
        loop {
            let now = super::now();
            if !tables.lock().rules_from(from, PART, now, |place, stats| see(place, stats, now)) {
                break;
            }
            from += PART;
            std::thread::sleep(LET_GO);
        }
        let mut changed = BTreeSet::new();
        let (version, moment, meters_and_groups, settings, latest) = {
            let pipeline = tables.lock();
            let moment = Moment::now();
            let now = super::now();
            let mut latest = Vec::new();
            pipeline.rules_since(began, now, |place, stats| {
                changed.insert(place);
                if let Some(stats) = stats {
                    ages |= stats.idle_timeout != 0 || stats.hard_timeout != 0;
                    kept::put_rule(&mut latest, &RuleLetter::of(stats, now));
                }
            });
            let settings = (TableLetter::all(&pipeline), OptionLetter::all(&pipeline));
            (pipeline.version(), moment, meters_and_groups(&pipeline), settings, latest)
        };
        if !changed.is_empty() {
            rules = without(&rules, &starts, &changed);
            rules.extend(latest);
        }
        Snapshot { version, moment, meters_and_groups, settings, rules, ages }
    }

    fn write(&self, directory: &Path, name: &str, numbers: &BTreeMap<String, u32>) -> Result<(), KeptError> {
        let (tables, options) = &self.settings;
        let settings = (tables.as_slice(), options.as_slice());
        let preface = kept::preface(name, &self.moment, numbers, &self.meters_and_groups, settings);
        kept::write(directory, name, &[&preface, &self.rules])
    }
}

/// Returns the rules without those at some places.
fn without(rules: &[u8], starts: &[(usize, usize)], places: &BTreeSet<usize>) -> Vec<u8> {
    let mut left = Vec::with_capacity(rules.len());
    let ends = starts.iter().skip(1).map(|(_, start)| *start).chain([rules.len()]);
    for ((place, start), end) in starts.iter().zip(ends) {
        if !places.contains(place) {
            left.extend(rules.get(*start..end).unwrap_or_default());
        }
    }
    left
}
