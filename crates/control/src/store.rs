//! The running configuration with its owners, and the one way in which it changes.
//!
//! ```text
//!  text or objects --load--> layers --merge, validate--> diff --> [objects to disk, beside] --> plane --> [in place] --> published
//! ```
//!
//! Each step may refuse, and then nothing has changed. Changes happen one at a time, each in a task of its own, so
//! that a client which goes away does not leave one half done. A change that has to be confirmed is rolled back by
//! itself; while it waits, no other is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{
    Change, Config, DoctorFinding, Finding, Fragment, Layers, Merged, ObjectKey, Owner, Plan, PlanReport,
    Problem, ProblemReport, Severity, diff, validate,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::storage::{Prepared, Storage};
use crate::{Access, ChangeError, Plane, StorageError};

/// Objects of a file of which not all are removed at once without `force`.
const MANY: usize = 3;
/// Objects of a file of which not more than half are removed at once without `force`.
const MANY_MORE: usize = 8;

/// Pause before a roll-back that has failed is tried again: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What becomes of a change whose roll-back has failed.
const STUCK: &str =
    "it is tried again until it succeeds; mend the cause, or keep the change (`trivium confirm`)";

/// Objects that one line of the log names.
const NAMED: usize = 8;

/// How a change is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Roll back after this time unless it is confirmed.
    pub confirm: Option<Duration>,
    /// Whether a file may remove most of the objects of the file before.
    pub force: bool,
    /// What the author of the change may name.
    pub access: Access,
}

/// What a change has done, or would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Whether it was done.
    pub applied: bool,
    /// What differs.
    pub plan: PlanReport,
    /// What probably is not meant so.
    pub warnings: Vec<ProblemReport>,
    /// What the data plane tells about it.
    pub notices: Vec<DoctorFinding>,
    /// Seconds within which it must be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<u64>,
}

impl Outcome {
    /// Returns what was done in one line for the log: the number of changes, and the first of the objects. It is empty if nothing was done.
    pub fn summary(&self) -> String {
        if !self.applied {
            return String::new();
        }
        let lines = &self.plan.lines;
        let mut text = match lines.len() {
            0 => return "nothing differs".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        let mut named: Vec<String> = Vec::new();
        for line in lines {
            let name = format!("{}{}", line.sign, line.object);
            if !named.contains(&name) && named.len() < NAMED {
                named.push(name);
            }
        }
        text.push_str(&format!(" ({}{})", named.join(", "), if lines.len() > NAMED { ", ..." } else { "" }));
        if let Some(seconds) = self.confirm_within_s {
            text.push_str(&format!(", rolled back in {seconds} s unless confirmed"));
        }
        text
    }
}

/// Whether a change waits for its confirmation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PendingReport {
    /// Whether one does.
    pub pending: bool,
    /// Seconds until it is rolled back.
    pub left_s: u64,
    /// What became of the last one, in a sentence.
    pub last: String,
}

/// The configuration at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    pub layers: Layers,
    pub merged: Arc<Merged>,
    /// Objects of the API that survive a restart.
    pub stored: BTreeSet<ObjectKey>,
}

/// What becomes of the file of stored objects with a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    /// It follows the change.
    Follows,
    /// It is what the change comes from, and is not written.
    AsItIs,
}

struct Pending {
    previous: State,
    deadline: Instant,
    number: u64,
    /// The change in a line.
    what: String,
}

impl Pending {
    /// Why no other change is taken.
    fn refusal(&self) -> ChangeError {
        ChangeError::Pending { left_s: self.deadline.duration_since(Instant::now()).as_secs() }
    }
}

#[derive(Default)]
struct Gate {
    pending: Option<Pending>,
    numbers: u64,
    last: String,
}

/// While this value lives, no change is made ([`Store::hold`]).
pub(crate) struct Hold(OwnedMutexGuard<Gate>);

