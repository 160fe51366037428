//! Keeps the rules of bridges in files ([`super::kept`]), for a start with `--restore` after a kill.
//!
//! A bridge's file is written anew when its rules are others than those in it, at most twice a second, and in no more than a fifth of the
//! time where there are very many. Rules are copied in parts, between which the decider and controllers have the tables; what they
//! changed meanwhile is copied last, so that the file holds what there was at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::FlowTables;
use switch::flow::FlowStats;

use super::kept::{self, KeptError, Moment};
use super::letter::{OptionLetter, RuleLetter, TableLetter, meters_and_groups};

/// How often it is looked whether rules have changed, and so the least time between two files of a bridge.
pub const LOOK: Duration = Duration::from_millis(500);
/// A file takes at most this part of the time.
const SHARE: u32 = 5;
/// How old a file may be that has rules with time-outs: it tells how long they have been silent, and when they were learnt anew.
const AGED: Duration = Duration::from_secs(10);
/// After which a file that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Rules that are copied while the tables are held.
const PART: usize = 256;
/// For which they are let go then.
const LET_GO: Duration = Duration::from_micros(100);

/// A bridge's rules, and the numbers of its ports.
pub struct Kept {
    /// The rules.
    pub tables: Arc<FlowTables>,
    /// Numbers by port.
    pub numbers: BTreeMap<String, u32>,
}

/// What stands in a bridge's file.
struct Written {
    tables: Arc<FlowTables>,
    /// The version of the tables, unless it could not be written.
    version: Option<u64>,
    /// Some rule has a time-out.
    ages: bool,
    at: Instant,
    /// When the next may be written.
    next: Instant,
}

/// See the [module](self).
pub struct Keeper {
    directory: PathBuf,
    written: BTreeMap<String, Written>,
    swept: bool,
}

impl Keeper {
    /// Keeps rules in this directory.
    pub fn new(directory: PathBuf) -> Keeper {
        Keeper { directory, written: BTreeMap::new(), swept: false }
    }

    /// Brings files up to date, where it is time for it or (`last`) this is the end. `waiting` are bridges that may still ask for what
    /// was kept of them.
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

    /// Writes a bridge's file. What goes wrong is told once, and when it is over.
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

    /// A bridge that is no more leaves nothing behind.
    fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(kept::path_of(&self.directory, name));
    }
}

/// A bridge's rules as they stand in a file.
struct Snapshot {
    version: u64,
    moment: Moment,
    meters_and_groups: (Vec<super::letter::Message>, Vec<super::letter::Message>),
    settings: (Vec<TableLetter>, Vec<OptionLetter>),
    /// Rules one after the other.
    rules: Vec<u8>,
    ages: bool,
}

impl Snapshot {
    fn of(tables: &FlowTables) -> Snapshot {
        let mut rules = Vec::new();
        // Where which begins, by its place in the tables.
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

/// Rules but for those of some places.
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
