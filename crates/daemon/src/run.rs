//! `trivium run`: the daemon. The command loads the configuration, starts the data plane and the control
//! plane, and waits for signals.
//!
//! - SIGTERM and SIGINT end the daemon. The XDP programs of ports (hooks) are removed unless they are configured as
//!   persistent. Devices that the daemon created remain.
//! - SIGHUP reads and applies the configuration file again. A file with mistakes changes nothing.
//! - systemd receives READY, RELOADING and WATCHDOG notifications.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cli::args::Run;
use cli::failure::{Failure, Kind};
use cli::table::counted;
use cli::{print_problems, read_configuration};
use control::{ApplyOptions, ChangeError, Listeners, Lists, PlaneError, Store};
use dataplane::{DataPlane, GivenSockets, ListenerSet, Prepared, machine};
use model::{Config, DoctorFinding, Finding, Format, Fragment, Owner};
use openflow::{SocketFile, Sockets};
use ovs::controllers;
use ovs::database::Database;
use ovs::unixctl::{self, commands};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::log;
use crate::notify::{self, Notifier};
use crate::pid_file::PidFile;
use crate::vlog;

/// Number of threads of the control plane's event loop.
const CONTROL_THREADS: usize = 2;
/// Maximum number of threads for blocking work of the daemon: OpenFlow rules, databases, `ovs-appctl` and
/// configuration changes. Blocking requests of API clients run on separate threads. While the tables of a bridge are
/// locked, the dumps and changes of the bridge's OpenFlow sessions occupy up to 20 threads: 16 that all bridges share,
/// and 4 that are guaranteed to each bridge. The number covers 56 such bridges. The threads are created on demand, and
/// end when they are idle.
const OWN_BLOCKING_WORK: usize = 240;
/// Maximum time for which the new daemon process of an upgrade sends watchdog notifications while it starts. If the
/// start takes longer, the watchdog expires, and the service manager restarts the daemon.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Runs the daemon until it is stopped.
///
/// # Errors
/// The daemon cannot start.
pub fn run(args: &Run, socket: Option<&Path>) -> Result<(), Failure> {
    log::start(args.log_level.as_deref()).map_err(|cause| {
        Failure::new("--log-level", cause, "write off, error, warn, info, debug or trace, or info,audit=warn")
    })?;
    let runtime = runtime()?;
    let service = if args.take_over {
        // The service manager sends signals to a successor as soon as it has taken over.
        let signals = {
            let _in_runtime = runtime.enter();
            Signals::listen()?
        };
        Service::take_over(args, socket, signals)?
    } else {
        Service::start(args, socket)?
    };
    let api = service.listeners.path.display();
    let (version, pid, file) = (env!("CARGO_PKG_VERSION"), std::process::id(), args.config.display());
    let begins = if args.take_over { "takes over" } else { "starts" };
    tracing::info!("trivium {version} {begins}: pid {pid}, configuration {file}, socket {api}");
    let plane = Arc::clone(&service.plane);
    let files = Arc::clone(&service.files);
    let pid_file = Arc::clone(&service.pid_file);
    let served = runtime.block_on(service.serve());
    if let Ok(End::HandedOver) = served {
        // The successor owns all resources now, including the socket file.
        leave(&pid_file);
        return Ok(());
    }
    plane.shut_down();
    if let Some(successor) = plane.left_to() {
        // A successor took over while this process was ending, so the request to end is passed on to the
        // successor.
        leave(&pid_file);
        let successor = i32::try_from(successor).ok().and_then(rustix::process::Pid::from_raw);
        let told = successor.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        tracing::info!(?told, "the successor was told to end");
        return served.map(drop);
    }
    // A socket file without a listener would delay clients.
    std::mem::take(&mut *held(&files)).into_iter().for_each(SocketFile::remove);
    drop(held(&pid_file).take());
    served.map(drop)
}

/// PID file of this process. `None` until this process has locked the file.
type Pid = Arc<Mutex<Option<PidFile>>>;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the PID file without removing the file, so that the new daemon process of an upgrade can lock it.
fn leave(pid: &Pid) {
    if let Some(own) = held(pid).take() {
        own.leave();
    }
}

/// Reason why the daemon ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The daemon received a signal or a stop request.
    Stopped,
    /// Another daemon process (the successor) has taken over the data plane in an upgrade.
    HandedOver,
}

