//! `trivium run`: the daemon. Configuration, data plane, control plane, and then waiting for signals.
//!
//! SIGTERM and SIGINT end it: hooks are taken off unless they are persistent, devices of our making stay. SIGHUP reads the
//! file again and applies it; a file with mistakes changes nothing. systemd is told READY, RELOADING and WATCHDOG.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{ChangeError, Listeners, Plane, PlaneError, Store, Terms};
use model::{Config, DoctorFinding, Finding, Format, Fragment, Owner};
use openflow::Sockets;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Run;
use crate::cmd::check;
use crate::database::Database;
use crate::failure::{Failure, Kind};
use crate::log;
use crate::notify::Notifier;
use crate::pid_file::PidFile;
use crate::plane::{DataPlane, GivenSockets, Prepared, Surroundings, machine};
use crate::table::counted;
use crate::unixctl::{self, commands};

/// Threads of the control plane's event loop.
const CONTROL_THREADS: usize = 2;
/// Threads on which the daemon's own work may block (rules of controllers, databases, `ovs-appctl`, changes), beside the API's clients'.
const OWN_BLOCKING_WORK: usize = 16;

/// Runs until told to stop.
///
/// # Errors
/// If it cannot start.
pub fn run(args: &Run, socket: Option<&Path>) -> Result<(), Failure> {
    log::start(args.log_level.as_deref()).map_err(|cause| {
        Failure::new("--log-level", cause, "write off, error, warn, info, debug or trace, or info,audit=warn")
    })?;
    let runtime = runtime()?;
    let service =
        if args.take_over { Service::take_over(args, socket)? } else { Service::start(args, socket)? };
    let api = service.config.daemon.api.display();
    let (version, pid, file) = (env!("CARGO_PKG_VERSION"), std::process::id(), args.config.display());
    let begins = if args.take_over { "takes over" } else { "starts" };
    tracing::info!("trivium {version} {begins}: pid {pid}, configuration {file}, socket {api}");
    let plane = Arc::clone(&service.plane);
    let sockets = [Some(service.config.daemon.api.clone()), service.config.daemon.unixctl.clone()];
    let pid_file = Arc::clone(&service.pid_file);
    let served = runtime.block_on(service.serve());
    if let Ok(End::HandedOver) = served {
        // Everything is the successor's now, the socket's name included.
        leave(&pid_file);
        return Ok(());
    }
    plane.shut_down();
    if let Some(successor) = plane.left_to() {
        // It had taken over before it could be ended: the order to end is its own now.
        leave(&pid_file);
        let successor = i32::try_from(successor).ok().and_then(rustix::process::Pid::from_raw);
        let told = successor.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        tracing::info!(?told, "the successor was told to end");
        return served.map(drop);
    }
    // A name that nobody listens behind would keep clients waiting.
    for socket in sockets.into_iter().flatten() {
        let _ = std::fs::remove_file(&socket);
    }
    drop(held(&pid_file).take());
    served.map(drop)
}

/// The file that names this process, once it is this one's.
type Pid = Arc<Mutex<Option<PidFile>>>;

fn held(pid: &Pid) -> MutexGuard<'_, Option<PidFile>> {
    pid.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves the file that names this process to a successor.
fn leave(pid: &Pid) {
    if let Some(own) = held(pid).take() {
        own.leave();
    }
}

/// How a daemon's life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// A signal.
    Told,
    /// Another process has taken over.
    HandedOver,
}

/// A data plane with everything that is needed to serve it.
struct Service {
    file: PathBuf,
    /// The API's socket where the command line names it.
    socket: Option<PathBuf>,
    config: Config,
    /// The objects of others than the file that a predecessor gave, and the settings that its frame memory was made by.
    given: Option<(BTreeMap<Owner, Fragment>, model::Memory)>,
    plane: Arc<DataPlane>,
    listeners: Listeners,
    /// Other unix sockets, which a successor gets, too.
    sockets: Arc<Sockets>,
    pid_file: Pid,
}