impl Hold {
    /// No change is made by this process any more: another process has taken over.
    pub fn for_good(self) {
        std::mem::forget(self.0);
    }
}

/// The running configuration. Cheap to share; all clients and the daemon use the same one.
pub struct Store {
    plane: Arc<dyn Plane>,
    storage: Storage,
    /// Settings that the process was started with: they stay until it ends.
    running: Config,
    /// The path of the API's socket where the command line names it: a file's own does not matter then.
    socket: Option<PathBuf>,
    state: watch::Sender<Arc<State>>,
    /// Whether a client has asked the daemon to end.
    ending: watch::Sender<bool>,
    /// Held while a change is made, and while another process takes over.
    gate: Arc<Mutex<Gate>>,
    /// What was wrong at the start, and did not keep the daemon from starting.
    troubles: Mutex<Vec<DoctorFinding>>,
    /// Why the data plane does not run the configuration that was taken over; until a change succeeds.
    behind: Mutex<Option<DoctorFinding>>,
    /// Why the roll-back of the change that waits has failed.
    stuck: Mutex<Option<String>>,
}

impl Store {
    /// The store of a data plane that has no ports yet and runs with `settings` (whose ports and bridges do not
    /// matter here). Objects that the API had stored are brought back by [`Store::start`].
    pub fn new(plane: Arc<dyn Plane>, settings: &Config) -> Arc<Store> {
        Store::at(plane, settings, None)
    }

    /// As [`Store::new`], for a daemon whose command line names the API's socket.
    pub fn at(plane: Arc<dyn Plane>, settings: &Config, socket: Option<PathBuf>) -> Arc<Store> {
        let running = settings.settings();
        let layers = Layers { base: running.clone(), ..Layers::default() };
        let merged = Arc::new(Merged { config: running.clone(), ..Merged::default() });
        let state = watch::Sender::new(Arc::new(State { layers, merged, stored: BTreeSet::new() }));
        let storage = Storage::new(&running.daemon.state_dir);
        let ending = watch::Sender::new(false);
        Arc::new(Store {
            plane,
            storage,
            running,
            socket,
            state,
            ending,
            gate: Arc::default(),
            troubles: Mutex::default(),
            behind: Mutex::default(),
            stuck: Mutex::default(),
        })
    }

    /// Applies the file and the stored objects of the API together, or, after a hand-over, the objects of other owners that
    /// the predecessor gave.
    /// State that cannot be read or written never keeps the daemon from starting: what cannot be read is put aside, and both are told
    /// in the log and among the notices. After a hand-over (`given` is there) the predecessor has left, and a data plane that refuses the
    /// configuration is no error either: ports, hooks and filters go on as the predecessor had them, the log, the notices and
    /// [`Store::examine_state`] say so, and the next change is tried even if nothing differs.
    ///
    /// # Errors
    ///
    /// As [`Store::apply`], if nothing is `given`. Nothing has changed then.
    pub async fn start(
        self: &Arc<Self>,
        file: Config,
        given: Option<BTreeMap<Owner, Fragment>>,
    ) -> Result<Outcome, ChangeError> {
        let taken_over = given.is_some();
        let storage = self.storage.clone();
        let (stored, trouble) = match blocking(move || storage.read_or_put_aside()).await {
            Err(_) if taken_over => Default::default(),
            read => read?,
        };
        let names: BTreeSet<ObjectKey> = stored.objects().collect();
        let given = given.unwrap_or_else(|| BTreeMap::from([(Owner::Api, stored)]));
        let layers_of = move |state: &State| {
            let mut layers = state.layers.replaced(Owner::File, &file).map_err(ChangeError::Refused)?;
            layers.fragments.extend(given);
            Ok((layers, names))
        };
        // What stands in the file stays there as it is: nothing is written.
        let mut outcome = match self.make_with(Terms::default(), Stored::AsItIs, layers_of.clone()).await {
            Err(error) if taken_over => self.go_on(layers_of, &error).await,
            made => made?,
        };
        if let Some(trouble) = trouble {
            outcome.notices.push(trouble.clone());
            self.tell(trouble).await;
        }
        Ok(outcome)
    }