/// All parts of a running daemon: the data plane, and the sockets and files through which clients use it.
struct Service {
    file: PathBuf,
    /// Path of the API socket, if given on the command line.
    socket: Option<PathBuf>,
    config: Config,
    /// State that the predecessor process in an upgrade has passed on: the configuration objects that do not come from
    /// the file (but from the API or OVSDB), and the settings of the frame memory. `None` if there was no predecessor.
    given: Option<(BTreeMap<Owner, Fragment>, model::Memory)>,
    plane: Arc<DataPlane>,
    listeners: Listeners,
    /// Error that prevents clients from connecting to the API's Unix socket after a hand-over.
    unreachable: Option<Failure>,
    /// Unix sockets other than the API socket, which an upgrade hands over to the new daemon process.
    sockets: Arc<Sockets>,
    pid_file: Pid,
    /// Socket files, which are removed when the daemon ends.
    files: Arc<Mutex<Vec<SocketFile>>>,
    /// Signal handlers that were installed before this process took over from a predecessor. `None` if there was no
    /// predecessor.
    signals: Option<Signals>,
}

impl Service {
    fn start(args: &Run, socket: Option<&Path>) -> Result<Service, Failure> {
        let mut config = load(&args.config)?;
        if let Some(socket) = socket {
            config.daemon.api = absolute(socket)?;
        }
        configure_log(&config)?;
        // The PID file is locked before anything of another daemon is touched.
        let pid_file = pid_file(&config)?;
        let listeners = Listeners::bind(&config.daemon).map_err(|error| failure(&error, "daemon.api"))?;
        let api = SocketFile::at(&config.daemon.api);
        let (file, sockets) = (args.config.clone(), Arc::default());
        let socket = socket.map(|_| config.daemon.api.clone());
        let around = surroundings(&file, socket.clone(), &listeners, &sockets);
        let plane = around.and_then(|around| {
            let plane = DataPlane::start(&config).map_err(plane_failure)?;
            plane.surround(around);
            Ok(plane)
        });
        let plane = match plane {
            Ok(plane) => plane,
            Err(failure) => {
                // A socket file without a listener would delay clients.
                api.into_iter().for_each(SocketFile::remove);
                return Err(failure);
            }
        };
        plane.keep_rules_in(rules_of(&config), args.restore || config.daemon.restore);
        let pid_file = Arc::new(Mutex::new(pid_file));
        let (given, signals, files) = (None, None, Arc::new(Mutex::new(api.into_iter().collect())));
        let unreachable = None;
        Ok(Service {
            file,
            socket,
            config,
            given,
            plane,
            listeners,
            unreachable,
            sockets,
            pid_file,
            files,
            signals,
        })
    }

    fn take_over(args: &Run, socket: Option<&Path>, signals: Signals) -> Result<Service, Failure> {
        let (mut prepared, given) = Prepared::from_stdin().map_err(|error| failure(&error, "hand-over"))?;
        let file = args.config.clone();
        // The predecessor's configuration contains the path.
        let socket = socket.map(|_| prepared.file.daemon.api.clone());
        // Everything that can fail happens here, while the predecessor can still continue. A later failure
        // would end the service.
        let (mut listeners, sockets, around) = adopt(&file, socket.clone(), given, &prepared.file)
            .inspect_err(|failure| prepared.refuse(&failure.to_string()))?;
        let plane = DataPlane::take_over(&mut prepared).map_err(|error| failure(&error, "hand-over"))?;
        plane.surround(around);
        // From here on no error ends the process.
        if let Err(error) = prepared.running() {
            tracing::warn!(%error, "the predecessor has gone early");
        }
        // Until here, the predecessor may end this process and continue to use its socket file.
        let unreachable = listeners.publish().err().map(|error| failure(&error, "daemon.api"));
        let daemon = &prepared.file.daemon;
        if let Err(error) = log::configure(&daemon.log_levels, daemon.log_file.as_deref()) {
            // The process owns all resources by now and continues without a log file.
            tracing::error!("daemon.log_file: {error}; messages are on standard error alone");
        }
        let Prepared { file: config, others, made_by, .. } = prepared;
        plane.keep_rules_in(rules_of(&config), false);
        let pid_file = inherit(&config);
        let given = Some((others, made_by));
        let signals = Some(signals);
        let files = Arc::new(Mutex::new(SocketFile::at(&listeners.path).into_iter().collect()));
        Ok(Service {
            file,
            socket,
            config,
            given,
            plane,
            listeners,
            unreachable,
            sockets,
            pid_file,
            files,
            signals,
        })
    }