impl Service {
    fn start(args: &Run, socket: Option<&Path>) -> Result<Service, Failure> {
        let mut config = load(&args.config)?;
        if let Some(socket) = socket {
            config.daemon.api = absolute(socket)?;
        }
        configure_log(&config)?;
        // Before anything of another daemon's is touched.
        let pid_file = pid_file(&config)?;
        let listeners = Listeners::bind(&config.daemon).map_err(|error| failure(&error, "daemon.api"))?;
        let (file, sockets) = (args.config.clone(), Arc::default());
        let socket = socket.map(|_| config.daemon.api.clone());
        let around = surroundings(&file, socket.clone(), &listeners, &sockets);
        let plane = around.and_then(|around| {
            let plane = DataPlane::start(&config).map_err(plane_failure)?;
            plane.surround(around);
            Ok(plane)
        });
        let plane = plane.inspect_err(|_| {
            // A name that nobody listens behind would keep clients waiting.
            let _ = std::fs::remove_file(&config.daemon.api);
        })?;
        plane.keep_rules_in(rules_of(&config), args.restore || config.daemon.restore);
        let pid_file = Arc::new(Mutex::new(pid_file));
        Ok(Service { file, socket, config, given: None, plane, listeners, sockets, pid_file })
    }

    fn take_over(args: &Run, socket: Option<&Path>) -> Result<Service, Failure> {
        let (mut prepared, given) = Prepared::from_stdin().map_err(|error| failure(&error, "hand-over"))?;
        let file = args.config.clone();
        // The predecessor's configuration has it already.
        let socket = socket.map(|_| prepared.file.daemon.api.clone());
        // While the predecessor can go on: without one, what fails would end everything.
        let (listeners, sockets, around) = adopt(&file, socket.clone(), given, &prepared.file)
            .inspect_err(|failure| prepared.refuse(&failure.to_string()))?;
        let plane = DataPlane::take_over(&mut prepared).map_err(|error| failure(&error, "hand-over"))?;
        plane.surround(around);
        // From here on nothing fails.
        if let Err(error) = prepared.running() {
            tracing::warn!(%error, "the predecessor has gone early");
        }
        let daemon = &prepared.file.daemon;
        if let Err(error) = log::configure(&daemon.log_levels, daemon.log_file.as_deref()) {
            // Everything is this process' by now: it goes on without.
            tracing::error!("daemon.log_file: {error}; messages are on standard error alone");
        }
        let Prepared { file: config, others, made_by, .. } = prepared;
        plane.keep_rules_in(rules_of(&config), false);
        let pid_file = inherit(&config);
        let given = Some((others, made_by));
        Ok(Service { file, socket, config, given, plane, listeners, sockets, pid_file })
    }

