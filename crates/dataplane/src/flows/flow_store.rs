//! Writes the OpenFlow rules of bridges to rule files ([`super::stored_flows`]), from which
//! `trivium run --restore` starts after the daemon was killed.
//!
//! The file of a bridge is written when its rules have changed, at most twice a second. If there are very
//! many rules, writing takes at most a fifth of the time. Rules are copied in parts, between which the slow
//! path and controllers can lock the tables. Rules that change during the copy are copied again, also in parts,
//! until few are left. The last ones are copied together. Therefore, the file contains a consistent state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::FlowTables;
use switch::flow::FlowStats;

use super::records::{MetersAndGroups, OptionRecord, RuleRecord, TableRecord, meters_and_groups};
use super::stored_flows::{self, KeptError, Moment};

/// Interval of the check for changed rules, which is also the minimum time between two writes of a bridge's
/// file.
pub const LOOK: Duration = Duration::from_millis(500);
/// Minimum time from the start of one write of a rule file to the start of the next write, as a multiple of the
/// time that the write took.
const SHARE: u32 = 5;
/// Maximum age of a rule file that contains rules with timeouts. The file holds the times at which these rules
/// were last used and changed, so it becomes outdated even if no rule changes.
const AGED: Duration = Duration::from_secs(10);
/// Time after which a failed write of a rule file is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of rules that are copied during one lock of the flow tables. Fewer rules are copied if the
/// rules have many actions.
const PART: usize = 256;
/// Maximum number of changed rules that are copied together, during one lock of the flow tables, to complete a
/// copy.
const FEW: usize = 4096;
/// Maximum work of copying the actions of the rules that complete a copy, in the units of
/// [`Pipeline::work_to_copy`](switch::flow::Pipeline::work_to_copy).
const FEW_ACTIONS: usize = 1 << 16;
/// Maximum number of times that rules are copied again, in parts, because they changed during the copy.
const ROUNDS: usize = 16;
/// Time for which the flow tables stay unlocked between two parts of a copy.
const LET_GO: Duration = Duration::from_micros(100);

/// Flow tables and OpenFlow port numbers of a bridge, to be written to the bridge's rule file.
pub struct Kept {
    /// Flow tables of the bridge.
    pub tables: Arc<FlowTables>,
    /// OpenFlow port numbers of the bridge's ports, by port name.
    pub numbers: BTreeMap<String, u32>,
}

/// State of a bridge's rule file after the last write.
struct Written {
    tables: Arc<FlowTables>,
    /// Version number of the flow tables whose rules the file contains. `None` if the write failed.
    version: Option<u64>,
    /// Whether the rule file contains a rule with a timeout.
    ages: bool,
    at: Instant,
    /// Earliest time of the next write of the rule file.
    next: Instant,
}

/// Writes the rule files of all OpenFlow bridges.
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

    /// Writes the rule files that are due. If `last` is true, writes all rule files. `waiting` contains the
    /// bridges that do not exist yet and may still need the restored rules in their files.
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

    /// Writes a bridge's rule file. Of consecutive failures, only the first is logged. The first success after
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

    /// Removes the rule file of a bridge that no longer exists.
    fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(stored_flows::path_of(&self.directory, name));
    }
}