    /// Goes by the configuration that was taken over, though the data plane refused it.
    async fn go_on(
        &self,
        layers_of: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError>,
        error: &ChangeError,
    ) -> Outcome {
        let _gate = self.gate.lock().await;
        let before = self.state.borrow().clone();
        if let Ok((layers, stored)) = layers_of(&before)
            && let Ok(merged) = layers.merged()
        {
            self.state.send_replace(Arc::new(State { layers, merged: Arc::new(merged), stored }));
        }
        let finding = DoctorFinding {
            object: "config".to_owned(),
            severity: Finding::Error,
            finding: format!(
                "it could not be applied behind the upgrade, and everything runs on as the predecessor had it: {error}"
            ),
            fix: "correct that, then apply the file again (`trivium apply FILE`)".to_owned(),
        };
        tracing::error!("{}: {}; {}", finding.object, finding.finding, finding.fix);
        *self.behind.lock().await = Some(finding.clone());
        Outcome { notices: vec![finding], ..Outcome::default() }
    }

    /// Tells the log and [`Store::examine_state`] of what is wrong since the start, and does not keep the daemon from running.
    pub async fn tell(&self, trouble: DoctorFinding) {
        tracing::error!("{}: {}; {}", trouble.object, trouble.finding, trouble.fix);
        self.troubles.lock().await.push(trouble);
    }

    /// Waits for the change that is being made, and lets none begin while the returned value lives.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Pending`], if a change waits for its confirmation.
    pub(crate) async fn hold(&self) -> Result<Hold, ChangeError> {
        let gate = Arc::clone(&self.gate).lock_owned().await;
        match &gate.pending {
            Some(pending) => Err(pending.refusal()),
            None => Ok(Hold(gate)),
        }
    }

    /// What keeps state from surviving a restart (a state directory that cannot be written, found out by writing, and a file that was put
    /// aside at the start), what else was wrong at the start, why the data plane does not run a configuration that was taken over,
    /// and a roll-back that has failed.
    pub async fn examine_state(&self) -> Vec<DoctorFinding> {
        let storage = self.storage.clone();
        let probed = blocking(move || storage.probe()).await.ok().and_then(Result::err);
        let unwritable = probed.map(|error| DoctorFinding {
            object: "daemon.state_dir".to_owned(),
            severity: Finding::Error,
            finding: format!("state cannot be kept: {}: {}", error.object(), error.cause()),
            fix: error.fix().to_owned(),
        });
        let stuck = self.stuck.lock().await.clone().map(|error| DoctorFinding {
            object: "config".to_owned(),
            severity: Finding::Error,
            finding: format!("a change that was not confirmed runs still: its roll-back failed: {error}"),
            fix: STUCK.to_owned(),
        });
        let troubles = self.troubles.lock().await.clone();
        let behind = self.behind.lock().await.clone();
        troubles.into_iter().chain(behind).chain(unwritable).chain(stuck).collect()
    }

    /// Asks whoever runs the store to end the daemon.
    pub fn stop(&self) {
        self.ending.send_replace(true);
    }

    /// Waits until somebody has asked for the end ([`Store::stop`]).
    pub async fn stopped(&self) {
        let mut ending = self.ending.subscribe();
        // The sender lives as long as the store.
        let _ = ending.wait_for(|ending| *ending).await;
    }

    /// The data plane.
    pub fn plane(&self) -> &Arc<dyn Plane> {
        &self.plane
    }

    /// The configuration with its owners, as it runs now.
    pub fn merged(&self) -> Arc<Merged> {
        self.state.borrow().merged.clone()
    }