    /// Serves the API and waits for the end.
    async fn serve(self) -> Result<End, Failure> {
        let Service { file, socket, config, given, plane, listeners, sockets, pid_file: _ } = self;
        let notifier = Arc::new(Notifier::from_environment());
        let taken_over = given.is_some();
        if taken_over {
            // The predecessor feeds the watchdog until it leaves: what comes before the signals' loop has the whole time.
            notifier.alive();
        }
        let api_path = config.daemon.api.clone();
        let (given, made_by) =
            given.map_or((None, config.memory.clone()), |(given, made_by)| (Some(given), made_by));
        // What differs from what runs waits for a restart.
        let store = Store::at(plane.clone(), &Config { memory: made_by, ..config.settings() }, socket);
        let (followed, unixctl) = (config.ovsdb.clone(), config.daemon.unixctl.clone());
        let outcome = store.start(config, given).await.map_err(|error| change_failure(&error))?;
        for note in outcome.notices.iter().filter(|note| note.severity > model::Finding::Ok) {
            tracing::info!("{}: {}", note.object, note.finding);
        }
        let mut database = Database::follow(&store, &plane, &followed);
        // Hooks that wait for ports of the database would be taken off. A successor has its ports already.
        let settled = match database.as_mut().filter(|_| !taken_over) {
            Some(database) => database.settled().await,
            None => true,
        };
        match database.clone().filter(|_| !settled) {
            None => plane.forget_given(),
            Some(mut database) => {
                // Its bridges' rules wait for them.
                let plane = Arc::clone(&plane);
                tokio::spawn(async move {
                    database.read().await;
                    plane.forget_given();
                });
            }
        }
        let (reconnect, reconnects) = tokio::sync::mpsc::unbounded_channel();
        let answer =
            |path: PathBuf| answer(&path, &sockets, commands::general(&store, database.as_ref(), reconnect));
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
        let sessions =
            crate::controllers::run(Arc::clone(&plane), api_path, sockets, database, reconnects, open);
        let sessions = tokio::spawn(sessions);
        // Whoever waits for us speaks to bridges next.
        let _ = opened.await;
        let status = status(&plane);
        tracing::info!("ready: {status}");
        if taken_over {
            notifier.main_pid(std::process::id());
        }
        notifier.ready(&status);
        let end = watch_signals(&file, &store, &plane, &notifier).await?;
        if end == End::Told {
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

/// What has failed, if there is no predecessor any more: traffic goes on, and `doctor` says what is missing.
async fn go_on<T: Default>(
    outcome: Result<T, Failure>,
    taken_over: bool,
    store: &Store,
) -> Result<T, Failure> {
    match outcome {
        Err(failure) if taken_over => {
            let Failure { object, cause, fix, .. } = failure;
            let finding = format!("it has failed since the upgrade: {cause}");
            store.tell(DoctorFinding { object, severity: Finding::Error, finding, fix }).await;
            Ok(T::default())
        }
        outcome => outcome,
    }
}

/// The sockets that a predecessor gave, ready to be served, and what a successor will get.
fn adopt(
    file: &Path,
    socket: Option<PathBuf>,
    given: GivenSockets,
    config: &Config,
) -> Result<(Listeners, Arc<Sockets>, Surroundings), Failure> {
    let GivenSockets { unix, tcp, others } = given;
    let listeners =
        Listeners::adopt(unix, tcp, &config.daemon).map_err(|error| failure(&error, "daemon.api"))?;
    let sockets = Arc::new(Sockets::given(others));
    let around = surroundings(file, socket, &listeners, &sockets)?;
    Ok((listeners, sockets, around))
}

/// The path as seen from the root: a successor may run elsewhere.
fn absolute(socket: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(socket).map_err(|error| failure_at("--socket", &error, socket))
}

/// Logs where the configuration says, and what it says.
fn configure_log(config: &Config) -> Result<(), Failure> {
    let daemon = &config.daemon;
    log::configure(&daemon.log_levels, daemon.log_file.as_deref()).map_err(|cause| {
        Failure::new("daemon.log_file", cause, "make its directory, or name a file that is no link")
    })
}

/// The file that names this process, if there is to be one.
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

/// As [`pid_file`], when the predecessor has ended, which still has it.
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

/// Where rules of bridges are kept.
fn rules_of(config: &Config) -> PathBuf {
    config.daemon.state_dir.join("rules")
}

/// Answers `ovs-appctl` at a socket.
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

/// What a successor will get besides the data plane.
fn surroundings(
    file: &Path,
    socket: Option<PathBuf>,
    listeners: &Listeners,
    sockets: &Arc<Sockets>,
) -> Result<Surroundings, Failure> {
    let failed = |error| Failure::new("daemon.api", error, "raise the limit of open files (LimitNOFILE)");
    let tcp = listeners.tcp.as_ref().map(|(socket, _)| socket.try_clone()).transpose().map_err(failed)?;
    let unix = listeners.unix.try_clone().map_err(failed)?;
    Ok(Surroundings { file: file.to_owned(), socket, unix, tcp, sockets: Arc::clone(sockets) })
}

/// The event loop of the control plane.
///
/// # Errors
/// If threads cannot be had.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .max_blocking_threads(control::BLOCKING_WORK + OWN_BLOCKING_WORK)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|error| Failure::new("control", error, "raise the limit of tasks (TasksMax=)"))
}

/// Reads and checks the file; prints everything that is wrong with it.
pub fn load(path: &Path) -> Result<Config, Failure> {
    let text = check::read(path)?;
    match model::load_on(&text, &path.display().to_string(), Format::Toml, Some(&machine())) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            Ok(loaded.config)
        }
        Err(problems) => {
            check::print(&problems);
            Err(Failure::told(Kind::Refused))
        }
    }
}

