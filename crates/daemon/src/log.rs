//! Log of the daemon, on standard error and in a file in Open vSwitch's format. Each of these destinations has a
//! log level for each module, which `ovs-appctl vlog/set` changes.
//!
//! ```text
//!   tracing events ──┬── filter of CONSOLE ── standard error, in tracing's own format
//!                    └── filter of FILE ───── daemon.log_file, lines as ovs-vswitchd writes them
//! ```
//!
//! Log filters are built from the [`Levels`] of a destination. A log module of Open vSwitch (such
//! as `bridge`) covers the tracing targets (Rust module paths) of the daemon that have messages of
//! the same kind. Until the levels of standard error are changed, its filter is `--log-level` or
//! `RUST_LOG`. The daemon writes nothing to syslog. Under systemd, the journal receives standard
//! error.

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

/// Function that replaces the log filter of standard error or of the log file. The argument contains
/// directives in the syntax of `RUST_LOG`.
type SetFilter = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

struct Log {
    levels: Mutex<Levels>,
    console: SetFilter,
    /// Function that replaces the log filter of the log file.
    filter: SetFilter,
    file: Arc<LogFile>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log on standard error. `level` is the log filter, in the syntax of `RUST_LOG`. Without `level`, the
/// filter is the value of the environment variable `RUST_LOG`, or `info` if that variable is not set.
///
/// # Errors
/// `level` is not a valid filter, or a log has already been set up.
pub fn start(level: Option<&str>) -> Result<(), String> {
    let chosen = match level {
        Some(level) => EnvFilter::try_new(level).map_err(|error| error.to_string())?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let (console, console_handle) = reload::Layer::new(chosen);
    let (filter, filter_handle) = reload::Layer::new(EnvFilter::new("off"));
    let errors = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Colours would disturb readers of files and scripts.
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // Under systemd the journal adds the time.
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

/// Applies log level specifications (in the syntax of `vlog/set`), and opens the log file `file` if given.
///
/// # Errors
/// A specification is invalid, or the file cannot be opened.
pub fn configure(specifications: &[String], file: Option<&Path>) -> Result<(), String> {
    specifications.iter().try_for_each(|text| set(text))?;
    match file {
        None => Ok(()),
        Some(path) => log()?.open(path).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Changes the log levels of modules, or the pattern of log lines. `text` is a specification: one argument of
/// the command `vlog/set`.
///
/// # Errors
/// The specification is invalid. The message has Open vSwitch's wording.
pub fn set(text: &str) -> Result<(), String> {
    log()?.set(text.parse()?)
}

/// Returns the log levels of all modules in the format of `vlog/list`.
pub fn list() -> Result<String, String> {
    Ok(log()?.levels().list())
}

/// Returns the log line patterns of all destinations in the format of `vlog/list-pattern`.
pub fn list_patterns() -> Result<String, String> {
    Ok(log()?.file.patterns())
}

/// Opens the log file again under its path, after the file was moved away.
///
/// # Errors
/// No file is configured, or the file cannot be opened.
pub fn reopen() -> Result<(), String> {
    let log = log()?;
    let path = log.file.path().ok_or("Logging to file not configured")?;
    log.open(&path).map_err(|error| error.to_string())
}

/// Closes the log file until [`reopen`] is called. Messages are not written to the file meanwhile.
///
/// # Errors
/// The log has not been started.
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
        // Both files receive a message about the change.
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
            // Nothing is written to syslog, so a facility has no effect.
            VlogSpec::Facility => Ok(()),
        }
    }

    /// Builds the log filter of standard error or of the log file from the levels of this destination, and installs
    /// the filter.
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