    /// The objects of other owners than the file, for a successor.
    pub fn handed_over(&self) -> BTreeMap<Owner, Fragment> {
        let mut fragments = self.state.borrow().layers.fragments.clone();
        fragments.remove(&Owner::File);
        fragments
    }

    /// Applies a configuration as all that `owner` has.
    ///
    /// # Errors
    ///
    /// The first step that refused it; nothing has changed then.
    pub async fn apply(
        self: &Arc<Self>,
        owner: Owner,
        mut config: Config,
        terms: Terms,
    ) -> Result<Outcome, ChangeError> {
        if let Some(socket) = &self.socket {
            config.daemon.api.clone_from(socket);
        }
        self.make(terms, move |state| {
            let layers = state.layers.replaced(owner, &config).map_err(ChangeError::Refused)?;
            if owner == Owner::File && !terms.force && !terms.dry_run {
                not_most(&state.layers, &layers)?;
            }
            Ok((layers, state.stored.clone()))
        })
        .await
    }

    /// Makes one change by `owner`. `persist` says whether the object survives a restart; `None`: as it was.
    ///
    /// # Errors
    ///
    /// The first step that refused it; nothing has changed then.
    pub async fn change(
        self: &Arc<Self>,
        owner: Owner,
        change: Change,
        persist: Option<bool>,
        terms: Terms,
    ) -> Result<Outcome, ChangeError> {
        self.change_by(owner, persist, terms, move |_| Ok(change)).await
    }

    /// Makes one change by `owner` that depends on what there is: no other is made in between.
    pub(crate) async fn change_by(
        self: &Arc<Self>,
        owner: Owner,
        persist: Option<bool>,
        terms: Terms,
        change: impl FnOnce(&Layers) -> Result<Change, ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        self.make(terms, move |state| {
            let change = change(&state.layers)?;
            let object = change.object();
            let layers =
                state.layers.changed(owner, change).map_err(|refusal| ChangeError::Refused(vec![refusal]))?;
            let mut stored = state.stored.clone();
            match persist {
                Some(true) => drop(stored.insert(object)),
                Some(false) => drop(stored.remove(&object)),
                None => {}
            }
            Ok((layers, stored))
        })
        .await
    }

    /// Keeps the change that waits, and returns what it was.
    ///
    /// # Errors
    ///
    /// If none waits, or what has to survive a restart cannot be stored (it goes on waiting then).
    pub async fn confirm(self: &Arc<Self>) -> Result<String, ChangeError> {
        let mut gate = self.gate.lock().await;
        let pending = gate.pending.as_ref().ok_or(ChangeError::NotPending)?;
        let state = self.state.borrow().clone();
        if let Some(prepared) = self.prepare(&pending.previous, &state).await? {
            blocking(move || prepared.commit()).await??;
        }
        let what = gate.pending.take().map(|pending| pending.what).unwrap_or_default();
        gate.last = "confirmed".to_owned();
        *self.stuck.lock().await = None;
        Ok(what)
    }

    /// Rolls the change that waits back now.
    ///
    /// # Errors
    ///
    /// If none waits, or the data plane cannot go back; the change goes on waiting then.
    pub async fn roll_back(self: &Arc<Self>) -> Result<Outcome, ChangeError> {
        let store = self.clone();
        let task = tokio::spawn(async move { store.roll_back_if(|_| true, "rolled back on request").await });
        task.await.map_err(|_| ChangeError::Interrupted)?
    }

    /// Whether a change waits for its confirmation.
    pub async fn pending(&self) -> PendingReport {
        let gate = self.gate.lock().await;
        let left = gate.pending.as_ref().map(|pending| pending.deadline.duration_since(Instant::now()));
        let last = gate.last.clone();
        PendingReport { pending: left.is_some(), left_s: left.map_or(0, |left| left.as_secs()), last }
    }

    /// Makes a change in a task of its own, which goes on if the caller goes away.
    async fn make(
        self: &Arc<Self>,
        terms: Terms,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        self.make_with(terms, Stored::Follows, change).await
    }

