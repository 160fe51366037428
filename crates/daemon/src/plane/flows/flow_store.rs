//! Writes the OpenFlow rules of bridges to rule files ([`super::stored_flows`]), from which `trivium run --restore`
//! starts after a kill.
//!
//! The file of a bridge is written when its rules have changed, at most twice a second. If there are very
//! many rules, writing takes at most a fifth of the time. Rules are copied in parts, between which the slow
//! path and controllers can lock the tables. Rules that change during the copy are copied again at the end.
//! Therefore, the file contains a consistent state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::FlowTables;
use switch::flow::FlowStats;

use super::records::{OptionRecord, RuleRecord, TableRecord, meters_and_groups};
use super::stored_flows::{self, KeptError, Moment};

/// Interval of the check for changed rules, which is also the minimum time between two writes of a bridge's
/// file.
pub const LOOK: Duration = Duration::from_millis(500);
/// Minimum time from the start of a write of a file to the next write, as a multiple of the time that the
/// write took.
const SHARE: u32 = 5;
/// Maximum age of a file with rules that have timeouts. Such a file contains the times at which the rules
/// were last used and changed.
const AGED: Duration = Duration::from_secs(10);
/// Time after which a failed write of a rule file is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// Number of rules that are copied during one lock of the tables.
const PART: usize = 256;
/// Time for which the tables stay unlocked between two parts of a copy.
const LET_GO: Duration = Duration::from_micros(100);

/// Flow tables and port numbers of a bridge, to be written to its file.
pub struct Kept {
    /// Flow tables of the bridge.
    pub tables: Arc<FlowTables>,
    /// OpenFlow port numbers of the bridge's ports, by port name.
    pub numbers: BTreeMap<String, u32>,
}

/// State of a bridge's file after the last write.
struct Written {
    tables: Arc<FlowTables>,
    /// Version of the tables that the file contains. `None` if the write failed.
    version: Option<u64>,
    /// Whether some rule in the file has a timeout.
    ages: bool,
    at: Instant,
    /// Earliest time of the next write of the file.
    next: Instant,
}

/// Writer of the bridges' rule files.
pub struct Keeper {
    directory: PathBuf,
    written: BTreeMap<String, Written>,
    swept: bool,
}

impl Keeper {
    /// Creates a keeper that writes rule files into `directory`.
    pub fn new(directory: PathBuf) -> Keeper {
        Keeper { directory, written: BTreeMap::new(), swept: false }
    }

    /// Writes the files that are due. If `last` is true, writes all files. `waiting` contains the bridges
    /// that do not exist yet and may still need the restored rules in their files.
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
            let left = stored_flows::bridges(&self.directory);
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

    /// Writes a bridge's file. Of consecutive failures, only the first is logged. The first success after
    /// failures is also logged.
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

    /// Removes the file of a bridge that no longer exists.
    fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(stored_flows::path_of(&self.directory, name));
    }
}

/// Consistent copy of a bridge's rules, from which its file is written.
struct Snapshot {
    version: u64,
    moment: Moment,
    meters_and_groups: (Vec<super::records::Message>, Vec<super::records::Message>),
    settings: (Vec<TableRecord>, Vec<OptionRecord>),
    /// Encoded rules in the file's format, without separators.
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
            stored_flows::put_rule(&mut rules, &RuleRecord::of(stats, now));
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
                    stored_flows::put_rule(&mut latest, &RuleRecord::of(stats, now));
                }
            });
            let settings = (TableRecord::all(&pipeline), OptionRecord::all(&pipeline));
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
        let preface = stored_flows::preface(name, &self.moment, numbers, &self.meters_and_groups, settings);
        stored_flows::write(directory, name, &[&preface, &self.rules])
    }
}

/// Returns the encoded rules without the rules at the given positions.
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