    /// Serves the API until the daemon must end, and returns the reason for the end.
    async fn serve(self) -> Result<End, Failure> {
        let Service {
            file,
            socket,
            config,
            given,
            plane,
            listeners,
            unreachable,
            sockets,
            files,
            signals,
            ..
        } = self;
        let notifier = Arc::new(Notifier::from_environment());
        let taken_over = given.is_some();
        // The predecessor feeds the watchdog until it ends. The steps up to the signal loop may take longer than
        // a period of the watchdog.
        let fed = Arc::clone(&notifier);
        let feeding = notifier.watchdog().filter(|_| taken_over);
        let feeding = feeding.map(|period| tokio::spawn(feed(period, START_LIMIT, move || fed.alive())));
        let api_path = listeners.path.clone();
        let (given, made_by) =
            given.map_or((None, config.memory.clone()), |(given, made_by)| (Some(given), made_by));
        // Settings that differ from the running ones wait for a restart.
        let mut running = Config { memory: made_by, ..config.settings() };
        running.daemon.api.clone_from(&api_path);
        let store = Store::at(plane.clone(), &running, socket);
        let (followed, unixctl) = (config.ovsdb.clone(), config.daemon.unixctl.clone());
        let outcome = store.start(config, given).await.map_err(|error| change_failure(&error))?;
        go_on(unreachable.map_or(Ok(()), Err), taken_over, &store).await?;
        for note in outcome.notices.iter().filter(|note| note.severity > model::Finding::Ok) {
            tracing::info!("{}: {}", note.object, note.finding);
        }
        let mut database = Database::follow(&store, &plane, &followed);
        // Without this wait, hooks of ports that the database defines would be removed. A successor already has its
        // ports.
        let settled = match database.as_mut().filter(|_| !taken_over) {
            Some(database) => database.settled().await,
            None => true,
        };
        match database.clone().filter(|_| !settled) {
            None => plane.forget_given(),
            Some(mut database) => {
                // Rules of the database's bridges wait until the database was read.
                let plane = Arc::clone(&plane);
                tokio::spawn(async move {
                    database.read().await;
                    plane.forget_given();
                });
            }
        }
        let (reconnect, reconnects) = tokio::sync::mpsc::unbounded_channel();
        let answer = |path: PathBuf| {
            let mut all = commands::general(&store, database.as_ref(), reconnect);
            vlog::add(&mut all);
            let served = answer(&path, &sockets, all)?;
            held(&files).extend(SocketFile::at(&path));
            Ok(served)
        };
        let served = unixctl.map(answer).transpose();
        let _unixctl = go_on(served, taken_over, &store).await?;
        let kept =
            plane.keep_house().map_err(|error| Failure::new("daemon", error, "raise the limit of tasks"));
        go_on(kept, taken_over, &store).await?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let api = tokio::spawn(control::serve(listeners, Arc::clone(&store), async {
            let _ = stopped.await;
        }));
        let (open, opened) = tokio::sync::oneshot::channel();
        let sessions = controllers::run(Arc::clone(&plane), api_path, sockets, database, reconnects, open);
        let sessions = tokio::spawn(sessions);
        // Clients that wait for readiness connect to bridges next.
        let _ = opened.await;
        let signals = match signals {
            Some(signals) => signals,
            None => Signals::listen()?,
        };
        if taken_over {
            notifier.main_pid(std::process::id());
        }
        signals.report_ready(&status(&plane), &notifier);
        if let Some(feeding) = feeding {
            feeding.abort();
        }
        let end = watch_signals(signals, &file, &store, &plane, &notifier).await;
        if end == End::Stopped {
            notifier.stopping();
        }
        sessions.abort();
        drop(stop);
        match api.await {
            Ok(Ok(())) => Ok(end),
            Ok(Err(error)) => Err(failure(&error, "api")),
            Err(error) => Err(Failure::new("api", error, "look at the log")),
        }
    }
}

/// Calls `alive`, which notifies the watchdog, immediately and then once per `period`. Returns when `limit` has
/// elapsed.
async fn feed(period: Duration, limit: Duration, alive: impl Fn()) {
    let feeding = async {
        let mut ticks = tokio::time::interval(period);
        loop {
            ticks.tick().await;
            alive();
        }
    };
    let _ = tokio::time::timeout(limit, feeding).await;
}