    async fn make_with(
        self: &Arc<Self>,
        terms: Terms,
        stored_file: Stored,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        let store = self.clone();
        let task = tokio::spawn(async move { store.make_here(terms, stored_file, change).await });
        task.await.map_err(|_| ChangeError::Interrupted)?
    }

    async fn make_here(
        self: Arc<Self>,
        terms: Terms,
        stored_file: Stored,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError>,
    ) -> Result<Outcome, ChangeError> {
        let mut gate = self.gate.lock().await;
        if let Some(pending) = gate.pending.as_ref().filter(|_| !terms.dry_run) {
            return Err(pending.refusal());
        }
        let before = self.state.borrow().clone();
        let (layers, stored) = change(&before)?;
        let (after, warnings) = self.checked(layers, stored)?;
        terms.access.check(&before.merged.config, &after.merged.config, &self.running.daemon.files)?;
        let plan = self.plan(&before, &after);
        let mut outcome = Outcome { plan: plan.report(), warnings, ..Outcome::default() };
        if terms.dry_run {
            return Ok(outcome);
        }
        // What has to be confirmed is stored when it is.
        let prepared = match terms.confirm {
            Some(_) => None,
            None if stored_file == Stored::AsItIs => None,
            None => self.prepare(&before, &after).await?,
        };
        outcome.notices = self.ask_plane(&plan, &after).await?;
        if let Some(prepared) = prepared
            && let Err(error) = blocking(move || prepared.commit()).await?
        {
            self.ask_plane(&self.plan(&after, &before), &before).await?;
            return Err(error.into());
        }
        outcome.applied = true;
        self.state.send_replace(Arc::new(after));
        if let Some(time) = terms.confirm {
            let what = outcome.summary();
            outcome.confirm_within_s = Some(time.as_secs());
            self.expect_confirmation(&mut gate, State::clone(&before), time, what);
        }
        Ok(outcome)
    }

