//! Writes the OpenFlow rules of bridges to rule files ([`super::stored_flows`]). `trivium run --restore` reads the
//! files after the daemon was killed.
//!
//! The file of a bridge is written when its rules have changed, at most twice a second. Writing takes at most a fifth
//! of the time, even with very many rules. Rules are copied in parts, between which the slow path and controllers can
//! lock the tables. Rules that change during the copy are copied again, also in parts, until few changed rules are
//! left. The last changed rules are copied under one lock, so that the file contains a consistent state. If rules
//! change faster than they are copied, the copy is abandoned and repeated later. Only the copy at the end of the
//! process then holds the lock until all rules are copied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::FlowTables;
use switch::flow::{FlowStats, Pipeline};

use super::records::{MetersAndGroups, OptionRecord, RuleRecord, TableRecord, meters_and_groups};
use super::stored_flows::{self, KeptError, Moment};

/// Interval at which the rules are checked for changes. This is also the minimum time between two writes of a bridge's
/// file.
pub const LOOK: Duration = Duration::from_millis(500);
/// Minimum interval between the starts of two consecutive writes of a rule file, as a multiple of the duration of the
/// earlier write.
const SHARE: u32 = 5;
/// Age at which a rule file is written again, if it contains rules with timeouts. Such a file contains the times at
/// which these rules were last used and changed. It becomes outdated even if no rule changes.
const AGED: Duration = Duration::from_secs(10);
/// Time after which a failed write of a rule file is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of rules that are copied before the flow tables are unlocked. Fewer rules are copied at a time if the
/// rules have many actions.
const PART: usize = 256;
/// Maximum number of changed rules that are copied at the end of a copy, while the flow tables stay locked.
const FEW: usize = 4096;
/// Maximum cost of the actions of the rules that are copied at the end of a copy, while the flow tables stay locked.
/// The cost is computed by [`Pipeline::work_to_copy`](switch::flow::Pipeline::work_to_copy). Visiting one rule costs 1.
const FEW_ACTIONS: usize = 1 << 16;
/// Maximum number of times that changed rules are copied again, in parts. Afterwards, the copy is abandoned, or
/// completed while the flow tables stay locked.
const ROUNDS: usize = 16;
/// Maximum number of rule slots that are searched for changed rules before the tables are unlocked.
const LOOKED_AT: usize = 1 << 16;
/// Time for which the tables stay unlocked after each part of a scan or copy, so that other threads can lock the
/// tables.
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

/// Writer of the rule files of all OpenFlow bridges.
pub struct Keeper {
    directory: PathBuf,
    written: BTreeMap<String, Written>,
    swept: bool,
}

impl Keeper {
    /// Creates a writer of rule files in `directory`.
    pub fn new(directory: PathBuf) -> Keeper {
        Keeper { directory, written: BTreeMap::new(), swept: false }
    }