/// Returns the value of a successful step of the start. If the step failed after an upgrade,
/// returns the default value and reports the failure in `trivium doctor`. The start must not fail
/// then, because the predecessor can no longer continue, and traffic already flows.
async fn go_on<T: Default>(
    outcome: Result<T, Failure>,
    taken_over: bool,
    store: &Store,
) -> Result<T, Failure> {
    match outcome {
        Err(failure) if taken_over => {
            let Failure { object, cause, fix, .. } = failure;
            let finding = format!("it has failed since the upgrade: {cause}");
            store.report(DoctorFinding { object, severity: Finding::Error, finding, fix }).await;
            Ok(T::default())
        }
        outcome => outcome,
    }
}

/// Takes over the listening sockets of the predecessor process of an upgrade. The result also contains the
/// resources that this process will hand over in the next upgrade.
fn adopt(
    file: &Path,
    socket: Option<PathBuf>,
    given: GivenSockets,
    config: &Config,
) -> Result<(Listeners, Arc<Sockets>, ListenerSet), Failure> {
    let GivenSockets { unix, tcp, others } = given;
    let listeners =
        Listeners::adopt(unix, tcp, &config.daemon).map_err(|error| failure(&error, "daemon.api"))?;
    let sockets = Arc::new(Sockets::given(others));
    let around = surroundings(file, socket, &listeners, &sockets)?;
    Ok((listeners, sockets, around))
}

/// Returns the socket's absolute path, because the new daemon process of an upgrade may have another working
/// directory.
fn absolute(socket: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(socket).map_err(|error| failure_at("--socket", &error, socket))
}

/// Applies the log levels and the log file that the configuration sets.
fn configure_log(config: &Config) -> Result<(), Failure> {
    let daemon = &config.daemon;
    log::configure(&daemon.log_levels, daemon.log_file.as_deref()).map_err(|cause| {
        Failure::new("daemon.log_file", cause, "make its directory, or name a file that is no link")
    })
}

/// Locks the PID file and returns it, or returns `None` if the configuration names no PID file.
fn pid_file(config: &Config) -> Result<Option<PidFile>, Failure> {
    let Some(path) = &config.daemon.pidfile else { return Ok(None) };
    let taken = PidFile::take(path, config.daemon.unixctl.as_deref());
    taken.map(Some).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let cause = format!("{}: already running: another process holds it", path.display());
            Failure::new("daemon.pidfile", cause, "stop that one, or choose another path")
        }
        _ => failure_at("daemon.pidfile", &error, path),
    })
}

/// Locks the PID file like [`pid_file`], but in a separate thread. The thread waits until the predecessor process in an
/// upgrade has ended and released its lock.
fn inherit(config: &Config) -> Pid {
    let pid = Pid::default();
    let Some(path) = config.daemon.pidfile.clone() else { return pid };
    let (own, socket) = (Arc::clone(&pid), config.daemon.unixctl.clone());
    let waits =
        std::thread::Builder::new().name("pidfile".to_owned()).spawn(move || {
            match PidFile::inherit(&path, socket.as_deref()) {
                Ok(taken) => *held(&own) = Some(taken),
                Err(error) => tracing::error!("{}: it names no process now: {error}", path.display()),
            }
        });
    if let Err(error) = waits {
        tracing::error!("daemon.pidfile: it names the predecessor: {error}");
    }
    pid
}

/// Returns the directory in which the OpenFlow rules of bridges are stored for a restart.
fn rules_of(config: &Config) -> PathBuf {
    config.daemon.state_dir.join("rules")
}

/// Starts the task that serves `ovs-appctl` at the unix socket `path`.
fn answer(
    path: &Path,
    sockets: &Arc<Sockets>,
    commands: unixctl::Commands,
) -> Result<tokio::task::JoinHandle<()>, Failure> {
    let failed = |error| failure_at("daemon.unixctl", &error, path);
    unixctl::Server::bind(path, sockets).map_err(failed)?.serve(commands).map_err(failed)
}

fn failure_at(object: &str, error: &std::io::Error, path: &Path) -> Failure {
    Failure::new(object, format!("{}: {error}", path.display()), "make its directory, or choose another path")
}