    /// The layers as a whole, if it is one that can run.
    fn checked(
        &self,
        layers: Layers,
        stored: BTreeSet<ObjectKey>,
    ) -> Result<(State, Vec<ProblemReport>), ChangeError> {
        let merged = layers.merged().map_err(ChangeError::Refused)?;
        let problems = validate(&merged.config, Some(&self.plane.machine()));
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(ChangeError::Problems(problems));
        }
        let api = layers.fragments.get(&Owner::Api);
        let stored =
            stored.into_iter().filter(|object| api.is_some_and(|api| api.contains(object))).collect();
        let state = State { layers, merged: Arc::new(merged), stored };
        Ok((state, problems.iter().map(Problem::report).collect()))
    }

    /// What leads from one state to another, where settings differ from those that the process was started with.
    fn plan(&self, before: &State, after: &State) -> Plan {
        let old = Config {
            filters: before.merged.config.filters.clone(),
            steers: before.merged.config.steers.clone(),
            ports: before.merged.config.ports.clone(),
            bridges: before.merged.config.bridges.clone(),
            routers: before.merged.config.routers.clone(),
            ..self.running.clone()
        };
        diff(&old, &after.merged.config)
    }

    async fn ask_plane(&self, plan: &Plan, after: &State) -> Result<Vec<DoctorFinding>, ChangeError> {
        // A data plane that is behind knows better what differs.
        let behind = self.behind.lock().await.is_some();
        if !behind && plan.operations.len() == plan.needs_restart().count() {
            return Ok(Vec::new());
        }
        let (plane, plan, merged) = (self.plane.clone(), plan.clone(), after.merged.clone());
        let notices = blocking(move || plane.apply(&plan, &merged)).await??;
        *self.behind.lock().await = None;
        Ok(notices)
    }

    /// Brings the objects that survive a restart to the disk, if they are not the same as before.
    async fn prepare(&self, before: &State, after: &State) -> Result<Option<Prepared>, ChangeError> {
        let (storage, objects) = (self.storage.clone(), stored_objects(after));
        if objects == stored_objects(before) {
            return Ok(None);
        }
        Ok(Some(blocking(move || storage.prepare(&objects)).await??))
    }

    fn expect_confirmation(self: &Arc<Self>, gate: &mut Gate, previous: State, time: Duration, what: String) {
        gate.numbers += 1;
        let number = gate.numbers;
        let deadline = Instant::now() + time;
        gate.pending = Some(Pending { previous, deadline, number, what });
        let store = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            let (mut pause, longest) = RETRY;
            loop {
                let Some(store) = store.upgrade() else { return };
                let here = |pending: &Pending| pending.number == number;
                match store.roll_back_if(here, "rolled back: it was not confirmed in time").await {
                    Ok(outcome) => {
                        let what = outcome.summary();
                        tracing::warn!(target: "audit", "config: rolled back, because the change was not confirmed in time: {what}");
                        return;
                    }
                    Err(ChangeError::NotPending) => return,
                    Err(error) => {
                        let pause = pause.as_secs();
                        tracing::error!(target: "audit", "config: the roll-back of a change that was not confirmed failed: {error}; it is tried again in {pause} s");
                    }
                }
                drop(store);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        });
    }

    async fn roll_back_if(
        &self,
        which: impl Fn(&Pending) -> bool,
        why: &str,
    ) -> Result<Outcome, ChangeError> {
        let mut gate = self.gate.lock().await;
        let Some(pending) = gate.pending.as_ref().filter(|pending| which(pending)) else {
            return Err(ChangeError::NotPending);
        };
        let (before, previous) = (self.state.borrow().clone(), pending.previous.clone());
        let plan = self.plan(&before, &previous);
        let notices = match self.ask_plane(&plan, &previous).await {
            Ok(notices) => notices,
            // It goes on waiting: what nobody has confirmed must not stay because of one failure.
            Err(error) => {
                gate.last = format!("the roll-back failed: {error}; {STUCK}");
                *self.stuck.lock().await = Some(error.to_string());
                return Err(error);
            }
        };
        gate.pending = None;
        *self.stuck.lock().await = None;
        self.state.send_replace(Arc::new(previous));
        gate.last = why.to_owned();
        Ok(Outcome { applied: true, plan: plan.report(), notices, ..Outcome::default() })
    }
}

/// Refuses a file without any objects, or with less than half of many that the file before had.
fn not_most(before: &Layers, after: &Layers) -> Result<(), ChangeError> {
    let objects = |layers: &Layers| -> BTreeSet<ObjectKey> {
        let counted = |object: &ObjectKey| {
            matches!(
                object,
                ObjectKey::Filter(_) | ObjectKey::Port(_) | ObjectKey::Bridge(_) | ObjectKey::Router(_)
            )
        };
        layers.fragments.get(&Owner::File).into_iter().flat_map(Fragment::objects).filter(counted).collect()
    };
    let (before, after) = (objects(before), objects(after));
    let (of, removed) = (before.len(), before.difference(&after).count());
    let all = of >= MANY && after.is_empty();
    let most = of >= MANY_MORE && removed * 2 > of;
    if all || most { Err(ChangeError::RemovesMost { removed, of }) } else { Ok(()) }
}

/// Reads the objects that the API of a daemon with this state directory has stored.
///
/// # Errors
///
/// If the file exists and cannot be read.
pub fn stored_api_objects(state_dir: &Path) -> Result<Fragment, StorageError> {
    Storage::new(state_dir).read()
}

fn stored_objects(state: &State) -> Fragment {
    let api = state.layers.fragments.get(&Owner::Api);
    api.map(|api| api.only(|object| state.stored.contains(object))).unwrap_or_default()
}

/// Runs what may block on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ChangeError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ChangeError::Interrupted)
}
