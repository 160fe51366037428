//! The running configuration with the owner of each object, and the procedure that changes it.
//!
//! ```text
//!  text or objects --load--> layers --merge, check--> diff --> [temporary file] --> plane --> [rename file] --> published
//! ```
//!
//! A layer contains the objects of one owner, which is the configuration file, the API, OVSDB or the kernel. The steps
//! in brackets store the objects that persist across restarts. Each step may refuse the change, in which case nothing
//! has changed. Changes are made one at a time. Each change is made in a separate task, so that a client that
//! disconnects does not interrupt it. A change that requires confirmation is rolled back automatically if it is not
//! confirmed in time. While a change waits for its confirmation, no other change is accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{
    Change, Config, ConfigDiff, DoctorFinding, Finding, Fragment, Layers, Merged, ObjectKey, Owner,
    PlanReport, Problem, ProblemReport, Severity, diff, validate,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::storage::{Prepared, Storage};
use crate::{Access, ChangeError, Plane, StorageError};

/// Minimum number of objects in the previous configuration file for which `force` is required to remove all of them.
const MANY: usize = 3;
/// Minimum number of objects in the previous configuration file for which `force` is required to remove more than half
/// of them.
const MANY_MORE: usize = 8;

/// Initial and maximum delay between attempts to roll back a configuration change.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Remedy that is reported for a configuration change whose rollback has failed.
const STUCK: &str =
    "it is tried again until it succeeds; mend the cause, or keep the change (`trivium confirm`)";

/// Maximum number of changed configuration objects that one log line names.
const NAMED: usize = 8;

/// Options of a configuration change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ApplyOptions {
    /// Whether the change is only planned and not applied.
    pub dry_run: bool,
    /// Time after which the change is rolled back unless it is confirmed. `None`: no confirmation is
    /// required.
    pub confirm: Option<Duration>,
    /// Whether the new configuration file may remove most objects of the previous configuration file.
    pub force: bool,
    /// Access rights of the client that makes the change. They determine to which files the change may refer.
    pub access: Access,
}

/// Outcome of a configuration change or of a dry run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Whether the change was applied.
    pub applied: bool,
    /// Differences between the configurations before and after the change.
    pub plan: PlanReport,
    /// Warnings about parts of the configuration that are valid, but probably unintended.
    pub warnings: Vec<ProblemReport>,
    /// Notices of the data plane about the change, such as a port that fell back to generic mode.
    pub notices: Vec<DoctorFinding>,
    /// Number of seconds within which the change must be confirmed. `None` if no confirmation is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<u64>,
}

impl Outcome {
    /// Returns a one-line summary for the log, with the number of changes and the first changed objects. The
    /// summary is empty if nothing was applied.
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

/// Status of configuration changes that require confirmation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PendingReport {
    /// Whether a configuration change waits for its confirmation.
    pub pending: bool,
    /// Number of seconds until the pending change is rolled back. 0 if no change is pending.
    pub left_s: u64,
    /// Result of the last configuration change that required confirmation, in one sentence.
    pub last: String,
}

/// Snapshot of the configuration, with the owner of each object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    pub layers: Layers,
    pub merged: Arc<Merged>,
    /// Keys of the API's objects that persist across restarts.
    pub stored: BTreeSet<ObjectKey>,
}

/// States whether a configuration change writes the file of the API's persistent objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    /// The change also updates the file of persistent objects.
    Follows,
    /// The change does not write the file of persistent objects, because the change consists of the objects in this
    /// file.
    AsItIs,
}

struct Pending {
    previous: State,
    deadline: Instant,
    number: u64,
    /// One-line summary of the pending change.
    what: String,
}