    /// Writes the rule files that are due. If `last` is true, writes all rule files. `waiting` names the bridges that
    /// have not been created yet and may still need the restored rules in their files.
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
                let written = self.keep(&name, bridge, could, last);
                self.written.insert(name, written);
            }
        }
    }

    /// Writes a bridge's rule file. If several writes fail in succession, logs only the first failure, and logs the
    /// first success afterwards. `could` states whether the last write succeeded. `last` means that this process ends
    /// after the call.
    fn keep(&self, name: &str, bridge: Kept, could: bool, last: bool) -> Written {
        let at = Instant::now();
        let Kept { tables, numbers } = bridge;
        let snapshot = Snapshot::of(&tables, last);
        let outcome = match &snapshot {
            Some(snapshot) => snapshot.write(&self.directory, name, &numbers),
            None => Err(KeptError::Busy),
        };
        let took = at.elapsed();
        match &outcome {
            Ok(()) if !could => tracing::info!(bridge = %name, "its rules are kept again"),
            Err(error) if could => tracing::error!(bridge = %name, "its rules are not kept: {error}"),
            _ => {}
        }
        let pause = if outcome.is_ok() { LOOK } else { RETRY };
        Written {
            tables,
            version: snapshot.as_ref().filter(|_| outcome.is_ok()).map(|snapshot| snapshot.version),
            ages: snapshot.is_some_and(|snapshot| snapshot.ages),
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
    /// Copies the rules. If the rules change faster than they are copied, returns `None`, or, if `last` is true, locks
    /// the tables until the copy is complete.
    fn of(tables: &FlowTables, last: bool) -> Option<Snapshot> {
        let mut copy = RuleCopy::default();
        let mut began = tables.lock().version();
        copy.copy_all(tables);
        for round in 0..=ROUNDS {
            let pipeline = tables.lock();
            let version = pipeline.version();
            let places = pipeline.few_places_since(began);
            let is_few =
                |places: &Vec<usize>| places.len() <= FEW && pipeline.work_to_copy(places) <= FEW_ACTIONS;
            if places.as_ref().is_some_and(is_few) || last && round == ROUNDS {
                let places = places.unwrap_or_else(|| {
                    let mut places = Vec::new();
                    pipeline.places_since(began, 0, usize::MAX, &mut places);
                    places
                });
                copy.copy_again(&pipeline, &places);
                let moment = Moment::now();
                let settings = (TableRecord::all(&pipeline), OptionRecord::all(&pipeline));
                let meters_and_groups = pipeline.shared_meters_and_groups();
                drop(pipeline);
                let (rules, ages) = copy.into_rules();
                return Some(Snapshot { version, moment, meters_and_groups, settings, rules, ages });
            }
            drop(pipeline);
            if round < ROUNDS {
                let places = places.unwrap_or_else(|| places_since(tables, began));
                copy.copy_places(tables, &places);
                began = version;
            }
        }
        None
    }

    fn write(&self, directory: &Path, name: &str, numbers: &BTreeMap<String, u32>) -> Result<(), KeptError> {
        let (tables, options) = &self.settings;
        let settings = (tables.as_slice(), options.as_slice());
        let meters_and_groups = meters_and_groups(&self.meters_and_groups);
        let preface = stored_flows::preface(name, &self.moment, numbers, &meters_and_groups, settings);
        stored_flows::write(directory, name, &[&preface, &self.rules])
    }
}

/// State of a copy of a bridge's rules, while the copy is being made.
#[derive(Default)]
struct RuleCopy {
    /// Encoded rules of all slots of the flow tables, as they were when each slot was first copied.
    rules: Vec<u8>,
    /// Slot number and offset in `rules` of each rule.
    starts: Vec<(usize, usize)>,
    /// Encoded rules of the slots that have changed after they were first copied, by slot number. The value is empty if
    /// the slot is now empty.
    latest: BTreeMap<usize, Vec<u8>>,
    /// Whether any of the copied rules has a timeout.
    ages: bool,
}

impl RuleCopy {
    /// Copies all rules in parts. The tables are locked separately for each part.
    fn copy_all(&mut self, tables: &FlowTables) {
        let mut from = Some(0);
        while let Some(place) = from {
            let now = super::now();
            from = tables.lock().rules_from(place, PART, now, |place, stats| {
                self.ages |= has_time_outs(&stats);
                self.starts.push((place, self.rules.len()));
                stored_flows::put_rule(&mut self.rules, &RuleRecord::of(stats, now));
            });
            if from.is_some() {
                std::thread::sleep(LET_GO);
            }
        }
    }

    /// Copies the rules in the slots `places` of the flow tables again, in parts. The tables are locked separately for
    /// each part.
    fn copy_places(&mut self, tables: &FlowTables, places: &[usize]) {
        let mut left = places;
        while !left.is_empty() {
            let pipeline = tables.lock();
            let (part, after) = left.split_at(pipeline.step_of(left, PART));
            left = after;
            self.copy_again(&pipeline, part);
            drop(pipeline);
            std::thread::sleep(LET_GO);
        }
    }

    /// Copies the rules in the slots `places` of the flow tables again.
    fn copy_again(&mut self, pipeline: &Pipeline, places: &[usize]) {
        let now = super::now();
        for place in places {
            let mut rule = Vec::new();
            if let Some(stats) = pipeline.rule_in(*place, now) {
                self.ages |= has_time_outs(&stats);
                stored_flows::put_rule(&mut rule, &RuleRecord::of(stats, now));
            }
            self.latest.insert(*place, rule);
        }
    }

    /// Returns the encoded rules, and whether any of them has a timeout.
    fn into_rules(self) -> (Vec<u8>, bool) {
        let mut rules = self.rules;
        if !self.latest.is_empty() {
            rules = without(&rules, &self.starts, &self.latest);
            self.latest.values().for_each(|rule| rules.extend(rule));
        }
        (rules, self.ages)
    }
}

fn has_time_outs(stats: &FlowStats) -> bool {
    stats.idle_timeout != 0 || stats.hard_timeout != 0
}

/// Returns the slots whose rules have changed since the tables had the version number `version`. The tables are locked
/// separately for each part of the slots. Slots that change during the search may be missing.
fn places_since(tables: &FlowTables, version: u64) -> Vec<usize> {
    let (mut places, mut from) = (Vec::new(), Some(0));
    while let Some(next) = from {
        from = tables.lock().places_since(version, next, LOOKED_AT, &mut places);
        if from.is_some() {
            std::thread::sleep(LET_GO);
        }
    }
    places
}

/// Returns the encoded rules in `rules`, except for the rules of the slots in `places`.
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

    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicBool, Ordering};

    use engine::idle::Waker;
    use switch::flow::{Action, FlowMod, Instructions, Match, Mod};

    use super::*;

    /// Number of rules in the test. Each change in the test changes all rules.
    const RULES: u16 = 4_600;
    /// Length in octets of the `note` action in each rule. Each octet of the action contains the number of the change
    /// that wrote the rule.
    const NOTE: usize = 24;

    /// Calls `copy` while another thread changes all rules again and again, with the pause `pause` between two changes.
    fn during_changes(pause: Duration, copy: impl FnOnce(&FlowTables)) {
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
                    std::thread::sleep(pause);
                }
            });
            // A panic must end the thread, too, because the scope waits for it.
            let copied = std::panic::catch_unwind(AssertUnwindSafe(|| copy(&tables)));
            ends.store(true, Ordering::Relaxed);
            copied.unwrap();
        });
    }

    fn assert_one_state(snapshot: &Snapshot) {
        let notes: Vec<u8> = snapshot
            .rules
            .chunk_by(|a, b| a == b)
            // The octet before the note may have the same value as the note.
            .filter(|run| run.len() >= NOTE && run[0] != 0)
            .map(|run| run[0])
            .collect();
        assert_eq!(notes.len(), usize::from(RULES), "each rule is there once");
        assert!(notes.iter().all(|state| *state == notes[0]), "the copy is of one state");
    }

    /// A copy contains one consistent state of all rules, even if the rules change again and again
    /// during the copy.
    #[test]
    fn a_copy_during_changes_is_of_one_state() {
        // The copy proceeds for some parts before the next change.
        during_changes(Duration::from_millis(50), |tables| {
            (0..2).for_each(|_| assert_one_state(&Snapshot::of(tables, true).unwrap()));
        });
    }

    /// A copy of rules that change faster than they are copied is abandoned, because its last part would lock the
    /// tables for an unbounded time. The copy at the end of the process is always completed.
    #[test]
    fn a_copy_of_rules_that_change_too_fast_is_given_up() {
        during_changes(Duration::ZERO, |tables| {
            assert!(Snapshot::of(tables, false).is_none());
            assert_one_state(&Snapshot::of(tables, true).unwrap());
        });
        let tables = Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
        assert!(Snapshot::of(&tables, false).unwrap().rules.is_empty());
    }
}