/// Consistent copy of a bridge's rules, which is written to the bridge's rule file.
struct Snapshot {
    version: u64,
    moment: Moment,
    meters_and_groups: MetersAndGroups,
    settings: (Vec<TableRecord>, Vec<OptionRecord>),
    /// Encoded flow entries in the format of the rule file, without separators.
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
        let mut began = tables.lock().version();
        let mut from = 0;
        loop {
            let now = super::now();
            let next = tables.lock().rules_from(from, PART, now, |place, stats| see(place, stats, now));
            let Some(next) = next else { break };
            from = next;
            std::thread::sleep(LET_GO);
        }
        // Encoded rules of the slots that have changed since, empty for an empty slot.
        let mut latest: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut again = |place: usize, stats: Option<FlowStats>, now: u64| {
            let mut rule = Vec::new();
            if let Some(stats) = stats {
                ages |= stats.idle_timeout != 0 || stats.hard_timeout != 0;
                stored_flows::put_rule(&mut rule, &RuleRecord::of(stats, now));
            }
            latest.insert(place, rule);
        };
        for _ in 0..ROUNDS {
            let (version, places, is_last) = {
                let pipeline = tables.lock();
                let places = pipeline.places_since(began);
                let is_last = places.len() <= FEW && pipeline.work_to_copy(&places) <= FEW_ACTIONS;
                (pipeline.version(), places, is_last)
            };
            if is_last {
                break;
            }
            let mut left = &places[..];
            while !left.is_empty() {
                let now = super::now();
                let pipeline = tables.lock();
                let (part, after) = left.split_at(pipeline.step_of(left, PART));
                left = after;
                part.iter().for_each(|place| again(*place, pipeline.rule_in(*place, now), now));
                drop(pipeline);
                std::thread::sleep(LET_GO);
            }
            began = version;
        }
        let (version, moment, meters_and_groups, settings) = {
            let pipeline = tables.lock();
            let moment = Moment::now();
            let now = super::now();
            pipeline.rules_since(began, now, |place, stats| again(place, stats, now));
            let settings = (TableRecord::all(&pipeline), OptionRecord::all(&pipeline));
            (pipeline.version(), moment, pipeline.shared_meters_and_groups(), settings)
        };
        if !latest.is_empty() {
            rules = without(&rules, &starts, &latest);
            latest.values().for_each(|rule| rules.extend(rule));
        }
        Snapshot { version, moment, meters_and_groups, settings, rules, ages }
    }

    fn write(&self, directory: &Path, name: &str, numbers: &BTreeMap<String, u32>) -> Result<(), KeptError> {
        let (tables, options) = &self.settings;
        let settings = (tables.as_slice(), options.as_slice());
        let meters_and_groups = meters_and_groups(&self.meters_and_groups);
        let preface = stored_flows::preface(name, &self.moment, numbers, &meters_and_groups, settings);
        stored_flows::write(directory, name, &[&preface, &self.rules])
    }
}

/// Returns the encoded rules without the rules at the given positions.
fn without(rules: &[u8], starts: &[(usize, usize)], places: &BTreeMap<usize, Vec<u8>>) -> Vec<u8> {
    let mut left = Vec::with_capacity(rules.len());
    let ends = starts.iter().skip(1).map(|(_, start)| *start).chain([rules.len()]);
    for ((place, start), end) in starts.iter().zip(ends) {
        if !places.contains_key(place) {
            left.extend(rules.get(*start..end).unwrap_or_default());
        }
    }
    left
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use engine::idle::Waker;
    use switch::flow::{Action, FlowMod, Instructions, Match, Mod, Pipeline};

    use super::*;

    /// A copy during which all rules change repeatedly contains all rules as they were at one moment.
    #[test]
    fn a_copy_during_changes_is_of_one_state() {
        const RULES: u16 = 4_600;
        const NOTE: usize = 24;
        assert!(usize::from(RULES) > FEW, "more rules change than are copied under one lock");
        let tables = Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
        let set = |state: u8| {
            let rule = |priority| {
                let actions = vec![Action::Note(vec![state; NOTE])];
                Mod::Flow(Box::new(FlowMod::add(0, priority, Match::ANY, Instructions::apply(actions))))
            };
            tables.change(|pipeline| pipeline.modify(&(1..=RULES).map(rule).collect::<Vec<_>>(), 0)).unwrap();
        };
        set(1);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for state in (1..=250_u8).cycle().skip(1) {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    set(state);
                    // The copy proceeds for some parts before the next change.
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            for _ in 0..2 {
                let snapshot = Snapshot::of(&tables);
                let notes: Vec<u8> = snapshot
                    .rules
                    .chunk_by(|a, b| a == b)
                    .filter(|run| run.len() == NOTE && run[0] != 0)
                    .map(|run| run[0])
                    .collect();
                assert_eq!(notes.len(), usize::from(RULES), "each rule is there once");
                assert!(notes.iter().all(|state| *state == notes[0]), "the copy is of one state");
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}
