//! The daemon's log: standard error, and a file in Open vSwitch's format, each with a level by module that `ovs-appctl vlog/set` changes.
//!
//! ```text
//!   tracing events ──┬── filter of CONSOLE ── standard error, in tracing's own format
//!                    └── filter of FILE ───── daemon.log_file, lines as ovs-vswitchd writes them
//! ```
//!
//! Filters are made of [`Levels`]: each module of Open vSwitch stands for the targets whose messages are of its kind. The environment's `RUST_LOG`
//! is the console's filter until its levels change. Nothing is written to the system's log: under systemd the journal has standard error.

mod file;
mod levels;
mod pattern;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::{VlogDestination, VlogSpec};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use file::{FileLines, LogFile, PlainFields};
use levels::Levels;

/// Replaces a destination's filter by one of these directives.
type SetFilter = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

struct Log {
    levels: Mutex<Levels>,
    console: SetFilter,
    /// The file's filter.
    filter: SetFilter,
    file: Arc<LogFile>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log on standard error. `level` or else the environment's `RUST_LOG` chooses other levels than `info`.
///
/// # Errors
/// If `level` is none that is known.
pub fn start(level: Option<&str>) -> Result<(), String> {
    let chosen = match level {
        Some(level) => EnvFilter::try_new(level).map_err(|error| error.to_string())?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let (console, console_handle) = reload::Layer::new(chosen);
    let (filter, filter_handle) = reload::Layer::new(EnvFilter::new("off"));
    let errors = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Files are for reading, and for scripts.
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // Under systemd the journal has the time already.
    let errors = if std::env::var_os("JOURNAL_STREAM").is_some() {
        errors.without_time().with_filter(console).boxed()
    } else {
        errors.with_filter(console).boxed()
    };
    let file = Arc::new(LogFile::default());
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(PlainFields::default())
        .event_format(FileLines::new(&file))
        .with_writer(file::Output(Arc::clone(&file)))
        .with_ansi(false)
        .with_filter(filter);
    if tracing_subscriber::registry().with(errors).with(lines).try_init().is_err() {
        return Err("the log is set up already".to_owned());
    }
    let failed = |error: reload::Error| format!("the level cannot be changed: {error}");
    let log = Log {
        levels: Mutex::new(Levels::default()),
        console: Box::new(move |text| console_handle.reload(EnvFilter::new(text)).map_err(failed)),
        filter: Box::new(move |text| filter_handle.reload(EnvFilter::new(text)).map_err(failed)),
        file,
    };
    let _ = LOG.set(log);
    Ok(())
}

fn log() -> Result<&'static Log, String> {
    LOG.get().ok_or_else(|| "there is no log".to_owned())
}

/// Applies the configuration's levels, and opens its file.
///
/// # Errors
/// If a specification is none, or the file cannot be opened.
pub fn configure(specifications: &[String], file: Option<&Path>) -> Result<(), String> {
    specifications.iter().try_for_each(|text| set(text))?;
    match file {
        None => Ok(()),
        Some(path) => log()?.open(path).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Changes levels or a pattern as a specification of `vlog/set` says.
///
/// # Errors
/// If it is none, in Open vSwitch's words.
pub fn set(text: &str) -> Result<(), String> {
    log()?.set(text.parse()?)
}

/// Returns the levels of all modules, as `vlog/list` prints them.
pub fn list() -> Result<String, String> {
    Ok(log()?.levels().list())
}

/// Returns the patterns of all destinations, as `vlog/list-pattern` prints them.
pub fn list_patterns() -> Result<String, String> {
    Ok(log()?.file.patterns())
}

/// Opens the log file anew, after it was moved away.
///
/// # Errors
/// If there is none, or it cannot be opened.
pub fn reopen() -> Result<(), String> {
    let log = log()?;
    let path = log.file.path().ok_or("Logging to file not configured")?;
    log.open(&path).map_err(|error| error.to_string())
}

/// Closes the log file until it is opened anew.
///
/// # Errors
/// If there is no log.
pub fn close() -> Result<(), String> {
    let log = log()?;
    log.file.close();
    log.apply(VlogDestination::File)
}

impl Log {
    fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, path: &Path) -> std::io::Result<()> {
        // Lines about the change go into both files.
        if self.file.is_open() && !self.file.is_same(path) {
            tracing::info!(target: "vlog", "closing log file");
        }
        if self.file.open(path)? {
            self.apply(VlogDestination::File).map_err(std::io::Error::other)?;
            tracing::info!(target: "vlog", "opened log file {}", path.display());
        }
        Ok(())
    }

    fn set(&self, specification: VlogSpec) -> Result<(), String> {
        match specification {
            VlogSpec::Level { module, destination, level } => {
                self.levels().set(module, destination, level);
                let all = destination.as_ref().map_or(&VlogDestination::ALL[..], std::slice::from_ref);
                all.iter().try_for_each(|destination| self.apply(*destination))
            }
            VlogSpec::Pattern { destination, pattern } => {
                self.file.set_pattern(destination, &pattern);
                Ok(())
            }
            // Nothing is written to the system's log.
            VlogSpec::Facility => Ok(()),
        }
    }

    /// Makes a destination's filter what its levels say.
    fn apply(&self, destination: VlogDestination) -> Result<(), String> {
        let directives = self.levels().directives(destination);
        match destination {
            VlogDestination::Console => (self.console)(&directives),
            VlogDestination::File if self.file.is_open() => (self.filter)(&directives),
            VlogDestination::File => (self.filter)("off"),
            VlogDestination::Syslog => Ok(()),
        }
    }
}
