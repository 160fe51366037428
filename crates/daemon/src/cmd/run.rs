//! `trivium run`: the daemon. Configuration, data plane, control plane, and then waiting for signals.
//!
//! SIGTERM and SIGINT end it: hooks are taken off unless they are persistent, devices of our making stay. SIGHUP reads the
//! file again and applies it; a file with mistakes changes nothing. systemd is told READY, RELOADING and WATCHDOG.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{ChangeError, Listeners, Plane, PlaneError, Store, Terms};
use model::{Config, Format, Fragment, Machine, Owner};
use openflow::Sockets;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Run;
use crate::cmd::check;
use crate::database::Database;
use crate::failure::{Failure, Kind};
use crate::log;
use crate::notify::Notifier;
use crate::pid_file::PidFile;
use crate::plane::{DataPlane, Prepared, Surroundings};
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
        if let Some(own) = held(&pid_file).take() {
            own.leave();
        }
        return Ok(());
    }
    plane.shut_down();
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
        let plane = DataPlane::start(&config).map_err(|error| {
            // A name that nobody listens behind would keep clients waiting.
            let _ = std::fs::remove_file(&config.daemon.api);
            plane_failure(error)
        })?;
        plane.keep_rules_in(rules_of(&config), args.restore || config.daemon.restore);
        Ok(Service {
            file: args.config.clone(),
            socket: socket.map(|_| config.daemon.api.clone()),
            config,
            given: None,
            plane,
            listeners,
            sockets: Arc::default(),
            pid_file: Arc::new(Mutex::new(pid_file)),
        })
    }

    fn take_over(args: &Run, socket: Option<&Path>) -> Result<Service, Failure> {
        let mut prepared = Prepared::from_stdin().map_err(|error| failure(&error, "hand-over"))?;
        let plane = DataPlane::take_over(&mut prepared).map_err(|error| failure(&error, "hand-over"))?;
        if let Err(error) = prepared.running() {
            tracing::warn!(%error, "the predecessor has gone early");
        }
        let daemon = &prepared.file.daemon;
        if let Err(error) = log::configure(&daemon.log_levels, daemon.log_file.as_deref()) {
            // Everything is this process' by now: it goes on without.
            tracing::error!("daemon.log_file: {error}; messages are on standard error alone");
        }
        let Prepared { file, others, unix, tcp, sockets, made_by, .. } = prepared;
        let listeners =
            Listeners::adopt(unix, tcp, &file.daemon).map_err(|error| failure(&error, "daemon.api"))?;
        plane.keep_rules_in(rules_of(&file), false);
        let (config, sockets) = (file, Arc::new(Sockets::given(sockets)));
        let pid_file = inherit(&config);
        let file = args.config.clone();
        // The predecessor's configuration has it already.
        let socket = socket.map(|_| config.daemon.api.clone());
        let given = Some((others, made_by));
        Ok(Service { file, socket, config, given, plane, listeners, sockets, pid_file })
    }

    /// Serves the API and waits for the end.
    async fn serve(self) -> Result<End, Failure> {
        let Service { file, socket, config, given, plane, listeners, sockets, pid_file: _ } = self;
        let notifier = Notifier::from_environment();
        let taken_over = given.is_some();
        plane.surround(surroundings(&file, socket.clone(), &listeners, &sockets)?);
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
        let _unixctl = unixctl.map(answer).transpose()?;
        plane.keep_house().map_err(|error| Failure::new("daemon", error, "raise the limit of tasks"))?;
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
    let machine = Machine { cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get) };
    match model::load_on(&text, &path.display().to_string(), Format::Toml, Some(&machine)) {
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
    format!("{ports} ports, {bridges} bridges")
}

/// Waits for signals and for a successor; returns when it is time to end.
async fn watch_signals(
    file: &Path,
    store: &Arc<Store>,
    plane: &DataPlane,
    notifier: &Notifier,
) -> Result<End, Failure> {
    let mut successor = plane.successor();
    let listen =
        |kind| signal(kind).map_err(|error| Failure::new("daemon", error, "look at the kernel's log"));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut watchdog = tokio::time::interval(notifier.watchdog().unwrap_or(Duration::from_secs(3600)));
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(End::Told),
            _ = interrupt.recv() => return Ok(End::Told),
            () = store.stopped() => {
                tracing::info!("told to stop over the API");
                return Ok(End::Told);
            }
            Ok(()) = successor.changed() => {
                if let Some(pid) = *successor.borrow_and_update() {
                    notifier.main_pid(pid);
                    notifier.settle();
                }
                tracing::info!("handed over");
                return Ok(End::HandedOver);
            }
            _ = hang_up.recv() => reload(file, store, plane, notifier).await,
            _ = watchdog.tick() => {
                // Only a control plane that still gets answers from the data plane is alive.
                if notifier.watchdog().is_some() && plane.is_alive() {
                    notifier.alive();
                }
            }
        }
    }
}

/// Applies the file as it is now. A file that is refused changes nothing.
async fn reload(file: &Path, store: &Arc<Store>, plane: &DataPlane, notifier: &Notifier) {
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
    notifier.ready(&status(plane));
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