/// Collects the listening sockets and paths that an upgrade hands over in addition to the state of the data plane.
fn surroundings(
    file: &Path,
    socket: Option<PathBuf>,
    listeners: &Listeners,
    sockets: &Arc<Sockets>,
) -> Result<ListenerSet, Failure> {
    let failed = |error| Failure::new("daemon.api", error, "raise the limit of open files (LimitNOFILE)");
    let tcp = listeners.tcp.as_ref().map(|(socket, _)| socket.try_clone()).transpose().map_err(failed)?;
    let unix = listeners.unix.try_clone().map_err(failed)?;
    let not_inherited = &notify::NOT_INHERITED;
    Ok(ListenerSet { file: file.to_owned(), socket, unix, tcp, sockets: Arc::clone(sockets), not_inherited })
}

/// Creates the event loop (tokio runtime) of the control plane.
///
/// # Errors
/// Threads cannot be created.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .max_blocking_threads(control::BLOCKING_WORK + OWN_BLOCKING_WORK)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|error| Failure::new("control", error, "raise the limit of tasks (TasksMax=)"))
}

/// Reads and checks the configuration file. If the file has mistakes, prints all of them and returns a
/// failure.
pub fn load(path: &Path) -> Result<Config, Failure> {
    let text = read_configuration(path)?;
    match model::load_on(&text, &path.display().to_string(), Format::Toml, Some(&machine())) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            Ok(loaded.config)
        }
        Err(problems) => {
            print_problems(&problems);
            Err(Failure::told(Kind::Refused))
        }
    }
}

fn status(plane: &DataPlane) -> String {
    let (ports, bridges) = (plane.port_count(), plane.bridges().len());
    format!("{}, {}", counted(ports, "port"), counted(bridges, "bridge"))
}

/// Handlers of signals to the daemon. Received signals are kept until [`watch_signals`] handles them. A signal without
/// a handler would end the process without clean-up. Therefore, a method of this type reports that the daemon is ready,
/// which is possible only after the handlers are installed.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs handlers of the signals by which the daemon ends or reloads its configuration.
    fn listen() -> Result<Signals, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new("daemon", error, "look at the kernel's log"));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Reports to the log and to the service manager that the daemon is ready.
    fn report_ready(&self, status: &str, notifier: &Notifier) {
        tracing::info!("ready: {status}");
        notifier.ready(status);
    }
}

/// Handles signals and reload requests until the daemon must end, and returns the reason for the end.
async fn watch_signals(
    mut signals: Signals,
    file: &Path,
    store: &Arc<Store>,
    plane: &Arc<DataPlane>,
    notifier: &Arc<Notifier>,
) -> End {
    let reloads = Reloads::start(file, store, plane, notifier);
    let mut successor = plane.successor();
    let mut watchdog = tokio::time::interval(notifier.watchdog().unwrap_or(Duration::from_secs(3600)));
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            () = store.stopped() => {
                tracing::info!("told to stop over the API");
                break;
            }
            Ok(()) = successor.changed() => {
                if let Some(pid) = *successor.borrow_and_update() {
                    notifier.main_pid(pid);
                    notifier.settle();
                }
                if reloads.is_busy() {
                    tracing::error!(target: "audit", "SIGHUP: not applied: another process has taken over; send it the signal again");
                }
                tracing::info!("handed over");
                return End::HandedOver;
            }
            _ = signals.hang_up.recv() => reloads.order(),
            _ = watchdog.tick() => {
                // The watchdog is fed only while the data plane answers the control plane.
                if notifier.watchdog().is_some() && plane.is_alive() {
                    notifier.alive();
                }
            }
        }
    }
    plane.cancel_upgrade();
    End::Stopped
}