impl Pending {
    /// Returns the error with which other configuration changes are refused while this change is pending.
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

/// Guard that prevents configuration changes while it exists (see [`Store::hold`]).
pub(crate) struct Hold(OwnedMutexGuard<Gate>);

impl Hold {
    /// Prevents all changes until the process ends, because a successor has taken over.
    pub fn for_good(self) {
        std::mem::forget(self.0);
    }
}

/// The store of the running configuration. All API clients and all parts of the daemon share one store.
pub struct Store {
    plane: Arc<dyn Plane>,
    storage: Storage,
    /// Settings with which the process was started. These settings do not change while the process runs.
    running: Config,
    /// Path of the API socket from the command line, which overrides the path in a configuration file.
    socket: Option<PathBuf>,
    state: watch::Sender<Arc<State>>,
    /// Whether an API client has requested that the daemon ends.
    ending: watch::Sender<bool>,
    /// Lock that is held while a configuration change is made, and while a successor process takes over.
    gate: Arc<Mutex<Gate>>,
    /// Problems that occurred at the start of the daemon and did not prevent the daemon from starting.
    troubles: Mutex<Vec<DoctorFinding>>,
    /// Reason why the data plane does not run the configuration of the store. `None` means that the
    /// data plane runs the store's configuration. The data plane can refuse the configuration after
    /// a hand-over, or refuse to undo a change that could not be stored. A successful change clears
    /// the value.
    behind: Mutex<Option<DoctorFinding>>,
    /// Error of the last attempt to replace the file of persistent objects. The file may then have the old or the new
    /// content. `None` if the file has the content of the store. The next successful write clears the value.
    unstored: Mutex<Option<String>>,
    /// Reason why the rollback of the pending change has failed. `None` if no rollback has failed.
    stuck: Mutex<Option<String>>,
}

impl Store {
    /// Creates the store for a data plane that has no ports yet. `settings` are the settings with which the process was
    /// started. Ports and bridges in `settings` are ignored. [`Store::start`] restores the stored objects of the API.
    pub fn new(plane: Arc<dyn Plane>, settings: &Config) -> Arc<Store> {
        Store::at(plane, settings, None)
    }