fn status(plane: &DataPlane) -> String {
    let (ports, bridges) = (plane.port_count(), plane.bridges().len());
    format!("{}, {}", counted(ports, "port"), counted(bridges, "bridge"))
}

/// Waits for signals and for a successor; returns when it is time to end.
async fn watch_signals(
    file: &Path,
    store: &Arc<Store>,
    plane: &Arc<DataPlane>,
    notifier: &Arc<Notifier>,
) -> Result<End, Failure> {
    let reloads = Reloads::start(file, store, plane, notifier);
    let mut successor = plane.successor();
    let listen =
        |kind| signal(kind).map_err(|error| Failure::new("daemon", error, "look at the kernel's log"));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut watchdog = tokio::time::interval(notifier.watchdog().unwrap_or(Duration::from_secs(3600)));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
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
                return Ok(End::HandedOver);
            }
            _ = hang_up.recv() => reloads.order(),
            _ = watchdog.tick() => {
                // Only a control plane that still gets answers from the data plane is alive.
                if notifier.watchdog().is_some() && plane.is_alive() {
                    notifier.alive();
                }
            }
        }
    }
    plane.cancel_upgrade();
    Ok(End::Told)
}

/// Applies the file when that is asked for, in a task of its own: a change may have to wait, and signals and the watchdog must not.
struct Reloads {
    orders: tokio::sync::mpsc::Sender<()>,
    /// Orders that are not carried out yet.
    left: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Reloads {
    fn start(file: &Path, store: &Arc<Store>, plane: &Arc<DataPlane>, notifier: &Arc<Notifier>) -> Reloads {
        // One more than the one that is being carried out stands for all that come meanwhile.
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

/// Applies the file as it is now. A file that is refused changes nothing.
async fn reload(file: &Path, store: &Arc<Store>, plane: &Arc<DataPlane>, notifier: &Notifier) {
    notifier.reloading();
    match load(file) {
        Err(failure) => {
            let why = if failure.cause.is_empty() { "see above".to_owned() } else { failure.to_string() };
            tracing::error!(target: "audit", "SIGHUP: {}: refused: {why}; everything is as before", file.display());
        }
        Ok(config) => match store.apply(Owner::File, config, Terms::default()).await {
            Ok(outcome) => {
                tracing::info!(target: "audit", "SIGHUP: {}: applied, {}", file.display(), outcome.summary())
            }
            Err(error) => {
                tracing::error!(target: "audit", "SIGHUP: {}: refused: {error}; everything is as before", file.display());
            }
        },
    }
    // It waits for whoever changes what runs.
    let plane = Arc::clone(plane);
    if let Ok(status) = tokio::task::spawn_blocking(move || status(&plane)).await {
        notifier.ready(&status);
    }
}

/// What an error with its sources means for the process.
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
            check::print(problems);
            Failure::told(Kind::Refused)
        }
        other => failure(other, "config"),
    }
}

/// Runs a client command to its end on an event loop of its own.
///
/// # Errors
/// What the command ends with.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("trivium", error, "raise the limit of open files"))?
        .block_on(work)
}