/// Task that reloads the configuration file on request. Applying the file may have to wait for another change.
/// Therefore the task is separate from the handling of signals and of the watchdog, which must not wait.
struct Reloads {
    orders: tokio::sync::mpsc::Sender<()>,
    /// Number of requested reloads that have not been completed.
    left: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Reloads {
    fn start(file: &Path, store: &Arc<Store>, plane: &Arc<DataPlane>, notifier: &Arc<Notifier>) -> Reloads {
        // One queued request, in addition to the running one, is sufficient for all requests that arrive meanwhile.
        let (orders, mut ordered) = tokio::sync::mpsc::channel(1);
        let left = Arc::new(AtomicUsize::new(0));
        let (file, store, plane) = (file.to_owned(), Arc::clone(store), Arc::clone(plane));
        let (notifier, carried_out) = (Arc::clone(notifier), Arc::clone(&left));
        let task = tokio::spawn(async move {
            while ordered.recv().await.is_some() {
                reload(&file, &store, &plane, &notifier).await;
                carried_out.fetch_sub(1, Ordering::AcqRel);
            }
        });
        Reloads { orders, left, task }
    }

    fn order(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
        if self.orders.try_send(()).is_err() {
            self.left.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn is_busy(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the configuration file again and applies it. If the file is refused, the running configuration remains in
/// effect.
async fn reload(file: &Path, store: &Arc<Store>, plane: &Arc<DataPlane>, notifier: &Notifier) {
    notifier.reloading();
    match load(file) {
        Err(failure) => {
            let why = if failure.cause.is_empty() { "see above".to_owned() } else { failure.to_string() };
            tracing::error!(target: "audit", "SIGHUP: {}: refused: {why}; everything is as before", file.display());
        }
        Ok(config) => match store.apply(Owner::File, config, ApplyOptions::default()).await {
            Ok(outcome) => {
                tracing::info!(target: "audit", "SIGHUP: {}: applied, {}", file.display(), outcome.summary())
            }
            Err(error) => {
                tracing::error!(target: "audit", "SIGHUP: {}: refused: {error}; everything is as before", file.display());
            }
        },
    }
    // The call waits for running changes.
    let plane = Arc::clone(plane);
    if let Ok(status) = tokio::task::spawn_blocking(move || status(&plane)).await {
        notifier.ready(&status);
    }
}

/// Converts an error and its source errors into a failure of the process.
pub fn failure(error: &dyn std::error::Error, object: &str) -> Failure {
    plane_failure(PlaneError::failed(object, error, ""))
}

fn plane_failure(error: PlaneError) -> Failure {
    Failure::new(error.object, error.cause, error.fix)
}

fn change_failure(error: &ChangeError) -> Failure {
    match error {
        ChangeError::Plane(error) => plane_failure(error.clone()),
        ChangeError::Problems(problems) => {
            print_problems(problems);
            Failure::told(Kind::Refused)
        }
        other => failure(other, "config"),
    }
}

#[cfg(test)]
mod tests {
    use cli::event_loop::block_on;

    use super::*;

    /// Checks that the dumps and changes of the OpenFlow sessions of 40 bridges whose tables are locked leave threads
    /// for other work.
    #[test]
    fn sessions_of_locked_bridges_leave_threads_for_other_work() {
        let runtime = runtime().unwrap_or_else(|_| panic!("no threads"));
        let (release, locked) = std::sync::mpsc::channel::<()>();
        let locked = Arc::new(std::sync::Mutex::new(locked));
        for _ in 0..16 + 4 * 40 {
            let locked = Arc::clone(&locked);
            runtime.spawn_blocking(move || drop(locked.lock().map(|locked| locked.recv())));
        }
        let other = runtime.spawn_blocking(|| ());
        let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), other).await });
        drop(release);
        assert!(matches!(done, Ok(Ok(()))));
    }

    /// Checks that watchdog notifications are sent while a successor starts, even if the start
    /// takes longer than the watchdog's period. Checks that the notifications end if the start does
    /// not end.
    #[test]
    fn the_watchdog_is_fed_while_a_successor_starts() {
        let count = Arc::new(AtomicUsize::new(0));
        let fed = Arc::clone(&count);
        let alive = move || {
            fed.fetch_add(1, Ordering::Relaxed);
        };
        block_on(async {
            feed(Duration::from_millis(5), Duration::from_millis(500), alive).await;
            Ok(())
        })
        .unwrap();
        let count = count.load(Ordering::Relaxed);
        assert!((3..=102).contains(&count), "{count}");
    }

    #[test]
    fn signals_that_arrive_after_readiness_are_kept_until_they_are_handled() {
        block_on(async {
            let mut signals = Signals::listen()?;
            signals.report_ready("0 ports", &Notifier::from_environment());
            for kind in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
                rustix::process::kill_process(rustix::process::getpid(), kind).unwrap();
            }
            assert_eq!(signals.terminate.recv().await, Some(()));
            assert_eq!(signals.hang_up.recv().await, Some(()));
            Ok(())
        })
        .unwrap();
    }
}