    /// Creates the store like [`Store::new`], for a daemon whose command line may set the path of
    /// the API socket.
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
            unstored: Mutex::default(),
            stuck: Mutex::default(),
        })
    }

    /// Applies the initial configuration. Without a hand-over, the initial configuration consists
    /// of the configuration file and the stored objects of the API. After a hand-over, the initial
    /// configuration consists of the configuration file and the objects of other owners that the
    /// predecessor process passed on (`given`).
    ///
    /// State files that cannot be read or written never prevent the start. An unreadable file is renamed.
    /// Both cases are reported in the log and in the notices.
    ///
    /// After a hand-over (`given` is present), the predecessor has ended. A refusal of the
    /// configuration by the data plane is then not an error. Ports, hooks and filters continue with
    /// the configuration of the predecessor. The log, the notices and [`Store::examine_state`]
    /// report the refusal. The next change is applied even if the configurations do not differ.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::apply`] if `given` is absent. Nothing has changed then.
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
        // The file of stored objects is the source of the change, so it is not written.
        let mut outcome =
            match self.make_with(ApplyOptions::default(), Stored::AsItIs, layers_of.clone()).await {
                Err(error) if taken_over => self.go_on(layers_of, &error).await,
                made => made?,
            };
        if let Some(trouble) = trouble {
            outcome.notices.push(trouble.clone());
            self.report(trouble).await;
        }
        Ok(outcome)
    }

    /// Makes the initial configuration the current configuration of the store after a hand-over, although the data
    /// plane has refused the configuration. The returned outcome contains a notice about the refusal.
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

    /// Reports a problem that does not prevent the daemon from running. The problem is logged, and
    /// [`Store::examine_state`] returns it.
    pub async fn report(&self, trouble: DoctorFinding) {
        tracing::error!("{}: {}; {}", trouble.object, trouble.finding, trouble.fix);
        self.troubles.lock().await.push(trouble);
    }

    /// Waits for the end of a configuration change in progress. Changes are prevented while the returned value exists.
    ///
    /// # Errors
    ///
    /// Returns [`ChangeError::Pending`] if a change waits for its confirmation.
    pub(crate) async fn hold(&self) -> Result<Hold, ChangeError> {
        let gate = Arc::clone(&self.gate).lock_owned().await;
        match &gate.pending {
            Some(pending) => Err(pending.refusal()),
            None => Ok(Hold(gate)),
        }
    }

    /// Returns the problems of the store:
    ///
    /// - the state directory is not writable (tested by writing to it), or state files were renamed at the
    ///   start because they were unreadable;
    /// - other problems at the start;
    /// - the data plane does not run the configuration of the store, with the reason;
    /// - the file of persistent objects could not be replaced;
    /// - a rollback has failed.
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
        let unstored = self.unstored.lock().await.clone().map(|error| DoctorFinding {
            object: "daemon.state_dir".to_owned(),
            severity: Finding::Error,
            finding: format!(
                "the file of persistent objects may differ from the running ones since it could not be replaced: {error}"
            ),
            fix: "mend the cause, then repeat the change; the next change that succeeds writes the file".to_owned(),
        });
        troubles.into_iter().chain(behind).chain(unstored).chain(unwritable).chain(stuck).collect()
    }

    /// Requests that the daemon ends. The API calls this function for a stop request.
    pub fn stop(&self) {
        self.ending.send_replace(true);
    }

    /// Waits until [`Store::stop`] has requested that the daemon ends.
    pub async fn stopped(&self) {
        let mut ending = self.ending.subscribe();
        // The sender exists as long as the store.
        let _ = ending.wait_for(|ending| *ending).await;
    }

    /// Returns the data plane to which the store applies configurations.
    pub fn plane(&self) -> &Arc<dyn Plane> {
        &self.plane
    }

    /// Returns the settings with which the process was started. The settings in [`Store::merged`] may wait for a
    /// restart.
    pub fn running(&self) -> &Config {
        &self.running
    }

    /// Returns the running configuration with the owner of each object.
    pub fn merged(&self) -> Arc<Merged> {
        self.state.borrow().merged.clone()
    }

    /// Returns the configuration objects of all owners except the file, to be passed to a successor process.
    pub fn handed_over(&self) -> BTreeMap<Owner, Fragment> {
        let mut fragments = self.state.borrow().layers.fragments.clone();
        fragments.remove(&Owner::File);
        fragments
    }

    /// Replaces all objects of `owner` with the objects of a configuration.
    ///
    /// # Errors
    ///
    /// Returns the error of the first step that refused the configuration. Nothing has changed then.
    pub async fn apply(
        self: &Arc<Self>,
        owner: Owner,
        mut config: Config,
        options: ApplyOptions,
    ) -> Result<Outcome, ChangeError> {
        if let Some(socket) = &self.socket {
            config.daemon.api.clone_from(socket);
        }
        self.make(options, move |state| {
            let layers = state.layers.replaced(owner, &config).map_err(ChangeError::Refused)?;
            if owner == Owner::File && !options.force && !options.dry_run {
                not_most(&state.layers, &layers)?;
            }
            Ok((layers, state.stored.clone()))
        })
        .await
    }

    /// Makes one configuration change on behalf of `owner`. `persist` sets whether the changed object persists across
    /// restarts. `None` keeps the object's setting.
    ///
    /// # Errors
    ///
    /// Returns the error of the first step that refused the change. Nothing has changed then.
    pub async fn change(
        self: &Arc<Self>,
        owner: Owner,
        change: Change,
        persist: Option<bool>,
        options: ApplyOptions,
    ) -> Result<Outcome, ChangeError> {
        self.change_by(owner, persist, options, move |_| Ok(change)).await
    }

    /// Makes one configuration change on behalf of `owner`. The function `change` computes the change from the current
    /// objects. No other change is made in between.
    pub(crate) async fn change_by(
        self: &Arc<Self>,
        owner: Owner,
        persist: Option<bool>,
        options: ApplyOptions,
        change: impl FnOnce(&Layers) -> Result<Change, ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        self.make(options, move |state| {
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

    /// Confirms the pending configuration change, and returns the summary of the change.
    ///
    /// # Errors
    ///
    /// Returns an error if no change is pending, or if the persistent objects cannot be stored. In the latter
    /// case, the change stays pending.
    pub async fn confirm(self: &Arc<Self>) -> Result<String, ChangeError> {
        let mut gate = self.gate.lock().await;
        let pending = gate.pending.as_ref().ok_or(ChangeError::NotPending)?;
        let state = self.state.borrow().clone();
        if let Some(prepared) = self.prepare(&pending.previous, &state).await? {
            self.commit(prepared).await?;
        }
        let what = gate.pending.take().map(|pending| pending.what).unwrap_or_default();
        gate.last = "confirmed".to_owned();
        *self.stuck.lock().await = None;
        Ok(what)
    }

    /// Rolls the pending configuration change back immediately.
    ///
    /// # Errors
    ///
    /// Returns an error if no change is pending, or if the data plane cannot return to the previous
    /// configuration. In the latter case, the change stays pending.
    pub async fn roll_back(self: &Arc<Self>) -> Result<Outcome, ChangeError> {
        let store = self.clone();
        let task = tokio::spawn(async move { store.roll_back_if(|_| true, "rolled back on request").await });
        task.await.map_err(|_| ChangeError::Interrupted)?
    }

    /// Returns the status of the pending configuration change.
    pub async fn pending(&self) -> PendingReport {
        let gate = self.gate.lock().await;
        let left = gate.pending.as_ref().map(|pending| pending.deadline.duration_since(Instant::now()));
        let last = gate.last.clone();
        PendingReport { pending: left.is_some(), left_s: left.map_or(0, |left| left.as_secs()), last }
    }

    /// Makes a configuration change in a separate task. The task continues if the caller is cancelled.
    async fn make(
        self: &Arc<Self>,
        options: ApplyOptions,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        self.make_with(options, Stored::Follows, change).await
    }

    async fn make_with(
        self: &Arc<Self>,
        options: ApplyOptions,
        stored_file: Stored,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        let store = self.clone();
        let task = tokio::spawn(async move { store.make_here(options, stored_file, change).await });
        task.await.map_err(|_| ChangeError::Interrupted)?
    }

    async fn make_here(
        self: Arc<Self>,
        options: ApplyOptions,
        stored_file: Stored,
        change: impl FnOnce(&State) -> Result<(Layers, BTreeSet<ObjectKey>), ChangeError> + Send + 'static,
    ) -> Result<Outcome, ChangeError> {
        let mut gate = self.gate.lock().await;
        if let Some(pending) = gate.pending.as_ref().filter(|_| !options.dry_run) {
            return Err(pending.refusal());
        }
        let before = self.state.borrow().clone();
        let (store, old) = (Arc::clone(&self), Arc::clone(&before));
        // A large configuration takes seconds to check and to compare.
        let check = move || {
            let (layers, stored) = change(&old)?;
            let (after, warnings) = store.checked(layers, stored)?;
            let files = &store.running.daemon.files;
            options.access.check(&old.merged.config, &after.merged.config, files)?;
            let changes = store.diff(&old, &after);
            Ok::<_, ChangeError>((after, warnings, changes))
        };
        let (after, warnings, changes) = blocking(check).await??;
        let mut outcome = Outcome { plan: changes.report(), warnings, ..Outcome::default() };
        if options.dry_run {
            return Ok(outcome);
        }
        // A change that requires confirmation is stored when it is confirmed.
        let prepared = match options.confirm {
            Some(_) => None,
            None if stored_file == Stored::AsItIs => None,
            None => self.prepare(&before, &after).await?,
        };
        outcome.notices = self.apply_to_plane(&before, &after).await?;
        if let Some(prepared) = prepared
            && let Err(error) = self.commit(prepared).await
        {
            self.undo(&after, &before, &error).await;
            return Err(error);
        }
        outcome.applied = true;
        self.state.send_replace(Arc::new(after));
        if let Some(time) = options.confirm {
            let what = outcome.summary();
            outcome.confirm_within_s = Some(time.as_secs());
            self.expect_confirmation(&mut gate, State::clone(&before), time, what);
        }
        Ok(outcome)
    }

    /// Merges the configuration objects of all owners and checks the result. Returns the new state with the warnings of
    /// the check.
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

    /// Returns the differences between the configurations of two states, as commands print them. For the daemon's own
    /// settings, the former values are those with which the process was started.
    fn diff(&self, before: &State, after: &State) -> ConfigDiff {
        let old = Config {
            filters: before.merged.config.filters.clone(),
            steering: before.merged.config.steering.clone(),
            ports: before.merged.config.ports.clone(),
            bridges: before.merged.config.bridges.clone(),
            routers: before.merged.config.routers.clone(),
            ..self.running.clone()
        };
        diff(&old, &after.merged.config)
    }

    /// Applies the configuration of `after` to the data plane, unless the data plane already runs an equal
    /// configuration.
    async fn apply_to_plane(&self, before: &State, after: &State) -> Result<Vec<DoctorFinding>, ChangeError> {
        // Settings that take effect only after a restart are compared as well, because an upgrade passes the data
        // plane's settings to the successor.
        let behind = self.behind.lock().await.is_some();
        if !behind && before.merged.config == after.merged.config {
            return Ok(Vec::new());
        }
        let (plane, merged) = (self.plane.clone(), after.merged.clone());
        let notices = blocking(move || plane.apply(&merged)).await??;
        *self.behind.lock().await = None;
        Ok(notices)
    }

    /// Writes the persistent objects to a temporary file if they differ from those of the previous state, or
    /// if the last attempt to store them failed. Returns `None` otherwise.
    async fn prepare(&self, before: &State, after: &State) -> Result<Option<Prepared>, ChangeError> {
        let (storage, objects) = (self.storage.clone(), stored_objects(after));
        if objects == stored_objects(before) && self.unstored.lock().await.is_none() {
            return Ok(None);
        }
        Ok(Some(blocking(move || storage.prepare(&objects)).await??))
    }

    /// Replaces the file of persistent objects. An error is stored for [`Store::examine_state`], and the next change
    /// then writes the file even if it changes no persistent object.
    async fn commit(&self, prepared: Prepared) -> Result<(), ChangeError> {
        let committed = blocking(move || prepared.commit()).await.and_then(|done| Ok(done?));
        *self.unstored.lock().await = committed.as_ref().err().map(ToString::to_string);
        committed
    }

    /// Undoes a change in the data plane, because `error` prevented the change from being stored. If the data plane
    /// refuses, the store records that the data plane does not run the store's configuration.
    async fn undo(&self, after: &State, before: &State, error: &ChangeError) {
        let Err(refusal) = self.apply_to_plane(after, before).await else { return };
        let finding = DoctorFinding {
            object: "config".to_owned(),
            severity: Finding::Error,
            finding: format!(
                "a change that could not be stored ({error}) runs still, because it could not be undone: {refusal}"
            ),
            fix: "mend the causes, then repeat the change; the next change that succeeds repairs this"
                .to_owned(),
        };
        tracing::error!(target: "audit", "{}: {}; {}", finding.object, finding.finding, finding.fix);
        *self.behind.lock().await = Some(finding);
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
        self: &Arc<Self>,
        which: impl Fn(&Pending) -> bool,
        why: &str,
    ) -> Result<Outcome, ChangeError> {
        let mut gate = self.gate.lock().await;
        let Some(pending) = gate.pending.as_ref().filter(|pending| which(pending)) else {
            return Err(ChangeError::NotPending);
        };
        let (before, previous) = (self.state.borrow().clone(), pending.previous.clone());
        let store = Arc::clone(self);
        let compare = move || (store.diff(&before, &previous), before, previous);
        let (changes, before, previous) = blocking(compare).await?;
        let notices = match self.apply_to_plane(&before, &previous).await {
            Ok(notices) => notices,
            // The change stays pending, so that the rollback is tried again. Otherwise, one failed rollback would make
            // an unconfirmed change permanent.
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
        Ok(Outcome { applied: true, plan: changes.report(), notices, ..Outcome::default() })
    }
}

/// Refuses a configuration file that removes most objects of the previous file: all of at least `MANY` objects, or more
/// than half of at least `MANY_MORE` objects.
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

/// Reads the API's persistent objects from the state directory of a daemon.
///
/// # Errors
///
/// Returns an error if the file exists and cannot be read.
pub fn stored_api_objects(state_dir: &Path) -> Result<Fragment, StorageError> {
    Storage::new(state_dir).read()
}

fn stored_objects(state: &State) -> Fragment {
    let api = state.layers.fragments.get(&Owner::Api);
    api.map(|api| api.only(|object| state.stored.contains(object))).unwrap_or_default()
}

/// Runs blocking work on a thread of the blocking pool, and returns the result.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ChangeError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ChangeError::Interrupted)
}
